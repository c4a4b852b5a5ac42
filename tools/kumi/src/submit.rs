//! `kumi submit`: submits a job or an array of jobs, and does not stay.

use crate::context::Context;
use crate::error::Error;
use crate::run::{self, JobArgs, ProgramArgs};
use crate::{output, parse, patience};
use clap::Args;
use kumi_control::batch::{ArrayRange, MOST_CONTENT};
use kumi_control::message::{ClientReply, ClientRequest, JobRequest};
use std::path::Path;

/// `kumi submit`
#[derive(Clone, Debug, Args)]
pub struct SubmitArgs {
    #[command(flatten)]
    pub job: JobArgs,
    /// Submit a job for each index of a range, with the index in KUMI_ARRAY_INDEX: 1-100, or 1-100%10 for at most ten jobs
    /// at a time
    #[arg(long, value_name = "FIRST-LAST[%N]", value_parser = parse::array)]
    pub array: Option<ArrayRange>,
    #[command(flatten)]
    pub program: ProgramArgs,
}

/// Runs the command.
pub async fn run(context: &Context, args: SubmitArgs) -> Result<(), Error> {
    let SubmitArgs { job, array, program } = args;
    // Before anything is read: without a cluster there is nothing to do.
    let mut client = context.connect().await?;
    let mut request = run::request("submit", context, (job, program.command), None)?;
    request.batch.content = content(&request)?;
    let request = ClientRequest::SubmitBatch { request: Box::new(request), array };
    // The same token finds the same job, however often it is submitted.
    let accepted = patience::ask(context, &mut client, &request, |reply| match reply {
        ClientReply::Accepted { first, last } => Some(Ok((first, last))),
        ClientReply::Note(text) => {
            output::note(&text);
            None
        }
        other => Some(Err(Error::unexpected(&other))),
    });
    let (first, last) = accepted.await??;
    output::text(&match first == last {
        true => format!("{first}\n"),
        false => format!("{first}-{last}\n"),
    })
}

/// The program itself, if it is small: scripts may change or go before their job starts.
fn content(request: &JobRequest) -> Result<Option<Vec<u8>>, Error> {
    if request.program.size > MOST_CONTENT as u64 {
        return Ok(None);
    }
    let path = Path::new(&request.program.path);
    let data = std::fs::read(path).map_err(|source| Error::File {
        doing: "read",
        path: path.to_owned(),
        source,
    })?;
    if *blake3::hash(&data).as_bytes() != request.program.hash.0 {
        return Err(Error::Usage(format!("{} changed meanwhile; submit it again", path.display())));
    }
    Ok(Some(data))
}
