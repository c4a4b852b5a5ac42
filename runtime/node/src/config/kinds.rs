//! Words of the configuration that are one of a few.

use serde::{Deserialize, Serialize};

/// How the nodes of a cluster came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClusterKind {
    /// All nodes on this machine.
    Local,
    /// Real machines.
    Hosts,
}

/// How ranks send packets to other nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WireSetting {
    /// By UDP sockets.
    #[default]
    Udp,
    /// Short packets by AF_XDP. A node that cannot does not start.
    Xdp,
    /// Short packets by AF_XDP where that can be had.
    Auto,
}
