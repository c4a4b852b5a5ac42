//! Cost of the protocol itself: nanoseconds per packet, without any socket.
//!
//! `cargo run --release -p kumi-proto --example cost`

use kumi_proto::seal::{SealedCodec, TRAILER_BYTES};
use kumi_proto::wire::{Codec, HEADER_BYTES, Header, PacketKind};
use kumi_proto::{ChannelKey, Config, Delivery, Endpoint, Rank, SealKey, Sink};
use std::hint::black_box;
use std::time::Instant;

struct Taken(u64);

impl Sink for Taken {
    fn deliver(&mut self, _: Rank, frame: &[u8]) -> Delivery {
        self.0 += frame.len() as u64;
        Delivery::Taken
    }
}

/// Runs of a measurement; short ones, so that some of them are not interrupted.
const RUNS: u32 = 50;

/// The quickest of [`RUNS`] runs of `count` steps, in nanoseconds per step.
fn measure(name: &str, count: u32, mut step: impl FnMut(u64)) {
    let best = (0..RUNS)
        .map(|_| {
            let start = Instant::now();
            (0..count).for_each(|at| step(u64::from(at)));
            start.elapsed().as_nanos() as f64 / f64::from(count)
        })
        .fold(f64::INFINITY, f64::min);
    println!("{name:<52} {best:>8.1} ns");
}

fn codec(length: usize) {
    let codec = Codec::new(ChannelKey(7), 1_472);
    let mut packet = vec![0; HEADER_BYTES + length];
    measure(&format!("header + checksum, {length} B frame: write and check"), 10_000, |at| {
        let sequence = at as u32;
        let header = Header { kind: PacketKind::Data, flags: 0, from: 0, to: 1, sequence, ack: 0 };
        codec.seal(&header, black_box(&mut packet));
        black_box(codec.open(1, 2, black_box(&packet)).is_ok());
    });
}

fn sealed_codec(length: usize) {
    let mut codec = SealedCodec::new(ChannelKey(7), &SealKey([7; 16]), 1_472, 0);
    let mut packet = vec![0; HEADER_BYTES + length + TRAILER_BYTES];
    let mut room = vec![0; 1_472];
    measure(&format!("header + encryption, {length} B frame: write and check"), 10_000, |at| {
        let sequence = at as u32;
        let header = Header { kind: PacketKind::Data, flags: 0, from: 0, to: 1, sequence, ack: 0 };
        codec.seal(&header, black_box(&mut packet));
        black_box(codec.open(1, 2, black_box(&packet), &mut room).is_ok());
    });
}

fn pair(encrypted: bool) -> (Endpoint, Endpoint) {
    let (config, key, seal) = (Config::default(), ChannelKey(7), SealKey([7; 16]));
    let make = |me| match encrypted {
        true => Endpoint::encrypted(config.clone(), me, 2, key, &seal).unwrap(),
        false => Endpoint::new(config.clone(), me, 2, key).unwrap(),
    };
    (make(0), make(1))
}

/// Its name.
fn how(encrypted: bool) -> &'static str {
    if encrypted { "encrypted " } else { "" }
}

/// Moves everything that `from` has to send; whether there was anything.
fn carry(from: &mut Endpoint, to: &mut Endpoint, now: u64, sink: &mut Taken) -> bool {
    let mut any = false;
    while let Some(transmit) = from.poll_transmit(now) {
        any = true;
        for datagram in transmit.datagrams() {
            to.handle_datagram(now, datagram, sink);
        }
    }
    any
}

fn ping_pong(length: usize, encrypted: bool) {
    let (mut a, mut b) = pair(encrypted);
    let frame = vec![1; length];
    let mut sink = Taken(0);
    let mut now = 0;
    let how = how(encrypted);
    measure(&format!("{how}ping-pong, {length} B frame: one send and receive"), 10_000, |at| {
        now += 5;
        let (from, to) = if at % 2 == 0 { (&mut a, &mut b) } else { (&mut b, &mut a) };
        from.send(now, 1 - from.me(), &[&frame]).unwrap();
        carry(from, to, now, &mut sink);
    });
    assert_eq!(sink.0, u64::from(RUNS) * 10_000 * length as u64);
}

fn stream(length: usize, encrypted: bool) {
    let (mut a, mut b) = pair(encrypted);
    let frame = vec![1; length];
    let mut sink = Taken(0);
    let mut now = 0;
    let how = how(encrypted);
    measure(
        &format!("{how}stream, {length} B frames: one send, receive, its acks"),
        10_000,
        |_| {
            while a.send(now, 1, &[&frame]).is_err() {
                now += 10;
                while carry(&mut a, &mut b, now, &mut sink) | carry(&mut b, &mut a, now, &mut sink)
                {
                }
            }
        },
    );
    assert!(sink.0 > 400_000 * length as u64);
    assert_eq!(a.counters().resends, 0);
}

fn main() {
    for length in [8, 1_420] {
        codec(length);
        sealed_codec(length);
        for encrypted in [false, true] {
            ping_pong(length, encrypted);
            stream(length, encrypted);
        }
    }
}
