//! Lookup of the program, like a shell, and its content hash.

use super::job_file;
use crate::error::Error;
use kumi_control::batch::MOST_CONTENT;
use kumi_control::message::{ContentHash, Program};
use nix::unistd::{AccessFlags, access};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Size of the pieces in which the file is hashed, in bytes.
const PIECE: usize = 1 << 20;

/// Path and job name of a script that came on standard input: no node has a file with its content there.
const INPUT: (&str, &str) = ("/dev/stdin", "stdin");

/// What a job is to run.
#[derive(Debug)]
pub struct JobProgram {
    /// Where it is; none of a script that came on standard input.
    pub place: Option<PathBuf>,
    /// How nodes know it.
    pub program: Program,
    /// The words of its command line.
    pub command: Vec<String>,
}

impl JobProgram {
    /// The program of `kumi run`.
    ///
    /// # Errors
    /// There is none, or it cannot be executed.
    pub fn to_run(command: Vec<String>) -> Result<Self, Error> {
        Self::found("run", command, find_to_run)
    }

    /// The program or script of `kumi submit`.
    ///
    /// # Errors
    /// There is none, or it cannot be executed.
    pub fn to_submit(command: Vec<String>) -> Result<Self, Error> {
        Self::found("submit", command, find_to_submit)
    }

    /// A script that came on standard input.
    pub fn of_input(command: Vec<String>, script: &[u8]) -> Self {
        let hash = ContentHash(*blake3::hash(script).as_bytes());
        let program = Program { path: INPUT.0.to_owned(), hash, size: script.len() as u64 };
        // An argument list begins with the name of the program.
        let command = if command.is_empty() { vec![INPUT.1.to_owned()] } else { command };
        Self { place: None, program, command }
    }

    fn found(
        command_name: &str,
        command: Vec<String>,
        find: impl FnOnce(&str, Option<&OsStr>, &Path) -> Result<PathBuf, Error>,
    ) -> Result<Self, Error> {
        let name = command.first().map(String::as_str).unwrap_or_default();
        let place = find(name, std::env::var_os("PATH").as_deref(), Path::new(""));
        let place = place.map_err(|error| match error {
            // What is no option counts as a program.
            Error::ProgramNotFound(name) if name.starts_with('-') => {
                Error::Usage(job_file::no_option(command_name, &name))
            }
            other => other,
        })?;
        let program = identify(&place)?;
        Ok(Self { place: Some(place), program, command })
    }

    /// The name of a job that gets no other.
    pub fn job_name(&self) -> String {
        match &self.place {
            Some(place) => place.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            None => INPUT.1.to_owned(),
        }
    }
}

/// The program of `kumi run`: as [`find`]. A file of that name in the folder `here` is not meant, and is told of.
fn find_to_run(name: &str, path: Option<&OsStr>, here: &Path) -> Result<PathBuf, Error> {
    find(name, path).map_err(|error| match error {
        Error::ProgramNotFound(name) if !name.contains('/') && here.join(&name).is_file() => {
            Error::ProgramHere(name)
        }
        other => other,
    })
}

/// The program of `kumi submit`: a script in the folder `here` if its name is that, otherwise as [`find`], otherwise an
/// executable file in that folder. A script goes with the request and need not be executable, if it is small.
pub fn find_to_submit(name: &str, path: Option<&OsStr>, here: &Path) -> Result<PathBuf, Error> {
    let own = here.join(name);
    if is_script(&own) && (obstacle(&own).is_none() || is_small(&own)) {
        return absolute(&own);
    }
    find(name, path).or_else(|error| match (error, obstacle(&own)) {
        (Error::ProgramNotFound(name), None) if !name.contains('/') => absolute(&own),
        (Error::ProgramNotFound(name), _) if !name.contains('/') && own.is_file() => {
            let reason = "it is neither executable nor a script, whose first line begins with #!";
            Err(Error::NotExecutable { path: own, reason: reason.to_owned() })
        }
        (error, _) => Err(error),
    })
}

/// Whether this is a file whose first line begins with `#!`.
pub fn is_script(place: &Path) -> bool {
    let mut start = [0; 2];
    // Opening a pipe would wait for its writer.
    place.is_file()
        && File::open(place).and_then(|mut file| file.read_exact(&mut start)).is_ok()
        && start == *b"#!"
}

