//! Connections of clients to the head, from its own machine and relayed by nodes.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use kumi_control::compat::{OLDEST_VERSION, Versioned, for_version};
use kumi_control::head::{ClientId, HeadEvent};
use kumi_control::message::{ClientReply, ClientRequest, Refusal, RefusalKind};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::UnixListener;
use tokio::sync::{Notify, mpsc};

use super::identity::{KnownClient, Origin};
use super::metrics::HeadCounters;
use super::{Event, Shared};
use crate::client::refusal;
use crate::frame::{self, CLIENT_LIMIT, FrameError, LINK_LIMIT};
use crate::peer::ClientPeer;
use crate::user_connections::tell_refused;

/// Most pieces of output that wait for a slow client; its follower then waits.
const WINDOW: usize = 16;

/// Most replies that wait for a slow client; then the head reads no more of its requests.
const MOST_ANSWERS: usize = 16;
/// Most replies that wait for a client in all, those that it did not ask for included; one with more is cut off.
const MOST_WAITING: usize = 256;
/// A report of a deadlock, which is long and comes unasked, counts as so many.
const REPORT_WEIGHT: usize = 16;
/// How long a client that is cut off may take for the last word.
const GOODBYE: Duration = Duration::from_secs(1);
/// Jobs that a client may follow at the same time: each takes a task and an open file.
const MOST_FOLLOWED: usize = 64;

/// What waits to be written to a client.
#[derive(Clone, Debug)]
enum Answer {
    Reply(Box<ClientReply>),
    /// The frame of a reply that several clients get, whatever version they speak.
    Shared(Rc<[u8]>),
}

/// Outbox of a client: its replies, and the output that it follows.
#[derive(Clone, Debug)]
pub(super) struct ClientOutbox {
    /// Replies, which go before output that waits.
    answers: mpsc::UnboundedSender<Answer>,
    /// Replies that are not written yet.
    waiting: Rc<PendingReplies>,
    /// Output from followers.
    output: mpsc::Sender<ClientReply>,
    /// Token that each follower holds a copy of.
    followers: Rc<()>,
}

/// Count of the replies that are not written yet.
#[derive(Debug, Default)]
struct PendingReplies {
    count: Cell<usize>,
    fewer: Notify,
    /// There are too many: the client does not read.
    too_many: Notify,
}

/// As how many replies one counts.
fn weight(answer: &Answer) -> usize {
    if matches!(answer, Answer::Reply(reply) if matches!(**reply, ClientReply::Deadlock { .. })) {
        REPORT_WEIGHT
    } else {
        1
    }
}

impl PendingReplies {
    /// Counts one more of this weight, unless there are too many.
    fn add(&self, weight: usize) -> bool {
        let count = self.count.get() + weight;
        if count > MOST_WAITING {
            self.too_many.notify_one();
            return false;
        }
        self.count.set(count);
        true
    }

    fn written(&self, weight: usize) {
        self.count.set(self.count.get().saturating_sub(weight));
        self.fewer.notify_one();
    }

    async fn few(&self) {
        while self.count.get() >= MOST_ANSWERS {
            self.fewer.notified().await;
        }
    }
}

impl ClientOutbox {
    fn new(answers: mpsc::UnboundedSender<Answer>, output: mpsc::Sender<ClientReply>) -> Self {
        let (waiting, followers) = Default::default();
        Self { answers, waiting, output, followers }
    }

    /// Queues a reply. Returns whether the client is still there, and reads.
    fn answer(&self, reply: ClientReply) -> bool {
        self.queue(Answer::Reply(Box::new(reply)))
    }

    fn queue(&self, answer: Answer) -> bool {
        self.waiting.add(weight(&answer)) && self.answers.send(answer).is_ok()
    }

    /// The sender for one more follower, and the token that it holds meanwhile.
    ///
    /// # Errors
    /// The connection has too many followers.
    fn follower(&self) -> Result<(mpsc::Sender<ClientReply>, Rc<()>), Refusal> {
        if Rc::strong_count(&self.followers) > MOST_FOLLOWED {
            let message =
                format!("a connection follows at most {MOST_FOLLOWED} jobs; make another");
            return Err(refusal(RefusalKind::NoResources, message));
        }
        Ok((self.output.clone(), Rc::clone(&self.followers)))
    }
}

