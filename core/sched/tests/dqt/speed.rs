//! Prints how long things take:
//! `cargo test --release -p kumi-sched dqt -- --ignored --nocapture`.

use std::time::Instant;

use kumi_sched::{ClusterTime, Dqt, JobId, NodeResources, Policy, ProcessorId, Request};

const NOW: ClusterTime = ClusterTime(0);

fn arrive(policy: &mut Dqt, job: u64, wanted: u32) {
    policy.arrive(&Request::new(JobId(job), wanted), NOW).unwrap();
    let placement = policy.next_placement(NOW).unwrap();
    policy.set_active(placement.job, true);
}

fn tree(nodes: u32) -> Dqt {
    let mut policy = Dqt::new("dqt".parse().unwrap());
    (0..nodes).for_each(|node| policy.add_node(&NodeResources::single(ProcessorId(node))));
    policy
}

#[test]
#[ignore = "prints times, asserts nothing about them"]
fn timetable_of_64_nodes_and_200_jobs() {
    for most in [1, 8, 64] {
        let mut policy = tree(64);
        for job in 0..200 {
            arrive(&mut policy, job, 1 + (job as u32 * 7) % most);
            policy.advance(job % 3);
        }
        let begin = Instant::now();
        let columns = policy.columns();
        let compile = begin.elapsed();
        let begin = Instant::now();
        policy.leave(JobId(1), NOW);
        arrive(&mut policy, 1000, most);
        let change = begin.elapsed();
        let (slots, tqlb) = (columns[0].slots.len(), policy.max_tqlb());
        println!(
            "up to {most} nodes a job, TQLB {tqlb}: {slots} slots in {compile:?}, end and begin {change:?}"
        );
    }
}

#[test]
#[ignore = "prints times, asserts nothing about them"]
fn slots_of_4096_nodes() {
    for (jobs, sizes) in [(20, 12), (60, 12), (6000, 3)] {
        let mut policy = tree(4096);
        for job in 0..jobs {
            arrive(&mut policy, job, 1 << (job * 7 % sizes));
        }
        let slots = 2_000_000 / jobs;
        let mut ran = 0u64;
        let begin = Instant::now();
        (0..slots).for_each(|_| policy.run_slot(&mut |_| ran += 1));
        let per_turn = begin.elapsed().as_nanos() as f64 / ran as f64;
        let events = 20_000;
        let begin = Instant::now();
        for event in 0..events {
            policy.leave(JobId(event), NOW);
            arrive(&mut policy, jobs + event, 1 << (event * 7 % sizes));
        }
        let per_event = begin.elapsed().as_nanos() / u128::from(events);
        println!(
            "4096 nodes, {jobs} jobs, {} running: {per_turn:.1} ns a job-slot, end and begin {per_event} ns",
            ran / slots
        );
    }
}
