//! `kumi debug`: the inside of a running job, for whoever looks for a fault.

mod channel;
mod waits;

use crate::context::Context;
use crate::error::Error;
use clap::{Args, Subcommand};
pub use waits::deadlock_text;

/// `kumi debug …`
#[derive(Debug, Subcommand)]
pub enum DebugCommand {
    /// Show the channels of a job's ranks to other nodes: packets under way, lost or refused, peer by peer
    Channel(ChannelArgs),
    /// Say whether a job runs, is idle or is stopped; and of a stopped one, what its ranks wait for, and why for ever
    Waits(WaitsArgs),
}

/// `kumi debug channel`
#[derive(Clone, Debug, Args)]
pub struct ChannelArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Number of the job
    pub job: u64,
    /// Show only this rank
    pub rank: Option<u32>,
}

/// `kumi debug waits`
#[derive(Clone, Debug, Args)]
pub struct WaitsArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Number of the job
    pub job: u64,
}

/// Runs a subcommand.
pub async fn run(context: &Context, command: &DebugCommand) -> Result<(), Error> {
    match command {
        DebugCommand::Channel(args) => channel::run(context, args).await,
        DebugCommand::Waits(args) => waits::run(context, args).await,
    }
}
