//! Conditions of one rank: its own calls, and what it manages for others.

use alloc::vec::Vec;

use super::Coherence;
use crate::error::Misuse;
use crate::event::{Event, Events};
use crate::message::Message;
use crate::notices::Interval;
use crate::{Rank, Ticket};

impl Coherence {
    /// A condition holds from now on; what this rank wrote in this epoch is visible to those who wait for it.
    ///
    /// # Errors
    /// None, as long as this rank keeps to the protocol with itself.
    pub fn set_condition(&mut self, condition: u32) -> Result<Events, Misuse> {
        let mut events = Events::new();
        let intervals = self.notices.everything();
        let message = Message::ConditionSet { condition, departed: self.departed, intervals };
        self.send(condition % self.ranks(), message, &mut events);
        self.take_own(events)
    }

    /// A condition does not hold any more.
    ///
    /// # Errors
    /// None, as long as this rank keeps to the protocol with itself.
    pub fn reset_condition(&mut self, condition: u32) -> Result<Events, Misuse> {
        let mut events = Events::new();
        self.send(condition % self.ranks(), Message::ConditionReset { condition }, &mut events);
        self.take_own(events)
    }

    /// Waits until a condition holds.
    ///
    /// # Errors
    /// None, as long as this rank keeps to the protocol with itself.
    pub fn wait_condition(&mut self, condition: u32, ticket: Ticket) -> Result<Events, Misuse> {
        let mut events = Events::new();
        if self.conditions.wait(condition, ticket) {
            self.send(condition % self.ranks(), Message::ConditionWait { condition }, &mut events);
        }
        self.take_own(events)
    }

    pub(super) fn take_condition(
        &mut self,
        from: Rank,
        message: Message,
        events: &mut Events,
    ) -> Result<(), &'static str> {
        match message {
            Message::ConditionSet { condition, intervals, .. } => {
                self.check_intervals(&intervals)?;
                let (waiting, intervals) = self.conditions.set(condition, intervals);
                for rank in waiting {
                    self.grant_condition(rank, condition, intervals.clone(), events);
                }
            }
            Message::ConditionReset { condition } => self.conditions.reset(condition),
            Message::ConditionWait { condition } => {
                if let Some(intervals) = self.conditions.asked(condition, from) {
                    self.grant_condition(from, condition, intervals, events);
                }
            }
            Message::ConditionGrant { condition, intervals, .. } => {
                self.check_intervals(&intervals)?;
                let new = self.notices.learn(intervals);
                self.written_by_others(&new);
                for ticket in self.conditions.granted(condition) {
                    events.push(Event::Resume { ticket, acquired: self.stale.acquire() });
                }
            }
            _ => return Err("no message of conditions"),
        }
        Ok(())
    }

    fn grant_condition(
        &mut self,
        to: Rank,
        condition: u32,
        intervals: Vec<Interval>,
        events: &mut Events,
    ) {
        let departed = self.departed;
        self.send(to, Message::ConditionGrant { condition, departed, intervals }, events);
    }
}
