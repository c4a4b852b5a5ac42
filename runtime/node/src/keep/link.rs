//! The daemon's side: it starts a keeper, or finds one that a former daemon started.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use kumi_control::message::RankStatus;
use kumi_sched::JobId;
use nix::sys::memfd::{MFdFlags, memfd_create};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
    socketpair,
};
use tokio::sync::{mpsc, oneshot};

use super::message::{Channel, FromKeeper, Held, KeepOrder, KeptCommand, ToKeeper, VERSION};
use crate::job::{Process, ProcessStarter, SpawnRequest, StartProgress};

/// How long a keeper that is found may take to say what it has.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most descriptors and processes that are taken from one.
const MOST: usize = 1 << 20;

/// A process that a keeper waits for.
#[derive(Debug)]
pub(crate) struct KeptProcess {
    /// Its number.
    pub(crate) pid: i32,
    index: u32,
    /// A control group counts what it uses.
    pub(crate) grouped: bool,
    ended: oneshot::Receiver<RankStatus>,
    keeper: Rc<KeeperLink>,
}

/// Lets a keeper wait for a process that has ended.
#[derive(Debug)]
pub(crate) struct Reaper(u32, Rc<KeeperLink>);

impl Reaper {
    /// Nobody uses the number of the process any more.
    pub(crate) fn reap(self) {
        self.1.tell(ToKeeper::Reap(self.0));
    }
}

impl KeptProcess {
    /// Waits for its end. Its number stays its own until the reaper is told.
    ///
    /// # Errors
    /// The keeper is gone, and its processes with it.
    pub(crate) async fn wait(self) -> io::Result<RankStatus> {
        let gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "the keeper of the job is gone");
        self.ended.await.map_err(gone)
    }

    /// For the time when it has ended.
    pub(crate) fn reaper(&self) -> Reaper {
        Reaper(self.index, Rc::clone(&self.keeper))
    }
}

/// A daemon's connection to a keeper.
#[derive(Debug)]
pub(crate) struct KeeperLink {
    outbox: mpsc::UnboundedSender<ToKeeper>,
    /// The keeper's process, to which orphans of the job come.
    pub(crate) pid: i32,
}

impl KeeperLink {
    fn tell(&self, message: ToKeeper) {
        // One that is gone has nothing any more.
        let _ = self.outbox.send(message);
    }

    /// Nothing of the job is needed any more.
    pub(crate) fn release(&self) {
        self.tell(ToKeeper::Release);
    }

    /// This is not needed any more: who waits for its end sees it.
    pub(crate) fn drop_held(&self, what: Held) {
        self.tell(ToKeeper::Drop(what));
    }

    /// Whether the keeper has ended.
    pub(crate) async fn closed(&self) {
        self.outbox.closed().await;
    }
}

/// What a keeper is to start and to hold.
pub(crate) struct KeepRequest<'a> {
    /// This program.
    pub(crate) executable: &'a Path,
    /// The cluster's directory, by which the keeper is known.
    pub(crate) cluster: &'a Path,
    /// Where keepers of this node listen.
    pub(crate) folder: &'a Path,
    /// The job.
    pub(crate) job: JobId,
    /// How long it waits for a daemon.
    pub(crate) patience: Duration,
    /// Who starts it.
    pub(crate) starter: &'a ProcessStarter,
    /// How long it may take to start one process.
    pub(crate) step: Duration,
    /// Where each process counts that has started.
    pub(crate) progress: StartProgress,
    /// The job's control group: its folder and where that is.
    pub(crate) group: Option<(BorrowedFd<'a>, &'a Path)>,
    /// The keeper's own.
    pub(crate) home: Option<PathBuf>,
    /// The processes.
    pub(crate) commands: Vec<KeptCommand>,
    /// What it holds.
    pub(crate) held: Vec<(Held, BorrowedFd<'a>)>,
    /// What the processes need beside that.
    pub(crate) inherited: Vec<BorrowedFd<'a>>,
}

