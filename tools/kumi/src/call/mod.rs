//! `kumi call`: remote calls of routines.

mod access;
mod build;
mod check;
mod client;
mod description;
mod etcd;
mod log_limits;
mod logs;
mod meta;
mod python;
mod run;
mod serve;
mod shipped;
mod slot_limits;
mod status;
mod stubs;
mod token;

use crate::error::Error;
use kumi_call::meta::{EtcdError, MetaError};
use kumi_call::server::{RegistryError, ServeError};
use kumi_call::users::UsersError;
use kumi_call::{CallError, PemError, TlsError};
use kumi_node::exit::ExitCode;
use std::io;

/// `kumi call …`
#[derive(Debug, clap::Subcommand)]
pub enum CallCommand {
    /// Offer routines to clients
    Serve(Box<serve::ServeArgs>),
    /// List the routines of a server
    List(client::ListArgs),
    /// Describe a routine and its parameters
    Info(client::InfoArgs),
    /// Run a metaserver, which chooses a server for each call
    Meta(Box<meta::MetaArgs>),
    /// Show the state of a metaserver: servers, waiting calls, paths
    Status(status::StatusArgs),
    /// Show the log of a call: the lines of its routine, when it ran, and how it ended
    Logs(logs::LogsArgs),
    /// Check interface descriptions, and list their routines
    Check(check::CheckArgs),
    /// Call a routine
    Run(run::RunArgs),
    /// Build executables from interface descriptions, also of routines with a body in C
    Build(build::BuildArgs),
    /// Write sources with a typed function for each routine, for C, Fortran, Python and Java
    Stubs(stubs::StubsArgs),
    /// Manage the users of a server: make, list and revoke tokens
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
        CallCommand::Logs(args) => logs::run(args),
        CallCommand::Check(args) => check::run(args),
        CallCommand::Run(args) => run::run(args),
        CallCommand::Build(args) => build::run(args),
        CallCommand::Stubs(args) => stubs::run(args),
        CallCommand::Token(command) => token::run(command),
    }
}

/// The exit code of a failed call, as in `docs/reference/errors.md`.
pub fn exit_code(error: &CallError) -> ExitCode {
    match error {
        CallError::Address(_)
        | CallError::NotMetaserver(_)
        | CallError::Argument { .. }
        | CallError::NoPriority(_)
        | CallError::Environment { .. } => ExitCode::Usage,
        CallError::Connect { .. }
        | CallError::Lost(_)
        | CallError::ServerGone { .. }
        | CallError::Tls { .. }
        | CallError::NotLeading { .. } => ExitCode::Unavailable,
        CallError::RoutineNotFound(_) | CallError::File(_) => ExitCode::NoInput,
        CallError::TooLarge(_) | CallError::NoResources(_) => ExitCode::TooLarge,
        CallError::Busy(_) | CallError::TimedOut(_) | CallError::Cancelled(_) => ExitCode::TryLater,
        CallError::NoServer { .. } => ExitCode::TryLater,
        CallError::Attempts { last, .. } => last_exit_code(last),
        CallError::NotRunnable(_) => ExitCode::NotExecutable,
        CallError::NoLogs(_) => ExitCode::Version,
        CallError::NotPermitted(_) | CallError::Expired(_) => ExitCode::NotPermitted,
        CallError::Status { .. } | CallError::Raised { .. } => ExitCode::BadConfig,
        _ => ExitCode::Internal,
    }
}

/// The exit code after attempts through a metaserver. That a server cannot be reached is told as that there is none.
fn last_exit_code(last: &CallError) -> ExitCode {
    match exit_code(last) {
        ExitCode::Unavailable => ExitCode::TryLater,
        code => code,
    }
}

/// The exit code of a metaserver that cannot run.
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

/// The exit code of a server that cannot run.
pub fn serve_exit_code(error: &ServeError) -> ExitCode {
    match error {
        ServeError::Listen { source, .. } => match source.kind() {
            io::ErrorKind::PermissionDenied => ExitCode::NotPermitted,
            io::ErrorKind::AddrInUse => ExitCode::Exists,
            _ => ExitCode::MachineLimits,
        },
        ServeError::ClearMetaserver { .. }
        | ServeError::Vouching
        | ServeError::NotMetaserver(_) => ExitCode::Usage,
        ServeError::Refused { .. } => ExitCode::NotPermitted,
        ServeError::System(_) => ExitCode::MachineLimits,
    }
}

/// The exit code for routines that cannot be offered.
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

/// The exit code for an unusable user file.
pub fn users_exit_code(error: &UsersError) -> ExitCode {
    match error {
        UsersError::File { source, .. } => unreadable(source),
        UsersError::Writable(_) | UsersError::Content { .. } => ExitCode::BadConfig,
        UsersError::Request(_) => ExitCode::Usage,
        UsersError::Random(_) => ExitCode::MachineLimits,
    }
}

/// The exit code for unusable certificates.
pub fn tls_exit_code(error: &TlsError) -> ExitCode {
    match error {
        TlsError::Pem(error) => pem_exit_code(error),
        TlsError::NotBuilt => ExitCode::Usage,
    }
}

fn pem_exit_code(error: &PemError) -> ExitCode {
    match error {
        PemError::File { source, .. } => unreadable(source),
        PemError::Content { .. } => ExitCode::BadConfig,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_are_gone_have_one_exit_code_behind_a_metaserver() {
        let lost = || CallError::Lost("it closed".to_owned());
        let attempts = |last| CallError::Attempts {
            routine: "f".to_owned(),
            tried: Vec::new(),
            last: Box::new(last),
            has_not_run: true,
        };
        let none = CallError::NoServer { text: String::new(), has_not_run: true };
        assert_eq!(exit_code(&lost()), ExitCode::Unavailable);
        assert_eq!(exit_code(&attempts(lost())), exit_code(&none));
        let permitted = CallError::NotPermitted(String::new());
        assert_eq!(exit_code(&attempts(permitted)), ExitCode::NotPermitted);
    }
}
