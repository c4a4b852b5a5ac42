//! Requests: operations that are begun and waited for later, near and far, in any order, and when things go wrong.

mod common;

use common::{Job, Numbers, closed_gate, fewer, run, start};
use kumi_mem::{
    Atomic, Context, Error, Outcome, PutOptions, Report, RequestHandle, SharedBytes,
    SharedBytesMut, Source, Tag,
};

const LAYOUTS: &[&[u32]] = &[&[1], &[2], &[1, 1], &[2, 1, 2]];
const BOTH: &[&[u32]] = &[&[2], &[1, 1]];

/// Bytes that say whose they are.
fn text(from: u32, number: u32, length: usize) -> Vec<u8> {
    (0..length).map(|at| (from as usize * 91 + number as usize * 7 + at) as u8).collect()
}

/// The bytes of a slice, for requests by address.
fn shared(data: &[u8]) -> SharedBytes<'_> {
    // SAFETY: only read; the tests keep it until the request is over.
    unsafe { SharedBytes::new(std::ptr::NonNull::from(data).cast(), data.len()) }
}

#[test]
fn every_kind_of_request_does_what_its_call_does() {
    run("every_kind_of_request_does_what_its_call_does", LAYOUTS, |context| {
        let window = context.window(1 << 16).expect("window");
        let (me, ranks) = (context.rank(), context.ranks());
        let next = (me + 1) % ranks;
        let previous = (me + ranks - 1) % ranks;
        for length in [0usize, 8, 1000, fewer(40_000, 4_000)] {
            let data = text(me, 1, length);
            let (mut back, mut message) = (vec![0; length], vec![0; length]);
            let notify = Some(3);
            let before = context
                .scope(|scope| {
                    let message =
                        scope.receive(Source::Rank(previous), Tag::Is(9), &mut message)?;
                    let put = scope.put(
                        &window,
                        next,
                        64,
                        &data,
                        PutOptions { notify, ..PutOptions::default() },
                    )?;
                    assert_eq!(put.wait()?, Outcome::Done);
                    let get = scope.get(&window, next, 64, &mut back)?;
                    let add = scope.atomic(&window, next, 8, Atomic::Add64(5))?;
                    scope.send(next, 9, &data)?;
                    let (outcome, back) = get.wait()?;
                    assert_eq!((outcome, &back[..]), (Outcome::Done, &data[..]));
                    let (outcome, message) = message.wait()?;
                    let Outcome::Received(status) = outcome else { panic!("{outcome:?}") };
                    assert_eq!((status.from, status.tag, status.len), (previous, 9, length));
                    assert_eq!(message, text(previous, 1, length));
                    add.wait()
                })
                .expect("scope");
            assert!(matches!(before, Outcome::Value(value) if value % 5 == 0), "{before:?}");
            context.barrier().expect("barrier");
        }
        assert_eq!(window.wait_notify(3, 4).expect("notified"), 4);
        assert_eq!(window.load_u64(8).expect("inside"), 20);
        assert_eq!(context.requests().expect("channel"), 0);
    });
}

