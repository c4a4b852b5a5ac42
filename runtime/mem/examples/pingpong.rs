//! Half round trips of an 8-byte put with notification, beside a raw ping-pong of the same kind,
//! and the throughput of large messages: `cargo run --release --example pingpong [near|far]`.
//!
//! Starts two ranks itself, pinned to processors 0 and 1; `near` on one node (shared memory), `far`
//! on two (UDP over loopback).

#[path = "../tests/common/mod.rs"]
mod common;

use std::net::{Ipv4Addr, UdpSocket};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Instant;

use common::{Job, is_rank, launch};
use kumi_mem::{
    ArrivedMessage, Context, Outbox, ReservedService, Service, SharedBytes, Source, Tag,
};

const ROUNDS: u64 = 200;
const BATCHES: usize = 300;

fn main() {
    let mode = std::env::args().nth(1).unwrap_or_else(|| "near".into());
    if is_rank() {
        let context = Context::init().expect("init");
        rank(&context);
        context.finalize().expect("finalize");
        return;
    }
    let layout: &[u32] = if mode == "far" { &[1, 1] } else { &[2] };
    let env = &[("KUMI_SPIN", "infinite")];
    let job =
        Job { layout, ring_bytes: 256 * 1024, env, cpus: &[0, 1], show: true, ..Job::default() };
    launch(&[&mode], &job).finish();
    if mode == "far" { raw_udp() } else { raw_flags() }
}

fn rank(context: &Context) {
    let (me, other) = (context.rank(), 1 - context.rank());
    let window = context.window(4096).expect("window");
    let mut half = Vec::new();
    let mut count = 0u64;
    context.barrier().expect("barrier");
    for _ in 0..BATCHES {
        let begin = Instant::now();
        for _ in 0..ROUNDS {
            count += 1;
            if me == 0 {
                window.put_notify(other, 0, &count.to_ne_bytes(), 0).expect("put");
                window.wait_notify(0, count).expect("wait");
            } else {
                window.wait_notify(0, count).expect("wait");
                window.put_notify(other, 0, &count.to_ne_bytes(), 0).expect("put");
            }
        }
        half.push(begin.elapsed().as_secs_f64() * 1e6 / (2.0 * ROUNDS as f64));
    }
    report(me, "put_notify 8 B", &mut half);
    let mut half = Vec::new();
    for _ in 0..BATCHES {
        let begin = Instant::now();
        let mut word = [0; 8];
        for _ in 0..ROUNDS {
            if me == 0 {
                context.send(other, 0, &word).expect("send");
                context.recv(Source::Rank(other), Tag::Is(0), &mut word).expect("recv");
            } else {
                context.recv(Source::Rank(other), Tag::Is(0), &mut word).expect("recv");
                context.send(other, 0, &word).expect("send");
            }
        }
        half.push(begin.elapsed().as_secs_f64() * 1e6 / (2.0 * ROUNDS as f64));
    }
    report(me, "send/recv 8 B", &mut half);
    service(context);
    bulk(context);
    if me == 0 {
        println!("{:?}", context.counters());
    }
}

/// Counts messages, and takes their words.
#[derive(Default)]
struct Counting {
    count: u64,
    word: [u8; 8],
}

impl Service for Counting {
    fn message(&mut self, _: u32, _: &[u8], _: &mut Outbox<'_>) {
        panic!("all are taken where they lie");
    }

    fn arrived(&mut self, _: u32, message: &ArrivedMessage<'_>, _: &mut Outbox<'_>) -> bool {
        message.copy_prefix(&mut self.word);
        self.count += 1;
        true
    }
}

