//! Where daemons serve figures to Prometheus: keys `metrics` and `head_metrics` of cluster.toml.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use kumi_sched::NodeId;

use super::{ClusterConfig, ClusterKind, ConfigError, invalid};

/// Where a port alone is served on real hosts.
pub(super) const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// `PORT` with the address that goes with it, or `ADDRESS:PORT`.
pub(super) fn listening_address(text: &str, address: IpAddr) -> Result<SocketAddr, ConfigError> {
    let port = text.parse().ok().map(|port| SocketAddr::new(address, port));
    match port.or_else(|| text.parse().ok()) {
        Some(found) if found.port() != 0 => Ok(found),
        _ => invalid(format!(
            "metrics is {text:?}, which is neither a port from 1 to 65535 nor an address with one, as 127.0.0.1:9464 or [::1]:9464"
        )),
    }
}

impl ClusterConfig {
    /// Where `node` serves its figures, if it is to. `told`, from the command line, replaces what the
    /// file says. A port alone is for this machine only: it goes with 127.0.0.1, or in a local cluster
    /// with the node's own address, so that each of its nodes has one.
    ///
    /// # Errors
    /// When it is neither a port nor an address with a port, or there is no such node.
    pub fn metrics_of(
        &self,
        node: NodeId,
        told: Option<&str>,
    ) -> Result<Option<SocketAddr>, ConfigError> {
        let Some(text) = told.or(self.metrics.as_deref()) else { return Ok(None) };
        let own = match self.kind {
            ClusterKind::Local => self.node(node)?.address,
            ClusterKind::Hosts => LOCALHOST,
        };
        listening_address(text, own).map(Some)
    }

    /// Where the head serves its figures, if it is to; as [`ClusterConfig::metrics_of`], with the head's
    /// own address.
    ///
    /// # Errors
    /// When it is neither a port nor an address with a port.
    pub fn metrics_of_head(&self, told: Option<&str>) -> Result<Option<SocketAddr>, ConfigError> {
        let Some(text) = told.or(self.head_metrics.as_deref()) else { return Ok(None) };
        let own = match self.kind {
            ClusterKind::Local => self.head.ip(),
            ClusterKind::Hosts => LOCALHOST,
        };
        listening_address(text, own).map(Some)
    }
}
