//! Views: the addresses at which a program uses the shared memory.
//!
//! A view begins empty. An access to a unit that is not visible asks the [`FaultResolver`] in the thread that wants it. The
//! resolver fills the node's copy and calls [`View::map`]. From then on the unit can be read, and written units are known:
//! [`View::collect`] and [`View::drop_units`] report them.
//!
//! ```
//! use std::sync::Arc;
//! use kumi_dsm::node_memory::{NodeMemory, UnitSize};
//! use kumi_dsm::view::{FaultRefusal, FaultResolver, Mechanism, View};
//!
//! struct Greeter(Arc<NodeMemory>, std::sync::Weak<View>);
//!
//! impl FaultResolver for Greeter {
//!     fn resolve(&self, unit: u64, _write: bool) -> Result<(), FaultRefusal> {
//!         self.0.write(unit, 0, b"hello")?;
//!         let view = self.1.upgrade().ok_or(FaultRefusal::new("the view is gone"))?;
//!         Ok(view.map(unit..unit + 1)?)
//!     }
//! }
//!
//! # fn main() -> Result<(), kumi_dsm::view::ViewError> {
//! let memory = Arc::new(NodeMemory::create(1 << 30, UnitSize::new(4096)?)?);
//! let view = Arc::new(View::new(&memory, Mechanism::best().mechanism)?);
//! view.serve(Arc::new(Greeter(memory, Arc::downgrade(&view))));
//! let place = view.base().wrapping_add(5 * 4096);
//! // SAFETY: inside of the view, and the resolver has an answer for it.
//! assert_eq!(unsafe { place.read_volatile() }, b'h');
//! // SAFETY: as above.
//! unsafe { place.write_volatile(b'H') };
//! let mut dirty = Vec::new();
//! view.collect(0..view.units(), &mut dirty)?;
//! assert_eq!(dirty, [5..6]);
//! # Ok(())
//! # }
//! ```
//!
//! # What a program must know
//!
//! - Faults come by SIGBUS and SIGSEGV. A thread that blocks these signals dies by its first fault.
//! - A system call that is given a unit which is not visible returns `EFAULT`: the kernel asks no resolver.
//! - With [`Mechanism::Protect`] the handler of SIGSEGV runs on the thread's own stack, since a resolver needs more than an
//!   alternate one has. A thread whose stack overflows then dies by SIGSEGV without the message of an earlier handler.
//! - A handler of an asynchronous signal may use a view if the resolver can be entered by a thread that is inside of it. It
//!   must not call [`View::collect`] or [`View::drop_units`].
//! - A child made by `fork` has no view: its accesses end it by SIGSEGV, and one line on stderr says why.

mod asked_writes;
mod backend;
mod error;
mod faults;
mod gate;
mod kernel;
mod mechanism;
mod protect;
mod space;
mod unit_set;
mod user_fault;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

pub use error::{Limit, ViewError};
pub use faults::table::MOST_VIEWS;
pub use mechanism::{Choice, Mechanism, Missing, UnknownMechanism};

use crate::node_memory::NodeMemory;
use asked_writes::AskedWrites;
use backend::{Access, Backend};
use faults::table::{self, Found, Registration};
pub(crate) use gate::BlockedSignals;
use gate::Gate;
use protect::Protect;
use space::Space;
use user_fault::UserFault;

/// Provides units when a program reaches for them.
pub trait FaultResolver: Send + Sync {
    /// Makes a unit visible, by [`View::map`] or by waiting until another thread has done so. Called in the thread that
    /// wants the unit, from a signal handler, on that thread's stack. It may block, and reach for other units of the view.
    /// After `Ok` the access is tried again, and the resolver is asked again if the unit is not visible then.
    ///
    /// The thread was stopped inside of an access to the view. So the resolver may lock whatever the program does not hold
    /// while it uses the view. It must not panic.
    ///
    /// `write` is true if the access is known to be a write; machines other than x86-64 do not say.
    ///
    /// # Errors
    /// The program may not reach for this unit, or it cannot be had. The process ends by SIGSEGV, after a line on stderr.
    fn resolve(&self, unit: u64, write: bool) -> Result<(), FaultRefusal>;

    /// A unit that is visible is about to be written, for the first time since it was shown or collected. Called only with
    /// [`Writes::Asked`], in the thread that writes; the unit does not vanish meanwhile. It must not wait for other threads of this view,
    /// nor reach for other units.
    ///
    /// # Errors
    /// As [`FaultResolver::resolve`].
    fn before_write(&self, _unit: u64) -> Result<(), FaultRefusal> {
        Ok(())
    }
}

