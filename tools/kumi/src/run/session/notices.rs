//! What a session says of a job that waits, stops or loses a node.

use super::Session;
use crate::output;
use kumi_control::message::{DeadlockReport, JobState, Outcome, WaitReason};

impl Session {
    /// The head says what the job waits for. Only another kind of reason is worth another line.
    pub(super) fn show_reason(&mut self, reason: &WaitReason) {
        if self.waits_for.replace(reason.kind()) != Some(reason.kind()) {
            output::note(&format!("{} waits: {reason}; see `kumi ps`", self.job_words()));
        }
    }

    /// The job lost a node, and does not end before the node's lease.
    pub(super) fn show_loss(&self, state: &JobState) {
        if let JobState::Ending(Outcome::NodeLost(node)) = state {
            let node = self.names.get(*node);
            let until = "waiting until nothing of the job can run there any more";
            output::note(&format!("{node} was lost; {until}"));
        }
    }

    /// The job is stopped. Said once, also if it acts meanwhile and stops again for the same reasons.
    pub(super) fn show_deadlock(&mut self, report: &DeadlockReport) {
        if self.only_shows() || self.deadlock.as_ref() == Some(&report.explanation) {
            return;
        }
        let text = crate::debug::deadlock_text(&self.job_words(), report);
        output::note(text.trim_end());
        self.deadlock = Some(report.explanation.clone());
    }
}
