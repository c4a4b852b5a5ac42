//! `kumi run --trace` and `kumi trace`.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::Command;

use kumi_tests::binaries;
use kumi_tests::cluster::TestCluster;
use kumi_tests::command::wait_for;
use serde_json::Value;

/// `examples/rust/src/bin/shared.rs`.
fn program() -> String {
    binaries::path("shared").display().to_string()
}

/// The slices of a trace.
fn slices(document: &Value) -> Vec<&Value> {
    let events = document["traceEvents"].as_array().expect("events");
    events.iter().filter(|event| event["ph"] == "X").collect()
}

/// Those that are called so.
fn called<'d>(document: &'d Value, name: &str) -> Vec<&'d Value> {
    slices(document).into_iter().filter(|slice| slice["name"] == name).collect()
}

/// Runs `kumi trace`: what it printed, the JSON, and the path of the page.
fn trace(cluster: &TestCluster, job: &str) -> (String, Value, PathBuf) {
    let folder = cluster.state().join("out");
    let shown = cluster.kumi(&["trace", job, "--out", &folder.display().to_string()]).ok().out;
    let path = |end: &str| folder.join(format!("kumi-trace-{job}.{end}"));
    let text = std::fs::read_to_string(path("json")).expect("the JSON");
    (shown, serde_json::from_str(&text).expect("JSON"), path("html"))
}

/// The page as a browser has it after its script ran; none without a browser.
fn rendered(page: &Path, state: &Path) -> Option<String> {
    let mut browser = Command::new("chromium");
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]);
    browser.arg("--virtual-time-budget=10000");
    browser.arg(format!("--user-data-dir={}", state.join("browser").display()));
    let shown = browser.arg(format!("file://{}", page.display())).output().ok()?;
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    Some(String::from_utf8(shown.stdout).expect("text"))
}

#[test]
fn a_trace_names_pages_locks_and_barriers() {
    let cluster = TestCluster::up(2);
    let program = program();
    let settings = ["--env", "KUMI_DSM_HOMES=stay", "--name", "traced", "--trace"];
    let words = ["-n", "8", "--nodes", "2", &program, "--rounds", "10", "--misplaced"];
    cluster.kumi(&[&["run"], &settings[..], &words].concat()).ok();
    let job = cluster.job("traced").expect("the job")["job"].to_string();
    let (shown, document, page) = trace(&cluster, &job);

    assert!(shown.starts_with("8 ranks, ") && shown.contains("locks: 80 taken"), "{shown}");
    assert!(shown.contains("barriers: 21 passed"), "20 and the one of the end: {shown}");
    assert!(!shown.contains("lost") && !shown.contains("cannot be"), "{shown}");
    let placed = |line: &str| line.contains("shared.rs") && line.contains("` by blocks: ");
    assert!(
        shown.lines().any(placed),
        "ranks of the second node use what is on the first: {shown}"
    );

    assert_eq!(called(&document, "lock").len(), 80);
    assert!(called(&document, "lock").iter().all(|lock| lock["args"]["what"] == "lock 7"));
    assert_eq!(called(&document, "barrier").len(), 8 * 20);
    for rank in 0..8 {
        let of_rank = |slice: &&&Value| slice["pid"] == rank;
        let barriers = called(&document, "barrier");
        let numbers: Vec<_> =
            barriers.iter().filter(of_rank).map(|one| &one["args"]["what"]).collect();
        let expected: Vec<_> = (0..20).map(|number| format!("barrier {number}")).collect();
        assert_eq!(numbers, expected.iter().collect::<Vec<_>>(), "of rank {rank}");
    }
    let fetches = called(&document, "fetch");
    assert!(fetches.iter().all(|one| one["pid"].as_u64() >= Some(4)), "all pages are on node 0");
    let of_blocks =
        |one: &&Value| one["args"]["what"].as_str().is_some_and(|what| what.contains("shared.rs"));
    assert!(fetches.iter().any(of_blocks), "{fetches:?}");
    arrows_are_whole(&document);

    match rendered(&page, cluster.state()) {
        None => kumi_skip::skip("a_trace_names_pages_locks_and_barriers", "there is no chromium"),
        Some(dom) => {
            assert_eq!(dom.matches("class=\"row\"").count(), 8, "a row for each rank");
            for class in ["arrow", "event"] {
                assert!(dom.contains(&format!("class=\"{class}\"")), "no {class} is drawn");
            }
            for title in ["Pages by traffic", "Locks by waiting", "Ranks by waiting at barriers"] {
                assert!(dom.contains(&format!("<h2>{title}")), "no table {title}");
            }
        }
    }
}

