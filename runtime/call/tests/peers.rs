//! Servers that clients name as holders of arrays: who is fetched from, and who is not even connected to.
#![forbid(unsafe_code)]

mod common;
#[path = "common/grid.rs"]
mod grid;

use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::time::Duration;

use common::{TestServer, config, served};
use grid::{Meta, config as meta_config, meta};
use kumi_call::meta::ServerCondition;
use kumi_call::server::{Config, Peers};
use kumi_call::{Arg, CallError, Client, HeldNames, Options, RemoteArray};
use kumi_rpc::HeldArrayName;

const MINUTE: Duration = Duration::from_secs(60);

fn client(server: &TestServer) -> Client {
    Client::connect(&server.address.to_string(), &Options::default()).expect("a connection")
}

/// Adds an array that is held at this address.
fn add_from(client: &Client, address: &str, name: HeldArrayName) -> Result<Vec<f64>, CallError> {
    let held = RemoteArray::held(name, 16, address);
    let mut sum = vec![1.0; 2];
    let args = vec![2.into(), Arg::Remote(Box::new(held)), sum.as_mut_slice().into()];
    client.call("add", args).map(|_| sum)
}

/// A server that holds an array of 7s.
fn holder(config: Config) -> (TestServer, Client, HeldArrayName) {
    let server = served(config);
    let own = client(&server);
    let name = HeldNames::new().expect("random bytes").fresh();
    let stays = Arg::Remote(Box::new(RemoteArray::stays(name, MINUTE)));
    own.call("fill", vec![2.into(), 0.into(), 7.0.into(), stays]).expect("it runs");
    (server, own, name)
}

fn refused(result: Result<Vec<f64>, CallError>, why: &str) {
    match result {
        Err(error @ CallError::NoSource(_)) => {
            assert!(error.has_not_run() && error.to_string().contains(why), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

/// Addresses at which something listens that is no server of a metaserver, such as a service of an inner network.
struct InnerService {
    tcp: TcpListener,
    unix: UnixListener,
    folder: tempfile::TempDir,
}

impl InnerService {
    fn new() -> InnerService {
        let folder = tempfile::tempdir().expect("a folder");
        let tcp = TcpListener::bind("127.0.0.1:0").expect("a port");
        let unix = UnixListener::bind(folder.path().join("socket")).expect("a socket");
        tcp.set_nonblocking(true).expect("it does not wait");
        unix.set_nonblocking(true).expect("it does not wait");
        InnerService { tcp, unix, folder }
    }

    fn addresses(&self) -> [String; 3] {
        let tcp = self.tcp.local_addr().expect("its address").to_string();
        let unix = format!("unix:{}", self.folder.path().join("socket").display());
        [format!("tls://{tcp}"), tcp, unix]
    }

    fn was_left_alone(&self) {
        assert!(self.tcp.accept().is_err() && self.unix.accept().is_err(), "somebody connected");
    }
}

#[test]
fn a_server_alone_connects_to_nobody_that_a_client_names() {
    let inner = InnerService::new();
    let (holding, _own, name) = holder(config());
    let alone = served(Config { peers: Config::new(config().slot).peers, ..config() });
    let client = client(&alone);
    for address in inner.addresses() {
        refused(add_from(&client, &address, name), "it has no metaserver");
    }
    refused(add_from(&client, &holding.address.to_string(), name), "--peer");
    inner.was_left_alone();
}

/// A server of the metaserver, of which the fixture waits until it is known.
fn member(meta: &Meta, name: &str, count: usize) -> TestServer {
    let server = served(meta.member(name, 1));
    meta.until_servers(count);
    server
}

#[test]
fn servers_of_a_metaserver_fetch_from_each_other_and_from_nobody_else() {
    let mut meta = meta(meta_config("round-robin"));
    let (known, own, name) = holder(meta.member("known", 1));
    meta.until_servers(1);
    let asking = member(&meta, "asking", 2);
    let client = client(&asking);
    let inner = InnerService::new();
    let at = known.address.to_string();
    assert_eq!(add_from(&client, &at, name).expect("it runs"), [8.0, 8.0]);
    // The answer is remembered, and one for an address is none for others.
    assert_eq!(add_from(&client, &at, name).expect("it runs"), [8.0, 8.0]);
    let (other, _others, other_name) = holder(config());
    let stranger = other.address.to_string();
    refused(add_from(&client, &stranger, other_name), "its metaserver knows no server there");
    let [tls, tcp, unix] = inner.addresses();
    for address in [tls, tcp, format!("kumi://{at}"), "nonsense".to_owned(), "x".repeat(200)] {
        refused(add_from(&client, &address, name), "its metaserver knows no server there");
    }
    refused(add_from(&client, &unix, name), "a Unix socket");
    inner.was_left_alone();
    drop((known, own));
    meta.until("a server that leaves", |state| {
        state.servers.iter().filter(|server| server.state == ServerCondition::Up).count() == 1
    });
    meta.stop();
}

#[test]
fn who_is_named_is_fetched_from_without_a_metaserver() {
    let (known, _own, name) = holder(config());
    let (other, _others, other_name) = holder(config());
    let named = Peers::Listed(vec![known.address.to_string()]);
    let asking = served(Config { peers: named, ..config() });
    let client = client(&asking);
    let sum = add_from(&client, &known.address.to_string(), name).expect("it runs");
    assert_eq!(sum, [8.0, 8.0]);
    refused(add_from(&client, &other.address.to_string(), other_name), "it is not named");
}
