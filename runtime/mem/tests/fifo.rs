//! FIFOs between real processes, over shared memory and UDP.

mod common;

use std::collections::VecDeque;

use common::{Job, Numbers, closed_gate, counter, fewer, run, start};
use kumi_mem::{Context, Error, FIFO_OVERHEAD, Fifo, FifoRecord, Rights, Source, Tag};

const BOTH: &[&[u32]] = &[&[2], &[1, 1]];
/// Near and far senders of one receiver.
const MIXED: &[&[u32]] = &[&[1], &[4], &[2, 1], &[1, 1, 1], &[3, 2]];

fn record(from: u32, number: u32, most: usize) -> Vec<u8> {
    let mut numbers = Numbers(u64::from(from) << 32 | u64::from(number));
    let length = 8 + numbers.below(most as u64 - 8) as usize;
    let mut data: Vec<u8> = (0..length).map(|_| numbers.next() as u8).collect();
    data[..4].copy_from_slice(&number.to_le_bytes());
    data
}

#[test]
fn all_ranks_append_to_all_and_none_is_lost() {
    const RECORDS: u32 = fewer(60, 6) as u32;
    run("all_ranks_append_to_all_and_none_is_lost", MIXED, |context| {
        let (me, ranks) = (context.rank(), context.ranks());
        let window = context.window(16 * 1024).expect("window");
        // Not at the start, and with room for two or three of the longest records.
        let fifo = window.fifo(64, 1000, 3).expect("fifo");
        context.barrier().expect("barrier");
        let (mut sent, mut next) = (vec![0; ranks as usize], vec![0; ranks as usize]);
        let mut missing = ranks * RECORDS;
        while missing > 0 || sent.iter().any(|sent| *sent < RECORDS) {
            for to in 0..ranks {
                let number = sent[to as usize];
                let data = record(me, number, 300);
                if number < RECORDS && window.try_append(to, 64, &data).expect("append") {
                    sent[to as usize] += 1;
                }
            }
            while let Some((from, data)) = fifo.try_pop_vec().expect("pop") {
                let number = next[from as usize];
                assert!(data == record(from, number, 300), "record {number} of {from}");
                next[from as usize] += 1;
                missing -= 1;
            }
        }
        context.barrier().expect("barrier");
        assert_eq!(fifo.try_pop_vec().expect("pop"), None);
        assert_eq!(window.notified(3).expect("notified"), u64::from(ranks * RECORDS));
        context.barrier().expect("barrier");
    });
}

#[test]
fn senders_wait_while_it_is_full() {
    const RECORDS: u32 = if cfg!(miri) { 6 } else { 150 };
    run("senders_wait_while_it_is_full", &[&[4], &[1, 1], &[2, 2], &[1, 3]], |context| {
        let (me, ranks) = (context.rank(), context.ranks());
        let window = context.window(4096).expect("window");
        if me > 0 {
            context.barrier().expect("barrier");
            for number in 0..RECORDS {
                window.append(0, 128, &record(me, number, 90)).expect("append");
            }
            context.barrier().expect("barrier");
            return;
        }
        // Room for one record only, now and then for two.
        let fifo = window.fifo(128, 104, 0).expect("fifo");
        context.barrier().expect("barrier");
        let mut next = vec![0; ranks as usize];
        let mut buffer = [0; 90];
        for _ in 0..RECORDS * (ranks - 1) {
            let FifoRecord { from, len } = fifo.pop(&mut buffer).expect("pop");
            assert!(buffer[..len] == record(from, next[from as usize], 90));
            next[from as usize] += 1;
        }
        assert_eq!(next[1..], vec![RECORDS; ranks as usize - 1]);
        context.barrier().expect("barrier");
        assert_eq!(fifo.try_pop(&mut buffer).expect("pop"), None);
    });
}

