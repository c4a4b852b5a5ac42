//! Path MTU discovery: when the wire is asked how long packets to a rank may be, and the frame sizes
//! that follow.

use kumi_proto::Rank;

use crate::channel::core::{ChannelCore, Handler};
use crate::channel::guard::Guard;
use crate::segment::attachment::Attachment;
use crate::wire::driver::Driver;

/// Bytes of packets that no path is suspected to be too narrow for.
const SHORT: usize = 1_200;

/// When the wire is asked.
#[derive(Debug)]
pub(crate) struct PathMtuChecks {
    /// By rank: it was asked for this one.
    asked: Box<[bool]>,
}

impl PathMtuChecks {
    pub(crate) fn new(ranks: u32) -> PathMtuChecks {
        PathMtuChecks { asked: vec![false; ranks as usize].into() }
    }

    /// Notes that packets have been sent to `to`. Returns how long they may be if there is cause to
    /// ask: they are the first, or long and sent again, or the wire has found some too long.
    #[inline]
    pub(crate) fn left(
        &mut self,
        wire: &mut dyn Driver,
        attachment: &Attachment,
        (to, bytes, resent): (Rank, usize, bool),
    ) -> Option<usize> {
        let asked = std::mem::replace(&mut self.asked[to as usize], true);
        if asked && !(resent && bytes > SHORT) && !wire.too_long() {
            return None;
        }
        wire.longest(attachment, to)
    }
}

impl<H: Handler> ChannelCore<H> {
    /// Largest frame to this rank that need not be fragmented on its way.
    pub(crate) fn max_frame(&self, attachment: &Attachment, to: Rank) -> usize {
        match &self.remote {
            Some(remote) if attachment.local_of(to).is_none() => {
                remote.endpoint.max_unfragmented_frame(to)
            }
            _ => attachment.max_local_frame(),
        }
    }
}

impl<H: Handler> Guard<'_, H> {
    /// Largest frame to a rank that need not be fragmented on its way; cut longer data to this. It
    /// changes with the knowledge of the path.
    #[must_use]
    pub fn max_frame(&self, to: u32) -> usize {
        self.core_ref().max_frame(&self.shared.attachment, to)
    }

    /// Largest frame that every rank of this job can be sent, though perhaps in fragments. It never changes and is the
    /// same for all ranks of a node.
    #[must_use]
    pub fn longest_frame(&self) -> usize {
        let near = self.shared.attachment.max_local_frame();
        let remote = self.core_ref().remote.as_ref();
        remote.map_or(near, |remote| remote.endpoint.max_frame().min(near))
    }
}
