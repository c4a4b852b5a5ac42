//! Tests of the state in etcd: it behaves as every store, and only the leader writes it.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::Duration;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tokio::task::LocalSet;

use super::{Candidate, Etcd, EtcdError, EtcdStore, Session};
use crate::store::Store as _;
use crate::store::tests::{Model, Step, call, histories};
use kumi_etcd::api;
use kumi_etcd::{Gateway, OrderedWrites};

const LONG: Duration = Duration::from_secs(30);

/// An etcd process, ended when this is dropped.
struct Server {
    child: Child,
    url: String,
    _folder: tempfile::TempDir,
}

fn address() -> String {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    format!("http://{}", listener.local_addr().expect("its address"))
}

impl Server {
    fn start() -> Option<Server> {
        if Command::new("etcd").arg("--version").stdout(Stdio::null()).status().is_err() {
            kumi_skip::skip("etcd", "there is no command `etcd` (Debian package etcd-server)");
            return None;
        }
        let (url, peer, folder) = (address(), address(), tempfile::tempdir().expect("a folder"));
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "etcd", "--log-level", "error", "--logger", "zap"])
            .arg("--data-dir")
            .arg(folder.path().join("data"))
            .args(["--listen-client-urls", &url, "--advertise-client-urls", &url])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        Some(Server { child: child.expect("etcd starts"), url, _folder: folder })
    }

    fn settings(&self, name: &str) -> Etcd {
        Etcd {
            endpoints: vec![self.url.clone()],
            prefix: format!("/{name}"),
            lease: Duration::from_secs(60),
            advertise: name.to_owned(),
            ..Etcd::default()
        }
    }

    /// A leader in a set of its own.
    async fn session(&self, set: &str) -> Session {
        let mut candidate = Candidate::new(&self.settings(set), "test").expect("a candidate");
        candidate.win().await
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _dead = self.child.kill();
        let _dead = self.child.wait();
    }
}

fn run<T>(part: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    LocalSet::new().block_on(&runtime.expect("a runtime"), part)
}

/// Replays a history in which each opening is by another leader.
async fn follow(server: &Server, set: &str, history: &[Step]) {
    let mut session = server.session(set).await;
    let (mut store, writer) = EtcdStore::open(&session).await.expect("the state");
    let mut writing = tokio::task::spawn_local(writer.run());
    let mut model = Model::default();
    let mut first = session.number();
    for step in history.iter().chain([&Step::Reopen]) {
        model.step(&mut store, step);
        if matches!(step, Step::Reopen) {
            store.watch().drain(LONG).await;
            assert_eq!(store.kept(), store.noted());
            writing.abort();
            session.release().await;
            session = server.session(set).await;
            assert!(session.number() > first, "no number is used twice");
            first = session.number();
            let opened = EtcdStore::open(&session).await.expect("the state");
            (store, writing) = (opened.0, tokio::task::spawn_local(opened.1.run()));
            model.check(&store);
        }
    }
}

#[test]
fn etcd_keeps_what_is_noted() {
    let Some(server) = Server::start() else { return };
    let mut runner = TestRunner::deterministic();
    for round in 0..6 {
        let history = histories().new_tree(&mut runner).expect("a history").current();
        run(follow(&server, &format!("set{round}"), &history));
    }
}

#[test]
fn more_than_fits_into_a_transaction_and_a_page_is_kept() {
    let Some(server) = Server::start() else { return };
    run(async {
        let session = server.session("many").await;
        let (mut store, writer) = EtcdStore::open(&session).await.expect("the state");
        (0..2500).for_each(|number| store.placed(&call(number, 1)));
        let noted = store.noted();
        assert_eq!((noted, store.kept()), (2500, 0), "nothing is kept before it is written");
        let watch = store.watch();
        let _writing = tokio::task::spawn_local(writer.run());
        while store.kept() < noted {
            watch.news().await;
        }
        session.release().await;
        let session = server.session("many").await;
        let (store, _) = EtcdStore::open(&session).await.expect("the state");
        assert_eq!(store.calls().expect("calls").len(), 2500);
    });
}

#[test]
fn one_leads_and_one_that_led_writes_nothing() {
    let Some(server) = Server::start() else { return };
    run(async {
        let session = server.session("s").await;
        let (mut store, writer) = EtcdStore::open(&session).await.expect("the state");
        let mut other = Candidate::new(&server.settings("s"), "other").expect("a candidate");
        let leadership = other.leadership();
        let follows = async {
            while leadership.leader() != "s" {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            _ = other.win() => panic!("two lead"),
            followed = tokio::time::timeout(LONG, follows) => followed.expect("a leader"),
        }
        assert!(!other.leadership().leads());
        // Its lease is ended without its knowledge.
        let settings = Rc::new(server.settings("s"));
        let mut gateway = Gateway::new(&settings, &other.leadership()).expect("a connection");
        let key = api::get(&mut gateway, "/s/leader").await.expect("an answer").expect("a leader");
        api::revoke(&mut gateway, key.lease).await.expect("it ends");
        let next = other.win().await;
        assert!(other.leadership().leads());
        let (noted_before, writing) = (store.noted(), tokio::task::spawn_local(writer.run()));
        store.placed(&call(1, 1));
        writing.await.expect("it ends by itself");
        assert_eq!((store.noted(), store.kept()), (noted_before + 1, noted_before));
        session.hold().await;
        let (store, _) = EtcdStore::open(&next).await.expect("the state");
        assert_eq!(store.calls().expect("calls"), []);
    });
}

#[test]
fn what_is_no_state_and_no_etcd_is_told() {
    let Some(server) = Server::start() else { return };
    run(async {
        let session = server.session("bad").await;
        let mut gateway = session.gateway().expect("a connection");
        // The first request may come before it listens.
        let before = session.leadership().figures.errors.get();
        let change = ("/bad/calls/x".to_owned(), Some(b"{}".to_vec()));
        let mut writes = OrderedWrites::new(session.guard.clone()).expect("a random number");
        writes.write(&mut gateway, &[change]).await.expect("written");
        match EtcdStore::open(&session).await.map(drop) {
            Err(EtcdError::Content(key)) => assert_eq!(key, "/bad/calls/x"),
            other => panic!("{other:?}"),
        }
        let twice = [("/bad/y".to_owned(), None), ("/bad/y".to_owned(), Some(vec![1]))];
        let refused = writes.write(&mut gateway, &twice).await;
        assert!(matches!(refused, Err(EtcdError::Refused { code: 3, .. })), "{refused:?}");
        let nobody = Etcd { endpoints: vec![address()], ..server.settings("bad") };
        let mut gateway = Gateway::new(&Rc::new(nobody), session.leadership()).expect("settings");
        let away = api::get(&mut gateway, "/bad/leader").await;
        assert!(matches!(away, Err(EtcdError::NoAnswer { .. })), "{away:?}");
        // A slow machine may add some: a request takes too long, and is made again.
        assert!(session.leadership().figures.errors.get() - before >= 2);
    });
}
