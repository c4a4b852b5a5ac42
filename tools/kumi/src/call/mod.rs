//! `kumi call`: routines that are called over the network.

mod check;

use crate::error::Error;

/// `kumi call …`
#[derive(Debug, clap::Subcommand)]
pub enum CallCommand {
    /// Look at interface descriptions: what is wrong with them, or what they say
    Check(check::CheckArgs),
}

/// Runs the command.
pub fn run(command: &CallCommand) -> Result<(), Error> {
    match command {
        CallCommand::Check(args) => check::run(args),
    }
}
