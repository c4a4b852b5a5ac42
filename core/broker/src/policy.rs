//! Policies: which of the servers that offer a routine is taken.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::model::ServerId;
use crate::similar_names;

/// What a call is expected to take on a server, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prediction {
    /// Arguments on their way.
    pub out: f64,
    /// Until the server has a free slot.
    pub wait: f64,
    /// The routine.
    pub compute: f64,
    /// Results on their way.
    pub back: f64,
}

impl Prediction {
    /// All of it.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.out + self.wait + self.compute + self.back
    }
}

/// A server that could be taken.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Which.
    pub server: ServerId,
    /// It has a free slot.
    pub free: bool,
    /// Calls that it has from here.
    pub in_flight: u32,
    /// What others keep busy, in processors.
    pub load: f64,
    /// Its processors.
    pub processors: u32,
    /// What the call would take there; zeros unless the policy wants it.
    pub prediction: Prediction,
}

/// Chooses servers.
pub trait Policy: fmt::Debug + Send {
    /// Its name.
    fn name(&self) -> &'static str;

    /// Whether [`Candidate::prediction`] is wanted.
    fn predicts(&self) -> bool {
        false
    }

    /// One of the candidates, which are in the order of their numbers and at least one of them free, for a call
    /// of `routine`. If it is not free the call waits, and is asked for again when something has changed.
    fn choose(&mut self, routine: u32, candidates: &[Candidate]) -> Option<usize>;
}

/// One after the other, those without a free slot left out.
#[derive(Debug, Default)]
struct RoundRobin {
    /// The one taken last, of each routine.
    last: BTreeMap<u32, ServerId>,
}

/// Routines of which round robin remembers whose turn it is; of more it begins anew.
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

/// The one with the fewest calls and the least load for each processor.
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

/// The one where the call is over first, counting the way there, waiting, computing and the way back. One that
/// is busy may be worth waiting for.
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

/// The first of those with the least cost.
fn least(candidates: &[Candidate], cost: impl Fn(&Candidate) -> f64) -> Option<usize> {
    let costs = candidates.iter().map(cost).enumerate();
    costs.min_by(|one, other| one.1.total_cmp(&other.1)).map(|(index, _)| index)
}

type PolicyConstructor = fn() -> Box<dyn Policy>;

/// Name, a line of help, and how to make it.
static POLICIES: [(&str, &str, PolicyConstructor); 3] = [
    ("round-robin", "servers in turn", || Box::new(RoundRobin::default())),
    ("least-load", "the server with fewest calls and least load for each processor", || {
        Box::new(LeastLoad)
    }),
    ("min-completion", "the server where the call is over first, communication included", || {
        Box::new(MinCompletion)
    }),
];

/// No policy has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPolicy {
    /// What was asked for.
    pub name: String,
    /// Names like it; all if none is.
    pub nearest: Vec<String>,
}

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let near = self.nearest.join(" or ");
        write!(f, "no policy for calls is named {:?}; did you mean {near}?", self.name)
    }
}

impl core::error::Error for UnknownPolicy {}

/// The policy called `name`.
///
/// # Errors
/// No policy is called that; the error names the nearest.
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

/// Every name with a line of help.
pub fn policies() -> impl Iterator<Item = (&'static str, &'static str)> {
    POLICIES.iter().map(|&(name, help, _)| (name, help))
}
