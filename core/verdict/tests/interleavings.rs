//! Every interleaving of small jobs.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::job::{Job, Op};

/// Steps of the daemons beyond which a path is not followed: they go on reading for ever.
fn explore(scripts: &[Vec<Op>], nodes: &[usize], most: usize) -> (usize, usize) {
    let mut seen = HashSet::new();
    let mut left = vec![(Job::new(scripts, nodes), 0)];
    let (mut states, mut verdicts) = (0, 0);
    while let Some((job, depth)) = left.pop() {
        let mut hasher = DefaultHasher::new();
        (&job, depth).hash(&mut hasher);
        if !seen.insert(hasher.finish()) {
            continue;
        }
        states += 1;
        if job.is_called_stopped() {
            assert!(job.is_stopped(), "called stopped, and is not: {job:?}");
            verdicts += 1;
            continue;
        }
        for actor in 0..job.actors() {
            let mut next = job.clone();
            let reads = actor >= scripts.len();
            let depth = depth + usize::from(reads);
            if depth <= most && next.step(actor) {
                left.push((next, depth));
            }
        }
    }
    (states, verdicts)
}

#[test]
fn two_ranks_that_exchange_messages_are_never_called_stopped() {
    let ping = vec![Op::Send(1), Op::Receive(Some(1))];
    let pong = vec![Op::Receive(Some(0)), Op::Send(0)];
    let (states, verdicts) = explore(&[ping, pong], &[0, 0], 26);
    assert!(states > 1_000 && verdicts == 0, "{states} states");
}

#[test]
fn crossed_receives_are_found_and_only_when_they_are_true() {
    let first = vec![Op::Send(1), Op::Receive(Some(1)), Op::Receive(Some(1))];
    let second = vec![Op::Receive(Some(0)), Op::Send(0), Op::Receive(Some(0))];
    let (states, verdicts) = explore(&[first, second], &[0, 0], 36);
    assert!(states > 1_000 && verdicts > 0, "{states} states, {verdicts} verdicts");
}

#[test]
fn counters_raised_without_a_frame_are_seen() {
    let first = vec![Op::Raise(1), Op::Counter];
    let second = vec![Op::Counter, Op::Raise(0)];
    let (_, verdicts) = explore(&[first.clone(), second], &[0, 0], 26);
    assert_eq!(verdicts, 0);
    let silent = vec![Op::Counter];
    let (_, verdicts) = explore(&[first, silent], &[0, 0], 36);
    assert!(verdicts > 0);
}

#[test]
fn who_waits_outside_the_job_keeps_it_from_being_stopped() {
    let first = vec![Op::Outside, Op::Send(1)];
    let second = vec![Op::Receive(None)];
    let (_, verdicts) = explore(&[first, second], &[0, 0], 26);
    assert_eq!(verdicts, 0);
}
