//! Faults of the head's machine: a wall clock that jumps, a process that stalls. Those of its disk are the writer's.

use std::collections::VecDeque;

use kumi_control::head::HeadEvent;
use kumi_control::tree::Parent;

use crate::world::{Event, LEASE, LONGEST_STALL, MS, SILENCE, World};

/// The state of the head's machine.
#[derive(Default)]
pub struct HeadMachine {
    /// What happened while the head stood still, in order.
    deferred: VecDeque<HeadEvent>,
    stalled_until: u64,
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
    /// For how long is drawn.
    pub fn head_stalls_for_some_time(&mut self) {
        let long = self.scenario.faults.long_stalls;
        let longest = if long { LONGEST_STALL } else { 2 * LEASE };
        let time = self.random.within(500 * MS, longest);
        self.head_stalls(time);
    }

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

    /// The process is gone, and with it what waited for it.
    pub fn head_machine_restarts(&mut self) {
        let machine = &mut self.head.machine;
        machine.deferred.clear();
        machine.stalled_until = 0;
        self.writer_dies();
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
        machine.stalled_until = machine.stalled_until.min(self.now);
        self.disk_recovers();
        self.head_wakes();
    }
}
