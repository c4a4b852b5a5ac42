//! `kumi debug channel`: the contexts of ranks' channels, as the daemons of their nodes see them.

use super::ChannelArgs;
use crate::context::Context;
use crate::error::Error;
use crate::output;
use crate::table::{self, Table};
use kumi_control::message::{
    ChannelPeer, ChannelReading, ChannelSample, ChannelState, ClientReply, ClientRequest,
    NodeSample,
};
use kumi_sched::JobId;
use serde::Serialize;
use std::collections::BTreeMap;

/// The output of `--json`.
#[derive(Serialize)]
struct ChannelsView<'a> {
    job: u64,
    channels: Vec<ChannelView<'a>>,
}

/// A rank's channel.
#[derive(Serialize)]
struct ChannelView<'a> {
    rank: u32,
    node: u32,
    /// As the column STATE.
    state: &'static str,
    /// With the state `damaged`: why.
    #[serde(skip_serializing_if = "Option::is_none")]
    damage: Option<&'a str>,
    /// What the context says; null if there is none.
    context: Option<ContextView<'a>>,
}

/// A context.
#[derive(Serialize)]
struct ContextView<'a> {
    /// The rank changed it at every look, so the numbers may not fit together.
    busy: bool,
    changes: u64,
    window: u32,
    max_datagram: u32,
    encrypted: bool,
    settling: bool,
    blocks: u32,
    early: u32,
    /// Those that are not 0.
    counters: BTreeMap<&'a str, u64>,
    peers: Vec<PeerView>,
    peers_left_out: u32,
}

/// A peer.
#[derive(Serialize)]
struct PeerView {
    peer: u32,
    oldest: u32,
    next: u32,
    tail: u32,
    unacked: u32,
    in_flight: u32,
    lost: u32,
    lent: u32,
    unacked_bytes: u32,
    congestion_window: u32,
    /// Null if unknown.
    round_trip_us: Option<u64>,
    timeouts: u8,
    probes: u32,
    refusals: u8,
    expected: u32,
    early: u16,
}

/// Runs the command.
pub async fn run(context: &Context, args: &ChannelArgs) -> Result<(), Error> {
    let (job, rank) = (args.job, args.rank);
    let mut client = context.connect().await?;
    let request = ClientRequest::SampleChannels { job: JobId(job), rank };
    let samples = match client.ask(&request).await? {
        ClientReply::Samples(samples) => samples,
        other => return Err(Error::unexpected(&other)),
    };
    let channels = channels(&samples);
    if channels.is_empty() {
        return Err(Error::ChannelsUnseen { job });
    }
    if args.json {
        output::json(&view(job, &channels))?;
    } else {
        output::text(&render(&channels))?;
    }
    let damaged = channels.iter().find_map(|(_, channel)| match &channel.seen {
        ChannelReading::Damaged(why) => Some((channel.rank, table::printable(why))),
        _ => None,
    });
    match damaged {
        Some((rank, why)) => Err(Error::ChannelDamaged { job, rank, why }),
        None => Ok(()),
    }
}

/// The channels with their nodes, by rank.
fn channels(samples: &[NodeSample]) -> Vec<(u32, &ChannelSample)> {
    let of_node = |node: &'_ NodeSample| node.node.0;
    let all = samples
        .iter()
        .flat_map(|node| node.channels.iter().map(move |channel| (of_node(node), channel)));
    let mut all: Vec<_> = all.collect();
    all.sort_by_key(|(_, channel)| channel.rank);
    all
}

/// What is to be said of a channel in a word.
fn word(seen: &ChannelReading) -> &'static str {
    match seen {
        ChannelReading::NotJoined => "not joined",
        ChannelReading::Damaged(_) => "damaged",
        ChannelReading::Context(state) if state.busy => "busy",
        ChannelReading::Context(state) if state.closed => "settling",
        ChannelReading::Context(_) => "open",
    }
}

fn view<'a>(job: u64, channels: &[(u32, &'a ChannelSample)]) -> ChannelsView<'a> {
    let view = |&(node, channel): &(u32, &'a ChannelSample)| {
        let (damage, context) = match &channel.seen {
            ChannelReading::NotJoined => (None, None),
            ChannelReading::Damaged(why) => (Some(why.as_str()), None),
            ChannelReading::Context(state) => (None, Some(context_view(state))),
        };
        ChannelView { rank: channel.rank, node, state: word(&channel.seen), damage, context }
    };
    ChannelsView { job, channels: channels.iter().map(view).collect() }
}

