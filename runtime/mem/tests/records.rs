//! Multicasts of records to FIFOs and signal ports, over shared memory and UDP.

mod common;

use std::collections::VecDeque;
use std::sync::mpsc;
use std::time::Duration;

use common::{Job, Numbers, run, start};
use kumi_mem::{Context, Error, FIFO_OVERHEAD, Rights, Source, Tag, Window};

/// Near and far members, alone and several on a node.
const TREES: &[&[u32]] = &[&[1], &[3], &[1, 1, 1], &[2, 3, 1, 2]];
/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(15);

/// Some of the ranks, in any order, some twice.
fn set(ranks: u32, numbers: &mut Numbers) -> Vec<u32> {
    let mut set: Vec<u32> = (0..ranks).filter(|_| numbers.below(3) > 0).collect();
    set.reverse();
    set.extend(set.first().copied());
    set
}

/// Every rank computes the same random history of all FIFOs and does its own steps of it; each result
/// is compared with queues.
#[test]
fn a_random_history_is_that_of_queues() {
    run("a_random_history_is_that_of_queues", TREES, |context| {
        let (me, ranks) = (context.rank(), context.ranks());
        let window = context.window(2048).expect("window");
        // Not all have the same capacity.
        let capacity = |rank: u32| [40, 72, 400][rank as usize % 3];
        let fifo = window.fifo(128, capacity(me), 5).expect("fifo");
        context.barrier().expect("barrier");
        let mut numbers = Numbers(u64::from(ranks) + 50);
        let mut queues: Vec<VecDeque<(u32, Vec<u8>)>> = vec![VecDeque::new(); ranks as usize];
        let need = |length: usize| 8 + length.next_multiple_of(8);
        let mut notified = 0;
        for step in 0..if cfg!(miri) { 15 } else { 200 } {
            let from = numbers.below(u64::from(ranks)) as u32;
            if numbers.below(5) < 2 {
                let right = queues[from as usize].pop_front();
                if from == me {
                    assert_eq!(fifo.try_pop_vec().expect("pop"), right, "step {step}");
                }
                context.barrier().expect("barrier");
                continue;
            }
            let mut members = set(ranks, &mut numbers);
            let data = vec![step as u8; numbers.below(60) as usize];
            let found = (from == me).then(|| window.try_multicast_append(&members, 128, &data));
            members.sort_unstable();
            members.dedup();
            let (mut full, mut small) = (Vec::new(), false);
            for to in members {
                let queue = &mut queues[to as usize];
                let used: usize = queue.iter().map(|(_, data)| need(data.len())).sum();
                if need(data.len()) > capacity(to) {
                    small = true;
                } else if used + need(data.len()) > capacity(to) {
                    full.push(to);
                } else {
                    queue.push_back((from, data.clone()));
                    notified += u64::from(to == me);
                }
            }
            match found {
                None => {}
                Some(Ok(found)) => assert!(!small && found == full, "step {step}: {found:?}"),
                Some(Err(Error::FifoTooSmall { .. })) => assert!(small, "step {step}"),
                Some(Err(error)) => panic!("step {step}: {error}"),
            }
            context.barrier().expect("barrier");
        }
        assert_eq!(window.notified(5).expect("notified"), notified);
        context.barrier().expect("barrier");
    });
}

/// Senders mix records for one member and for many, with much too little room. At each member the
/// records of one sender come in its order, and none is lost.
fn mix(context: &Context, window: &Window<'_>) {
    const RECORDS: u32 = 40;
    let (me, ranks) = (context.rank(), context.ranks());
    // Even ranks send, odd ranks receive.
    let receivers: Vec<u32> = (0..ranks).filter(|rank| rank % 2 == 1).collect();
    if me % 2 == 0 {
        context.barrier().expect("barrier");
        let mut numbers = Numbers(u64::from(me));
        for number in 0..RECORDS {
            let mut data = number.to_le_bytes().to_vec();
            data.resize(4 + numbers.below(40) as usize, 0);
            if numbers.below(3) == 0 {
                for to in &receivers {
                    window.append(*to, 0, &data).expect("append");
                }
            } else {
                window.multicast_append(&receivers, 0, &data).expect("multicast");
            }
        }
        context.barrier().expect("barrier");
        return;
    }
    // Room for one or two.
    let fifo = window.fifo(0, 56, 0).expect("fifo");
    context.barrier().expect("barrier");
    let mut next = vec![0; ranks as usize];
    for _ in 0..RECORDS * (ranks - receivers.len() as u32) {
        let (from, data) = fifo.pop_vec().expect("pop");
        assert_eq!(data[..4], u32::to_le_bytes(next[from as usize]), "of {from}");
        next[from as usize] += 1;
    }
    context.barrier().expect("barrier");
    assert_eq!(fifo.try_pop_vec().expect("pop"), None);
}

const SENDERS: &[&[u32]] = &[&[4], &[1, 1, 1, 1], &[2, 1, 2, 1]];

#[test]
fn senders_wait_and_their_order_holds() {
    run("senders_wait_and_their_order_holds", SENDERS, |context| {
        mix(context, &context.window(4096).expect("window"));
    });
}

