//! Strangers at the daemons' ports while a job runs: nothing of it reaches the job or the cluster.

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Cluster, ModeName, PATIENCE, collect, request, run, start};
use kumi_control::compat::OLDEST_VERSION;
use kumi_control::message::{CONTROL_VERSION, ClientReply, ClientRequest, Outcome};
use kumi_node::frame::{self, LINK_LIMIT};
use kumi_node::link::{self, LinkError, LinkHello, Purpose};
use kumi_node::tls::{self, Credentials, Identity};
use kumi_sched::NodeId;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn hello(cluster: &str, node: u32) -> LinkHello {
    let (version, cluster, node) = (CONTROL_VERSION, cluster.to_owned(), NodeId(node));
    LinkHello { version, cluster, node, incarnation: 1, purpose: Purpose::Tree }
}

/// The daemons that listen: who they are and where.
fn listeners(cluster: &Cluster) -> Vec<(Identity, SocketAddr)> {
    let node = NodeId(0);
    let endpoint = cluster.config.node(node).expect("node 0").endpoint();
    vec![(Identity::Head, cluster.config.head), (Identity::Node(node), endpoint)]
}

/// Waits until the daemon has closed the connection; what it said before does not matter.
async fn is_closed(mut stream: TcpStream) {
    let mut rest = Vec::new();
    let end = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
    // An end and a reset are both a closed connection.
    drop(end.expect("the daemon closes what makes no sense"));
}

/// Bytes that are no TLS, frames that claim to be giants, and connections that say nothing.
async fn without_tls(address: SocketAddr) {
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(address).await.expect("the port is open"));
    }
    for garbage in [&[0xff; 64][..], &[0; 5], b"GET / HTTP/1.1\r\n\r\n", &[0x16, 3, 1, 0xff, 0xff]]
    {
        let mut stream = TcpStream::connect(address).await.expect("the port is open");
        // It may be closed before all is written.
        drop(stream.write_all(garbage).await);
        is_closed(stream).await;
    }
    for stream in silent {
        is_closed(stream).await;
    }
}

/// TLS without a certificate, or with one of another cluster of the same name.
async fn without_a_certificate(cluster: &Cluster, peer: Identity, address: SocketAddr) {
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(
        rustls::crypto::ring::default_provider(),
    ))
    .with_protocol_versions(&[&rustls::version::TLS13])
    .expect("TLS 1.3 is there");
    let pem = std::fs::read(cluster.path().join("tls/ca.pem")).expect("the authority");
    use rustls::pki_types::pem::PemObject;
    let mut roots = rustls::RootCertStore::empty();
    let authority = rustls::pki_types::CertificateDer::from_pem_slice(&pem).expect("a certificate");
    roots.add(authority).expect("a certificate");
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let name = if peer == Identity::Head { "head.kumi" } else { "node-0.kumi" };
    let name = ServerName::try_from(name).expect("a name");
    let stream = TcpStream::connect(address).await.expect("the port is open");
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(name, stream).await.expect("this side has no objections");
    drop(frame::write(&mut stream, &hello(&cluster.config.name, 0), LINK_LIMIT).await);
    let mut rest = Vec::new();
    let answer = stream.read_to_end(&mut rest).await;
    assert!(answer.is_err() && rest.is_empty(), "{answer:?} {rest:?}");

    let other = tempfile::tempdir().expect("a directory");
    tls::create(other.path(), &cluster.config.name, 2).expect("certificates");
    let stranger =
        Credentials::load(other.path(), Identity::Node(NodeId(1))).expect("certificates");
    let called = link::connect(&stranger, peer, address, &hello(&cluster.config.name, 1)).await;
    assert!(matches!(called, Err(LinkError::Io(_))), "{:?}", called.err());
}

/// A node of this cluster that says what is not so, or breaks the rules later.
async fn with_a_certificate(cluster: &Cluster, peer: Identity, address: SocketAddr) {
    let node1 = Credentials::load(cluster.path(), Identity::Node(NodeId(1))).expect("certificates");
    let name = &cluster.config.name;
    let older = LinkHello { version: OLDEST_VERSION - 1, ..hello(name, 1) };
    for wrong in [hello("another", 1), hello(name, 0), hello(name, 99), older] {
        let called = link::connect(&node1, peer, address, &wrong).await;
        assert!(matches!(called, Err(LinkError::Refused(_))), "{wrong:?}");
    }
    // Garbage and giants where the hello should be.
    for bytes in [&[4, 0, 0, 0, 255, 255, 255, 255][..], &[255, 255, 255, 255, 1], &[9, 0, 0, 0]] {
        let stream = TcpStream::connect(address).await.expect("the port is open");
        let mut stream = node1.connect(peer, stream).await.expect("it knows the certificate");
        stream.write_all(bytes).await.expect("written");
        let mut rest = Vec::new();
        let answer = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await;
        drop(answer.expect("the daemon closes it"));
        assert!(rest.is_empty(), "{rest:?}");
    }
}

