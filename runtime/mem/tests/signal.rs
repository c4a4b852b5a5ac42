//! Memory-based signals between real processes, over shared memory and UDP.

mod common;

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use common::{fewer, run};
use kumi_mem::Error;

const BOTH: &[&[u32]] = &[&[2], &[1, 1]];
/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(15);

#[test]
fn handlers_run_in_order_while_the_program_does_not_call() {
    const SIGNALS: u32 = if cfg!(miri) { 5 } else { 100 };
    run(
        "handlers_run_in_order_while_the_program_does_not_call",
        &[&[1], &[3], &[1, 1], &[2, 2], &[1, 2]],
        |context| {
            let (me, ranks) = (context.rank(), context.ranks());
            let window = context.window(4096).expect("window");
            let (out, signals) = mpsc::channel();
            // Room for three or four: senders wait for the handler.
            let handler = move |signal: kumi_mem::Signal<'_>| {
                out.send((signal.from, signal.data.to_vec())).expect("send");
            };
            window.on_signal(256, 64, handler).expect("port");
            context.barrier().expect("barrier");
            for number in 0..SIGNALS {
                for to in 0..ranks {
                    window.signal(to, 256, &number.to_le_bytes()).expect("signal");
                }
            }
            // No call of the library from here: handlers run without.
            let mut next = vec![0u32; ranks as usize];
            for _ in 0..SIGNALS * ranks {
                let (from, data) = signals.recv_timeout(PATIENCE).expect("signal");
                assert_eq!(data, next[from as usize].to_le_bytes(), "rank {me} from {from}");
                next[from as usize] += 1;
            }
            assert_eq!(next, vec![SIGNALS; ranks as usize]);
            context.barrier().expect("barrier");
            assert!(signals.try_recv().is_err(), "and no more");
        },
    );
}

#[test]
#[cfg_attr(miri, ignore = "its jobs have more than three ranks")]
fn a_handler_is_never_entered_twice() {
    run("a_handler_is_never_entered_twice", &[&[4], &[2, 2]], |context| {
        let window = context.window(4096).expect("window");
        let inside = Arc::new(AtomicU32::new(0));
        let runs = Arc::new(AtomicU32::new(0));
        let (in_handler, counted) = (Arc::clone(&inside), Arc::clone(&runs));
        window
            .on_signal(0, 1024, move |_| {
                assert_eq!(in_handler.fetch_add(1, SeqCst), 0);
                std::thread::yield_now();
                in_handler.fetch_sub(1, SeqCst);
                counted.fetch_add(1, SeqCst);
            })
            .expect("port");
        context.barrier().expect("barrier");
        for _ in 0..50 {
            for to in 0..context.ranks() {
                window.signal(to, 0, &[]).expect("signal");
            }
        }
        let end = std::time::Instant::now() + PATIENCE;
        while runs.load(SeqCst) < 50 * context.ranks() {
            assert!(std::time::Instant::now() < end, "{} runs", runs.load(SeqCst));
            std::thread::sleep(Duration::from_millis(1));
        }
        context.barrier().expect("barrier");
    });
}

#[test]
fn a_panic_becomes_an_error_of_the_next_call() {
    run("a_panic_becomes_an_error_of_the_next_call", BOTH, |context| {
        let window = context.window(4096).expect("window");
        let (out, signals) = mpsc::channel();
        window
            .on_signal(512, 256, move |signal| {
                if signal.data == b"bad" {
                    // Told before, so that the test knows that it comes.
                    out.send(0).expect("send");
                    // A panic without the hook's lines on standard error.
                    std::panic::resume_unwind(Box::new(format!("of rank {}", signal.from)));
                }
                out.send(1).expect("send");
            })
            .expect("port");
        context.barrier().expect("barrier");
        if context.rank() == 0 {
            for data in [&b"bad"[..], b"bad", b"good"] {
                window.signal(1, 512, data).expect("signal");
            }
            context.barrier().expect("barrier");
            return;
        }
        // The handler runs with the next record after each panic; when the third has run both panics
        // have been noted.
        for right in [0, 0, 1] {
            assert_eq!(signals.recv_timeout(PATIENCE), Ok(right));
        }
        match context.flush(0) {
            Err(Error::HandlerPanicked { offset: 512, count: 2, text }) => {
                assert_eq!(text, "of rank 0");
            }
            found => panic!("{found:?}"),
        }
        context.flush(0).expect("said once");
        context.barrier().expect("barrier");
    });
}

#[test]
fn a_panic_is_told_by_one_sided_operations_that_wait() {
    run("a_panic_is_told_by_one_sided_operations_that_wait", BOTH, |context| {
        let window = context.window(4096).expect("window");
        let completion = context.completion().expect("completion");
        let (out, signals) = mpsc::channel();
        window
            .on_signal(512, 256, move |signal| {
                out.send(signal.data.len()).expect("send");
                if signal.data.is_empty() {
                    std::panic::resume_unwind(Box::new("as it should"));
                }
            })
            .expect("port");
        context.barrier().expect("barrier");
        let multicast = || window.multicast(&[0, 1], 0, b"all", Some(3));
        let wait = || completion.wait_all();
        let calls: [&dyn Fn() -> Result<(), Error>; 2] = [&multicast, &wait];
        for call in calls {
            if context.rank() == 0 {
                window.signal(1, 512, b"").expect("signal");
                window.signal(1, 512, b"x").expect("signal");
            } else {
                assert_eq!(signals.recv_timeout(PATIENCE), Ok(0));
                assert_eq!(signals.recv_timeout(PATIENCE), Ok(1));
                let found = call();
                assert!(matches!(found, Err(Error::HandlerPanicked { count: 1, .. })), "{found:?}");
            }
            context.barrier().expect("barrier");
            assert_eq!(window.notified(3).expect("notified"), 0, "the call did nothing");
        }
        context.barrier().expect("all have looked");
        multicast().expect("said once");
        context.barrier().expect("barrier");
        assert_eq!(window.notified(3).expect("notified"), 2);
    });
}

