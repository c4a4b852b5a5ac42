//! Report on a transaction.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kumi_broker::{Graph, Node, State};

use super::Step;
use crate::{CallError, Outcome};

/// Report on a call.
#[derive(Debug, Clone, Default)]
pub struct StepReport {
    /// The routine.
    pub routine: String,
    /// Its last server.
    pub server: Option<String>,
    /// When its last attempt began, after the beginning of the transaction.
    pub begun: Option<Duration>,
    /// When it ended.
    pub ended: Option<Duration>,
    /// Number of attempts.
    pub attempts: u32,
    /// Why the client relayed another server's array. `None`: the array came directly, or there was none.
    pub helped: Option<String>,
    /// The results besides arrays.
    pub outcome: Option<Outcome>,
    /// Why its last attempt failed. `None`: it has succeeded, or no attempt was made.
    pub failure: Option<Arc<CallError>>,
}

/// Bytes of arrays by route.
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

/// Report on all calls of a transaction.
#[derive(Debug)]
pub struct Report {
    pub(super) graph: Graph,
    /// One report per call, in the order of recording.
    pub steps: Vec<StepReport>,
    /// Bytes moved, including those of failed attempts.
    pub moved: MovedBytes,
    /// Duration.
    pub took: Duration,
}

impl Report {
    /// The results besides arrays.
    #[must_use]
    pub fn outcome(&self, step: Step) -> Option<&Outcome> {
        self.steps.get(step.0 as usize)?.outcome.as_ref()
    }

    /// State of a call.
    #[must_use]
    pub fn state(&self, step: Step) -> Option<&State> {
        self.graph.state(Node(step.0))
    }

    /// The state of a call in a sentence. For a call that did not run, also the chain of calls from the
    /// failed one.
    #[must_use]
    pub fn explain(&self, step: Step) -> String {
        self.graph.explain(Node(step.0))
    }

    /// Whether all calls have succeeded.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.graph.nodes().all(|node| matches!(self.graph.state(node), Some(State::Done(_))))
    }

    /// The graph as a picture with states, servers and times.
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
    /// One line for each call that has not succeeded, or one for all.
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
