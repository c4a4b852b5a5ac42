//! Spawning of rank processes, in their control group from the start where the kernel can do that.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use kumi_control::message::RankStatus;
use kumi_net::spawn::{ProcessSpec, SpawnedProcess, give, spawn};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use rustix::process::{PidfdFlags, pidfd_open};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::process::{Child, Command};

use crate::keep::KeptProcess;
use crate::keep::link::Reaper;
use crate::process_table::process_stat;

/// Request to spawn a process. Its descriptors are numbers, since another thread starts it. Who asks keeps them open until then.
#[derive(Debug)]
pub(crate) struct SpawnRequest {
    pub(crate) executable: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) streams: [RawFd; 3],
    pub(crate) inherited: Vec<RawFd>,
    /// It is to lead a session of its own. Where a process cannot be born in its control group, it has to see to that.
    pub(crate) session: bool,
    /// Folder of the control group.
    pub(crate) group: Option<RawFd>,
}

/// A process that was started and is not waited for yet.
#[derive(Debug)]
pub(crate) enum Process {
    SpawnedProcess(SpawnedProcess),
    Child(Child),
    /// A child of the job's keeper.
    Kept(KeptProcess),
}

/// A child of this process, as the thread that started it hands it on.
#[derive(Debug)]
pub(crate) enum OwnProcess {
    SpawnedProcess(SpawnedProcess),
    Child(Child),
}

impl From<OwnProcess> for Process {
    fn from(own: OwnProcess) -> Self {
        match own {
            OwnProcess::SpawnedProcess(born) => Self::SpawnedProcess(born),
            OwnProcess::Child(child) => Self::Child(child),
        }
    }
}

impl SpawnRequest {
    /// Starts it, leading a process group of its own, or a session. To be called where there is an event loop, and on a thread
    /// that lives as long as the process may: ranks end with the thread that started them.
    pub(crate) fn start(&self) -> io::Result<OwnProcess> {
        if let Some(group) = self.group {
            match self.bear(group) {
                Ok(born) => return Ok(OwnProcess::SpawnedProcess(born)),
                // Older kernels and some containers cannot; the shim then joins the group itself.
                Err(error) => tracing::debug!(%error, "no process is born in its control group"),
            }
        }
        self.spawn().map(OwnProcess::Child)
    }

    fn bear(&self, group: RawFd) -> io::Result<SpawnedProcess> {
        let text = |bytes: &[u8]| CString::new(bytes).map_err(io::Error::other);
        let program = text(self.executable.as_os_str().as_bytes())?;
        let words = self.arguments.iter().map(|word| text(word.as_bytes()));
        let words = words.collect::<io::Result<Vec<_>>>()?;
        let arguments: Vec<&CStr> =
            std::iter::once(&program).chain(&words).map(CString::as_c_str).collect();
        spawn(&ProcessSpec {
            program: &program,
            arguments: &arguments,
            streams: self.streams,
            inherited: &self.inherited,
            session: self.session,
            group,
        })
    }

    fn spawn(&self) -> io::Result<Child> {
        let mut command = std::process::Command::new(&self.executable);
        command.args(&self.arguments).env_clear();
        give(&mut command, self.streams, self.inherited.clone())?;
        let mut command = Command::from(command);
        if !self.session {
            // Who leads a group cannot begin a session.
            command.process_group(0);
        }
        command.spawn()
    }
}

impl Process {
    /// Its number, which is also that of its process group.
    pub(crate) fn pid(&self) -> Option<u32> {
        match self {
            Self::SpawnedProcess(born) => u32::try_from(born.pid).ok(),
            Self::Child(child) => child.id(),
            Self::Kept(kept) => u32::try_from(kept.pid).ok(),
        }
    }

    /// Kills it, before it has been waited for.
    pub(crate) fn kill(&mut self) {
        // Gone already is as good.
        match self {
            Self::SpawnedProcess(born) => drop(kill(Pid::from_raw(born.pid), Signal::SIGKILL)),
            Self::Child(child) => drop(child.start_kill()),
            Self::Kept(kept) => drop(kill(Pid::from_raw(kept.pid), Signal::SIGKILL)),
        }
    }

