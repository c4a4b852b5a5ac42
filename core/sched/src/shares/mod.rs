//! Fair shares: what each user has spent, and the order in which the jobs of users wait because of it.
//!
//! A user spends by what her jobs hold. A thing costs the more of it is wanted, and what was spent is forgotten with a half-life.
//! Who has spent less for her weight comes first; jobs of one user keep their order.

mod decay;
mod policy;
mod price;

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::demand::NodeResources;
use crate::{Amounts, JobId, Policy, ProcessorId, Request, Sharing, UserId};
pub use policy::FairPolicy;
use price::{Capacity, Holding, Meter, PriceIndex};

/// The weight of a user of whom nothing else is said, in thousandths.
pub const ORDINARY_WEIGHT: u32 = 1_000;
/// A job is taken to hold what it wants for so long, until more is known: jobs that wait are put in order by it.
const ADVANCE: u64 = 60_000_000_000;
/// To put waiting jobs in order costs about so much for each: there is at least a hundred times as much time between.
const PAUSE_PER_JOB: u64 = 10_000;
/// The longest such pause.
const PAUSE: u64 = 1_000_000_000;

/// How fair shares are reckoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareRules {
    /// Half of what was spent is forgotten in this time, in nanoseconds.
    pub half_life_ns: u64,
    /// Jobs that have waited for so long, in nanoseconds, go before all others, in order of arrival.
    pub overtaken_ns: u64,
}

/// A user, as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserShare {
    /// The user.
    pub user: UserId,
    /// Her weight, in thousandths.
    pub weight: u32,
    /// What she has spent and is not forgotten, in microseconds of a processor at a price of 1.
    pub spent_us: u64,
    /// Jobs that wait for nodes.
    pub waiting: u32,
    /// Jobs that have nodes.
    pub placed: u32,
}

impl UserShare {
    /// What was spent for each part of the weight: who has the least comes first.
    fn burden(&self) -> u64 {
        let burden = u128::from(self.spent_us) * 1_000 / u128::from(self.weight.max(1));
        u64::try_from(burden).unwrap_or(u64::MAX)
    }
}

/// The place of a waiting job: the least comes first. Jobs that have waited for too long come before others.
pub type QueueRank = (bool, u128);

#[derive(Clone, Debug)]
struct User {
    weight: u32,
    meter: Meter,
    waiting: u32,
    placed: u32,
}

#[derive(Clone, Debug)]
struct Job {
    user: UserId,
    /// What it holds, or wants, in its turns.
    holding: Holding,
    amounts: Amounts,
    arrived: u64,
    /// What it has spent; none while it waits.
    meter: Option<Meter>,
}

/// The account of all users, and what waits. It owns no queue: it tells a policy in which order jobs wait.
#[derive(Clone, Debug)]
pub struct FairShares {
    rules: ShareRules,
    index: PriceIndex,
    /// By first processor, and whether each takes jobs.
    nodes: BTreeMap<u32, (NodeResources, bool)>,
    /// What all of them have, those too that are away: jobs may run there.
    capacity: Capacity,
    /// Processors of those that take jobs.
    up: u64,
    users: BTreeMap<UserId, User>,
    jobs: BTreeMap<JobId, Job>,
    /// Jobs of an earlier policy, with what they have spent.
    before: BTreeMap<JobId, Meter>,
    /// What placed jobs hold and waiting ones want.
    wanted: Holding,
    /// Users of whom some job waits.
    waiting_users: usize,
    waiting: usize,
    /// When the order is looked at again.
    due: u64,
}

impl FairShares {
    /// Nobody has spent anything.
    #[must_use]
    pub fn new(rules: ShareRules) -> Self {
        Self {
            rules,
            index: PriceIndex::new(rules.half_life_ns),
            nodes: BTreeMap::new(),
            capacity: Capacity::default(),
            up: 0,
            users: BTreeMap::new(),
            jobs: BTreeMap::new(),
            before: BTreeMap::new(),
            wanted: Holding::default(),
            waiting_users: 0,
            waiting: 0,
            due: 0,
        }
    }

    /// The same account for another policy, which is told of nodes and jobs anew.
    #[must_use]
    pub fn for_successor(&self) -> Self {
        let placed = self.jobs.iter().filter_map(|(&job, of)| Some((job, of.meter.clone()?)));
        let before = placed.map(|(job, mut meter)| {
            meter.hold(&self.index, |held| *held = Holding::default());
            (job, meter)
        });
        let users = self.users.iter().map(|(&user, of)| {
            let mut of = User { waiting: 0, placed: 0, ..of.clone() };
            of.meter.hold(&self.index, |held| *held = Holding::default());
            (user, of)
        });
        let (before, users) = (before.collect(), users.collect());
        Self { index: self.index.clone(), users, before, ..Self::new(self.rules) }
    }

    /// How it is reckoned.
    #[must_use]
    pub fn rules(&self) -> ShareRules {
        self.rules
    }

