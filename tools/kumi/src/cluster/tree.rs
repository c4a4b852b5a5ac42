//! Queue tree of a scheduling policy, as text and as JSON.

use crate::table;
use kumi_sched::{DqtJob, DqtNode, DqtState};
use serde::Serialize;
use std::collections::BTreeMap;

/// A partition of the tree in the form of `--json`.
#[derive(Serialize)]
pub struct TreeView {
    number: u32,
    parent: Option<u32>,
    first_node: u32,
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

/// A job of a queue in the form of `--json`.
#[derive(Serialize)]
struct JobView {
    job: u64,
    nodes: u32,
    turns: u16,
    active: bool,
}

/// The tree as data, breadth first.
pub fn views(tree: &[DqtNode]) -> Vec<TreeView> {
    let job = |job: &DqtJob| JobView {
        job: job.job.0,
        nodes: job.nodes,
        turns: job.turns,
        active: job.active,
    };
    let view = |node: &DqtNode| TreeView {
        number: node.number,
        parent: node.parent,
        first_node: node.first.0,
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

/// The partitions with jobs of their own, from left to right, the larger first. `nodes` is the cluster's
/// size, `width` the number of columns for a line whose cells are two apart.
pub fn lines(tree: &[DqtNode], nodes: usize, width: usize) -> Vec<TreeLine> {
    let nodes = u32::try_from(nodes).unwrap_or(u32::MAX);
    let mut below: BTreeMap<Option<u32>, Vec<&DqtNode>> = BTreeMap::new();
    tree.iter().for_each(|node| below.entry(node.parent).or_default().push(node));
    let children = |parent| below.get(&parent).into_iter().flatten().rev().copied();
    let mut open: Vec<(&DqtNode, usize)> = children(None).map(|node| (node, 0)).collect();
    let mut lines = Vec::new();
    while let Some((node, depth)) = open.pop() {
        let shown = !node.queue.is_empty();
        if shown {
            // The tree may have more leaves than there are nodes.
            let end = node
                .first
                .0
                .saturating_add(node.size)
                .min(nodes)
                .max(node.first.0.saturating_add(1));
            let place = format!("{:depth$}{}", "", table::ranges(node.first.0..end));
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
    use kumi_sched::{JobId, ProcessorId};

    /// The root's job had its turn. Of its halves the left is on the front; the right is not, and its leaf
    /// has the turns.
    pub fn tree() -> Vec<DqtNode> {
        let job = |job, nodes, turns, active| DqtJob { job: JobId(job), nodes, turns, active };
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

    fn shown(tree: &[DqtNode], width: usize) -> Vec<String> {
        let text = |line: TreeLine| {
            format!("{}{}", line.front, line.cells.map(|c| format!("|{c}")).concat())
        };
        lines(tree, 3, width).into_iter().map(text).collect()
    }

    #[test]
    fn empty_parts_are_left_out() {
        let expected =
            ["false|0-2|rounded|3|3", "true| 0-1|rounding|3|4x3 (5)", "true| 2|rounding|3|6"];
        assert_eq!(shown(&tree(), 80), expected);
        assert!(lines(&[], 0, 80).is_empty());
    }

    #[test]
    fn long_queues_are_cut() {
        let job = |job| DqtJob { job: JobId(job), nodes: 1, turns: 1, active: true };
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
        let value = serde_json::to_value(views(&tree())).unwrap();
        assert_eq!(value[1]["state"], "rounding");
        assert_eq!(value[1]["front"], true);
        assert_eq!(
            value[1]["queue"][0],
            serde_json::json!({"job": 4, "nodes": 2, "turns": 3, "active": true})
        );
        assert_eq!(value[0]["parent"], serde_json::Value::Null);
    }
}
