//! `kumi cluster status`: the nodes of the cluster.

use super::certificates;
use super::host_instructions::{self, HostInstructions};
use crate::cli::StatusArgs;
use crate::context::{Context, NodeAddress};
use crate::error::Error;
use crate::output;
use crate::table::{self, Table};
use kumi_control::message::{ClusterStatus, DeviceCount, HeadStatus, HeadTroubles, NodeStatus};
use kumi_node::config::ClusterKind;
use kumi_sched::{Mode, SliceLength};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// The cluster in the form of `--json`.
#[derive(Serialize)]
pub struct StatusView<'a> {
    name: &'a str,
    mode: &'static str,
    policy: &'a str,
    force_switch: bool,
    fill: bool,
    /// Of the timetable in force.
    slice_us: f64,
    /// It is chosen for the jobs that take turns.
    slice_auto: bool,
    since_ms: u64,
    nodes_up: usize,
    generation: u64,
    slots: usize,
    control_messages: u64,
    nodes: Vec<NodeView<'a>>,
    tree: Option<Vec<super::tree::TreeView>>,
    /// All of several heads; none if there is one.
    heads: Vec<HeadView>,
    /// Only if the head says it.
    #[serde(flatten)]
    troubles: Option<TroublesView>,
}

/// What the head cannot write in the form of `--json`.
#[derive(Serialize)]
struct TroublesView {
    /// Why it does not keep output, or takes no new job; null if it does.
    output_not_kept: Option<String>,
    jobs_refused: Option<String>,
}

/// A head in the form of `--json`.
#[derive(Serialize)]
struct HeadView {
    address: String,
    leads: bool,
    /// It has all output that is acknowledged.
    in_sync: bool,
}

/// A node in the form of `--json`.
#[derive(Serialize)]
struct NodeView<'a> {
    node: u32,
    name: &'a str,
    up: bool,
    address: &'a str,
    processors: Option<u32>,
    /// Without a job.
    processors_free: Option<u32>,
    /// Bytes; null if it is not known.
    memory: Option<u64>,
    memory_free: Option<u64>,
    devices: Vec<DeviceView<'a>>,
    jobs: Vec<u64>,
    timetable: Vec<Vec<u64>>,
    limits: &'a [String],
    /// Why it gets no new jobs; null if it does.
    drained: Option<&'a str>,
}

/// Devices of a node in the form of `--json`.
#[derive(Serialize)]
struct DeviceView<'a> {
    name: &'a str,
    count: u32,
    free: u32,
}

/// Processors of a node, and those without a job.
pub fn processors(node: &NodeStatus) -> Option<(u32, u32)> {
    let all = node.description.as_ref()?.processors;
    Some((all, all.saturating_sub(node.taken.processors)))
}

/// Bytes of memory of a node, and those that are not reserved.
fn memory(node: &NodeStatus) -> Option<(u64, u64)> {
    let all = node.description.as_ref().map(|said| said.memory).filter(|&all| all > 0)?;
    Some((all, all.saturating_sub(node.taken.memory)))
}

/// Devices of a node, and how many of each no job has.
fn devices(node: &NodeStatus) -> impl Iterator<Item = (&DeviceCount, u32)> {
    let all = node.description.iter().flat_map(|said| &said.devices);
    all.map(|device| {
        let taken = node.taken.devices.iter().find(|taken| taken.name == device.name);
        (device, device.count.saturating_sub(taken.map_or(0, |taken| taken.count)))
    })
}

/// Runs the command.
pub async fn run(context: &Context, args: &StatusArgs) -> Result<(), Error> {
    let mut client = context.connect().await?;
    // The text shows no timetables.
    let status = client.status(if args.json { u32::MAX } else { 0 }).await?;
    let (heads, troubles) = (client.heads().await?, client.troubles().await?);
    let places = context.places();
    if args.json {
        let heads = heads.iter().map(head_view).collect();
        let troubles = troubles.map(|HeadTroubles { output, jobs }| TroublesView {
            output_not_kept: output,
            jobs_refused: jobs,
        });
        output::json(&StatusView { heads, troubles, ..view(&status, &places) })
    } else {
        let now = output::wall_ms();
        let mut text = render(&status, &places, now);
        text.push_str(&head_lines(&heads));
        text.push_str(&trouble_lines(&troubles.unwrap_or_default(), context.dir()));
        for warning in certificates::warnings(context, now) {
            text.push_str(&format!("{warning}\n"));
        }
        text.push_str(&advice(context, &status));
        output::text(&text)
    }
}

