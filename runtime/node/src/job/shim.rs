//! `kumid rank`: the shim process that becomes a rank.
//!
//! Started when a job is prepared, it takes over the rank's processor, limits, user and folder, says that
//! it is ready, waits for the go, and then turns into the program. What fails on the way comes
//! back through a pipe that the program no longer has, as a typed refusal.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::RawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use kumi_control::message::{ProcessLimits, Refusal, RefusalKind, User};
use nix::errno::Errno;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::Signal;
use nix::unistd::{AccessFlags, Gid, Pid, Uid};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use super::processors::RankProcessors;
use crate::client::refusal;
use crate::exit::ExitCode;
use crate::process_limits;

/// Specification of a job's ranks on one node, in a file that all of them read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShimSpec {
    /// The file to run.
    pub path: PathBuf,
    /// `argv`.
    pub args: Vec<String>,
    /// The environment, without what is added for each rank.
    pub env: Vec<(String, String)>,
    /// Settings that go before the environment, which may have others.
    pub settings: Vec<(String, String)>,
    /// Added for each local rank.
    pub rank_env: Vec<Vec<(String, String)>>,
    /// Working directory.
    pub cwd: String,
    /// The user to become, with the name that this machine has for it, if any; `None` to remain the daemon's user.
    pub user: Option<User>,
    /// Processors of the ranks.
    pub processors: RankProcessors,
    /// Limits and file mode mask to take over.
    pub limits: ProcessLimits,
    /// The `nice` value to set: what the daemon had before it was preferred, and more if it is not.
    pub nice: i32,
    /// Control group of the job, to be joined unless the process was born there.
    pub group: Option<PathBuf>,
    /// Files by which its control groups of version 1 are joined.
    pub to_join: Vec<PathBuf>,
    /// The daemon's process.
    pub daemon: u32,
    /// Reading end of the pipe through which the go comes.
    pub go: RawFd,
    /// Writing end of the pipe for [`ShimReport`]s.
    pub status: RawFd,
    /// A file with more variables of each local rank, which is complete when the go comes.
    pub variables: Option<RawFd>,
    /// The first rank here has a terminal as standard streams, and begins a session with it.
    pub terminal: bool,
    /// It becomes no rank but the server of an MPI program: it says so by the number [`SERVER`], and runs on all processors of
    /// the job.
    pub server: bool,
}

/// Local rank by which the shim of an MPI program's server reports.
pub const SERVER: u32 = u32::MAX;

/// Report of a shim before it executes the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShimReport {
    /// Which local rank.
    pub local: u32,
    /// Ready to go, or why it failed.
    pub result: Result<(), Refusal>,
}

/// Longest report: what a pipe takes in one piece.
const MAX_REPORT: usize = 4096;

