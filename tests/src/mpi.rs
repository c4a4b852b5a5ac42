//! MPI libraries of this machine, the programs of `tests/mpi` compiled for each, and the table of their runs.

use crate::binaries::repository;
use crate::cluster::TestCluster;
use crate::command::{self, FinishedCommand, RunningCommand};
use crate::machine;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Only a program that hangs takes longer, on however slow a machine.
const LIMIT: Duration = Duration::from_secs(1000);

/// An MPI library with which programs are compiled and run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    /// The distribution's Open MPI 4.1.
    OpenMpi4,
    /// Open MPI 5, installed by pip.
    OpenMpi5,
    /// MPICH 5, installed by pip.
    Mpich,
}

/// `target/mpi`: environments of Python with the libraries, and compiled programs.
fn target() -> PathBuf {
    let exe = std::env::current_exe().expect("a test knows where it is");
    exe.ancestors().nth(3).expect("tests lie in target/<profile>/deps").join("mpi")
}

impl Library {
    /// The name of its folders in `target/mpi`.
    fn name(self) -> &'static str {
        match self {
            Self::OpenMpi4 => "open-mpi-4",
            Self::OpenMpi5 => "open-mpi-5",
            Self::Mpich => "mpich-5",
        }
    }

    /// Its environment of Python, which has mpi4py too.
    fn environment(self) -> PathBuf {
        target().join(self.name())
    }

    /// Its compiler, or why there is none.
    fn compiler(self) -> Result<PathBuf, String> {
        if self == Self::OpenMpi4 {
            let there = machine::has_command("mpicc");
            let absent = "there is no mpicc; `make bench-peers` installs it".to_owned();
            return if there { Ok("mpicc".into()) } else { Err(absent) };
        }
        let path = self.environment().join("bin/mpicc");
        let absent = format!("there is no {}; run `make mpi` first", path.display());
        if path.is_file() { Ok(path) } else { Err(absent) }
    }

    /// The interpreter that has mpi4py with this library; none, after saying so, if `make mpi` was not run.
    pub fn python(self, test: &str) -> Option<PathBuf> {
        let path = self.environment().join("bin/python");
        if path.is_file() {
            return Some(path);
        }
        let reason = format!("there is no {}; run `make mpi` first", path.display());
        kumi_skip::skip(test, &reason);
        None
    }

    /// Compiles the programs for this library; none, after saying so, if it is not there.
    ///
    /// # Panics
    /// When they do not compile.
    pub fn programs(self, test: &str) -> Option<Programs> {
        let compiler = match self.compiler() {
            Ok(compiler) => compiler,
            Err(reason) => {
                kumi_skip::skip(test, &reason);
                return None;
            }
        };
        let folder = target().join("programs").join(self.name());
        let mut make = Command::new("make");
        make.arg("-C").arg(repository().join("tests/mpi")).args(["--jobs=2", "--silent"]);
        make.arg(format!("MPICC={}", compiler.display()));
        make.arg(format!("OUT={}", folder.display()));
        assert!(make.status().expect("make runs").success(), "tests/mpi does not compile");
        Some(Programs { library: self, folder })
    }
}

/// The tests of mpi4py from its source; none, after saying so, if `make mpi` was not run.
pub fn mpi4py_tests(test: &str) -> Option<PathBuf> {
    let path = target().join("mpi4py/test/main.py");
    if path.is_file() {
        return Some(path);
    }
    kumi_skip::skip(test, &format!("there is no {}; run `make mpi` first", path.display()));
    None
}

/// Compiled programs.
pub struct Programs {
    library: Library,
    folder: PathBuf,
}

impl Programs {
    /// The path of one.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// A program with its options.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Its name in `tests/mpi`.
    pub program: &'static str,
    /// Its options.
    pub options: &'static [&'static str],
    /// It runs on no other number of ranks, if this is not 0.
    pub ranks: u32,
}

const fn case(program: &'static str) -> Case {
    Case { program, options: &[], ranks: 0 }
}

/// The runs on each number of ranks and nodes: a further program is one line.
pub const CASES: [Case; 23] = [
    case("point"),
    case("modes"),
    case("probe"),
    case("requests"),
    case("errors"),
    case("unexpected"),
    Case { program: "unexpected", options: &["--count", "100000"], ranks: 2 },
    case("flood"),
    Case { program: "sizes", options: &["--most", "1048576"], ranks: 0 },
    Case { program: "sizes", options: &["--most", "67108864"], ranks: 2 },
    case("collectives"),
    case("reductions"),
    case("topology"),
    case("types"),
    case("rma"),
    case("rma-locks"),
    case("rma-windows"),
    case("groups"),
    case("large"),
    Case { program: "large", options: &["--large"], ranks: 2 },
    case("threads"),
    case("files"),
    Case { program: "progress", options: &[], ranks: 2 },
];

