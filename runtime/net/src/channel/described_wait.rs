//! The place in the own context where a thread describes its wait, from when it is long until it is over.

use std::sync::atomic::Ordering::Relaxed;

use crate::channel::Shared;
use crate::channel::core::Handler;
use crate::layout::{WAIT_PLACES, WAIT_WORDS};
use crate::shm::wait_place;
use crate::wait::{Wait, description};
use crate::{CallName, sys};

/// A wait is given to the program's locator after so many microseconds. It takes as long as many short waits.
const LOCATE_AFTER: u64 = 50_000;

/// Where a wait is described.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Described {
    No,
    In(usize),
    /// No place was free: the rank says so.
    Nowhere,
}

/// A wait of this thread, described or not yet. Dropped with the channel's lock held, as everything here is called.
pub(crate) struct DescribedWait<'c, H: Handler> {
    shared: &'c Shared<H>,
    described: Described,
    timed: bool,
    counter: Option<(usize, u64)>,
    /// The rank that the layer above waited for when it was described.
    awaited: Option<u32>,
    /// What was written.
    words: [u64; WAIT_WORDS],
    /// When the thread is to be located.
    locate_at: Option<u64>,
    located: Option<(CallName, u64)>,
}

impl<'c, H: Handler> DescribedWait<'c, H> {
    pub(crate) fn new(shared: &'c Shared<H>, wait: Wait, latest: Option<u64>) -> Self {
        let counter = match wait {
            Wait::Counter { index, at_least } => Some((index, at_least)),
            Wait::Frames | Wait::Room => None,
        };
        let timed = latest.is_some();
        let (described, awaited, words) = (Described::No, None, [0; WAIT_WORDS]);
        let (locate_at, located) = (None, None);
        Self { shared, described, timed, counter, awaited, words, locate_at, located }
    }

    /// The wait is long: describes it, if that is not done, or it is for another rank by now.
    pub(crate) fn describe(&mut self, awaited: Option<u32>) {
        let table = &self.shared.attachment.own().waits;
        if self.described != Described::No && self.awaited == awaited {
            return;
        }
        let number = self.words[0];
        self.awaited = awaited;
        self.words = description::words(self.timed, self.counter, awaited);
        if let Some((call, address)) = &self.located {
            description::put_call(&mut self.words, call, *address);
        }
        match self.described {
            Described::No => {}
            Described::Nowhere => return,
            Described::In(place) => {
                // It is the same wait.
                self.words[0] = number;
                return wait_place::write(&table.places[place], &self.words);
            }
        }
        // SAFETY: the caller holds the channel's lock, and no reference to the core is in use meanwhile.
        let used = unsafe { &mut (*self.shared.core()).waits.places };
        let free = used.trailing_ones() as usize;
        if free < WAIT_PLACES {
            *used |= 1 << free;
            wait_place::write(&table.places[free], &self.words);
            self.described = Described::In(free);
            if description::locator().is_some() && !description::has_call(&self.words) {
                self.locate_at = Some(sys::now() + LOCATE_AFTER);
            }
        } else {
            table.undescribed.store(table.undescribed.load(Relaxed) + 1, Relaxed);
            self.described = Described::Nowhere;
        }
    }

    /// Until when a sleep may last that may last until `latest`: then the thread is to be located.
    pub(crate) fn sleep_until(&self, latest: Option<u64>) -> Option<u64> {
        self.locate_at.map_or(latest, |at| Some(latest.map_or(at, |latest| latest.min(at))))
    }

    /// Says in which call of the program the thread waits, once the wait has lasted for a while.
    pub(crate) fn locate(&mut self) {
        let (Some(at), Described::In(place)) = (self.locate_at, self.described) else { return };
        if sys::now() < at {
            return;
        }
        self.locate_at = None;
        self.located = description::locator().and_then(|locate| locate());
        if let Some((call, address)) = &self.located {
            description::put_call(&mut self.words, call, *address);
            let table = &self.shared.attachment.own().waits;
            wait_place::write(&table.places[place], &self.words);
        }
    }
}

impl<H: Handler> Drop for DescribedWait<'_, H> {
    fn drop(&mut self) {
        let table = &self.shared.attachment.own().waits;
        match self.described {
            Described::No => {}
            Described::In(place) => {
                wait_place::write(&table.places[place], &[0; WAIT_WORDS]);
                // SAFETY: as in `describe`.
                unsafe { (*self.shared.core()).waits.places &= !(1 << place) };
            }
            Described::Nowhere => {
                table.undescribed.store(table.undescribed.load(Relaxed).wrapping_sub(1), Relaxed);
            }
        }
    }
}
