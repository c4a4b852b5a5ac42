//! Kumi from other languages: their examples and the tests of their bindings, as jobs of four ranks on
//! two nodes.
#![forbid(unsafe_code)]

use kumi_tests::cluster::TestCluster;
use kumi_tests::{binaries, command, source};
use std::process::Command;

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
    verifies(&cluster, "queens", &["--size", "9"]);
    // Fewer tasks than ranks.
    verifies(&cluster, "queens", &["--size", "2"]);
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
    verifies(&cluster, "life", &["--size", "30", "--steps", "60"]);
    verifies(&cluster, "life", &["--size", "5", "--steps", "3"]);
    let unit = four_ranks(&cluster, "fortran-unit", &[]);
    assert_eq!(unit, "the module kumi holds\n".repeat(4));
    let poisson = binaries::path("poisson").display().to_string();
    let few = ["run", "-n", "4", "--nodes", "2", &poisson, "--points", "3"];
    cluster.kumi(&few).fails(64, &["more ranks than columns"]);
    let life = binaries::path("life").display().to_string();
    let few = ["run", "-n", "4", "--nodes", "2", &life, "--size", "3"];
    cluster.kumi(&few).fails(64, &["more ranks than rows"]);
}

#[test]
fn outside_a_job_they_say_how_to_start_them() {
    for program in ["hello-cpp", "heat", "queens", "hello-fortran", "poisson", "life"] {
        let mut alone = Command::new(binaries::path(program));
        alone.env_remove("KUMI_SINGLETON");
        command::run(alone).fails(1, &["kumi_init: ", "kumi run -n"]);
    }
    for program in ["heat", "queens", "poisson", "life"] {
        let run = |option: &str| {
            let mut alone = Command::new(binaries::path(program));
            alone.arg(option).env_remove("KUMI_SINGLETON");
            command::run(alone)
        };
        assert!(run("--help").ok().out.contains("Usage:"));
        run("--what").fails(64, &["unknown option", "Usage:"]);
    }
}

/// The names of a list in parentheses: the last word of each item.
fn names<'a>(list: &'a str) -> Vec<&'a str> {
    let last =
        |item: &'a str| item.trim().rsplit(|c: char| !(c.is_alphanumeric() || c == '_')).next();
    list.split(',').filter_map(last).filter(|name| !["", "void"].contains(name)).collect()
}

/// A compiler cannot see whether an interface to a C function is that function's.
#[test]
fn the_interfaces_of_fortran_are_those_of_the_header() {
    let read = |path: &str| std::fs::read_to_string(binaries::repository().join(path)).expect(path);
    let headers =
        ["kumi.h", "kumi_onesided.h"].map(|name| read(&format!("bindings/c/include/{name}")));
    let header = source::code_only(&headers.concat());
    let mut generate = Command::new("sh");
    generate.arg(binaries::repository().join("bindings/fortran/generate")).arg("atomics");
    let atomics = command::run(generate).ok().out;
    let modules = (read("bindings/fortran/kumi_c.f90") + &atomics).replace("&\n", "");
    let mut bound = 0;
    for line in modules.lines().map(str::trim).filter(|line| line.contains(" bind(c")) {
        let Some(rest) = line.strip_prefix("function ") else { continue };
        let (own, rest) = rest.split_once('(').expect("arguments");
        let (arguments, rest) = rest.split_once(')').expect("arguments");
        let name = rest.split_once("name='").map_or(own, |(_, rest)| rest.trim_end_matches("')"));
        if name == "strlen" {
            continue;
        }
        let (_, prototype) =
            header.split_once(&format!("{name}(")).unwrap_or_else(|| panic!("no {name} in kumi.h"));
        let (parameters, _) = prototype.split_once(')').expect("parameters");
        assert_eq!(names(arguments), names(parameters), "{name}");
        bound += 1;
    }
    assert!(bound > 60, "only {bound} functions found");
}
