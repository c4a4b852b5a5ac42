//! Fair shares: accounts of users, and the order in which their jobs wait.

use std::collections::{BTreeMap, VecDeque};

use kumi_sched::registry::{Limits, by_name, names};
use kumi_sched::{
    Amounts, ClusterTime, FairPolicy, FairShares, JobId, NodeResources, Policy, ProcessorId,
    Request, ShareRules, UserId,
};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;
const HOUR: u64 = 3_600 * SECOND;
const RULES: ShareRules = ShareRules { half_life_ns: 24 * HOUR, overtaken_ns: 1_000 * HOUR };

type Fair = FairPolicy<Box<dyn Policy + Send>>;

/// A policy with fair shares and so many nodes of one processor, each for one job at a time.
fn fair(name: &str, nodes: u32, rules: ShareRules) -> Fair {
    let limits = Limits { jobs_per_processor: 1, ..Limits::default() };
    let policy = by_name(name, limits).expect("a policy");
    let mut fair = FairPolicy::new(policy, Some(FairShares::new(rules)));
    (0..nodes).for_each(|node| fair.add_node(&NodeResources::single(ProcessorId(node))));
    fair
}

fn request(job: u64, user: u32, processors: u32) -> Request {
    let estimate_ns = Some(HOUR);
    Request { user: UserId(user), estimate_ns, ..Request::new(JobId(job), processors) }
}

fn arrive(policy: &mut Fair, job: u64, user: u32, now: u64) {
    policy.arrive(&request(job, user, 1), ClusterTime(now)).expect("a good request");
}

/// The next job that gets its nodes, which it uses from then on.
fn place(policy: &mut Fair, now: u64) -> Option<u64> {
    let placement = policy.next_placement(ClusterTime(now))?;
    policy.set_active(placement.job, true);
    Some(placement.job.0)
}

fn spent(policy: &Fair, user: u32) -> u64 {
    let users = policy.shares().expect("an account").users();
    users.into_iter().find(|share| share.user.0 == user).map_or(0, |share| share.spent_us)
}

#[test]
fn who_has_spent_less_comes_first_under_every_policy() {
    for (name, _) in names() {
        let mut policy = fair(name, 1, RULES);
        (1..=5).for_each(|job| arrive(&mut policy, job, 7, 0));
        assert_eq!(place(&mut policy, 0), Some(1), "{name}");
        arrive(&mut policy, 6, 8, HOUR);
        arrive(&mut policy, 7, 8, HOUR);
        policy.leave(JobId(1), ClusterTime(HOUR));
        assert_eq!(place(&mut policy, HOUR), Some(6), "{name}: user 7 has had an hour");
        // Now both have had the same, and then user 8 more.
        policy.leave(JobId(6), ClusterTime(3 * HOUR));
        assert_eq!(place(&mut policy, 3 * HOUR), Some(2), "{name}");
    }
}

#[test]
fn jobs_of_one_user_keep_their_order_under_every_policy() {
    for (name, _) in names() {
        let mut policy = fair(name, 1, RULES);
        let mut now = 0;
        for job in 1..=12 {
            arrive(&mut policy, job, job as u32 % 3, now);
            now += SECOND;
        }
        let mut last = BTreeMap::new();
        for _ in 0..12 {
            let job = place(&mut policy, now).expect("a job waits and a processor is free");
            assert!(last.insert(job % 3, job) < Some(job), "{name}: {job} came later");
            now += HOUR / 7 * (1 + job % 4);
            policy.leave(JobId(job), ClusterTime(now));
        }
    }
}

/// Processors come free all at once, before anybody has spent anything.
#[test]
fn what_comes_free_at_once_is_shared() {
    let mut policy = fair("fcfs", 8, RULES);
    (1..=20).for_each(|job| arrive(&mut policy, job, 1, 0));
    (21..=40).for_each(|job| arrive(&mut policy, job, 2, 0));
    let placed: Vec<u64> = std::iter::from_fn(|| place(&mut policy, 0)).collect();
    assert_eq!(placed.len(), 8);
    assert_eq!(placed.iter().filter(|job| **job > 20).count(), 4, "{placed:?}");
}

#[test]
fn users_get_processors_by_their_weights() {
    let mut policy = fair("fcfs", 1, RULES);
    policy.shares_mut().expect("an account").set_weight(UserId(2), 3_000);
    let (mut had, mut next, mut now) = ([0u32; 3], 1, 0);
    for user in [1, 2] {
        (0..2_000).for_each(|_| {
            arrive(&mut policy, next, user, 0);
            next += 1;
        });
    }
    for _ in 0..2_000 {
        let job = place(&mut policy, now).expect("jobs wait");
        had[if job <= 2_000 { 1 } else { 2 }] += 1;
        now += HOUR / 4;
        policy.leave(JobId(job), ClusterTime(now));
    }
    assert!((490..=510).contains(&had[1]), "{had:?}");
}