/// The clients that are connected.
#[derive(Debug)]
pub(super) struct Clients {
    outboxes: BTreeMap<ClientId, ClientOutbox>,
    /// The client whose submission is being handled.
    submitting: Option<ClientId>,
    counts: Rc<HeadCounters>,
}

impl Clients {
    /// None yet.
    pub(super) fn new(counts: Rc<HeadCounters>) -> Self {
        Self { outboxes: BTreeMap::new(), submitting: None, counts }
    }

    pub(super) fn connected(&mut self, client: ClientId, outbox: ClientOutbox) {
        self.outboxes.insert(client, outbox);
        self.counts.clients.set(self.outboxes.len());
    }

    pub(super) fn disconnected(&mut self, client: ClientId) {
        self.outboxes.remove(&client);
        self.counts.clients.set(self.outboxes.len());
    }

    /// From now on a refusal of this client refuses a submission, and is counted as such.
    pub(super) fn set_submitting(&mut self, client: Option<ClientId>) {
        self.submitting = client;
    }

    /// Queues a reply for a client, unless it is gone.
    pub(super) fn reply(&self, client: ClientId, reply: ClientReply) {
        if self.submitting == Some(client) && matches!(reply, ClientReply::Refused(_)) {
            self.counts.submissions_refused.set(self.counts.submissions_refused.get() + 1);
        }
        self.send(client, reply);
    }

    /// Queues the same reply for several clients, and encodes it once.
    pub(super) fn reply_to_all(&self, clients: &[ClientId], reply: ClientReply) {
        // Samples are large, and often the head's own monitor alone wants them.
        if clients.is_empty() {
            return;
        }
        let answer = match frame::encode(&reply, LINK_LIMIT) {
            Ok(frame) if reply.since() <= OLDEST_VERSION => Answer::Shared(frame.into()),
            // Each gets it in its version. What is too long ends their connections, as it would that of one client.
            _ => Answer::Reply(Box::new(reply)),
        };
        for &client in clients {
            self.queue(client, answer.clone());
        }
    }

    fn send(&self, client: ClientId, reply: ClientReply) {
        self.queue(client, Answer::Reply(Box::new(reply)));
    }

    fn queue(&self, client: ClientId, answer: Answer) {
        if let Some(outbox) = self.outboxes.get(&client)
            && !outbox.queue(answer)
        {
            tracing::debug!(client = client.0, "a client is gone");
        }
    }

    /// Starts one more follower of a job's output, which `make` makes of the client's queue for output.
    pub(super) fn follow<F>(
        &self,
        client: ClientId,
        make: impl FnOnce(mpsc::Sender<ClientReply>) -> F,
    ) where
        F: Future<Output = ()> + 'static,
    {
        let Some(outbox) = self.outboxes.get(&client) else { return };
        match outbox.follower() {
            Ok((output, token)) => {
                let following = make(output);
                tokio::task::spawn_local(async move {
                    following.await;
                    drop(token);
                });
            }
            Err(refused) => self.send(client, ClientReply::Refused(refused)),
        }
    }
}

