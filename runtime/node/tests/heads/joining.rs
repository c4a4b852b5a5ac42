//! Machines that join a cluster with several heads, while the heads change.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kumi_control::join::{JoinRefusal, JoinSecret, JoinToken};
use kumi_control::message::{ClientReply, ClientRequest};
use kumi_etcd::api::{self, Pair};
use kumi_etcd::{Etcd, Gateway, Leadership};
use kumi_node::config::ClusterConfig;
use kumi_node::join::{JoinError, join};
use kumi_node::paths;
use kumi_sched::NodeId;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::LocalSet;

use super::etcd::Members;
use super::{Heads, TAKEOVER};

/// The node that machines are to be. Its daemon does not run.
const LATE: NodeId = NodeId(1);
const DAY: u64 = 86_400_000;

/// Heads, and a daemon by which clients reach them.
async fn start(etcd: &Members, count: usize) -> Heads {
    let mut heads = Heads::configured(etcd, 2, count, |_| {});
    for head in 0..count {
        heads.start_head(head);
    }
    heads.cluster.start_node(0);
    heads.attached(1).await;
    heads
}

async fn token(heads: &Heads) -> JoinToken {
    let reply = heads.ask(&ClientRequest::JoinToken { node: LATE, valid_ms: DAY }).await;
    let ClientReply::JoinToken { token, .. } = reply else { panic!("{reply:?}") };
    JoinToken::parse(&token).unwrap()
}

/// The command of a machine, repeated as it says: while nobody leads for certain it joins nowhere.
async fn try_join(dir: &Path, token: &JoinToken) -> Result<(), JoinError> {
    let end = Instant::now() + TAKEOVER;
    loop {
        let error = match join(dir, token, |_| {}).await {
            Ok((node, _)) => {
                assert_eq!(node, LATE);
                return Ok(());
            }
            Err(error) => error,
        };
        let passes = matches!(
            error,
            JoinError::Unreachable(_)
                | JoinError::Broken(_)
                | JoinError::Refused(JoinRefusal::NotNow)
        );
        if !passes || Instant::now() > end {
            return Err(error);
        }
    }
}

