//! Pages of the job table for viewers who turn pages: newest first, and as long as they ask.

use alloc::string::String;
use alloc::vec::Vec;

use kumi_sched::JobId;

use super::Head;
use super::listing::Viewer;
use crate::message::{JobList, JobRecord, JobState, Refusal, User};

/// Most jobs on a page.
pub const MOST_PAGED: usize = 500;

/// Which jobs a page has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobsQuery {
    /// Only jobs that are not over.
    pub live: bool,
    /// Only jobs with this in their name, program or user's name, without regard to case.
    pub text: String,
    /// Only jobs with smaller numbers.
    pub before: Option<JobId>,
    /// At most so many, and at most [`MOST_PAGED`].
    pub limit: usize,
}

/// A page of jobs as a user sees them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobsPage {
    /// The jobs.
    pub list: JobList,
    /// Whether there are more with smaller numbers.
    pub more: bool,
}

impl Head {
    /// A page of the jobs that a user sees.
    pub fn page(&self, user: &User, query: &JobsQuery) -> JobsPage {
        let viewer = self.viewer(user);
        let text = query.text.to_lowercase();
        let limit = query.limit.min(MOST_PAGED);
        let earlier = |id: JobId| query.before.is_none_or(|before| id < before);
        let mut records: Vec<JobRecord> = Vec::new();
        let mut more = false;
        for job in self.jobs.iter().rev().filter(|job| earlier(job.id())) {
            if (query.live && job.is_over()) || !viewer.sees(&job.record) {
                continue;
            }
            let Some(record) = matching(&viewer, &job.record, &text) else { continue };
            if records.len() == limit {
                more = true;
                break;
            }
            records.push(record);
        }
        records.reverse();
        JobsPage { list: self.with_reasons(records), more }
    }

    /// A job as a user sees it, alone in its list; none if there is none for this user.
    pub fn job_for(&self, user: &User, id: JobId) -> Option<JobList> {
        let viewer = self.viewer(user);
        let job = self.jobs.get(id).filter(|job| viewer.sees(&job.record))?;
        Some(self.with_reasons(Vec::from([viewer.view(&job.record)])))
    }

    /// Checks that a user may read what a job has written.
    ///
    /// # Errors
    /// There is no such job, or it is another user's.
    pub fn may_read(&self, user: &User, id: JobId) -> Result<(), Refusal> {
        self.permitted(user, id, "see its output")
    }

    /// A list of these jobs, which ascend.
    pub(super) fn with_reasons(&self, records: Vec<JobRecord>) -> JobList {
        let listed = |job: JobId| records.binary_search_by_key(&job, |one| one.spec.job).is_ok();
        let waits = |one: &JobRecord| matches!(one.state, JobState::Queued | JobState::Preparing);
        // Reasons cost a look at all jobs.
        let mut waiting = if records.iter().any(waits) { self.wait_reasons() } else { Vec::new() };
        waiting.retain(|&(job, _)| listed(job));
        let mut idle = self.idle.running(&self.jobs);
        idle.retain(|&job| listed(job));
        let mut stopped = self.verdicts.stopped();
        stopped.retain(|&job| listed(job));
        JobList { records, idle, stopped, waiting }
    }
}

/// The record as the viewer sees it, if the text is in what the viewer sees of it. Only then it is copied: a record may have
/// half a megabyte, and all of the table are looked through.
fn matching(viewer: &Viewer<'_>, record: &JobRecord, text: &str) -> Option<JobRecord> {
    let found =
        text.is_empty() || viewer.words(record).iter().any(|it| it.to_lowercase().contains(text));
    found.then(|| viewer.view(record))
}