fn head_view(head: &HeadStatus) -> HeadView {
    HeadView { address: head.address.to_string(), leads: head.leads, in_sync: head.in_sync }
}

/// Which of several heads leads, and which have its output.
fn head_lines(heads: &[HeadStatus]) -> String {
    if heads.is_empty() {
        return String::new();
    }
    let line = |head: &HeadStatus| {
        let state = match (head.leads, head.in_sync) {
            (true, _) => "leads",
            (false, true) => "waits, in sync: it has all output that is acknowledged",
            (false, false) => "does not have all output: it is away, or behind",
        };
        format!("  {} {state}\n", head.address)
    };
    let mut text = String::from("\nHeads:\n");
    text.extend(heads.iter().map(line));
    if heads.iter().all(|head| head.leads || !head.in_sync) {
        text.push_str(
            "What ranks write is only on the machine of the head that leads; start the others again.\n",
        );
    }
    text
}

/// What the head cannot write, and what helps. Its files are in the same folder as those of this machine.
fn trouble_lines(troubles: &HeadTroubles, dir: &Path) -> String {
    let HeadTroubles { output, jobs } = troubles;
    if output.is_none() && jobs.is_none() {
        return String::new();
    }
    let mut text = String::from("\nWhat the head cannot write:\n");
    if let Some(reason) = output {
        let reason = table::printable(reason);
        text.push_str(&format!(
            "  output of jobs is not kept, and `kumi ps` shows how much: {reason}\n"
        ));
    }
    if let Some(reason) = jobs {
        text.push_str(&format!("  new jobs are refused: {}\n", table::printable(reason)));
    }
    if output.is_some() {
        text.push_str(&format!(
            "Make room below {} on the head's machine. Jobs run on meanwhile, and then the head goes on by itself.\n",
            dir.display()
        ));
    }
    text
}

/// How nodes of other hosts that are down come back; nothing for local ones, which `kumi cluster up` starts.
fn advice(context: &Context, status: &ClusterStatus) -> String {
    let Ok(config) = context.config() else { return String::new() };
    let up = status.nodes.iter().filter(|node| node.up).map(|node| node.node).collect();
    let down = host_instructions::down(&config, &up);
    if config.kind != ClusterKind::Hosts || down.is_empty() {
        return String::new();
    }
    let own = BTreeSet::new();
    format!("\n{}", HostInstructions::new(context, &config, &own).back(&down))
}

/// `gang` or `os`, whether needless switches are made, and whether jobs have what others leave.
pub fn mode_words(mode: Mode) -> (&'static str, bool, bool) {
    match mode {
        Mode::Gang { force_switch, fill } => ("gang", force_switch, fill),
        Mode::OperatingSystem => ("os", false, false),
    }
}

/// The cluster as data.
pub fn view<'a>(status: &'a ClusterStatus, places: &'a [NodeAddress]) -> StatusView<'a> {
    let (mode, force_switch, fill) = mode_words(status.mode);
    let node_view = |node: &'a NodeStatus| {
        let description = node.description.as_ref();
        NodeView {
            node: node.node.0,
            name: name(node, places),
            up: node.up,
            address: place(places, node).map_or("", |place| &place.address),
            processors: processors(node).map(|(all, _)| all),
            processors_free: processors(node).map(|(_, free)| free),
            memory: memory(node).map(|(all, _)| all),
            memory_free: memory(node).map(|(_, free)| free),
            devices: devices(node)
                .map(|(device, free)| DeviceView { name: &device.name, count: device.count, free })
                .collect(),
            jobs: node.jobs.iter().map(|job| job.0).collect(),
            timetable: slots(status, node.node),
            limits: description.map_or(&[], |d| d.limits.as_slice()),
            drained: node.drain.as_ref().map(|drain| &*drain.reason),
        }
    };
    #[allow(clippy::cast_precision_loss)]
    StatusView {
        name: &status.name,
        mode,
        policy: &status.policy,
        force_switch,
        fill,
        slice_us: status.timetable.slice_ns as f64 / 1e3,
        slice_auto: status.slice == SliceLength::Auto,
        since_ms: status.since_ms,
        nodes_up: status.nodes.iter().filter(|node| node.up).count(),
        generation: status.timetable.generation,
        slots: status.timetable.cycle(),
        control_messages: status.control_messages,
        nodes: status.nodes.iter().map(node_view).collect(),
        tree: status.tree.as_deref().map(|tree| super::tree::views(tree, &status.nodes)),
        heads: Vec::new(),
        troubles: None,
    }
}

