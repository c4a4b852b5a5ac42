//! State of one peer: its sender and its receiver.

mod early;
mod pacer;
mod path_mtu;
mod probes;
mod receiver;
mod resume;
mod send_ring;
mod sender;

pub(crate) use early::EarlyPackets;
pub(crate) use receiver::{DataPacket, Receiver};
pub(crate) use resume::RecordCheck;
pub(crate) use send_ring::{LentPart, SendRing, Slot};
pub(crate) use sender::{CompletedRun, PacketRun, Piggyback, RunPlace, Sender, run_bytes};

use crate::context::{ContextLayout, Flag};
use crate::peer_counts::NOWHERE;
use crate::seal::PacketCodec;
use crate::wire::PacketKind;
use crate::{Config, Counters, Micros, Piece, Rank};
use alloc::vec::Vec;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// "No deadline".
pub(crate) const NEVER: Micros = Micros::MAX;

/// State that all peers of an endpoint share, as one call sees it.
pub(crate) struct SharedState<'m> {
    pub(crate) config: &'m Config,
    pub(crate) packets: &'m mut PacketCodec,
    pub(crate) me: Rank,
    pub(crate) counters: &'m mut Counters,
    /// When this rank was last found to have been stopped; round trips from before give no sample.
    pub(crate) stopped: Micros,
    /// No data is sent: the channel is being settled.
    pub(crate) closed: bool,
    /// To some peer not all packets arrive whole, or did not.
    pub(crate) narrowed: &'m mut Flag,
    /// The packets of the run that leaves, if parts of them are lent.
    pub(crate) pieces: &'m mut Vec<Piece>,
}

impl SharedState<'_> {
    /// Bytes of the datagram that a packet of a ring becomes.
    pub(crate) fn wire_bytes(&self, length: u16) -> usize {
        usize::from(length) + self.packets.trailer()
    }

    /// Senders to this rank, and its own, are to hold back now if packets queue on the way.
    pub(crate) fn holds(&self, now: Micros) -> bool {
        crate::queueing_delay::holds(now, self.config.queue_target)
    }
}

/// One other rank, as a context has it.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct PeerRecord {
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    pub(crate) rank: Rank,
    /// Its place in the table of counters.
    pub(crate) tally: u8,
    /// In the endpoint's queue of peers with something to transmit.
    pub(crate) queued: Flag,
    /// In the endpoint's list of peers with a deadline.
    pub(crate) listed: Flag,
    reserved: u8,
}

const _: () = assert!(size_of::<Sender>() == 200 && size_of::<Receiver>() == 48);

/// The next transmission to one peer.
pub(crate) enum TransmitPlan {
    Data(PacketRun),
    Control(PacketKind),
    Nothing,
}

impl PeerRecord {
    pub(crate) fn new(rank: Rank, config: &Config) -> Self {
        Self {
            sender: Sender::new(config),
            receiver: Receiver::new(config),
            rank,
            tally: NOWHERE,
            queued: Flag::CLEAR,
            listed: Flag::CLEAR,
            reserved: 0,
        }
    }

    /// The earliest of this peer's deadlines.
    pub(crate) fn deadline(&self) -> Micros {
        self.sender.deadline().min(self.receiver.deadline())
    }

    /// Acts on what is due at `now`.
    pub(crate) fn handle_timeout(
        &mut self,
        now: Micros,
        ring: &mut SendRing<'_>,
        shared: &mut SharedState<'_>,
    ) {
        self.receiver.handle_timeout(now, shared.config);
        self.sender.handle_timeout(now, ring, shared);
    }

    /// Order of sending: an ack or nack that cannot be piggybacked on data, resends, new data, probe.
    pub(crate) fn plan(
        &mut self,
        now: Micros,
        blocks: &mut [u8],
        layout: &ContextLayout,
        shared: &SharedState<'_>,
    ) -> TransmitPlan {
        let respond = self.receiver.must_respond(shared.config);
        if respond && !self.receiver.can_piggyback() {
            return TransmitPlan::Control(self.receiver.response_kind());
        }
        if self.sender.has_data(shared) {
            let mut ring = self.sender.ring_in(layout.block(blocks, self.sender.ring));
            if let Some(run) = self.sender.next_run(now, &mut ring, shared) {
                return TransmitPlan::Data(run);
            }
        }
        if respond {
            return TransmitPlan::Control(self.receiver.response_kind());
        }
        if self.sender.wants_probe(now, shared) {
            TransmitPlan::Control(PacketKind::Probe)
        } else {
            TransmitPlan::Nothing
        }
    }
}
