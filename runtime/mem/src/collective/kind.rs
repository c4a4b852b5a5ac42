//! What a call of a collective asks for, and whether its lengths fit together.

use crate::collective::same_length;
use crate::collective::schedule::{Call, Counts, starts};
use crate::error::Error;
use crate::group::Group;
use crate::group::tag::Collective;

/// A collective for [`Group::start_shared`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CollectiveKind<'a> {
    /// [`Group::broadcast`], in place.
    Broadcast {
        /// The member whose data it is.
        root: u32,
    },
    /// [`Group::reduce`].
    Reduce {
        /// The member that gets the result.
        root: u32,
    },
    /// [`Group::allreduce`].
    Allreduce,
    /// [`Group::scan`].
    Scan,
    /// [`Group::exclusive_scan`].
    ExclusiveScan,
    /// [`Group::gather`].
    Gather {
        /// The member that gets the data.
        root: u32,
    },
    /// [`Group::gatherv`].
    GatherEach {
        /// The member that gets the data.
        root: u32,
        /// The length of each member's block. Only the root's are looked at.
        counts: &'a [usize],
    },
    /// [`Group::scatter`].
    Scatter {
        /// The member whose data it is.
        root: u32,
    },
    /// [`Group::scatterv`].
    ScatterEach {
        /// The member whose data it is.
        root: u32,
        /// The length of each member's block. Only the root's are looked at.
        counts: &'a [usize],
    },
    /// [`Group::allgather`].
    Allgather,
    /// [`Group::allgatherv`].
    AllgatherEach {
        /// The length of each member's block.
        counts: &'a [usize],
    },
    /// [`Group::alltoall`].
    Alltoall,
    /// [`Group::alltoallv`].
    AlltoallEach {
        /// The length of the block to each member.
        send: &'a [usize],
        /// The length of the block from each member.
        receive: &'a [usize],
    },
    /// [`Group::reduce_scatter`].
    ReduceScatter,
    /// [`Group::reduce_scatterv`].
    ReduceScatterEach {
        /// The length of each member's block.
        counts: &'a [usize],
    },
}

impl CollectiveKind<'_> {
    fn root(self) -> Option<u32> {
        match self {
            CollectiveKind::Broadcast { root }
            | CollectiveKind::Reduce { root }
            | CollectiveKind::Gather { root }
            | CollectiveKind::GatherEach { root, .. }
            | CollectiveKind::Scatter { root }
            | CollectiveKind::ScatterEach { root, .. } => Some(root),
            _ => None,
        }
    }
}

/// How many elements the blocks have together.
fn total(counts: &[usize]) -> usize {
    starts(counts.iter().copied())[counts.len()]
}

