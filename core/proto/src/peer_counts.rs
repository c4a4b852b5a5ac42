//! Table of counters by peer. The first peers with traffic have an entry each; all others share one.

use crate::counters::PeerCounters;
use crate::wire::PacketKind;
use crate::{Counters, Rank};
use alloc::vec::Vec;

/// The place of a peer that has none yet.
pub(crate) const NOWHERE: u8 = u8::MAX;

/// Peers that are counted one by one, in the order of their first packet. All others share one more
/// entry, so that memory is bounded and sums are right.
pub const PEERS_LISTED: usize = 62;

const _: () = assert!(PEERS_LISTED < NOWHERE as usize);

/// Counters of one entry, and whether they have changed since they were last read.
#[derive(Debug)]
pub(crate) struct PeerCountEntry {
    pub(crate) counters: PeerCounters,
    pub(crate) changed: bool,
}

/// The table.
#[derive(Debug, Default)]
pub(crate) struct PeerCountTable {
    pub(crate) places: Vec<PeerCountEntry>,
    /// Some place has changed.
    pub(crate) changed: bool,
}

impl PeerCountTable {
    /// The counters of a peer whose place is `place`, which is assigned if it has none; they count as
    /// changed.
    #[inline]
    pub(crate) fn of(&mut self, place: &mut u8, rank: Rank) -> &mut PeerCounters {
        if *place == NOWHERE {
            *place = self.assign(rank);
        }
        self.changed = true;
        let tally = &mut self.places[usize::from(*place)];
        tally.changed = true;
        &mut tally.counters
    }

    #[cold]
    fn assign(&mut self, rank: Rank) -> u8 {
        let place = self.places.len().min(PEERS_LISTED);
        if place == self.places.len() {
            let rank = (place < PEERS_LISTED).then_some(rank);
            let counters = PeerCounters { rank, ..PeerCounters::default() };
            self.places.push(PeerCountEntry { counters, changed: false });
        }
        u8::try_from(place).unwrap_or(NOWHERE)
    }
}

impl PeerCounters {
    pub(crate) fn packet_out(&mut self, kind: PacketKind, packets: u64, bytes: usize) {
        let kinds =
            [&mut self.data_out, &mut self.acks_out, &mut self.nacks_out, &mut self.probes_out];
        *kind.among(kinds) += packets;
        self.bytes_out += bytes as u64;
    }

    pub(crate) fn packet_in(&mut self, kind: PacketKind, bytes: usize) {
        let kinds = [&mut self.data_in, &mut self.acks_in, &mut self.nacks_in, &mut self.probes_in];
        *kind.among(kinds) += 1;
        self.bytes_in += bytes as u64;
    }

    /// Adds the growth from `before` to `now` of the counters that are not counted by packet.
    pub(crate) fn since(&mut self, before: ExceptionCounts, now: &Counters) {
        self.resends += now.resends - before.resends;
        self.duplicates += now.duplicates - before.duplicates;
    }
}

/// The counters of exceptions at some moment.
#[derive(Clone, Copy)]
pub(crate) struct ExceptionCounts {
    resends: u64,
    duplicates: u64,
}

impl ExceptionCounts {
    pub(crate) fn of(counters: &Counters) -> Self {
        Self { resends: counters.resends, duplicates: counters.duplicates }
    }
}