/// How often this daemon's kinds of refusals were counted, over all nodes.
async fn refused(cluster: &Cluster) -> u64 {
    let mut client = cluster.client().await;
    let answer = client.ask(&ClientRequest::Sample).await.expect("an answer");
    let ClientReply::Samples(nodes) = answer else { panic!("no samples") };
    let all = nodes.iter().flat_map(|node| &node.refused);
    all.map(|(_, count)| count).sum()
}

#[tokio::test(flavor = "current_thread")]
async fn strangers_at_the_ports_change_nothing() {
    let cluster = Cluster::up(2, ModeName::Gang).await;
    let script = "i=0; while [ $i -lt 30 ]; do sleep 0.1; i=$((i+1)); done; echo rank $KUMI_RANK";
    let (_, mut client) = start(&cluster, request(&["/bin/sh", "-c", script], 2)).await;
    let before = refused(&cluster).await;
    for (peer, address) in listeners(&cluster) {
        without_tls(address).await;
        without_a_certificate(&cluster, peer, address).await;
        with_a_certificate(&cluster, peer, address).await;
    }
    // 104 without TLS, 2 without a certificate, 7 with one, at the node; the head keeps its own count.
    let end = Instant::now() + PATIENCE;
    while refused(&cluster).await < before + 113 {
        assert!(Instant::now() < end, "{} of 113", refused(&cluster).await - before);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let ran = collect(&cluster, &mut client, |_| {}).await;
    assert_eq!(ran.outcome, Outcome::Success, "{}", cluster.logs());
    let mut lines: Vec<&str> = ran.out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["rank 0", "rank 1"]);
    cluster.wait_attached(2).await;
    assert_eq!(run(&cluster, request(&["/bin/true"], 4)).await.outcome, Outcome::Success);
}

/// Connections that say nothing, more than a port keeps: the oldest go at once and are counted, and whoever belongs
/// there gets in.
#[tokio::test(flavor = "current_thread")]
async fn a_port_keeps_few_who_say_nothing() {
    let cluster = Cluster::up(2, ModeName::Gang).await;
    let counted = async || {
        let mut client = cluster.client().await;
        let answer = client.ask(&ClientRequest::Sample).await.expect("an answer");
        let ClientReply::Samples(nodes) = answer else { panic!("no samples") };
        let node = nodes.into_iter().find(|sample| sample.node == NodeId(0)).expect("node 0");
        let count = |wanted: &str| {
            let found = node.refused.iter().find(|(reason, _)| reason == wanted);
            found.map_or(0, |(_, count)| *count)
        };
        (count("link displaced"), count("link refused"))
    };
    for (peer, address) in listeners(&cluster) {
        let mut silent = std::collections::VecDeque::new();
        for _ in 0..400 {
            silent.push_back(TcpStream::connect(address).await.expect("the port is open"));
        }
        for stream in silent.drain(..400 - 256) {
            is_closed(stream).await;
        }
        // It may not be attached where it is, but it is known.
        let node1 = Credentials::load(cluster.path(), Identity::Node(NodeId(1)));
        let (node1, mut wrong) = (node1.expect("certificates"), hello(&cluster.config.name, 1));
        wrong.node = NodeId(99);
        let called = link::connect(&node1, peer, address, &wrong).await;
        assert!(matches!(called, Err(LinkError::Refused(_))));
        let ran = run(&cluster, request(&["/bin/true"], 2)).await;
        assert_eq!(ran.outcome, Outcome::Success, "{}", cluster.logs());
        for stream in silent {
            is_closed(stream).await;
        }
    }
    let end = Instant::now() + PATIENCE;
    loop {
        let (displaced, refused) = counted().await;
        // The rest had their two seconds. On a slow machine more have had them before they would have made room.
        if displaced > 0 && displaced + refused >= 400 {
            break;
        }
        assert!(Instant::now() < end, "{displaced} displaced, {refused} refused");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    cluster.wait_attached(2).await;
}
