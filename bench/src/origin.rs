//! Origin of records: date, commit, profile, machine, and the versions of both sides.

use crate::error::BenchError;
use crate::peer::Peers;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The commit of this build, which make sets; a manual build does not know it.
pub const COMMIT: &str = match option_env!("KUMI_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

/// The profile of this build.
pub const PROFILE: &str = if cfg!(debug_assertions) { "debug" } else { "release" };

/// The machine of a measurement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of its processor.
    pub processor: String,
    /// Number of processors that the kernel shows.
    pub cores: usize,
    /// Name and release of its kernel.
    pub kernel: String,
}

/// Origin of a file's records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// RFC 3339, UTC.
    pub date: String,
    /// Commit of the measured programs.
    pub commit: String,
    /// Profile of the measured programs.
    pub profile: String,
    /// The machine.
    pub machine: Machine,
    /// Versions of compilers, interpreters, libraries and peers, as far as they are known.
    pub versions: BTreeMap<String, String>,
}

impl Origin {
    /// Origin of the present measurement, with this interpreter for Python.
    pub fn now(peers: &Peers, python: &Path) -> Self {
        let date = OffsetDateTime::now_utc().replace_nanosecond(0);
        let date = date.ok().and_then(|date| date.format(&Rfc3339).ok());
        let mut versions = packages(python);
        versions.insert("kumi".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
        versions.extend(said("rustc", &["--version"]).map(|text| ("rustc".to_owned(), text)));
        versions.extend(said("cc", &["--version"]).map(|text| ("cc".to_owned(), text)));
        for version in [&peers.mpi, &peers.ucx].into_iter().flatten() {
            let (name, number) = version.rsplit_once(' ').unwrap_or((version, ""));
            versions.insert(name.to_owned(), number.to_owned());
        }
        Self {
            date: date.unwrap_or_else(|| "unknown".to_owned()),
            commit: COMMIT.to_owned(),
            profile: PROFILE.to_owned(),
            machine: machine(&peers.kernel),
            versions,
        }
    }
}

fn machine(kernel: &str) -> Machine {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    Machine {
        processor: model.map_or_else(|| "unknown".to_owned(), |(_, name)| name.trim().to_owned()),
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        kernel: kernel.to_owned(),
    }
}

/// The first line that a program prints.
fn said(program: &str, args: &[&str]) -> Option<String> {
    let output =
        Command::new(program).args(args).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).lines().next()?.trim().to_owned())
}

/// Versions of the interpreter and of the packages measured with it.
const PACKAGES: &str = "\
import json, platform
from importlib.metadata import PackageNotFoundError, version
found = {'Python': platform.python_version()}
for name in ('numpy', 'ray', 'dask', 'distributed', 'pyarrow'):
    try:
        found[name] = version(name)
    except PackageNotFoundError:
        pass
print(json.dumps(found))
";

fn packages(python: &Path) -> BTreeMap<String, String> {
    let found = said(&python.display().to_string(), &["-c", PACKAGES]);
    found.and_then(|line| serde_json::from_str(&line).ok()).unwrap_or_default()
}

/// Information of the package's extension module about itself.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Package {
    /// `release` or `debug`.
    pub profile: String,
    /// Its commit.
    pub commit: String,
}

/// Asks the package; prints nothing if the interpreter has none.
const BUILD: &str = "\
import importlib.util, json
if importlib.util.find_spec('kumi') is not None:
    from kumi import _native
    print(json.dumps({'profile': getattr(_native, 'BUILD_PROFILE', 'unknown'), 'commit': getattr(_native, 'BUILD_COMMIT', 'unknown')}))
";

/// Refuses a debug build of this program: its figures would say nothing.
///
/// # Errors
/// [`BenchError::DebugBuild`].
pub fn require_release(profile: &str) -> Result<(), BenchError> {
    if profile == "release" { Ok(()) } else { Err(BenchError::DebugBuild) }
}

/// Refuses a Python package that is not a release build of this program's commit. An interpreter without the package is
/// no error: the benchmarks leave its figures out.
///
/// # Errors
/// [`BenchError::Package`]; or the interpreter cannot be run.
pub fn require_package(python: &Path) -> Result<(), BenchError> {
    let name = python.display().to_string();
    let run = Command::new(python).args(["-c", BUILD]).output();
    let output = run.map_err(|source| BenchError::Start { what: name.clone(), source })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(BenchError::Failed { what: name, status: output.status, said });
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let Some(line) = text.lines().next() else { return Ok(()) };
    let package: Package = serde_json::from_str(line).map_err(|_| BenchError::Output {
        wanted: "the build of the package".to_owned(),
        what: name.clone(),
        output: text.clone().into_owned(),
    })?;
    judge(&package, COMMIT).map_err(|why| BenchError::Package { python: name, why })
}

/// The reason why a program of this commit cannot measure this package.
fn judge(package: &Package, commit: &str) -> Result<(), String> {
    if package.profile != "release" {
        return Err(format!("is a {} build", package.profile));
    }
    let both_known = package.commit != "unknown" && commit != "unknown";
    if both_known && package.commit != commit {
        return Err(format!("was built from {}, and kumi-bench from {commit}", package.commit));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn package(profile: &str, commit: &str) -> Package {
        Package { profile: profile.to_owned(), commit: commit.to_owned() }
    }

    #[test]
    fn only_release_builds_of_the_same_commit_are_measured() {
        assert_eq!(judge(&package("release", "abc"), "abc"), Ok(()));
        assert_eq!(judge(&package("release", "unknown"), "abc"), Ok(()));
        assert!(judge(&package("debug", "abc"), "abc").unwrap_err().contains("debug build"));
        assert!(judge(&package("unknown", "abc"), "abc").is_err(), "a package of before");
        assert!(judge(&package("release", "abd"), "abc").unwrap_err().contains("abd"));
        assert!(require_release("release").is_ok());
        assert!(require_release("debug").unwrap_err().to_string().contains("make bench"));
    }

    /// An interpreter that prints this line for any program.
    fn interpreter(folder: &Path, line: &str) -> std::path::PathBuf {
        let path = folder.join("python");
        std::fs::write(&path, format!("#!/bin/sh\necho '{line}'\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn the_interpreter_is_asked_for_the_build_of_its_package() {
        let folder = tempfile::tempdir().unwrap();
        let ask = |line: &str| require_package(&interpreter(folder.path(), line));
        assert!(ask("{\"profile\": \"release\", \"commit\": \"unknown\"}").is_ok());
        let said =
            ask("{\"profile\": \"debug\", \"commit\": \"unknown\"}").unwrap_err().to_string();
        assert!(said.contains("debug build") && said.contains("make bench-call"), "{said}");
        assert!(ask("nonsense").is_err());
        // An interpreter without the package.
        assert!(require_package(Path::new("/bin/true")).is_ok());
        assert!(require_package(Path::new("/nowhere/python")).is_err());
    }

    #[test]
    fn an_origin_names_the_machine_and_the_interpreter() {
        let folder = tempfile::tempdir().unwrap();
        let python = interpreter(folder.path(), "{\"Python\": \"3.14.1\", \"ray\": \"2.9\"}");
        let origin = Origin::now(&Peers::find(folder.path()), &python);
        assert_eq!(origin.versions.get("ray").map(String::as_str), Some("2.9"));
        assert!(
            origin.machine.cores > 0 && origin.machine.kernel.starts_with("Linux "),
            "{origin:?}"
        );
        assert!(origin.date.ends_with('Z') && origin.date.len() == 20, "{}", origin.date);
    }
}
