//! Fair queue of the calls that wait for a server.
//!
//! - Between users it is worst-case fair weighted fair queueing (WF2Q+), with a call as the unit. A user's next call has a
//!   start and a finish in virtual time; their distance is one over the user's weight. A call is eligible when its start has
//!   come. The eligible call with the earliest finish is next.
//! - So a waiting user is at most one call ahead of or behind their share, and nobody starves.
//! - A user's own calls are in the order of their ranks: the number of earlier calls, minus a leap for each step of priority.
//! - Servers with the same routines are one *group*. Each group has its own virtual time and its own queue of users. Calls that
//!   one group runs do not count in another. A group without waiting users starts anew.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use crate::model::{CallId, Request, ServerId, UserId};
use crate::server::Routines;

/// One call of a user with weight 1, in virtual time.
const CALL: u128 = 1 << 64;
/// Tolerance for rounding when a start has just come.
const SLACK: u128 = 1 << 32;

/// Most calls that one search passes over.
const MOST_PASSED: usize = 1024;

/// A queue of a user: that of the calls of a routine, or of those that may run only at one server.
pub(crate) type QueueKey = (u32, Option<ServerId>);

/// A call in the queue: rank, order of submission, and call.
pub(crate) type Entry = (i64, u64, CallId);

#[derive(Debug)]
struct UserCalls {
    weight: u32,
    submitted: i64,
    waiting: BTreeMap<QueueKey, BTreeSet<Entry>>,
    count: usize,
    /// Number of groups that remember the user.
    shares: usize,
}

/// A user in the queue of a group.
#[derive(Clone, Copy, Debug)]
struct UserShare {
    /// Start of the next call in virtual time.
    start: u128,
    weight: u32,
    /// Whether the user has waiting calls for the group.
    waits: bool,
}

impl UserShare {
    fn finish(&self) -> u128 {
        self.start + CALL / u128::from(self.weight)
    }
}

/// The users with calls for a group, and those remembered for their use.
#[derive(Debug, Default)]
struct GroupQueue {
    now: u128,
    /// Sum of the weights of waiting users.
    active: u64,
    shares: BTreeMap<UserId, UserShare>,
    /// Waiting users whose start has not come, by start.
    ineligible: BTreeSet<(u128, UserId)>,
    /// Waiting users whose start has come, by finish.
    eligible: BTreeSet<(u128, UserId)>,
    /// Users without waiting calls whose start has not come: they are remembered until then.
    remembered: BTreeSet<(u128, UserId)>,
}

impl GroupQueue {
    /// Inserts a waiting user.
    fn insert(&mut self, id: UserId, share: UserShare) {
        if share.start <= self.now + SLACK {
            self.eligible.insert((share.finish(), id));
        } else {
            self.ineligible.insert((share.start, id));
        }
        self.shares.insert(id, share);
    }

    fn remove(&mut self, id: UserId, share: UserShare) {
        self.eligible.remove(&(share.finish(), id));
        self.ineligible.remove(&(share.start, id));
    }

    /// Adds a user with waiting calls. True if the user was not remembered.
    fn enter(&mut self, id: UserId, weight: u32) -> bool {
        let known = self.shares.get(&id).copied();
        if known.is_some_and(|share| share.waits) {
            return false;
        }
        let start = known.map_or(0, |share| share.start);
        self.remembered.remove(&(start, id));
        self.active += u64::from(weight);
        self.insert(id, UserShare { start: start.max(self.now), weight, waits: true });
        known.is_none()
    }

    /// Notes that a user has no waiting calls any more. Returns the users that are forgotten.
    fn leave(&mut self, id: UserId) -> Vec<UserId> {
        let Some(share) = self.shares.get(&id).copied().filter(|share| share.waits) else {
            return Vec::new();
        };
        self.remove(id, share);
        self.active -= u64::from(share.weight);
        self.shares.insert(id, UserShare { waits: false, ..share });
        self.remembered.insert((share.start, id));
        self.forget_settled()
    }

    /// Charges a user for one call. Returns the users that are forgotten.
    fn charge(&mut self, id: UserId) -> Vec<UserId> {
        let Some(share) = self.shares.get(&id).copied().filter(|share| share.waits) else {
            return Vec::new();
        };
        self.remove(id, share);
        self.now = self.now.max(share.start) + CALL / u128::from(self.active.max(1));
        self.insert(id, UserShare { start: share.finish(), ..share });
        self.forget_settled()
    }

