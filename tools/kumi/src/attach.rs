//! `kumi attach`: follows a running job, as if this command had started it.

use crate::cli::AttachArgs;
use crate::context::Context;
use crate::error::Error;
use crate::run::session::{Session, Start};
use kumi_control::message::{ClientReply, ClientRequest};
use kumi_node::client::Client;
use kumi_sched::JobId;

/// Runs the command.
pub async fn run(context: &Context, args: &AttachArgs) -> Result<(), Error> {
    let mut client = context.connect().await?;
    let start = start(&mut client, args.job, true).await?;
    Session::new(context, start, args.label)?.run(client).await
}

/// The start of a session that follows job `number`, with its name and size. For an unknown job the head
/// refuses.
pub async fn start(client: &mut Client, number: u64, wait: bool) -> Result<Start, Error> {
    let records = match client.ask(&ClientRequest::Jobs { all: true }).await? {
        ClientReply::Jobs(list) => list.records,
        other => return Err(Error::unexpected(&other)),
    };
    let job = JobId(number);
    let known = records.into_iter().find(|record| record.spec.job == job);
    let (name, ranks) = known.map_or((String::new(), u32::MAX), |record| {
        (record.spec.request.name, record.spec.request.ranks)
    });
    Ok(Start::Follow { job, name, ranks, wait })
}
