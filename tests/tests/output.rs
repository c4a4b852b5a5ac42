//! Output of jobs when the head's disk is full or the head dies: it is shown as it comes, and what is missing is marked everywhere.
#![forbid(unsafe_code)]

use kumi_tests::cluster::TestCluster;
use kumi_tests::command::{self, FinishedCommand};
use kumi_tests::disk::SmallDisk;
use kumi_tests::machine;
use nix::sys::signal::Signal;
use std::io::{Read as _, Write as _};

/// A cluster whose spool is a disk of so many KiB.
fn cluster_with_disk(test: &str, kib: u32) -> Option<(TestCluster, SmallDisk)> {
    let mut cluster = TestCluster::prepare();
    cluster.kumi(&["cluster", "init", "--local", "2"]).ok();
    let disk = SmallDisk::mount(test, &cluster.path().join("spool"), kib)?;
    cluster.try_up_as_it_is().ok();
    Some((cluster, disk))
}

/// Bytes that a command marked as missing.
fn missing(done: &FinishedCommand) -> usize {
    let number = |line: &str| -> Option<usize> {
        line.strip_prefix("kumi: ")?.strip_suffix(" bytes of output are missing here")?.parse().ok()
    };
    done.err.lines().filter_map(number).sum()
}

/// Both ranks write so many lines of ten bytes.
fn writes(lines: u32) -> String {
    format!("yes 123456789 | head -n {lines}")
}

#[test]
fn a_full_disk_loses_no_output_silently() {
    const TEST: &str = "a_full_disk_loses_no_output_silently";
    let Some((cluster, disk)) = cluster_with_disk(TEST, 128) else { return };
    // What fits into memory is shown, though the disk takes a third of it.
    let script = writes(20_000);
    let run = ["run", "-n", "2", "--name", "much", "sh", "-c", &script];
    let done = cluster.kumi(&run).ok();
    assert_eq!((done.out.len(), missing(&done)), (400_000, 0), "{}", done.err);
    assert!(done.err.contains("does not keep all output"), "{}", done.err);
    assert!(done.err.contains("are not on the disk of the head; `kumi logs"), "{}", done.err);
    let job = cluster.job("much").expect("it is known");
    let not_kept = job["output_not_kept"].as_u64().expect("a number");
    assert!((250_000..400_000).contains(&not_kept), "{job}");
    assert!(cluster.kumi(&["ps", "--all"]).ok().out.contains("OUTPUT LOST"));
    let status = cluster.kumi(&["cluster", "status"]).ok().out;
    // The disk itself may have said no, or what is left of it is for the job table.
    let is_full = status.contains("is nearly full") || status.contains("No space left");
    assert!(is_full && status.contains("output of jobs is not kept"), "{status}");
    assert!(status.contains("Make room below /"), "{status}");
    // So is what does not fit: the job waits for its submitter. Who comes later misses some.
    let script = writes(2_000_000);
    let done = cluster.kumi(&["run", "-n", "2", "--name", "more", "sh", "-c", &script]).ok();
    assert_eq!((done.out.len(), missing(&done)), (40_000_000, 0), "{}", done.err);
    let number = cluster.job("more").expect("it is known")["job"].to_string();
    let logs = cluster.kumi(&["logs", &number]).ok();
    assert!(missing(&logs) > 30_000_000, "{}", logs.err);
    assert_eq!(logs.out.len() + missing(&logs), 40_000_000);
    // All of it is in a file, whatever the head keeps.
    let file = cluster.state().join("output");
    let path = file.display().to_string();
    let run = ["run", "-n", "2", "--output", &path, "sh", "-c", &script];
    assert_eq!(cluster.kumi(&run).ok().out, "");
    assert_eq!(std::fs::metadata(&file).expect("our file").len(), 40_000_000);
    let missing_folder = ["run", "--output", "/no/such/folder/file", "echo", "x"];
    cluster.kumi(&missing_folder).fails(74, &["/no/such/folder/file", "No such file"]);
    // With room again all is kept, and what waited.
    disk.resize(64 << 10);
    let waited = || cluster.job("much").filter(|job| job["output_not_kept"] == 0);
    command::wait_for("the disk to take what waited", waited);
    let status = || cluster.json(&["cluster", "status", "--json"]);
    let is_well = || status()["output_not_kept"].is_null().then_some(());
    command::wait_for("the head to say that it keeps output", is_well);
    assert!(!cluster.kumi(&["cluster", "status"]).ok().out.contains("not kept"));
    let done = cluster.kumi(&["run", "-n", "2", "--name", "small", "sh", "-c", "echo ok"]).ok();
    assert!(!done.err.contains("not kept"), "{}", done.err);
    let number = job["job"].to_string();
    assert_eq!(cluster.kumi(&["logs", &number]).ok().out.len(), 400_000);
    drop(disk);
}

