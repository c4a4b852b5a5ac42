//! Clusters of IPv6, and of both families of addresses.
#![forbid(unsafe_code)]

use kumi_tests::cluster::TestCluster;
use kumi_tests::faults::{on_node, possible};
use kumi_tests::{binaries, machine};

/// A verified run on so many nodes, a rank each.
#[track_caller]
fn verifies(cluster: &TestCluster, nodes: &str, kernel: &str) {
    let path = binaries::path(kernel).display().to_string();
    let args = ["run", "-n", nodes, "--nodes", nodes, &*path, "--class", "S"];
    let out = cluster.kumi(&args).ok().out;
    assert!(out.contains("verified=yes"), "{out}");
}

/// The addresses of all nodes as `kumi cluster status` shows them.
#[track_caller]
fn shown(cluster: &TestCluster) -> Vec<String> {
    let status = cluster.json(&["cluster", "status", "--json"]);
    let nodes = status["nodes"].as_array().expect("nodes").iter();
    nodes.map(|node| node["address"].as_str().expect("an address").to_owned()).collect()
}

/// A cluster of nodes whose addresses, which `change` is given, the test changes; with an interface if they need one. The head
/// is at the first.
#[track_caller]
fn changed(
    nodes: usize,
    interface: Option<&str>,
    change: impl Fn(usize, &str) -> String,
) -> TestCluster {
    changed_also(nodes, interface, change, |_, _| ())
}

/// The same; `more` changes each node's table, and has the address that the node had before.
#[track_caller]
fn changed_also(
    nodes: usize,
    interface: Option<&str>,
    change: impl Fn(usize, &str) -> String,
    more: impl Fn(&mut toml::Table, &str),
) -> TestCluster {
    let mut cluster = TestCluster::prepare();
    cluster.kumi(&["cluster", "init", "--local", &nodes.to_string()]).ok();
    let path = cluster.path().join("cluster.toml");
    let text = std::fs::read_to_string(&path).expect("the configuration");
    let mut config: toml::Table = text.parse().expect("a table");
    for (index, node) in config["nodes"].as_array_mut().expect("nodes").iter_mut().enumerate() {
        let node = node.as_table_mut().expect("a node");
        let before = node["address"].as_str().expect("an address").to_owned();
        let address = change(index, &before);
        node.insert("address".to_owned(), address.into());
        more(node, &before);
        if let Some(interface) = interface {
            node.insert("interface".to_owned(), interface.into());
        }
    }
    let first = config["nodes"][0]["address"].as_str().expect("an address");
    let head =
        if first.contains(':') { format!("[{first}]:7700") } else { format!("{first}:7700") };
    config.insert("head".to_owned(), head.into());
    std::fs::write(&path, config.to_string()).expect("the configuration");
    cluster.try_up_as_it_is().ok();
    cluster
}

#[test]
fn nodes_that_have_ipv6_only() {
    let cluster = TestCluster::up_with(2, &["--ipv6"]);
    let loopback = !machine::has_namespaces();
    for (node, address) in shown(&cluster).iter().enumerate() {
        let start = if loopback { "[::1]:" } else { "[fd77:" };
        assert!(address.starts_with(start), "{address}");
        if !loopback {
            let others = on_node(&cluster, node as u32, "ip -4 -o address show dev eth0");
            assert_eq!(others, "", "it has IPv4 too");
        }
    }
    verifies(&cluster, "2", "ft");
    // The other daemon's output comes over its link.
    let out = cluster.kumi(&["run", "-n", "2", "--nodes", "2", "echo", "here"]).ok().out;
    assert_eq!(out.matches("here").count(), 2, "{out}");
}

#[test]
fn nodes_that_have_ipv4_only() {
    if !possible("nodes_that_have_ipv4_only") {
        return;
    }
    let cluster = TestCluster::up(2);
    for node in 0..2 {
        on_node(&cluster, node, "ip -6 address flush dev eth0");
    }
    verifies(&cluster, "2", "ft");
}

