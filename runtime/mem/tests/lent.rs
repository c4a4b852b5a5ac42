//! Windows in the program's own memory: all operations, on the same node and on others, while the owner
//! computes, and forbidden uses.

mod common;
mod reference;

use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

use common::{Job, Numbers, fewer, run, start};
use kumi_mem::{
    Context, Error, FIFO_OVERHEAD, OnPlacement, Piece, Refusal, Rights, Source, Strided, Tag,
    Window,
};
use reference::Reference;

/// One rank, one node, one rank per node, both.
const LAYOUTS: &[&[u32]] = &[&[1], &[2], &[1, 1], &[3], &[2, 1, 2]];
const BOTH: &[&[u32]] = &[&[2], &[1, 1]];

/// Memory from the heap, which stays for ever, as a window.
fn lent(context: &Context, bytes: usize, rights: Rights) -> (Window<'_>, *mut u8) {
    let words = vec![0u64; bytes.div_ceil(8)].leak();
    let base = words.as_mut_ptr().cast();
    // SAFETY: leaked; it is looked at by raw copies only.
    (unsafe { context.window_on(base, bytes, rights) }.expect("window"), base)
}

fn counter(context: &Context, name: &str) -> u64 {
    context.counters().iter().find(|(key, _)| *key == name).expect("a counter").1
}

#[test]
fn operations_do_what_a_reference_memory_does() {
    run("operations_do_what_a_reference_memory_does", LAYOUTS, |context| {
        // All lend, and then only some do.
        for mixed in [false, true] {
            let completion = context.completion().expect("completion");
            let bytes = Reference::bytes(context);
            let window = if mixed && context.rank() % 2 == 0 {
                context.window(bytes).expect("window")
            } else {
                lent(context, bytes, Rights::ALL).0
            };
            let mut reference = Reference::of(context, &completion, window);
            reference.steps(400, 78);
            reference.finish();
        }
    });
}

/// The same while ranks are stopped and continued at any moment.
#[test]
#[cfg_attr(miri, ignore = "ranks are no processes here")]
fn operations_do_what_they_must_though_ranks_are_stopped() {
    let body = |context: &Context| {
        let completion = context.completion().expect("completion");
        let (window, _) = lent(context, Reference::bytes(context), Rights::ALL);
        let mut reference = Reference::of(context, &completion, window);
        reference.steps(800, 790);
        reference.finish();
    };
    let job = Job { layout: &[2, 1], ..Job::default() };
    let job = start("operations_do_what_they_must_though_ranks_are_stopped", &job, body);
    job.finish_while_stopped(40, 6);
}

