//! Views by access rights: a unit that is not mapped cannot be read, a clean one cannot be written, and each first access
//! raises SIGSEGV.
//!
//! Each change of rights in the middle of a range divides a mapping, and the kernel permits a process only so many
//! (`vm.max_map_count`).

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::backend::{Access, Backend};
use super::error::{Limit, ViewError, failed};
use super::space::Space;
use super::unit_set::{UnitSet, push};

const READ: libc::c_int = libc::PROT_READ;
const READ_WRITE: libc::c_int = libc::PROT_READ | libc::PROT_WRITE;

pub(super) struct Protect {
    space: Arc<Space>,
    mapped: UnitSet,
    /// A part of `mapped`.
    dirty: UnitSet,
    limit: Limit,
}

impl Protect {
    /// Governs a space that cannot be read yet.
    pub(super) fn new(space: &Arc<Space>) -> Protect {
        let units = space.geometry().units();
        let (mapped, dirty) = (UnitSet::new(units), UnitSet::new(units));
        Protect { space: space.clone(), mapped, dirty, limit: Limit::read() }
    }

    fn protect(&self, units: &Range<u64>, protection: libc::c_int) -> Result<(), ViewError> {
        let changed = self.space.protect(&self.space.bytes_of(units), protection);
        changed.map_err(|error: io::Error| match error.raw_os_error() {
            Some(libc::ENOMEM) => ViewError::TooManyMappings { limit: self.limit },
            _ => failed("mprotect")(error),
        })
    }

    fn open_for_writing(&self, unit: u64) -> Result<(), ViewError> {
        // Noted first: who is alone in the view then sees every unit that can be written.
        self.dirty.insert(&(unit..unit + 1));
        self.protect(&(unit..unit + 1), READ_WRITE)
    }
}

impl Backend for Protect {
    fn map(&self, units: Range<u64>) -> Result<(), ViewError> {
        for gap in self.mapped.gaps(units) {
            // Another thread may map the same now, and have it written: then that write faults once more.
            if let Err(error) = self.protect(&gap, READ) {
                // A part of it may be readable now. If the kernel refuses this too, then that part stays visible, and the
                // caller knows of the failure.
                let _ = self.protect(&gap, libc::PROT_NONE);
                return Err(error);
            }
            self.mapped.insert(&gap);
        }
        Ok(())
    }

    fn drop_units(
        &self,
        units: &[Range<u64>],
        dirty: &mut Vec<Range<u64>>,
    ) -> Result<(), ViewError> {
        let first = dirty.len();
        for units in units {
            let units = self.mapped.span(units.clone());
            if units.is_empty() {
                continue;
            }
            self.protect(&units, libc::PROT_NONE)?;
            self.dirty.runs(units.clone()).for_each(|run| push(dirty, first, run));
            self.dirty.remove(&units);
            self.mapped.remove(&units);
        }
        Ok(())
    }

    fn collect(&self, within: Range<u64>, dirty: &mut Vec<Range<u64>>) -> Result<(), ViewError> {
        let first = dirty.len();
        for run in self.dirty.runs(within) {
            self.protect(&run, READ)?;
            self.dirty.remove(&run);
            push(dirty, first, run);
        }
        Ok(())
    }

    fn repair(&self, unit: u64, access: Access) -> Result<bool, ViewError> {
        if !self.mapped.contains(unit) {
            return Ok(false);
        }
        // A read of a mapped unit came while another thread mapped it, or an earlier change of rights failed half way. Where the
        // machine does not tell reads from writes, it counts as a write.
        if access == Access::Read && !self.dirty.contains(unit) {
            self.protect(&(unit..unit + 1), READ)?;
        } else {
            self.open_for_writing(unit)?;
        }
        Ok(true)
    }

    fn expect_write(&self, unit: u64) -> Result<(), ViewError> {
        if self.mapped.contains(unit) { self.open_for_writing(unit) } else { Ok(()) }
    }

    fn is_writable(&self, unit: u64) -> bool {
        self.dirty.contains(unit)
    }

    fn visible(&self, units: Range<u64>) -> Vec<Range<u64>> {
        self.mapped.runs(units).collect()
    }

    fn is_mapped(&self, unit: u64) -> bool {
        self.mapped.contains(unit)
    }
}