/// The name of a keeper's socket, as seen through the open folder: whole paths may be longer than a socket's may be.
fn through(folder: &File, name: &str) -> io::Result<SocketAddrUnix> {
    let path = format!("/proc/self/fd/{}/{name}", folder.as_raw_fd());
    Ok(SocketAddrUnix::new(path)?)
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

fn stands_still(step: Duration) -> io::Error {
    let text = format!("its keeper has started nothing for {} s", step.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, text)
}

/// Waits for a keeper, which uses what its job has until it has ended.
async fn end(keeper: Process) {
    if let Err(error) = keeper.wait().await {
        tracing::warn!(%error, "a keeper could not be waited for");
    }
}

impl KeepRequest<'_> {
    /// Starts the keeper, which starts the processes: all or none.
    ///
    /// # Errors
    /// The system's error, or what the keeper says.
    pub(crate) async fn start(self) -> io::Result<(Rc<KeeperLink>, Vec<KeptProcess>)> {
        self.progress.goes_on()?;
        let name = self.job.0.to_string();
        let mut made = fs::DirBuilder::new();
        made.recursive(true).mode(0o700).create(self.folder)?;
        let (folder, path) = (File::open(self.folder)?, self.folder.join(&name));
        let listener = socket()?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => bind(&listener, &through(&folder, &name)?)?,
        }
        let started = match self.run(&listener, path.clone()).await {
            Ok(started) => started,
            Err(error) => {
                // The error is what counts.
                let _ = fs::remove_file(path);
                return Err(error);
            }
        };
        Ok(started)
    }

    async fn run(
        self,
        listener: &OwnedFd,
        socket: PathBuf,
    ) -> io::Result<(Rc<KeeperLink>, Vec<KeptProcess>)> {
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o600))?;
        listen(listener, 4)?;
        rustix::io::ioctl_fionbio(listener, true)?;
        let (family, flags) = (AddressFamily::UNIX, SocketFlags::CLOEXEC);
        let (own, other) = socketpair(family, SocketType::SEQPACKET, flags, None)?;
        let (count, grouped) = (self.commands.len(), self.group.is_some());
        let order = KeepOrder {
            executable: self.executable.to_owned(),
            folder: self.group.map(|(folder, _)| folder.as_raw_fd()),
            group: self.group.map(|(_, path)| path.to_owned()),
            home: self.home,
            patience_ms: u64::try_from(self.patience.as_millis()).unwrap_or(u64::MAX),
            socket,
            listener: listener.as_raw_fd(),
            channel: other.as_raw_fd(),
            commands: self.commands,
            held: self.held.iter().map(|(what, file)| (*what, file.as_raw_fd())).collect(),
        };
        let mut file = File::from(memfd_create(c"kumi-keep", MFdFlags::MFD_CLOEXEC)?);
        file.write_all(&postcard::to_allocvec(&order).map_err(io::Error::other)?)?;
        io::Seek::rewind(&mut file)?;
        let mut inherited = self.inherited;
        inherited.extend(self.held.iter().map(|(_, file)| *file));
        inherited.extend(self.group.map(|(folder, _)| folder));
        inherited.extend([listener.as_fd(), other.as_fd(), file.as_fd()]);
        let null = File::open("/dev/null")?;
        // As a new one: 0 to 2 are given to no process.
        let errors = io::stderr().as_fd().try_clone_to_owned()?;
        let request = SpawnRequest {
            executable: self.executable.to_owned(),
            arguments: vec![
                "keep".to_owned(),
                "--cluster-dir".to_owned(),
                self.cluster.to_string_lossy().into_owned(),
                file.as_raw_fd().to_string(),
            ],
            streams: [null.as_raw_fd(), null.as_raw_fd(), errors.as_raw_fd()],
            inherited: inherited.iter().map(AsRawFd::as_raw_fd).collect(),
            session: false,
            group: None,
        };
        let mut process = self.starter.start(request).await?;
        drop(other);
        self.progress.step();
        let mut link = Joined::new(Channel::new(own)?, process.pid().unwrap_or(0), grouped);
        let started = link.await_processes(count, self.step, &self.progress).await;
        if let Err(error) = started {
            // One that hangs takes what it has started with it. One that has failed is about to end.
            process.kill();
            end(process).await;
            return Err(error);
        }
        Ok(link.attend(Some(process)))
    }
}