/// The owner does nothing but look at its memory.
#[test]
fn an_owner_that_computes_is_served() {
    const ROUNDS: u64 = fewer(100, 6) as u64;
    run("an_owner_that_computes_is_served", &[&[2], &[3], &[1, 1], &[2, 1]], |context| {
        let last = context.ranks() - 1;
        let (window, base) = lent(context, 4096, Rights::ALL);
        // SAFETY: an aligned word of memory that stays for ever.
        let done = unsafe { AtomicU64::from_ptr(base.add(8).cast()) };
        if context.rank() == 0 {
            while done.load(Relaxed) < u64::from(last) {
                std::hint::spin_loop();
            }
            assert_eq!(window.load_u64(0).expect("load"), ROUNDS * u64::from(last));
            assert_eq!(window.notified(5).expect("notified"), ROUNDS * u64::from(last));
        } else {
            for round in 1..=ROUNDS {
                let at = 64 * context.rank() as usize;
                window.put_notify(0, at, &round.to_ne_bytes(), 5).expect("put");
                let mut there = [0; 8];
                window.get(0, at, &mut there).expect("get");
                assert_eq!(u64::from_ne_bytes(there), round);
                window.fetch_add(0, 0, 1).expect("add");
                if round % (ROUNDS / 2) == 0 {
                    // Until its handler thread sleeps for want of work.
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
            window.fetch_add(0, 8, 1).expect("add");
        }
        context.barrier().expect("barrier");
    });
}

/// More than the rings hold, both ways at the same time, to owners that compute and that wait.
#[test]
#[cfg_attr(miri, ignore = "ranks have one environment here")]
fn long_transfers_go_through_short_rings() {
    let body = |context: &Context| {
        let (me, ranks) = (context.rank(), context.ranks());
        let bytes = 400_000;
        let (window, base) = lent(context, bytes * ranks as usize + 8, Rights::ALL);
        let pattern = |from: u32, to: u32| {
            let mut numbers = Numbers(u64::from(from * 100 + to));
            (0..bytes).map(|_| numbers.next() as u8).collect::<Vec<_>>()
        };
        let completion = context.completion().expect("completion");
        for to in 0..ranks {
            let after = OnPlacement { notify: Some(1), completion: Some(&completion) };
            window.put_with(to, bytes * me as usize, &pattern(me, to), after).expect("put");
        }
        completion.wait_all().expect("wait");
        for to in 0..ranks {
            let mut there = vec![0; bytes];
            window.get(to, bytes * me as usize, &mut there).expect("get");
            assert!(there == pattern(me, to), "{me} to {to}");
            // Every second byte of what it put, as the owner's handler gathers them.
            let shape =
                Strided { offset: bytes * me as usize, stride: 2, block: 1, count: bytes / 2 };
            let mut half = vec![0; bytes / 2];
            window.get_strided(to, shape, &mut half).expect("get");
            assert!(half.iter().zip(pattern(me, to).iter().step_by(2)).all(|(a, b)| a == b));
        }
        window.wait_notify(1, u64::from(ranks)).expect("wait");
        context.barrier().expect("barrier");
        // One owner computes while all others get from it.
        if me == 0 {
            // SAFETY: the last word, aligned, of memory that stays for ever.
            let done = unsafe { AtomicU64::from_ptr(base.add(bytes * ranks as usize).cast()) };
            while done.load(SeqCst) < u64::from(ranks) - 1 {
                std::hint::spin_loop();
            }
        } else {
            let mut there = vec![0; bytes];
            window.get(0, bytes * me as usize, &mut there).expect("get");
            assert!(there == pattern(me, 0));
            window.fetch_add(0, bytes * ranks as usize, 1).expect("add");
        }
        context.barrier().expect("barrier");
    };
    // Waits block at once, or spin first.
    for (layout, spin) in [(&[2][..], "0"), (&[2], "adaptive"), (&[3], "0"), (&[2, 2], "100")] {
        let env = &[("KUMI_SPIN", spin)];
        let job = Job { layout, env, ring_bytes: 4096, ..Job::default() };
        start("long_transfers_go_through_short_rings", &job, body).finish();
    }
}

#[test]
fn the_memory_is_the_callers_alone_afterwards() {
    run("the_memory_is_the_callers_alone_afterwards", BOTH, |context| {
        let (me, other) = (context.rank(), 1 - context.rank());
        let mut memory = Box::new([me as u8; 100]);
        let readable = Rights { write: true, read: true, atomic: false };
        // In the middle: at no multiple of anything.
        let seen = context.with_window_on(&mut memory[3..90], readable, |window| {
            assert_eq!((window.len(), window.size_at(other).expect("size")), (87, 87));
            let mut there = [9; 87];
            window.get(other, 0, &mut there).expect("get");
            context.barrier().expect("barrier");
            window.put(other, 80, b"seven!!").expect("put");
            let odd = window.load_u64(0);
            assert!(matches!(odd, Err(Error::BadAlignment { offset: 0, width: 8 })), "{odd:?}");
            context.flush(other).expect("flush");
            context.barrier().expect("barrier");
            there
        });
        assert_eq!(seen.expect("window"), [other as u8; 87], "as it was");
        assert!(memory[..83] == [me as u8; 83] && memory[90..] == [me as u8; 10]);
        assert_eq!(&memory[83..90], b"seven!!");
        // On the stack.
        let mut number = [0u8; 16];
        let sum = context.with_window_on(&mut number, readable, |window| {
            window.put(other, 4, &[me as u8 + 1; 4]).expect("put");
            context.flush(other).expect("flush");
            context.barrier()
        });
        sum.expect("window").expect("barrier");
        assert_eq!(number[4..8], [other as u8 + 1; 4]);
    });
}

#[test]
#[cfg_attr(miri, ignore = "mappings of the system")]
fn a_mapped_file_can_be_a_window() {
    run("a_mapped_file_can_be_a_window", BOTH, |context| {
        let other = 1 - context.rank();
        let path = std::env::temp_dir().join(format!("kumi-lent-{}", std::process::id()));
        let file = std::fs::File::create_new(&path).expect("file");
        drop(file);
        let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).expect("open");
        std::fs::remove_file(&path).expect("remove");
        file.set_len(8192).expect("length");
        // SAFETY: a fresh mapping, of a file that is long enough and that nobody shortens.
        let base = unsafe {
            let (protection, descriptor) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
            libc::mmap(std::ptr::null_mut(), 8192, protection, libc::MAP_SHARED, descriptor, 0)
        };
        assert_ne!(base, libc::MAP_FAILED);
        // SAFETY: mapped until the window has been dropped.
        let window = unsafe { context.window_on(base.cast(), 8192, Rights::ALL) }.expect("window");
        window.put_notify(other, 5000, &[7; 100], 0).expect("put");
        window.wait_notify(0, 1).expect("wait");
        context.barrier().expect("barrier");
        drop(window);
        // SAFETY: this was mapped above, and the window is gone.
        assert_eq!(unsafe { libc::munmap(base, 8192) }, 0);
        let mut found = [0; 102];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut found, 4999).expect("read");
        assert!(found[0] == 0 && found[1..101] == [7; 100] && found[101] == 0);
    });
}