#[test]
fn requests_of_owned_memory_give_it_back() {
    const LONG: usize = fewer(100_000, 5_000);
    run("requests_of_owned_memory_give_it_back", LAYOUTS, |context| {
        let window = context.window(4096).expect("window");
        let (me, ranks) = (context.rank(), context.ranks());
        let next = (me + 1) % ranks;
        let data = text(me, 2, 3000);
        let receive = context.receive_owned(Source::Any, Tag::Any).expect("begun");
        let put = window.put_owned(next, 0, data.clone(), PutOptions::default()).expect("begun");
        let (outcome, given) = put.wait().expect("put");
        assert_eq!((outcome, &given), (Outcome::Done, &data));
        let send = context.send_owned(next, 1, data.clone()).expect("begun");
        assert_eq!(send.wait().expect("send").1, data);
        let get = window.get_owned(next, 0, 3000).expect("begun");
        assert_eq!(get.wait().expect("get").1, data);
        let (outcome, message) = receive.wait().expect("receive");
        let Outcome::Received(status) = outcome else { panic!("{outcome:?}") };
        assert_eq!(message, text(status.from, 2, 3000));
        // Dropped sends and puts go on; the end of the job waits for them.
        drop(context.send_owned(next, 2, vec![7; LONG]).expect("begun"));
        drop(window.put_owned(next, 3000, vec![9; 1000], PutOptions::default()).expect("begun"));
        drop(window.get_owned(next, 0, 4000).expect("begun"));
        drop(context.receive_owned(Source::Any, Tag::Is(2)).expect("begun"));
        let (_, late) = context.recv_vec(Source::Any, Tag::Is(2)).expect("receive");
        assert_eq!(late, vec![7; LONG]);
        context.flush_all().expect("flush");
        context.barrier().expect("barrier");
        let mut there = [0; 1000];
        window.read(3000, &mut there).expect("inside");
        assert_eq!(there, [9; 1000]);
    });
}

/// Thousands at a time, to all ranks, waited for in another order than begun.
#[test]
fn thousands_of_requests_are_under_way() {
    run("thousands_of_requests_are_under_way", &[&[2], &[1, 1], &[2, 1]], |context| {
        const EACH: usize = if cfg!(miri) { 20 } else { 1500 };
        const BYTES: usize = 24;
        let (me, ranks) = (context.rank(), context.ranks() as usize);
        let window = context.window(ranks * EACH * BYTES).expect("window");
        let mut numbers = Numbers(7 + u64::from(me));
        let mut handles: Vec<RequestHandle> = Vec::new();
        let data: Vec<Vec<u8>> = (0..EACH).map(|i| text(me, i as u32, BYTES)).collect();
        let mut received = vec![vec![0; BYTES]; EACH * ranks];
        for (index, into) in received.iter_mut().enumerate() {
            let (from, tag) = ((index % ranks) as u32, (index / ranks) as i32);
            // SAFETY: kept until all requests have been waited for.
            let handle = unsafe {
                context.start_receive(
                    Source::Rank(from),
                    Tag::Is(tag),
                    SharedBytesMut::from(&mut into[..]),
                    Report::Handle,
                )
            };
            handles.push(handle.expect("begun"));
        }
        // The highest tags first: each receive is found by its tag.
        for (index, bytes) in data.iter().enumerate().rev() {
            for to in 0..ranks as u32 {
                let offset = (me as usize * EACH + index) * BYTES;
                // SAFETY: as above.
                let (put, send) = unsafe {
                    (
                        window.start_put(to, offset, shared(bytes), PutOptions::default()),
                        context.start_send(to, index as i32, shared(bytes), Report::Handle),
                    )
                };
                handles.extend([put.expect("begun"), send.expect("begun")]);
            }
        }
        assert_eq!(context.requests().expect("channel"), 3 * EACH * ranks);
        for at in (1..handles.len()).rev() {
            handles.swap(at, numbers.below(at as u64 + 1) as usize);
        }
        let ended = context.wait_all(&handles).expect("all");
        assert!(ended.iter().all(Result::is_ok));
        assert_eq!(context.requests().expect("channel"), 0);
        for (index, got) in received.iter().enumerate() {
            assert_eq!(*got, text((index % ranks) as u32, (index / ranks) as u32, BYTES));
        }
        context.barrier().expect("barrier");
        for from in 0..ranks {
            for index in 0..EACH {
                let mut there = [0; BYTES];
                window.read((from * EACH + index) * BYTES, &mut there).expect("inside");
                assert_eq!(there[..], text(from as u32, index as u32, BYTES));
            }
        }
    });
}

