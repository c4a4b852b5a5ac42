//! `kumi attach`: follows a running job. It never ends the job: what would end the command leaves the job.

use crate::cli::AttachArgs;
use crate::context::Context;
use crate::error::Error;
use crate::run::session::{Session, Start};
use crate::terminal::{self, JobTerminal};
use kumi_node::client::Client;
use kumi_sched::JobId;

/// Runs the command. Only a terminal can show that of a job; elsewhere its output is printed as any other.
pub async fn run(context: &Context, args: &AttachArgs) -> Result<(), Error> {
    let mut client = context.connect().await?;
    let (start, has_terminal) = start(&mut client, args.job, true).await?;
    let mut session = Session::new(context, start, args.label)?;
    session.be_guest();
    if has_terminal && !args.label && terminal::is_there() {
        session.show(JobTerminal::new(&args.shown)?);
    }
    session.run(client).await
}

/// The start of a session that follows job `number`, with its name and size, and whether it has a terminal. For an unknown job
/// the head refuses.
pub async fn start(client: &mut Client, number: u64, wait: bool) -> Result<(Start, bool), Error> {
    let job = JobId(number);
    let known = client.job(job).await?.records.pop();
    let request = known.map(|record| record.spec.request);
    let terminal = request.as_ref().is_some_and(|request| request.terminal.is_some());
    let (name, ranks) =
        request.map_or((String::new(), u32::MAX), |request| (request.name, request.ranks));
    Ok((Start::Follow { job, name, ranks, wait }, terminal))
}
