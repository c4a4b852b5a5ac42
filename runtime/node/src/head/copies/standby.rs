//! A head that waits: a thread of its own copies the output of jobs from the head that leads.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kumi_control::copying::{
    COPY_VERSION, CopyAnswer, CopyDown, CopyHello, CopyUp, CopyWelcome, MOST_LOGS,
};
use kumi_etcd::EtcdError;
use kumi_sched::JobId;
use tokio::io::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::timeout;

use super::others;
use crate::config::{ClusterConfig, ConfigError};
use crate::event_loop;
use crate::exit::{ExitCode, Failure};
use crate::frame::{self, LINK_LIMIT};
use crate::head::metrics::HeadCounters;
use crate::head::reserve::DiskReserve;
use crate::head::spool::{CopyFailure, SpoolQuota, Spools};
use crate::head::state::read_in_sync;
use crate::link::{self, ConnectedStream, HANDSHAKE, LinkError};
use crate::tls::{Credentials, Identity};
use crate::{paths, tcp};

/// Pause before the next attempt to copy.
const AGAIN: Duration = Duration::from_secs(1);
/// Messages of the leader that wait for the disk.
const WAITING: usize = 4;
/// The leader hears something at least so often in the time after which silence ends a connection.
const KEEP_ALIVE: u32 = 3;

