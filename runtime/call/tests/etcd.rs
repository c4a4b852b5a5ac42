//! Several metaservers with their state in etcd: the leader is killed, frozen, or cut off from etcd.
#![forbid(unsafe_code)]

mod common;
#[path = "common/etcd.rs"]
mod etcd;
#[path = "common/grid.rs"]
mod grid;

use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{TestServer, param, served_by};
use grid::{Meta, config, meta_at};
use kumi_call::meta::{Config, Etcd, LeaderState, ServerCondition, State};
use kumi_call::server::{Membership, Registry};
use kumi_call::{Arg, CallError, Grid, GridCall, Options};
use kumi_idl::{Element, Mode, Param, Type};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// It notes that it runs, and ends when a file appears.
const STAY: &str = r#"
#include <stdio.h>
#include <unistd.h>

void stay(const char *path)
{
    char name[4096];
    snprintf(name, sizeof name, "%s.runs", path);
    FILE *file = fopen(name, "a");
    if (file != NULL) {
        fputs("x", file);
        fclose(file);
    }
    while (access(path, F_OK) != 0) {
        usleep(1000);
    }
}
"#;

/// A set of metaservers: their addresses, and the address of etcd.
#[derive(Clone)]
struct Set {
    url: String,
    /// Seconds.
    lease: u64,
    addresses: Vec<SocketAddr>,
}

/// The configuration of the metaserver at this address.
fn of_set(url: &str, lease: u64, address: SocketAddr) -> Config {
    let mut config = config("round-robin");
    config.name = address.to_string();
    config.etcd = Some(Etcd {
        endpoints: vec![url.to_owned()],
        lease: Duration::from_secs(lease),
        advertise: address.to_string(),
        prefix: "/kumi/call".to_owned(),
        ..Etcd::default()
    });
    config
}

impl Set {
    fn new(etcd: &etcd::Server, count: usize) -> Set {
        Set { url: etcd.url(), lease: 4, addresses: (0..count).map(|_| grid::port()).collect() }
    }

    fn lasting(self, lease: u64) -> Set {
        Set { lease, ..self }
    }

    fn config(&self, at: usize) -> Config {
        of_set(&self.url, self.lease, self.addresses[at])
    }

    /// Starts one in this process.
    fn meta(&self, at: usize) -> Meta {
        meta_at(self.config(at), self.addresses[at])
    }

    fn all(&self) -> String {
        let all: Vec<String> = self.addresses.iter().map(SocketAddr::to_string).collect();
        all.join(",")
    }

    fn grid(&self) -> Grid {
        let options = Options { connect_time: Duration::from_secs(60), ..Options::default() };
        Grid::connect(&self.all(), &options).expect("a leader")
    }

    /// Starts a server that also offers `stay`.
    fn server(&self, name: &str) -> TestServer {
        let mut config = common::config();
        config.name = name.to_owned();
        config.slots = 1;
        config.membership = Some(Membership {
            metaservers: self.addresses.iter().map(SocketAddr::to_string).collect(),
            ..Membership::default()
        });
        let folder = tempfile::tempdir().expect("a folder");
        let mut registry = Registry::default();
        for interface in common::interfaces() {
            registry.add(interface, &[common::library()]).expect("a routine");
        }
        let path = Param { ty: Type::String, ..param("path", Mode::In, Element::I32, &[]) };
        let stay = common::compiled(folder.path(), "stay", STAY);
        registry.add(common::routine("stay", vec![path]), &[stay]).expect("a routine");
        let mut server = served_by(config, registry);
        server.keep(folder);
        server
    }

