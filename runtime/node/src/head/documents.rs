//! Writer of the head's small files: the list of drained nodes, cluster.toml, revoked certificates, tokens.
//!
//! A disk may take any time over a file, so a thread of its own writes them, one after the other. Whoever asked for a change is
//! answered when it is on the disk, or could not be written. Meanwhile the main loop goes on.

use std::collections::BTreeSet;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use kumi_control::head::{ClientId, HeadEvent};
use kumi_control::message::{ClientReply, Drain, Refusal, RefusalKind, Revocation};
use kumi_sched::NodeId;
use tokio::sync::mpsc;

use super::HeadDaemon;
use super::joining::{JoinRequest, Joining, MachineAnswer, NewToken, SignedMachine};
use crate::client::refusal;
use crate::config::ConfigError;
use crate::exit::{ExitCode, Failure};

/// Most files that wait for the disk. More are refused: each is of a client that waits.
const MOST_WAITING: usize = 64;
/// How long the head waits for the disk when it ends.
const REST: Duration = Duration::from_secs(3);

/// What the thread is to do. It says what came of it.
type Work = Box<dyn FnOnce() -> DocumentWritten + Send>;

/// What the thread has done.
#[derive(Debug)]
pub(super) enum DocumentWritten {
    /// The list of drained nodes; this is what the client that changed it reads, if one did.
    Drains(Option<ClientId>, ClientReply),
    /// The nodes in cluster.toml, which this client changed, or why not.
    Nodes(ClientId, Result<ClientReply, ConfigError>),
    /// The nodes in cluster.toml, which the state of all heads has; this is what the client that changed them reads.
    SharedNodes((ClientId, ClientReply), Result<(), ConfigError>),
    /// Revoked certificates, for which actions wait.
    Revocations(io::Result<()>),
    /// The same once more, and nobody waits.
    OwedRevocations(io::Result<()>),
    /// Certificates are read anew.
    Certificates,
    /// The list of tokens is not read any more.
    TokensSetAside,
    /// The list of tokens; this is what the client that wants one reads.
    Token(ClientId, ClientReply),
    /// A token of a node, for the client that wants one and for so many milliseconds, which is in no list yet.
    NewToken((ClientId, NodeId, u64), Result<NewToken, Refusal>),
    /// A machine that wants to join is certified or refused, and waits for its answer.
    Machine(MachineAnswer),
    /// The same, and the state does not have its token as used yet.
    SignedMachine(SignedMachine),
    /// Nothing any more: its thread has ended.
    Gone,
}

/// Files on their way to the disk.
pub(super) struct Documents {
    work: SyncSender<Work>,
    done: mpsc::UnboundedReceiver<DocumentWritten>,
    /// How many are not done.
    waiting: usize,
    /// Revoked certificates that the disk does not have yet, in how many pieces of work.
    revoking: usize,
    /// Why the disk does not have all revoked certificates, if that failed.
    owed: Option<String>,
    /// They are being written again.
    paying: bool,
    /// Clients that revoke certificates, and are not answered yet.
    revokers: BTreeSet<ClientId>,
    /// The thread has ended.
    gone: bool,
}

/// Works until nobody wants anything any more.
fn work(queue: &Receiver<Work>, done: &mpsc::UnboundedSender<DocumentWritten>) {
    for one in queue {
        if done.send(one()).is_err() {
            return;
        }
    }
}

/// What a client reads whose file cannot even wait.
fn too_many() -> Refusal {
    let message = "the disk with the cluster's directory does not answer the head; repeat the command when it does";
    refusal(RefusalKind::NoResources, message)
}

/// Has tokens of revoked nodes count no more. That the file has them still does no harm: [`Joining`] asks the list, too.
fn forget_tokens(joining: &Joining) {
    if let Err(error) = joining.forget_revoked() {
        tracing::warn!(%error, "hashes of tokens of revoked nodes stay in their file; no token is believed for that");
    }
}

impl Documents {
    /// Starts the thread.
    ///
    /// # Errors
    /// There can be no thread.
    pub(super) fn start() -> Result<Self, Failure> {
        let (work_to_do, queue) = sync_channel(MOST_WAITING);
        let (sender, done) = mpsc::unbounded_channel();
        let thread = std::thread::Builder::new().name("documents".to_owned());
        thread.spawn(move || work(&queue, &sender)).map_err(|error| {
            Failure::new(
                ExitCode::MachineLimits,
                format!("no thread can be made: {error}; raise the limit of processes"),
            )
        })?;
        let (waiting, revoking, owed, paying, revokers) = Default::default();
        let gone = false;
        Ok(Self { work: work_to_do, done, waiting, revoking, owed, paying, revokers, gone })
    }

