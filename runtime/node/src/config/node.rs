//! A node of the configuration, and where it can be reached.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use serde::{Deserialize, Serialize};

use super::{ClusterConfig, ConfigError, DeviceList, WireSetting, check_devices, invalid};
use crate::sizes;

/// One node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// Name shown to people.
    pub name: String,
    /// Where its daemon listens and its ranks' sockets bind.
    pub address: IpAddr,
    /// TCP port of its daemon.
    pub port: u16,
    /// Further places where its daemon is reached, as `HOST` or `HOST:PORT`: addresses, or names that are looked up whenever
    /// somebody connects. Links try `address` first. So do ranks, of which all of a job use one family.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// Its interface to the other nodes, if the address is a link-local one of IPv6; otherwise the routes decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Processors its ranks may use; empty for all.
    #[serde(default)]
    pub cpus: Vec<usize>,
    /// Network namespace it runs in, for local clusters made by root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netns: Option<String>,
    /// How its ranks send to other nodes, if not as the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire: Option<WireSetting>,
    /// Whose clients the head accepts through it: names, numbers or `"any"`. Without the key these are numbers from 1000
    /// on but the owner's. Root and the owner count only if they are named. On the head's machine everybody counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub users: Option<Vec<String>>,
    /// Memory that its ranks may use, as `16GiB`. Without it, that of the machine less `memory_reserve`, which nodes on one
    /// machine share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// It is no node any more. Its number is not given again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub removed: bool,
    /// Devices that its ranks may use: for each name their number, or a list of their files.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, DeviceList>,
}

impl NodeConfig {
    /// The configured memory in bytes.
    pub fn memory(&self) -> Option<u64> {
        self.memory.as_deref().and_then(sizes::bytes)
    }

    pub(super) fn check_resources(&self) -> Result<(), ConfigError> {
        check_devices(&self.devices)
            .or_else(|why| invalid(format!("devices of node {:?} are wrong: {why}", self.name)))?;
        match &self.memory {
            Some(text) if sizes::bytes(text).is_none_or(|bytes| bytes == 0) => {
                invalid(format!("memory of node {:?} is wrong: {}", self.name, sizes::wrong(text)))
            }
            _ => Ok(()),
        }
    }

    /// Where its daemon listens.
    pub fn endpoint(&self) -> SocketAddr {
        SocketAddr::new(self.address, self.port)
    }

    /// The kernel's number of its interface, on the node itself; 0 if the address needs none.
    ///
    /// # Errors
    /// When there is no such interface.
    pub fn scope(&self) -> Result<u32, ConfigError> {
        let Some(interface) = &self.interface else { return Ok(0) };
        nix::net::if_::if_nametoindex(interface.as_str()).map_err(|_| {
            ConfigError::Invalid(format!(
                "node {:?} has no network interface {interface:?} here",
                self.name
            ))
        })
    }
}

/// An address as it is used on a machine whose interface to the other nodes has the number `scope`: link-local addresses
/// mean nothing without.
#[must_use]
pub fn on_link(address: SocketAddr, scope: u32) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => {
            SocketAddrV6::new(*v6.ip(), v6.port(), 0, scope).into()
        }
        other => other,
    }
}

/// Whether others can send to such an address. An IPv4 address is to be written as one.
pub(super) fn can_be_reached(address: IpAddr) -> bool {
    let mapped = matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    !(address.is_unspecified() || address.is_multicast() || broadcast || mapped)
}