fn place<'a>(places: &'a [NodeAddress], node: &NodeStatus) -> Option<&'a NodeAddress> {
    usize::try_from(node.node.0).ok().and_then(|index| places.get(index))
}

/// The node's own information; the configuration's while the node has not joined.
fn name<'a>(node: &'a NodeStatus, places: &'a [NodeAddress]) -> &'a str {
    let told = node.description.as_ref().map(|description| description.name.as_str());
    told.or(place(places, node).map(|place| place.name.as_str())).unwrap_or("-")
}

fn slots(status: &ClusterStatus, node: kumi_sched::NodeId) -> Vec<Vec<u64>> {
    let jobs = |slot: &[kumi_sched::JobId]| slot.iter().map(|job| job.0).collect();
    status.timetable.slots_of(node).into_iter().map(jobs).collect()
}

/// `gang scheduling by dqt in slices of 10ms`, for people.
pub fn sharing(status: &ClusterStatus) -> String {
    let (slice, policy) = (table::slice(status.timetable.slice_ns), &status.policy);
    match status.mode {
        Mode::Gang { force_switch, fill } => {
            let forced = if force_switch { ", switching even for one job" } else { "" };
            let strict = if fill { "" } else { ", each alone in its turns" };
            let chosen = if status.slice == SliceLength::Auto { " (auto)" } else { "" };
            format!("gang scheduling by {policy} in slices of {slice}{chosen}{forced}{strict}")
        }
        Mode::OperatingSystem => "scheduled by the operating systems".to_owned(),
    }
}

/// The first line, the table of nodes, and the machines' restrictions.
pub fn render(status: &ClusterStatus, places: &[NodeAddress], now_ms: u64) -> String {
    let up = status.nodes.iter().filter(|node| node.up).count();
    let mut text = format!(
        "cluster {}: {up} of {} nodes up, {}, running for {}\n\n",
        status.name,
        status.nodes.len(),
        sharing(status),
        table::elapsed(now_ms.saturating_sub(status.since_ms)),
    );
    let (memories, others) = (
        status.nodes.iter().any(|node| memory(node).is_some()),
        status.nodes.iter().any(|node| devices(node).next().is_some()),
    );
    let mut headings = vec![">NODE", "NAME", "STATE", "ADDRESS", ">CPUS", ">FREE"];
    headings.extend(memories.then_some([">MEMORY", ">FREE"]).into_iter().flatten());
    headings.extend(others.then_some("DEVICES FREE"));
    headings.push("JOBS");
    let mut nodes = Table::new(&headings);
    let mut limits: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for node in &status.nodes {
        let description = node.description.as_ref();
        let jobs: Vec<String> = node.jobs.iter().map(ToString::to_string).collect();
        let mut row = vec![
            node.node.to_string(),
            table::shortened(name(node, places), 32),
            crate::node::state(node).to_owned(),
            place(places, node).map_or_else(String::new, |place| place.address.clone()),
        ];
        row.extend(pair(processors(node), |count| count.to_string()));
        row.extend(memories.then(|| pair(memory(node), table::bytes)).into_iter().flatten());
        row.extend(others.then(|| device_words(node)));
        row.push(if jobs.is_empty() { "-".to_owned() } else { jobs.join(",") });
        nodes.row(row);
        for limit in description.map_or(&[][..], |d| &d.limits) {
            // Nodes that lack the same thing share one line.
            let own = format!("node-{}", node.node);
            limits.entry(limit.replace(&own, "node-*")).or_default().push(node.node.0);
        }
    }
    text.push_str(&nodes.render());
    if !limits.is_empty() {
        text.push_str("\nWhat the machines do not permit (`kumi doctor` says more):\n");
    }
    for (limit, nodes) in limits {
        let who = table::ranges(nodes);
        text.push_str(&format!("  nodes {who}: {}\n", table::printable(&limit)));
    }
    text
}

