//! Replies of the head, read ahead.

use kumi_control::message::ClientReply;
use kumi_node::client::{ClientError, Replies};
use tokio::sync::mpsc;

/// Replies read ahead of their handling.
const AHEAD: usize = 64;

/// Reads replies in a task of its own, because a read must not be cancelled half-way.
pub(super) fn receive(
    mut replies: Replies,
) -> mpsc::Receiver<Result<Option<ClientReply>, ClientError>> {
    let (sender, receiver) = mpsc::channel(AHEAD);
    tokio::spawn(async move {
        loop {
            let reply = replies.next().await;
            let last = !matches!(reply, Ok(Some(_)));
            if sender.send(reply).await.is_err() || last {
                return;
            }
        }
    });
    receiver
}
