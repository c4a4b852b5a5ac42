//! Logs of calls that a metaserver has placed: which servers it names, and what its users see there.
#![forbid(unsafe_code)]

mod common;
#[path = "common/grid.rs"]
mod grid;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use common::{TestServer, eventually, served};
use grid::{Meta, config, meta};
use kumi_call::log_records::{CallOutcome, LoggedCall};
use kumi_call::server::Membership;
use kumi_call::users::{NewToken, Users, add, revoke};
use kumi_call::{CallError, Client, Grid, LogRequest, LogSources, Options, Remote};
use kumi_rpc::{ClientHello, HEADER};

/// What all servers answer, with their names.
fn asked(sources: &LogSources, request: &LogRequest) -> Vec<(String, LoggedCall)> {
    let mut found = Vec::new();
    for source in &sources.servers {
        let calls = source.client.logs(request).expect("logs").calls;
        found.extend(calls.into_iter().map(|call| (source.label.clone(), call)));
    }
    found
}

#[test]
fn a_call_is_found_at_the_server_that_has_run_it() {
    let meta = meta(config("round-robin"));
    // Slots for all calls at each: a server that seems busy would be passed by in its turn.
    let _servers = [served(meta.member("a", 4)), served(meta.member("b", 4))];
    meta.until_servers(2);
    let grid = meta.grid();
    for _ in 0..4 {
        grid.call("noop", vec![]).expect("it runs");
    }
    let sources = Remote::Grid(grid).log_sources().expect("servers");
    assert!(sources.unreachable.is_empty() && sources.servers.len() == 2);
    let found = asked(&sources, &LogRequest::Latest(9));
    assert_eq!(found.iter().filter(|(server, _)| server == "a").count(), 2);
    let mut numbers: Vec<u64> =
        found.iter().map(|(_, call)| call.placed.expect("its number").call).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), 4);
    for number in numbers {
        let found = asked(&sources, &LogRequest::Placed(number));
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].1.placed.map(|placed| placed.attempt), Some(1));
        let end = found[0].1.end.as_ref().map(|end| end.outcome);
        assert_eq!(end, Some(CallOutcome::Completed));
    }
    // A metaserver itself has no logs of calls, and a server is asked as it is.
    let server = Client::connect(&sources_address(&meta), &Options::default()).expect("one");
    assert_eq!(Remote::Server(server).log_sources().expect("itself").servers.len(), 1);
}

fn sources_address(meta: &Meta) -> String {
    meta.state().servers[0].address.clone()
}

/// A metaserver with users and a server.
struct MetaWithUsers {
    meta: Meta,
    server: TestServer,
    file: std::path::PathBuf,
    _folder: tempfile::TempDir,
}

impl MetaWithUsers {
    fn new(change: impl FnOnce(&mut kumi_call::server::Config)) -> MetaWithUsers {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("users.toml");
        let new = NewToken { user: "srv".to_owned(), server: true, ..NewToken::default() };
        let token = add(&file, &new).expect("a token");
        let mut config = config("round-robin");
        config.users = Some(Arc::new(Users::open(&file).expect("users")));
        let meta = meta(config);
        let mut config = meta.member("a", 2);
        let membership = config.membership.take().expect("a membership");
        config.membership = Some(Membership { token, ..membership });
        change(&mut config);
        let server = served(config);
        let fixture = MetaWithUsers { meta, server, file, _folder: folder };
        let ada = fixture.grid("first");
        eventually("the server", || ada.names("noop").is_ok_and(|names| names == ["noop"]));
        fixture
    }

    fn token(&self, user: &str) -> String {
        let new = NewToken { user: user.to_owned(), ..NewToken::default() };
        add(&self.file, &new).expect("a token")
    }

    fn grid(&self, user: &str) -> Grid {
        let token = self.token(user);
        let options = Options { token, ..Options::default() };
        Grid::connect(&self.meta.address.to_string(), &options).expect("a connection")
    }
}

