//! Settling: no packet of this rank is on the wire any more, and no new one leaves.

use super::{Endpoint, enqueue};
use crate::Micros;

impl Endpoint {
    /// Closes the channel for packets of this rank.
    ///
    /// - [`Self::send`] returns [`SendError::Closed`](crate::SendError::Closed); queued frames stay in
    ///   their rings.
    /// - Every peer with packets in flight is asked at once what has arrived.
    /// - Delayed acks leave too.
    /// - Packets of others are taken and acked as before.
    ///
    /// Drive the endpoint until [`Self::settled`]. That takes a round trip, and a timeout more for each
    /// time that the question or its answer is lost; nothing is sent again for it. It takes as long as a
    /// peer that has something to answer is stopped.
    pub fn quiesce(&mut self) {
        if !self.shared.closed {
            self.shared.closed = true;
            self.wake_all();
        }
        self.send_delayed_acks();
    }

    /// The channel is closed by [`Self::quiesce`].
    pub fn closed(&self) -> bool {
        self.shared.closed
    }

    /// Whether every data packet that this rank ever sent has been answered: acked, kept or refused by
    /// its receiver, or found lost.
    ///
    /// Unacked packets are then in their rings, and lent data in its owner's memory
    /// ([`Self::take_all_back`] copies it into the rings). The only other copies are those that the
    /// network made, or delayed for longer than a probe sent after them.
    pub fn settled(&self) -> bool {
        let in_flight = |&rank| self.peer(rank).map_or(0, |peer| peer.sender.in_flight());
        self.rings.iter().all(|rank| in_flight(rank) == 0)
    }

    /// Opens the channel again and sends lost and queued packets.
    pub fn reopen(&mut self, now: Micros) {
        if !core::mem::take(&mut self.shared.closed) {
            return;
        }
        for &rank in &self.rings {
            if let Some(peer) = self.peers[rank as usize].as_deref_mut() {
                peer.sender.resume(now, &self.shared);
                super::note_deadline(peer, rank, &mut self.listed, &mut self.deadline);
            }
        }
        self.wake_all();
    }

    /// Looks at every peer with a ring at the next [`Self::poll_transmit`].
    fn wake_all(&mut self) {
        for &rank in &self.rings {
            if let Some(peer) = self.peers[rank as usize].as_deref_mut() {
                enqueue(peer, rank, &mut self.ready);
            }
        }
    }
}
