//! A year of a real machine through batch policies, against the results of other simulators.
//!
//! The trace is KTH-SP2-1996-2.1-cln.swf of the Parallel Workloads Archive, which is not part of
//! this project: `KUMI_TRACES` names the folder where it is, as `.swf` or `.swf.gz`. A run time is
//! what the log says but not more than was requested, the estimate is the larger of the two, there are
//! 100 processors, and jobs come in the order of the log. The reference for what is asked "one by
//! one" is pyss; the other was found with a simulator that batches the events of a second.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::path::Path;
use std::process::Command;

use kumi_sched::registry::{Limits, by_name};
use kumi_sched::{ClusterTime, JobId, NodeResources, Policy, ProcessorId, Request};

const KTH: &str = "KTH-SP2-1996-2.1-cln";
const PROCESSORS: u32 = 100;
const SECOND: u64 = 1_000_000_000;

struct Job {
    submitted: u64,
    runs: u64,
    nodes: u32,
    estimate: u64,
}

fn text(path: &Path) -> String {
    let plain = path.extension().is_none_or(|ending| ending != "gz");
    let bytes = if plain {
        std::fs::read(path).unwrap()
    } else {
        Command::new("gzip").arg("-dc").arg(path).output().expect("gzip").stdout
    };
    String::from_utf8(bytes).unwrap()
}

fn trace() -> Option<Vec<Job>> {
    let skip = |why: String| {
        kumi_skip::impossible("batch_trace", &why);
        None
    };
    let folder = std::env::var_os("KUMI_TRACES").filter(|folder| !folder.is_empty());
    let Some(folder) = folder else {
        return skip(format!("KUMI_TRACES names no folder with {KTH}.swf or {KTH}.swf.gz"));
    };
    let paths = ["swf", "swf.gz"].map(|ending| Path::new(&folder).join(format!("{KTH}.{ending}")));
    let Some(path) = paths.iter().find(|path| path.exists()) else {
        return skip(format!("there is no {}", paths[1].display()));
    };
    let text = text(path);
    let jobs = text.lines().filter(|line| !line.starts_with(';')).map(|line| {
        let fields: Vec<i64> = line.split_whitespace().map(|f| f.parse().unwrap_or(-1)).collect();
        let [submitted, runs, nodes, requested] =
            [1, 3, 4, 8].map(|field: usize| u64::try_from(fields[field]).unwrap());
        Job {
            submitted,
            runs: runs.min(requested),
            nodes: u32::try_from(nodes).unwrap(),
            estimate: runs.max(requested),
        }
    });
    Some(jobs.collect())
}

/// Waiting times by job, in seconds.
struct Run<'a> {
    jobs: &'a [Job],
    policy: Box<dyn Policy + Send>,
    /// Time, number of the placement, job.
    ends: BinaryHeap<Reverse<(u64, u64, usize)>>,
    placed: u64,
    arrived: usize,
    busy: BTreeSet<ProcessorId>,
    held: Vec<Vec<ProcessorId>>,
    waits: Vec<u64>,
}