/// What happens at the first write to a unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Writes {
    /// It is noted.
    #[default]
    Noted,
    /// [`FaultResolver::before_write`] is asked before, which costs a signal.
    Asked,
}

/// Why a program does not get a unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultRefusal {
    reason: Cow<'static, str>,
}

impl FaultRefusal {
    /// A refusal with a reason, which becomes a part of one line on stderr.
    #[must_use]
    pub fn new(reason: impl Into<Cow<'static, str>>) -> FaultRefusal {
        FaultRefusal { reason: reason.into() }
    }
}

impl fmt::Display for FaultRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.reason)
    }
}

impl std::error::Error for FaultRefusal {}

impl From<ViewError> for FaultRefusal {
    fn from(error: ViewError) -> FaultRefusal {
        FaultRefusal::new(error.to_string())
    }
}

impl From<crate::node_memory::MemoryError> for FaultRefusal {
    fn from(error: crate::node_memory::MemoryError) -> FaultRefusal {
        FaultRefusal::new(error.to_string())
    }
}

/// Addresses at which this process uses the shared memory. See the [module](self).
///
/// When it is dropped, no thread may use its addresses any more. It must not be dropped by its own resolver.
pub struct View {
    // Ended first: no handler uses the rest then.
    registration: Registration,
    pages: Arc<Pages>,
    mechanism: Mechanism,
}

/// What a fault needs of a view.
pub(in crate::view) struct Pages {
    // Before the space, since it governs it.
    backend: Box<dyn Backend>,
    gate: Gate,
    writes: Writes,
    resolver: OnceLock<Arc<dyn FaultResolver>>,
    space: Arc<Space>,
}

impl View {
    /// An empty view of the node's copy.
    ///
    /// The first view of a process installs its handlers of SIGBUS and SIGSEGV. Faults elsewhere go to the handlers that were
    /// there before, or end the process as without this library.
    ///
    /// # Errors
    /// [`ViewError::Missing`], [`ViewError::TooManyViews`], [`ViewError::Forked`], or the kernel's refusal.
    pub fn new(memory: &Arc<NodeMemory>, mechanism: Mechanism) -> Result<View, ViewError> {
        View::with_writes(memory, mechanism, Writes::Noted)
    }

    /// As [`View::new`], and says what happens at first writes.
    ///
    /// # Errors
    /// As [`View::new`].
    pub fn with_writes(
        memory: &Arc<NodeMemory>,
        mechanism: Mechanism,
        writes: Writes,
    ) -> Result<View, ViewError> {
        if memory.forks().is_child() {
            return Err(ViewError::Forked);
        }
        let rights = match mechanism {
            Mechanism::UserFault => libc::PROT_READ | libc::PROT_WRITE,
            Mechanism::Protect => libc::PROT_NONE,
        };
        if let (Mechanism::UserFault, Some(missing)) = (mechanism, Mechanism::best().missing) {
            return Err(missing.into());
        }
        let space = Arc::new(Space::new(memory, rights)?);
        let backend: Box<dyn Backend> = match (mechanism, writes) {
            (Mechanism::UserFault, Writes::Noted) => Box::new(UserFault::new(&space, true)?),
            (Mechanism::UserFault, Writes::Asked) => Box::new(AskedWrites::new(&space)?),
            (Mechanism::Protect, _) => Box::new(Protect::new(&space)),
        };
        let (gate, resolver) = (Gate::default(), OnceLock::new());
        let pages = Pages { backend, gate, writes, resolver, space };
        let pages = Arc::new(pages);
        faults::install(mechanism == Mechanism::Protect).map_err(error::failed("sigaction"))?;
        let registration = Registration::new(&pages)?;
        Ok(View { registration, pages, mechanism })
    }

    /// Says who provides units. Until then an access to a unit that is not visible ends the process. Only the first call has
    /// an effect; whether this is the first.
    pub fn serve(&self, resolver: Arc<dyn FaultResolver>) -> bool {
        self.pages.resolver.set(resolver).is_ok()
    }

    /// The first address. Unit `u` is at `u` times the bytes of a unit. Addresses are a multiple of 2 MiB.
    #[must_use]
    pub fn base(&self) -> *mut u8 {
        self.pages.space.base().as_ptr()
    }

