//! Configuration of a new cluster, from the command line, and its keys.

use super::netns;
use crate::cli::{AddressArgs, Cpus, NodePlacementArgs, OnOff, Policy, SharingArgs, Wire};
use crate::context::Context;
use crate::error::Error;
use crate::hosts::{self, HEAD_PORT, Host, NODE_PORT};
use kumi_node::config::{
    ClusterConfig, ClusterKind, JobDefaults, LimitCaps, NodeConfig, OS, Privacy, Quotas, Retention,
    WireSetting, defaults,
};
use kumi_node::exit::Failure;
use kumi_node::{paths, tls};
use kumi_sched::SliceLength;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::unistd::Pid;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

/// The configuration for this place; `namespaces` says whether local nodes get their own.
pub fn config(
    context: &Context,
    place: &NodePlacementArgs,
    addresses: AddressArgs,
    sharing: &SharingArgs,
    namespaces: bool,
) -> Result<ClusterConfig, Error> {
    let (ipv6, owner_uid) = (addresses.ipv6, nix::unistd::geteuid().as_raw());
    let (kind, (head, nodes)) = match (&place.hosts, place.local) {
        (Some(file), _) => (ClusterKind::Hosts, on_hosts(read_hosts(file, ipv6)?, owner_uid)),
        (None, Some(count)) => {
            let cpus = share_processors(&processors(), count, sharing.cpus);
            let name = namespaces.then_some(&*context.name);
            (ClusterKind::Local, on_this_machine(name, cpus, ipv6)?)
        }
        (None, None) => return Err(no_nodes(context)),
    };
    let config = ClusterConfig {
        name: context.name.clone(),
        kind,
        head,
        heads: Vec::new(),
        state: None,
        etcd: Default::default(),
        head_addresses: Vec::new(),
        slice_us: slice_us(sharing.slice),
        policy: policy_name(&sharing.policy),
        max_priority: defaults::max_priority(),
        force_switch: sharing.force_switch,
        fill: sharing.fill == OnOff::On,
        fan_out: sharing.fan_out,
        max_jobs_per_processor: defaults::max_jobs_per_processor(),
        max_ranks_per_processor: defaults::max_ranks_per_processor(),
        silence_ms: sharing.silence.map(milliseconds),
        keep_ms: None,
        grace_ms: sharing.grace.map(milliseconds),
        lease_ms: sharing.lease.map(milliseconds),
        limits: LimitCaps::default(),
        quota: Quotas::default(),
        retention: Retention::default(),
        privacy: Privacy::default(),
        shares: Default::default(),
        hooks: Default::default(),
        health: Default::default(),
        web: Default::default(),
        idle_after_ms: milliseconds(sharing.idle_after),
        owner_uid,
        // Nodes that are all here are root's own, to try programs on.
        root_jobs: kind == ClusterKind::Local && owner_uid == 0,
        metrics: None,
        head_metrics: None,
        encrypt: sharing.encrypt,
        wire: wire(sharing.wire),
        memory_reserve: None,
        daemon_memory: None,
        job: job_defaults(sharing),
        nodes,
    };
    sharing.state.fill(config)
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn no_nodes(context: &Context) -> Error {
    Error::Usage(format!(
        "there is no cluster {} yet; say where its nodes are: --local N or --hosts FILE",
        context.name
    ))
}

/// A slice as the configuration says it.
pub fn slice_us(slice: SliceLength) -> u64 {
    match slice {
        SliceLength::Auto => 0,
        SliceLength::Fixed(nanos) => nanos / 1_000,
    }
}

fn policy_name(policy: &Policy) -> String {
    match policy {
        Policy::Named(name) => name.clone(),
        Policy::Os => OS.to_owned(),
    }
}

fn job_defaults(sharing: &SharingArgs) -> JobDefaults {
    sharing.job.fill(JobDefaults {
        handler: sharing.handler.clone(),
        priority: sharing.priority,
        estimate: sharing.estimate.clone(),
        wait: sharing.wait.clone(),
        ..JobDefaults::default()
    })
}

fn wire(asked: Wire) -> WireSetting {
    match asked {
        Wire::Udp => WireSetting::Udp,
        Wire::Xdp => WireSetting::Xdp,
        Wire::Auto => WireSetting::Auto,
    }
}

/// Where head and nodes of a local cluster are. With its name they get namespaces of their own.
fn on_this_machine(
    name: Option<&str>,
    cpus: Vec<Vec<usize>>,
    ipv6: bool,
) -> Result<(SocketAddr, Vec<NodeConfig>), Error> {
    match name {
        Some(name) => Ok(in_namespaces(name, cpus, ipv6)),
        None => on_loopback(cpus, ipv6),
    }
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

fn read_hosts(file: &Path, ipv6: bool) -> Result<Vec<Host>, Error> {
    let text = std::fs::read_to_string(file)
        .map_err(|source| Error::HostsUnreadable { path: file.to_owned(), source })?;
    let look_up = |name: &str| look_up(name, ipv6);
    hosts::parse(&text, &look_up).map_err(|source| Error::Hosts { path: file.to_owned(), source })
}

/// An address of a host: of the family asked for; without IPv4 addresses it is IPv6.
pub fn look_up(name: &str, ipv6: bool) -> Option<IpAddr> {
    // An invalid host name need not be looked up in the network.
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if name.is_empty() || !name.chars().all(good) {
        return None;
    }
    let addresses: Vec<IpAddr> =
        (name, 0).to_socket_addrs().ok()?.map(|address| address.ip()).collect();
    let first = |v6: bool| addresses.iter().copied().find(|address| address.is_ipv6() == v6);
    first(ipv6).or_else(|| first(true))
}

fn on_hosts(hosts: Vec<Host>, owner_uid: u32) -> (SocketAddr, Vec<NodeConfig>) {
    let head = SocketAddr::new(hosts[0].address, HEAD_PORT);
    (head, hosts.into_iter().map(|host| on_host(host, owner_uid)).collect())
}

/// The node of a host. Daemons of a user other than root run that user's jobs only, who may submit on all hosts.
pub fn on_host(host: Host, owner_uid: u32) -> NodeConfig {
    let usual = (owner_uid != 0).then(|| vec![owner_uid.to_string()]);
    NodeConfig {
        name: host.name,
        address: host.address,
        port: host.port,
        addresses: Vec::new(),
        interface: host.interface,
        cpus: host.cpus,
        netns: None,
        wire: None,
        users: host.users.or(usual),
        memory: host.memory,
        devices: host.devices,
        removed: false,
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

/// The address of a node of a local cluster, where each node has a network namespace.
pub fn address_in_namespace(cluster: &str, node: usize, ipv6: bool) -> IpAddr {
    // FNV-1a. It only helps people to distinguish clusters; the clusters never see each other.
    let hash = cluster
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let third = u8::try_from(hash % 254 + 1).unwrap_or(1);
    let last = u8::try_from(node + 1).unwrap_or(u8::MAX);
    if ipv6 {
        // A prefix of the kind that anybody may use inside of a site.
        Ipv6Addr::new(0xfd77, 0x6b75, 0x6d69, third.into(), 0, 0, 0, last.into()).into()
    } else {
        Ipv4Addr::new(10, 77, third, last).into()
    }
}

fn in_namespaces(
    cluster: &str,
    cpus: Vec<Vec<usize>>,
    ipv6: bool,
) -> (SocketAddr, Vec<NodeConfig>) {
    let address = |node| address_in_namespace(cluster, node, ipv6);
    let node = |(index, cpus)| NodeConfig {
        removed: false,
        name: format!("node{index}"),
        address: address(index),
        port: NODE_PORT,
        addresses: Vec::new(),
        interface: None,
        cpus,
        netns: Some(netns::name(cluster, index)),
        wire: None,
        users: None,
        memory: None,
        devices: BTreeMap::new(),
    };
    let nodes = cpus.into_iter().enumerate().map(node).collect();
    (SocketAddr::new(address(0), HEAD_PORT), nodes)
}

/// Nodes that differ in their ports. IPv6 has one loopback address only.
fn on_loopback(cpus: Vec<Vec<usize>>, ipv6: bool) -> Result<(SocketAddr, Vec<NodeConfig>), Error> {
    let mut taken = BTreeSet::new();
    let address = |node: usize| match ipv6 {
        true => IpAddr::V6(Ipv6Addr::LOCALHOST),
        false => Ipv4Addr::new(127, 0, 0, u8::try_from(node + 1).unwrap_or(u8::MAX)).into(),
    };
    let head = SocketAddr::new(address(0), free_port(address(0), &mut taken)?);
    let mut nodes = Vec::new();
    for (index, cpus) in cpus.into_iter().enumerate() {
        let (address, name) = (address(index), format!("node{index}"));
        let port = free_port(address, &mut taken)?;
        let (interface, netns, wire, users) = (None, None, None, None);
        let (memory, devices) = (None, BTreeMap::new());
        nodes.push(NodeConfig {
            removed: false,
            name,
            address,
            port,
            addresses: Vec::new(),
            interface,
            cpus,
            netns,
            wire,
            users,
            memory,
            devices,
        });
    }
    Ok((head, nodes))
}

/// A port that is free now. If another program takes it first, the daemon reports that.
fn free_port(address: IpAddr, taken: &mut BTreeSet<SocketAddr>) -> Result<u16, Error> {
    let failed = |error: std::io::Error| Error::Machine {
        what: format!("no port is free at {address}"),
        said: error.to_string(),
    };
    loop {
        let listener = TcpListener::bind((address, 0)).map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        if taken.insert(SocketAddr::new(address, port)) {
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
        for (ipv6, first, second) in [(false, "10.77.", ".2"), (true, "fd77:6b75:6d69:", "::2")] {
            let (head, nodes) = in_namespaces("lab", vec![vec![0], vec![1]], ipv6);
            assert_eq!(head, SocketAddr::new(nodes[0].address, HEAD_PORT));
            assert_eq!(nodes[1].netns.as_deref(), Some("kumi-lab-1"));
            let [zero, one] = [0, 1].map(|node: usize| nodes[node].address.to_string());
            assert!(one.starts_with(first) && one.ends_with(second), "{one}");
            assert_eq!(zero, format!("{}1", one.strip_suffix('2').unwrap()));
        }
    }

    #[test]
    fn ports_of_a_cluster_on_loopback_differ() {
        for ipv6 in [false, true] {
            let (head, nodes) = on_loopback(vec![Vec::new(); 3], ipv6).unwrap();
            let mut all: BTreeSet<_> = nodes.iter().map(NodeConfig::endpoint).collect();
            assert!(all.insert(head));
            assert_eq!(all.len(), 4);
            assert!(all.iter().all(|at| at.ip().is_loopback() && at.is_ipv6() == ipv6));
            assert!(nodes.iter().all(|node| node.netns.is_none()));
        }
    }

    #[test]
    fn hosts_of_a_user_take_that_users_jobs_and_roots_take_those_of_ordinary_ones() {
        let hosts = || hosts::parse("a 10.0.0.1\nb 10.0.0.2 users=bob\n", &|_| None).unwrap();
        let users = |owner| on_hosts(hosts(), owner).1.into_iter().map(|node| node.users);
        let bob = Some(vec!["bob".to_owned()]);
        assert!(users(0).eq([None, bob.clone()]));
        assert!(users(1000).eq([Some(vec!["1000".to_owned()]), bob]));
    }

    #[test]
    fn names_are_looked_up_in_the_family_asked_for() {
        assert_eq!(look_up("127.0.0.1", true), None, "it has none of that family");
        assert_eq!(look_up("127.0.0.1", false), Some(Ipv4Addr::LOCALHOST.into()));
        assert_eq!(look_up("no host", false), None);
    }
}
