//! Kumi from other languages: their examples and the tests of their bindings, as jobs of four ranks on
//! two nodes.
#![forbid(unsafe_code)]

use kumi_tests::binaries;
use kumi_tests::cluster::TestCluster;

/// The output of a program that runs as four ranks on two nodes and ends well.
#[track_caller]
fn four_ranks(cluster: &TestCluster, program: &str, args: &[&str]) -> String {
    let path = binaries::path(program).display().to_string();
    let mut words = vec!["run", "-n", "4", "--nodes", "2", &path];
    words.extend(args);
    cluster.kumi(&words).ok().out
}

/// Every rank speaks, two on each node, in the order in which the message passed them.
#[track_caller]
fn greets(cluster: &TestCluster, program: &str) {
    let out = four_ranks(cluster, program, &[]);
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    let hello = |r| format!("hello from rank {r} of 4 on node {}, turn {r}", r / 2);
    assert_eq!(lines, [0, 1, 2, 3].map(hello));
}

/// The program's own verification holds.
#[track_caller]
fn verifies(cluster: &TestCluster, program: &str, args: &[&str]) {
    let out = four_ranks(cluster, program, args);
    let last = out.lines().last().unwrap_or_default();
    let begin = format!("RESULT name={program} class=- verified=yes ");
    assert!(last.starts_with(&begin) && last.ends_with(" ranks=4 repeat=1"), "{out}");
}

#[test]
fn cpp() {
    let cluster = TestCluster::up(2);
    greets(&cluster, "hello-cpp");
    // Rows that do not divide evenly, an even and an odd number of steps.
    verifies(&cluster, "heat", &["--points", "30", "--steps", "100"]);
    verifies(&cluster, "heat", &["--points", "4", "--steps", "3"]);
    let unit = four_ranks(&cluster, "cpp-unit", &[]);
    assert_eq!(unit, "kumi.hpp holds\n".repeat(4));
    let heat = binaries::path("heat").display().to_string();
    let few = ["run", "-n", "4", "--nodes", "2", &heat, "--points", "3"];
    cluster.kumi(&few).fails(64, &["more ranks than rows"]);
}

#[test]
fn fortran() {
    let cluster = TestCluster::up(2);
    greets(&cluster, "hello-fortran");
    verifies(&cluster, "poisson", &["--points", "30"]);
    verifies(&cluster, "poisson", &["--points", "4"]);
    let unit = four_ranks(&cluster, "fortran-unit", &[]);
    assert_eq!(unit, "the module kumi holds\n".repeat(4));
    let poisson = binaries::path("poisson").display().to_string();
    let few = ["run", "-n", "4", "--nodes", "2", &poisson, "--points", "3"];
    cluster.kumi(&few).fails(64, &["more ranks than columns"]);
}
