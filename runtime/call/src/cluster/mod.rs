//! Routines that are parallel jobs of a cluster.
//!
//! The slot of such a routine is a proxy: it has `kumi run` start the same executable as the ranks of a job, rank 0 of which comes
//! back over TCP ([`link`]). There they speak as server and slot do, with the arguments copied instead of shared. The connection is the
//! job's life: rank 0 ends when it is gone, and with rank 0 its job.

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

/// How a server starts jobs.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Jobs {
    /// The command `kumi`.
    pub kumi: PathBuf,
    /// The cluster's name.
    pub cluster: String,
    /// Where the directories of clusters are (`KUMI_DIR`), whoever the process of the slot has become.
    pub folder: PathBuf,
    /// Most ranks of a job, and those of a job that leaves it to the server.
    pub ranks: u64,
}

/// What a rank is told first.
#[derive(Debug, Serialize, Deserialize)]
struct Setup {
    /// The routine's description.
    interface: String,
    /// Most bytes of address space, beside what the rank has mapped when it has joined its job; 0: no limit.
    memory: u64,
    /// Most open files.
    files: u64,
}

/// The library with which ranks find each other. It belongs to the executable, since routines call it too.
pub trait RankLibrary {
    /// Joins the job; which of its ranks this is.
    ///
    /// # Errors
    /// A sentence.
    fn join(&self) -> Result<u32, String>;
    /// Bytes of rank 0 come to all ranks, which give as many.
    ///
    /// # Errors
    /// A sentence.
    fn broadcast(&self, bytes: &mut [u8]) -> Result<(), String>;
    /// Waits until all ranks are here.
    ///
    /// # Errors
    /// A sentence.
    fn barrier(&self) -> Result<(), String>;
    /// Leaves the job.
    ///
    /// # Errors
    /// A sentence.
    fn leave(&self) -> Result<(), String>;
}

/// The variable of a rank's environment that says where its proxy is: the address, and the key in hexadecimal digits.
const VARIABLE: &str = "KUMI_CALL_JOB";

/// Whether this process is a rank that a proxy has started.
pub(crate) fn is_rank() -> bool {
    std::env::var_os(VARIABLE).is_some() && std::env::var_os("KUMI_RANK").is_some()
}

/// Whether the server can start the job of a call.
///
/// # Errors
/// What the client is told.
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
            "`{name}` is a parallel job, and this server starts none: `kumi call serve` does"
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

/// The port for the rank 0 of the job of a slot that is about to become another user, who may not enter the network of nodes that are
/// namespaces. `None`: there is none now, or the proxy can open its own.
pub(crate) fn job_listener_before_user_change(
    setup: &crate::slot_protocol::Setup,
) -> Option<TcpListener> {
    let jobs = setup.jobs.as_ref().filter(|_| setup.run_as.is_some())?;
    // Should it be needed, the proxy says why there is none.
    job_listener::open(jobs).ok()
}

/// Which arguments a copy takes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ArgumentPart {
    /// Scalars, texts and what is computed of them, of those that are sent.
    Small,
    /// Arrays that are sent.
    Arrays,
    /// Arrays that are sent, and come to all ranks.
    Broadcast,
    /// What comes back.
    Results,
}

/// The places of arguments, those of the symbol's expressions behind them.
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