/// Every rank computes the same random history of all FIFOs and does its own steps of it; each result is
/// compared with a queue.
#[test]
fn a_random_history_is_that_of_queues() {
    const CAPACITIES: [usize; 3] = [16, 72, 400];
    run("a_random_history_is_that_of_queues", &[&[3], &[1, 1, 1], &[2, 1]], |context| {
        let (me, ranks) = (context.rank(), context.ranks());
        let window = context.window(8192).expect("window");
        let places = [0, 1024, 4096];
        let fifos =
            [0, 1, 2].map(|i| window.fifo(places[i], CAPACITIES[i], i as u32).expect("fifo"));
        context.barrier().expect("barrier");
        let mut numbers = Numbers(u64::from(ranks));
        let mut queues: Vec<VecDeque<(u32, Vec<u8>)>> = vec![VecDeque::new(); 3 * ranks as usize];
        for step in 0..if cfg!(miri) { 20 } else { 250 } {
            let (owner, which) =
                (numbers.below(u64::from(ranks)) as u32, numbers.below(3) as usize);
            let queue = &mut queues[owner as usize * 3 + which];
            if numbers.below(5) < 2 {
                let right = queue.pop_front();
                if owner == me {
                    assert_eq!(fifos[which].try_pop_vec().expect("pop"), right, "step {step}");
                }
            } else {
                let from = numbers.below(u64::from(ranks)) as u32;
                let length = numbers.below(120) as usize;
                let data = vec![step as u8; length];
                let need = |length: usize| 8 + length.next_multiple_of(8);
                let used: usize = queue.iter().map(|(_, data)| need(data.len())).sum();
                let possible = need(length) <= CAPACITIES[which];
                let fits = used + need(length) <= CAPACITIES[which];
                if from == me {
                    match window.try_append(owner, places[which], &data) {
                        Ok(taken) => assert!(possible && taken == fits, "step {step}: {taken}"),
                        Err(Error::FifoTooSmall { .. }) => assert!(!possible, "step {step}"),
                        Err(error) => panic!("step {step}: {error}"),
                    }
                }
                if fits {
                    queue.push_back((from, data));
                }
            }
            context.barrier().expect("barrier");
        }
    });
}

#[test]
fn what_is_wrong_is_refused_with_its_own_error() {
    run("what_is_wrong_is_refused_with_its_own_error", BOTH, |context| {
        let (me, other) = (context.rank(), 1 - context.rank());
        let window = context.window(8192).expect("window");
        let bad = |offset, capacity, notify| window.fifo(offset, capacity, notify).map(drop);
        assert!(matches!(bad(8, 64, 0), Err(Error::BadFifo { .. })));
        assert!(matches!(bad(0, 8, 0), Err(Error::BadFifo { .. })));
        assert!(matches!(bad(0, 65, 0), Err(Error::BadFifo { .. })));
        assert!(matches!(bad(0, 64, 64), Err(Error::BadNotify { notify: 64 })));
        assert!(matches!(bad(0, 8192, 0), Err(Error::OutOfBounds { .. })));
        let fifo = window.fifo(1024, 512, 0).expect("fifo");
        window.on_signal(4096, 64, |_| {}).expect("port");
        for offset in [768, 1024, 1536 + 128] {
            assert!(matches!(bad(offset, 64, 0), Err(Error::BadFifo { .. })), "{offset}");
        }
        drop(window.fifo(1792, 64, 0).expect("just behind it"));
        context.barrier().expect("barrier");
        for to in [me, other] {
            for offset in [0, 64, 1000, 1792, 4096, 8191, 8192, usize::MAX & !63] {
                let found = window.append(to, offset, b"x");
                assert!(matches!(found, Err(Error::NoFifo { .. })), "{to} {offset}: {found:?}");
            }
            let found = window.signal(to, 1024, b"x");
            assert!(matches!(found, Err(Error::NoFifo { .. })), "{found:?}");
            let most = context.max_record();
            let found = window.append(to, 1024, &vec![0; most + 1]);
            assert!(matches!(found, Err(Error::RecordTooLong { .. })), "{found:?}");
            let found = window.append(to, 1024, &[0; 505]);
            assert!(matches!(found, Err(Error::FifoTooSmall { length: 505, .. })), "{found:?}");
        }
        assert!(matches!(window.append(2, 1024, b"x"), Err(Error::BadRank { rank: 2, ranks: 2 })));
        context.barrier().expect("barrier");
        assert_eq!(fifo.try_pop_vec().expect("pop"), None, "nothing was appended");
        // To itself: full is an error, since nobody would pop.
        window.append(me, 1024, &[1; 504]).expect("the longest that fits");
        let found = window.append(me, 1024, b"");
        assert!(matches!(found, Err(Error::FifoFull { .. })), "{found:?}");
        let found = fifo.try_pop(&mut [0; 503]);
        assert!(matches!(found, Err(Error::ShortBuffer { needed: 504, given: 503 })), "{found:?}");
        assert_eq!(fifo.pop_vec().expect("pop"), (me, vec![1; 504]), "it was still there");
        context.barrier().expect("barrier");
    });
}

