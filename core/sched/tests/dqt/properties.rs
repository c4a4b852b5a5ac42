//! Promises of the SCore-D paper (§7.1.2, §8.2) and of Kumi's additions, for any jobs.

use std::collections::{BTreeMap, BTreeSet};

use kumi_sched::{
    ClusterTime, Dqt, DqtConfig, JobId, NodeResources, Policy, ProcessorId, Request, UserId,
};
use proptest::prelude::*;

use super::{at, slots, tree};

const NOW: ClusterTime = ClusterTime(0);

/// A job: its nodes as two leaves, its user, its turns.
type Asked = (u32, u32, u32, u16);

fn asked(most_turns: u16) -> impl Strategy<Value = Vec<Asked>> {
    prop::collection::vec((any::<u32>(), any::<u32>(), 0..3u32, 1..=most_turns), 1..25)
}

fn config() -> impl Strategy<Value = (DqtConfig, u32)> {
    (any::<bool>(), any::<bool>(), 2..4u32, 1..20u32).prop_map(|(fair, shares, arity, nodes)| {
        (DqtConfig { arity, fair, shares, ..DqtConfig::default() }, nodes)
    })
}

fn with_nodes(config: DqtConfig, nodes: u32) -> Dqt {
    let mut policy = Dqt::new(config);
    (0..nodes).for_each(|node| policy.add_node(&NodeResources::single(ProcessorId(node))));
    policy
}

fn put(policy: &mut Dqt, nodes: u32, job: u64, &(one, two, user, priority): &Asked) {
    let (one, two) = (one % nodes, two % nodes);
    let span: Vec<ProcessorId> = (one.min(two)..=one.max(two)).map(ProcessorId).collect();
    let request = Request { user: UserId(user), priority, ..Request::new(JobId(job), 0) };
    policy.restore(&request, &span, NOW).unwrap();
    policy.set_active(JobId(job), true);
}

/// All the jobs, put in at different slots.
fn filled(config: DqtConfig, nodes: u32, jobs: &[Asked]) -> Dqt {
    let mut policy = with_nodes(config, nodes);
    for (job, asked) in jobs.iter().enumerate() {
        put(&mut policy, nodes, job as u64, asked);
        policy.advance(u64::from(asked.0 % 4));
    }
    policy
}

/// Goes on to where the root begins a round.
fn to_next_round(policy: &mut Dqt) -> Vec<Vec<u64>> {
    let before = policy.rounds_begun();
    let mut ran = Vec::new();
    while policy.rounds_begun() == before {
        ran.extend(slots(policy, 1));
    }
    ran
}

