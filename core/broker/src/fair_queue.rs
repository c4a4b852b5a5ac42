//! Who is next: calls that wait, in fair shares between their users.
//!
//! Users take turns as in worst-case fair weighted fair queueing (WF2Q+), with a call as the unit. A user's
//! next call has a start and a finish in virtual time, one over the user's weight apart; of those whose start
//! has come the one with the earliest finish is next. So nobody who waits is ever more than one call ahead of
//! or behind the user's share, and nobody starves. A user's own calls are in the order of their ranks:
//! the number of calls submitted before, less a leap for each step of priority.
//!
//! Servers that offer the same routines are one *group*. Each group has a virtual time and an order of its own of the users
//! that have calls for it: what a user is given by one group takes nothing of the user's share of another, and who is next is
//! found without looking at those who wait for others. A group for which nobody waits begins anew.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::model::{CallId, Request, UserId};
use crate::server::Routines;

/// One call of a user with weight 1, in virtual time.
const CALL: u128 = 1 << 64;
/// What rounding may make of a start that has just come.
const SLACK: u128 = 1 << 32;

/// Calls that are passed over at most, so that looking has an end.
const MOST_PASSED: usize = 1024;

/// A call in the line: rank, order of submission, and which.
pub(crate) type Entry = (i64, u64, CallId);

#[derive(Debug)]
struct UserCalls {
    weight: u32,
    submitted: i64,
    /// By routine.
    waiting: BTreeMap<u32, BTreeSet<Entry>>,
    count: usize,
    /// Groups that remember the user.
    shares: usize,
}

/// What a group knows of a user.
#[derive(Clone, Copy, Debug)]
struct UserShare {
    /// Start of the next call.
    start: u128,
    weight: u32,
    /// The user has calls for the group.
    waits: bool,
}

impl UserShare {
    fn finish(&self) -> u128 {
        self.start + CALL / u128::from(self.weight)
    }
}

/// The users that have calls for a group.
#[derive(Debug, Default)]
struct GroupQueue {
    now: u128,
    /// Sum of the weights of those who wait.
    active: u64,
    shares: BTreeMap<UserId, UserShare>,
    /// By start: those whose start has not come.
    early: BTreeSet<(u128, UserId)>,
    /// By finish: the others.
    ready: BTreeSet<(u128, UserId)>,
    /// Users without calls here whose start is to come: they are remembered until then.
    resting: BTreeSet<(u128, UserId)>,
}

impl GroupQueue {
    /// Puts a user who waits in its place.
    fn place(&mut self, id: UserId, share: UserShare) {
        if share.start <= self.now + SLACK {
            self.ready.insert((share.finish(), id));
        } else {
            self.early.insert((share.start, id));
        }
        self.shares.insert(id, share);
    }

    fn unplace(&mut self, id: UserId, share: UserShare) {
        self.ready.remove(&(share.finish(), id));
        self.early.remove(&(share.start, id));
    }

    /// A user has calls for the group. Whether it was not remembered.
    fn enter(&mut self, id: UserId, weight: u32) -> bool {
        let known = self.shares.get(&id).copied();
        if known.is_some_and(|share| share.waits) {
            return false;
        }
        let start = known.map_or(0, |share| share.start);
        self.resting.remove(&(start, id));
        self.active += u64::from(weight);
        self.place(id, UserShare { start: start.max(self.now), weight, waits: true });
        known.is_none()
    }

    /// A user has no calls for the group any more. Who is forgotten.
    fn leave(&mut self, id: UserId) -> Vec<UserId> {
        let Some(share) = self.shares.get(&id).copied().filter(|share| share.waits) else {
            return Vec::new();
        };
        self.unplace(id, share);
        self.active -= u64::from(share.weight);
        self.shares.insert(id, UserShare { waits: false, ..share });
        self.resting.insert((share.start, id));
        self.rest()
    }

