//! A job's state is whole in its ranks' files: real processes stop anywhere, and others go on with copies of the files,
//! at other addresses. Nothing is lost, and nothing comes twice.
#![cfg(not(miri))] // There is one process.

mod job;
mod network;
mod program;
mod random;

use job::{Job, RANKS, Setting, State, wait_for};
use network::Network;
use program::Plan;
use random::Random;
use std::rc::Rc;

/// Frames from each rank to each other.
const FRAMES: u64 = 1_500;
/// Times that the job moves.
const MOVES: u64 = 8;
const ALL: u64 = FRAMES * (RANKS * (RANKS - 1)) as u64;

/// Each pair of ranks.
fn pairs() -> impl Iterator<Item = (u32, u32)> {
    (0..RANKS).flat_map(|from| (0..RANKS).map(move |to| (from, to))).filter(|(from, to)| from != to)
}

/// What the states of stopped ranks say of each pair, and the number of frames under way.
fn check_cut(states: &[State]) -> u64 {
    let mut under_way = 0;
    for (from, to) in pairs() {
        let (sent, taken) = (states[from as usize].sent(to), states[to as usize].taken(from));
        assert!(taken <= sent && sent <= FRAMES, "{from} to {to}: {sent} sent, {taken} taken");
        under_way += sent - taken;
    }
    under_way
}

/// Stops all ranks, in an order and at instants that the seed chooses. With `early`, the others run on until the first one
/// certainly lacks a frame, if it lacks any. Whether it does.
fn stop_all(job: &Job, random: &mut Random, early: bool) -> bool {
    let mut order: Vec<u32> = (0..RANKS).collect();
    order.sort_by_cached_key(|_| random.next());
    let first = order.remove(0);
    job.stop(first);
    let taken = job.state(first);
    let senders = |from: &u32| *from != first && taken.taken(*from) < FRAMES;
    let senders: Vec<u32> = (0..RANKS).filter(senders).collect();
    let certain = early && !senders.is_empty();
    if certain {
        wait_for("a frame to a rank that is stopped", || {
            senders.iter().any(|from| job.state(*from).sent(first) > taken.taken(*from))
        });
    }
    for rank in order {
        (0..random.below(20_000)).for_each(|turn| _ = std::hint::black_box(turn));
        job.stop(rank);
    }
    certain
}

/// Runs the job to its end, which it reaches after some moves.
fn moves(test: &'static str, seed: u64, encrypted: bool, faults: &'static str) {
    if program::is_rank() {
        program::run();
    }
    let plan = Plan { seed, frames: FRAMES };
    moved(Setting { test, plan, encrypted, faults, network: None });
}

/// As [`moves`], and the first rank of each node has AF_XDP.
fn moves_with_af_xdp(test: &'static str, seed: u64, encrypted: bool, faults: &'static str) {
    if program::is_rank() {
        program::run();
    }
    // SAFETY: no pointers.
    if unsafe { libc::geteuid() } != 0 {
        return kumi_skip::skip(test, "only root can make network namespaces");
    }
    let network = match Network::make(MOVES as u8 + 1) {
        Ok(network) => Some(Rc::new(network)),
        Err(reason) => return kumi_skip::skip(test, &reason),
    };
    moved(Setting { test, plan: Plan { seed, frames: FRAMES }, encrypted, faults, network });
}

fn moved(setting: Setting) {
    let (mut random, mut by_xdp) = (Random(setting.plan.seed), 0);
    let has_xdp = setting.network.is_some();
    let mut job = Job::start(setting, 1, None);
    for place in 2..2 + MOVES {
        // So many may pass before the next move: some are always left.
        let least = ALL * (place - 2) / (MOVES + 1) + random.below(ALL / (2 * MOVES));
        wait_for("progress", || {
            job.check();
            job.taken() >= least
        });
        let certain = stop_all(&job, &mut random, place % 2 == 0);
        let copies = job.copy();
        let under_way = check_cut(&job.states());
        assert!(
            !certain || under_way > 0,
            "place {place}: a rank lacks a frame, and none is under way"
        );
        by_xdp += job.counted("xdp_in");
        let setting = job.end();
        job = Job::start(setting, place as u8, Some(&copies));
    }
    wait_for("all frames", || {
        job.check();
        job.taken() >= ALL
    });
    wait_for("equal counters", || job.counted("sent") == ALL && job.counted("delivered") == ALL);
    job.check();
    assert_eq!(check_cut(&job.states()), 0);
    assert_eq!(by_xdp > 0, has_xdp, "frames by AF_XDP");
    job.end();
}

#[test]
fn ranks_go_on_elsewhere() {
    moves("ranks_go_on_elsewhere", 1, false, "loss=50,double=20,late=50,seed=1");
}

#[test]
fn ranks_with_encrypted_packets_go_on_elsewhere() {
    let test = "ranks_with_encrypted_packets_go_on_elsewhere";
    moves(test, 2, true, "loss=50,double=20,late=50,seed=2");
}

#[test]
fn ranks_go_on_elsewhere_when_a_third_of_all_packets_is_lost() {
    let test = "ranks_go_on_elsewhere_when_a_third_of_all_packets_is_lost";
    moves(test, 3, false, "loss=330,double=50,late=100,seed=3");
}

#[test]
fn ranks_with_af_xdp_go_on_elsewhere() {
    moves_with_af_xdp(
        "ranks_with_af_xdp_go_on_elsewhere",
        4,
        false,
        "loss=50,double=20,late=50,seed=4",
    );
}

#[test]
fn ranks_with_af_xdp_and_encrypted_packets_go_on_elsewhere() {
    let test = "ranks_with_af_xdp_and_encrypted_packets_go_on_elsewhere";
    moves_with_af_xdp(test, 5, true, "loss=50,double=20,late=50,seed=5");
}