/// Owner and others are on the same node or not: the same errors, told as a put by a frame tells.
#[test]
fn what_is_not_allowed_is_refused_and_counted() {
    run("what_is_not_allowed_is_refused_and_counted", BOTH, |context| {
        let other = 1 - context.rank();
        let (window, base) = lent(context, 64, Rights::ALL);
        let reader = Rights { write: false, read: true, atomic: false };
        let (sealed, sealed_base) = lent(context, 64, reader);
        for offset in [57, 64, 1 << 40, usize::MAX - 7, usize::MAX] {
            let get = window.get(other, offset, &mut [0; 8]);
            assert!(matches!(get, Err(Error::OutOfBounds { length: 8, .. })), "{get:?}");
            window.put(other, offset, &[7; 8]).expect("refused later");
            let flush = context.flush(other);
            let Err(Error::Refused { rank, count: 1, reason: Refusal::Bounds }) = flush else {
                panic!("{flush:?}")
            };
            assert_eq!(rank, other);
            let atomic = window.swap(other, offset & !7, 7);
            assert!(atomic.is_err() == (offset & !7 > 56), "{offset}: {atomic:?}");
            if offset == 57 {
                window.swap(other, 56, 0).expect("as it was");
            }
            let shape = Strided { offset: 0, stride: offset, block: 8, count: 2 };
            let get = window.get_strided(other, shape, &mut [0; 16]);
            assert!(matches!(get, Err(Error::OutOfBounds { .. })), "{get:?}");
            let cast = window.multicast(&[0, 1], offset, &[7; 8], None);
            assert!(matches!(cast, Err(Error::OutOfBounds { .. })), "{cast:?}");
        }
        let put = window.put(other, 0, &[7; 500]);
        assert!(
            matches!(put, Err(Error::OutOfBounds { length: 500, .. })),
            "several frames: {put:?}"
        );
        let completion = context.completion().expect("completion");
        let after = OnPlacement { notify: Some(0), completion: Some(&completion) };
        sealed.put_with(other, 0, &[7; 8], after).expect("refused later");
        let told = completion.wait(1);
        assert!(matches!(told, Err(Error::Refused { reason: Refusal::Right, .. })), "{told:?}");
        assert!(matches!(sealed.fetch_add(other, 0, 7), Err(Error::NoRight { .. })));
        assert!(matches!(sealed.multicast(&[other], 0, &[7], None), Err(Error::NoRight { .. })));
        assert!(matches!(window.swap(other, 4, 7), Err(Error::BadAlignment { .. })));
        assert!(matches!(window.append(other, 0, b"x"), Err(Error::NoFifo { .. })));
        sealed.get(other, 0, &mut [0; 64]).expect("the right it has");
        context.barrier().expect("barrier");
        // SAFETY: 64 bytes that stay for ever.
        let memory = unsafe { [base, sealed_base].map(|base| base.cast::<[u8; 64]>().read()) };
        assert_eq!(memory, [[0; 64]; 2], "untouched");
        // Per offset: get, put, swap but for the first, strided get. Then five more.
        assert_eq!(counter(context, "refused"), 4 * 5 - 1 + 5);
        assert_eq!(window.notified(0).expect("notified"), 0);
        context.barrier().expect("barrier");
    });
}

