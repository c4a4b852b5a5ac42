//! Information that the node's daemon discloses.

use kumi_mem::NodeLoad;
use pyo3::prelude::*;

use crate::control::rank_of;
use crate::number::name;
use crate::state::current;

/// The number of nodes of the cluster; 0 without disclosure.
#[pyfunction]
pub fn cluster_nodes() -> PyResult<u32> {
    Ok(current()?.context.machine().map_or(0, |machine| machine.nodes()))
}

/// State of a node, if known: ranks per processor, share of memory in use, bytes a second in its network, and
/// the age of these numbers in seconds.
#[pyfunction]
pub fn node_load(#[pyo3(from_py_with = name)] node: i64) -> PyResult<Option<(f64, f64, f64, f64)>> {
    let state = current()?;
    let known = u32::try_from(node).ok().zip(state.context.machine());
    let figures = |load: NodeLoad| {
        let runnable = f64::from(load.runnable) / f64::from(load.processors.max(1));
        let memory = load.memory_used as f64 / load.memory_total.max(1) as f64;
        (runnable, memory, load.network_bytes as f64, load.age_us as f64 / 1e6)
    };
    Ok(known.and_then(|(node, machine)| machine.node(node)).map(figures))
}

/// Whether a rank has a processor now, according to the latest information.
#[pyfunction]
pub fn rank_runs(#[pyo3(from_py_with = name)] rank: i64) -> PyResult<bool> {
    let state = current()?;
    let rank = rank_of(&state, rank)?;
    let runs = state.context.machine().and_then(|machine| machine.runs(rank));
    Ok(runs.unwrap_or(true))
}
