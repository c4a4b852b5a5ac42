//! Policies that choose the server of a call.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::model::ServerId;
use crate::similar_names;

/// The expected time of a call on a server, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prediction {
    /// Transfer of the arguments.
    pub out: f64,
    /// Wait for a free slot.
    pub wait: f64,
    /// Run time of the routine.
    pub compute: f64,
    /// Transfer of the results.
    pub back: f64,
}

impl Prediction {
    /// The sum of all parts.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.out + self.wait + self.compute + self.back
    }
}

/// A server that could run a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The server.
    pub server: ServerId,
    /// Whether it has a free slot.
    pub free: bool,
    /// Calls of this broker that run there.
    pub in_flight: u32,
    /// Processors that are busy with other work.
    pub load: f64,
    /// Number of processors.
    pub processors: u32,
    /// The expected time of the call; zeros unless the policy wants it.
    pub prediction: Prediction,
}

/// Chooses the server of a call.
pub trait Policy: fmt::Debug + Send {
    /// Its name.
    fn name(&self) -> &'static str;

    /// Whether the policy uses [`Candidate::prediction`].
    fn predicts(&self) -> bool {
        false
    }

    /// Chooses a candidate for a call of `routine`. Candidates are in the order of their numbers, and at least one is free. If
    /// the chosen one is busy, the call waits, and the broker asks again after a change.
    fn choose(&mut self, routine: u32, candidates: &[Candidate]) -> Option<usize>;
}

/// Servers in turn, skipping those without a free slot.
#[derive(Debug, Default)]
struct RoundRobin {
    /// The server chosen last, by routine.
    last: BTreeMap<u32, ServerId>,
}

/// Most routines for which round robin remembers the last server; then it starts anew.
const MOST_TURNS: usize = 65_536;

impl Policy for RoundRobin {
    fn name(&self) -> &'static str {
        "round-robin"
    }

    fn choose(&mut self, routine: u32, candidates: &[Candidate]) -> Option<usize> {
        let last = self.last.get(&routine).copied();
        let after = candidates.partition_point(|candidate| Some(candidate.server) <= last);
        let count = candidates.len();
        let turn = (after..count).chain(0..after).find(|&index| candidates[index].free)?;
        if self.last.len() >= MOST_TURNS {
            self.last.clear();
        }
        self.last.insert(routine, candidates[turn].server);
        Some(turn)
    }
}

/// The server with the fewest calls and the least load for each processor.
#[derive(Debug)]
struct LeastLoad;

impl Policy for LeastLoad {
    fn name(&self) -> &'static str {
        "least-load"
    }

    fn choose(&mut self, _: u32, candidates: &[Candidate]) -> Option<usize> {
        least(candidates, |candidate| {
            let busy = f64::from(candidate.in_flight) + candidate.load;
            if candidate.free { busy / f64::from(candidate.processors) } else { f64::INFINITY }
        })
    }
}

/// The server with the earliest expected end of the call: transfers, wait and run time. This can be a busy server.
#[derive(Debug)]
struct MinCompletion;

impl Policy for MinCompletion {
    fn name(&self) -> &'static str {
        "min-completion"
    }

    fn predicts(&self) -> bool {
        true
    }

    fn choose(&mut self, _: u32, candidates: &[Candidate]) -> Option<usize> {
        least(candidates, |candidate| candidate.prediction.total())
    }
}

/// The first candidate with the lowest cost.
fn least(candidates: &[Candidate], cost: impl Fn(&Candidate) -> f64) -> Option<usize> {
    let costs = candidates.iter().map(cost).enumerate();
    costs.min_by(|one, other| one.1.total_cmp(&other.1)).map(|(index, _)| index)
}

type PolicyConstructor = fn() -> Box<dyn Policy>;

/// Name, help text and constructor of each policy.
static POLICIES: [(&str, &str, PolicyConstructor); 3] = [
    ("round-robin", "servers in turn", || Box::new(RoundRobin::default())),
    ("least-load", "the server with fewest calls and least load for each processor", || {
        Box::new(LeastLoad)
    }),
    ("min-completion", "the server where the call is over first, communication included", || {
        Box::new(MinCompletion)
    }),
];

/// The error that no policy has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPolicy {
    /// The unknown name.
    pub name: String,
    /// Similar names, or all names if none is similar.
    pub nearest: Vec<String>,
}

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let near = self.nearest.join(" or ");
        write!(f, "no policy for calls is named {:?}; did you mean {near}?", self.name)
    }
}

impl core::error::Error for UnknownPolicy {}

/// The policy with this name.
///
/// # Errors
/// No policy has this name; the error suggests similar ones.
pub fn by_name(name: &str) -> Result<Box<dyn Policy>, UnknownPolicy> {
    if let Some((.., make)) = POLICIES.iter().find(|(known, ..)| *known == name) {
        return Ok(make());
    }
    let known = || POLICIES.iter().map(|&(known, ..)| known);
    let mut nearest = similar_names::nearest(name, known());
    if nearest.is_empty() {
        nearest = known().map(ToOwned::to_owned).collect();
    }
    Err(UnknownPolicy { name: name.to_owned(), nearest })
}

/// All names with their help texts.
pub fn policies() -> impl Iterator<Item = (&'static str, &'static str)> {
    POLICIES.iter().map(|&(name, help, _)| (name, help))
}
