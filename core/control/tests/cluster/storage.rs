//! Faults of the head's machine: a disk that is full or slow, a wall clock that jumps, a process that stalls.

use std::collections::{BTreeMap, VecDeque};

use kumi_control::head::HeadEvent;
use kumi_control::message::JobRecord;
use kumi_control::tree::Parent;
use kumi_sched::JobId;

use crate::world::{Event, MS, SILENCE, World};

/// Between attempts to write what the disk did not take.
const RETRY: u64 = 1_000 * MS;

/// The state of the head's machine.
#[derive(Default)]
pub struct HeadMachine {
    /// What happened while the head stood still, in order.
    deferred: VecDeque<HeadEvent>,
    stalled_until: u64,
    disk_full: bool,
    /// Each write takes up to this long, and the head waits for it.
    slowest_write: u64,
    /// Records that the disk did not take; the head has them in memory.
    pub unwritten: BTreeMap<JobId, JobRecord>,
    /// By how much the wall clock is wrong, in milliseconds.
    pub wall_error_ms: i64,
}

impl HeadMachine {
    /// Whether the head stood still at that moment or later.
    pub fn stood_still_since(&self, moment: u64) -> bool {
        self.stalled_until >= moment
    }
}

impl World {
    /// Stops the head's process for a while: what comes meanwhile waits in its sockets.
    pub fn head_stalls(&mut self, time: u64) {
        if time >= self.scenario.lease() / 2 {
            // Leases may run out meanwhile, and nodes then end their jobs.
            for node in 0..self.scenario.nodes {
                self.ledger.disturbed.insert(node, self.now + time);
            }
        }
        let machine = &mut self.head.machine;
        machine.stalled_until = machine.stalled_until.max(self.now + time);
        let delay = machine.stalled_until - self.now;
        self.at(delay, Event::HeadWakes);
        if time > SILENCE {
            self.at(SILENCE, Event::HeadIsSilent);
        }
    }

    /// Those whose parent is the head have heard nothing of it for too long, and look for another.
    pub fn head_is_silent(&mut self) {
        if self.head_stands_still() {
            self.break_links_of(Parent::Head);
        }
    }

    /// Whether the head answers nobody now.
    pub fn head_stands_still(&self) -> bool {
        self.now < self.head.machine.stalled_until
    }

    /// Takes an event that comes while the head stands still, or while older ones wait; gives it back otherwise.
    pub fn while_stalled(&mut self, event: HeadEvent) -> Option<HeadEvent> {
        let machine = &mut self.head.machine;
        if self.now >= machine.stalled_until && machine.deferred.is_empty() {
            return Some(event);
        }
        machine.deferred.push_back(event);
        None
    }

    /// The head goes on with what waited for it, up to the next stall.
    pub fn head_wakes(&mut self) {
        while self.now >= self.head.machine.stalled_until {
            let Some(event) = self.head.machine.deferred.pop_front() else { return };
            self.head_handles(event);
        }
    }

    /// The process is gone, and with it what waited for it and what the disk had not taken.
    pub fn head_machine_restarts(&mut self) {
        let machine = &mut self.head.machine;
        machine.deferred.clear();
        machine.unwritten.clear();
        machine.stalled_until = 0;
    }

    /// Writes a record, or keeps it until the disk takes it.
    pub fn write_record(&mut self, record: JobRecord) {
        let slowest = self.head.machine.slowest_write;
        if slowest > 0 {
            let time = self.random.within(0, slowest);
            self.head_stalls(time);
        }
        let machine = &mut self.head.machine;
        if machine.disk_full && machine.unwritten.is_empty() {
            self.at(RETRY, Event::WriteAgain);
        }
        let machine = &mut self.head.machine;
        machine.unwritten.insert(record.spec.job, record);
        if !machine.disk_full {
            self.head.records.append(&mut self.head.machine.unwritten);
        }
    }

    /// Tries again to write what the disk did not take.
    pub fn write_again(&mut self) {
        if self.head.machine.disk_full {
            self.at(RETRY, Event::WriteAgain);
        } else {
            self.head.records.append(&mut self.head.machine.unwritten);
        }
    }

    /// Whether the driver of the head refuses new jobs because it could lose them.
    pub fn refuses_jobs(&self) -> bool {
        !self.head.machine.unwritten.is_empty()
    }

    pub fn disk_fills(&mut self) {
        self.head.machine.disk_full = true;
        self.soon(500 * MS, 2_500 * MS, Event::DiskHasRoom);
    }

    pub fn disk_has_room(&mut self) {
        self.head.machine.disk_full = false;
    }

    pub fn disk_slows(&mut self) {
        self.head.machine.slowest_write = 100 * MS;
    }

    /// Sets the wall clock wrong by up to an hour, forward or back.
    pub fn wall_clock_jumps(&mut self) {
        let hour = 3_600_000;
        let error = self.random.within(0, 2 * hour);
        self.head.machine.wall_error_ms =
            i64::try_from(error).expect("hours") - i64::try_from(hour).expect("an hour");
    }

    /// No more faults of the machine.
    pub fn head_machine_recovers(&mut self) {
        let machine = &mut self.head.machine;
        machine.disk_full = false;
        machine.slowest_write = 0;
        machine.stalled_until = machine.stalled_until.min(self.now);
        self.head_wakes();
    }
}