    /// A user had nothing that could begin now, and gathers no turns by that.
    fn catch_up(&mut self, id: UserId) {
        let Some(share) = self.shares.get(&id).copied().filter(|share| share.waits) else { return };
        if share.start < self.now {
            self.remove(id, share);
            self.insert(id, UserShare { start: self.now, ..share });
        }
    }

    fn set_weight(&mut self, id: UserId, weight: u32) {
        let Some(share) = self.shares.get(&id).copied() else { return };
        let new = UserShare { weight, ..share };
        if share.waits {
            self.remove(id, share);
            self.active = self.active - u64::from(share.weight) + u64::from(weight);
            self.insert(id, new);
        } else {
            self.shares.insert(id, new);
        }
    }

    /// Forgets users without waiting calls whose start has come, and all of them when nobody waits.
    fn forget_settled(&mut self) -> Vec<UserId> {
        let mut gone = Vec::new();
        while let Some(&(start, id)) = self.remembered.first() {
            if start > self.now + SLACK && self.active > 0 {
                break;
            }
            self.remembered.remove(&(start, id));
            self.shares.remove(&id);
            gone.push(id);
        }
        gone
    }

    /// The eligible users in their order, and then the others.
    fn in_turn(&mut self) -> impl Iterator<Item = UserId> {
        while let Some(&(start, id)) = self.ineligible.first() {
            let Some(share) = self.shares.get(&id).filter(|_| start <= self.now + SLACK) else {
                break;
            };
            self.ineligible.remove(&(start, id));
            self.eligible.insert((share.finish(), id));
        }
        self.eligible.iter().chain(&self.ineligible).map(|&(_, id)| id)
    }
}

/// All waiting calls.
#[derive(Debug, Default)]
pub(crate) struct FairQueue {
    users: BTreeMap<UserId, UserCalls>,
    /// Weights other than 1.
    weights: BTreeMap<UserId, u32>,
    groups: BTreeMap<u32, GroupQueue>,
    /// The groups that offer each routine.
    offers: BTreeMap<u32, BTreeSet<u32>>,
    count: usize,
}

impl FairQueue {
    /// Number of waiting calls.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Number of waiting calls of a user.
    pub fn len_of(&self, user: UserId) -> usize {
        self.users.get(&user).map_or(0, |user| user.count)
    }

    /// Number of remembered users.
    pub fn users(&self) -> usize {
        self.users.len()
    }

    /// Adds a group.
    pub fn offer(&mut self, group: u32, routines: &Routines) {
        self.groups.insert(group, GroupQueue::default());
        for &routine in routines.iter() {
            self.offers.entry(routine).or_default().insert(group);
        }
        let waits = |user: &UserCalls| {
            user.waiting.keys().any(|(routine, _)| routines.binary_search(routine).is_ok())
        };
        let users = self.users.iter().filter(|(_, user)| waits(user));
        let users: Vec<UserId> = users.map(|(&id, _)| id).collect();
        users.into_iter().for_each(|id| self.enter(id, group));
    }

    /// Removes a group whose last server is gone.
    pub fn withdraw(&mut self, group: u32, routines: &Routines) {
        for routine in routines.iter() {
            if let Some(groups) = self.offers.get_mut(routine) {
                groups.remove(&group);
                if groups.is_empty() {
                    self.offers.remove(routine);
                }
            }
        }
        if let Some(order) = self.groups.remove(&group) {
            self.forget(order.shares.into_keys());
        }
    }

    fn enter(&mut self, id: UserId, group: u32) {
        let (Some(user), Some(order)) = (self.users.get_mut(&id), self.groups.get_mut(&group))
        else {
            return;
        };
        user.shares += usize::from(order.enter(id, user.weight));
    }

    /// Notes that a group has forgotten these users.
    fn forget(&mut self, users: impl IntoIterator<Item = UserId>) {
        for id in users {
            let Some(user) = self.users.get_mut(&id) else { continue };
            user.shares -= 1;
            if user.shares == 0 && user.count == 0 {
                self.users.remove(&id);
            }
        }
    }

