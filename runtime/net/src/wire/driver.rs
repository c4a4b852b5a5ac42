//! Driver: moves packets between this rank and ranks of other nodes. The code above knows only runs of
//! packets and ranks, so another kind of wire needs another driver and nothing else.
//!
//! To add a wire, implement [`Driver`] and start the channel on it with [`crate::Wire::Own`]. What the channel
//! promises, and what it needs:
//!
//! | | promise of the channel | duty of the driver |
//! |---|---|---|
//! | threads | one at a time calls, the holder of the channel's lock | it may move between threads |
//! | loss | the protocol resends | none: it may lose, double, reorder, delay and damage packets |
//! | strangers | each packet is checked by key and checksum | none: it may hand over anything that arrives |
//! | memory to send | `bytes` are good until [`Driver::send`] returns, places in `pieces` until [`Driver::finish`] | to read neither later |
//! | registration | [`Driver::register`] names the rank's window memory before anything is sent | to pin or map it, if it needs to |
//! | received packets | they are copied once, from where they lie to where they belong | to leave them there until the next [`Driver::receive`] |
//! | data to receive | a [`Landing`] is memory for data that comes next; what lands there is checked by its header afterwards | none: it may decline, or lay any packet there |
//! | sleep | the rank sleeps on all of [`Driver::sleep_on`] | one of them is readable while something can be received |

use std::io;
use std::ops::Range;
use std::os::fd::RawFd;

use kumi_proto::{Piece, Rank};

use crate::segment::attachment::Attachment;
use crate::shared_bytes::SharedBytesMut;

/// Most descriptors that a driver sleeps on.
pub const MOST_DESCRIPTORS: usize = 2;

/// Descriptors that a driver sleeps on, those of one wire or of several together. -1 stands for none, which `poll`
/// passes over.
pub type SleepDescriptors = [RawFd; MOST_DESCRIPTORS];

/// A wire to the ranks of other nodes. It may lose, double, reorder and damage packets, and need not
/// report it. The holder of the channel's lock uses it. No call waits for a packet to arrive; `send` waits
/// some milliseconds at most for room.
pub trait Driver: Send + std::fmt::Debug {
    /// Told before the first packet, of each arena that others can reach: memory of this rank from which data is lent
    /// later. It stays mapped as long as the channel lives, and other processes may write it. A wire that needs no registered memory ignores it.
    ///
    /// # Errors
    /// The wire's error; the channel does not start then.
    fn register(&mut self, memory: Range<*const u8>) -> io::Result<()> {
        let _ = memory;
        Ok(())
    }

    /// Receives at least one packet if there is one; false if there is none. The packets received
    /// before are gone then. It is polled, so it has to be quick when there is none.
    ///
    /// # Errors
    /// An error that will not go away by itself.
    fn receive(&mut self) -> io::Result<bool>;

    /// As [`Driver::receive`], for who looks again at once: it may pass over what is dear to look at, if it looks there
    /// every few times.
    ///
    /// # Errors
    /// As [`Driver::receive`].
    fn poll(&mut self) -> io::Result<bool> {
        self.receive()
    }

    /// Whether [`Driver::receive_into`] may lay data where it belongs. Asked once; most wires decline.
    fn lands(&self) -> bool {
        false
    }

    /// As [`Driver::receive`], with memory for the data of the packets that come next. The wire may lay packets there
    /// as [`Landing`] says, whoever they are from; [`Driver::landed`] tells then. It writes there during the call only.
    ///
    /// # Errors
    /// As [`Driver::receive`].
    fn receive_into(&mut self, landing: Landing<'_>) -> io::Result<bool> {
        let _ = landing;
        self.receive()
    }

