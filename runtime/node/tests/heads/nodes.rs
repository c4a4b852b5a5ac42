//! Nodes of a cluster with several heads: where they find a head, and what all heads know of them.

use kumi_control::message::{ClientReply, ClientRequest, ClusterStatus, JobState, Outcome};
use kumi_node::config::ClusterConfig;
use kumi_sched::{NodeId, SliceLength};

use super::etcd::Members;
use super::{Heads, common};

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

async fn status(heads: &Heads) -> ClusterStatus {
    match heads.ask(&ClientRequest::Cluster).await {
        ClientReply::Cluster(status) => status,
        other => panic!("{other:?}"),
    }
}

/// Nodes are added, drained, resumed and removed, and the sharing is changed: the next head knows of all that.
#[tokio::test(flavor = "current_thread")]
async fn what_changes_at_run_time_is_known_to_the_next_head() {
    let Some(etcd) = Members::start(1) else { return };
    let mut heads = Heads::start(&etcd, 2, 2).await;
    let first = heads.leader(&[]).await;
    let second = 1 - first;
    let file = |heads: &Heads, head| ClusterConfig::load(heads.dir(head)).unwrap();
    let address = heads.cluster.config.head.ip();
    let definition = format!(
        "name = \"more\"\naddress = \"{address}\"\nport = {}\n",
        common::free_port(address)
    );
    let added = heads.ask(&ClientRequest::AddNode { definition: definition.clone() }).await;
    assert_eq!(added, ClientReply::NodeAdded { node: NodeId(2) });
    // Again, if the answer to the first was lost.
    let twice = heads.client().await.ask(&ClientRequest::AddNode { definition }).await;
    assert!(twice.unwrap_err().to_string().contains("used twice"));
    assert_eq!(file(&heads, first).nodes.len(), 3, "whoever certifies it reads it there");
    let drain = |node| ClientRequest::Drain { nodes: vec![node], reason: "disk".to_owned() };
    for node in [NodeId(0), NodeId(1)] {
        assert_eq!(heads.ask(&drain(node)).await, ClientReply::Done);
    }
    let resume = ClientRequest::Resume { nodes: vec![NodeId(0)] };
    assert_eq!(heads.ask(&resume).await, ClientReply::Done);
    let slice = Some(SliceLength::Fixed(7_000_000));
    let policy = Some("dqt:ff".to_owned());
    let configure = ClientRequest::Configure { mode: None, slice, policy };
    assert_eq!(heads.ask(&configure).await, ClientReply::Done);

    heads.kill_head(first);
    assert_eq!(heads.leader(&[first]).await, second);
    heads.attached(2).await;
    let known = status(&heads).await;
    let names: Vec<_> = known.nodes.iter().map(|node| &*node.name).collect();
    assert_eq!((names.len(), names[2]), (3, "more"), "{names:?}");
    let drained: Vec<_> = known.nodes.iter().map(|node| node.drain.is_some()).collect();
    assert_eq!(drained, [false, true, false]);
    assert_eq!((known.slice, &*known.policy), (SliceLength::Fixed(7_000_000), "dqt:ff"));
    assert_eq!(file(&heads, second).nodes, file(&heads, first).nodes);

    // It changes them, too, and the first one leads again.
    let remove = ClientRequest::RemoveNode { node: NodeId(2), force: false };
    assert_eq!(heads.ask(&remove).await, ClientReply::Done);
    assert_eq!(
        heads.ask(&ClientRequest::Resume { nodes: vec![NodeId(1)] }).await,
        ClientReply::Done
    );
    heads.start_head(first);
    heads.kill_head(second);
    assert_eq!(heads.leader(&[second]).await, first);
    heads.attached(2).await;
    let known = status(&heads).await;
    assert_eq!(known.nodes.len(), 2);
    assert!(known.nodes.iter().all(|node| node.drain.is_none()), "{:?}", known.nodes);
    assert_eq!((known.slice, &*known.policy), (SliceLength::Fixed(7_000_000), "dqt:ff"));
    assert_eq!(file(&heads, first).removed(), [NodeId(2)]);
    let job = heads.submit(common::request(&["/bin/true"], 2)).await;
    let over = JobState::Ended(Outcome::Success);
    heads.until("it runs", |records| records[&job].state == over).await;
}

/// Both could have the address, and neither listens: the second one says so and ends.
#[tokio::test(flavor = "current_thread")]
async fn a_number_has_one_head_also_while_it_waits() {
    let Some(etcd) = Members::start(1) else { return };
    let heads = Heads::start(&etcd, 1, 2).await;
    let waiting = 1 - heads.leader(&[]).await;
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kumid"));
    command.args(["head", "--head", &waiting.to_string(), "--cluster-dir"]);
    let ended = command.arg(heads.dir(waiting)).output().unwrap();
    let says = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(73), "{says}");
    assert!(says.contains("runs already, as process"), "{says}");
}
