//! A node's copy of the pages: their states, twins and diffs, and the node's clock. All ranks of the node use it.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::time::Duration;

use kumi_coherence::message::diffs;
use kumi_coherence::{BadMessage, Lookup, PageState, diff};

use crate::config::Twins;
use crate::node_memory::{MemoryError, NodeMemory};
use crate::view::BlockedSignals;

/// Words of the table's head: the clock, the stamps of the last two barriers, and the changes of all pages.
const CLOCK: usize = 0;
const BARRIERS: usize = 1;
const CHANGES: usize = 3;
/// A barrier's word has its epoch in the highest bits and its stamp in these.
const STAMP_BITS: u32 = PageState::LAST_STAMP.count_ones();

/// Bytes that are no diffs, or diffs of pages that are not there.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadDiffs {
    #[error(transparent)]
    Bytes(#[from] BadMessage),
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct NodeCopy {
    memory: Arc<NodeMemory>,
    twins: Twins,
}

/// How pages come that are installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Arrival {
    Plain,
    /// Copy and twin have memory.
    Ready,
    /// They are updated, so they need their twins.
    Updated,
}

/// Room for a page and its twin, so that they are compared as private bytes.
#[derive(Debug)]
pub(crate) struct Scratch {
    now: Vec<u8>,
    twin: Vec<u8>,
}

/// Lets others go on: the more often in a row, the longer.
fn pause(turn: u32) {
    match turn {
        0..64 => std::hint::spin_loop(),
        64..256 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(50)),
    }
}

impl NodeCopy {
    pub(crate) fn new(memory: Arc<NodeMemory>, twins: Twins) -> NodeCopy {
        NodeCopy { memory, twins }
    }

    pub(crate) fn memory(&self) -> &Arc<NodeMemory> {
        &self.memory
    }

    /// Bytes of a page.
    pub(crate) fn page_bytes(&self) -> usize {
        self.memory.unit().bytes() as usize
    }

    pub(crate) fn scratch(&self) -> Scratch {
        Scratch { now: vec![0; self.page_bytes()], twin: vec![0; self.page_bytes()] }
    }

    // The clock.

    /// The stamp of a fetch that begins now.
    pub(crate) fn now(&self) -> u64 {
        self.memory.head(CLOCK).load(Acquire) + 1
    }

    /// The stamp of an acquire: fetches from now on have it or a later one.
    pub(crate) fn next_stamp(&self) -> u64 {
        self.memory.head(CLOCK).fetch_add(1, AcqRel) + 2
    }

    /// The stamp of a barrier, the same for all ranks of the node: so a page that one of them fetches after it is good for all.
    pub(crate) fn barrier_stamp(&self, epoch: u32) -> u64 {
        const STAMP: u64 = (1 << STAMP_BITS) - 1;
        // Nobody is two barriers behind, so two words are enough.
        let word = self.memory.head(BARRIERS + (epoch % 2) as usize);
        let tag = u64::from(epoch) << STAMP_BITS;
        loop {
            let found = word.load(Acquire);
            if found & STAMP != 0 && found & !STAMP == tag {
                return found & STAMP;
            }
            let stamp = self.next_stamp() & STAMP;
            if word.compare_exchange(found, tag | stamp, AcqRel, Acquire).is_ok() {
                return stamp;
            }
        }
    }

    // States.

    /// Changes of states so far (see [`PageState::changes`]), or a few more.
    pub(crate) fn changes(&self) -> u64 {
        self.memory.head(CHANGES).load(Acquire)
    }

    /// So many changes come now.
    pub(crate) fn will_change(&self, pages: usize) {
        self.memory.head(CHANGES).fetch_add(pages as u64, AcqRel);
    }

    /// The state of a page as it is now.
    pub(crate) fn state(&self, page: u32) -> Result<PageState, MemoryError> {
        Ok(PageState::from_word(self.memory.word(page.into())?.load(Acquire)))
    }

    fn update<T>(
        &self,
        page: u32,
        mut change: impl FnMut(&mut PageState) -> T,
    ) -> Result<T, MemoryError> {
        let word = self.memory.word(page.into())?;
        let mut found = word.load(Acquire);
        loop {
            let mut state = PageState::from_word(found);
            let result = change(&mut state);
            match word.compare_exchange(found, state.to_word(), AcqRel, Acquire) {
                Ok(_) => return Ok(result),
                Err(other) => found = other,
            }
        }
    }

    pub(crate) fn look_up(&self, page: u32, need: u64) -> Result<Lookup, MemoryError> {
        self.update(page, |state| state.look_up(need))
    }

    /// See [`PageState::take_asked`].
    pub(crate) fn take_asked(
        &self,
        page: u32,
        asked: PageState,
        stamp: u64,
        need: u64,
    ) -> Result<Option<bool>, MemoryError> {
        self.update(page, |state| state.take_asked(asked, stamp, need))
    }

