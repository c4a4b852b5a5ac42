//! Every operation, between real processes, over shared memory and UDP, 1 to 9 ranks.

mod common;

use common::{Job, Numbers, fewer, run, start};
use kumi_mem::{Context, Error, Op, Refusal, Rights, Source, Tag};

/// One rank, one node, several nodes, both; odd counts too.
const LAYOUTS: &[&[u32]] = &[&[1], &[2], &[1, 1], &[2, 1], &[3, 2], &[1, 1, 1], &[4, 4, 1]];

fn pattern(from: u32, to: u32, length: usize) -> Vec<u8> {
    let mut numbers = Numbers(u64::from(from) << 32 | u64::from(to));
    (0..length).map(|_| numbers.next() as u8).collect()
}

#[test]
fn messages_of_all_sizes_arrive_in_order() {
    run("messages_of_all_sizes_arrive_in_order", LAYOUTS, |context| {
        let (me, ranks) = (context.rank(), context.ranks());
        let sizes = [0usize, 1, 8, 100, 1415, 1424, 1425, 5000, 20_000, 100_000];
        let sizes = &sizes[..fewer(sizes.len(), 8)];
        for to in 0..ranks {
            for (tag, size) in sizes.iter().enumerate() {
                context.send(to, tag as i32, &pattern(me, to, *size)).expect("send");
            }
        }
        for from in (0..ranks).rev() {
            for size in sizes.iter().copied() {
                let (received, data) =
                    context.recv_vec(Source::Rank(from), Tag::Any).expect("recv");
                assert_eq!((received.from, received.len), (from, size));
                assert!(data == pattern(from, me, size), "{from} to {me}: {size} bytes");
            }
        }
        context.barrier().expect("barrier");
    });
}

#[test]
#[cfg_attr(miri, ignore = "the cipher is assembly")]
fn datagrams_of_all_sizes_will_do() {
    let sizes = [548, 1472, 8972, 65507];
    for (max_datagram, (encrypted, ipv6)) in sizes.into_iter().flat_map(|size| {
        [(false, false), (true, false), (false, true)].map(|settings| (size, settings))
    }) {
        let job = Job { layout: &[1, 2], max_datagram, encrypted, ipv6, ..Job::default() };
        let body = |context: &Context| {
            let (me, ranks) = (context.rank(), context.ranks());
            let (next, before) = ((me + 1) % ranks, (me + ranks - 1) % ranks);
            let data = pattern(me, next, 200_000);
            let mut into = vec![0; data.len()];
            let from = Source::Rank(before);
            context.sendrecv(next, 1, &data, from, Tag::Is(1), &mut into).expect("sendrecv");
            assert!(into == pattern(before, me, into.len()));
        };
        start("datagrams_of_all_sizes_will_do", &job, body).finish();
    }
}

/// More ranks on a node than fit one word of the wake flags, and more than there are processors.
#[test]
#[cfg_attr(miri, ignore = "its jobs have more than three ranks")]
fn many_ranks_on_a_node() {
    run("many_ranks_on_a_node", &[&[66, 2]], |context| {
        let (me, ranks) = (context.rank(), context.ranks());
        let window = context.window(64).expect("window");
        let far = (me + ranks / 2) % ranks;
        window.put_notify(far, 0, &u64::from(me).to_ne_bytes(), 9).expect("put");
        window.wait_notify(9, 1).expect("wait");
        let from = (me + ranks - ranks / 2) % ranks;
        assert_eq!(window.load_u64(0).expect("load"), u64::from(from));
        let mut sum = [u64::from(me)];
        context.allreduce(Op::Sum, &mut sum).expect("allreduce");
        assert_eq!(sum, [u64::from(ranks * (ranks - 1) / 2)]);
        context.barrier().expect("barrier");
    });
}

