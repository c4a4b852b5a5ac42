//! Cost of encryption: the same put with notification between nodes, with and without it.

use super::Setting;
use crate::cluster::{self, Cluster};
use crate::error::BenchError;
use crate::record::{Goal, Peer, Record};

/// Bytes of a put that is one small packet.
const SMALL: usize = 8;
/// Bytes of a put that is hundreds of full packets.
const LARGE: usize = 1 << 20;
/// The peer of the comparison.
const CLEAR: &str = "the same without encryption";

/// Half round trip in nanoseconds, with and without encryption.
#[derive(Default)]
struct Runs {
    sealed: Vec<f64>,
    clear: Vec<f64>,
}

impl Runs {
    /// One run of each.
    fn add(&mut self, cluster: &Cluster, bytes: usize, batch: u32) -> Result<(), BenchError> {
        self.sealed.push(half_round_trip_ns(cluster, "--encrypt=on", bytes, batch)?);
        self.clear.push(half_round_trip_ns(cluster, "--encrypt=off", bytes, batch)?);
        Ok(())
    }
}

fn half_round_trip_ns(
    cluster: &Cluster,
    encrypt: &str,
    bytes: usize,
    batch: u32,
) -> Result<f64, BenchError> {
    let program = cluster::program("kumi-bench-pingpong")?.display().to_string();
    let (bytes, batch) = (bytes.to_string(), batch.to_string());
    let run = ["run", "-n", "2", "--nodes", "2", encrypt, &program];
    let args = ["--size", &bytes, "--batches", "50", "--batch", &batch];
    let output = cluster.kumi(&[&run[..], &args].concat())?;
    cluster::number(&output, "half_round_trip_ns", "kumi-bench-pingpong")
}

fn scaled(times: &[f64], scale: impl Fn(f64) -> f64) -> Vec<f64> {
    times.iter().map(|&time| scale(time)).collect()
}

pub(super) fn measure(_: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let cluster = Cluster::up(2, &[])?;
    let (mut small, mut large) = (Runs::default(), Runs::default());
    for _ in 0..runs {
        small.add(&cluster, SMALL, 200)?;
        large.add(&cluster, LARGE, 4)?;
    }
    let us = |times: &[f64]| scaled(times, |ns| ns / 1e3);
    let gb_per_s = |times: &[f64]| scaled(times, |ns| LARGE as f64 / ns);
    // A put is one packet, sealed by the one rank and opened by the other.
    let cost: Vec<f64> = small.sealed.iter().zip(&small.clear).map(|(s, c)| s - c).collect();
    Ok(vec![
        Record::new(
            "put+notify 8 B between nodes encrypted, half round trip",
            "us",
            &us(&small.sealed),
            &Peer::Measured(CLEAR, &us(&small.clear)),
            Goal::None,
        ),
        Record::new("cost of encryption per small packet", "ns", &cost, &Peer::Nobody, Goal::None),
        Record::new(
            "put+notify 1 MiB between nodes encrypted, bandwidth",
            "GB/s",
            &gb_per_s(&large.sealed),
            &Peer::Measured(CLEAR, &gb_per_s(&large.clear)),
            Goal::None,
        ),
    ])
}
