//! Configuration of a new cluster, from the command line, and its keys.

use super::netns;
use crate::cli::{Cpus, NodePlacementArgs, Policy, SharingArgs};
use crate::context::Context;
use crate::error::Error;
use crate::hosts::{self, HEAD_PORT, Host, NODE_PORT};
use kumi_node::config::{ClusterConfig, ClusterKind, JobDefaults, ModeName, NodeConfig, defaults};
use kumi_node::exit::Failure;
use kumi_node::{paths, tls};
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener, ToSocketAddrs};
use std::path::Path;

/// The configuration for this place; `namespaces` says whether local nodes get their own.
pub fn config(
    context: &Context,
    place: &NodePlacementArgs,
    sharing: &SharingArgs,
    namespaces: bool,
) -> Result<ClusterConfig, Error> {
    let (kind, head, nodes) = match (&place.hosts, place.local) {
        (Some(file), _) => {
            let hosts = read_hosts(file)?;
            let head = SocketAddrV4::new(hosts[0].address, HEAD_PORT);
            (ClusterKind::Hosts, head, hosts.into_iter().map(of_host).collect())
        }
        (None, Some(count)) => {
            let cpus = share_processors(&processors(), count, sharing.cpus);
            let (head, nodes) =
                if namespaces { in_namespaces(&context.name, cpus) } else { on_loopback(cpus)? };
            (ClusterKind::Local, head, nodes)
        }
        (None, None) => {
            return Err(Error::Usage(format!(
                "there is no cluster {} yet; say where its nodes are: --local N or --hosts FILE",
                context.name
            )));
        }
    };
    let config = ClusterConfig {
        name: context.name.clone(),
        kind,
        head,
        slice_us: u64::try_from(sharing.slice.as_micros()).unwrap_or(u64::MAX),
        mode: match sharing.policy {
            Policy::Gang | Policy::Named(_) => ModeName::Gang,
            Policy::Os => ModeName::Os,
        },
        policy: match &sharing.policy {
            Policy::Named(name) => name.clone(),
            Policy::Gang | Policy::Os => defaults::policy(),
        },
        max_priority: defaults::max_priority(),
        force_switch: sharing.force_switch,
        fan_out: sharing.fan_out,
        max_jobs_per_node: defaults::max_jobs_per_node(),
        max_ranks_per_processor: defaults::max_ranks_per_processor(),
        lease_ms: u64::try_from(sharing.lease.as_millis()).unwrap_or(u64::MAX),
        idle_after_ms: u64::try_from(sharing.idle_after.as_millis()).unwrap_or(u64::MAX),
        owner_uid: nix::unistd::geteuid().as_raw(),
        metrics: None,
        head_metrics: None,
        encrypt: sharing.encrypt,
        job: JobDefaults {
            handler: sharing.handler.clone(),
            priority: sharing.priority,
            estimate: sharing.estimate.clone(),
        },
        nodes,
    };
    config.validate()?;
    Ok(config)
}

/// Writes the configuration, and keys if there are none.
pub fn write(context: &Context, config: &ClusterConfig) -> Result<(), Error> {
    config.save(context.dir())?;
    if paths::tls(context.dir()).join("ca.pem").exists() {
        return Ok(());
    }
    tls::create(context.dir(), &config.name, config.node_count())
        .map_err(|error| Error::Failure(Failure::from(error)))
}

fn read_hosts(file: &Path) -> Result<Vec<Host>, Error> {
    let text = std::fs::read_to_string(file)
        .map_err(|source| Error::HostsUnreadable { path: file.to_owned(), source })?;
    hosts::parse(&text, &look_up).map_err(|source| Error::Hosts { path: file.to_owned(), source })
}

fn look_up(name: &str) -> Option<Ipv4Addr> {
    // An invalid host name need not be looked up in the network.
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if name.is_empty() || !name.chars().all(good) {
        return None;
    }
    let addresses = (name, 0).to_socket_addrs().ok()?;
    addresses.into_iter().find_map(|address| match address {
        SocketAddr::V4(address) => Some(*address.ip()),
        SocketAddr::V6(_) => None,
    })
}

fn of_host(host: Host) -> NodeConfig {
    NodeConfig {
        name: host.name,
        address: host.address,
        port: host.port,
        cpus: host.cpus,
        netns: None,
    }
}

/// The processors this process may use.
pub fn processors() -> Vec<usize> {
    let allowed = sched_getaffinity(Pid::from_raw(0));
    let known = allowed
        .map(|set| (0..CpuSet::count()).filter(|&cpu| set.is_set(cpu).unwrap_or(false)).collect());
    known.unwrap_or_else(|_| vec![0])
}