#[test]
fn a_job_that_waits_for_too_long_goes_first() {
    let rules = ShareRules { overtaken_ns: 10 * HOUR, ..RULES };
    let mut policy = fair("fcfs", 1, rules);
    policy.shares_mut().expect("an account").add_spent(UserId(1), 1 << 60, 0);
    arrive(&mut policy, 1, 1, 0);
    // There are always users who have spent nothing.
    let (mut now, mut waited) = (0, Vec::new());
    for job in 2..=30 {
        arrive(&mut policy, job, job as u32, now);
        let placed = place(&mut policy, now).expect("the processor is free");
        waited.push(placed);
        now += HOUR;
        policy.leave(JobId(placed), ClusterTime(now));
    }
    let at = waited.iter().position(|job| *job == 1).expect("it has its turn");
    assert_eq!(at, 10, "as soon as it may not be overtaken any more");
}

#[test]
fn the_more_is_wanted_the_more_it_costs() {
    let alone = {
        let mut policy = fair("fcfs", 8, RULES);
        arrive(&mut policy, 1, 1, 0);
        place(&mut policy, 0);
        policy.leave(JobId(1), ClusterTime(HOUR / 8));
        spent(&policy, 1)
    };
    let wanted = |others: u64| {
        let mut policy = fair("fcfs", 8, RULES);
        arrive(&mut policy, 1, 1, 0);
        place(&mut policy, 0);
        (2..2 + others).for_each(|job| arrive(&mut policy, job, 2, 0));
        while place(&mut policy, 0).is_some() {}
        policy.leave(JobId(1), ClusterTime(HOUR / 8));
        spent(&policy, 1)
    };
    assert_eq!(wanted(0), alone);
    let [half, all, twice, many] = [3, 7, 15, 1_000].map(wanted);
    for (spent, times) in [(half, 4), (all, 8), (twice, 16), (many, 32)] {
        assert!(spent.abs_diff(alone * times) < alone / 100, "{times}: {spent} {alone}");
    }
    // An hour of a processor, when all are wanted, is an hour.
    let eighth = HOUR / 8 / 1_000;
    assert!(all.abs_diff(eighth) < eighth / 100, "{all} {eighth}");
}

/// Memory that nobody else could have then costs as processors do.
#[test]
fn memory_is_paid_for_while_it_is_held() {
    let limits = Limits { jobs_per_processor: 4, ..Limits::default() };
    let policy = by_name("dqt", limits).expect("a policy");
    let mut policy = FairPolicy::new(policy, Some(FairShares::new(RULES)));
    let amounts = |memory| Amounts([memory, 0, 0, 0, 0, 0, 0, 0]);
    policy.add_node(&NodeResources { processors: 0..8, amounts: amounts(800) });
    for (job, memory) in [(1, 600), (2, 100)] {
        let mut request = request(job, job as u32, 1);
        request.demand.amounts = amounts(memory);
        policy.arrive(&request, ClusterTime(0)).expect("a good request");
        place(&mut policy, 0).expect("there is room");
        // Idle: it has no turns, and its memory.
        policy.set_active(JobId(job), false);
    }
    policy.leave(JobId(1), ClusterTime(HOUR));
    policy.leave(JobId(2), ClusterTime(HOUR));
    let (large, small) = (spent(&policy, 1), spent(&policy, 2));
    assert!(small > 0 && large.abs_diff(6 * small) <= large / 100, "{large} {small}");
}

#[test]
fn a_successor_knows_what_was_spent_and_charges_nothing_twice() {
    let mut policy = fair("fcfs", 2, RULES);
    arrive(&mut policy, 1, 1, 0);
    arrive(&mut policy, 2, 2, 0);
    while place(&mut policy, 0).is_some() {}
    policy.set_time(ClusterTime(HOUR));
    let account = policy.shares().expect("an account").for_successor();
    let policy_after = by_name("dqt", Limits::default()).expect("a policy");
    let mut after = FairPolicy::new(policy_after, Some(account));
    (0..2).for_each(|node| after.add_node(&NodeResources::single(ProcessorId(node))));
    for job in 1..=2u64 {
        let on = [ProcessorId(job as u32 - 1)];
        after.restore(&request(job, job as u32, 1), &on, ClusterTime(HOUR)).expect("it runs");
        after.set_active(JobId(job), true);
    }
    assert_eq!(spent(&after, 1), spent(&policy, 1));
    after.set_time(ClusterTime(2 * HOUR));
    policy.set_time(ClusterTime(2 * HOUR));
    assert!(spent(&after, 1).abs_diff(spent(&policy, 1)) < 100);
    let of_job = after.shares_mut().expect("an account").take_spent(JobId(1));
    assert!(of_job.abs_diff(spent(&after, 1)) < 100, "it is all that the user had");
    assert_eq!(after.shares_mut().expect("an account").take_spent(JobId(1)), 0);
}

