//! Queue tree of a scheduling policy, as text and as JSON.

use crate::table;
use kumi_control::message::NodeStatus;
use kumi_sched::{DqtJob, DqtNode, DqtState};
use serde::Serialize;
use std::collections::BTreeMap;
use std::ops::Range;

/// A partition of the tree in the form of `--json`.
#[derive(Serialize)]
pub struct TreeView {
    number: u32,
    parent: Option<u32>,
    /// The nodes that have any of it, with the places of their processors in it.
    nodes: Vec<PartView>,
    size: u32,
    up: u32,
    state: &'static str,
    /// Whether its queue has its turns now.
    front: bool,
    queue: Vec<JobView>,
    tqlb: u32,
    max_tqlb: u32,
    round: u64,
}

/// What a partition has of a node in the form of `--json`.
#[derive(Serialize)]
struct PartView {
    node: u32,
    processors: Vec<u32>,
}

/// A job of a queue in the form of `--json`.
#[derive(Serialize)]
struct JobView {
    job: u64,
    processors: u32,
    turns: u16,
    active: bool,
}

/// The numbers of a partition's processors, and some that no processor has.
fn numbers(partition: &DqtNode) -> Range<u32> {
    partition.first.0..partition.first.0.saturating_add(partition.size)
}

/// The nodes that have any of these numbers, with the places of their processors that do.
fn parts<'n>(
    numbers: &Range<u32>,
    nodes: &'n [NodeStatus],
) -> impl Iterator<Item = (&'n NodeStatus, Range<u32>)> {
    let Range { start, end } = numbers.clone();
    nodes.iter().filter_map(move |node| {
        let Range { start: first, end: last } = node.numbers;
        let here = start.max(first)..end.min(last);
        (!here.is_empty()).then(|| (node, here.start - first..here.end - first))
    })
}

/// The tree as data, breadth first.
pub fn views(tree: &[DqtNode], nodes: &[NodeStatus]) -> Vec<TreeView> {
    let job = |job: &DqtJob| JobView {
        job: job.job.0,
        processors: job.processors,
        turns: job.turns,
        active: job.active,
    };
    let view = |node: &DqtNode| TreeView {
        number: node.number,
        parent: node.parent,
        nodes: parts(&numbers(node), nodes)
            .map(|(node, places)| PartView { node: node.node.0, processors: places.collect() })
            .collect(),
        size: node.size,
        up: node.up,
        state: word(node.state),
        front: node.state == DqtState::Rounding,
        queue: node.queue.iter().map(job).collect(),
        tqlb: node.tqlb,
        max_tqlb: node.max_tqlb,
        round: node.round,
    };
    tree.iter().map(view).collect()
}

fn word(state: DqtState) -> &'static str {
    match state {
        DqtState::Idle => "idle",
        DqtState::Ready => "ready",
        DqtState::Rounding => "rounding",
        DqtState::Rounded => "rounded",
    }
}

/// The headings of [`lines`].
pub const HEADINGS: [&str; 4] = ["NODES", "STATE", "JOBS", "QUEUE"];

/// A line of the tree.
pub struct TreeLine {
    /// Whether its queue has its turns now.
    pub front: bool,
    /// Its partition, indented below the larger ones; its state; the number of jobs that take turns on its
    /// busiest node; its queue, the next job first.
    pub cells: [String; 4],
}

/// Longest name of a node in the tree.
const LONGEST_NAME: usize = 16;

/// A partition in words: `alpha..delta` for whole nodes, `alpha` for one, and `alpha:0-1` for some of its processors.
fn place(partition: &DqtNode, nodes: &[NodeStatus]) -> String {
    let name = |node: &NodeStatus| {
        let said = node.description.as_ref().map(|said| table::shortened(&said.name, LONGEST_NAME));
        said.unwrap_or_else(|| format!("node {}", node.node))
    };
    let parts: Vec<_> = parts(&numbers(partition), nodes).collect();
    match &parts[..] {
        [] => "-".to_owned(),
        [(node, places)] if places.len() == node.numbers.len() => name(node),
        [(node, places)] => format!("{}:{}", name(node), table::ranges(places.clone())),
        [(first, _), .., (last, _)] => format!("{}..{}", name(first), name(last)),
    }
}

