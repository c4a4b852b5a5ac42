//! Completion queues: what is told of operations, in the order in which they ended.

use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::doorbell::Doorbell;
use crate::engine::Errno;
use crate::idle;
use crate::operation::Success;

/// An operation that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The program's word.
    pub context: usize,
    /// What it was, and what is known of it: `FI_RECV | FI_TAGGED | FI_REMOTE_CQ_DATA`.
    pub flags: u64,
    /// What it has.
    pub known: Success,
    /// The positive error and the bytes that did not fit, if it failed.
    pub failure: Option<(Errno, usize)>,
}

/// What reading came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// So many entries were given.
    Entries(usize),
    /// A failure is next. It must be read by itself.
    Failure,
    /// There is nothing.
    Nothing,
}

/// A queue that grows with what is in it, so no completion is lost.
#[derive(Debug)]
pub struct CompletionQueue {
    entries: Mutex<VecDeque<Entry>>,
    /// Entries, to be looked at without the lock.
    count: AtomicUsize,
    signalled: AtomicBool,
    doorbell: Option<Doorbell>,
}

impl CompletionQueue {
    /// An empty queue with room for `size` entries. With `descriptor` it has one that is readable when entries come.
    ///
    /// # Errors
    /// The system's error if there are too many descriptors.
    pub fn new(size: usize, descriptor: bool) -> Result<CompletionQueue, Errno> {
        let doorbell = descriptor.then(Doorbell::new).transpose()?;
        let entries = Mutex::new(VecDeque::with_capacity(size.min(4096)));
        Ok(CompletionQueue {
            entries,
            count: AtomicUsize::new(0),
            signalled: AtomicBool::new(false),
            doorbell,
        })
    }

