//! Which standbys have everything that the leader has acknowledged, and what it may acknowledge.
//!
//! A leader keeps logs, and standbys copy them. It may acknowledge what all those standbys have that are *in sync*. The store
//! has the list of them. The leader changes it there first: a standby that is too far behind leaves the list before the leader
//! acknowledges what it lacks, and one that has caught up enters it after it has everything that is acknowledged. So whoever is
//! in the list can lead without a loss.
//!
//! Logs only grow: how far one has come is a number. Times are those of one clock of the leader, which may leave out time in
//! which the leader stood still.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::Nanos;

/// A standby that catches up within this part of the leader's patience is nearly in sync.
const NEARLY: Nanos = 4;

/// Something that a standby has to take within a bound: what there was at a moment.
#[derive(Clone, Debug)]
struct CatchUp<L> {
    since: Nanos,
    /// How far it has to come in each log. Never empty.
    left: BTreeMap<L, u64>,
}

/// What is known of a standby.
#[derive(Clone, Debug)]
struct Standby<L> {
    /// Since when it has no connection, if it has none.
    absent: Option<Nanos>,
    /// It has said all that it has.
    introduced: bool,
    taken: BTreeMap<L, u64>,
    /// Logs of which it lacks the end.
    behind: BTreeSet<L>,
    catch_up: Option<CatchUp<L>>,
    /// The leader acknowledges nothing any more that it lacks. It enters the list when it has all of this, which is acknowledged.
    joining: Option<BTreeMap<L, u64>>,
    /// It is to leave the list.
    leaves: bool,
}

impl<L: Copy + Ord> Standby<L> {
    fn absent_since(now: Nanos) -> Self {
        Self {
            absent: Some(now),
            introduced: false,
            taken: BTreeMap::new(),
            behind: BTreeSet::new(),
            catch_up: None,
            joining: None,
            leaves: false,
        }
    }

    fn has(&self, log: L, end: u64) -> bool {
        end == 0 || self.taken.get(&log).is_some_and(|&taken| taken >= end)
    }

    /// What it lacks of these, with how far it has to come.
    fn lacks(&self, ends: &BTreeMap<L, u64>) -> BTreeMap<L, u64> {
        let lacking = ends.iter().filter(|&(&log, &end)| !self.has(log, end));
        lacking.map(|(&log, &end)| (log, end)).collect()
    }

    /// What it has to catch up with next is all that it lacks now.
    fn send(&mut self, ends: &BTreeMap<L, u64>, now: Nanos) {
        let end_of = |log: &L| ends.get(log).map(|&end| (*log, end));
        let left: BTreeMap<L, u64> = self.behind.iter().filter_map(end_of).collect();
        self.catch_up = (!left.is_empty()).then_some(CatchUp { since: now, left });
    }

    fn forget(&mut self, log: L) {
        self.taken.remove(&log);
        self.behind.remove(&log);
        if let Some(joining) = &mut self.joining {
            joining.remove(&log);
        }
    }
}

/// Whether the store has the standby in its list, or is about to.
fn is_listed<M: Ord>(recorded: &BTreeSet<M>, proposed: Option<&BTreeSet<M>>, member: &M) -> bool {
    recorded.contains(member) || proposed.is_some_and(|list| list.contains(member))
}

/// The copies of a leader's logs. `M` names a head, `L` a log.
#[derive(Clone, Debug)]
pub struct Copies<M, L> {
    own: M,
    patience: Nanos,
    /// The list as the store has it, and as it is being written.
    recorded: BTreeSet<M>,
    proposed: Option<BTreeSet<M>>,
    standbys: BTreeMap<M, Standby<L>>,
    /// How far each log has come, and how much of it is acknowledged.
    ends: BTreeMap<L, u64>,
    acknowledged: BTreeMap<L, u64>,
}

impl<M: Clone + Ord, L: Copy + Ord> Copies<M, L> {
    /// Of the leader `own`, whose term begins now. The store has the list `recorded`. A standby in it that has not taken something for
    /// longer than about `patience` leaves it.
    #[must_use]
    pub fn new(own: M, recorded: BTreeSet<M>, patience: Nanos, now: Nanos) -> Self {
        let others = recorded.iter().filter(|&member| *member != own);
        let standbys = others.map(|member| (member.clone(), Standby::absent_since(now))).collect();
        // What this leader adds is unknown to those that led before it was in the list.
        let mut copies = Self {
            own,
            patience,
            recorded,
            proposed: None,
            standbys,
            ends: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
        };
        if !copies.recorded.contains(&copies.own) {
            copies.standbys.values_mut().for_each(|standby| standby.leaves = true);
        }
        copies
    }