    /// A user's share of the turns is less by one. Who is forgotten.
    fn charge(&mut self, id: UserId) -> Vec<UserId> {
        let Some(share) = self.shares.get(&id).copied().filter(|share| share.waits) else {
            return Vec::new();
        };
        self.unplace(id, share);
        self.now = self.now.max(share.start) + CALL / u128::from(self.active.max(1));
        self.place(id, UserShare { start: share.finish(), ..share });
        self.rest()
    }

    fn weigh(&mut self, id: UserId, weight: u32) {
        let Some(share) = self.shares.get(&id).copied() else { return };
        let new = UserShare { weight, ..share };
        if share.waits {
            self.unplace(id, share);
            self.active = self.active - u64::from(share.weight) + u64::from(weight);
            self.place(id, new);
        } else {
            self.shares.insert(id, new);
        }
    }

    /// Forgets users that have nothing here and no debts, and all debts when nobody waits.
    fn rest(&mut self) -> Vec<UserId> {
        let mut gone = Vec::new();
        while let Some(&(start, id)) = self.resting.first() {
            if start > self.now + SLACK && self.active > 0 {
                break;
            }
            self.resting.remove(&(start, id));
            self.shares.remove(&id);
            gone.push(id);
        }
        gone
    }

    /// Those whose turn it is, and then those whose it would be.
    fn in_turn(&mut self) -> impl Iterator<Item = UserId> {
        while let Some(&(start, id)) = self.early.first() {
            let Some(share) = self.shares.get(&id).filter(|_| start <= self.now + SLACK) else {
                break;
            };
            self.early.remove(&(start, id));
            self.ready.insert((share.finish(), id));
        }
        self.ready.iter().chain(&self.early).map(|&(_, id)| id)
    }
}

/// All calls that wait.
#[derive(Debug, Default)]
pub(crate) struct FairQueue {
    users: BTreeMap<UserId, UserCalls>,
    /// Weights other than 1.
    weights: BTreeMap<UserId, u32>,
    orders: BTreeMap<u32, GroupQueue>,
    /// Groups that offer a routine.
    offers: BTreeMap<u32, BTreeSet<u32>>,
    count: usize,
}

