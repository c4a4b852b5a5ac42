//! Views by userfaultfd: a missing page raises SIGBUS in the thread that wants it, and the kernel itself notes first writes.
//!
//! The kernel keeps for each page of the view an entry that is one of these:
//!
//! | entry | meaning for a unit that is mapped | for one that is not |
//! |---|---|---|
//! | present, protected | not written | |
//! | present | written | |
//! | none | written, then its memory was reclaimed | never mapped, or dropped after a write |
//! | marker | not written, then its memory was reclaimed | dropped without a write, or found by a scan |
//!
//! A page that leaves the view, by us or by reclaim, leaves a marker exactly if it was protected. The kernel does that in one
//! step, so it loses no write whenever it came. Scans for written pages count none as written; only units that are mapped
//! are reported.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};

use super::backend::{Access, Backend};
use super::error::{ViewError, failed};
use super::kernel::{
    self, PageRegion, PageScan, UffdioApi, UffdioContinue, UffdioRange, UffdioRegister,
};
use super::mechanism::Missing;
use super::space::Space;
use super::unit_set::{UnitSet, push};
use crate::node_memory::system_page;

/// What userfaultfd has to be able to do.
pub(super) const FEATURES: u64 = kernel::FEATURE_SIGBUS
    | kernel::FEATURE_MINOR_SHMEM
    | kernel::FEATURE_WP_SHMEM
    | kernel::FEATURE_WP_UNPOPULATED
    | kernel::FEATURE_WP_ASYNC;

/// Most bytes made visible by one call: a few milliseconds.
const MAP_BYTES: u64 = 16 << 20;
/// Most bytes of a hole that get memory at once.
const POPULATE_BYTES: u64 = 2 << 20;
/// So often a page may vanish between getting its memory and being mapped.
const POPULATE_TRIES: u32 = 16;
/// A scan goes on over so many bytes with nothing in them: another call costs as much.
const SCAN_ON_BYTES: u64 = 512 << 10;
/// Most ranges that one scan returns.
const SCAN_RANGES: u64 = 4096;

pub(super) struct UserFault {
    // Closed first: the range is no longer governed when the space is unmapped.
    uffd: OwnedFd,
    pagemap: OwnedFd,
    mapped: UnitSet,
    space: std::sync::Arc<Space>,
    page: u64,
}

impl UserFault {
    /// Governs a space that can be read and written. The kernel notes writes, or raises SIGBUS for them ([`super::asked_writes`]).
    pub(super) fn new(
        space: &std::sync::Arc<Space>,
        writes_noted: bool,
    ) -> Result<UserFault, ViewError> {
        let uffd = kernel::userfaultfd().map_err(|error| Missing::userfaultfd(&error))?;
        let features = if writes_noted { FEATURES } else { FEATURES & !kernel::FEATURE_WP_ASYNC };
        let mut api = UffdioApi { api: kernel::UFFD_API, features, ioctls: 0 };
        kernel::api(uffd.as_fd(), &mut api)
            .map_err(|_| Missing::Features { lacking: lacking() })?;
        let range = UffdioRange { start: space.address(0), len: space.geometry().bytes };
        let mode = kernel::REGISTER_MISSING | kernel::REGISTER_MINOR | kernel::REGISTER_WP;
        let mut register = UffdioRegister { range, mode, ioctls: 0 };
        // SAFETY: the whole of the space, which was mapped for this and is not used yet.
        unsafe { kernel::register(uffd.as_fd(), &mut register) }
            .map_err(failed("UFFDIO_REGISTER"))?;
        let pagemap = std::fs::File::open("/proc/self/pagemap")
            .map_err(|error| Missing::page_scan(&error))?;
        let mapped = UnitSet::new(space.geometry().units());
        let pagemap = OwnedFd::from(pagemap);
        Ok(UserFault { uffd, pagemap, mapped, space: space.clone(), page: system_page() })
    }

