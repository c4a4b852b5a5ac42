//! Several threads of a program use one context.

mod common;

use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread::scope;

use common::{Aligned, Job, Numbers, run, start};
use kumi_mem::{
    Completion, CompletionQueue, Context, PutOptions, Report, Rights, Source, Tag, TypedWindow,
    Window,
};

const BOTH: &[&[u32]] = &[&[2], &[1, 1], &[2, 2]];
/// Threads of each rank.
const THREADS: i32 = 4;

/// What a program shares between its threads.
fn shareable<T: Sync + Send>() {}

#[test]
fn what_a_program_shares_can_be_shared() {
    shareable::<Context>();
    shareable::<Window<'_>>();
    shareable::<TypedWindow<'_, u64>>();
    shareable::<Completion<'_>>();
    shareable::<CompletionQueue<'_>>();
}

/// A thread waits for what another thread of the same rank sends.
#[test]
fn a_thread_that_waits_lets_another_one_send() {
    const ROUNDS: u32 = if cfg!(miri) { 4 } else { 50 };
    let layouts: &[&[u32]] = &[&[1], &[2], &[1, 1]];
    run("a_thread_that_waits_lets_another_one_send", layouts, |context| {
        let me = context.rank();
        scope(|threads| {
            for tag in 0..THREADS {
                threads.spawn(move || {
                    for round in 0..ROUNDS {
                        let (_, data) =
                            context.recv_vec(Source::Rank(me), Tag::Is(tag)).expect("receive");
                        assert_eq!(data, round.to_ne_bytes());
                    }
                });
            }
            for round in 0..ROUNDS {
                for tag in 0..THREADS {
                    context.send(me, tag, &round.to_ne_bytes()).expect("send");
                }
            }
        });
        context.barrier().expect("barrier");
    });
}

/// Each thread plays ping-pong with its partner at the next rank, in both directions, with long and short messages.
fn threads_talk(context: &Context) {
    let (me, ranks) = (context.rank(), context.ranks());
    let (next, previous) = ((me + 1) % ranks, (me + ranks - 1) % ranks);
    let (rounds, long) = if cfg!(miri) { (4, 5_000) } else { (60, 50_000) };
    scope(|threads| {
        for tag in 0..THREADS {
            threads.spawn(move || {
                let mut numbers = Numbers(tag.cast_unsigned().into());
                for round in 0..rounds {
                    let length = numbers.below(if round % 10 == 0 { long } else { 100 });
                    let data = vec![(tag * 50 + round) as u8; length as usize];
                    // Nobody receives before all have begun to send, so that threads wait for room, too.
                    let sent = context.send_owned(next, tag, data.clone()).expect("begun");
                    let (_, got) =
                        context.recv_vec(Source::Rank(previous), Tag::Is(tag)).expect("receive");
                    assert!(got == data, "thread {tag}, round {round}");
                    sent.wait().expect("sent");
                    context.send(previous, 100 + tag, &data).expect("send");
                    let (_, back) =
                        context.recv_vec(Source::Rank(next), Tag::Is(100 + tag)).expect("receive");
                    assert!(back == data);
                }
            });
        }
    });
    context.barrier().expect("barrier");
}

#[test]
fn threads_talk_with_theirs_at_other_ranks() {
    run("threads_talk_with_theirs_at_other_ranks", BOTH, threads_talk);
}

/// Blocking at once, and over a bad wire.
#[test]
#[cfg_attr(miri, ignore = "ranks have one environment here")]
fn threads_talk_whatever_the_waits_and_the_wire() {
    let name = "threads_talk_whatever_the_waits_and_the_wire";
    let env: &[(&str, &str)] = &[("KUMI_SPIN", "0")];
    start(name, &Job { layout: &[1, 1], env, ..Job::default() }, threads_talk).finish();
    let env: &[(&str, &str)] = &[("KUMI_FAULTS", "loss=30,double=30,late=20,seed=8")];
    let job = Job { layout: &[1, 1], env, ..Job::default() };
    start(name, &job, threads_talk).finish_on_a_bad_wire();
}

/// All threads do one-sided operations at the same time, each on bytes of its own and all on one counter.
#[test]
fn threads_use_one_window() {
    run("threads_use_one_window", BOTH, |context| {
        let (me, ranks) = (context.rank(), context.ranks());
        let window = context.window(64 * 1024).expect("window");
        let (window, rounds) = (&window, if cfg!(miri) { 3 } else { 60u64 });
        scope(|threads| {
            for thread in 0..THREADS as u32 {
                threads.spawn(move || {
                    let place = (1 + (me * THREADS as u32 + thread) as usize) * 512;
                    for round in 0..rounds {
                        let to = (me + round as u32) % ranks;
                        let data = [(me * 10 + thread) as u8 ^ round as u8; 400];
                        window.put(to, place, &data).expect("put");
                        let mut back = [0; 400];
                        window.get(to, place, &mut back).expect("get");
                        assert_eq!(back, data, "thread {thread} of rank {me}");
                        window.fetch_add(0, 8, 1).expect("add");
                        let put = window.put_owned(to, place, vec![7; 400], PutOptions::default());
                        put.expect("begun").wait().expect("put");
                        window.put(to, place, &[9; 400]).expect("put");
                        context.flush(to).expect("flush");
                        window.get(to, place, &mut back).expect("get");
                        assert_eq!(back, [9; 400]);
                    }
                });
            }
        });
        context.barrier().expect("barrier");
        let all = u64::from(ranks) * THREADS as u64 * rounds;
        assert_eq!(window.fetch_add(0, 8, 0).expect("read"), all);
        context.barrier().expect("barrier");
    });
}