/// Whether it goes with a request.
fn is_small(place: &Path) -> bool {
    std::fs::metadata(place).is_ok_and(|meta| meta.len() <= MOST_CONTENT as u64)
}

/// The path for `name`: itself if it has a slash, otherwise the first executable file of that name in the
/// directories of `path`. As in a shell, an existing file that cannot be executed is reported only if no
/// later directory has an executable one.
pub fn find(name: &str, path: Option<&OsStr>) -> Result<PathBuf, Error> {
    if name.is_empty() {
        return Err(Error::ProgramNotFound(String::new()));
    }
    if name.contains('/') {
        let place = PathBuf::from(name);
        return match obstacle(&place) {
            None => absolute(&place),
            Some(error) => Err(error.unwrap_or_else(|| Error::ProgramNotFound(name.to_owned()))),
        };
    }
    let mut best = Error::ProgramNotFound(name.to_owned());
    for directory in path.map(std::env::split_paths).into_iter().flatten() {
        let place = directory.join(name);
        match obstacle(&place) {
            None => return absolute(&place),
            Some(Some(error)) if !place.is_dir() => best = error,
            Some(_) => {}
        }
    }
    Err(best)
}

fn absolute(place: &Path) -> Result<PathBuf, Error> {
    std::path::absolute(place).map_err(|source| Error::File {
        doing: "find",
        path: place.to_owned(),
        source,
    })
}

/// Whether this file can be executed: yes, it is missing, or an error.
#[allow(clippy::option_option)]
fn obstacle(place: &Path) -> Option<Option<Error>> {
    let refuse = |reason: &str| {
        Some(Some(Error::NotExecutable { path: place.to_owned(), reason: reason.to_owned() }))
    };
    let meta = match std::fs::metadata(place) {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            return refuse("its directory may not be searched; check its permissions");
        }
        Err(_) => return Some(None),
    };
    if meta.is_dir() {
        return refuse("it is a directory; name a program");
    }
    if !meta.is_file() {
        return refuse("it is not a regular file; name a program");
    }
    if access(place, AccessFlags::X_OK).is_err() {
        return refuse("its permissions do not allow it; try `chmod +x` on it");
    }
    None
}

