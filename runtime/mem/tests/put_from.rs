//! Zero-copy puts: the data that arrives when the source changes or goes too soon. Packets are long
//! here, as with Ethernet frames of 9,000 bytes; shorter ones are copied.

mod common;

use common::{Job, start};
use kumi_mem::{Context, Error, OnPlacement, Rights, Window};

/// Packets are lost and late: some of what is put is sent again, from where it lies.
const BAD: &[(&str, &str)] = &[("KUMI_FAULTS", "loss=30,double=20,late=30,seed=3")];
/// Of 23 packets, which are in the ring when the call returns, some are lost for certain.
const WORSE: &[(&str, &str)] = &[("KUMI_FAULTS", "loss=250,seed=3")];
const LONG: u16 = 8_972;
const SIZE: usize = 900_000;
const ONE: u8 = 0xA1;
const OTHER: u8 = 0xB2;

fn job(max_datagram: u16, env: &'static [(&'static str, &'static str)]) -> Job<'static> {
    Job { layout: &[1, 1], max_datagram, env, ..Job::default() }
}

fn read(window: &Window<'_>) -> Vec<u8> {
    let mut memory = vec![0; window.len()];
    window.read(0, &mut memory).expect("read");
    memory
}

/// Rank 0 puts; rank 1, when all has come, checks its memory.
fn puts(context: &Context, put: impl Fn(&Window<'_>), check: impl Fn(&[u8])) {
    let window = context.window(SIZE).expect("window");
    if context.rank() == 0 {
        put(&window);
    } else {
        window.wait_notify(0, 1).expect("wait");
        check(&read(&window));
    }
    context.barrier().expect("barrier");
}

fn pattern(round: usize) -> Vec<u8> {
    (0..SIZE).map(|at| (at / 7 + at / 1000 + round) as u8).collect()
}

/// The caller may change its data as soon as a put returns, lent or not.
#[test]
#[cfg_attr(miri, ignore = "ranks have one environment here")]
fn what_is_put_is_what_was_there_during_the_call() {
    for (packet, env) in [(LONG, BAD), (1_472, BAD), (LONG, &[("KUMI_CHECKSUM", "all")][..])] {
        let running =
            start("what_is_put_is_what_was_there_during_the_call", &job(packet, env), |context| {
                for round in 0..2 {
                    let put = |window: &Window<'_>| {
                        let mut data = pattern(round);
                        window.put_notify(1, 0, &data, 0).expect("put");
                        data.fill(OTHER);
                        drop(data);
                    };
                    puts(context, put, |memory| assert!(memory == pattern(round)));
                }
            });
        running.finish();
    }
}

/// A message of that length too.
#[test]
#[cfg_attr(miri, ignore = "ranks have one environment here")]
fn what_is_sent_is_what_was_there_during_the_call() {
    start("what_is_sent_is_what_was_there_during_the_call", &job(LONG, BAD), |context| {
        if context.rank() == 0 {
            let mut data = pattern(9);
            context.send(1, 5, &data).expect("send");
            data.fill(OTHER);
        } else {
            let mut memory = vec![0; SIZE];
            context
                .recv(kumi_mem::Source::Rank(0), kumi_mem::Tag::Is(5), &mut memory)
                .expect("recv");
            assert!(memory == pattern(9));
        }
        context.barrier().expect("barrier");
    })
    .finish();
}

/// A put from an unchanged window arrives as it was; one changed at once arrives in the old or the new
/// state.
#[test]
#[cfg_attr(miri, ignore = "ranks have one environment here")]
fn what_changes_too_soon_arrives_as_one_or_the_other() {
    start("what_changes_too_soon_arrives_as_one_or_the_other", &job(LONG, WORSE), |context| {
        let notify = OnPlacement { notify: Some(0), completion: None };
        let whole = |window: &Window<'_>| {
            window.write(0, &pattern(3)).expect("write");
            window.put_from(0..SIZE, 1, 0, notify).expect("put");
            context.flush(1).expect("flush");
            window.write(0, &[OTHER; SIZE]).expect("write");
        };
        puts(context, whole, |memory| assert!(memory == pattern(3)));
        // Few enough for the send ring: the call does not wait for any ack.
        let soon = 200_000;
        let changed = |window: &Window<'_>| {
            window.write(0, &[ONE; SIZE]).expect("write");
            window.put_from(0..soon, 1, 0, notify).expect("put");
            window.write(0, &[OTHER; SIZE]).expect("write");
            context.flush(1).expect("flush");
        };
        puts(context, changed, |memory| {
            let (put, rest) = memory.split_at(soon);
            assert!(put.iter().all(|byte| [ONE, OTHER].contains(byte)));
            assert!(put.contains(&OTHER), "nothing was sent from where it lies");
            assert!(rest.iter().all(|byte| *byte == 0), "nothing beside it");
        });
    })
    .finish();
}