/// Messages to a service, which the program polls for.
fn service(context: &Context) {
    let (me, other) = (context.rank(), 1 - context.rank());
    let service = context.serve_locally(ReservedService::TEST, Counting::default());
    let service = service.expect("service");
    let word = [7; 8];
    let mut count = 0;
    let send = |_: &mut Counting, outbox: &mut Outbox<'_>| {
        outbox.send_parts(other, &[&word], SharedBytes::default()).expect("sent");
    };
    let take = |count: u64| {
        while service.poll_then(|service, _| service.count).expect("poll") < count {}
    };
    context.barrier().expect("barrier");
    for calls in [false, true] {
        let mut half = Vec::new();
        for _ in 0..BATCHES {
            let begin = Instant::now();
            for _ in 0..ROUNDS {
                count += 1;
                if me == 1 {
                    take(count);
                }
                if calls {
                    service.call(send).expect("service");
                } else {
                    assert!(service.try_send(other, &word, SharedBytes::default()).expect("sent"));
                }
                if me == 0 {
                    take(count);
                }
            }
            half.push(begin.elapsed().as_secs_f64() * 1e6 / (2.0 * ROUNDS as f64));
        }
        report(me, if calls { "service, call 8 B" } else { "service, try_send 8 B" }, &mut half);
    }
    context.barrier().expect("barrier");
}

fn bulk(context: &Context) {
    let (me, other) = (context.rank(), 1 - context.rank());
    let size = 4 << 20;
    let mut data = vec![1u8; size];
    let begin = Instant::now();
    let rounds: usize = std::env::var("ROUNDS").map_or(50, |text| text.parse().expect("number"));
    for _ in 0..rounds {
        if me == 0 {
            context.send(other, 1, &data).expect("send");
        } else {
            context.recv(Source::Rank(other), Tag::Is(1), &mut data).expect("recv");
        }
    }
    context.barrier().expect("barrier");
    if me == 0 {
        let seconds = begin.elapsed().as_secs_f64();
        println!("messages of 4 MiB: {:.0} MB/s", (size * rounds) as f64 / seconds / 1e6);
    }
}

fn report(me: u32, what: &str, half: &mut [f64]) {
    half.sort_by(f64::total_cmp);
    if me == 0 {
        println!("{what}: half round trip p50 {:.3} us, min {:.3}", half[half.len() / 2], half[0]);
    }
}

/// Two threads, a flag on a line of its own each, the word beside it.
fn raw_flags() {
    #[repr(align(128))]
    struct Line(AtomicU64, AtomicU64);
    let lines = [Line(0.into(), 0.into()), Line(0.into(), 0.into())];
    let run = |me: usize| {
        common::pin(me);
        let mut half = Vec::new();
        let mut count = 0;
        for _ in 0..BATCHES {
            let begin = Instant::now();
            for _ in 0..ROUNDS {
                count += 1;
                let give = || {
                    lines[me].1.store(count, Release);
                    lines[me].0.store(count, Release);
                };
                if me == 0 {
                    give();
                }
                while lines[1 - me].0.load(Acquire) < count {
                    std::hint::spin_loop();
                }
                if me == 1 {
                    give();
                }
            }
            half.push(begin.elapsed().as_secs_f64() * 1e6 / (2.0 * ROUNDS as f64));
        }
        report(me as u32, "raw flags", &mut half);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| run(1));
        run(0);
    });
}

/// Two threads, connected sockets, both polling.
fn raw_udp() {
    let sockets = [1, 2].map(|host| UdpSocket::bind((Ipv4Addr::new(127, 0, 0, host), 0)));
    let sockets = sockets.map(|socket| socket.expect("socket"));
    for me in 0..2 {
        sockets[me].connect(sockets[1 - me].local_addr().expect("address")).expect("connect");
        sockets[me].set_nonblocking(true).expect("non-blocking");
    }
    let run = |me: usize| {
        common::pin(me);
        let socket = &sockets[me];
        let mut half = Vec::new();
        let mut word = [0; 8];
        for _ in 0..BATCHES {
            let begin = Instant::now();
            for _ in 0..ROUNDS {
                if me == 0 {
                    socket.send(&word).expect("send");
                }
                while socket.recv(&mut word).is_err() {}
                if me == 1 {
                    socket.send(&word).expect("send");
                }
            }
            half.push(begin.elapsed().as_secs_f64() * 1e6 / (2.0 * ROUNDS as f64));
        }
        report(me as u32, "raw UDP", &mut half);
    };
    std::thread::scope(|scope| {
        scope.spawn(|| run(1));
        run(0);
    });
}
