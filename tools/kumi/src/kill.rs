//! `kumi kill`: ends jobs on all their nodes, or sends all their ranks a signal.
//!
//! Many jobs are asked to end at the same time; the command waits for each.

use crate::context::{Context, head_is_silent};
use crate::error::Error;
use crate::{output, parse};
use clap::Args;
use kumi_control::message::{ClientReply, ClientRequest};
use kumi_node::client::{ClientError, telling};
use kumi_sched::JobId;
use nix::sys::signal::Signal;
use std::collections::BTreeSet;
use std::time::Duration;

/// Most jobs that are asked to end and have not ended: the head cuts off whoever leaves too many answers unread.
const MOST_ASKED: usize = 128;

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
    let jobs: BTreeSet<u64> = args.jobs.iter().flat_map(|range| range.numbers()).collect();
    // The last first: otherwise tasks of an array that wait would start where those end that are killed.
    let mut left = jobs.into_iter().rev().map(JobId);
    let (mut first, mut said, mut asked) = (Ok(()), false, 0);
    loop {
        for job in left.by_ref().take(MOST_ASKED - asked) {
            let request = match args.signal {
                None => ClientRequest::Kill { job, grace_ns: parse::nanos(args.grace) },
                Some(signal) => ClientRequest::Signal { job, signal },
            };
            client.send(&request).await?;
            asked += 1;
        }
        if asked == 0 {
            return first;
        }
        let tell = || {
            if !std::mem::replace(&mut said, true) {
                tell_silence(args);
            }
        };
        let answer = telling(tell, client.next()).await?.ok_or(ClientError::Lost)?;
        asked -= 1;
        // Answers come as jobs end. A refusal names its job.
        let failure = match answer {
            ClientReply::Done => continue,
            ClientReply::Refused(refusal) => ClientError::Refused(refusal),
            other => return Err(Error::unexpected(&other)),
        };
        if first.is_ok() {
            first = Err(Error::Silent(failure.exit_code().code()));
        }
        output::note(&failure.to_string());
    }
}

/// Says what the command waits for.
fn tell_silence(args: &KillArgs) {
    match args {
        KillArgs { signal: Some(_), .. } => head_is_silent(),
        KillArgs { grace: Duration::ZERO, .. } => {
            output::note("waiting until nothing of the killed jobs is left");
        }
        KillArgs { grace, .. } => output::note(&format!(
            "waiting for ranks to end; they are killed {grace:?} after they were asked"
        )),
    }
}
