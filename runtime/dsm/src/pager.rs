//! Brings pages that the program touches.

use std::cell::Cell;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use kumi_coherence::{Home, Lookup, Misuse};
use kumi_mem::{Rights, Window};
use kumi_net::trace::EventKind;

use crate::context::SharedContext;
use crate::error::Error;
use crate::node_copy::NodeCopy;
use crate::protocol::Protocol;
use crate::rank_view::RankView;
use crate::statistics::{Count, Statistics};
use crate::trace::Trace;
use crate::view::FaultRefusal;

/// Most pages that are fetched or shown at once.
const MOST_AHEAD: u32 = 32;

/// Pages that a thread touched last: those after them come along if it goes on so.
#[derive(Debug, Clone, Copy)]
struct Sequence {
    next: u32,
    length: u32,
}

thread_local! {
    static SEQUENCE: Cell<Sequence> = const { Cell::new(Sequence { next: u32::MAX, length: 1 }) };
}

/// How many pages to bring from this one on: twice as many as last time, as long as the program reads on.
fn ahead(page: u32) -> u32 {
    SEQUENCE.with(|last| {
        let Sequence { next, length } = last.get();
        if page == next { (2 * length).min(MOST_AHEAD) } else { 1 }
    })
}

fn brought(page: u32, length: u32) {
    SEQUENCE.with(|last| last.set(Sequence { next: page.saturating_add(length), length }));
}

/// Memory for pages that arrive, used again and again: fresh memory would cost page faults of its own.
#[derive(Debug, Default)]
struct Buffers(Mutex<Vec<Vec<u8>>>);

impl Buffers {
    fn take(&self) -> Vec<u8> {
        let mut free = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        free.pop().unwrap_or_default()
    }

    fn give(&self, buffer: Vec<u8>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(buffer);
    }
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
    buffers: Buffers,
    _context: SharedContext,
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
        let (buffers, _context) = (Buffers::default(), context.clone());
        Ok(Pager { window, node, protocol, rank_view, statistics, trace, buffers, _context })
    }

    /// Makes a page visible, and those after it if the program reads on.
    pub(crate) fn bring(&self, page: u32) -> Result<(), Error> {
        self.statistics.count(Count::Faults, 1);
        loop {
            let found = self.protocol.locate(page, ahead(page))?;
            match found.home {
                Home::Unallocated => return Err(outside(page)),
                Home::Unknown => {
                    self.protocol.wait(|coherence, ticket| coherence.locate(page, ticket))?;
                }
                Home::At(_) if found.near => {
                    self.rank_view.show_home(&(page..page + found.pages))?;
                    brought(page, found.pages);
                    return Ok(());
                }
                Home::At(home) => {
                    let shown = self.bring_copies(page..page + found.pages, home)?;
                    if shown > 0 {
                        brought(page, shown);
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Shows copies of pages of another node, the first of which is fetched if need be; how many. None: look again.
    fn bring_copies(&self, pages: Range<u32>, home: u32) -> Result<u32, Error> {
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
                    return Ok(0);
                }
                Lookup::Wait => break,
            }
        }
        if twins.is_empty() {
            self.statistics.count(Count::CopiesFound, 1);
            self.trace.note(EventKind::Found, first, 1);
            return self.rank_view.show_copies(&(first..first + 1));
        }
        let fetched = self.fetch(first, &twins, home, stamp);
        if fetched.is_err() {
            for page in first..first + twins.len() as u32 {
                self.node.release(page)?;
            }
        }
        fetched?;
        self.rank_view.show_copies(&(first..first + twins.len() as u32))
    }

    /// Fetches pages from their home, of which those with a twin are merged.
    fn fetch(&self, first: u32, twins: &[bool], home: u32, stamp: u64) -> Result<(), Error> {
        let page_bytes = self.node.memory().unit().bytes() as usize;
        let begun = self.trace.begin();
        let mut bytes = self.buffers.take();
        bytes.resize(twins.len() * page_bytes, 0);
        self.window.get(home, first as usize * page_bytes, &mut bytes)?;
        self.node.install(first, &bytes, twins, stamp)?;
        self.buffers.give(bytes);
        self.trace.end(begun, EventKind::Fetch, (home, first, twins.len() as u64));
        self.statistics.count(Count::Fetches, 1);
        self.statistics.count(Count::PagesFetched, twins.len() as u64);
        Ok(())
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
