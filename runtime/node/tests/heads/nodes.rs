//! Nodes of a cluster with several heads: where they find a head, and what of them only one head would know.

use std::time::{Duration, Instant};

use kumi_control::message::ClientRequest;
use kumi_node::config::ClusterConfig;
use kumi_sched::NodeId;

use super::etcd::Members;
use super::{Heads, TAKEOVER, common};

/// A node looks for each head at all of its places.
#[tokio::test(flavor = "current_thread")]
async fn a_head_is_found_elsewhere_and_its_successor_too() {
    let Some(etcd) = Members::start(1) else { return };
    let mut heads = Heads::configured(&etcd, 1, 2, |_| {});
    let config = heads.cluster.config.clone();
    // As the machine of the node sees the network: nobody is at the usual address of the first head.
    let nobody = (config.head.ip(), common::free_port(config.head.ip())).into();
    let seen = ClusterConfig {
        head: nobody,
        heads: vec![nobody, config.heads[1]],
        head_addresses: vec!["no-such-host.invalid".to_owned(), config.head.to_string()],
        ..config
    };
    seen.save(heads.cluster.path()).unwrap();
    heads.start_head(0);
    heads.cluster.start_node(0);
    heads.attached(1).await;
    heads.start_head(1);
    heads.kill_head(0);
    heads.attached(1).await;
    assert_eq!(heads.leader(&[]).await, 1);
}

/// What only one head would know is refused.
#[tokio::test(flavor = "current_thread")]
async fn a_head_of_several_changes_no_nodes_and_makes_no_token() {
    let Some(etcd) = Members::start(1) else { return };
    let heads = Heads::start(&etcd, 1, 2).await;
    let token = ClientRequest::JoinToken { node: NodeId(0), valid_ms: 86_400_000 };
    let removal = ClientRequest::RemoveNode { node: NodeId(0), force: true };
    for (request, words) in [(token, "would know the token"), (removal, "list of nodes of its own")]
    {
        let end = Instant::now() + TAKEOVER;
        loop {
            let refused = heads.client().await.ask(&request).await.unwrap_err().to_string();
            if refused.contains("several heads") {
                assert!(refused.contains(words), "{refused}");
                break;
            }
            // Another head may lead by now.
            assert!(Instant::now() < end, "{refused}\n{}", heads.logs());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test(flavor = "current_thread")]
async fn several_heads_do_not_take_what_only_one_would_know() {
    let Some(etcd) = Members::start(1) else { return };
    let heads = Heads::start(&etcd, 1, 2).await;
    let configure = ClientRequest::Configure { mode: None, slice: None, policy: None };
    for request in [configure, ClientRequest::RemoveNode { node: NodeId(0), force: false }] {
        let refused = heads.client().await.ask(&request).await.unwrap_err().to_string();
        assert!(refused.contains("cluster.toml on all hosts"), "{refused}");
    }
}