/// Packets of ranks are lost, and come all the same.
#[test]
fn loss_on_a_wire_of_ipv6() {
    if !possible("loss_on_a_wire_of_ipv6") {
        return;
    }
    let cluster = TestCluster::up_with(2, &["--ipv6", "--mtu", "1280"]);
    let rule = "-p udp -m statistic --mode random --probability 0.05 -j DROP";
    for node in 0..2 {
        on_node(&cluster, node, &format!("ip6tables -A INPUT {rule}"));
    }
    verifies(&cluster, "2", "ft");
    let table = on_node(&cluster, 0, "ip6tables -L INPUT -v -n -x");
    let line = table.lines().find(|line| line.contains("statistic")).expect("our rule");
    assert!(!line.trim_start().starts_with("0 "), "no packet was lost: {line}");
}

/// Addresses that mean something on one link only, each with its node's interface.
#[test]
fn nodes_with_link_local_addresses() {
    if !possible("nodes_with_link_local_addresses") {
        return;
    }
    let cluster = changed(3, Some("eth0"), |index, _| format!("fe80::77:{}", index + 1));
    // Sockets that talk to one rank and to several.
    verifies(&cluster, "2", "ft");
    let lockstep = binaries::path("lockstep").display().to_string();
    cluster.kumi(&["run", "-n", "3", "--nodes", "3", &lockstep, "--seconds", "0.2"]).ok();
}

/// The IPv6 address of the node of a local cluster that has this IPv4 address.
fn ipv6_of(address: &str) -> String {
    let bytes: Vec<u8> = address.split('.').map(|byte| byte.parse().expect("a byte")).collect();
    format!("fd77:6b75:6d69:{:x}::{}", bytes[2], bytes[3])
}

/// Some nodes have IPv4 first and some IPv6, and the list of each has the other one. All of them run a job together, by the
/// family that comes first at the first of them.
#[test]
fn ranks_use_a_further_address_where_the_first_ones_differ() {
    if !possible("ranks_use_a_further_address_where_the_first_ones_differ") {
        return;
    }
    let is_first_ipv6 = |index| index % 2 == 1;
    let cluster = changed_also(
        3,
        None,
        |index, address| if is_first_ipv6(index) { ipv6_of(address) } else { address.to_owned() },
        |node, before| {
            let is_ipv6 = node["address"].as_str().expect("an address").contains(':');
            let other = if is_ipv6 { before.to_owned() } else { ipv6_of(before) };
            node.insert("addresses".to_owned(), vec![other].into());
        },
    );
    let lockstep = binaries::path("lockstep").display().to_string();
    let all = ["run", "-n", "3", "--nodes", "3", &*lockstep, "--seconds", "0.2"];
    cluster.kumi(&all).ok();
    // Packets of ranks went by IPv4: without IPv6 between the nodes it goes as well.
    for node in 0..3 {
        on_node(&cluster, node, "ip6tables -A INPUT -p udp -j DROP");
    }
    cluster.kumi(&all).ok();
}

/// Each node has addresses of both families, and the configuration says which one it uses. Jobs stay within one.
#[test]
fn a_job_has_nodes_of_one_family() {
    if !possible("a_job_has_nodes_of_one_family") {
        return;
    }
    let cluster = changed(4, None, |index, address| match index {
        0 | 1 => address.to_owned(),
        _ => ipv6_of(address),
    });
    let of_ipv6: Vec<bool> = shown(&cluster).iter().map(|at| at.starts_with("[fd77:")).collect();
    assert_eq!(of_ipv6, [false, false, true, true]);
    let path = binaries::path("lockstep").display().to_string();
    let all = ["run", "-n", "4", "--nodes", "4", &*path, "--seconds", "0.2"];
    cluster.kumi(&all).fails(64, &["IPv4 address", "IPv6 address", "cluster.toml"]);
    // Two at the same time have the four nodes, two each: whichever, they are neighbours.
    let half = ["run", "-n", "2", "--nodes", "2", &*path, "--seconds", "1"];
    let both = [cluster.start(&half), cluster.start(&half)];
    for job in both {
        job.finish().ok();
    }
}
