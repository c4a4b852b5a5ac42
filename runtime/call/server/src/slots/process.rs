//! Process of a slot, as its server drives it.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;

use super::super::Config;
use super::super::arenas::{Arenas, Block};
use super::super::owner::Owner;
use super::super::registry::OfferedRoutine;
use super::super::slot_channel::SlotChannel;
use super::group::{ReachedLimits, SlotGroup};
use super::output::ProcessOutput;
use super::resources::ProcessResources;
use crate::confine::RunAs;
use crate::layout::Slot;
use crate::native::Arena;
use crate::slot_protocol::{CallContext, Order, Setup};
use kumi_call_slot::guard::{GUARD, MOST, PROXY_SECONDS};
use kumi_call_slot::join::{self, JOIN};
use kumi_call_wire::context::Span;

/// What a process is started for.
#[derive(Debug, Clone, Copy)]
pub struct ProcessAssignment<'a> {
    /// One routine, or the methods of a class from one program. Not empty.
    pub offered: &'a [Arc<OfferedRoutine>],
    /// The only user of the process.
    pub owner: &'a Owner,
    /// The folder of its calls' files.
    pub scratch: Option<&'a Path>,
    /// What it has.
    pub resources: ProcessResources,
    /// The span of the object that it is to be, if the object's making is in a trace.
    pub span: Option<&'a Span>,
}

impl ProcessAssignment<'_> {
    /// Whether the process is a proxy of parallel routines.
    fn is_parallel(&self) -> bool {
        self.offered.iter().any(|offered| offered.interface.parallel.is_some())
    }

    /// All libraries that it needs, each once.
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

/// Variables that a sandbox keeps: where programs, libraries and modules are, and the language. Others may be secrets.
const KEPT_VARIABLES: [&str; 9] = [
    "PATH",
    "LD_LIBRARY_PATH",
    "PYTHONPATH",
    "PYTHONHOME",
    "VIRTUAL_ENV",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
];

fn clear_environment(command: &mut Command) {
    let kept = KEPT_VARIABLES.map(|name| (name, std::env::var_os(name)));
    command.env_clear().env("HOME", "/tmp");
    command.envs(kept.into_iter().filter_map(|(name, value)| Some((name, value?))));
}

/// The variables of a slot with so many threads, for a process of the server's user or of another.
fn set_environment(command: &mut Command, config: &Config, threads: usize, is_another_user: bool) {
    if config.sandbox {
        clear_environment(command);
    }
    let threads = threads.to_string();
    for name in ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"] {
        command.env(name, &threads);
    }
    // These are of the call, if any, from which the server was started.
    command.env_remove("KUMI_CALL_DEADLINE").env_remove("TRACEPARENT");
    if is_another_user {
        // The secret is the server's.
        command.env_remove("KUMI_CALL_TOKEN");
    }
}

/// The command for a program that joins control groups. Outside of a sandbox, which ends all that is in it, a guard starts the
/// program. Below a proxy of parallel routines the command that ends its job has some time.
fn guarded(config: &Config, program: &Path, is_proxy: bool, group: Option<&SlotGroup>) -> Command {
    let to_join = group.map(SlotGroup::to_join).unwrap_or_default();
    if config.sandbox && to_join.is_empty() {
        return Command::new(program);
    }
    let mut command = Command::new(&config.slot);
    if config.sandbox {
        command.arg(JOIN).args(join::words(&to_join)).arg(program);
        return command;
    }
    let seconds = if is_proxy { PROXY_SECONDS } else { 0 };
    command.arg(GUARD).args(join::words(&to_join));
    command.arg(std::process::id().to_string()).arg(seconds.to_string()).arg(program);
    command
}

/// The command that checks libraries, with the variables of a slot but for the server's secret, and the bytes that the
/// temporary folders of its sandbox hold.
pub fn check_command(config: &Config) -> (std::process::Command, u64) {
    let mut command = Command::new(&config.slot);
    command.arg("--check");
    set_environment(&mut command, config, config.threads.max(1), true);
    (command.into_std(), temporary_room(config))
}