#[test]
fn tags_and_sources_select() {
    run("tags_and_sources_select", &[&[2], &[1, 1]], |context| {
        let other = 1 - context.rank();
        for tag in 0..10 {
            context.send(other, tag, &[tag as u8]).expect("send");
        }
        for tag in (0..10).rev() {
            let mut byte = [0];
            let received = context.recv(Source::Any, Tag::Is(tag), &mut byte).expect("recv");
            assert_eq!((received.from, received.tag, byte[0]), (other, tag, tag as u8));
        }
        assert_eq!(context.probe(Source::Any, Tag::Any).expect("probe"), None);
        context.barrier().expect("barrier");
        context.send(other, 3, b"four").expect("send");
        let mut small = [0; 2];
        let result = context.recv(Source::Any, Tag::Any, &mut small);
        assert!(matches!(result, Err(Error::Truncated { needed: 4 })), "{result:?}");
        assert_eq!(&small, b"fo");
        assert!(matches!(context.send(other, -1, b""), Err(Error::BadTag { tag: -1 })));
        assert!(matches!(context.send(2, 0, b""), Err(Error::BadRank { rank: 2, ranks: 2 })));
        context.barrier().expect("barrier");
    });
}

#[test]
#[cfg_attr(miri, ignore = "ranks have one environment here")]
fn large_messages_cross() {
    let body = |context: &Context| {
        let (me, ranks) = (context.rank(), context.ranks());
        // Both send first: fits what may be kept unread.
        let size = 400_000;
        for other in (0..ranks).filter(|other| *other != me) {
            context.send(other, 0, &pattern(me, other, size)).expect("send");
        }
        for other in (0..ranks).filter(|other| *other != me) {
            let mut data = vec![0; size];
            context.recv(Source::Rank(other), Tag::Is(0), &mut data).expect("recv");
            assert!(data == pattern(other, me, size));
        }
        // More than may be kept unread: streams into the posted receive.
        let size = 3 << 20;
        let (next, before) = ((me + 1) % ranks, (me + ranks - 1) % ranks);
        let data = pattern(me, next, size);
        let mut into = vec![0; size];
        let from = Source::Rank(before);
        context.sendrecv(next, 1, &data, from, Tag::Is(1), &mut into).expect("sendrecv");
        assert!(into == pattern(before, me, size));
        // The same one after the other; the senders wait for the receive meanwhile.
        if me % 2 == 0 && me + 1 < ranks {
            context.send(me + 1, 2, &pattern(me, next, size)).expect("send");
        } else if me % 2 == 1 {
            std::thread::sleep(std::time::Duration::from_millis(20));
            let (_, data) = context.recv_vec(Source::Any, Tag::Is(2)).expect("recv");
            assert!(data == pattern(me - 1, me, size));
        }
    };
    for layout in [&[2][..], &[1, 1], &[2, 1]] {
        let env = &[("KUMI_UNEXPECTED_BYTES", "1000000")];
        let job = Job { layout, env, ..Job::default() };
        start("large_messages_cross", &job, body).finish();
    }
}

#[test]
fn put_get_and_atomics() {
    run("put_get_and_atomics", LAYOUTS, |context| {
        let (me, ranks) = (context.rank(), context.ranks());
        let piece = fewer(10_000, 2_000);
        let window = context.window(piece * ranks as usize + 64).expect("window");
        let counter = piece * ranks as usize;
        assert_eq!(window.size_at(ranks - 1).expect("size"), window.len() as u64);
        for to in 0..ranks {
            let data = pattern(me, to, piece);
            window.put_notify(to, me as usize * piece, &data, me % 64).expect("put");
            window.fetch_add(to, counter, u64::from(me) + 1).expect("fetch_add");
        }
        context.flush_all().expect("flush");
        for to in 0..ranks {
            let mut there = vec![0; piece];
            window.get(to, me as usize * piece, &mut there).expect("get");
            assert!(there == pattern(me, to, piece), "applied");
        }
        for from in 0..ranks {
            window.wait_notify(from % 64, 1).expect("wait");
            let mut got = vec![0; piece];
            window.read(from as usize * piece, &mut got).expect("read");
            assert!(got == pattern(from, me, piece), "{from} to {me}");
        }
        context.barrier().expect("barrier");
        let sum: u64 = (1..=u64::from(ranks)).sum();
        assert_eq!(window.load_u64(counter).expect("load"), sum);
        for from in 0..ranks {
            let mut got = vec![0; piece];
            window.get(from, me as usize * piece, &mut got).expect("get");
            assert!(got == pattern(me, from, piece));
            window.get(from, 0, &mut []).expect("empty get");
        }
        context.barrier().expect("barrier");
    });
}

