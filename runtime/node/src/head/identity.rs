//! Who a client is, as far as the head believes it.
//!
//! The kernel names the clients of the head's own machine. Those of other machines are named by the daemons there, which the
//! head believes for some users only: see `users` of the nodes in cluster.toml.

use kumi_control::message::{ClientRequest, Refusal, RefusalKind, User};
use kumi_sched::NodeId;

use super::Shared;
use crate::client::refusal;
use crate::peer::ClientPeer;

/// Where a client connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// To the head's socket.
    Here,
    /// To the socket of this node, whose daemon relays it.
    Node(NodeId),
}

/// A client and what it may ask for.
#[derive(Debug)]
pub(super) struct KnownClient {
    pub(super) peer: ClientPeer,
    /// Why it may only look at what all may see, if so.
    doubt: Option<Refusal>,
}

/// A user who owns nothing: the kernel gives this number to nobody.
const NOBODY: User = User { uid: u32::MAX, gid: u32::MAX, name: String::new() };

impl KnownClient {
    /// A client of this machine, whose name is still to be looked up; or one of a node, believed or not.
    ///
    /// # Errors
    /// The node's machine and this one mean different users by its number or its name, or the name service does not answer.
    pub(super) async fn meet(
        peer: ClientPeer,
        origin: Origin,
        shared: &Shared,
    ) -> Result<Self, Refusal> {
        let Origin::Node(node) = origin else { return Ok(Self { peer, doubt: None }) };
        let config = shared.config.get();
        let name = shared.names.name_of(peer.user.uid).await?;
        let place = config.node(node).map_or_else(|_| node.to_string(), |node| node.name.clone());
        if !config.believes(node, peer.user.uid, name.as_deref()) {
            let message = format!(
                "the head does not believe {place} that you are user {}; do this on the head's machine, or add the user to `users` of {place} in cluster.toml there and start the head again",
                peer.user.words()
            );
            let doubt = Some(refusal(RefusalKind::NotPermitted, message));
            return Ok(Self { peer: ClientPeer { user: NOBODY, limits: None }, doubt });
        }
        let there = format!("on {place}");
        shared.names.check(&peer.user, &there, "on the head's machine").await?;
        Ok(Self { peer, doubt: None })
    }

    /// Looks up the name that this machine has for the user, unless its node has said it.
    ///
    /// # Errors
    /// The name service does not answer.
    pub(super) async fn with_name(self, origin: Origin, shared: &Shared) -> Result<Self, Refusal> {
        match origin {
            Origin::Here => {
                Ok(Self { peer: self.peer.with_name(&shared.names).await?, doubt: self.doubt })
            }
            Origin::Node(_) => Ok(self),
        }
    }

    /// Whether it may ask this.
    ///
    /// # Errors
    /// Only a user may whom the head believes.
    pub(super) fn check(&self, request: &ClientRequest) -> Result<(), Refusal> {
        let public = matches!(
            request,
            ClientRequest::Hello { .. }
                | ClientRequest::Jobs(_)
                | ClientRequest::Cluster
                | ClientRequest::Overview { .. }
                | ClientRequest::Heads
                | ClientRequest::Troubles
                | ClientRequest::Sample
                | ClientRequest::SampleLoad { .. }
                | ClientRequest::SamplePeers { .. }
                | ClientRequest::Usage(_)
        );
        match &self.doubt {
            Some(refused) if !public => Err(refused.clone()),
            _ => Ok(()),
        }
    }
}
