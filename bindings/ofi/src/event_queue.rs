//! Event queues: what is told of objects, and what the program itself writes there.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::doorbell::Doorbell;
use crate::engine::Errno;
use crate::errors::{Answer, FI_EAGAIN, FI_EAVAIL, FI_ETOOSMALL};
use crate::idle;

/// A failure that is told by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// The object's `struct fid`.
    pub fid: usize,
    /// The program's word.
    pub context: usize,
    /// What the event says, as the number of the address that was refused.
    pub data: u64,
    /// Positive.
    pub error: Errno,
}

/// An event with its bytes, or a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// `FI_AV_COMPLETE` and the like.
    Success(u32, Vec<u8>),
    /// Something went wrong.
    Failure(Failure),
}

/// A queue of events in their order.
#[derive(Debug)]
pub struct EventQueue {
    events: Mutex<VecDeque<Event>>,
    doorbell: Option<Doorbell>,
}

impl EventQueue {
    /// An empty one. With `descriptor` it has one that is readable when events come.
    ///
    /// # Errors
    /// The system's error if there are too many descriptors.
    pub fn new(descriptor: bool) -> Result<EventQueue, Errno> {
        Ok(EventQueue {
            events: Mutex::default(),
            doorbell: descriptor.then(Doorbell::new).transpose()?,
        })
    }

    fn events(&self) -> MutexGuard<'_, VecDeque<Event>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an event at the end.
    pub fn push(&self, event: Event) {
        self.events().push_back(event);
        idle::note_event();
        if let Some(doorbell) = &self.doorbell {
            doorbell.ring();
        }
    }

    /// Gives the next event's number and bytes. It stays if `peek`.
    ///
    /// # Errors
    /// `FI_EAGAIN`: there is none. `FI_EAVAIL`: a failure is next. `FI_ETOOSMALL`: it has more than `room` bytes.
    pub fn read(&self, room: usize, peek: bool) -> Answer<(u32, Vec<u8>)> {
        let mut events = self.events();
        match events.front() {
            None => Err(FI_EAGAIN),
            Some(Event::Failure(_)) => Err(FI_EAVAIL),
            Some(Event::Success(_, bytes)) if bytes.len() > room => Err(FI_ETOOSMALL),
            Some(Event::Success(number, bytes)) if peek => Ok((*number, bytes.clone())),
            Some(Event::Success(..)) => match events.pop_front() {
                Some(Event::Success(number, bytes)) => Ok((number, bytes)),
                _ => Err(FI_EAGAIN),
            },
        }
    }

    /// Takes the failure that is next. It stays if `peek`.
    ///
    /// # Errors
    /// `FI_EAGAIN`: no failure is next.
    pub fn read_failure(&self, peek: bool) -> Answer<Failure> {
        let mut events = self.events();
        let Some(Event::Failure(failure)) = events.front() else { return Err(FI_EAGAIN) };
        let failure = *failure;
        if !peek {
            events.pop_front();
        }
        Ok(failure)
    }

    /// Nothing is there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events().is_empty()
    }

    /// What programs poll, if the queue was made so.
    #[must_use]
    pub fn descriptor(&self) -> Option<RawFd> {
        self.doorbell.as_ref().map(Doorbell::descriptor)
    }

    /// Whether a program may sleep on the descriptor now.
    pub fn may_sleep(&self) -> bool {
        let events = self.events();
        if !events.is_empty() {
            return false;
        }
        if let Some(doorbell) = &self.doorbell {
            doorbell.clear();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_in_order_and_stay_when_looked_at() {
        let queue = EventQueue::new(false).unwrap();
        assert_eq!(queue.read(8, false), Err(FI_EAGAIN));
        queue.push(Event::Success(5, vec![1, 2]));
        queue.push(Event::Success(6, vec![]));
        assert_eq!(queue.read(1, false), Err(FI_ETOOSMALL));
        assert_eq!(queue.read(2, true), Ok((5, vec![1, 2])));
        assert_eq!(queue.read(2, false), Ok((5, vec![1, 2])));
        assert_eq!(queue.read(0, false), Ok((6, vec![])));
        assert!(queue.is_empty());
    }

    #[test]
    fn a_failure_is_read_by_itself() {
        let queue = EventQueue::new(true).unwrap();
        let failure = Failure { fid: 1, context: 2, data: 3, error: 22 };
        assert!(queue.may_sleep());
        queue.push(Event::Failure(failure));
        assert!(!queue.may_sleep());
        assert_eq!(queue.read(64, false), Err(FI_EAVAIL));
        assert_eq!(queue.read_failure(true), Ok(failure));
        assert_eq!(queue.read_failure(false), Ok(failure));
        assert_eq!(queue.read_failure(false), Err(FI_EAGAIN));
    }
}
