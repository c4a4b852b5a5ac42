//! What was asked about a job and what came of it, and whether that can have happened in one order (Wing and Gong 1993).
//!
//! Each act happens at some moment between its call and its answer. What the cluster does by itself may happen at any time
//! from its cause on, or never. There must be an order in which each act is right for a job that is alone in the world.

use std::collections::BTreeSet;

use kumi_control::message::Outcome;
use kumi_sched::JobId;

/// How a job ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    Success,
    Failure,
    Killed,
    /// A node was lost, or the head was away for longer than a lease.
    Lost,
}

impl Ending {
    pub fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Success => Self::Success,
            Outcome::RankFailed { .. } => Self::Failure,
            Outcome::Killed => Self::Killed,
            Outcome::NodeLost(_) | Outcome::HeadAway(_) => Self::Lost,
            other => panic!("no job ends so here: {other:?}"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// A client was told the number of the job.
    Submitted(JobId),
    /// Ranks of it began to run.
    Started,
    /// All ranks were done.
    Succeeded,
    /// A rank failed.
    Failed,
    /// A node was given up.
    Lost,
    /// A client was told that nothing of the job is left.
    Killed,
    /// A client was told how it ended.
    Waited(Ending),
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    act: Act,
    call: u64,
    /// None: it may happen, and need not.
    answer: Option<u64>,
}

/// A job that is alone in the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Model {
    Absent,
    Queued(JobId),
    Running(JobId),
    Ended(JobId, Ending),
}

impl Model {
    fn after(self, act: Act) -> Option<Model> {
        let end = |ending| match self {
            Model::Queued(job) | Model::Running(job) => Some(Model::Ended(job, ending)),
            Model::Absent | Model::Ended(..) => None,
        };
        match (act, self) {
            (Act::Submitted(job), Model::Absent) => Some(Model::Queued(job)),
            (
                Act::Submitted(job),
                Model::Queued(known) | Model::Running(known) | Model::Ended(known, _),
            ) => (job == known).then_some(self),
            // Its other nodes may have started it before.
            (Act::Started, Model::Queued(job) | Model::Running(job)) => Some(Model::Running(job)),
            (Act::Succeeded, Model::Running(_)) => end(Ending::Success),
            (Act::Failed, Model::Running(_)) => end(Ending::Failure),
            (Act::Lost, _) => end(Ending::Lost),
            (Act::Killed, Model::Ended(..)) => Some(self),
            (Act::Killed, _) => end(Ending::Killed),
            (Act::Waited(ending), Model::Ended(_, known)) => (ending == known).then_some(self),
            (Act::Started | Act::Succeeded | Act::Failed | Act::Waited(_), _) => None,
        }
    }
}

/// The history of a job.
#[derive(Debug, Default)]
pub struct History {
    pub job: Option<JobId>,
    entries: Vec<Entry>,
}

impl History {
    /// It happened at this moment.
    pub fn happens(&mut self, act: Act, now: u64) {
        self.completes(act, now, now);
    }

    /// It may happen from this moment on.
    pub fn may_happen(&mut self, act: Act, now: u64) {
        self.entries.push(Entry { act, call: now, answer: None });
    }

    /// Somebody asked for it at `call`, and is answered now.
    pub fn completes(&mut self, act: Act, call: u64, now: u64) {
        if let Act::Submitted(job) = act {
            self.job.get_or_insert(job);
        }
        self.entries.push(Entry { act, call, answer: Some(now) });
    }

    /// How many acts have an answer.
    pub fn answers(&self) -> usize {
        self.entries.iter().filter(|entry| entry.answer.is_some()).count()
    }

    /// Whether some order of the acts is right.
    pub fn is_linearizable(&self) -> bool {
        assert!(self.entries.len() < 64, "one bit for each act");
        self.search(0, Model::Absent, &mut BTreeSet::new())
    }

    /// Whether the acts that are not in `done` can follow.
    fn search(&self, done: u64, model: Model, seen: &mut BTreeSet<(u64, Model)>) -> bool {
        let open = || self.entries.iter().enumerate().filter(|(at, _)| done >> at & 1 == 0);
        // Whoever was answered first comes before all that were called later.
        let Some(first_answer) = open().filter_map(|(_, entry)| entry.answer).min() else {
            return true;
        };
        if !seen.insert((done, model)) {
            return false;
        }
        open().filter(|(_, entry)| entry.call <= first_answer).any(|(at, entry)| {
            let next = model.after(entry.act);
            next.is_some_and(|next| self.search(done | 1 << at, next, seen))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: JobId = JobId(1);

    fn history(acts: &[(Act, u64, Option<u64>)]) -> bool {
        let mut history = History::default();
        for &(act, call, answer) in acts {
            match answer {
                Some(answer) => history.completes(act, call, answer),
                None => history.may_happen(act, call),
            }
        }
        history.is_linearizable()
    }

    #[test]
    fn what_one_head_would_do_is_right() {
        let begin = [(Act::Submitted(JOB), 0, Some(9)), (Act::Started, 5, Some(5))];
        let kill = (Act::Killed, 7, Some(20));
        let killed = (Act::Waited(Ending::Killed), 8, Some(30));
        assert!(history(&[begin[0], begin[1], kill, killed]));
        let success = (Act::Waited(Ending::Success), 8, Some(30));
        let done = (Act::Succeeded, 12, None);
        assert!(history(&[begin[0], begin[1], kill, done, success]), "it was faster");
        assert!(history(&[begin[0], begin[0], begin[1]]), "the same answer to the same token");
    }

    #[test]
    fn what_no_single_head_would_do_is_found() {
        let submitted = (Act::Submitted(JOB), 0, Some(9));
        let waited = |ending, call| (Act::Waited(ending), call, Some(call + 5));
        let other = (Act::Submitted(JobId(2)), 10, Some(12));
        assert!(!history(&[submitted, other]), "a token has two jobs");
        let killed = (Act::Killed, 10, Some(20));
        let started = (Act::Started, 21, Some(21));
        assert!(!history(&[submitted, killed, started]), "it starts after it was killed");
        let done = (Act::Succeeded, 30, None);
        let begin = (Act::Started, 5, Some(5));
        let late = [submitted, begin, killed, done, waited(Ending::Success, 40)];
        assert!(!history(&late), "it was over before its ranks were done");
        assert!(!history(&[submitted, begin, waited(Ending::Success, 10)]), "its ranks run");
        assert!(!history(&[submitted, waited(Ending::Killed, 10)]), "nobody killed it");
        let both = [submitted, begin, done, waited(Ending::Success, 40), killed];
        let changed = [&both[..4], &[waited(Ending::Killed, 50)]].concat();
        assert!(history(&both[..4]) && !history(&changed), "an outcome does not change");
    }
}