/// What the head had in memory is gone with it. Its log does not tell, so the record of the job does.
#[test]
fn output_that_went_with_a_head_is_told_to_who_looks_later() {
    const TEST: &str = "output_that_went_with_a_head_is_told_to_who_looks_later";
    let Some((cluster, disk)) = cluster_with_disk(TEST, 128) else { return };
    let script = writes(20_000);
    cluster.kumi(&["run", "-n", "2", "--name", "much", "sh", "-c", &script]).ok();
    let number = cluster.job("much").expect("it is known")["job"].to_string();
    let killed = cluster.pid("head");
    machine::signal(killed, Signal::SIGKILL);
    command::wait_for("its end", || (!machine::lives(killed)).then_some(()));
    let head = cluster.start_daemon(0, &["head"]);
    let logs = command::wait_for("the next head", || {
        let logs = cluster.kumi(&["logs", &number]);
        (logs.code() == 0).then_some(logs)
    });
    assert!(logs.out.len() < 400_000, "{}", logs.out.len());
    assert!(logs.err.contains("are not on the disk of the head; unless"), "{}", logs.err);
    drop(disk);
    drop(cluster);
    drop(head.finish());
}

/// The disk of who reads is full, not the head's: the job goes on, and nothing of its output is lost for others.
#[test]
fn a_file_of_output_on_a_full_disk_is_said_and_stops_no_job() {
    const TEST: &str = "a_file_of_output_on_a_full_disk_is_said_and_stops_no_job";
    let cluster = TestCluster::up(2);
    let small = cluster.state().join("small");
    let Some(disk) = SmallDisk::mount(TEST, &small, 64) else { return };
    let file = small.join("output");
    let path = file.display().to_string();
    let script = writes(100_000);
    let run = ["run", "-n", "2", "--name", "much", "--output", &path, "sh", "-c", &script];
    let words = ["cannot be written: No space left on device", "the job goes on", "`kumi logs`"];
    let done = cluster.kumi(&run).fails(74, &words);
    assert_eq!(done.out, "");
    let written = std::fs::metadata(&file).expect("it was made").len();
    assert!((1..=64 << 10).contains(&written), "{written}");
    // Its lines are in it, up to where the disk was full.
    let lines = std::fs::read_to_string(&file).expect("our file");
    assert!(lines.lines().rev().skip(1).all(|line| line == "123456789"));
    let job = cluster.job("much").expect("it is known");
    assert_eq!(job["outcome"]["kind"], "success", "{job}");
    let logs = cluster.kumi(&["logs", &job["job"].to_string()]).ok();
    assert_eq!((logs.out.len(), missing(&logs)), (2_000_000, 0), "{}", logs.err);
    drop(disk);
}

