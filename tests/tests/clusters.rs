//! Clusters coming up, being looked at, and going down without a trace.
#![forbid(unsafe_code)]

use kumi_tests::cluster::TestCluster;
use kumi_tests::{binaries, command, machine};
use nix::sys::signal::Signal;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

#[test]
fn going_down_leaves_nothing() {
    let mut cluster = TestCluster::up(3);
    let job = cluster.start(&["run", "-n", "6", "--nodes", "3", "--name", "x", "sleep", "600"]);
    cluster.wait_state("x", "running");
    assert!(!cluster.traces().is_empty(), "a running cluster has traces");
    cluster.down().ok();
    let done = job.finish();
    assert_ne!(done.code(), 0, "{done:?}");
    assert!(cluster.traces().is_empty(), "left behind: {:#?}", cluster.traces());
}

#[test]
fn going_down_cleans_up_after_killed_daemons() {
    let mut cluster = TestCluster::up(3);
    let job = cluster.start(&["run", "-n", "3", "--nodes", "3", "--name", "x", "sleep", "600"]);
    cluster.wait_state("x", "running");
    for daemon in ["head", "node-0", "node-1", "node-2"] {
        machine::signal(cluster.pid(daemon), Signal::SIGKILL);
    }
    cluster.down().ok();
    drop(job);
    assert!(cluster.traces().is_empty(), "left behind: {:#?}", cluster.traces());
}

#[test]
fn sixteen_nodes() {
    let mut cluster = TestCluster::up_with(16, &["--fan-out", "4"]);
    assert_eq!(cluster.nodes_up(), 16);
    let hello = binaries::path("hello").display().to_string();
    let out = cluster.kumi(&["run", "-n", "32", "--nodes", "16", &hello]).ok().out;
    assert_eq!(out.lines().count(), 32, "{out}");
    let script = "test $KUMI_RANK != 31 || exit 5; sleep 600";
    cluster
        .kumi(&["run", "-n", "32", "--nodes", "16", "sh", "-c", script])
        .fails(5, &["rank 31", "node15"]);
    cluster.down().ok();
    assert!(cluster.traces().is_empty(), "left behind: {:#?}", cluster.traces());
}

#[test]
fn status_shows_the_nodes() {
    let cluster = TestCluster::up_with(2, &["--slice", "20ms"]);
    let status = cluster.json(&["cluster", "status", "--json"]);
    assert_eq!(status["name"], cluster.name());
    assert_eq!(status["mode"], "gang");
    assert_eq!(status["slice_us"].as_f64(), Some(20_000.0), "{status}");
    let names: Vec<_> = status["nodes"].as_array().expect("nodes").iter().collect();
    assert_eq!(names.len(), 2);
    assert!(names.iter().all(|node| node["up"] == true), "{status}");
    let text = cluster.kumi(&["cluster", "status"]).ok().out;
    assert!(text.contains("node0") && text.contains("node1"), "{text}");
}

#[test]
fn the_doctor_and_the_views_answer() {
    let cluster = TestCluster::up(2);
    let doctor = cluster.json(&["doctor", "--json"]);
    // Clusters come up here, so the doctor finds that jobs can run, and what they need.
    assert_eq!(doctor["can_run"], true, "{doctor}");
    let checks = doctor["checks"].as_array().expect("checks");
    let daemon = checks.iter().find(|check| check["name"] == "the daemon kumid");
    assert!(daemon.is_some_and(|check| check["ok"] == true), "{doctor}");
    let top = cluster.kumi(&["top", "--once"]).ok().out;
    assert!(top.contains("node0"), "{top}");
    cluster.kumi(&["run", "--name", "seen", "true"]).ok();
    let jobs = cluster.kumi(&["ps", "--all"]).ok().out;
    assert!(jobs.contains("seen"), "{jobs}");
    let stats = cluster.kumi(&["stats"]).ok().out;
    for node in ["0", "1"] {
        let row = stats.lines().any(|line| line.split_whitespace().next() == Some(node));
        assert!(row, "no row of node {node}: {stats}");
    }
}

/// Copies the binaries to where every user may execute them.
fn copy_binaries(to: &Path) {
    for name in ["kumi", "kumid", "hello", "lockstep", "libkumi.so", "libkumi.so.0"] {
        std::fs::copy(binaries::path(name), to.join(name)).expect("a copy");
    }
}

