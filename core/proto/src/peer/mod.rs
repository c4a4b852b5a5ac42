//! State of one peer: its sender and its receiver.

mod pacer;
mod path_mtu;
mod probes;
mod receiver;
mod send_ring;
mod sender;

pub(crate) use receiver::{DataPacket, Receiver};
pub(crate) use send_ring::{LentPart, SendRing};
pub(crate) use sender::{PacketRun, Piggyback, Sender, run_bytes};

use crate::peer_counts::NOWHERE;
use crate::seal::PacketCodec;
use crate::wire::PacketKind;
use crate::{Config, Counters, Micros, Piece, Rank};
use alloc::vec::Vec;

/// "No deadline".
pub(crate) const NEVER: Micros = Micros::MAX;

/// State that all peers of an endpoint share.
#[derive(Debug)]
pub(crate) struct SharedState {
    pub(crate) config: Config,
    pub(crate) packets: PacketCodec,
    pub(crate) me: Rank,
    pub(crate) counters: Counters,
    /// Early packets kept now, for all peers together.
    pub(crate) kept: usize,
    /// When this rank was last found to have been stopped; round trips from before give no sample.
    pub(crate) stopped: Micros,
    /// No data is sent: the channel is being settled.
    pub(crate) closed: bool,
    /// To some peer not all packets arrive whole, or did not.
    pub(crate) narrowed: bool,
    /// The packets of the run that leaves, if parts of them are lent.
    pub(crate) pieces: Vec<Piece>,
}

impl SharedState {
    /// Bytes of the datagram that a packet of a ring becomes.
    pub(crate) fn wire_bytes(&self, length: u16) -> usize {
        usize::from(length) + self.packets.trailer()
    }

    /// Senders to this rank, and its own, are to hold back now if packets queue on the way.
    pub(crate) fn holds(&self, now: Micros) -> bool {
        crate::queueing_delay::holds(now, self.config.queue_target)
    }

    /// A deadline found late means that this rank was stopped.
    pub(crate) fn notice_stop(&mut self, now: Micros, deadline: Micros) {
        if now > deadline.saturating_add(self.config.late) {
            self.stopped = now;
        }
    }
}

/// One other rank.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) sender: Sender,
    pub(crate) receiver: Receiver,
    /// In the endpoint's queue of peers with something to transmit.
    pub(crate) queued: bool,
    /// In the endpoint's list of peers with a deadline.
    pub(crate) listed: bool,
    /// Its place in the table of counters.
    pub(crate) tally: u8,
}

/// The next transmission to one peer.
pub(crate) enum TransmitPlan {
    Data(PacketRun),
    Control(PacketKind),
    Nothing,
}

impl Peer {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            sender: Sender::new(config),
            receiver: Receiver::new(config),
            queued: false,
            listed: false,
            tally: NOWHERE,
        }
    }

    /// The earliest of this peer's deadlines.
    pub(crate) fn deadline(&self) -> Micros {
        self.sender.deadline().min(self.receiver.deadline())
    }

    /// Acts on what is due at `now`.
    pub(crate) fn handle_timeout(&mut self, now: Micros, shared: &mut SharedState) {
        self.receiver.handle_timeout(now, &shared.config);
        self.sender.handle_timeout(now, shared);
    }

    /// Order of sending: an ack or nack that cannot be piggybacked on data, resends, new data, probe.
    pub(crate) fn plan(&mut self, now: Micros, shared: &SharedState) -> TransmitPlan {
        let respond = self.receiver.must_respond(&shared.config);
        if respond && !self.receiver.can_piggyback() {
            return TransmitPlan::Control(self.receiver.response_kind());
        }
        if let Some(run) = self.sender.next_run(now, shared) {
            return TransmitPlan::Data(run);
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

#[cfg(test)]
mod tests {
    use super::*;
    use core::mem::size_of;

    #[test]
    fn an_idle_peer_is_small() {
        assert_eq!(size_of::<Option<alloc::boxed::Box<Peer>>>(), size_of::<usize>());
        assert!(size_of::<Peer>() <= 320, "{} bytes", size_of::<Peer>());
    }
}