/// A keeper that is connected and not attended to yet.
struct Joined {
    channel: Channel,
    link: Rc<KeeperLink>,
    inbox: mpsc::UnboundedReceiver<ToKeeper>,
    grouped: bool,
    processes: Vec<KeptProcess>,
    waiting: BTreeMap<u32, oneshot::Sender<RankStatus>>,
}

impl Joined {
    fn new(channel: Channel, pid: u32, grouped: bool) -> Self {
        let (outbox, inbox) = mpsc::unbounded_channel();
        let link = Rc::new(KeeperLink { outbox, pid: i32::try_from(pid).unwrap_or(0) });
        let (processes, waiting) = (Vec::new(), BTreeMap::new());
        Self { channel, link, inbox, grouped, processes, waiting }
    }

    fn has(&mut self, index: u32, pid: i32) {
        let (ended, grouped) = (oneshot::channel(), self.grouped);
        self.waiting.insert(index, ended.0);
        let keeper = Rc::clone(&self.link);
        self.processes.push(KeptProcess { pid, index, grouped, ended: ended.1, keeper });
    }

    /// Hears of so many processes that were started. Each may take so long.
    async fn await_processes(
        &mut self,
        count: usize,
        step: Duration,
        progress: &StartProgress,
    ) -> io::Result<()> {
        while self.processes.len() < count {
            let message = tokio::select! {
                biased;
                error = progress.given_up() => return Err(error),
                message = tokio::time::timeout(step, self.channel.receive()) => message,
            };
            match message.map_err(|_| stands_still(step))?? {
                Some((FromKeeper::Started { index, pid }, _)) => self.has(index, pid),
                Some((FromKeeper::Failed(reason), _)) => return Err(io::Error::other(reason)),
                Some(_) => return Err(io::ErrorKind::InvalidData.into()),
                None => return Err(io::Error::other("its keeper ended; see the node's log")),
            }
            progress.step();
        }
        Ok(())
    }

    /// Passes messages on from now on. `process` is the keeper's, if it is a child of this one.
    fn attend(self, process: Option<Process>) -> (Rc<KeeperLink>, Vec<KeptProcess>) {
        let Self { channel, link, mut inbox, processes, mut waiting, .. } = self;
        tokio::task::spawn_local(async move {
            loop {
                tokio::select! {
                    biased;
                    message = channel.receive() => match message {
                        Ok(Some((FromKeeper::Exited { index, status }, _))) => {
                            if let Some(ended) = waiting.remove(&index) {
                                // The job's task may be over.
                                let _ = ended.send(status);
                            }
                        }
                        Ok(Some((message, _))) => tracing::warn!(?message, "a keeper says something else"),
                        Ok(None) => break,
                        Err(error) => {
                            tracing::error!(%error, "a keeper is not understood");
                            break;
                        }
                    },
                    order = inbox.recv() => match order {
                        Some(order) => if channel.send(&order, None).await.is_err() { break },
                        None => break,
                    },
                }
            }
            // Who waits for a process hears that nobody knows how it ended.
            drop(waiting);
            drop(channel);
            if let Some(process) = process {
                end(process).await;
            }
            drop(inbox);
        });
        (link, processes)
    }
}

/// A keeper of a job that a former daemon started.
pub(crate) struct FoundKeeper {
    /// The job, by the name of the keeper's socket.
    pub(crate) job: JobId,
    /// The connection.
    pub(crate) link: Rc<KeeperLink>,
    /// The processes, in the order in which they were started.
    pub(crate) processes: Vec<KeptProcess>,
    /// What it holds.
    pub(crate) held: BTreeMap<Held, OwnedFd>,
}

/// Finds the keepers that listen in a folder. A name at which nobody listens goes.
pub(crate) async fn find(folder: &Path) -> Vec<FoundKeeper> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        let job = entry.file_name().to_str().and_then(|name| name.parse().ok()).map(JobId);
        let is_socket = entry.file_type().is_ok_and(|kind| kind.is_socket());
        let Some(job) = job.filter(|_| is_socket) else { continue };
        let joining = tokio::time::timeout(PATIENCE, join(folder, job));
        match joining.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
            Ok(keeper) => found.push(keeper),
            Err(error) => {
                tracing::info!(%job, %error, "nobody keeps the job any more");
                if let Err(error) = fs::remove_file(entry.path())
                    && error.kind() != io::ErrorKind::NotFound
                {
                    tracing::warn!(path = %entry.path().display(), %error, "a file is left");
                }
            }
        }
    }
    found
}

