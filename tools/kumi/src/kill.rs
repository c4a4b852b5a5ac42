//! `kumi kill`: ends jobs on all their nodes, or sends all their ranks a signal.
//!
//! All jobs are asked to end at the same time; then the command waits for each.

use crate::context::Context;
use crate::error::Error;
use crate::{output, parse};
use clap::Args;
use kumi_control::message::{ClientReply, ClientRequest};
use kumi_node::client::{Client, ClientError};
use kumi_sched::JobId;
use nix::sys::signal::Signal;
use std::time::Duration;

/// After so long the command says what it waits for.
const QUIET: Duration = Duration::from_secs(1);

/// `kumi kill`
#[derive(Clone, Debug, Args)]
pub struct KillArgs {
    /// Numbers of the jobs, as `kumi ps` shows them, or FIRST-LAST
    #[arg(required = true, value_name = "JOB", value_parser = parse::jobs)]
    pub jobs: Vec<parse::JobRange>,
    /// How long ranks have between SIGTERM and SIGKILL; 0s: they get SIGKILL at once
    #[arg(long, value_name = "TIME", value_parser = parse::grace, default_value = "10s", conflicts_with = "signal")]
    pub grace: Duration,
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
    let jobs: Vec<JobId> = args.jobs.iter().flat_map(|range| range.numbers()).map(JobId).collect();
    for &job in &jobs {
        let request = match args.signal {
            None => ClientRequest::Kill { job, grace_ns: parse::nanos(args.grace) },
            Some(signal) => ClientRequest::Signal { job, signal },
        };
        client.send(&request).await?;
    }
    let (mut first, mut said) = (Ok(()), false);
    // Answers come as jobs end. A refusal names its job.
    for _ in &jobs {
        let failure = match answer(&mut client, args.grace, &mut said).await? {
            ClientReply::Done => continue,
            ClientReply::Refused(refusal) => ClientError::Refused(refusal),
            other => return Err(Error::unexpected(&other)),
        };
        if first.is_ok() {
            first = Err(Error::Silent(failure.exit_code().code()));
        }
        output::note(&failure.to_string());
    }
    first
}

/// The next answer of the head. If that takes long, a line says why, once.
async fn answer(
    client: &mut Client,
    grace: Duration,
    said: &mut bool,
) -> Result<ClientReply, ClientError> {
    let reply = client.next();
    tokio::pin!(reply);
    let reply = match tokio::time::timeout(QUIET, &mut reply).await {
        Ok(reply) => reply,
        Err(_) => {
            if !std::mem::replace(said, true) {
                output::note(&waits(grace));
            }
            reply.await
        }
    };
    reply?.ok_or(ClientError::Lost)
}

/// What the command waits for.
fn waits(grace: Duration) -> String {
    match grace {
        Duration::ZERO => "waiting until nothing of the killed jobs is left".to_owned(),
        _ => format!("waiting for ranks to end; they are killed {grace:?} after they were asked"),
    }
}