/// Each node's processors; empty means all.
fn share_processors(all: &[usize], nodes: u32, how: Cpus) -> Vec<Vec<usize>> {
    let count = nodes as usize;
    let in_turn = |node: usize| vec![all[node % all.len()]];
    match how {
        Cpus::All => vec![Vec::new(); count],
        Cpus::Auto if count <= all.len() => {
            let share = |node: usize| node * all.len() / count..(node + 1) * all.len() / count;
            (0..count).map(|node| all[share(node)].to_vec()).collect()
        }
        Cpus::Auto | Cpus::PerNode => (0..count).map(in_turn).collect(),
    }
}

fn in_namespaces(cluster: &str, cpus: Vec<Vec<usize>>) -> (SocketAddrV4, Vec<NodeConfig>) {
    // FNV-1a. It only helps people to distinguish clusters; the clusters never see each other.
    let hash = cluster
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let third = u8::try_from(hash % 254 + 1).unwrap_or(1);
    let address =
        |node: usize| Ipv4Addr::new(10, 77, third, u8::try_from(node + 1).unwrap_or(u8::MAX));
    let node = |(index, cpus)| NodeConfig {
        name: format!("node{index}"),
        address: address(index),
        port: NODE_PORT,
        cpus,
        netns: Some(netns::name(cluster, index)),
    };
    let nodes = cpus.into_iter().enumerate().map(node).collect();
    (SocketAddrV4::new(address(0), HEAD_PORT), nodes)
}

fn on_loopback(cpus: Vec<Vec<usize>>) -> Result<(SocketAddrV4, Vec<NodeConfig>), Error> {
    let mut taken = BTreeSet::new();
    let address = |node: usize| Ipv4Addr::new(127, 0, 0, u8::try_from(node + 1).unwrap_or(u8::MAX));
    let head = SocketAddrV4::new(address(0), free_port(address(0), &mut taken)?);
    let mut nodes = Vec::new();
    for (index, cpus) in cpus.into_iter().enumerate() {
        let port = free_port(address(index), &mut taken)?;
        let name = format!("node{index}");
        nodes.push(NodeConfig { name, address: address(index), port, cpus, netns: None });
    }
    Ok((head, nodes))
}

/// A port that is free now. If another program takes it first, the daemon reports that.
fn free_port(address: Ipv4Addr, taken: &mut BTreeSet<SocketAddrV4>) -> Result<u16, Error> {
    let failed = |error: std::io::Error| Error::Machine {
        what: format!("no port is free at {address}"),
        said: error.to_string(),
    };
    loop {
        let listener = TcpListener::bind((address, 0)).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        if taken.insert(SocketAddrV4::new(address, port)) {
            return Ok(port);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_shared_out() {
        let share = |all: &[usize], nodes, how| share_processors(all, nodes, how);
        assert_eq!(share(&[0, 1], 2, Cpus::Auto), [[0], [1]]);
        assert_eq!(share(&[0, 1, 2, 3], 2, Cpus::Auto), [[0, 1], [2, 3]]);
        assert_eq!(share(&[0, 1, 2], 2, Cpus::Auto), [vec![0], vec![1, 2]]);
        assert_eq!(share(&[4, 6], 3, Cpus::Auto), [[4], [6], [4]]);
        assert_eq!(share(&[0, 1, 2, 3], 2, Cpus::PerNode), [[0], [1]]);
        assert_eq!(share(&[0, 1], 2, Cpus::All), [vec![], Vec::<usize>::new()]);
    }

    #[test]
    fn addresses_of_a_cluster_in_namespaces() {
        let (head, nodes) = in_namespaces("lab", vec![vec![0], vec![1]]);
        assert_eq!(*head.ip(), nodes[0].address);
        assert_eq!(head.port(), HEAD_PORT);
        assert_eq!(nodes[1].netns.as_deref(), Some("kumi-lab-1"));
        assert_eq!(nodes[1].address.octets()[3], 2);
        assert_eq!(nodes[0].address.octets()[..3], nodes[1].address.octets()[..3]);
    }

    #[test]
    fn ports_of_a_cluster_on_loopback_differ() {
        let (head, nodes) = on_loopback(vec![Vec::new(); 3]).unwrap();
        let mut all: BTreeSet<_> = nodes.iter().map(NodeConfig::endpoint).collect();
        assert!(all.insert(head));
        assert_eq!(all.len(), 4);
        assert!(nodes.iter().all(|node| node.netns.is_none()));
    }
}
