//! Routines that are parallel jobs of a cluster.
//!
//! The slot of such a routine is a proxy. It starts the same executable as the ranks of a job, by `kumi run`.
//! Rank 0 connects back over TCP ([`rank_connection`]). Over the connection they speak the slot protocol,
//! with copies of the arguments instead of shared memory. When the connection closes, rank 0 ends, and with
//! it the job.

mod job_listener;
mod launch;
mod proxy;
mod rank;
mod rank_connection;

use std::net::TcpListener;
use std::path::PathBuf;

use kumi_idl::{Interface, Plan};
use kumi_rpc::{Code, Failure};
use serde::{Deserialize, Serialize};

use crate::layout::Slot;
use crate::server::Config;
pub(crate) use proxy::Proxy;
pub(crate) use rank::run;

/// Settings for starting jobs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Jobs {
    /// The command `kumi`.
    pub kumi: PathBuf,
    /// The cluster's name.
    pub cluster: String,
    /// The folder of all clusters (`KUMI_DIR`), given here because the slot's user may have another default.
    pub folder: PathBuf,
    /// Most ranks of a job. Also the number of ranks if the job does not say.
    pub ranks: u64,
}

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

/// Checks that the server can start the job of a call.
///
/// # Errors
/// The failure for the client.
pub(crate) fn check(plan: &Plan, name: &str, config: &Config) -> Result<(), Failure> {
    let Some(ranks) = plan.ranks else { return Ok(()) };
    if config.sandbox {
        let text = format!(
            "`{name}` is a parallel job, which needs the network: it cannot run with --sandbox; have it served by a server without"
        );
        return Err(Failure::new(Code::NotRunnable, 0, text));
    }
    let Some(jobs) = &config.jobs else {
        let text = format!(
            "`{name}` is a parallel job, and this server starts no jobs; `kumi call serve` does"
        );
        return Err(Failure::new(Code::NotRunnable, 0, text));
    };
    if ranks <= jobs.ranks {
        return Ok(());
    }
    let text = format!(
        "`{name}` would have {ranks} ranks with these arguments, and this server gives {most} at most: ask for fewer, or have \
         the server started with --ranks {ranks}",
        most = jobs.ranks
    );
    Err(Failure::new(Code::TooLarge, i64::try_from(ranks).unwrap_or(i64::MAX), text))
}

/// Opens the port for rank 0 before a slot becomes another user, who may not enter the network namespace of
/// the nodes. `None`: it cannot be opened now, or the proxy can open its own.
pub(crate) fn job_listener_before_user_change(
    setup: &crate::slot_protocol::Setup,
) -> Option<TcpListener> {
    let jobs = setup.jobs.as_ref().filter(|_| setup.run_as.is_some())?;
    // If the proxy needs it, the proxy reports why it is missing.
    job_listener::open(jobs).ok()
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
