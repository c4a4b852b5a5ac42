//! The daemon's side of a job's server: messages to and from it, and how each rank stands with MPI.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Seek, Write};
use std::ops::Range;
use std::rc::Rc;

use kumi_control::message::{Contribution, ExchangeId, JobSpec, NodeSet, Refusal, RefusalKind};
use kumi_pmi::frame::{self, FrameBuffer};
use kumi_pmi::message::{Exchange, FromServer, MOST_EXCHANGE, ToServer};
use kumi_sched::{JobId, NodeId};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};

use super::door::Door;
use super::launch::no_provider;
use super::setting::{MpiLibrary, MpiSetting};
use crate::client::refusal;
use crate::job::NodeServices;

/// Messages of the server that wait for the job's task before it is not read any more.
const QUEUE: usize = 4;
/// Bytes that wait for the server beyond which it is not read, since its messages make more. No library gets near: a server
/// that writes does not read meanwhile.
const MOST_WAITING: usize = 32 << 20;
/// Bytes beyond which messages of other nodes are dropped: who sent them asks again.
const MOST_RELAYED: usize = 8 << 20;
/// Most bytes that wait for the server while its job goes on.
const HARD_BOUND: usize = 2 * MOST_WAITING;
/// Most bytes that this node contributes to exchanges that are not over.
const MOST_UNDER_WAY: usize = 3 * MOST_EXCHANGE;
/// What an exchange under way counts in addition to its bytes.
const PER_EXCHANGE: usize = 64 << 10;
/// Longest piece read at once, in bytes.
const PIECE: usize = 64 << 10;

/// What the server says, or why it says nothing any more.
pub(in crate::job) type ServerMessage = Result<FromServer, String>;

/// How the daemon comes to the server, and what it has for it.
#[derive(Debug)]
pub(in crate::job) struct ServerWay {
    /// What it says first.
    pub(super) begin: ToServer,
    pub(super) setting: MpiSetting,
    /// There is a way for messages of ranks.
    pub(super) has_provider: bool,
    pub(super) door: Door,
    /// For variables of ranks; none once these have been let go.
    pub(super) variables: Option<File>,
}

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
    /// Bytes that wait for the server.
    waiting: Rc<watch::Sender<usize>>,
    under_way: UnderWay,
    /// None once the ranks have been let go.
    variables: Option<File>,
    /// Ranks that ended with code 0: the server is asked how they stand.
    pub(in crate::job) asked: BTreeSet<u32>,
    /// A sentence for the user if a rank fails: what was missing.
    pub(in crate::job) missing: Option<String>,
    /// The server's end would see that nobody comes any more.
    _door: Door,
}

/// Exchanges to which this node contributed and that are not over, and how much.
#[derive(Debug, Default)]
struct UnderWay(BTreeMap<Exchange, usize>);

impl UnderWay {
    fn begin(&mut self, exchange: Exchange, length: usize) -> Result<(), String> {
        let all: usize = self.0.values().sum();
        let cost = length.saturating_add(PER_EXCHANGE);
        if all.saturating_add(cost) > MOST_UNDER_WAY {
            return Err("it contributes to more exchanges at a time than may be".to_owned());
        }
        match self.0.insert(exchange, cost) {
            None => Ok(()),
            Some(_) => Err("it contributes twice to an exchange".to_owned()),
        }
    }
}

impl MpiLink {
    /// Begins to talk with the server. What it says comes through the receiver.
    ///
    /// # Errors
    /// The kernel's error.
    pub(in crate::job) fn start(
        way: ServerWay,
        spec: &JobSpec,
        own: NodeId,
        blocked: watch::Receiver<bool>,
    ) -> io::Result<(Self, mpsc::Receiver<ServerMessage>)> {
        let ServerWay { begin, setting, has_provider, door, variables } = way;
        let stream = door.enter()?;
        stream.set_nonblocking(true)?;
        let (read, write) = UnixStream::from_std(stream)?.into_split();
        let (outbox, frames) = mpsc::unbounded_channel();
        let waiting = Rc::new(watch::Sender::new(0));
        let (sender, receiver) = mpsc::channel(QUEUE);
        tokio::task::spawn_local(write_all(write, frames, Rc::clone(&waiting)));
        let gates = Gates { blocked, waiting: waiting.subscribe() };
        tokio::task::spawn_local(read_all(read, sender, gates));
        let part = spec.layout.iter().find(|part| part.node == own);
        let part = part.map(|part| part.first..part.first.saturating_add(part.count));
        let link = Self {
            job: spec.job,
            setting,
            has_provider,
            nodes: spec.layout.iter().map(|part| part.node).collect(),
            own,
            ranks: part.unwrap_or_default(),
            outbox,
            waiting,
            under_way: UnderWay::default(),
            variables,
            asked: BTreeSet::new(),
            missing: None,
            _door: door,
        };
        link.send(&begin);
        Ok((link, receiver))
    }