pub(super) fn is_link_local(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// Checks the link-local addresses: each with its interface, and all or none, since who has none does not know the link.
pub(super) fn check_links(config: &ClusterConfig) -> Result<(), ConfigError> {
    for (_, node) in config.members() {
        let name = &node.name;
        match (&node.interface, is_link_local(node.address)) {
            (None, true) => {
                return invalid(format!(
                    "node {name:?} has the link-local address {} and no interface; add `interface`",
                    node.address
                ));
            }
            (Some(_), false) => {
                return invalid(format!(
                    "node {name:?} has an interface, which only a link-local address needs; remove it"
                ));
            }
            (Some(interface), true) if interface.is_empty() || interface.len() > 15 => {
                return invalid(format!("the interface of node {name:?} is {interface:?}"));
            }
            _ => {}
        }
    }
    let link_local = config.members().filter(|(_, node)| is_link_local(node.address)).count();
    if link_local != 0 && link_local != config.members().count() {
        return invalid("some nodes have link-local addresses and some not: give all or none");
    }
    match config.head {
        SocketAddr::V6(head) if head.scope_id() != 0 || head.flowinfo() != 0 => invalid(format!(
            "head {head} has a number of an interface; name the interface at the node with this address"
        )),
        head if is_link_local(head.ip()) => config.head_scope().map(drop),
        _ if link_local != 0 => invalid(
            "the nodes have link-local addresses and the head has none: give it that of its node",
        ),
        _ => Ok(()),
    }
}

impl ClusterConfig {
    /// The node whose interface the head uses, if its address is link-local.
    fn head_scope(&self) -> Result<Option<&NodeConfig>, ConfigError> {
        if !is_link_local(self.head.ip()) {
            return Ok(None);
        }
        match self.members().find(|(_, node)| node.address == self.head.ip()) {
            Some((_, node)) => Ok(Some(node)),
            None => invalid(format!(
                "head {} is link-local and not the address of a node, so its interface is not known",
                self.head
            )),
        }
    }

    /// The interface that the address of the head needs, on its own machine.
    pub fn head_interface(&self) -> Option<&str> {
        self.head_scope().ok().flatten()?.interface.as_deref()
    }

    /// Where the head listens, on its own machine.
    ///
    /// # Errors
    /// When the interface of its link-local address is not known or does not exist.
    pub fn head_here(&self) -> Result<SocketAddr, ConfigError> {
        let scope = self.head_scope()?.map_or(Ok(0), NodeConfig::scope)?;
        Ok(on_link(self.head, scope))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn cluster(head: &str, nodes: &[(&str, Option<&str>)]) -> Result<ClusterConfig, ConfigError> {
        let mut text = format!("name = \"lab\"\nkind = \"hosts\"\nhead = \"{head}\"\n");
        for (index, (address, interface)) in nodes.iter().enumerate() {
            text +=
                &format!("[[nodes]]\nname = \"n{index}\"\naddress = \"{address}\"\nport = 7701\n");
            text += &interface.map(|name| format!("interface = \"{name}\"\n")).unwrap_or_default();
        }
        ClusterConfig::parse(&text, Path::new("cluster.toml"))
    }

    #[test]
    fn both_families_and_their_mixture_are_read() {
        let six = cluster("[fd00::1]:7700", &[("fd00::1", None), ("fd00::2", None)]).unwrap();
        assert_eq!(six.nodes[1].endpoint().to_string(), "[fd00::2]:7701");
        assert_eq!(six.head_here().unwrap(), six.head);
        let both = cluster("10.0.0.1:7700", &[("10.0.0.1", None), ("fd00::2", None)]).unwrap();
        assert!(both.nodes[0].address.is_ipv4() && both.nodes[1].address.is_ipv6());
    }

    #[test]
    fn a_link_local_address_has_an_interface() {
        let lo = [("fe80::1", Some("lo")), ("fe80::2", Some("eth7"))];
        let config = cluster("[fe80::1]:7700", &lo).unwrap();
        assert_eq!(config.nodes[0].scope().unwrap(), 1);
        assert_eq!(config.head_here().unwrap().to_string(), "[fe80::1%1]:7700");
        assert!(config.nodes[1].scope().unwrap_err().to_string().contains("\"eth7\""));
        let there = config.nodes[1].endpoint();
        assert_eq!(on_link(there, 5).to_string(), "[fe80::2%5]:7701");
        assert_eq!(on_link("[fd00::2]:1".parse().unwrap(), 5).to_string(), "[fd00::2]:1");
    }

    #[test]
    fn addresses_that_cannot_work_are_refused() {
        let one: &[_] = &[("fe80::1", Some("lo"))];
        for (head, nodes, says) in [
            ("[fe80::1]:7700", &[("fe80::1", None)][..], "add `interface`"),
            ("[fd00::1]:7700", &[("fd00::1", Some("lo"))], "remove it"),
            ("[fe80::1]:7700", &[("fe80::1", Some(""))], "interface of node"),
            ("[fe80::1]:7700", &[("fe80::1", Some("lo")), ("fd00::2", None)], "all or none"),
            ("[fe80::1%1]:7700", one, "number of an interface"),
            ("[fe80::9]:7700", one, "not the address of a node"),
            ("[fd00::1]:7700", one, "the head has none"),
            ("[::]:7700", &[("fd00::1", None)], "not an address"),
            ("[fd00::1]:7700", &[("::", None)], "not an address"),
            ("[fd00::1]:7700", &[("ff02::1", None)], "not an address"),
            ("[fd00::1]:7700", &[("::ffff:10.0.0.1", None)], "not an address"),
            ("10.0.0.1:7700", &[("255.255.255.255", None)], "not an address"),
        ] {
            let error = cluster(head, nodes).unwrap_err();
            assert!(error.to_string().contains(says), "{head} {nodes:?}: {error}");
        }
    }
}
