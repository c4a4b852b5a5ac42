//! Who a client and the user of a job are, where machines and their daemons say different things.

mod common;

use std::time::Duration;

use common::{Cluster, ModeName, PATIENCE, request};
use kumi_control::message::{
    CONTROL_VERSION, ClientReply, ClientRequest, JobsQuery, NodeSet, Outcome, Refusal, RefusalKind,
    Report, Up, User,
};
use kumi_node::config::ClusterKind;
use kumi_node::frame::{self, LINK_LIMIT};
use kumi_node::link::{self, ConnectedStream, LinkHello, Purpose};
use kumi_node::peer::ClientPeer;
use kumi_node::tls::{Credentials, Identity};
use kumi_sched::{JobId, NodeId};
use tokio::io::AsyncReadExt;

const OWNER: u32 = 1234;

/// What became of a job that this user submits to the head.
async fn submit(cluster: &Cluster) -> Outcome {
    let mut client = cluster.client().await;
    let job = Box::new(request(&["/bin/true"], 1));
    client.send(&ClientRequest::Submit(job)).await.unwrap();
    loop {
        let next = tokio::time::timeout(PATIENCE, client.next()).await;
        match next.expect("an answer").unwrap().expect("an answer") {
            ClientReply::Ended { outcome, .. } => return outcome,
            ClientReply::Refused(refused) => return Outcome::Refused(refused),
            _ => {}
        }
    }
}

async fn refusal_of(cluster: &Cluster) -> Refusal {
    match submit(cluster).await {
        Outcome::Refused(refused) => refused,
        other => panic!("{other:?}\n{}", cluster.logs()),
    }
}

/// The node's machine has another name for the number: its jobs would be another person's.
#[tokio::test(flavor = "current_thread")]
async fn a_number_that_is_somebody_else_on_a_node_is_refused_there() {
    const TEST: &str = "a_number_that_is_somebody_else_on_a_node_is_refused_there";
    let mounts = std::process::Command::new("unshare").args(["-m", "true"]).status();
    if !nix::unistd::geteuid().is_root() || !mounts.is_ok_and(|status| status.success()) {
        return kumi_skip::skip(TEST, "needs root, and a mount namespace");
    }
    for (passwd, says) in [
        (
            "toor:x:0:0::/:/bin/sh\n",
            "user 0 is root where the job was submitted and toor on node 0",
        ),
        (
            "root:x:77:0::/:/bin/sh\n",
            "user root has number 0 where the job was submitted and 77 on node 0",
        ),
    ] {
        let mut cluster = Cluster::configured(1, ModeName::Gang);
        let file = cluster.path().join("passwd");
        std::fs::write(&file, passwd).unwrap();
        cluster.start_head();
        drop(cluster.client().await);
        // Other services may know root of themselves.
        let switch = cluster.path().join("nsswitch.conf");
        std::fs::write(&switch, "passwd: files\ngroup: files\n").unwrap();
        let bind = |from: &std::path::Path, to| format!("mount --bind {} {to}", from.display());
        let mount = bind(&file, "/etc/passwd") + "; " + &bind(&switch, "/etc/nsswitch.conf");
        let script = format!(
            "[ \"$1\" = x ] || exec unshare -m /bin/sh -c '{mount}; exec \"$0\" \"$@\"' \"$0\" \"$@\""
        );
        cluster.start_node_after(0, &script);
        cluster.wait_attached(1).await;
        let refused = refusal_of(&cluster).await;
        assert!(refused.message.starts_with(says), "{refused:?}\n{}", cluster.logs());
        assert_eq!(refused.kind, RefusalKind::NotPermitted);
    }
}

/// The head refuses root's jobs, and so does a node that is configured otherwise than the head.
#[tokio::test(flavor = "current_thread")]
async fn jobs_of_root_run_only_where_they_are_permitted() {
    if !nix::unistd::geteuid().is_root() {
        return kumi_skip::skip("jobs_of_root_run_only_where_they_are_permitted", "needs root");
    }
    let mut cluster = Cluster::configured(1, ModeName::Gang);
    cluster.start_head();
    drop(cluster.client().await);
    cluster.config.root_jobs = false;
    cluster.config.save(cluster.path()).unwrap();
    cluster.start_node(0);
    cluster.wait_attached(1).await;
    let by_node = refusal_of(&cluster).await;
    let mut strict = Cluster::configured(1, ModeName::Gang);
    strict.config.root_jobs = false;
    strict.config.save(strict.path()).unwrap();
    let by_head = refusal_of(&strict.start().await).await;
    for refused in [by_node, by_head] {
        assert_eq!(refused.kind, RefusalKind::NotPermitted);
        assert!(refused.message.contains("set `root_jobs = true` in cluster.toml"), "{refused:?}");
    }
}

