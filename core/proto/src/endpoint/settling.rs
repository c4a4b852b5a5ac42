//! Settling: nothing that this rank sent is on the wire any more, and nothing new goes there.

use super::{Endpoint, enqueue};
use crate::Micros;

impl Endpoint {
    /// Closes the channel for what this rank sends: [`Self::send`] gives
    /// [`SendError::Closed`](crate::SendError::Closed), frames that are queued stay in their rings, and
    /// every peer with something of them on the way is asked at once what has arrived. Acks that are held
    /// back leave too. What comes from others is taken and acked as before.
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

    /// Every data packet that this rank ever put on the wire has been answered: acked, kept or refused by
    /// its receiver, or found lost. Unacked ones are in their rings (what is lent of them, where its
    /// owner keeps it: [`Self::take_all_back`] brings it in) and nowhere else, but for copies that the
    /// network made or delayed for longer than a probe that was sent after them.
    pub fn settled(&self) -> bool {
        let in_flight = |&rank| self.peer(rank).map_or(0, |peer| peer.sender.in_flight());
        self.rings.iter().all(|rank| in_flight(rank) == 0)
    }

    /// Opens the channel again: what was lost or queued is sent.
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
