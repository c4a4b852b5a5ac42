//! Relay of clients on the node's machine to the head.
//!
//! Each client has a connection of its own, with the credentials that the kernel has of it.

use std::io;
use std::time::Duration;

use kumi_control::message::{ClientReply, Refusal, RefusalKind};
use tokio::net::{UnixListener, UnixStream};

use super::tree::Tree;
use crate::client::refusal;
use crate::frame;
use crate::link::{LinkError, Purpose};
use crate::peer::ClientPeer;
use crate::user_connections::UserConnections;

/// Accepts clients.
pub(super) async fn serve(listener: UnixListener, tree: Tree) {
    let quota = &tree.config.quota;
    let connections = UserConnections::new(quota.connections_per_user, tree.config.owner_uid);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::task::spawn_local(relay(stream, tree.clone(), connections.clone()));
            }
            Err(error) => {
                tracing::warn!(%error, "a client could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn relay(mut stream: UnixStream, tree: Tree, connections: UserConnections) {
    if let Err(refused) = try_relay(&mut stream, &tree, &connections).await {
        tree.shared.refusals.count("client refused");
        let reply = ClientReply::Refused(refused);
        if let Err(error) = frame::write(&mut stream, &reply, frame::LINK_LIMIT).await {
            tracing::debug!(%error, "a refused client is gone");
        }
    }
}

async fn try_relay(
    stream: &mut UnixStream,
    tree: &Tree,
    connections: &UserConnections,
) -> Result<(), Refusal> {
    let unknown = |error: io::Error| {
        refusal(RefusalKind::NotPermitted, format!("the system does not say who you are: {error}"))
    };
    let peer = ClientPeer::of(stream).map_err(unknown)?;
    let Some(connection) = connections.count(peer.user.uid) else { return Ok(()) };
    let Some(_connection) = connection.admit(stream).await else {
        tree.shared.refusals.count("client refused");
        return Ok(());
    };
    let peer = peer.with_name(&tree.shared.names).await?;
    let called = tree.connect_to_head(Purpose::Client(Box::new(peer))).await;
    let mut head = called.map_err(|error| match error {
        LinkError::Refused(refused) => refused,
        error => refusal(
            RefusalKind::NodeLost,
            format!(
                "the head at {} cannot be reached: {error}; {}; jobs that run go on until their leases end; on the head's host `systemctl status kumid-head` says why, and `kumi cluster up` starts it",
                tree.config.head,
                tree.shared.head.words()
            ),
        ),
    })?;
    // Either end going away is the normal end of it.
    if let Err(error) = tokio::io::copy_bidirectional(stream, &mut head).await {
        tracing::debug!(%error, "a client's connection ended");
    }
    Ok(())
}
