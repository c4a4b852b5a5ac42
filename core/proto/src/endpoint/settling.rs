//! Settling: no packet of this rank is on the wire any more, and no new one leaves.

use super::{Endpoint, View};
use crate::Micros;
use crate::context::ContextMemory;

impl<M: ContextMemory> Endpoint<M> {
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
        if !self.local.closed {
            self.change(|endpoint| {
                endpoint.set_closed(true);
                endpoint.wake_all();
            });
        }
        self.send_delayed_acks();
    }

    /// The channel is closed by [`Self::quiesce`].
    pub fn closed(&self) -> bool {
        self.local.closed
    }

    /// Whether every data packet that this rank ever sent has been answered: acked, kept or refused by
    /// its receiver, or found lost.
    ///
    /// Unacked packets are then in their rings, and lent data in its owner's memory
    /// ([`Self::take_all_back`] copies it into the rings). The only other copies are those that the
    /// network made, or delayed for longer than a probe sent after them.
    pub fn settled(&self) -> bool {
        let records = self.records();
        self.rings.iter().all(|&peer| records[peer as usize].sender.in_flight() == 0)
    }

    /// Opens the channel again and sends lost and queued packets.
    pub fn reopen(&mut self, now: Micros) {
        if !self.local.closed {
            return;
        }
        self.change(|endpoint| {
            endpoint.set_closed(false);
            for at in 0..endpoint.rings.len() {
                let number = endpoint.rings[at];
                let (View { peer, shared, .. }, schedule) = endpoint.view(number);
                peer.sender.reopen(now, &shared);
                schedule.note_deadline(peer, number);
            }
            endpoint.wake_all();
        });
    }

    fn set_closed(&mut self, closed: bool) {
        self.local.closed = closed;
        self.local.layout.parts(self.memory.bytes_mut()).totals.closed.set(closed);
    }

    /// Looks at every peer with a ring at the next [`Self::poll_transmit`].
    fn wake_all(&mut self) {
        for at in 0..self.rings.len() {
            let number = self.rings[at];
            let (View { peer, .. }, schedule) = self.view(number);
            schedule.enqueue(peer, number);
        }
    }
}
