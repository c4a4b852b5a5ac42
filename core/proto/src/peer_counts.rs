//! Table of counters by peer. The first peers with traffic have an entry each; all others share one.

use crate::counters::PeerCounters;
use crate::wire::PacketKind;
use crate::{Counters, Rank};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// The place of a peer that has none yet.
pub(crate) const NOWHERE: u8 = u8::MAX;

/// Peers that are counted one by one, in the order of their first packet. All others share one more
/// entry, so that memory is bounded and sums are right.
pub const PEERS_LISTED: usize = 62;

const _: () = assert!(PEERS_LISTED < NOWHERE as usize);

/// Counters of one entry, as a context has them. See [`PeerCounters`] for each.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct TallyRecord {
    /// The peer's rank; of the entry that others share, 0.
    pub(crate) rank: Rank,
    pub(crate) reserved: u32,
    pub(crate) data_out: u64,
    pub(crate) acks_out: u64,
    pub(crate) nacks_out: u64,
    pub(crate) probes_out: u64,
    pub(crate) data_in: u64,
    pub(crate) acks_in: u64,
    pub(crate) nacks_in: u64,
    pub(crate) probes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) bytes_in: u64,
    pub(crate) resends: u64,
    pub(crate) duplicates: u64,
    pub(crate) fragmented: u64,
}

/// The table: entries of the context, and which of them have changed since they were last read, a bit each.
pub(crate) struct PeerCountTable<'m> {
    pub(crate) entries: &'m mut [TallyRecord; PEERS_LISTED + 1],
    /// Entries used so far.
    pub(crate) used: &'m mut u32,
    pub(crate) changed: &'m mut u64,
}

const _: () = assert!(PEERS_LISTED < u64::BITS as usize);

impl PeerCountTable<'_> {
    /// The counters of a peer whose place is `place`, which is assigned if it has none; they count as
    /// changed.
    #[inline]
    pub(crate) fn of(&mut self, place: &mut u8, rank: Rank) -> &mut TallyRecord {
        if *place == NOWHERE {
            *place = self.assign(rank);
        }
        *self.changed |= 1 << *place;
        &mut self.entries[usize::from(*place)]
    }

    #[cold]
    fn assign(&mut self, rank: Rank) -> u8 {
        let place = (*self.used as usize).min(PEERS_LISTED);
        if place == *self.used as usize {
            self.entries[place] = TallyRecord::new_zeroed();
            self.entries[place].rank = if place < PEERS_LISTED { rank } else { 0 };
            *self.used += 1;
        }
        u8::try_from(place).unwrap_or(NOWHERE)
    }
}

impl TallyRecord {
    /// What is counted, with whatever is not: 0.
    pub(crate) fn counters(&self, place: usize) -> PeerCounters {
        PeerCounters {
            rank: (place < PEERS_LISTED).then_some(self.rank),
            data_out: self.data_out,
            acks_out: self.acks_out,
            nacks_out: self.nacks_out,
            probes_out: self.probes_out,
            data_in: self.data_in,
            acks_in: self.acks_in,
            nacks_in: self.nacks_in,
            probes_in: self.probes_in,
            bytes_out: self.bytes_out,
            bytes_in: self.bytes_in,
            resends: self.resends,
            duplicates: self.duplicates,
            fragmented: self.fragmented,
            ..PeerCounters::default()
        }
    }

    pub(crate) fn packets_out(&mut self, kind: PacketKind, packets: u64, bytes: usize) {
        let kinds =
            [&mut self.data_out, &mut self.acks_out, &mut self.nacks_out, &mut self.probes_out];
        *kind.among(kinds) += packets;
        self.bytes_out += bytes as u64;
    }

    pub(crate) fn packets_in(&mut self, kind: PacketKind, packets: u64, bytes: usize) {
        let kinds = [&mut self.data_in, &mut self.acks_in, &mut self.nacks_in, &mut self.probes_in];
        *kind.among(kinds) += packets;
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
