//! `kumi call`: routines that are called over the network.

mod build;
mod check;
mod client;
mod run;
mod serve;

use crate::error::Error;
use kumi_call::CallError;
use kumi_call::server::{RegistryError, ServeError};
use kumi_node::exit::ExitCode;
use std::io;

/// `kumi call …`
#[derive(Debug, clap::Subcommand)]
pub enum CallCommand {
    /// Offer routines of shared libraries to clients
    Serve(serve::ServeArgs),
    /// The routines of a server
    List(client::ListArgs),
    /// What a routine takes and gives
    Info(client::InfoArgs),
    /// Look at interface descriptions: what is wrong with them, or what they say
    Check(check::CheckArgs),
    /// Call a routine
    Run(run::RunArgs),
    /// Build executables of routines, those with a body in C too
    Build(build::BuildArgs),
}

/// Runs the command.
pub fn run(command: &CallCommand) -> Result<(), Error> {
    match command {
        CallCommand::Serve(args) => serve::run(args),
        CallCommand::List(args) => client::list(args),
        CallCommand::Info(args) => client::info(args),
        CallCommand::Check(args) => check::run(args),
        CallCommand::Run(args) => run::run(args),
        CallCommand::Build(args) => build::run(args),
    }
}

/// The exit code of a call that failed, as `docs/errors.md` lists them.
pub fn exit_code(error: &CallError) -> ExitCode {
    match error {
        CallError::Address(_) | CallError::Argument { .. } => ExitCode::Usage,
        CallError::Connect { .. } | CallError::Lost(_) => ExitCode::Unavailable,
        CallError::RoutineNotFound(_) => ExitCode::NoInput,
        CallError::TooLarge(_) => ExitCode::TooLarge,
        CallError::Busy(_) | CallError::TimedOut(_) | CallError::Cancelled(_) => ExitCode::TryLater,
        CallError::NotRunnable(_) => ExitCode::NotExecutable,
        CallError::NotPermitted(_) => ExitCode::NotPermitted,
        CallError::Status { .. } => ExitCode::BadConfig,
        _ => ExitCode::Internal,
    }
}

/// The exit code of a server that cannot be.
pub fn serve_exit_code(error: &ServeError) -> ExitCode {
    match error {
        ServeError::Listen { source, .. } => match source.kind() {
            io::ErrorKind::PermissionDenied => ExitCode::NotPermitted,
            io::ErrorKind::AddrInUse => ExitCode::Exists,
            _ => ExitCode::MachineLimits,
        },
        ServeError::System(_) => ExitCode::MachineLimits,
    }
}

/// The exit code of routines that cannot be offered.
pub fn registry_exit_code(error: &RegistryError) -> ExitCode {
    match error {
        RegistryError::Unreadable { source, .. } => match source.kind() {
            io::ErrorKind::PermissionDenied => ExitCode::NotPermitted,
            io::ErrorKind::NotFound => ExitCode::NoInput,
            _ => ExitCode::Io,
        },
        _ => ExitCode::BadConfig,
    }
}
