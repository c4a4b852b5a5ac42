//! `kumi call`: routines that are called over the network.

mod check;
mod client;
mod meta;
mod serve;
mod status;

use crate::error::Error;
use kumi_call::CallError;
use kumi_call::meta::MetaError;
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
    /// Tell clients which of several servers a call goes to
    Meta(meta::MetaArgs),
    /// What a metaserver knows: servers, calls that wait, paths
    Status(status::StatusArgs),
    /// Look at interface descriptions: what is wrong with them, or what they say
    Check(check::CheckArgs),
}

/// Runs the command.
pub fn run(command: &CallCommand) -> Result<(), Error> {
    match command {
        CallCommand::Serve(args) => serve::run(args),
        CallCommand::List(args) => client::list(args),
        CallCommand::Info(args) => client::info(args),
        CallCommand::Meta(args) => meta::run(args),
        CallCommand::Status(args) => status::run(args),
        CallCommand::Check(args) => check::run(args),
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
        CallError::NoServer { .. } => ExitCode::TryLater,
        CallError::Attempts { last, .. } => exit_code(last),
        CallError::NotRunnable(_) => ExitCode::NotExecutable,
        CallError::NotPermitted(_) => ExitCode::NotPermitted,
        CallError::Status { .. } => ExitCode::BadConfig,
        _ => ExitCode::Internal,
    }
}

/// The exit code of a metaserver that cannot be.
pub fn meta_exit_code(error: &MetaError) -> ExitCode {
    match error {
        MetaError::Policy(_) => ExitCode::Usage,
        MetaError::Serve(error) => serve_exit_code(error),
        MetaError::State { .. } => ExitCode::Io,
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
