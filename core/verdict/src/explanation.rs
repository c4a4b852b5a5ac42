//! Why a job is stopped: the graph of who waits for whom, and what in it has no way out.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::reading::{RankStanding, Summary};
use crate::wait::{Wait, WaitKind};

/// Most ranks that are named one after another.
const MOST_NAMED: usize = 16;

/// What has no way out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cause {
    /// These ranks wait for one that is over.
    LeftTooEarly {
        /// The rank that is over.
        left: u32,
        /// Those that wait for it.
        waiting: Vec<u32>,
    },
    /// Each of these ranks waits for the next one, and the last for the first.
    Cycle(Vec<u32>),
    /// These ranks wait for anybody, and nobody is left that could act.
    Anybody {
        /// They.
        waiting: Vec<u32>,
        /// Ranks that are over.
        over: Vec<u32>,
    },
}

/// Ranks of a stopped job, and why they wait for ever.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// Ranks of the job.
    pub ranks: u32,
    /// Of them, those that wait.
    pub waiting: u32,
    /// The lowest ranks.
    pub listed: Vec<RankStanding>,
    /// Causes; one at least if all ranks are listed.
    pub causes: Vec<Cause>,
}

impl Explanation {
    /// Of a job that stood so.
    #[must_use]
    pub fn new(total: Summary) -> Self {
        let graph = Graph::new(&total.listed);
        let mut causes = graph.left_too_early();
        causes.extend(graph.cycle());
        if causes.is_empty() {
            causes.extend(graph.anybody());
        }
        let Summary { ranks, waiting, listed, .. } = total;
        Self { ranks, waiting, listed, causes }
    }
}

/// Whom each rank waits for: an edge where it is one rank.
struct Graph {
    edges: BTreeMap<u32, u32>,
    /// Ranks that wait for one of several.
    open: Vec<u32>,
    /// Ranks that are over, or only wait until all are.
    over: BTreeSet<u32>,
}

impl Graph {
    fn new(listed: &[RankStanding]) -> Self {
        let mut holders = BTreeMap::new();
        for rank in listed.iter().filter(|rank| !rank.over) {
            holders.extend(rank.held.iter().map(|lock| (*lock, rank.rank)));
        }
        let holder = |wait: &Wait| match wait.kind {
            WaitKind::Lock => wait.what.and_then(|lock| holders.get(&lock).copied()),
            _ => wait.peer,
        };
        let (mut edges, mut open) = (BTreeMap::new(), Vec::new());
        let is_over = |rank: &RankStanding| {
            rank.over || rank.waits.iter().any(|wait| wait.kind == WaitKind::MpiFinalize)
        };
        for rank in listed.iter().filter(|rank| !is_over(rank)) {
            match rank.waits.iter().find_map(holder) {
                Some(peer) => drop(edges.insert(rank.rank, peer)),
                None => open.push(rank.rank),
            }
        }
        let over = listed.iter().filter(|rank| is_over(rank)).map(|rank| rank.rank).collect();
        Self { edges, open, over }
    }

    fn left_too_early(&self) -> Vec<Cause> {
        let mut waiting = BTreeMap::<u32, Vec<u32>>::new();
        for (rank, peer) in self.edges.iter().filter(|(_, peer)| self.over.contains(peer)) {
            waiting.entry(*peer).or_default().push(*rank);
        }
        let causes = waiting.into_iter();
        causes.map(|(left, waiting)| Cause::LeftTooEarly { left, waiting }).collect()
    }

    /// Each rank has one edge at most, so a way that comes back somewhere goes round for ever.
    fn cycle(&self) -> Option<Cause> {
        let mut seen = BTreeSet::new();
        for start in self.edges.keys() {
            let mut way = Vec::new();
            let mut at = *start;
            while seen.insert(at) {
                way.push(at);
                match self.edges.get(&at) {
                    Some(next) => at = *next,
                    None => break,
                }
            }
            if let Some(begin) = way.iter().position(|rank| *rank == at)
                && self.edges.get(way.last()?) == Some(&at)
            {
                return Some(Cause::Cycle(way.split_off(begin)));
            }
        }
        None
    }

    fn anybody(&self) -> Option<Cause> {
        let over = self.over.iter().copied().collect();
        let waiting = self.open.clone();
        (!waiting.is_empty()).then_some(Cause::Anybody { waiting, over })
    }
}

/// `rank 1`, `ranks 1, 2 and 5`.
struct Ranks<'a>(&'a [u32]);

impl fmt::Display for Ranks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = &self.0[..self.0.len().min(MOST_NAMED)];
        f.write_str(if self.0.len() == 1 { "rank" } else { "ranks" })?;
        for (at, rank) in named.iter().enumerate() {
            let before = match at {
                0 => " ",
                _ if at + 1 == self.0.len() => " and ",
                _ => ", ",
            };
            write!(f, "{before}{rank}")?;
        }
        match self.0.len() - named.len() {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeftTooEarly { left, waiting } => {
                let verb = if waiting.len() == 1 { "waits" } else { "wait" };
                write!(f, "rank {left} left too early: {} {verb} for it", Ranks(waiting))
            }
            Self::Cycle(ranks) => {
                f.write_str("cycle:")?;
                for rank in ranks.iter().take(MOST_NAMED) {
                    write!(f, " {rank} waits for")?;
                }
                if ranks.len() > MOST_NAMED {
                    write!(f, " {} more, the last for", ranks.len() - MOST_NAMED)?;
                }
                write!(f, " {}", ranks.first().copied().unwrap_or_default())
            }
            Self::Anybody { waiting, over } => {
                let verb = if waiting.len() == 1 { "waits" } else { "wait" };
                write!(f, "{} {verb} for anybody, and ", Ranks(waiting))?;
                match &over[..] {
                    [] => f.write_str("all ranks wait"),
                    [one] => write!(f, "rank {one} is over"),
                    more => write!(f, "{} are over", Ranks(more)),
                }
            }
        }
    }
}