/// Rank 1 does not look at its channel. Requests to it wait; those to rank 2 and back go on.
#[test]
#[cfg_attr(miri, ignore = "ranks have one environment here")]
fn a_rank_that_takes_nothing_holds_up_nobody_else() {
    let body = |context: &Context| {
        let window = context.window(4096).expect("window");
        match context.rank() {
            1 => {
                while closed_gate(window.base() as usize) {}
                for _ in 0..200 {
                    let (_, data) = context.recv_vec(Source::Rank(0), Tag::Is(1)).expect("receive");
                    assert_eq!(data, vec![1; 9000]);
                }
            }
            0 => {
                let mut waiting = Vec::new();
                for _ in 0..200 {
                    waiting.push(context.send_owned(1, 1, vec![1; 9000]).expect("begun"));
                }
                let under_way = |context: &Context| {
                    let handles: Vec<_> = waiting.iter().map(|one| one.handle()).collect();
                    context.test_all(&handles).expect("test").is_none()
                };
                assert!(under_way(context), "more than fits on the way");
                for round in 0..50 {
                    let send = context.send_owned(2, 2, vec![2; 9000]).expect("begun");
                    send.wait().expect("sent");
                    let put = window.put_owned(2, 0, vec![3; 64], PutOptions::default());
                    put.expect("begun").wait().expect("put");
                    let (_, back) = context.recv_vec(Source::Rank(2), Tag::Is(3)).expect("back");
                    assert_eq!(back, [round; 8]);
                }
                assert!(under_way(context));
                // Tells the test that rank 1 may go on. No other operation here is atomic.
                window.fetch_add(0, 8, 1).expect("add");
                for one in waiting {
                    one.wait().expect("sent");
                }
            }
            _ => {
                for round in 0..50 {
                    let (_, data) = context.recv_vec(Source::Rank(0), Tag::Is(2)).expect("receive");
                    assert_eq!(data, vec![2; 9000]);
                    context.send(0, 3, &[round; 8]).expect("send");
                }
            }
        }
        context.barrier().expect("barrier");
    };
    // Far, the kept messages of rank 1 are bounded, so that it takes nothing more.
    let env: &[(&str, &str)] = &[("KUMI_UNEXPECTED_BYTES", "20000")];
    for layout in [&[3][..], &[1, 1, 1]] {
        let name = "a_rank_that_takes_nothing_holds_up_nobody_else";
        let mut job = start(name, &Job { layout, env, ..Job::default() }, body);
        let direct = |job: &common::Running| common::counter(&job.sample(0), "direct_atomics") > 0;
        job.until("the others are done", direct);
        job.open_gate_of(1);
        job.wait();
    }
}

#[test]
fn wrong_handles_are_errors_of_their_own() {
    run("wrong_handles_are_errors_of_their_own", &[&[1], &[1, 1]], |context| {
        let window = context.window(64).expect("window");
        let to = context.ranks() - 1;
        let begin = || window.start_atomic(to, 0, Atomic::Add64(1), Report::Handle).expect("begun");
        let handle = begin();
        assert!(matches!(context.wait(handle), Ok(Outcome::Value(_))));
        // Waited for twice, tested, cancelled, released after its end.
        let stale = |error: Error| matches!(error, Error::StaleRequest { handle: of } if of == handle.to_bits());
        assert!(context.wait(handle).is_err_and(stale));
        assert!(context.test(handle).is_err_and(stale));
        assert!(context.cancel(handle).is_err_and(stale));
        assert!(context.release(handle).is_err_and(stale));
        assert!(context.wait_all(&[handle]).is_err_and(stale));
        // The place is used again; the old handle stays stale.
        let fresh = begin();
        assert!(context.wait_any(&[fresh, handle]).is_err_and(stale));
        let twice = context.wait_all(&[fresh, fresh]);
        assert!(matches!(twice, Err(Error::RequestListed { .. })), "{twice:?}");
        assert!(context.wait(fresh).is_ok(), "nothing was waited for");
        assert!(matches!(context.wait_any(&[]), Err(Error::NoRequests)));
        assert!(context.wait_all(&[]).is_ok_and(|none| none.is_empty()));
        for bits in [1, u64::MAX, 1 << 40] {
            let made_up = RequestHandle::from_bits(bits).expect("not 0");
            let found = context.wait(made_up);
            let wrong =
                matches!(found, Err(Error::StaleRequest { .. } | Error::ForeignRequest { .. }));
            assert!(wrong, "{found:?}");
        }
        let other = Context::init_singleton().expect("another job");
        assert!(matches!(other.wait(handle), Err(Error::ForeignRequest { .. })));
        let counter = other.completion().expect("completion");
        let foreign = window.start_atomic(to, 0, Atomic::Add64(1), Report::Counter(&counter));
        assert!(matches!(foreign, Err(Error::ForeignCompletion)), "{foreign:?}");
        let queue = other.completion_queue().expect("queue");
        let foreign = window.start_atomic(to, 0, Atomic::Add64(1), Report::Queue(&queue, 1));
        assert!(matches!(foreign, Err(Error::ForeignCompletion)), "{foreign:?}");
        assert!(matches!(queue.wait(), Err(Error::NoRequests)));
        context.barrier().expect("barrier");
    });
}

