//! Routines that are parallel jobs of a cluster.
//!
//! The slot of such a routine is a proxy. It starts the same executable as the ranks of a job, by `kumi run`.
//! Rank 0 connects back over TCP ([`rank_connection`]). Over the connection they speak the slot protocol,
//! with copies of the arguments instead of shared memory. When the connection closes, rank 0 ends, and with
//! it the job.

#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod executable;
mod job_listener;
mod launch;
mod proxy;
mod rank;
mod rank_connection;

use kumi_call_slot::native;
use kumi_call_slot::slot_protocol::{self, Jobs};
use kumi_call_wire::layout::{self, Slot};
use kumi_call_wire::{random, tcp};
use kumi_idl::Interface;
use serde::{Deserialize, Serialize};

pub use executable::parallel_main;

/// The first message to a rank.
#[derive(Debug, Serialize, Deserialize)]
struct Setup {
    /// The routine's description.
    interface: String,
    /// Most bytes of address space beyond what the rank has mapped after joining its job; 0: no limit.
    memory: u64,
    /// Most open files.
    files: u64,
}

/// The library that connects the ranks. It comes from the executable, because routines call it too.
pub trait RankLibrary {
    /// Joins the job. Returns this rank's number.
    ///
    /// # Errors
    /// An error message.
    fn join(&self) -> Result<u32, String>;
    /// Copies bytes of rank 0 to all ranks, which pass buffers of the same length.
    ///
    /// # Errors
    /// An error message.
    fn broadcast(&self, bytes: &mut [u8]) -> Result<(), String>;
    /// Waits for all ranks.
    ///
    /// # Errors
    /// An error message.
    fn barrier(&self) -> Result<(), String>;
    /// Leaves the job.
    ///
    /// # Errors
    /// An error message.
    fn leave(&self) -> Result<(), String>;
}

/// The environment variable that gives a rank its proxy's address, and the key in hexadecimal.
const VARIABLE: &str = "KUMI_CALL_JOB";

/// Whether this process is a rank that a proxy has started.
pub(crate) fn is_rank() -> bool {
    std::env::var_os(VARIABLE).is_some() && std::env::var_os("KUMI_RANK").is_some()
}

/// The arguments that a copy takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ArgumentPart {
    /// Scalars and texts that are sent, and values computed from them.
    Small,
    /// Arrays that are sent.
    Arrays,
    /// Arrays that are sent to all ranks.
    Broadcast,
    /// Results.
    Results,
}

/// The places of the arguments, and behind them those of the symbol's expressions.
fn places<'a>(
    interface: &'a Interface,
    slots: &'a [Slot],
    part: ArgumentPart,
) -> impl Iterator<Item = &'a Slot> {
    slots.iter().enumerate().filter_map(move |(index, slot)| {
        let Some(param) = interface.params.get(index) else {
            return (part == ArgumentPart::Small).then_some(slot);
        };
        let (array, sent) = (param.is_array(), param.mode.is_sent());
        let taken = match part {
            ArgumentPart::Small => sent && !array,
            ArgumentPart::Arrays => sent && array,
            ArgumentPart::Broadcast => sent && array && interface.is_broadcast(index),
            ArgumentPart::Results => param.mode.is_returned(),
        };
        taken.then_some(slot)
    })
}