impl Run<'_> {
    fn place(&mut self, now: u64) {
        while let Some(placement) = self.policy.next_placement(ClusterTime(now * SECOND)) {
            let index = usize::try_from(placement.job.0).unwrap();
            let job = &self.jobs[index];
            assert_eq!(placement.processors.len(), job.nodes as usize);
            assert!(
                placement.processors.iter().all(|&node| self.busy.insert(node)),
                "a node twice"
            );
            self.held[index] = placement.processors;
            self.waits[index] = now - job.submitted;
            self.placed += 1;
            self.ends.push(Reverse((now + job.runs, self.placed, index)));
        }
    }

    fn end(&mut self, index: usize, now: u64) {
        for node in std::mem::take(&mut self.held[index]) {
            self.busy.remove(&node);
        }
        self.policy.leave(JobId(index as u64), ClusterTime(now * SECOND));
    }

    fn arrive(&mut self, index: usize) {
        let job = &self.jobs[index];
        let estimate_ns = Some(job.estimate * SECOND);
        let request = Request { estimate_ns, ..Request::new(JobId(index as u64), job.nodes) };
        self.policy.arrive(&request, ClusterTime(job.submitted * SECOND)).unwrap();
    }

    fn ends_at(&mut self, now: u64) -> Option<usize> {
        let &Reverse((_, _, index)) = self.ends.peek().filter(|end| end.0.0 == now)?;
        self.ends.pop();
        Some(index)
    }

    fn arrivals_at(&self, now: u64) -> bool {
        self.jobs.get(self.arrived).is_some_and(|job| job.submitted == now)
    }

    fn arrive_next(&mut self) {
        self.arrive(self.arrived);
        self.arrived += 1;
    }

    /// Batched: all ends and all arrivals of an instant, then placements. One by one: placements
    /// after each, in the order in which the simulator has known of them, so arrivals first and
    /// then ends by when those jobs were placed.
    fn run(&mut self, batched: bool) {
        loop {
            let arrival = self.jobs.get(self.arrived).map(|job| job.submitted);
            let end = self.ends.peek().map(|end| end.0.0);
            let Some(now) = arrival.into_iter().chain(end).min() else { break };
            while !batched && self.arrivals_at(now) {
                self.arrive_next();
                self.place(now);
            }
            while let Some(index) = self.ends_at(now) {
                self.end(index, now);
                if !batched {
                    self.place(now);
                }
            }
            while batched && self.arrivals_at(now) {
                self.arrive_next();
            }
            self.place(now);
        }
        assert!(self.policy.queued().is_empty() && self.busy.is_empty(), "all have run");
    }
}

/// Mean wait, mean bounded slowdown (threshold 10 s), and longest wait.
fn simulate(jobs: &[Job], policy: &str, batched: bool) -> (f64, f64, u64) {
    let mut run = Run {
        jobs,
        policy: by_name(policy, Limits::default()).unwrap(),
        ends: BinaryHeap::new(),
        placed: 0,
        arrived: 0,
        busy: BTreeSet::new(),
        held: jobs.iter().map(|_| Vec::new()).collect(),
        waits: vec![u64::MAX; jobs.len()],
    };
    (0..PROCESSORS).for_each(|node| run.policy.add_node(&NodeResources::single(ProcessorId(node))));
    run.run(batched);
    let count = jobs.len() as f64;
    let slowdown =
        |(job, wait): (&Job, &u64)| ((wait + job.runs) as f64 / job.runs.max(10) as f64).max(1.0);
    let slowdowns: f64 = jobs.iter().zip(&run.waits).map(slowdown).sum();
    let waited: u64 = run.waits.iter().sum();
    (waited as f64 / count, slowdowns / count, *run.waits.iter().max().unwrap())
}

fn agrees(policy: &str, batched: bool, (wait, slowdown, longest): (f64, f64, u64)) {
    let Some(jobs) = trace() else { return };
    let (our_wait, our_slowdown, our_longest) = simulate(&jobs, policy, batched);
    eprintln!("{policy}: {our_wait:.3} {our_slowdown:.4} {our_longest}");
    assert_eq!(jobs.len(), 27_992);
    assert!((our_wait - wait).abs() < 0.000_5, "{policy}: mean wait {our_wait}");
    assert!((our_slowdown - slowdown).abs() < 0.000_05, "{policy}: slowdown {our_slowdown}");
    assert_eq!(our_longest, longest, "{policy}: longest wait");
}

#[test]
fn first_come_first_served() {
    agrees("fcfs", false, (218_980.575, 4_297.070_5, 705_687));
    agrees("fcfs", true, (218_980.575, 4_297.070_5, 705_687));
}

#[test]
fn easy_one_by_one() {
    agrees("easy", false, (6_412.240, 86.281_2, 248_239));
}

#[test]
fn easy_batched() {
    agrees("easy", true, (6_419.028, 86.397_7, 248_239));
}

#[test]
fn conservative_one_by_one() {
    agrees("conservative", false, (7_035.946, 90.044_1, 235_103));
}

/// Of this there is no other result; it is written down in docs/guide/scheduling.md.
#[test]
fn conservative_batched() {
    agrees("conservative", true, (7_040.519, 89.872_7, 235_103));
}
