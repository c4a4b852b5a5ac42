//! Questions to the head's main loop.

use kumi_control::message::{ClientReply, ClientRequest, JobList, Refusal, User};
use kumi_control::message::{JobsPage, JobsQuery};
use kumi_sched::JobId;
use tokio::sync::oneshot;

/// A question of a browser.
#[derive(Debug)]
pub struct Question {
    /// Whose browser it is.
    pub user: User,
    /// What it asks.
    pub ask: Ask,
}

/// What browsers ask; each with the way of its answer. Nobody hears an answer if the browser is gone.
#[derive(Debug)]
pub enum Ask {
    /// What any client may ask that gets one reply.
    Client(ClientRequest, oneshot::Sender<ClientReply>),
    /// A page of the job table.
    Jobs(JobsQuery, oneshot::Sender<JobsPage>),
    /// One job.
    Job(JobId, oneshot::Sender<Option<JobList>>),
    /// What a job has written: from this byte of its spool on, or the last part.
    Output(JobId, Option<u64>, oneshot::Sender<Result<Output, Refusal>>),
    /// A picture soon: somebody watches now.
    Picture,
}

/// A part of what a job has written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// In the order in which it came.
    pub pieces: Vec<OutputPiece>,
    /// Where in the spool it begins.
    pub begin: u64,
    /// Where the next part begins.
    pub next: u64,
}

/// What a rank has written at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputPiece {
    /// The rank.
    pub rank: u32,
    /// Whether it was written to standard error.
    pub error: bool,
    /// The bytes.
    pub data: Vec<u8>,
}
