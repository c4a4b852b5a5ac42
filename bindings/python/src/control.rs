//! Joining and leaving the job, identity of this rank, and completion.

use pyo3::prelude::*;

use crate::error::Failure;
use crate::number::{maybe_name, name};
use crate::shared;
use crate::state::{State, current, finalise, fork, is_active, is_owner, released};

/// Checks a rank number of the program.
pub fn rank_of(state: &State, rank: i64) -> Result<u32, Failure> {
    let ranks = state.context.ranks();
    u32::try_from(rank).ok().filter(|rank| *rank < ranks).ok_or_else(|| {
        let text = format!("rank {rank} does not exist in a job of {ranks} ranks");
        Failure::new("BadRankError", text).with("rank", rank).with("ranks", ranks)
    })
}

/// Checks rank numbers of the program.
pub fn ranks_of(state: &State, ranks: Vec<i64>) -> Result<Vec<u32>, Failure> {
    ranks.into_iter().map(|rank| rank_of(state, rank)).collect()
}

/// Joins the job, for this thread alone or for all.
#[pyfunction]
pub fn initialise(py: Python<'_>, threads: bool) -> PyResult<()> {
    Ok(crate::state::initialise(py, threads)?)
}

/// Leaves the job; if it has shared memory, with all ranks, unless this one leaves because of an error.
#[pyfunction]
pub fn finalize(py: Python<'_>, wait: bool) -> PyResult<()> {
    Ok(finalise(py, wait)?)
}

/// Tells the library that this process is the child of a fork.
#[pyfunction]
pub fn forked() {
    fork();
}

/// Whether this thread has joined the job (True), another one has (False), or none (None).
#[pyfunction]
pub fn owned() -> Option<bool> {
    is_active().then(is_owner)
}

/// This rank's number.
#[pyfunction]
pub fn rank() -> PyResult<u32> {
    Ok(current()?.context.rank())
}

/// The number of ranks.
#[pyfunction]
pub fn size() -> PyResult<u32> {
    Ok(current()?.context.ranks())
}

/// The number of this rank's node.
#[pyfunction]
pub fn node() -> PyResult<u32> {
    Ok(current()?.context.node())
}

/// The job's number.
#[pyfunction]
pub fn job() -> PyResult<u64> {
    Ok(current()?.context.job())
}

/// Whether a rank is on this node.
#[pyfunction]
pub fn same_node(#[pyo3(from_py_with = name)] rank: i64) -> PyResult<bool> {
    let state = current()?;
    Ok(state.context.same_node(rank_of(&state, rank)?))
}

/// Seconds on a monotonic clock.
#[pyfunction]
pub fn time() -> PyResult<f64> {
    Ok(current()?.context.time())
}

/// Says that the program gets ranks in step again after collectives that were interrupted.
#[pyfunction]
pub fn will_renew_collectives() -> PyResult<()> {
    Ok(current()?.context.will_renew_collectives().map_err(Failure::from)?)
}

/// How many collectives of the job's group this rank has begun.
#[pyfunction]
pub fn collectives_begun() -> PyResult<u32> {
    Ok(current()?.context.collectives_begun())
}

/// Gets in step with the other ranks, none of which has begun more collectives.
#[pyfunction]
pub fn renew_collectives(begun: u32) -> PyResult<()> {
    Ok(current()?.context.renew_collectives(begun).map_err(Failure::from)?)
}

/// Returns when all ranks have called it. What they wrote to shared memory before is visible then.
#[pyfunction]
pub fn barrier(py: Python<'_>) -> PyResult<()> {
    let state = current()?;
    if shared::barrier(py, &state)? {
        return Ok(());
    }
    Ok(released(py, || state.context.barrier()).map_err(Failure::from)?)
}

/// Waits until what was sent or put to a rank, or to all, has arrived.
#[pyfunction]
#[pyo3(signature = (rank=None))]
pub fn flush(py: Python<'_>, #[pyo3(from_py_with = maybe_name)] rank: Option<i64>) -> PyResult<()> {
    let state = current()?;
    let to = rank.map(|rank| rank_of(&state, rank)).transpose()?;
    let done = released(py, || match to {
        Some(rank) => state.context.flush(rank),
        None => state.context.flush_all(),
    });
    Ok(done.map_err(Failure::from)?)
}

/// Keeps operations on windows at a rank, or at each rank, behind all earlier ones.
#[pyfunction]
#[pyo3(signature = (rank=None))]
pub fn fence(py: Python<'_>, #[pyo3(from_py_with = maybe_name)] rank: Option<i64>) -> PyResult<()> {
    let state = current()?;
    let to = rank.map(|rank| rank_of(&state, rank)).transpose()?;
    let done = released(py, || match to {
        Some(rank) => state.context.fence(rank),
        None => state.context.fence_all(),
    });
    Ok(done.map_err(Failure::from)?)
}

/// Takes what has arrived and sends what is due, without waiting.
#[pyfunction]
pub fn progress(py: Python<'_>) -> PyResult<()> {
    let state = current()?;
    Ok(released(py, || state.context.progress()).map_err(Failure::from)?)
}
