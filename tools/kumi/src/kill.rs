//! `kumi kill`: ends jobs on all their nodes, or sends all their ranks a signal.

use crate::cli::KillArgs;
use crate::context::Context;
use crate::error::Error;
use crate::output;
use kumi_control::message::{ClientReply, ClientRequest};
use kumi_node::client::ClientError;
use kumi_sched::JobId;

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
