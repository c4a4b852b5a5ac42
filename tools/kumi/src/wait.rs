//! `kumi wait`: waits until jobs are over.

use crate::context::Context;
use crate::error::Error;
use crate::parse::{self, JobRange};
use crate::run::session;
use crate::{job_descriptions, output, patience};
use clap::Args;
use kumi_control::message::{ClientReply, ClientRequest, Outcome};
use kumi_node::client::{Client, ClientError};
use kumi_sched::JobId;

/// `kumi wait`
#[derive(Clone, Debug, Args)]
pub struct WaitArgs {
    /// Numbers of the jobs, or FIRST-LAST
    #[arg(required = true, value_name = "JOB", value_parser = parse::jobs)]
    pub jobs: Vec<JobRange>,
}

/// Runs the command. The first job that failed, in the order in which they are named, decides the exit code.
pub async fn run(context: &Context, args: &WaitArgs) -> Result<(), Error> {
    let names = context.node_names();
    let mut client = context.connect().await?;
    let mut code = None;
    for job in args.jobs.iter().flat_map(|range| range.numbers()) {
        let outcome = match outcome(context, &mut client, JobId(job)).await {
            Ok(outcome) => outcome,
            Err(Error::Client(error @ ClientError::Refused(_))) => {
                output::note(&error.to_string());
                code.get_or_insert(error.exit_code().code());
                continue;
            }
            Err(error) => return Err(error),
        };
        let Some(sentence) = job_descriptions::outcome(&outcome, &names) else { continue };
        output::note(&format!("{}: {sentence}", job_descriptions::job(job, "")));
        code.get_or_insert(session::code_of(&outcome, None));
    }
    code.map_or(Ok(()), |code| Err(Error::Silent(code)))
}

async fn outcome(context: &Context, client: &mut Client, job: JobId) -> Result<Outcome, Error> {
    let request = ClientRequest::Wait { job };
    let over = patience::ask(context, client, &request, |reply| match reply {
        ClientReply::Ended { outcome, not_kept, .. } => {
            if not_kept > 0 {
                output::note(&format!(
                    "{not_kept} bytes of the output of job {job} are not on the disk of the head; `kumi logs {job}` has them only while this head runs, or lacks them"
                ));
            }
            Some(Ok(outcome))
        }
        other => Some(Err(Error::unexpected(&other))),
    });
    over.await?
}
