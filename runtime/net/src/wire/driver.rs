//! Driver: moves packets between this rank and ranks of other nodes. The code above knows only runs of
//! packets and ranks, so another kind of wire needs another driver and nothing else.

use std::io;
use std::os::fd::RawFd;

use kumi_proto::{Piece, Rank};

use crate::segment::attachment::Attachment;

/// A wire to the ranks of other nodes. It may lose, double, reorder and damage packets, and need not
/// report it. The holder of the channel's lock uses it. No call waits for a packet to arrive; `send` waits
/// some milliseconds at most for room.
pub(crate) trait Driver: Send + std::fmt::Debug {
    /// Receives at least one packet if there is one; false if there is none. The packets received
    /// before are gone then. It is polled, so it has to be quick when there is none.
    ///
    /// # Errors
    /// An error that will not go away by itself.
    fn receive(&mut self) -> io::Result<bool>;

    /// The packets that [`Driver::receive`] took in last.
    fn received(&self) -> PacketRun<'_>;

    /// Puts packets for `to` on the wire; their memory may change afterwards. False if they were not
    /// taken: they count as lost.
    ///
    /// # Errors
    /// An error that will not go away by itself.
    fn send(
        &mut self,
        attachment: &Attachment,
        to: Rank,
        packets: PacketRun<'_>,
    ) -> io::Result<bool>;

    /// The kernel's code for refusing the packets that [`Driver::send`] was given last, if this machine
    /// forbids them. `None` if they only lacked room.
    fn refusal(&self) -> Option<i32>;

    /// Some packet was longer than its way takes whole, as the wire has found out since this was last asked.
    fn too_long(&mut self) -> bool;

    /// Bytes of the longest packet that reaches `to` whole, as far as the wire knows now; `None` if it does not.
    fn longest(&self, attachment: &Attachment, to: Rank) -> Option<usize>;

    /// A descriptor that is readable when there is something to receive.
    fn readable(&self) -> RawFd;

    /// From now on [`Driver::gone`] is asked: keep what it needs.
    ///
    /// # Errors
    /// The wire's error.
    fn watch_for_gone(&self) -> io::Result<()>;

    /// A rank whose process has ended, as far as the wire tells; each at least once.
    fn gone(&self, attachment: &Attachment) -> Option<Rank>;
}

/// Packets, each `segment` bytes long but perhaps the last. They lie end to end, or in pieces.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PacketRun<'b> {
    pub(crate) bytes: &'b [u8],
    /// If there are any, the packets: parts of each lie in `bytes`, others where programs have lent them ([`crate::channel::zero_copy`]).
    pub(crate) pieces: &'b [Piece],
    /// Not 0.
    pub(crate) segment: usize,
    /// They are too long to arrive whole: they may come in fragments.
    pub(crate) fragment: bool,
}

impl<'b> PacketRun<'b> {
    /// Packets that lie end to end.
    pub(crate) fn contiguous(bytes: &'b [u8], segment: usize, fragment: bool) -> PacketRun<'b> {
        PacketRun { bytes, pieces: &[], segment, fragment }
    }

    /// Lays packets that lie in pieces end to end, in `room`.
    pub(crate) fn gather_into(self, room: &mut Vec<u8>) -> PacketRun<'_> {
        room.clear();
        for piece in self.pieces {
            room.extend_from_slice(&self.bytes[piece.at..piece.at + piece.head]);
            let end = room.len();
            room.resize(end + piece.rest, 0);
            // SAFETY: the endpoint names only what is lent now.
            unsafe { crate::channel::zero_copy::copy(piece.place, &mut room[end..]) };
        }
        PacketRun::contiguous(room, self.segment, self.fragment)
    }

    /// One by one, if they lie end to end.
    pub(crate) fn each(self) -> impl Iterator<Item = &'b [u8]> {
        self.bytes.chunks(self.segment)
    }

    /// There is more than one.
    pub(crate) fn is_run(self) -> bool {
        self.pieces.len() > 1 || (self.pieces.is_empty() && self.bytes.len() > self.segment)
    }
}