/// Many refusals by an owner that computes: none is lost, and the frames behind them are
/// served.
#[test]
fn a_flood_of_refusals_is_told_to_the_last() {
    const FLOOD: usize = fewer(20_000, 100);
    run("a_flood_of_refusals_is_told_to_the_last", BOTH, |context| {
        let (window, base) = lent(context, 16, Rights::ALL);
        if context.rank() == 0 {
            let mut told = 0;
            let mut tell = |result: Result<(), Error>| match result {
                Ok(()) => true,
                Err(Error::Refused { rank: 1, count, reason: Refusal::Bounds }) => {
                    told += count;
                    false
                }
                Err(error) => panic!("{error}"),
            };
            for _ in 0..FLOOD {
                // A put that reports earlier refusals has not been done.
                while !tell(window.put(1, 9, &[7; 8])) {}
            }
            tell(context.flush(1));
            assert_eq!(told, FLOOD as u64);
            window.fetch_add(1, 0, 1).expect("add");
        } else {
            // SAFETY: an aligned word of memory that stays for ever.
            let done = unsafe { AtomicU64::from_ptr(base.cast()) };
            while done.load(Relaxed) == 0 {
                std::hint::spin_loop();
            }
            assert_eq!(window.load_u64(8).expect("load"), 0);
        }
        context.barrier().expect("barrier");
    });
}

#[test]
fn what_is_gone_is_refused() {
    run("what_is_gone_is_refused", BOTH, |context| {
        let (me, near) = (context.rank(), context.same_node(1 - context.rank()));
        let (window, base) = lent(context, 64, Rights::ALL);
        if me == 0 {
            drop(window);
            context.barrier().expect("barrier");
            context.barrier().expect("barrier");
            // SAFETY: 64 bytes that stay for ever.
            assert_eq!(unsafe { base.cast::<[u8; 64]>().read() }, [0; 64], "untouched");
        } else {
            context.barrier().expect("barrier");
            let bad = |result: Result<(), Error>| {
                assert!(matches!(result, Err(Error::BadWindow { rank: 0 })), "{result:?}");
            };
            bad(window.get(0, 0, &mut [0; 8]));
            bad(window.swap(0, 0, 7).map(drop));
            bad(window.append(0, 0, b"x"));
            bad(window.multicast(&[0], 0, &[7], None));
            if near {
                bad(window.put(0, 0, &[7]));
            } else {
                window.put(0, 0, &[7]).expect("refused later");
                let flush = context.flush(0);
                assert!(matches!(flush, Err(Error::Refused { reason: Refusal::Window, .. })));
            }
            context.barrier().expect("barrier");
        }
        context.barrier().expect("barrier");
    });
}

#[test]
fn what_cannot_be_lent_is_refused_at_all_ranks() {
    run("what_cannot_be_lent_is_refused_at_all_ranks", BOTH, |context| {
        let me = context.rank();
        let words = vec![0u64; 9].leak();
        let base = words.as_mut_ptr().cast::<u8>();
        for (wrong, bytes) in
            [(std::ptr::null_mut(), 8), (base.wrapping_add(1), 8), (base, usize::MAX)]
        {
            let (base, bytes) = if me == 1 { (wrong, bytes) } else { (base, 8) };
            // SAFETY: an accepted range is 8 bytes that stay for ever.
            let result = unsafe { context.window_on(base, bytes, Rights::ALL) };
            assert!(matches!(result, Err(Error::WindowRefused { rank: 1, .. })), "{result:?}");
        }
        let bytes = [0; 16].leak_at(1);
        let none = context.with_window_on(bytes, Rights::ALL, |_| panic!("there is none"));
        assert!(matches!(none, Err(Error::WindowRefused { rank: 0, .. })), "{none:?}");
        // A rank whose program has asked for nonsense keeps nobody waiting.
        match me {
            1 => context.refuse_window().expect("the others are told"),
            _ => {
                let result = context.window(8);
                assert!(matches!(result, Err(Error::WindowRefused { rank: 1, .. })), "{result:?}");
            }
        }
        let empty = context.with_window_on(&mut [], Rights::ALL, |window| window.len());
        assert_eq!(empty.expect("no bytes are fine"), 0);
    });
}