/// A line of memory that may hold the start of a FIFO.
#[derive(Clone)]
#[repr(C, align(64))]
struct Line([u64; 8]);

/// The same with FIFOs in the program's own memory, which is reached by frames on the same node too.
/// Then some members have it and some have not.
#[test]
fn the_order_holds_in_memory_of_the_program_too() {
    run("the_order_holds_in_memory_of_the_program_too", SENDERS, |context| {
        for mixed in [false, true] {
            if mixed && context.rank() % 4 == 1 {
                mix(context, &context.window(4096).expect("window"));
                continue;
            }
            let memory = vec![Line([0; 8]); 64].leak();
            // SAFETY: leaked; nobody looks at it but through the window.
            let window =
                unsafe { context.window_on(memory.as_mut_ptr().cast(), 4096, Rights::ALL) };
            mix(context, &window.expect("window"));
        }
    });
}

fn all_signal_all(context: &Context, signals: u32) {
    let ranks = context.ranks();
    let window = context.window(4096).expect("window");
    let (out, received) = mpsc::channel();
    let handler = move |signal: kumi_mem::Signal<'_>| {
        out.send((signal.from, signal.data.to_vec())).expect("send");
    };
    // Room for two.
    window.on_signal(256, 32, handler).expect("port");
    context.barrier().expect("barrier");
    let all: Vec<u32> = (0..ranks).collect();
    for number in 0..signals {
        window.multicast_signal(&all, 256, &number.to_le_bytes()).expect("signal");
    }
    let mut next = vec![0u32; ranks as usize];
    for _ in 0..signals * ranks {
        let (from, data) = received.recv_timeout(PATIENCE).expect("signal");
        assert_eq!(data, next[from as usize].to_le_bytes(), "of {from}");
        next[from as usize] += 1;
    }
    context.barrier().expect("barrier");
    assert!(received.try_recv().is_err(), "and no more");
}

/// All ranks signal all at the same time, through each other; handlers make room.
#[test]
fn signals_to_all_cross() {
    run("signals_to_all_cross", TREES, |context| all_signal_all(context, 40));
}

#[test]
#[cfg_attr(miri, ignore = "ranks are no processes here")]
fn stopping_ranks_at_any_moment_loses_nothing() {
    let body = |context: &Context| all_signal_all(context, 150);
    let job = Job { layout: &[2, 1, 1], ..Job::default() };
    let job = start("stopping_ranks_at_any_moment_loses_nothing", &job, body);
    job.finish_while_stopped(25, 3);
}

/// The wire loses, doubles and holds back packets.
#[test]
#[cfg_attr(miri, ignore = "ranks have one environment here")]
fn a_bad_wire_loses_no_record_and_keeps_their_order() {
    let env = &[("KUMI_FAULTS", "loss=30,double=20,late=30,seed=5")];
    let job = Job { layout: &[2, 1, 1, 1], env, ..Job::default() };
    let body = |context: &Context| all_signal_all(context, 40);
    start("a_bad_wire_loses_no_record_and_keeps_their_order", &job, body).finish_on_a_bad_wire();
}

/// Members lack room. The others have the record meanwhile, a member that gets room first need not wait
/// for the rest, and other traffic goes on, also behind messages that the sender has not received.
#[test]
#[cfg_attr(miri, ignore = "ranks have one environment here")]
fn a_full_fifo_holds_up_nobody_else() {
    let body = |context: &Context| {
        let me = context.rank();
        let window = context.window(4096).expect("window");
        // Room for one record.
        let fifo = window.fifo(0, 16, 1).expect("fifo");
        context.barrier().expect("barrier");
        let pop = |right: u8| assert_eq!(fifo.pop_vec().expect("pop"), (0, vec![right]));
        if me == 0 {
            window.append(1, 0, &[1]).expect("append");
            window.append(2, 0, &[1]).expect("append");
            let full = window.try_multicast_append(&[3, 2, 1], 0, &[2]).expect("multicast");
            assert_eq!(full, [1, 2]);
            window.multicast_append(&[1, 2, 3], 0, &[3]).expect("multicast");
            for from in [1, 2, 3] {
                for _ in 0..2 {
                    context.recv_vec(Source::Rank(from), Tag::Is(1)).expect("recv");
                }
            }
        } else {
            // More than is kept.
            context.send(0, 1, &[0; 900]).expect("send");
            context.send(0, 1, &[0; 900]).expect("send");
            if me == 3 {
                pop(2);
            } else {
                context.recv(Source::Rank(me + 1), Tag::Is(2), &mut []).expect("recv");
                pop(1);
            }
            pop(3);
            if me == 3 {
                // Among others, and while the sender waits: trees, puts, gets.
                window.multicast(&[0, 1, 2], 2048, &[7; 100], Some(2)).expect("multicast");
                window.get(0, 2048, &mut [0; 100]).expect("get");
            }
            if me > 1 {
                context.send(me - 1, 2, &[]).expect("send");
            }
        }
        if me != 3 {
            window.wait_notify(2, 1).expect("wait");
        }
        context.barrier().expect("barrier");
        assert_eq!(fifo.try_pop_vec().expect("pop"), None);
    };
    for layout in [&[4][..], &[1, 1, 1, 1], &[1, 3], &[2, 2]] {
        let env = &[("KUMI_UNEXPECTED_BYTES", "1000")];
        let job = Job { layout, env, ..Job::default() };
        start("a_full_fifo_holds_up_nobody_else", &job, body).finish();
    }
}