#[test]
fn refusals_are_told_by_the_request_by_the_counter_and_by_the_queue() {
    run("refusals_are_told_by_the_request_by_the_counter_and_by_the_queue", LAYOUTS, |context| {
        let window = context.window(64).expect("window");
        let to = context.ranks() - 1;
        let completion = context.completion().expect("completion");
        let queue = context.completion_queue().expect("queue");
        let outside = |report| window.start_atomic(to, 64, Atomic::Swap64(1), report);
        let inside = |report| window.start_atomic(to, 8, Atomic::Swap64(1), report);
        // Known at once where memory is mapped, otherwise when the target refuses.
        let is_right = |error: &Error| matches!(error, Error::OutOfBounds { rank, offset: 64, length: 8, size: 64 } if *rank == to);
        match outside(Report::Handle).and_then(|handle| context.wait(handle)) {
            Err(error) => assert!(is_right(&error), "{error}"),
            Ok(outcome) => panic!("{outcome:?}"),
        }
        inside(Report::Counter(&completion)).expect("begun");
        let told = match outside(Report::Counter(&completion)) {
            Err(error) => error,
            Ok(_) => loop {
                if let Err(error) = completion.done() {
                    break error;
                }
            },
        };
        assert!(is_right(&told), "{told}");
        assert_eq!(completion.wait(1).expect("one is done"), 1);
        inside(Report::Queue(&queue, 77)).expect("begun");
        let entry = queue.wait().expect("entry");
        assert!(entry.word == 77 && matches!(entry.result, Ok(Outcome::Value(1))), "{entry:?}");
        match outside(Report::Queue(&queue, 78)) {
            Err(error) => assert!(is_right(&error), "{error}"),
            Ok(_) => {
                let entry = queue.wait().expect("entry");
                assert!(entry.word == 78 && entry.result.is_err_and(|error| is_right(&error)));
            }
        }
        assert!(queue.poll().expect("channel").is_none());
        assert_eq!(context.requests().expect("channel"), 0);
        context.barrier().expect("barrier");
    });
}