#[test]
fn a_user_without_rights_has_a_cluster_on_loopback() {
    const TEST: &str = "a_user_without_rights_has_a_cluster_on_loopback";
    if !machine::is_root() {
        return kumi_skip::skip(TEST, "all other tests run as a user without rights already");
    }
    if !machine::has_command("setpriv") {
        return kumi_skip::skip(TEST, "setpriv is not installed");
    }
    let directory = tempfile::Builder::new().prefix("kumi-user-").tempdir().expect("a directory");
    let bin = directory.path().join("bin");
    let state = directory.path().join("state");
    std::fs::create_dir_all(&bin).expect("ours");
    std::fs::create_dir_all(&state).expect("ours");
    copy_binaries(&bin);
    let nobody = 65534;
    std::os::unix::fs::chown(&state, Some(nobody), Some(nobody)).expect("root may");
    for folder in [directory.path(), &bin] {
        std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o755)).expect("ours");
    }
    let kumi = |args: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command.arg(bin.join("kumi")).args(args).current_dir("/");
        command.env("KUMI_DIR", &state).env("KUMI_CLUSTER", "user").env("HOME", &state);
        command::run(command)
    };
    let up = kumi(&["cluster", "up", "--local", "2"]);
    let hello = bin.join("hello").display().to_string();
    let ran = kumi(&["run", "-n", "4", "--nodes", "2", &hello]);
    let lockstep = bin.join("lockstep").display().to_string();
    let args = ["run", "-n", "2", "--nodes", "2", &lockstep, "--seconds", "0.5"];
    let switched = kumi(&args);
    let id = kumi(&["run", "id", "-u"]);
    // Whatever happened, nothing stays.
    let down = kumi(&["cluster", "destroy", "--yes"]);
    up.ok();
    assert!(ran.ok().out.contains("hello from rank 3 of 4 on node 1"));
    switched.ok();
    assert_eq!(id.ok().out, "65534\n");
    down.ok();
    let word = state.display().to_string();
    assert!(machine::processes(&word).is_empty(), "{:?}", machine::processes(&word));
}

/// Two jobs that share two nodes, from up to down, in one shell of which `limits` takes rights away.
fn two_jobs_share_with(mut limits: Command) -> command::FinishedCommand {
    // Tests of one process run at the same time.
    static CLUSTERS: AtomicU32 = AtomicU32::new(0);
    let number = CLUSTERS.fetch_add(1, Ordering::Relaxed);
    let name = format!("l{}-{number}", std::process::id());
    let script = r#"
        set -e
        trap '"$KUMI" cluster destroy --yes' EXIT
        "$KUMI" cluster up --local 2 --slice 10ms
        "$KUMI" run -n 2 --nodes 2 "$LOCKSTEP" --seconds 1 &
        first=$!
        "$KUMI" run -n 2 --nodes 2 "$LOCKSTEP" --seconds 1
        wait $first
        "$KUMI" stats --json
        "$KUMI" cluster status
    "#;
    let state = tempfile::Builder::new().prefix("kumi-test-").tempdir().expect("a directory");
    limits.args(["sh", "-c", script]);
    limits.env("KUMI", binaries::path("kumi")).env("LOCKSTEP", binaries::path("lockstep"));
    limits.env("KUMI_DIR", state.path()).env("KUMI_CLUSTER", name);
    let done = command::run(limits);
    let word = state.path().display().to_string();
    assert!(machine::processes(&word).is_empty(), "{:?}", machine::processes(&word));
    done
}

#[test]
fn root_without_capabilities_has_a_cluster() {
    const TEST: &str = "root_without_capabilities_has_a_cluster";
    if !machine::is_root() || !machine::has_command("setpriv") {
        return kumi_skip::skip(TEST, "needs root and setpriv");
    }
    let mut limits = Command::new("setpriv");
    limits.args(["--bounding-set=-all", "--inh-caps=-all"]);
    let done = two_jobs_share_with(limits).ok();
    assert!(done.out.contains("127.0.0."), "loopback, for want of namespaces: {done:#?}");
    assert!(done.out.contains("no preference for the daemon"), "{done:#?}");
}

#[test]
fn without_cgroup_v2_jobs_are_stopped_by_signals() {
    const TEST: &str = "without_cgroup_v2_jobs_are_stopped_by_signals";
    let Some(mount) = machine::cgroup_mount().filter(|_| machine::has_namespaces()) else {
        return kumi_skip::skip(TEST, "needs cgroup v2 and the right to unmount it for itself");
    };
    let mut limits = Command::new("unshare");
    limits.args(["--mount", "sh", "-c", "umount -l \"$0\" && exec \"$@\""]).arg(&mount);
    let done = two_jobs_share_with(limits).ok();
    let json = done.out.find('{').map(|begin| &done.out[begin..]).unwrap_or_default();
    let mut values = serde_json::Deserializer::from_str(json).into_iter::<serde_json::Value>();
    let stats = values.next().and_then(Result::ok).expect("statistics");
    for node in stats["nodes"].as_array().expect("nodes") {
        assert!(node["switching"]["count"].as_u64() > Some(10), "{node}");
    }
}

#[test]
fn going_down_keeps_what_belongs_to_the_cluster() {
    let mut cluster = TestCluster::up(2);
    cluster.kumi(&["run", "--name", "first", "echo", "kept"]).ok();
    let down = cluster.kumi(&["cluster", "down"]).ok();
    assert!(down.out.contains("logs and configuration stay in"), "{down:?}");
    assert!(machine::processes(&cluster.path().display().to_string()).is_empty());
    assert!(machine::namespaces(&format!("kumi-{}-", cluster.name())).is_empty());
    // It may be repeated.
    cluster.kumi(&["cluster", "down"]).ok();
    cluster.kumi(&["cluster", "up"]).ok();
    assert_eq!(cluster.kumi(&["logs", "1"]).ok().out, "kept\n");
    cluster.kumi(&["run", "--name", "second", "true"]).ok();
    assert_eq!(cluster.job("second").expect("in the table")["job"], 2, "numbers go on");
    // Standard input is no terminal here.
    cluster.kumi(&["cluster", "destroy"]).fails(64, &["--yes"]);
    assert_eq!(cluster.nodes_up(), 2, "nothing was done");
    cluster.down().ok();
    assert!(cluster.traces().is_empty(), "left behind: {:#?}", cluster.traces());
}