    /// Units of the view.
    #[must_use]
    pub fn units(&self) -> u64 {
        self.pages.space.geometry().units()
    }

    /// The memory of the node that it shows.
    #[must_use]
    pub fn memory(&self) -> &Arc<NodeMemory> {
        self.pages.space.shared_memory()
    }

    /// How it learns of accesses.
    #[must_use]
    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    /// The unit in which an address is; `None` outside of the view.
    #[must_use]
    pub fn unit_at(&self, address: *const u8) -> Option<u64> {
        self.pages.unit_at(address.addr())
    }

    /// Whether a unit is visible now; false outside of the view.
    #[must_use]
    pub fn is_mapped(&self, unit: u64) -> bool {
        self.pages.backend.is_mapped(unit)
    }

    /// The units of a range that are visible now, in order.
    ///
    /// # Errors
    /// [`ViewError::Outside`], [`ViewError::Forked`].
    pub fn visible(&self, units: Range<u64>) -> Result<Vec<Range<u64>>, ViewError> {
        self.pages.check(&units)?;
        Ok(self.pages.backend.visible(units))
    }

    /// Makes units visible, as not written. Those that are visible stay as they are, so two threads may map the same unit at
    /// the same time. The caller has filled the node's copy before; a unit that nobody filled reads as zeros.
    ///
    /// Many units in one call cost a third of what they cost one by one.
    ///
    /// # Errors
    /// [`ViewError::Outside`], [`ViewError::TooManyMappings`], [`ViewError::NoMemory`], [`ViewError::Forked`]. A part of the
    /// units may be visible then.
    pub fn map(&self, units: Range<u64>) -> Result<(), ViewError> {
        self.pages.check(&units)?;
        let _shared = self.pages.gate.share();
        self.pages.backend.map(units)
    }

    /// Makes units that are visible writable for the kernel, too, which is asked to write there and takes no faults. They may count
    /// as written then.
    ///
    /// # Errors
    /// As [`View::map`].
    pub fn open_for_writing(&self, mut units: Range<u64>) -> Result<(), ViewError> {
        self.pages.check(&units)?;
        let _shared = self.pages.gate.share();
        units.try_for_each(|unit| {
            self.pages.ask(unit, Access::Write)?;
            self.pages.backend.expect_write(unit)
        })
    }

    /// Takes units out of sight, and adds those written since the last collection to `dirty`, in order. What was written stays
    /// in the node's copy. Units that are not visible do nothing.
    ///
    /// Writes of other threads lose nothing. A write that is done before its unit vanishes is in the copy, and the unit is in
    /// `dirty`. A later one faults, and asks the resolver. Which of both happens to a write at the same time is open, if the
    /// program orders it by nothing.
    ///
    /// # Errors
    /// [`ViewError::Outside`], [`ViewError::TooManyMappings`], [`ViewError::Forked`]. The units still count as visible then,
    /// and the next call reports what was written.
    pub fn drop_units(
        &self,
        units: Range<u64>,
        dirty: &mut Vec<Range<u64>>,
    ) -> Result<(), ViewError> {
        self.drop_all(&[units], dirty)
    }

    /// As [`View::drop_units`], of several ranges. They are in order and do not overlap. Where the kernel can, few calls take many of them out of sight.
    ///
    /// # Errors
    /// As [`View::drop_units`], and [`ViewError::Outside`] for a range that begins before the end of the one before it.
    pub fn drop_all(
        &self,
        ranges: &[Range<u64>],
        dirty: &mut Vec<Range<u64>>,
    ) -> Result<(), ViewError> {
        ranges.iter().try_for_each(|units| self.pages.check(units))?;
        if let Some(pair) = ranges.windows(2).find(|pair| pair[1].start < pair[0].end) {
            let (units, count) = (pair[1].clone(), self.units());
            return Err(ViewError::Outside { units, count });
        }
        let _alone = self.pages.gate.alone();
        self.pages.backend.drop_units(ranges, dirty)
    }

