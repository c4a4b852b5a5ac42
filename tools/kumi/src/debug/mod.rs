//! `kumi debug`: the inside of a running job, for whoever looks for a fault.

mod channel;

use crate::context::Context;
use crate::error::Error;
use clap::{Args, Subcommand};

/// `kumi debug …`
#[derive(Debug, Subcommand)]
pub enum DebugCommand {
    /// Show the channels of a job's ranks to other nodes: packets under way, lost or refused, peer by peer
    Channel(ChannelArgs),
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

/// Runs a subcommand.
pub async fn run(context: &Context, command: &DebugCommand) -> Result<(), Error> {
    match command {
        DebugCommand::Channel(args) => channel::run(context, args).await,
    }
}
