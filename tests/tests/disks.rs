//! Disks that are full or broken, at the writers of small files: each says so, nothing is half written, and all goes on later.
//! Output of jobs has tests of its own.
#![forbid(unsafe_code)]

use kumi_tests::cluster::TestCluster;
use kumi_tests::command;
use kumi_tests::disk::{FailingWrites, SmallDisk};
use kumi_tests::machine;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// An address of loopback that no other test has.
fn own_address(last: u8) -> String {
    let [.., high, low] = (std::process::id() % 60_000).to_be_bytes();
    format!("127.{}.{low}.{last}", high.max(1))
}

/// Configures a cluster of this host, whose nodes may be added and removed. Jobs of root run.
fn configure(cluster: &TestCluster, folder: &Path, last: u8) {
    let hosts = folder.join("hosts");
    std::fs::write(&hosts, format!("alpha {} cpus=0 users=any,0\n", own_address(last)))
        .expect("our file");
    cluster.kumi(&["cluster", "init", "--hosts", &hosts.display().to_string()]).ok();
    let path = cluster.path().join("cluster.toml");
    let text = std::fs::read_to_string(&path).expect("cluster.toml");
    let mut table: toml::Table = text.parse().expect("TOML");
    table.insert("root_jobs".to_owned(), true.into());
    std::fs::write(&path, toml::to_string(&table).expect("TOML")).expect("our file");
}

/// The drained nodes, as the next head would read them.
fn drained(cluster: &TestCluster) -> String {
    std::fs::read_to_string(cluster.path().join("head.drained")).unwrap_or_default()
}

/// No draft of a file is left.
#[track_caller]
fn assert_no_drafts(cluster: &TestCluster) {
    let names = std::fs::read_dir(cluster.path()).expect("the cluster's folder").flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let drafts: Vec<String> = names.filter(|name| name.ends_with(".new")).collect();
    assert!(drafts.is_empty(), "{drafts:?}");
}

/// All that an administrator does fails with these words of the system, and changes nothing on the disk.
fn nothing_can_be_changed(cluster: &TestCluster, disk_says: &str) {
    let configuration =
        || std::fs::read_to_string(cluster.path().join("cluster.toml")).expect("it is there");
    let (before, drains) = (configuration(), drained(cluster));
    let drain = ["node", "drain", "alpha", "--reason", "a disk"];
    cluster.kumi(&drain).fails(74, &["the change is in force", disk_says, "repeat the command"]);
    let node: Value = cluster.json(&["node", "list", "--json"])[0].clone();
    assert!(node["state"].as_str().is_some_and(|state| state.starts_with("drain")), "{node}");
    let add = ["node", "add", "beta", "--address", &own_address(250)];
    cluster.kumi(&add).fails(74, &["cluster.toml cannot be used", disk_says, "room"]);
    assert_eq!(configuration(), before);
    assert_eq!(drained(cluster), drains);
    assert_no_drafts(cluster);
}

/// All of it can be done again, and is kept.
fn all_can_be_changed(cluster: &TestCluster) {
    cluster.kumi(&["node", "resume", "alpha"]).ok();
    cluster.kumi(&["node", "drain", "alpha", "--reason", "a new disk"]).ok();
    assert!(drained(cluster).contains("a new disk"), "{}", drained(cluster));
    let add = ["node", "add", "beta", "--address", &own_address(250), "--token"];
    let said = cluster.kumi(&add).ok().out;
    assert!(said.contains("beta is node 1"), "{said}");
    let text = std::fs::read_to_string(cluster.path().join("cluster.toml")).expect("it is there");
    assert!(text.contains("beta"), "{text}");
    cluster.kumi(&["node", "resume", "alpha"]).ok();
    assert_no_drafts(cluster);
}

#[test]
fn an_administrator_hears_of_a_full_disk_and_goes_on_when_there_is_room() {
    const TEST: &str = "an_administrator_hears_of_a_full_disk_and_goes_on_when_there_is_room";
    /// The cluster ends before the disk that it is on goes.
    struct OnDisk {
        cluster: TestCluster,
        disk: SmallDisk,
    }
    let cluster = TestCluster::prepare();
    let Some(disk) = SmallDisk::mount(TEST, cluster.state(), 64 << 10) else { return };
    let mut on_disk = OnDisk { cluster, disk };
    let (cluster, disk) = (&mut on_disk.cluster, &on_disk.disk);
    configure(cluster, disk.path(), 1);
    cluster.try_up_as_it_is().ok();
    disk.fill();
    nothing_can_be_changed(cluster, "No space left on device");
    // The job table has room of its own.
    cluster.kumi(&["node", "resume", "alpha"]).fails(74, &["the change is in force"]);
    assert_eq!(cluster.kumi(&["run", "echo", "ok"]).ok().out, "ok\n");
    // Whoever makes keys is told as well, and the old ones stay.
    disk.fill();
    let key = cluster.path().join("tls/node-0.key");
    let before = std::fs::read(&key).expect("a key");
    cluster.kumi(&["cluster", "rotate", "alpha"]).fails(74, &["No space left on device"]);
    assert_eq!(std::fs::read(&key).expect("a key"), before);
    disk.give_room();
    all_can_be_changed(cluster);
    cluster.kumi(&["cluster", "rotate", "alpha"]).ok();
}

