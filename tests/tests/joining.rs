//! New machines become nodes with a token: their keys are made there.
#![forbid(unsafe_code)]

use kumi_tests::cluster::TestCluster;
use kumi_tests::command::{self, FinishedCommand, RunningCommand};
use kumi_tests::disk::SmallDisk;
use kumi_tests::terminal::TestTerminal;
use kumi_tests::{binaries, machine};
use nix::sys::signal::Signal;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};

/// Two machines: network namespaces with a link between them, which go with the value.
struct TwoMachines([String; 2]);

/// The address of a machine, which is nobody's outside.
const ADDRESSES: [&str; 2] = ["10.88.9.1", "10.88.9.2"];

fn ip(line: &str) -> FinishedCommand {
    let mut command = Command::new("ip");
    command.args(line.split(' '));
    command::run(command)
}

impl TwoMachines {
    fn new() -> Self {
        let machines =
            Self(["a", "b"].map(|side| format!("kumi-join{}-{side}", std::process::id())));
        let [a, b] = &machines.0;
        for name in [a, b] {
            ip(&format!("netns add {name}")).ok();
            ip(&format!("-n {name} link set lo up")).ok();
        }
        ip(&format!("link add wire netns {a} type veth peer name wire netns {b}")).ok();
        for (name, address) in [a, b].into_iter().zip(ADDRESSES) {
            ip(&format!("-n {name} address add {address}/24 dev wire")).ok();
            ip(&format!("-n {name} link set wire up")).ok();
        }
        machines
    }

    /// The same command on one of them.
    fn on(&self, index: usize, own: &Command) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.0[index]));
        command.arg(own.get_program()).args(own.get_args());
        for (name, value) in own.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }
}

impl Drop for TwoMachines {
    fn drop(&mut self) {
        for name in &self.0 {
            let removed = Command::new("ip").args(["netns", "del", name]).status();
            if !removed.is_ok_and(|status| status.success()) {
                eprintln!("the network namespace {name} is left");
            }
        }
    }
}

/// A cluster of this host, not up. Jobs of root run.
fn made(line: &str) -> TestCluster {
    let cluster = TestCluster::prepare();
    let file = cluster.state().join("hosts");
    std::fs::write(&file, format!("{line} cpus=0 users=any,0\n")).expect("our file");
    cluster.kumi(&["cluster", "init", "--hosts", &file.display().to_string()]).ok();
    let path = cluster.path().join("cluster.toml");
    let text = std::fs::read_to_string(&path).expect("cluster.toml");
    let mut table: toml::Table = text.parse().expect("TOML");
    table.insert("root_jobs".to_owned(), true.into());
    std::fs::write(&path, toml::to_string(&table).expect("TOML")).expect("our file");
    cluster
}

/// The token in what the command said.
#[track_caller]
fn token(said: &str) -> String {
    assert!(said.contains("\n  kumi cluster join -\n"), "no argument has the token: {said}");
    let mut words = said.split_whitespace();
    words.find(|word| word.starts_with("kumi-join-")).expect("a token").to_owned()
}

/// `kumi cluster join TOKEN` of a machine whose clusters are in this folder.
fn join(folder: &Path, token: &str) -> Command {
    let mut command = Command::new(binaries::path("kumi"));
    command.args(["cluster", "join", token]).env("KUMI_DIR", folder).env_remove("KUMI_CLUSTER");
    command
}

fn folder_of(cluster: &TestCluster, machine: &str) -> PathBuf {
    let folder = cluster.state().join(machine);
    std::fs::create_dir_all(&folder).expect("our directory");
    folder
}

fn daemon(folder: &Path, cluster: &TestCluster, node: u32) -> Command {
    let mut command = Command::new(binaries::path("kumid"));
    command.args(["node", "--node", &node.to_string(), "--cluster-dir"]);
    command.arg(folder.join(cluster.name()));
    command
}

