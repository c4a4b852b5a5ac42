//! Completion queues: the ends of requests, each with a word of the program's own, in the order in which they come.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock};

use kumi_net::Wait;

use crate::context::{AwaitedCleanup, Context};
use crate::error::Error;
use crate::request::Outcome;
use crate::request::table::ReportTo;

/// Collects the ends of requests that were begun with it (see [`crate::Report::Queue`]).
///
/// Dropping it does not end its requests; their ends are told nobody then.
#[derive(Debug)]
pub struct CompletionQueue<'c> {
    context: &'c Context,
    number: u64,
    /// Readable while there are entries, if somebody has asked for it.
    signal: OnceLock<Arc<File>>,
}

/// The end of a request.
#[derive(Debug)]
pub struct CompletionEntry {
    /// The word that the request was begun with.
    pub word: u64,
    /// How it ended.
    pub result: Result<Outcome, Error>,
}

impl Context {
    /// A new completion queue.
    ///
    /// # Errors
    /// [`Error::Fault`].
    pub fn completion_queue(&self) -> Result<CompletionQueue<'_>, Error> {
        let number = self.channel.lock()?.handler().completion_queues.open();
        Ok(CompletionQueue { context: self, number, signal: OnceLock::new() })
    }
}

impl CompletionQueue<'_> {
    /// The next entry, if there is one.
    ///
    /// # Errors
    /// [`Error::Fault`], [`Error::Io`], [`Error::HandlerPanicked`].
    pub fn poll(&self) -> Result<Option<CompletionEntry>, Error> {
        self.context.check_handlers()?;
        let mut guard = self.context.channel.lock()?;
        if let Some(entry) = guard.handler().completion_queues.pop(self.number) {
            return Ok(Some(entry));
        }
        guard.progress()?;
        let engine = guard.handler();
        match engine.completion_queues.pop(self.number) {
            Some(entry) => Ok(Some(entry)),
            None => engine.check_fault().map(|()| None),
        }
    }

    /// Waits for the next entry.
    ///
    /// # Errors
    /// As [`CompletionQueue::poll`]; [`Error::NoRequests`] if no request is under way that would be told here.
    pub fn wait(&self) -> Result<CompletionEntry, Error> {
        self.context.check_handlers()?;
        let mut seen = None;
        let over = AwaitedCleanup(self.context);
        let result = self.context.await_only(Wait::Frames, |guard| {
            let engine = guard.handler();
            if let Some(entry) = engine.completion_queues.pop(self.number) {
                return Ok(Some(entry));
            }
            if !engine.completion_queues.expects(self.number) {
                return Err(Error::NoRequests);
            }
            // Once for each time that something may have changed it.
            let ends = Some(engine.ends);
            if std::mem::replace(&mut seen, ends) != ends {
                engine.await_reports(ReportTo::Queue(self.number, 0));
            }
            Ok(None)
        });
        drop(over);
        result
    }

    /// A descriptor that is readable while there are entries, for event loops (`poll`, `epoll`, asyncio). Whoever drives the
    /// channel makes it so, also the library's own thread while the program is in its loop. [`CompletionQueue::poll`] and
    /// [`CompletionQueue::wait`] make it unreadable when they take the last entry: take all that are there. Do not read it.
    ///
    /// # Errors
    /// [`Error::Io`] if the process has too many open files, [`Error::Fault`].
    pub fn descriptor(&self) -> Result<BorrowedFd<'_>, Error> {
        if let Some(signal) = self.signal.get() {
            return Ok(signal.as_fd());
        }
        let made = Arc::new(File::from(kumi_net::sys::doorbell()?));
        let signal = self.signal.get_or_init(|| made);
        self.context.channel.lock()?.handler().completion_queues.show(self.number, signal);
        // Ranks of this node ring for what they send from here on.
        self.context.serve_same_node()?;
        Ok(signal.as_fd())
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether it belongs to this context.
    pub(crate) fn check(&self, context: &Context) -> Result<(), Error> {
        if std::ptr::eq(self.context, context) { Ok(()) } else { Err(Error::ForeignCompletion) }
    }
}

impl Drop for CompletionQueue<'_> {
    fn drop(&mut self) {
        if self.context.is_copy() {
            return;
        }
        // Without the lock the channel is broken and the tables are as good as gone.
        if let Ok(mut guard) = self.context.channel.lock() {
            guard.handler().completion_queues.close(self.number);
        }
    }
}

#[derive(Debug, Default)]
struct EntryQueue {
    entries: VecDeque<CompletionEntry>,
    /// Requests under way that will have an entry.
    expected: u64,
    /// Readable while there are entries.
    signal: Option<Arc<File>>,
}

impl EntryQueue {
    fn show(&self) {
        if let (Some(signal), false) = (&self.signal, self.entries.is_empty()) {
            // A full counter is readable already; there is no other failure.
            let _ = (&**signal).write_all(&1u64.to_ne_bytes());
        }
    }

    fn pop(&mut self) -> Option<CompletionEntry> {
        let entry = self.entries.pop_front();
        if let (Some(signal), true, true) = (&self.signal, entry.is_some(), self.entries.is_empty())
        {
            // Takes all that was counted.
            let _ = (&**signal).read_exact(&mut [0; 8]);
        }
        entry
    }
}

/// All completion queues of a rank.
#[derive(Debug, Default)]
pub(crate) struct CompletionQueues {
    queues: HashMap<u64, EntryQueue>,
    next: u64,
}

impl CompletionQueues {
    fn open(&mut self) -> u64 {
        self.next += 1;
        self.queues.insert(self.next, EntryQueue::default());
        self.next
    }

    fn close(&mut self, number: u64) {
        self.queues.remove(&number);
    }

    fn pop(&mut self, number: u64) -> Option<CompletionEntry> {
        self.queues.get_mut(&number)?.pop()
    }

    /// From here on this shows whether there are entries.
    fn show(&mut self, number: u64, signal: &Arc<File>) {
        if let Some(queue) = self.queues.get_mut(&number) {
            queue.signal = Some(Arc::clone(signal));
            queue.show();
        }
    }

    /// Whether somebody wants to be woken by entries.
    pub(crate) fn any_shown(&self) -> bool {
        self.queues.values().any(|queue| queue.signal.is_some())
    }

    fn expects(&self, number: u64) -> bool {
        self.queues.get(&number).is_some_and(|queue| queue.expected > 0)
    }

    /// A request has begun that is to be told there.
    pub(crate) fn request_begun(&mut self, number: u64) {
        if let Some(queue) = self.queues.get_mut(&number) {
            queue.expected += 1;
        }
    }

    /// It is over, or was released and will not be told.
    pub(crate) fn request_ended(&mut self, number: u64, entry: Option<CompletionEntry>) {
        if let Some(queue) = self.queues.get_mut(&number) {
            queue.expected -= 1;
            if let Some(entry) = entry {
                queue.entries.push_back(entry);
                queue.show();
            }
        }
    }
}