/// Two jobs begin, others take the disk and the table's reserve, and the jobs end: one well.
fn two_jobs_end_while_it_is_full(cluster: &TestCluster, disk: &SmallDisk) {
    let folder = tempfile::tempdir().expect("a folder on another disk");
    for (name, status) in [("done", 0), ("failed", 3)] {
        let end = folder.path().join(name);
        let script = format!("until [ -e {} ]; do sleep 0.02; done; exit {status}", end.display());
        cluster.kumi(&["submit", "--name", name, "--", "sh", "-c", &script]).ok();
        cluster.wait_state(name, "running");
    }
    let reserve = cluster.path().join("head.reserve");
    disk.fill();
    command::wait_for("the reserve to be given up and taken", || {
        let refused = cluster.kumi(&["run", "true"]).code() == 74;
        // The table leaves some of it unused once its log is cut.
        disk.fill();
        (refused && !reserve.exists()).then_some(())
    });
    for name in ["done", "failed"] {
        std::fs::write(folder.path().join(name), "").expect("our file");
        cluster.wait_state(name, "ended");
    }
}

#[track_caller]
fn as_they_ended(cluster: &TestCluster) {
    for (name, kind) in [("done", "success"), ("failed", "rank_failed")] {
        let outcome = cluster.wait_state(name, "ended")["outcome"].clone();
        assert_eq!(outcome["kind"], kind, "{outcome}");
    }
}

/// The table cannot be told how jobs end. Their nodes can, until it can be.
#[test]
fn a_job_that_was_done_on_a_full_disk_is_done_for_the_next_head() {
    const TEST: &str = "a_job_that_was_done_on_a_full_disk_is_done_for_the_next_head";
    /// The cluster ends before the disk that it is on goes.
    struct OnDisk {
        cluster: TestCluster,
        disk: SmallDisk,
    }
    let cluster = TestCluster::prepare();
    let Some(disk) = SmallDisk::mount(TEST, cluster.state(), 64 << 10) else { return };
    let mut on_disk = OnDisk { cluster, disk };
    let (cluster, disk) = (&mut on_disk.cluster, &on_disk.disk);
    configure(cluster, disk.path(), 3);
    cluster.try_up_as_it_is().ok();
    two_jobs_end_while_it_is_full(cluster, disk);
    let killed = cluster.pid("head");
    machine::signal(killed, Signal::SIGKILL);
    command::wait_for("its end", || (!machine::lives(killed)).then_some(()));
    // A head has no room to say that it is there.
    let full = cluster.start_daemon(0, &["head"]).finish();
    full.fails(74, &["cannot be written", "No space left on device"]);
    disk.give_room();
    let heads: Vec<_> = (0..2)
        .map(|_| {
            let head = cluster.start_daemon(0, &["head"]);
            command::wait_for("the next head", || {
                (cluster.kumi(&["cluster", "status"]).code() == 0).then_some(())
            });
            as_they_ended(cluster);
            machine::signal(head.pid(), Signal::SIGKILL);
            head
        })
        .collect();
    let last = cluster.start_daemon(0, &["head"]);
    command::wait_for("the last head", || {
        (cluster.kumi(&["run", "echo", "ok"]).code() == 0).then_some(())
    });
    as_they_ended(cluster);
    drop(on_disk);
    heads.into_iter().chain([last]).for_each(|head| drop(head.finish()));
}

#[test]
fn a_broken_disk_is_told_and_the_cluster_goes_on_when_it_is_well() {
    const TEST: &str = "a_broken_disk_is_told_and_the_cluster_goes_on_when_it_is_well";
    let mut cluster = TestCluster::prepare();
    configure(&cluster, cluster.state(), 2);
    let Some(writes) = FailingWrites::below(TEST, &cluster.path()) else { return };
    cluster.up_by(|own: &Command| writes.of(own)).ok();
    assert_eq!(cluster.kumi(&["run", "echo", "ok"]).ok().out, "ok\n");
    writes.break_disk();
    nothing_can_be_changed(&cluster, "Input/output error");
    cluster.kumi(&["node", "resume", "alpha"]).fails(74, &["the change is in force"]);
    // The head learns of it by a first job. Then it refuses others, with the reason.
    command::wait_for("a refusal", || {
        let done = cluster.kumi(&["run", "true"]);
        (done.code() != 0)
            .then(|| done.fails(74, &["the job table cannot be written", "refused until it can"]))
    });
    writes.mend_disk();
    command::wait_for("a job", || {
        let done = cluster.kumi(&["run", "echo", "again"]);
        (done.code() == 0).then(|| assert_eq!(done.out, "again\n"))
    });
    all_can_be_changed(&cluster);
}

#[test]
fn a_trace_on_a_full_disk_is_told_and_leaves_no_half_of_a_file() {
    const TEST: &str = "a_trace_on_a_full_disk_is_told_and_leaves_no_half_of_a_file";
    let cluster = TestCluster::up(1);
    let small = cluster.state().join("small");
    let Some(disk) = SmallDisk::mount(TEST, &small, 64) else { return };
    cluster.kumi(&["run", "-n", "2", "--name", "traced", "--trace", "true"]).ok();
    let job = cluster.job("traced").expect("it is known")["job"].to_string();
    let trace = ["trace", &job, "--out", &small.display().to_string()];
    disk.fill();
    cluster
        .kumi(&trace)
        .fails(74, &["cannot write", "kumi-trace-", "No space left on device", "free space"]);
    let names = || std::fs::read_dir(&small).expect("the disk").count();
    assert_eq!(names(), 1, "the file that fills it");
    disk.give_room();
    cluster.kumi(&trace).ok();
    assert_eq!(names(), 2);
}
