//! Programs of the administrator at each node: before and after jobs, and whether the node is in order.
#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use kumi_tests::cluster::TestCluster;
use kumi_tests::command::wait_for;
use serde_json::Value;

/// A program with this text, below the cluster's folder.
fn program(cluster: &TestCluster, name: &str, text: &str) -> PathBuf {
    let path = cluster.state().join(name);
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).expect("our own folder");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("our own file");
    path
}

/// A cluster of two nodes with these tables in cluster.toml. The text is made once the cluster's folder is known.
#[track_caller]
fn cluster_with(tables: impl FnOnce(&TestCluster) -> String) -> TestCluster {
    let mut cluster = TestCluster::prepare();
    cluster.kumi(&["cluster", "init", "--local", "2", "--cpus", "per-node"]).ok();
    let path = cluster.path().join("cluster.toml");
    let text = fs::read_to_string(&path).expect("cluster.toml");
    fs::write(&path, format!("{text}\n{}", tables(&cluster))).expect("our own file");
    cluster.try_up_as_it_is().ok();
    cluster
}

fn hooks(prolog: &Path, epilog: &Path) -> String {
    format!("[hooks]\nprolog = {prolog:?}\nepilog = {epilog:?}\n")
}

/// Who drained a node and why, if it is drained.
#[track_caller]
fn drain(cluster: &TestCluster, node: usize) -> Option<(String, String)> {
    let list = cluster.json(&["node", "list", "--json"]);
    let found: &Value = &list[node]["drain"];
    let text = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
    (!found.is_null()).then(|| (text("by"), text("reason")))
}

#[test]
fn hooks_run_around_a_job_at_each_of_its_nodes() {
    let cluster = cluster_with(|cluster| {
        let log = cluster.state().join("log");
        let text = format!("echo $KUMI_HOOK $KUMI_JOB $KUMI_UID $KUMI_NODE >> {}", log.display());
        hooks(&program(cluster, "prolog", &text), &program(cluster, "epilog", &text))
    });
    let log = cluster.state().join("log");
    let rank = format!("echo rank $KUMI_RANK >> {}; exit 3", log.display());
    cluster.kumi(&["run", "-n", "2", "--nodes", "2", "sh", "-c", &rank]).fails(3, &[]);
    // The job is over once both epilogs have ended.
    let text = fs::read_to_string(&log).expect("the log");
    let lines: Vec<&str> = text.lines().collect();
    let uid = nix::unistd::getuid();
    let mut first = lines[..2].to_vec();
    first.sort_unstable();
    assert_eq!(first, [format!("prolog 1 {uid} node0"), format!("prolog 1 {uid} node1")], "{text}");
    for node in 0..2 {
        let at = |line: &str| lines.iter().position(|found| *found == line);
        let epilog = at(&format!("epilog 1 {uid} node{node}"));
        assert!(epilog.is_some() && epilog > at(&format!("rank {node}")), "{text}");
    }
    assert_eq!(drain(&cluster, 0), None);
}

#[test]
fn a_prolog_that_fails_drains_the_node_and_fails_the_job() {
    let cluster = cluster_with(|cluster| {
        let bad = cluster.state().join("bad");
        let prolog = format!(
            "test $KUMI_NODE = node1 && test -e {} && echo no disk && exit 3; exit 0",
            bad.display()
        );
        hooks(&program(cluster, "prolog", &prolog), &program(cluster, "epilog", "exit 0"))
    });
    let bad = cluster.state().join("bad");
    fs::write(&bad, "").expect("our own folder");
    let both = ["run", "-n", "2", "--nodes", "2", "true"];
    cluster
        .kumi(&both)
        .fails(75, &["node1", "ended with status 3: no disk", "submit the job again"]);
    let (by, reason) = wait_for("the drain", || drain(&cluster, 1));
    assert_eq!(by, "(hook)");
    assert!(
        reason.contains("prolog") && reason.ends_with("of job 1 ended with status 3: no disk"),
        "{reason}"
    );
    let list = cluster.kumi(&["node", "list", "--reason"]).ok().out;
    assert!(list.contains("no disk"), "{list}");
    // Others are not concerned, and a node that was resumed serves again.
    cluster.kumi(&["run", "true"]).ok();
    fs::remove_file(&bad).expect("our own file");
    cluster.kumi(&["node", "resume", "node1"]).ok();
    cluster.kumi(&both).ok();
    assert_eq!(drain(&cluster, 1), None);
}

#[test]
fn an_epilog_that_fails_drains_the_node_and_not_the_job() {
    let cluster = cluster_with(|cluster| {
        let epilog = "test $KUMI_NODE = node0 || exit 0; echo processes are left >&2; exit 4";
        hooks(&program(cluster, "prolog", "exit 0"), &program(cluster, "epilog", epilog))
    });
    cluster.kumi(&["run", "-n", "2", "--nodes", "2", "true"]).ok();
    let (_, reason) = wait_for("the drain", || drain(&cluster, 0));
    assert!(
        reason.contains("epilog") && reason.ends_with("ended with status 4: processes are left"),
        "{reason}"
    );
    assert_eq!(drain(&cluster, 1), None);
}

#[test]
fn a_hook_that_others_can_write_is_not_run() {
    let cluster = cluster_with(|cluster| {
        let path = program(cluster, "prolog", "exit 0");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("our own file");
        hooks(&path, &program(cluster, "epilog", "exit 0"))
    });
    cluster.kumi(&["run", "true"]).fails(75, &["others can write", "chmod go-w"]);
}

#[test]
fn a_node_that_fails_its_health_check_is_drained_until_it_passes() {
    let cluster = cluster_with(|cluster| {
        let bad = cluster.state().join("bad");
        let text = format!(
            "test $KUMI_NODE = node1 && test -e {} && echo no disk && exit 1; exit 0",
            bad.display()
        );
        let path = program(cluster, "check", &text);
        format!("[health]\nprogram = {path:?}\ninterval_s = 1\nfailures = 2\n")
    });
    let bad = cluster.state().join("bad");
    fs::write(&bad, "").expect("our own folder");
    let (by, reason) = wait_for("the drain", || drain(&cluster, 1));
    assert_eq!((&*by, &*reason), ("(health check)", "health check ended with status 1: no disk"));
    assert_eq!(drain(&cluster, 0), None);
    fs::remove_file(&bad).expect("our own file");
    wait_for("the end of the drain", || drain(&cluster, 1).is_none().then_some(()));
    // What an administrator has drained no check resumes.
    cluster.kumi(&["node", "drain", "node1", "--reason", "repair"]).ok();
    cluster.kumi(&["run", "true"]).ok();
    assert_eq!(drain(&cluster, 1).map(|(_, reason)| reason).as_deref(), Some("repair"));
}
