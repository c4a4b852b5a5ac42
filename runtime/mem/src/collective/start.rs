//! Collectives as requests: the same schedules, carried out in rounds by whoever drives the channel.

use std::ptr::NonNull;
use std::sync::Arc;

use kumi_net::{SharedBytes, SharedBytesMut};

use crate::collective::execute::Memory;
use crate::collective::reduction::{NoReduction, Reduction};
use crate::collective::same_length;
use crate::collective::scalar::{Op, Scalar, bytes, bytes_mut};
use crate::collective::schedule::{Call, Counts, Limits, Step, Topology, plan};
use crate::context::Context;
use crate::error::Error;
use crate::group::tag::Collective;
use crate::group::{CallUnderWay, Group};
use crate::request::schedule::{Round, Schedule, Steps};
use crate::request::{Report, RequestHandle};

/// A schedule under way.
struct RunningCollective<T, R> {
    steps: Vec<Step>,
    at: usize,
    /// Rank of each member; none if they are those of the job.
    ranks: Option<Arc<[u32]>>,
    tag: i32,
    input: SharedBytes<'static>,
    output: SharedBytesMut<'static>,
    scratch: Vec<T>,
    op: R,
    /// Bytes of the messages of the round that is under way.
    expected: Vec<usize>,
    /// The group counts it as under way as long as this is there.
    _under_way: CallUnderWay,
}

impl<T: Scalar, R: Reduction<T> + Send> Schedule for RunningCollective<T, R> {
    fn round(&mut self, steps: &mut Steps<'_>) -> Result<Round, Error> {
        for (given, needed) in steps.received().iter().zip(self.expected.drain(..)) {
            same_length("the data of another rank (in bytes)", *given, needed)?;
        }
        while let Some(step) = self.steps.get(self.at).copied() {
            let memory = self.memory();
            match step {
                Step::Copy { from, into } => memory.write(into).copy_from(memory.read(from)),
                Step::Combine { into, other, other_first } => {
                    memory.combine(&self.op, into, other, other_first)?;
                }
                _ => {
                    self.begin(steps);
                    return Ok(Round::Started);
                }
            }
            self.at += 1;
        }
        Ok(Round::Over)
    }
}

impl<T: Scalar, R: Reduction<T> + Send> RunningCollective<T, R> {
    fn memory(&mut self) -> Memory<'static> {
        // SAFETY: a vector of the schedule's own, which does not move. No step is under way while another reference is used.
        let scratch = unsafe { SharedBytesMut::from(bytes_mut(&mut self.scratch)).lend() };
        Memory {
            input: self.input,
            output: self.output,
            scratch,
            shared: None,
            element: size_of::<T>(),
        }
    }

    fn rank_of(&self, member: u32) -> u32 {
        self.ranks.as_ref().map_or(member, |ranks| ranks[member as usize])
    }

    /// Begins the step that is next, and those like it that follow: several sends, or several receives.
    fn begin(&mut self, steps: &mut Steps<'_>) {
        let memory = self.memory();
        let first = self.steps.get(self.at).map(std::mem::discriminant);
        while let Some(step) = self.steps.get(self.at).copied()
            && first == Some(std::mem::discriminant(&step))
        {
            self.at += 1;
            match step {
                Step::Send { to, from } => self.send(steps, to, memory.read(from)),
                Step::Receive { from, into } => self.receive(steps, from, memory.write(into)),
                Step::Exchange { to, out, from, into } => {
                    self.receive(steps, from, memory.write(into));
                    self.send(steps, to, memory.read(out));
                    return;
                }
                Step::Copy { .. } | Step::Combine { .. } => return,
            }
        }
    }

    fn send(&self, steps: &mut Steps<'_>, to: u32, data: SharedBytes<'_>) {
        // SAFETY: memory of this schedule or of its starter, which stays as long as it.
        unsafe { steps.send(self.rank_of(to), self.tag, data) };
    }

    fn receive(&mut self, steps: &mut Steps<'_>, from: u32, into: SharedBytesMut<'_>) {
        self.expected.push(into.len());
        // SAFETY: as for `send`.
        unsafe { steps.receive(self.rank_of(from), self.tag, into) };
    }
}

