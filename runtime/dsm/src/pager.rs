//! Brings pages that the program touches.

use std::cell::Cell;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kumi_coherence::{FetchBudget, Home, Lookup, Misuse, PageSet, PageState, ReadAhead};
use kumi_mem::{Rights, Window};
use kumi_net::trace::EventKind;

use crate::context::SharedContext;
use crate::error::Error;
use crate::flight::{Ahead, AskedAhead, Buffers, Get};
use crate::node_copy::{Arrival, NodeCopy};
use crate::protocol::Protocol;
use crate::rank_view::RankView;
use crate::statistics::{Count, Statistics};
use crate::trace::Trace;
use crate::view::FaultRefusal;

thread_local! {
    /// What this thread touched last: the pages after those come along if it goes on so.
    static READ_AHEAD: Cell<ReadAhead> = const { Cell::new(ReadAhead::new()) };
}

/// How many pages to bring from this one on.
fn wanted(page: u32) -> u32 {
    READ_AHEAD.with(|last| last.get().wanted(page))
}

/// These pages come now: the runs to ask for before they are wanted.
fn comes(page: u32, count: u32) -> Vec<Range<u32>> {
    READ_AHEAD.with(|last| {
        let mut ahead = last.get();
        let runs = ahead.comes(page, count);
        last.set(ahead);
        runs
    })
}

/// See the module.
pub(crate) struct Pager {
    // The window goes before the memory that it is on and the context that it borrows.
    window: Window<'static>,
    node: Arc<NodeCopy>,
    protocol: Arc<Protocol>,
    rank_view: Arc<RankView>,
    statistics: Arc<Statistics>,
    trace: Trace,
    buffers: Arc<Buffers>,
    asked_ahead: AskedAhead,
    budget: Mutex<FetchBudget>,
    page_bytes: usize,
    context: SharedContext,
}

impl Pager {
    /// Makes the window by which other nodes get pages. All ranks call this in the same order.
    pub(crate) fn new(
        context: &SharedContext,
        node: Arc<NodeCopy>,
        protocol: Arc<Protocol>,
        rank_view: Arc<RankView>,
        statistics: Arc<Statistics>,
    ) -> Result<Pager, Error> {
        let memory = node.memory();
        let (base, bytes) = (memory.page(0)?.as_ptr(), memory.bytes() as usize);
        let rights = Rights { read: true, write: false, atomic: false };
        // SAFETY: the window is kept beside a clone of the context, which is dropped after it.
        let context_kept = unsafe { context.extended() };
        // SAFETY: the whole copy is mapped at its first page's address for as long as `node` has the memory, which is dropped after
        // the window. All reach these bytes as shared bytes, or at other addresses as another process would.
        let window = unsafe { context_kept.window_on(base, bytes, rights) }?;
        let trace = Trace::new(context);
        let page_bytes = memory.unit().bytes() as usize;
        let (buffers, asked_ahead) = (Arc::default(), AskedAhead::new(page_bytes));
        let (budget, context) = (Mutex::default(), context.clone());
        Ok(Pager {
            window,
            node,
            protocol,
            rank_view,
            statistics,
            trace,
            buffers,
            asked_ahead,
            budget,
            page_bytes,
            context,
        })
    }

    /// A page is about to be written here.
    pub(crate) fn before_write(&self, page: u32) -> Result<(), Error> {
        Ok(self.node.before_write(page)?)
    }