async fn refused(dir: &Path, token: &JoinToken) -> JoinRefusal {
    match try_join(dir, token).await {
        Err(JoinError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    }
}

/// A machine that got no answer: it has its key, and nothing else.
fn without_answer(machine: &Path) -> tempfile::TempDir {
    let again = tempfile::tempdir().unwrap();
    let (from, to) = (paths::tls(machine), paths::tls(again.path()));
    fs::create_dir(&to).unwrap();
    fs::copy(from.join("node-1.key"), to.join("joining.key")).unwrap();
    again
}

/// What etcd has of the cluster, read from all members that answer.
async fn kept(etcd: &Members) -> Vec<Pair> {
    let settings = Etcd { endpoints: etcd.endpoints(), ..Etcd::default() };
    let read = async {
        let mut gateway = Gateway::new(&settings.into(), &Leadership::default().into()).unwrap();
        api::all(&mut gateway, "/kumi/cluster/").await.unwrap()
    };
    LocalSet::new().run_until(read).await
}

async fn token_kept(etcd: &Members) -> Vec<u8> {
    let key = |pair: &Pair| pair.key.ends_with("/tokens/00000001");
    kept(etcd).await.into_iter().find(key).expect("the token of node 1").value
}

/// The heads take turns while a token is made, used, shown again, and revoked. etcd never has the token itself.
#[tokio::test(flavor = "current_thread")]
async fn a_token_counts_once_whichever_head_leads() {
    let Some(etcd) = Members::start(3) else { return };
    let mut heads = start(&etcd, 2).await;
    let first = heads.leader(&[]).await;
    let second = 1 - first;
    let made = token(&heads).await;
    let all: Vec<String> = heads.cluster.config.heads.iter().map(SocketAddr::to_string).collect();
    assert_eq!(made.head, all);
    // Made by one head, used at the next.
    heads.kill_head(first);
    let (machine, thief) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    try_join(machine.path(), &made)
        .await
        .unwrap_or_else(|error| panic!("{error}\n{}", heads.logs()));
    assert_eq!(refused(thief.path(), &made).await, JoinRefusal::Used);
    // The one before leads again: it knows of the use, and answers the same machine.
    heads.start_head(first);
    heads.kill_head(second);
    assert_eq!(refused(thief.path(), &made).await, JoinRefusal::Used);
    try_join(without_answer(machine.path()).path(), &made).await.unwrap();
    for pair in kept(&etcd).await {
        let has = |secret: &[u8]| pair.value.windows(secret.len()).any(|part| part == secret);
        assert!(!has(&made.secret.0), "{}", pair.key);
    }
    // Revoked at one head, shown at the next.
    assert_eq!(heads.ask(&ClientRequest::Revoke { node: LATE }).await, ClientReply::Done);
    assert_eq!(refused(machine.path(), &made).await, JoinRefusal::Unknown);
    heads.start_head(second);
    heads.kill_head(first);
    let again = without_answer(machine.path());
    assert_eq!(refused(again.path(), &made).await, JoinRefusal::Unknown);
    let newer = token(&heads).await;
    try_join(again.path(), &newer).await.unwrap();
    for head in [first, second] {
        assert!(!paths::tokens(heads.dir(head)).exists());
    }
}

/// The head that leads needs the authority's key. Without it no token is made, and none is used up.
#[tokio::test(flavor = "current_thread")]
async fn a_head_without_the_authoritys_key_uses_no_token() {
    let Some(etcd) = Members::start(1) else { return };
    let mut heads = start(&etcd, 2).await;
    let first = heads.leader(&[]).await;
    let second = 1 - first;
    let made = token(&heads).await;
    let key = |heads: &Heads| paths::tls(heads.dir(second)).join("ca.key");
    let aside = heads.dir(second).join("aside");
    fs::rename(key(&heads), &aside).unwrap();
    heads.kill_head(first);
    let machine = tempfile::tempdir().unwrap();
    assert_eq!(refused(machine.path(), &made).await, JoinRefusal::NoAuthority);
    let asked = ClientRequest::JoinToken { node: LATE, valid_ms: DAY };
    let end = Instant::now() + TAKEOVER;
    loop {
        let says = heads.client().await.ask(&asked).await.unwrap_err().to_string();
        if says.contains("tls/ca.key") && says.contains("each head") {
            break;
        }
        // The node may not have found the second head yet.
        assert!(Instant::now() < end, "{says}\n{}", heads.logs());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    fs::rename(&aside, key(&heads)).unwrap();
    try_join(machine.path(), &made).await.unwrap();
}

/// Stands between a head and a member of etcd, and can keep the answers to itself.
struct Between {
    address: SocketAddr,
    holds: Arc<AtomicBool>,
}

async fn carry(near: TcpStream, member: SocketAddr, holds: Arc<AtomicBool>) -> std::io::Result<()> {
    let far = TcpStream::connect(member).await?;
    let (mut from_head, mut to_head) = near.into_split();
    let (mut from_member, mut to_member) = far.into_split();
    let asks = async { tokio::io::copy(&mut from_head, &mut to_member).await.map(drop) };
    let answers = async {
        let mut part = [0; 4096];
        loop {
            let count = from_member.read(&mut part).await?;
            while holds.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            if count == 0 {
                return Ok(());
            }
            to_head.write_all(&part[..count]).await?;
        }
    };
    tokio::select! {
        ended = asks => ended,
        ended = answers => ended,
    }
}

impl Between {
    async fn start(member: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let holds = Arc::new(AtomicBool::new(false));
        let held = Arc::clone(&holds);
        tokio::spawn(async move {
            while let Ok((near, _)) = listener.accept().await {
                // A connection that breaks is the head's matter.
                tokio::spawn(carry(near, member, Arc::clone(&held)));
            }
        });
        Self { address, holds }
    }
}

/// The leading head is killed when etcd has the use, and before the head has heard of that: so before it has answered.
#[tokio::test(flavor = "current_thread")]
async fn a_use_that_is_recorded_and_not_answered_counts() {
    let Some(etcd) = Members::start(3) else { return };
    let state = etcd.state();
    let member = state.trim_start_matches("etcd://").split(',').next().unwrap().parse().unwrap();
    let between = Between::start(member).await;
    // So that a slow machine asks before the head gives up, which hears nothing of etcd then.
    let patient = |config: &mut ClusterConfig| config.etcd.lease_s = Some(20);
    let mut heads = Heads::configured(&etcd, 2, 2, patient);
    let mut config = ClusterConfig::load(heads.dir(0)).unwrap();
    config.state = Some(format!("etcd://{}", between.address));
    config.save(heads.dir(0)).unwrap();
    heads.start_head(0);
    assert_eq!(heads.leader(&[]).await, 0);
    heads.start_head(1);
    heads.cluster.start_node(0);
    heads.attached(1).await;
    let made = token(&heads).await;
    let unused = token_kept(&etcd).await;

    between.holds.store(true, Ordering::Relaxed);
    let (machine, thief) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let joins = {
        let (dir, made) = (machine.path().to_owned(), made.clone());
        tokio::spawn(async move { try_join(&dir, &made).await })
    };
    let end = Instant::now() + TAKEOVER;
    while token_kept(&etcd).await == unused {
        assert!(Instant::now() < end, "{}", heads.logs());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!joins.is_finished(), "the head has answered");
    heads.kill_head(0);
    let used = token_kept(&etcd).await;
    // Another machine is no nearer to it, and the one that asked gets its certificate of the next head.
    assert_eq!(refused(thief.path(), &made).await, JoinRefusal::Used);
    joins.await.unwrap().unwrap_or_else(|error| panic!("{error}\n{}", heads.logs()));
    assert_eq!(refused(thief.path(), &made).await, JoinRefusal::Used);
    assert_eq!(token_kept(&etcd).await, used, "it is used for the same key");
}

/// A head that was alone has its tokens in a file. etcd has them from now on, and the file is not read again.
#[tokio::test(flavor = "current_thread")]
async fn tokens_of_a_file_count_with_etcd() {
    let Some(etcd) = Members::start(1) else { return };
    let mut heads = Heads::configured(&etcd, 2, 1, |_| {});
    let secret = JoinSecret([9; 16]);
    let (hash, until) = (paths::hex(&secret.hash()), u64::MAX / 2);
    let list =
        format!("[[token]]\nnode = 1\nhash = \"{hash}\"\nissued_ms = 1\nuntil_ms = {until}\n");
    let file = paths::tokens(heads.dir(0));
    fs::write(&file, &list).unwrap();
    heads.start_head(0);
    heads.cluster.start_node(0);
    heads.attached(1).await;
    let made = JoinToken { secret, ..token_of(&heads) };
    let (machine, thief) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    try_join(machine.path(), &made).await.unwrap();
    let end = Instant::now() + TAKEOVER;
    while file.exists() {
        assert!(Instant::now() < end, "{}", heads.logs());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    heads.kill_head(0);
    // As if somebody had brought it back: it says that the token was not used.
    fs::write(&file, &list).unwrap();
    heads.start_head(0);
    assert_eq!(refused(thief.path(), &made).await, JoinRefusal::Used);
}

/// What a token of this cluster has besides its secret.
fn token_of(heads: &Heads) -> JoinToken {
    let config = &heads.cluster.config;
    JoinToken {
        authority: kumi_node::tls::authority_fingerprint(heads.dir(0)).unwrap(),
        secret: JoinSecret([0; 16]),
        cluster: config.name.clone(),
        head: vec![config.head.to_string()],
    }
}
