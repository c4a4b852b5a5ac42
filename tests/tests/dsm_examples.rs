//! The examples of shared memory: every program and version at sizes that do not divide evenly, on nodes with one rank and
//! with two, and while packets are lost.
#![forbid(unsafe_code)]

use kumi_tests::cluster::TestCluster;
use kumi_tests::{binaries, command};
use std::process::Command;

/// A program, whether it has a version with puts and gets, its sizes, and further options.
struct Example {
    name: &'static str,
    putget: bool,
    /// One element, fewer than four ranks, a prime, and one that is on many pages.
    sizes: [&'static str; 4],
    /// For the last size: options that change where data lies or how it is cut.
    options: &'static [&'static str],
}

const EXAMPLES: [Example; 8] = [
    Example {
        name: "mm",
        putget: true,
        sizes: ["1", "3", "37", "101"],
        options: &["--homes=careless", "--homes=round-robin"],
    },
    Example {
        name: "sor",
        putget: true,
        sizes: ["1", "3", "61", "127"],
        options: &["--homes=careless", "--homes=round-robin"],
    },
    Example {
        name: "lu",
        putget: true,
        sizes: ["1", "3", "67", "150"],
        options: &["--block=7", "--block=256"],
    },
    Example {
        name: "water",
        putget: false,
        sizes: ["1", "3", "31", "512"],
        options: &["--steps=1"],
    },
    Example { name: "queens", putget: false, sizes: ["1", "3", "7", "10"], options: &[] },
    Example { name: "bitonic", putget: true, sizes: ["1", "3", "1009", "30000"], options: &[] },
    Example { name: "radix", putget: true, sizes: ["1", "3", "1009", "30000"], options: &[] },
    Example { name: "tasks", putget: false, sizes: ["1", "3", "7", "11"], options: &[] },
];

impl Example {
    fn path(&self) -> String {
        binaries::path(&format!("dsm-{}", self.name)).display().to_string()
    }

    fn versions(&self) -> &'static [&'static str] {
        if self.putget { &["dsm", "putget"] } else { &["dsm"] }
    }
}

/// The last line of a run that its own check found right.
#[track_caller]
fn checked(out: &str, example: &Example, version: &str, size: &str, ranks: &str) {
    let last = out.lines().last().unwrap_or_default();
    let begin = format!("{} {version} {size} {ranks} ", example.name);
    assert!(last.starts_with(&begin) && last.ends_with(" checked yes"), "{out}");
}

/// Some ranks on some nodes, in an environment.
struct Layout<'c> {
    cluster: &'c TestCluster,
    ranks: &'static str,
    nodes: &'static str,
    environment: &'static [(&'static str, &'static str)],
}

impl Layout<'_> {
    #[track_caller]
    fn run(&self, example: &Example, version: &str, size: &str, more: &[&str]) -> String {
        let (path, option) = (example.path(), format!("--size={size}"));
        let mut words = vec!["run", "-n", self.ranks, "--nodes", self.nodes, &path, version];
        words.push(&option);
        words.extend(more);
        let mut command = self.cluster.command(&words);
        command.envs(self.environment.iter().copied());
        let out = command::run(command).ok().out;
        checked(&out, example, version, size, self.ranks);
        out
    }

    /// Everything there is.
    #[track_caller]
    fn run_all(&self) {
        for example in &EXAMPLES {
            for version in example.versions() {
                for size in example.sizes {
                    self.run(example, version, size, &[]);
                }
                for option in example.options {
                    self.run(example, version, example.sizes[3], &[option]);
                }
            }
        }
    }

    /// Each program and version at its largest size.
    #[track_caller]
    fn run_each(&self) {
        for example in &EXAMPLES {
            for version in example.versions() {
                self.run(example, version, example.sizes[3], &[]);
            }
        }
    }
}

#[test]
fn one_process_computes_alone() {
    for example in &EXAMPLES {
        for size in example.sizes {
            let mut alone = Command::new(example.path());
            alone.args(["sequential", "--size", size]).env_remove("KUMI_SINGLETON");
            checked(&command::run(alone).ok().out, example, "sequential", size, "1");
        }
    }
}

#[test]
fn two_nodes_of_one_rank() {
    let cluster = TestCluster::up(2);
    Layout { cluster: &cluster, ranks: "2", nodes: "2", environment: &[] }.run_all();
}

