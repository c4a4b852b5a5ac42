//! Daemons under a service manager, on hosts that may not have their addresses yet, and words for who looks while the head
//! is away.
#![forbid(unsafe_code)]

use kumi_tests::cluster::TestCluster;
use kumi_tests::command::{self, PATIENCE, RunningCommand};
use kumi_tests::{binaries, machine};
use nix::sys::signal::Signal;
use std::os::unix::net::UnixDatagram;
use std::process::Command;

/// What a service manager hears.
struct Manager {
    folder: tempfile::TempDir,
    socket: UnixDatagram,
}

impl Manager {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = UnixDatagram::bind(folder.path().join("notify")).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        Self { folder, socket }
    }

    /// The next message.
    #[track_caller]
    fn hears(&self) -> String {
        let mut buffer = [0; 4_096];
        let length = self.socket.recv(&mut buffer).expect("the daemon says something");
        String::from_utf8(buffer[..length].to_vec()).expect("text")
    }

    /// The message that has this word; others before it are passed over.
    #[track_caller]
    fn hears_of(&self, word: &str) -> String {
        loop {
            let message = self.hears();
            if message.contains(word) {
                return message;
            }
        }
    }

    /// Starts a daemon of the cluster as a service.
    fn start(&self, cluster: &TestCluster, before: &[&str], daemon: &[&str]) -> RunningCommand {
        let kumid = binaries::path("kumid").display().to_string();
        let words: Vec<&str> = before.iter().copied().chain([kumid.as_str()]).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).args(daemon).arg("--cluster-dir").arg(cluster.path());
        command.env("NOTIFY_SOCKET", self.folder.path().join("notify"));
        RunningCommand::start(command)
    }
}

/// A cluster of these hosts, made and not started, and what the command said.
#[track_caller]
fn made(hosts: &str) -> (TestCluster, String) {
    let cluster = TestCluster::prepare();
    let file = cluster.state().join("hosts");
    std::fs::write(&file, hosts).expect("our folder");
    let made = cluster.kumi(&["cluster", "init", "--hosts", &file.display().to_string()]);
    let said = made.ok().out;
    (cluster, said)
}

/// Ports of loopback.
fn ports<const N: usize>() -> [u16; N] {
    [(); N].map(|()| machine::free_port("127.0.0.1"))
}

/// Gives the head another port than the usual one, which other tests may use.
fn move_head(cluster: &TestCluster, port: u16) {
    let path = cluster.path().join("cluster.toml");
    let text = std::fs::read_to_string(&path).expect("cluster.toml");
    let mut table: toml::Table = text.parse().expect("TOML");
    table.insert("head".to_owned(), format!("127.0.0.1:{port}").into());
    std::fs::write(&path, table.to_string()).expect("our file");
}

fn stop(daemon: RunningCommand) {
    machine::signal(daemon.pid(), Signal::SIGTERM);
    daemon.finish().ok();
}

#[test]
fn a_service_says_when_it_is_ready_and_when_it_stops() {
    let [head, node] = ports();
    let (cluster, _) = made(&format!("alpha 127.0.0.1:{node}\n"));
    move_head(&cluster, head);
    let manager = Manager::new();
    let head = manager.start(&cluster, &[], &["head"]);
    manager.hears_of("STATUS=the head of ");
    manager.hears_of("READY=1");
    let node = manager.start(&cluster, &[], &["node", "--node", "0"]);
    manager.hears_of("STATUS=node 0 listens on 127.0.0.1:");
    manager.hears_of("READY=1");
    manager.hears_of("STATUS=node 0 is attached to the head");
    // Somebody starts it once more.
    let second = cluster.start_daemon(0, &["node", "--node", "0"]);
    let process = node.pid().to_string();
    second.finish().fails(73, &["runs already", &process, "kumi cluster down"]);
    stop(node);
    manager.hears_of("STOPPING=1");
    stop(head);
    manager.hears_of("STOPPING=1");
}

/// While a machine boots, its addresses come late.
#[test]
fn a_daemon_waits_for_the_address_of_its_machine() {
    const TEST: &str = "a_daemon_waits_for_the_address_of_its_machine";
    if !machine::has_namespaces() {
        return kumi_skip::skip(TEST, "needs network namespaces");
    }
    let (cluster, said) = made("alpha 10.88.7.1\nbeta 10.88.7.2\n");
    // Neither is this machine.
    for line in [
        "  beta, to /var/lib/kumi/",
        ": cluster.toml tls/ca.pem tls/node-1.pem tls/node-1.key\n",
        "  alpha: systemctl enable --now kumid-head.service kumid-node@0.service\n",
        "  beta: systemctl enable --now kumid-node@1.service\n",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let name = format!("kumi-boot-{}", std::process::id());
    let ip = |args: &[&str]| {
        let mut command = Command::new("ip");
        command.args(args);
        command::run(command)
    };
    ip(&["netns", "add", &name]).ok();
    // Without any address a namespace takes every one for its own.
    ip(&["-n", &name, "link", "set", "lo", "up"]).ok();
    let manager = Manager::new();
    let within = ["ip", "netns", "exec", &name];
    let mut daemon = manager.start(&cluster, &within, &["head"]);
    let waits = manager.hears();
    let there = ip(&["-n", &name, "address", "add", "10.88.7.1/32", "dev", "lo"]);
    let ready = waits.contains("STATUS=waiting for the address 10.88.7.1").then(|| {
        assert!(daemon.runs());
        manager.hears_of("READY=1")
    });
    machine::signal(daemon.pid(), Signal::SIGTERM);
    let done = daemon.finish();
    ip(&["netns", "del", &name]).ok();
    there.ok();
    assert!(ready.is_some(), "{waits}");
    assert!(done.ok().err.contains("waiting for the address 10.88.7.1"));
}

#[test]
fn whoever_looks_while_the_head_is_away_is_told() {
    let [head, node] = ports();
    let (cluster, _) = made(&format!("alpha 127.0.0.1:{node}\nbeta 192.0.2.7\n"));
    move_head(&cluster, head);
    let manager = Manager::new();
    let node = manager.start(&cluster, &[], &["node", "--node", "0"]);
    manager.hears_of("READY=1");
    let status = || cluster.kumi(&["cluster", "status"]);
    let never = "has not heard of it since its own daemon started";
    status().fails(75, &["cannot be reached", never, "systemctl status kumid-head"]);
    let head = manager.start(&cluster, &[], &["head"]);
    manager.hears_of("STATUS=node 0 is attached to the head");
    let seen = command::wait_for("the node to join", || {
        let seen = status().ok().out;
        seen.contains("1 of 2 nodes up").then_some(seen)
    });
    let back = "`systemctl restart kumid-node@1` starts it";
    assert!(
        seen.contains("beta is down. On its host (192.0.2.7)") && seen.contains(back),
        "{seen}"
    );
    cluster.kumi(&["cluster", "up"]).fails(73, &["are up already", "beta is down", back]);
    machine::signal(head.pid(), Signal::SIGKILL);
    head.finish();
    let heard = &["cannot be reached", "this node last heard of it ", " s ago"];
    status().fails(75, heard);
    cluster.kumi(&["run", "true"]).fails(75, heard);
    stop(node);
    // Nothing is left that could say more.
    status().fails(69, &["no daemon of the cluster", "systemctl start kumid-head kumid-node@0"]);
}