/// Accepts the clients of this machine.
pub(super) async fn serve(listener: UnixListener, shared: Shared) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => match ClientPeer::of(&stream) {
                Ok(peer) => {
                    let attended = attend(stream, peer, Origin::Here, shared.clone());
                    tokio::task::spawn_local(attended);
                }
                Err(error) => tracing::warn!(%error, "a client without credentials was refused"),
            },
            Err(error) => {
                tracing::warn!(%error, "a client could not be accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Writes replies and output to a client, replies first, until all senders are gone. A client gets what its version knows. Until
/// the head has agreed on one with it, that is the oldest.
async fn write_replies(
    stream: &mut (impl AsyncWrite + Unpin),
    answers: &mut mpsc::UnboundedReceiver<Answer>,
    output: &mut mpsc::Receiver<ClientReply>,
    waiting: &PendingReplies,
) -> Result<(), FrameError> {
    let mut speaks = OLDEST_VERSION;
    loop {
        let (answer, counts) = tokio::select! {
            biased;
            Some(answer) = answers.recv() => (answer, true),
            Some(reply) = output.recv() => (Answer::Reply(Box::new(reply)), false),
            else => return Ok(()),
        };
        match &answer {
            Answer::Reply(reply) => {
                if let ClientReply::Welcome { version } = &**reply {
                    speaks = *version;
                }
                match for_version(&**reply, speaks) {
                    Some(told) => frame::write(stream, &*told, LINK_LIMIT).await?,
                    None => {
                        tracing::debug!(speaks, "a client of an earlier version misses a reply");
                    }
                }
            }
            Answer::Shared(frame) => {
                stream.write_all(frame).await?;
                stream.flush().await?;
            }
        }
        if counts {
            waiting.written(weight(&answer));
        }
    }
}

/// Carries the connection of a client until it ends, unless its user has too many or is not who it should be.
pub(super) async fn attend<S>(mut stream: S, peer: ClientPeer, origin: Origin, shared: Shared)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    if let Err(refused) = try_attend(&mut stream, peer, origin, shared.clone()).await {
        shared.refusals.count("client refused");
        tell_refused(&mut stream, refused).await;
    }
}

async fn try_attend<S>(
    stream: &mut S,
    peer: ClientPeer,
    origin: Origin,
    shared: Shared,
) -> Result<(), Refusal>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let client = KnownClient::meet(peer, origin, &shared).await?;
    let Some(connection) = shared.connections.count(client.peer.user.uid) else { return Ok(()) };
    let Some(_connection) = connection.admit(stream).await else {
        shared.refusals.count("client refused");
        return Ok(());
    };
    let client = client.with_name(origin, &shared).await?;
    carry(stream, client, shared).await;
    Ok(())
}

/// Ends the stream to a client, with a last reply if there is one.
async fn say_last(mut stream: impl AsyncWrite + Unpin, last: Option<ClientReply>) {
    let said = async {
        if let Some(last) = last.as_ref().and_then(|last| for_version(last, OLDEST_VERSION)) {
            frame::write(&mut stream, &*last, LINK_LIMIT).await?;
        }
        Ok::<_, FrameError>(stream.shutdown().await?)
    };
    // That a client that is cut off does not listen changes nothing.
    let _ = tokio::time::timeout(GOODBYE, said).await;
}

/// Hands on a request that the client may make. Ranks get no more than their user has and the cluster gives, which the
/// user is told. Returns whether the head still listens.
async fn hand_on(
    id: ClientId,
    mut request: ClientRequest,
    client: &KnownClient,
    (shared, notes): (&Shared, &ClientOutbox),
) -> bool {
    if let Err(refused) = client.check(&request) {
        shared.refusals.count("client not believed");
        notes.answer(ClientReply::Refused(refused));
        return true;
    }
    if let Some(job) = request.submission()
        && let Some(note) = client.peer.limit(job, &shared.config.get())
    {
        notes.answer(ClientReply::Note(note));
    }
    let event = HeadEvent::Client(id, client.peer.user.clone(), request);
    shared.events.send(Event::Head(event)).await.is_ok()
}