    /// Whether a job had nodes under the policy before this one, so that its past is known.
    #[must_use]
    pub fn knows_past(&self, job: JobId) -> bool {
        self.before.contains_key(&job)
    }

    /// Time passes. It never runs backwards.
    pub fn set_time(&mut self, now: u64) {
        self.index.advance(now);
    }

    /// Gives a user another weight, in thousandths.
    pub fn set_weight(&mut self, user: UserId, weight: u32) {
        self.user(user).weight = weight.max(1);
    }

    /// The user has spent so much, so many nanoseconds ago, of which this account does not know.
    pub fn add_spent(&mut self, user: UserId, spent_us: u64, ago_ns: u64) {
        let left = self.index.left(price::amount(spent_us), ago_ns);
        self.spend(user, left);
    }

    /// A placed job had its nodes for so many nanoseconds before this account knew of it. What things cost then is not known:
    /// a price of 1 is taken.
    pub fn add_past(&mut self, job: JobId, ns: u64) {
        let Some(of) = self.jobs.get_mut(&job) else { return };
        let Some(meter) = &mut of.meter else { return };
        let amount = self.index.cost_at_par(&of.holding, ns);
        meter.add(&self.index, amount);
        let user = of.user;
        self.spend(user, amount);
    }

    /// What a job has spent since it was placed or asked about last, in microseconds of a processor at a price of 1.
    pub fn take_spent(&mut self, job: JobId) -> u64 {
        let Some(meter) = self.jobs.get_mut(&job).and_then(|job| job.meter.as_mut()) else {
            return 0;
        };
        let holding = meter.holding();
        let spent = meter.spent(&self.index);
        *meter = Meter::new(&self.index, 0);
        meter.hold(&self.index, |held| *held = holding);
        price::microseconds(spent)
    }

    /// All users who have spent anything or have jobs, those first whose jobs come first.
    #[must_use]
    pub fn users(&self) -> Vec<UserShare> {
        let shown = |(&user, of): (&UserId, &User)| UserShare {
            user,
            weight: of.weight,
            spent_us: price::microseconds(of.meter.spent(&self.index)),
            waiting: of.waiting,
            placed: of.placed,
        };
        let mut users: Vec<UserShare> = self.users.iter().map(shown).collect();
        users.retain(|user| user.spent_us > 0 || user.waiting > 0 || user.placed > 0);
        users.sort_by_key(|user| (user.burden(), user.user));
        users
    }

    /// When waiting jobs may come into another order though nothing happens.
    #[must_use]
    pub fn next_order(&self) -> Option<u64> {
        (self.waiting_users > 1).then(|| self.index.now().max(self.due).saturating_add(PAUSE))
    }

    fn user(&mut self, user: UserId) -> &mut User {
        if !self.users.contains_key(&user) {
            let index = &self.index;
            let counts = |of: &User| {
                let spent = price::microseconds(of.meter.spent(index));
                of.waiting > 0 || of.placed > 0 || spent > 0 || of.weight != ORDINARY_WEIGHT
            };
            self.users.retain(|_, of| counts(of));
        }
        let index = &self.index;
        self.users.entry(user).or_insert_with(|| User {
            weight: ORDINARY_WEIGHT,
            meter: Meter::new(index, 0),
            waiting: 0,
            placed: 0,
        })
    }

    fn spend(&mut self, user: UserId, amount: u128) {
        let index = self.index.clone();
        self.user(user).meter.add(&index, amount);
    }

    fn add_node(&mut self, node: &NodeResources) {
        self.nodes.insert(node.processors.start, (node.clone(), true));
        self.count_nodes();
    }

    fn remove_node(&mut self, first: ProcessorId) {
        if let Some((_, up)) = self.nodes.get_mut(&first.0) {
            *up = false;
        }
        self.count_nodes();
    }

    fn count_nodes(&mut self) {
        let (mut capacity, mut up) = (Capacity::default(), 0);
        for (node, takes_jobs) in self.nodes.values() {
            let processors = u64::try_from(node.processors.len()).unwrap_or(0);
            capacity.processors += processors;
            capacity.amounts.add(&node.amounts);
            up += if *takes_jobs { processors } else { 0 };
        }
        (self.capacity, self.up) = (capacity, up);
        self.set_prices();
    }

    fn set_prices(&mut self) {
        self.index.set_wanted(&self.wanted, self.up);
    }

    fn arrive(&mut self, request: &Request, now: u64) {
        let Request { job, demand, user, .. } = *request;
        let amounts = demand.amounts.times(demand.parts);
        let holding = self.capacity.holding(demand.count(1), &amounts);
        let arrived = now;
        let of_user = self.user(user);
        of_user.waiting += 1;
        let first = of_user.waiting == 1;
        self.waiting_users += usize::from(first);
        self.waiting += 1;
        self.wanted.add(&holding);
        self.jobs.insert(job, Job { user, holding, amounts, arrived, meter: None });
        self.set_prices();
    }

