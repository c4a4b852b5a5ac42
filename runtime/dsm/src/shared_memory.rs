//! The shared memory of a rank, for its program.

use kumi_net::{Description, WaitKind};
use std::fmt;
use std::ops::Range;
use std::panic::Location;
use std::sync::{Arc, Weak};
use std::time::Duration;

use kumi_coherence::{Acquired, BarrierKind, Coherence, Placement, Sharing};
use kumi_mem::Context;
use kumi_net::trace::{EventKind, NO_PEER};

use crate::config::{Config, Twins};
use crate::context::SharedContext;
use crate::error::Error;
use crate::node_copy::NodeCopy;
use crate::node_memory::{NodeMemory, Offer, UnitSize};
use crate::pager::Pager;
use crate::protocol::Protocol;
use crate::rank_view::RankView;
use crate::release::{Released, Releaser};
use crate::statistics::{Count, Statistics};
use crate::trace::Trace;
use crate::view::{FaultRefusal, FaultResolver, Mechanism, View, Writes};

/// Memory that all ranks of a job see, at the same addresses. All threads of a rank may use it.
///
/// What a rank writes is visible to others after they have synchronised: after a barrier of all, or under the same lock. A
/// program without data races that synchronises so behaves as threads on one machine do.
///
/// ```
/// use kumi_dsm::{Config, Placement, SharedMemory};
///
/// # fn main() -> Result<(), kumi_dsm::Error> {
/// // `Context::init()` in a program that `kumi run` starts.
/// let context = kumi_mem::Context::init_singleton()?;
/// let memory = SharedMemory::new(context, Config::default())?;
/// let sums = memory.array::<u64>(1000, Placement::Blocks)?;
/// {
///     let _held = memory.lock(7)?;
///     sums.set(3, sums.get(3)? + 1)?;
/// }
/// memory.barrier()?;
/// assert_eq!(sums.get(3)?, u64::from(memory.context().ranks()));
/// # Ok(())
/// # }
/// ```
pub struct SharedMemory {
    pager: Arc<Pager>,
    releaser: Releaser,
    protocol: Arc<Protocol>,
    rank_view: Arc<RankView>,
    statistics: Arc<Statistics>,
    trace: Trace,
    page_bytes: u32,
    /// The end waits for all ranks.
    ends_together: bool,
    context: SharedContext,
}

/// The addresses of a shared memory at this rank, which stay its own as long as this exists, after its end too. Pages that are
/// visible at the end can still be read; an access to another one ends the process then, with a line on stderr.
pub struct Addresses {
    rank_view: Arc<RankView>,
    range: Range<usize>,
}

impl Addresses {
    /// All of them.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }
}

impl fmt::Debug for Addresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "addresses of {:?}", self.rank_view.view())
    }
}

/// So long the end waits before it looks again for threads that are inside of a page fault.
const LOOK_AGAIN: Duration = Duration::from_micros(100);

/// Brings pages in the thread that faults. The pager is gone when the memory is.
struct Faults(Weak<Pager>);

impl FaultResolver for Faults {
    fn resolve(&self, unit: u64, _write: bool) -> Result<(), FaultRefusal> {
        let gone = FaultRefusal::new("the shared memory has ended");
        let pager = self.0.upgrade().ok_or(gone)?;
        let page = u32::try_from(unit).map_err(|_| FaultRefusal::new("there is no such page"))?;
        // The program is in the middle of an instruction: it can answer no questions.
        Ok(kumi_mem::uninterrupted(|| pager.bring(page))?)
    }

    fn before_write(&self, unit: u64) -> Result<(), FaultRefusal> {
        let pager = self.0.upgrade().ok_or(FaultRefusal::new("the shared memory has ended"))?;
        let page = u32::try_from(unit).map_err(|_| FaultRefusal::new("there is no such page"))?;
        Ok(pager.before_write(page)?)
    }
}

/// A lock that is held. It is given back when this is dropped; [`HeldLock::unlock`] also reports errors.
#[must_use = "the lock is given back when this is dropped"]
pub struct HeldLock<'m> {
    memory: &'m SharedMemory,
    lock: u32,
}

impl HeldLock<'_> {
    /// Gives the lock back.
    ///
    /// # Errors
    /// Those of the channel.
    pub fn unlock(self) -> Result<(), Error> {
        let (memory, lock) = (self.memory, self.lock);
        std::mem::forget(self);
        memory.unlock(lock)
    }
}