/// A collective that goes on by itself. It keeps the data meanwhile.
///
/// If it is dropped before its end, it is given up: this member takes part no more, and others may wait for ever.
#[derive(Debug)]
pub struct CollectiveRequest<'c, T> {
    context: &'c Context,
    handle: RequestHandle,
    output: Vec<T>,
    /// Is read until the end.
    _input: Vec<T>,
}

impl<T> CollectiveRequest<'_, T> {
    /// Its handle, for tests and for waits of several. (After a wait for it by its handle, [`CollectiveRequest::wait`] is
    /// refused.)
    #[must_use]
    pub fn handle(&self) -> RequestHandle {
        self.handle
    }

    /// Waits until this member's part is over; the result.
    ///
    /// # Errors
    /// Those of the collective, and of [`Context::wait`].
    pub fn wait(mut self) -> Result<Vec<T>, Error> {
        self.context.wait(self.handle)?;
        Ok(std::mem::take(&mut self.output))
    }
}

impl<T> Drop for CollectiveRequest<'_, T> {
    fn drop(&mut self) {
        if !self.context.is_copy() {
            // If it was waited for it is not there any more.
            let _ = self.context.release(self.handle);
        }
    }
}

/// A collective for [`Group::start_shared`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CollectiveKind {
    /// [`Group::broadcast`], in place.
    Broadcast {
        /// The member whose data it is.
        root: u32,
    },
    /// [`Group::reduce`], in place.
    Reduce {
        /// The member that gets the result.
        root: u32,
    },
    /// [`Group::allreduce`], in place.
    Allreduce,
    /// [`Group::gather`].
    Gather {
        /// The member that gets the data.
        root: u32,
    },
    /// [`Group::scatter`].
    Scatter {
        /// The member whose data it is.
        root: u32,
    },
    /// [`Group::allgather`].
    Allgather,
    /// [`Group::alltoall`].
    Alltoall,
}

/// A call and its memory.
struct Start<'s, T> {
    what: Collective,
    call: Call<'s>,
    input: Vec<T>,
    output: Vec<T>,
}

