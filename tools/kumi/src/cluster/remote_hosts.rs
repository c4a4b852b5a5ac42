//! Clusters of real hosts: the daemons that belong on this machine, and instructions for the other
//! hosts.

use super::daemons::Daemon;
use crate::context::Context;
use crate::error::Error;
use kumi_node::config::{ClusterConfig, ClusterKind, NodeConfig};
use kumi_sched::NodeId;
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

fn here(config: &ClusterConfig, own: &BTreeSet<IpAddr>) -> Vec<Daemon> {
    let is_here = |daemon: &Daemon| match daemon {
        Daemon::Head => is_own(config.head.ip(), own),
        Daemon::Node(node) => config.node(*node).is_ok_and(|part| is_own(part.address, own)),
    };
    Daemon::all(config).into_iter().filter(is_here).collect()
}

fn is_own(address: IpAddr, own: &BTreeSet<IpAddr>) -> bool {
    address.is_loopback() || own.contains(&address)
}

fn own_addresses() -> Result<BTreeSet<IpAddr>, Error> {
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

/// Instructions for each other host, after this machine's daemons were started.
pub fn instructions(context: &Context, config: &ClusterConfig) -> String {
    let own = own_addresses().unwrap_or_default();
    let dir = context.dir();
    let head_here = here(config, &own).contains(&Daemon::Head);
    let mut text = format!(
        "cluster {} of {} hosts is made, in {}\n",
        config.name,
        config.nodes.len(),
        dir.display()
    );
    if head_here {
        text.push_str(&format!("the head runs on this machine and listens on {}\n", config.head));
    }
    for (index, host) in config.nodes.iter().enumerate() {
        let number = NodeId(u32::try_from(index).unwrap_or(u32::MAX));
        let with_head = host.address == config.head.ip();
        text.push('\n');
        if is_own(host.address, &own) {
            text.push_str(&format!("{}: node {number} runs on this machine\n", host.name));
        } else {
            text.push_str(&for_host(context, host, number, with_head));
        }
    }
    text.push_str("\n`kumi cluster status` shows which nodes have joined.\n");
    text
}

/// The files one host needs, relative to the cluster's directory.
fn files(node: NodeId, with_head: bool) -> Vec<String> {
    let mut files = vec!["cluster.toml".to_owned(), "tls/ca.pem".to_owned()];
    let mut pair = |name: &str| {
        files.extend([format!("tls/{name}.pem"), format!("tls/{name}.key")]);
    };
    pair(&format!("node-{node}"));
    if with_head {
        pair("head");
    }
    files
}

/// Instructions for a daemon of another host that has a new certificate.
pub fn for_new_certificate(context: &Context, config: &ClusterConfig, daemon: Daemon) -> String {
    let (stem, host, unit) = match daemon {
        Daemon::Head => ("head".to_owned(), config.head.ip().to_string(), "kumid-head".to_owned()),
        Daemon::Node(node) => (
            format!("node-{node}"),
            config.node(node).map(address_of).unwrap_or_default(),
            format!("kumid-node@{node}"),
        ),
    };
    let there = Path::new("/var/lib/kumi").join(&context.name);
    let there = there.display();
    format!(
        "{title} ({host}): copy its new certificate, and have its daemon read it\n\
         \x20 tar -C {dir} -c tls/{stem}.pem tls/{stem}.key | ssh {host} 'tar -C {there} -xp && \
         systemctl reload {unit}'\n",
        title = daemon.title(config),
        dir = context.dir().display(),
    )
}

/// The address of a host, as other programs want it.
fn address_of(host: &NodeConfig) -> String {
    match &host.interface {
        Some(interface) => format!("{}%{interface}", host.address),
        None => host.address.to_string(),
    }
}

fn for_host(context: &Context, host: &NodeConfig, node: NodeId, with_head: bool) -> String {
    let there = Path::new("/var/lib/kumi").join(&context.name);
    let there = there.display();
    let files = files(node, with_head).join(" ");
    let unit = if context.name == "default" {
        ""
    } else {
        " (set KUMI_CLUSTER, see docs/guide/administering.md)"
    };
    let mut text = format!(
        "{name} ({address}): copy its files\n\
         \x20 tar -C {dir} -c {files} | ssh {address} 'mkdir -p {there} && tar -C {there} -xp'\n\
         {name}: start it as a service{unit}, or by hand\n",
        name = host.name,
        address = address_of(host),
        dir = context.dir().display(),
    );
    if with_head {
        text.push_str(&format!(
            "  systemctl enable --now kumid-head.service\n  kumid head --cluster-dir {there}\n"
        ));
    }
    text.push_str(&format!(
        "  systemctl enable --now kumid-node@{node}.service\n  kumid node --cluster-dir {there} \
         --node {node}\n"
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> ClusterConfig {
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

    fn own(last: u8) -> BTreeSet<IpAddr> {
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
    fn a_host_gets_its_own_keys_and_never_the_authoritys() {
        let context = Context { name: "lab".into(), dir: "/tmp/k/lab".into() };
        let text = for_host(&context, &config().nodes[1], NodeId(1), false);
        assert!(text.contains("cluster.toml tls/ca.pem tls/node-1.pem tls/node-1.key |"), "{text}");
        assert!(text.contains("kumid node --cluster-dir /var/lib/kumi/lab --node 1\n"), "{text}");
        assert!(!text.contains("ca.key") && !text.contains("head"), "{text}");
        let first = for_host(&context, &config().nodes[0], NodeId(0), true);
        assert!(first.contains("tls/head.key") && first.contains("kumid-head.service"), "{first}");
        assert!(!first.contains("ca.key"), "{first}");
    }
}
