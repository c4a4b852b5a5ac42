//! Machines that join a running cluster with a token, and strangers who try.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Instant;

use common::{Cluster, ModeName, PATIENCE, free_port, request, run};
use kumi_control::compat::OLDEST_VERSION;
use kumi_control::join::{
    JOIN_VERSION, JoinAnswer, JoinHello, JoinRefusal, JoinSecret, JoinToken, KEY_BYTES,
};
use kumi_control::message::{CONTROL_VERSION, ClientReply, ClientRequest, Outcome};
use kumi_node::config::ClusterConfig;
use kumi_node::exit::Failure;
use kumi_node::frame::{self, LINK_LIMIT};
use kumi_node::join::{self, JoinError};
use kumi_node::{paths, tls};
use kumi_sched::NodeId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const LATE: NodeId = NodeId(1);
const DAY: u64 = 86_400_000;

/// A cluster of one node that is up, and another that is configured and has no certificate.
async fn cluster() -> Cluster {
    let mut cluster = Cluster::configured(2, ModeName::Gang);
    for suffix in ["pem", "key"] {
        fs::remove_file(paths::tls(cluster.path()).join(format!("node-1.{suffix}"))).unwrap();
    }
    cluster.start_head();
    cluster.start_node(0);
    cluster.wait_attached(1).await;
    cluster
}

async fn token(cluster: &Cluster) -> JoinToken {
    let mut client = cluster.client().await;
    let answer = client.ask(&ClientRequest::JoinToken { node: LATE, valid_ms: DAY }).await.unwrap();
    let ClientReply::JoinToken { token, .. } = answer else { panic!("{answer:?}") };
    JoinToken::parse(&token).unwrap()
}

async fn join(dir: &Path, token: &JoinToken) -> Result<(NodeId, ClusterConfig), JoinError> {
    join::join(dir, token, |_| {}).await
}

fn code(error: JoinError) -> u8 {
    Failure::from(error).code.code()
}

/// Another machine's folder for clusters.
fn machine() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

/// Whether nothing of the node is there but the key that it would join with.
fn has_not_joined(dir: &Path) -> bool {
    !paths::config(dir).exists() && !paths::tls(dir).join("node-1.pem").exists()
}

