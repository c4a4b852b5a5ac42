//! Questions that outlive a connection: they are asked again when the head is back.

use crate::context::Context;
use crate::error::Error;
use crate::output;
use kumi_control::message::{ClientReply, ClientRequest};
use kumi_node::client::{Client, ClientError};
use std::time::Duration;
use tokio::time::Instant;

/// Time without a head after which a command gives up.
const HEAD_AWAY: Duration = Duration::from_secs(60);
/// Pause between attempts to reach the head.
const ATTEMPTS: Duration = Duration::from_millis(200);

/// Asks, on this connection first, until `take` gives something for a reply. The question must do no harm if it comes twice.
///
/// # Errors
/// The head refuses, or is away for a minute.
pub async fn ask<T>(
    context: &Context,
    client: Client,
    request: &ClientRequest,
    mut take: impl FnMut(ClientReply) -> Option<T>,
) -> Result<T, Error> {
    let mut client = client;
    loop {
        match answer(&mut client, request, &mut take).await {
            Err(Error::Client(ClientError::Lost)) => client = reconnect(context).await?,
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
    output::note("the connection to the head was lost; trying again");
    let nodes = context.config()?.node_count();
    let deadline = Instant::now() + HEAD_AWAY;
    loop {
        tokio::time::sleep(ATTEMPTS).await;
        match context.connect_again(nodes).await {
            Ok(client) => {
                output::note("the head is back");
                return Ok(client);
            }
            // A node's daemon that answers has no head to ask: the head is still away.
            Err(Error::Client(ClientError::NotRunning(_) | ClientError::Refused(_)))
                if Instant::now() < deadline => {}
            Err(Error::Client(ClientError::NotRunning(_))) => {
                let (seconds, job) = (HEAD_AWAY.as_secs(), "the job".to_owned());
                return Err(Error::HeadGone { seconds, job });
            }
            Err(error) => return Err(error),
        }
    }
}