impl ShimReport {
    /// Its bytes: a `u16` length and postcard, short enough to be written in one piece.
    pub fn encode(&self) -> Vec<u8> {
        let mut report = self.clone();
        if let Err(refused) = &mut report.result {
            let mut end = refused.message.len().min(MAX_REPORT / 2);
            while !refused.message.is_char_boundary(end) {
                end -= 1;
            }
            refused.message.truncate(end);
        }
        let mut bytes = vec![0; 2];
        if let Ok(content) = postcard::to_allocvec(&report) {
            bytes.extend_from_slice(&content);
        }
        let length = u16::try_from(bytes.len() - 2).unwrap_or(0);
        bytes[..2].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    /// Takes the first report off `bytes`, once it is there whole. What does not decode (nobody but
    /// the shim has the pipe) is skipped.
    pub fn take(bytes: &mut Vec<u8>) -> Option<Self> {
        loop {
            let length = usize::from(u16::from_le_bytes([*bytes.first()?, *bytes.get(1)?]));
            let content = bytes.get(2..2 + length)?;
            let report = postcard::from_bytes(content).ok();
            bytes.drain(..2 + length);
            if report.is_some() {
                return report;
            }
        }
    }
}

/// Runs as local rank `local` by the spec in descriptor `spec`, as a child of the daemon or of the job's keeper. Returns only
/// when it did not become the program.
pub fn main(spec: RawFd, local: u32, keeper: Option<u32>) -> ExitCode {
    match prepare(spec, local, keeper) {
        Ok(ready) => ready.wait_and_run(),
        Err(code) => code,
    }
}

struct Ready {
    spec: ShimSpec,
    local: u32,
    go: File,
    status: File,
    variables: Option<File>,
}

/// Opens an inherited descriptor anew, to be closed on exec, and closes the inherited one.
fn take(fd: RawFd, options: &OpenOptions) -> io::Result<File> {
    let file = options.open(format!("/proc/self/fd/{fd}"))?;
    nix::unistd::close(fd)?;
    Ok(file)
}

fn prepare(spec: RawFd, local: u32, keeper: Option<u32>) -> Result<Ready, ExitCode> {
    // Nobody to tell until the status pipe is open: the daemon sees that the rank ended.
    let spec = take(spec, OpenOptions::new().read(true)).and_then(|mut file| {
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        postcard::from_bytes::<ShimSpec>(&bytes).map_err(io::Error::other)
    });
    let mut spec = spec.map_err(|_| ExitCode::Internal)?;
    spec.daemon = keeper.unwrap_or(spec.daemon);
    let status =
        take(spec.status, OpenOptions::new().write(true)).map_err(|_| ExitCode::Internal)?;
    let go = take(spec.go, OpenOptions::new().read(true)).map_err(|_| ExitCode::Internal)?;
    let variables = spec.variables.map(|fd| take(fd, OpenOptions::new().read(true)));
    let variables = variables.transpose().map_err(|_| ExitCode::Internal)?;
    let local = if spec.server { SERVER } else { local };
    let mut ready = Ready { spec, local, go, status, variables };
    let result = ready.become_user();
    let failed = result.is_err();
    ready.report(result);
    if failed { Err(ExitCode::Internal) } else { Ok(ready) }
}

impl Ready {
    fn report(&mut self, result: Result<(), Refusal>) {
        let report = ShimReport { local: self.local, result };
        // If the daemon is gone, so is this process in a moment.
        let _ = self.status.write_all(&report.encode());
    }

    fn place(&self) -> usize {
        usize::try_from(self.local).unwrap_or(usize::MAX)
    }

    fn become_user(&self) -> Result<(), Refusal> {
        let spec = &self.spec;
        if spec.terminal && self.local == 0 {
            take_terminal().map_err(|error| internal("take over its terminal", &error))?;
        }
        if let Some(group) = &spec.group {
            join(group).map_err(|error| internal("join its control group", &error))?;
        }
        // Before its processors are set: a group of version 1 gives it all of its own.
        join_legacy(&spec.to_join)
            .map_err(|error| internal("join its control groups of version 1", &error))?;
        match spec.server {
            true => bind(spec.processors.of_job())?,
            false => bind(&spec.processors.of_rank(self.place()))?,
        }
        kumi_net::priority::set_nice(spec.nice)
            .map_err(|error| internal("set its nice value", &error))?;
        process_limits::be_ordinary_for_oom()
            .map_err(|error| internal("give its protection from the OOM killer away", &error))?;
        // Before the user, who could otherwise use the daemon's rights in a process that waits.
        process_limits::begin(&spec.limits).map_err(|error| internal("set its limits", &error))?;
        if let Some(user) = &spec.user {
            change_user(user).map_err(|error| {
                let what = format!(
                    "the node cannot run processes as user {}: {error}; run its daemon as root",
                    user.uid
                );
                refusal(RefusalKind::NotPermitted, what)
            })?;
        }
        // Ranks do not outlive their daemon even where no control group would tell who they are.
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)
            .map_err(|error| internal("tie itself to its daemon", &error))?;
        if nix::unistd::getppid().as_raw().cast_unsigned() != spec.daemon {
            return Err(refusal(RefusalKind::NodeLost, "the node's daemon is gone; try again"));
        }
        std::env::set_current_dir(&spec.cwd).map_err(|error| cwd_refusal(&spec.cwd, &error))?;
        nix::unistd::eaccess(&spec.path, AccessFlags::X_OK)
            .map_err(|error| exec_refusal(&spec.path.display().to_string(), &error.into()))
    }