impl Drop for HeldLock<'_> {
    fn drop(&mut self) {
        // Nobody is there to return it to, and others wait for this lock.
        if let Err(error) = self.memory.unlock(self.lock) {
            eprintln!("kumi: lock {} was not given back: {error}", self.lock);
        }
    }
}

impl SharedMemory {
    /// Makes the memory. All ranks call this together, with the same settings.
    ///
    /// # Errors
    /// [`Error::Memory`], [`Error::View`] where the kernel refuses, [`Error::Elsewhere`] at the other ranks then;
    /// [`Error::Addresses`], [`Error::Channel`].
    pub fn new(context: impl Into<SharedContext>, config: Config) -> Result<SharedMemory, Error> {
        let context = context.into();
        let node_of = every_rank(&context, context.node())?;
        let memory = Arc::new(node_memory(&context, &node_of, &config)?);
        let mechanism = config.mechanism.unwrap_or_else(|| best(&context, &node_of));
        let writes = match config.twins {
            Twins::Eager => Writes::Noted,
            Twins::Lazy => Writes::Asked,
        };
        let view =
            together(&context, View::with_writes(&memory, mechanism, writes).map_err(Error::from))?;
        same_addresses(&context, &view)?;
        let node = Arc::new(NodeCopy::new(Arc::clone(&memory), config.twins));
        let rank_view = Arc::new(RankView::new(view, Arc::clone(&node))?);
        let pages = u32::try_from(memory.pages()).unwrap_or(u32::MAX);
        let coherence = Coherence::new(kumi_coherence::Config {
            rank: context.rank(),
            node_of: node_of.into(),
            protocol: config.protocol,
            migration: config.migration,
            pages,
            page_bytes: config.page_bytes,
        });
        let statistics = Arc::new(Statistics::new(context.clone()));
        let protocol =
            Protocol::new(&context, coherence, Arc::clone(&node), Arc::clone(&statistics))?;
        let protocol = Arc::new(protocol);
        let pager = Arc::new(Pager::new(
            &context,
            Arc::clone(&node),
            Arc::clone(&protocol),
            Arc::clone(&rank_view),
            Arc::clone(&statistics),
        )?);
        rank_view.view().serve(Arc::new(Faults(Arc::downgrade(&pager))));
        let trace = Trace::new(&context);
        let releaser =
            Releaser::new(node, Arc::clone(&protocol), Arc::clone(&statistics), trace.clone());
        let page_bytes = config.page_bytes;
        trace.page_bytes(page_bytes);
        Ok(SharedMemory {
            pager,
            releaser,
            protocol,
            rank_view,
            statistics,
            trace,
            page_bytes,
            ends_together: true,
            context,
        })
    }

    /// The context whose ranks share the memory.
    #[must_use]
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Bytes of a page.
    #[must_use]
    pub fn page_bytes(&self) -> u32 {
        self.page_bytes
    }

    /// Bytes that can still be allocated.
    ///
    /// # Errors
    /// [`Error::Channel`].
    pub fn free(&self) -> Result<u64, Error> {
        let allocated = self.protocol.ask(|coherence| coherence.allocated())?;
        Ok((self.rank_view.view().units() - u64::from(allocated)) * u64::from(self.page_bytes))
    }

    /// How this rank catches faults.
    #[must_use]
    pub fn mechanism(&self) -> Mechanism {
        self.rank_view.view().mechanism()
    }

    /// What this rank's memory has done so far.
    #[must_use]
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Allocates so many bytes, at the begin of a page; returns their first address, the same at all ranks. They are zeros. All ranks call
    /// this with the same arguments in the same order. The memory stays until the end.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the memory is used up or the placement cannot be.
    #[track_caller]
    pub fn allocate(&self, bytes: u64, placement: Placement) -> Result<*mut u8, Error> {
        let caller = Location::caller();
        self.allocate_named(bytes, placement, || format!("{}:{}", caller.file(), caller.line()))
    }

    /// As [`SharedMemory::allocate`], with the name that a trace shows for it. Nobody asks for the name unless the job is traced.
    ///
    /// # Errors
    /// As [`SharedMemory::allocate`].
    pub fn allocate_named(
        &self,
        bytes: u64,
        placement: Placement,
        name: impl FnOnce() -> String,
    ) -> Result<*mut u8, Error> {
        self.allocate_shared(bytes, placement, Sharing::Invalidate, name)
    }

