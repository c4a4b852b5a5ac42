//! Plan of a whole round of a queue tree, computed instead of run.
//!
//! A round lasts from where the root begins a round to where it begins the next. While nothing
//! changes, each queue has its turns in the same slots of every round: this depends only on the
//! number of turns of each queue. Only the next job of each queue changes.

use alloc::vec::Vec;

use super::front::Front;
use crate::Round;

/// Most turns, over all lines, that a written-down round may have.
const MOST_TURNS: u64 = 1 << 20;

/// A tree node that has turns, or that shares its ancestors' time between several children. Tree
/// nodes that only pass on messages are left out.
#[derive(Clone, Copy, Debug)]
struct Part {
    node: u32,
    /// Turns in a round of its queue.
    turns: u64,
    /// Slots of its round with all nodes below.
    period: u64,
    /// The first part after those below.
    end: usize,
}

/// The round that the front has begun, if it is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Plan {
    /// Depth first.
    parts: Vec<Part>,
    /// For each part, the turns of its queue in a round of the root.
    totals: Vec<u64>,
    /// For each part, the place of its next turn while a round is written down.
    places: Vec<usize>,
}

impl Plan {
    /// Forgets the plan.
    pub(super) fn forget(&mut self) {
        self.parts.clear();
    }

    /// Its slots; 0 if it is not known.
    fn length(&self) -> u64 {
        self.parts.first().map_or(0, |part| part.period)
    }

    /// Records the jobs of `node` and below. Returns the slots of its round.
    fn survey(&mut self, front: &Front, mut node: u32) -> u64 {
        while let Some(child) = front.only_below(node) {
            node = child;
        }
        let index = self.parts.len();
        let empty = front.nodes[node as usize].is_empty();
        let turns = if empty { 0 } else { front.queues[node as usize].turns() };
        self.parts.push(Part { node, turns, period: 0, end: 0 });
        let mut below = 0;
        for child in front.live_below(node) {
            below = below.max(self.survey(front, child));
        }
        let end = self.parts.len();
        let part = &mut self.parts[index];
        (part.period, part.end) = (turns + below, end);
        part.period
    }

    /// Goes through the first `length` slots of a part's round. It reports part, first slot and
    /// number of slots of each run of turns, for each part in order. A part that finishes before
    /// its siblings goes round again, except in a Fair-DQT.
    fn runs(
        parts: &[Part],
        index: usize,
        from: u64,
        length: u64,
        fair: bool,
        run: &mut impl FnMut(usize, u64, u64),
    ) {
        let part = &parts[index];
        if part.turns > 0 {
            run(index, from, part.turns.min(length));
        }
        let Some(window) = length.checked_sub(part.turns).filter(|&window| window > 0) else {
            return;
        };
        let from = from + part.turns;
        let mut child = index + 1;
        while child < part.end {
            let period = parts[child].period;
            let again = if fair { period.min(window) } else { window };
            let mut at = 0;
            while at < again {
                Self::runs(parts, child, from + at, period.min(again - at), fair, run);
                at += period;
            }
            child = parts[child].end;
        }
    }
}

impl Front {
    /// The slots of the root's round, if one begins with the next slot and can be computed.
    pub(super) fn planned(&mut self) -> Option<u64> {
        if !self.fresh || self.rings.shares() {
            return None;
        }
        if self.plan.parts.is_empty() {
            let mut plan = core::mem::take(&mut self.plan);
            plan.survey(self, 0);
            let Plan { parts, totals, .. } = &mut plan;
            totals.clear();
            totals.resize(parts.len(), 0);
            Plan::runs(parts, 0, 0, parts[0].period, self.fair, &mut |index, _, turns| {
                totals[index] += turns;
            });
            self.plan = plan;
        }
        Some(self.plan.length())
    }

    /// See [`crate::Policy::next_round`].
    pub(super) fn next_round(&mut self, most: u64, round: &mut Round) -> bool {
        if self.planned().is_none_or(|length| length > most) {
            return false;
        }
        let mut plan = core::mem::take(&mut self.plan);
        let written = self.write(&mut plan, round);
        self.plan = plan;
        written
    }

    fn write(&self, plan: &mut Plan, round: &mut Round) -> bool {
        let Plan { parts, totals, places } = plan;
        let all_plain = || parts.iter().all(|part| self.queues[part.node as usize].is_plain());
        if totals.iter().sum::<u64>() > MOST_TURNS || !all_plain() {
            return false;
        }
        round.begin(parts[0].period);
        places.clear();
        for (part, &turns) in parts.iter().zip(&*totals) {
            places.push(round.turns());
            if part.turns > 0 {
                let members = self.rings.plain(&self.queues[part.node as usize]);
                let jobs = members.map(|member| self.rings.members[member as usize].id);
                round.line(turns as usize, jobs);
            }
        }
        Plan::runs(parts, 0, 0, parts[0].period, self.fair, &mut |index, from, turns| {
            let place = &mut places[index];
            round.put(*place, (from..from + turns).map(|slot| slot as u32));
            *place += turns as usize;
        });
        true
    }

    /// Lets this many rounds pass, the first beginning with the next slot. Only after
    /// [`Front::planned`].
    pub(super) fn skip(&mut self, rounds: u64) {
        for (&Part { node, turns, .. }, &total) in self.plan.parts.iter().zip(&self.plan.totals) {
            if turns > 0 {
                let passed = u128::from(rounds) * u128::from(total) % u128::from(turns);
                self.rings.spin(&mut self.queues[node as usize], passed as u64);
            }
        }
        self.rounds += rounds;
    }

    /// The children that have jobs to run.
    fn live_below(&self, node: u32) -> impl Iterator<Item = u32> + '_ {
        let below = self.nodes[node as usize].below;
        let children = if below > 0 { self.shape.children(node) } else { 0..0 };
        children.filter(|&child| self.nodes[child as usize].live > 0)
    }

    /// The child that contains all jobs to run of `node` and below; `None` if there are several.
    fn only_below(&self, node: u32) -> Option<u32> {
        let entry = &self.nodes[node as usize];
        let child = self.live_below(node).next().filter(|_| entry.is_empty())?;
        (self.nodes[child as usize].live == entry.live).then_some(child)
    }
}
