//! `kumi stats`: statistics of switching and of the ranks' channels.

mod peers;
mod skew;

use crate::cli::StatsArgs;
use crate::context::Context;
use crate::error::Error;
use crate::output;
use crate::table::{self, Table};
use kumi_control::message::{
    ClientReply, ClientRequest, ClusterStatus, MessageCounts, NodeSample, Percentiles, RankSample,
    SwitchSample,
};
use kumi_sched::JobId;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The output of `--json`.
#[derive(Serialize)]
struct StatsView<'a> {
    mode: &'static str,
    force_switch: bool,
    fill: bool,
    slice_us: f64,
    /// Control messages of the head since its start.
    head_control_messages: u64,
    /// Skew between nodes, by the best available clock; absent if no two nodes saw the same tick.
    skew: Option<skew::Skew>,
    /// If that skew is by one machine's clock and there are several machines: skew between all nodes, by
    /// their estimates of cluster time.
    #[serde(skip_serializing_if = "Option::is_none")]
    skew_between_machines: Option<skew::Skew>,
    nodes: Vec<NodeView<'a>>,
}

/// One node.
#[derive(Serialize)]
struct NodeView<'a> {
    node: u32,
    switching: SwitchView,
    ranks: Vec<RankView<'a>>,
    /// Control messages of the daemon since its start.
    control_messages: u64,
    /// The same by purpose.
    control_messages_by_kind: BTreeMap<&'static str, u64>,
    refused: BTreeMap<&'a str, u64>,
}

/// A node's switches; times in nanoseconds.
#[derive(Serialize)]
struct SwitchView {
    count: u64,
    freeze: PercentilesView,
    thaw: PercentilesView,
    total: PercentilesView,
    lateness: PercentilesView,
    missed_ticks: u64,
}

/// A histogram's summary in nanoseconds.
#[derive(Serialize)]
struct PercentilesView {
    count: u64,
    p50: u64,
    p90: u64,
    p99: u64,
    max: u64,
    mean: u64,
}

/// One rank.
#[derive(Serialize)]
struct RankView<'a> {
    job: u64,
    rank: u32,
    idle: bool,
    load: f64,
    counters: BTreeMap<&'a str, u64>,
    /// With --peers: peers on other nodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    peers: Option<Vec<peers::PeerView>>,
    /// With --peers: number of further ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    peers_left_out: Option<u32>,
}

/// Runs the command.
pub async fn run(context: &Context, args: &StatsArgs) -> Result<(), Error> {
    let mut client = context.connect().await?;
    let status = client.status(0).await?;
    let mut samples = match client.ask(&ClientRequest::Sample).await? {
        ClientReply::Samples(samples) => samples,
        other => return Err(Error::unexpected(&other)),
    };
    samples.sort_by_key(|sample| sample.node);
    let job = args.job.map(JobId);
    if let Some(job) = job
        && !samples.iter().flat_map(|sample| &sample.ranks).any(|rank| rank.job == job)
    {
        return Err(Error::JobNotRunning { job: job.0 });
    }
    if let Some(job) = job.filter(|_| args.peers) {
        match client.ask(&ClientRequest::SamplePeers { job }).await? {
            ClientReply::Samples(of_job) => peers::merge(&mut samples, job, of_job),
            other => return Err(Error::unexpected(&other)),
        }
    }
    if args.json {
        return output::json(&view(&status, &samples, job, args.peers));
    }
    let mut text = render(&status, &samples, job);
    if args.peers {
        text.push('\n');
        text.push_str(&peers::table(&ranks(&samples, job)));
    }
    output::text(&text)
}

/// The requested ranks with their nodes, by job and rank.
fn ranks(samples: &[NodeSample], job: Option<JobId>) -> Vec<(u32, &RankSample)> {
    let all = samples.iter().flat_map(|node| node.ranks.iter().map(|rank| (node.node.0, rank)));
    let mut wanted: Vec<_> =
        all.filter(|(_, rank)| job.is_none_or(|job| rank.job == job)).collect();
    wanted.sort_by_key(|(_, rank)| (rank.job, rank.rank));
    wanted
}

impl From<Percentiles> for PercentilesView {
    fn from(p: Percentiles) -> Self {
        Self { count: p.count, p50: p.p50, p90: p.p90, p99: p.p99, max: p.max, mean: p.mean }
    }
}

fn switch_view(switching: &SwitchSample) -> SwitchView {
    SwitchView {
        count: switching.count,
        freeze: switching.freeze.into(),
        thaw: switching.thaw.into(),
        total: switching.total.into(),
        lateness: switching.lateness.into(),
        missed_ticks: switching.missed_ticks,
    }
}

/// Control messages by purpose.
fn by_kind(counts: MessageCounts) -> BTreeMap<&'static str, u64> {
    let MessageCounts { clock, disclosure, lease, sample, other } = counts;
    [
        ("clock", clock),
        ("disclosure", disclosure),
        ("lease", lease),
        ("sample", sample),
        ("other", other),
    ]
    .into()
}