/// The partitions with jobs of their own, from left to right, the larger first. `nodes` are the cluster's, `width` is the
/// number of columns for a line whose cells are two apart.
pub fn lines(tree: &[DqtNode], nodes: &[NodeStatus], width: usize) -> Vec<TreeLine> {
    let mut below: BTreeMap<Option<u32>, Vec<&DqtNode>> = BTreeMap::new();
    tree.iter().for_each(|node| below.entry(node.parent).or_default().push(node));
    let children = |parent| below.get(&parent).into_iter().flatten().rev().copied();
    let mut open: Vec<(&DqtNode, usize)> = children(None).map(|node| (node, 0)).collect();
    let mut lines = Vec::new();
    while let Some((node, depth)) = open.pop() {
        let shown = !node.queue.is_empty();
        if shown {
            let place = format!("{:depth$}{}", "", place(node, nodes));
            let cells = [place, word(node.state).to_owned(), node.max_tqlb.to_string()];
            lines.push((node, cells));
        }
        open.extend(children(Some(node.number)).map(|child| (child, depth + usize::from(shown))));
    }
    let widest = |cell: usize| {
        let cells = lines.iter().map(|(_, cells)| cells[cell].chars().count());
        cells.max().unwrap_or(0).max(HEADINGS[cell].len()) + 2
    };
    let rest = width.saturating_sub((0..3).map(widest).sum());
    let line = |(node, [place, state, jobs]): (&DqtNode, [String; 3])| TreeLine {
        front: node.state == DqtState::Rounding,
        cells: [place, state, jobs, queue(&node.queue, rest)],
    };
    lines.into_iter().map(line).collect()
}