    fn entries(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an entry at the end, and wakes who waits for the descriptor.
    pub fn push(&self, entry: Entry) {
        let entry_is_news = entry.failure.is_none_or(|(error, _)| error != libc::ENOMSG);
        {
            let mut entries = self.entries();
            entries.push_back(entry);
            self.count.store(entries.len(), Ordering::Release);
        }
        // That there is no message is no news: programs ask for one again and again while they wait.
        if entry_is_news {
            idle::note_event();
        }
        if let Some(doorbell) = &self.doorbell {
            doorbell.ring();
        }
    }

    /// Entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// No entry is there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a failure is next.
    #[must_use]
    pub fn has_failure(&self) -> bool {
        !self.is_empty() && self.entries().front().is_some_and(|entry| entry.failure.is_some())
    }

    /// Takes at most `most` successes up to the next failure, and gives `each` their number in this call and the entry.
    pub fn take(&self, most: usize, mut each: impl FnMut(usize, &Entry)) -> Taken {
        if self.is_empty() {
            return Taken::Nothing;
        }
        let mut entries = self.entries();
        match entries.front() {
            None => return Taken::Nothing,
            Some(entry) if entry.failure.is_some() => return Taken::Failure,
            Some(_) => {}
        }
        let mut taken = 0;
        while let Some(entry) =
            entries.front().filter(|entry| taken < most && entry.failure.is_none())
        {
            each(taken, entry);
            entries.pop_front();
            taken += 1;
        }
        self.count.store(entries.len(), Ordering::Release);
        Taken::Entries(taken)
    }

    /// Takes the failure that is next.
    pub fn take_failure(&self) -> Option<Entry> {
        let mut entries = self.entries();
        entries.front()?.failure?;
        let entry = entries.pop_front();
        self.count.store(entries.len(), Ordering::Release);
        entry
    }

    /// Lets one waiting read return.
    pub fn signal(&self) {
        // With the lock: a program that is about to sleep sees the signal or hears the bell.
        let _entries = self.entries();
        self.signalled.store(true, Ordering::Release);
        if let Some(doorbell) = &self.doorbell {
            doorbell.ring();
        }
    }

    /// Whether there is a signal that no read has seen.
    #[must_use]
    pub fn is_signalled(&self) -> bool {
        self.signalled.load(Ordering::Acquire)
    }

    /// Takes the signal.
    pub fn take_signal(&self) -> bool {
        self.signalled.swap(false, Ordering::AcqRel)
    }

    /// What programs poll, if the queue was made so.
    #[must_use]
    pub fn descriptor(&self) -> Option<RawFd> {
        self.doorbell.as_ref().map(Doorbell::descriptor)
    }

    /// Whether a program may sleep on the descriptor now: nothing is there, and it becomes readable with the next entry. A
    /// signal is taken: it keeps the program awake once.
    pub fn may_sleep(&self) -> bool {
        // Entries come under the lock and ring after it: what comes later finds the bell cleared.
        let entries = self.entries();
        if !entries.is_empty() || self.take_signal() {
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

    fn success(context: usize) -> Entry {
        Entry { context, flags: 0, known: Success::default(), failure: None }
    }

    fn failure(context: usize) -> Entry {
        Entry { failure: Some((5, 0)), ..success(context) }
    }

    fn contexts(queue: &CompletionQueue, most: usize) -> (Taken, Vec<usize>) {
        let mut contexts = Vec::new();
        let taken = queue.take(most, |at, entry| {
            assert_eq!(at, contexts.len());
            contexts.push(entry.context);
        });
        (taken, contexts)
    }

    #[test]
    fn no_message_is_no_news() {
        let queue = CompletionQueue::new(4, false).unwrap();
        let failed = |error| Entry { failure: Some((error, 0)), ..success(1) };
        // Other tests of the process have events, too; none of them can take one back.
        let quiet = (0..100).any(|_| {
            let before = idle::events();
            queue.push(failed(libc::ENOMSG));
            idle::events() == before
        });
        assert!(quiet);
        let before = idle::events();
        queue.push(failed(libc::ECANCELED));
        assert!(idle::events() > before);
    }

    #[test]
    fn entries_come_in_order_and_no_more_than_asked() {
        let queue = CompletionQueue::new(1, false).unwrap();
        assert_eq!(contexts(&queue, 4), (Taken::Nothing, vec![]));
        (1..=5).for_each(|context| queue.push(success(context)));
        assert_eq!(contexts(&queue, 3), (Taken::Entries(3), vec![1, 2, 3]));
        assert_eq!(queue.len(), 2);
        assert_eq!(contexts(&queue, 3), (Taken::Entries(2), vec![4, 5]));
    }

    #[test]
    fn a_failure_stops_reading_until_it_is_read() {
        let queue = CompletionQueue::new(8, false).unwrap();
        queue.push(success(1));
        queue.push(failure(2));
        queue.push(success(3));
        assert_eq!(queue.take_failure(), None);
        assert_eq!(contexts(&queue, 8), (Taken::Entries(1), vec![1]));
        assert_eq!(contexts(&queue, 8), (Taken::Failure, vec![]));
        assert!(queue.has_failure());
        assert_eq!(queue.take_failure().unwrap().context, 2);
        assert_eq!(contexts(&queue, 8), (Taken::Entries(1), vec![3]));
        assert_eq!(queue.take_failure(), None);
    }

    #[test]
    fn entries_of_several_threads_come_once_each() {
        let queue = CompletionQueue::new(8, true).unwrap();
        let mut seen = vec![0; 4000];
        std::thread::scope(|scope| {
            for first in 0..4 {
                let queue = &queue;
                scope.spawn(move || {
                    (0..1000).for_each(|next| queue.push(success(first * 1000 + next)));
                });
            }
            let mut latest = [None; 4];
            let mut left = seen.len();
            while left > 0 {
                if let Taken::Entries(count) = queue.take(7, |_, entry| {
                    seen[entry.context] += 1;
                    let thread = entry.context / 1000;
                    assert!(latest[thread] < Some(entry.context), "in each thread's order");
                    latest[thread] = Some(entry.context);
                }) {
                    left -= count;
                }
            }
        });
        assert!(seen.iter().all(|times| *times == 1));
        assert!(queue.is_empty());
    }

    #[test]
    fn a_program_may_sleep_only_on_an_empty_queue() {
        let queue = CompletionQueue::new(8, true).unwrap();
        assert!(queue.descriptor().is_some());
        assert!(queue.may_sleep());
        queue.push(success(1));
        assert!(!queue.may_sleep());
        queue.take(1, |_, _| ());
        assert!(queue.may_sleep());
        queue.signal();
        assert!(!queue.may_sleep());
        assert!(queue.may_sleep());
        queue.signal();
        assert!(queue.take_signal());
        assert!(!queue.take_signal());
    }
}