fn counters(pairs: &[(String, u64)]) -> BTreeMap<&str, u64> {
    pairs.iter().map(|(name, value)| (name.as_str(), *value)).collect()
}

fn view<'a>(
    status: &ClusterStatus,
    samples: &'a [NodeSample],
    job: Option<JobId>,
    with_peers: bool,
) -> StatsView<'a> {
    let (mode, force_switch, fill) = crate::cluster::status::mode_words(status.mode);
    let rank_view = |rank: &'a RankSample| RankView {
        job: rank.job.0,
        rank: rank.rank,
        idle: rank.idle,
        load: f64::from(rank.load_permille) / 1000.0,
        counters: counters(&rank.counters),
        peers: with_peers.then(|| peers::view(rank)),
        peers_left_out: with_peers.then_some(rank.peers_left_out),
    };
    let wanted = |rank: &&RankSample| job.is_none_or(|job| rank.job == job);
    let node_view = |node: &'a NodeSample| NodeView {
        node: node.node.0,
        switching: switch_view(&node.switching),
        ranks: node.ranks.iter().filter(wanted).map(rank_view).collect(),
        control_messages: node.control_messages.total(),
        control_messages_by_kind: by_kind(node.control_messages),
        refused: counters(&node.refused),
    };
    let (skew, skew_between_machines) = skew::between_nodes(samples);
    #[allow(clippy::cast_precision_loss)]
    StatsView {
        mode,
        force_switch,
        fill,
        slice_us: status.timetable.slice_ns as f64 / 1e3,
        head_control_messages: status.control_messages,
        skew,
        skew_between_machines,
        nodes: samples.iter().map(node_view).collect(),
    }
}

fn render(status: &ClusterStatus, samples: &[NodeSample], job: Option<JobId>) -> String {
    let mut text = format!("{}\n\n", crate::cluster::status::sharing(status));
    text.push_str(&switch_table(samples));
    text.push('\n');
    text.push_str(&skew_line(samples));
    text.push_str(&message_line(status, samples));
    for node in samples {
        for (reason, count) in node.refused.iter().filter(|(_, count)| *count > 0) {
            let reason = table::printable(reason);
            text.push_str(&format!("node {} refused {count}: {reason}\n", node.node));
        }
    }
    let wanted = ranks(samples, job);
    if !wanted.is_empty() {
        text.push('\n');
        text.push_str(&rank_table(&wanted));
    }
    text
}

fn message_line(status: &ClusterStatus, samples: &[NodeSample]) -> String {
    let daemons: u64 = samples.iter().map(|node| node.control_messages.total()).sum();
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    for (kind, count) in samples.iter().flat_map(|node| by_kind(node.control_messages)) {
        *kinds.entry(kind).or_default() += count;
    }
    let kinds: Vec<String> = kinds.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    let (head, kinds) = (status.control_messages, kinds.join(", "));
    format!("control messages: head {head}, daemons {daemons} ({kinds})\n")
}

fn switch_table(samples: &[NodeSample]) -> String {
    let [switches, late] =
        [[">SWITCH p50", ">p90", ">p99", ">max"].as_slice(), &[">LATE p50", ">p99"]];
    let phases = [">NODE", ">SWITCHES", ">FREEZE p50", ">THAW p50"].as_slice();
    let headings = [phases, switches, late, &[">MISSED"]].concat();
    let mut nodes = Table::new(&headings);
    for node in samples {
        let s = &node.switching;
        let times = [
            [s.freeze.p50, s.thaw.p50].as_slice(),
            &[s.total.p50, s.total.p90, s.total.p99, s.total.max],
            &[s.lateness.p50, s.lateness.p99],
        ]
        .concat();
        let mut row = vec![node.node.to_string(), s.count.to_string()];
        let written = |time: u64| if s.count == 0 { "-".to_owned() } else { table::nanos(time) };
        row.extend(times.into_iter().map(written));
        row.push(s.missed_ticks.to_string());
        nodes.row(row);
    }
    nodes.render()
}

fn skew_line(samples: &[NodeSample]) -> String {
    let (best, estimated) = skew::between_nodes(samples);
    let skews: Vec<skew::Skew> = best.into_iter().chain(estimated).collect();
    if skews.is_empty() {
        return "skew between nodes: no tick was switched on two nodes yet\n".to_owned();
    }
    let line = |skew: &skew::Skew| {
        format!(
            "skew between {} nodes over {} ticks, by {}: p50 {}, p99 {}, max {}\n",
            skew.nodes,
            skew.ticks,
            skew.clock,
            table::nanos(skew.p50_ns),
            table::nanos(skew.p99_ns),
            table::nanos(skew.max_ns)
        )
    };
    skews.iter().map(line).collect()
}

