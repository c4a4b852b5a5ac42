//! Follower of a job: sends its log to a client until the end.

use std::io;
use std::path::PathBuf;

use kumi_control::message::{ClientReply, Outcome, Refusal, RefusalKind};
use kumi_sched::JobId;
use std::sync::Arc;
use tokio::sync::{Semaphore, mpsc, watch};

use super::pace::Pacer;
use super::reader::{Reader, Step};
use crate::client::refusal;

/// What followers are told of a log, each time that it has come further.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::head) struct Progress {
    /// Set when no more will come: how the job ended, and how much of its output is not kept.
    pub(super) outcome: Option<(Outcome, u64)>,
}

pub(super) struct Follower {
    /// None while a thread reads for it.
    pub(super) reader: Option<Reader>,
    /// As many followers as may read the disk at a time.
    pub(super) readers: Arc<Semaphore>,
    pub(super) folder: PathBuf,
    pub(super) job: JobId,
    pub(super) wait: bool,
    pub(super) pacer: Option<Pacer>,
    pub(super) progress: watch::Receiver<Progress>,
    pub(super) client: mpsc::Sender<ClientReply>,
}

/// The refusal of somebody who wants to read.
pub(super) fn unreadable(folder: &std::path::Path, job: JobId, error: &io::Error) -> Refusal {
    if error.kind() == io::ErrorKind::InvalidInput {
        return refusal(RefusalKind::BadRequest, error.to_string());
    }
    let message =
        format!("the output of job {job} in {} cannot be read: {error}", folder.display());
    refusal(RefusalKind::NoResources, message)
}

impl Follower {
    pub(super) async fn run(mut self) {
        if let Err(refused) = self.serve().await {
            // A client that is gone needs no answer.
            let _ = self.client.send(ClientReply::Refused(refused)).await;
        }
    }

    async fn serve(&mut self) -> Result<(), Refusal> {
        let mut current = false;
        loop {
            let outcome = self.progress.borrow_and_update().outcome.clone();
            if !self.send_all().await? {
                return Ok(());
            }
            if let Some((outcome, not_kept)) = outcome {
                let ended = ClientReply::Ended { job: self.job, outcome, not_kept };
                let _ = self.client.send(ended).await;
                return Ok(());
            }
            if !self.wait {
                let _ = self.client.send(ClientReply::Done).await;
                return Ok(());
            }
            if !std::mem::replace(&mut current, true) {
                let _ = self.client.send(ClientReply::Current { job: self.job }).await;
            }
            tokio::select! {
                changed = self.progress.changed() => if changed.is_err() { return Ok(()) },
                () = self.client.closed() => return Ok(()),
            }
        }
    }

    /// The next step, and where it ends. The head's main loop does not wait for the disk: a thread does.
    async fn step(&mut self) -> io::Result<(Step, u64)> {
        let Some(mut reader) = self.reader.take() else {
            return Err(io::Error::other("the thread that read it is gone"));
        };
        let step = if reader.needs_disk() {
            let permit = self.readers.acquire().await.map_err(io::Error::other)?;
            let read = tokio::task::spawn_blocking(move || (reader.next(), reader));
            let step;
            (step, reader) = read.await.map_err(io::Error::other)?;
            drop(permit);
            step
        } else {
            reader.next()
        };
        let offset = reader.offset();
        self.reader = Some(reader);
        Ok((step?, offset))
    }

    /// Sends all that is there; whether the client still listens.
    async fn send_all(&mut self) -> Result<bool, Refusal> {
        loop {
            let step = self.step().await;
            let (step, offset) =
                step.map_err(|error| unreadable(&self.folder, self.job, &error))?;
            let job = self.job;
            let reply = match step {
                Step::End => return Ok(true),
                Step::Passed => {
                    // It runs on the head's main loop.
                    tokio::task::yield_now().await;
                    continue;
                }
                Step::Piece { rank, stream, data } => {
                    ClientReply::Output { job, rank, stream, data, offset }
                }
                Step::Restart { restarts, reason } => {
                    ClientReply::StartedAgain { job, restarts, reason, offset }
                }
                Step::Lost(bytes) => ClientReply::OutputLost { job, bytes, offset },
            };
            if self.client.send(reply).await.is_err() {
                return Ok(false);
            }
            if let Some(pacer) = &self.pacer {
                pacer.come_to(offset);
            }
        }
    }
}
