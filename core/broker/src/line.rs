//! Who is next: calls that wait, in fair shares between their users.
//!
//! Users take turns as in worst-case fair weighted fair queueing (WF2Q+), with a call as the unit. A user's
//! next call has a start and a finish in virtual time, one over the user's weight apart; of those whose start
//! has come the one with the earliest finish is next. So nobody who waits is ever more than one call ahead of
//! or behind the user's share, and nobody starves. A user's own calls are in the order of their ranks:
//! the number of calls submitted before, less a leap for each step of priority.
//!
//! Servers that offer the same routines are one *group*. Each group has an order of its own of the users that have
//! calls for it, so that who is next is found without looking at those who wait for others.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::model::{CallId, Request, UserId};
use crate::server::Routines;

/// One call of a user with weight 1, in virtual time.
const CALL: u128 = 1 << 64;
/// What rounding may make of a start that has just come.
const SLACK: u128 = 1 << 32;

/// A call in the line: rank, order of submission, and which.
pub(crate) type Entry = (i64, u64, CallId);

#[derive(Debug)]
struct User {
    weight: u32,
    /// Start of the next call.
    start: u128,
    submitted: i64,
    /// By routine.
    waiting: BTreeMap<u32, BTreeSet<Entry>>,
    count: usize,
}

impl User {
    fn finish(&self) -> u128 {
        self.start + CALL / u128::from(self.weight)
    }
}

/// The users that have calls for a group.
#[derive(Debug, Default)]
struct Order {
    /// By start: those whose start has not come.
    early: BTreeSet<(u128, UserId)>,
    /// By finish: the others.
    ready: BTreeSet<(u128, UserId)>,
}

/// All calls that wait.
#[derive(Debug, Default)]
pub(crate) struct Line {
    users: BTreeMap<UserId, User>,
    /// Weights other than 1.
    weights: BTreeMap<UserId, u32>,
    now: u128,
    /// Sum of the weights of users that have calls here.
    active: u64,
    orders: BTreeMap<u32, Order>,
    /// Groups that offer a routine.
    offers: BTreeMap<u32, BTreeSet<u32>>,
    /// Users without calls here whose start is to come: they are remembered until then.
    resting: BTreeSet<(u128, UserId)>,
    count: usize,
}

impl Line {
    /// Calls that wait.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Calls of a user that wait.
    pub fn len_of(&self, user: UserId) -> usize {
        self.users.get(&user).map_or(0, |user| user.count)
    }

    /// Users that are remembered.
    pub fn users(&self) -> usize {
        self.users.len()
    }

    /// A new group.
    pub fn offer(&mut self, group: u32, routines: &Routines) {
        self.reorder(|line| {
            line.orders.insert(group, Order::default());
            for &routine in routines.iter() {
                line.offers.entry(routine).or_default().insert(group);
            }
        });
    }

    /// No server of a group is left.
    pub fn withdraw(&mut self, group: u32, routines: &Routines) {
        self.reorder(|line| {
            for routine in routines.iter() {
                if let Some(groups) = line.offers.get_mut(routine) {
                    groups.remove(&group);
                    if groups.is_empty() {
                        line.offers.remove(routine);
                    }
                }
            }
            line.orders.remove(&group);
        });
    }

    /// Changes what groups there are.
    fn reorder(&mut self, change: impl FnOnce(&mut Self)) {
        let waiting = |user: &&UserId| self.len_of(**user) > 0;
        let users: Vec<UserId> = self.users.keys().filter(waiting).copied().collect();
        users.iter().for_each(|&user| self.unplace(user));
        change(self);
        users.iter().for_each(|&user| self.place(user));
    }

    /// A user's share.
    pub fn weigh(&mut self, user: UserId, weight: u32) {
        let weight = weight.max(1);
        if weight == 1 {
            self.weights.remove(&user);
        } else {
            self.weights.insert(user, weight);
        }
        let waits = self.len_of(user) > 0;
        if waits {
            self.unplace(user);
        }
        if let Some(known) = self.users.get_mut(&user) {
            if waits {
                self.active = self.active - u64::from(known.weight) + u64::from(weight);
            }
            known.weight = weight;
        }
        if waits {
            self.place(user);
        }
    }

    /// The rank of a user's new call.
    pub fn rank(&mut self, user: UserId, priority: u8) -> i64 {
        let user = self.user(user);
        user.submitted += 1;
        let steps = i64::from(priority.min(Request::MOST_PRIORITY));
        user.submitted - steps * Request::LEAP.cast_signed()
    }

    fn user(&mut self, id: UserId) -> &mut User {
        let weight = self.weights.get(&id).copied().unwrap_or(1);
        let start = self.now;
        self.users.entry(id).or_insert_with(|| User {
            weight,
            start,
            submitted: 0,
            waiting: BTreeMap::new(),
            count: 0,
        })
    }