/// A cluster whose second node is another machine, and whose key this test has.
async fn with_a_liar(users: Option<&[&str]>) -> (Cluster, Credentials) {
    let mut cluster = Cluster::configured(2, ModeName::Gang);
    cluster.config.kind = ClusterKind::Hosts;
    cluster.config.owner_uid = OWNER;
    cluster.config.nodes[1].users = users.map(|users| users.iter().map(|&u| u.into()).collect());
    cluster.config.save(cluster.path()).unwrap();
    cluster.start_head();
    cluster.start_node(0);
    cluster.wait_attached(1).await;
    let credentials = Credentials::load(cluster.path(), Identity::Node(NodeId(1))).unwrap();
    (cluster, credentials)
}

async fn connect(
    cluster: &Cluster,
    credentials: &Credentials,
    purpose: Purpose,
) -> ConnectedStream {
    let hello = LinkHello {
        version: CONTROL_VERSION,
        cluster: cluster.config.name.clone(),
        node: NodeId(1),
        incarnation: 1,
        purpose,
    };
    link::connect(credentials, Identity::Head, cluster.config.head, &hello).await.unwrap().0
}

/// What the head answers to a client that node 1 says is this user.
async fn ask(
    (cluster, node1): &(Cluster, Credentials),
    (uid, name): (u32, &str),
    request: &ClientRequest,
) -> ClientReply {
    let user = User { uid, gid: uid, name: name.into() };
    let purpose = Purpose::Client(Box::new(ClientPeer { user, limits: None }));
    let mut stream = connect(cluster, node1, purpose).await;
    frame::write(&mut stream, request, LINK_LIMIT).await.unwrap();
    let reply = tokio::time::timeout(PATIENCE, frame::read(&mut stream, LINK_LIMIT)).await;
    reply.expect("an answer").unwrap().expect("an answer")
}

fn is_disbelief(reply: &ClientReply) -> bool {
    matches!(reply, ClientReply::Refused(refused)
        if refused.kind == RefusalKind::NotPermitted && refused.message.contains("does not believe node1"))
}

#[tokio::test(flavor = "current_thread")]
async fn a_lying_node_is_neither_root_nor_the_owner() {
    let lying = with_a_liar(None).await;
    let end = [ClientRequest::Shutdown, ClientRequest::Kill { job: JobId(1), grace_ns: 0 }];
    let job = ClientRequest::Submit(Box::new(request(&["/bin/true"], 1)));
    for who in [(0, "root"), (OWNER, ""), (33, "www-data")] {
        for wanted in end.iter().chain([&job]) {
            let reply = ask(&lying, who, wanted).await;
            assert!(is_disbelief(&reply), "{who:?} {wanted:?}: {reply:?}");
        }
        // What all may see is no secret.
        let reply = ask(&lying, who, &ClientRequest::Jobs(JobsQuery::first_page(true))).await;
        assert!(matches!(reply, ClientReply::Jobs(_)), "{reply:?}");
    }
    // A user whom it may have: as itself.
    let reply = ask(&lying, (4_000_001, "kumi-no-one"), &ClientRequest::Shutdown).await;
    let ClientReply::Refused(refused) = reply else { panic!("{reply:?}") };
    assert!(refused.message.contains("only the cluster's owner"), "{refused:?}");
    // The number of one with the name of another.
    let reply = ask(&lying, (4_000_001, "root"), &ClientRequest::Cluster).await;
    let ClientReply::Refused(refused) = reply else { panic!("{reply:?}") };
    let says = "user root has number 4000001 on node1 and 0 on the head's machine";
    assert!(refused.message.starts_with(says), "{refused:?}");
}

#[tokio::test(flavor = "current_thread")]
async fn a_node_speaks_for_the_users_that_it_is_given() {
    let lying = with_a_liar(Some(&["4000001", "1234"])).await;
    let job = ClientRequest::Submit(Box::new(request(&["/bin/true"], 1)));
    assert!(is_disbelief(&ask(&lying, (4_000_002, ""), &job).await));
    assert!(is_disbelief(&ask(&lying, (0, "root"), &job).await));
    let reply =
        ask(&lying, (4_000_001, ""), &ClientRequest::Kill { job: JobId(7), grace_ns: 0 }).await;
    assert!(
        matches!(&reply, ClientReply::Refused(refused) if refused.kind == RefusalKind::NoSuchJob)
    );
    assert!(matches!(ask(&lying, (OWNER, ""), &ClientRequest::Shutdown).await, ClientReply::Done));
}

/// A daemon that reports of nodes that are not below it is cut off; they stay.
#[tokio::test(flavor = "current_thread")]
async fn a_node_does_not_speak_for_other_nodes() {
    let (cluster, node1) = with_a_liar(None).await;
    let gone = NodeSet::from_nodes([NodeId(0)]);
    for (report, believed) in
        [(Report::Detached(NodeSet::default()), true), (Report::Detached(gone), false)]
    {
        let mut stream = connect(&cluster, &node1, Purpose::Tree).await;
        frame::write(&mut stream, &Up::Report(report), LINK_LIMIT).await.unwrap();
        let mut rest = Vec::new();
        let patience = if believed { Duration::from_millis(100) } else { Duration::from_secs(2) };
        let closed = tokio::time::timeout(patience, stream.read_to_end(&mut rest)).await;
        assert_eq!(closed.is_err(), believed);
    }
    cluster.wait_attached(1).await;
}
