//! Collectives, the start of a job, kernels, and hpcc.

use super::ways::{Shape, Way};
use crate::cluster::{self, Cluster};
use crate::error::BenchError;
use crate::figures::Setting;
use crate::figures::turns::{self, Measure, PeerComparison};
use crate::record::{Goal, Peer, Record};
use std::path::Path;
use std::time::Instant;

pub(super) fn measure(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let mut records = collectives(setting, runs)?;
    records.push(start(setting, runs)?);
    records.extend(kernels(setting, runs)?);
    records.extend(hpcc(setting, runs)?);
    Ok(records)
}

/// The library with a way, as the name of a peer.
fn peer(setting: &Setting, way: Way) -> Result<String, String> {
    setting.peers.mpi_with(way.name())
}

/// A collective, bytes, and how many in a batch.
const COLLECTIVES: [(&str, &str, &str); 5] = [
    ("allreduce", "8", "100"),
    ("allreduce", "65536", "20"),
    ("allreduce", "1048576", "4"),
    ("alltoall", "1024", "50"),
    ("alltoall", "65536", "10"),
];

fn collectives(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let cluster = Cluster::up(4, &[])?;
    let program = setting.peers.program("mpicollective")?;
    let shape = Shape { ranks: 4, nodes: 4 };
    let mut records = Vec::new();
    for (name, bytes, length) in COLLECTIVES {
        let once = |way: Way| {
            let output = way.run(&cluster, shape, &program, &[name, bytes, "10", length])?;
            cluster::number(&output, "microseconds", "mpicollective")
        };
        let against = vec![PeerComparison {
            name: peer(setting, Way::Tcp),
            goal: Goal::None,
            measure: Box::new(|| once(Way::Tcp)),
        }];
        let figure = format!("MPI {name} of {bytes} B, 4 ranks on 4 nodes");
        let ours: Measure<'_> = Box::new(|| once(Way::Kumi));
        records.extend(turns::measure(&figure, "us", runs, ours, against)?);
    }
    Ok(records)
}

/// Starts that do not count, because caches are still cold.
const WARM_UP: usize = 2;

fn start(setting: &Setting, runs: usize) -> Result<Record, BenchError> {
    let program = setting.peers.program("mpistart")?;
    let cluster = Cluster::up(4, &[])?;
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for run in 0..WARM_UP + runs {
        let begin = Instant::now();
        Way::Kumi.run(&cluster, Shape { ranks: 8, nodes: 4 }, &program, &[])?;
        let own = begin.elapsed().as_secs_f64();
        let other = setting.peers.mpi_start(&program)?;
        if run >= WARM_UP {
            ours.push(own * 1e3);
            theirs.push(other * 1e3);
        }
    }
    let name = setting.peers.mpi_with("mpirun -np 8");
    let peer = Peer::if_present(&name, &theirs);
    let figure = "MPI_Init, MPI_Barrier, MPI_Finalize, 4 nodes x 2 ranks";
    Ok(Record::new(figure, "ms", &ours, &peer, Goal::RatioAtMost(0.4)))
}

fn kernels(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let cluster = Cluster::up(2, &[])?;
    let program = setting.peers.program("mpikernel")?;
    let mut records = Vec::new();
    for name in ["cg", "mg", "is"] {
        let once = |way: Way| {
            let output = way.run(&cluster, Shape { ranks: 2, nodes: 2 }, &program, &[name])?;
            cluster::number(&output, "seconds_per_step", "mpikernel").map(|seconds| seconds * 1e3)
        };
        let against = vec![PeerComparison {
            name: peer(setting, Way::Tcp),
            goal: Goal::RatioAtMost(0.9),
            measure: Box::new(|| once(Way::Tcp)),
        }];
        let figure = format!("MPI kernel {name}, size of class A, 2 nodes x 1 rank");
        let ours: Measure<'_> = Box::new(|| once(Way::Kumi));
        records.extend(turns::measure(&figure, "ms/step", runs, ours, against)?);
    }
    Ok(records)
}

/// Figures of hpcc's summary with their units: more is better.
const HPCC: [(&str, &str); 5] = [
    ("HPL_Tflops", "Tflop/s"),
    ("PTRANS_GBs", "GB/s"),
    ("MPIRandomAccess_GUPs", "GUP/s"),
    ("MPIFFT_Gflops", "Gflop/s"),
    ("NaturallyOrderedRingBandwidth_GBytes", "GB/s"),
];
/// A time of 0.9 is a rate of so much.
const HPCC_GOAL: Goal = Goal::RatioAtLeast(1.0 / 0.9);

fn hpcc(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    let Some(program) = setting.peers.hpcc() else {
        let why = "hpcc is not installed; `make bench-peers` installs it";
        return Ok(vec![Record::unmeasured("figures of hpcc", why)]);
    };
    let cluster = Cluster::up(2, &[])?;
    let (mut ours, mut theirs) = (vec![Vec::new(); HPCC.len()], vec![Vec::new(); HPCC.len()]);
    for _ in 0..runs {
        for (way, values) in [(Way::Kumi, &mut ours), (Way::Tcp, &mut theirs)] {
            let found = hpcc_once(&cluster, way, &program)?;
            for (values, value) in values.iter_mut().zip(found) {
                values.push(value);
            }
        }
    }
    let name = peer(setting, Way::Tcp);
    let record = |(index, (figure, unit)): (usize, &(&str, &'static str))| {
        let peer = Peer::if_present(&name, &theirs[index]);
        Record::new(
            &format!("hpcc {figure}, 2 nodes x 1 rank"),
            unit,
            &ours[index],
            &peer,
            HPCC_GOAL,
        )
    };
    Ok(HPCC.iter().enumerate().map(record).collect())
}

const HPCC_INPUT: &str = include_str!("../../../peers/hpccinf.txt");

/// One run in a folder of its own; its figures, if it finds its results right.
fn hpcc_once(cluster: &Cluster, way: Way, program: &Path) -> Result<Vec<f64>, BenchError> {
    let folder = cluster::folder()?;
    let file = |name: &str| folder.path().join(name);
    let failed = |name: &str| {
        let path = file(name);
        move |source| BenchError::File { path, source }
    };
    std::fs::write(file("hpccinf.txt"), HPCC_INPUT).map_err(failed("hpccinf.txt"))?;
    let (program, at) = (program.display().to_string(), folder.path().display().to_string());
    let run = ["run", "-n", "2", "--nodes", "2", "--cwd", &at];
    cluster.kumi(&[&run[..], way.options(), &[&program]].concat())?;
    let output = std::fs::read_to_string(file("hpccoutf.txt")).map_err(failed("hpccoutf.txt"))?;
    let right = cluster::number(&output, "Success", "hpcc")?;
    if right != 1.0 || output.contains("FAILED") {
        let (wanted, what) = ("right results".to_owned(), "hpcc".to_owned());
        return Err(BenchError::Output { wanted, what, output });
    }
    HPCC.iter().map(|(name, _)| cluster::number(&output, name, "hpcc")).collect()
}
