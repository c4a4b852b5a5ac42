//! What can be asked of an endpoint.

use super::Endpoint;
use crate::context::{ContextMemory, Totals, totals};
use crate::peer::{PeerRecord, Slot};
use crate::peer_counts::PEERS_LISTED;
use crate::wire::HEADER_BYTES;
use crate::{Config, Counters, PeerCounters, Rank};

impl<M: ContextMemory> Endpoint<M> {
    /// The own rank.
    pub fn me(&self) -> Rank {
        self.local.me
    }

    /// Ranks of the job.
    pub fn ranks(&self) -> u32 {
        self.local.ranks
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.local.config
    }

    /// Most bytes of a frame.
    pub fn max_frame(&self) -> usize {
        self.local.config.max_datagram - HEADER_BYTES - self.local.packets.trailer()
    }

    /// Counters since the endpoint was made.
    pub fn counters(&self) -> &Counters {
        &self.totals().counters
    }

    /// Packets that lie in send rings, not acked, and their bytes, headers included.
    pub fn unacked(&self) -> (u64, u64) {
        let records = self.records();
        let of = self.rings.iter().map(|&peer| &records[peer as usize]);
        of.map(|peer| peer.sender.unacked())
            .fold((0, 0), |sum, (packets, bytes)| (sum.0 + packets, sum.1 + bytes))
    }

    /// Smoothed round trip in microseconds, the mean over the peers of which it is known; 0 before the
    /// first sample. Of at most [`crate::PEERS_LISTED`] peers, those with the first traffic.
    pub fn round_trip_us(&self) -> u64 {
        let totals = self.totals();
        let listed = totals.tallies.iter().take(PEERS_LISTED.min(totals.listed as usize));
        let known = listed.filter_map(|tally| self.peer(tally.rank)?.sender.round_trip());
        let (sum, count) = known.fold((0, 0), |(sum, count), one| (sum + one, count + 1));
        sum / u64::max(count, 1)
    }

    /// Hands out what was counted by peer and has changed since the last call, each with its place in a
    /// table of [`crate::PEERS_LISTED`] + 1 places. A peer keeps its place.
    pub fn changed_peers(&mut self, mut visit: impl FnMut(usize, &PeerCounters)) {
        let mut changed = core::mem::take(&mut self.local.changed);
        while changed != 0 {
            let place = changed.trailing_zeros() as usize;
            changed &= changed - 1;
            let mut counters = self.totals().tallies[place].counters(place);
            let unacked = match counters.rank.map(|rank| self.peer(rank)) {
                Some(Some(peer)) => {
                    counters.round_trip_us = peer.sender.round_trip().unwrap_or(0);
                    counters.limit = peer.sender.max_datagram_to_peer(&self.local.config) as u64;
                    peer.sender.unacked()
                }
                Some(None) => (0, 0),
                None => self.unacked_beyond_list(),
            };
            (counters.unacked_packets, counters.unacked_bytes) = unacked;
            visit(place, &counters);
        }
    }

    /// As [`Self::unacked`], of the peers that share the last place.
    fn unacked_beyond_list(&self) -> (u64, u64) {
        let records = self.records();
        let of = self.rings.iter().map(|&peer| &records[peer as usize]);
        of.filter(|peer| usize::from(peer.tally) == PEERS_LISTED)
            .map(|peer| peer.sender.unacked())
            .fold((0, 0), |sum, (packets, bytes)| (sum.0 + packets, sum.1 + bytes))
    }

    /// Everything sent to `to` has been acked, that is, taken by its sink.
    pub fn flushed(&self, to: Rank) -> bool {
        self.peer(to).is_none_or(|peer| peer.sender.flushed())
    }

    /// Everything sent to anybody has been acked.
    pub fn all_flushed(&self) -> bool {
        self.unflushed == 0
    }

    /// How many frames [`Self::send`] accepts for `to` now; 0 for a rank that does not exist, and while the channel
    /// is closed.
    pub fn room(&self, to: Rank) -> usize {
        if to >= self.ranks() || to == self.local.me || self.local.closed {
            return 0;
        }
        self.peer(to).map_or(self.local.config.first_slots(), |peer| peer.sender.room())
    }

    /// Packets to `to` that are on the wire as far as is known, and packets queued that were never sent.
    pub fn under_way(&self, to: Rank) -> (u32, u32) {
        self.peer(to).map_or((0, 0), |peer| peer.sender.under_way())
    }

    /// Bytes that rings and early packets take now.
    pub fn memory(&self) -> usize {
        let ring = self.local.config.window * (size_of::<Slot>() + self.local.config.max_datagram);
        self.rings.len() * ring + self.kept() * self.max_frame()
    }

    /// Early packets kept now; at most [`Config::reorder_packets`].
    pub fn kept(&self) -> usize {
        self.totals().kept as usize
    }

    /// Numbers of the next frame queued for `rank` and of the next one delivered from it. The first frame of each
    /// pair has [`Config::first_sequence`].
    pub fn next_numbers(&self, rank: Rank) -> (u32, u32) {
        let first = self.local.config.first_sequence;
        let of = |peer: &PeerRecord| (peer.sender.tail(), peer.receiver.expected());
        self.peer(rank).map_or((first, first), of)
    }

    pub(super) fn totals(&self) -> &Totals {
        totals(self.memory.bytes())
    }
}