    /// The packets received last, if [`Driver::receive_into`] has laid them into a [`Landing`]. Otherwise `None`, and
    /// [`Driver::received`] has them.
    fn landed(&self) -> Option<LandedRun<'_>> {
        None
    }

    /// The packets that [`Driver::receive`] or [`Driver::poll`] took in last, where the wire has laid them. Nobody else writes there. They are
    /// checked there and then copied to their places, so a wire with receive buffers of its own needs no other copy.
    fn received(&self) -> PacketRun<'_>;

    /// Puts packets for `to` on the wire. Their `bytes` may change afterwards; what `pieces` name stays until
    /// [`Driver::finish`]. False if they were not taken: they count as lost.
    ///
    /// # Errors
    /// An error that will not go away by itself.
    fn send(
        &mut self,
        attachment: &Attachment,
        to: Rank,
        packets: PacketRun<'_>,
    ) -> io::Result<bool>;

    /// Completion: returns when the wire reads nothing in this memory any more, whatever sends have named of it. Its
    /// owner gets it back then. A wire that reads everything within [`Driver::send`] has nothing to do.
    fn finish(&mut self, memory: &Range<*const u8>) {
        let _ = memory;
    }

    /// The kernel's code for refusing the packets that [`Driver::send`] was given last, if this machine
    /// forbids them. `None` if they only lacked room.
    fn refusal(&self) -> Option<i32>;

    /// Some packet was longer than its way takes whole, as the wire has found out since this was last asked.
    fn too_long(&mut self) -> bool;

    /// Bytes of the longest packet that reaches `to` whole, as far as the wire knows now; `None` if it does not.
    fn longest(&self, attachment: &Attachment, to: Rank) -> Option<usize>;

    /// Descriptors of which one at least is readable when there is something to receive. They stay the same.
    fn sleep_on(&self) -> SleepDescriptors;

    /// From now on [`Driver::gone`] is asked: keep what it needs.
    ///
    /// # Errors
    /// The wire's error.
    fn watch_for_gone(&self) -> io::Result<()>;

    /// A rank whose process has ended, as far as the wire tells; each at least once.
    fn gone(&self, attachment: &Attachment) -> Option<Rank>;

    /// Writes its own counters into the context, where the daemon reads them: some milliseconds old at most.
    fn publish(&self, attachment: &Attachment) {
        let _ = attachment;
    }
}

/// Memory for data that is expected. Of each packet the first `head` bytes stay with the driver. `gap` bytes of the memory are
/// left alone for each, since the head has data, too, and the bytes behind the head go behind them.
#[derive(Debug, Clone, Copy)]
pub struct Landing<'m> {
    /// Bytes of a packet that are not laid there: what its check needs.
    pub head: usize,
    /// Bytes of the memory before those of a packet.
    pub gap: usize,
    /// Others may write it at any time. What a packet does not reach stays as it is.
    pub memory: SharedBytesMut<'m>,
}

/// Packets that have landed.
#[derive(Debug, Clone, Copy)]
pub struct LandedRun<'b> {
    /// Their beginnings, end to end, where nobody else writes.
    pub heads: &'b [u8],
    /// In the order in which they came.
    pub packets: &'b [LandedPacket],
}

/// Where a packet lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LandedPacket {
    /// So many bytes are private.
    pub head: usize,
    /// Where in the [`Landing`]'s memory the others begin.
    pub at: usize,
    /// How many others there are. A packet of which none landed has all in its head.
    pub rest: usize,
}

/// Packets, each `segment` bytes long but perhaps the last. They lie end to end, or in pieces.
#[derive(Debug, Clone, Copy)]
pub struct PacketRun<'b> {
    pub(crate) bytes: &'b [u8],
    /// If there are any, the packets: parts of each lie in `bytes`, others where programs have lent them ([`crate::channel::zero_copy`]).
    pub(crate) pieces: &'b [Piece],
    /// Not 0.
    pub(crate) segment: usize,
    /// They are too long to arrive whole: they may come in fragments.
    pub(crate) fragment: bool,
}

impl<'b> PacketRun<'b> {
    /// Packets that lie end to end, each of `segment` bytes (not 0) but perhaps the last.
    #[must_use]
    pub fn contiguous(bytes: &'b [u8], segment: usize, fragment: bool) -> PacketRun<'b> {
        PacketRun { bytes, pieces: &[], segment, fragment }
    }

    /// The packets if they lie end to end; otherwise their private parts.
    #[must_use]
    pub fn bytes(self) -> &'b [u8] {
        self.bytes
    }

    /// The packets if they lie in pieces. The place in each is an address in memory that is lent, which a wire may have
    /// read by its hardware; [`PacketRun::end_to_end`] reads it for others.
    #[must_use]
    pub fn pieces(self) -> &'b [Piece] {
        self.pieces
    }

    /// Bytes of each packet but perhaps the last.
    #[must_use]
    pub fn segment(self) -> usize {
        self.segment
    }

    /// They are too long to arrive whole: they may leave in fragments.
    #[must_use]
    pub fn may_fragment(self) -> bool {
        self.fragment
    }

    /// The same packets end to end: those that lie in pieces are copied into `room`.
    pub fn end_to_end<'r>(self, room: &'r mut Vec<u8>) -> PacketRun<'r>
    where
        'b: 'r,
    {
        if self.pieces.is_empty() { self } else { self.gather_into(room) }
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
    pub fn each(self) -> impl Iterator<Item = &'b [u8]> {
        self.bytes.chunks(self.segment)
    }

    /// There is more than one.
    #[must_use]
    pub fn is_run(self) -> bool {
        self.pieces.len() > 1 || (self.pieces.is_empty() && self.bytes.len() > self.segment)
    }
}
