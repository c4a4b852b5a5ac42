//! Jobs that share the processors, alternating with each of them alone.

use crate::cluster::Cluster;
use crate::error::BenchError;
use crate::meter::{Meter, Window};
use std::time::Duration;

/// Length of the windows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lengths {
    pub(super) together: Duration,
    pub(super) alone: Duration,
}

/// Seconds per step, by job and then by cycle.
pub(super) struct Shares {
    pub(super) gang: Vec<Vec<f64>>,
    pub(super) os: Vec<Vec<f64>>,
    pub(super) alone: Vec<Vec<f64>>,
}

/// The windows of one cycle.
struct Cycle {
    gang: Window,
    os: Window,
    alone: Vec<Window>,
}

impl Shares {
    /// Runs the jobs together under gang scheduling, then under operating-system scheduling, then each alone
    /// while the others are stopped, `cycles` times.
    ///
    /// # Errors
    /// A command fails, or a job makes no steps.
    pub(super) fn measure(
        cluster: &Cluster,
        jobs: &[Meter<'_>],
        lengths: Lengths,
        cycles: usize,
    ) -> Result<Self, BenchError> {
        let all: Vec<&Meter<'_>> = jobs.iter().collect();
        let mut windows = Vec::new();
        for _ in 0..cycles {
            cluster.kumi(&["cluster", "set", "--policy", "dqt"])?;
            let gang = Window::pass(lengths.together);
            cluster.kumi(&["cluster", "set", "--policy", "os"])?;
            let os = Window::pass(lengths.together);
            let alone = Meter::each_alone(&all, lengths.alone)?;
            windows.push(Cycle { gang, os, alone });
        }
        cluster.kumi(&["cluster", "set", "--policy", "dqt"])?;
        Meter::catch_up();
        let of = |window: &dyn Fn(&Cycle, usize) -> Window| {
            let of_job = |(index, job): (usize, &Meter<'_>)| {
                let cycles = windows.iter().map(|cycle| window(cycle, index));
                cycles.map(|window| job.seconds_per_step(window)).collect()
            };
            jobs.iter().enumerate().map(of_job).collect::<Result<Vec<Vec<f64>>, BenchError>>()
        };
        Ok(Self {
            gang: of(&|cycle, _| cycle.gang)?,
            os: of(&|cycle, _| cycle.os)?,
            alone: of(&|cycle, index| cycle.alone[index])?,
        })
    }
}