    /// Has the thread do this, after all that it was asked before.
    ///
    /// # Errors
    /// Too much waits already.
    fn order(
        &mut self,
        work: impl FnOnce() -> DocumentWritten + Send + 'static,
    ) -> Result<(), Refusal> {
        self.work.try_send(Box::new(work)).map_err(|_| too_many())?;
        self.waiting += 1;
        Ok(())
    }

    /// Whether actions are to wait: those behind a revocation say that it is kept.
    pub(super) fn holds_actions(&self) -> bool {
        self.revoking > 0
    }

    /// What the thread does next; to be handed to [`HeadDaemon::document_written`].
    pub(super) async fn written(&mut self) -> DocumentWritten {
        if self.gone {
            return std::future::pending().await;
        }
        self.done.recv().await.unwrap_or(DocumentWritten::Gone)
    }

    /// Takes note of it.
    fn take(&mut self, written: &DocumentWritten) {
        self.waiting = self.waiting.saturating_sub(1);
        match written {
            DocumentWritten::Revocations(kept) => {
                self.revoking = self.revoking.saturating_sub(1);
                self.note_revocations(kept);
            }
            DocumentWritten::OwedRevocations(kept) => {
                self.paying = false;
                self.note_revocations(kept);
            }
            DocumentWritten::Gone => {
                tracing::error!("the writer of the head's files is gone: changes are not kept");
                (self.gone, self.waiting, self.revoking) = (true, 0, 0);
                self.owed = Some("the writer of the head's files is gone".to_owned());
            }
            _ => {}
        }
    }

    /// The file has all revoked certificates, or none of the last ones.
    fn note_revocations(&mut self, kept: &io::Result<()>) {
        let owed = kept.as_ref().err().map(ToString::to_string);
        match (&self.owed, &owed) {
            (None, Some(error)) => {
                tracing::error!(
                    error,
                    "revoked certificates are not on the disk; it is tried again"
                );
            }
            (Some(_), None) => tracing::info!("revoked certificates are on the disk again"),
            _ => {}
        }
        self.owed = owed;
    }

    /// This client asks for a revocation.
    pub(super) fn revokes(&mut self, client: ClientId) {
        self.revokers.insert(client);
    }

    /// This client is gone.
    pub(super) fn forget(&mut self, client: ClientId) {
        self.revokers.remove(&client);
    }

    /// What a client is to read: that its revocation is done only if it is kept.
    pub(super) fn answer(&mut self, client: ClientId, reply: ClientReply) -> ClientReply {
        let is_answer = matches!(reply, ClientReply::Done | ClientReply::Refused(_));
        if !is_answer || !self.revokers.remove(&client) || reply != ClientReply::Done {
            return reply;
        }
        let Some(error) = &self.owed else { return reply };
        let message = format!(
            "the certificates are revoked, but the list of them cannot be written: {error}; the head tries again each second: make room there before it ends, or the revocation may be lost"
        );
        ClientReply::Refused(refusal(RefusalKind::NoResources, message))
    }
}

impl HeadDaemon {
    /// Keeps the list of drained nodes, and then answers the client that changed it, if one did. If heads share it they have it by
    /// now.
    pub(super) fn keep_drains(&mut self, client: Option<ClientId>, drains: Vec<Drain>) {
        if self.settings.are_shared() {
            if let Some(client) = client {
                self.clients.reply(client, ClientReply::Done);
            }
            return;
        }
        let file = self.drains.clone();
        let kept =
            self.documents.order(move || DocumentWritten::Drains(client, file.keep(&drains)));
        match client {
            Some(client) => self.refuse_if(client, kept),
            None if kept.is_ok() => {}
            // The list that is written next has them, too.
            None => tracing::error!("drained nodes are not on the disk: it does not answer"),
        }
    }

    /// Changes the nodes in cluster.toml, and then answers the client.
    pub(super) fn change_nodes(
        &mut self,
        client: ClientId,
        change: impl FnOnce() -> Result<ClientReply, ConfigError> + Send + 'static,
    ) {
        let changed = self.documents.order(move || DocumentWritten::Nodes(client, change()));
        self.refuse_if(client, changed);
    }

