//! Pages of the job table: which jobs somebody asks for, and those that there are.

use alloc::string::String;
use alloc::vec::Vec;

use kumi_sched::{JobId, NodeId};
use serde::{Deserialize, Serialize};

use crate::message::{JobList, JobState};

/// Most jobs on a page.
pub const MOST_PAGED: usize = 500;

/// Which jobs a page has: those to which all of this applies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobsQuery {
    /// Only jobs that are not over.
    pub live: bool,
    /// Only jobs with this in their name, program or user's name, without regard to case.
    pub text: String,
    /// Only jobs with this in their name, without regard to case.
    pub name: Option<String>,
    /// Only jobs of this user: a name or a number.
    pub user: Option<String>,
    /// Only jobs in one of these states, unless none is named.
    pub states: Vec<StateKind>,
    /// Only jobs that have places on this node.
    pub node: Option<NodeId>,
    /// Only jobs with smaller numbers.
    pub before: Option<JobId>,
    /// At most so many, and at most [`MOST_PAGED`].
    pub limit: usize,
}

impl JobsQuery {
    /// The first page of all jobs that are not over, or of all.
    pub fn first_page(all: bool) -> Self {
        Self { live: !all, limit: MOST_PAGED, ..Self::default() }
    }

    /// One job.
    pub fn job(job: JobId) -> Self {
        Self { before: Some(JobId(job.0.saturating_add(1))), limit: 1, ..Self::default() }
    }
}

/// A page of jobs as a user sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobsPage {
    /// The jobs.
    pub list: JobList,
    /// Whether there are more with smaller numbers.
    pub more: bool,
}

/// A state of a job without what belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StateKind {
    /// [`JobState::Queued`].
    Queued,
    /// [`JobState::Preparing`].
    Starting,
    /// [`JobState::Running`].
    Running,
    /// [`JobState::Ending`].
    Ending,
    /// [`JobState::Ended`].
    Ended,
}

impl StateKind {
    /// All of them, in the order of a job's life.
    pub const ALL: [Self; 5] =
        [Self::Queued, Self::Starting, Self::Running, Self::Ending, Self::Ended];

    /// As a word for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Ending => "ending",
            Self::Ended => "ended",
        }
    }
}

impl From<&JobState> for StateKind {
    fn from(state: &JobState) -> Self {
        match state {
            JobState::Queued => Self::Queued,
            JobState::Preparing => Self::Starting,
            JobState::Running => Self::Running,
            JobState::Ending(_) => Self::Ending,
            JobState::Ended(_) => Self::Ended,
        }
    }
}