    /// Adds the units of `within` that were written since the last collection to `dirty`, in order. From then on they count as
    /// not written. A write at the same time is reported now or by the next call.
    ///
    /// The list is exact, but for units whose memory the kernel reclaimed and gave back: these may be reported without a write.
    /// The cost grows with what is mapped in `within`, not with its size.
    ///
    /// # Errors
    /// [`ViewError::Outside`], [`ViewError::TooManyMappings`], [`ViewError::Forked`]. Units that are not in `dirty` then are
    /// reported by the next call.
    pub fn collect(
        &self,
        within: Range<u64>,
        dirty: &mut Vec<Range<u64>>,
    ) -> Result<(), ViewError> {
        self.pages.check(&within)?;
        let _alone = self.pages.gate.alone();
        self.pages.backend.collect(within, dirty)
    }
}

/// Makes the units of a range of addresses visible, as by reads or writes of all of them; whether some were not. What is
/// outside of all views is left alone.
///
/// # Errors
/// That of the resolver for the first unit that it refuses.
pub(crate) fn prepare(bytes: Range<usize>, write: bool) -> Result<bool, FaultRefusal> {
    let mut changed = false;
    let mut at = bytes.start;
    while let Some((found, first)) = Found::next(at..bytes.end) {
        let pages = found.pages();
        let (start, unit_bytes) = (pages.space.addresses().start, pages.space.geometry().unit());
        let unit = (first - start) as u64 / unit_bytes;
        changed |= pages.prepare(unit, write)?;
        at = start + ((unit + 1) * unit_bytes) as usize;
    }
    Ok(changed)
}

/// Whether one of these addresses is in a view.
pub(crate) fn any_inside(bytes: Range<usize>) -> bool {
    table::any() && Found::next(bytes).is_some()
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "view of {} units at {:p} by {}", self.units(), self.base(), self.mechanism)
    }
}

impl Drop for View {
    fn drop(&mut self) {
        self.registration.end(self.pages.space.forks());
    }
}

impl Pages {
    fn check(&self, units: &Range<u64>) -> Result<(), ViewError> {
        if self.space.forks().is_child() {
            return Err(ViewError::Forked);
        }
        let count = self.space.geometry().units();
        if units.start <= units.end && units.end <= count {
            Ok(())
        } else {
            Err(ViewError::Outside { units: units.clone(), count })
        }
    }

    fn unit_at(&self, address: usize) -> Option<u64> {
        let addresses = self.space.addresses();
        let inside = addresses.contains(&address);
        inside.then(|| (address - addresses.start) as u64 / self.space.geometry().unit())
    }

    /// Deals with a fault in the thread that has it. After `Ok` the access is tried again.
    fn fault(&self, address: usize, access: Access) -> Result<(), FaultRefusal> {
        if self.space.forks().is_child() {
            return Err(ViewError::Forked.into());
        }
        let unit =
            self.unit_at(address).ok_or(FaultRefusal::new("it is not inside of the view"))?;
        if access == Access::Execute {
            return Err(FaultRefusal::new("shared memory cannot be executed"));
        }
        if self.repair(unit, access)? {
            return Ok(());
        }
        let nobody = FaultRefusal::new("nobody provides units of this view yet");
        let write = access == Access::Write;
        self.resolver.get().ok_or(nobody)?.resolve(unit, write)?;
        if write {
            let _shared = self.gate.share();
            self.ask(unit, access)?;
            self.backend.expect_write(unit)?;
        }
        Ok(())
    }

    /// Asks before a first write to a unit, if that is wanted and the unit is visible.
    fn ask(&self, unit: u64, access: Access) -> Result<(), ViewError> {
        let first = self.writes == Writes::Asked
            && access != Access::Read
            && self.backend.is_mapped(unit)
            && !self.backend.is_writable(unit);
        match self.resolver.get() {
            Some(resolver) if first => resolver
                .before_write(unit)
                .map_err(|refusal| ViewError::Refused { unit, reason: refusal.to_string() }),
            _ => Ok(()),
        }
    }

    /// Makes a unit visible for a read or write that takes no fault; whether it was not.
    fn prepare(&self, unit: u64, write: bool) -> Result<bool, FaultRefusal> {
        let there = || match write {
            true => self.backend.is_writable(unit),
            false => self.backend.is_mapped(unit),
        };
        if there() {
            return Ok(false);
        }
        let address = self.space.addresses().start + (unit * self.space.geometry().unit()) as usize;
        let access = if write { Access::Write } else { Access::Read };
        self.fault(address, access)?;
        Ok(true)
    }

    fn repair(&self, unit: u64, access: Access) -> Result<bool, ViewError> {
        let _shared = self.gate.share();
        self.ask(unit, access)?;
        self.backend.repair(unit, access)
    }
}
