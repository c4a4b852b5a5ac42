//! What a rank does before it releases: its diffs go home.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kumi_coherence::message::push_diff;
use kumi_coherence::{Home, PageSet};
use kumi_net::trace::{EventKind, NO_PEER};

use crate::error::Error;
use crate::node_copy::{NodeCopy, Scratch};
use crate::protocol::Protocol;
use crate::statistics::{Count, Statistics};
use crate::trace::Trace;

/// Bytes of diffs that leave in one message.
const BATCH: usize = 256 << 10;

/// A page whose diff leaves: its home is elsewhere, or has to bring others' copies up to date.
#[derive(Debug, Clone, Copy)]
struct FarPage {
    page: u32,
    home: u32,
    updated: bool,
}

/// Diffs for the homes of their pages.
struct Batches<'r> {
    protocol: &'r Protocol,
    /// By home, and whether the pages are updated.
    by_home: BTreeMap<(u32, bool), Vec<u8>>,
}

impl Batches<'_> {
    fn add(&mut self, page: FarPage, diff: &[u8]) -> Result<(), Error> {
        let to = (page.home, page.updated);
        let batch = self.by_home.entry(to).or_default();
        push_diff(batch, page.page, diff);
        if batch.len() >= BATCH {
            let diffs = std::mem::take(batch);
            self.send(to, diffs)?;
        }
        Ok(())
    }

    fn send(&self, (home, updated): (u32, bool), diffs: Vec<u8>) -> Result<(), Error> {
        self.protocol.tell(|coherence, ticket| coherence.flush(home, diffs, updated, ticket))
    }

    fn send_all(&mut self) -> Result<(), Error> {
        let full = std::mem::take(&mut self.by_home);
        full.into_iter()
            .filter(|(_, diffs)| !diffs.is_empty())
            .try_for_each(|(to, diffs)| self.send(to, diffs))
    }
}

/// See the module.
pub(crate) struct Releaser {
    node: Arc<NodeCopy>,
    protocol: Arc<Protocol>,
    statistics: Arc<Statistics>,
    trace: Trace,
    /// Held from the question what this rank has written until all of it is in place and its interval is closed.
    releasing: Mutex<()>,
}

/// All that a rank has written is in place, and its other threads release nothing.
#[must_use = "other threads release nothing as long as this is kept"]
pub(crate) struct Released<'r>(#[expect(dead_code, reason = "it is kept")] MutexGuard<'r, ()>);

impl Releaser {
    pub(crate) fn new(
        node: Arc<NodeCopy>,
        protocol: Arc<Protocol>,
        statistics: Arc<Statistics>,
        trace: Trace,
    ) -> Releaser {
        Releaser { node, protocol, statistics, trace, releasing: Mutex::default() }
    }

    /// Collects the pages that this rank has written, sends their diffs and waits until they are in place, then closes the interval.
    ///
    /// Threads do this one after the other. What one of them wrote another one may collect, and the first must not give its lock away
    /// before that has arrived. No other thread releases as long as the result is kept.
    pub(crate) fn flush(
        &self,
        collect: impl FnOnce() -> Result<PageSet, Error>,
    ) -> Result<Released<'_>, Error> {
        let releasing = self.releasing.lock().unwrap_or_else(PoisonError::into_inner);
        let pages = collect()?;
        if self.trace.is_on() {
            for range in pages.ranges() {
                self.trace.note(EventKind::Written, range.start, (range.end - range.start).into());
            }
        }
        self.protocol.check(|coherence| coherence.check_release(&pages))?;
        let mut left = self.far(&pages)?;
        let mut scratch = self.node.scratch();
        while !left.is_empty() {
            let busy = self.flush_some(left, &mut scratch)?;
            // Nothing is held while this rank waits for another one of its node.
            if let Some(FarPage { page, .. }) = busy.first() {
                self.node.wait_while_busy(*page)?;
            }
            left = busy;
        }
        self.protocol.ask(|coherence| coherence.close_interval(pages))?;
        Ok(Released(releasing))
    }

    /// The pages whose diffs leave.
    fn far(&self, pages: &PageSet) -> Result<Vec<FarPage>, Error> {
        self.protocol.ask(|coherence| {
            let all = pages.ranges().iter().cloned().flatten();
            // A page whose home is unknown was never shown, so nobody has written it.
            let far = all.filter_map(|page| match coherence.home(page) {
                Home::At(home) => {
                    let updated = coherence.is_updated(page);
                    let leaves = updated || !coherence.is_near(home);
                    leaves.then_some(FarPage { page, home, updated })
                }
                _ => None,
            });
            far.collect()
        })
    }

    /// Flushes those pages that no other rank of the node is busy with. Returns the others.
    fn flush_some(
        &self,
        pages: Vec<FarPage>,
        scratch: &mut Scratch,
    ) -> Result<Vec<FarPage>, Error> {
        let mut batches = Batches { protocol: &self.protocol, by_home: BTreeMap::new() };
        let (mut busy, mut begun, mut changed) = (Vec::new(), Vec::new(), Vec::new());
        self.node.will_change(pages.len());
        for far in pages {
            let FarPage { page, home, updated } = far;
            if !self.node.begin_flush(page)? {
                busy.push(far);
                continue;
            }
            changed.clear();
            let any = match updated {
                true => self.node.diff_updated(page, scratch, &mut changed)?,
                false => self.node.diff(page, scratch, &mut changed)?,
            };
            if any {
                begun.push(page);
                self.statistics.count(Count::DiffBytes, changed.len() as u64);
                self.trace.mark(EventKind::Diff, (home, page, changed.len() as u64));
                batches.add(far, &changed)?;
            } else {
                self.node.release(page)?;
            }
        }
        batches.send_all()?;
        self.statistics.count(Count::Diffs, begun.len() as u64);
        if !begun.is_empty() {
            let waits = self.trace.begin();
            self.protocol.wait_for_diffs()?;
            self.trace.end(waits, EventKind::Flush, (NO_PEER, 0, begun.len() as u64));
        }
        begun.into_iter().try_for_each(|page| self.node.release(page))?;
        Ok(busy)
    }
}