#[test]
fn a_new_machine_joins_and_runs_jobs() {
    let test = "a_new_machine_joins_and_runs_jobs";
    if !machine::has_namespaces() || !machine::has_command("ip") {
        return kumi_skip::skip(test, "there are no network namespaces");
    }
    let machines = TwoMachines::new();
    let mut cluster = made(&format!("alpha {}", ADDRESSES[0]));
    cluster.up_by(|own| machines.on(0, own)).ok();
    let add = ["node", "add", "beta", "--address", ADDRESSES[1], "--cpus", "0", "--token"];
    let said = cluster.kumi(&add).ok().out;
    assert!(said.contains("beta is node 1") && said.contains("within 1d00h"), "{said}");
    let token = token(&said);
    let (new, other) = (folder_of(&cluster, "new"), folder_of(&cluster, "other"));
    let said = command::run(machines.on(1, &join(&new, &token))).ok();
    assert!(said.out.starts_with("this machine is beta now, node 1 of the cluster"), "{said:?}");
    assert_eq!(said.err, "", "it has the address");
    // Its key was made there, is its owner's only, and is nowhere else.
    let key = new.join(cluster.name()).join("tls/node-1.key");
    let mode = std::fs::metadata(key).expect("a key").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(!cluster.path().join("tls/node-1.key").exists());
    // A second time here, and elsewhere.
    command::run(machines.on(1, &join(&new, &token)))
        .fails(73, &["already", "kumi cluster destroy"]);
    command::run(machines.on(1, &join(&other, &token))).fails(77, &["has been used"]);
    assert!(!other.join(cluster.name()).exists(), "nothing is left of that");

    let joined = RunningCommand::start(machines.on(1, &daemon(&new, &cluster, 1)));
    command::wait_for("2 nodes", || (cluster.nodes_up() == 2).then_some(()));
    let both = ["run", "-n", "2", "--nodes", "2", "sh", "-c", "echo rank $KUMI_RANK"];
    let out = cluster.kumi(&both).ok().out;
    assert!(out.contains("rank 0") && out.contains("rank 1"), "{out}");
    cluster.kumi(&["cluster", "token", "beta"]).fails(75, &["beta is up"]);
    machine::signal(joined.pid(), Signal::SIGTERM);
    joined.finish();
    command::run(machines.on(0, &cluster.command(&["cluster", "destroy", "--yes"]))).ok();
}

/// Addresses of loopback that no other test has, so that all of their ports are free.
fn own_addresses() -> [String; 2] {
    static TAKEN: AtomicU8 = AtomicU8::new(0);
    let [.., high, low] = (std::process::id() % 60_000).to_be_bytes();
    [(); 2].map(|()| {
        let last = TAKEN.fetch_add(1, Ordering::Relaxed) + 1;
        format!("127.{}.{low}.{last}", high.max(1))
    })
}

/// A cluster on this machine, up, and the address of another machine.
fn up() -> (TestCluster, String) {
    let [address, other] = own_addresses();
    let mut cluster = made(&format!("alpha {address}"));
    cluster.try_up_as_it_is().ok();
    (cluster, other)
}

#[test]
fn who_may_not_join_is_told() {
    let (cluster, address) = up();
    let add = ["node", "add", "late", "--address", &address, "--token", "--valid"];
    cluster.kumi(&[&add[..], &["1s"]].concat()).fails(64, &["one minute"]);
    let first = token(&cluster.kumi(&[&add[..], &["2h"]].concat()).ok().out);
    let second = token(&cluster.kumi(&["cluster", "token", "late"]).ok().out);
    let new = folder_of(&cluster, "new");
    for (wrong, code, words) in [
        ("lab", 64, "no token"),
        (&second[..second.len() - 4], 64, "not whole"),
        (&*first, 77, "does not know this token"),
    ] {
        command::run(join(&new, wrong)).fails(code, &[words]);
    }
    cluster.kumi(&["cluster", "token", "nobody"]).fails(64, &["no node nobody"]);
    if machine::is_root() && machine::has_command("setpriv") {
        cluster.open_to_others();
        cluster.run_as_other(&["cluster", "token", "late"]).fails(77, &["owner"]);
    }
    // From standard input, where no list of processes shows it.
    let mut joining = RunningCommand::start(join(&new, "-"));
    joining.write(&format!("{second}\n"));
    let said = joining.finish().ok().out;
    assert!(said.contains("this machine is late now"), "{said}");
    // From a terminal, which does not show it.
    let third = token(&cluster.kumi(&["cluster", "token", "late"]).ok().out);
    let mut typed = TestTerminal::start(&join(&folder_of(&cluster, "typed"), "-"));
    typed.wait_text("paste the token and press Enter");
    typed.type_keys(&format!("{third}\r"));
    typed.wait_text("this machine is late now");
    assert!(typed.finish().success() && typed.is_cooked());
    assert!(!typed.screen().contains("kumi-join-"), "{}", typed.screen());
    let mut left = TestTerminal::start(&join(&folder_of(&cluster, "left"), "-"));
    left.wait_text("paste the token");
    left.type_keys("kumi-j\u{3}");
    assert_eq!(left.finish().code(), Some(130));
    assert!(left.is_cooked());
    // A removed node's token counts no more.
    cluster.kumi(&["node", "remove", "late"]).ok();
    let other = folder_of(&cluster, "other");
    command::run(join(&other, &third)).fails(77, &[]);
    // The head is away.
    machine::signal(cluster.pid("head"), Signal::SIGKILL);
    command::run(join(&other, &second)).fails(69, &["does not answer"]);
    cluster.kumi(&["cluster", "up"]).ok();
}

