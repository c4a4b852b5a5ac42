//! Machines whose nodes have several processors: ranks are on one node, and memory is taken until jobs end.

use kumi_sim::engine::{Monitor, Options, run};
use kumi_sim::job::{Job, SECOND, Workload};
use kumi_sim::{SimError, policies};

/// A job that comes at the begin and runs for ten seconds.
fn job(number: u64, size: u32, memory: u64) -> Job {
    let (submit, service) = (0, 10 * SECOND);
    Job { number, submit, service, estimate: service, size, memory, user: 0, priority: 1 }
}

/// When each job starts, in seconds.
fn starts(name: &str, jobs: &[Job], options: &Options) -> Result<Vec<u64>, SimError> {
    let mut policy = policies::by_name(name)?;
    let workload = Workload::given(jobs.to_vec()).in_ranks_of(options.rank_procs);
    let done = run(name, &mut *policy, &workload, options, &Monitor::default())?;
    let start = |index| done.start(index).expect("all jobs start") / SECOND;
    Ok((0..jobs.len()).map(start).collect())
}

/// Two nodes of four processors.
fn machine() -> Options {
    Options { node_procs: 4, ..Options::new(8) }
}

#[test]
fn a_rank_is_on_one_node() {
    // Three processors of each node are free for it; nine in all would not help the third.
    let options = Options { rank_procs: 3, ..machine() };
    let jobs: Vec<Job> = (1..4).map(|number| job(number, 3, 0)).collect();
    for name in ["fcfs", "easy", "conservative", "first-fit"] {
        assert_eq!(starts(name, &jobs, &options).unwrap(), [0, 0, 10], "{name}");
    }
    // Where jobs share time, none waits for another to end.
    for name in ["dqt", "matrix", "dhc"] {
        assert!(starts(name, &jobs, &options).unwrap().iter().all(|&start| start < 10), "{name}");
    }
    // Two processors of a rank of three are rounded up.
    assert_eq!(starts("fcfs", &[job(1, 4, 0), job(2, 1, 0)], &options).unwrap(), [0, 10]);
    let none = starts("fcfs", &[job(1, 8, 0)], &options).unwrap_err();
    assert!(matches!(none, SimError::TooLarge { .. } | SimError::Refused { .. }), "{none}");
}

#[test]
fn memory_is_taken_until_a_job_ends_under_all_policies() {
    let options = Options { node_memory: 10, ..machine() };
    let jobs: Vec<Job> = (1..5).map(|number| job(number, 1, 6)).collect();
    for (name, _) in policies::names() {
        let starts = starts(name, &jobs, &options).unwrap();
        let at_once = starts.iter().filter(|&&start| start < 10).count();
        assert_eq!(at_once, 2, "{name}: one on each node, {starts:?}");
        assert!(starts.iter().all(|&start| start <= 20), "{name}: {starts:?}");
    }
    let free = Options { node_memory: 0, ..options };
    assert_eq!(starts("fcfs", &jobs, &free).unwrap(), [0; 4], "it limits no job unless asked to");
    let error = starts("easy", &[job(1, 1, 11)], &options).unwrap_err();
    assert!(matches!(error, SimError::Stuck { first: 1, .. }), "no node has so much: {error}");
}

/// The numbers of nodes of three have gaps for a tree of two.
#[test]
fn nodes_need_not_be_powers() {
    let options = Options { node_procs: 3, ..Options::new(8) };
    let jobs: Vec<Job> = (1..9).map(|number| job(number, 1 + number as u32 % 4, 0)).collect();
    for (name, _) in policies::names() {
        let mut policy = policies::by_name(name).unwrap();
        let workload = Workload::given(jobs.clone());
        let done = run(name, &mut *policy, &workload, &options, &Monitor::default()).unwrap();
        let work: u128 =
            jobs.iter().map(|job| u128::from(job.service) * u128::from(job.size)).sum();
        assert_eq!(done.served, work, "{name}");
        assert!((0..jobs.len()).all(|index| done.given(index).is_none_or(|given| given <= 8)));
    }
}

#[test]
fn impossible_machines_are_refused() {
    for options in [
        Options { node_procs: 0, ..machine() },
        Options { node_procs: 9, ..machine() },
        Options { rank_procs: 0, ..machine() },
        Options { rank_procs: 5, ..machine() },
    ] {
        let error = starts("fcfs", &[job(1, 1, 0)], &options).unwrap_err();
        assert!(matches!(error, SimError::Parameter { .. }), "{error}");
    }
    // Figures of machines as they ever were say nothing of nodes.
    let text = serde_json::to_string(&Options::new(4)).unwrap();
    assert!(!text.contains("node_procs") && !text.contains("rank_procs"), "{text}");
    assert!(serde_json::to_string(&machine()).unwrap().contains("\"node_procs\":4"));
}
