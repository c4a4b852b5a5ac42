//! Channels of a job's ranks, read out of their contexts for `kumi debug channel`.

use std::cmp::Reverse;

use kumi_control::message::{ChannelPeer, ChannelReading, ChannelSample, ChannelState};
use kumi_net::segment::{ContextReader, ContextReading, ContextReport, PeerReport};

use crate::job::LiveJob;

/// The channels of these local ranks of a job, with at most `most_peers` peers together. Ranks that have left are told too:
/// their contexts stay as they were.
pub(super) fn sample(live: &LiveJob, rank: Option<u32>, most_peers: usize) -> Vec<ChannelSample> {
    let ranks = (0..live.load.len()).zip(live.first..);
    let wanted: Vec<_> = ranks.filter(|(_, own)| rank.is_none_or(|rank| rank == *own)).collect();
    let most = (most_peers / wanted.len().max(1)).max(1);
    let mut reader = ContextReader::default();
    let sample = |(local, rank)| {
        let seen = match live.segment.channel(local, &mut reader) {
            Ok(ContextReading::Empty) => ChannelReading::NotJoined,
            Ok(ContextReading::Damaged(why)) => ChannelReading::Damaged(why.to_string()),
            Ok(ContextReading::Seen { report, busy }) => {
                ChannelReading::Context(state(&report, busy, most))
            }
            Err(error) => {
                ChannelReading::Damaged(format!("the file of the rank cannot be read: {error}"))
            }
        };
        ChannelSample { rank, seen }
    };
    wanted.into_iter().map(sample).collect()
}

fn state(report: &ContextReport, busy: bool, most: usize) -> ChannelState {
    let counters = report.counters.entries();
    let counted = counters.into_iter().filter(|(_, value)| *value > 0);
    let mut peers: Vec<ChannelPeer> = report.peers.iter().map(peer).collect();
    peers.sort_by_key(|peer| (Reverse(peer.unacked() > 0), peer.rank));
    let left_out = peers.len().saturating_sub(most);
    peers.truncate(most);
    ChannelState {
        busy,
        changes: report.changes,
        window: report.window,
        max_datagram: report.max_datagram,
        encrypted: report.encrypted,
        closed: report.closed,
        blocks: report.blocks,
        early: report.kept,
        counters: counted.map(|(name, value)| (name.to_owned(), value)).collect(),
        peers,
        peers_left_out: u32::try_from(left_out).unwrap_or(u32::MAX),
    }
}

fn peer(report: &PeerReport) -> ChannelPeer {
    ChannelPeer {
        rank: report.rank,
        oldest: report.oldest,
        next: report.next,
        tail: report.tail,
        in_flight: report.in_flight,
        lost: report.lost,
        lent: report.lent,
        unacked_bytes: report.unacked_bytes,
        congestion_window: report.congestion_window,
        round_trip_us: report.round_trip_us,
        timeouts: report.timeouts,
        probes: report.probes,
        refusals: report.refusals,
        expected: report.expected,
        early: report.kept,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_net::segment::EndpointCounters;

    fn report(peers: &[(u32, u32)]) -> ContextReport {
        let peer = |&(rank, unacked)| PeerReport {
            rank,
            oldest: u32::MAX,
            tail: u32::MAX.wrapping_add(unacked),
            ..PeerReport::default()
        };
        ContextReport {
            me: 1,
            ranks: 8,
            window: 64,
            max_datagram: 1_472,
            encrypted: false,
            changing: false,
            changes: 9,
            closed: false,
            blocks: 2,
            kept: 0,
            counters: EndpointCounters { sent: 2, ..EndpointCounters::default() },
            peers: peers.iter().map(peer).collect(),
        }
    }

    #[test]
    fn peers_that_owe_acks_come_first_and_the_rest_is_counted() {
        let report = report(&[(5, 1), (0, 0), (3, 4)]);
        let all = state(&report, false, 9);
        let ranks: Vec<_> = all.peers.iter().map(|peer| (peer.rank, peer.unacked())).collect();
        assert_eq!((ranks, all.peers_left_out), (vec![(3, 4), (5, 1), (0, 0)], 0));
        assert_eq!(all.counters, [("sent".to_owned(), 2)], "those that are not 0");
        let few = state(&report, true, 1);
        assert_eq!((few.peers.len(), few.peers_left_out, few.busy), (1, 2, true));
    }
}