/// `7 9x3 (11)`: the jobs, with their turns if they have several; jobs without turns are in brackets. Jobs
/// that do not fit are only counted.
fn queue(jobs: &[DqtJob], width: usize) -> String {
    let text = |job: &DqtJob| match (job.active, job.turns) {
        (false, _) => format!("({})", job.job),
        (true, 0 | 1) => job.job.to_string(),
        (true, turns) => format!("{}x{turns}", job.job),
    };
    let words: Vec<String> = jobs.iter().map(text).collect();
    let whole = words.join(" ");
    if whole.len() <= width {
        return whole;
    }
    let mut kept = String::new();
    for (index, word) in words.iter().enumerate() {
        let more = format!("+{}", words.len() - index);
        // Room for this job and for the number of the others.
        if kept.len() + word.len() + 1 + more.len() > width {
            return kept + &more;
        }
        kept += word;
        kept.push(' ');
    }
    kept
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use kumi_control::message::{NodeDescription, NodeUse};
    use kumi_sched::{JobId, NodeId, ProcessorId};

    /// Nodes with so many processors each, numbered one after another.
    pub fn nodes(sizes: &[u32]) -> Vec<NodeStatus> {
        let mut next = 0;
        let node = |(number, &processors): (u32, &u32)| {
            let numbers = next..next + processors;
            next += processors;
            NodeStatus {
                node: NodeId(number),
                up: true,
                description: Some(NodeDescription {
                    node: NodeId(number),
                    incarnation: 1,
                    name: format!("node{number}"),
                    processors,
                    memory: 0,
                    devices: Vec::new(),
                    max_ranks: 16 * processors,
                    limits: Vec::new(),
                    jobs: Vec::new(),
                    path: Vec::new(),
                }),
                jobs: Vec::new(),
                numbers,
                taken: NodeUse::default(),
                name: format!("node{number}"),
                drain: None,
            }
        };
        (0..).zip(sizes).map(node).collect()
    }

    /// The root's job had its turn. Of its halves the left is on the front; the right is not, and its leaf
    /// has the turns.
    pub fn tree() -> Vec<DqtNode> {
        let job =
            |job, processors, turns, active| DqtJob { job: JobId(job), processors, turns, active };
        let node = |number, parent, first, size, state, queue| DqtNode {
            number,
            parent,
            height: 0,
            first: ProcessorId(first),
            size,
            up: size,
            state,
            queue,
            tqlb: 1,
            max_tqlb: 3,
            round: 3,
        };
        use DqtState::{Idle, Rounded, Rounding};
        vec![
            node(0, None, 0, 4, Rounded, vec![job(3, 3, 1, true)]),
            node(1, Some(0), 0, 2, Rounding, vec![job(4, 2, 3, true), job(5, 2, 1, false)]),
            node(2, Some(0), 2, 2, Rounded, Vec::new()),
            node(4, Some(1), 1, 1, Idle, Vec::new()),
            node(5, Some(2), 2, 1, Rounding, vec![job(6, 1, 1, true)]),
        ]
    }

    fn shown(tree: &[DqtNode], sizes: &[u32], width: usize) -> Vec<String> {
        let text = |line: TreeLine| {
            format!("{}{}", line.front, line.cells.map(|c| format!("|{c}")).concat())
        };
        lines(tree, &nodes(sizes), width).into_iter().map(text).collect()
    }

    #[test]
    fn empty_parts_are_left_out() {
        let expected = [
            "false|node0..node2|rounded|3|3",
            "true| node0..node1|rounding|3|4x3 (5)",
            "true| node2|rounding|3|6",
        ];
        // The tree has a leaf more than there are nodes.
        assert_eq!(shown(&tree(), &[1, 1, 1], 80), expected);
        assert!(lines(&[], &[], 80).is_empty());
    }

    #[test]
    fn parts_of_nodes_are_shown_with_their_processors() {
        let places = |sizes: &[u32]| -> Vec<String> {
            let lines = lines(&tree(), &nodes(sizes), 80);
            lines.into_iter().map(|line| line.cells[0].clone()).collect()
        };
        assert_eq!(places(&[4]), ["node0", " node0:0-1", " node0:2"]);
        assert_eq!(places(&[2, 2]), ["node0..node1", " node0", " node1:0"]);
        let value = serde_json::to_value(views(&tree(), &nodes(&[3, 1]))).unwrap();
        let part = |node: u32, processors: &[u32]| serde_json::json!({"node": node, "processors": processors});
        assert_eq!(value[0]["nodes"], serde_json::json!([part(0, &[0, 1, 2]), part(1, &[0])]));
        assert_eq!(value[1]["nodes"], serde_json::json!([part(0, &[0, 1])]));
    }

    #[test]
    fn long_queues_are_cut() {
        let job = |job| DqtJob { job: JobId(job), processors: 1, turns: 1, active: true };
        let jobs: Vec<DqtJob> = (100..200).map(job).collect();
        assert_eq!(queue(&jobs, 20), "100 101 102 103 +96");
        assert_eq!(queue(&jobs[..5], 19), "100 101 102 103 104");
        assert_eq!(queue(&jobs[..5], 18), "100 101 102 103 +1");
        assert_eq!(queue(&jobs, 0), "+100");
        for width in 8..80 {
            assert!(queue(&jobs, width).len() <= width);
        }
    }

    #[test]
    fn states_are_words_in_json() {
        let value = serde_json::to_value(views(&tree(), &nodes(&[1; 4]))).unwrap();
        assert_eq!(value[1]["state"], "rounding");
        assert_eq!(value[1]["front"], true);
        assert_eq!(
            value[1]["queue"][0],
            serde_json::json!({"job": 4, "processors": 2, "turns": 3, "active": true})
        );
        assert_eq!(value[0]["parent"], serde_json::Value::Null);
    }
}
