//! What this rank's program sees: its view, which copy of each page it needs, and what it has written.

use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use kumi_coherence::{Acquired, PageSet};
use zerocopy::FromZeros;

use crate::error::Error;
use crate::node_copy::NodeCopy;
use crate::view::View;

/// See the module.
pub(crate) struct RankView {
    view: View,
    node: Arc<NodeCopy>,
    /// By page: the stamp that a fetch must have, 0 for any.
    needs: Box<[AtomicU64]>,
    /// A page is shown under this lock for reading, and needs rise under it for writing: so no page stays that is too old.
    acquiring: RwLock<()>,
    /// Pages that were written and are out of sight, for the next collection.
    written: Mutex<Vec<Range<u64>>>,
}

fn wide(pages: &Range<u32>) -> Range<u64> {
    pages.start.into()..pages.end.into()
}

/// No page's number is 2^32 or more: there are no more than the protocol can name.
fn narrow(pages: &Range<u64>) -> Range<u32> {
    pages.start as u32..pages.end as u32
}

/// What a thread that panicked has left is whole: each step under these locks is.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RankView {
    pub(crate) fn new(view: View, node: Arc<NodeCopy>) -> Result<RankView, Error> {
        let pages = view.units() as usize;
        let full = |_| kumi_mem::Error::OutOfMemory {
            bytes: pages as u64 * 8,
            what: "the stamps of this rank's pages",
        };
        // Zeros that nobody touches take no memory.
        let needs = <[AtomicU64]>::new_box_zeroed_with_elems(pages).map_err(full)?;
        let (acquiring, written) = (RwLock::default(), Mutex::default());
        Ok(RankView { view, node, needs, acquiring, written })
    }

    pub(crate) fn view(&self) -> &View {
        &self.view
    }

    /// The stamp that this rank needs of a page.
    pub(crate) fn need(&self, page: u32) -> u64 {
        self.needs[page as usize].load(Acquire)
    }

    /// Shows pages that have their home on this node.
    pub(crate) fn show_home(&self, pages: &Range<u32>) -> Result<(), Error> {
        Ok(self.view.map(wide(pages))?)
    }

    /// Shows the first of these pages whose copies are as new as needed; how many.
    pub(crate) fn show_copies(&self, pages: &Range<u32>) -> Result<u32, Error> {
        let _acquiring = self.acquiring.read().unwrap_or_else(PoisonError::into_inner);
        let mut end = pages.start;
        while end < pages.end {
            let state = self.node.state(end)?;
            if state.fetched_at == 0 || state.home || state.fetched_at < self.need(end) {
                break;
            }
            end += 1;
        }
        if end > pages.start {
            self.view.map(wide(&(pages.start..end)))?;
        }
        Ok(end - pages.start)
    }

    /// Takes what others wrote out of sight; the pages of it that were visible. What this rank has written there counts for its
    /// next release.
    pub(crate) fn acquire(&self, acquired: &Acquired) -> Result<PageSet, Error> {
        let mut used = PageSet::new();
        let stamp = match acquired.epoch {
            Some(epoch) => self.node.barrier_stamp(epoch),
            None if acquired.stale.is_empty() => return Ok(used),
            None => self.node.next_stamp(),
        };
        self.node.will_change(acquired.homed.pages() as usize);
        for page in acquired.homed.ranges().iter().cloned().flatten() {
            self.node.become_home(page)?;
        }
        let _acquiring = self.acquiring.write().unwrap_or_else(PoisonError::into_inner);
        let mut written = locked(&self.written);
        for pages in acquired.stale.ranges() {
            for need in &self.needs[pages.start as usize..pages.end as usize] {
                // Two threads may acquire at once, and the one with the older stamp come last.
                need.fetch_max(stamp, Release);
            }
            for visible in self.view.visible(wide(pages))? {
                used.insert(narrow(&visible));
            }
        }
        let stale: Vec<_> = acquired.stale.ranges().iter().map(wide).collect();
        self.view.drop_all(&stale, &mut written)?;
        Ok(used)
    }

    /// The pages before `end` that this rank has written since it was asked last.
    pub(crate) fn collect(&self, end: u32) -> Result<PageSet, Error> {
        // Kept until the view was asked: else another thread's acquire could note in between what it took out of sight.
        let mut written = locked(&self.written);
        self.view.collect(0..end.into(), &mut written)?;
        Ok(std::mem::take(&mut *written).iter().map(narrow).collect())
    }
}