/// Reads and hashes the file.
pub fn identify(place: &Path) -> Result<Program, Error> {
    let path = place.to_str().map(str::to_owned).ok_or_else(|| {
        Error::Usage(format!("the name {} is not UTF-8; rename the program", place.display()))
    })?;
    let unreadable = |source: std::io::Error| match source.kind() {
        std::io::ErrorKind::PermissionDenied => Error::NotExecutable {
            path: place.to_owned(),
            reason: "it cannot be read, so it cannot be sent to the nodes; check its permissions"
                .to_owned(),
        },
        _ => Error::File { doing: "read", path: place.to_owned(), source },
    };
    let mut file = File::open(place).map_err(unreadable)?;
    let mut hasher = blake3::Hasher::new();
    let mut piece = vec![0; PIECE];
    let mut size = 0;
    loop {
        match file.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => {
                hasher.update(&piece[..count]);
                size += count as u64;
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(error)),
        }
    }
    if size == 0 {
        return Err(Error::NotExecutable {
            path: place.to_owned(),
            reason: "it is empty; build it again".to_owned(),
        });
    }
    Ok(Program { path, hash: ContentHash(*hasher.finalize().as_bytes()), size })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn file(directory: &Path, name: &str, mode: u32) -> PathBuf {
        let path = directory.join(name);
        std::fs::write(&path, b"#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn the_search_path_is_searched_in_order() {
        let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        file(a.path(), "plain", 0o644);
        let second = file(b.path(), "plain", 0o755);
        let path = std::env::join_paths([a.path(), b.path()]).unwrap();
        assert_eq!(find("plain", Some(&path)).unwrap(), second);
        let only_first = std::env::join_paths([a.path()]).unwrap();
        assert_eq!(find("plain", Some(&only_first)).unwrap_err().exit_code(), 126);
        assert_eq!(find("absent", Some(&path)).unwrap_err().exit_code(), 127);
        assert_eq!(find("plain", None).unwrap_err().exit_code(), 127);
        assert_eq!(find("", Some(&path)).unwrap_err().exit_code(), 127);
    }

    #[test]
    fn what_is_submitted_may_be_in_the_working_directory() {
        let (here, bin) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = std::env::join_paths([bin.path()]).unwrap();
        let submit = |name: &str| find_to_submit(name, Some(&path), here.path());
        let code = |name: &str| submit(name).unwrap_err().exit_code();
        assert_eq!(code("job.sh"), 127);
        // A script there goes before a program of the search path, and needs no permission.
        let elsewhere = file(bin.path(), "job.sh", 0o755);
        assert_eq!(submit("job.sh").unwrap(), elsewhere);
        let script = file(here.path(), "job.sh", 0o644);
        assert_eq!(submit("job.sh").unwrap(), script);
        assert_eq!(submit(script.to_str().unwrap()).unwrap(), script);
        // Another executable file comes after those of the search path.
        let binary = file(here.path(), "solver", 0o755);
        std::fs::write(&binary, b"\x7fELF").unwrap();
        assert_eq!(submit("solver").unwrap(), binary);
        let elsewhere = file(bin.path(), "solver", 0o755);
        assert_eq!(submit("solver").unwrap(), elsewhere);
        // What is neither is named.
        std::fs::write(file(here.path(), "data", 0o644), b"1 2 3").unwrap();
        let error = submit("data").unwrap_err();
        assert_eq!((error.exit_code(), error.to_string().contains("#!")), (126, true), "{error}");
        std::fs::create_dir(here.path().join("folder")).unwrap();
        assert_eq!(code("folder"), 127);
        // A long script does not go with the request.
        let long = [b"#!/bin/sh\n".to_vec(), vec![b'#'; MOST_CONTENT]].concat();
        std::fs::write(&script, long).unwrap();
        assert_eq!(submit("job.sh").unwrap(), bin.path().join("job.sh"));
        assert_eq!(code(script.to_str().unwrap()), 126);
    }

    #[test]
    fn what_is_run_is_not_in_the_working_directory_and_that_is_said() {
        let (here, bin) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let path = std::env::join_paths([bin.path()]).unwrap();
        let run = |name: &str| find_to_run(name, Some(&path), here.path());
        assert!(!run("job.sh").unwrap_err().to_string().contains("./"));
        file(here.path(), "job.sh", 0o755);
        let error = run("job.sh").unwrap_err();
        assert_eq!(error.exit_code(), 127);
        assert!(error.to_string().contains("./job.sh"), "{error}");
        let found = file(bin.path(), "job.sh", 0o755);
        assert_eq!(run("job.sh").unwrap(), found);
    }

    #[test]
    fn a_script_of_standard_input_has_a_name_and_no_place() {
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect();
        let script = JobProgram::of_input(words(&["-", "7"]), b"#!/bin/sh\n");
        assert_eq!((script.place.as_deref(), &*script.job_name()), (None, "stdin"));
        assert_eq!((script.program.size, script.command[1].as_str()), (10, "7"));
        assert_eq!(JobProgram::of_input(Vec::new(), b"#!").command, ["stdin"]);
    }

    #[test]
    fn a_name_with_a_slash_is_taken_as_it_is() {
        let a = tempfile::tempdir().unwrap();
        let good = file(a.path(), "good", 0o755);
        let plain = file(a.path(), "plain", 0o644);
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        assert_eq!(find(&text(&good), None).unwrap(), good);
        assert_eq!(find(&text(&plain), None).unwrap_err().exit_code(), 126);
        assert_eq!(find(&text(a.path()), None).unwrap_err().exit_code(), 126);
        assert_eq!(find(&text(&a.path().join("no")), None).unwrap_err().exit_code(), 127);
    }

    #[test]
    fn a_program_is_known_by_its_content() {
        let a = tempfile::tempdir().unwrap();
        let (one, two) = (file(a.path(), "one", 0o755), file(a.path(), "two", 0o755));
        let (one, two) = (identify(&one).unwrap(), identify(&two).unwrap());
        assert_eq!((one.hash, one.size), (two.hash, 10));
        assert_eq!(one.hash.0, *blake3::hash(b"#!/bin/sh\n").as_bytes());
        std::fs::write(a.path().join("empty"), b"").unwrap();
        assert_eq!(identify(&a.path().join("empty")).unwrap_err().exit_code(), 126);
    }
}
