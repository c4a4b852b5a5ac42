//! Links of the control tree: TLS connections between daemons, authenticated by name.
//!
//! The connecting side sends a [`LinkHello`]; the accepting side answers with a [`LinkWelcome`] or a
//! refusal. By them both agree on a version of the control protocol.
//! After that both send frames: `Up` from the child, `Down` from the parent. A connection may
//! also carry one client of a node to the head.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kumi_control::compat::{for_version, note_version};
use kumi_control::join::JoinRefusal;
use kumi_control::message::{
    ControlMessage, Down, MessageCounts, MessageKind, NodeSet, Refusal, RefusalKind, Up,
};
use kumi_control::stall_tolerant_clock::StallTolerantClock;
use kumi_sched::ClusterTime;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::client::refusal;
use crate::clock::monotonic;
use crate::config::{Place, on_link};
use crate::frame::{self, FrameError, LINK_LIMIT};
use crate::lookup::Lookup;
use crate::tls::{self, Credentials, Identity};

mod hello;
pub use hello::{LinkHello, LinkWelcome, Purpose, connect};

/// A link that takes nothing of what waits for it for this long is closed.
const STALL: Duration = Duration::from_secs(10);
/// How often the other side of a link hears something while a report of it has to wait, within the silence after which a
/// link is given up.
const KEEP_ALIVE: u32 = 3;
/// How often the silence of a link is checked.
const LOOK: Duration = Duration::from_millis(250);
/// How long connecting and introducing may take together.
pub const HANDSHAKE: Duration = Duration::from_secs(2);