    /// As [`SharedMemory::allocate_named`], and says what becomes of copies when somebody writes. [`Sharing::Update`] is for memory that few
    /// write and many read soon after: a release brings all copies up to date, and nobody has to fetch the pages again. They keep their
    /// homes.
    ///
    /// # Errors
    /// As [`SharedMemory::allocate`].
    pub fn allocate_shared(
        &self,
        bytes: u64,
        placement: Placement,
        sharing: Sharing,
        name: impl FnOnce() -> String,
    ) -> Result<*mut u8, Error> {
        let pages =
            self.protocol.tell_with(|coherence| coherence.allocate(bytes, placement, sharing))?;
        self.trace.allocation(&pages, name);
        Ok(self.address(&pages))
    }

    fn address(&self, pages: &Range<u32>) -> *mut u8 {
        let offset = pages.start as usize * self.page_bytes as usize;
        self.rank_view.view().base().wrapping_add(offset)
    }

    /// Takes a lock, of any number; waits until nobody else has it. What was written under it before is visible then.
    ///
    /// # Errors
    /// [`Error::Misuse`] if this thread holds it already; [`Error::Channel`].
    pub fn lock(&self, lock: u32) -> Result<HeldLock<'_>, Error> {
        self.acquire_lock(lock)?;
        Ok(HeldLock { memory: self, lock })
    }

    /// As [`SharedMemory::lock`], for callers that give it back by [`SharedMemory::unlock`].
    ///
    /// # Errors
    /// As [`SharedMemory::lock`]. After [`kumi_mem::Error::Interrupted`] this thread does not wait for the lock any more, and the
    /// memory goes on.
    pub fn acquire_lock(&self, lock: u32) -> Result<(), Error> {
        let begun = self.trace.begin();
        let wait = Description::of(WaitKind::Lock, None).what(lock.into());
        let described = wait.enter();
        let acquired = self.protocol.wait(|coherence, ticket| coherence.lock(lock, ticket));
        drop(described);
        if let Err(Error::Channel(kumi_mem::Error::Interrupted)) = &acquired {
            self.withdraw(lock)?;
        }
        let acquired = acquired?;
        self.context.tell_lock(lock, true);
        self.trace.end(begun, EventKind::Lock, (NO_PEER, lock, 0));
        self.statistics.count(Count::Locks, 1);
        self.acquired(&acquired)
    }

    /// Ends a wait for a lock. One that has come meanwhile is given back: nothing was written under it.
    fn withdraw(&self, lock: u32) -> Result<(), Error> {
        let Some(acquired) = self.protocol.withdraw(lock)? else { return Ok(()) };
        self.acquired(&acquired)?;
        self.protocol.tell(|coherence, ticket| coherence.unlock(lock, ticket))
    }

    /// Gives a lock back, in the thread that took it.
    ///
    /// # Errors
    /// [`Error::Misuse`] if this thread does not hold it; [`Error::Channel`].
    pub fn unlock(&self, lock: u32) -> Result<(), Error> {
        self.protocol.tell(|coherence, ticket| {
            coherence.check_held(lock, ticket).map(|()| kumi_coherence::Events::new())
        })?;
        drop(self.flush()?);
        // Before others can hear of it, so that the next one's wait ends later.
        self.trace.note(EventKind::Unlock, lock, 0);
        self.context.tell_lock(lock, false);
        self.protocol.tell(|coherence, ticket| coherence.unlock(lock, ticket))
    }

    /// Waits until all ranks have called this. All that was written before is visible then.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the ranks' calls or allocations differ; [`Error::Channel`].
    pub fn barrier(&self) -> Result<(), Error> {
        let released = self.flush()?;
        self.pass(BarrierKind::Memory, Some(released))
    }

    /// Waits until all ranks have called this, without effect on memory.
    ///
    /// # Errors
    /// As [`SharedMemory::barrier`].
    pub fn wait(&self) -> Result<(), Error> {
        self.pass(BarrierKind::Plain, None)
    }

    /// Waits until all ranks leave.
    fn leave(&self) -> Result<(), Error> {
        self.pager.settle()?;
        self.wait()
    }

    /// Other threads release nothing between the last flush and the arrival.
    fn pass(&self, kind: BarrierKind, released: Option<Released<'_>>) -> Result<(), Error> {
        let begun = self.trace.begin();
        let described = Description::of(WaitKind::SharedBarrier, None).enter();
        let acquired = self.protocol.wait(|coherence, ticket| {
            let arrived = coherence.barrier(kind, ticket);
            drop(released);
            arrived
        })?;
        drop(described);
        self.trace.barrier(begun, kind);
        self.statistics.count(Count::Barriers, 1);
        self.acquired(&acquired)
    }

    /// Sets a condition: what this rank has written since the last barrier is visible to those who wait for it.
    ///
    /// # Errors
    /// [`Error::Channel`].
    pub fn set_condition(&self, condition: u32) -> Result<(), Error> {
        drop(self.flush()?);
        self.trace.note(EventKind::SetCondition, condition, 0);
        self.protocol.tell(|coherence, _| coherence.set_condition(condition))?;
        self.known_to_manager(condition)
    }

    /// Waits until the manager of a condition has been told. Otherwise a rank that learns of the change by other means, such as
    /// a barrier, could change the condition first.
    fn known_to_manager(&self, condition: u32) -> Result<(), Error> {
        let manager = condition % self.context.ranks();
        match manager == self.context.rank() {
            true => Ok(()),
            false => Ok(self.context.flush(manager)?),
        }
    }

    /// Resets a condition.
    ///
    /// # Errors
    /// [`Error::Channel`].
    pub fn reset_condition(&self, condition: u32) -> Result<(), Error> {
        self.protocol.tell(|coherence, _| coherence.reset_condition(condition))?;
        self.known_to_manager(condition)
    }

    /// Waits until a condition is set.
    ///
    /// # Errors
    /// [`Error::Channel`].
    pub fn wait_condition(&self, condition: u32) -> Result<(), Error> {
        let begun = self.trace.begin();
        let described = Description::of(WaitKind::Condition, None).what(condition.into()).enter();
        let acquired =
            self.protocol.wait(|coherence, ticket| coherence.wait_condition(condition, ticket))?;
        drop(described);
        self.trace.end(begun, EventKind::WaitCondition, (NO_PEER, condition, 0));
        self.acquired(&acquired)
    }

    fn acquired(&self, acquired: &Acquired) -> Result<(), Error> {
        self.statistics.count(Count::StalePages, acquired.stale.pages());
        if acquired.stale.pages() > 0 {
            self.trace.note(EventKind::Stale, 0, acquired.stale.pages());
        }
        self.statistics.count(Count::PagesHomed, acquired.homed.pages());
        self.pager.forget(&acquired.stale)?;
        let used = self.rank_view.acquire(acquired)?;
        if !acquired.stale.is_empty() {
            self.protocol.ask(|coherence| coherence.forgotten(acquired))?;
        }
        self.pager.fetch_again(&used)
    }

    fn flush(&self) -> Result<Released<'_>, Error> {
        let allocated = self.protocol.ask(|coherence| coherence.allocated())?;
        self.releaser.flush(|| self.rank_view.collect(allocated))
    }

    /// The addresses of the whole memory at this rank.
    #[must_use]
    pub fn addresses(&self) -> Addresses {
        let view = self.rank_view.view();
        let start = view.base().addr();
        let range = start..start + view.units() as usize * self.page_bytes as usize;
        Addresses { rank_view: Arc::clone(&self.rank_view), range }
    }

    /// Ends it here. When this returns nothing uses the context any more, so a caller whose context is not for ever may end
    /// that: threads that are inside of a page fault were waited for.
    ///
    /// `together` waits until all ranks end it. A rank that leaves because of an error does not wait; others that still fetch
    /// pages from here have an error then.
    ///
    /// # Errors
    /// As [`SharedMemory::wait`]. The memory has ended all the same.
    pub fn end(mut self, together: bool) -> Result<(), Error> {
        let waited = if together { self.leave() } else { Ok(()) };
        self.ends_together = false;
        let mut pager = Arc::clone(&self.pager);
        drop(self);
        // Only whoever has the last reference ends it, so that its end is over when this returns.
        while let Err(used) = Arc::try_unwrap(pager) {
            pager = used;
            std::thread::sleep(LOOK_AGAIN);
        }
        waited
    }

    /// Whether bytes at this address may be of the shared memory.
    #[must_use]
    pub fn contains(&self, address: *const u8) -> bool {
        self.rank_view.view().unit_at(address).is_some()
    }

    /// The units of the memory in which some of these bytes are.
    fn units_of(&self, start: *const u8, bytes: usize) -> Range<u64> {
        let view = self.rank_view.view();
        let Some(last) = bytes.checked_sub(1).map(|last| start.wrapping_add(last)) else {
            return 0..0;
        };
        match (view.unit_at(start), view.unit_at(last)) {
            (None, None) => 0..0,
            (first, last) => first.unwrap_or(0)..last.map_or(view.units(), |unit| unit + 1),
        }
    }

    /// Brings all pages of a range of addresses, as a system call needs that reads them: the kernel takes no page faults.
    /// Addresses outside of the memory are left alone.
    ///
    /// # Errors
    /// As a page fault: [`Error::Misuse`] outside of allocations, [`Error::Channel`].
    pub fn bring(&self, start: *const u8, bytes: usize) -> Result<(), Error> {
        for unit in self.units_of(start, bytes) {
            if !self.rank_view.view().is_mapped(unit) {
                self.pager.bring(unit as u32)?;
            }
        }
        Ok(())
    }

    /// As [`SharedMemory::bring`], for a system call that writes them. They may count as written, which costs a comparison.
    ///
    /// # Errors
    /// As [`SharedMemory::bring`].
    pub fn bring_for_writing(&self, start: *mut u8, bytes: usize) -> Result<(), Error> {
        self.bring(start, bytes)?;
        let units = self.units_of(start, bytes);
        Ok(self.rank_view.view().open_for_writing(units)?)
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        if self.ends_together {
            // Others may still fetch pages from here. A rank that cannot wait has lost its channel, and its job ends.
            let _ = self.leave();
        }
    }
}