#[tokio::test(flavor = "current_thread")]
async fn a_machine_that_has_joined_runs_jobs() {
    let mut cluster = cluster().await;
    let token = token(&cluster).await;
    let machine = machine();
    let (node, config) = join(machine.path(), &token).await.unwrap();
    assert_eq!((node, &config), (LATE, &cluster.config));
    let private = paths::tls(machine.path()).join("node-1.key");
    assert_eq!(fs::metadata(&private).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(!paths::tls(cluster.path()).join("node-1.key").exists(), "the key stays where it is");
    assert!(!paths::tls(machine.path()).join("ca.key").exists());
    let log = paths::node_log(cluster.path(), LATE);
    let mut daemon = std::process::Command::new(env!("CARGO_BIN_EXE_kumid"));
    daemon.args(["node", "--node", "1", "--cluster-dir"]).arg(machine.path());
    daemon.stderr(fs::File::create(log).unwrap());
    cluster.nodes[1] = Some(daemon.spawn().unwrap());
    cluster.wait_attached(2).await;
    let mut wide = request(&["/bin/true"], 2);
    wide.nodes = Some(2);
    assert_eq!(run(&cluster, wide).await.outcome, Outcome::Success, "{}", cluster.logs());
    // No token for a node that is up.
    let mut client = cluster.client().await;
    let again = client.ask(&ClientRequest::JoinToken { node: LATE, valid_ms: DAY }).await;
    assert!(again.unwrap_err().to_string().contains("is up"));
}

#[tokio::test(flavor = "current_thread")]
async fn a_token_that_does_not_count_is_told_apart() {
    let mut cluster = cluster().await;
    let first = token(&cluster).await;
    let second = token(&cluster).await;
    let (one, two) = (machine(), machine());
    let replaced = join(one.path(), &first).await.unwrap_err();
    assert!(matches!(replaced, JoinError::Refused(JoinRefusal::Unknown)), "{replaced}");
    assert!(has_not_joined(one.path()));
    // Its time is over, by the list that the next head reads.
    let list = paths::tokens(cluster.path());
    let kept = fs::read_to_string(&list).unwrap();
    assert_eq!(fs::metadata(&list).unwrap().permissions().mode() & 0o777, 0o600);
    let until = kept.lines().find(|line| line.starts_with("until_ms")).unwrap();
    let mut head = cluster.head.take().unwrap();
    Cluster::signal(&head, nix::sys::signal::Signal::SIGKILL);
    head.wait().unwrap();
    fs::write(&list, kept.replace(until, "until_ms = 1000")).unwrap();
    cluster.start_head();
    cluster.wait_attached(1).await;
    let late = join(one.path(), &second).await.unwrap_err();
    assert!(matches!(late, JoinError::Refused(JoinRefusal::Expired)), "{late}");
    assert_eq!(code(late), 77);
    let third = token(&cluster).await;
    join(one.path(), &third).await.unwrap();
    let used = join(two.path(), &third).await.unwrap_err();
    assert!(matches!(used, JoinError::Refused(JoinRefusal::Used)), "{used}");
    assert!(has_not_joined(two.path()));
}

#[tokio::test(flavor = "current_thread")]
async fn a_machine_tells_nobody_else_its_secret() {
    let cluster = cluster().await;
    let token = token(&cluster).await;
    let machine = machine();
    // A node of the cluster is not its head.
    let node = cluster.config.node(NodeId(0)).unwrap().endpoint().to_string();
    let wrong = JoinToken { head: vec![node], ..token.clone() };
    let error = join(machine.path(), &wrong).await.unwrap_err();
    assert!(matches!(error, JoinError::OtherHead { .. }), "{error}");
    assert_eq!(code(error), 77);
    // The head, for who has the token of another cluster.
    let other = JoinToken { authority: [7; 32], ..token.clone() };
    assert_eq!(code(join(machine.path(), &other).await.unwrap_err()), 77);
    // Nobody.
    let here = cluster.config.head.ip();
    let nobody = format!("{here}:{}", free_port(here));
    let away = JoinToken { head: vec![nobody.clone()], ..token.clone() };
    let error = join(machine.path(), &away).await.unwrap_err();
    assert!(matches!(error, JoinError::Unreachable(_)), "{error}");
    assert_eq!(code(error), 69);
    // One address of several is enough, and the token still counts.
    let head = vec![nobody, "no-such-host.invalid:7700".to_owned(), token.head[0].clone()];
    join(machine.path(), &JoinToken { head, ..token }).await.unwrap();
}

/// Carries one connection to the head, which breaks after so many bytes of the answer.
async fn break_after(listener: TcpListener, head: std::net::SocketAddr, most: usize) {
    let (near, _) = listener.accept().await.unwrap();
    let far = TcpStream::connect(head).await.unwrap();
    let (mut from_machine, mut to_machine) = near.into_split();
    let (mut from_head, mut to_head) = far.into_split();
    let up = tokio::io::copy(&mut from_machine, &mut to_head);
    let down = async {
        let (mut left, mut part) = (most, [0; 256]);
        while left > 0 {
            let room = left.min(part.len());
            let count = from_head.read(&mut part[..room]).await.unwrap();
            to_machine.write_all(&part[..count]).await.unwrap();
            left = if count == 0 { 0 } else { left - count };
        }
    };
    tokio::select! {
        _ = up => {}
        () = down => {}
    }
}

/// Wherever the connection breaks, the same command on the same machine goes on, and another machine gains nothing.
#[tokio::test(flavor = "current_thread")]
async fn a_broken_connection_costs_no_token() {
    let cluster = cluster().await;
    let token = token(&cluster).await;
    let (machine, other) = (machine(), machine());
    let mut was_used = false;
    for most in [0, 1, 300, 1_200, 1_700, 2_200] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let head = vec![listener.local_addr().unwrap().to_string()];
        let through = JoinToken { head, ..token.clone() };
        let proxy = break_after(listener, cluster.config.head, most);
        let (error, ()) = tokio::join!(join(machine.path(), &through), proxy);
        let error = error.map(drop).expect_err("the connection broke");
        was_used |= matches!(error, JoinError::Broken(_));
        assert_eq!(code(error), 69, "after {most} bytes");
        assert!(has_not_joined(machine.path()));
    }
    assert!(was_used, "no connection broke after the token was shown");
    let end = Instant::now() + PATIENCE;
    while !fs::read_to_string(paths::tokens(cluster.path())).unwrap().contains("used_by") {
        assert!(Instant::now() < end, "{}", cluster.logs());
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let stolen = join(other.path(), &token).await.unwrap_err();
    assert!(matches!(stolen, JoinError::Refused(JoinRefusal::Used)), "{stolen}");
    join(machine.path(), &token).await.unwrap();
}

/// What the head answers to these bytes, shown as a machine that joins shows its token.
async fn say(token: &JoinToken, bytes: &[u8]) -> Option<JoinAnswer> {
    let stream = TcpStream::connect(&*token.head[0]).await.unwrap();
    let mut stream = tls::connect_to_join(token.authority, stream).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let answer = frame::read(&mut stream, LINK_LIMIT);
    tokio::time::timeout(PATIENCE, answer).await.expect("it answers or closes").ok().flatten()
}

/// Hundreds of guesses, giants and garbage: the log stays short, and whoever has the token gets in.
#[tokio::test(flavor = "current_thread")]
async fn strangers_guess_in_vain() {
    let cluster = cluster().await;
    let token = token(&cluster).await;
    let guess = |number: u16| {
        let mut secret = [0; 16];
        secret[..2].copy_from_slice(&number.to_le_bytes());
        let hello = JoinHello {
            version: JOIN_VERSION,
            control: CONTROL_VERSION,
            secret: JoinSecret(secret),
            public_key: vec![4; KEY_BYTES],
            proof: vec![0; 70],
        };
        frame::encode(&hello, LINK_LIMIT).unwrap()
    };
    for number in 0..300 {
        assert_eq!(say(&token, &guess(number)).await, Some(Err(JoinRefusal::Unknown)));
    }
    for garbage in [&[255, 255, 255, 255, 1][..], &[4, 0, 0, 0, 1, 255, 255, 255], &[0, 16, 0, 0]] {
        assert_eq!(say(&token, garbage).await, None, "{garbage:?}");
    }
    let older = [&[1, 0, 0, 0][..], &[0]].concat();
    let refused = Some(Err(JoinRefusal::Version { head: CONTROL_VERSION }));
    assert_eq!(say(&token, &older).await, refused);
    // The version before is answered as this one is.
    let of_version = |control: u32| {
        let mut hello = guess(300);
        assert_eq!(hello[4..6], [1, CONTROL_VERSION as u8]);
        hello[5] = control as u8;
        hello
    };
    assert_eq!(say(&token, &of_version(OLDEST_VERSION - 1)).await, refused);
    assert_eq!(say(&token, &of_version(CONTROL_VERSION + 1)).await, refused);
    let unknown = Some(Err(JoinRefusal::Unknown));
    assert_eq!(say(&token, &of_version(OLDEST_VERSION)).await, unknown);
    let log = fs::read_to_string(paths::head_log(cluster.path())).unwrap();
    let lines = log.lines().filter(|line| line.contains("a link was refused")).count();
    assert!((1..=10).contains(&lines), "{lines} lines: {log}");
    join(machine().path(), &token).await.unwrap();
    assert_eq!(run(&cluster, request(&["/bin/true"], 1)).await.outcome, Outcome::Success);
}

#[tokio::test(flavor = "current_thread")]
async fn a_disk_that_takes_nothing_costs_no_token() {
    let cluster = cluster().await;
    let token = token(&cluster).await;
    let machine = machine();
    // Folders where the drafts belong stand for a disk that is full there.
    let tls = paths::tls(machine.path());
    fs::create_dir_all(&tls).unwrap();
    for draft in ["joining.key.new", "node-1.pem.new", "../cluster.toml.new"] {
        fs::create_dir(tls.join(draft)).unwrap();
        let error = join(machine.path(), &token).await.unwrap_err();
        assert_eq!(code(error), 74, "{draft}");
        assert!(!paths::config(machine.path()).exists(), "{draft}");
        fs::remove_dir(tls.join(draft)).unwrap();
    }
    join(machine.path(), &token).await.unwrap();
}
