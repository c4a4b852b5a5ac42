//! `kumi kill`: ends jobs on all their nodes, or sends all their ranks a signal.

use crate::context::Context;
use crate::error::Error;
use crate::output;
use clap::Args;
use kumi_control::message::{ClientReply, ClientRequest};
use kumi_node::client::ClientError;
use kumi_sched::JobId;
use nix::sys::signal::Signal;

/// `kumi kill`
#[derive(Clone, Debug, Args)]
pub struct KillArgs {
    /// Numbers of the jobs, as `kumi ps` shows them
    #[arg(required = true, value_name = "JOB")]
    pub jobs: Vec<u64>,
    /// Send this signal, by name or number, to all ranks instead of ending the jobs
    #[arg(short, long, value_name = "SIGNAL", value_parser = signal)]
    pub signal: Option<u8>,
}

/// A signal in the notation of `kill`: `USR1`, `SIGUSR1` or 10.
fn signal(text: &str) -> Result<u8, String> {
    let name = text.to_ascii_uppercase();
    let full = if name.starts_with("SIG") { name } else { format!("SIG{name}") };
    let named = full.parse().map(|signal: Signal| signal as i32);
    named
        .or_else(|_| text.parse())
        .ok()
        .and_then(|number| u8::try_from(number).ok())
        .filter(|number| (1..=64).contains(number))
        .ok_or_else(|| "give a name such as USR1, or a number from 1 to 64".to_owned())
}

/// Runs the command. All jobs are tried; the first failure decides the exit code.
pub async fn run(context: &Context, args: &KillArgs) -> Result<(), Error> {
    let mut client = context.connect().await?;
    let mut first = Ok(());
    for &number in &args.jobs {
        let job = JobId(number);
        let request = match args.signal {
            None => ClientRequest::Kill { job },
            Some(signal) => ClientRequest::Signal { job, signal },
        };
        let failure = match client.ask(&request).await {
            Ok(ClientReply::Done) => continue,
            Ok(other) => return Err(Error::unexpected(&other)),
            Err(error @ ClientError::Refused(_)) => error,
            Err(error) => return Err(error.into()),
        };
        if first.is_ok() {
            first = Err(Error::Silent(failure.exit_code().code()));
        }
        output::note(&failure.to_string());
    }
    first
}
