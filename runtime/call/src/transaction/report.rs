//! What became of a transaction.

use std::fmt;
use std::time::Duration;

use kumi_broker::{Graph, Node, State};

use super::Step;
use crate::client::Outcome;

/// What became of a call.
#[derive(Debug, Clone, Default)]
pub struct StepReport {
    /// The routine.
    pub routine: String,
    /// Where it ran last.
    pub server: Option<String>,
    /// When it began last, and when it ended, from the transaction's begin.
    pub begun: Option<Duration>,
    /// When it ended.
    pub ended: Option<Duration>,
    /// How often it was begun.
    pub attempts: u32,
    /// Why what it read of another server came through the client; `None`: it came straight, or there was nothing.
    pub helped: Option<String>,
    /// What came back beside arrays.
    pub outcome: Option<Outcome>,
}

/// Bytes of arrays, by the way they took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MovedBytes {
    /// From the client to servers.
    pub sent: u64,
    /// From servers to the client.
    pub received: u64,
    /// From server to server.
    pub between: u64,
    /// From one call to the next at the same server.
    pub stayed: u64,
}

/// What became of a transaction's calls.
#[derive(Debug)]
pub struct Report {
    pub(super) graph: Graph,
    /// One for each call, in the order in which they were recorded.
    pub steps: Vec<StepReport>,
    /// Bytes that moved, those of attempts that failed included.
    pub moved: MovedBytes,
    /// How long it took.
    pub took: Duration,
}

impl Report {
    /// What came back beside arrays.
    #[must_use]
    pub fn outcome(&self, step: Step) -> Option<&Outcome> {
        self.steps.get(step.0 as usize)?.outcome.as_ref()
    }

    /// How far a call is.
    #[must_use]
    pub fn state(&self, step: Step) -> Option<&State> {
        self.graph.state(Node(step.0))
    }

    /// What became of a call, in a sentence; of one that did not run, the way from the call because of which it did
    /// not.
    #[must_use]
    pub fn explain(&self, step: Step) -> String {
        self.graph.explain(Node(step.0))
    }

    /// Whether all calls have run.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.graph.nodes().all(|node| matches!(self.graph.state(node), Some(State::Done(_))))
    }

    /// The graph as a picture: states, servers and times.
    #[must_use]
    pub fn svg(&self) -> String {
        self.graph.svg_with(|node| {
            let Some(step) = self.steps.get(node.0 as usize) else { return String::new() };
            let mut note = step.server.clone().unwrap_or_default();
            if let (Some(begun), Some(ended)) = (step.begun, step.ended) {
                let (from, to) = (begun.as_secs_f64(), ended.as_secs_f64());
                note += &format!(" {from:.3}\u{2013}{to:.3} s");
            }
            note
        })
    }

    /// The graph for Graphviz.
    #[must_use]
    pub fn dot(&self) -> String {
        self.graph.dot()
    }
}

impl fmt::Display for Report {
    /// A line for each call that has not run, or one for all.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = |node: &Node| matches!(self.graph.state(*node), Some(State::Done(_)));
        let all = self.graph.nodes().count();
        let ran = self.graph.nodes().filter(done).count();
        write!(f, "{ran} of {all} calls have run")?;
        for node in self.graph.nodes().filter(|node| !done(node)) {
            write!(f, "\n{}", self.graph.explain(node))?;
        }
        Ok(())
    }
}
