//! Statistics of the traffic between the ranks of a job and their peers on other nodes.

use crate::table::{self, Table};
use kumi_control::message::{NodeSample, PeerSample, RankSample};
use kumi_sched::JobId;
use serde::Serialize;
use std::collections::BTreeMap;

/// Packets by kind.
#[derive(Serialize)]
struct PacketsView {
    data: u64,
    acks: u64,
    nacks: u64,
    probes: u64,
}

/// A peer of a rank.
#[derive(Serialize)]
pub struct PeerView {
    /// Null: sum over all peers that the rank does not count one by one.
    peer: Option<u32>,
    packets_out: PacketsView,
    packets_in: PacketsView,
    bytes_out: u64,
    bytes_in: u64,
    resends: u64,
    duplicates: u64,
    /// Null if unknown.
    round_trip_us: Option<u64>,
    unacked_packets: u64,
    unacked_bytes: u64,
    /// Null if unknown.
    limit_bytes: Option<u64>,
    fragmented: u64,
}

fn packets([data, acks, nacks, probes]: [u64; 4]) -> PacketsView {
    PacketsView { data, acks, nacks, probes }
}

fn known(value: u64) -> Option<u64> {
    (value > 0).then_some(value)
}

/// A rank's peers as data.
pub fn view(rank: &RankSample) -> Vec<PeerView> {
    let one = |peer: &PeerSample| PeerView {
        peer: peer.rank,
        packets_out: packets(peer.out),
        packets_in: packets(peer.came),
        bytes_out: peer.bytes[0],
        bytes_in: peer.bytes[1],
        resends: peer.resends,
        duplicates: peer.duplicates,
        round_trip_us: known(peer.round_trip_us),
        unacked_packets: peer.unacked_packets,
        unacked_bytes: peer.unacked_bytes,
        limit_bytes: known(peer.limit),
        fragmented: peer.fragmented,
    };
    rank.peers.iter().map(one).collect()
}

/// Adds the reports of the nodes of `job` about its ranks' peers to the samples of all nodes.
pub fn merge(samples: &mut [NodeSample], job: JobId, of_job: Vec<NodeSample>) {
    let ranks = of_job.into_iter().flat_map(|node| node.ranks);
    let mut by_rank: BTreeMap<u32, RankSample> =
        ranks.filter(|rank| rank.job == job).map(|rank| (rank.rank, rank)).collect();
    for rank in samples.iter_mut().flat_map(|node| &mut node.ranks) {
        if rank.job == job
            && let Some(with_peers) = by_rank.remove(&rank.rank)
        {
            rank.peers = with_peers.peers;
            rank.peers_left_out = with_peers.peers_left_out;
        }
    }
}

/// The peers as a table, and the number of those left out.
pub fn table(ranks: &[(u32, &RankSample)]) -> String {
    let packets =
        [">DATA OUT", ">ACKS", ">NACKS", ">PROBES", ">DATA IN", ">ACKS", ">NACKS", ">PROBES"];
    let rest =
        [">BYTES OUT", ">BYTES IN", ">RESENDS", ">DOUBLE", ">ROUND TRIP", ">UNACKED", ">BYTES"];
    let path = [">LIMIT", ">FRAGMENTED"];
    let headings = [[">JOB", ">RANK", ">PEER"].as_slice(), &packets, &rest, &path].concat();
    let mut table = Table::new(&headings);
    let mut left_out = 0;
    for (_, rank) in ranks {
        left_out += u64::from(rank.peers_left_out);
        for peer in &rank.peers {
            let name = peer.rank.map_or_else(|| "others".to_owned(), |rank| rank.to_string());
            let mut row = vec![rank.job.to_string(), rank.rank.to_string(), name];
            let round_trip = known(peer.round_trip_us);
            row.extend(peer.out.iter().chain(&peer.came).chain(&peer.bytes).map(u64::to_string));
            row.extend([
                peer.resends.to_string(),
                peer.duplicates.to_string(),
                round_trip
                    .map_or_else(|| "-".to_owned(), |us| table::nanos(us.saturating_mul(1_000))),
                peer.unacked_packets.to_string(),
                peer.unacked_bytes.to_string(),
                known(peer.limit).map_or_else(|| "-".to_owned(), |bytes| bytes.to_string()),
                peer.fragmented.to_string(),
            ]);
            table.row(row);
        }
    }
    let mut text = table.render();
    if left_out > 0 {
        text.push_str(&format!("and {left_out} peers with less traffic\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_control::message::{MessageCounts, SwitchSample};
    use kumi_sched::NodeId;

    fn rank(job: u64, rank: u32, peers: Vec<PeerSample>, peers_left_out: u32) -> RankSample {
        let (job, counters) = (JobId(job), Vec::new());
        RankSample { job, rank, idle: false, load_permille: 0, counters, peers, peers_left_out }
    }

    fn peer(rank: Option<u32>) -> PeerSample {
        PeerSample {
            rank,
            out: [1_000, 3, 0, 1],
            came: [990, 12, 1, 0],
            bytes: [64_000, 4_000_000],
            resends: 2,
            duplicates: 1,
            round_trip_us: rank.map_or(0, |_| 57),
            unacked_packets: 4,
            unacked_bytes: 1_024,
            limit: rank.map_or(0, |_| 1_252),
            fragmented: 3,
        }
    }

    #[test]
    fn the_table() {
        let (one, two) = (rank(7, 0, vec![peer(Some(2)), peer(None)], 5), rank(7, 1, vec![], 0));
        let expected = "\
JOB  RANK    PEER  DATA OUT  ACKS  NACKS  PROBES  DATA IN  ACKS  NACKS  PROBES  BYTES OUT  BYTES IN  RESENDS  DOUBLE  ROUND TRIP  UNACKED  BYTES  LIMIT  FRAGMENTED
  7     0       2      1000     3      0       1      990    12      1       0      64000   4000000        2       1      57.0us        4   1024   1252           3
  7     0  others      1000     3      0       1      990    12      1       0      64000   4000000        2       1           -        4   1024      -           3
and 5 peers with less traffic
";
        assert_eq!(table(&[(0, &one), (1, &two)]), expected);
    }

    #[test]
    fn peers_find_their_rank() {
        let node = |ranks| NodeSample {
            node: NodeId(0),
            ranks,
            channels: Vec::new(),
            traces: Vec::new(),
            load: None,
            machine_clock: String::new(),
            switching: SwitchSample::default(),
            control_messages: MessageCounts::default(),
            refused: Vec::new(),
        };
        let mut samples = [node(vec![rank(7, 0, vec![], 0), rank(8, 0, vec![], 0)])];
        let of_job = vec![node(vec![rank(7, 0, vec![peer(Some(1))], 3), rank(8, 0, vec![], 9)])];
        merge(&mut samples, JobId(7), of_job);
        assert_eq!((samples[0].ranks[0].peers.len(), samples[0].ranks[0].peers_left_out), (1, 3));
        assert_eq!(samples[0].ranks[1].peers_left_out, 0, "another job's");
        let json = serde_json::to_value(view(&samples[0].ranks[0])).unwrap();
        assert_eq!(json[0]["peer"], 1);
        assert_eq!(json[0]["packets_in"]["acks"], 12);
        assert_eq!(json[0]["round_trip_us"], 57);
        assert_eq!((&json[0]["limit_bytes"], &json[0]["fragmented"]), (&1_252.into(), &3.into()));
    }
}