#[test]
fn what_is_wrong_at_one_is_told_and_the_others_have_it() {
    let layouts: &[&[u32]] = &[&[3], &[1, 1, 1], &[1, 2]];
    run("what_is_wrong_at_one_is_told_and_the_others_have_it", layouts, |context| {
        let me = context.rank();
        let window = context.window(FIFO_OVERHEAD + 1024).expect("window");
        // The last has none at this place, the second a small one.
        let (at, size) = if me == 2 { (64, 64) } else { (0, [64, 16][me as usize]) };
        let fifo = window.fifo(at, size, 0).expect("fifo");
        context.barrier().expect("barrier");
        let pop = |right: &[u8]| assert_eq!(fifo.pop_vec().expect("pop"), (0, right.to_vec()));
        if me == 0 {
            let wrong = window.multicast_append(&[0, 1, 3], 0, b"x");
            assert!(matches!(wrong, Err(Error::BadRank { rank: 3, ranks: 3 })), "{wrong:?}");
            let long = vec![0; context.max_record() + 1];
            let wrong = window.multicast_append(&[0, 1], 0, &long);
            assert!(matches!(wrong, Err(Error::RecordTooLong { .. })), "{wrong:?}");
            let wrong = window.try_multicast_signal(&[0, 1], 0, b"x");
            assert!(matches!(wrong, Err(Error::NoFifo { .. })), "{wrong:?}");
            let none = window.multicast_append(&[2, 1, 0], 0, b"first");
            assert!(matches!(none, Err(Error::NoFifo { rank: 2, offset: 0 })), "{none:?}");
            pop(b"first");
            context.barrier().expect("barrier");
            let small = window.try_multicast_append(&[1, 0], 0, b"too long for it");
            assert!(matches!(small, Err(Error::FifoTooSmall { rank: 1, length: 15, .. })));
            pop(b"too long for it");
            window.append(0, 0, &[0; 56]).expect("append");
            let own = window.multicast_append(&[1, 0], 0, b"");
            assert!(matches!(own, Err(Error::FifoFull { rank: 0, offset: 0 })), "{own:?}");
            assert_eq!(window.try_multicast_append(&[0], 0, b"").expect("multicast"), [0]);
            pop(&[0; 56]);
            assert!(window.try_multicast_append(&[], 0, b"x").expect("nobody").is_empty());
            window.multicast_append(&[1], 0, b"second").expect("multicast");
            let gone = window.multicast_append(&[0, 1], 0, b"third");
            assert!(matches!(gone, Err(Error::NoFifo { rank: 1, offset: 0 })), "{gone:?}");
            pop(b"third");
        } else if me == 1 {
            window.wait_notify(0, 1).expect("wait");
            pop(b"first");
            context.barrier().expect("barrier");
            window.wait_notify(0, 2).expect("wait");
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(window.notified(0).expect("notified"), 2, "and nothing else came");
            drop(fifo);
        } else {
            context.barrier().expect("barrier");
        }
        context.barrier().expect("barrier");
    });
}

/// Sizes around the longest record that fits a frame with members; more members than one tree has;
/// short frames; and frames shortened by encryption.
#[test]
#[cfg_attr(miri, ignore = "its jobs have more than three ranks")]
fn the_longest_record_reaches_a_large_set() {
    let body = |context: &Context| {
        let (ranks, most) = (context.ranks(), context.max_record());
        let window = context.window(16 * 1024).expect("window");
        let most = most.min(10_000);
        let fifo = window.fifo(0, 12 * 1024, 0).expect("fifo");
        context.barrier().expect("barrier");
        let all: Vec<u32> = (0..ranks).collect();
        let lengths = [0, most, most - 3, most - 4, most - 5, most - 8, most - 9, most - 100];
        for (round, length) in lengths.into_iter().enumerate() {
            let root = (round as u32 + 1) % ranks;
            let data: Vec<u8> = (0..length).map(|at| (at + round) as u8).collect();
            if context.rank() == root {
                window.multicast_append(&all, 0, &data).expect("multicast");
            }
            assert!(fifo.pop_vec().expect("pop") == (root, data), "{length}");
            context.barrier().expect("barrier");
        }
    };
    let name = "the_longest_record_reaches_a_large_set";
    for layout in [&[2][..], &[1, 1, 2], &[1, 66, 1]] {
        start(name, &Job { layout, ..Job::default() }, body).finish();
    }
    let layout = &[1, 2, 1, 1, 1];
    start(name, &Job { layout, encrypted: true, ..Job::default() }, body).finish();
    start(name, &Job { layout, max_datagram: 576, ..Job::default() }, body).finish();
}