#[test]
#[cfg_attr(miri, ignore = "ranks are no processes here")]
fn a_panic_that_no_call_told_is_told_at_the_end() {
    if common::is_rank() {
        let context = kumi_mem::Context::init().expect("init");
        let window = context.window(4096).expect("window");
        let (out, signals) = mpsc::channel();
        window
            .on_signal(0, 64, move |signal| {
                out.send(()).expect("send");
                if !signal.data.is_empty() {
                    std::panic::resume_unwind(Box::new("at the end"));
                }
            })
            .expect("port");
        for data in [&b"bad"[..], b""] {
            window.signal(context.rank(), 0, data).expect("signal");
        }
        for _ in 0..2 {
            signals.recv_timeout(PATIENCE).expect("signal");
        }
        drop(window);
        let found = context.finalize();
        let right = matches!(found, Err(Error::HandlerPanicked { count: 1, .. }));
        std::process::exit(i32::from(!right));
    }
    let name = "a_panic_that_no_call_told_is_told_at_the_end";
    let job = common::Job { layout: &[1], ..common::Job::default() };
    common::start(name, &job, |_| {}).finish();
}

#[test]
fn ports_come_and_go() {
    run("ports_come_and_go", BOTH, |context| {
        let (me, other) = (context.rank(), 1 - context.rank());
        let window = context.window(4096).expect("window");
        let seen: Arc<Mutex<Vec<u8>>> = Arc::default();
        for round in 0..5u8 {
            let (out, signals) = mpsc::channel();
            let kept = Arc::clone(&seen);
            window
                .on_signal(64, 128, move |signal| {
                    kept.lock().expect("lock").extend_from_slice(signal.data);
                    out.send(()).expect("send");
                })
                .expect("port");
            context.barrier().expect("barrier");
            window.signal(other, 64, &[round]).expect("signal");
            signals.recv_timeout(PATIENCE).expect("signal");
            context.barrier().expect("barrier");
            window.remove_signal(64).expect("remove");
            context.barrier().expect("barrier");
            let gone = window.try_signal(other, 64, &[9]);
            assert!(matches!(gone, Err(Error::NoFifo { offset: 64, .. })), "{gone:?}");
            let gone = window.remove_signal(64);
            assert!(matches!(gone, Err(Error::NoFifo { rank, .. }) if rank == me), "{gone:?}");
            context.barrier().expect("barrier");
        }
        assert_eq!(*seen.lock().expect("lock"), [0, 1, 2, 3, 4]);
        context.barrier().expect("barrier");
    });
}

#[test]
fn signals_are_served_while_main_waits() {
    const EACH: u32 = fewer(40, 5) as u32;
    run("signals_are_served_while_main_waits", &[&[3], &[1, 1, 1], &[2, 1]], |context| {
        let (me, ranks) = (context.rank(), context.ranks());
        let window = context.window(4096).expect("window");
        let count = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&count);
        // Room for one: a second sender waits until the handler has had the first record.
        let handler = move |_: kumi_mem::Signal<'_>| {
            counted.fetch_add(1, SeqCst);
        };
        window.on_signal(0, 16, handler).expect("port");
        context.barrier().expect("barrier");
        if me > 0 {
            for _ in 0..EACH {
                window.signal(0, 0, &[7]).expect("signal");
            }
        }
        // Rank 0 is in here meanwhile.
        context.barrier().expect("barrier");
        let end = std::time::Instant::now() + PATIENCE;
        while me == 0 && count.load(SeqCst) < EACH * (ranks - 1) {
            assert!(std::time::Instant::now() < end, "{} of them", count.load(SeqCst));
            std::thread::sleep(Duration::from_millis(1));
        }
        context.barrier().expect("barrier");
    });
}

#[test]
#[cfg_attr(miri, ignore = "the job is over before the test looks at it")]
fn a_rank_with_a_signal_to_handle_is_not_idle() {
    let body = |context: &kumi_mem::Context| {
        let window = context.window(4096).expect("window");
        let base = window.base() as usize;
        let handler = move |_: kumi_mem::Signal<'_>| while common::closed_gate(base) {};
        window.on_signal(0, 64, handler).expect("port");
        context.barrier().expect("barrier");
        if context.rank() == 1 {
            window.signal(0, 0, b"one").expect("signal");
            window.signal(0, 0, b"two").expect("signal");
        }
        // Records that never come.
        window.wait_notify(5, 1).map(drop).unwrap_or_default();
    };
    for layout in BOTH {
        let job = common::Job { layout, ..common::Job::default() };
        let name = "a_rank_with_a_signal_to_handle_is_not_idle";
        let job = common::start(name, &job, body);
        // Rank 1 waits, so it has sent both; rank 0 waits too, but its handler does not.
        job.until("busy with the handler only", |job| {
            job.sample(1).idle && !job.sample(0).idle && job.total("sent") == job.total("delivered")
        });
        job.open_gate();
        job.until("idle after it", |job| job.sample(0).idle && job.sample(1).idle);
        std::thread::sleep(Duration::from_millis(20));
        assert!(job.sample(0).idle && job.sample(1).idle, "and stays so");
    }
}