fn context_view(state: &ChannelState) -> ContextView<'_> {
    ContextView {
        busy: state.busy,
        changes: state.changes,
        window: state.window,
        max_datagram: state.max_datagram,
        encrypted: state.encrypted,
        settling: state.closed,
        blocks: state.blocks,
        early: state.early,
        counters: state.counters.iter().map(|(name, value)| (name.as_str(), *value)).collect(),
        peers: state.peers.iter().map(peer_view).collect(),
        peers_left_out: state.peers_left_out,
    }
}

fn peer_view(peer: &ChannelPeer) -> PeerView {
    PeerView {
        peer: peer.rank,
        oldest: peer.oldest,
        next: peer.next,
        tail: peer.tail,
        unacked: peer.unacked(),
        in_flight: peer.in_flight,
        lost: peer.lost,
        lent: peer.lent,
        unacked_bytes: peer.unacked_bytes,
        congestion_window: peer.congestion_window,
        round_trip_us: peer.round_trip_us,
        timeouts: peer.timeouts,
        probes: peer.probes,
        refusals: peer.refusals,
        expected: peer.expected,
        early: peer.early,
    }
}

fn render(channels: &[(u32, &ChannelSample)]) -> String {
    let seen: Vec<(u32, &ChannelState)> = channels
        .iter()
        .filter_map(|(_, channel)| match &channel.seen {
            ChannelReading::Context(state) => Some((channel.rank, state)),
            _ => None,
        })
        .collect();
    let mut text = rank_table(channels);
    if seen.is_empty() {
        return text;
    }
    text.push('\n');
    for (rank, state) in &seen {
        let counters = state.counters.iter();
        let counters = counters.map(|(name, value)| format!("{} {value}", table::printable(name)));
        text.push_str(&format!("rank {rank}: {}\n", counters.collect::<Vec<_>>().join(", ")));
    }
    text.push('\n');
    text.push_str(&peer_table(&seen));
    for (rank, state) in &seen {
        if state.peers_left_out > 0 {
            text.push_str(&format!("rank {rank} has {} more peers\n", state.peers_left_out));
        }
        if state.busy {
            text.push_str(&format!(
                "rank {rank} was changing its channel at every look: its numbers may not fit together\n"
            ));
        }
    }
    text
}

fn rank_table(channels: &[(u32, &ChannelSample)]) -> String {
    let sizes = [">CHANGES", ">WINDOW", ">DATAGRAM", "ENCRYPTED", ">BLOCKS", ">EARLY"];
    let mut table = Table::new(&[[">RANK", ">NODE", "STATE"].as_slice(), &sizes].concat());
    for (node, channel) in channels {
        let mut row =
            vec![channel.rank.to_string(), node.to_string(), word(&channel.seen).to_owned()];
        row.extend(match &channel.seen {
            ChannelReading::Context(state) => [
                state.changes.to_string(),
                state.window.to_string(),
                state.max_datagram.to_string(),
                if state.encrypted { "yes" } else { "no" }.to_owned(),
                state.blocks.to_string(),
                state.early.to_string(),
            ],
            _ => [(); 6].map(|()| "-".to_owned()),
        });
        table.row(row);
    }
    table.render()
}