fn count(slots: &[Vec<u64>], job: u64) -> usize {
    slots.iter().flatten().filter(|&&other| other == job).count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(250))]

    /// Any so many slots as a round has give every job the turns it asks for; without priorities
    /// and shares a round has as many as the largest TQLB says.
    #[test]
    fn every_job_has_its_turns_in_any_window_of_a_round(
        (config, nodes) in config(), jobs in asked(4),
    ) {
        let mut policy = filled(config, nodes, &jobs);
        to_next_round(&mut policy);
        let round = policy.tree()[0].round as usize;
        if !config.shares && jobs.iter().all(|job| job.3 == 1) {
            prop_assert_eq!(round, policy.max_tqlb() as usize);
        }
        let ran = slots(&mut policy, 3 * round);
        for window in ran.windows(round) {
            for (job, asked) in jobs.iter().enumerate() {
                prop_assert!(count(window, job as u64) >= usize::from(asked.3), "job {job}");
            }
        }
    }

    /// Fair-DQT: in a round exactly the turns that were asked for.
    #[test]
    fn fair_gives_each_job_exactly_its_turns(
        (config, nodes) in config(), jobs in asked(3),
    ) {
        let config = DqtConfig { fair: true, shares: false, ..config };
        let mut policy = filled(config, nodes, &jobs);
        to_next_round(&mut policy);
        for _ in 0..3 {
            let round = to_next_round(&mut policy);
            for (job, asked) in jobs.iter().enumerate() {
                prop_assert_eq!(count(&round, job as u64), usize::from(asked.3));
            }
        }
    }

    /// The columns say what runs, all nodes of a job show it in the same slots, and no job is left
    /// out. Those that were not cut begin anew as they began.
    #[test]
    fn columns_say_what_runs(
        (config, nodes) in config(), jobs in asked(3), asleep in any::<u32>(), horizon in 1..300u32,
    ) {
        let mut policy = filled(DqtConfig { horizon, ..config }, nodes, &jobs);
        let sleeps = |job: &usize| asleep >> (job % 32) & 1 == 1;
        (0..jobs.len()).filter(sleeps).for_each(|job| policy.set_active(JobId(job as u64), false));
        let columns = policy.columns();
        prop_assert!(columns.is_sorted_by(|a, b| a.processor < b.processor));
        let cycle = columns.first().map_or(0, |column| column.slots.len());
        let mut shown = BTreeSet::new();
        let mut copy = policy.clone();
        for slot in 0..cycle {
            let mut said: BTreeMap<JobId, BTreeSet<ProcessorId>> = BTreeMap::new();
            for column in &columns {
                prop_assert_eq!(column.slots.len(), cycle);
                if let Some(job) = column.slots[slot] {
                    said.entry(job).or_default().insert(column.processor);
                }
            }
            let mut ran = BTreeSet::new();
            copy.run_slot(&mut |job| assert!(ran.insert(job), "once"));
            prop_assert!(said.keys().eq(&ran));
            for (job, on) in said {
                let (one, two) = (jobs[job.0 as usize].0 % nodes, jobs[job.0 as usize].1 % nodes);
                let span: BTreeSet<_> = (one.min(two)..=one.max(two)).map(ProcessorId).collect();
                prop_assert_eq!(on, span);
                shown.insert(job.0 as usize);
            }
        }
        prop_assert!(shown.iter().copied().eq((0..jobs.len()).filter(|job| !sleeps(job))));
    }

    /// Equal TQLBs everywhere: no node is ever idle, and all jobs have equal parts.
    #[test]
    fn balanced_trees_are_fully_used(
        fair in any::<bool>(), depth in 0..4u32, length in 1..6u32, choices in any::<u64>(),
    ) {
        let nodes = 1 << depth;
        let config = DqtConfig { fair, ..DqtConfig::default() };
        let mut policy = with_nodes(config, nodes);
        let mut left = vec![length; nodes as usize];
        let mut job = 0;
        for height in (0..=depth).rev() {
            for first in (0..nodes).step_by(1 << height) {
                let rest = left[first as usize];
                let bits = (choices >> ((first + height) % 60)) as u32;
                let own = if height == 0 { rest } else { bits % (rest + 1) };
                for _ in 0..own {
                    at(&mut policy, job, first..first + (1 << height));
                    job += 1;
                }
                left[first as usize..][..1 << height].iter_mut().for_each(|rest| *rest -= own);
            }
        }
        prop_assert_eq!(policy.max_tqlb(), policy.min_tqlb());
        // They came during a round, in which a Fair-DQT has no turns for them.
        to_next_round(&mut policy);
        let columns = policy.columns();
        prop_assert_eq!(columns.len(), nodes as usize);
        prop_assert!(columns.iter().flat_map(|column| &column.slots).all(Option::is_some));
        prop_assert_eq!(columns[0].slots.len(), length as usize);
        let ran = slots(&mut policy, length as usize);
        prop_assert!((0..job).all(|job| count(&ran, job) == 1));
    }

    /// However often jobs come and go, a round of the root is no shorter than without them and no
    /// longer than with all of them.
    #[test]
    fn coming_and_going_neither_hurries_nor_delays_rounds(
        fair in any::<bool>(), nodes in 1..17u32,
        staying in asked(1), coming in asked(1), toggles in prop::collection::vec(any::<u16>(), 60),
    ) {
        let config = DqtConfig { fair, ..DqtConfig::default() };
        let longest = {
            let all: Vec<Asked> = staying.iter().chain(&coming).copied().collect();
            filled(config, nodes, &all).tree()[0].round
        };
        let mut policy = filled(config, nodes, &staying);
        let shortest = policy.tree()[0].round;
        for (index, asked) in coming.iter().enumerate() {
            put(&mut policy, nodes, (staying.len() + index) as u64, asked);
        }
        to_next_round(&mut policy);
        let (mut round, mut length) = (policy.rounds_begun(), 0);
        for toggle in toggles {
            policy.advance(1);
            length += 1;
            for bit in (0..16).filter(|bit| toggle >> bit & 1 == 1) {
                let job = JobId((staying.len() + bit % coming.len()) as u64);
                policy.set_active(job, toggle >> (bit / 2) & 1 == 0);
            }
            if policy.rounds_begun() > round {
                prop_assert!((shortest..=longest).contains(&length), "{length} slots");
                (round, length) = (policy.rounds_begun(), 0);
            }
        }
    }

    /// Users of a queue have equally many turns in its round, and every job those it asks for.
    #[test]
    fn shares_are_equal_between_users(jobs in asked(5)) {
        let mut policy = filled("dqt+shares".parse().unwrap(), 1, &jobs);
        let users: BTreeSet<u32> = jobs.iter().map(|job| job.2).collect();
        let round = policy.tree()[0].round as usize;
        for window in slots(&mut policy, 2 * round).windows(round) {
            for &user in &users {
                let own = (0..jobs.len()).filter(|&job| jobs[job].2 == user);
                let turns: usize = own.map(|job| count(window, job as u64)).sum();
                prop_assert_eq!(turns * users.len(), round);
            }
            for (job, asked) in jobs.iter().enumerate() {
                prop_assert!(count(window, job as u64) >= usize::from(asked.3));
            }
        }
    }

    /// Each move lowers the largest TQLB or the number of leaves that have it, so moves end; the
    /// jobs run on, on as many nodes as they want.
    #[test]
    fn migration_evens_out_and_ends(nodes in 1..33u32, jobs in asked(1)) {
        let mut policy = filled("dqt+migrate".parse().unwrap(), nodes, &jobs);
        let worst = |policy: &Dqt| {
            let tree = policy.tree();
            let most = policy.max_tqlb();
            (most, tree.iter().filter(|node| node.height == 0 && node.tqlb == most).count())
        };
        let mut before = worst(&policy);
        while let Some(moved) = policy.next_migration(NOW) {
            let after = worst(&policy);
            prop_assert!(after < before, "{after:?} after {before:?}");
            before = after;
            let asked = &jobs[moved.job.0 as usize];
            prop_assert_eq!(moved.processors.len() as u32, (asked.0 % nodes).abs_diff(asked.1 % nodes) + 1);
            let shown = policy.columns().into_iter();
            let on = shown.filter(|column| column.slots.contains(&Some(moved.job)));
            prop_assert!(on.map(|column| column.processor).eq(moved.processors));
        }
        let round = policy.tree()[0].round as usize;
        to_next_round(&mut policy);
        let ran = slots(&mut policy, round);
        prop_assert!((0..jobs.len()).all(|job| count(&ran, job as u64) >= 1));
    }

    /// Changes in the lighter half of the tree do not affect the other half. It must also be lighter within
    /// one round of the root: a job may arrive ahead of the front after others have had their turns and left,
    /// and then lengthens the round.
    #[test]
    fn a_partition_that_a_change_does_not_concern_goes_on(
        fair in any::<bool>(), changes in prop::collection::vec((0..4u32, 0..4u32, 0..3u64), 40),
    ) {
        let mut policy = tree(if fair { "fair-dqt" } else { "dqt" }, 8);
        at(&mut policy, 0, 0..8);
        // Turns on the left in a round: one of job 20 and three at each of three heights.
        for job in 1..13 {
            at(&mut policy, job, [4..8, 4..6, 5..6][job as usize % 3].clone());
        }
        at(&mut policy, 20, 0..4);
        policy.advance(5);
        let mut alone = policy.clone();
        let right = |slots: Vec<Vec<u64>>| -> Vec<Vec<u64>> {
            slots.into_iter().map(|slot| slot.into_iter().filter(|&job| job < 20).collect()).collect()
        };
        let mut there = Vec::new();
        for (index, (one, two, advance)) in changes.into_iter().enumerate() {
            if there.len() == 3 {
                policy.leave(there.remove(0), NOW);
            }
            let job = index as u64 + 30;
            at(&mut policy, job, one.min(two)..one.max(two) + 1);
            there.push(JobId(job));
            let ran = right(slots(&mut policy, advance as usize));
            prop_assert_eq!(ran, right(slots(&mut alone, advance as usize)));
        }
    }
}
