//! Shared memory from C, by `kumi_dsm.h`, `jia.h` and the macros of `kumi.m4`: programs of four ranks on two nodes.
#![forbid(unsafe_code)]

use kumi_tests::binaries::{self, repository};
use kumi_tests::cluster::TestCluster;
use kumi_tests::command::wait_for;
use kumi_tests::machine;
use nix::sys::signal::Signal;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// Programs that a test has compiled, in a folder that goes with the value.
struct Programs {
    folder: TempDir,
}

impl Programs {
    fn new() -> Programs {
        let folder = tempfile::Builder::new().prefix("kumi-test-").tempdir().expect("a folder");
        for library in ["libkumi.so", "libjia.so"] {
            for name in [library.to_owned(), format!("{library}.0")] {
                let target = binaries::path(library);
                std::os::unix::fs::symlink(target, folder.path().join(name)).expect("a link");
            }
        }
        Programs { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Compiles a source, below the root of the repository or absolute, as `name`.
    fn compile(&self, name: &str, source: &str, options: &[&str]) -> String {
        let program = self.path(name);
        let cpp = source.ends_with("cpp");
        let mut compiler = Command::new(if cpp { "c++" } else { "cc" });
        compiler.arg(if cpp { "-std=c++17" } else { "-std=c11" });
        compiler.args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]);
        for binding in ["c", "cpp", "jia", "parmacs"] {
            let folder = format!("bindings/{binding}/include");
            compiler.arg("-I").arg(repository().join(folder));
        }
        compiler.arg("-o").arg(&program).arg(repository().join(source));
        compiler.arg("-L").arg(self.folder.path()).args(options);
        compiler.arg(format!("-Wl,-rpath,{}", self.folder.path().display()));
        let output = compiler.output().expect("a compiler");
        assert!(output.status.success(), "{source}: {}", String::from_utf8_lossy(&output.stderr));
        program.display().to_string()
    }

    /// Expands a source of `bindings/parmacs/tests` by the macros and compiles it.
    fn compile_with_macros(&self, name: &str, options: &[&str]) -> String {
        let folder = repository().join("bindings/parmacs");
        let mut expander = Command::new("m4");
        expander.arg(folder.join("kumi.m4"));
        expander.arg(folder.join("tests").join(name).with_extension("C"));
        let output = expander.output().expect("m4; `make setup` installs it");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let source = self.path(&format!("{name}.c"));
        std::fs::write(&source, output.stdout).expect("the expanded source");
        let all = [options, &["-D_GNU_SOURCE", "-lkumi", "-lm"]].concat();
        self.compile(name, folder_of(&source), &all)
    }
}

/// Ways to run shared memory: nothing set, and what differs most from it.
const SETTINGS: [&[&str]; 2] = [
    &[],
    &[
        "--env",
        "KUMI_DSM_FAULTS=mprotect",
        "--env",
        "KUMI_DSM_PROTOCOL=lazy",
        "--env",
        "KUMI_DSM_HOMES=stay",
    ],
];