    /// Writes nodes to cluster.toml that the state of all heads has, and then answers the client, whatever the disk says.
    pub(super) fn write_shared_nodes(
        &mut self,
        answer: (ClientId, ClientReply),
        write: impl FnOnce() -> Result<(), ConfigError> + Send + 'static,
    ) {
        let later = answer.clone();
        let ordered = self.documents.order(move || DocumentWritten::SharedNodes(later, write()));
        if ordered.is_err() {
            tracing::error!(
                "cluster.toml of this host does not have all nodes: the disk does not answer"
            );
            self.clients.reply(answer.0, answer.1);
        }
    }

    /// Revokes certificates: at once for the head, and then on the disk. Actions behind this wait for that. Tokens of these nodes
    /// that were issued before count no more.
    pub(super) fn keep_revocations(&mut self, list: &[Revocation]) {
        tracing::warn!(?list, "certificates are revoked");
        let revocations = self.credentials.revocations().clone();
        revocations.add_unwritten(list);
        let joining = self.shared.joining.clone();
        let kept = self.documents.order(move || {
            forget_tokens(&joining);
            DocumentWritten::Revocations(revocations.keep())
        });
        match kept {
            Ok(()) => self.documents.revoking += 1,
            Err(refused) => {
                self.documents.note_revocations(&Err(io::Error::other(refused.message)));
            }
        }
    }

    /// Writes revoked certificates again that the disk did not take.
    pub(super) fn keep_owed_revocations(&mut self) {
        let busy = self.documents.paying || self.documents.revoking > 0;
        if self.documents.owed.is_none() || busy || self.documents.gone {
            return;
        }
        let revocations = self.credentials.revocations().clone();
        let joining = self.shared.joining.clone();
        let ordered = self.documents.order(move || {
            forget_tokens(&joining);
            DocumentWritten::OwedRevocations(revocations.keep())
        });
        // If too much waits, the next second comes.
        self.documents.paying = ordered.is_ok();
    }

    /// Reads the head's certificate anew.
    pub(super) fn reload_certificates(&mut self) {
        let credentials = self.credentials.clone();
        let read = self.documents.order(move || {
            credentials.reload_or_warn();
            DocumentWritten::Certificates
        });
        if read.is_err() {
            tracing::error!("certificates stay as they were: the disk does not answer");
        }
    }

    /// Has this host's list of tokens be read no more.
    pub(super) fn set_tokens_aside(&mut self) {
        let joining = self.shared.joining.clone();
        let ordered = self.documents.order(move || {
            joining.set_aside();
            DocumentWritten::TokensSetAside
        });
        // Whoever leads from this host later does it.
        if ordered.is_err() {
            tracing::warn!("an old list of tokens is left: the disk does not answer");
        }
    }

    /// Makes a token with which a machine becomes this node, and then answers the client.
    pub(super) fn issue_token(&mut self, client: ClientId, node: NodeId, valid_ms: u64) {
        let (joining, config) = (self.shared.joining.clone(), self.shared.config.clone());
        let are_shared = self.tokens.is_some();
        let made = self.documents.order(move || {
            let config = config.get();
            if are_shared {
                DocumentWritten::NewToken((client, node, valid_ms), joining.draw(&config))
            } else {
                DocumentWritten::Token(client, joining.issue(&config, node, valid_ms))
            }
        });
        self.refuse_if(client, made);
    }

    /// Answers a machine that wants to join. If its request cannot even wait, it hears that the head is busy.
    pub(super) fn answer_machine(&mut self, request: JoinRequest) {
        let (joining, config) = (self.shared.joining.clone(), self.shared.config.clone());
        let are_shared = self.tokens.is_some();
        let answered = self.documents.order(move || {
            let config = config.get();
            if are_shared {
                DocumentWritten::SignedMachine(joining.answer_later(&config, request))
            } else {
                DocumentWritten::Machine(joining.answer(&config, request))
            }
        });
        if answered.is_err() {
            tracing::error!("a machine cannot join: the disk does not answer");
        }
    }

    fn refuse_if(&mut self, client: ClientId, taken: Result<(), Refusal>) {
        if let Err(refused) = taken {
            self.clients.reply(client, ClientReply::Refused(refused));
        }
    }

    /// A file is on the disk, or could not be written.
    pub(super) fn document_written(&mut self, written: DocumentWritten) {
        for event in self.settle(written) {
            self.handle(event);
        }
    }