    fn wait_and_run(mut self) -> ExitCode {
        let mut go = [0];
        // A signal may interrupt a plain `read`: the rank would not start, and nobody would know.
        if self.go.read_exact(&mut go).is_err() {
            // The job was called off, or the daemon is gone.
            return ExitCode::Ok;
        }
        if let Err(error) = process_limits::settle(&self.spec.limits) {
            self.report(Err(internal("set its limits", &error)));
            return ExitCode::Internal;
        }
        let late = match self.late_variables() {
            Ok(late) => late,
            Err(error) => {
                self.report(Err(internal("read its variables", &error)));
                return ExitCode::Internal;
            }
        };
        let spec = &self.spec;
        let mut command = Command::new(&spec.path);
        if let Some((name, rest)) = spec.args.split_first() {
            command.arg0(name).args(rest);
        }
        let rank_env = spec.rank_env.get(self.place());
        command.env_clear().env("OMP_NUM_THREADS", spec.processors.each().to_string());
        command.envs(spec.settings.iter().map(|(k, v)| (k, v)));
        command.envs(spec.env.iter().map(|(k, v)| (k, v)));
        command.envs(late);
        command.envs(rank_env.into_iter().flatten().map(|(k, v)| (k, v)));
        // Bound to some, a rank cannot see by itself whether it shares them with others.
        command.env("KUMI_PROCESSORS", spec.processors.shared().max(1).to_string());
        let error = command.exec();
        let refused = exec_refusal(&spec.path.display().to_string(), &error);
        self.report(Err(refused));
        ExitCode::Internal
    }
}

impl Ready {
    /// This rank's part of the file of variables.
    fn late_variables(&mut self) -> io::Result<Vec<(String, String)>> {
        let (place, mut bytes) = (self.place(), Vec::new());
        let Some(file) = &mut self.variables else { return Ok(Vec::new()) };
        file.read_to_end(&mut bytes)?;
        let all: Vec<Vec<(String, String)>> =
            postcard::from_bytes(&bytes).map_err(io::Error::other)?;
        Ok(all.into_iter().nth(place).unwrap_or_default())
    }
}

/// Makes standard input the controlling terminal of a session that this process leads.
fn take_terminal() -> io::Result<()> {
    if nix::unistd::getsid(None)? != nix::unistd::getpid() {
        nix::unistd::setsid()?;
    }
    Ok(rustix::process::ioctl_tiocsctty(io::stdin())?)
}

/// Joining makes the kernel wait for some milliseconds, so it is not done twice.
fn join(group: &Path) -> io::Result<()> {
    let own = std::fs::read_to_string("/proc/self/cgroup")?;
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"));
    if own.is_some_and(|own| !own.is_empty() && group.ends_with(own)) {
        return Ok(());
    }
    OpenOptions::new().write(true).open(group.join("cgroup.procs"))?.write_all(b"0")
}

/// Joins groups of version 1. This thread is the whole process; a thread moves with less ado than a process.
fn join_legacy(files: &[PathBuf]) -> io::Result<()> {
    let number = std::process::id().to_string();
    files.iter().try_for_each(|file| {
        OpenOptions::new().write(true).open(file)?.write_all(number.as_bytes())
    })
}

/// Lets this process run on these processors only; none: as before.
fn bind(processors: &[usize]) -> Result<(), Refusal> {
    if processors.is_empty() {
        return Ok(());
    }
    let mut set = CpuSet::new();
    let made = processors.iter().try_for_each(|&one| set.set(one));
    made.and_then(|()| sched_setaffinity(Pid::from_raw(0), &set)).map_err(|error| {
        let what = format!("a rank cannot run on processors {processors:?}: {error}; correct `cpus` of the node in cluster.toml");
        refusal(RefusalKind::BadRequest, what)
    })
}

fn change_user(user: &User) -> nix::Result<()> {
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    // Not known by name on this machine: the primary group is all it has.
    if user.name.is_empty() {
        nix::unistd::setgroups(&[gid])?;
    } else {
        let name = std::ffi::CString::new(user.name.as_str()).map_err(|_| Errno::EINVAL)?;
        nix::unistd::initgroups(&name, gid)?;
    }
    nix::unistd::setgid(gid)?;
    nix::unistd::setuid(uid)
}