/// Collectives that return at once. Members begin them in the same order as all others of the group. They go on while the
/// program computes; up to 128 of a group are under way at a time.
impl<'c> Group<'c> {
    /// Begins a collective of vectors, which the request keeps.
    fn start<T: Scalar, R: Reduction<T> + Send + 'static>(
        &self,
        start: Start<'_, T>,
        op: R,
    ) -> Result<CollectiveRequest<'c, T>, Error> {
        let Start { what, call, input, mut output } = start;
        let place = bytes(&input);
        // SAFETY: the request keeps both vectors, which do not move, and touches them no more before it is over or released.
        let handle = unsafe {
            let place = SharedBytes::new(NonNull::from(place).cast(), place.len());
            let into = SharedBytesMut::from(bytes_mut(&mut output)).lend();
            self.start_at((what, call), place, into, op, Report::Handle)
        }?;
        Ok(CollectiveRequest { context: self.context(), handle, output, _input: input })
    }

    /// Begins a collective of memory by its address, for the bindings of other languages. `input` and `output` are what the
    /// function of this name takes and gives; those in place have an output only. Only reductions look at `op`.
    ///
    /// # Errors
    /// Those of that function which are known at once, and of [`Group::start_barrier`].
    ///
    /// # Safety
    /// Until the request has ended or was released, the bytes of `input` and `output` stay as [`SharedBytes::new`] and
    /// [`SharedBytesMut::new`] demand, are elements of `T` and aligned, and nobody else uses those of `output` or writes
    /// those of `input`: so they are no window's.
    pub unsafe fn start_shared<T: Scalar>(
        &self,
        kind: CollectiveKind,
        input: SharedBytes<'_>,
        output: SharedBytesMut<'_>,
        op: Op,
        report: Report<'_>,
    ) -> Result<RequestHandle, Error> {
        let (sent, received) = (input.len() / size_of::<T>(), output.len() / size_of::<T>());
        let call = self.call_of(kind, sent, received)?;
        // SAFETY: the caller's promise.
        unsafe {
            let input =
                SharedBytes::new(NonNull::new_unchecked(input.as_ptr().cast_mut()), input.len());
            self.start_at::<T, _>(call, input, output.lend(), op, report)
        }
    }

    /// The call for so many elements, if they fit together.
    fn call_of(
        &self,
        kind: CollectiveKind,
        sent: usize,
        received: usize,
    ) -> Result<(Collective, Call<'static>), Error> {
        if let CollectiveKind::Broadcast { root }
        | CollectiveKind::Reduce { root }
        | CollectiveKind::Gather { root }
        | CollectiveKind::Scatter { root } = kind
        {
            self.check_member(root)?;
        }
        let is_root = |root| self.member() == root;
        let times = |block| self.times_members(block);
        Ok(match kind {
            CollectiveKind::Broadcast { root } => {
                (Collective::Broadcast, Call::Broadcast { root, length: received })
            }
            CollectiveKind::Reduce { root } => {
                (Collective::Reduce, Call::Reduce { root, length: received })
            }
            CollectiveKind::Allreduce => {
                (Collective::Allreduce, Call::Allreduce { length: received })
            }
            CollectiveKind::Gather { root } => {
                let needed = if is_root(root) { times(sent) } else { received };
                same_length("the receive buffer", received, needed)?;
                (Collective::Gather, Call::Gather { root, block: sent })
            }
            CollectiveKind::Scatter { root } => {
                let needed = if is_root(root) { times(received) } else { sent };
                same_length("the data to send", sent, needed)?;
                (Collective::Scatter, Call::Scatter { root, block: received })
            }
            CollectiveKind::Allgather => {
                same_length("the receive buffer", received, times(sent))?;
                (Collective::Allgather, Call::Allgather { counts: Counts::Equal(sent) })
            }
            CollectiveKind::Alltoall => {
                let block = sent / self.members() as usize;
                same_length("the data", sent, times(block))?;
                same_length("the receive buffer", received, sent)?;
                (Collective::Alltoall, Call::Alltoall { block })
            }
        })
    }

    /// # Safety
    /// As [`Group::start_shared`].
    unsafe fn start_at<T: Scalar, R: Reduction<T> + Send + 'static>(
        &self,
        (what, call): (Collective, Call<'_>),
        input: SharedBytes<'static>,
        output: SharedBytesMut<'static>,
        op: R,
        report: Report<'_>,
    ) -> Result<RequestHandle, Error> {
        op.combine(&mut [], &[])?;
        // To ask the others now could mean to wait for them. Whether it is known is the same at all members.
        let flat;
        let topology = match self.known_topology() {
            Some(topology) => topology,
            None => {
                flat = Topology::new((0..self.members()).map(u64::from));
                &flat
            }
        };
        let number = self.next_call()?;
        let tag = self.tag_of(number, what, call.root());
        let commutative = op.is_commutative();
        // Calls that overlap cannot share one piece of memory.
        let limits = Limits { element: size_of::<T>(), shares: false, commutative };
        let schedule = plan(call, topology, self.member(), limits);
        let running = RunningCollective {
            steps: schedule.steps,
            at: 0,
            ranks: self.ranks(),
            tag,
            input,
            output,
            scratch: vec![T::default(); schedule.scratch],
            op,
            expected: Vec::new(),
            _under_way: self.call_under_way(number),
        };
        // SAFETY: the caller's promise.
        let handle = unsafe { self.context().start_schedule(Box::new(running), report) }?;
        // Only now: after a start that failed the next one has this number, as it has at the other members.
        self.count_call(number);
        Ok(handle)
    }

    /// As [`Group::barrier`].
    ///
    /// # Errors
    /// [`Error::TooManyRequests`], [`Error::Fault`], as of all that return at once.
    pub fn start_barrier(&self, report: Report<'_>) -> Result<RequestHandle, Error> {
        let (input, output) = (SharedBytes::default(), SharedBytesMut::default());
        let call = (Collective::Barrier, Call::Barrier);
        // SAFETY: no memory.
        unsafe { self.start_at::<u8, _>(call, input, output, NoReduction, report) }
    }

    /// As [`Group::broadcast`]; the others give a vector of the same length.
    ///
    /// # Errors
    /// Those of [`Group::broadcast`] that are known at once, and of [`Group::start_barrier`].
    pub fn start_broadcast<T: Scalar>(
        &self,
        root: u32,
        data: Vec<T>,
    ) -> Result<CollectiveRequest<'c, T>, Error> {
        self.check_member(root)?;
        let call = Call::Broadcast { root, length: data.len() };
        let what = Collective::Broadcast;
        self.start(Start { what, call, input: Vec::new(), output: data }, NoReduction)
    }

    /// As [`Group::reduce`]; the other members get their vectors back, used up.
    ///
    /// # Errors
    /// Those of [`Group::reduce`] that are known at once, and of [`Group::start_barrier`].
    pub fn start_reduce<T: Scalar>(
        &self,
        root: u32,
        op: impl Reduction<T> + Send + 'static,
        data: Vec<T>,
    ) -> Result<CollectiveRequest<'c, T>, Error> {
        self.check_member(root)?;
        let call = Call::Reduce { root, length: data.len() };
        self.start(Start { what: Collective::Reduce, call, input: Vec::new(), output: data }, op)
    }

    /// As [`Group::allreduce`].
    ///
    /// ```
    /// # fn main() -> Result<(), kumi_mem::Error> {
    /// let context = kumi_mem::Context::init_singleton()?;
    /// let sum = context.group().start_allreduce(kumi_mem::Op::Sum, vec![1.5, 2.5])?;
    /// // The program computes.
    /// assert_eq!(sum.wait()?, [1.5, 2.5]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Group::allreduce`] that are known at once, and of [`Group::start_barrier`].
    pub fn start_allreduce<T: Scalar>(
        &self,
        op: impl Reduction<T> + Send + 'static,
        data: Vec<T>,
    ) -> Result<CollectiveRequest<'c, T>, Error> {
        let call = Call::Allreduce { length: data.len() };
        self.start(Start { what: Collective::Allreduce, call, input: Vec::new(), output: data }, op)
    }

    /// As [`Group::scan`].
    ///
    /// # Errors
    /// As [`Group::start_allreduce`].
    pub fn start_scan<T: Scalar>(
        &self,
        op: impl Reduction<T> + Send + 'static,
        data: Vec<T>,
    ) -> Result<CollectiveRequest<'c, T>, Error> {
        let call = Call::Scan { length: data.len(), exclusive: false };
        self.start(Start { what: Collective::Scan, call, input: Vec::new(), output: data }, op)
    }

    /// As [`Group::exclusive_scan`].
    ///
    /// # Errors
    /// As [`Group::start_allreduce`].
    pub fn start_exclusive_scan<T: Scalar>(
        &self,
        op: impl Reduction<T> + Send + 'static,
        data: Vec<T>,
    ) -> Result<CollectiveRequest<'c, T>, Error> {
        let (what, length) = (Collective::ExclusiveScan, data.len());
        let call = Call::Scan { length, exclusive: true };
        self.start(Start { what, call, input: Vec::new(), output: data }, op)
    }

    /// As [`Group::gather`]; the result is empty at all members but the root.
    ///
    /// # Errors
    /// Those of [`Group::gather`] that are known at once, and of [`Group::start_barrier`].
    pub fn start_gather<T: Scalar>(
        &self,
        root: u32,
        send: Vec<T>,
    ) -> Result<CollectiveRequest<'c, T>, Error> {
        self.check_member(root)?;
        let all = if self.member() == root { self.times_members(send.len()) } else { 0 };
        let (what, call) = (Collective::Gather, Call::Gather { root, block: send.len() });
        self.start(Start { what, call, input: send, output: room(all)? }, NoReduction)
    }

    /// As [`Group::scatter`], of blocks of this length; the data of all members but the root is not used.
    ///
    /// # Errors
    /// Those of [`Group::scatter`] that are known at once, and of [`Group::start_barrier`].
    pub fn start_scatter<T: Scalar>(
        &self,
        root: u32,
        send: Vec<T>,
        block: usize,
    ) -> Result<CollectiveRequest<'c, T>, Error> {
        self.check_member(root)?;
        if self.member() == root {
            same_length("the data to send", send.len(), self.times_members(block))?;
        }
        let (what, call) = (Collective::Scatter, Call::Scatter { root, block });
        self.start(Start { what, call, input: send, output: room(block)? }, NoReduction)
    }

    /// As [`Group::allgather`].
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], and those of [`Group::start_barrier`].
    pub fn start_allgather<T: Scalar>(
        &self,
        send: Vec<T>,
    ) -> Result<CollectiveRequest<'c, T>, Error> {
        let output = room(self.times_members(send.len()))?;
        let call = Call::Allgather { counts: Counts::Equal(send.len()) };
        self.start(Start { what: Collective::Allgather, call, input: send, output }, NoReduction)
    }

    /// As [`Group::alltoall`].
    ///
    /// # Errors
    /// Those of [`Group::alltoall`] that are known at once, and of [`Group::start_barrier`].
    pub fn start_alltoall<T: Scalar>(
        &self,
        send: Vec<T>,
    ) -> Result<CollectiveRequest<'c, T>, Error> {
        let block = send.len() / self.members() as usize;
        same_length("the data", send.len(), self.times_members(block))?;
        let (call, output) = (Call::Alltoall { block }, room(send.len())?);
        self.start(Start { what: Collective::Alltoall, call, input: send, output }, NoReduction)
    }

    /// As [`Group::reduce_scatter`].
    ///
    /// # Errors
    /// Those of [`Group::reduce_scatter`] that are known at once, and of [`Group::start_barrier`].
    pub fn start_reduce_scatter<T: Scalar>(
        &self,
        op: impl Reduction<T> + Send + 'static,
        send: Vec<T>,
    ) -> Result<CollectiveRequest<'c, T>, Error> {
        let block = send.len() / self.members() as usize;
        same_length("the data", send.len(), self.times_members(block))?;
        let call = Call::ReduceScatter { counts: Counts::Equal(block) };
        let what = Collective::ReduceScatter;
        self.start(Start { what, call, input: send, output: room(block)? }, op)
    }
}

impl Context {
    /// Begins a barrier of all ranks and returns at once. The request is over when all ranks have begun theirs.
    ///
    /// # Errors
    /// As [`Group::start_barrier`].
    pub fn start_barrier(&self, report: Report<'_>) -> Result<RequestHandle, Error> {
        self.group().start_barrier(report)
    }
}

/// Memory for a result.
fn room<T: Scalar>(length: usize) -> Result<Vec<T>, Error> {
    let mut room = Vec::new();
    let bytes = length.saturating_mul(size_of::<T>()) as u64;
    let full = |_| Error::OutOfMemory { bytes, what: "the result of a collective" };
    room.try_reserve_exact(length).map_err(full)?;
    room.resize(length, T::default());
    Ok(room)
}