impl Group<'_> {
    pub(super) fn times_members(&self, block: usize) -> usize {
        block.saturating_mul(self.members() as usize)
    }

    fn check_counts(&self, counts: &[usize]) -> Result<(), Error> {
        same_length("the list of counts", counts.len(), self.members() as usize)
    }

    /// The call for so many elements in its input and its output, if they fit together. Calls in place have an output only.
    pub(super) fn call_of<'a>(
        &self,
        kind: CollectiveKind<'a>,
        sent: usize,
        received: usize,
    ) -> Result<(Collective, Call<'a>), Error> {
        if let Some(root) = kind.root() {
            self.check_member(root)?;
        }
        let length = received;
        Ok(match kind {
            CollectiveKind::Broadcast { root } => {
                (Collective::Broadcast, Call::Broadcast { root, length })
            }
            CollectiveKind::Reduce { root } => (Collective::Reduce, Call::Reduce { root, length }),
            CollectiveKind::Allreduce => (Collective::Allreduce, Call::Allreduce { length }),
            CollectiveKind::Scan => (Collective::Scan, Call::Scan { length, exclusive: false }),
            CollectiveKind::ExclusiveScan => {
                (Collective::ExclusiveScan, Call::Scan { length, exclusive: true })
            }
            CollectiveKind::Gather { .. } | CollectiveKind::GatherEach { .. } => {
                (Collective::Gather, self.gather_of(kind, sent, received)?)
            }
            CollectiveKind::Scatter { .. } | CollectiveKind::ScatterEach { .. } => {
                (Collective::Scatter, self.scatter_of(kind, sent, received)?)
            }
            CollectiveKind::Allgather | CollectiveKind::AllgatherEach { .. } => {
                let counts = self.allgather_of(kind, sent, received)?;
                (Collective::Allgather, Call::Allgather { counts })
            }
            CollectiveKind::Alltoall => {
                let block = sent / self.members() as usize;
                same_length("the receive buffer", received, sent)?;
                same_length("the data", sent, self.times_members(block))?;
                (Collective::Alltoall, Call::Alltoall { block })
            }
            CollectiveKind::AlltoallEach { send, receive } => {
                self.check_alltoall((send, receive), sent, received)?;
                (Collective::Alltoall, Call::AlltoallEach { send, receive })
            }
            CollectiveKind::ReduceScatter => {
                same_length("the data to send", sent, self.times_members(received))?;
                let counts = Counts::Equal(received);
                (Collective::ReduceScatter, Call::ReduceScatter { counts })
            }
            CollectiveKind::ReduceScatterEach { counts } => {
                self.check_counts(counts)?;
                same_length("the data to send", sent, total(counts))?;
                same_length("the receive buffer", received, counts[self.member() as usize])?;
                let counts = Counts::Each(counts);
                (Collective::ReduceScatter, Call::ReduceScatter { counts })
            }
        })
    }

    fn gather_of<'a>(
        &self,
        kind: CollectiveKind<'a>,
        sent: usize,
        received: usize,
    ) -> Result<Call<'a>, Error> {
        Ok(match kind {
            CollectiveKind::GatherEach { root, counts } if self.member() == root => {
                self.check_counts(counts)?;
                same_length("the receive buffer", received, total(counts))?;
                same_length("the own count", counts[root as usize], sent)?;
                Call::GatherEach { root, mine: sent, counts: Some(counts) }
            }
            CollectiveKind::GatherEach { root, .. } => {
                Call::GatherEach { root, mine: sent, counts: None }
            }
            _ => {
                let root = kind.root().unwrap_or_default();
                if self.member() == root {
                    same_length("the receive buffer", received, self.times_members(sent))?;
                }
                Call::Gather { root, block: sent }
            }
        })
    }

    fn scatter_of<'a>(
        &self,
        kind: CollectiveKind<'a>,
        sent: usize,
        received: usize,
    ) -> Result<Call<'a>, Error> {
        Ok(match kind {
            CollectiveKind::ScatterEach { root, counts } if self.member() == root => {
                self.check_counts(counts)?;
                same_length("the data to send", sent, total(counts))?;
                same_length("the own count", counts[root as usize], received)?;
                Call::ScatterEach { root, mine: received, counts: Some(counts) }
            }
            CollectiveKind::ScatterEach { root, .. } => {
                Call::ScatterEach { root, mine: received, counts: None }
            }
            _ => {
                let root = kind.root().unwrap_or_default();
                if self.member() == root {
                    same_length("the data to send", sent, self.times_members(received))?;
                }
                Call::Scatter { root, block: received }
            }
        })
    }

    fn allgather_of<'a>(
        &self,
        kind: CollectiveKind<'a>,
        sent: usize,
        received: usize,
    ) -> Result<Counts<'a>, Error> {
        let CollectiveKind::AllgatherEach { counts } = kind else {
            same_length("the receive buffer", received, self.times_members(sent))?;
            return Ok(Counts::Equal(sent));
        };
        self.check_counts(counts)?;
        same_length("the receive buffer", received, total(counts))?;
        same_length("the data to send", sent, counts[self.member() as usize])?;
        Ok(Counts::Each(counts))
    }

    fn check_alltoall(
        &self,
        (send, receive): (&[usize], &[usize]),
        sent: usize,
        received: usize,
    ) -> Result<(), Error> {
        let (me, members) = (self.member() as usize, self.members() as usize);
        same_length("the counts to send", send.len(), members)?;
        same_length("the counts to receive", receive.len(), members)?;
        same_length("the data to send", sent, total(send))?;
        same_length("the receive buffer", received, total(receive))?;
        same_length("the count to receive from oneself", receive[me], send[me])
    }
}