/// One column per counter that is not 0 everywhere.
fn rank_table(ranks: &[(u32, &RankSample)]) -> String {
    let mut names: Vec<&str> = Vec::new();
    let mut seen = BTreeSet::new();
    for (_, rank) in ranks {
        for (name, value) in &rank.counters {
            if *value > 0 && seen.insert(name.as_str()) {
                names.push(name);
            }
        }
    }
    let headings: Vec<String> =
        names.iter().map(|name| format!(">{}", table::printable(name))).collect();
    let mut all = vec![">JOB", ">RANK", ">NODE", ">LOAD"];
    all.extend(headings.iter().map(String::as_str));
    let mut table = Table::new(&all);
    for (node, rank) in ranks {
        let mut row = vec![
            rank.job.to_string(),
            rank.rank.to_string(),
            node.to_string(),
            format!("{}%", rank.load_permille / 10),
        ];
        let values = counters(&rank.counters);
        row.extend(names.iter().map(|name| values.get(name).unwrap_or(&0).to_string()));
        table.row(row);
    }
    table.render()
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_control::message::SwitchBegin;
    use kumi_sched::{ClusterTime, Mode, NodeId, SliceLength, Timetable};

    fn status() -> ClusterStatus {
        let mode = Mode::Gang { force_switch: false, fill: true };
        let slice_ns = 1_000_000;
        let start = ClusterTime(0);
        let timetable = Timetable {
            generation: 1,
            start,
            slice_ns,
            phase_ns: 0,
            mode,
            columns: Vec::new(),
            idle: Vec::new(),
        };
        let (name, nodes) = (String::from("lab"), Vec::new());
        ClusterStatus {
            name,
            nodes,
            mode,
            slice: SliceLength::Fixed(slice_ns),
            timetable,
            since_ms: 0,
            control_messages: 40,
            policy: "dqt".into(),
            tree: None,
        }
    }

    fn sample(node: u32, count: u64, begin: u64) -> NodeSample {
        let p = |p50| Percentiles { count, p50, p90: p50, p99: 2 * p50, max: 3 * p50, mean: p50 };
        let rank = |job, rank, sent| RankSample {
            job: JobId(job),
            rank,
            idle: false,
            load_permille: 987,
            counters: vec![("sent".into(), sent), ("resent".into(), 0)],
            peers: Vec::new(),
            peers_left_out: 0,
        };
        NodeSample {
            node: NodeId(node),
            machine_clock: "one".into(),
            ranks: vec![rank(7, node, 100 + u64::from(node)), rank(8, node, 5)],
            channels: Vec::new(),
            traces: Vec::new(),
            load: None,
            switching: SwitchSample {
                count,
                freeze: p(6_500),
                thaw: p(1_700),
                total: p(8_600),
                lateness: p(50_600),
                recent: vec![SwitchBegin {
                    generation: 1,
                    due: ClusterTime(4),
                    cluster: ClusterTime(5),
                    machine: begin,
                }],
                missed_ticks: 0,
            },
            control_messages: MessageCounts { clock: 7, other: 3, ..MessageCounts::default() },
            refused: vec![("bad frame".into(), u64::from(node))],
        }
    }

    #[test]
    fn the_page() {
        let samples = [sample(0, 42, 1_000), sample(1, 0, 28_700)];
        let expected = "\
gang scheduling by dqt in slices of 1ms

NODE  SWITCHES  FREEZE p50  THAW p50  SWITCH p50    p90     p99     max  LATE p50      p99  MISSED
   0        42       6.5us     1.7us       8.6us  8.6us  17.2us  25.8us    50.6us  101.2us       0
   1         0           -         -           -      -       -       -         -        -       0

skew between 2 nodes over 1 ticks, by the machine's clock: p50 27.7us, p99 27.7us, max 27.7us
control messages: head 40, daemons 20 (clock 14, disclosure 0, lease 0, other 6, sample 0)
node 1 refused 1: bad frame

JOB  RANK  NODE  LOAD  sent
  7     0     0   98%   100
  7     1     1   98%   101
";
        assert_eq!(render(&status(), &samples, Some(JobId(7))), expected);
    }

    #[test]
    fn json_has_what_programs_read() {
        let samples = [sample(0, 42, 1_000), sample(1, 42, 28_700)];
        let status = status();
        let value = serde_json::to_value(view(&status, &samples, None, false)).unwrap();
        assert_eq!(value["nodes"][0]["switching"]["total"]["p99"], 17_200);
        assert_eq!(value["nodes"][1]["ranks"][0]["counters"]["sent"], 101);
        assert_eq!(value["nodes"][1]["refused"]["bad frame"], 1);
        assert_eq!(value["skew"]["p50_ns"], 27_700);
        assert_eq!(value["skew"]["clock"], "machine");
        assert_eq!(value["nodes"][1]["control_messages"], 10);
        assert_eq!(value["nodes"][1]["control_messages_by_kind"]["clock"], 7);
        assert_eq!(value["head_control_messages"], 40);
    }
}
