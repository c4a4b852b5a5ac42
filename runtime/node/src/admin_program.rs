//! Programs that the administrator names in cluster.toml, which a daemon runs as its own user: hooks and health checks.
//!
//! They get nothing that users of jobs choose but who these are. A program that others could write is refused, since it would
//! run with the daemon's rights.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncReadExt, Interest};
use tokio::process::Command;

/// Bytes of output of which the first line is taken.
const READ: usize = 4_096;
/// Most bytes of the line that is shown.
const LINE: usize = 160;
/// Where it looks for programs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A program, and how long it may take.
#[derive(Clone, Debug)]
pub(crate) struct AdminProgram {
    pub(crate) path: PathBuf,
    pub(crate) timeout: Duration,
}

impl AdminProgram {
    /// Runs it with these variables in its environment and no others but `PATH`. It is killed with all of its process group when
    /// its time is over, or when the caller waits no longer.
    ///
    /// # Errors
    /// A clause that says why it has failed, as "ended with status 3: no such disk".
    pub(crate) async fn run(&self, env: &[(&str, String)]) -> Result<(), String> {
        let mut command = Command::new(check_owner(&self.path)?);
        command.env_clear().env("PATH", PATH).envs(env.iter().map(|(name, value)| (name, value)));
        command.current_dir("/").process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| format!("cannot be started: {error}"))?;
        let group = GroupGuard(child.id());
        let ended = ended(child.id()).map_err(|error| format!("cannot be watched: {error}"))?;
        let (out, err) = (first_line(child.stdout.take()), first_line(child.stderr.take()));
        let (mut out, mut err) = (std::pin::pin!(out), std::pin::pin!(err));
        let (mut said, mut warned) = (None, None);
        let over = tokio::time::sleep(self.timeout);
        let mut over = std::pin::pin!(over);
        loop {
            tokio::select! {
                biased;
                line = &mut out, if said.is_none() => said = Some(line),
                line = &mut err, if warned.is_none() => warned = Some(line),
                _ = ended.readable() => break,
                () = &mut over => return Err(format!("took longer than {:?}", self.timeout)),
            }
        }
        // It may have started others, which are not to stay. Until it is waited for, nobody else has the group's number.
        drop(group);
        let status =
            child.wait().await.map_err(|error| format!("cannot be waited for: {error}"))?;
        if status.success() {
            return Ok(());
        }
        let (said, warned) = (now_or(said, out).await, now_or(warned, err).await);
        let line = if said.is_empty() { warned } else { said };
        let ended = describe(status);
        Err(if line.is_empty() { ended } else { format!("{ended}: {line}") })
    }
}

/// What was read, or is read now that all who could write are gone.
async fn now_or(read: Option<String>, reading: impl Future<Output = String>) -> String {
    match read {
        Some(line) => line,
        None => tokio::time::timeout(Duration::from_secs(1), reading).await.unwrap_or_default(),
    }
}

/// Kills a process group when it is dropped.
struct GroupGuard(Option<u32>);

impl Drop for GroupGuard {
    fn drop(&mut self) {
        if let Some(group) = self.0.and_then(|pid| i32::try_from(pid).ok()) {
            // Gone already is as good.
            let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
        }
    }
}

/// What becomes readable when the process has ended, before it is waited for.
fn ended(pid: Option<u32>) -> io::Result<AsyncFd<OwnedFd>> {
    let pid = pid.and_then(|pid| i32::try_from(pid).ok()).and_then(rustix::process::Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::other("it has no number"))?;
    let pidfd = pidfd_open(pid, PidfdFlags::NONBLOCK)?;
    #[expect(
        deprecated,
        reason = "the other constructor is unsafe; an OwnedFd keeps its descriptor"
    )]
    AsyncFd::with_interest(pidfd, Interest::READABLE)
}

fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(signal)) => format!("was ended by signal {signal}"),
        (None, None) => "ended in an unknown way".to_owned(),
    }
}

/// The first line of what a program writes, fit to be shown. Everything is read, so that the program never waits.
async fn first_line(pipe: Option<impl AsyncRead + Unpin>) -> String {
    let Some(mut pipe) = pipe else { return String::new() };
    let (mut kept, mut buffer) = (Vec::new(), [0; READ]);
    // A pipe that cannot be read has nothing to say.
    while let Ok(read @ 1..) = pipe.read(&mut buffer).await {
        let room = READ - kept.len();
        kept.extend_from_slice(&buffer[..read.min(room)]);
    }
    shown(&kept)
}