    fn send(&self, message: &ToServer) {
        match frame::encode(message) {
            Ok(bytes) => {
                let length = bytes.len();
                // Its end is reported by the one who reads.
                if self.outbox.send(bytes).is_ok() {
                    self.waiting.send_modify(|waiting| *waiting = waiting.saturating_add(length));
                }
            }
            Err(error) => tracing::error!(job = %self.job, %error, "a message for the MPI server"),
        }
    }

    /// What ranks that speak PMIx miss: the sentence for the user if one fails.
    ///
    /// # Errors
    /// The job's program speaks nothing else.
    pub(in crate::job) fn is_without_pmix(
        &mut self,
        reason: Option<String>,
    ) -> Result<(), Refusal> {
        let Some(reason) = reason else { return Ok(()) };
        let missing = format!(
            "node {} has no libpmix.so.2, by which Open MPI programs learn their ranks ({reason}); install it (Debian: libpmix2)",
            self.own
        );
        if self.setting.library == MpiLibrary::OpenMpi {
            return Err(refusal(RefusalKind::NotFound, missing));
        }
        self.missing = Some(missing);
        Ok(())
    }

    /// What the server told up to this number was heard.
    pub(in crate::job) fn heard(&self, number: u64) {
        self.send(&ToServer::Heard { number });
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
        self.is_without_pmix(without_pmix)?;
        // Once is enough.
        let Some(mut file) = self.variables.take() else { return Ok(()) };
        let failed = |error: &dyn std::fmt::Display| {
            let message =
                format!("the variables of MPI ranks cannot be kept: {error}; see the node's log");
            refusal(RefusalKind::Internal, message)
        };
        let bytes = postcard::to_allocvec(env).map_err(|error| failed(&error))?;
        let written = file.write_all(&bytes).and_then(|()| file.rewind());
        written.map_err(|error| failed(&error))
    }

    /// Whether the job has this rank on this node: the server is not believed more than ranks are.
    pub(in crate::job) fn has(&self, rank: u32) -> bool {
        self.ranks.contains(&rank)
    }