#[test]
fn the_longest_record_crosses() {
    run("the_longest_record_crosses", &[&[1], &[2], &[1, 1]], |context| {
        let most = context.max_record();
        let window = context.window(256 * 1024).expect("window");
        let fifo = window.fifo(0, 128 * 1024, 0).expect("fifo");
        context.barrier().expect("barrier");
        let next = (context.rank() + 1) % context.ranks();
        let data: Vec<u8> = (0..most).map(|at| at as u8).collect();
        window.append(next, 0, &data).expect("append");
        assert!(fifo.pop_vec().expect("pop").1 == data);
        context.barrier().expect("barrier");
    });
}

#[test]
fn a_fifo_needs_no_right_to_write() {
    run("a_fifo_needs_no_right_to_write", BOTH, |context| {
        let other = 1 - context.rank();
        let rights = Rights { write: false, read: false, atomic: false };
        let window = context.window_with(4096, rights).expect("window");
        let fifo = window.fifo(0, 64, 0).expect("fifo");
        context.barrier().expect("barrier");
        window.append(other, 0, b"allowed").expect("append");
        assert_eq!(fifo.pop_vec().expect("pop"), (other, b"allowed".to_vec()));
        context.barrier().expect("barrier");
    });
}

#[test]
fn a_full_fifo_does_not_hold_up_other_traffic() {
    run("a_full_fifo_does_not_hold_up_other_traffic", BOTH, |context| {
        let window = context.window(4096).expect("window");
        if context.rank() == 0 {
            let fifo = window.fifo(0, 16, 0).expect("fifo");
            let free = window.fifo(512, 64, 1).expect("fifo");
            context.barrier().expect("barrier");
            let mut buffer = [0; 8];
            context.recv(Source::Rank(1), Tag::Is(1), &mut buffer).expect("recv");
            window.wait_notify(9, 1).expect("wait");
            assert_eq!(free.pop(&mut buffer).expect("pop").len, 3);
            assert_eq!(fifo.pop(&mut buffer).expect("pop").len, 2);
            assert_eq!(fifo.pop(&mut buffer).expect("pop").len, 4);
        } else {
            context.barrier().expect("barrier");
            window.append(0, 0, b"ab").expect("append");
            assert!(!window.try_append(0, 0, b"abcd").expect("append"));
            window.append(0, 512, b"abc").expect("another one of the same rank");
            context.send(0, 1, b"message").expect("send");
            window.put_notify(0, 2048, b"put", 9).expect("put");
            window.append(0, 0, b"abcd").expect("append");
        }
        context.barrier().expect("barrier");
    });
}

