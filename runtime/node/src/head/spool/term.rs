//! Terms of heads on several machines: where offsets begin, and what jobs had written before.

use kumi_control::head::Head;
use kumi_control::message::Stream;
use kumi_sched::JobId;

use super::{Spools, WrittenOutput};
use crate::head::is_over;
use crate::head::state::TermOutput;

/// Offsets of a log in a term: no job writes as many bytes in one.
pub(super) const TERM: u64 = 1 << 40;

impl Spools {
    /// Heads on other machines may have led before this one.
    pub(in crate::head) fn begin_term(&mut self, TermOutput { number, written }: TermOutput) {
        self.term = Some((number.saturating_mul(TERM), written));
    }

    /// The number of the term; none if there is only one head.
    pub(in crate::head) fn term_number(&self) -> Option<u64> {
        self.term.as_ref().map(|(base, _)| base / TERM)
    }

    /// What jobs have written by now, if heads of later terms are to know it and do not yet: of those that are `wanted`.
    pub(in crate::head) fn written(
        &mut self,
        wanted: impl Fn(JobId) -> bool,
    ) -> Vec<(JobId, WrittenOutput)> {
        if self.term.is_none() {
            return Vec::new();
        }
        let jobs: Vec<JobId> = self.spools.keys().copied().filter(|&job| wanted(job)).collect();
        jobs.into_iter().filter_map(|job| self.written_by(job)).collect()
    }

    /// The same of one job.
    pub(in crate::head) fn written_by(&mut self, job: JobId) -> Option<(JobId, WrittenOutput)> {
        let (_, known) = self.term.as_mut()?;
        let now = self.spools.get(&job)?.writer.log().lock().written();
        let is_news = now.bytes > known.get(&job).map_or(0, |known| known.bytes);
        is_news.then(|| {
            known.insert(job, now);
            (job, now)
        })
    }

    /// How far the streams of a job's ranks have come.
    pub(in crate::head) fn streams(&mut self, job: JobId) -> Vec<(u32, Stream, u64)> {
        let accepted = self.spool(job).writer.accepted().iter();
        accepted.map(|(&(rank, stream), &next)| (rank, stream, next)).collect()
    }

    /// The head learns how far the output of jobs that are not over had come.
    pub(in crate::head) fn restore(&mut self, head: &mut Head) {
        let live = head.records().filter(|record| !is_over(record));
        let live: Vec<(JobId, u32)> =
            live.map(|record| (record.spec.job, record.restarts)).collect();
        for (job, restarts) in live {
            if self.spool(job).writer.restarts() != restarts {
                // The head before this one ended between its record and the mark. What is not kept is told later.
                self.mark(job, restarts, "a node was lost, or the head was away");
            }
            head.restore_output(job, self.streams(job));
        }
    }
}