/// A window may go before what was put from it is acked: it arrives as it was when the window went. The memory is the
/// program's own, which does with it what it likes then.
#[test]
#[cfg_attr(miri, ignore = "ranks have one environment here")]
fn a_window_may_go_before_its_puts_arrive() {
    start("a_window_may_go_before_its_puts_arrive", &job(LONG, WORSE), |context| {
        for round in 0..2 {
            let first = context.rank() == 0;
            let mut memory = vec![if first { ONE } else { 0 }; 200_000];
            let body = |window: &Window<'_>| {
                if first {
                    let notify = OnPlacement { notify: Some(0), completion: None };
                    window.put_from(round..200_000, 1, 0, notify).expect("put");
                } else {
                    window.wait_notify(0, 1).expect("wait");
                }
            };
            context.with_window_on(&mut memory, Rights::ALL, body).expect("window");
            if first {
                memory.fill(OTHER);
                drop(memory);
            } else {
                let (put, rest) = memory.split_at(200_000 - round);
                assert!(put.iter().all(|byte| *byte == ONE), "what the window was given");
                assert!(rest.iter().all(|byte| *byte == 0));
            }
        }
    })
    .finish();
}

/// A panic between: the window goes while unwinding, and what it lent with it.
#[test]
#[cfg_attr(miri, ignore = "ranks have one environment here")]
fn a_panic_takes_back_what_is_lent() {
    start("a_panic_takes_back_what_is_lent", &job(LONG, WORSE), |context| {
        let first = context.rank() == 0;
        let mut memory = vec![if first { ONE } else { 0 }; 200_000];
        let body = |window: &Window<'_>| {
            if first {
                let notify = OnPlacement { notify: Some(0), completion: None };
                window.put_from(0..200_000, 1, 0, notify).expect("put");
                std::panic::panic_any("half-way");
            }
            window.wait_notify(0, 1).expect("wait");
        };
        let body = || context.with_window_on(&mut memory, Rights::ALL, body);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        assert_eq!(result.is_err(), first);
        if first {
            memory.fill(OTHER);
        } else {
            assert!(memory.iter().all(|byte| *byte == ONE));
        }
        context.barrier().expect("barrier");
    })
    .finish();
}

/// Ranges that are not in the own piece, and ranks that do not exist.
#[test]
fn wrong_ranges_are_refused() {
    start("wrong_ranges_are_refused", &job(LONG, &[]), |context| {
        let window = context.window(1_000).expect("window");
        let me = context.rank();
        for (start, end) in [(900, 1_001), (1_001, 1_001), (usize::MAX - 1, 3)] {
            let result = window.put_from(start..end, 1 - me, 0, OnPlacement::default());
            assert!(
                matches!(result, Err(Error::OutOfBounds { rank, .. }) if rank == me),
                "{result:?}"
            );
        }
        let result = window.put_from(0..10, 2, 0, OnPlacement::default());
        assert!(matches!(result, Err(Error::BadRank { rank: 2, .. })), "{result:?}");
        let result = window.put_from(0..500, 1 - me, 501, OnPlacement::default());
        assert!(matches!(result, Err(Error::OutOfBounds { rank, .. }) if rank != me), "{result:?}");
        // To the own piece it is a copy, also onto itself.
        window.write(0, b"abcdef").expect("write");
        window.put_from(0..6, me, 2, OnPlacement::default()).expect("put");
        assert_eq!(read(&window)[..8], *b"ababcdef");
        context.barrier().expect("barrier");
    })
    .finish();
}