/// Rank 0 writes over the FIFO of rank 1, as a stray put does.
#[test]
fn damage_is_found_by_both_sides() {
    run("damage_is_found_by_both_sides", BOTH, |context| {
        let window = context.window(4096).expect("window");
        let fifo = window.fifo(0, 64, 0).expect("fifo");
        context.barrier().expect("barrier");
        let damaged = |found: &Error| matches!(found, Error::FifoDamaged { rank: 1, offset: 0 });
        if context.rank() == 0 {
            let put = |offset: usize, value: u64| {
                window.put(1, offset, &value.to_ne_bytes()).expect("put");
            };
            // Tail and head that cannot be: too far, behind, no multiple of 8.
            for (tail, head) in [(1 << 40, 0), (0, 8), (4, 0), (72, 0)] {
                put(64, tail);
                put(128, head);
                let found = window.append(1, 0, b"x").expect_err("damaged");
                assert!(damaged(&found), "{tail} {head}: {found:?}");
            }
            put(128, 0);
            // A record that is longer than what was appended, then one of a rank that is not.
            for word in [1 << 63 | 9, 1 << 63 | 2 << 24 | 8, 1, u64::MAX] {
                put(64, 16);
                put(256, word);
                context.flush(1).expect("flush");
                context.barrier().expect("barrier");
                context.barrier().expect("barrier");
            }
            put(64, 0);
            put(256, 0);
            context.flush(1).expect("flush");
            context.barrier().expect("barrier");
            window.append(1, 0, b"whole again").expect("append");
        } else {
            for _ in 0..4 {
                context.barrier().expect("barrier");
                let found = fifo.try_pop_vec().expect_err("damaged");
                assert!(damaged(&found), "{found:?}");
                context.barrier().expect("barrier");
            }
            context.barrier().expect("barrier");
            assert_eq!(fifo.pop_vec().expect("pop"), (0, b"whole again".to_vec()));
        }
        context.barrier().expect("barrier");
    });
}

#[test]
#[cfg_attr(miri, ignore = "the job is over before the test looks at it")]
fn who_waits_is_idle_and_nobody_else() {
    let body = |context: &Context| {
        let window = context.window(4096).expect("window");
        if context.rank() == 0 {
            let fifo = window.fifo(0, 16, 0).expect("fifo");
            context.barrier().expect("barrier");
            // Until rank 1 waits for room, and was looked at.
            while closed_gate(window.base() as usize) {}
            assert_eq!(fifo.pop_vec().expect("pop"), (1, vec![1]));
            assert_eq!(fifo.pop_vec().expect("pop"), (1, vec![2]));
            // Nothing more comes.
            fifo.pop_vec().map(drop).unwrap_or_default();
        } else {
            context.barrier().expect("barrier");
            window.append(0, 0, &[1]).expect("append");
            window.append(0, 0, &[2]).expect("append");
            context.recv(Source::Rank(0), Tag::Is(9), &mut []).map(drop).unwrap_or_default();
        }
    };
    for layout in BOTH {
        let job = Job { layout, ..Job::default() };
        let job = start("who_waits_is_idle_and_nobody_else", &job, body);
        job.until("idle while it is full", |job| {
            job.sample(1).idle && !job.sample(0).idle && job.total("sent") == job.total("delivered")
        });
        job.open_gate();
        job.until("idle while it is empty", |job| {
            job.sample(0).idle
                && job.sample(1).idle
                && job.total("sent") == job.total("delivered")
                && job.total("sent") > 0
        });
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(job.sample(0).idle && job.sample(1).idle, "a deadlock stays one");
        assert_eq!(job.total("sent"), job.total("delivered"));
    }
}