    /// Sets the weight of a user.
    pub fn set_weight(&mut self, user: UserId, weight: u32) {
        let weight = weight.max(1);
        if weight == 1 {
            self.weights.remove(&user);
        } else {
            self.weights.insert(user, weight);
        }
        let Some(known) = self.users.get_mut(&user) else { return };
        known.weight = weight;
        self.groups.values_mut().for_each(|order| order.set_weight(user, weight));
    }

    /// Gives a user's new call its rank.
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

    /// Adds a call.
    pub fn push(&mut self, id: UserId, key: QueueKey, entry: Entry) {
        let known = self.user(id);
        let queue = known.waiting.entry(key).or_default();
        let new = queue.is_empty();
        queue.insert(entry);
        known.count += 1;
        self.count += 1;
        if new {
            self.groups_of(key.0).into_iter().for_each(|group| self.enter(id, group));
        }
    }

    fn groups_of(&self, routine: u32) -> Vec<u32> {
        self.offers.get(&routine).into_iter().flatten().copied().collect()
    }

    /// Removes a call, if it waits.
    pub fn remove(&mut self, id: UserId, key: QueueKey, entry: Entry) {
        let Some(known) = self.users.get_mut(&id) else { return };
        let Some(queue) = known.waiting.get_mut(&key) else { return };
        if !queue.remove(&entry) {
            return;
        }
        let empty = queue.is_empty();
        self.count -= 1;
        known.count -= 1;
        if !empty {
            return;
        }
        known.waiting.remove(&key);
        for group in self.groups_of(key.0) {
            let user = self.users.get(&id);
            let offered =
                |key: &QueueKey| self.offers.get(&key.0).is_some_and(|o| o.contains(&group));
            if user.is_some_and(|user| user.waiting.keys().any(offered)) {
                continue;
            }
            let gone = self.groups.get_mut(&group).map(|order| order.leave(id));
            self.forget(gone.unwrap_or_default());
        }
        if self.users.get(&id).is_some_and(|user| user.count == 0 && user.shares == 0) {
            self.users.remove(&id);
        }
    }

    /// Charges a user for a call that a group starts. The call itself stays in the queue.
    pub fn charge(&mut self, id: UserId, group: u32) {
        let gone = self.groups.get_mut(&group).map(|order| order.charge(id));
        self.forget(gone.unwrap_or_default());
    }

    /// The next `most` calls for a group: the first call of each user in turn, then the second of each, and so on. So one user's
    /// calls do not hide those of others. Calls that `pass_over` selects do not count; the second result tells whether there
    /// are any. Neither do those that may run only at a server that is not free.
    pub fn front(
        &mut self,
        group: u32,
        most: usize,
        is_free: impl Fn(ServerId) -> bool,
        pass_over: impl Fn(CallId) -> bool,
    ) -> (Vec<CallId>, bool) {
        let Some(order) = self.groups.get_mut(&group) else { return (Vec::new(), false) };
        let mut passed = 0;
        let mut users: Vec<Vec<CallId>> = Vec::new();
        let mut held_up: Vec<UserId> = Vec::new();
        for id in order.in_turn() {
            let Some(user) = self.users.get(&id) else { continue };
            let may_begin = |(routine, bound): &QueueKey| {
                let is_offered = self.offers.get(routine).is_some_and(|o| o.contains(&group));
                is_offered && bound.is_none_or(&is_free)
            };
            let mut queues = user.waiting.iter().filter(|(key, _)| may_begin(key)).peekable();
            if queues.peek().is_none() {
                held_up.push(id);
            }
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
        held_up.into_iter().for_each(|id| order.catch_up(id));
        let at = |depth| users.iter().filter_map(move |own| own.get(depth).copied());
        ((0..most).flat_map(at).take(most).collect(), passed > 0)
    }

    /// All waiting calls of a routine.
    pub fn all_of(&self, routine: u32) -> Vec<CallId> {
        let keys = (routine, None)..=(routine, Some(ServerId(u32::MAX)));
        let queues = self.users.values().flat_map(|user| user.waiting.range(keys.clone()));
        queues.flat_map(|(_, queue)| queue).map(|&(.., call)| call).collect()
    }
}
