//! `kumi logs`: the output of a job so far, and later output with `--follow`.

use crate::attach;
use crate::cli::LogsArgs;
use crate::context::Context;
use crate::error::Error;
use crate::run::session::Session;

/// Runs the command. Signals end it and never reach the job.
pub async fn run(context: &Context, args: &LogsArgs) -> Result<(), Error> {
    let mut client = context.connect().await?;
    let (start, _) = attach::start(&mut client, args.job, args.follow).await?;
    let mut session = Session::new(context, start, args.label)?;
    session.only_watch();
    session.run(client).await
}
