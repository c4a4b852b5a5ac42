//! Waits that ask the node's page (SS-Wait), by counts, and programs' reads of the page.
#![cfg(not(miri))] // Ranks have one environment and no pages there.

mod common;

use std::time::{Duration, Instant};

use common::{Job, start};
use kumi_mem::{Context, RankState, Source, Tag};
use kumi_net::disclosure::Turn;

/// Waits that ended while they spun, and those that blocked: unscheduled, others, bound.
type Counts = [u64; 4];

fn counts(context: &Context) -> Counts {
    let all = context.counters();
    let of = |wanted| all.iter().find(|(name, _)| *name == wanted).expect("counter").1;
    let names = ["waits_spun", "blocked_unscheduled", "blocked_others", "blocked_bound"];
    let counts = names.map(of);
    assert_eq!(counts[1..].iter().sum::<u64>(), of("waits_blocked"), "each has one reason");
    counts
}

fn compute(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

/// Each rank in turn lets the other wait.
fn converse(context: &Context) -> Counts {
    let (me, other) = (context.rank(), 1 - context.rank());
    for round in 0..8 {
        if round % 2 == me {
            compute(Duration::from_millis(4));
            context.send(other, 0, b"go").expect("send");
        } else {
            let from = Source::Rank(other);
            context.recv(from, Tag::Any, &mut [0; 2]).expect("recv");
        }
    }
    counts(context)
}

fn ask(name: &str, spin: &str, pages: Option<(Turn, bool)>, check: impl Fn(Counts) + Sync) {
    for layout in [&[2][..], &[1, 1]] {
        // As many processors as ranks, whatever this machine has.
        let env = &[("KUMI_SPIN", spin), ("KUMI_PROCESSORS", "64")];
        let job = Job { layout, env, pages, ..Job::default() };
        start(name, &job, |context: &Context| check(converse(context))).finish();
    }
}

#[test]
fn who_waits_for_what_does_not_run_blocks_at_once() {
    ask(
        "who_waits_for_what_does_not_run_blocks_at_once",
        "adaptive",
        Some((Turn::None, false)),
        |c| {
            assert!(c[1] > 0 && c[2..] == [0, 0], "{c:?}");
        },
    );
}

#[test]
fn who_keeps_others_from_the_processor_blocks_at_once() {
    ask(
        "who_keeps_others_from_the_processor_blocks_at_once",
        "adaptive",
        Some((Turn::Shared, true)),
        |c| {
            assert!(c[2] > 0 && [c[1], c[3]] == [0, 0], "{c:?}");
        },
    );
}

#[test]
fn who_has_the_processor_alone_spins_to_its_bound() {
    // Others want it too, but this slot is the own job's.
    ask(
        "who_has_the_processor_alone_spins_to_its_bound",
        "adaptive",
        Some((Turn::Own, true)),
        |c| {
            assert!(c[3] > 0 && c[1..3] == [0, 0], "{c:?}");
        },
    );
}

#[test]
fn who_leaves_the_processor_to_others_spins_briefly() {
    ask(
        "who_leaves_the_processor_to_others_spins_briefly",
        "adaptive",
        Some((Turn::Filled, false)),
        |c| {
            assert!(c[2] > 0 && [c[1], c[3]] == [0, 0], "{c:?}");
        },
    );
}

#[test]
fn other_ways_of_waiting_do_not_ask() {
    for spin in ["blind", "30", "0"] {
        ask("other_ways_of_waiting_do_not_ask", spin, Some((Turn::None, true)), |c| {
            assert!(c[3] > 0 && c[1..3] == [0, 0], "{c:?}");
        });
    }
}

#[test]
fn who_may_spin_for_ever_does() {
    ask("who_may_spin_for_ever_does", "infinite", Some((Turn::None, true)), |c| {
        assert!(c[0] > 0 && c[1..] == [0, 0, 0], "{c:?}");
    });
}

#[test]
fn without_pages_the_bound_decides() {
    ask("without_pages_the_bound_decides", "adaptive", None, |c| {
        assert!(c[3] > 0 && c[1..3] == [0, 0], "{c:?}");
    });
}

#[test]
fn programs_read_what_is_disclosed() {
    let body = |context: &Context| {
        let machine = context.machine().expect("pages");
        assert_eq!(machine.nodes(), 2);
        let own = machine.node(context.node()).expect("own node");
        assert_eq!((own.processors, own.runnable), (64, 65));
        assert_eq!(machine.node(1 - context.node()), None, "never told");
        assert_eq!(machine.node(2), None);
        assert!(machine.scheduled());
        assert_eq!(machine.jobs()[0].job, Some(8));
        // Of itself it knows at once, of rank 2 nothing, of rank 1 what its node said or what it does.
        let me = machine.rank(context.rank()).expect("me");
        assert_eq!((me.state, me.age_us, me.node), (RankState::Running, Some(0), context.node()));
        if context.rank() == 0 {
            let [one, two] = [1, 2].map(|rank| machine.rank(rank).expect("rank"));
            assert_eq!((one.node, two.node), (1, 1));
            assert_eq!((one.state, two.state), (RankState::Idle, RankState::Unknown));
            assert!(one.age_us.is_some() && two.age_us.is_none());
        }
        assert_eq!((machine.rank(3), machine.runs(3)), (None, None));
        assert_eq!(machine.runs(2), Some(true));
        context.barrier().expect("barrier");
    };
    let job = Job { layout: &[1, 2], pages: Some((Turn::Shared, false)), ..Job::default() };
    start("programs_read_what_is_disclosed", &job, body).finish();
}

#[test]
fn without_a_daemon_nothing_is_disclosed() {
    let job = Job { layout: &[1], ..Job::default() };
    let body = |context: &Context| assert!(context.machine().is_none());
    start("without_a_daemon_nothing_is_disclosed", &job, body).finish();
}
