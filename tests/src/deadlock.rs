//! Reports on jobs whose ranks wait for each other for ever.

use serde_json::Value;

use crate::cluster::TestCluster;
use crate::command::wait_for;

/// A job once it is stopped, and what `kumi debug waits` says of it.
#[track_caller]
pub fn stopped(cluster: &TestCluster, name: &str) -> (Value, Value) {
    let job = wait_for(&format!("job {name} is stopped"), || {
        cluster.job(name).filter(|job| job["verdict"] == "stopped")
    });
    let number = job["job"].to_string();
    let waits = cluster.json(&["debug", "waits", &number, "--json"]);
    assert_eq!(waits["verdict"], "stopped", "{waits}");
    (job, waits)
}

/// The causes in a report: the kind, the ranks that wait, and those that are over.
///
/// # Panics
/// When the report has another form.
#[must_use]
pub fn causes(waits: &Value) -> Vec<(String, Value, Value)> {
    let causes = waits["causes"].as_array().expect("causes").iter();
    let text = |cause: &Value| cause["kind"].as_str().expect("a kind").to_owned();
    causes.map(|cause| (text(cause), cause["ranks"].clone(), cause["over"].clone())).collect()
}

/// The first wait of a rank.
#[must_use]
pub fn wait_of(waits: &Value, rank: usize) -> &Value {
    &waits["ranks"][rank]["waits"][0]
}

/// Ends a job.
pub fn kill(cluster: &TestCluster, job: &Value) {
    cluster.kumi(&["kill", &job["job"].to_string()]).ok();
}

/// Starts each kind of this program, and requires the names of the calls in which ranks 0 and 1 wait.
///
/// # Panics
/// When they have others.
#[track_caller]
pub fn calls_are_named(cluster: &TestCluster, program: &[&str], kinds: &[(&str, [&str; 2])]) {
    for (kind, calls) in kinds {
        let run = ["run", "-n", "2", "--nodes", "2", "--name", kind];
        let job = cluster.start(&[&run[..], program, &[kind]].concat());
        let (number, _) = stopped(cluster, kind);
        let id = number["job"].to_string();
        wait_for(&format!("{kind} waits in {calls:?}"), || {
            let waits = cluster.json(&["debug", "waits", &id, "--json"]);
            let call = |rank| wait_of(&waits, rank)["call"].as_str().unwrap_or_default().to_owned();
            ([call(0), call(1)] == *calls).then_some(())
        });
        kill(cluster, &number);
        job.finish().fails(137, &["is stopped"]);
    }
}