/// Memory that begins behind a multiple of 8.
trait LeakAt {
    fn leak_at(self, odd: usize) -> &'static mut [u8];
}

impl<const N: usize> LeakAt for [u8; N] {
    fn leak_at(self, odd: usize) -> &'static mut [u8] {
        let words = vec![0u64; N / 8 + 1].leak();
        // SAFETY: N bytes of the words, which nobody else has.
        unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>().add(odd), N) }
    }
}

#[test]
fn fifos_and_signals_live_there_if_it_is_aligned() {
    run("fifos_and_signals_live_there_if_it_is_aligned", LAYOUTS, |context| {
        let (me, ranks) = (context.rank(), context.ranks());
        let bytes = 2 * FIFO_OVERHEAD + 1024;
        let space = vec![0u64; bytes / 8 + 16].leak().as_mut_ptr().cast::<u8>();
        // SAFETY: inside of the memory.
        let base = unsafe { space.add(space.align_offset(64)) };
        // SAFETY: it stays for ever, and is used through windows only. The second begins 8 bytes further on.
        let (window, odd) = unsafe {
            let window = context.window_on(base, bytes, Rights::ALL).expect("window");
            (window, context.window_on(base.add(8), 512, Rights::ALL).expect("window"))
        };
        assert!(matches!(odd.fifo(0, 64, 0), Err(Error::BadFifo { .. })));
        for rank in 0..ranks {
            let result = odd.append(rank, 0, &[1]);
            assert!(matches!(result, Err(Error::NoFifo { rank: whose, .. }) if whose == rank));
        }
        context.barrier().expect("barrier");
        drop(odd);
        // Room for two records of 16 bytes.
        let fifo = window.fifo(0, 48, 7).expect("fifo");
        let heard = std::sync::Arc::new(AtomicU64::new(0));
        let sum = std::sync::Arc::clone(&heard);
        let add = move |signal: kumi_mem::Signal<'_>| {
            sum.fetch_add(1 + u64::from(signal.data[0]), SeqCst);
        };
        window.on_signal(FIFO_OVERHEAD + 64, 64, add).expect("port");
        context.barrier().expect("barrier");
        let each = fewer(30, 5) as u8;
        let mut next = vec![0; ranks as usize];
        let mut got = 0;
        for round in 0..each {
            for to in (0..ranks).filter(|to| *to != me) {
                while !window.try_append(to, 0, &[round; 16]).expect("append") {
                    got += take(&fifo, &mut next);
                }
                window.signal(to, FIFO_OVERHEAD + 64, &[round]).expect("signal");
            }
        }
        let all = u64::from(ranks - 1) * u64::from(each);
        while got < all {
            let (from, record) = fifo.pop_vec().expect("pop");
            assert_eq!(record, [next[from as usize]; 16]);
            next[from as usize] += 1;
            got += 1;
        }
        context.barrier().expect("barrier");
        let sum: u64 = (1..=u64::from(each)).sum::<u64>() * u64::from(ranks - 1);
        while heard.load(SeqCst) < sum {
            std::thread::yield_now();
        }
        assert_eq!((heard.load(SeqCst), window.notified(7).expect("notified")), (sum, all));
        context.barrier().expect("barrier");
    });
}

/// Takes what is there; records of each sender come in order.
fn take(fifo: &kumi_mem::Fifo<'_>, next: &mut [u8]) -> u64 {
    let mut taken = 0;
    while let Some((from, record)) = fifo.try_pop_vec().expect("pop") {
        assert_eq!(record, [next[from as usize]; 16]);
        next[from as usize] += 1;
        taken += 1;
    }
    taken
}

