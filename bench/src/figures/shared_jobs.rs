//! The programs of `examples/dsm` with their sizes, and how they are run.

use super::Setting;
use crate::cluster::{self, Cluster};
use crate::error::BenchError;
use std::process::Command;

/// A program of `examples/dsm`.
pub(super) struct Program {
    /// Without the prefix of its file.
    pub(super) name: &'static str,
    /// A size that takes a fraction of a second, and one of today.
    sizes: [&'static str; 2],
    /// Options with the small size, and with the other.
    options: [&'static [&'static str]; 2],
    /// Whether it has a version with puts and gets.
    pub(super) putget: bool,
}

pub(super) const PROGRAMS: [Program; 7] = [
    Program { name: "mm", sizes: ["512", "1536"], options: [&[], &[]], putget: true },
    Program {
        name: "sor",
        sizes: ["1022", "2046"],
        options: [&["--steps=40"], &["--steps=100"]],
        putget: true,
    },
    Program { name: "lu", sizes: ["512", "2048"], options: [&[], &[]], putget: true },
    Program {
        name: "water",
        sizes: ["512", "1728"],
        options: [&["--steps=4"], &["--steps=4"]],
        putget: false,
    },
    Program { name: "queens", sizes: ["12", "15"], options: [&[], &[]], putget: false },
    Program { name: "radix", sizes: ["500000", "4000000"], options: [&[], &[]], putget: true },
    Program { name: "bitonic", sizes: ["500000", "4000000"], options: [&[], &[]], putget: true },
];

/// The program of that name.
///
/// # Panics
/// There is none.
pub(super) fn of_name(name: &str) -> &'static Program {
    PROGRAMS.iter().find(|program| program.name == name).expect("a name of the table")
}

impl Program {
    /// The size in this setting.
    pub(super) fn size(&self, setting: &Setting) -> &'static str {
        self.sizes[usize::from(setting.scaled)]
    }

    /// Version, size and options in this setting.
    pub(super) fn arguments(&self, setting: &Setting, version: &str) -> Vec<String> {
        let mut words = vec![version.to_owned(), format!("--size={}", self.size(setting))];
        words.extend(self.options[usize::from(setting.scaled)].iter().map(ToString::to_string));
        words
    }

    /// Seconds of the sequential version, on these processors.
    pub(super) fn sequential(&self, setting: &Setting, cpu: &str) -> Result<f64, BenchError> {
        let mut command = Command::new("taskset");
        command.args(["-c", cpu]).arg(self.path()?).args(self.arguments(setting, "sequential"));
        seconds(&cluster::output(&mut command)?, self.name)
    }

    fn path(&self) -> Result<String, BenchError> {
        Ok(cluster::program(&format!("dsm-{}", self.name))?.display().to_string())
    }
}

/// Ranks of one of the programs.
pub(super) struct Job<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) setting: &'a Setting,
    pub(super) program: &'static Program,
    pub(super) version: &'a str,
    pub(super) ranks: usize,
    pub(super) nodes: usize,
    /// More options of `kumi run`.
    pub(super) run: &'a [&'a str],
    /// More options of the program.
    pub(super) more: &'a [&'a str],
}

impl<'a> Job<'a> {
    /// A rank on each of the cluster's nodes, with shared memory.
    pub(super) fn shared(
        cluster: &'a Cluster,
        setting: &'a Setting,
        program: &'static Program,
    ) -> Self {
        let nodes = cluster.nodes.len();
        Self { cluster, setting, program, version: "dsm", ranks: nodes, nodes, run: &[], more: &[] }
    }

    /// Runs it; returns its output.
    pub(super) fn output(&self) -> Result<String, BenchError> {
        let (ranks, nodes) = (self.ranks.to_string(), self.nodes.to_string());
        let mut words = vec!["run", "--exclusive", "-n", &ranks, "--nodes", &nodes];
        words.extend(self.run);
        let (path, arguments) =
            (self.program.path()?, self.program.arguments(self.setting, self.version));
        words.push(&path);
        words.extend(arguments.iter().map(String::as_str));
        words.extend(self.more);
        self.cluster.kumi(&words)
    }

    /// Runs it; returns the seconds that it tells.
    pub(super) fn seconds(&self) -> Result<f64, BenchError> {
        seconds(&self.output()?, self.program.name)
    }
}

/// The seconds of a run whose own check found nothing wrong: of the line "name version size ranks seconds checked yes".
pub(crate) fn seconds(output: &str, name: &str) -> Result<f64, BenchError> {
    let of = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [first, _, _, _, seconds, "checked", "yes"] if first == name => seconds.parse().ok(),
            _ => None,
        }
    };
    output.lines().find_map(of).ok_or_else(|| BenchError::Output {
        wanted: "a result that is checked".to_owned(),
        what: format!("dsm-{name}"),
        output: output.to_owned(),
    })
}

/// A counter in the line of `--statistics`, of all ranks.
pub(super) fn counter(output: &str, name: &str) -> Result<f64, BenchError> {
    let line = output.lines().find_map(|line| line.strip_prefix("statistics ")).unwrap_or_default();
    let of = |item: &str| item.strip_prefix(name)?.strip_prefix(' ')?.parse().ok();
    line.split(", ").find_map(of).ok_or_else(|| BenchError::Output {
        wanted: name.to_owned(),
        what: "--statistics".to_owned(),
        output: output.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "statistics faults 12, fetches 3, pages 40, diff_bytes 7, packets 90\n\
                          sor dsm 1022 2 0.125000 checked yes\n";

    #[test]
    fn reads_the_seconds_of_a_checked_run() {
        assert_eq!(seconds(OUTPUT, "sor").unwrap(), 0.125);
        assert!(seconds(OUTPUT, "mm").is_err(), "another program");
        assert!(seconds("sor dsm 1022 2 0.125000 checked no\n", "sor").is_err(), "a wrong result");
    }

    #[test]
    fn reads_counters_by_their_whole_name() {
        assert_eq!(counter(OUTPUT, "pages").unwrap(), 40.0);
        assert_eq!(counter(OUTPUT, "packets").unwrap(), 90.0);
        assert!(counter(OUTPUT, "page").is_err());
    }
}
