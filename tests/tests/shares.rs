//! Fair shares in a cluster: two users, of whom one floods it.
#![forbid(unsafe_code)]

use kumi_tests::cluster::TestCluster;
use kumi_tests::command::wait_for;
use kumi_tests::machine;
use nix::sys::signal::Signal;
use serde_json::Value;

/// What the user of this number has spent, and which place she has, as `kumi usage --shares` says.
#[track_caller]
fn share(cluster: &TestCluster, uid: u32) -> Option<(usize, f64)> {
    let shares = cluster.json(&["usage", "--shares", "--json"]);
    let users = shares["users"].as_array().expect("users").clone();
    let place = users.iter().position(|user| user["uid"] == uid)?;
    Some((place, users[place]["processor_s_spent"].as_f64().expect("a number")))
}

/// The job of this name is over; when it was started.
fn started(cluster: &TestCluster, name: &str) -> Option<u64> {
    cluster.job(name).filter(|job| job["state"] == "ended")?["started_ms"].as_u64()
}

#[test]
fn the_flood_of_one_user_lets_another_through() {
    const TEST: &str = "the_flood_of_one_user_lets_another_through";
    if !machine::is_root() {
        return kumi_skip::skip(TEST, "needs two users");
    }
    let (cluster, own) = (TestCluster::up_with(1, &["--policy", "fcfs"]), 0);
    cluster.open_to_others();
    if cluster.run_as_other(&["--version"]).code() != 0 {
        return kumi_skip::impossible(TEST, "the binaries lie where only root may read");
    }
    cluster.kumi(&["submit", "--name", "first", "sleep", "600"]).ok();
    cluster.wait_state("first", "running");
    for number in 0..3 {
        cluster.kumi(&["submit", "--name", &format!("flood{number}"), "true"]).ok();
    }
    wait_for("something that the flood has spent", || {
        share(&cluster, own).filter(|(_, spent)| *spent > 0.5)
    });
    cluster.run_as_other(&["submit", "--name", "other", "true"]).ok();
    let reason = wait_for("the order of shares", || {
        let reason = cluster.job("flood0")?["waits_for"].clone();
        (reason["kind"] == "behind_share").then_some(reason)
    });
    assert_eq!(reason["job"], cluster.job("other").expect("it waits")["job"], "{reason}");
    let list = cluster.kumi(&["ps"]).ok().out;
    assert!(list.contains("its user has spent less"), "{list}");
    assert_eq!(share(&cluster, 65_534).expect("a user").0, 0, "who has spent less is first");
    let first: Value = cluster.job("first").expect("it runs")["job"].clone();
    cluster.kumi(&["kill", &first.to_string(), "--grace", "0s"]).ok();
    let times = wait_for("the end of all", || {
        ["other", "flood0", "flood1", "flood2"]
            .map(|name| started(&cluster, name))
            .into_iter()
            .collect::<Option<Vec<u64>>>()
    });
    assert!(times.is_sorted(), "{times:?}");
    let table = cluster.kumi(&["usage", "--shares"]).ok().out;
    assert!(table.starts_with("USER") && table.ends_with("is forgotten in 1d.\n"), "{table}");

    // The next head knows it from the accounts. Outcomes are told once they are there.
    let last = cluster.job("flood2").expect("it is over")["job"].clone();
    cluster.kumi(&["wait", &last.to_string()]).ok();
    let before = share(&cluster, own).expect("a user").1;
    let head = cluster.pid("head");
    machine::signal(head, Signal::SIGKILL);
    wait_for("the end of the head", || (!machine::lives(head)).then_some(()));
    let next = cluster.start_daemon(0, &["head"]);
    let (_, after) = wait_for("the next head", || {
        let up = cluster.kumi(&["cluster", "status"]).code() == 0;
        up.then(|| share(&cluster, own)).flatten()
    });
    assert!((after - before).abs() <= before / 10.0, "{before} {after}");
    // A node that is not there yet would not hear that the cluster goes down.
    wait_for("the node", || (cluster.nodes_up() == 1).then_some(()));
    drop(cluster);
    drop(next.finish());
}

#[test]
fn shares_can_be_turned_off() {
    let mut cluster = TestCluster::prepare();
    cluster.kumi(&["cluster", "init", "--local", "1", "--cpus", "per-node"]).ok();
    let path = cluster.path().join("cluster.toml");
    let text = std::fs::read_to_string(&path).expect("cluster.toml");
    std::fs::write(&path, format!("{text}\n[shares]\nenabled = false\n")).expect("our own file");
    cluster.try_up_as_it_is().ok();
    cluster.kumi(&["usage", "--shares"]).fails(64, &["[shares]"]);
    std::fs::write(&path, format!("{text}\n[shares]\nhalf_life = \"soon\"\n")).expect("our file");
    cluster.kumi(&["cluster", "status"]).fails(65, &["half_life under [shares]"]);
    std::fs::write(&path, text).expect("our own file");
}