/// A FIFO that is full keeps senders of its node waiting, and its owner's other memory is reached meanwhile.
#[test]
fn who_waits_for_room_is_told_of_it() {
    const RECORDS: u8 = fewer(50, 8) as u8;
    run("who_waits_for_room_is_told_of_it", BOTH, |context| {
        let base = vec![0u64; 256].leak().as_mut_ptr().cast::<u8>();
        // SAFETY: inside of the memory, which stays for ever and is used through the window only.
        let window = unsafe {
            context.window_on(base.add(base.align_offset(64)), 1024, Rights::ALL).expect("window")
        };
        let fifo = window.fifo(0, 16, 0).expect("fifo");
        context.barrier().expect("barrier");
        if context.rank() == 0 {
            for number in 0..RECORDS {
                window.append(1, 0, &[number]).expect("append");
            }
        } else {
            for number in 0..RECORDS {
                assert_eq!(fifo.pop_vec().expect("pop"), (0, vec![number]));
            }
        }
        context.barrier().expect("barrier");
    });
}

/// An operation in memory that both have mapped signals earlier puts by frames: they are in place then.
#[test]
fn notifications_and_records_do_not_overtake_frames() {
    const BYTES: usize = 3000;
    let body = |context: &Context| {
        let (frames, base) = lent(context, BYTES, Rights::ALL);
        let direct = context.window(4096).expect("window");
        let mut fifo = (context.rank() == 1).then(|| direct.fifo(0, 1024, 3).expect("fifo"));
        context.barrier().expect("barrier");
        for round in 1..=if cfg!(miri) { 5 } else { 300u64 } {
            let expected = [round as u8; BYTES];
            if context.rank() == 0 {
                frames.put(1, 0, &expected).expect("put");
                let after = || OnPlacement { notify: Some(5), completion: None };
                let blocks = Strided { offset: 2048, stride: 2, block: 1, count: 2 };
                let piece = Piece { offset: 2048, length: 1 };
                match round % 5 {
                    0 => direct.put_notify(1, 2048, &[1], 5).expect("put"),
                    1 => direct.append(1, 0, &[2]).expect("append"),
                    2 => direct.multicast(&[1], 2048, &[3], Some(5)).expect("multicast"),
                    3 => direct.put_strided(1, blocks, &[4; 2], after()).expect("strided"),
                    _ => direct.put_list(1, &[piece], &[5], after()).expect("list"),
                }
                direct.wait_notify(6, round).expect("wait");
            } else {
                if round % 5 == 1 {
                    let fifo = fifo.as_mut().expect("the taker");
                    fifo.pop(&mut [0; 8]).expect("pop");
                } else {
                    direct.wait_notify(5, round - round.div_ceil(5)).expect("wait");
                }
                // SAFETY: leaked memory of so many bytes, and nobody writes to it now.
                let seen = unsafe { std::slice::from_raw_parts(base, BYTES) };
                assert_eq!(seen, expected, "round {round}");
                direct.put_notify(0, 0, &[], 6).expect("put");
            }
        }
        context.barrier().expect("barrier");
    };
    run("notifications_and_records_do_not_overtake_frames", BOTH, body);
}

/// A refused put is told by the next put, send or flush as a whole, and by no collective.
#[test]
fn a_refusal_ends_no_collective_and_cuts_no_message() {
    const LONG: usize = fewer(1 << 20, 8_000);
    let body = |context: &Context| {
        let rights = Rights { write: context.rank() == 0, ..Rights::ALL };
        let (window, _) = lent(context, 64, rights);
        for round in 0..fewer(20, 3) as u8 {
            if context.rank() == 0 {
                // It may be told of the refusal of the one before.
                while let Err(told) = window.put(1, 0, &[1; 8]) {
                    assert!(
                        matches!(told, Error::Refused { reason: Refusal::Right, .. }),
                        "{told}"
                    );
                }
                context.barrier().expect("a barrier goes on");
                let message = vec![round; LONG];
                while let Err(told) = context.send(1, 7, &message) {
                    assert!(
                        matches!(told, Error::Refused { reason: Refusal::Right, .. }),
                        "{told}"
                    );
                }
            } else {
                context.barrier().expect("barrier");
                let (received, message) =
                    context.recv_vec(Source::Rank(0), Tag::Is(7)).expect("a whole message");
                assert_eq!((received.len, message), (LONG, vec![round; LONG]));
            }
        }
        // The last refusal may have been told by no send.
        let told = context.flush_all();
        assert!(matches!(told, Ok(()) | Err(Error::Refused { .. })), "{told:?}");
        context.barrier().expect("barrier");
    };
    run("a_refusal_ends_no_collective_and_cuts_no_message", BOTH, body);
}