/// Why output is not copied now.
#[derive(Debug, thiserror::Error)]
enum StandbyError {
    #[error("{0}")]
    Link(#[from] LinkError),
    #[error("{0}")]
    Copy(#[from] CopyFailure),
    #[error("it leads in term {term}, and there is output of term {latest} here")]
    Deposed { term: u64, latest: u64 },
    #[error("{0} cannot be used: {1}")]
    Folder(PathBuf, std::io::Error),
    #[error("etcd does not say which heads are in sync: {0}")]
    InSync(#[from] EtcdError),
    #[error("{0}")]
    Config(#[from] ConfigError),
    #[error("it sends output of job {0}, of which it has not said whose it is")]
    Unknown(JobId),
}

/// The copies of a head that waits.
pub(in crate::head) struct Standby {
    leader: watch::Sender<String>,
    stopped: Arc<AtomicBool>,
    ended: oneshot::Receiver<()>,
}

impl Standby {
    /// Starts the thread; none if there are no other heads.
    ///
    /// # Errors
    /// There is no thread, or no certificate of this head.
    pub(in crate::head) fn start(
        dir: &Path,
        config: &Arc<ClusterConfig>,
        own: SocketAddr,
    ) -> Result<Option<Self>, Failure> {
        let heads: BTreeSet<SocketAddr> = others(&config.heads(), own).collect();
        if config.state.is_none() || heads.is_empty() {
            return Ok(None);
        }
        let credentials = Credentials::load(dir, Identity::Head)?;
        let runtime = event_loop::make()?;
        let (leader, follows) = watch::channel(String::new());
        let stopped = Arc::new(AtomicBool::new(false));
        let (end, ended) = oneshot::channel();
        let (config, dir, told) = (Arc::clone(config), dir.to_owned(), Arc::clone(&stopped));
        let thread = std::thread::Builder::new().name("copies".to_owned());
        let run = move || {
            let copier = Copier { dir, config, own, heads, credentials, stopped: told, latest: 0 };
            tokio::task::LocalSet::new().block_on(&runtime, copier.run(follows));
            // Fails only when nobody waits any more.
            let _ = end.send(());
        };
        thread.spawn(run).map_err(|error| {
            let text = format!("no thread can be made: {error}; raise the limit of processes");
            Failure::new(ExitCode::MachineLimits, text)
        })?;
        Ok(Some(Self { leader, stopped, ended }))
    }

    /// This one leads now; it may be nobody.
    pub(in crate::head) fn follow(&self, leader: &str) {
        self.leader.send_if_modified(|known| {
            let is_news = known != leader;
            leader.clone_into(known);
            is_news
        });
    }

    /// Ends the copying: the folder is free then.
    pub(in crate::head) async fn stop(self) {
        self.stopped.store(true, Ordering::Release);
        self.leader.send_replace(String::new());
        // The thread tells it, or is gone.
        let _ = self.ended.await;
    }
}

/// What the thread has.
struct Copier {
    dir: PathBuf,
    config: Arc<ClusterConfig>,
    own: SocketAddr,
    heads: BTreeSet<SocketAddr>,
    credentials: Credentials,
    stopped: Arc<AtomicBool>,
    /// The latest term that it has heard of.
    latest: u64,
}

impl Copier {
    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    async fn run(mut self, mut follows: watch::Receiver<String>) {
        let mut failures = 0u64;
        while !self.is_stopped() {
            let leader: Option<SocketAddr> = follows.borrow_and_update().parse().ok();
            let Some(leader) = leader.filter(|leader| self.heads.contains(leader)) else {
                if follows.changed().await.is_err() {
                    return;
                }
                continue;
            };
            let mut changes = follows.clone();
            changes.borrow_and_update();
            let error = tokio::select! {
                biased;
                _ = changes.changed() => continue,
                error = self.copy(leader) => error,
            };
            failures += 1;
            if failures.is_power_of_two() {
                tracing::warn!(%leader, %error, failures, "output is not copied here now");
            }
            // Whoever sends the change is gone: so ends this.
            let _ = timeout(AGAIN, follows.changed()).await;
        }
    }

    /// Copies until that fails.
    async fn copy(&mut self, leader: SocketAddr) -> StandbyError {
        match self.copy_from(leader).await {
            Ok(never) => match never {},
            Err(error) => error,
        }
    }

    async fn copy_from(
        &mut self,
        leader: SocketAddr,
    ) -> Result<std::convert::Infallible, StandbyError> {
        let (stream, term) = self.connect(leader).await?;
        let mut spools = self.open()?;
        spools.begin_copies();
        let latest = self.latest.max(spools.latest_term());
        if term < latest {
            return Err(StandbyError::Deposed { term, latest });
        }
        self.latest = term;
        let silence = self.config.silence();
        self.drop_damage(&mut spools).await?;
        let (read, mut write) = tokio::io::split(stream);
        introduce(&mut spools, &mut write).await?;
        tracing::info!(%leader, term, "output is copied from the head that leads");
        let (sender, mut messages) = mpsc::channel(WAITING);
        let reading = tokio::task::spawn_local(receive(read, silence, sender));
        let _reading = EndWithThis(reading);
        let mut copying = Copying { spools, term, known: BTreeSet::new(), stopped: &self.stopped };
        loop {
            let said = match timeout(silence / KEEP_ALIVE, messages.recv()).await {
                Err(_) => Some(CopyUp::Alive),
                Ok(None) => return Err(LinkError::Closed.into()),
                Ok(Some(message)) => copying.take(message?)?,
            };
            if let Some(said) = said {
                let written = frame::write(&mut write, &said, LINK_LIMIT);
                let written = timeout(silence, written).await;
                written.map_err(|_| LinkError::Silent(silence))?.map_err(LinkError::from)?;
            }
        }
    }

    async fn connect(&self, leader: SocketAddr) -> Result<(ConnectedStream, u64), LinkError> {
        let hello =
            CopyHello { version: COPY_VERSION, cluster: self.config.name.clone(), head: self.own };
        let handshake = async {
            let stream = tcp::connect(leader).await?;
            let mut stream = self.credentials.connect_to_leader(stream).await?;
            frame::write(&mut stream, &hello, LINK_LIMIT).await?;
            match frame::read::<CopyAnswer>(&mut stream, LINK_LIMIT).await? {
                Some(Ok(CopyWelcome { term })) => Ok((stream, term)),
                Some(Err(refused)) => Err(LinkError::Refused(refused)),
                None => Err(LinkError::Closed),
            }
        };
        timeout(HANDSHAKE, handshake).await.map_err(|_| LinkError::Timeout)?
    }

    /// Removes what cannot be read of copies, so that it is copied again, if others have all of it. While this head is in the list of those
    /// in sync it may be the only one. It is connected, and its last connection is gone: so it enters the list only with what it says
    /// that it has.
    async fn drop_damage(&self, spools: &mut Spools) -> Result<(), StandbyError> {
        let damaged = spools.damaged_copies();
        if damaged.is_empty() {
            return Ok(());
        }
        let Some(settings) = self.config.etcd(&self.dir, self.own)? else { return Ok(()) };
        if read_in_sync(settings).await?.contains(&self.own) {
            tracing::warn!(
                jobs = damaged.len(),
                "segments of output are damaged here: they stay until this head is not in sync"
            );
            return Ok(());
        }
        for job in damaged {
            spools.drop_damage(job, &|| self.is_stopped())?;
        }
        Ok(())
    }

    /// What is here of output, with the shares of cluster.toml.
    fn open(&self) -> Result<Spools, StandbyError> {
        let (config, folder) = (&self.config, paths::spool(&self.dir));
        let quota = SpoolQuota::new(config.quota.clone(), config.retention.spool_mib);
        let reserve = DiskReserve::open(paths::head_reserve(&self.dir));
        let owners = (Rc::new(HeadCounters::default()), Rc::clone(reserve.held()));
        Spools::open(folder.clone(), |_| true, quota, owners)
            .map_err(|error| StandbyError::Folder(folder, error))
    }
}

/// A task that ends with this.
struct EndWithThis(tokio::task::JoinHandle<()>);

impl Drop for EndWithThis {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn receive(
    mut read: ReadHalf<ConnectedStream>,
    silence: Duration,
    messages: mpsc::Sender<Result<CopyDown, LinkError>>,
) {
    loop {
        let message = link::receive::<CopyDown>(&mut read, silence).await;
        let is_last = message.is_err();
        if messages.send(message).await.is_err() || is_last {
            return;
        }
    }
}

/// Says what is here.
async fn introduce(
    spools: &mut Spools,
    write: &mut WriteHalf<ConnectedStream>,
) -> Result<(), LinkError> {
    let logs = spools.copied_logs();
    let said = logs.chunks(MOST_LOGS).map(|some| CopyUp::Has(some.to_vec()));
    for message in said.chain([CopyUp::HasAll]) {
        frame::write(write, &message, LINK_LIMIT).await?;
    }
    Ok(())
}

/// What the leader sends in a term, on its way to the disk.
struct Copying<'a> {
    spools: Spools,
    term: u64,
    /// Jobs that there are, as far as the leader has said.
    known: BTreeSet<JobId>,
    stopped: &'a AtomicBool,
}

impl Copying<'_> {
    /// Takes a message. Returns what the leader is to hear.
    fn take(&mut self, message: CopyDown) -> Result<Option<CopyUp>, StandbyError> {
        let stopped = || self.stopped.load(Ordering::Acquire);
        match message {
            CopyDown::Known(jobs) => {
                for job in jobs {
                    self.known.insert(job.job);
                    self.spools.know_job(job);
                }
            }
            CopyDown::KnownAll => self.spools.retain(&self.known),
            CopyDown::Discard(job) => {
                self.known.remove(&job);
                self.spools.discard(job);
            }
            CopyDown::Place(job, _) | CopyDown::Frames { job, .. } | CopyDown::Cut { job, .. }
                if !self.known.contains(&job) =>
            {
                return Err(StandbyError::Unknown(job));
            }
            CopyDown::Cut { job, end } => self.spools.copy_cut(job, end, &stopped)?,
            CopyDown::Place(job, place) => {
                let end = self.spools.copy_place(job, self.term, &place)?;
                return Ok(Some(CopyUp::Taken { job, end }));
            }
            CopyDown::Frames { job, offset, frames } => {
                let end = self.spools.copy_frames(job, offset, &frames, &stopped)?;
                return Ok(Some(CopyUp::Taken { job, end }));
            }
            CopyDown::Alive => {}
        }
        Ok(None)
    }
}