#[test]
fn receives_match_in_the_order_they_were_begun_and_can_be_cancelled() {
    run("receives_match_in_the_order_they_were_begun_and_can_be_cancelled", BOTH, |context| {
        let other = 1 - context.rank();
        let any = context.receive_owned(Source::Any, Tag::Any).expect("begun");
        let tagged = context.receive_owned(Source::Rank(other), Tag::Is(5)).expect("begun");
        let unwanted = context.receive_owned(Source::Any, Tag::Is(99)).expect("begun");
        let late = context.receive_owned(Source::Any, Tag::Is(6)).expect("begun");
        context.barrier().expect("barrier");
        for (tag, data) in [(5, "first"), (5, "second"), (6, "third"), (6, "fourth")] {
            context.send(other, tag, data.as_bytes()).expect("send");
        }
        assert!(unwanted.cancel().expect("channel"), "no message has come for it");
        assert_eq!(unwanted.wait().expect("cancelled").0, Outcome::Cancelled);
        assert_eq!(tagged.wait().expect("receive").1, b"second");
        assert_eq!(any.wait().expect("receive").1, b"first");
        assert_eq!(late.handle(), late.handle());
        while context.probe(Source::Any, Tag::Is(6)).expect("probe").is_none() {}
        assert!(!late.cancel().expect("channel"), "its message has come");
        assert_eq!(late.wait().expect("receive").1, b"third");
        let status = context.await_message(Source::Rank(other), Tag::Any).expect("probe");
        assert_eq!((status.tag, status.len), (6, 6));
        // Claimed: nobody else gets it; dropped, it is there again.
        let claimed = context.await_claim(Source::Any, Tag::Is(6)).expect("claim");
        assert!(context.probe(Source::Any, Tag::Any).expect("probe").is_none());
        assert!(context.claim(Source::Any, Tag::Any).expect("claim").is_none());
        drop(claimed);
        let claimed = context.claim(Source::Any, Tag::Any).expect("claim").expect("again");
        let mut short = [0; 3];
        let cut = claimed.receive(&mut short);
        assert!(matches!(cut, Err(Error::Truncated { needed: 6 })), "{cut:?}");
        assert_eq!(&short, b"fou");
        context.barrier().expect("barrier");
    });
}

#[test]
fn a_message_that_is_too_long_ends_its_request_with_an_error() {
    run("a_message_that_is_too_long_ends_its_request_with_an_error", BOTH, |context| {
        let other = 1 - context.rank();
        let mut short = [0; 3];
        let result = context.scope(|scope| {
            scope.receive(Source::Any, Tag::Any, &mut short)?;
            scope.send(other, 1, b"too long")?;
            Ok(())
        });
        assert!(matches!(result, Err(Error::Truncated { needed: 8 })), "{result:?}");
        assert_eq!(&short, b"too");
        context.barrier().expect("barrier");
    });
}

/// Requests and blocking calls to one rank take effect in their order, also when there is no room on the way.
#[test]
fn requests_and_calls_to_a_rank_keep_their_order() {
    run("requests_and_calls_to_a_rank_keep_their_order", BOTH, |context| {
        let window = context.window(1 << 16).expect("window");
        let mut numbers = Numbers(40);
        const MESSAGES: u32 = if cfg!(miri) { 15 } else { 300 };
        const LONGEST: u64 = fewer(6000, 2000) as u64;
        if context.rank() == 0 {
            let mut begun = Vec::new();
            for number in 0..MESSAGES {
                let data = text(0, number, numbers.below(LONGEST) as usize);
                if numbers.below(3) == 0 {
                    context.send(1, 1, &data).expect("send");
                } else {
                    begun.push(context.send_owned(1, 1, data).expect("begun"));
                }
                if numbers.below(20) == 0 {
                    let value = window.fetch_add(1, 0, 1).expect("add");
                    assert!(value < u64::from(MESSAGES));
                }
            }
            for one in begun.into_iter().rev() {
                one.wait().expect("sent");
            }
        } else {
            for number in 0..MESSAGES {
                let length = numbers.below(LONGEST) as usize;
                let (_, data) = context.recv_vec(Source::Rank(0), Tag::Is(1)).expect("receive");
                assert!(data == text(0, number, length), "message {number}");
                numbers.below(3);
                numbers.below(20);
            }
        }
        context.barrier().expect("barrier");
    });
}