/// The same for one that is admitted.
async fn carry<S>(stream: S, client: KnownClient, shared: Shared)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let id = ClientId(shared.next_id());
    let (read, mut write) = tokio::io::split(stream);
    let mut read = BufReader::with_capacity(64 << 10, read);
    let (answers, mut answer_queue) = mpsc::unbounded_channel();
    let (output, mut output_queue) = mpsc::channel(WINDOW);
    let outbox = ClientOutbox::new(answers, output);
    // No follower's: these are counted.
    let notes = ClientOutbox { followers: Rc::default(), ..outbox.clone() };
    if shared.events.send(Event::ClientUp(id, outbox)).await.is_err() {
        return;
    }
    let mut congested = shared.congested.clone();
    let reading = async {
        loop {
            // Programs and input wait with the client rather than in memory here.
            if congested.wait_for(|congested| !congested).await.is_err() {
                return None;
            }
            notes.waiting.few().await;
            match frame::read::<ClientRequest>(&mut read, CLIENT_LIMIT).await {
                Ok(Some(request)) => {
                    if !hand_on(id, request, &client, (&shared, &notes)).await {
                        return None;
                    }
                }
                Ok(None) => return None,
                Err(error) => {
                    shared.refusals.count_frame(&error);
                    return error.is_violation().then(|| {
                        let message =
                            format!("{error}; use the `kumi` that belongs to the cluster");
                        ClientReply::Refused(refusal(RefusalKind::Version, message))
                    });
                }
            }
        }
    };
    let writing = write_replies(&mut write, &mut answer_queue, &mut output_queue, &notes.waiting);
    let last = tokio::select! {
        last = reading => last,
        written = writing => {
            if let Err(error) = written {
                tracing::debug!(client = id.0, %error, "a client's connection ended");
            }
            None
        }
        () = notes.waiting.too_many.notified() => {
            shared.refusals.count("client does not read");
            tracing::warn!(client = id.0, "a client that does not read its replies is cut off");
            None
        }
    };
    say_last(write, last).await;
    // Fails only when the head is about to end.
    let _ = shared.events.send(Event::ClientDown(id)).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_control::message::DeadlockReport;

    #[test]
    fn a_client_that_does_not_read_is_not_listened_to() {
        let (answers, _queue) = mpsc::unbounded_channel();
        let (output, _pieces) = mpsc::channel(WINDOW);
        let outbox = ClientOutbox::new(answers, output);
        let waiting = Rc::clone(&outbox.waiting);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let soon = |waiting: &PendingReplies| {
            runtime.block_on(async {
                tokio::time::timeout(Duration::from_millis(1), waiting.few()).await.is_ok()
            })
        };
        for _ in 0..MOST_ANSWERS {
            assert!(soon(&waiting));
            assert!(outbox.answer(ClientReply::Done));
        }
        assert!(!soon(&waiting));
        waiting.written(1);
        assert!(soon(&waiting));
        let followers: Vec<_> = (0..MOST_FOLLOWED).map(|_| outbox.follower().unwrap()).collect();
        assert_eq!(outbox.follower().unwrap_err().kind, RefusalKind::NoResources);
        drop(followers);
        assert!(outbox.follower().is_ok());
    }

    /// However many clients get it.
    #[tokio::test(flavor = "current_thread")]
    async fn a_reply_for_several_clients_is_encoded_once() {
        let mut clients = Clients::new(Rc::default());
        let (output, mut pieces) = mpsc::channel(WINDOW);
        let mut queues = Vec::new();
        for number in 1..4 {
            let (answers, queue) = mpsc::unbounded_channel();
            clients.connected(ClientId(number), ClientOutbox::new(answers, output.clone()));
            queues.push(queue);
        }
        clients.reply_to_all(&[ClientId(1), ClientId(2)], ClientReply::Note("all".to_owned()));
        let frames: Vec<Rc<[u8]>> = queues
            .iter_mut()
            .filter_map(|queue| match queue.try_recv() {
                Ok(Answer::Shared(frame)) => Some(frame),
                _ => None,
            })
            .collect();
        assert_eq!(frames.len(), 2);
        assert!(Rc::ptr_eq(&frames[0], &frames[1]));
        // It is written as the reply that it is.
        clients.reply_to_all(&[ClientId(3)], ClientReply::Note("all".to_owned()));
        drop((clients, output));
        let mut written = Vec::new();
        let waiting = PendingReplies::default();
        write_replies(&mut written, &mut queues[2], &mut pieces, &waiting).await.unwrap();
        let reply: ClientReply = frame::decode(&written[4..]).unwrap();
        assert_eq!(reply, ClientReply::Note("all".to_owned()));
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_comes_unasked_does_not_pile_up() {
        let (answers, mut queue) = mpsc::unbounded_channel();
        let (output, _pieces) = mpsc::channel(WINDOW);
        let outbox = ClientOutbox::new(answers, output);
        let explanation = kumi_verdict::Explanation::new(kumi_verdict::Summary::EMPTY);
        let report = Box::new(DeadlockReport { explanation, ends_after: None });
        let deadlock =
            || ClientReply::Deadlock { job: kumi_sched::JobId(1), report: report.clone() };
        let queued = (0..1_000).filter(|_| outbox.answer(deadlock())).count();
        assert_eq!(queued, MOST_WAITING / REPORT_WEIGHT);
        assert!(!outbox.answer(deadlock()));
        outbox.waiting.too_many.notified().await;
        let mut kept = 0;
        while let Ok(reply) = queue.try_recv() {
            outbox.waiting.written(weight(&reply));
            kept += 1;
        }
        assert_eq!((kept, outbox.waiting.count.get()), (queued, 0));
        assert!(outbox.answer(deadlock()), "who reads is told on");
    }
}