/// One number of each rank.
fn every_rank(context: &Context, own: u32) -> Result<Vec<u32>, Error> {
    let mut all = vec![0; context.ranks() as usize];
    context.group().allgather(&[own], &mut all)?;
    Ok(all)
}

/// Passes a result on if all ranks have one, so that none waits for another that has failed.
fn together<T>(context: &Context, result: Result<T, Error>) -> Result<T, Error> {
    let failed = every_rank(context, result.is_err().into())?;
    let value = result?;
    match (0..).zip(failed).find(|(_, failed)| *failed != 0) {
        Some((rank, _)) => Err(Error::Elsewhere { rank }),
        None => Ok(value),
    }
}

/// Pointers in shared memory mean the same to all ranks only if their views begin at the same address.
fn same_addresses(context: &Context, view: &View) -> Result<(), Error> {
    let bases = [view.base().addr() as u64];
    let mut all = vec![0; context.ranks() as usize];
    context.group().allgather(&bases, &mut all)?;
    match (0..).zip(&all).find(|(_, base)| **base != all[0]) {
        Some((rank, _)) => Err(Error::Addresses { rank }),
        None => Ok(()),
    }
}

/// The best way to learn of faults. The first rank of a node says what that lacks for a better one.
fn best(context: &Context, node_of: &[u32]) -> Mechanism {
    let choice = Mechanism::best();
    let first = node_of.iter().position(|node| *node == context.node());
    if let Some(missing) = choice.missing
        && first == Some(context.rank() as usize)
    {
        eprintln!("kumi: shared memory on the node of rank {}: {missing}", context.rank());
    }
    choice.mechanism
}

/// The memory of this node: its first rank makes it, the others open it.
fn node_memory(context: &Context, node_of: &[u32], config: &Config) -> Result<NodeMemory, Error> {
    let first = (0..).zip(node_of).find(|(_, node)| **node == context.node());
    let first = first.map_or(context.rank(), |(rank, _)| rank);
    let make = || Ok(NodeMemory::create(config.bytes, UnitSize::new(config.page_bytes)?)?);
    let made = (first == context.rank()).then(make).transpose();
    let own = together(context, made)?;
    let offer = own.as_ref().map_or([0; Offer::BYTES], |memory| memory.offer().encode());
    let mut offers = vec![0; Offer::BYTES * context.ranks() as usize];
    context.group().allgather(&offer, &mut offers)?;
    let accepted = own.map_or_else(
        || {
            let bytes = &offers[first as usize * Offer::BYTES..][..Offer::BYTES];
            let offer = Offer::decode(bytes).map_err(|_| Error::Offer { rank: first })?;
            Ok(NodeMemory::accept(offer)?)
        },
        Ok,
    );
    together(context, accepted)
}