#[test]
fn an_error_or_a_panic_in_a_scope_gives_all_memory_back() {
    const LONG: usize = fewer(60_000, 5_000);
    run("an_error_or_a_panic_in_a_scope_gives_all_memory_back", BOTH, |context| {
        let window = context.window(4096).expect("window");
        let other = 1 - context.rank();
        for panics in [false, true] {
            let (mut message, mut bytes) = ([0; 16], [0; 4096]);
            let data = vec![5; LONG];
            let scope = || {
                context.scope(|scope| {
                    scope.receive(Source::Any, Tag::Is(1), &mut message)?;
                    scope.get(&window, other, 0, &mut bytes)?;
                    scope.send(other, 2, &data)?;
                    if panics {
                        std::panic::panic_any("on purpose");
                    }
                    Err::<(), _>(Error::BadTag { tag: -1 })
                })
            };
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(scope));
            assert_eq!(result.is_err(), panics);
            if let Ok(result) = result {
                assert!(matches!(result, Err(Error::BadTag { .. })));
            }
            // What was begun to be sent arrives, though its memory is used for something else.
            drop(data);
            let (_, data) = context.recv_vec(Source::Any, Tag::Is(2)).expect("receive");
            assert!(data == vec![5; LONG]);
            let seen = (message, bytes);
            context.send(other, 1, b"for the next one").expect("send");
            let (_, data) = context.recv_vec(Source::Any, Tag::Is(1)).expect("receive");
            assert_eq!(data, b"for the next one");
            assert!((message, bytes) == seen, "nobody writes there any more");
            context.barrier().expect("barrier");
        }
    });
}

/// A barrier that is a request goes on while its program computes: the others come through though rank 0, which has begun
/// it, does not call the library.
#[test]
#[cfg_attr(miri, ignore = "the job is over before the test looks at it")]
fn a_barrier_goes_on_while_a_program_computes() {
    let body = |context: &Context| {
        let window = context.window(4096).expect("window");
        if context.rank() == 0 {
            let barrier = context.start_barrier(Report::Handle).expect("begun");
            while closed_gate(window.base() as usize) {}
            assert_eq!(context.wait(barrier).expect("barrier"), Outcome::Done);
        } else {
            let barrier = context.start_barrier(Report::Handle).expect("begun");
            assert_eq!(context.wait(barrier).expect("barrier"), Outcome::Done);
            // Tells the test. No other operation here is atomic.
            window.fetch_add(context.rank(), 8, 1).expect("add");
        }
        context.barrier().expect("barrier");
    };
    let name = "a_barrier_goes_on_while_a_program_computes";
    let mut job = start(name, &Job { layout: &[1, 1, 1], ..Job::default() }, body);
    job.until("the others are through", |job| {
        [1, 2].iter().all(|rank| common::counter(&job.sample(*rank), "direct_atomics") == 1)
    });
    job.open_gate();
    job.wait();
}

/// A barrier that is a request ends at nobody before all have begun it.
#[test]
fn a_barrier_waits_for_all() {
    let layouts: &[&[u32]] = &[&[1], &[2], &[1, 1, 1], &[2, 1, 2]];
    run("a_barrier_waits_for_all", layouts, |context| {
        let window = context.window(64).expect("window");
        for round in 1..=fewer(20, 4) as u64 {
            // Whoever is behind the barrier sees what all did before it.
            window.fetch_add(0, 8, 1).expect("add");
            let barrier = context.start_barrier(Report::Handle).expect("begun");
            let mut turns = 0;
            while context.test(barrier).expect("barrier").is_none() {
                turns += 1;
                if turns > 3 {
                    assert_eq!(context.wait(barrier).expect("barrier"), Outcome::Done);
                    break;
                }
            }
            let all = round * u64::from(context.ranks());
            let seen = window.fetch_add(0, 8, 0).expect("read");
            assert!((all..all + u64::from(context.ranks())).contains(&seen), "{seen} of {all}");
        }
        // Several at a time.
        let many: Vec<_> =
            (0..5).map(|_| context.start_barrier(Report::Handle).expect("begun")).collect();
        assert!(context.wait_all(&many).expect("all").iter().all(Result::is_ok));
        context.barrier().expect("barrier");
    });
}

