//! The writer of the head's table, as in the real head: one write at a time takes as long as the disk takes, and only what needs
//! a record waits for it.

use std::collections::{BTreeMap, VecDeque};

use kumi_control::head::HeadAction;
use kumi_control::message::{ClientReply, Command, JobRecord};
use kumi_control::unrecorded_ends::{UnrecordedEnds, nodes_can_repeat};
use kumi_sched::JobId;

use crate::world::{Event, LEASE, MS, World};

/// Between attempts to write what the disk did not take.
const RETRY: u64 = 1_000 * MS;
/// While a write takes longer, new jobs are refused.
const SLOW: u64 = 1_000 * MS;
/// The longest write of a slow disk, and of one that hangs: several leases long.
const SLOWEST: u64 = 100 * MS;
const HANGS: u64 = 4 * LEASE;

/// The table's writer, and what waits for it.
#[derive(Default)]
pub struct Writer {
    /// Records that the disk does not have; the head has them in memory.
    pub unwritten: BTreeMap<JobId, (u64, JobRecord)>,
    /// Actions, each with the write for which it waits, and with all before it.
    held: VecDeque<(u64, HeadAction)>,
    /// The write that is under way, with its records and its begin.
    writing: Option<(u64, u64, Vec<JobRecord>)>,
    /// The next write, the last one that is over, and the one with the last record.
    next: u64,
    settled: u64,
    needed: u64,
    full: bool,
    slow: bool,
    /// The last write failed.
    failed: bool,
    /// Nodes that are to forget jobs whose end the disk does not have.
    ends: UnrecordedEnds,
}

/// Whether an action says nothing that a record must vouch for.
fn needs_no_record(action: &HeadAction) -> bool {
    matches!(
        action,
        HeadAction::ToChild(_, _, Command::Lease { .. } | Command::Relayed { .. })
            | HeadAction::ToClient(_, ClientReply::Samples(_))
            | HeadAction::ToClients(_, ClientReply::Samples(_))
    )
}

impl Writer {
    /// A head begins: its first write is the first.
    pub fn begin(&mut self) {
        self.next = self.next.max(1);
    }

    /// The latest record of a job that the disk does not have.
    pub fn unwritten(&self, job: JobId) -> Option<&JobRecord> {
        self.unwritten.get(&job).map(|(_, record)| record)
    }
}

impl World {
    /// What is known of a job, on the disk or not.
    pub fn record_of(&self, job: JobId) -> Option<&JobRecord> {
        self.head.writer.unwritten(job).or_else(|| self.head.records.get(&job))
    }

    /// The disk does not have the end of this job, and nodes will say it again.
    fn lacks_end(&self, job: JobId) -> bool {
        self.head.writer.unwritten(job.number()).is_some_and(nodes_can_repeat)
    }

    /// Whether this word to nodes waits until the disk has the end of a job.
    pub fn holds_forget(&mut self, action: &HeadAction) -> bool {
        let HeadAction::ToChild(link, nodes, Command::Forget { job }) = action else {
            return false;
        };
        let holds = self.lacks_end(*job);
        if holds {
            self.head.writer.ends.hold(*link, *job, nodes);
        }
        holds
    }

    /// Nodes may forget the jobs whose ends the disk has now.
    fn send_forgets(&mut self) {
        let mut ends = std::mem::take(&mut self.head.writer.ends);
        let recorded = ends.take_recorded(|job| !self.lacks_end(job));
        self.head.writer.ends = ends;
        for (link, nodes, job) in recorded {
            self.act_unless_dead(HeadAction::ToChild(link, nodes, Command::Forget { job }));
        }
    }

    /// The record is to be written with the next write.
    pub fn add_record(&mut self, record: JobRecord) {
        let writer = &mut self.head.writer;
        writer.needed = writer.next;
        writer.unwritten.insert(record.spec.job, (writer.next, record));
    }

    /// Takes an action of the head: it waits for the last record before it, unless it needs none.
    pub fn hold(&mut self, action: HeadAction) {
        if needs_no_record(&action) {
            return self.act_unless_dead(action);
        }
        let writer = &mut self.head.writer;
        writer.held.push_back((writer.needed, action));
    }

