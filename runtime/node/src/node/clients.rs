//! Relay of clients on the node's machine to the head.
//!
//! Each client has a connection of its own, with the credentials that the kernel has of it.

use std::io;
use std::time::Duration;

use kumi_control::message::{Refusal, RefusalKind};
use tokio::net::{UnixListener, UnixStream};

use super::tree::Tree;
use crate::client::refusal;
use crate::link::{ConnectedStream, LinkError, LinkHello, Purpose};
use crate::names::NameService;
use crate::peer::ClientPeer;
use crate::tls::Identity;
use crate::user_connections::{UserConnections, tell_refused};

/// Accepts clients.
pub(super) async fn serve(listener: UnixListener, tree: Tree, names: NameService) {
    let quota = &tree.config.quota;
    let connections = UserConnections::new(quota.connections_per_user, tree.config.owner_uid);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::task::spawn_local(relay(
                    stream,
                    (tree.clone(), names.clone()),
                    connections.clone(),
                ));
            }
            Err(error) => {
                tracing::warn!(%error, "a client could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn relay(
    mut stream: UnixStream,
    (tree, names): (Tree, NameService),
    connections: UserConnections,
) {
    if let Err(refused) = try_relay(&mut stream, (&tree, &names), &connections).await {
        tree.shared.refusals.count("client refused");
        tell_refused(&mut stream, refused).await;
    }
}

async fn try_relay(
    stream: &mut UnixStream,
    (tree, names): (&Tree, &NameService),
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
    let peer = peer.with_name(names).await?;
    let hello = tree.hello(Purpose::Client(Box::new(peer)));
    let mut head = connect_to_head(tree, &hello).await?;
    // Either end going away is the normal end of it.
    if let Err(error) = tokio::io::copy_bidirectional(stream, &mut head).await {
        tracing::debug!(%error, "a client's connection ended");
    }
    Ok(())
}

/// Calls the heads in turn, each at all of its places, beginning with the one that led last.
async fn connect_to_head(tree: &Tree, hello: &LinkHello) -> Result<ConnectedStream, Refusal> {
    let mut last = None;
    for places in tree.heads.in_turn() {
        match tree.connect((Identity::Head, places), hello).await {
            Ok((stream, _)) => return Ok(stream),
            Err(LinkError::Refused(refused)) => return Err(refused),
            Err(error) => last = Some(error),
        }
    }
    let message = match last {
        Some(_) if tree.heads.count() > 1 => {
            format!(
                "no head leads now; {}; jobs that run go on until their leases end, see that the daemons of the heads and etcd run",
                tree.shared.head.words()
            )
        }
        Some(error) => format!(
            "the head at {} cannot be reached: {error}; {}; jobs that run go on until their leases end; on the head's host `systemctl status kumid-head` says why, and `kumi cluster up` starts it",
            tree.config.head,
            tree.shared.head.words()
        ),
        None => "the cluster has no head; correct cluster.toml".to_owned(),
    };
    Err(refusal(RefusalKind::NodeLost, message))
}
