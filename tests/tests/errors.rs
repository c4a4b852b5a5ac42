//! Wrong input and what the machine does not permit: each its own message and exit code
//! (docs/reference/errors.md), and nothing half-started left behind.
#![forbid(unsafe_code)]

use kumi_tests::cluster::TestCluster;
use kumi_tests::machine;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;

#[test]
fn what_cannot_be_run_is_refused() {
    let cluster = TestCluster::up(2);
    let run = |args: &[&str]| {
        let mut words = vec!["run"];
        words.extend(args);
        cluster.kumi(&words)
    };
    run(&["no-such-program"]).fails(127, &["kumi: ", "no-such-program"]);
    run(&["/no/such/program"]).fails(127, &["/no/such/program"]);
    let text = cluster.state().join("text");
    std::fs::write(&text, "not a program").expect("a file in our own directory");
    run(&[&text.display().to_string()]).fails(126, &["cannot be executed"]);
    // Executable, but its interpreter is not there.
    std::fs::write(&text, "#!/no/such/interpreter\n").expect("a file in our own directory");
    std::fs::set_permissions(&text, std::fs::Permissions::from_mode(0o755)).expect("our file");
    run(&[&text.display().to_string()]).fails(66, &["interpreter"]);
    run(&["/usr"]).fails(126, &["/usr"]);
    run(&["--cwd", "/no/such/place", "true"]).fails(66, &["/no/such/place"]);
    run(&["-n", "100000", "true"]).fails(78, &["100000"]);
    run(&["-n", "8", "--nodes", "3", "true"]).fails(78, &["3"]);
    run(&["-n", "1", "--nodes", "2", "true"]).fails(64, &[]);
    run(&["-n", "0", "true"]).fails(64, &[]);
    run(&["--env", "novalue", "true"]).fails(64, &["novalue"]);
    run(&[]).fails(64, &[]);
    // None of these is left in the table as something that runs.
    let jobs = cluster.json(&["ps", "--json"]);
    assert_eq!(jobs.as_array().map(Vec::len), Some(0), "{jobs}");
    cluster.kumi(&["run", "true"]).ok();
}

#[test]
fn without_a_cluster_every_command_says_so() {
    let cluster = TestCluster::prepare();
    for args in [&["run", "true"][..], &["ps"], &["kill", "1"], &["stats"], &["cluster", "status"]]
    {
        cluster.kumi(args).fails(69, &["kumi: ", cluster.name()]);
    }
    // Nothing to take down is no failure.
    cluster.kumi(&["cluster", "destroy", "--yes"]).ok();
    cluster.kumi(&["no-such-command"]).fails(64, &["no-such-command"]);
    cluster.kumi(&["--cluster", "No/Name", "ps"]).fails(64, &["No/Name"]);
}

#[test]
fn a_cluster_comes_up_once() {
    let mut cluster = TestCluster::up(2);
    cluster.kumi(&["cluster", "up", "--local", "2"]).fails(73, &[cluster.name()]);
    cluster.kumi(&["run", "true"]).ok();
    cluster.down().ok();
    cluster.try_up(2, &[]).ok();
    cluster.kumi(&["run", "true"]).ok();
}

#[test]
fn a_bad_host_file_is_refused_line_by_line() {
    let cluster = TestCluster::prepare();
    let file = cluster.state().join("hosts");
    let name = file.display().to_string();
    let up = || cluster.kumi(&["cluster", "init", "--hosts", &name]);
    up().fails(66, &[&name]);
    for (text, word) in [
        ("", "hosts"),
        ("node0 10.0.0.1\nnode1 not-an-address!\n", "line 2"),
        ("node0 10.0.0.1\nnode0 10.0.0.2\n", "node0"),
        ("node0 10.0.0.1:70000\n", "line 1"),
        ("node0 10.0.0.1 cpus=a\n", "line 1"),
        ("node0\n", "line 1"),
    ] {
        std::fs::write(&file, text).expect("a file in our own directory");
        up().fails(65, &[word]);
    }
    assert!(cluster.traces().is_empty(), "{:?}", cluster.traces());
}

#[test]
fn a_port_in_use_is_said_and_nothing_is_left() {
    // The hosts of this cluster are addresses of this machine; a daemon is started by hand on one
    // whose port somebody else has.
    let cluster = TestCluster::prepare();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("bound").port();
    let file = cluster.state().join("hosts");
    std::fs::write(&file, format!("node0 127.0.0.1:{port}\n")).expect("our own directory");
    let hosts = file.display().to_string();
    cluster.kumi(&["cluster", "init", "--hosts", &hosts]).ok();
    let daemon = cluster.start_daemon(0, &["node", "--node", "0"]);
    daemon.finish().fails(73, &[&port.to_string()]);
    assert!(!cluster.path().join("node-0.pid").exists());
}

#[test]
fn other_users_do_not_see_arguments() {
    const TEST: &str = "other_users_do_not_see_arguments";
    if !machine::is_root() {
        return kumi_skip::skip(TEST, "needs two users");
    }
    let cluster = TestCluster::up(1);
    cluster.open_to_others();
    if cluster.run_as_other(&["--version"]).code() != 0 {
        return kumi_skip::skip(TEST, "the binaries lie where only root may read");
    }
    cluster.kumi(&["run", "--name", "mine", "echo", "--password=secret"]).ok();
    cluster.run_as_other(&["run", "--cwd", "/", "echo", "theirs"]).ok();
    let table = |args: &[&str]| cluster.run_as_other(args).ok().out;
    for args in [&["ps", "--all"][..], &["ps", "--all", "--json"]] {
        let shown = table(args);
        assert!(!shown.contains("secret"), "{shown}");
        assert!(shown.contains("mine") && shown.contains("echo") && shown.contains("theirs"));
    }
    let own = cluster.kumi(&["ps", "--all"]).ok().out;
    assert!(own.contains("--password=secret") && own.contains("theirs"), "{own}");
}

#[test]
fn only_the_owner_may_take_a_cluster_down() {
    if !machine::is_root() {
        return kumi_skip::skip("only_the_owner_may_take_a_cluster_down", "needs two users");
    }
    let cluster = TestCluster::up(2);
    cluster.open_to_others();
    let as_other = |args: &[&str]| cluster.run_as_other(args);
    if as_other(&["--version"]).code() != 0 {
        let reason = "the binaries lie where only root may read";
        return kumi_skip::skip("only_the_owner_may_take_a_cluster_down", reason);
    }
    as_other(&["cluster", "down"]).fails(77, &[]);
    as_other(&["cluster", "set", "--policy", "os"]).fails(77, &[]);
    // Running a job is everybody's right; it runs as who asked.
    assert_eq!(as_other(&["run", "--cwd", "/", "id", "-u"]).ok().out, "65534\n");
    cluster.kumi(&["run", "true"]).ok();
}