    /// Makes a page visible, and those after it if the program reads on.
    pub(crate) fn bring(&self, page: u32) -> Result<(), Error> {
        self.statistics.count(Count::Faults, 1);
        if let Some(ahead) = self.asked_ahead.take(page)
            && self.use_ahead(ahead, page)?
        {
            return Ok(());
        }
        loop {
            let found = self.protocol.locate(page, wanted(page))?;
            match found.home {
                Home::Unallocated => return Err(outside(page)),
                Home::Unknown => {
                    self.protocol.wait(|coherence, ticket| coherence.locate(page, ticket))?;
                }
                Home::At(_) if found.near => {
                    self.rank_view.show_home(&(page..page + found.pages))?;
                    return self.ask_ahead(comes(page, found.pages));
                }
                Home::At(home) => {
                    let pages = page..page + found.pages;
                    let brought = match found.updated {
                        true => self.bring_updated(pages, home)?,
                        false => self.bring_copies(pages, home)?,
                    };
                    if brought {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Shows copies of pages of another node, the first of which is fetched if need be. False: look again.
    fn bring_copies(&self, pages: Range<u32>, home: u32) -> Result<bool, Error> {
        let first = pages.start;
        // Before the fetch begins, so that an acquire meanwhile makes it too old.
        let stamp = self.node.now();
        let mut twins = Vec::new();
        for page in pages {
            match self.node.look_up(page, self.rank_view.need(page))? {
                Lookup::Fetch { twin } => twins.push(twin),
                Lookup::Current => break,
                Lookup::Wait if page == first => {
                    self.node.wait_while_busy(page)?;
                    return Ok(false);
                }
                Lookup::Wait => break,
            }
        }
        if twins.is_empty() {
            self.statistics.count(Count::CopiesFound, 1);
            self.trace.note(EventKind::Found, first, 1);
            let shown = self.rank_view.show_copies(&(first..first + 1))?;
            self.ask_ahead(comes(first, 1))?;
            return Ok(shown > 0);
        }
        let fetched = self.fetch(first, &twins, home, stamp);
        if fetched.is_err() {
            for page in first..first + twins.len() as u32 {
                self.node.release(page)?;
            }
        }
        fetched?;
        Ok(self.rank_view.show_copies(&(first..first + twins.len() as u32))? > 0)
    }

    /// As [`Pager::bring_copies`], of pages that are updated: their home sends them, and from then on what others write.
    fn bring_updated(&self, pages: Range<u32>, home: u32) -> Result<bool, Error> {
        let first = pages.start;
        let mut end = first;
        for page in pages {
            match self.node.look_up(page, self.rank_view.need(page))? {
                Lookup::Fetch { .. } => end += 1,
                Lookup::Current => break,
                Lookup::Wait if page == first => {
                    self.node.wait_while_busy(page)?;
                    return Ok(false);
                }
                Lookup::Wait => break,
            }
        }
        if first == end {
            self.statistics.count(Count::CopiesFound, 1);
            return Ok(self.rank_view.show_copies(&(first..first + 1))? > 0);
        }
        let begun = self.trace.begin();
        let came =
            self.protocol.wait(|coherence, ticket| coherence.subscribe(home, first..end, ticket));
        if came.is_err() {
            (first..end).try_for_each(|page| self.node.release(page))?;
        }
        came?;
        let count = u64::from(end - first);
        self.statistics.count(Count::Fetches, 1);
        self.statistics.count(Count::PagesFetched, count);
        self.trace.end(begun, EventKind::Fetch, (home, first, count));
        // Nothing of these is asked for beforehand.
        let _ = comes(first, end - first);
        Ok(self.rank_view.show_copies(&(first..end))? > 0)
    }

    /// Fetches pages from their home, of which those with a twin are merged.
    fn fetch(&self, first: u32, twins: &[bool], home: u32, stamp: u64) -> Result<(), Error> {
        let begun = self.trace.begin();
        let pages = first..first + twins.len() as u32;
        let get = self.get(&pages, home)?;
        // While they are under way.
        self.ask_ahead(comes(first, twins.len() as u32))?;
        let arrival = match twins {
            [false] if self.node.make_ready(first)? => Arrival::Ready,
            _ => Arrival::Plain,
        };
        let bytes = get.finish()?;
        self.node.install(first, &bytes, twins, stamp, arrival)?;
        self.buffers.give(bytes);
        self.trace.end(begun, EventKind::Fetch, (home, first, twins.len() as u64));
        Ok(())
    }

    /// Asks for pages of a home.
    fn get(&self, pages: &Range<u32>, home: u32) -> Result<Get, Error> {
        let (offset, count) = (pages.start as usize * self.page_bytes, pages.len());
        let get = (home, offset, count * self.page_bytes);
        let get = Get::start(&self.window, &self.context, &self.buffers, get)?;
        self.statistics.count(Count::Fetches, 1);
        self.statistics.count(Count::PagesFetched, count as u64);
        Ok(get)
    }

    // Pages that nobody wants yet.

    /// Asks for pages that were in use here and are stale now, as many as have paid lately.
    pub(crate) fn fetch_again(&self, used: &PageSet) -> Result<(), Error> {
        if used.is_empty() {
            return Ok(());
        }
        let runs = self.budget().runs(used);
        self.ask_ahead(runs)
    }

    /// Others have written these pages: what was asked for before is too old.
    pub(crate) fn forget(&self, stale: &PageSet) -> Result<(), Error> {
        self.give_up(self.asked_ahead.take_stale(stale))
    }

    fn give_up(&self, all: Vec<Ahead>) -> Result<(), Error> {
        for Ahead { pages, get, .. } in all {
            self.of_no_use(pages.len() as u64);
            if let Some(old) = self.asked_ahead.abandon(get) {
                self.buffers.give(old.finish()?);
            }
        }
        Ok(())
    }

    /// Waits for all that nobody wants any more, so that no request of this rank is under way when its peers leave.
    pub(crate) fn settle(&self) -> Result<(), Error> {
        self.give_up(self.asked_ahead.take_all())?;
        for get in self.asked_ahead.take_abandoned() {
            self.buffers.give(get.finish()?);
        }
        Ok(())
    }

    fn budget(&self) -> MutexGuard<'_, FetchBudget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of_no_use(&self, pages: u64) {
        if pages > 0 {
            self.statistics.count(Count::AheadUnused, pages);
            self.budget().useless(pages.try_into().unwrap_or(u32::MAX));
        }
    }

    fn ask_ahead(&self, runs: Vec<Range<u32>>) -> Result<(), Error> {
        for run in runs {
            for part in self.asked_ahead.others(run).ranges() {
                let mut left = part.clone();
                while !left.is_empty() {
                    let found = self.protocol.locate(left.start, left.len() as u32)?;
                    let here = left.start..left.end.min(left.start + found.pages);
                    left.start = here.end;
                    if let (Home::At(home), false) = (found.home, found.near || found.updated) {
                        self.ask_home_ahead(here, home)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Asks a home for those of these pages that are not there.
    fn ask_home_ahead(&self, pages: Range<u32>, home: u32) -> Result<(), Error> {
        let mut start = pages.start;
        while start < pages.end {
            let (stamp, changes) = (self.node.now(), self.node.changes());
            let mut asked = Vec::new();
            for page in start..pages.end {
                let state = self.node.state(page)?;
                if !state.may_ask_ahead(self.rank_view.need(page)) {
                    break;
                }
                asked.push(state);
            }
            let run = start..start + asked.len() as u32;
            // The one after them is there already.
            start = run.end + 1;
            if !run.is_empty() {
                let get = self.get(&run, home)?;
                let ahead = Ahead { pages: run, stamp, asked, changes, home, get };
                self.give_up(self.asked_ahead.add(ahead))?;
            }
        }
        Ok(())
    }

    /// Uses pages that were asked for before; whether the wanted one is visible now.
    fn use_ahead(&self, ahead: Ahead, wanted: u32) -> Result<bool, Error> {
        let Ahead { pages, stamp, asked, changes, home, get } = ahead;
        // The next ones first, so that the wire is busy while these are taken.
        self.ask_ahead(comes(pages.start, pages.len() as u32))?;
        let begun = self.trace.begin();
        let bytes = get.finish()?;
        let (mut used, mut at, mut visible) = (0, 0, false);
        while at < asked.len() {
            let first = pages.start + at as u32;
            let taken = self.install_asked(
                first,
                &bytes[at * self.page_bytes..],
                &asked[at..],
                (stamp, changes),
            )?;
            if taken > 0 {
                let shown = self.rank_view.show_copies(&(first..first + taken))?;
                visible |= (first..first + shown).contains(&wanted);
            }
            used += u64::from(taken);
            // The one after them is of no use.
            at += taken as usize + 1;
        }
        self.buffers.give(bytes);
        self.trace.end(begun, EventKind::Fetch, (home, pages.start, used));
        if used > 0 {
            self.statistics.count(Count::AheadUsed, used);
            self.budget().useful(used as u32);
        }
        self.of_no_use(asked.len() as u64 - used);
        Ok(visible)
    }

    /// Takes the first of these pages that are still good; how many.
    fn install_asked(
        &self,
        first: u32,
        bytes: &[u8],
        asked: &[PageState],
        (stamp, changes): (u64, u64),
    ) -> Result<u32, Error> {
        let mut twins = Vec::new();
        for (page, asked) in (first..).zip(asked) {
            match self.node.take_asked(page, *asked, stamp, self.rank_view.need(page))? {
                Some(twin) => twins.push(twin),
                None => break,
            }
        }
        // With so many changes in between, equal states may be different ones.
        let comparable = self.node.changes() - changes < u64::from(PageState::LAST_CHANGE);
        let installed = match comparable {
            true => self.node.install(first, bytes, &twins, stamp, Arrival::Plain),
            false => Ok(()),
        };
        if !comparable || installed.is_err() {
            (first..first + twins.len() as u32).try_for_each(|page| self.node.release(page))?;
        }
        installed?;
        if !comparable {
            return Ok(0);
        }
        Ok(twins.len() as u32)
    }
}

fn outside(page: u32) -> Error {
    let text = format!("page {page} was not allocated; access only what allocations have returned");
    Misuse::Allocation(text).into()
}

impl From<Error> for FaultRefusal {
    fn from(error: Error) -> FaultRefusal {
        FaultRefusal::new(error.to_string())
    }
}
