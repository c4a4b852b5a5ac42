//! `kumi sim`: scheduling policies in virtual time. `kumi-sim` has the simulators; this module has the
//! command line, the progress bar and the files.

mod args;
mod calls;
mod calls_args;
mod figures;
mod jobs;
mod progress;
mod rows;
mod show;

use crate::error::Error;
use args::{FiguresArgs, JobsArgs};
use calls_args::CallsArgs;
use kumi_node::exit::ExitCode;
use kumi_sim::SimError;
use std::io;
use std::path::Path;

/// `kumi sim …`
#[derive(Debug, clap::Subcommand)]
pub enum SimCommand {
    /// Simulate scheduling policies on a list of jobs
    Jobs(Box<JobsArgs>),
    /// Make the figures and tables of the paper on queue trees anew, and compare
    Figures(FiguresArgs),
    /// Simulate calls of routines from clients to servers over networks
    Calls(Box<CallsArgs>),
}

/// Runs the command.
pub fn run(command: &SimCommand) -> Result<(), Error> {
    match command {
        SimCommand::Jobs(args) => jobs::run(args),
        SimCommand::Figures(args) => figures::run(args),
        SimCommand::Calls(args) => calls::run(args),
    }
}

/// The exit code of a simulation that failed, as `docs/reference/errors.md` lists them.
pub fn exit_code(error: &SimError) -> ExitCode {
    let file = |source: &io::Error, otherwise| match source.kind() {
        io::ErrorKind::PermissionDenied => ExitCode::NotPermitted,
        io::ErrorKind::NotFound => ExitCode::NoInput,
        _ => otherwise,
    };
    match error {
        SimError::UnknownPolicy(_)
        | SimError::UnknownCallPolicy(_)
        | SimError::Parameter { .. }
        | SimError::Refused { .. } => ExitCode::Usage,
        SimError::TooLarge { .. } | SimError::Stuck { .. } => ExitCode::TooLarge,
        SimError::Unreadable { source, .. } => file(source, ExitCode::BadConfig),
        SimError::Unwritable { source, .. } => file(source, ExitCode::Io),
        SimError::Policy { .. } => ExitCode::Internal,
        // The other errors concern the list of jobs.
        _ => ExitCode::BadConfig,
    }
}

/// Whether a file can be written at this path, as far as that can be known in advance. An error now is better
/// than one after an hour.
fn check_place(path: &Path) -> Result<(), Error> {
    let wrong = |source| SimError::Unwritable { path: path.to_owned(), source };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    if !std::fs::metadata(folder).map_err(wrong)?.is_dir() {
        return Err(wrong(io::ErrorKind::NotADirectory.into()).into());
    }
    if path.is_dir() {
        return Err(wrong(io::ErrorKind::IsADirectory.into()).into());
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    let wrong = |source| SimError::Unwritable { path: path.to_owned(), source };
    crate::whole_file::write(path, text).map_err(|source| wrong(source).into())
}