    /// Whether the leader waits for this one: it is in the list, or about to be.
    fn counts(&self, member: &M, standby: &Standby<L>) -> bool {
        is_listed(&self.recorded, self.proposed.as_ref(), member) || standby.joining.is_some()
    }

    /// A standby has connected. What was known of it is forgotten: its disk may have been replaced. One in the list has no more
    /// time for that: if it comes and goes, the leader does not wait for it for ever.
    pub fn connected(&mut self, member: M, now: Nanos) {
        let listed = is_listed(&self.recorded, self.proposed.as_ref(), &member);
        let standby = self.standbys.entry(member).or_insert_with(|| Standby::absent_since(now));
        let catch_up = standby.catch_up.as_ref().map(|catch_up| catch_up.since);
        let since = standby.absent.into_iter().chain(catch_up).min();
        *standby = Standby {
            absent: None,
            leaves: standby.leaves && listed,
            behind: self.ends.keys().copied().collect(),
            ..Standby::absent_since(now)
        };
        standby.send(&self.ends, since.filter(|_| listed).unwrap_or(now));
    }

    /// It has said what it has, and each log has been opened: from now on it lacks only what it is known to lack. One in the list
    /// that lacks something acknowledged has lost it, and leaves.
    pub fn introduced(&mut self, member: &M) {
        let Some(standby) = self.standbys.get_mut(member) else { return };
        standby.introduced = true;
        if self.recorded.contains(member) && !standby.lacks(&self.acknowledged).is_empty() {
            standby.leaves = true;
        }
    }

    /// Its connection has ended. What it has taken it still has.
    pub fn gone(&mut self, member: &M, now: Nanos) {
        let Some(standby) = self.standbys.get_mut(member) else { return };
        standby.absent.get_or_insert(now);
        standby.joining = None;
        standby.introduced = false;
        if !is_listed(&self.recorded, self.proposed.as_ref(), member) {
            self.standbys.remove(member);
        }
    }

    /// A log has come so far.
    pub fn extended(&mut self, log: L, end: u64, now: Nanos) {
        let known = self.ends.entry(log).or_default();
        *known = end.max(*known);
        let end = *known;
        for standby in self.standbys.values_mut() {
            if standby.has(log, end) {
                continue;
            }
            standby.behind.insert(log);
            if standby.catch_up.is_none() {
                standby.send(&self.ends, now);
            }
        }
    }

    /// A standby has taken a log up to there, and will have it whatever happens to its process.
    pub fn taken(&mut self, member: &M, log: L, end: u64, now: Nanos) {
        let (Some(standby), Some(&whole)) = (self.standbys.get_mut(member), self.ends.get(&log))
        else {
            return;
        };
        let taken = standby.taken.entry(log).or_default();
        *taken = end.min(whole).max(*taken);
        let taken = *taken;
        if taken >= whole {
            standby.behind.remove(&log);
        }
        for left in [standby.catch_up.as_mut().map(|it| &mut it.left), standby.joining.as_mut()] {
            let Some(left) = left else { continue };
            if left.get(&log).is_some_and(|&end| end <= taken) {
                left.remove(&log);
            }
        }
        self.go_on(member, now);
    }

    /// A standby that has caught up so far gets the next bound, or begins to join.
    fn go_on(&mut self, member: &M, now: Nanos) {
        let listed = is_listed(&self.recorded, self.proposed.as_ref(), member);
        let Some(standby) = self.standbys.get_mut(member) else { return };
        let since = match &standby.catch_up {
            Some(catch_up) if !catch_up.left.is_empty() => return,
            Some(catch_up) => catch_up.since,
            None => now,
        };
        standby.send(&self.ends, now);
        let is_near =
            standby.catch_up.is_none() || now.saturating_sub(since) < self.patience / NEARLY;
        let can_join = standby.introduced && standby.absent.is_none() && !listed;
        if can_join && is_near && standby.joining.is_none() {
            standby.leaves = false;
            standby.joining = Some(standby.lacks(&self.acknowledged));
        }
    }