    /// Makes bytes visible, protected or not. Pages that are visible stay as they are.
    fn show(&self, bytes: Range<u64>, mode: u64) -> Result<(), ViewError> {
        let (mut at, mut tries) = (bytes.start, 0);
        while at < bytes.end {
            let len = MAP_BYTES.min(bytes.end - at);
            let range = UffdioRange { start: self.space.address(at), len };
            let mut argument = UffdioContinue { range, mode, mapped: 0 };
            let result = kernel::make_visible(self.uffd.as_fd(), &mut argument);
            let Err(error) = result else {
                at += len;
                tries = 0;
                continue;
            };
            if let Ok(done @ 1..) = u64::try_from(argument.mapped) {
                at += done.min(len);
                tries = 0;
                continue;
            }
            match error.raw_os_error() {
                // Another thread was faster.
                Some(libc::EEXIST) => at += self.page,
                // The layout of this process changes at this moment.
                Some(libc::EAGAIN) => {}
                // A hole: nobody has touched it on this node.
                Some(libc::EFAULT) if tries < POPULATE_TRIES => {
                    let populated = POPULATE_BYTES.min(bytes.end - at);
                    let result = self.space.memory().populate(at, populated);
                    result.map_err(|source| ViewError::NoMemory { source })?;
                    tries += 1;
                }
                Some(libc::ENOMEM) => return Err(ViewError::NoMemory { source: error }),
                _ => return Err(failed("UFFDIO_CONTINUE")(error)),
            }
        }
        Ok(())
    }

    pub(super) fn uffd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.uffd.as_fd()
    }

    /// Shows a unit that is mapped, if its memory was reclaimed.
    pub(super) fn show_again(&self, unit: u64, protected: bool) -> Result<(), ViewError> {
        let mode = if protected { kernel::CONTINUE_WP } else { 0 };
        self.show(self.space.bytes_of(&(unit..unit + 1)), mode)
    }

    /// Takes units out of sight; those that were visible.
    pub(super) fn forget(&self, units: &[Range<u64>]) -> Result<Vec<Range<u64>>, ViewError> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for units in units {
            for run in self.mapped.runs(units.clone()) {
                push(&mut runs, 0, run);
            }
        }
        if !runs.is_empty() {
            let bytes: Vec<_> = runs.iter().map(|run| self.space.bytes_of(run)).collect();
            self.space.advise_all(&bytes, libc::MADV_DONTNEED).map_err(failed("madvise"))?;
        }
        runs.iter().for_each(|run| self.mapped.remove(run));
        Ok(runs)
    }

    /// Calls `found` for each range of bytes whose pages have the categories, in order.
    fn scan(
        &self,
        within: &Range<u64>,
        categories: u64,
        flags: u64,
        mut found: impl FnMut(Range<u64>),
    ) -> Result<(), ViewError> {
        let pages = (within.end - within.start) / self.page;
        let mut ranges = vec![PageRegion::default(); pages.min(SCAN_RANGES) as usize];
        let (base, end) = (self.space.address(0), self.space.address(within.end));
        let mut start = self.space.address(within.start);
        while start < end {
            let mut argument = PageScan {
                flags,
                start,
                end,
                category_mask: categories,
                return_mask: categories,
                ..PageScan::default()
            };
            let count = match kernel::scan(self.pagemap.as_fd(), &mut argument, &mut ranges) {
                Ok(count) => count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(failed("PAGEMAP_SCAN")(error)),
            };
            for range in &ranges[..count] {
                found(range.start - base..range.end - base);
            }
            if argument.walk_end <= start {
                return Err(failed("PAGEMAP_SCAN")(io::ErrorKind::InvalidData.into()));
            }
            start = argument.walk_end;
        }
        Ok(())
    }

    /// Units between two others that are far enough apart for a scan of each.
    fn apart(&self) -> u64 {
        SCAN_ON_BYTES / self.space.geometry().unit()
    }

    /// Of bytes that were taken out of sight, adds the units that were written. Markers are at pages that were not; all others were.
    fn note_unmarked(
        &self,
        taken: &[Range<u64>],
        dirty: &mut Vec<Range<u64>>,
        first: usize,
    ) -> Result<(), ViewError> {
        let (Some(begin), Some(end)) = (taken.first(), taken.last()) else { return Ok(()) };
        let mut left = taken.iter().cloned();
        let mut part = left.next();
        self.scan(&(begin.start..end.end), kernel::PAGE_IS_SWAPPED, 0, |clean| {
            while let Some(bytes) = part.take() {
                if clean.start > bytes.start {
                    self.note(bytes.start..clean.start.min(bytes.end), dirty, first);
                }
                let rest = bytes.start.max(clean.end)..bytes.end;
                if !rest.is_empty() {
                    part = Some(rest);
                    break;
                }
                part = left.next();
            }
        })?;
        for bytes in part.into_iter().chain(left) {
            self.note(bytes, dirty, first);
        }
        Ok(())
    }

    /// Adds the mapped ones of the units in which these bytes are.
    fn note(&self, bytes: Range<u64>, dirty: &mut Vec<Range<u64>>, first: usize) {
        let unit = self.space.geometry().unit();
        for run in self.mapped.runs(bytes.start / unit..bytes.end.div_ceil(unit)) {
            push(dirty, first, run);
        }
    }
}

