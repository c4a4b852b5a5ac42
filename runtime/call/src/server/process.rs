//! The process of a slot, as its server sees it.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;
use std::rc::{Rc, Weak};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, killpg};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use tokio::io::unix::AsyncFd;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};

use super::Config;
use super::arenas::{Arenas, Block};
use super::slots::Job;
use crate::confine::RunAs;
use crate::layout::Slot;
use crate::native::{self, Arena, receive_with_descriptor, send_with_descriptor};
use crate::protocol::{MOST, Order, Reply, Setup};

/// A process that runs one routine. It is killed when this is dropped, and what it has forked with it.
#[derive(Debug)]
pub struct Process {
    /// Until its end is waited for; so long its number is nobody else's.
    child: Option<Child>,
    pid: Pid,
    socket: Rc<AsyncFd<OwnedFd>>,
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
        job: &Job,
        arenas: &mut Arenas,
    ) -> io::Result<Process> {
        let offered = &job.offered;
        let run_as = RunAs::of(job.owner.run_as.as_deref(), config.sandbox)?;
        let kind = SockType::SeqPacket;
        let (ours, theirs) = socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC)?;
        fcntl(&ours, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let threads = config.threads.max(1).to_string();
        let program = offered.program.as_ref();
        let mut command = Command::new(program.map_or(&config.slot, |program| &program.path));
        command.args(program.iter().flat_map(|program| &program.arguments));
        command.stdin(Stdio::from(theirs)).stdout(Stdio::null()).kill_on_drop(true);
        command.process_group(0);
        for name in ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"] {
            command.env(name, &threads);
        }
        let child = command.spawn()?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).ok_or(Errno::ECHILD)?;
        let socket = Rc::new(native::watch(ours)?);
        let pid = Pid::from_raw(pid);
        let mut process = Process { child: Some(child), pid, socket, known: Vec::new() };
        let setup = Setup {
            interface: offered.json.clone(),
            libraries: offered.libraries.clone(),
            memory: config.process_bytes,
            callback: config.call_bytes,
            run_as,
            sandbox: config.sandbox,
            files,
        };
        let json = serde_json::to_vec(&setup)?;
        let arena = Arena::new(json.len())?;
        arena.write(0, &json);
        let number = arenas.number();
        process.send(&Order::Map(number, arena.length() as u64), Some(&arena))?;
        process.send(&Order::SetUp(number, json.len() as u64), None)?;
        process.send(&Order::Unmap(number), None)?;
        Ok(process)
    }

    fn send(&mut self, order: &Order, arena: Option<&Arena>) -> io::Result<()> {
        let descriptor = arena.map(Arena::file);
        send_with_descriptor(self.socket.get_ref().as_fd(), &order.encode(), descriptor)
    }

    /// Has it run its routine on this memory.
    ///
    /// # Errors
    /// It is gone.
    pub fn run(&mut self, block: &Rc<Block>, slots: &[Slot]) -> io::Result<()> {
        self.forget()?;
        if !self.known.iter().any(|(number, _)| *number == block.number) {
            self.send(&Order::Map(block.number, block.arena.length() as u64), Some(&block.arena))?;
            self.known.push((block.number, Rc::downgrade(block)));
        }
        self.send(&Order::Run(block.number, slots.to_vec()), None)
    }

    /// Tells it that the function which it has called has returned; so many bytes of values are in the exchange.
    ///
    /// # Errors
    /// It is gone.
    pub fn resume(&mut self, bytes: u64) -> io::Result<()> {
        self.send(&Order::Return(bytes), None)
    }

    /// Has it let go of memory that the server has given up.
    ///
    /// # Errors
    /// It is gone.
    pub fn forget(&mut self) -> io::Result<()> {
        while let Some(index) = self.known.iter().position(|(_, block)| block.strong_count() == 0) {
            let (number, _) = self.known.swap_remove(index);
            self.send(&Order::Unmap(number), None)?;
        }
        Ok(())
    }

    /// The socket, to wait for replies.
    pub fn socket(&self) -> Rc<AsyncFd<OwnedFd>> {
        Rc::clone(&self.socket)
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

/// Waits for a reply, with which a descriptor may come; `None`: the process has ended.
pub async fn reply(socket: &AsyncFd<OwnedFd>) -> Option<(Reply, Option<OwnedFd>)> {
    let mut buffer = vec![0; MOST];
    loop {
        let mut ready = socket.readable().await.ok()?;
        let read =
            ready.try_io(|socket| receive_with_descriptor(socket.as_fd(), &mut buffer, false));
        match read {
            Ok(Ok((0, _)) | Err(_)) => return None,
            Ok(Ok((length, descriptor))) => {
                return Reply::decode(&buffer[..length]).map(|reply| (reply, descriptor));
            }
            Err(_would_block) => {}
        }
    }
}

/// A reply that has come, and the descriptor with it; `None`: there is none.
pub fn last_reply(socket: &AsyncFd<OwnedFd>) -> Option<(Reply, Option<OwnedFd>)> {
    let mut buffer = vec![0; MOST];
    let (length, descriptor) = receive_with_descriptor(socket.as_fd(), &mut buffer, false).ok()?;
    Reply::decode(&buffer[..length]).map(|reply| (reply, descriptor))
}
