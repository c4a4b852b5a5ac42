//! Half round trip of a pair of ranks while another job floods its own channel.
//!
//! Both jobs run on the same two processors, and even a job that only computes takes its share of them. So
//! either the other job uses the network and not the processors, or its use of the processors is the same on
//! both sides of the comparison:
//!
//! *Full rings.* Every rank of the other job sends to one of the other node and none receives. Once all
//! rings and bounded queues are full, its ranks block in `send` without spinning. Only its refused
//! packets remain, tried again and again, with nacks and probes. The pair runs beside it under
//! operating-system scheduling, and in turn without it (its ranks stopped).
//!
//! *Streams.* The other job sends as fast as its receivers receive, under gang scheduling: in its own
//! slices. The pair's slices begin with whatever the other one left in sockets and queues. The peer
//! is the pair beside a job that only computes: the same share of the processors. A third of the
//! slices is the pair's in either case, since a stopped job keeps its slices.

use super::Setting;
use crate::cluster::{self, Cluster};
use crate::error::BenchError;
use crate::meter::{Meter, Window};
use crate::record::{Goal, Peer, Record};
use std::time::Duration;

/// By then the rings are full.
const FILLING: Duration = Duration::from_millis(1500);
/// The rings are full if no message was accepted for this long.
const STILL: Duration = Duration::from_millis(300);
const ALONE: Duration = Duration::from_millis(200);
/// Several cycles of three slices of 10 ms.
const SLICES: Duration = Duration::from_millis(300);

pub(super) fn measure(_: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let cluster = Cluster::up(2, &["--slice", "10ms"])?;
    Ok(vec![full_rings(&cluster, runs)?, streams(&cluster, runs)?])
}

fn pair(cluster: &Cluster) -> Result<Meter<'_>, BenchError> {
    let program = cluster::program("kumi-bench-pingpong")?;
    Meter::start(cluster, "pair", &["--env", "KUMI_SPIN=infinite"], &program, &[])
}

fn other<'c>(cluster: &'c Cluster, mode: &str, env: &[&str]) -> Result<Meter<'c>, BenchError> {
    Meter::spawn(cluster, mode, env, &cluster::program("kumi-bench-flood")?, &[mode])
}

fn full_rings(cluster: &Cluster, runs: usize) -> Result<Record, BenchError> {
    cluster.kumi(&["cluster", "set", "--policy", "os"])?;
    // A small queue of unexpected messages fills soon; a rank that waits for room blocks at once.
    let env = ["--env", "KUMI_UNEXPECTED_BYTES=65536", "--env", "KUMI_SPIN=0"];
    let flood = other(cluster, "full", &env)?;
    std::thread::sleep(FILLING);
    let still = Window::pass(STILL);
    let pair = pair(cluster)?;
    let mut windows = Vec::new();
    for _ in 0..runs {
        let before = Window::pass(ALONE);
        Meter::signal(&[&flood], "STOP")?;
        let without = Window::pass(ALONE);
        Meter::signal(&[&flood], "CONT")?;
        windows.push((before, without, Window::pass(ALONE)));
    }
    Meter::catch_up();
    flood.made_no_step(still)?;
    let (mut beside, mut alone) = (Vec::new(), Vec::new());
    for (before, without, after) in windows {
        let of = |window| pair.seconds_per_step(window);
        beside.push(half_us(f64::midpoint(of(before)?, of(after)?)));
        alone.push(half_us(of(without)?));
    }
    let figure = "put+notify 8 B beside a job with full rings, half round trip";
    let peer = Peer::Measured("the same without that job", &alone);
    Ok(Record::new(figure, "us", &beside, &peer, Goal::RatioAtMost(1.1)))
}

fn streams(cluster: &Cluster, runs: usize) -> Result<Record, BenchError> {
    cluster.kumi(&["cluster", "set", "--policy", "dqt"])?;
    let (pair, flood) = (pair(cluster)?, other(cluster, "stream", &[])?);
    let compute = other(cluster, "compute", &[])?;
    Meter::signal(&[&compute], "STOP")?;
    let mut windows = Vec::new();
    for _ in 0..runs {
        let before = Window::pass(SLICES);
        Meter::signal(&[&flood], "STOP")?;
        Meter::signal(&[&compute], "CONT")?;
        let computing = Window::pass(SLICES);
        Meter::signal(&[&compute], "STOP")?;
        Meter::signal(&[&flood], "CONT")?;
        windows.push((before, computing, Window::pass(SLICES)));
    }
    Meter::catch_up();
    let (mut streaming, mut computing) = (Vec::new(), Vec::new());
    for (before, peer, after) in windows {
        let of = |window| pair.seconds_per_step(window);
        // A third of the time is the pair's.
        streaming.push(half_us(f64::midpoint(of(before)?, of(after)?)) / 3.0);
        computing.push(half_us(of(peer)?) / 3.0);
    }
    let figure = "put+notify 8 B in its slices beside a streaming job, half round trip";
    let peer = Peer::Measured("the same beside a computing job", &computing);
    Ok(Record::new(figure, "us", &streaming, &peer, Goal::RatioAtMost(1.1)))
}

/// Half of the time of a round trip, in microseconds.
fn half_us(seconds: f64) -> f64 {
    seconds * 1e6 / 2.0
}
