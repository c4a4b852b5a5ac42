//! Jobs that have what others leave idle in their turns.
#![forbid(unsafe_code)]

use std::path::Path;

use kumi_tests::cluster::TestCluster;
use kumi_tests::command::{RunningCommand, wait_for};
use kumi_tests::machine;

/// Says its process and computes.
const COMPUTES: [&str; 3] = ["sh", "-c", "echo $$; while :; do :; done"];
/// Leaves everything, and keeps its turns since nobody looks whether it is idle.
const LEAVES: [&str; 2] = ["sleep", "100000"];
/// Number of `SCHED_IDLE`.
const IDLE: &str = "5";

fn cluster(options: &[&str]) -> TestCluster {
    TestCluster::up_with(1, &[&["--idle-after", "0s"], options].concat())
}

/// A job with a rank on each processor of the node, so that jobs share these in time. And the process of a rank, if they say it.
fn start(
    cluster: &TestCluster,
    name: &str,
    options: &[&str],
    program: &[&str],
) -> (RunningCommand, String) {
    let status = cluster.json(&["cluster", "status", "--json"]);
    let ranks = status["nodes"][0]["processors"].as_u64().expect("a number");
    let ranks = ranks.to_string();
    let args = [&["run", "-n", &ranks, "--name", name], options, program].concat();
    let running = cluster.start(&args);
    let job = cluster.wait_state(name, "running");
    match program == COMPUTES {
        true => (running, cluster.wait_lines(&job, 1).remove(0)),
        false => (running, String::new()),
    }
}

/// The scheduling policy of a process; none if it has ended.
fn policy(process: &str) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(") ")?;
    fields.split(' ').nth(38).map(str::to_owned)
}

/// Whether a process is behind all others now: by its policy, or by its processor group or one above; none if it has ended.
fn is_behind(process: &str) -> Option<bool> {
    let policy = policy(process)?;
    let groups = std::fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default();
    let idle = groups.lines().any(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { return false };
        let places = match controllers {
            "" => &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"][..],
            "cpu" | "cpu,cpuacct" => &["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"],
            _ => &[],
        };
        let above = Path::new(path.trim_start_matches('/')).ancestors();
        let mut folders =
            above.flat_map(|path| places.iter().map(move |place| Path::new(place).join(path)));
        folders.any(|folder| {
            std::fs::read_to_string(folder.join("cpu.idle")).is_ok_and(|text| text.trim() == "1")
        })
    });
    Some(policy == IDLE || idle)
}

/// Whether its job is frozen now.
fn is_frozen(process: &str) -> bool {
    let groups = std::fs::read_to_string(format!("/proc/{process}/cgroup")).unwrap_or_default();
    let group = groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default();
    let places = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
    places.iter().any(|place| {
        let events = std::fs::read_to_string(format!("{place}{group}/cgroup.events"));
        events.is_ok_and(|text| text.lines().any(|line| line == "frozen 1"))
    })
}

fn wait_policy(process: &str, idle: bool) {
    wait_for(&format!("process {process} with idle priority {idle}"), || {
        is_behind(process).filter(|&behind| behind == idle)
    });
}

fn wait_frozen(process: &str) {
    wait_for("a frozen job", || is_frozen(process).then_some(()));
}

/// Whether jobs of this machine can be put behind others by the policy of their threads, and stopped as a whole.
fn skipped(test: &str) -> bool {
    let root = machine::is_root();
    if !root {
        kumi_skip::skip(test, "only root may put threads behind others and back");
    }
    !root
}

#[test]
fn whoever_computes_has_what_is_left_and_is_told_not_to() {
    if skipped("whoever_computes_has_what_is_left_and_is_told_not_to") {
        return;
    }
    let cluster = cluster(&[]);
    let (_leaves, _) = start(&cluster, "leaves", &[], &LEAVES);
    let (_computes, process) = start(&cluster, "computes", &[], &COMPUTES);
    // Its turns and those of the other.
    for idle in [true, false, true, false] {
        wait_policy(&process, idle);
    }
    let set = |fill: &str| cluster.kumi(&["cluster", "set", "--fill", fill]).ok().out;
    assert!(set("off").contains("each alone in its turns"));
    wait_frozen(&process);
    wait_policy(&process, false);
    assert!(!set("on").contains("alone"));
    wait_policy(&process, true);
    assert_eq!(cluster.json(&["cluster", "status", "--json"])["fill"], true);
}

#[test]
fn a_job_that_must_not_fill_is_frozen_outside_its_turns() {
    if skipped("a_job_that_must_not_fill_is_frozen_outside_its_turns") {
        return;
    }
    let cluster = cluster(&["--fill", "off"]);
    let (_leaves, _) = start(&cluster, "leaves", &[], &LEAVES);
    let (_strict, strict) = start(&cluster, "strict", &[], &COMPUTES);
    let (_fills, fills) = start(&cluster, "fills", &["--fill", "on"], &COMPUTES);
    wait_policy(&fills, true);
    wait_frozen(&strict);
    cluster.kumi(&["cluster", "set", "--fill", "on"]).ok();
    wait_policy(&strict, true);
    let (_never, never) = start(&cluster, "never", &["--fill", "off"], &COMPUTES);
    wait_frozen(&never);
    for _ in 0..100 {
        assert_eq!(is_behind(&never), Some(false));
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn a_job_that_fills_can_be_killed_beside_one_that_leaves_nothing() {
    if skipped("a_job_that_fills_can_be_killed_beside_one_that_leaves_nothing") {
        return;
    }
    // A turn of the first takes ten seconds, and until it is decided that it leaves nothing the other one fills.
    let cluster = cluster(&["--slice", "10s"]);
    let (_computes, _) = start(&cluster, "computes", &[], &COMPUTES);
    let (_fills, fills) = start(&cluster, "fills", &[], &COMPUTES);
    wait_policy(&fills, true);
    let job = cluster.job("fills").expect("it is there")["job"].to_string();
    cluster.kumi(&["kill", &job]).ok();
    wait_for("its end", || policy(&fills).is_none().then_some(()));
}
