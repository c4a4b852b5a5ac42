//! `kumi call`: routines that are called over the network.

mod access;
mod build;
mod check;
mod client;
mod etcd;
mod meta;
mod python;
mod run;
mod serve;
mod shipped;
mod status;
mod token;

use crate::error::Error;
use kumi_call::meta::{EtcdError, MetaError};
use kumi_call::server::{RegistryError, ServeError};
use kumi_call::users::UsersError;
use kumi_call::{CallError, TlsError};
use kumi_node::exit::ExitCode;
use std::io;

/// `kumi call …`
#[derive(Debug, clap::Subcommand)]
pub enum CallCommand {
    /// Offer routines of shared libraries to clients
    Serve(Box<serve::ServeArgs>),
    /// The routines of a server
    List(client::ListArgs),
    /// What a routine takes and gives
    Info(client::InfoArgs),
    /// Tell clients which of several servers a call goes to
    Meta(Box<meta::MetaArgs>),
    /// What a metaserver knows: servers, calls that wait, paths
    Status(status::StatusArgs),
    /// Look at interface descriptions: what is wrong with them, or what they say
    Check(check::CheckArgs),
    /// Call a routine
    Run(run::RunArgs),
    /// Build executables of routines, those with a body in C too
    Build(build::BuildArgs),
    /// Who may call a server: make tokens, list and revoke them
    #[command(subcommand)]
    Token(token::TokenCommand),
}

/// Runs the command.
pub fn run(command: &CallCommand, cluster: &str) -> Result<(), Error> {
    match command {
        CallCommand::Serve(args) => serve::run(args, cluster),
        CallCommand::List(args) => client::list(args),
        CallCommand::Info(args) => client::info(args),
        CallCommand::Meta(args) => meta::run(args, cluster),
        CallCommand::Status(args) => status::run(args),
        CallCommand::Check(args) => check::run(args),
        CallCommand::Run(args) => run::run(args),
        CallCommand::Build(args) => build::run(args),
        CallCommand::Token(command) => token::run(command),
    }
}

/// The exit code of a call that failed, as `docs/reference/errors.md` lists them.
pub fn exit_code(error: &CallError) -> ExitCode {
    match error {
        CallError::Address(_)
        | CallError::Argument { .. }
        | CallError::NoPriority(_)
        | CallError::Environment { .. } => ExitCode::Usage,
        CallError::Connect { .. }
        | CallError::Lost(_)
        | CallError::Tls { .. }
        | CallError::NotLeading { .. } => ExitCode::Unavailable,
        CallError::RoutineNotFound(_) | CallError::File(_) => ExitCode::NoInput,
        CallError::TooLarge(_) => ExitCode::TooLarge,
        CallError::Busy(_) | CallError::TimedOut(_) | CallError::Cancelled(_) => ExitCode::TryLater,
        CallError::NoServer { .. } => ExitCode::TryLater,
        CallError::Attempts { last, .. } => exit_code(last),
        CallError::NotRunnable(_) => ExitCode::NotExecutable,
        CallError::NotPermitted(_) | CallError::Expired(_) => ExitCode::NotPermitted,
        CallError::Status { .. } | CallError::Raised { .. } => ExitCode::BadConfig,
        _ => ExitCode::Internal,
    }
}

/// The exit code of a metaserver that cannot be.
pub fn meta_exit_code(error: &MetaError) -> ExitCode {
    match error {
        MetaError::Policy(_) => ExitCode::Usage,
        MetaError::Serve(error) => serve_exit_code(error),
        MetaError::State { .. } => ExitCode::Io,
        MetaError::Etcd(error) => match error {
            EtcdError::Address(_) => ExitCode::Usage,
            EtcdError::Tls(_) => ExitCode::BadConfig,
            _ => ExitCode::Unavailable,
        },
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
        RegistryError::Unreadable { source, .. } => unreadable(source),
        _ => ExitCode::BadConfig,
    }
}

fn unreadable(source: &io::Error) -> ExitCode {
    match source.kind() {
        io::ErrorKind::PermissionDenied => ExitCode::NotPermitted,
        io::ErrorKind::NotFound => ExitCode::NoInput,
        _ => ExitCode::Io,
    }
}

/// The exit code of a file of users that cannot be used.
pub fn users_exit_code(error: &UsersError) -> ExitCode {
    match error {
        UsersError::File { source, .. } => unreadable(source),
        UsersError::Writable(_) | UsersError::Content { .. } => ExitCode::BadConfig,
        UsersError::Asked(_) => ExitCode::Usage,
    }
}

/// The exit code of certificates that cannot be used.
pub fn tls_exit_code(error: &TlsError) -> ExitCode {
    match error {
        TlsError::File { source, .. } => unreadable(source),
        TlsError::Content { .. } => ExitCode::BadConfig,
    }
}