#[test]
fn what_is_not_allowed_is_refused_and_counted() {
    run("what_is_not_allowed_is_refused_and_counted", &[&[2], &[1, 1]], |context| {
        let me = context.rank();
        let other = 1 - me;
        let near = context.same_node(other);
        let window = context.window(64).expect("window");
        let read_only = Rights { write: false, read: true, atomic: false };
        let sealed = context.window_with(64, read_only).expect("window");
        let bounds = window.get(other, 60, &mut [0; 8]);
        assert!(matches!(bounds, Err(Error::OutOfBounds { offset: 60, length: 8, size: 64, .. })));
        let huge = window.get(other, usize::MAX, &mut [0; 8]);
        assert!(matches!(huge, Err(Error::OutOfBounds { .. })), "{huge:?}");
        assert!(matches!(sealed.fetch_add(other, 0, 1), Err(Error::NoRight { .. })));
        assert!(matches!(
            window.fetch_add(other, 4, 1),
            Err(Error::BadAlignment { offset: 4, width: 8 })
        ));
        let notify = window.put_notify(other, 0, &[1], 64);
        assert!(matches!(notify, Err(Error::BadNotify { notify: 64 })));
        assert!(matches!(window.put(9, 0, &[1]), Err(Error::BadRank { rank: 9, .. })));
        let put = window.put(other, 60, &[1; 8]);
        if near {
            assert!(matches!(put, Err(Error::OutOfBounds { .. })));
            assert!(matches!(sealed.put(other, 0, &[1]), Err(Error::NoRight { .. })));
        } else {
            put.expect("refused later");
            sealed.put(other, 0, &[1]).unwrap_or_else(|error| {
                assert!(matches!(error, Error::Refused { count: 1, .. }), "{error}");
                sealed.put(other, 0, &[1]).expect("after the report");
            });
            let flush = context.flush(other);
            assert!(
                matches!(flush, Err(Error::Refused { rank, reason, .. })
                if rank == other && matches!(reason, Refusal::Bounds | Refusal::Right)),
                "{flush:?}"
            );
            context.flush(other).expect("reported once");
        }
        context.barrier().expect("barrier");
        let mut memory = [9; 64];
        window.read(0, &mut memory).expect("read");
        assert_eq!(memory, [0; 64], "untouched");
        let refused = context.counters().iter().find(|(name, _)| *name == "refused").map(|c| c.1);
        assert_eq!(refused, Some(if near { 0 } else { 6 }));
        context.barrier().expect("barrier");
    });
}

#[test]
fn windows_come_and_go() {
    run("windows_come_and_go", &[&[2], &[2, 1]], |context| {
        let (me, ranks) = (context.rank(), context.ranks());
        let next = (me + 1) % ranks;
        for round in 0..if cfg!(miri) { 4 } else { 300u64 } {
            let window = context.window(4096 * (me as usize + 1)).expect("window");
            assert_eq!(window.load_u64(16).expect("load"), 0, "fresh memory");
            window.store_u64(16, 77).expect("store");
            window.put_notify(next, 8, &round.to_ne_bytes(), 5).expect("put");
            assert_eq!(window.wait_notify(5, 1).expect("wait"), 1);
            assert_eq!(window.load_u64(8).expect("load"), round);
            if round % 16 == 0 {
                context.barrier().expect("barrier");
            }
        }
        let too_much = context.window(if me == 0 { 1 << 40 } else { 8 });
        assert!(matches!(too_much, Err(Error::WindowRefused { rank: 0, .. })), "{too_much:?}");
        context.window(8).expect("and then it works again");
    });
}

