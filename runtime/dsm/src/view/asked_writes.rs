//! Views by userfaultfd whose first writes are asked for: they raise SIGBUS, as accesses to missing pages do.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::backend::{Access, Backend};
use super::error::{ViewError, failed};
use super::kernel::{self, UffdioRange};
use super::space::Space;
use super::unit_set::{UnitSet, push};
use super::user_fault::UserFault;

/// See the module.
pub(super) struct AskedWrites {
    pages: UserFault,
    /// Units that may be written: a part of those that are mapped.
    open: UnitSet,
    space: Arc<Space>,
}

impl AskedWrites {
    /// Governs a space that can be read and written.
    pub(super) fn new(space: &Arc<Space>) -> Result<AskedWrites, ViewError> {
        let pages = UserFault::new(space, false)?;
        let open = UnitSet::new(space.geometry().units());
        Ok(AskedWrites { pages, open, space: Arc::clone(space) })
    }

    fn protect(&self, units: &Range<u64>, protect: bool) -> Result<(), ViewError> {
        let bytes = self.space.bytes_of(units);
        let len = bytes.end - bytes.start;
        loop {
            let range = UffdioRange { start: self.space.address(bytes.start), len };
            match kernel::write_protect(self.pages.uffd(), range, protect) {
                Ok(()) => return Ok(()),
                // The layout of this process changes at this moment.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(failed("UFFDIO_WRITEPROTECT")(error)),
            }
        }
    }

    fn open_for_writing(&self, unit: u64) -> Result<(), ViewError> {
        // Noted first: who is alone in the view then sees every unit that can be written.
        self.open.insert(&(unit..unit + 1));
        self.protect(&(unit..unit + 1), false)
    }
}

impl Backend for AskedWrites {
    fn map(&self, units: Range<u64>) -> Result<(), ViewError> {
        self.pages.map(units)
    }

    fn drop_units(
        &self,
        units: &[Range<u64>],
        dirty: &mut Vec<Range<u64>>,
    ) -> Result<(), ViewError> {
        self.pages.forget(units)?;
        let first = dirty.len();
        for units in units {
            self.open.runs(units.clone()).for_each(|run| push(dirty, first, run));
            self.open.remove(units);
        }
        Ok(())
    }

    fn collect(&self, within: Range<u64>, dirty: &mut Vec<Range<u64>>) -> Result<(), ViewError> {
        let first = dirty.len();
        for run in self.open.runs(within) {
            self.protect(&run, true)?;
            self.open.remove(&run);
            push(dirty, first, run);
        }
        Ok(())
    }

    fn repair(&self, unit: u64, access: Access) -> Result<bool, ViewError> {
        if !self.pages.is_mapped(unit) {
            return Ok(false);
        }
        if access != Access::Read {
            self.open_for_writing(unit)?;
        }
        // Its memory may have been reclaimed, too.
        self.pages.show_again(unit, !self.open.contains(unit))?;
        Ok(true)
    }

    fn expect_write(&self, unit: u64) -> Result<(), ViewError> {
        if self.pages.is_mapped(unit) { self.open_for_writing(unit) } else { Ok(()) }
    }

    fn is_writable(&self, unit: u64) -> bool {
        self.open.contains(unit)
    }

    fn visible(&self, units: Range<u64>) -> Vec<Range<u64>> {
        self.pages.visible(units)
    }

    fn is_mapped(&self, unit: u64) -> bool {
        self.pages.is_mapped(unit)
    }
}