#[test]
fn users_of_a_metaserver_see_their_own_calls_only() {
    let fixture = MetaWithUsers::new(|config| config.only_sent = true);
    let (ada, zoe) = (fixture.grid("ada"), fixture.grid("zoe"));
    ada.call("noop", vec![]).expect("it runs");
    let hers = asked(&ada.log_sources().expect("servers"), &LogRequest::Latest(9));
    assert_eq!(hers.len(), 1);
    assert_eq!(hers[0].1.user, "ada");
    let placed = hers[0].1.placed.expect("its number").call;
    let sources = zoe.log_sources().expect("servers");
    let number = LogRequest::Call { call: hers[0].1.call, from: 0 };
    for request in [LogRequest::Latest(9), number, LogRequest::Placed(placed)] {
        assert_eq!(asked(&sources, &request), [], "{request:?}");
    }
    // What the metaserver gives for this is good for nothing else.
    let client = &sources.servers[0].client;
    let refused = client.interface("noop").map(|_| ());
    assert!(matches!(refused, Err(CallError::NotPermitted(_))), "{refused:?}");
    assert!(matches!(client.names(""), Err(CallError::NotPermitted(_))));
    // Who is no user any more is named no server.
    revoke(&fixture.file, "zoe", None).expect("revoked");
    let refused = zoe.log_sources().map(|_| ());
    assert!(matches!(refused, Err(CallError::NotPermitted(_))), "{refused:?}");
}

#[test]
fn calls_without_and_with_a_metaserver_are_different_users_calls() {
    // The server has no users of its own: whoever comes by himself is nobody.
    let fixture = MetaWithUsers::new(|_| {});
    let ada = fixture.grid("ada");
    ada.call("noop", vec![]).expect("it runs");
    let nobody = fixture.server.client();
    assert_eq!(nobody.logs(&LogRequest::Latest(9)).expect("logs").calls, []);
    nobody.call("noop", vec![]).expect("it runs");
    let own = nobody.logs(&LogRequest::Latest(9)).expect("logs").calls;
    assert_eq!((own.len(), own[0].placed), (1, None));
    let hers = asked(&ada.log_sources().expect("servers"), &LogRequest::Latest(9));
    assert_eq!(hers.len(), 1);
    assert!(hers[0].1.placed.is_some());
}

#[test]
fn a_server_that_is_gone_is_named_as_one_that_cannot_be_asked() {
    let meta = meta(config("round-robin"));
    let mut first = served(meta.member("a", 1));
    let _second = served(meta.member("b", 1));
    meta.until_servers(2);
    first.stop();
    meta.until_servers(1);
    let sources = meta.grid().log_sources().expect("servers");
    let names: Vec<&str> = sources.servers.iter().map(|source| source.label.as_str()).collect();
    assert_eq!(names, ["b"]);
    let [gone] = &sources.unreachable[..] else { panic!("{:?}", sources.unreachable) };
    assert_eq!(gone.label, "a");
    assert!(matches!(gone.why, CallError::ServerGone { .. }), "{}", gone.why);
}

#[test]
fn servers_of_one_name_and_one_that_was_started_again_are_told_apart() {
    let meta = meta(config("round-robin"));
    let mut first = served(meta.member("a", 1));
    meta.until_servers(1);
    let grid = meta.grid();
    grid.call("noop", vec![]).expect("it runs");
    let sources = grid.log_sources().expect("servers");
    let number = asked(&sources, &LogRequest::Latest(1))[0].1.placed.expect("its number").call;
    let before = &sources.servers[0];
    assert_eq!(before.label, "a");
    let _other = served(meta.member("a", 1));
    meta.until_servers(2);
    let both = grid.log_sources().expect("servers");
    let found = both.find(&before.identity).expect("the same one");
    assert_eq!(found.label, before.identity.address);
    assert_eq!(found.client.logs(&LogRequest::Placed(number)).expect("logs").calls.len(), 1);
    assert_eq!((both.meant("a").len(), both.meant(&found.label).len()), (2, 1));
    // The other one has its name alone when the first is gone, and is not taken for it.
    first.stop();
    meta.until_servers(1);
    let sources = grid.log_sources_of(number).expect("servers");
    assert!(sources.find(&before.identity).is_none());
    let [left] = &sources.meant("a")[..] else { panic!("{:?}", sources.servers) };
    assert_ne!(*left, before.identity);
    // The metaserver knows where the call was.
    let placed = sources.placed.expect("its place");
    assert_eq!((placed.name, placed.address), ("a".to_owned(), before.identity.address.clone()));
    assert_eq!(grid.log_sources_of(number + 1).expect("servers").placed, None);
}