fn words<'w>(settings: &[&'w str], program: &[&'w str]) -> Vec<&'w str> {
    [&["run", "-n", "4", "--nodes", "2"], settings, program].concat()
}

/// The output of four ranks, in order.
#[track_caller]
fn lines(cluster: &TestCluster, settings: &[&str], program: &[&str]) -> Vec<String> {
    let out = cluster.kumi(&words(settings, program)).ok().out;
    let mut lines: Vec<String> = out.lines().map(str::to_owned).collect();
    lines.sort_unstable();
    lines
}

#[test]
fn c() {
    let programs = Programs::new();
    let program = programs.compile("dsm-ranks", "bindings/c/tests/dsm-ranks.c", &["-lkumi"]);
    let cluster = TestCluster::up(2);
    for settings in SETTINGS {
        let ranks = [0, 1, 2, 3].map(|rank| format!("rank {rank} of 4"));
        assert_eq!(lines(&cluster, settings, &[&program]), ranks);
    }
    for (how, said) in [("mismatch", "-74 "), ("allocations", "-75 ")] {
        let ended = cluster.kumi(&words(&[], &[&program, how]));
        assert!(ended.code() != 0 && ended.err.contains(said), "{how}: {ended:?}");
    }
}

#[test]
fn jiajia() {
    let programs = Programs::new();
    let program = programs.compile("jia-unit", "bindings/jia/tests/jia-unit.c", &["-ljia"]);
    let cluster = TestCluster::up(2);
    for settings in SETTINGS {
        let hosts = [0, 1, 2, 3].map(|host| format!("host {host} of 4"));
        assert_eq!(lines(&cluster, settings, &[&program]), hosts);
    }
    assert!(lines(&cluster, &[], &[&program, "return"]).is_empty());
    for (how, said) in [
        ("unlock", "lock 4 is unlocked"),
        ("mismatch", "all ranks make the same calls"),
        ("allocations", "all ranks allocate the same"),
        ("memory", "KUMI_DSM_BYTES"),
        ("host", "there is no host 4"),
        ("error", "host 3: the end 7"),
    ] {
        let ended = cluster.kumi(&words(&[], &[&program, how]));
        assert!(ended.code() != 0 && ended.err.contains(said), "{how}: {ended:?}");
    }
}

#[test]
fn system_calls() {
    let source = "bindings/interpose/tests/system-calls.c";
    let programs = Programs::new();
    let kumi = programs.compile("system-calls", source, &["-lkumi"]);
    let jia = programs.compile("system-calls-jia", source, &["-DWITH_JIA", "-ljia"]);
    let files = programs.path("files");
    std::fs::create_dir(&files).expect("a folder");
    let cluster = TestCluster::up(2);
    for program in [kumi, jia] {
        for settings in SETTINGS {
            let out = lines(&cluster, settings, &[&program, folder_of(&files)]);
            assert_eq!(out, ["system calls hold"], "{program} {settings:?}");
        }
    }
}

#[test]
fn cpp() {
    let programs = Programs::new();
    let program = programs.compile("dsm-cpp", "bindings/cpp/tests/dsm.cpp", &["-lkumi"]);
    let cluster = TestCluster::up(2);
    let ranks = [0, 1, 2, 3].map(|rank| format!("rank {rank} of 4"));
    assert_eq!(lines(&cluster, &[], &[&program]), ranks);
}

/// Programs written to the published macros: one process starts the others, which get its static data.
#[test]
fn parmacs() {
    let programs = Programs::new();
    let cluster = TestCluster::up(2);
    for (name, said) in [
        ("lu", "LU: 4 processes, right"),
        ("radix", "radix: 200 turns, 100 and 100 counted, right"),
    ] {
        let program = programs.compile_with_macros(name, &["-no-pie"]);
        for settings in SETTINGS {
            assert_eq!(lines(&cluster, settings, &[&program, "-p4"]), [said], "{settings:?}");
        }
        for processes in ["-p3", "-p5"] {
            let ended = cluster.kumi(&words(&[], &[&program, processes]));
            assert!(ended.code() != 0 && ended.err.contains("ranks"), "{processes}: {ended:?}");
        }
    }
    // Where programs are not moved, nothing is wrong with one that could be.
    let moving = std::fs::read_to_string("/proc/sys/kernel/randomize_va_space").expect("proc");
    if moving.trim() == "0" {
        return;
    }
    let moved = programs.compile_with_macros("lu", &["-fPIE", "-pie"]);
    let ended = cluster.kumi(&words(&[], &[&moved, "-p4"]));
    assert!(ended.code() != 0 && ended.err.contains("-no-pie"), "{ended:?}");
}

const ROLES: &str = "bindings/c/tests/dsm-roles.c";

/// The holder is killed while the others wait for its lock, which nobody gives back.
#[test]
fn a_rank_that_is_killed_with_a_lock_ends_those_that_wait_for_it() {
    let programs = Programs::new();
    let roles = programs.compile("dsm-roles", ROLES, &["-lkumi"]);
    let cluster = TestCluster::up(2);
    for settings in SETTINGS {
        let name = format!("holder-{}", settings.len());
        let run =
            cluster.start(&words(&[settings, &["--name", &name]].concat(), &[&roles, "holder"]));
        let record = cluster.wait_state(&name, "running");
        let lines = cluster.wait_lines(&record, 4);
        let ranks: Vec<(u32, u32)> = lines
            .iter()
            .filter_map(|line| line.split_once(' '))
            .map(|(rank, process)| {
                (rank.parse().expect("a rank"), process.parse().expect("a process"))
            })
            .collect();
        let holder = ranks.iter().find(|(rank, _)| *rank == 1).expect("rank 1");
        machine::signal(holder.1, Signal::SIGKILL);
        let ended = run.finish().fails(137, &["rank 1 on node", "9 (SIGKILL)"]);
        assert!(!ended.out.contains("has the lock"), "{ended:?}");
        wait_for("the end of all ranks", || {
            ranks.iter().all(|(_, process)| !machine::lives(*process)).then_some(())
        });
    }
}

/// A filter of system calls refuses userfaultfd, as those of containers do: each node says so once, and what it costs. Who
/// asks for access rights wants no advice.
#[test]
fn what_the_kernel_lacks_is_said_once_by_each_node() {
    let programs = Programs::new();
    let roles = programs.compile("dsm-roles", ROLES, &["-lkumi"]);
    let cluster = TestCluster::up(2);
    for (settings, times) in [(SETTINGS[0], 2), (SETTINGS[1], 0)] {
        let said = cluster.kumi(&words(settings, &[&roles, "notice"])).ok().err;
        assert_eq!(said.matches("the kernel refuses userfaultfd").count(), times, "{said}");
        assert_eq!(said.matches("a first write to a page costs a signal").count(), times, "{said}");
    }
}

/// Every copy has a twin: a node that reads another's pages needs twice their size.
#[test]
fn copies_and_twins_count_as_memory_of_their_rank() {
    let programs = Programs::new();
    let roles = programs.compile("dsm-roles", ROLES, &["-lkumi"]);
    let cluster = TestCluster::up(2);
    let run = |limit: &str| {
        let limited = ["run", "-n", "2", "--nodes", "2", "--mem-per-rank", limit];
        cluster.kumi(&[&limited[..], &[&roles, "reader", "96"]].concat())
    };
    let enough = run("512M");
    if machine::cgroup_mount().is_none() || enough.code() == 78 {
        kumi_skip::skip(
            "copies_and_twins_count_as_memory_of_their_rank",
            "memory cannot be limited here",
        );
        return;
    }
    assert_eq!(enough.ok().out, "24576 pages\n");
    // Enough for the pages, which rank 0 has, but not for copies and twins of them.
    run("160M").fails(137, &["rank 1 on node", "memory"]);
}

/// Ranks of several processors: threads of one share its view and its copy, and take locks from each other.
#[test]
fn threads_inside_of_ranks_share_memory() {
    let programs = Programs::new();
    let roles = programs.compile("dsm-roles", ROLES, &["-lkumi"]);
    let processors = machine::processors();
    let all = processors[..processors.len().min(4)].to_vec();
    let each = all.len().to_string();
    let cluster = TestCluster::up_with_nodes(&[all.clone(), all], &[]);
    for settings in SETTINGS {
        let options = ["run", "-n", "2", "--nodes", "2", "--cpus-per-rank", &each];
        let words = [&options[..], settings, &[&roles, "threads", "4"]].concat();
        let out = cluster.kumi(&words).ok().out;
        let mut lines: Vec<&str> = out.lines().collect();
        lines.sort_unstable();
        // Two ranks of four threads, 50 times each.
        assert_eq!(lines, ["rank 0: 0 wrong, 400 counted", "rank 1: 0 wrong, 400 counted"]);
    }
}

fn folder_of(path: &Path) -> &str {
    path.to_str().expect("a name in UTF-8")
}
