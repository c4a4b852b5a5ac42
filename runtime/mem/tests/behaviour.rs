//! Behaviour between operations: the idle flag, stopped and killed ranks, waits of all kinds, the
//! handler thread, bounds, the end.

#[path = "common/bad_packets.rs"]
mod bad_packets;
mod common;

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Acquire;
use std::time::{Duration, Instant};

use common::{GATE, Job, closed_gate, counter, fewer, is_rank, launch, start};
use kumi_mem::{Context, Error, Source, Tag};
use kumi_net::layout::{Layout, SharedLines};

const BOTH: [&[u32]; 2] = [&[2], &[1, 1]];

fn sleep_ms(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}

/// Computes without calling the library.
fn compute(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

#[test]
#[cfg_attr(miri, ignore = "the job is over before the test looks at it")]
fn idle_is_shown_exactly_while_a_rank_waits() {
    let body = |context: &Context| {
        let window = context.window(4096).expect("window");
        let busy = || while closed_gate(window.base() as usize) {};
        // The test sees by this that the window is made.
        window.put(context.rank(), 0, &[1; 8]).expect("put");
        // Rank 1 is silent until its gate opens, then rank 0 gets what it waits for and is busy itself.
        if context.rank() == 0 {
            context.recv(Source::Rank(1), Tag::Is(1), &mut [0; 8]).expect("recv");
            busy();
            context.recv(Source::Rank(1), Tag::Is(2), &mut [0; 8]).expect("recv");
        } else {
            busy();
            context.send(0, 1, &[0; 8]).expect("send");
            context.recv(Source::Rank(0), Tag::Is(9), &mut []).map(drop).unwrap_or_default();
        }
    };
    for layout in BOTH {
        let job = start(
            "idle_is_shown_exactly_while_a_rank_waits",
            &Job { layout, ..Job::default() },
            body,
        );
        job.until("attached", |job| job.sample(0).attached && job.sample(1).attached);
        job.until("idle in its first wait", |job| {
            let (zero, one) = (job.sample(0), job.sample(1));
            let made = [&zero, &one].iter().all(|sample| counter(sample, "direct_puts") == 1);
            made && zero.idle && !one.idle
        });
        job.open_gate_of(1);
        job.until("busy with computing", |job| !job.sample(0).idle && job.sample(1).idle);
        job.open_gate();
        job.until("idle for ever, and nothing in flight", |job| {
            let still = job.sample(0).idle && job.sample(1).idle;
            still && job.total("sent") == job.total("delivered")
        });
        sleep_ms(20);
        assert!(job.sample(0).idle && job.sample(1).idle, "a deadlock stays one");
        assert_eq!(job.total("sent"), job.total("delivered"));
        // Dropping the job kills it: waiting ranks wait for ever.
    }
}

#[test]
#[cfg_attr(miri, ignore = "the job is over before the test looks at it")]
fn a_notification_not_noticed_yet_is_not_idle() {
    let body = |context: &Context| {
        let window = context.window(4096).expect("window");
        if context.rank() == 0 {
            window.wait_notify(3, 1).expect("wait");
        } else {
            // The test sees by this that the window is made. Until rank 0 is stopped in its wait.
            window.put(1, 0, &[1; 8]).expect("put");
            while closed_gate(window.base() as usize) {}
            window.put_notify(0, 0, &[1; 8], 3).expect("put");
        }
        context.barrier().expect("barrier");
    };
    let job = Job { layout: &[2], ..Job::default() };
    let job = start("a_notification_not_noticed_yet_is_not_idle", &job, body);
    job.until("idle behind the making of the window", |job| {
        let made = counter(&job.sample(1), "direct_puts") == 1;
        made && job.total("delivered") == 4 && job.sample(0).idle && !job.sample(1).idle
    });
    job.signal(0, libc::SIGSTOP);
    assert!(job.sample(0).idle);
    job.open_gate_of(1);
    job.until("put", |job| counter(&job.sample(1), "direct_puts") == 2);
    job.until("not idle any more, though stopped", |job| !job.sample(0).idle);
    job.signal(0, libc::SIGCONT);
    job.finish();
}

#[test]
#[cfg_attr(miri, ignore = "ranks are no processes here")]
fn stopping_ranks_at_any_moment_is_harmless() {
    let body = |context: &Context| {
        let (me, ranks) = (context.rank(), context.ranks());
        let window = context.window(8 * ranks as usize).expect("window");
        let next = (me + 1) % ranks;
        let before = (me + ranks - 1) % ranks;
        let data = vec![me as u8; 20_000];
        for round in 1..=150u64 {
            window.put_notify(next, 8 * me as usize, &round.to_ne_bytes(), 0).expect("put");
            let mut into = vec![0; 20_000];
            let from = Source::Rank(before);
            context.sendrecv(next, 0, &data, from, Tag::Is(0), &mut into).expect("sendrecv");
            assert!(into.iter().all(|byte| *byte == before as u8));
            window.wait_notify(0, round).expect("wait");
            assert_eq!(window.load_u64(8 * before as usize).expect("load"), round);
            let mut sum = [round];
            context.allreduce(kumi_mem::Op::Sum, &mut sum).expect("allreduce");
            assert_eq!(sum, [round * u64::from(ranks)]);
            context.barrier().expect("barrier");
        }
    };
    for layout in [&[3][..], &[2, 1]] {
        let job = start(
            "stopping_ranks_at_any_moment_is_harmless",
            &Job { layout, ..Job::default() },
            body,
        );
        job.finish_while_stopped(25, layout.len() as u64);
    }
}

#[test]
fn the_handler_thread_serves_while_main_computes() {
    const ADDS: u64 = if cfg!(miri) { 5 } else { 100 };
    let body = |context: &Context| {
        let window = context.window(4096).expect("window");
        // After a short wait, and after one so long that the handler thread sleeps deep.
        for (round, pause) in [(1, 0), (2, 200)] {
            if context.rank() == 1 {
                sleep_ms(pause);
            }
            context.barrier().expect("barrier");
            if context.rank() == 0 {
                // SAFETY: an aligned word of the window, which lives on.
                let done = unsafe { AtomicU64::from_ptr(window.base().add(8).cast()) };
                while done.load(Acquire) < round {
                    std::hint::spin_loop();
                }
                assert_eq!(window.load_u64(0).expect("load"), ADDS * round, "all done meanwhile");
                assert_eq!(window.notified(1).expect("notified"), round);
            } else {
                for _ in 0..ADDS {
                    window.fetch_add(0, 0, 1).expect("fetch_add");
                }
                window.put_notify(0, 64, &[7; 2000], 1).expect("put");
                let mut back = [0; 2000];
                window.get(0, 64, &mut back).expect("get");
                assert_eq!(back, [7; 2000]);
                context.flush(0).expect("flush");
                // Only now does rank 0 call the library again.
                window.put(0, 8, &round.to_ne_bytes()).expect("put");
            }
            context.barrier().expect("barrier");
        }
    };
    let job = Job { layout: &[1, 1], ..Job::default() };
    start("the_handler_thread_serves_while_main_computes", &job, body).finish();
}

/// Small puts one after the other are held back to leave together; all the same they leave, though their
/// sender computes and never calls again.
#[test]
fn what_was_held_back_leaves_while_its_sender_computes() {
    const PUTS: u64 = if cfg!(miri) { 10 } else { 150 };
    let body = |context: &Context| {
        let window = context.window(4096).expect("window");
        context.barrier().expect("barrier");
        if context.rank() == 1 {
            for _ in 0..PUTS {
                window.put_notify(0, 64, &[7; 16], 1).expect("put");
            }
            let base = window.base() as usize;
            while closed_gate(base) {}
        } else {
            assert_eq!(window.wait_notify(1, PUTS).expect("wait"), PUTS);
            window.put(1, GATE, &1u64.to_ne_bytes()).expect("put");
        }
        context.barrier().expect("barrier");
    };
    let job = Job { layout: &[1, 1], ..Job::default() };
    start("what_was_held_back_leaves_while_its_sender_computes", &job, body).finish();
}

#[test]
#[cfg_attr(miri, ignore = "ranks have one environment here")]
fn a_bad_wire_changes_nothing_but_the_counters() {
    const ROUNDS: u64 = 200;
    let body = |context: &Context| {
        let (me, ranks) = (context.rank(), context.ranks());
        let window = context.window(64 * 1024).expect("window");
        let (next, before) = ((me + 1) % ranks, (me + ranks - 1) % ranks);
        let mut back = vec![0; 5000];
        for round in 1..=ROUNDS {
            let byte = (round % 251) as u8 + me as u8;
            window.put_notify(next, 4096, &[byte; 5000], 1).expect("put");
            window.fetch_add(0, 0, 1).expect("fetch_add");
            let got = context.sendrecv(
                next,
                7,
                &round.to_ne_bytes(),
                Source::Rank(before),
                Tag::Is(7),
                &mut back[..8],
            );
            assert_eq!((got.expect("sendrecv").len, &back[..8]), (8, &round.to_ne_bytes()[..]));
            window.wait_notify(1, round).expect("wait");
            window.get(me, 4096, &mut back).expect("get");
            assert_eq!(back, [(round % 251) as u8 + before as u8; 5000], "round {round}");
            context.barrier().expect("barrier");
        }
        if me == 0 {
            assert_eq!(window.load_u64(0).expect("load"), ROUNDS * u64::from(ranks));
        }
        let resends = context.counters().iter().find(|(name, _)| *name == "resends").copied();
        assert!(resends.is_some_and(|(_, count)| count > 0), "packets were lost on purpose");
        context.barrier().expect("barrier");
    };
    let env = [("KUMI_FAULTS", "loss=30,double=20,late=30,seed=11")];
    let job = Job { layout: &[1, 1, 1], env: &env, ..Job::default() };
    start("a_bad_wire_changes_nothing_but_the_counters", &job, body).finish();
}

#[test]
#[cfg_attr(miri, ignore = "ranks have one environment here")]
fn every_way_of_waiting_works() {
    let body = |context: &Context| {
        let window = context.window(64).expect("window");
        let (me, ranks) = (context.rank(), context.ranks());
        let next = (me + 1) % ranks;
        for round in 1..=60 {
            window.put_notify(next, 0, &[1; 8], 0).expect("put");
            window.wait_notify(0, round).expect("wait");
            context.send(next, 0, &[0; 3000]).expect("send");
            context.recv(Source::Any, Tag::Any, &mut [0; 3000]).expect("recv");
            context.flush(next).expect("flush");
            context.barrier().expect("barrier");
        }
    };
    for spin in ["0", "5", "adaptive"] {
        for layout in [&[3][..], &[2, 1], &[1, 1]] {
            let env = &[("KUMI_SPIN", spin)];
            // All on one processor: a waiting rank must let the others run.
            let cpus = &[0, 0, 0];
            let job = Job { layout, env, cpus, ..Job::default() };
            let mut job = start("every_way_of_waiting_works", &job, body);
            job.wait();
            let [spun, blocked] = ["waits_spun", "waits_blocked"].map(|name| job.total(name));
            assert!(spun + blocked > 0, "{spin}: nobody waited");
            assert!(spin != "0" || blocked > 0, "{spin}: {spun} waits spun, none blocked");
            job.finish();
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "ranks have one environment here")]
fn infinite_spinning_ranks_share_a_processor() {
    let body = |context: &Context| {
        for _ in 0..5 {
            context.barrier().expect("barrier");
        }
        let other = 1 - context.rank();
        let mut data = vec![0; 100_000];
        let out = data.clone();
        let from = Source::Rank(other);
        context.sendrecv(other, 0, &out, from, Tag::Any, &mut data).expect("sendrecv");
    };
    for layout in BOTH {
        let env = &[("KUMI_SPIN", "infinite")];
        let job = Job { layout, env, cpus: &[1, 1], ..Job::default() };
        let mut job = start("infinite_spinning_ranks_share_a_processor", &job, body);
        job.wait();
        assert!(job.total("waits_spun") > 0);
        assert_eq!(job.total("waits_blocked"), 0, "no wait sleeps");
        job.finish();
    }
}

#[test]
#[cfg_attr(miri, ignore = "ranks have one environment here")]
fn unread_messages_are_bounded_and_their_senders_wait() {
    let body = |context: &Context| {
        if context.rank() == 0 {
            // Rank 1 computes: its handler thread can keep about 40 of these.
            for tag in 0..200 {
                context.send(1, tag, &[tag as u8; 1000]).expect("send");
            }
            let own = context.send(0, 0, &vec![0; 100_000]);
            assert!(matches!(own, Err(Error::Unread { bytes: 100_000 })), "{own:?}");
        } else {
            compute(Duration::from_millis(100));
            let unread = context.counters().iter().find(|(name, _)| *name == "unread").map(|c| c.1);
            assert!(unread <= Some(40), "{unread:?}");
            for tag in (0..200).rev().chain([200]) {
                if tag == 200 {
                    break;
                }
                let mut data = [0; 1000];
                let received = context.recv(Source::Rank(0), Tag::Is(tag), &mut data);
                assert_eq!(received.expect("recv").len, 1000);
                assert_eq!(data, [tag as u8; 1000]);
            }
        }
        context.barrier().expect("barrier");
    };
    for layout in BOTH {
        let env = &[("KUMI_UNEXPECTED_BYTES", "40000")];
        let job = Job { layout, env, ..Job::default() };
        start("unread_messages_are_bounded_and_their_senders_wait", &job, body).finish();
    }
}

/// Two ranks that flush to each other what neither may keep, and receive only then.
#[test]
#[cfg_attr(miri, ignore = "ranks have one environment here")]
fn flushing_to_each_other_goes_beyond_what_is_kept() {
    let body = |context: &Context| {
        let other = 1 - context.rank();
        for round in 0..4 {
            context.send(other, round, &[round as u8; 100_000]).expect("send");
            if round % 2 == 0 {
                context.flush(other).expect("flush");
            } else {
                context.flush_all().expect("flush");
            }
            let mut data = vec![9; 100_000];
            context.recv(Source::Rank(other), Tag::Is(round), &mut data).expect("recv");
            assert!(data.iter().all(|byte| *byte == round as u8));
        }
    };
    for layout in BOTH {
        let env = &[("KUMI_UNEXPECTED_BYTES", "65536")];
        let job = Job { layout, env, ring_bytes: 256 * 1024, ..Job::default() };
        start("flushing_to_each_other_goes_beyond_what_is_kept", &job, body).finish();
    }
}

#[test]
#[cfg_attr(miri, ignore = "ranks are no processes here")]
fn a_peer_that_ended_does_not_keep_others_from_ending() {
    let job = Job { layout: &[1, 1, 1], ..Job::default() };
    if is_rank() {
        let context = Context::init().expect("init");
        context.barrier().expect("barrier");
        match context.rank() {
            0 => {
                compute(Duration::from_millis(100));
                context.send(1, 0, &[1; 100]).expect("send");
                context.finalize().expect("rank 1 has ended: nothing to wait for");
            }
            1 => {} // Ends without leaving properly.
            _ => {
                context.send(0, 0, &[1; 100]).expect("send");
                compute(Duration::from_millis(300));
                context.finalize().expect("acked");
            }
        }
        std::process::exit(0);
    }
    let name = "a_peer_that_ended_does_not_keep_others_from_ending";
    // Rank 0 waits for the end of rank 2, not of rank 1: that would be a fault.
    launch(&[name, "--exact", "--nocapture", "--test-threads=1"], &job).wait();
}

#[test]
#[cfg_attr(miri, ignore = "ranks are no processes here")]
fn a_peer_that_is_stopped_delays_the_end_only_for_a_while() {
    let job = Job { layout: &[1, 1], ..Job::default() };
    if is_rank() {
        let context = Context::init().expect("init");
        if context.rank() == 1 {
            std::thread::sleep(Duration::from_secs(60));
        }
        sleep_ms(100);
        context.send(1, 0, &[1; 100]).expect("send");
        let begin = Instant::now();
        let end = context.finalize();
        assert!(matches!(end, Err(Error::Fault(_))), "{end:?}");
        assert!(begin.elapsed() >= Duration::from_secs(2));
        std::process::exit(0);
    }
    let name = "a_peer_that_is_stopped_delays_the_end_only_for_a_while";
    let mut job = launch(&[name, "--exact", "--nocapture", "--test-threads=1"], &job);
    job.until("attached", |job| job.sample(1).attached);
    job.signal(1, libc::SIGSTOP);
    job.wait_for(0);
}

#[test]
fn what_was_sent_last_arrives_though_the_sender_ends() {
    const LAST: usize = fewer(50_000, 5_000);
    let body = |context: &Context| {
        if context.rank() == 0 {
            context.send(1, 0, &vec![5; LAST]).expect("send");
        } else {
            sleep_ms(50);
            let (_, data) = context.recv_vec(Source::Rank(0), Tag::Any).expect("recv");
            assert!(data == vec![5; LAST]);
        }
    };
    for layout in BOTH {
        let job = Job { layout, ring_bytes: 128 * 1024, ..Job::default() };
        start("what_was_sent_last_arrives_though_the_sender_ends", &job, body).finish();
    }
}

#[test]
#[cfg_attr(miri, ignore = "no sockets")]
fn strangers_packets_are_dropped_and_counted() {
    let packets = bad_packets::each();
    let expected = packets.len() as u64;
    let body = |context: &Context| {
        context.barrier().expect("barrier");
        if context.rank() == 0 {
            // Until the packets are there.
            let invalid = || context.counters().iter().find(|c| c.0 == "invalid").map(|c| c.1);
            while invalid() < Some(expected) {
                context.progress().expect("progress");
            }
        }
        context.barrier().expect("barrier");
    };
    let job = Job { layout: &[1, 1, 1], ..Job::default() };
    let mut job = start("strangers_packets_are_dropped_and_counted", &job, body);
    bad_packets::accepted_when_right();
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("socket");
    for (check, packet) in &packets {
        assert_eq!(bad_packets::dropped_by(packet), [(*check, 1)]);
        socket.send_to(packet, job.addresses[0]).expect("send");
    }
    job.wait();
    assert_eq!(counter(&job.sample(0), "invalid"), expected);
    job.finish();
}

#[test]
#[cfg_attr(miri, ignore = "ranks have one environment here")]
fn a_damaged_ring_is_an_error_not_a_crash() {
    let body = |context: &Context| {
        if context.rank() == 0 {
            let end = context.recv(Source::Rank(1), Tag::Any, &mut [0; 8]);
            assert!(
                matches!(end, Err(Error::Fault(ref text)) if text.contains("rank 1")),
                "{end:?}"
            );
            std::process::exit(0);
        }
        sleep_ms(60_000);
    };
    // Spinning, so that it looks without being woken.
    let job = Job { layout: &[2], env: &[("KUMI_SPIN", "infinite")], ..Job::default() };
    let ring = job.ring_bytes as u64;
    let mut job = start("a_damaged_ring_is_an_error_not_a_crash", &job, body);
    job.until("waiting", |job| job.sample(0).idle);
    let layout = Layout::new(2, 0, 2, ring, 1 << 30).expect("layout");
    job.scribble(0, layout.tail(1, 0), &u64::MAX.to_ne_bytes());
    let pending = layout.lines(0) + std::mem::offset_of!(SharedLines, wake);
    job.scribble(0, pending, &2u64.to_ne_bytes());
    job.wait_for(0);
}

#[test]
fn a_job_of_one_needs_no_daemon() {
    if is_rank() {
        return;
    }
    let context = Context::init_singleton().expect("singleton");
    assert_eq!((context.rank(), context.ranks()), (0, 1));
    let window = context.window(64).expect("window");
    window.put_notify(0, 0, &7u64.to_ne_bytes(), 0).expect("put");
    assert_eq!(window.wait_notify(0, 1).expect("wait"), 1);
    assert_eq!(window.fetch_add(0, 0, 1).expect("fetch_add"), 7);
    context.send(0, 4, b"me").expect("send");
    let (received, data) = context.recv_vec(Source::Any, Tag::Any).expect("recv");
    assert_eq!((received.tag, data.as_slice()), (4, &b"me"[..]));
    context.barrier().expect("barrier");
    let mut sum = [3.5];
    context.allreduce(kumi_mem::Op::Sum, &mut sum).expect("allreduce");
    assert_eq!(sum, [3.5]);
    drop(window);
    context.finalize().expect("finalize");
}

#[test]
fn without_a_launcher_init_says_so() {
    if is_rank() || std::env::var_os("KUMI_SINGLETON").is_some() {
        return;
    }
    assert!(matches!(Context::init(), Err(Error::NotLaunched)));
}