/// A receive that has its message is dropped: the message is the next receive's, which is over at once.
#[test]
fn the_message_of_a_dropped_receive_ends_the_next_one() {
    let context = Context::init_singleton().expect("a job of one");
    let first = context.receive_owned(Source::Any, Tag::Is(1)).expect("begun");
    let second = context.receive_owned(Source::Any, Tag::Is(1)).expect("begun");
    context.send(0, 1, b"one").expect("send");
    assert!(context.test(second.handle()).expect("test").is_none(), "it is the first one's");
    drop(first);
    assert_eq!(context.ready_any(&[second.handle()]).expect("over"), 0);
    assert_eq!(second.wait().expect("receive").1, b"one");
    // The same of a message that was claimed.
    let claimed = context.send(0, 1, b"two").and_then(|()| context.claim(Source::Any, Tag::Is(1)));
    let third = context.receive_owned(Source::Any, Tag::Is(1)).expect("begun");
    drop(claimed.expect("claim"));
    assert_eq!(context.ready_any(&[third.handle()]).expect("over"), 0);
    assert_eq!(third.wait().expect("receive").1, b"two");
    context.finalize().expect("end");
}

/// The end of a request is told to a counter or a queue. Waits for its handle end too, and take nobody else's place.
#[test]
fn waits_for_what_is_told_elsewhere_end() {
    run("waits_for_what_is_told_elsewhere_end", &[&[1, 1]], |context| {
        let window = context.window(4096).expect("window");
        let (next, data) = (1 - context.rank(), [5; 2000]);
        let completion = context.completion().expect("completion");
        let begin = || {
            let options =
                PutOptions { report: Report::Counter(&completion), ..PutOptions::default() };
            // SAFETY: it outlives the request, which is over before the completion says so.
            unsafe { window.start_put(next, 0, shared(&data), options) }.expect("begun")
        };
        let stale =
            |ended: &Result<Outcome, Error>| matches!(ended, Err(Error::StaleRequest { .. }));
        for round in 0..if cfg!(miri) { 10 } else { 100 } {
            let counted = begin();
            let ended = match round % 3 {
                0 => context.wait_any(&[counted]).map(|one| vec![one.1]),
                1 => context
                    .wait_some(&[counted])
                    .map(|all| all.into_iter().map(|one| one.1).collect()),
                _ => context.wait_all(&[counted]),
            };
            match ended {
                Ok(ended) => assert!(ended.iter().all(stale), "{ended:?}"),
                Err(error) => assert!(matches!(error, Error::StaleRequest { .. }), "{error:?}"),
            }
            assert_eq!(completion.wait(round + 1).expect("placed"), round + 1);
        }
        context
            .scope(|scope| {
                let report = Report::Counter(&completion);
                let options = PutOptions { report, ..PutOptions::default() };
                scope.put(&window, next, 0, &data, options).map(drop)
            })
            .expect("told to the counter");
        assert_eq!(completion.wait(101).expect("placed"), 101);
        context.barrier().expect("barrier");
    });
}

/// Receives are cancelled and dropped while messages come: each message is received once, in the order of its sender.
#[test]
fn receives_that_are_given_up_lose_no_message() {
    run("receives_that_are_given_up_lose_no_message", BOTH, |context| {
        const MESSAGES: u32 = if cfg!(miri) { 20 } else { 400 };
        let message = |number: u32| text(1, number, (number % 7) as usize * 900);
        if context.rank() == 1 {
            for number in 0..MESSAGES {
                context.send(0, 1, &message(number)).expect("send");
            }
        } else {
            let (mut numbers, mut next) = (Numbers(3), 0);
            while next < MESSAGES {
                let one = context.receive_owned(Source::Any, Tag::Is(1)).expect("begun");
                match numbers.below(4) {
                    0 => drop(one),
                    1 if one.cancel().expect("channel") => {
                        assert_eq!(one.wait().expect("cancelled").0, Outcome::Cancelled);
                    }
                    _ => {
                        assert!(one.wait().expect("receive").1 == message(next), "{next}");
                        next += 1;
                    }
                }
            }
        }
        context.barrier().expect("barrier");
    });
}
