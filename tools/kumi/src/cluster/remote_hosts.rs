//! Clusters of real hosts: the daemons that belong on this machine, and new certificates of the other hosts.

use super::daemons::Daemon;
use crate::context::Context;
use crate::error::Error;
use kumi_node::config::{ClusterConfig, ClusterKind, NodeConfig};
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

/// The daemons of this machine: all of a local cluster, otherwise those whose address belongs to one of this
/// machine's interfaces. The head runs at its configured address.
pub fn daemons_here(config: &ClusterConfig) -> Result<Vec<Daemon>, Error> {
    if config.kind == ClusterKind::Local {
        return Ok(Daemon::all(config));
    }
    let own = own_addresses()?;
    Ok(here(config, &own))
}

pub(super) fn here(config: &ClusterConfig, own: &BTreeSet<IpAddr>) -> Vec<Daemon> {
    let is_here = |daemon: &Daemon| match daemon {
        Daemon::Head => config.heads().iter().any(|head| is_own(head.ip(), own)),
        Daemon::Node(node) => config.node(*node).is_ok_and(|part| is_own(part.address, own)),
    };
    Daemon::all(config).into_iter().filter(is_here).collect()
}

pub(super) fn is_own(address: IpAddr, own: &BTreeSet<IpAddr>) -> bool {
    address.is_loopback() || own.contains(&address)
}

pub fn own_addresses() -> Result<BTreeSet<IpAddr>, Error> {
    let interfaces = getifaddrs().map_err(|error| Error::Machine {
        what: "the addresses of this machine cannot be listed".to_owned(),
        said: error.to_string(),
    })?;
    let addresses = interfaces.filter_map(|interface| interface.address);
    let ip = |address: SockaddrStorage| {
        let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
    };
    Ok(addresses.filter_map(ip).collect())
}

/// Instructions for a daemon of another host that has a new certificate.
pub fn for_new_certificate(context: &Context, config: &ClusterConfig, daemon: Daemon) -> String {
    let (stem, hosts, unit) = match daemon {
        Daemon::Head => {
            let hosts = config.heads().iter().map(|head| head.ip().to_string()).collect();
            ("head".to_owned(), hosts, "kumid-head".to_owned())
        }
        Daemon::Node(node) => (
            format!("node-{node}"),
            vec![config.node(node).map(address_of).unwrap_or_default()],
            format!("kumid-node@{node}"),
        ),
    };
    let there = Path::new("/var/lib/kumi").join(&context.name);
    let there = there.display();
    let for_host = |host: String| {
        format!(
            "{title} ({host}): copy its new certificate, and have its daemon read it\n\
             \x20 tar -C {dir} -c tls/{stem}.pem tls/{stem}.key | ssh {host} 'tar -C {there} -xp && \
             systemctl reload {unit}'\n",
            title = daemon.title(config),
            dir = context.dir().display(),
        )
    };
    hosts.into_iter().map(for_host).collect()
}

/// The address of a host, as other programs want it.
pub(super) fn address_of(host: &NodeConfig) -> String {
    match &host.interface {
        Some(interface) => format!("{}%{interface}", host.address),
        None => host.address.to_string(),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use kumi_sched::NodeId;

    pub fn config() -> ClusterConfig {
        let text = r#"
name = "lab"
kind = "hosts"
head = "192.0.2.1:7700"
[[nodes]]
name = "alpha"
address = "192.0.2.1"
port = 7701
[[nodes]]
name = "beta"
address = "192.0.2.2"
port = 7701
"#;
        ClusterConfig::parse(text, Path::new("cluster.toml")).unwrap()
    }

    pub fn own(last: u8) -> BTreeSet<IpAddr> {
        BTreeSet::from([[127, 0, 0, 1], [192, 0, 2, last]].map(IpAddr::from))
    }

    #[test]
    fn only_the_daemons_of_this_machine_run_here() {
        let first = [Daemon::Head, Daemon::Node(NodeId(0))];
        assert_eq!(here(&config(), &own(1)), first);
        assert_eq!(here(&config(), &own(2)), [Daemon::Node(NodeId(1))]);
        assert_eq!(here(&config(), &own(3)), []);
    }

    #[test]
    fn several_heads_have_machines_of_their_own() {
        let mut config = config();
        config.heads = vec![config.head, ([192, 0, 2, 2], 7700).into()];
        assert_eq!(here(&config, &own(2)), [Daemon::Head, Daemon::Node(NodeId(1))]);
        let context = Context { name: "lab".into(), dir: "/tmp/k/lab".into() };
        let new = for_new_certificate(&context, &config, Daemon::Head);
        assert_eq!(new.matches("ssh 192.0.2.").count(), 2, "{new}");
    }
}
