//! AF_XDP against UDP: the same put with notification, small and large, on two clusters that differ in nothing else.

use super::Setting;
use crate::cluster::{self, Cluster};
use crate::error::BenchError;
use crate::record::{Goal, Peer, Record};

/// Bytes of a put that is one small packet.
const SMALL: usize = 8;
/// Bytes of a put that is hundreds of full packets, which do not go by AF_XDP.
const LARGE: usize = 1 << 20;
/// The peer of the comparisons.
const UDP: &str = "the same by UDP";

/// Half round trips in nanoseconds.
#[derive(Default)]
struct Runs {
    xdp: Vec<f64>,
    udp: Vec<f64>,
}

impl Runs {
    /// One run of each.
    fn add(&mut self, clusters: &Clusters, bytes: usize, batch: u32) -> Result<(), BenchError> {
        self.udp.push(half_round_trip_ns(&clusters.udp, bytes, batch)?);
        self.xdp.push(half_round_trip_ns(&clusters.xdp, bytes, batch)?);
        Ok(())
    }
}

struct Clusters {
    udp: Cluster,
    xdp: Cluster,
}

fn half_round_trip_ns(cluster: &Cluster, bytes: usize, batch: u32) -> Result<f64, BenchError> {
    let program = cluster::program("kumi-bench-pingpong")?.display().to_string();
    let (bytes, batch) = (bytes.to_string(), batch.to_string());
    let run = ["run", "-n", "2", "--nodes", "2", &program];
    let args = ["--size", &bytes, "--batches", "50", "--batch", &batch];
    let output = cluster.kumi(&[&run[..], &args].concat())?;
    cluster::number(&output, "half_round_trip_ns", "kumi-bench-pingpong")
}

fn scaled(times: &[f64], scale: impl Fn(f64) -> f64) -> Vec<f64> {
    times.iter().map(|&time| scale(time)).collect()
}

pub(super) fn measure(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let peers = &setting.peers;
    let clusters = Clusters { udp: Cluster::up(2, &[])?, xdp: Cluster::up(2, &["--wire", "xdp"])? };
    let (mut small, mut large, mut raw) = (Runs::default(), Runs::default(), Vec::new());
    for _ in 0..runs {
        small.add(&clusters, SMALL, 2000)?;
        large.add(&clusters, LARGE, 4)?;
        // Where no program of ours is on the interfaces.
        raw.push(peers.raw_xdp(&clusters.udp.nodes)?);
    }
    let us = |times: &[f64]| scaled(times, |ns| ns / 1e3);
    let gb_per_s = |times: &[f64]| scaled(times, |ns| LARGE as f64 / ns);
    let figure = "put+notify 8 B between nodes by AF_XDP, half round trip";
    let ours = us(&small.xdp);
    let record = |peer: &Peer<'_>, goal| Record::new(figure, "us", &ours, peer, goal);
    let frames = format!("raw AF_XDP busy poll ({})", peers.kernel);
    Ok(vec![
        record(&Peer::Measured(UDP, &us(&small.udp)), Goal::RatioAtMost(0.75)),
        record(&Peer::Measured(&frames, &raw), Goal::None),
        Record::new(
            "put+notify 1 MiB between nodes beside AF_XDP, bandwidth",
            "GB/s",
            &gb_per_s(&large.xdp),
            &Peer::Measured(UDP, &gb_per_s(&large.udp)),
            Goal::None,
        ),
    ])
}