/// A pass for logs at the only server, as the metaserver gives it to the user of a token.
fn log_pass(fixture: &MetaWithUsers, token: &str) -> String {
    let mut meta = TcpStream::connect(fixture.meta.address).expect("the metaserver");
    meta.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
    let hello = ClientHello { token: token.to_owned(), ..ClientHello::default() };
    meta.write_all(&hello.encode()).expect("a hello");
    let mut head = [0; 16];
    meta.read_exact(&mut head).expect("its hello");
    let fields = u32::from_le_bytes([head[12], head[13], head[14], head[15]]);
    meta.read_exact(&mut vec![0; fields as usize]).expect("its fields");
    let latest_one = [5, 0, 0, 0, 1, 0, 0, 0, 216, 0, 0, 0, 1, 1, 0, 0, 0];
    meta.write_all(&latest_one).expect("a question");
    let mut header = [0; HEADER];
    meta.read_exact(&mut header).expect("an answer");
    let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
    let mut json = vec![0; length as usize];
    meta.read_exact(&mut json).expect("its body");
    let answer: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
    answer["servers"][0]["pass"].as_str().expect("a pass").to_owned()
}

fn showing(address: &str, pass: &str) -> Result<Client, CallError> {
    Client::connect(address, &Options { token: pass.to_owned(), ..Options::default() })
}

#[test]
fn a_pass_for_logs_is_taken_once() {
    let fixture = MetaWithUsers::new(|config| config.only_sent = true);
    let (token, address) = (fixture.token("ada"), fixture.server.address.to_string());
    let (first, second) = (log_pass(&fixture, &token), log_pass(&fixture, &token));
    assert_ne!(first, second);
    let client = showing(&address, &first).expect("it is new");
    assert_eq!(client.logs(&LogRequest::Latest(9)).expect("logs").calls, []);
    // Not even while the connection is there that has shown it.
    for _ in 0..2 {
        let used = showing(&address, &first).map(|_| ());
        let text = used.expect_err("it was used").to_string();
        assert!(text.contains("was used"), "{text}");
    }
    showing(&address, &second).expect("another is another");
}

#[test]
fn a_pass_for_a_call_shows_no_logs() {
    // Clients come to another address than the server's own, and tell a stranger their pass.
    let stranger = TcpListener::bind("127.0.0.1:0").expect("a port");
    let elsewhere = stranger.local_addr().expect("its address").to_string();
    let fixture = MetaWithUsers::new(|config| {
        config.only_sent = true;
        config.membership.iter_mut().for_each(|it| it.address.clone_from(&elsewhere));
    });
    let ada = fixture.grid("ada");
    let call = ada.call_async("noop", vec![], Some(Duration::from_secs(20))).expect("it begins");
    let (mut stream, _) = stranger.accept().expect("a client");
    let mut shown = vec![0; 512];
    let count = stream.read(&mut shown).expect("its hello");
    let shown = String::from_utf8_lossy(&shown[..count]).into_owned();
    let pass = &shown[shown.find("pass_").expect("a pass")..];
    let end = pass[5..].find(|c: char| !c.is_ascii_hexdigit()).map_or(pass.len(), |at| at + 5);
    let client = showing(&fixture.server.address.to_string(), &pass[..end]).expect("it is valid");
    let refused = client.logs(&LogRequest::Latest(9));
    assert!(matches!(refused, Err(CallError::NotPermitted(_))), "{refused:?}");
    drop((call, stream));
}

#[test]
fn a_pass_for_logs_that_is_shown_too_late_is_refused() {
    let fixture = MetaWithUsers::new(|config| config.log_pass_age = Duration::ZERO);
    let pass = log_pass(&fixture, &fixture.token("ada"));
    let late = showing(&fixture.server.address.to_string(), &pass).map(|_| ());
    let late = late.expect_err("its time is over");
    assert!(matches!(&late, CallError::Expired(_)), "{late:?}");
    assert!(late.to_string().contains("was not shown in time"), "{late}");
}

#[test]
fn a_connection_that_has_shown_a_pass_shows_logs_for_some_time_only() {
    let fixture = MetaWithUsers::new(|config| config.log_pass_time = Duration::ZERO);
    let ada = fixture.grid("ada");
    let sources = ada.log_sources().expect("servers");
    let late = sources.servers[0].client.logs(&LogRequest::Latest(9));
    let text = late.expect_err("its time is over").to_string();
    assert!(text.contains("expired"), "{text}");
    // Whoever needs no pass is not bounded.
    assert_eq!(fixture.server.client().logs(&LogRequest::Latest(9)).expect("logs").calls, []);
}