    /// The caller has told [`NodeCopy::will_change`].
    pub(crate) fn begin_flush(&self, page: u32) -> Result<bool, MemoryError> {
        self.update(page, PageState::begin_flush)
    }

    /// Ends a fetch that failed, or a flush.
    pub(crate) fn release(&self, page: u32) -> Result<(), MemoryError> {
        self.update(page, PageState::release)
    }

    /// The caller has told [`NodeCopy::will_change`].
    pub(crate) fn become_home(&self, page: u32) -> Result<(), MemoryError> {
        self.update(page, PageState::become_home)
    }

    /// Runs `body`, which uses the twin of a page that is updated and no network, alone among all that do. No signal comes meanwhile: its
    /// handler could wait for an update of the page.
    fn locked<T>(
        &self,
        page: u32,
        body: impl FnOnce() -> Result<T, MemoryError>,
    ) -> Result<T, MemoryError> {
        let _signals = BlockedSignals::block();
        for turn in 0u32.. {
            if self.update(page, PageState::lock)? {
                break;
            }
            pause(turn);
        }
        let result = body();
        self.update(page, PageState::unlock)?;
        result
    }

    /// Waits until nobody fetches a page or has a diff of it under way: usually for a round trip.
    pub(crate) fn wait_while_busy(&self, page: u32) -> Result<(), MemoryError> {
        for turn in 0u32.. {
            if !self.state(page)?.busy {
                break;
            }
            pause(turn);
        }
        Ok(())
    }

    // Contents.

    /// Gives memory to a page and its twin, so that [`NodeCopy::install`] need not; whether they have it now. Kernels before 5.14 cannot.
    pub(crate) fn make_ready(&self, page: u32) -> Result<bool, MemoryError> {
        match self.twins {
            Twins::Eager => self.memory.make_ready(page.into()),
            Twins::Lazy => Ok(false),
        }
    }

    /// Takes pages that were fetched at `stamp`, and ends their fetches. The caller began them, so it alone uses the twins.
    /// `twins` says for each whether there is a copy, with a twin, to merge it into.
    pub(crate) fn install(
        &self,
        first: u32,
        fetched: &[u8],
        twins: &[bool],
        stamp: u64,
        arrival: Arrival,
    ) -> Result<(), MemoryError> {
        let makes_twins = self.twins == Twins::Eager || arrival == Arrival::Updated;
        match makes_twins {
            true => self.store(first, fetched, twins, arrival == Arrival::Ready)?,
            false => self.store_without_twins(first, fetched, twins.len())?,
        }
        self.will_change(twins.len());
        for page in first..first + twins.len() as u32 {
            // A page that came home meanwhile does not take the stamp.
            let _ = self.update(page, |state| {
                state.twin |= makes_twins && !state.home;
                state.end_fetch(stamp)
            })?;
        }
        Ok(())
    }

    /// Writes pages without twins to copies and twins, and merges the others.
    fn store(
        &self,
        first: u32,
        fetched: &[u8],
        twins: &[bool],
        ready: bool,
    ) -> Result<(), MemoryError> {
        let mut at = 0;
        while at < twins.len() {
            let (page, rest) = (first + at as u32, &fetched[at * self.page_bytes()..]);
            let new = self.new_pages(page, &twins[at..])?;
            if new > 0 && ready {
                for (page, bytes) in (page..).zip(rest.chunks(self.page_bytes()).take(new)) {
                    self.memory.write(page.into(), 0, bytes)?;
                    self.memory.write_twin(page.into(), 0, bytes)?;
                }
            } else if new > 0 {
                self.memory.store(page.into(), &rest[..new * self.page_bytes()])?;
            } else if !self.state(page)?.home {
                self.merge(page, &rest[..self.page_bytes()])?;
            }
            at += new.max(1);
        }
        Ok(())
    }

    /// The same where twins are made at the first write. Other ranks of the node may be about to write copies that they see still.
    fn store_without_twins(
        &self,
        first: u32,
        fetched: &[u8],
        count: usize,
    ) -> Result<(), MemoryError> {
        let mut at = 0;
        while at < count {
            let (page, rest) = (first + at as u32, &fetched[at * self.page_bytes()..]);
            let is_new = |page| Ok(self.state(page)?.fetched_at == 0 && !self.state(page)?.home);
            let mut new = 0;
            while at + new < count && is_new(page + new as u32)? {
                new += 1;
            }
            if new > 0 {
                self.memory.store_copy(page.into(), &rest[..new * self.page_bytes()])?;
            } else {
                self.locked(page, || self.refresh(page, &rest[..self.page_bytes()]))?;
            }
            at += new.max(1);
        }
        Ok(())
    }