fn shown(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    let mut short = String::new();
    for letter in line.chars().map(|letter| if letter.is_control() { ' ' } else { letter }) {
        if short.len() + letter.len_utf8() > LINE {
            break;
        }
        short.push(letter);
    }
    short.trim_end().to_owned()
}

/// Most symbolic links on the way to a program, as for the kernel.
const MOST_LINKS: usize = 40;

/// Checks that nobody but root and this process's user can change what is run. Returns the file without symbolic links.
///
/// # Errors
/// A clause that says what is wrong with the file, or with a folder or link on the way to it.
fn check_owner(path: &Path) -> Result<PathBuf, String> {
    let (real, places) = follow(path).map_err(|error| format!("cannot be found: {error}"))?;
    let file = fs::metadata(&real).map_err(|error| format!("cannot be looked at: {error}"))?;
    if !file.is_file() {
        return Err("is not a file".to_owned());
    }
    places.iter().chain([&real]).try_for_each(|place| check_place(place))?;
    Ok(real)
}

/// The file behind a path, and each folder and link that the kernel looks at on the way there: who can change one of them
/// chooses what is run.
fn follow(path: &Path) -> io::Result<(PathBuf, BTreeSet<PathBuf>)> {
    let mut left = std::path::absolute(path)?;
    let (mut here, mut places, mut links) = (PathBuf::from("/"), BTreeSet::new(), 0);
    loop {
        let mut parts = left.components();
        let Some(part) = parts.next() else { return Ok((here, places)) };
        let rest = parts.as_path();
        let Component::Normal(name) = part else {
            match part {
                Component::ParentDir => drop(here.pop()),
                Component::RootDir => here = PathBuf::from("/"),
                _ => {}
            }
            left = rest.to_owned();
            continue;
        };
        places.insert(here.clone());
        let next = here.join(name);
        if !fs::symlink_metadata(&next)?.is_symlink() {
            (here, left) = (next, rest.to_owned());
            continue;
        }
        links += 1;
        if links > MOST_LINKS {
            return Err(io::Error::other("there are too many symbolic links"));
        }
        left = fs::read_link(&next)?.join(rest);
        places.insert(next);
    }
}

