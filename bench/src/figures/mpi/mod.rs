//! Stock MPI programs on Kumi, beside the same library over TCP, over the stock libfabric, and over its own shared memory.
//!
//! All are started by `kumi run`, so they differ only in what carries their messages; for the start-up the peer is `mpirun`.

mod programs;
mod sizes;
mod together;
mod ways;

use super::Setting;
use crate::error::BenchError;
use crate::record::Record;

pub(super) fn measure(setting: &Setting, runs: usize) -> Result<Vec<Record>, BenchError> {
    if let Err(why) = &setting.peers.mpi {
        return Ok(vec![Record::unmeasured("figures of MPI programs", why)]);
    }
    let mut records = sizes::measure(setting, runs)?;
    records.extend(programs::measure(setting, runs)?);
    records.extend(together::measure(setting, runs)?);
    Ok(records)
}