/// Whoever has the key of a revoked node has its token, too.
#[test]
fn a_revoked_node_needs_a_new_token() {
    let (cluster, address) = up();
    let add = ["node", "add", "late", "--address", &address, "--token"];
    let first = token(&cluster.kumi(&add).ok().out);
    let new = folder_of(&cluster, "new");
    // Not used yet.
    cluster.kumi(&["cluster", "revoke", "late"]).ok();
    command::run(join(&new, &first)).fails(77, &["does not know this token", "revoked"]);
    let second = token(&cluster.kumi(&["cluster", "token", "late"]).ok().out);
    // A umask that lets everybody write everywhere gives nobody else the folder of keys.
    let mut open = Command::new("sh");
    open.args(["-c", "umask 0; exec \"$@\"", "sh"]).arg(binaries::path("kumi"));
    open.args(["cluster", "join", &second]).env("KUMI_DIR", &new).env_remove("KUMI_CLUSTER");
    command::run(open).ok();
    let keys = std::fs::metadata(new.join(cluster.name()).join("tls")).expect("a folder");
    assert_eq!(keys.permissions().mode() & 0o022, 0);
    // The machine that has the key asks again, as one that got no answer does.
    let files = new.join(cluster.name());
    std::fs::rename(files.join("tls/node-1.key"), files.join("tls/joining.key")).expect("a key");
    std::fs::remove_file(files.join("cluster.toml")).expect("a file");
    command::run(join(&new, &second)).ok();
    std::fs::rename(files.join("tls/node-1.key"), files.join("tls/joining.key")).expect("a key");
    std::fs::remove_file(files.join("cluster.toml")).expect("a file");
    cluster.kumi(&["cluster", "revoke", "late"]).ok();
    command::run(join(&new, &second)).fails(77, &["does not know this token"]);
    let third = token(&cluster.kumi(&["cluster", "token", "late"]).ok().out);
    command::run(join(&new, &third)).ok();
}

#[test]
fn a_full_disk_costs_no_token() {
    let (cluster, address) = up();
    let token =
        token(&cluster.kumi(&["node", "add", "late", "--address", &address, "--token"]).ok().out);
    let folder = cluster.state().join("small");
    let Some(disk) = SmallDisk::mount("a_full_disk_costs_no_token", &folder, 16) else { return };
    let filler = disk.path().join("filler");
    let full = std::fs::write(&filler, [0; 64 << 10]).expect_err("it is small");
    assert_eq!(full.raw_os_error(), Some(nix::libc::ENOSPC));
    command::run(join(disk.path(), &token)).fails(74, &["No space left"]);
    std::fs::remove_file(&filler).expect("our file");
    // Its own key fits, and what the head sends does not.
    std::fs::write(&filler, [0; 4 << 10]).expect("room");
    command::run(join(disk.path(), &token)).fails(74, &["No space left"]);
    disk.resize(256);
    command::run(join(disk.path(), &token)).ok();
    assert!(disk.path().join(cluster.name()).join("cluster.toml").exists());
}