/// Programs that run in every setting of `make test`; the others only where nothing else is tried.
const EVERYWHERE: [&str; 6] = ["point", "errors", "collectives", "types", "rma", "threads"];

/// How much of the table runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All lines.
    All,
    /// Those without options.
    Most,
    /// Those that run in every setting.
    Few,
}

/// Whether all of the table is to run, in all settings: `KUMI_MPI_TESTS=all` (`make test-mpi`). It takes hours on a small machine.
#[must_use]
pub fn everything() -> bool {
    std::env::var_os("KUMI_MPI_TESTS").is_some_and(|wanted| wanted == "all")
}

/// The lines of the table that run.
pub fn cases(extent: Extent) -> impl Iterator<Item = &'static Case> {
    let extent = if everything() { Extent::All } else { extent };
    CASES.iter().filter(move |case| match extent {
        Extent::All => true,
        Extent::Most => case.options.is_empty() || case.ranks == 0,
        Extent::Few => case.options.is_empty() && EVERYWHERE.contains(&case.program),
    })
}

/// The words of `kumi run` for a program; `KUMI_TEST_FABRIC` names another fabric than Kumi's.
pub fn words(ranks: u32, nodes: u32, program: &Path, options: &[&str]) -> Vec<String> {
    let fabric = std::env::var("KUMI_TEST_FABRIC").unwrap_or_else(|_| "kumi".to_owned());
    let (ranks, nodes) = (ranks.to_string(), nodes.to_string());
    let mut words = ["run", "-n", &ranks, "--nodes", &nodes].map(str::to_owned).to_vec();
    words.push(format!("--fabric={fabric}"));
    words.push(program.display().to_string());
    words.extend(options.iter().map(|&word| word.to_owned()));
    words
}

/// Starts a program under `kumi run`.
#[track_caller]
pub fn start(
    cluster: &TestCluster,
    ranks: u32,
    nodes: u32,
    program: &Path,
    options: &[&str],
) -> RunningCommand {
    let words = words(ranks, nodes, program, options);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    cluster.start(&words)
}

/// Waits for its end.
///
/// # Panics
/// When it hangs.
#[track_caller]
pub fn finish(mut job: RunningCommand, what: &str) -> FinishedCommand {
    command::wait_at_most(LIMIT, what, || (!job.runs()).then_some(()));
    job.finish()
}

/// Starts a case whose files go to the cluster's folder.
#[track_caller]
pub fn start_case(
    cluster: &TestCluster,
    programs: &Programs,
    shape: [u32; 2],
    case: &Case,
    more: &[&str],
) -> RunningCommand {
    let folder = cluster.state().display().to_string();
    let options = [case.options, more, &["--folder", &folder]].concat();
    start(cluster, shape[0], shape[1], &programs.path(case.program), &options)
}

/// Requires of a finished case that all of its checks have passed.
///
/// # Panics
/// Otherwise, with its output.
#[track_caller]
pub fn has_passed(job: RunningCommand, case: &Case, shape: [u32; 2], library: Library) {
    let what = format!("end of {case:?} on {shape:?} ranks and nodes with {library:?}");
    let ended = finish(job, &what);
    assert!(ended.status.success(), "{what}: {ended:#?}");
    let checks = ended.out.lines().filter(|line| line.starts_with("ok ")).count();
    let last = ended.out.lines().last().unwrap_or_default();
    assert_eq!(last, format!("passed {checks} checks of {}", case.program), "{what}: {ended:#?}");
    assert!(checks > 0, "{what}: {ended:#?}");
}

/// Runs the cases that go on this number of ranks and nodes.
#[track_caller]
pub fn run_all(
    cluster: &TestCluster,
    programs: &Programs,
    (extent, shape): (Extent, [u32; 2]),
    more: &[&str],
) {
    for case in cases(extent).filter(|case| case.ranks == 0 || case.ranks == shape[0]) {
        let job = start_case(cluster, programs, shape, case, more);
        has_passed(job, case, shape, programs.library);
    }
}

/// Runs cases with a library on a cluster of so many nodes: on the first of these numbers of ranks, and all of the table on each of them
/// if [`everything`] is wanted.
#[track_caller]
pub fn run_on(test: &str, library: Library, nodes: u32, extent: Extent, ranks: &[u32]) {
    let Some(programs) = library.programs(test) else { return };
    let cluster = TestCluster::up(nodes);
    let shapes = if everything() { ranks.len() } else { 1 };
    for &ranks in &ranks[..shapes] {
        run_all(&cluster, &programs, (extent, [ranks, nodes]), &[]);
    }
}
