//! The daemon's side of a job's server: messages to and from it, and how each rank stands with MPI.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Seek, Write};
use std::ops::Range;
use std::rc::Rc;

use kumi_control::message::{Contribution, ExchangeId, JobSpec, NodeSet, Refusal, RefusalKind};
use kumi_pmi::frame::{self, FrameBuffer};
use kumi_pmi::message::{Exchange, FromServer, ToServer};
use kumi_sched::{JobId, NodeId};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};

use super::folder::MpiFolder;
use super::launch::{MpiParts, no_provider};
use super::setting::{MpiLibrary, MpiSetting};
use crate::client::refusal;
use crate::job::NodeServices;

/// Messages of the server that wait for the job's task before it is not read any more.
const QUEUE: usize = 4;
/// Most bytes that wait for the server. Beyond, messages of other nodes are dropped: who sent them asks again.
const MOST_WAITING: usize = 16 << 20;
/// Longest piece read at once, in bytes.
const PIECE: usize = 64 << 10;

/// How a rank stands with MPI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::job) enum Standing {
    /// It has begun to use it.
    Joined,
    /// It has finished.
    Finalized,
}

/// What the server says, or why it says nothing any more.
pub(in crate::job) type ServerMessage = Result<FromServer, String>;

/// The server of a job, as the job's task sees it.
#[derive(Debug)]
pub(in crate::job) struct MpiLink {
    job: JobId,
    setting: MpiSetting,
    has_provider: bool,
    /// By place.
    nodes: Vec<NodeId>,
    own: NodeId,
    ranks: Range<u32>,
    outbox: mpsc::UnboundedSender<Vec<u8>>,
    waiting: Rc<Cell<usize>>,
    variables: std::fs::File,
    standings: BTreeMap<u32, Standing>,
    /// Ranks that ended with code 0: the server is asked how they stand.
    pub(in crate::job) asked: BTreeSet<u32>,
    /// A sentence for the user if a rank fails: what was missing.
    pub(in crate::job) missing: Option<String>,
    pub(in crate::job) folder: Option<MpiFolder>,
}

impl MpiLink {
    /// Begins to talk with the server. What it says comes through the receiver.
    ///
    /// # Errors
    /// The kernel's error.
    pub(in crate::job) fn start(
        parts: MpiParts,
        spec: &JobSpec,
        own: NodeId,
        blocked: watch::Receiver<bool>,
    ) -> io::Result<(Self, mpsc::Receiver<ServerMessage>)> {
        let MpiParts { job, setting, has_provider, control, variables, folder } = parts;
        control.set_nonblocking(true)?;
        let (read, write) = UnixStream::from_std(control)?.into_split();
        let (outbox, frames) = mpsc::unbounded_channel();
        let waiting = Rc::new(Cell::new(0));
        let (sender, receiver) = mpsc::channel(QUEUE);
        tokio::task::spawn_local(write_all(write, frames, Rc::clone(&waiting)));
        tokio::task::spawn_local(read_all(read, sender, blocked));
        let part = job.own().map(|own| own.first..own.first.saturating_add(own.count));
        let link = Self {
            job: spec.job,
            setting,
            has_provider,
            nodes: spec.layout.iter().map(|part| part.node).collect(),
            own,
            ranks: part.unwrap_or_default(),
            outbox,
            waiting,
            variables,
            standings: BTreeMap::new(),
            asked: BTreeSet::new(),
            missing: None,
            folder: Some(folder),
        };
        link.send(&ToServer::Job(job));
        Ok((link, receiver))
    }

    fn send(&self, message: &ToServer) {
        match frame::encode(message) {
            Ok(bytes) => {
                self.waiting.set(self.waiting.get().saturating_add(bytes.len()));
                // Its end is reported by the one who reads.
                let _ = self.outbox.send(bytes);
            }
            Err(error) => tracing::error!(job = %self.job, %error, "a message for the MPI server"),
        }
    }

    /// The server is ready: the shims find the variables of their ranks in the file.
    ///
    /// # Errors
    /// Why the job cannot be started.
    pub(in crate::job) fn ready(
        &mut self,
        env: &[Vec<(String, String)>],
        without_pmix: Option<String>,
    ) -> Result<(), Refusal> {
        if let Some(reason) = without_pmix {
            let missing = format!(
                "node {} has no libpmix.so.2, by which Open MPI programs learn their ranks ({reason}); install it (Debian: libpmix2)",
                self.own
            );
            if self.setting.library == MpiLibrary::OpenMpi {
                return Err(refusal(RefusalKind::NotFound, missing));
            }
            self.missing = Some(missing);
        }
        let failed = |error: &dyn std::fmt::Display| {
            let message =
                format!("the variables of MPI ranks cannot be kept: {error}; see the node's log");
            refusal(RefusalKind::Internal, message)
        };
        let bytes = postcard::to_allocvec(env).map_err(|error| failed(&error))?;
        let written = self.variables.write_all(&bytes).and_then(|()| self.variables.rewind());
        written.map_err(|error| failed(&error))
    }

