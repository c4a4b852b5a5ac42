//! Path MTU as callers see it: the longest frame to each peer that is not fragmented.

use super::Endpoint;
use crate::Rank;
use crate::wire::HEADER_BYTES;

impl Endpoint {
    /// Most bytes of a frame to `to` whose packet arrives whole, as far as is known; at most
    /// [`Self::max_frame`]. Longer ones may be sent too, but have to be fragmented on the way: cut what
    /// can be cut to this.
    pub fn max_unfragmented_frame(&self, to: Rank) -> usize {
        let max_datagram = self.shared.config.max_datagram;
        let limit = |peer: &super::Peer| peer.sender.max_datagram_to_peer(&self.shared.config);
        self.body(self.peer(to).map_or(max_datagram, limit))
    }

    /// The least of [`Self::max_unfragmented_frame`] over the peers that something is sent to.
    pub fn min_unfragmented_frame(&self) -> usize {
        if !self.shared.narrowed {
            return self.max_frame();
        }
        let all = self.rings.iter().map(|&rank| self.max_unfragmented_frame(rank));
        all.min().unwrap_or(self.max_frame())
    }

    /// The wire has told that datagrams of up to so many bytes reach `to` whole. It may tell again; below
    /// 64 counts as 64. Frames that are queued stay as they are.
    pub fn set_path_mtu(&mut self, to: Rank, datagram: usize) {
        let config = &self.shared.config;
        if to < self.ranks() && to != self.shared.me {
            self.shared.narrowed |= datagram < config.max_datagram;
            super::peer_or_new(&mut self.peers[to as usize], config)
                .sender
                .set_path_mtu(datagram, config);
        }
    }

    /// Bytes of the frame in a data packet of this length.
    fn body(&self, datagram: usize) -> usize {
        datagram - HEADER_BYTES - self.shared.packets.trailer()
    }
}