/// A notification comes behind puts by frames to the same rank, also while another thread asks for a proof of all puts.
#[test]
fn a_flush_of_one_thread_takes_no_proof_from_another() {
    run("a_flush_of_one_thread_takes_no_proof_from_another", &[&[2]], |context| {
        const ROUNDS: u64 = if cfg!(miri) { 20 } else { 2_000 };
        let open = context.window(64).expect("window");
        let mut memory = Aligned([0; 64]);
        let body = |own: &kumi_mem::Window<'_>| {
            if context.rank() == 1 {
                for round in 1..=ROUNDS {
                    open.wait_notify(0, round).expect("notified");
                    let seen = own.load_u64(0).expect("inside");
                    assert!(seen >= round, "{seen} after notification {round}");
                }
                return;
            }
            let ended = AtomicBool::new(false);
            scope(|threads| {
                threads.spawn(|| {
                    while !ended.load(SeqCst) {
                        context.flush(1).expect("flush");
                    }
                });
                for round in 1..=ROUNDS {
                    own.put(1, 0, &round.to_ne_bytes()).expect("put");
                    open.put_notify(1, 0, &[], 0).expect("notify");
                }
                ended.store(true, SeqCst);
            });
        };
        context.with_window_on(&mut memory.0, Rights::ALL, body).expect("window");
        context.barrier().expect("barrier");
    });
}

/// A thread waits for an answer that is behind more messages than are kept unread. Other threads' waits come and go.
#[test]
#[cfg_attr(miri, ignore = "ranks have one environment here")]
fn an_answer_behind_unread_messages_comes_though_others_wait() {
    const MESSAGES: usize = 60;
    let body = |context: &Context| {
        let window = context.window(64).expect("window");
        match context.rank() {
            0 => {
                let queue = context.completion_queue().expect("queue");
                let ended = AtomicBool::new(false);
                scope(|threads| {
                    threads.spawn(|| {
                        let mut count = 0;
                        while !ended.load(SeqCst) || count < 2_000 {
                            context.send(2, 2, &[]).expect("send");
                            context.recv(Source::Rank(2), Tag::Is(2), &mut []).expect("receive");
                            count += 1;
                        }
                        context.send(2, 3, &[]).expect("send");
                    });
                    context.recv(Source::Rank(1), Tag::Is(1), &mut []).expect("all are sent");
                    for word in 0..20 {
                        let atomic = kumi_mem::Atomic::Add64(1);
                        let report = Report::Queue(&queue, word);
                        window.start_atomic(1, 0, atomic, report).expect("begun");
                        assert_eq!(queue.wait().expect("entry").word, word);
                    }
                    for _ in 0..MESSAGES {
                        context.recv_vec(Source::Rank(1), Tag::Is(9)).expect("receive");
                    }
                    ended.store(true, SeqCst);
                });
            }
            1 => {
                context.send(0, 1, &[]).expect("send");
                for _ in 0..MESSAGES {
                    context.send(0, 9, &[1; 1000]).expect("send");
                }
            }
            _ => loop {
                let (status, _) = context.recv_vec(Source::Rank(0), Tag::Any).expect("receive");
                if status.tag == 3 {
                    break;
                }
                context.send(0, 2, &[]).expect("send");
            },
        }
        context.barrier().expect("barrier");
    };
    let env: &[(&str, &str)] = &[("KUMI_UNEXPECTED_BYTES", "20000")];
    let name = "an_answer_behind_unread_messages_comes_though_others_wait";
    start(name, &Job { layout: &[1, 1, 1], env, ..Job::default() }, body).finish();
}

/// A thread waits for a notification and another one for a completion queue, while a third one communicates.
#[test]
fn threads_wait_for_different_things() {
    const ROUNDS: u64 = if cfg!(miri) { 10 } else { 100 };
    run("threads_wait_for_different_things", BOTH, |context| {
        let (me, ranks) = (context.rank(), context.ranks());
        let next = (me + 1) % ranks;
        let window = &context.window(4096).expect("window");
        let queue = &context.completion_queue().expect("queue");
        let told = AtomicU64::new(0);
        // One is under way at any time until the last, so that the queue's wait never fails.
        let begin = |word| {
            window.start_atomic(next, 64, kumi_mem::Atomic::Add64(1), Report::Queue(queue, word))
        };
        begin(0).expect("begun");
        scope(|threads| {
            threads.spawn(|| {
                for count in 1..=ROUNDS {
                    window.wait_notify(1, count).expect("notified");
                }
            });
            threads.spawn(|| {
                for _ in 0..ROUNDS {
                    let entry = queue.wait().expect("entry");
                    told.fetch_add(entry.word, SeqCst);
                    if entry.word < ROUNDS - 1 {
                        begin(entry.word + 1).expect("begun");
                    }
                }
            });
            for round in 0..ROUNDS {
                window.put_notify(next, 128, &round.to_ne_bytes(), 1).expect("put");
                context.send(next, 5, &round.to_ne_bytes()).expect("send");
                let mut got = [0; 8];
                context.recv(Source::Any, Tag::Is(5), &mut got).expect("receive");
                assert_eq!(u64::from_ne_bytes(got), round);
            }
        });
        assert_eq!(told.load(SeqCst), ROUNDS * (ROUNDS - 1) / 2);
        context.barrier().expect("barrier");
    });
}

/// The context ends in another thread than it began in, after threads have come and gone.
#[test]
fn threads_come_and_go() {
    run("threads_come_and_go", &[&[1, 1]], |context| {
        for round in 0..if cfg!(miri) { 4 } else { 30 } {
            scope(|threads| {
                let other = 1 - context.rank();
                threads.spawn(move || context.send(other, round, &[1; 3000]).expect("send"));
                threads.spawn(move || {
                    context.recv_vec(Source::Any, Tag::Is(round)).expect("receive");
                });
            });
        }
        context.barrier().expect("barrier");
    });
}