#[test]
fn a_full_disk_stops_no_submissions() {
    const TEST: &str = "a_full_disk_stops_no_submissions";
    /// The cluster ends before the disk that it is on goes.
    struct OnDisk {
        cluster: TestCluster,
        disk: SmallDisk,
    }
    let cluster = TestCluster::prepare();
    let Some(disk) = SmallDisk::mount(TEST, cluster.state(), 64 << 10) else { return };
    let mut on_disk = OnDisk { cluster, disk };
    let (cluster, folder) = (&mut on_disk.cluster, on_disk.disk.path());
    let mut others = std::fs::File::create(folder.join("filler")).unwrap();
    // What they give back at the end is enough for a reserve, also if output fills the disk before they do.
    others.write_all(&[0; 8 << 20]).unwrap();
    cluster.try_up(2, &[]).ok();
    let reserve = cluster.path().join("head.reserve");
    assert!(reserve.exists());
    let runs = |cluster: &TestCluster| {
        assert_eq!(cluster.kumi(&["run", "-n", "2", "echo", "ok"]).ok().out, "ok\nok\n");
    };
    // Any user can do this.
    let script = "yes 123456789 | head -n 8000000";
    let done = cluster.kumi(&["run", "--name", "much", "sh", "-c", script]).ok();
    assert_eq!((done.out.len(), missing(&done)), (80_000_000, 0), "{}", done.err);
    assert!(cluster.job("much").is_some_and(|job| job["output_not_kept"].as_u64() > Some(0)));
    runs(cluster);
    // Others take the rest of the disk again and again, as the table gives some back. They do not take the reserve, which the
    // table may need at any time: what is free is read before the reserve is seen to be there.
    for _ in 0..50 {
        let free = on_disk.disk.free();
        if !reserve.exists() {
            break;
        }
        // The table may have been faster.
        if let Err(error) = std::io::copy(&mut std::io::repeat(0).take(free), &mut others) {
            assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
        }
        runs(cluster);
    }
    assert!(!reserve.exists(), "it was needed");
    let status = cluster.json(&["cluster", "status", "--json"]);
    let why = status["output_not_kept"].as_str().unwrap_or_default();
    assert!(why.contains("no reserve for the job table"), "{status}");
    assert!(status["jobs_refused"].is_null(), "{status}");
    runs(cluster);
    others.set_len(0).unwrap();
    command::wait_for("the reserve", || reserve.exists().then_some(()));
}

/// Ranks that write much wait while there is no head. What was on its way comes again, and nothing twice.
#[test]
fn killed_heads_lose_and_repeat_no_output_of_a_flood() {
    const BLOCKS: u32 = 60;
    let cluster = TestCluster::up_with(2, &["--lease", "100s"]);
    let script = format!(
        "for block in $(seq 0 {}); do seq ${{block}}0000 ${{block}}9999; sleep 0.05; done",
        BLOCKS - 1
    );
    let args = ["run", "-l", "-n", "2", "--nodes", "2", "--name", "flood", "sh", "-c", &script];
    let job = cluster.start(&args);
    job.output_line();
    let mut heads = Vec::new();
    for _ in 0..2 {
        machine::signal(cluster.pid("head"), Signal::SIGKILL);
        std::thread::sleep(std::time::Duration::from_millis(300));
        heads.push(cluster.start_daemon(0, &["head"]));
        command::wait_for("the nodes", || {
            let status = cluster.kumi(&["cluster", "status"]);
            (status.code() == 0 && cluster.nodes_up() == 2).then_some(())
        });
    }
    let done = job.finish().ok();
    for rank in 0..2 {
        let prefix = format!("[{rank}] ");
        let of_rank = done.out.lines().filter_map(|line| line.strip_prefix(&prefix));
        let mut numbers = of_rank.map(|line| line.parse::<u32>().expect("a number"));
        assert!(numbers.by_ref().eq(0..BLOCKS * 10_000), "rank {rank}: {}", done.err);
    }
    assert_eq!(missing(&done), 0, "{}", done.err);
    drop(cluster);
    heads.into_iter().for_each(|head| drop(head.finish()));
}