/// The slots of windows that stay are not needed for others.
#[test]
fn windows_come_and_go_beside_one_that_stays() {
    const ROUNDS: u64 = fewer(600, 12) as u64;
    const TURN: u64 = fewer(100, 5) as u64;
    run("windows_come_and_go_beside_one_that_stays", &[&[2], &[1, 1]], |context| {
        let (me, other) = (context.rank(), 1 - context.rank());
        let kept = context.window(64).expect("window");
        for round in 1..=ROUNDS {
            let window = context.window(8).expect("window");
            if round % TURN == u64::from(me) {
                window.put_notify(other, 0, &round.to_ne_bytes(), 3).expect("put");
                kept.fetch_add(other, 8, round).expect("add");
            } else if round % TURN == u64::from(other) {
                window.wait_notify(3, 1).expect("wait");
                assert_eq!(window.load_u64(0).expect("load"), round);
            }
        }
        context.barrier().expect("barrier");
        let sum: u64 = (1..=ROUNDS).filter(|round| round % TURN == u64::from(other)).sum();
        assert_eq!(kept.load_u64(0).expect("load"), 0);
        assert_eq!(kept.load_u64(8).expect("load"), sum);
        // All there may be at the same time, and one more.
        let most: Vec<_> = (1..256).map(|_| context.window(0).expect("window")).collect();
        let result = context.window(0);
        assert!(matches!(result, Err(Error::WindowRefused { rank: 0, .. })), "{result:?}");
        drop(most);
        context.window(0).expect("room again");
    });
}

#[test]
fn a_window_that_is_gone_is_refused() {
    run("a_window_that_is_gone_is_refused", &[&[2], &[1, 1]], |context| {
        let me = context.rank();
        let window = context.window(64).expect("window");
        if me == 0 {
            drop(window);
            context.barrier().expect("barrier");
        } else {
            context.barrier().expect("barrier");
            let gone = window.get(0, 0, &mut [0; 8]);
            assert!(matches!(gone, Err(Error::BadWindow { rank: 0 })), "{gone:?}");
        }
        context.barrier().expect("barrier");
    });
}

fn check_reduction(context: &Context, length: usize) {
    let (me, ranks) = (context.rank(), u64::from(context.ranks()));
    let mine: Vec<u64> = (0..length as u64).map(|i| i * 3 + u64::from(me)).collect();
    let expected = |i: u64| i * 3 * ranks + ranks * (ranks - 1) / 2;
    let mut all = mine.clone();
    context.allreduce(Op::Sum, &mut all).expect("allreduce");
    assert!(all.iter().zip(0..).all(|(value, i)| *value == expected(i)));
    for root in 0..context.ranks() {
        let mut one = mine.clone();
        context.reduce(root, Op::Sum, &mut one).expect("reduce");
        if me == root {
            assert!(one.iter().zip(0..).all(|(value, i)| *value == expected(i)));
        }
        let mut copy: Vec<f64> = vec![if me == root { 0.5 + f64::from(root) } else { 0.0 }; length];
        context.broadcast(root, &mut copy).expect("broadcast");
        assert!(copy.iter().all(|value| *value == 0.5 + f64::from(root)));
    }
}

/// Blocks of this many elements to and from everybody, small ones and large ones.
fn check_blocks(context: &Context, length: usize) {
    let (me, ranks) = (context.rank(), context.ranks());
    let element =
        |from: u32, to: u32, i: usize| (u64::from(from) << 32) + (u64::from(to) << 24) + i as u64;
    let block = |from: u32, to: u32| (0..length).map(move |i| element(from, to, i));
    for root in 0..ranks {
        let mut gathered = vec![0; if me == root { length * ranks as usize } else { 0 }];
        let mine: Vec<u64> = block(me, root).collect();
        context.gather(root, &mine, &mut gathered).expect("gather");
        if me == root {
            assert!((0..ranks).flat_map(|from| block(from, root)).eq(gathered));
        }
    }
    let send: Vec<u64> = (0..ranks).flat_map(|to| block(me, to)).collect();
    let mut recv = vec![0; send.len()];
    context.alltoall(&send, &mut recv).expect("alltoall");
    assert!((0..ranks).flat_map(|from| block(from, me)).eq(recv));
}