    /// Whether the job has this rank on this node: the server is not believed more than ranks are.
    pub(in crate::job) fn has(&self, rank: u32) -> bool {
        self.ranks.contains(&rank)
    }

    /// A rank begins to use MPI.
    ///
    /// # Errors
    /// Its messages have no way to go.
    pub(in crate::job) fn joined(
        &mut self,
        rank: u32,
        services: &NodeServices,
    ) -> Result<(), Refusal> {
        self.standings.insert(rank, Standing::Joined);
        if self.has_provider { Ok(()) } else { Err(no_provider(services)) }
    }

    /// A rank has finished with MPI.
    pub(in crate::job) fn finalized(&mut self, rank: u32) {
        self.standings.insert(rank, Standing::Finalized);
    }

    /// How a rank stands.
    pub(in crate::job) fn standing(&self, rank: u32) -> Option<Standing> {
        self.standings.get(&rank).copied()
    }

    /// Asks the server how a rank stands that has ended.
    pub(in crate::job) fn ask(&mut self, rank: u32) {
        self.asked.insert(rank);
        self.send(&ToServer::Ended { rank });
    }

    /// The nodes at these places, with which this one exchanges.
    ///
    /// # Errors
    /// There is no such place, or this node is not among them.
    pub(in crate::job) fn members(&self, places: &[u32]) -> Result<NodeSet, String> {
        let node = |&place: &u32| {
            let found = usize::try_from(place).ok().and_then(|place| self.nodes.get(place));
            found.copied().ok_or_else(|| format!("there is no node {place} in the job"))
        };
        let nodes: BTreeSet<NodeId> = places.iter().map(node).collect::<Result<_, _>>()?;
        if nodes.contains(&self.own) {
            return Ok(NodeSet::from_nodes(nodes));
        }
        Err("a node exchanges without itself".to_owned())
    }

    /// The node at a place.
    pub(in crate::job) fn node(&self, place: u32) -> Option<NodeId> {
        self.nodes.get(usize::try_from(place).ok()?).copied()
    }

    /// An exchange of this job by its number.
    pub(in crate::job) fn id(&self, exchange: Exchange) -> ExchangeId {
        ExchangeId { job: self.job, group: exchange.group, number: exchange.number }
    }

    /// All have contributed. Parts go to the server in the order of places.
    pub(in crate::job) fn exchanged(&self, id: ExchangeId, mut parts: Vec<Contribution>) {
        let place = |node| self.nodes.iter().position(|&other| other == node);
        parts.sort_by_key(|part| place(part.node));
        let data = parts.into_iter().map(|part| part.data).collect();
        let exchange = Exchange { group: id.group, number: id.number };
        self.send(&ToServer::Exchanged { exchange, data });
    }

    /// A message of another node's server.
    pub(in crate::job) fn relayed(&self, from: NodeId, data: Vec<u8>) {
        let place = self.nodes.iter().position(|&node| node == from);
        let Some(from) = place.and_then(|place| u32::try_from(place).ok()) else { return };
        if self.waiting.get().saturating_add(data.len()) <= MOST_WAITING {
            self.send(&ToServer::Relayed { from, data });
        }
    }
}

async fn write_all(
    mut to: tokio::net::unix::OwnedWriteHalf,
    mut frames: mpsc::UnboundedReceiver<Vec<u8>>,
    waiting: Rc<Cell<usize>>,
) {
    while let Some(bytes) = frames.recv().await {
        if to.write_all(&bytes).await.is_err() {
            // The reader sees the end, too, and says so.
            return;
        }
        waiting.set(waiting.get().saturating_sub(bytes.len()));
    }
}

/// Passes messages on, one by one, and none while the way up is blocked.
async fn read_all(
    mut from: tokio::net::unix::OwnedReadHalf,
    sender: mpsc::Sender<ServerMessage>,
    mut blocked: watch::Receiver<bool>,
) {
    let (mut buffer, mut piece) = (FrameBuffer::default(), vec![0; PIECE]);
    let end = loop {
        match buffer.take::<FromServer>() {
            Ok(Some(message)) => {
                // Fails only when the main loop is gone.
                let open = blocked.wait_for(|blocked| !blocked).await.is_ok();
                if !open || sender.send(Ok(message)).await.is_err() {
                    return;
                }
                continue;
            }
            Ok(None) => {}
            Err(error) => break error.to_string(),
        }
        match from.read(&mut piece).await {
            Ok(0) => break "it ended".to_owned(),
            Ok(count) => buffer.extend(&piece[..count]),
            Err(error) => break error.to_string(),
        }
    };
    // The job may be over.
    let _ = sender.send(Err(end)).await;
}