    /// Whether messages of ranks have a way to go.
    ///
    /// # Errors
    /// They have none.
    pub(in crate::job) fn check_provider(&self, services: &NodeServices) -> Result<(), Refusal> {
        if self.has_provider { Ok(()) } else { Err(no_provider(services)) }
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

    /// This node contributes so many bytes to an exchange with others.
    ///
    /// # Errors
    /// It contributes to that already, or to more than any library does.
    pub(in crate::job) fn contributes(
        &mut self,
        exchange: Exchange,
        length: usize,
    ) -> Result<(), String> {
        self.under_way.begin(exchange, length)
    }

    /// Whether the server takes so little of what is for it that the job cannot go on.
    pub(in crate::job) fn overfull(&self) -> bool {
        *self.waiting.borrow() > HARD_BOUND
    }

    /// All have contributed. Parts go to the server in the order of places.
    pub(in crate::job) fn exchanged(&mut self, id: ExchangeId, mut parts: Vec<Contribution>) {
        let place = |node| self.nodes.iter().position(|&other| other == node);
        parts.sort_by_key(|part| place(part.node));
        let data = parts.into_iter().map(|part| part.data).collect();
        let exchange = Exchange { group: id.group, number: id.number };
        self.under_way.0.remove(&exchange);
        self.send(&ToServer::Exchanged { exchange, data });
    }

    /// A message of another node's server.
    pub(in crate::job) fn relayed(&self, from: NodeId, data: Vec<u8>) {
        let place = self.nodes.iter().position(|&node| node == from);
        let Some(from) = place.and_then(|place| u32::try_from(place).ok()) else { return };
        let waiting = *self.waiting.borrow();
        if waiting.saturating_add(data.len()) <= MOST_RELAYED {
            self.send(&ToServer::Relayed { from, data });
        }
    }
}

async fn write_all(
    mut to: tokio::net::unix::OwnedWriteHalf,
    mut frames: mpsc::UnboundedReceiver<Vec<u8>>,
    waiting: Rc<watch::Sender<usize>>,
) {
    while let Some(bytes) = frames.recv().await {
        if to.write_all(&bytes).await.is_err() {
            break;
        }
        waiting.send_modify(|waiting| *waiting = waiting.saturating_sub(bytes.len()));
    }
    // Nothing waits for one who is gone. The reader sees the end, too, and says so.
    drop(frames);
    waiting.send_replace(0);
}

/// What must be so before a message is taken from a server.
struct Gates {
    /// Whether the way up is.
    blocked: watch::Receiver<bool>,
    /// Bytes that wait for the server.
    waiting: watch::Receiver<usize>,
}

impl Gates {
    /// Waits until a message may be taken. False if the job's task is gone.
    async fn open(&mut self) -> bool {
        loop {
            let few = self.waiting.wait_for(|&waiting| waiting <= MOST_WAITING).await.is_ok();
            if !few || self.blocked.wait_for(|blocked| !blocked).await.is_err() {
                return false;
            }
            if *self.waiting.borrow() <= MOST_WAITING {
                return true;
            }
        }
    }
}

/// Passes messages on, one by one, as the gates let them.
async fn read_all(
    mut from: impl AsyncRead + Unpin,
    sender: mpsc::Sender<ServerMessage>,
    mut gates: Gates,
) {
    let (mut buffer, mut piece) = (FrameBuffer::default(), vec![0; PIECE]);
    let end = loop {
        match buffer.take::<FromServer>() {
            Ok(Some(message)) => {
                // The place comes first: what is on its way to the job's task makes answers, too.
                let Ok(place) = sender.reserve().await else { return };
                if !gates.open().await {
                    return;
                }
                place.send(Ok(message));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "current_thread")]
    async fn a_server_is_not_heard_while_much_waits_for_it() {
        let waiting = watch::Sender::new(MOST_WAITING + 1);
        let (_free, blocked) = watch::channel(false);
        let (sender, mut receiver) = mpsc::channel(QUEUE);
        let gates = Gates { blocked, waiting: waiting.subscribe() };
        let said = frame::encode(&FromServer::Ended { rank: 7 }).unwrap().repeat(9);
        let reader = async {
            let server = std::io::Cursor::new(said);
            read_all(server, sender, gates).await;
        };
        let hearer = async {
            for _ in 0..100 {
                tokio::task::yield_now().await;
                assert!(receiver.try_recv().is_err(), "it is heard though it does not read");
            }
            waiting.send_replace(MOST_WAITING);
            for _ in 0..9 {
                let message = receiver.recv().await.unwrap().unwrap();
                assert_eq!(message, FromServer::Ended { rank: 7 });
            }
            assert!(receiver.recv().await.unwrap().is_err(), "its end");
        };
        tokio::join!(reader, hearer);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn nothing_waits_for_a_server_that_is_gone() {
        let (own, other) = UnixStream::pair().unwrap();
        drop(other);
        let waiting = Rc::new(watch::Sender::new(5));
        let (outbox, frames) = mpsc::unbounded_channel();
        outbox.send(vec![0; 5]).unwrap();
        let (_read, write) = own.into_split();
        write_all(write, frames, Rc::clone(&waiting)).await;
        assert!(outbox.is_closed() && *waiting.borrow() == 0);
    }

    #[test]
    fn a_node_contributes_once_and_no_more_than_may_be_kept() {
        let mut under_way = UnderWay::default();
        let exchange = |number| Exchange { group: 1, number };
        assert_eq!(under_way.begin(exchange(0), 1), Ok(()));
        assert!(under_way.begin(exchange(0), 1).unwrap_err().contains("twice"));
        for number in 1..3 {
            assert_eq!(under_way.begin(exchange(number), MOST_EXCHANGE - PER_EXCHANGE), Ok(()));
        }
        assert!(under_way.begin(exchange(3), MOST_EXCHANGE).unwrap_err().contains("more"));
        let began = (4..9_999).filter(|&number| under_way.begin(exchange(number), 0).is_ok());
        assert!(began.count() < 9_000, "small ones, too");
    }
}