/// Lines for people: each rank with its waits, then the causes.
impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for standing in &self.listed {
            let rank = standing.rank;
            if standing.over {
                writeln!(f, "  rank {rank} is over")?;
            }
            for wait in &standing.waits {
                writeln!(f, "  rank {rank} waits for {wait}")?;
            }
            for lock in &standing.held {
                writeln!(f, "  rank {rank} holds shared lock {lock}")?;
            }
        }
        let listed = u32::try_from(self.listed.len()).unwrap_or(u32::MAX);
        if self.ranks > listed {
            writeln!(f, "  and {} more ranks", self.ranks - listed)?;
        }
        for cause in &self.causes {
            writeln!(f, "  {cause}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    fn waits(rank: u32, peer: Option<u32>) -> RankStanding {
        let waits = vec![Wait { kind: WaitKind::Message, peer, what: Some(7), ..Wait::default() }];
        RankStanding { rank, waits, ..RankStanding::default() }
    }

    fn over(rank: u32) -> RankStanding {
        RankStanding { rank, over: true, ..RankStanding::default() }
    }

    fn explain(listed: Vec<RankStanding>) -> Explanation {
        let (ranks, waiting) = (listed.len() as u32, listed.iter().filter(|r| !r.over).count());
        Explanation::new(Summary { ranks, waiting: waiting as u32, listed, ..Summary::EMPTY })
    }

    #[test]
    fn crossed_receives_are_a_cycle() {
        let found = explain(vec![waits(0, Some(2)), waits(1, Some(2)), waits(2, Some(1))]);
        assert_eq!(found.causes, [Cause::Cycle(vec![2, 1])]);
        let text = "  rank 0 waits for a message of rank 2 with tag 7\n  rank 1 waits for a message of rank 2 with tag 7\n  \
                    rank 2 waits for a message of rank 1 with tag 7\n  cycle: 2 waits for 1 waits for 2\n";
        assert_eq!(found.to_string(), text);
        let alone = explain(vec![waits(0, Some(0))]);
        assert_eq!(alone.causes, [Cause::Cycle(vec![0])]);
    }

    #[test]
    fn a_rank_that_left_is_named() {
        let found = explain(vec![waits(0, Some(1)), over(1), waits(2, Some(1)), waits(3, Some(0))]);
        assert_eq!(found.causes, [Cause::LeftTooEarly { left: 1, waiting: vec![0, 2] }]);
        assert_eq!(found.causes[0].to_string(), "rank 1 left too early: ranks 0 and 2 wait for it");
    }

    #[test]
    fn a_rank_that_ends_mpi_has_left() {
        let ends = |rank| {
            let wait = Wait { kind: WaitKind::MpiFinalize, ..Wait::default() };
            RankStanding { rank, waits: vec![wait], ..RankStanding::default() }
        };
        let found = explain(vec![waits(0, Some(1)), ends(1)]);
        assert_eq!(found.causes, [Cause::LeftTooEarly { left: 1, waiting: vec![0] }]);
        let found = explain(vec![waits(0, None), ends(1), over(2)]);
        assert_eq!(found.causes, [Cause::Anybody { waiting: vec![0], over: vec![1, 2] }]);
    }

    #[test]
    fn holders_of_locks_are_found() {
        let lock = |rank, lock, held| {
            let wait = Wait { kind: WaitKind::Lock, what: Some(lock), ..Wait::default() };
            RankStanding { rank, waits: vec![wait], held: vec![held], over: false }
        };
        let found = explain(vec![lock(0, 1, 2), lock(1, 2, 1)]);
        assert_eq!(found.causes, [Cause::Cycle(vec![0, 1])]);
    }

    #[test]
    fn whoever_waits_for_anybody_is_told_that_nobody_is_left() {
        let found = explain(vec![waits(0, None), over(1), over(2)]);
        assert_eq!(found.causes, [Cause::Anybody { waiting: vec![0], over: vec![1, 2] }]);
        let text = "rank 0 waits for anybody, and ranks 1 and 2 are over";
        assert_eq!(found.causes[0].to_string(), text);
        let all = explain(vec![waits(0, None), waits(1, Some(0))]);
        assert_eq!(all.causes, [Cause::Anybody { waiting: vec![0], over: vec![] }]);
    }

    #[test]
    fn long_lists_are_cut_off() {
        let many: Vec<u32> = (0..40).collect();
        let text = Ranks(&many).to_string();
        assert!(text.starts_with("ranks 0, 1, 2") && text.ends_with("15 and 24 more"), "{text}");
    }
}