fn peer_table(channels: &[(u32, &ChannelState)]) -> String {
    let numbers = [">RANK", ">PEER", ">OLDEST", ">NEXT", ">TAIL"].as_slice();
    let unacked = [">UNACKED", ">IN FLIGHT", ">LOST", ">LENT", ">BYTES", ">WINDOW"];
    let path = [">ROUND TRIP", ">TIMEOUTS", ">PROBES", ">REFUSALS"];
    let headings = [numbers, &unacked, &path, &[">EXPECTED", ">EARLY"]].concat();
    let mut table = Table::new(&headings);
    for (rank, state) in channels {
        for peer in &state.peers {
            let round_trip = peer.round_trip_us.map(|us| table::nanos(us.saturating_mul(1_000)));
            let mut row: Vec<String> = [
                *rank,
                peer.rank,
                peer.oldest,
                peer.next,
                peer.tail,
                peer.unacked(),
                peer.in_flight,
                peer.lost,
                peer.lent,
                peer.unacked_bytes,
                peer.congestion_window,
            ]
            .iter()
            .map(u32::to_string)
            .collect();
            row.extend([
                round_trip.unwrap_or_else(|| "-".to_owned()),
                peer.timeouts.to_string(),
                peer.probes.to_string(),
                peer.refusals.to_string(),
                peer.expected.to_string(),
                peer.early.to_string(),
            ]);
            table.row(row);
        }
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<ChannelSample> {
        let peer = ChannelPeer {
            rank: 2,
            oldest: u32::MAX,
            next: 2,
            tail: 3,
            in_flight: 2,
            lost: 1,
            unacked_bytes: 148,
            congestion_window: 32,
            round_trip_us: Some(57),
            timeouts: 1,
            probes: 1,
            expected: 9,
            ..ChannelPeer::default()
        };
        let state = ChannelState {
            changes: 10,
            window: 256,
            max_datagram: 1_472,
            blocks: 1,
            counters: vec![("sent".into(), 4), ("data_out".into(), 3)],
            peers: vec![peer, ChannelPeer { rank: 3, round_trip_us: None, ..peer }],
            ..ChannelState::default()
        };
        let busy = ChannelState { busy: true, peers_left_out: 7, peers: vec![], ..state.clone() };
        let sample = |rank, seen| ChannelSample { rank, seen };
        vec![
            sample(0, ChannelReading::Context(state)),
            sample(1, ChannelReading::NotJoined),
            sample(2, ChannelReading::Damaged("the counters".into())),
            sample(3, ChannelReading::Context(busy)),
        ]
    }

    #[test]
    fn the_page() {
        let samples = samples();
        let channels: Vec<_> = samples.iter().map(|sample| (sample.rank / 2, sample)).collect();
        let expected = "\
RANK  NODE  STATE       CHANGES  WINDOW  DATAGRAM  ENCRYPTED  BLOCKS  EARLY
   0     0  open             10     256      1472  no              1      0
   1     0  not joined        -       -         -  -               -      -
   2     1  damaged           -       -         -  -               -      -
   3     1  busy             10     256      1472  no              1      0

rank 0: sent 4, data_out 3
rank 3: sent 4, data_out 3

RANK  PEER      OLDEST  NEXT  TAIL  UNACKED  IN FLIGHT  LOST  LENT  BYTES  WINDOW  ROUND TRIP  TIMEOUTS  PROBES  REFUSALS  EXPECTED  EARLY
   0     2  4294967295     2     3        4          2     1     0    148      32      57.0us         1       1         0         9      0
   0     3  4294967295     2     3        4          2     1     0    148      32           -         1       1         0         9      0
rank 3 has 7 more peers
rank 3 was changing its channel at every look: its numbers may not fit together
";
        assert_eq!(render(&channels), expected);
        assert!(!render(&channels[1..3]).contains("PEER"), "nothing of peers is known");
    }

    #[test]
    fn json_has_what_programs_read() {
        let samples = samples();
        let channels: Vec<_> = samples.iter().map(|sample| (sample.rank / 2, sample)).collect();
        let value = serde_json::to_value(view(7, &channels)).unwrap();
        assert_eq!(value["job"], 7);
        let [open, unjoined, damaged, busy] = [0, 1, 2, 3].map(|at| &value["channels"][at]);
        assert_eq!((&open["state"], &open["node"]), (&"open".into(), &0.into()));
        assert_eq!(open["context"]["peers"][0]["unacked"], 4);
        assert_eq!(open["context"]["peers"][0]["round_trip_us"], 57);
        assert!(open["context"]["peers"][1]["round_trip_us"].is_null());
        assert_eq!(open["context"]["counters"]["sent"], 4);
        assert!(unjoined["context"].is_null() && unjoined.get("damage").is_none());
        assert_eq!(
            (&damaged["state"], &damaged["damage"]),
            (&"damaged".into(), &"the counters".into())
        );
        assert_eq!((&busy["state"], &busy["context"]["busy"]), (&"busy".into(), &true.into()));
    }
}
