//! Starts of jobs: nodes know each start of a job by a name of its own, the head knows the job by its number.
//!
//! All commands and reports pass here. A report on an earlier start is one on a job that the head does not know, so what it
//! does about those is right: what runs of it is killed, its output dropped, its end acknowledged. Nothing that was on its way
//! can be taken for news of the start that there is now.

use alloc::collections::BTreeMap;

use kumi_sched::JobId;

use crate::job_names::{name_jobs_in_command, name_jobs_in_report};
use crate::message::{Command, Report};

/// Marks the name of a start that is not the last one of its job. No number has it.
const EARLIER: u64 = 1 << 63;

/// The last starts of all jobs that were started again.
#[derive(Debug, Default)]
pub(super) struct Starts {
    restarts: BTreeMap<JobId, u32>,
}

impl Starts {
    /// The job was started again so often.
    pub(super) fn set(&mut self, job: JobId, restarts: u32) {
        if restarts > 0 {
            self.restarts.insert(job, restarts);
        }
    }

    /// The job is not known any more.
    pub(super) fn forget(&mut self, job: JobId) {
        self.restarts.remove(&job);
    }

    /// Names the jobs of a command as nodes know them.
    pub(super) fn outgoing(&self, command: &mut Command) {
        name_jobs_in_command(command, &mut |job| {
            *job = match job.0 & EARLIER {
                0 => self.restarts.get(job).map_or(*job, |&restarts| job.of_start(restarts)),
                _ => JobId(job.0 & !EARLIER),
            };
        });
    }

    /// Names the jobs of a report as the head knows them.
    pub(super) fn incoming(&self, report: &mut Report) {
        name_jobs_in_report(report, &mut |job| {
            let number = job.number();
            let is_last = self.restarts.get(&number).copied().unwrap_or(0) == job.restarts();
            *job = if is_last { number } else { JobId(job.0 | EARLIER) };
        });
        // Of what is measured nothing follows.
        if let Report::Samples { nodes, .. } = report {
            nodes.iter_mut().for_each(|sample| sample.name_jobs(JobId::number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::NodeSet;

    #[test]
    fn reports_on_earlier_starts_are_on_jobs_that_the_head_does_not_know() {
        let mut starts = Starts::default();
        let job = JobId(5);
        let told = |starts: &Starts| {
            let mut command = Command::Kill { job };
            starts.outgoing(&mut command);
            command
        };
        let heard = |starts: &Starts, job| {
            let mut report = Report::Freed { job, nodes: NodeSet::default() };
            starts.incoming(&mut report);
            match report {
                Report::Freed { job, .. } => job,
                _ => unreachable!("it is of the same kind"),
            }
        };
        assert_eq!((told(&starts), heard(&starts, job)), (Command::Kill { job }, job));
        starts.set(job, 1);
        let second = job.of_start(1);
        assert_eq!((told(&starts), heard(&starts, second)), (Command::Kill { job: second }, job));
        // What is said of the first start is said to the first start.
        let first = heard(&starts, job);
        assert_ne!(first, job);
        let mut command = Command::Forget { job: first };
        starts.outgoing(&mut command);
        assert_eq!(command, Command::Forget { job });
        // Also when nobody knows the job any more.
        starts.forget(job);
        let unknown = heard(&starts, second);
        assert_ne!(unknown, job);
        let mut command = Command::Forget { job: unknown };
        starts.outgoing(&mut command);
        assert_eq!(command, Command::Forget { job: second });
    }
}
