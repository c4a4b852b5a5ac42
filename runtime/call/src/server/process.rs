//! The process of a slot, as its server sees it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, killpg};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use super::Config;
use super::arenas::{Arenas, Block};
use super::owner::Owner;
use super::registry::OfferedRoutine;
use super::slot_channel::SlotChannel;
use crate::confine::RunAs;
use crate::layout::Slot;
use crate::native::Arena;
use crate::slot_protocol::{Order, Setup};

/// What a process is for.
#[derive(Debug, Clone, Copy)]
pub struct ProcessAssignment<'a> {
    /// A routine; or the methods of a class, of one program. Not empty.
    pub offered: &'a [Arc<OfferedRoutine>],
    /// The one user whom it serves.
    pub owner: &'a Owner,
    /// Where it reaches files of calls.
    pub scratch: Option<&'a Path>,
}

impl ProcessAssignment<'_> {
    /// The libraries of all that it runs, each once.
    fn libraries(&self) -> Vec<PathBuf> {
        let mut libraries: Vec<PathBuf> = Vec::new();
        for library in self.offered.iter().flat_map(|offered| &offered.libraries) {
            if !libraries.contains(library) {
                libraries.push(library.clone());
            }
        }
        libraries
    }
}

/// A process that runs one routine, or is an object of a class. It is killed when this is dropped, and what it has forked with it.
#[derive(Debug)]
pub struct Process {
    /// Until its end is waited for; so long its number is nobody else's.
    child: Option<Child>,
    pid: Pid,
    slot_channel: Rc<SlotChannel>,
    /// Arenas that it maps.
    known: Vec<(u32, Weak<Block>)>,
}

impl Process {
    /// Starts one and tells it its routine; its first reply is whether it can run that.
    ///
    /// # Errors
    /// What the system says.
    pub fn start(
        config: &Config,
        files: u64,
        duty: ProcessAssignment<'_>,
        arenas: &mut Arenas,
    ) -> io::Result<Process> {
        let run_as = RunAs::of(duty.owner.run_as.as_deref(), config.sandbox)?;
        let kind = SockType::SeqPacket;
        let (ours, theirs) = socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC)?;
        fcntl(&ours, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let threads = config.threads.max(1).to_string();
        let program = duty.offered.first().and_then(|offered| offered.program.as_ref());
        let parallel = duty.offered.iter().any(|offered| offered.interface.parallel.is_some());
        let mut command = Command::new(program.map_or(&config.slot, |program| &program.path));
        command.args(program.iter().flat_map(|program| &program.arguments));
        command.stdin(Stdio::from(theirs)).stdout(Stdio::null()).kill_on_drop(true);
        command.process_group(0);
        for name in ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"] {
            command.env(name, &threads);
        }
        if run_as.is_some() || config.sandbox {
            // It is the server's, and this process is another's or is not trusted.
            command.env_remove("KUMI_CALL_TOKEN");
        }
        let child = command.spawn()?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).ok_or(Errno::ECHILD)?;
        let slot_channel = SlotChannel::new(ours)?;
        let process = Process {
            child: Some(child),
            pid: Pid::from_raw(pid),
            slot_channel,
            known: Vec::new(),
        };
        let slot_channel = &process.slot_channel;
        let page = arenas.number();
        slot_channel.send(
            &Order::Map(page, slot_channel.mailbox().length() as u64),
            Some(slot_channel.mailbox()),
        )?;
        let setup = Setup {
            interfaces: duty.offered.iter().map(|offered| offered.json.clone()).collect(),
            libraries: duty.libraries(),
            scratch: duty.scratch.map(Path::to_owned),
            folder: program.and_then(|program| program.folder.clone()),
            memory: config.process_bytes,
            callback: config.call_bytes,
            run_as,
            sandbox: config.sandbox,
            files,
            mailbox: Some(page),
            jobs: config.jobs.clone().filter(|_| parallel),
            job_listener: None,
        };
        let json = serde_json::to_vec(&setup)?;
        let arena = Arena::new(json.len())?;
        arena.write(0, &json);
        let number = arenas.number();
        slot_channel.send(&Order::Map(number, arena.length() as u64), Some(&arena))?;
        slot_channel.send(&Order::SetUp(number, json.len() as u64), None)?;
        slot_channel.send(&Order::Unmap(number), None)?;
        Ok(process)
    }

    /// Has it run the routine of this index on this memory; whether its reply may come at once ([`SlotChannel::run`]).
    ///
    /// # Errors
    /// It is gone.
    pub fn run(
        &mut self,
        routine: u32,
        block: &Rc<Block>,
        slots: &[Slot],
        room: bool,
    ) -> io::Result<bool> {
        self.forget()?;
        if !self.known.iter().any(|(number, _)| *number == block.number) {
            let map = Order::Map(block.number, block.arena.length() as u64);
            self.slot_channel.send(&map, Some(&block.arena))?;
            self.known.push((block.number, Rc::downgrade(block)));
        }
        self.slot_channel.run(&Order::Run(routine, block.number, slots.to_vec()), room)
    }

    /// Tells it that the function which it has called has returned; so many bytes of values are in the exchange.
    ///
    /// # Errors
    /// It is gone.
    pub fn resume(&mut self, bytes: u64) -> io::Result<()> {
        self.slot_channel.send(&Order::Return(bytes), None)
    }

    /// Has it let go of memory that the server has given up.
    ///
    /// # Errors
    /// It is gone.
    pub fn forget(&mut self) -> io::Result<()> {
        while let Some(index) = self.known.iter().position(|(_, block)| block.strong_count() == 0) {
            let (number, _) = self.known.swap_remove(index);
            self.slot_channel.send(&Order::Unmap(number), None)?;
        }
        Ok(())
    }

    /// What it says.
    pub fn slot_channel(&self) -> Rc<SlotChannel> {
        Rc::clone(&self.slot_channel)
    }

    /// Its number.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Kills it, and what its routine has forked; its socket ends when they are gone.
    pub fn kill(&mut self) {
        if self.child.is_some()
            && let Err(error) = killpg(self.pid, Signal::SIGKILL)
        {
            tracing::debug!(%error, "a slot could not be killed: it has ended");
        }
    }

    /// What its end can be waited for with.
    pub fn take_child(&mut self) -> Option<Child> {
        self.child.take()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits for the end of a process, which it leaves to be waited for again. Forks of it may have its socket still.
pub async fn gone(pid: Pid) {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    let Ok(mut signals) = signal(SignalKind::child()) else {
        tracing::warn!("the ends of processes are not signalled: that of the socket must do");
        return std::future::pending().await;
    };
    while matches!(waitid(Id::Pid(pid), flags), Ok(WaitStatus::StillAlive)) {
        if signals.recv().await.is_none() {
            return std::future::pending().await;
        }
    }
}

/// Waits for the end of a process: how it ended, as the protocol's details of crashes.
pub async fn ended(child: Option<Child>) -> i64 {
    use std::os::unix::process::ExitStatusExt;
    let Some(mut child) = child else { return -1 };
    match child.wait().await {
        Ok(status) => match status.signal() {
            Some(signal) => i64::from(signal),
            None => -1 - i64::from(status.code().unwrap_or_default()),
        },
        Err(_) => -1,
    }
}
