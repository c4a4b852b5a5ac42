//! How much input may wait for ranks that do not read it.
//!
//! The main loop asks here before a job's task hears of input: a task that starts processes, or waits for others, queues what it
//! is told. So the bound counts input on its way to the task, in the task, and in the file of a kept job.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use kumi_sched::JobId;

/// Most input of one job that waits, in bytes.
const JOB_BYTES: usize = 64 << 20;
/// Most input of all jobs of the node that waits, in bytes.
const ALL_BYTES: usize = 256 << 20;
/// So much each job may have whatever the others have, in bytes: who types does not hear of others.
const LEAST_BYTES: usize = 128 << 10;
/// Bytes that a piece of it takes beside its own: who types one byte at a time has no more room than others.
const PIECE: usize = 128;

/// What waits of one job.
#[derive(Debug, Default)]
struct Waiting {
    bytes: usize,
    /// The job is to hear that there was no room, and has not yet.
    refused: bool,
}

#[derive(Debug, Default)]
struct Ledger {
    jobs: BTreeMap<JobId, Waiting>,
    bytes: usize,
}

impl Ledger {
    fn has_room(&self, job: JobId, more: usize) -> bool {
        let of_job = self.jobs.get(&job).map_or(0, |job| job.bytes).saturating_add(more);
        let of_all = self.bytes.saturating_add(more);
        of_job <= JOB_BYTES && (of_all <= ALL_BYTES || of_job <= LEAST_BYTES)
    }

    /// Has a job take `after` bytes instead of `before`.
    fn change(&mut self, job: JobId, before: usize, after: usize) {
        let replace = |bytes: usize| bytes.saturating_sub(before).saturating_add(after);
        self.bytes = replace(self.bytes);
        let waiting = self.jobs.entry(job).or_default();
        waiting.bytes = replace(waiting.bytes);
        self.forget_empty(job);
    }

    fn forget_empty(&mut self, job: JobId) {
        if self.jobs.get(&job).is_some_and(|job| job.bytes == 0 && !job.refused) {
            self.jobs.remove(&job);
        }
    }
}

/// The room for input on this node.
#[derive(Clone, Debug, Default)]
pub struct InputRoom(Rc<RefCell<Ledger>>);

impl InputRoom {
    /// Takes room for a piece. Where there is none, the job is to hear that once: nothing is returned as long as it has not.
    /// Empty input closes what there is, and needs no room.
    pub(crate) fn take(&self, job: JobId, data: Vec<u8>) -> Option<InputPiece> {
        let mut ledger = self.0.borrow_mut();
        let bytes = if data.is_empty() { 0 } else { data.len().saturating_add(PIECE) };
        let (content, bytes) = if ledger.has_room(job, bytes) {
            ledger.change(job, 0, bytes);
            (Ok(data), bytes)
        } else {
            let waiting = ledger.jobs.entry(job).or_default();
            if waiting.refused {
                return None;
            }
            waiting.refused = true;
            (Err(NoRoom), 0)
        };
        drop(ledger);
        let held = HeldRoom { room: self.clone(), job, bytes: Cell::new(bytes) };
        Some(InputPiece { content, held })
    }

    /// Room that a job has and changes, and gives back when this is dropped.
    pub(super) fn hold(&self, job: JobId) -> HeldRoom {
        HeldRoom { room: self.clone(), job, bytes: Cell::new(0) }
    }
}

/// There is no room for input: a rank does not read what waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoRoom;

/// Room that some input of a job has.
#[derive(Debug)]
pub(super) struct HeldRoom {
    room: InputRoom,
    job: JobId,
    bytes: Cell<usize>,
}

impl HeldRoom {
    /// It takes so many bytes from now on, also if that is more than there is room for: it waits already.
    pub(super) fn set(&self, bytes: usize) {
        let before = self.bytes.replace(bytes);
        self.room.0.borrow_mut().change(self.job, before, bytes);
    }
}

impl Drop for HeldRoom {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Input for a job's task, which holds its room until it is dropped; or the word that there was no room.
#[derive(Debug)]
pub struct InputPiece {
    content: Result<Vec<u8>, NoRoom>,
    held: HeldRoom,
}

impl InputPiece {
    /// What it is; empty input closes what there is.
    pub(super) fn data(&self) -> Result<&[u8], NoRoom> {
        self.content.as_deref().map_err(|&none| none)
    }
}

impl Drop for InputPiece {
    fn drop(&mut self) {
        if self.content.is_err() {
            let mut ledger = self.held.room.0.borrow_mut();
            if let Some(waiting) = ledger.jobs.get_mut(&self.held.job) {
                waiting.refused = false;
            }
            ledger.forget_empty(self.held.job);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: usize = 1 << 20;

    /// Gives a job pieces of this size until one is refused. Returns those that wait.
    fn fill(room: &InputRoom, job: JobId, bytes: usize) -> Vec<InputPiece> {
        let pieces = std::iter::repeat_with(|| room.take(job, vec![7; bytes]).unwrap());
        pieces.take_while(|piece| piece.data().is_ok()).collect()
    }

    #[test]
    fn a_job_has_a_bound_also_for_single_bytes() {
        let room = InputRoom::default();
        let whole = room.take(JobId(1), vec![7; JOB_BYTES - PIECE]).unwrap();
        assert!(whole.data().is_ok());
        assert_eq!(room.take(JobId(1), vec![7]).unwrap().data(), Err(NoRoom));
        assert!(room.take(JobId(1), Vec::new()).unwrap().data().unwrap().is_empty(), "its end");
        drop(whole);
        let single = fill(&room, JobId(2), 1);
        assert_eq!(single.len(), JOB_BYTES / (PIECE + 1));
    }

    #[test]
    fn all_jobs_have_one_bound_and_each_has_a_little() {
        let room = InputRoom::default();
        let mut jobs: Vec<_> = (1..=5).map(|job| fill(&room, JobId(job), PART)).collect();
        let rest = fill(&room, JobId(5), 1);
        jobs[4].extend(rest);
        let waiting: usize = jobs.iter().flatten().map(|piece| piece.held.bytes.get()).sum();
        assert!(waiting <= ALL_BYTES && waiting > ALL_BYTES - 2 * PIECE, "{waiting}");
        // Who types has room, and no more than a little.
        let typed = fill(&room, JobId(6), 1);
        assert_eq!(typed.len(), LEAST_BYTES / (PIECE + 1));
        assert_eq!(room.take(JobId(7), vec![7; LEAST_BYTES]).unwrap().data(), Err(NoRoom));
        drop(jobs);
        assert!(room.take(JobId(7), vec![7; LEAST_BYTES]).unwrap().data().is_ok());
        drop(typed);
        assert!(room.0.borrow().jobs.is_empty() && room.0.borrow().bytes == 0);
    }

    #[test]
    fn a_refusal_waits_once() {
        let room = InputRoom::default();
        let all = room.hold(JobId(1));
        all.set(JOB_BYTES);
        let refusal = room.take(JobId(1), vec![7]).unwrap();
        assert!(room.take(JobId(1), vec![7]).is_none() && refusal.data().is_err());
        drop(refusal);
        assert!(room.take(JobId(1), vec![7]).unwrap().data().is_err());
        all.set(5);
        assert!(room.take(JobId(1), vec![7]).unwrap().data().is_ok());
        drop(all);
        assert!(room.0.borrow().jobs.is_empty());
    }
}