    /// Waits until the leader's state satisfies the condition.
    fn until(&self, what: &str, is: impl Fn(&State, &LeaderState) -> bool) -> State {
        let begin = Instant::now();
        loop {
            let grid = Grid::connect(&self.all(), &Options::default());
            let state = grid.and_then(|grid| grid.status());
            if let Ok(state) = &state
                && is(state, state.leader.as_ref().expect("one of several"))
            {
                return state.clone();
            }
            assert!(begin.elapsed() < Duration::from_secs(120), "{what} does not come: {state:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn until_servers(&self, count: usize) -> State {
        self.until("a server", |state, _| {
            state.servers.iter().filter(|server| server.state == ServerCondition::Up).count()
                == count
        })
    }

    /// Waits until that metaserver leads.
    fn until_leads(&self, at: usize) {
        let address = self.addresses[at].to_string();
        self.until("a leader", |_, leader| leader.leading && leader.address == address);
    }
}

fn nap(grid: &Grid, ms: i32) -> GridCall {
    grid.call_async("nap", vec![ms.into()], None).expect("it begins")
}

const CHILD: &str = "KUMI_TEST_ETCD";

/// A metaserver process, ended when this is dropped.
struct Process(Child);

#[test]
fn a_metaserver_of_its_own() {
    if let Ok(how) = std::env::var(CHILD) {
        let (url, address) = how.split_once(' ').expect("two words");
        let address = address.parse().expect("an address");
        let _meta = meta_at(of_set(url, 4, address), address);
        std::thread::sleep(Duration::from_secs(600));
    }
}

impl Process {
    fn start(set: &Set, at: usize) -> Process {
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(std::env::current_exe().expect("this test"))
            .args(["--exact", "a_metaserver_of_its_own"])
            .env(CHILD, format!("{} {}", set.url, set.addresses[at]))
            .stdout(Stdio::null())
            .spawn();
        Process(child.expect("a metaserver"))
    }

    /// The process may go on for a moment.
    fn signal(&self, signal: Signal) {
        let id = Pid::from_raw(i32::try_from(self.0.id()).expect("a process"));
        kill(id, signal).expect("a signal");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _dead = self.0.kill();
        let _dead = self.0.wait();
    }
}

/// Running and waiting calls go on at the next leader, and each runs once.
fn take_over(set: &Set, stop: impl FnOnce()) {
    let grid = set.grid();
    let folder = tempfile::tempdir().expect("a folder");
    let end = folder.path().join("end");
    grid.call("noop", vec![]).expect("it runs");
    set.until("its end", |state, _| state.counters.done == 1 && state.running == 0);
    let path = Arg::Text(end.to_str().expect("a text").to_owned().into());
    let mut runs = grid.call_async("stay", vec![path], None).expect("it begins");
    // Its client was told the place, so the place is stored.
    set.until("a call that runs", |state, _| state.servers.iter().any(|it| it.running == 1));
    let mut waits = nap(&grid, 1);
    set.until("a call that waits", |state, _| state.waiting == 1);
    stop();
    set.until_leads(1);
    // The running call is known and keeps its slot, so the other goes on waiting.
    set.until("both calls", |state, _| {
        let runs =
            state.servers.iter().any(|it| it.state == ServerCondition::Up && it.in_flight == 1);
        runs && (state.running, state.waiting) == (1, 1)
    });
    assert!(!runs.is_over() && !waits.is_over());
    std::fs::write(&end, "").expect("written");
    runs.wait(&|| false).expect("it runs to its end");
    waits.wait(&|| false).expect("it runs too");
    let state = set.until("both ends", |state, _| {
        (state.running, state.waiting, state.counters.done) == (0, 0, 2)
    });
    assert_eq!((state.counters.placed, state.counters.failed), (1, 0), "{state:?}");
    let times = std::fs::read_to_string(end.with_extension("runs")).expect("it has run");
    assert_eq!(times, "x");
    grid.call("noop", vec![]).expect("it runs");
}

#[test]
fn one_leads_and_the_others_say_so() {
    if !etcd::is_there() {
        return;
    }
    let etcd = etcd::started(&[]);
    let set = Set::new(&etcd, 2);
    let mut first = set.meta(0);
    set.until_leads(0);
    let second = set.meta(1);
    let _server = set.server("a");
    set.until_servers(1);
    // A client of a follower is sent to the leader.
    let only = Grid::connect(&set.addresses[1].to_string(), &Options::default());
    let only = only.expect("the leader");
    only.call("noop", vec![]).expect("it runs");
    assert_eq!(only.server(), set.addresses[0].to_string());
    let direct = kumi_call::Client::connect(&second.address.to_string(), &Options::default());
    match direct {
        Err(error @ CallError::NotLeading { .. }) => {
            assert!(error.to_string().contains(&set.addresses[0].to_string()), "{error}");
            assert!(error.has_not_run());
        }
        other => panic!("{other:?}"),
    }
    // What the call told of its path comes after its result.
    let before = set.until("the call's path", |state, _| state.paths.len() == 1);
    let leader = before.leader.expect("one of several");
    assert!(leader.requests > 0 && leader.errors == 0 && leader.mean > 0.0, "{leader:?}");
    // A metaserver that is asked to end hands over at once, with its whole state.
    first.stop();
    set.until_leads(1);
    let after = set.until_servers(1);
    assert_eq!(after.paths.len(), before.paths.len());
    set.grid().call("noop", vec![]).expect("it runs");
}

/// Two metaservers, the first leading in a process of its own, and a server.
fn led_by_a_process(etcd: &etcd::Server) -> (Set, Process, (Meta, TestServer)) {
    let set = Set::new(etcd, 2);
    let first = Process::start(&set, 0);
    set.until_leads(0);
    let others = (set.meta(1), set.server("a"));
    set.until_servers(1);
    (set, first, others)
}

#[test]
fn when_the_leader_is_killed_another_goes_on() {
    if !etcd::is_there() {
        return;
    }
    let etcd = etcd::started(&[]);
    let (set, first, _others) = led_by_a_process(&etcd);
    take_over(&set, || first.signal(Signal::SIGKILL));
}

/// Waits until one metaserver names the other as leader.
fn until_names(set: &Set, one: usize, other: usize) {
    let begin = Instant::now();
    let address = set.addresses[one].to_string();
    loop {
        match kumi_call::Client::connect(&address, &Options::default()) {
            Err(CallError::NotLeading { leader }) if !leader.is_empty() => {
                assert_eq!(leader, set.addresses[other].to_string());
                return;
            }
            Err(_) => {}
            Ok(client) => panic!("{client:?}"),
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "it does not find the leader");
    }
}

#[test]
fn a_leader_that_was_frozen_grants_nothing() {
    if !etcd::is_there() {
        return;
    }
    let etcd = etcd::started(&[]);
    let (set, first, _others) = led_by_a_process(&etcd);
    take_over(&set, || first.signal(Signal::SIGSTOP));
    first.signal(Signal::SIGCONT);
    // It notices at once that it does not lead, and names the leader.
    until_names(&set, 0, 1);
    set.grid().call("noop", vec![]).expect("it runs");
}

#[test]
fn calls_wait_while_etcd_is_away() {
    if !etcd::is_there() {
        return;
    }
    let mut etcd = etcd::started(&[]);
    // The lease lasts, and its end shows, only long after calls are refused.
    let set = Set::new(&etcd, 1).lasting(60);
    let _meta = set.meta(0);
    let _server = set.server("a");
    set.until_servers(1);
    let grid = set.grid();
    grid.call("noop", vec![]).expect("it runs");
    etcd.kill();
    let mut waits = nap(&grid, 1);
    // Connected clients learn why no more calls are accepted.
    let begin = Instant::now();
    loop {
        match grid.call_within("noop", vec![], Some(Duration::from_secs(1))) {
            Err(CallError::Busy(text)) => {
                assert!(text.contains("etcd"), "{text}");
                break;
            }
            other => assert!(begin.elapsed() < Duration::from_secs(50), "{other:?}"),
        }
    }
    assert!(!waits.is_over(), "its place is not kept, so it is not told");
    etcd.start();
    waits.wait(&|| false).expect("it runs when etcd is back");
    set.grid().call("noop", vec![]).expect("it runs");
    // The same over a short absence, which costs only time.
    etcd.freeze();
    let mut waits = nap(&grid, 1);
    std::thread::sleep(Duration::from_millis(300));
    assert!(!waits.is_over());
    etcd.thaw();
    waits.wait(&|| false).expect("it runs when etcd goes on");
}

#[test]
fn a_lone_metaserver_comes_back_with_etcd() {
    if !etcd::is_there() {
        return;
    }
    let mut etcd = etcd::started(&[]);
    let set = Set::new(&etcd, 1).lasting(2);
    let _meta = set.meta(0);
    let _server = set.server("a");
    set.until_servers(1);
    let grid = set.grid();
    grid.call("noop", vec![]).expect("it runs");
    etcd.kill();
    let begin = Instant::now();
    loop {
        let options = Options { connect_time: Duration::from_secs(1), ..Options::default() };
        match Grid::connect(&set.all(), &options) {
            Err(CallError::NotLeading { leader }) if leader.is_empty() => break,
            _ => assert!(begin.elapsed() < Duration::from_secs(60), "it goes on leading"),
        }
    }
    // Connected clients do not wait for a deposed leader.
    loop {
        match grid.call_within("noop", vec![], Some(Duration::from_secs(1))) {
            Err(CallError::NotLeading { leader }) if leader.is_empty() => break,
            other => assert!(begin.elapsed() < Duration::from_secs(60), "{other:?}"),
        }
    }
    etcd.start();
    set.until_servers(1);
    grid.call("noop", vec![]).expect("it leads again");
}

/// etcd is reachable for the others, and not for the leader.
#[test]
fn a_leader_that_is_cut_off_from_etcd_lets_go_of_servers_and_calls() {
    if !etcd::is_there() {
        return;
    }
    let etcd = etcd::started(&[]);
    let relay = etcd::Relay::to(&etcd);
    let set = Set::new(&etcd, 2);
    let cut = Set { url: relay.url(), ..set.clone() };
    let _first = cut.meta(0);
    set.until_leads(0);
    let (_second, _server) = (set.meta(1), set.server("a"));
    set.until_servers(1);
    take_over(&set, || relay.cut());
    relay.mend();
    until_names(&set, 0, 1);
}

#[test]
fn a_metaserver_that_may_not_read_the_state_tries_again() {
    if !etcd::is_there() || !etcd::has_control() {
        return;
    }
    let etcd = etcd::started(&[]);
    let set = Set::new(&etcd, 1);
    let pages = Arc::new(TcpListener::bind(("127.0.0.1", 0)).expect("a port"));
    let page = pages.local_addr().expect("its address");
    let mut config = set.config(0);
    config.http = Some(pages);
    let settings = config.etcd.as_mut().expect("etcd");
    (settings.user, settings.password) = ("kumi".to_owned(), "secret".to_owned());
    for command in [
        "user add root:secret",
        "user grant-role root root",
        "user add kumi:secret",
        "role add kumi",
        "role grant-permission kumi readwrite /kumi/call/leader",
        "role grant-permission kumi readwrite /kumi/call/numbers",
        "user grant-role kumi kumi",
        "auth enable",
    ] {
        let words: Vec<&str> = command.split(' ').collect();
        assert!(etcd.control(&words) || command.starts_with("user grant-role root"), "{command}");
    }
    let _meta = meta_at(config, set.addresses[0]);
    let begin = Instant::now();
    while !grid::try_get(page, "/status.json").is_ok_and(|state| state.contains("etcd refuses")) {
        assert!(begin.elapsed() < Duration::from_secs(60), "nobody is told");
        std::thread::sleep(Duration::from_millis(20));
    }
    let more = "--user root:secret role grant-permission kumi readwrite --prefix=true /kumi/call/";
    let words: Vec<&str> = more.split(' ').collect();
    assert!(etcd.control(&words));
    let _server = set.server("a");
    set.until_servers(1);
    set.grid().call("noop", vec![]).expect("it leads");
}

#[test]
fn a_metaserver_that_came_before_etcd_takes_calls() {
    if !etcd::is_there() {
        return;
    }
    let mut etcd = etcd::started(&[]);
    let set = Set::new(&etcd, 1);
    etcd.kill();
    let pages = Arc::new(TcpListener::bind(("127.0.0.1", 0)).expect("a port"));
    let page = pages.local_addr().expect("its address");
    let _meta = meta_at(Config { http: Some(pages), ..set.config(0) }, set.addresses[0]);
    let begin = Instant::now();
    while !grid::try_get(page, "/status.json").is_ok_and(|state| state.contains("does not answer"))
    {
        assert!(begin.elapsed() < Duration::from_secs(60), "it does not miss etcd");
        std::thread::sleep(Duration::from_millis(20));
    }
    etcd.start();
    let _server = set.server("a");
    let state = set.until_servers(1);
    // No write has failed yet, so nothing shows the error.
    assert_eq!(state.leader.expect("one of several").trouble, "");
    set.grid().call("noop", vec![]).expect("what was wrong before is no reason to refuse it");
}

#[test]
fn a_full_etcd_is_told() {
    if !etcd::is_there() || !etcd::has_control() {
        return;
    }
    let etcd = etcd::started(&["--quota-backend-bytes", "1048576"]);
    let set = Set::new(&etcd, 1);
    let _meta = set.meta(0);
    let _server = set.server("a");
    set.until_servers(1);
    let grid = set.grid();
    grid.call("noop", vec![]).expect("it runs");
    // Until it is full.
    let text = "x".repeat(100_000);
    let mut number = 0;
    while etcd.control(&["put", &format!("filler{number}"), &text]) {
        number += 1;
        assert!(number < 1000, "it is never full");
    }
    let mut waits = nap(&grid, 1);
    let state = set.until("trouble", |_, leader| !leader.trouble.is_empty());
    let leader = state.leader.expect("one of several");
    assert!(leader.leading && leader.trouble.contains("space"), "{leader:?}");
    assert_eq!((leader.unkept, waits.is_over()), (1, false));
    assert!(etcd.control(&["del", "--prefix", "filler"]));
    let output = Command::new("etcdctl")
        .env("ETCDCTL_API", "3")
        .args(["--endpoints", &etcd.url(), "endpoint", "status", "-w", "json"])
        .output()
        .expect("etcdctl");
    let text = String::from_utf8(output.stdout).expect("text");
    let status: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let revision = status[0]["Status"]["header"]["revision"].as_u64().expect("a revision");
    assert!(etcd.control(&["compact", &revision.to_string()]));
    assert!(etcd.control(&["defrag"]));
    assert!(etcd.control(&["alarm", "disarm"]));
    waits.wait(&|| false).expect("it runs when there is space");
}
