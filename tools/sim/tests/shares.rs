//! Fair shares in virtual time: users who flood the machine, and users who do not.
#![forbid(unsafe_code)]

use kumi_sim::{Job, Monitor, Options, Outcome, SECOND, Workload, engine, policies};

const HOUR: u64 = 3_600 * SECOND;
const PROCS: u32 = 8;

/// Policies that let jobs wait.
const WAITING: [&str; 6] = ["fcfs", "fcfs-bb", "first-fit", "easy", "conservative", "scan"];

fn job(number: u64, user: u32, submit: u64, size: u32) -> Job {
    // Not all of one length, so that they do not end together.
    let service = HOUR / 4 + number % 7 * HOUR / 16;
    Job { number, submit, service, estimate: service, size, memory: 0, user, priority: 1 }
}

fn run(policy: &str, jobs: &[Job], half_life_ns: Option<u64>) -> Outcome {
    let options = Options { half_life_ns, ..Options::new(PROCS) };
    let workload = Workload::given(jobs.to_vec());
    let mut policy_made = policies::by_name(policy).expect("a policy");
    engine::run(policy, &mut *policy_made, &workload, &options, &Monitor::default())
        .expect("a result")
}

/// Processor time of the user's jobs that ended by then.
fn had(jobs: &[Job], outcome: &Outcome, user: u32, by: u64) -> u64 {
    let ended = |index: usize| outcome.end(index).is_some_and(|end| end <= by);
    let of_user = jobs.iter().enumerate().filter(|(_, job)| job.user == user);
    of_user
        .filter(|(index, _)| ended(*index))
        .map(|(_, job)| job.service * u64::from(job.size))
        .sum()
}

/// Mean wait of the user's jobs, in seconds.
fn waited(jobs: &[Job], outcome: &Outcome, user: u32) -> u64 {
    let of_user = jobs.iter().enumerate().filter(|(_, job)| job.user == user);
    let waits: Vec<u64> =
        of_user.map(|(at, job)| outcome.start(at).expect("it ran") - job.submit).collect();
    waits.iter().sum::<u64>() / waits.len() as u64 / SECOND
}

#[test]
fn of_two_users_who_have_much_to_do_each_gets_her_share() {
    // One comes first with four times as many jobs, of other sizes.
    let flood = (0..800).map(|number| job(number, 1, 0, 1 + number as u32 % 2));
    let other = (800..1_000).map(|number| job(number, 2, SECOND, 2));
    let jobs: Vec<Job> = flood.chain(other).collect();
    for policy in WAITING {
        let outcome = run(policy, &jobs, Some(24 * HOUR));
        let last = |user| {
            let ends = jobs.iter().enumerate().filter(|(_, job)| job.user == user);
            ends.filter_map(|(at, _)| outcome.end(at)).max().expect("all ended")
        };
        let by = last(2) * 3 / 4;
        let (one, two) = (had(&jobs, &outcome, 1, by), had(&jobs, &outcome, 2, by));
        // Conservative and scan keep places for a while.
        assert!(two * 10 >= one * 8 && one * 10 >= two * 8, "{policy}: {one} {two}");
        let before = run(policy, &jobs, None);
        let (one, two) = (had(&jobs, &before, 1, by), had(&jobs, &before, 2, by));
        assert!(policy == "scan" || two < one / 2, "{policy}: the flood comes first: {one} {two}");
    }
}

#[test]
fn who_has_little_to_do_hardly_waits_behind_a_flood() {
    let flood = (0..600).map(|number| job(number, 1, 0, 1));
    let few = (0..10).map(|number| job(600 + number, 2, (1 + number) * HOUR, 1));
    let jobs: Vec<Job> = flood.chain(few).collect();
    for policy in WAITING {
        let with = waited(&jobs, &run(policy, &jobs, Some(24 * HOUR)), 2);
        let without = waited(&jobs, &run(policy, &jobs, None), 2);
        assert!(with < 1_800, "{policy}: {with} s");
        assert!(without > 10 * with, "{policy}: {with} s with shares, {without} s without");
    }
}

/// The first user's large job is not kept away by a stream of users who have spent nothing.
#[test]
fn nobody_waits_for_ever() {
    let mut jobs = vec![job(0, 1, 0, PROCS), job(1, 1, 1, PROCS)];
    jobs.extend((2..2_000).map(|number| job(number, number as u32, number * HOUR / 20, 4)));
    for policy in ["fcfs", "easy", "conservative"] {
        let outcome = run(policy, &jobs, Some(HOUR));
        let start = outcome.start(1).expect("it ran");
        assert!(start < 8 * HOUR, "{policy}: it waited {} h", start / HOUR);
    }
}

#[test]
fn with_one_user_nothing_changes() {
    let jobs: Vec<Job> =
        (0..300).map(|number| job(number, 1, number * HOUR / 60, 1 + number as u32 % 8)).collect();
    for (policy, _) in policies::names() {
        let (with, without) = (run(policy, &jobs, Some(HOUR)), run(policy, &jobs, None));
        assert_eq!(with, without, "{policy}");
    }
}