    /// Brings a copy up to date, whose page is locked.
    fn refresh(&self, page: u32, fetched: &[u8]) -> Result<(), MemoryError> {
        let state = self.state(page)?;
        match (state.home, state.twin) {
            (true, _) => Ok(()),
            (false, true) => self.merge(page, fetched),
            (false, false) => self.memory.write(page.into(), 0, fetched),
        }
    }

    /// A rank is about to write a page. Where twins are made late, it becomes its twin.
    pub(crate) fn before_write(&self, page: u32) -> Result<(), MemoryError> {
        let needs_twin = || Ok::<_, MemoryError>(self.state(page)?.make_twin());
        if !needs_twin()? {
            return Ok(());
        }
        self.locked(page, || {
            if needs_twin()? {
                let mut now = vec![0; self.page_bytes()];
                self.memory.read_page(page.into(), &mut now)?;
                self.memory.write_twin(page.into(), 0, &now)?;
                // Only now: from here on other ranks write without asking.
                self.update(page, PageState::make_twin)?;
            }
            Ok(())
        })
    }

    /// How many of these pages there are before the first that has a copy or its home here.
    fn new_pages(&self, first: u32, twins: &[bool]) -> Result<usize, MemoryError> {
        for (at, twin) in twins.iter().enumerate() {
            if *twin || self.state(first + at as u32)?.home {
                return Ok(at);
            }
        }
        Ok(twins.len())
    }

    /// Takes what others changed since the twin, which becomes what was fetched.
    fn merge(&self, page: u32, fetched: &[u8]) -> Result<(), MemoryError> {
        let at = u64::from(page);
        let mut scratch = self.scratch();
        self.memory.read_twin(at, &mut scratch.twin)?;
        let mut result = Ok(());
        diff::merge(fetched, &scratch.twin, |change| {
            result = std::mem::replace(&mut result, Ok(()))
                .and_then(|()| self.memory.change(at, change))
                .and_then(|()| self.memory.change_twin(at, change));
        });
        result
    }

    /// Appends what changed in a page since its twin, which becomes the page as it is now; whether anything did. The caller has
    /// begun a flush, so it alone uses the twin. Ranks of the node may write meanwhile: what the diff misses, the next one has.
    pub(crate) fn diff(
        &self,
        page: u32,
        scratch: &mut Scratch,
        changed: &mut Vec<u8>,
    ) -> Result<bool, MemoryError> {
        let at = u64::from(page);
        self.memory.read_page(at, &mut scratch.now)?;
        self.memory.read_twin(at, &mut scratch.twin)?;
        let begin = changed.len();
        if !diff::encode(&scratch.now, &scratch.twin, changed) {
            return Ok(false);
        }
        let mut result = Ok(());
        let read = diff::apply(&changed[begin..], self.page_bytes(), |change| {
            result = std::mem::replace(&mut result, Ok(()))
                .and_then(|()| self.memory.change_twin(at, change));
        });
        debug_assert!(read.is_ok(), "the own diff is one");
        result.map(|()| true)
    }

    /// As [`NodeCopy::diff`], of a page that is updated.
    pub(crate) fn diff_updated(
        &self,
        page: u32,
        scratch: &mut Scratch,
        changed: &mut Vec<u8>,
    ) -> Result<bool, MemoryError> {
        self.locked(page, || self.diff(page, scratch, changed))
    }

    /// Applies diffs to copies and twins of pages that are updated; how many pages.
    pub(crate) fn apply_updates(&self, bytes: &[u8]) -> Result<u64, BadDiffs> {
        let mut pages = 0;
        for found in diffs(bytes) {
            let (page, changed) = found?;
            let read = self.locked(page, || {
                let mut result = Ok(());
                let read = diff::apply(changed, self.page_bytes(), |change| {
                    result = std::mem::replace(&mut result, Ok(()))
                        .and_then(|()| self.memory.change_twin(page.into(), change))
                        .and_then(|()| self.memory.change(page.into(), change));
                });
                result.map(|()| read)
            })?;
            read?;
            pages += 1;
        }
        Ok(pages)
    }

    /// What was released so far of pages that are updated and have their home here.
    pub(crate) fn twins(&self, pages: Range<u32>) -> Result<Vec<u8>, MemoryError> {
        let mut bytes = vec![0; pages.len() * self.page_bytes()];
        for (page, into) in pages.zip(bytes.chunks_mut(self.page_bytes())) {
            self.locked(page, || self.memory.read_twin(page.into(), into))?;
        }
        Ok(bytes)
    }

    /// Applies diffs of another node to pages that have their home here.
    pub(crate) fn apply(&self, bytes: &[u8]) -> Result<(), BadDiffs> {
        for found in diffs(bytes) {
            let (page, changed) = found?;
            let mut result = Ok(());
            diff::apply(changed, self.page_bytes(), |change| {
                result = std::mem::replace(&mut result, Ok(()))
                    .and_then(|()| self.memory.change(page.into(), change));
            })?;
            result?;
        }
        Ok(())
    }
}