async fn join(folder: &Path, job: JobId) -> io::Result<FoundKeeper> {
    let (open, socket) = (File::open(folder)?, socket()?);
    connect(&socket, &through(&open, &job.0.to_string())?)?;
    let pid = rustix::net::sockopt::socket_peercred(&socket)?.pid;
    let pid = u32::try_from(pid.as_raw_nonzero().get()).unwrap_or(0);
    let channel = Channel::new(socket)?;
    if !channel.is_own() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is somebody else's"));
    }
    channel.send(&ToKeeper::Attach { version: VERSION }, None).await?;
    let mut link = Joined::new(channel, pid, false);
    let mut held = BTreeMap::new();
    loop {
        if held.len() + link.processes.len() > MOST {
            return Err(io::ErrorKind::InvalidData.into());
        }
        match link.channel.receive().await? {
            Some((FromKeeper::Holds(what), Some(file))) => drop(held.insert(what, file)),
            Some((FromKeeper::Has { index, pid }, _)) => link.has(index, pid),
            Some((FromKeeper::Complete { version: VERSION }, _)) => break,
            // What a former daemon was to hear.
            Some((FromKeeper::Exited { .. } | FromKeeper::Started { .. }, _)) => {}
            Some(_) => return Err(io::ErrorKind::InvalidData.into()),
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
    let (link, processes) = link.attend(None);
    Ok(FoundKeeper { job, link, processes, held })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::OpenOptionsExt;

    fn request<'a>(
        (executable, folder): (&'a Path, &'a Path),
        starter: &'a ProcessStarter,
        progress: &StartProgress,
    ) -> KeepRequest<'a> {
        KeepRequest {
            executable,
            cluster: folder,
            folder,
            job: JobId(7),
            patience: Duration::from_secs(60),
            starter,
            step: Duration::from_millis(50),
            progress: progress.clone(),
            group: None,
            home: None,
            commands: vec![KeptCommand {
                arguments: Vec::new(),
                streams: [0; 3],
                inherited: Vec::new(),
                session: false,
            }],
            held: Vec::new(),
            inherited: Vec::new(),
        }
    }

    /// A program in the place of the keeper.
    fn program(folder: &Path, script: &str) -> PathBuf {
        let path = folder.join("program");
        let mut options = fs::OpenOptions::new();
        let mut file =
            options.write(true).create(true).truncate(true).mode(0o755).open(&path).unwrap();
        file.write_all(format!("#!/bin/sh\n{script}\n").as_bytes()).unwrap();
        path
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_keeper_that_says_nothing_is_killed_and_its_name_goes() {
        let local = tokio::task::LocalSet::new();
        let test = async {
            let folder = tempfile::tempdir().unwrap();
            let keepers = folder.path().join("keep");
            let (starter, progress) = (ProcessStarter::new().unwrap(), StartProgress::default());
            let number = folder.path().join("pid");
            let hangs = format!("echo $$ >{}; exec /bin/sleep 1000", number.display());
            let hangs = program(folder.path(), &hangs);
            // It may not have got so far in the first time.
            let end = tokio::time::Instant::now() + Duration::from_secs(300);
            let pid = loop {
                assert!(tokio::time::Instant::now() < end, "it never begins");
                let error =
                    request((&hangs, &keepers), &starter, &progress).start().await.unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
                assert_eq!(fs::read_dir(&keepers).unwrap().count(), 0);
                let text = fs::read_to_string(&number).unwrap_or_default();
                if let Ok(pid) = text.trim().parse::<i32>() {
                    break pid;
                }
            };
            assert!(!fs::exists(format!("/proc/{pid}")).unwrap(), "it was not waited for");
            let ends = program(folder.path(), "exit 3");
            let patient = KeepRequest {
                step: Duration::from_secs(600),
                ..request((&ends, &keepers), &starter, &progress)
            };
            let error = patient.start().await.unwrap_err();
            assert!(error.to_string().contains("its keeper ended"), "{error}");
        };
        local.run_until(test).await;
    }
}