/// Cells of what there is and what is free.
fn pair<T>(numbers: Option<(T, T)>, text: impl Fn(T) -> String) -> [String; 2] {
    numbers.map_or_else(|| ["-", "-"].map(str::to_owned), |(all, free)| [text(all), text(free)])
}

/// `gpu 1 of 2`.
fn device_words(node: &NodeStatus) -> String {
    let word = |(device, free): (&DeviceCount, u32)| {
        format!("{} {free} of {}", table::printable(&device.name), device.count)
    };
    let words: Vec<String> = devices(node).map(word).collect();
    if words.is_empty() { "-".to_owned() } else { words.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_control::message::{NodeDescription, NodeUse};
    use kumi_sched::{ClusterTime, Column, JobId, NodeId, Timetable};

    fn status() -> ClusterStatus {
        let node = |number: u32, limits: &[&str]| NodeStatus {
            node: NodeId(number),
            up: true,
            description: Some(NodeDescription {
                node: NodeId(number),
                incarnation: 1,
                name: format!("node{number}"),
                processors: 1,
                memory: 0,
                devices: Vec::new(),
                max_ranks: 16,
                limits: limits.iter().map(ToString::to_string).collect(),
                jobs: Vec::new(),
                path: Vec::new(),
            }),
            jobs: vec![JobId(3), JobId(4)],
            numbers: number..number + 1,
            taken: NodeUse { processors: 1, ..NodeUse::default() },
            name: format!("node{number}"),
            drain: None,
        };
        let down = NodeStatus {
            node: NodeId(2),
            up: false,
            description: None,
            jobs: Vec::new(),
            numbers: 2..3,
            taken: NodeUse::default(),
            name: "late".into(),
            drain: None,
        };
        let column = |number| Column {
            node: NodeId(number),
            slots: vec![vec![JobId(3)], vec![JobId(4)], vec![]],
        };
        ClusterStatus {
            name: "default".into(),
            nodes: vec![
                node(0, &["no real time in node-0"]),
                node(1, &["no real time in node-1"]),
                down,
            ],
            mode: Mode::Gang { force_switch: false, fill: true },
            slice: SliceLength::Fixed(10_000_000),
            timetable: Timetable {
                generation: 7,
                start: ClusterTime(0),
                slice_ns: 10_000_000,
                phase_ns: 0,
                mode: Mode::Gang { force_switch: false, fill: true },
                columns: vec![column(0), column(1)],
                idle: Vec::new(),
            },
            since_ms: 1_000,
            control_messages: 99,
            policy: "dqt".into(),
            tree: Some(super::super::tree::tests::tree()),
        }
    }

    #[test]
    fn what_the_head_cannot_write_is_told_with_what_helps() {
        let told = |output: Option<&str>, jobs: Option<&str>| {
            let (output, jobs) = (output.map(str::to_owned), jobs.map(str::to_owned));
            trouble_lines(&HeadTroubles { output, jobs }, Path::new("/srv/kumi"))
        };
        assert_eq!(told(None, None), "");
        let full = told(Some("no space"), None);
        assert!(full.contains("not kept, and `kumi ps` shows how much: no space\n"), "{full}");
        assert!(full.contains("Make room below /srv/kumi on the head's machine"), "{full}");
        let refused = told(None, Some("etcd is away"));
        assert!(refused.contains("new jobs are refused: etcd is away"), "{refused}");
        assert!(!refused.contains("Make room"), "{refused}");
    }

    #[test]
    fn heads_are_told_with_what_they_have() {
        assert_eq!(head_lines(&[]), "");
        let head = |last, leads, in_sync| HeadStatus {
            address: ([10, 0, 0, last], 7_700).into(),
            leads,
            in_sync,
        };
        let told = head_lines(&[head(1, true, true), head(2, false, true), head(3, false, false)]);
        assert_eq!(
            told,
            "\nHeads:\n  10.0.0.1:7700 leads\n  10.0.0.2:7700 waits, in sync: it has all output that is acknowledged\n  \
             10.0.0.3:7700 does not have all output: it is away, or behind\n"
        );
        let alone = head_lines(&[head(1, true, true), head(2, false, false)]);
        assert!(alone.ends_with("start the others again.\n"), "{alone}");
    }

    #[test]
    fn the_page() {
        let places = [("node0", "10.77.1.1:7701"), ("node1", "10.77.1.2:7701"), ("late", "x:1")]
            .map(|(name, address)| NodeAddress { name: name.into(), address: address.into() });
        let expected = "\
cluster default: 2 of 3 nodes up, gang scheduling by dqt in slices of 10ms, running for 1m05s

NODE  NAME   STATE  ADDRESS         CPUS  FREE  JOBS
   0  node0  up     10.77.1.1:7701     1     0  3,4
   1  node1  up     10.77.1.2:7701     1     0  3,4
   2  late   down   x:1                -     -  -

What the machines do not permit (`kumi doctor` says more):
  nodes 0-1: no real time in node-*
";
        assert_eq!(render(&status(), &places, 66_000), expected);
    }

    #[test]
    fn memory_and_devices_are_shown_where_nodes_have_any() {
        let device = |name: &str, count| DeviceCount { name: name.into(), count };
        let mut status = ClusterStatus { tree: None, ..status() };
        let said = status.nodes[0].description.as_mut().unwrap();
        (said.memory, said.processors) = (16 << 30, 4);
        said.devices = vec![device("fpga", 1), device("gpu", 2)];
        status.nodes[0].taken =
            NodeUse { processors: 3, memory: 3 << 29, devices: vec![device("gpu", 2)] };
        status.nodes.truncate(2);
        let text = render(&status, &[], 66_000);
        let table: Vec<&str> = text.lines().skip(2).take(3).collect();
        let expected = [
            "NODE  NAME   STATE  ADDRESS  CPUS  FREE  MEMORY      FREE  DEVICES FREE             JOBS",
            "   0  node0  up                 4     1  16 GiB  14.5 GiB  fpga 1 of 1, gpu 0 of 2  3,4",
            "   1  node1  up                 1     0       -         -  -                        3,4",
        ];
        assert_eq!(table, expected);
        let value = serde_json::to_value(view(&status, &[])).unwrap();
        let node = &value["nodes"][0];
        assert_eq!((&node["processors"], &node["processors_free"]), (&4.into(), &1.into()));
        assert_eq!(node["memory_free"], 29u64 << 29);
        assert_eq!(node["devices"][1], serde_json::json!({"name": "gpu", "count": 2, "free": 0}));
        assert_eq!(value["nodes"][1]["memory"], serde_json::Value::Null);
    }

    #[test]
    fn json() {
        let status = status();
        let first = NodeAddress { name: "node0".into(), address: "10.77.1.1:7701".into() };
        let places = [first];
        let value = serde_json::to_value(view(&status, &places)).unwrap();
        assert_eq!(value["nodes_up"], 2);
        assert_eq!(value["mode"], "gang");
        assert_eq!(value["policy"], "dqt");
        assert_eq!(value["tree"][0]["state"], "rounded");
        assert_eq!((&value["slice_us"], &value["slice_auto"]), (&10_000.0.into(), &false.into()));
        assert_eq!(value["nodes"][0]["timetable"], serde_json::json!([[3], [4], []]));
        assert_eq!(value["nodes"][0]["address"], "10.77.1.1:7701");
        assert_eq!(value["nodes"][2]["up"], false);
        assert_eq!(value["nodes"][2]["drained"], serde_json::Value::Null);
    }

    #[test]
    fn sharing_in_words() {
        let words = |mode, slice_ns| {
            let timetable = Timetable { slice_ns, ..status().timetable };
            sharing(&ClusterStatus { mode, timetable, ..status() })
        };
        let gang = |force_switch| words(Mode::Gang { force_switch, fill: true }, 250_000);
        assert_eq!(gang(false), "gang scheduling by dqt in slices of 250us");
        let auto = ClusterStatus { slice: SliceLength::Auto, ..status() };
        assert_eq!(sharing(&auto), "gang scheduling by dqt in slices of 10ms (auto)");
        assert!(gang(true).ends_with("switching even for one job"));
        assert_eq!(words(Mode::OperatingSystem, 1), "scheduled by the operating systems");
    }
}
