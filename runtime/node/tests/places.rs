//! Daemons that are reached at other places than their first: by a name, or at another address.

mod common;

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Instant;

use common::{Cluster, ModeName, PATIENCE, free_port, request, run};
use kumi_control::message::Outcome;
use kumi_node::config::ClusterConfig;
use kumi_node::paths;
use kumi_sched::NodeId;

/// An address of this cluster at which nobody listens.
fn nobody(cluster: &Cluster) -> SocketAddr {
    let ip = cluster.config.head.ip();
    SocketAddr::from((ip, free_port(ip)))
}

/// A free port of `localhost`, which tests of other processes look for elsewhere.
fn port_of_localhost() -> u16 {
    let first = 10_000 + u16::try_from(std::process::id() % 20_000).unwrap();
    let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
    (first..32_000).find(is_free).expect("a free port")
}

/// Starts a node by another configuration than the others': as its machine sees the network.
fn start_elsewhere(
    cluster: &mut Cluster,
    node: usize,
    config: &ClusterConfig,
) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    config.save(dir.path()).unwrap();
    fs::create_dir(paths::tls(dir.path())).unwrap();
    for file in ["ca.pem".to_owned(), format!("node-{node}.pem"), format!("node-{node}.key")] {
        let (from, to) =
            (paths::tls(cluster.path()).join(&file), paths::tls(dir.path()).join(file));
        fs::copy(from, to).unwrap();
    }
    let log = fs::File::create(paths::node_log(cluster.path(), NodeId(node as u32))).unwrap();
    let mut daemon = std::process::Command::new(env!("CARGO_BIN_EXE_kumid"));
    daemon.args(["node", "--node", &node.to_string(), "--cluster-dir"]).arg(dir.path());
    cluster.nodes[node] = Some(daemon.stderr(log).spawn().unwrap());
    dir
}

#[tokio::test(flavor = "current_thread")]
async fn a_head_is_reached_by_a_name() {
    let mut cluster = Cluster::configured(1, ModeName::Gang);
    // `localhost` is the head's machine; the address that the node tries first is nobody's.
    let port = port_of_localhost();
    cluster.config.head = SocketAddr::from(([127, 0, 0, 1], port));
    cluster.config.save(cluster.path()).unwrap();
    cluster.start_head();
    let head_addresses = vec!["no-such-host.invalid".to_owned(), format!("localhost:{port}")];
    let seen = ClusterConfig { head: nobody(&cluster), head_addresses, ..cluster.config.clone() };
    let dir = start_elsewhere(&mut cluster, 0, &seen);
    cluster.wait_attached(1).await;
    // A client on the node's machine finds the head by it, too.
    let mut client =
        kumi_node::client::Client::connect_to(&paths::node_socket(dir.path(), NodeId(0)))
            .await
            .unwrap();
    client.ask(&kumi_control::message::ClientRequest::Cluster).await.unwrap();
    assert_eq!(run(&cluster, request(&["/bin/true"], 1)).await.outcome, Outcome::Success);
}

/// The head and a node listen at all of their addresses that the machine has, and children come there.
#[tokio::test(flavor = "current_thread")]
async fn daemons_listen_at_further_addresses() {
    let mut cluster = Cluster::configured(2, ModeName::Gang);
    let IpAddr::V4(own) = cluster.config.head.ip() else { panic!("loopback") };
    let further = |last: u8| {
        let [net, high, low, _] = own.octets();
        let ip = Ipv4Addr::new(net, high, low, last);
        format!("{ip}:{}", free_port(ip))
    };
    let (head, node) = (further(101), further(102));
    // One that this machine does not have is no reason to fail.
    cluster.config.head_addresses = vec!["192.0.2.1:7700".to_owned(), head.clone()];
    cluster.config.nodes[0].addresses = vec![node.clone()];
    cluster.config.fan_out = 1;
    cluster.config.save(cluster.path()).unwrap();
    cluster.start_head();
    let mut seen = ClusterConfig {
        head: nobody(&cluster),
        head_addresses: vec![head],
        ..cluster.config.clone()
    };
    let _first = start_elsewhere(&mut cluster, 0, &seen);
    cluster.wait_attached(1).await;
    // The node below it does not know where the head is, and has its parent at the further address only.
    let own = seen.nodes[0].clone();
    seen.nodes[0] = kumi_node::config::NodeConfig {
        port: free_port(own.address),
        addresses: vec![node],
        ..own
    };
    seen.head_addresses.clear();
    let _second = start_elsewhere(&mut cluster, 1, &seen);
    cluster.wait_attached(2).await;
    let end = Instant::now() + PATIENCE;
    while !cluster.logs().contains("child attached") {
        assert!(Instant::now() < end, "{}", cluster.logs());
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}