/// Checks that nobody else can change a folder, file or link.
fn check_place(place: &Path) -> Result<(), String> {
    let own = nix::unistd::geteuid().as_raw();
    let found = fs::symlink_metadata(place).map_err(|error| {
        format!("cannot be run: {} cannot be looked at: {error}", place.display())
    })?;
    let place = place.display();
    if found.uid() != 0 && found.uid() != own {
        return Err(format!(
            "is not run: {place} belongs to user {}; give it to root or to the daemon's user",
            found.uid()
        ));
    }
    // In a folder like /tmp only owners replace files. Links have no permissions of their own.
    let shared = found.is_dir() && found.mode() & 0o1000 != 0 || found.is_symlink();
    if found.mode() & 0o022 != 0 && !shared {
        return Err(format!(
            "is not run: others can write {place}; take that away with chmod go-w"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn program(dir: &Path, text: &str) -> AdminProgram {
        let path = dir.join("program");
        // Another process writes it: what other tests start meanwhile would have the open file from this one, which keeps it
        // from being run.
        let mut writer = std::process::Command::new("/bin/sh");
        writer.args(["-c", "printf '#!/bin/sh\\n%s\\n' \"$1\" > \"$0\""]).arg(&path).arg(text);
        assert!(writer.status().unwrap().success());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        AdminProgram { path, timeout: Duration::from_secs(60) }
    }

    async fn run(dir: &Path, text: &str) -> Result<(), String> {
        program(dir, text).run(&[("KUMI_JOB", "7".to_owned())]).await
    }

    #[tokio::test]
    async fn what_a_program_says_and_how_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        assert_eq!(run(dir, "test $KUMI_JOB = 7 && test -z \"$HOME\"").await, Ok(()));
        let says = |line: &str| Err(line.to_owned());
        assert_eq!(run(dir, "exit 3").await, says("ended with status 3"));
        let both = "echo; echo 'no  disk'; echo more; echo noise >&2; exit 4";
        assert_eq!(run(dir, both).await, says("ended with status 4: no  disk"));
        assert_eq!(run(dir, "echo hot >&2; kill -9 $$").await, says("was ended by signal 9: hot"));
        let much = "i=0; while [ $i -lt 3000 ]; do echo a line of some length $i; i=$((i+1)); done; exit 1";
        assert_eq!(run(dir, much).await, says("ended with status 1: a line of some length 0"));
        // What it leaves behind has its pipes, and holds nobody up.
        assert_eq!(run(dir, "sleep 600 & exit 5").await, says("ended with status 5"));
    }

    #[tokio::test]
    async fn it_is_killed_when_its_time_is_over() {
        let dir = tempfile::tempdir().unwrap();
        let mark = dir.path().join("mark");
        let text = format!("echo $$ > {}; sleep 600", mark.display());
        let hook =
            AdminProgram { timeout: Duration::from_millis(300), ..program(dir.path(), &text) };
        let error = hook.run(&[]).await.unwrap_err();
        assert!(error.contains("took longer than 300ms"), "{error}");
    }

    #[tokio::test]
    async fn what_others_could_write_is_not_run() {
        let dir = tempfile::tempdir().unwrap();
        let hook = program(dir.path(), "exit 0");
        for (place, mode, right) in [(&*hook.path, 0o775, 0o755), (dir.path(), 0o777, 0o700)] {
            fs::set_permissions(place, fs::Permissions::from_mode(mode)).unwrap();
            let error = hook.run(&[]).await.unwrap_err();
            assert!(error.contains("others can write"), "{error}");
            fs::set_permissions(place, fs::Permissions::from_mode(right)).unwrap();
            assert_eq!(hook.run(&[]).await, Ok(()));
        }
        let missing = AdminProgram { path: dir.path().join("none"), ..hook };
        assert!(missing.run(&[]).await.unwrap_err().contains("cannot be found"));
        let folder = AdminProgram { path: dir.path().to_owned(), ..missing };
        assert!(folder.run(&[]).await.unwrap_err().contains("is not a file"));
    }

    /// What is wrong with a program when a folder has another mode than its own.
    fn when_open(folder: &Path, path: &Path) -> String {
        let mode = |mode| fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
        mode(0o777);
        let error = check_owner(path).unwrap_err();
        mode(0o755);
        error
    }

    #[test]
    fn folders_of_links_on_the_way_count() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let folder = |name: &str| {
            let folder = dir.join(name);
            fs::create_dir_all(&folder).unwrap();
            fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
            folder
        };
        let [first, middle, last] = ["first", "middle", "last"].map(folder);
        let real = program(&last, "exit 0").path;
        // first/hook, middle/hook, and a folder that is one: last/program.
        let link = |to: &str, at: PathBuf| std::os::unix::fs::symlink(to, at).unwrap();
        link("../middle/hook", first.join("hook"));
        link("folder/program", middle.join("hook"));
        link("../last", middle.join("folder"));
        let hook = first.join("hook");
        assert_eq!(check_owner(&hook), Ok(real.clone()));
        assert_eq!(check_owner(&first.join("../first/./hook")), Ok(real));
        for open in [&first, &middle, &last] {
            let error = when_open(open, &hook);
            assert!(error.contains(&format!("others can write {}", open.display())), "{error}");
        }
        link("loop", first.join("loop"));
        let error = check_owner(&first.join("loop")).unwrap_err();
        assert!(error.contains("too many symbolic links"), "{error}");
    }

    #[test]
    fn the_owner_of_a_link_counts() {
        if !nix::unistd::geteuid().is_root() {
            return kumi_skip::skip("the_owner_of_a_link_counts", "it needs root");
        }
        let dir = tempfile::tempdir().unwrap();
        let real = program(dir.path(), "exit 0").path;
        // As in /tmp, where each user replaces their own.
        let shared = dir.path().join("shared");
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
        let hook = shared.join("hook");
        std::os::unix::fs::symlink(&real, &hook).unwrap();
        assert!(check_owner(&hook).is_ok());
        std::os::unix::fs::lchown(&hook, Some(12_345), None).unwrap();
        assert!(check_owner(&hook).unwrap_err().contains("belongs to user 12345"));
    }

    #[test]
    fn lines_are_fit_to_be_shown() {
        assert_eq!(shown(b" \n\t one \x1b[2J two \xff\r\nthree"), "one  [2J two \u{fffd}");
        assert_eq!(shown("é".repeat(200).as_bytes()).len(), LINE);
        assert_eq!(shown(b""), "");
    }
}
