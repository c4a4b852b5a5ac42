//! The views of this process, found by address without a lock.

use std::ops::Range;
use std::ptr;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicPtr, AtomicUsize};
use std::sync::{Arc, Mutex, PoisonError};

use kumi_net::ForkCheck;

use crate::view::Pages;
use crate::view::error::ViewError;

/// Most views of a process at the same time.
pub const MOST_VIEWS: usize = 16;

/// A view that handlers find. `start`, `end` and `pages` are written by who holds [`CHANGES`]; `start` and `end` only while
/// `pages` is null and nobody is in a handler for it.
struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    pages: AtomicPtr<Pages>,
    /// Threads that look at `pages`, or use what they found there.
    users: AtomicUsize,
}

static SLOTS: [Slot; MOST_VIEWS] = [const {
    Slot {
        start: AtomicUsize::new(0),
        end: AtomicUsize::new(0),
        pages: AtomicPtr::new(ptr::null_mut()),
        users: AtomicUsize::new(0),
    }
}; MOST_VIEWS];

/// Views in the table. Programs that have none are asked whether an address is in one at each of their system calls.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Whether there are views.
pub(in crate::view) fn any() -> bool {
    COUNT.load(SeqCst) != 0
}

/// Held while the table changes; never in a handler.
static CHANGES: Mutex<()> = Mutex::new(());

/// A view that stays while this value exists.
pub(in crate::view) struct Found {
    slot: &'static Slot,
    pages: *const Pages,
}

impl Found {
    /// The view in which an address is.
    pub(in crate::view) fn at(address: usize) -> Option<Found> {
        SLOTS.iter().find_map(|slot| {
            if !slot.contains(address) {
                return None;
            }
            slot.users.fetch_add(1, SeqCst);
            let found = Found { slot, pages: slot.pages.load(SeqCst) };
            // Another view may have taken the place meanwhile.
            (!found.pages.is_null() && slot.contains(address)).then_some(found)
        })
    }

    /// The first address of a range that is in a view, with that view.
    pub(in crate::view) fn next(addresses: Range<usize>) -> Option<(Found, usize)> {
        let mut at = addresses.start;
        while at < addresses.end {
            if let Some(found) = Found::at(at) {
                return Some((found, at));
            }
            let starts = SLOTS.iter().map(|slot| slot.start.load(SeqCst));
            at = starts.filter(|start| *start > at).min()?;
        }
        None
    }

    pub(in crate::view) fn pages(&self) -> &Pages {
        // SAFETY: not null, and the registration keeps it alive: whoever ends that first takes the address out of the slot, then
        // waits until nobody counts as a user. This value counted itself before it read the address.
        unsafe { &*self.pages }
    }
}

impl Drop for Found {
    fn drop(&mut self) {
        self.slot.users.fetch_sub(1, SeqCst);
    }
}

impl Slot {
    fn contains(&self, address: usize) -> bool {
        (self.start.load(SeqCst)..self.end.load(SeqCst)).contains(&address)
    }
}

/// A place in the table.
pub(in crate::view) struct Registration {
    slot: &'static Slot,
    /// What the slot points to.
    pages: Arc<Pages>,
}

impl Registration {
    pub(in crate::view) fn new(pages: &Arc<Pages>) -> Result<Registration, ViewError> {
        let _changes = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
        let free = SLOTS.iter().find(|slot| slot.pages.load(SeqCst).is_null());
        let slot = free.ok_or(ViewError::TooManyViews { most: MOST_VIEWS })?;
        let addresses = pages.space.addresses();
        slot.start.store(addresses.start, SeqCst);
        slot.end.store(addresses.end, SeqCst);
        slot.pages.store(Arc::as_ptr(pages).cast_mut(), SeqCst);
        COUNT.fetch_add(1, SeqCst);
        Ok(Registration { slot, pages: Arc::clone(pages) })
    }

    /// Takes the view out of the table and waits until no handler uses it. In a child of the process nobody does: the other
    /// threads are not there.
    pub(in crate::view) fn end(&self, forks: ForkCheck) {
        if forks.is_child() {
            // The lock may be held by a thread that is not there. The addresses stay known, so that faults are explained. So what
            // the slot points to stays, too.
            std::mem::forget(Arc::clone(&self.pages));
            return;
        }
        let _changes = CHANGES.lock().unwrap_or_else(PoisonError::into_inner);
        self.slot.pages.store(ptr::null_mut(), SeqCst);
        while self.slot.users.load(SeqCst) != 0 {
            std::thread::yield_now();
        }
        self.slot.start.store(0, SeqCst);
        self.slot.end.store(0, SeqCst);
        COUNT.fetch_sub(1, SeqCst);
    }
}
