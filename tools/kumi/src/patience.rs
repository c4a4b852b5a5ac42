//! Questions that outlive a connection: they are asked again when the head is back.

use crate::context::Context;
use crate::error::Error;
use crate::output;
use kumi_control::message::{ClientReply, ClientRequest};
use kumi_node::client::{Client, ClientError};
use std::time::Duration;
use tokio::time::Instant;

/// Least time without a head after which a command gives up.
const HEAD_AWAY: Duration = Duration::from_secs(60);
/// Pause between attempts to reach the head.
pub const ATTEMPTS: Duration = Duration::from_millis(200);

/// Time without a head after which a command gives up: jobs run on for as long as their leases last.
pub fn without_head(context: &Context) -> Duration {
    context.config().map_or(HEAD_AWAY, |config| config.lease()).max(HEAD_AWAY)
}

/// What is waited for, and for how long.
pub fn trying_again(patience: Duration) -> String {
    let most = crate::table::elapsed(u64::try_from(patience.as_millis()).unwrap_or(u64::MAX));
    format!(
        "the connection to the head was lost; trying again for up to {most}, and jobs that run go on meanwhile"
    )
}

/// Tries to reach the head once more; none if that may still succeed before `deadline`.
///
/// # Errors
/// It will not, or the time is over.
pub async fn attempt(
    context: &Context,
    nodes: u32,
    (deadline, job): (Instant, impl FnOnce() -> String),
) -> Result<Option<Client>, Error> {
    match context.connect_again(nodes).await {
        Ok(client) => {
            output::note("the head is back");
            Ok(Some(client))
        }
        // The cluster was taken down meanwhile, and will not come back.
        Err(error) if !context.dir().exists() => Err(error),
        // A node's daemon that answers has no head to ask: the head is still away.
        Err(Error::Client(ClientError::NotRunning(_) | ClientError::Refused(_)))
            if Instant::now() < deadline =>
        {
            Ok(None)
        }
        Err(Error::Client(ClientError::NotRunning(_))) => {
            let (seconds, job) = (without_head(context).as_secs(), job());
            Err(Error::HeadGone { seconds, job })
        }
        Err(error) => Err(error),
    }
}

/// Asks, on this connection first, until `take` gives something for a reply. The question must do no harm if it comes twice.
///
/// # Errors
/// The head refuses, or is away for longer than [`without_head`].
pub async fn ask<T>(
    context: &Context,
    client: &mut Client,
    request: &ClientRequest,
    mut take: impl FnMut(ClientReply) -> Option<T>,
) -> Result<T, Error> {
    loop {
        match answer(client, request, &mut take).await {
            Err(Error::Client(ClientError::Lost)) => *client = reconnect(context).await?,
            other => return other,
        }
    }
}

async fn answer<T>(
    client: &mut Client,
    request: &ClientRequest,
    take: &mut impl FnMut(ClientReply) -> Option<T>,
) -> Result<T, Error> {
    client.send(request).await?;
    loop {
        match client.next().await? {
            None => return Err(ClientError::Lost.into()),
            Some(ClientReply::Refused(refusal)) => return Err(ClientError::Refused(refusal).into()),
            Some(reply) => {
                if let Some(found) = take(reply) {
                    return Ok(found);
                }
            }
        }
    }
}

async fn reconnect(context: &Context) -> Result<Client, Error> {
    let nodes = context.config()?.node_count();
    let patience = without_head(context);
    output::note(&trying_again(patience));
    let deadline = Instant::now() + patience;
    loop {
        tokio::time::sleep(ATTEMPTS).await;
        let job = || "the job".to_owned();
        if let Some(client) = attempt(context, nodes, (deadline, job)).await? {
            return Ok(client);
        }
    }
}
