//! Clients of the head: of its own machine, and those that nodes relay.

use std::time::Duration;

use kumi_control::head::{ClientId, HeadEvent};
use kumi_control::message::{ClientReply, ClientRequest, RefusalKind, User};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::UnixListener;
use tokio::sync::mpsc;

use super::{Event, Shared};
use crate::client::refusal;
use crate::frame::{self, CLIENT_LIMIT, LINK_LIMIT};

/// Pieces of output that may wait for a slow client; its follower then waits.
const WINDOW: usize = 16;

/// Where replies to a client go.
#[derive(Clone, Debug)]
pub(super) struct Mouth {
    /// Answers, which come before output that waits.
    pub(super) answers: mpsc::UnboundedSender<ClientReply>,
    /// What followers send.
    pub(super) output: mpsc::Sender<ClientReply>,
}

/// Accepts the clients of this machine.
pub(super) async fn serve(listener: UnixListener, shared: Shared) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => match stream.peer_cred() {
                Ok(credentials) => {
                    let user = User { uid: credentials.uid(), gid: credentials.gid() };
                    tokio::task::spawn_local(attend(stream, user, shared.clone()));
                }
                Err(error) => tracing::warn!(%error, "a client without credentials was refused"),
            },
            Err(error) => {
                tracing::warn!(%error, "a client could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Carries the connection of a client until it ends.
pub(super) async fn attend<S>(stream: S, user: User, shared: Shared)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let id = ClientId(shared.next_id());
    let (read, mut write) = tokio::io::split(stream);
    let mut read = BufReader::with_capacity(64 << 10, read);
    let (answers, mut answer_queue) = mpsc::unbounded_channel();
    let (output, mut output_queue) = mpsc::channel(WINDOW);
    let mouth = Mouth { answers: answers.clone(), output };
    if shared.events.send(Event::ClientUp(id, mouth)).await.is_err() {
        return;
    }
    let mut congested = shared.congested.clone();
    let reading = async {
        loop {
            // Programs and input wait with the client rather than in memory here.
            if congested.wait_for(|congested| !congested).await.is_err() {
                return None;
            }
            match frame::read::<ClientRequest>(&mut read, CLIENT_LIMIT).await {
                Ok(Some(request)) => {
                    let event = HeadEvent::Client(id, user.clone(), request);
                    if shared.events.send(Event::Head(event)).await.is_err() {
                        return None;
                    }
                }
                Ok(None) => return None,
                Err(error) => {
                    shared.refusals.count_frame(&error);
                    return error.is_violation().then(|| {
                        let message =
                            format!("{error}; use the `kumi` that belongs to the cluster");
                        ClientReply::Refused(refusal(RefusalKind::Version, message))
                    });
                }
            }
        }
    };
    let writing = async {
        loop {
            let reply = tokio::select! {
                biased;
                Some(reply) = answer_queue.recv() => reply,
                Some(reply) = output_queue.recv() => reply,
                else => return Ok(()),
            };
            frame::write(&mut write, &reply, LINK_LIMIT).await?;
        }
    };
    let last = tokio::select! {
        last = reading => last,
        written = writing => {
            if let Err::<(), frame::FrameError>(error) = written {
                tracing::debug!(client = id.0, %error, "a client's connection ended");
            }
            None
        }
    };
    if let Some(last) = last {
        // The client is about to be cut off; that it does not listen changes nothing.
        let _ = frame::write(&mut write, &last, LINK_LIMIT).await;
    }
    let _ = write.shutdown().await;
    drop(answers);
    // Fails only when the head is about to end.
    let _ = shared.events.send(Event::ClientDown(id)).await;
}