    /// The log is no more.
    pub fn forget(&mut self, log: L, now: Nanos) {
        self.ends.remove(&log);
        self.acknowledged.remove(&log);
        for standby in self.standbys.values_mut() {
            standby.forget(log);
            if let Some(catch_up) = &mut standby.catch_up {
                catch_up.left.remove(&log);
            }
        }
        for member in self.standbys.keys().cloned().collect::<Vec<M>>() {
            self.go_on(&member, now);
        }
    }

    /// Takes note of the time: whoever has been behind or away for too long is not waited for, once the store has that.
    pub fn advance(&mut self, now: Nanos) {
        let late = |since: Nanos| now >= since.saturating_add(self.patience);
        let (recorded, proposed) = (&self.recorded, &self.proposed);
        for (member, standby) in &mut self.standbys {
            let behind = standby.catch_up.as_ref().is_some_and(|catch_up| late(catch_up.since));
            if behind || standby.absent.is_some_and(late) {
                standby.leaves |= is_listed(recorded, proposed.as_ref(), member);
                standby.joining = None;
            }
        }
        for member in self.standbys.keys().cloned().collect::<Vec<M>>() {
            self.go_on_if_idle(&member, now);
        }
    }

    fn go_on_if_idle(&mut self, member: &M, now: Nanos) {
        if self.standbys.get(member).is_some_and(|standby| standby.catch_up.is_none()) {
            self.go_on(member, now);
        }
    }

    /// When to call [`Copies::advance`] at the latest, if there is somebody to wait for.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Nanos> {
        let counting = self
            .standbys
            .iter()
            .filter(|(member, standby)| !standby.leaves && self.counts(member, standby));
        let since = counting.filter_map(|(_, standby)| {
            let catch_up = standby.catch_up.as_ref().map(|catch_up| catch_up.since);
            standby.absent.into_iter().chain(catch_up).min()
        });
        since.min().map(|since| since.saturating_add(self.patience))
    }

    /// A list that the store is to have, if it is to change and no earlier change is under way. It is written on the condition that
    /// this leader leads, and [`Copies::recorded`] says that it is there.
    pub fn next_list(&mut self) -> Option<BTreeSet<M>> {
        if self.proposed.is_some() {
            return None;
        }
        let stays = |member: &&M| {
            **member == self.own || self.standbys.get(*member).is_some_and(|it| !it.leaves)
        };
        let mut list: BTreeSet<M> = self.recorded.iter().filter(stays).cloned().collect();
        list.insert(self.own.clone());
        let ready = |standby: &Standby<L>| {
            !standby.leaves && standby.joining.as_ref().is_some_and(BTreeMap::is_empty)
        };
        let joins = self.standbys.iter().filter(|(_, standby)| ready(standby));
        list.extend(joins.map(|(member, _)| member.clone()));
        if list == self.recorded {
            return None;
        }
        self.proposed = Some(list.clone());
        Some(list)
    }

    /// The store has the last list of [`Copies::next_list`].
    pub fn recorded(&mut self) {
        let Some(list) = self.proposed.take() else { return };
        self.recorded = list;
        let (recorded, acknowledged) = (&self.recorded, &self.acknowledged);
        self.standbys.retain(|member, standby| {
            if recorded.contains(member) {
                standby.joining = None;
                // It may have connected anew meanwhile.
                standby.leaves |= standby.introduced && !standby.lacks(acknowledged).is_empty();
                return true;
            }
            // It may catch up, and enter the list again.
            standby.leaves = false;
            standby.absent.is_none()
        });
    }

    /// Whether everything up to there in a log may be acknowledged: all have it who count. If so it is taken for acknowledged.
    pub fn acknowledge(&mut self, log: L, end: u64) -> bool {
        let waits = |(member, standby): (&M, &Standby<L>)| {
            self.counts(member, standby) && !standby.has(log, end)
        };
        if !self.recorded.contains(&self.own) || self.standbys.iter().any(waits) {
            return false;
        }
        let acknowledged = self.acknowledged.entry(log).or_default();
        *acknowledged = end.max(*acknowledged);
        true
    }

    /// The list as the store has it.
    #[must_use]
    pub fn in_sync(&self) -> &BTreeSet<M> {
        &self.recorded
    }
}