#[test]
#[cfg_attr(miri, ignore = "the job is over before the test looks at it")]
fn room_not_noticed_yet_is_not_idle() {
    let body = |context: &Context| {
        let window = context.window(4096).expect("window");
        if context.rank() == 0 {
            let fifo = window.fifo(0, 16, 0).expect("fifo");
            context.barrier().expect("barrier");
            context.barrier().expect("barrier");
            // Until rank 1 waits for room and is stopped.
            while closed_gate(window.base() as usize) {}
            fifo.pop_vec().expect("pop");
            fifo.pop_vec().expect("pop");
        } else {
            context.barrier().expect("barrier");
            window.append(0, 0, &[1]).expect("append");
            context.barrier().expect("barrier");
            window.append(0, 0, &[2]).expect("append");
        }
        context.barrier().expect("barrier");
    };
    let job = Job { layout: &[2], ..Job::default() };
    let job = start("room_not_noticed_yet_is_not_idle", &job, body);
    job.until("idle while it is full", |job| {
        counter(&job.sample(1), "direct_puts") == 1
            && job.total("delivered") == 8
            && job.sample(1).idle
            && !job.sample(0).idle
    });
    job.signal(1, libc::SIGSTOP);
    assert!(job.sample(1).idle);
    job.open_gate();
    job.until("not idle any more, though stopped", |job| !job.sample(1).idle);
    job.signal(1, libc::SIGCONT);
    job.finish();
}

#[test]
fn a_fifo_that_goes_away_tells_those_who_wait() {
    run("a_fifo_that_goes_away_tells_those_who_wait", BOTH, |context| {
        let window = context.window(FIFO_OVERHEAD + 64).expect("window");
        if context.rank() == 0 {
            let fifo = window.fifo(0, 16, 0).expect("fifo");
            context.barrier().expect("barrier");
            window.wait_notify(0, 1).expect("wait");
            std::thread::sleep(std::time::Duration::from_millis(50));
            drop(fifo);
            context.barrier().expect("barrier");
            let again = window.fifo(0, 32, 0).expect("the memory can be used again");
            context.barrier().expect("barrier");
            assert_eq!(again.pop_vec().expect("pop"), (1, vec![3]));
        } else {
            context.barrier().expect("barrier");
            window.append(0, 0, &[1]).expect("append");
            match window.append(0, 0, &[2]) {
                Err(Error::NoFifo { rank: 0, offset: 0 }) => {}
                other => panic!("{other:?}"),
            }
            context.barrier().expect("barrier");
            context.barrier().expect("barrier");
            window.append(0, 0, &[3]).expect("append");
        }
        context.barrier().expect("barrier");
    });
}

/// Ranks are stopped and continued while all append to all, near and far, with much too little room.
#[test]
#[cfg_attr(miri, ignore = "ranks are no processes here")]
fn stopping_ranks_at_any_moment_loses_nothing() {
    const RECORDS: u32 = 120;
    let body = |context: &Context| {
        let (me, ranks) = (context.rank(), context.ranks());
        let window = context.window(4096).expect("window");
        let fifo = window.fifo(0, 200, 0).expect("fifo");
        context.barrier().expect("barrier");
        let mut next = vec![0; ranks as usize];
        let mut sent = 0;
        while sent < RECORDS || next.iter().sum::<u32>() < ranks * RECORDS {
            // To the own FIFO first: the others' may need this rank's help.
            let to = (0..ranks).map(|i| (me + i) % ranks);
            let data = record(me, sent, 120);
            if sent < RECORDS {
                for to in to {
                    while !window.try_append(to, 0, &data).expect("append") {
                        pop_all(&fifo, &mut next);
                    }
                }
                sent += 1;
            }
            pop_all(&fifo, &mut next);
        }
        assert_eq!(next, vec![RECORDS; ranks as usize]);
        context.barrier().expect("barrier");
    };
    for layout in [&[3][..], &[2, 1]] {
        let name = "stopping_ranks_at_any_moment_loses_nothing";
        let job = start(name, &Job { layout, ..Job::default() }, body);
        job.finish_while_stopped(25, layout.len() as u64);
    }
}

fn pop_all(fifo: &Fifo<'_>, next: &mut [u32]) {
    while let Some((from, data)) = fifo.try_pop_vec().expect("pop") {
        let number = &mut next[from as usize];
        assert!(data == record(from, *number, 120), "record {number} of {from}");
        *number += 1;
    }
}
