//! Answers to those who ask what jobs have used.
//!
//! Accounts are read by a thread of its own with a connection of its own: a large table or a slow disk holds up nobody else.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use kumi_control::head::ClientId;
use kumi_control::message::{
    ClientReply, JobUsage, Refusal, RefusalKind, UsagePage, UsageQuery, User,
};
use kumi_control::usage::{UsageTally, UsageViewer};
use kumi_sched::JobId;
use tokio::sync::mpsc;

use super::HeadDaemon;
use super::job_table::{TableError, read_usage};
use crate::client::refusal;
use crate::clock::wall_ms;
use crate::exit::{ExitCode, Failure};

/// Most questions that wait, ...
const MOST_WAITING: usize = 64;
/// ... and of these most of one user.
const MOST_OF_USER: usize = 4;

/// What somebody wants to know, and what the table does not say.
pub(super) struct UsageQuestion {
    pub(super) client: ClientId,
    pub(super) query: UsageQuery,
    pub(super) viewer: UsageViewer,
    pub(super) now_ms: u64,
    /// Jobs that are not over, and those whose accounts are still on their way to the disk.
    pub(super) others: Vec<JobUsage>,
}

impl HeadDaemon {
    /// A client asks what jobs have used: the thread that reads the table answers.
    pub(super) fn usage_question(&mut self, client: ClientId, user: &User, query: UsageQuery) {
        if let Err(refused) = self.usage.begin(client, user.uid) {
            self.clients.reply(client, ClientReply::Refused(refused));
            return;
        }
        let head = self.head.borrow();
        // Those that are over come first: the head may know them, too.
        let others = self.records.unwritten_usage().chain(head.usage_so_far()).collect();
        let (viewer, now_ms) = (head.usage_viewer(user), wall_ms());
        let question = UsageQuestion { client, query, viewer, now_ms, others };
        if let Err(refused) = self.usage.ask(question) {
            self.clients.reply(client, ClientReply::Refused(refused));
        }
    }
}

type Answer = (ClientId, Result<UsagePage, TableError>);

/// The thread that reads accounts.
pub(super) struct UsageReader {
    questions: SyncSender<UsageQuestion>,
    answers: mpsc::UnboundedReceiver<Answer>,
    /// Who asked what is not answered, by the number of the user.
    open: Vec<(ClientId, u32)>,
}

impl UsageReader {
    /// Starts the thread, which reads the table at `path`.
    ///
    /// # Errors
    /// When there is no thread.
    pub(super) fn start(path: PathBuf) -> Result<Self, Failure> {
        let (questions, inbox) = sync_channel(MOST_WAITING);
        let (outbox, answers) = mpsc::unbounded_channel();
        let reader = std::thread::Builder::new().name("usage".to_owned());
        reader.spawn(move || answer_all(&path, &inbox, &outbox)).map_err(|error| {
            Failure::new(
                ExitCode::MachineLimits,
                format!("no thread can be made: {error}; raise the limit of processes"),
            )
        })?;
        Ok(Self { questions, answers, open: Vec::new() })
    }

    /// Gives a question of a user its place. [`Self::ask`] follows.
    ///
    /// # Errors
    /// Too many wait already.
    fn begin(&mut self, client: ClientId, uid: u32) -> Result<(), Refusal> {
        let own = self.open.iter().filter(|(_, asker)| *asker == uid).count();
        if own >= MOST_OF_USER || self.open.len() >= MOST_WAITING {
            let message = "too many questions wait for the head's disk; try again later";
            return Err(refusal(RefusalKind::NoResources, message));
        }
        self.open.push((client, uid));
        Ok(())
    }

    /// Takes a question that has its place, which is answered later.
    ///
    /// # Errors
    /// Nobody reads accounts any more.
    fn ask(&mut self, question: UsageQuestion) -> Result<(), Refusal> {
        let client = question.client;
        self.questions.try_send(question).map_err(|_| {
            self.leave(client);
            let message = "the head cannot read what jobs have used any more; start it again";
            refusal(RefusalKind::Internal, message)
        })
    }

    /// A question of the client is answered.
    fn leave(&mut self, client: ClientId) {
        if let Some(at) = self.open.iter().position(|(asker, _)| *asker == client) {
            self.open.swap_remove(at);
        }
    }

    /// The next answer.
    pub(super) async fn answered(&mut self) -> (ClientId, ClientReply) {
        let Some((client, page)) = self.answers.recv().await else {
            return std::future::pending().await;
        };
        self.leave(client);
        let reply = page.map_or_else(
            |error| {
                tracing::error!(%error, "accounts cannot be read");
                ClientReply::Refused(refusal(RefusalKind::NoResources, error.to_string()))
            },
            ClientReply::Usage,
        );
        (client, reply)
    }
}

fn answer_all(
    path: &Path,
    questions: &Receiver<UsageQuestion>,
    answers: &mpsc::UnboundedSender<Answer>,
) {
    for question in questions {
        let client = question.client;
        if answers.send((client, answer(path, question))).is_err() {
            return;
        }
    }
}

fn answer(path: &Path, question: UsageQuestion) -> Result<UsagePage, TableError> {
    let UsageQuestion { query, viewer, now_ms, others, .. } = question;
    let mut tally = UsageTally::new(query.clone(), viewer, now_ms);
    others.iter().for_each(|job| tally.add(job));
    // Some of them may be over by now.
    let others: BTreeSet<JobId> = others.iter().map(|job| job.job).collect();
    read_usage(path, &query, &mut tally, |job| others.contains(&job))?;
    Ok(tally.finish())
}