impl FairQueue {
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
        self.orders.insert(group, GroupQueue::default());
        for &routine in routines.iter() {
            self.offers.entry(routine).or_default().insert(group);
        }
        let waits =
            |user: &UserCalls| routines.iter().any(|routine| user.waiting.contains_key(routine));
        let users = self.users.iter().filter(|(_, user)| waits(user));
        let users: Vec<UserId> = users.map(|(&id, _)| id).collect();
        users.into_iter().for_each(|id| self.enter(id, group));
    }

    /// No server of a group is left.
    pub fn withdraw(&mut self, group: u32, routines: &Routines) {
        for routine in routines.iter() {
            if let Some(groups) = self.offers.get_mut(routine) {
                groups.remove(&group);
                if groups.is_empty() {
                    self.offers.remove(routine);
                }
            }
        }
        if let Some(order) = self.orders.remove(&group) {
            self.forget(order.shares.into_keys());
        }
    }

    fn enter(&mut self, id: UserId, group: u32) {
        let (Some(user), Some(order)) = (self.users.get_mut(&id), self.orders.get_mut(&group))
        else {
            return;
        };
        user.shares += usize::from(order.enter(id, user.weight));
    }

    /// A group does not remember these users any more.
    fn forget(&mut self, users: impl IntoIterator<Item = UserId>) {
        for id in users {
            let Some(user) = self.users.get_mut(&id) else { continue };
            user.shares -= 1;
            if user.shares == 0 && user.count == 0 {
                self.users.remove(&id);
            }
        }
    }

    /// A user's share.
    pub fn weigh(&mut self, user: UserId, weight: u32) {
        let weight = weight.max(1);
        if weight == 1 {
            self.weights.remove(&user);
        } else {
            self.weights.insert(user, weight);
        }
        let Some(known) = self.users.get_mut(&user) else { return };
        known.weight = weight;
        self.orders.values_mut().for_each(|order| order.weigh(user, weight));
    }

    /// The rank of a user's new call.
    pub fn rank(&mut self, user: UserId, priority: u8) -> i64 {
        let user = self.user(user);
        user.submitted += 1;
        let steps = i64::from(priority.min(Request::MOST_PRIORITY));
        user.submitted - steps * Request::LEAP.cast_signed()
    }

    fn user(&mut self, id: UserId) -> &mut UserCalls {
        let weight = self.weights.get(&id).copied().unwrap_or(1);
        self.users.entry(id).or_insert_with(|| UserCalls {
            weight,
            submitted: 0,
            waiting: BTreeMap::new(),
            count: 0,
            shares: 0,
        })
    }

    /// A call waits.
    pub fn push(&mut self, id: UserId, routine: u32, entry: Entry) {
        let known = self.user(id);
        let queue = known.waiting.entry(routine).or_default();
        let new = queue.is_empty();
        queue.insert(entry);
        known.count += 1;
        self.count += 1;
        if new {
            self.groups(routine).into_iter().for_each(|group| self.enter(id, group));
        }
    }

    fn groups(&self, routine: u32) -> Vec<u32> {
        self.offers.get(&routine).into_iter().flatten().copied().collect()
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
        known.count -= 1;
        if !empty {
            return;
        }
        known.waiting.remove(&routine);
        for group in self.groups(routine) {
            let user = self.users.get(&id);
            let offered = |routine| self.offers.get(routine).is_some_and(|o| o.contains(&group));
            if user.is_some_and(|user| user.waiting.keys().any(offered)) {
                continue;
            }
            let gone = self.orders.get_mut(&group).map(|order| order.leave(id));
            self.forget(gone.unwrap_or_default());
        }
        if self.users.get(&id).is_some_and(|user| user.count == 0 && user.shares == 0) {
            self.users.remove(&id);
        }
    }

    /// A group starts a user's call: the user's share of its turns is less by one. The call is still here.
    pub fn charge(&mut self, id: UserId, group: u32) {
        let gone = self.orders.get_mut(&group).map(|order| order.charge(id));
        self.forget(gone.unwrap_or_default());
    }

    /// The next calls for a group, `most` of them: of the users in turn the first call of each, then the second of each
    /// and so on, so that nobody's calls keep those of others from being looked at. Calls that are passed over do not
    /// count; whether there are any.
    pub fn front(
        &mut self,
        group: u32,
        most: usize,
        pass_over: impl Fn(CallId) -> bool,
    ) -> (Vec<CallId>, bool) {
        let Some(order) = self.orders.get_mut(&group) else { return (Vec::new(), false) };
        let mut passed = 0;
        let mut users: Vec<Vec<CallId>> = Vec::new();
        for id in order.in_turn() {
            let Some(user) = self.users.get(&id) else { continue };
            let offered = |routine| self.offers.get(routine).is_some_and(|o| o.contains(&group));
            let queues = user.waiting.iter().filter(|(routine, _)| offered(routine));
            let mut own: Vec<Entry> = Vec::new();
            for queue in queues.map(|(_, queue)| queue) {
                let before = own.len();
                for entry in queue {
                    if own.len() - before == most || passed == MOST_PASSED {
                        break;
                    }
                    if pass_over(entry.2) {
                        passed += 1;
                    } else {
                        own.push(*entry);
                    }
                }
            }
            own.sort_unstable();
            if !own.is_empty() {
                users.push(own.into_iter().take(most).map(|(.., call)| call).collect());
            }
            if users.len() >= most || passed == MOST_PASSED {
                break;
            }
        }
        let at = |depth| users.iter().filter_map(move |own| own.get(depth).copied());
        ((0..most).flat_map(at).take(most).collect(), passed > 0)
    }

    /// Every call that waits for a routine.
    pub fn all_of(&self, routine: u32) -> Vec<CallId> {
        let queues = self.users.values().filter_map(|user| user.waiting.get(&routine));
        queues.flatten().map(|&(.., call)| call).collect()
    }
}