#[test]
fn collectives_give_the_right_results() {
    run("collectives_give_the_right_results", LAYOUTS, |context| {
        let (me, ranks) = (context.rank(), context.ranks() as usize);
        for length in [0, 1, 7, fewer(1000, 200), fewer(20_000, 300)] {
            check_reduction(context, length);
        }
        let mut least = [f64::from(me), -f64::from(me)];
        context.allreduce(Op::Min, &mut least).expect("min");
        assert_eq!(least, [0.0, -(ranks as f64 - 1.0)]);
        let mut bits = [1u32 << me];
        context.allreduce(Op::BitOr, &mut bits).expect("or");
        assert_eq!(bits, [(1u32 << ranks) - 1]);
        let floats = context.allreduce(Op::BitXor, &mut [1.0f32]);
        assert!(matches!(floats, Err(Error::BadOperation { .. })));

        for length in [0, 1, 3, 32, 33, fewer(5000, 200)] {
            check_blocks(context, length);
        }

        // Block from i to j has i + 2j elements.
        let count = |from: usize, to: usize| (from + 2 * to) * 50;
        let me = me as usize;
        let out: Vec<usize> = (0..ranks).map(|to| count(me, to)).collect();
        let back: Vec<usize> = (0..ranks).map(|from| count(from, me)).collect();
        let send: Vec<u16> =
            (0..ranks).flat_map(|to| vec![(me * 100 + to) as u16; count(me, to)]).collect();
        let mut recv = vec![0u16; back.iter().sum()];
        context.alltoallv(&send, &out, &mut recv, &back).expect("alltoallv");
        let expected: Vec<u16> =
            (0..ranks).flat_map(|from| vec![(from * 100 + me) as u16; count(from, me)]).collect();
        assert!(recv == expected);
    });
}

#[test]
#[cfg_attr(miri, ignore = "its jobs have more than three ranks")]
fn floating_point_sums_are_the_same_everywhere() {
    run("floating_point_sums_are_the_same_everywhere", &[&[3, 2], &[2, 2, 2, 1]], |context| {
        for length in [3usize, 30_000] {
            let mut numbers = Numbers(u64::from(context.rank()));
            let mut data: Vec<f64> =
                (0..length).map(|_| numbers.next() as f64 * 1e-19 - 0.3).collect();
            context.allreduce(Op::Sum, &mut data).expect("allreduce");
            let mut first = data.clone();
            context.broadcast(0, &mut first).expect("broadcast");
            let same = data.iter().zip(&first).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same, "bit by bit");
        }
    });
}

#[test]
fn random_traffic_of_all_kinds() {
    run("random_traffic_of_all_kinds", &[&[3], &[2, 2, 1]], |context| {
        let (me, ranks) = (context.rank(), context.ranks());
        let window = context.window(8 * ranks as usize).expect("window");
        // All ranks draw the same numbers, so each knows what the others do.
        let mut numbers = Numbers(42);
        for step in 0..if cfg!(miri) { 20 } else { 400 } {
            let from = numbers.below(u64::from(ranks)) as u32;
            let to = numbers.below(u64::from(ranks)) as u32;
            let size = [8, 64, 2000, fewer(30_000, 3_000)][numbers.below(4) as usize];
            match numbers.below(4) {
                0 if me == from => context.send(to, step, &pattern(from, to, size)).expect("send"),
                0 if me == to => {}
                1 if me == from => {
                    let word = 8 * to as usize;
                    window.fetch_add(to, word, 1).expect("fetch_add");
                }
                2 => context.barrier().expect("barrier"),
                _ => {}
            }
        }
        // Receive what was sent to this rank, last first.
        let mut numbers = Numbers(42);
        let mut expected = Vec::new();
        let mut adds = 0;
        for step in 0..if cfg!(miri) { 20 } else { 400 } {
            let from = numbers.below(u64::from(ranks)) as u32;
            let to = numbers.below(u64::from(ranks)) as u32;
            let size = [8, 64, 2000, fewer(30_000, 3_000)][numbers.below(4) as usize];
            match numbers.below(4) {
                0 if to == me => expected.push((from, step, size)),
                1 if to == me => adds += 1,
                _ => {}
            }
        }
        for (from, step, size) in expected.into_iter().rev() {
            let (_, data) = context.recv_vec(Source::Rank(from), Tag::Is(step)).expect("recv");
            assert!(data == pattern(from, me, size));
        }
        context.barrier().expect("barrier");
        assert_eq!(window.load_u64(8 * me as usize).expect("load"), adds);
    });
}
