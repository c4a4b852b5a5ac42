//! Information that the node's daemon discloses.

use std::ffi::c_int;

use kumi_mem::NodeLoad;

use crate::args;
use crate::code::{Code, Failure};
use crate::state::{State, value, with};

/// See `kumi.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_cluster_nodes() -> c_int {
    value(|state| {
        let nodes = state.context.machine().map_or(0, |machine| machine.nodes());
        Ok(c_int::try_from(nodes).unwrap_or(c_int::MAX))
    })
}

/// See `kumi.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_node_load(node: c_int) -> f64 {
    of_node(node, |load| f64::from(load.runnable) / f64::from(load.processors.max(1)))
}

/// See `kumi.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_node_memory(node: c_int) -> f64 {
    of_node(node, |load| load.memory_used as f64 / load.memory_total.max(1) as f64)
}

/// See `kumi.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_node_network(node: c_int) -> f64 {
    of_node(node, |load| load.network_bytes as f64)
}

/// See `kumi.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_node_age(node: c_int) -> f64 {
    of_node(node, |load| load.age_us as f64 / 1e6)
}

/// See `kumi.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_rank_runs(rank: c_int) -> c_int {
    value(|state| {
        let rank = args::rank(rank)?;
        if rank >= state.context.ranks() {
            return Err(Failure::new(Code::Rank, format!("there is no rank {rank}")));
        }
        let runs = state.context.machine().and_then(|machine| machine.runs(rank));
        Ok(c_int::from(runs.unwrap_or(true)))
    })
}

/// A figure of a node, or a negative number.
fn of_node(node: c_int, figure: impl Fn(&NodeLoad) -> f64) -> f64 {
    let mut found = -1.0;
    let read = |state: &State| {
        let load = u32::try_from(node).ok().zip(state.context.machine());
        if let Some(load) = load.and_then(|(node, machine)| machine.node(node)) {
            found = figure(&load);
        }
        Ok(())
    };
    // The last failure's detail says what went wrong.
    let _ = with(read);
    found
}