#[test]
fn the_past_of_a_job_that_a_restarted_head_finds_counts() {
    let mut policy = fair("fcfs", 1, RULES);
    policy.set_time(ClusterTime(50 * HOUR));
    policy.restore(&request(1, 1, 1), &[ProcessorId(0)], ClusterTime(50 * HOUR)).expect("it runs");
    policy.shares_mut().expect("an account").add_past(JobId(1), HOUR);
    let hour = HOUR / 1_000;
    assert!(spent(&policy, 1).abs_diff(hour) < hour / 50, "{}", spent(&policy, 1));
    // Of what is long ago nothing is left but what a half-life comes to.
    policy.shares_mut().expect("an account").add_past(JobId(1), u64::MAX);
    assert!(spent(&policy, 1) < 40 * hour, "{}", spent(&policy, 1));
}

/// What happens to an account.
#[derive(Clone, Debug)]
enum Event {
    Arrive { user: u32, processors: u32 },
    End,
    Idle { active: bool },
    Wait(u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        3 => (0..4u32, 1..9u32).prop_map(|(user, processors)| Event::Arrive { user, processors }),
        3 => Just(Event::End),
        1 => any::<bool>().prop_map(|active| Event::Idle { active }),
        4 => prop_oneof![0..5 * SECOND, 0..5 * HOUR, 0..1_000 * HOUR].prop_map(Event::Wait),
    ];
    prop::collection::vec(event, 1..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// What a user has spent is what her jobs have, whatever happens; and a user who does nothing never has more than before.
    #[test]
    fn accounts_of_users_are_those_of_their_jobs(events in events(), half_life in 1..400 * HOUR) {
        let rules = ShareRules { half_life_ns: half_life, ..RULES };
        let mut policy = fair("dqt", 8, rules);
        let (mut running, mut jobs, mut now) = (VecDeque::new(), 0, 0u64);
        for event in events {
            let before: BTreeMap<u32, u64> = (0..4).map(|user| (user, spent(&policy, user))).collect();
            match event {
                Event::Arrive { user, processors } => {
                    jobs += 1;
                    policy.arrive(&request(jobs, user, processors), ClusterTime(now)).unwrap();
                }
                Event::End => {
                    if let Some(job) = running.pop_front() {
                        policy.leave(JobId(job), ClusterTime(now));
                    }
                }
                Event::Idle { active } => {
                    if let Some(job) = running.front() {
                        policy.set_active(JobId(*job), active);
                    }
                }
                Event::Wait(time) => now += time,
            }
            while let Some(job) = place(&mut policy, now) {
                running.push_back(job);
            }
            for share in policy.shares().expect("an account").users() {
                if share.placed == 0 {
                    let user = share.user.0;
                    let most = before[&user];
                    prop_assert!(share.spent_us <= most + 1, "user {user}: {} {most}", share.spent_us);
                }
                prop_assert!(share.spent_us < u64::MAX / 4);
            }
        }
        let shares = policy.shares().expect("an account").users();
        let placed: u32 = shares.iter().map(|share| share.placed).sum();
        prop_assert_eq!(placed as usize, running.len());
        let waiting: u32 = shares.iter().map(|share| share.waiting).sum();
        prop_assert_eq!(waiting as usize, policy.queued().len());
        let burdens: Vec<u64> = shares.iter().map(|share| share.spent_us).collect();
        prop_assert!(burdens.is_sorted(), "{:?}", burdens);
    }

    /// A half-life later half is left, and steps on the way change nothing of that.
    #[test]
    fn half_is_forgotten_in_a_half_life(
        half_life in SECOND..9_000 * HOUR,
        spent_us in 1_000_000..u64::MAX / 2,
        steps in prop::collection::vec(1..1_000u64, 1..20),
    ) {
        let mut shares = FairShares::new(ShareRules { half_life_ns: half_life, ..RULES });
        shares.add_spent(UserId(1), spent_us, 0);
        let sum: u64 = steps.iter().sum();
        let mut now = 0;
        for step in steps {
            now += half_life / sum * step;
            shares.set_time(now);
        }
        shares.set_time(half_life);
        let left = shares.users()[0].spent_us;
        let most = spent_us.min(u64::MAX >> 10);
        prop_assert!(left.abs_diff(most / 2) <= most / 100 || spent_us > most, "{left} of {spent_us}");
        shares.set_time(u64::MAX);
        prop_assert!(shares.users().is_empty(), "nothing is left, and nobody is known");
    }
}