/// Bytes that the temporary folders of a sandbox hold: as many as its process, or else one call.
fn temporary_room(config: &Config) -> u64 {
    match config.process_bytes {
        0 => config.call_bytes,
        bytes => bytes,
    }
}

/// A process that runs one routine or is an object of a class. Dropping this kills the process and its forks.
#[derive(Debug)]
pub struct Process {
    /// Kept until its end was waited for, so that its number is not reused.
    child: Option<Child>,
    /// Its number, or its guard's.
    pid: Pid,
    is_guarded: bool,
    group: Option<SlotGroup>,
    was_killed: bool,
    slot_channel: Rc<SlotChannel>,
    output: Rc<ProcessOutput>,
    /// Arenas that it maps.
    known: Vec<(u32, Weak<Block>)>,
}

impl Process {
    /// Starts a process and sends its setup. The first reply says whether it can run the routine.
    ///
    /// # Errors
    /// An error of the system.
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
        let program = duty.offered.first().and_then(|offered| offered.program.as_ref());
        let path = program.map_or(&config.slot, |program| &program.path);
        // A proxy runs nothing of its routine, and has time to end the job.
        let group = match duty.is_parallel() {
            true => None,
            false => SlotGroup::make(config, duty.resources)?,
        };
        let mut command = guarded(config, path, duty.is_parallel(), group.as_ref());
        command.args(program.iter().flat_map(|program| &program.arguments));
        command.stdin(Stdio::from(theirs)).stdout(Stdio::null()).kill_on_drop(config.sandbox);
        let (output, printed) = ProcessOutput::open()?;
        command.stderr(Stdio::from(printed));
        // Fortran's and Python's own buffers would be lost with a process that is killed.
        command.env("GFORTRAN_UNBUFFERED_PRECONNECTED", "1").env("PYTHONUNBUFFERED", "1");
        command.process_group(0);
        set_environment(&mut command, config, duty.resources.threads, run_as.is_some());
        let child = command.spawn()?;
        let pid = child.id().and_then(|id| i32::try_from(id).ok()).ok_or(Errno::ECHILD)?;
        let pid = Pid::from_raw(pid);
        let slot_channel = SlotChannel::new(ours)?;
        // It holds the process's end of the pipe.
        drop(command);
        let output = Rc::new(output);
        let is_guarded = !config.sandbox;
        let process = Process {
            child: Some(child),
            pid,
            is_guarded,
            group,
            was_killed: false,
            slot_channel,
            output,
            known: Vec::new(),
        };
        process.set_up(config, files, duty, run_as, arenas)?;
        Ok(process)
    }

    /// Sends its setup.
    fn set_up(
        &self,
        config: &Config,
        files: u64,
        duty: ProcessAssignment<'_>,
        run_as: Option<RunAs>,
        arenas: &mut Arenas,
    ) -> io::Result<()> {
        let program = duty.offered.first().and_then(|offered| offered.program.as_ref());
        let parallel = duty.is_parallel();
        let slot_channel = &self.slot_channel;
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
            room: temporary_room(config),
            files,
            mailbox: Some(page),
            trace: duty.span.map(|span| span.context.to_string()),
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
        Ok(())
    }

    /// Orders it to run the routine of this index on this memory, for a call with this context. Returns whether to wait for its reply at
    /// once ([`SlotChannel::run`]).
    ///
    /// # Errors
    /// The process is gone.
    pub fn run(
        &mut self,
        routine: u32,
        block: &Rc<Block>,
        slots: &[Slot],
        context: CallContext,
        room: bool,
    ) -> io::Result<bool> {
        self.forget()?;
        if !self.known.iter().any(|(number, _)| *number == block.number) {
            let map = Order::Map(block.number, block.arena.length() as u64);
            self.slot_channel.send(&map, Some(&block.arena))?;
            self.known.push((block.number, Rc::downgrade(block)));
        }
        let (slots, arena) = (slots.to_vec(), block.number);
        let order = match context.is_empty() {
            true => Order::Run(routine, arena, slots),
            false => Order::RunWithin(routine, arena, slots, context),
        };
        self.slot_channel.run(&order, room)
    }

    /// Tells it that its callback has returned, with this many bytes of values in the exchange.
    ///
    /// # Errors
    /// The process is gone.
    pub fn resume(&mut self, bytes: u64) -> io::Result<()> {
        self.slot_channel.send(&Order::Return(bytes), None)
    }

    /// Tells it to unmap memory that the server has given up.
    ///
    /// # Errors
    /// The process is gone.
    pub fn forget(&mut self) -> io::Result<()> {
        while let Some(index) = self.known.iter().position(|(_, block)| block.strong_count() == 0) {
            let (number, _) = self.known.swap_remove(index);
            self.slot_channel.send(&Order::Unmap(number), None)?;
        }
        Ok(())
    }

    /// Its channel.
    pub fn slot_channel(&self) -> Rc<SlotChannel> {
        Rc::clone(&self.slot_channel)
    }

    /// What it prints.
    pub fn output(&self) -> Rc<ProcessOutput> {
        Rc::clone(&self.output)
    }

    /// Its process number, or that of its guard, which ends as it does.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Kills it and its forks. Its socket ends when they are gone.
    pub fn kill(&mut self) {
        if self.child.is_none() {
            return;
        }
        self.was_killed = true;
        // It may not have joined yet, so it is killed by its number, too.
        self.group.iter().for_each(SlotGroup::kill);
        let killed = match self.is_guarded {
            // The routine may have stopped the guard.
            true => kill(self.pid, Signal::SIGTERM).and_then(|()| kill(self.pid, Signal::SIGCONT)),
            false => killpg(self.pid, Signal::SIGKILL),
        };
        if let Err(error) = killed {
            tracing::debug!(%error, "a slot could not be killed: it has ended");
        }
    }

    /// Whether the server has killed it.
    pub fn was_killed(&self) -> bool {
        self.was_killed
    }

    /// The limits of its control groups that were reached since this was last asked.
    pub fn reached_limits(&self) -> Option<ReachedLimits> {
        self.group.as_ref().and_then(SlotGroup::reached)
    }

    /// Its control groups, to be removed.
    pub fn take_group(&mut self) -> Option<SlotGroup> {
        self.group.take()
    }

    /// The handle with which its end can be waited for.
    pub fn take_child(&mut self) -> Option<Child> {
        self.child.take()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits for the end of a process without reaping it. Forks of it may still hold its socket.
pub async fn gone(pid: Pid) {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    let Ok(mut signals) = signal(SignalKind::child()) else {
        tracing::warn!("SIGCHLD cannot be received; the end of a process is noticed by its socket");
        return std::future::pending().await;
    };
    while matches!(waitid(Id::Pid(pid), flags), Ok(WaitStatus::StillAlive)) {
        if signals.recv().await.is_none() {
            return std::future::pending().await;
        }
    }
}

/// How long the server waits for a process that it has killed: somewhat longer than a guard tries.
const ENDS: Duration = Duration::from_secs(PROXY_SECONDS + MOST.as_secs() + 15);

/// Waits for the end of a process that was killed. Returns the detail of the protocol's crash failure. A process that does not
/// end is killed once more, and not waited for: `left` is told.
pub async fn ended(child: Option<Child>, left: impl FnOnce()) -> i64 {
    use std::os::unix::process::ExitStatusExt;
    let Some(mut child) = child else { return -1 };
    let Ok(ended) = timeout(ENDS, child.wait()).await else {
        left();
        if let Err(error) = child.start_kill() {
            tracing::debug!(%error, "a process of a slot could not be killed: it has ended");
        }
        return i64::from(nix::libc::SIGKILL);
    };
    match ended {
        Ok(status) => match status.signal() {
            Some(signal) => i64::from(signal),
            None => -1 - i64::from(status.code().unwrap_or_default()),
        },
        Err(_) => -1,
    }
}
