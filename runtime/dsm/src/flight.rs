//! Gets under way: pages that somebody waits for, and pages that were asked for before somebody does.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kumi_coherence::{PageSet, PageState};
use kumi_mem::{Report, RequestHandle, Window};
use kumi_net::SharedBytesMut;

use crate::context::SharedContext;
use crate::error::Error;

/// Most bytes that are kept before somebody wants them.
const MOST_BYTES: usize = 16 << 20;
/// So many gets that nobody wants are kept until the next one: most of them are over by then.
const MOST_ABANDONED: usize = 16;

/// Memory for pages that arrive, used again and again: fresh memory would cost page faults of its own.
#[derive(Debug, Default)]
pub(crate) struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    fn take(&self, bytes: usize) -> Vec<u8> {
        let mut buffer = locked(&self.0).pop().unwrap_or_default();
        buffer.resize(bytes, 0);
        buffer
    }

    pub(crate) fn give(&self, buffer: Vec<u8>) {
        locked(&self.0).push(buffer);
    }
}

/// What a thread that panicked has left is whole: each step under these locks is.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A get under way into memory of its own.
pub(crate) struct Get {
    /// None when it is over.
    request: Option<RequestHandle>,
    /// Nobody touches it before that.
    buffer: Vec<u8>,
    buffers: Arc<Buffers>,
    context: SharedContext,
}

impl Get {
    /// Asks for bytes of a rank's piece of the window.
    pub(crate) fn start(
        window: &Window<'_>,
        context: &SharedContext,
        buffers: &Arc<Buffers>,
        (home, offset, bytes): (u32, usize, usize),
    ) -> Result<Get, Error> {
        let mut buffer = buffers.take(bytes);
        // SAFETY: the memory stays at its place, and nobody touches it, until the request is over: `finish` waits for that and `drop`
        // sees to it.
        let request = unsafe {
            let place = SharedBytesMut::from(&mut buffer[..]).lend();
            window.start_get(home, offset, place, Report::Handle)
        };
        let (buffers, context) = (Arc::clone(buffers), context.clone());
        Ok(Get { request: Some(request?), buffer, buffers, context })
    }

    /// Waits for the bytes. [`Buffers::give`] takes them back.
    pub(crate) fn finish(mut self) -> Result<Vec<u8>, Error> {
        if let Some(request) = self.request {
            self.context.wait(request)?;
            self.request = None;
        }
        Ok(std::mem::take(&mut self.buffer))
    }
}

impl Drop for Get {
    fn drop(&mut self) {
        if let Some(request) = self.request {
            // A request that is not there any more has ended with an error.
            let _ = self.context.release(request);
        }
        if !self.buffer.is_empty() {
            self.buffers.give(std::mem::take(&mut self.buffer));
        }
    }
}

/// Pages that nobody waits for yet.
pub(crate) struct Ahead {
    pub(crate) pages: Range<u32>,
    /// The stamp of their fetch, and the state of each when it began.
    pub(crate) stamp: u64,
    pub(crate) asked: Vec<PageState>,
    /// The node's changes before that.
    pub(crate) changes: u64,
    pub(crate) home: u32,
    pub(crate) get: Get,
}

/// All pages of this rank that were asked for before somebody wants them, by their first page.
pub(crate) struct AskedAhead {
    /// With a number that says which came first.
    by_first: Mutex<BTreeMap<u32, (u64, Ahead)>>,
    next: AtomicU64,
    most_pages: usize,
    /// Gets under way that nobody wants. Their answers come all the same, and a rank does not leave before they have.
    abandoned: Mutex<VecDeque<Get>>,
}

impl AskedAhead {
    pub(crate) fn new(page_bytes: usize) -> AskedAhead {
        let (by_first, next, abandoned) = Default::default();
        AskedAhead { by_first, next, most_pages: MOST_BYTES / page_bytes, abandoned }
    }

    /// Takes what was asked for with this page.
    pub(crate) fn take(&self, page: u32) -> Option<Ahead> {
        let mut all = locked(&self.by_first);
        let (first, (_, found)) = all.range(..=page).next_back()?;
        let (first, wanted) = (*first, found.pages.contains(&page));
        let (_, taken) = wanted.then(|| all.remove(&first)).flatten()?;
        Some(taken)
    }

    /// Takes all.
    pub(crate) fn take_all(&self) -> Vec<Ahead> {
        let all = std::mem::take(&mut *locked(&self.by_first));
        all.into_values().map(|(_, ahead)| ahead).collect()
    }

    /// The pages of a range that were not asked for.
    pub(crate) fn others(&self, range: Range<u32>) -> PageSet {
        let all = locked(&self.by_first);
        let mut pages: PageSet = std::iter::once(range.clone()).collect();
        // One that begins before the range may reach into it.
        let before = all.range(..range.start).next_back();
        let asked = before.into_iter().chain(all.range(range));
        pages.subtract(&asked.map(|(_, (_, ahead))| ahead.pages.clone()).collect());
        pages
    }

    /// Notes what was asked for. Returns what had to be given up for it.
    pub(crate) fn add(&self, ahead: Ahead) -> Vec<Ahead> {
        let mut all = locked(&self.by_first);
        let mut kept: usize = all.values().map(|(_, one)| one.pages.len()).sum();
        let entry = (self.next.fetch_add(1, Ordering::Relaxed), ahead);
        let replaced = all.insert(entry.1.pages.start, entry);
        let mut given_up: Vec<Ahead> = replaced.into_iter().map(|(_, old)| old).collect();
        while kept > self.most_pages {
            let oldest = all.values().min_by_key(|(number, _)| *number);
            let oldest = oldest.map(|(_, one)| one.pages.start);
            let Some((_, oldest)) = oldest.and_then(|first| all.remove(&first)) else { break };
            kept -= oldest.pages.len();
            given_up.push(oldest);
        }
        given_up
    }

    /// Takes all that has one of these pages, which others have written.
    pub(crate) fn take_stale(&self, stale: &PageSet) -> Vec<Ahead> {
        let mut all = locked(&self.by_first);
        if all.is_empty() || stale.is_empty() {
            return Vec::new();
        }
        let is_old = |ahead: &Ahead| ahead.pages.clone().any(|page| stale.contains(page));
        let old = all.iter().filter(|(_, (_, ahead))| is_old(ahead)).map(|(first, _)| *first);
        let old: Vec<u32> = old.collect();
        old.iter().filter_map(|first| all.remove(first)).map(|(_, ahead)| ahead).collect()
    }

    /// Keeps a get that nobody wants, until it is over. Returns another one that has to be finished now.
    pub(crate) fn abandon(&self, get: Get) -> Option<Get> {
        let mut abandoned = locked(&self.abandoned);
        abandoned.push_back(get);
        (abandoned.len() > MOST_ABANDONED).then(|| abandoned.pop_front()).flatten()
    }

    /// Takes all that nobody wants.
    pub(crate) fn take_abandoned(&self) -> Vec<Get> {
        std::mem::take(&mut *locked(&self.abandoned)).into()
    }
}
