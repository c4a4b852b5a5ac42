//! Counters that a rank publishes for its daemon: packets by kind, round trips, packets in flight, and
//! the same for each peer.
//!
//! The daemon does not need them at once, so they cost the path of a message nothing. They are written
//! before a sleep, by the handler thread at its ticks, and otherwise at most every [`EVERY`]
//! microseconds.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use kumi_proto::PeerCounters;

use crate::channel::core::{ChannelCore, Handler};
use crate::segment::attachment::Attachment;
use crate::segment::counters::Counter;
use crate::segment::layout::{PEER_NOBODY, PEER_OTHERS, PEER_VALUES, PeerEntry, PeerTable};

/// Microseconds between two publications of a rank that never pauses.
const EVERY: u64 = 10_000;

impl<H: Handler> ChannelCore<H> {
    /// Writes everything into the context.
    pub(crate) fn publish_all(&mut self, attachment: &Attachment) {
        self.publish(attachment);
        let Some(remote) = &mut self.remote else { return };
        remote.published = remote.now;
        let c = *remote.endpoint.counters();
        let (unacked_packets, unacked_bytes) = remote.endpoint.unacked();
        for (counter, value) in [
            (Counter::Resends, c.resends),
            (Counter::PacketsOut, c.data_out + c.acks_out + c.nacks_out + c.probes_out),
            (Counter::PacketsIn, c.data_in + c.acks_in + c.nacks_in + c.probes_in),
            (Counter::Duplicates, c.duplicates),
            (Counter::NacksOut, c.nacks_out),
            (Counter::NacksIn, c.nacks_in),
            (Counter::Invalid, c.dropped_in_all()),
            (Counter::DataOut, c.data_out),
            (Counter::AcksOut, c.acks_out),
            (Counter::ProbesOut, c.probes_out),
            (Counter::DataIn, c.data_in),
            (Counter::AcksIn, c.acks_in),
            (Counter::ProbesIn, c.probes_in),
            (Counter::BytesOut, c.bytes_out),
            (Counter::BytesIn, c.bytes_in),
            (Counter::RoundTripUs, remote.endpoint.round_trip_us()),
            (Counter::UnackedPackets, unacked_packets),
            (Counter::UnackedBytes, unacked_bytes),
        ] {
            attachment.set(counter, value);
        }
        remote.wire.publish(attachment);
        let table = &attachment.own().peers;
        remote.endpoint.changed_peers(|index, counters| {
            if let Some(entry) = table.0.get(index) {
                write(entry, counters);
            }
        });
    }

    /// As [`ChannelCore::publish_all`], if that was long ago.
    #[inline]
    pub(crate) fn publish_sometimes(&mut self, attachment: &Attachment) {
        if let Some(remote) = &self.remote
            && remote.now.saturating_sub(remote.published) >= EVERY
        {
            self.publish_cold(attachment);
        }
    }

    #[cold]
    fn publish_cold(&mut self, attachment: &Attachment) {
        self.publish_all(attachment);
    }
}

/// The values of an entry, in their order.
fn values(c: &mut PeerCounters) -> [&mut u64; PEER_VALUES] {
    [
        &mut c.data_out,
        &mut c.acks_out,
        &mut c.nacks_out,
        &mut c.probes_out,
        &mut c.data_in,
        &mut c.acks_in,
        &mut c.nacks_in,
        &mut c.probes_in,
        &mut c.bytes_out,
        &mut c.bytes_in,
        &mut c.resends,
        &mut c.duplicates,
        &mut c.round_trip_us,
        &mut c.unacked_packets,
        &mut c.unacked_bytes,
        &mut c.limit,
        &mut c.fragmented,
    ]
}

fn write(entry: &PeerEntry, counters: &PeerCounters) {
    let mut counters = *counters;
    for (cell, value) in entry.values.iter().zip(values(&mut counters)) {
        cell.store(*value, Relaxed);
    }
    let who = counters.rank.map_or(PEER_OTHERS, |rank| u64::from(rank) + 1);
    entry.who.store(who, Relaxed);
}

/// The entries of a rank's table that make sense; the rank may have written anything. Entries of ranks
/// that do not exist are left out, and so is a rank's second entry.
pub(crate) fn read(table: &PeerTable, ranks: u32) -> Vec<PeerCounters> {
    let mut all: Vec<PeerCounters> = Vec::new();
    for entry in &table.0 {
        let rank = match entry.who.load(Relaxed) {
            PEER_NOBODY => continue,
            PEER_OTHERS => None,
            who => match u32::try_from(who - 1).ok().filter(|rank| *rank < ranks) {
                Some(rank) => Some(rank),
                None => continue,
            },
        };
        if all.iter().any(|other| other.rank == rank) {
            continue;
        }
        let mut counters = PeerCounters { rank, ..PeerCounters::default() };
        for (value, cell) in values(&mut counters).into_iter().zip(&entry.values) {
            *value = AtomicU64::load(cell, Relaxed);
        }
        all.push(counters);
    }
    all
}
