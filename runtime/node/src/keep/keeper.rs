//! `kumid keep`: the keeper of a job on a node.
//!
//! It is the parent of the job's processes and so the only one who can wait for them. It holds what a later daemon needs, and
//! looks at none of it. Without a daemon it waits for one for a while. Then it kills the job.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use kumi_control::message::RankStatus;
use kumi_net::spawn::take_inherited;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use rustix::net::{SocketFlags, accept_with};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{SignalKind, signal};

use super::message::{Channel, FromKeeper, Held, KeepOrder, KeptCommand, ToKeeper, VERSION};
use crate::cgroup::ControlGroup;
use crate::clock;
use crate::event_loop;
use crate::exit::ExitCode;
use crate::job::{Process, SpawnRequest};
use crate::log;

/// Between looks whether a daemon has come in time. The clock also counts while the machine sleeps.
const LOOK: Duration = Duration::from_millis(200);
/// How long processes that are killed may take to end.
const MOST_DYING: Duration = Duration::from_secs(10);

/// A process of the job.
struct Child {
    pid: i32,
    /// Kept, since it may wait for itself when it is dropped.
    _process: Process,
    status: Option<RankStatus>,
    reaped: bool,
}

/// State of a keeper that has started the processes.
struct Keeper {
    order: KeepOrder,
    held: BTreeMap<Held, OwnedFd>,
    children: Vec<Child>,
    listener: AsyncFd<OwnedFd>,
    channel: Option<Channel>,
    /// Without a daemon: when it gives up, on the clock that counts sleep.
    alone_until: Option<u64>,
    /// All was killed: when it does not wait for the rest any more.
    ending: Option<u64>,
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Keeps the job whose order is in this descriptor.
pub fn main(order: RawFd) -> ExitCode {
    // Before anything is opened here.
    let Ok(mut inherited) = take_inherited() else { return ExitCode::Internal };
    let Ok(_logging) = log::start(log::LevelFilter::WARN) else { return ExitCode::MachineLimits };
    let read = |file: OwnedFd| {
        let mut bytes = Vec::new();
        File::from(file).read_to_end(&mut bytes)?;
        postcard::from_bytes::<KeepOrder>(&bytes).map_err(io::Error::other)
    };
    let order = inherited.remove(&order).ok_or(io::Error::from(io::ErrorKind::NotFound));
    let order = match order.and_then(read) {
        Ok(order) => order,
        Err(error) => {
            tracing::error!(%error, "a keeper cannot read what it is to keep");
            return ExitCode::Internal;
        }
    };
    let Ok(runtime) = event_loop::make() else { return ExitCode::MachineLimits };
    let kept = runtime.block_on(async {
        let mut keeper = Keeper::start(order, inherited).await?;
        keeper.run().await
    });
    match kept {
        Ok(()) => ExitCode::Ok,
        Err(error) => {
            tracing::error!(%error, "the keeper of a job ends");
            ExitCode::Internal
        }
    }
}

fn take(inherited: &mut BTreeMap<RawFd, OwnedFd>, number: RawFd) -> io::Result<OwnedFd> {
    inherited.remove(&number).ok_or_else(|| {
        io::Error::new(io::ErrorKind::NotFound, format!("it has no descriptor {number}"))
    })
}

/// Starts a process with descriptors that this one has under the same numbers.
fn spawn(
    order: &KeepOrder,
    command: &KeptCommand,
    inherited: &BTreeMap<RawFd, OwnedFd>,
    folder: Option<&File>,
) -> io::Result<Process> {
    let find = |number: &RawFd| {
        let found = inherited.get(number).map(AsRawFd::as_raw_fd);
        found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no file {number}")))
    };
    let mut arguments = command.arguments.clone();
    arguments.push(std::process::id().to_string());
    let [input, output, errors] = &command.streams;
    let files = command.inherited.iter().map(find).collect::<io::Result<Vec<_>>>()?;
    let request = SpawnRequest {
        executable: order.executable.clone(),
        arguments,
        streams: [find(input)?, find(output)?, find(errors)?],
        inherited: files,
        session: command.session,
        group: folder.map(AsRawFd::as_raw_fd),
    };
    request.start().map(Process::from)
}

impl Keeper {
    async fn start(order: KeepOrder, mut inherited: BTreeMap<RawFd, OwnedFd>) -> io::Result<Self> {
        let channel = Channel::new(take(&mut inherited, order.channel)?)?;
        let listener = take(&mut inherited, order.listener)?;
        #[expect(
            deprecated,
            reason = "the other constructor is unsafe; an OwnedFd keeps its descriptor"
        )]
        let listener = AsyncFd::with_interest(listener, Interest::READABLE)?;
        if let Some(home) = &order.home
            && let Err(error) = fs::write(home.join("cgroup.procs"), b"0")
        {
            tracing::warn!(home = %home.display(), %error, "a keeper stays in its daemon's control group");
        }
        // What a rank leaves behind comes here, where it is found by its job.
        nix::sys::prctl::set_child_subreaper(true)?;
        let folder = order.folder.map(|number| take(&mut inherited, number)).transpose()?;
        let folder = folder.map(File::from);
        let mut children: Vec<Child> = Vec::new();
        for (index, command) in (0..).zip(&order.commands) {
            match spawn(&order, command, &inherited, folder.as_ref()) {
                Ok(process) => {
                    let pid = process.pid().and_then(|pid| i32::try_from(pid).ok()).unwrap_or(0);
                    let child = Child { pid, _process: process, status: None, reaped: false };
                    children.push(child);
                    // One by one: the daemon sees that it goes on.
                    channel.send(&FromKeeper::Started { index, pid }, None).await?;
                }
                Err(error) => {
                    // The daemon kills what was started, by its group or here.
                    for child in &children {
                        let _ = kill(Pid::from_raw(child.pid), Signal::SIGKILL);
                    }
                    channel.send(&FromKeeper::Failed(error.to_string()), None).await?;
                    let _ = fs::remove_file(&order.socket);
                    return Err(error);
                }
            }
        }
        let mut held = BTreeMap::new();
        for &(what, number) in &order.held {
            held.insert(what, take(&mut inherited, number)?);
        }
        // The ends of the ranks are theirs alone from now on.
        drop(inherited);
        let channel = Some(channel);
        Ok(Self { order, held, children, listener, channel, alone_until: None, ending: None })
    }

    async fn run(&mut self) -> io::Result<()> {
        let mut ended = signal(SignalKind::child())?;
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        self.look_at_children().await;
        while !self.is_over() {
            let waits = self.alone_until.is_some() || self.ending.is_some();
            let received = async {
                match &self.channel {
                    Some(channel) => channel.receive::<ToKeeper>().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                _ = ended.recv() => self.look_at_children().await,
                message = received => match message {
                    Ok(Some((message, _))) => self.obey(message).await,
                    Ok(None) | Err(_) => self.is_alone(),
                },
                accepted = self.listener.readable() => {
                    let daemon = match accepted?.try_io(|listener| {
                        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                        Ok(accept_with(listener, flags)?)
                    }) {
                        Ok(daemon) => daemon,
                        Err(_would_block) => continue,
                    };
                    self.accept(daemon);
                }
                _ = looks.tick(), if waits => self.look_at_clock().await,
            }
        }
        // A later keeper of the same job may listen there.
        match fs::remove_file(&self.order.socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn is_over(&self) -> bool {
        let Some(until) = self.ending else { return false };
        self.children.iter().all(|child| child.reaped) || clock::boottime() >= until
    }

    /// A daemon connects. It takes the place of the one before, which can only be dead.
    fn accept(&mut self, daemon: io::Result<OwnedFd>) {
        match daemon.and_then(Channel::new) {
            Ok(channel) if channel.is_own() => {
                self.channel = Some(channel);
                self.alone_until = None;
            }
            Ok(_) => tracing::warn!("somebody else's process wants a job"),
            Err(error) => tracing::warn!(%error, "a daemon could not be accepted"),
        }
    }

    /// The daemon is gone.
    fn is_alone(&mut self) {
        self.channel = None;
        let patience = nanos(Duration::from_millis(self.order.patience_ms));
        self.alone_until.get_or_insert(clock::boottime().saturating_add(patience));
    }

    async fn look_at_clock(&mut self) {
        if self.alone_until.is_some_and(|until| clock::boottime() >= until) {
            self.alone_until = None;
            tracing::warn!("no daemon came for a job: it is killed");
            self.end().await;
        }
        // Signals of children that end together come as one.
        self.look_at_children().await;
    }

    /// Kills what runs. From then on it only waits for the rest.
    async fn end(&mut self) {
        self.ending.get_or_insert(clock::boottime().saturating_add(nanos(MOST_DYING)));
        if let Some(group) = &self.order.group
            && let Err(error) = ControlGroup::at(group.clone()).kill()
        {
            tracing::error!(group = %group.display(), %error, "a control group could not be killed");
        }
        for child in self.children.iter().filter(|child| child.status.is_none()) {
            // Gone already is as good.
            let _ = killpg(Pid::from_raw(child.pid), Signal::SIGKILL);
        }
        self.look_at_children().await;
    }

    async fn tell(&mut self, message: FromKeeper) {
        if let Some(channel) = &self.channel
            && channel.send(&message, None).await.is_err()
        {
            self.is_alone();
        }
    }

    async fn obey(&mut self, message: ToKeeper) {
        match message {
            ToKeeper::Attach { version: _ } => {
                if self.hand_over().await.is_err() {
                    self.is_alone();
                }
            }
            ToKeeper::Reap(index) => {
                let child = usize::try_from(index).ok().and_then(|at| self.children.get_mut(at));
                if let Some(child) = child.filter(|child| child.status.is_some()) {
                    reap(child);
                }
            }
            ToKeeper::Drop(what) => drop(self.held.remove(&what)),
            ToKeeper::Release => self.end().await,
        }
    }

    /// Gives a new daemon all that it holds. Which processes have ended is told again.
    async fn hand_over(&self) -> io::Result<()> {
        let Some(channel) = &self.channel else { return Ok(()) };
        for (what, file) in &self.held {
            channel.send(&FromKeeper::Holds(*what), Some(file.as_fd())).await?;
        }
        for (index, child) in (0..).zip(&self.children) {
            channel.send(&FromKeeper::Has { index, pid: child.pid }, None).await?;
        }
        channel.send(&FromKeeper::Complete { version: VERSION }, None).await?;
        for (index, child) in (0..).zip(&self.children) {
            if let Some(status) = child.status {
                channel.send(&FromKeeper::Exited { index, status }, None).await?;
            }
        }
        Ok(())
    }

    /// Tells of processes that have ended, and waits for orphans of the job that did.
    async fn look_at_children(&mut self) {
        let mut ended = Vec::new();
        for (index, child) in (0..).zip(&mut self.children) {
            if child.status.is_none()
                && let Some(status) = status_of(child.pid)
            {
                child.status = Some(status);
                ended.push((index, status));
            }
            if self.ending.is_some() && child.status.is_some() {
                reap(child);
            }
        }
        for (index, status) in ended {
            self.tell(FromKeeper::Exited { index, status }).await;
        }
        self.reap_orphans();
    }

    fn reap_orphans(&self) {
        let Ok(children) = fs::read_to_string("/proc/thread-self/children") else { return };
        let pids = children.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok());
        for pid in pids.filter(|pid| self.children.iter().all(|child| child.pid != *pid)) {
            // Those that run stay.
            let _ = waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG));
        }
    }
}

/// Nobody uses its number any more.
fn reap(child: &mut Child) {
    if !child.reaped {
        child.reaped = true;
        // It has ended.
        let _ = waitpid(Pid::from_raw(child.pid), Some(WaitPidFlag::WNOHANG));
    }
}

/// How a process has ended, which is waited for later; none while it runs.
fn status_of(pid: i32) -> Option<RankStatus> {
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    match waitid(Id::Pid(Pid::from_raw(pid)), look) {
        Ok(WaitStatus::Exited(_, code)) => {
            Some(RankStatus::Exited(u8::try_from(code & 0xff).unwrap_or(255)))
        }
        Ok(WaitStatus::Signaled(_, signal, _)) => {
            Some(RankStatus::Signalled(u8::try_from(signal as i32).unwrap_or(255)))
        }
        Ok(_) => None,
        Err(error) => {
            tracing::error!(pid, %error, "a process of a job could not be waited for");
            Some(RankStatus::Exited(255))
        }
    }
}