    /// Answers who waits for a file. Returns what comes of it.
    fn settle(&mut self, written: DocumentWritten) -> Vec<HeadEvent> {
        self.documents.take(&written);
        match written {
            DocumentWritten::Drains(Some(client), reply)
            | DocumentWritten::Token(client, reply) => {
                self.clients.reply(client, reply);
            }
            DocumentWritten::Nodes(client, changed) => return self.configured(client, changed),
            DocumentWritten::SharedNodes((client, reply), written) => {
                if let Err(error) = written {
                    tracing::error!(%error, "cluster.toml of this host does not have all nodes");
                }
                self.clients.reply(client, reply);
            }
            DocumentWritten::Revocations(_) | DocumentWritten::Gone => {
                return self.act_on_settled();
            }
            DocumentWritten::Machine(answer) => {
                let head = self.head.borrow();
                answer.send(|node, issued_us| head.is_revoked(node, issued_us));
            }
            DocumentWritten::NewToken(request, made) => self.share_token(request, made),
            DocumentWritten::SignedMachine(signed) => self.share_use(signed),
            DocumentWritten::Drains(None, _)
            | DocumentWritten::Certificates
            | DocumentWritten::TokensSetAside
            | DocumentWritten::OwedRevocations(_) => {}
        }
        Vec::new()
    }

    /// Gives the disk a little time for the last files.
    pub(super) async fn write_rest_of_documents(&mut self) {
        let end = tokio::time::Instant::now() + REST;
        while self.documents.waiting > 0 {
            match tokio::time::timeout_at(end, self.documents.written()).await {
                Ok(written) => self.document_written(written),
                Err(_) => {
                    tracing::error!(
                        "the last changes of files are not on the disk: it does not answer"
                    );
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The disk hangs in one of them: others wait, a bounded number, and all are done in order when it goes on.
    #[tokio::test(flavor = "current_thread")]
    async fn a_disk_that_hangs_holds_up_its_thread_only() {
        let (hold, held) = std::sync::mpsc::channel::<()>();
        let mut documents = Documents::start().unwrap();
        let (begun, begins) = std::sync::mpsc::channel();
        documents
            .order(move || {
                begun.send(()).unwrap();
                let _ = held.recv();
                DocumentWritten::Certificates
            })
            .unwrap();
        begins.recv().unwrap();
        let answered =
            |client| move || DocumentWritten::Drains(Some(ClientId(client)), ClientReply::Done);
        for client in 0..MOST_WAITING as u64 {
            documents.order(answered(client)).unwrap();
        }
        let refused = documents.order(answered(99)).unwrap_err();
        assert!(refused.message.contains("does not answer"), "{}", refused.message);
        drop(hold);
        assert!(matches!(documents.written().await, DocumentWritten::Certificates));
        for client in 0..MOST_WAITING as u64 {
            let written = documents.written().await;
            let DocumentWritten::Drains(Some(ClientId(done)), ClientReply::Done) = written else {
                panic!("{written:?}")
            };
            assert_eq!(done, client);
            documents.take(&written);
        }
        documents.order(answered(99)).unwrap();
    }

    #[tokio::test(flavor = "current_thread")]
    async fn who_revokes_is_told_that_it_is_not_kept() {
        let mut documents = Documents::start().unwrap();
        let (one, other) = (ClientId(1), ClientId(2));
        documents.revokes(one);
        documents.take(&DocumentWritten::Revocations(Err(io::Error::other("no room"))));
        assert_eq!(documents.answer(other, ClientReply::Done), ClientReply::Done);
        let ClientReply::Refused(refused) = documents.answer(one, ClientReply::Done) else {
            panic!("it is not done")
        };
        assert!(refused.message.contains("no room"), "{}", refused.message);
        assert_eq!(
            documents.answer(one, ClientReply::Done),
            ClientReply::Done,
            "of another request"
        );
        documents.take(&DocumentWritten::OwedRevocations(Ok(())));
        documents.revokes(one);
        assert_eq!(documents.answer(one, ClientReply::Done), ClientReply::Done);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_thread_that_is_gone_is_told_once_and_holds_nothing() {
        let mut documents = Documents::start().unwrap();
        documents.revoking = 1;
        let panics = documents.order(|| panic!("a test"));
        panics.unwrap();
        let written = documents.written().await;
        assert!(matches!(written, DocumentWritten::Gone), "{written:?}");
        documents.take(&written);
        assert!(!documents.holds_actions());
        assert!(documents.order(|| DocumentWritten::Certificates).is_err());
    }
}