fn internal(what: &str, error: &dyn std::fmt::Display) -> Refusal {
    refusal(RefusalKind::Internal, format!("a rank could not {what}: {error}; see the node's log"))
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or(0))
}

/// Why the working directory cannot be used.
pub(crate) fn cwd_refusal(cwd: &str, error: &io::Error) -> Refusal {
    let kind = match errno(error) {
        Errno::ENOENT | Errno::ENOTDIR => RefusalKind::NotFound,
        Errno::EACCES | Errno::EPERM => RefusalKind::NotPermitted,
        _ => RefusalKind::Internal,
    };
    refusal(
        kind,
        format!(
            "the working directory {cwd} cannot be entered: {error}; make it on every node or choose another with --cwd"
        ),
    )
}

/// Why a program cannot be executed.
pub(crate) fn exec_refusal(path: &str, error: &io::Error) -> Refusal {
    let (kind, advice) = match errno(error) {
        Errno::ENOENT => {
            (RefusalKind::NotFound, "the program or the interpreter it names is not on the node")
        }
        Errno::EACCES | Errno::EPERM => (
            RefusalKind::NotExecutable,
            "make it executable for its user, and the folders above it too",
        ),
        Errno::ENOEXEC => (
            RefusalKind::NotExecutable,
            "it is neither a program for this machine nor a script with #!",
        ),
        Errno::E2BIG => (RefusalKind::BadRequest, "shorten arguments or environment"),
        Errno::ENOMEM | Errno::EAGAIN | Errno::EMFILE | Errno::ENFILE => {
            (RefusalKind::NoResources, "wait until memory, processes or files are free on the node")
        }
        _ => (RefusalKind::NotExecutable, "check the file"),
    };
    refusal(kind, format!("{path} cannot be executed: {error}; {advice}"))
}

/// Reads what shims report until none of them has the pipe any more.
pub(super) async fn read_reports(mut status: pipe::Receiver, mut take: impl FnMut(ShimReport)) {
    let mut bytes = Vec::new();
    while let Ok(count) = status.read_buf(&mut bytes).await
        && count > 0
    {
        while let Some(report) = ShimReport::take(&mut bytes) {
            take(report);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_map_to_refusals() {
        let kind = |error: Errno| exec_refusal("/x", &error.into()).kind;
        assert_eq!(kind(Errno::ENOENT), RefusalKind::NotFound);
        assert_eq!(kind(Errno::EACCES), RefusalKind::NotExecutable);
        assert_eq!(kind(Errno::ENOEXEC), RefusalKind::NotExecutable);
        assert_eq!(kind(Errno::E2BIG), RefusalKind::BadRequest);
        assert_eq!(kind(Errno::ENOMEM), RefusalKind::NoResources);
        assert_eq!(cwd_refusal("/x", &Errno::ENOENT.into()).kind, RefusalKind::NotFound);
        assert_eq!(cwd_refusal("/x", &Errno::EACCES.into()).kind, RefusalKind::NotPermitted);
        assert!(exec_refusal("/x", &Errno::ENOENT.into()).message.contains("/x"));
    }

    #[test]
    fn reports_come_apart_again() {
        let good = ShimReport { local: 3, result: Ok(()) };
        let long = refusal(RefusalKind::Internal, "ä".repeat(9_000));
        let bad = ShimReport { local: 4, result: Err(long) };
        let mut bytes = good.encode();
        bytes.extend(bad.encode());
        assert!(bytes.len() < MAX_REPORT);
        let last = bytes.pop().unwrap();
        assert_eq!(ShimReport::take(&mut bytes), Some(good));
        assert_eq!(ShimReport::take(&mut bytes), None);
        bytes.push(last);
        let shortened = ShimReport::take(&mut bytes).unwrap();
        assert_eq!(shortened.local, 4);
        assert!(shortened.result.unwrap_err().message.len() > 1_000);
        assert_eq!(ShimReport::take(&mut bytes), None);
    }
}
