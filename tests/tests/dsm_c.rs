//! Shared memory from C, by `kumi_dsm.h`, `jia.h` and the macros of `kumi.m4`: programs of four ranks on two nodes.
#![forbid(unsafe_code)]

use kumi_tests::binaries::{self, repository};
use kumi_tests::cluster::TestCluster;
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
        for folder in ["bindings/c/include", "bindings/jia/include", "bindings/cpp/include"] {
            compiler.arg("-I").arg(repository().join(folder));
        }
        compiler.arg("-o").arg(&program).arg(repository().join(source));
        compiler.arg("-L").arg(self.folder.path()).args(options);
        compiler.arg(format!("-Wl,-rpath,{}", self.folder.path().display()));
        let output = compiler.output().expect("a compiler");
        assert!(output.status.success(), "{source}: {}", String::from_utf8_lossy(&output.stderr));
        program.display().to_string()
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
            let out = lines(&cluster, settings, &[&program, folder(&files)]);
            assert_eq!(out, ["system calls hold"], "{program} {settings:?}");
        }
    }
}

fn folder(path: &Path) -> &str {
    path.to_str().expect("a name in UTF-8")
}