/// The features that this kernel lacks.
fn lacking() -> u64 {
    let mut api = UffdioApi { api: kernel::UFFD_API, ..UffdioApi::default() };
    // A descriptor is asked once, so this is another one.
    let asked = kernel::userfaultfd().and_then(|uffd| kernel::api(uffd.as_fd(), &mut api));
    if asked.is_ok() { FEATURES & !api.features } else { FEATURES }
}

impl Backend for UserFault {
    fn map(&self, units: Range<u64>) -> Result<(), ViewError> {
        for gap in self.mapped.gaps(units) {
            // Another thread may map the same, and the program write it: then it stays as it is. (Only if the kernel also reclaimed
            // that page before the next call would it look unwritten.)
            self.show(self.space.bytes_of(&gap), kernel::CONTINUE_WP)?;
            self.mapped.insert(&gap);
        }
        Ok(())
    }

    fn drop_units(
        &self,
        units: &[Range<u64>],
        dirty: &mut Vec<Range<u64>>,
    ) -> Result<(), ViewError> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for units in units {
            for run in self.mapped.runs(units.clone()) {
                push(&mut runs, 0, run);
            }
        }
        if runs.is_empty() {
            return Ok(());
        }
        let bytes: Vec<_> = runs.iter().map(|run| self.space.bytes_of(run)).collect();
        self.space.advise_all(&bytes, libc::MADV_DONTNEED).map_err(failed("madvise"))?;
        let first = dirty.len();
        let apart = self.apart() * self.space.geometry().unit();
        for near in bytes.chunk_by(|one, next| next.start - one.end < apart) {
            self.note_unmarked(near, dirty, first)?;
        }
        runs.iter().for_each(|run| self.mapped.remove(run));
        Ok(())
    }

    fn collect(&self, within: Range<u64>, dirty: &mut Vec<Range<u64>>) -> Result<(), ViewError> {
        let flags = kernel::SCAN_PROTECT | kernel::SCAN_CHECK_ASYNC;
        let first = dirty.len();
        for units in self.mapped.clusters(within, self.apart()) {
            self.scan(&self.space.bytes_of(&units), kernel::PAGE_IS_WRITTEN, flags, |written| {
                self.note(written, dirty, first);
            })?;
        }
        Ok(())
    }

    fn repair(&self, unit: u64, _: Access) -> Result<bool, ViewError> {
        if !self.mapped.contains(unit) {
            return Ok(false);
        }
        // Another thread mapped it a moment ago, or its memory was reclaimed. Whether it had been written is not known here, so it
        // counts as written.
        self.show_again(unit, false)?;
        Ok(true)
    }

    fn expect_write(&self, _: u64) -> Result<(), ViewError> {
        // The kernel notes the write without a fault.
        Ok(())
    }

    fn is_writable(&self, unit: u64) -> bool {
        self.mapped.contains(unit)
    }

    fn visible(&self, units: Range<u64>) -> Vec<Range<u64>> {
        self.mapped.runs(units).collect()
    }

    fn is_mapped(&self, unit: u64) -> bool {
        self.mapped.contains(unit)
    }
}