    fn restore(&mut self, request: &Request, processors: usize, sharing: Sharing) {
        let Request { job, demand, user, .. } = *request;
        let amounts = demand.amounts.times(demand.parts);
        self.user(user);
        let (holding, meter) = (Holding::default(), None);
        self.jobs.insert(job, Job { user, holding, amounts, arrived: 0, meter });
        self.start(job, processors, sharing);
    }

    /// A job that waited has its nodes.
    fn place(&mut self, job: JobId, processors: usize, sharing: Sharing) {
        self.no_longer_waits(job);
        self.start(job, processors, sharing);
    }

    fn start(&mut self, job: JobId, processors: usize, sharing: Sharing) {
        let Some(of) = self.jobs.get_mut(&job) else { return };
        let processors = u32::try_from(processors).unwrap_or(u32::MAX);
        of.holding = self.capacity.holding(processors, &of.amounts);
        of.meter = Some(self.before.remove(&job).unwrap_or_else(|| Meter::new(&self.index, 0)));
        if let Some(user) = self.users.get_mut(&of.user) {
            user.placed += 1;
        }
        let active = sharing == Sharing::Space;
        self.hold(job, |whole| if active { whole } else { whole.without_turns() });
    }

    /// Whether a placed job has its turns. Where processors are not shared in time it has them to itself in any case.
    fn set_active(&mut self, job: JobId, active: bool, sharing: Sharing) {
        if sharing == Sharing::SpaceAndTime {
            self.hold(job, |whole| if active { whole } else { whole.without_turns() });
        }
    }

    /// The job holds what `part` makes of all that it may hold.
    fn hold(&mut self, job: JobId, part: impl FnOnce(Holding) -> Holding) {
        let Some(of) = self.jobs.get_mut(&job) else { return };
        let (Some(meter), Some(user)) = (&mut of.meter, self.users.get_mut(&of.user)) else {
            return;
        };
        let (before, after) = (meter.holding(), part(of.holding));
        if before == after {
            return;
        }
        meter.hold(&self.index, |held| *held = after);
        user.meter.hold(&self.index, |held| {
            held.add(&after);
            held.subtract(&before);
        });
        self.wanted.add(&after);
        self.wanted.subtract(&before);
        self.set_prices();
    }

    fn leave(&mut self, job: JobId) {
        self.no_longer_waits(job);
        self.hold(job, |_| Holding::default());
        if let Some(of) = self.jobs.remove(&job)
            && of.meter.is_some()
            && let Some(user) = self.users.get_mut(&of.user)
        {
            user.placed -= 1;
        }
    }

    fn no_longer_waits(&mut self, job: JobId) {
        let Some(of) = self.jobs.get(&job).filter(|of| of.meter.is_none()) else { return };
        self.wanted.subtract(&of.holding);
        self.waiting -= 1;
        if let Some(user) = self.users.get_mut(&of.user) {
            user.waiting -= 1;
            self.waiting_users -= usize::from(user.waiting == 0);
        }
        self.set_prices();
    }

    /// Puts the waiting jobs of a policy in order, unless that was done a short time ago or only one user waits.
    fn order<P: Policy + ?Sized>(&mut self, policy: &mut P) {
        let now = self.index.now();
        if self.waiting_users < 2 || now < self.due {
            return;
        }
        let pause = PAUSE_PER_JOB.saturating_mul(self.waiting as u64).min(PAUSE);
        self.due = now.saturating_add(pause);
        let mut next = self.first_places();
        policy.reorder(&mut |job| {
            let Some(of) = self.jobs.get(&job) else { return (false, u128::MAX) };
            let place = next.entry(of.user).or_default();
            let rank = *place;
            *place = place.saturating_add(self.weighted(of.user, of.holding.at_par(ADVANCE)));
            if now.saturating_sub(of.arrived) >= self.rules.overtaken_ns {
                (false, of.arrived.into())
            } else {
                (true, rank)
            }
        });
    }

    /// The place of the next job of each user. Placed jobs count for [`ADVANCE`] at least, so that not all that is free goes to
    /// the first user.
    fn first_places(&self) -> BTreeMap<UserId, u128> {
        let mut spent: BTreeMap<UserId, u128> = BTreeMap::new();
        for (&user, of) in self.users.iter().filter(|(_, of)| of.waiting > 0) {
            spent.insert(user, of.meter.spent(&self.index));
        }
        for of in self.jobs.values() {
            if let (Some(meter), Some(spent)) = (&of.meter, spent.get_mut(&of.user)) {
                let advance = of.holding.at_par(ADVANCE);
                *spent += advance.saturating_sub(meter.spent(&self.index));
            }
        }
        spent.into_iter().map(|(user, spent)| (user, self.weighted(user, spent))).collect()
    }

    fn weighted(&self, user: UserId, amount: u128) -> u128 {
        let weight = self.users.get(&user).map_or(ORDINARY_WEIGHT, |user| user.weight);
        amount.saturating_mul(1_000) / u128::from(weight.max(1))
    }
}
