//! Certificates that are revoked, and new ones, while a cluster runs.

mod common;

use std::time::{Duration, Instant};

use common::{Cluster, ModeName, PATIENCE, request, run};
use kumi_control::message::{ClientReply, ClientRequest, Outcome};
use kumi_node::tls::{self, Identity};
use kumi_sched::NodeId;
use nix::sys::signal::Signal;

async fn ask(cluster: &Cluster, request: &ClientRequest) -> ClientReply {
    cluster.client().await.ask(request).await.unwrap()
}

/// Waits until exactly these nodes are up.
async fn wait_up(cluster: &Cluster, wanted: &[u32]) {
    let end = Instant::now() + PATIENCE;
    loop {
        let ClientReply::Cluster(status) = ask(cluster, &ClientRequest::Cluster).await else {
            panic!("no status");
        };
        let up = status.nodes.iter().filter(|node| node.up).map(|node| node.node.0);
        if up.eq(wanted.iter().copied()) {
            return;
        }
        assert!(Instant::now() < end, "not as wanted: {wanted:?}\n{}", cluster.logs());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The node's link is cut at once, all daemons keep the list, and a new certificate brings the node back.
#[tokio::test(flavor = "current_thread")]
async fn a_revoked_node_is_out_until_it_has_a_new_certificate() {
    let mut cluster = Cluster::configured(3, ModeName::Gang);
    // Node 2 is below node 0.
    cluster.config.fan_out = 2;
    cluster.config.save(cluster.path()).unwrap();
    let mut cluster = cluster.start().await;
    let revoke = |node| ClientRequest::Revoke { node: NodeId(node) };
    assert_eq!(ask(&cluster, &revoke(1)).await, ClientReply::Done);
    wait_up(&cluster, &[0, 2]).await;
    let end = Instant::now() + PATIENCE;
    for daemon in ["head", "node-0", "node-2"] {
        let list = cluster.path().join(format!("tls/{daemon}.revoked"));
        while !std::fs::read_to_string(&list).is_ok_and(|text| text.contains("\n1 ")) {
            assert!(Instant::now() < end, "{daemon} has no list\n{}", cluster.logs());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    assert_eq!(run(&cluster, request(&["/bin/true"], 2)).await.outcome, Outcome::Success);
    // A head that starts again knows it.
    let mut head = cluster.head.take().unwrap();
    Cluster::signal(&head, Signal::SIGTERM);
    head.wait().unwrap();
    cluster.start_head();
    wait_up(&cluster, &[0, 2]).await;
    tokio::time::sleep(Duration::from_millis(500)).await;
    wait_up(&cluster, &[0, 2]).await;
    assert!(cluster.logs().contains("certificate of node-1.kumi is revoked"), "{}", cluster.logs());
    let (dir, name) = (cluster.path(), &cluster.config.name);
    tls::renew(dir, name, &[Identity::Node(NodeId(1))], tls::DAEMON_DAYS).unwrap();
    Cluster::signal(cluster.nodes[1].as_ref().unwrap(), Signal::SIGHUP);
    wait_up(&cluster, &[0, 1, 2]).await;
}

/// Daemons take new certificates while jobs run.
#[tokio::test(flavor = "current_thread")]
async fn new_certificates_disturb_no_job() {
    let cluster = Cluster::up(2, ModeName::Gang).await;
    let (_, mut client) = common::start(&cluster, request(&["/bin/sleep", "1"], 2)).await;
    let daemons = [Identity::Head, Identity::Node(NodeId(0)), Identity::Node(NodeId(1))];
    tls::renew(cluster.path(), &cluster.config.name, &daemons, tls::DAEMON_DAYS).unwrap();
    for daemon in cluster.nodes.iter().flatten().chain(&cluster.head) {
        Cluster::signal(daemon, Signal::SIGHUP);
    }
    let ran = common::collect(&cluster, &mut client, |_| {}).await;
    assert_eq!(ran.outcome, Outcome::Success, "{}", cluster.logs());
    assert_eq!(cluster.logs().matches("certificates are read anew").count(), 3);
}