    /// A call waits.
    pub fn push(&mut self, id: UserId, routine: u32, entry: Entry) {
        let now = self.now;
        let known = self.user(id);
        let (is_first, start, weight) = (known.count == 0, known.start, known.weight);
        if is_first {
            known.start = start.max(now);
            self.resting.remove(&(start, id));
            self.active += u64::from(weight);
        }
        let known = self.user(id);
        let new = !known.waiting.contains_key(&routine);
        if new && !is_first {
            self.unplace(id);
        }
        let known = self.user(id);
        known.waiting.entry(routine).or_default().insert(entry);
        known.count += 1;
        self.count += 1;
        if new {
            self.place(id);
        }
    }

    /// A call waits no more. Nothing happens if it did not.
    pub fn remove(&mut self, id: UserId, routine: u32, entry: Entry) {
        let Some(known) = self.users.get_mut(&id) else { return };
        let Some(queue) = known.waiting.get_mut(&routine) else { return };
        if !queue.remove(&entry) {
            return;
        }
        let empty = queue.is_empty();
        self.count -= 1;
        if !empty {
            known.count -= 1;
            return;
        }
        self.unplace(id);
        let Some(known) = self.users.get_mut(&id) else { return };
        known.waiting.remove(&routine);
        known.count -= 1;
        if known.count > 0 {
            self.place(id);
            return;
        }
        self.active -= u64::from(known.weight);
        self.resting.insert((known.start, id));
        self.rest();
    }

    /// A user's call is started: the user's share of the turns is less by one. The call is still here.
    pub fn charge(&mut self, id: UserId) {
        if self.len_of(id) == 0 {
            return;
        }
        self.unplace(id);
        if let Some(user) = self.users.get_mut(&id) {
            self.now = self.now.max(user.start) + CALL / u128::from(self.active.max(1));
            user.start = user.finish();
        }
        self.place(id);
        self.rest();
    }

    /// Forgets users that have nothing here and no debts.
    fn rest(&mut self) {
        while let Some(&(start, id)) = self.resting.first() {
            if start > self.now + SLACK {
                return;
            }
            self.resting.remove(&(start, id));
            self.users.remove(&id);
        }
    }

    /// The next calls for a group, in order, `most` of them.
    pub fn front(&mut self, group: u32, most: usize) -> Vec<CallId> {
        let Some(order) = self.orders.get_mut(&group) else { return Vec::new() };
        let come = self.now + SLACK;
        while let Some(&(start, id)) = order.early.first() {
            let Some(user) = self.users.get(&id).filter(|_| start <= come) else { break };
            order.early.remove(&(start, id));
            order.ready.insert((user.finish(), id));
        }
        let mut found = Vec::new();
        for &(_, id) in order.ready.iter().chain(&order.early) {
            let Some(user) = self.users.get(&id) else { continue };
            let offered = |routine| self.offers.get(routine).is_some_and(|o| o.contains(&group));
            let queues = user.waiting.iter().filter(|(routine, _)| offered(routine));
            let mut own: Vec<Entry> =
                queues.flat_map(|(_, queue)| queue.iter().take(most).copied()).collect();
            own.sort_unstable();
            found.extend(own.into_iter().take(most - found.len()).map(|(.., call)| call));
            if found.len() >= most {
                break;
            }
        }
        found
    }

    /// Every call that waits for a routine.
    pub fn all_of(&self, routine: u32) -> Vec<CallId> {
        let queues = self.users.values().filter_map(|user| user.waiting.get(&routine));
        queues.flatten().map(|&(.., call)| call).collect()
    }

    fn groups(&self, user: &User) -> BTreeSet<u32> {
        let offered = user.waiting.keys().filter_map(|routine| self.offers.get(routine));
        offered.flatten().copied().collect()
    }

    fn place(&mut self, id: UserId) {
        let Some(user) = self.users.get(&id) else { return };
        let (groups, start, finish) = (self.groups(user), user.start, user.finish());
        for group in groups {
            let Some(order) = self.orders.get_mut(&group) else { continue };
            if start <= self.now + SLACK {
                order.ready.insert((finish, id));
            } else {
                order.early.insert((start, id));
            }
        }
    }

    fn unplace(&mut self, id: UserId) {
        let Some(user) = self.users.get(&id) else { return };
        let (groups, start, finish) = (self.groups(user), user.start, user.finish());
        for group in groups {
            let Some(order) = self.orders.get_mut(&group) else { continue };
            order.ready.remove(&(finish, id));
            order.early.remove(&(start, id));
        }
    }
}