    /// Waits until it has ended, and says how much processor time it used with all that it waited for, in nanoseconds. None if
    /// the system does not say, or for a process that was born in a control group, which counts better.
    pub(crate) async fn processor_time(&self) -> Option<u64> {
        let pid = match self {
            Self::Child(child) => i32::try_from(child.id()?).ok()?,
            Self::Kept(kept) if !kept.grouped => kept.pid,
            Self::SpawnedProcess(_) | Self::Kept(_) => return None,
        };
        let pidfd = pidfd_open(rustix::process::Pid::from_raw(pid)?, PidfdFlags::NONBLOCK).ok()?;
        #[expect(
            deprecated,
            reason = "the other constructor is unsafe; an OwnedFd keeps its descriptor"
        )]
        let ended = AsyncFd::with_interest(pidfd, Interest::READABLE).ok()?;
        // Who has ended keeps its number until it is waited for.
        ended.readable().await.ok()?.retain_ready();
        process_stat(pid).map(|stat| stat.used_with_children())
    }

    /// Waits for its end.
    pub(crate) async fn wait(self) -> io::Result<RankStatus> {
        match self {
            Self::Child(mut child) => child.wait().await.map(rank_status),
            Self::SpawnedProcess(born) => wait_born(born.pidfd).await,
            Self::Kept(kept) => kept.wait().await,
        }
    }

    /// For a process that keeps its number when it has been waited for here: by this its keeper waits for it, too.
    pub(crate) fn reaper(&self) -> Option<Reaper> {
        match self {
            Self::Kept(kept) => Some(kept.reaper()),
            Self::SpawnedProcess(_) | Self::Child(_) => None,
        }
    }
}

async fn wait_born(pidfd: OwnedFd) -> io::Result<RankStatus> {
    #[expect(
        deprecated,
        reason = "the other constructor is unsafe; an OwnedFd keeps its descriptor"
    )]
    let pidfd = AsyncFd::with_interest(pidfd, Interest::READABLE)?;
    loop {
        use std::os::fd::AsFd;
        let id = Id::PIDFd(pidfd.get_ref().as_fd());
        match waitid(id, WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG)? {
            WaitStatus::Exited(_, code) => {
                return Ok(RankStatus::Exited(u8::try_from(code & 0xff).unwrap_or(255)));
            }
            WaitStatus::Signaled(_, signal, _) => {
                return Ok(RankStatus::Signalled(u8::try_from(signal as i32).unwrap_or(255)));
            }
            _ => pidfd.readable().await?.clear_ready(),
        }
    }
}

fn rank_status(status: std::process::ExitStatus) -> RankStatus {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => RankStatus::Exited(u8::try_from(code).unwrap_or(255)),
        (None, Some(signal)) => RankStatus::Signalled(u8::try_from(signal).unwrap_or(255)),
        (None, None) => RankStatus::Exited(255),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn statuses_of_ranks() {
        let status = |raw| rank_status(std::process::ExitStatus::from_raw(raw));
        assert_eq!(status(3 << 8), RankStatus::Exited(3));
        assert_eq!(status(9), RankStatus::Signalled(9));
        // With a core dump.
        assert_eq!(status(11 | 0x80), RankStatus::Signalled(11));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn both_ways_of_starting_agree() {
        let null = File::options().read(true).write(true).open("/dev/null").unwrap();
        let name = format!("start-{}", std::process::id());
        let home = crate::cgroup::DaemonGroup::Keep;
        let groups = crate::cgroup::NodeGroups::make(&name, kumi_sched::NodeId(0), home);
        let folder = groups.as_ref().ok().map(|groups| groups.main().open_folder().unwrap());
        for (script, wanted) in [
            ("exit 3", RankStatus::Exited(3)),
            ("kill -9 $$", RankStatus::Signalled(9)),
            ("test $(ps -o pgid= $$) = $$ || exit 1", RankStatus::Exited(0)),
        ] {
            for folder in [None, folder.as_ref()] {
                let start = SpawnRequest {
                    executable: PathBuf::from("/bin/sh"),
                    arguments: vec![
                        "-c".to_owned(),
                        format!("PATH=/usr/bin:/bin; {script}"),
                        "x".to_owned(),
                    ],
                    streams: [null.as_raw_fd(); 3],
                    inherited: Vec::new(),
                    session: false,
                    group: folder.map(AsRawFd::as_raw_fd),
                };
                let started = Process::from(start.start().unwrap());
                assert_eq!(started.wait().await.unwrap(), wanted, "{script}");
            }
        }
        if let Ok(groups) = groups {
            groups.destroy(std::time::Duration::from_secs(1)).unwrap();
            groups.remove_empty_parents();
            assert!(!groups.main().path().parent().unwrap().exists());
        }
    }
}