/// Each arrow begins and ends once, not before it begins, at ranks that are there.
fn arrows_are_whole(document: &Value) {
    let events = document["traceEvents"].as_array().expect("events");
    let ends = |phase: &str| {
        let of_phase = events.iter().filter(|event| event["ph"] == phase);
        let end = |event: &Value| {
            let number = |key: &str| event[key].as_u64().expect("a number");
            (
                number("id"),
                number("pid"),
                event["ts"].as_f64().expect("a time"),
                event["cat"].clone(),
            )
        };
        of_phase.map(end).collect::<Vec<_>>()
    };
    let (begins, ends) = (ends("s"), ends("f"));
    assert_eq!(begins.len(), ends.len());
    for (begin, end) in begins.iter().zip(&ends) {
        assert_eq!((begin.0, &begin.3), (end.0, &end.3));
        assert!(begin.2 <= end.2 && begin.1 < 8 && end.1 < 8, "{begin:?} {end:?}");
    }
    for kind in ["message", "pages", "lock"] {
        let between_nodes = begins
            .iter()
            .zip(&ends)
            .any(|(begin, end)| begin.3 == kind && (begin.1 < 4) != (end.1 < 4));
        assert!(between_nodes, "no {kind} went from one node to the other");
    }
}

/// Events that a summary says to be lost.
fn lost(shown: &str) -> u64 {
    let count = shown.lines().find_map(|line| line.split_once(" events lost: "));
    count.map_or(0, |(count, _)| count.parse().expect("a number"))
}

#[test]
fn a_running_job_has_a_trace_and_a_killed_one_still() {
    let cluster = TestCluster::up(2);
    let program = program();
    let words = ["-n", "2", "--nodes", "2", "--name", "endless", "--trace=1024", &program];
    let running = cluster.start(&[&["run"], &words[..], &["--rounds", "0"]].concat());
    let job = cluster.wait_state("endless", "running")["job"].to_string();
    wait_for("a trace whose ring is full", || {
        let shown = cluster.kumi(&["trace", &job, "--out", &cluster.state().display().to_string()]);
        // An event that is being written counts as lost too, in a ring that is not full as well.
        (shown.code() == 0 && lost(&shown.out) > 100).then_some(())
    });
    cluster.kumi(&["kill", &job]).ok();
    drop(running.finish());
    let (shown, document, _) = trace(&cluster, &job);
    assert!(shown.starts_with("2 ranks, ") && shown.contains("--trace=EVENTS"), "{shown}");
    for rank in 0..2 {
        let of_rank = slices(&document).iter().filter(|slice| slice["pid"] == rank).count();
        assert!((900..=2048).contains(&of_rank), "{of_rank} events of rank {rank}");
    }
    assert!(!called(&document, "lock").is_empty() && !called(&document, "barrier").is_empty());
    let (again, _, _) = trace(&cluster, &job);
    assert_eq!(again, shown, "it does not change any more");
}

#[test]
fn without_a_trace_the_command_says_how_to_get_one() {
    let cluster = TestCluster::up(1);
    cluster.kumi(&["run", "--name", "plain", "true"]).ok();
    let job = cluster.job("plain").expect("the job")["job"].to_string();
    cluster.kumi(&["trace", &job]).fails(66, &["no trace of job", "kumi run --trace"]);
    cluster.kumi(&["trace", "999"]).fails(66, &["no trace of job 999"]);
    cluster.kumi(&["run", "--trace=1023", "true"]).fails(64, &["1023"]);
    cluster.kumi(&["run", "--env", "KUMI_TRACE=x", "true"]).fails(64, &["KUMI_TRACE", "1024"]);
    // The ring of a traced rank is none of a job that it starts.
    cluster.kumi(&["run", "--env", "KUMI_TRACE_RING=9,1024", &program(), "--rounds", "1"]).ok();
    // A rank that never joins has an empty trace.
    cluster.kumi(&["run", "--trace", "--name", "empty", "true"]).ok();
    let job = cluster.job("empty").expect("the job")["job"].to_string();
    let (shown, _, _) = trace(&cluster, &job);
    assert!(shown.starts_with("1 ranks, 0 events in 0ns"), "{shown}");
}
