//! Path MTU as callers see it: the longest frame to each peer that is not fragmented.

use super::{Endpoint, View};
use crate::Rank;
use crate::context::ContextMemory;
use crate::peer::PeerRecord;
use crate::wire::HEADER_BYTES;

impl<M: ContextMemory> Endpoint<M> {
    /// Most bytes of a frame to `to` whose packet arrives whole, as far as is known; at most
    /// [`Self::max_frame`]. Longer ones may be sent too, but have to be fragmented on the way: cut what
    /// can be cut to this.
    pub fn max_unfragmented_frame(&self, to: Rank) -> usize {
        let max_datagram = self.local.config.max_datagram;
        let limit = |peer: &PeerRecord| peer.sender.max_datagram_to_peer(&self.local.config);
        self.body(self.peer(to).map_or(max_datagram, limit))
    }

    /// The least of [`Self::max_unfragmented_frame`] over the peers that something is sent to.
    pub fn min_unfragmented_frame(&self) -> usize {
        if !self.totals().narrowed.get() {
            return self.max_frame();
        }
        let records = self.records();
        let ranks = self.rings.iter().map(|&peer| records[peer as usize].rank);
        let all = ranks.map(|rank| self.max_unfragmented_frame(rank));
        all.min().unwrap_or(self.max_frame())
    }

    /// The wire has told that datagrams of up to so many bytes reach `to` whole. It may tell again; below
    /// 64 counts as 64. Frames that are queued stay as they are.
    pub fn set_path_mtu(&mut self, to: Rank, datagram: usize) {
        if to >= self.ranks() || to == self.local.me {
            return;
        }
        self.change(|endpoint| {
            let number = endpoint.number_or_new(to);
            let (View { peer, shared, .. }, _) = endpoint.view(number);
            shared.narrowed.or(datagram < shared.config.max_datagram);
            peer.sender.set_path_mtu(datagram, shared.config);
        });
    }

    /// Bytes of the frame in a data packet of this length.
    fn body(&self, datagram: usize) -> usize {
        datagram - HEADER_BYTES - self.local.packets.trailer()
    }
}