/// Why a link could not be made, or ended.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// No connection, or authentication failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It took too long.
    #[error("no answer within {HANDSHAKE:?}")]
    Timeout,
    /// The other side broke the protocol.
    #[error("{0}")]
    Frame(#[from] FrameError),
    /// The other side closed the connection.
    #[error("closed by the other side")]
    Closed,
    /// The certificate is for someone else.
    #[error("{0}")]
    Tls(#[from] tls::TlsError),
    /// The other side refused.
    #[error("refused: {}", .0.message)]
    Refused(Refusal),
    /// Too many other connections came before this one had authenticated.
    #[error("too many connections that have not authenticated")]
    Displaced,
    /// The other side's certificate was revoked meanwhile.
    #[error("its certificate is revoked")]
    Revoked,
    /// The other side reports of nodes that are not below it.
    #[error("it reports of nodes that are not below it; all hosts must have the same cluster.toml")]
    NotBelow,
    /// The other side said nothing for too long.
    #[error("nothing came for {0:?}")]
    Silent(Duration),
    /// This machine slept: what came before is old, and the clocks have to be compared anew.
    #[error("this machine slept for {0:?}")]
    Slept(Duration),
    /// A machine that wanted to join may not.
    #[error("a machine may not join: {0}")]
    Join(#[from] JoinRefusal),
}

/// Counts of what was dropped or refused, by reason.
#[derive(Clone, Debug, Default)]
pub struct Refusals(Arc<Mutex<BTreeMap<String, u64>>>);

impl Refusals {
    /// Counts one; how many there are of it now.
    pub fn count(&self, reason: &str) -> u64 {
        let mut counts = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(count) = counts.get_mut(reason) {
            *count += 1;
            return *count;
        }
        counts.insert(reason.to_owned(), 1);
        1
    }

    /// Counts a link that was refused, and says so the first time, the second, the fourth and so on: strangers
    /// must not be able to fill the log.
    pub fn count_link(&self, error: &LinkError) {
        let displaced = matches!(error, LinkError::Displaced);
        let count = self.count(if displaced { "link displaced" } else { "link refused" });
        if count.is_power_of_two() {
            tracing::warn!(%error, count, "a link was refused");
        }
    }

    /// All counts.
    pub fn snapshot(&self) -> Vec<(String, u64)> {
        let counts = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        counts.iter().map(|(reason, &count)| (reason.clone(), count)).collect()
    }

    /// Counts what ended a link, if it was a violation.
    pub fn count_end(&self, error: &LinkError) {
        match error {
            LinkError::Frame(error) => self.count_frame(error),
            LinkError::NotBelow => drop(self.count("report of another node")),
            _ => {}
        }
    }

    /// Counts what broke the rules of frames.
    pub fn count_frame(&self, error: &FrameError) {
        let reason = match error {
            FrameError::TooLong { .. } => "frame too long",
            FrameError::Malformed(_) => "frame malformed",
            FrameError::Truncated | FrameError::Io(_) => return,
        };
        self.count(reason);
    }
}

/// Counts of the control messages that links send and receive.
#[derive(Clone, Debug, Default)]
pub struct Traffic(Arc<[AtomicU64; 5]>);

impl Traffic {
    /// Counts a message.
    pub fn count(&self, kind: MessageKind) {
        self.0[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How many there were.
    pub fn counts(&self) -> MessageCounts {
        let of = |kind: MessageKind| self.0[kind as usize].load(Ordering::Relaxed);
        MessageCounts {
            clock: of(MessageKind::Clock),
            disclosure: of(MessageKind::Disclosure),
            lease: of(MessageKind::Lease),
            sample: of(MessageKind::Sample),
            other: of(MessageKind::Other),
        }
    }
}

/// The sending side of a link: frames are queued here and written by a task of their own.
#[derive(Clone, Debug)]
pub struct Outbox {
    frames: mpsc::UnboundedSender<Vec<u8>>,
    queued: Arc<AtomicUsize>,
    traffic: Traffic,
    /// What the other side speaks.
    version: u32,
}

impl Outbox {
    /// Queues a frame; counted in `traffic` of [`Outbox::start`]. Returns whether the link takes it. What the other side's
    /// version does not know is not sent.
    pub fn send<T: ControlMessage>(&self, value: &T) -> bool {
        let Some(told) = for_version(value, self.version) else {
            tracing::debug!(
                version = self.version,
                since = value.since(),
                "not sent to an earlier version"
            );
            return true;
        };
        match frame::encode(&*told, LINK_LIMIT) {
            Ok(bytes) => self.send_bytes(bytes, value.kind()),
            Err(error) => {
                tracing::error!(%error, "a message is too long to send and is dropped");
                false
            }
        }
    }

    fn send_bytes(&self, bytes: Vec<u8>, kind: MessageKind) -> bool {
        let length = bytes.len();
        self.queued.fetch_add(length, Ordering::Relaxed);
        let taken = self.frames.send(bytes).is_ok();
        if taken {
            self.traffic.count(kind);
        } else {
            self.queued.fetch_sub(length, Ordering::Relaxed);
        }
        taken
    }

    /// Bytes not yet written.
    pub fn queued(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }

    /// An outbox and the future that writes its frames to `stream`; it ends when every clone of the outbox is gone or the
    /// stream fails. The other side speaks `version`. Frames sent are counted in `traffic`.
    pub fn start<W>(
        mut stream: W,
        version: u32,
        traffic: Traffic,
    ) -> (Self, impl Future<Output = io::Result<()>>)
    where
        W: AsyncWrite + Unpin,
    {
        let (frames, mut queue) = mpsc::unbounded_channel::<Vec<u8>>();
        let queued = Arc::new(AtomicUsize::new(0));
        let written = Arc::clone(&queued);
        let write = async move {
            while let Some(mut batch) = queue.recv().await {
                while batch.len() < 64 << 10 {
                    let Ok(more) = queue.try_recv() else { break };
                    batch.extend_from_slice(&more);
                }
                write_all(&mut stream, &batch, STALL).await?;
                written.fetch_sub(batch.len(), Ordering::Relaxed);
            }
            stream.shutdown().await
        };
        (Self { frames, queued, traffic, version }, write)
    }
}

/// Writes all of it, as long as the other side takes something now and then.
///
/// # Errors
/// It took nothing for `stall`, or the stream failed.
async fn write_all(
    stream: &mut (impl AsyncWrite + Unpin),
    mut bytes: &[u8],
    stall: Duration,
) -> io::Result<()> {
    let stalled =
        || io::Error::new(io::ErrorKind::TimedOut, format!("it took nothing for {stall:?}"));
    while !bytes.is_empty() {
        let taken = within(stall, stream.write(bytes)).await.ok_or_else(stalled)??;
        if taken == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = bytes.get(taken..).unwrap_or_default();
    }
    within(stall, stream.flush()).await.ok_or_else(stalled)?
}

/// Waits for something at most so long, of which time in which this process was not run does not count.
async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let mut clock = StallTolerantClock::new(monotonic(), nanos(LOOK));
    let mut future = std::pin::pin!(future);
    loop {
        match tokio::time::timeout(LOOK, &mut future).await {
            Ok(value) => return Some(value),
            Err(_) if clock.advance(monotonic()) >= nanos(limit) => return None,
            Err(_) => {}
        }
    }
}

/// Receives a frame of a link, on which something comes within `silence`. Time in which this process was not run is no
/// silence of the other side.
///
/// # Errors
/// When the link is silent for too long, ends or breaks the rules.
pub async fn receive<T: DeserializeOwned>(
    stream: &mut (impl AsyncRead + Unpin),
    silence: Duration,
) -> Result<T, LinkError> {
    match within(silence, frame::read(stream, LINK_LIMIT)).await {
        Some(Ok(Some(value))) => Ok(value),
        Some(Ok(None)) => Err(LinkError::Closed),
        Some(Err(error)) => Err(error.into()),
        None => Err(LinkError::Silent(silence)),
    }
}

/// An authenticated outgoing connection.
pub type ConnectedStream = tokio_rustls::client::TlsStream<TcpStream>;
/// An authenticated incoming connection.
pub type AcceptedStream = tokio_rustls::server::TlsStream<TcpStream>;

/// Serves the link of an accepted child until it ends, and says why: answers clock probes with
/// `time`, counts frames in `traffic` and hands the rest to `deliver`, which says whether anybody
/// still listens. Nothing more is read before it has. Reports of other nodes than those `below` end it.
pub async fn serve_child(
    mut read: impl AsyncRead + Unpin,
    (outbox, writing): (Outbox, impl Future<Output = io::Result<()>>),
    (below, traffic, silence): (&NodeSet, &Traffic, Duration),
    time: impl Fn() -> ClusterTime,
    deliver: impl AsyncFn(Up) -> bool,
) -> LinkError {
    let reading = async {
        loop {
            let mut up = match receive::<Up>(&mut read, silence).await {
                Ok(up) => up,
                Err(error) => return error,
            };
            traffic.count(up.kind());
            note_version(&mut up, outbox.version);
            if matches!(&up, Up::Report(report) if !report.is_about(below)) {
                return LinkError::NotBelow;
            }
            if let Up::ClockProbe { stamp } = up {
                outbox.send(&Down::Clock { stamp, time: time() });
            } else if !keeping_alive(&outbox, silence / KEEP_ALIVE, deliver(up)).await {
                return LinkError::Closed;
            }
        }
    };
    tokio::select! {
        error = reading => error,
        written = writing => written.err().map_or(LinkError::Closed, LinkError::Io),
    }
}

/// Waits for the delivery of a report. If that takes long, the child hears something meanwhile: its probes are not read, and it
/// would take its parent for dead.
async fn keeping_alive(
    outbox: &Outbox,
    pause: Duration,
    delivery: impl Future<Output = bool>,
) -> bool {
    let mut delivery = std::pin::pin!(delivery);
    loop {
        match tokio::time::timeout(pause, &mut delivery).await {
            Ok(taken) => return taken,
            Err(_) => drop(outbox.send(&Down::Disclosed(Vec::new()))),
        }
    }
}

/// Connects to `peer` at the first of its places that answers; `scope` is the interface to the others.
///
/// # Errors
/// As [`connect`], of the last place that was tried. Whoever refuses is asked at no other place.
pub(crate) async fn connect_at(
    credentials: &Credentials,
    (peer, places): (Identity, &[Place]),
    (lookup, scope): (&Lookup, u32),
    hello: &LinkHello,
) -> Result<(ConnectedStream, u32), LinkError> {
    let mut failed = LinkError::Closed;
    for place in places {
        let addresses = match lookup.addresses(place).await {
            Ok(addresses) => addresses,
            Err(error) => {
                failed = error.into();
                continue;
            }
        };
        for address in addresses {
            match connect(credentials, peer, on_link(address, scope), hello).await {
                Ok(connected) => return Ok(connected),
                Err(LinkError::Refused(refused)) => return Err(LinkError::Refused(refused)),
                Err(error) => {
                    tracing::debug!(%place, %address, %error, "no link at this place");
                    failed = error;
                }
            }
        }
    }
    Err(failed)
}

/// Answers an incoming connection: authenticates, reads the hello and checks version, cluster and
/// name; `agree` then decides on the rest.
///
/// # Errors
/// When the caller does not belong here or is refused; it has been told why where possible.
pub async fn accept(
    credentials: &Credentials,
    cluster: &str,
    stream: TcpStream,
    agree: impl FnOnce(&LinkHello) -> Result<(), Refusal>,
) -> Result<(LinkHello, AcceptedStream), LinkError> {
    let handshake = async {
        stream.set_nodelay(true)?;
        let stream = credentials.accept(stream).await?;
        introduce(credentials, cluster, stream, agree).await
    };
    tokio::time::timeout(HANDSHAKE, handshake).await.map_err(|_| LinkError::Timeout)?
}

/// The same once the caller has shown a certificate of the cluster. The caller bounds the time.
///
/// # Errors
/// As [`accept`].
pub(crate) async fn introduce(
    credentials: &Credentials,
    cluster: &str,
    mut stream: AcceptedStream,
    permit: impl FnOnce(&LinkHello) -> Result<(), Refusal>,
) -> Result<(LinkHello, AcceptedStream), LinkError> {
    let content = frame::read_content(&mut stream, frame::CLIENT_LIMIT).await?;
    let verdict = match LinkHello::decode(&content.ok_or(LinkError::Closed)?) {
        Ok(hello) => check(credentials, &stream, cluster, &hello)
            .and_then(|()| permit(&hello))
            .map(|()| hello),
        Err(LinkError::Refused(refused)) => Err(refused),
        Err(error) => return Err(error),
    };
    match verdict {
        Ok(hello) => {
            let welcome = Ok::<_, Refusal>(LinkWelcome { version: hello.version });
            frame::write(&mut stream, &welcome, LINK_LIMIT).await?;
            Ok((hello, stream))
        }
        Err(refused) => {
            frame::write(&mut stream, &Err::<LinkWelcome, _>(&refused), LINK_LIMIT).await?;
            stream.shutdown().await?;
            Err(LinkError::Refused(refused))
        }
    }
}

fn check(
    credentials: &Credentials,
    stream: &AcceptedStream,
    cluster: &str,
    hello: &LinkHello,
) -> Result<(), Refusal> {
    if hello.cluster != cluster {
        let message = format!(
            "this is cluster {cluster}, not {}; check the addresses in cluster.toml",
            hello.cluster
        );
        return Err(refusal(RefusalKind::BadRequest, message));
    }
    let peer = Identity::Node(hello.node);
    tls::check_name(stream, peer)
        .and_then(|()| credentials.check_revoked(peer, stream.get_ref().1))
        .map_err(|error| refusal(RefusalKind::NotPermitted, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_control::compat::OLDEST_VERSION;
    use kumi_control::message::CONTROL_VERSION;
    use kumi_control::tree::subtree;
    use kumi_sched::NodeId;
    use std::cell::Cell;

    #[tokio::test(flavor = "current_thread")]
    async fn a_link_does_not_carry_what_the_other_side_does_not_know() {
        let probe = Up::ClockProbe { stamp: 7 };
        for (version, carried) in [(OLDEST_VERSION - 1, None), (OLDEST_VERSION, Some(&probe))] {
            let (near, mut far) = tokio::io::duplex(1 << 10);
            let (outbox, writing) = Outbox::start(near, version, Traffic::default());
            assert!(outbox.send(&probe), "the link is well");
            assert_eq!(outbox.queued() > 0, carried.is_some());
            drop(outbox);
            writing.await.unwrap();
            assert_eq!(frame::read::<Up>(&mut far, LINK_LIMIT).await.unwrap().as_ref(), carried);
        }
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_link_that_takes_nothing_is_given_up() {
        let (mut near, mut far) = tokio::io::duplex(64);
        let stall = Duration::from_millis(1);
        let error = write_all(&mut near, &[1; 65], stall).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let mut taken = [0; 64];
        tokio::io::AsyncReadExt::read_exact(&mut far, &mut taken).await.unwrap();
        write_all(&mut near, &[2; 64], stall).await.unwrap();
    }

    /// Nothing is read while a report waits, and the child hears that its parent lives.
    #[tokio::test(flavor = "current_thread")]
    async fn a_child_whose_reports_wait_is_kept() {
        let ((parent, child), below) = (tokio::io::duplex(1 << 20), subtree(NodeId(0), 1, 2));
        let (read, write) = tokio::io::split(parent);
        let (outbox, writing) = Outbox::start(write, CONTROL_VERSION, Traffic::default());
        let (delivered, traffic) = (Cell::new(0), Traffic::default());
        let deliver = async |_| {
            delivered.set(delivered.get() + 1);
            std::future::pending().await
        };
        let silence = Duration::from_secs(3);
        let known = (&below, &traffic, silence);
        let serving = serve_child(read, (outbox, writing), known, || ClusterTime(0), deliver);
        let (mut hears, mut says) = tokio::io::split(child);
        for _ in 0..3 {
            frame::write(&mut says, &Up::Disclosed(Vec::new()), LINK_LIMIT).await.unwrap();
        }
        let heard = async {
            for _ in 0..2 {
                let down = receive::<Down>(&mut hears, silence).await.unwrap();
                assert_eq!(down, Down::Disclosed(Vec::new()));
            }
        };
        tokio::select! {
            error = serving => panic!("{error}"),
            () = heard => {}
        }
        assert_eq!(delivered.get(), 1);
    }
}
