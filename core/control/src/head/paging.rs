//! Pages of the job table for viewers who turn pages: newest first, and as long as they ask.

use alloc::string::{String, ToString};
use alloc::vec::Vec;

use kumi_sched::JobId;

use super::Head;
use super::listing::{Viewer, bytes};
use crate::message::{
    JobList, JobRecord, JobState, JobsPage, JobsQuery, MOST_PAGED, Refusal, StateKind, User,
};

/// About what the records on a page may take, in bytes: an answer fits a frame.
const MOST_PAGED_BYTES: usize = 700 << 10;

impl Head {
    /// A page of the jobs that a user sees.
    pub fn page(&self, user: &User, query: &JobsQuery) -> JobsPage {
        let viewer = self.viewer(user);
        let text = query.text.to_lowercase();
        let limit = query.limit.min(MOST_PAGED);
        let earlier = |id: JobId| query.before.is_none_or(|before| id < before);
        let mut records: Vec<JobRecord> = Vec::new();
        let (mut more, mut size) = (false, 0);
        for job in self.jobs.iter().rev().filter(|job| earlier(job.id())) {
            if (query.live && job.is_over()) || !viewer.sees(&job.record) {
                continue;
            }
            let Some(record) = matching(&viewer, &job.record, query, &text) else { continue };
            size += bytes(&record);
            let full = size > MOST_PAGED_BYTES && !records.is_empty();
            if records.len() == limit || full {
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

/// The record as the viewer sees it, if that is what the query looks for. Only then it is copied: a record may have half a
/// megabyte, and all of the table are looked through.
fn matching(
    viewer: &Viewer<'_>,
    record: &JobRecord,
    query: &JobsQuery,
    text: &str,
) -> Option<JobRecord> {
    let [name, program, user] = viewer.words(record);
    let has = |word: &str, text: &str| word.to_lowercase().contains(text);
    let on_node = |node| record.spec.layout.iter().any(|part| part.node == node);
    let number = || viewer.uid(record).map(|uid| uid.to_string());
    let owned = |wanted: &String| wanted == user || Some(wanted) == number().as_ref();
    let found = (text.is_empty() || [name, program, user].into_iter().any(|word| has(word, text)))
        && (query.states.is_empty() || query.states.contains(&StateKind::from(&record.state)))
        && query.node.is_none_or(on_node)
        && query.name.as_ref().is_none_or(|wanted| has(name, &wanted.to_lowercase()))
        && query.user.as_ref().is_none_or(owned);
    found.then(|| viewer.view(record))
}
