//! The connection of one standby, at the leader: it reads the logs as the standby takes them, so nothing waits in memory.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use kumi_control::copying::{
    CopiedJob, CopiedLog, CopyAnswer, CopyDown, CopyUp, CopyWelcome, MOST_ENTRIES,
};
use kumi_sched::JobId;
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use crate::frame::{self, LINK_LIMIT};
use crate::head::spool::{CopyPosition, LogCopy, SharedLog};
use crate::link::{self, AcceptedStream, LinkError};

/// The other side hears something at least so often in the time after which silence ends a connection.
const KEEP_ALIVE: u32 = 3;

/// What a standby says, with its address and the number of its connection.
pub(in crate::head) type SessionReport = (SocketAddr, u64, SessionEvent);

/// What the main loop is told of a standby.
#[derive(Debug)]
pub(in crate::head) enum SessionEvent {
    /// It has these logs.
    Has(Vec<CopiedLog>),
    /// It has said all.
    HasAll,
    /// It has a log up to there.
    Taken { job: JobId, end: u64 },
    /// Its connection has ended, for this reason.
    Gone(String),
}

/// What the main loop has for the standby.
#[derive(Debug, Default)]
struct News {
    /// All jobs that there are, and those that it does not know of yet.
    jobs: BTreeSet<JobId>,
    known: BTreeMap<JobId, CopiedJob>,
    discarded: BTreeSet<JobId>,
    /// Logs of which it has what the leader has not, behind this offset.
    cuts: BTreeMap<JobId, u64>,
    /// Logs that have come further, with how far the standby had come when it connected.
    logs: BTreeMap<JobId, (SharedLog, u64)>,
}