#[test]
fn two_nodes_of_two_ranks() {
    let cluster = TestCluster::up(2);
    Layout { cluster: &cluster, ranks: "4", nodes: "2", environment: &[] }.run_all();
}

#[test]
fn four_nodes_of_one_rank() {
    let cluster = TestCluster::up(4);
    Layout { cluster: &cluster, ranks: "4", nodes: "4", environment: &[] }.run_all();
}

/// As many nodes as a small cluster has, of which some have nothing to do.
#[test]
fn sixteen_nodes_of_one_rank() {
    let cluster = TestCluster::up(16);
    Layout { cluster: &cluster, ranks: "16", nodes: "16", environment: &[] }.run_each();
}

/// The other settings of the shared memory, and numbers of ranks that are no power of two.
#[test]
fn three_ranks_with_other_settings() {
    let cluster = TestCluster::up(3);
    let settings: [&[(&str, &str)]; 2] = [
        &[("KUMI_DSM_FAULTS", "mprotect"), ("KUMI_DSM_PROTOCOL", "lazy")],
        &[("KUMI_DSM_HOMES", "stay"), ("KUMI_DSM_PAGE", "16K")],
    ];
    for environment in settings {
        Layout { cluster: &cluster, ranks: "3", nodes: "3", environment }.run_each();
    }
}

#[test]
fn two_per_cent_lost() {
    let cluster = TestCluster::up(2);
    let environment = &[("KUMI_FAULTS", "loss=20,seed=5")];
    Layout { cluster: &cluster, ranks: "4", nodes: "2", environment }.run_each();
    // The variable does reach the ranks: they refuse one that cannot be.
    let path = EXAMPLES[0].path();
    let mut wrong = cluster.command(&["run", "-n", "2", "--nodes", "2", &path, "dsm"]);
    wrong.env("KUMI_FAULTS", "loss=many");
    command::run(wrong).fails(1, &["KUMI_FAULTS"]);
}

/// A counter in the line of `--statistics`.
#[track_caller]
fn counter(out: &str, name: &str) -> u64 {
    let line = out.lines().find_map(|line| line.strip_prefix("statistics "));
    let line = line.unwrap_or_else(|| panic!("no statistics: {out}"));
    let value = line.split(", ").find_map(|item| item.strip_prefix(name)?.trim().parse().ok());
    value.unwrap_or_else(|| panic!("no {name}: {out}"))
}

/// What the option is there to show. Pages stay where they are put, for otherwise they move to the rank that writes them.
#[test]
fn careless_homes_cost_diffs_and_fetches() {
    let cluster = TestCluster::up(2);
    let environment = &[("KUMI_DSM_HOMES", "stay")];
    let layout = Layout { cluster: &cluster, ranks: "2", nodes: "2", environment };
    for example in &EXAMPLES[..2] {
        let with = |homes: &str| {
            let option = format!("--homes={homes}");
            layout.run(example, "dsm", example.sizes[3], &[&option, "--statistics"])
        };
        let [matched, careless, dealt] = ["matched", "careless", "round-robin"].map(with);
        for worse in [careless, dealt] {
            let [few, many] = [&matched, &worse].map(|out| counter(out, "diff_bytes "));
            assert!(2 * few < many, "{few} and {many} bytes of diffs\n{matched}{worse}");
        }
    }
}

#[test]
fn wrong_arguments_are_refused() {
    for example in &EXAMPLES {
        let run = |args: &[&str]| {
            let mut alone = Command::new(example.path());
            alone.args(args).env_remove("KUMI_SINGLETON");
            command::run(alone)
        };
        assert!(run(&["--help"]).ok().out.contains("Usage:"));
        run(&[]).fails(64, &["names a version", "Usage:"]);
        run(&["sequential", "--what"]).fails(64, &["unknown option"]);
        for wrong in ["--size=0", "--size", "--size=1x", "--size="] {
            run(&["sequential", wrong]).fails(64, &["--size takes 1 to "]);
        }
        run(&["dsm"]).fails(1, &["kumi_init(): ", "kumi run -n"]);
        if !example.putget {
            run(&["putget"]).fails(64, &["names a version"]);
        }
    }
    let cluster = TestCluster::up(2);
    let path = EXAMPLES[0].path();
    let many = ["run", "-n", "2", "--nodes", "2", &path, "sequential"];
    cluster.kumi(&many).fails(64, &["for one rank"]);
}
