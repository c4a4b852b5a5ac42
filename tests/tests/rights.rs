//! What ranks of other users may do on the machine of a cluster whose daemons are root's.
#![forbid(unsafe_code)]

use kumi_tests::cluster::TestCluster;
use kumi_tests::command::wait_for;
use kumi_tests::machine;

/// A cluster that another user can use, unless there can be none here.
fn cluster(test: &str) -> Option<TestCluster> {
    if !machine::is_root() {
        kumi_skip::skip(test, "needs two users");
        return None;
    }
    let cluster = TestCluster::up(1);
    cluster.open_to_others();
    if cluster.run_as_other(&["--version"]).code() != 0 {
        kumi_skip::impossible(test, "the binaries lie where only root may read");
        return None;
    }
    Some(cluster)
}

/// A user has so many connections and jobs, and is told so. Root is not bounded.
#[test]
fn one_user_has_a_share_of_the_head() {
    const TEST: &str = "one_user_has_a_share_of_the_head";
    if !machine::is_root() {
        return kumi_skip::skip(TEST, "needs two users");
    }
    let mut cluster = TestCluster::prepare();
    cluster.kumi(&["cluster", "init", "--local", "1"]).ok();
    let file = cluster.path().join("cluster.toml");
    let text = std::fs::read_to_string(&file).expect("a configuration");
    let quota = "[quota]\njobs_per_user = 1\nconnections_per_user = 2\n";
    std::fs::write(&file, format!("{text}{quota}")).expect("our own file");
    cluster.try_up_as_it_is().ok();
    cluster.open_to_others();
    if cluster.run_as_other(&["--version"]).code() != 0 {
        return kumi_skip::impossible(TEST, "the binaries lie where only root may read");
    }
    let sleep = |name| ["run", "--cwd", "/", "--name", name, "sleep", "600"];
    let first = cluster.start_as_other(&sleep("first"));
    let job = cluster.wait_state("first", "running");
    cluster.run_as_other(&sleep("second")).fails(75, &["1 of your jobs"]);
    let number = job["job"].to_string();
    let watch = || cluster.start_as_other(&["attach", &number]);
    let mut watching = watch();
    let refused = wait_for("the user's connections to be used up", || {
        // A connection whose client has ended counts until the head has seen that.
        if !watching.runs() {
            watching = watch();
        }
        let listed = cluster.run_as_other(&["ps"]);
        (listed.code() == 75).then_some(listed)
    });
    refused.fails(75, &["connections_per_user"]);
    for _ in 0..4 {
        cluster.kumi(&["run", "true"]).ok();
    }
    cluster.kumi(&["kill", &number]).ok();
    first.finish();
    watching.finish();
    wait_for("room for connections of the user", || {
        (cluster.run_as_other(&["ps"]).code() == 0).then_some(())
    });
}

/// Real-time priority beyond what the handler needs is for nobody, and that much for those who have it.
#[test]
fn handlers_have_the_priority_that_their_user_has() {
    const TEST: &str = "handlers_have_the_priority_that_their_user_has";
    const TRY: &str = "ulimit -r; chrt -f 11 echo handler; chrt -f 12 echo more";
    let Some(cluster) = cluster(TEST) else { return };
    let raise = "ulimit -r 20 && chrt -f 1 true";
    let permitted = std::process::Command::new("sh").args(["-c", raise]).status();
    if !permitted.is_ok_and(|status| status.success()) {
        return kumi_skip::impossible(
            TEST,
            "root may not raise its limits here (CAP_SYS_RESOURCE), or no real-time scheduling",
        );
    }
    let run = |limit: &str, options: &[&str]| {
        let args = [&["run", "--cwd", "/"], options, &["sh", "-c", &format!("{TRY}; true")]];
        cluster.run_as_other_after(&format!("ulimit -r {limit}"), &args.concat()).ok()
    };
    assert_eq!(run("20", &["--handler", "fifo:high"]).out, "11\nhandler\n");
    let without = run("20", &[]);
    assert_eq!(without.out, "0\n");
    assert!(without.err.contains("rtprio 0 instead of 20"), "{}", without.err);
    assert_eq!(run("0", &["--handler", "fifo:high"]).out, "0\n");
}

#[test]
fn a_rank_has_mask_and_limits_of_its_shell() {
    let Some(cluster) = cluster("a_rank_has_mask_and_limits_of_its_shell") else { return };
    let script = "umask 077; ulimit -c 0; ulimit -n 200; ulimit -l 64; ulimit -v 4000000";
    let say = "umask; ulimit -c; ulimit -H -n; ulimit -l; ulimit -v; ulimit -r";
    let ran = cluster.run_as_other_after(script, &["run", "--cwd", "/", "sh", "-c", say]).ok();
    assert_eq!(ran.out, "0077\n0\n200\n64\n4000000\n0\n");
    assert_eq!(ran.err, "");
}
