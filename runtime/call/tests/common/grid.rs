#![allow(dead_code)] // Each test uses a part of it.
//! A metaserver in this process, and servers that register at it.

use std::net::{SocketAddr, TcpListener};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kumi_call::meta::{self, ServerCondition, ServerState, State};
use kumi_call::server::{Config, Listener, Membership, Peers, Registry};
use kumi_call::{Client, Grid, Options};
use tokio::sync::oneshot;

/// A metaserver, ended when this is dropped.
pub struct Meta {
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Default configuration of tests.
pub fn config(policy: &str) -> meta::Config {
    meta::Config {
        policy: policy.to_owned(),
        report: Duration::from_millis(100),
        ..meta::Config::default()
    }
}

/// The same with its state in a file of this folder.
pub fn kept(config: meta::Config, folder: &tempfile::TempDir) -> meta::Config {
    meta::Config { state: Some(folder.path().join("meta.db")), ..config }
}

/// Starts a metaserver.
pub fn meta(config: meta::Config) -> Meta {
    meta_at(config, ([127, 0, 0, 1], 0).into())
}

/// Starts a metaserver at an address that another may just have left.
pub fn meta_at(config: meta::Config, address: SocketAddr) -> Meta {
    let begin = Instant::now();
    let listener = loop {
        match Listener::tcp(address) {
            Ok(listener) => break listener,
            Err(error) => assert!(begin.elapsed() < Duration::from_secs(30), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let address = listener.address().expect("its address").expect("TCP");
    let (stop, stopped) = oneshot::channel::<()>();
    let thread = std::thread::spawn(move || {
        let stopped = async move {
            let _gone = stopped.await;
        };
        meta::serve(config, listener, stopped).expect("it serves");
    });
    Meta { address, stop: Some(stop), thread: Some(thread) }
}

impl Meta {
    pub fn grid(&self) -> Grid {
        Grid::connect(&self.address.to_string(), &Options::default()).expect("a connection")
    }

    /// Its state.
    pub fn state(&self) -> State {
        let client = Client::connect(&self.address.to_string(), &Options::default());
        let json = client.expect("a connection").status_json().expect("its state");
        serde_json::from_str(&json).expect("JSON")
    }

    /// Waits until its state satisfies the condition.
    pub fn until(&self, what: &str, is: impl Fn(&State) -> bool) -> State {
        let begin = Instant::now();
        loop {
            let state = self.state();
            if is(&state) {
                return state;
            }
            assert!(begin.elapsed() < Duration::from_secs(60), "{what} does not come: {state:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until this many servers are registered.
    pub fn until_servers(&self, count: usize) {
        let up = |server: &&ServerState| server.state == ServerCondition::Up;
        self.until("a server", |state| state.servers.iter().filter(up).count() == count);
    }

    /// The configuration of a server that registers here.
    pub fn member(&self, name: &str, slots: usize) -> Config {
        let mut config = crate::common::config();
        config.name = name.to_owned();
        config.slots = slots;
        config.peers = Peers::default();
        config.membership = Some(Membership {
            metaservers: vec![self.address.to_string()],
            ..Membership::default()
        });
        config
    }

    /// Ends it.
    pub fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the metaserver ends well");
        }
    }
}

impl Drop for Meta {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop();
        }
    }
}

/// A server whose `nap` and `gate` are idempotent.
pub fn repeating(meta: &Meta, name: &str) -> crate::common::TestServer {
    let mut registry = Registry::default();
    for mut interface in crate::common::interfaces() {
        interface.idempotent = matches!(interface.name.as_str(), "nap" | "gate");
        registry.add(interface, &[crate::common::library()]).expect("a routine");
    }
    crate::common::served_by(meta.member(name, 1), registry)
}

/// A free port.
pub fn port() -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    listener.local_addr().expect("its address")
}

/// The state on the metaserver's page, once it satisfies the condition. The page is renewed only from time to time.
#[track_caller]
pub fn shown_state(address: SocketAddr, what: &str, so: impl Fn(&State) -> bool) -> State {
    let begin = Instant::now();
    loop {
        let json = try_get(address, "/status.json");
        let state = json.as_ref().map(|json| {
            let (_, body) = json.split_once("\r\n\r\n").expect("a body");
            serde_json::from_str::<State>(body).expect("JSON")
        });
        match state {
            Ok(state) if so(&state) => return state,
            state => {
                assert!(
                    begin.elapsed() < Duration::from_secs(60),
                    "{what} is not shown: {state:?}"
                );
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The answer to an HTTP request.
pub fn get(address: SocketAddr, path: &str) -> String {
    try_get(address, path).expect("an answer")
}

/// The same; a metaserver that begins again breaks off what it serves.
pub fn try_get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    use std::io::{Read, Write};
    let mut stream = std::net::TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let is_cut = !answer.contains("\r\n\r\n");
    if is_cut { Err(std::io::ErrorKind::UnexpectedEof.into()) } else { Ok(answer) }
}