/// A connection. It ends with this.
#[derive(Debug)]
pub(super) struct Session {
    number: u64,
    news: Rc<(RefCell<News>, Notify)>,
    task: JoinHandle<()>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Session {
    /// Answers a standby, and serves it. All these jobs are known.
    pub(super) fn start(
        (head, number): (SocketAddr, u64),
        (stream, silence): (AcceptedStream, Duration),
        (term, folder): (u64, PathBuf),
        known: BTreeMap<JobId, CopiedJob>,
        tell: mpsc::Sender<SessionReport>,
    ) -> Self {
        let jobs = known.keys().copied().collect();
        let news = News { jobs, known, ..News::default() };
        let news = Rc::new((RefCell::new(news), Notify::new()));
        let serving = Serving {
            news: Rc::clone(&news),
            folder,
            silence,
            logs: VecDeque::new(),
            positions: BTreeMap::new(),
        };
        let task = tokio::task::spawn_local(async move {
            let error = serving.serve((head, number, term), stream, &tell).await;
            // Fails only when the head is about to end.
            let _ = tell.send((head, number, SessionEvent::Gone(error.to_string()))).await;
        });
        Self { number, news, task }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Whether there is such a job.
    pub(super) fn knows(&self, job: JobId) -> bool {
        self.news.0.borrow().jobs.contains(&job)
    }

    /// What the standby has of a log behind this offset goes.
    pub(super) fn cut(&self, job: JobId, end: u64) {
        self.news.0.borrow_mut().cuts.insert(job, end);
    }

    /// A log has come further, or is to be looked at. The standby had it up to `has` when it connected.
    pub(super) fn extended(&self, job: JobId, log: SharedLog, has: u64) {
        let mut news = self.news.0.borrow_mut();
        // The log may be told of once more before the first word of it is taken.
        let before = news.logs.get(&job).map_or(0, |(_, has)| *has);
        news.logs.insert(job, (log, has.max(before)));
        self.news.1.notify_one();
    }

    /// Jobs are recorded, and others are not known any more.
    pub(super) fn known(&self, known: &BTreeMap<JobId, CopiedJob>, discarded: &BTreeSet<JobId>) {
        if known.is_empty() && discarded.is_empty() {
            return;
        }
        let mut news = self.news.0.borrow_mut();
        news.jobs.extend(known.keys());
        news.known.extend(known);
        for job in discarded {
            news.jobs.remove(job);
            news.known.remove(job);
            news.logs.remove(job);
            news.cuts.remove(job);
            news.discarded.insert(*job);
        }
        self.news.1.notify_one();
    }
}

/// The task of a connection.
struct Serving {
    news: Rc<(RefCell<News>, Notify)>,
    folder: PathBuf,
    silence: Duration,
    /// Logs of which the standby lacks something, in turns.
    logs: VecDeque<(JobId, SharedLog)>,
    /// How far each has come.
    positions: BTreeMap<JobId, CopyPosition>,
}

impl Serving {
    async fn serve(
        self,
        (head, number, term): (SocketAddr, u64, u64),
        mut stream: AcceptedStream,
        tell: &mpsc::Sender<SessionReport>,
    ) -> LinkError {
        let welcome = CopyAnswer::Ok(CopyWelcome { term });
        if let Err(error) = frame::write(&mut stream, &welcome, LINK_LIMIT).await {
            return error.into();
        }
        let silence = self.silence;
        let (read, write) = tokio::io::split(stream);
        tokio::select! {
            error = hear(read, silence, (head, number, tell)) => error,
            error = self.send(write) => error,
        }
    }

    async fn send(mut self, mut write: WriteHalf<AcceptedStream>) -> LinkError {
        let mut first = true;
        loop {
            let mut messages = self.about_jobs();
            if std::mem::take(&mut first) {
                messages.push(CopyDown::KnownAll);
            }
            match self.next().await {
                Ok(of_log) => messages.extend(of_log),
                Err(error) => return error,
            }
            if messages.is_empty() {
                let news = self.news.1.notified();
                if tokio::time::timeout(self.silence / KEEP_ALIVE, news).await.is_ok() {
                    continue;
                }
                messages.push(CopyDown::Alive);
            }
            for message in messages {
                let sent = match frame::encode(&message, LINK_LIMIT) {
                    Ok(bytes) => write.write_all(&bytes).await.map_err(LinkError::from),
                    Err(error) => Err(error.into()),
                };
                if let Err(error) = sent {
                    return error;
                }
            }
            if let Err(error) = write.flush().await {
                return error.into();
            }
        }
    }

    /// What the standby is to know of jobs, before their output.
    fn about_jobs(&mut self) -> Vec<CopyDown> {
        let mut news = self.news.0.borrow_mut();
        let discarded = std::mem::take(&mut news.discarded);
        for job in &discarded {
            self.positions.remove(job);
            self.logs.retain(|(other, _)| other != job);
        }
        let known: Vec<CopiedJob> = std::mem::take(&mut news.known).into_values().collect();
        let known = known.chunks(MOST_ENTRIES).map(|some| CopyDown::Known(some.to_vec()));
        let cuts = std::mem::take(&mut news.cuts).into_iter();
        let cuts = cuts.map(|(job, end)| CopyDown::Cut { job, end });
        known.chain(discarded.into_iter().map(CopyDown::Discard)).chain(cuts).collect()
    }

    /// What comes next of the log whose turn it is; nothing if the standby has been sent all.
    async fn next(&mut self) -> Result<Vec<CopyDown>, LinkError> {
        let news = std::mem::take(&mut self.news.0.borrow_mut().logs);
        for (job, (log, has)) in news {
            self.positions.entry(job).or_insert(CopyPosition::at(has));
            self.logs.retain(|(other, _)| *other != job);
            self.logs.push_back((job, log));
        }
        while let Some((job, log)) = self.logs.pop_front() {
            let at = self.positions.get(&job).copied().unwrap_or_default();
            let mut copy = LogCopy::new(job, log.clone(), at);
            if copy.is_whole() {
                continue;
            }
            let folder = self.folder.clone();
            let read = tokio::task::spawn_blocking(move || (copy.next(&folder), copy));
            let (messages, copy) = read.await.map_err(std::io::Error::other)?;
            self.positions.insert(job, copy.position());
            if !copy.is_whole() {
                self.logs.push_back((job, log));
            }
            if !messages.is_empty() {
                return Ok(messages);
            }
        }
        Ok(Vec::new())
    }
}

/// Hears what the standby says, until its connection ends.
async fn hear(
    mut read: ReadHalf<AcceptedStream>,
    silence: Duration,
    (head, number, tell): (SocketAddr, u64, &mpsc::Sender<SessionReport>),
) -> LinkError {
    loop {
        let event = match link::receive::<CopyUp>(&mut read, silence).await {
            Ok(CopyUp::Has(logs)) => SessionEvent::Has(logs),
            Ok(CopyUp::HasAll) => SessionEvent::HasAll,
            Ok(CopyUp::Taken { job, end }) => SessionEvent::Taken { job, end },
            Ok(CopyUp::Alive) => continue,
            Err(error) => return error,
        };
        if tell.send((head, number, event)).await.is_err() {
            return LinkError::Closed;
        }
    }
}