    /// Begins a write if there are new records and none is under way.
    pub fn write_records(&mut self) {
        if self.head.writer.needed == self.head.writer.next {
            self.begin_write();
        }
    }

    fn begin_write(&mut self) {
        let writer = &mut self.head.writer;
        if writer.writing.is_some() || writer.unwritten.is_empty() {
            return;
        }
        let number = writer.next;
        writer.next += 1;
        let records = writer.unwritten.values().map(|(_, record)| record.clone()).collect();
        writer.writing = Some((number, self.now, records));
        let epoch = self.head.current_epoch().unwrap_or(0);
        let time = match (self.head.writer.slow, self.random_hang()) {
            (true, true) => self.random.within(SLOWEST, HANGS),
            (true, false) => self.random.within(0, SLOWEST),
            (false, _) => 0,
        };
        if time == 0 {
            self.finish_write();
        } else {
            self.at(time, Event::Written { epoch, number });
        }
    }

    /// Whether the disk hangs in this write. Other disks draw no number.
    fn random_hang(&mut self) -> bool {
        self.head.writer.slow && self.random.chance(2)
    }

    /// The write is over, unless its head is gone or the disk has recovered since.
    pub fn written(&mut self, epoch: u64, number: u64) {
        let writing =
            self.head.writer.writing.as_ref().is_some_and(|(under_way, ..)| *under_way == number);
        if self.head.alive(epoch) && writing {
            self.finish_write();
            self.act_on_settled();
        }
    }

    fn finish_write(&mut self) {
        let Some((number, _, records)) = self.head.writer.writing.take() else { return };
        let writer = &mut self.head.writer;
        writer.settled = number;
        writer.failed = writer.full;
        if writer.failed {
            self.at(RETRY, Event::WriteAgain);
        } else {
            writer.unwritten.retain(|_, (write, _)| *write > number);
            self.head.records.extend(records.into_iter().map(|record| (record.spec.job, record)));
        }
        self.write_records();
    }

    /// Carries out what need not wait any more, in order.
    pub fn act_on_settled(&mut self) {
        self.send_forgets();
        loop {
            let writer = &mut self.head.writer;
            if writer.held.front().is_none_or(|(write, _)| *write > writer.settled) {
                return;
            }
            if let Some((_, action)) = writer.held.pop_front() {
                self.act_unless_dead(action);
            }
        }
    }

    /// Tries again to write what the disk did not take.
    pub fn write_again(&mut self) {
        if self.head.writer.failed {
            self.begin_write();
            self.act_on_settled();
        }
    }

    /// Whether the driver of the head refuses new jobs: it could lose them, or their users would wait without a word.
    pub fn refuses_jobs(&self) -> bool {
        let writer = &self.head.writer;
        let since = writer.writing.as_ref().map_or(self.now, |(_, since, _)| *since);
        writer.failed || self.now - since > SLOW
    }

    /// The process is gone, and with it what the disk had not taken. A write that was under way may have come to an end.
    pub fn writer_dies(&mut self) {
        let writer = std::mem::take(&mut self.head.writer);
        (self.head.writer.full, self.head.writer.slow) = (writer.full, writer.slow);
        self.head.writer.next = 1;
        if let Some((_, _, records)) = writer.writing
            && !writer.full
            && self.random.chance(50)
        {
            self.head.records.extend(records.into_iter().map(|record| (record.spec.job, record)));
        }
    }

    pub fn disk_fills(&mut self) {
        self.head.writer.full = !self.calm;
        self.soon(500 * MS, 2_500 * MS, Event::DiskHasRoom);
    }

    pub fn disk_has_room(&mut self) {
        self.head.writer.full = false;
    }

    pub fn disk_slows(&mut self) {
        self.head.writer.slow = !self.calm;
    }

    /// The disk takes everything at once from now on.
    pub fn disk_recovers(&mut self) {
        (self.head.writer.full, self.head.writer.slow) = (false, false);
        self.finish_write();
        self.act_on_settled();
    }
}
