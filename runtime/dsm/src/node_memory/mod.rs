//! Memory that the ranks of a node share: one copy of the job's shared memory, its twins, and a table.
//!
//! | file | contents |
//! |---|---|
//! | copy | the shared memory as this node has it |
//! | twin | for each page the image of it that was last received, at the same place |
//! | table | a head of 64 words, then for each page one 64-bit word; their meaning is their user's |
//!
//! All are sparse: what nobody touched takes no memory. The first rank of a node makes the files, and the others open them
//! by its [`Offer`]. What lies in them may change at any time, so it is reached by copies and by atomics only.
//!
//! A *page* here has the size of a [`UnitSize`]. A node without memory left ends the process that touches a new page by
//! SIGBUS, as the kernel does for every memory file.

mod files;
mod offer;
mod region;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use kumi_coherence::diff::PageChange;
use kumi_net::{ForkCheck, SharedBytesMut};

pub use offer::{Offer, OfferError};

use files::File;
use region::Region;

/// Bytes of a word of the table.
const WORD: u64 = size_of::<u64>() as u64;

/// Words at the table's begin that belong to no page.
pub const HEAD_WORDS: usize = 64;

/// Why memory of a node cannot be made, opened or reached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// A unit must be a multiple of the machine's pages.
    #[error("a unit of {bytes} bytes: use a multiple of {page} up to {most}", most = UnitSize::MOST)]
    Unit {
        /// Bytes asked for.
        bytes: u32,
        /// Bytes of a page of this machine.
        page: u64,
    },
    /// The size must be a positive multiple of the unit that fits the address space.
    #[error(
        "shared memory of {bytes} bytes: use a positive multiple of the unit, {unit} bytes, below 2^46"
    )]
    Size {
        /// Bytes asked for.
        bytes: u64,
        /// Bytes of a unit.
        unit: u32,
    },
    /// A system call failed.
    #[error("{what} failed: {source}{}", hint(.what))]
    Io {
        /// The call.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
    /// A descriptor of an offer is something else.
    #[error(
        "descriptor {descriptor} of process {pid} is not the {file} file of a node's memory: {reason}; the rank that offered it has ended, or is of another job"
    )]
    NotOffered {
        /// Which file was expected.
        file: &'static str,
        /// Process that offered it.
        pid: u32,
        /// Number of the descriptor in that process.
        descriptor: i32,
        /// What does not fit.
        reason: &'static str,
    },
    /// Bytes that are not there.
    #[error(
        "{length} bytes from byte {offset} of page {page} on: the memory has {pages} pages of {unit} bytes"
    )]
    Outside {
        /// Page.
        page: u64,
        /// First byte in it.
        offset: usize,
        /// Bytes.
        length: usize,
        /// Pages that there are.
        pages: u64,
        /// Bytes of a page.
        unit: u32,
    },
    /// A child made by `fork` has not the memory.
    #[error(
        "this process is a fork of the rank's process and has no shared memory; start another program, or use threads"
    )]
    Forked,
}

/// What to do about a failed call.
fn hint(what: &str) -> &'static str {
    match what {
        "mmap" => "; raise the limit of address space (ulimit -v), or ask for less shared memory",
        "open of an offered descriptor" => {
            "; all ranks of a node need the same user and the same view of processes (/proc)"
        }
        _ => "",
    }
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> MemoryError {
    move |source| MemoryError::Io { what, source }
}

/// Bytes of the units in which shared memory moves: a multiple of the machine's pages, at most 64 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnitSize(u32);

impl UnitSize {
    /// The largest.
    pub const MOST: u32 = 64 << 10;

    /// A unit of so many bytes.
    ///
    /// # Errors
    /// [`MemoryError::Unit`].
    pub fn new(bytes: u32) -> Result<UnitSize, MemoryError> {
        let page = system_page();
        let whole = bytes > 0 && u64::from(bytes).is_multiple_of(page);
        if whole && bytes <= UnitSize::MOST {
            Ok(UnitSize(bytes))
        } else {
            Err(MemoryError::Unit { bytes, page })
        }
    }

    /// Its bytes.
    #[must_use]
    pub fn bytes(self) -> u32 {
        self.0
    }
}

/// Bytes of a page of this machine.
pub(crate) fn system_page() -> u64 {
    // SAFETY: no pointers; every system knows this.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    u64::try_from(page).unwrap_or(4096)
}

/// The sizes of a node's memory. A value of this type is consistent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Bytes of the shared memory.
    pub(crate) bytes: u64,
    pub(crate) unit: UnitSize,
}

impl Geometry {
    fn new(bytes: u64, unit: UnitSize) -> Result<Geometry, MemoryError> {
        let fits = bytes > 0 && bytes < 1 << 46 && bytes.is_multiple_of(u64::from(unit.0));
        if fits {
            Ok(Geometry { bytes, unit })
        } else {
            Err(MemoryError::Size { bytes, unit: unit.0 })
        }
    }

    pub(crate) fn unit(self) -> u64 {
        u64::from(self.unit.0)
    }

    pub(crate) fn units(self) -> u64 {
        self.bytes / self.unit()
    }

    /// Bytes of each file, in the order of [`File`].
    fn files(self) -> [u64; 3] {
        [
            self.bytes,
            self.bytes,
            ((HEAD_WORDS as u64 + self.units()) * WORD).next_multiple_of(system_page()),
        ]
    }
}

/// The shared memory of a node, as one of its ranks has it. The files live as long as a rank has them.
#[derive(Debug)]
pub struct NodeMemory {
    geometry: Geometry,
    copy: Region,
    twin: Region,
    table: Region,
    files: [OwnedFd; 3],
    forks: ForkCheck,
}

impl NodeMemory {
    /// Makes the files, all zeros. `bytes` is a multiple of the unit; address space is cheap, memory comes with use.
    ///
    /// # Errors
    /// [`MemoryError::Size`], or the kernel's refusal.
    pub fn create(bytes: u64, unit: UnitSize) -> Result<NodeMemory, MemoryError> {
        let geometry = Geometry::new(bytes, unit)?;
        let [copy, twin, table] = geometry.files();
        let files = [
            files::create(File::Copy, copy)?,
            files::create(File::Twin, twin)?,
            files::create(File::Table, table)?,
        ];
        NodeMemory::map(geometry, files)
    }

    /// What another rank of the node needs in order to [`NodeMemory::accept`] this memory. It holds while this process has
    /// this value.
    #[must_use]
    pub fn offer(&self) -> Offer {
        let fds = [0, 1, 2].map(|at: usize| self.files[at].as_raw_fd());
        let (bytes, unit) = (self.geometry.bytes, self.geometry.unit.0);
        Offer { pid: std::process::id(), fds, bytes, unit }
    }

    /// Opens the memory that another rank of this node, of the same user, offers. Nothing of the offer is believed: each
    /// descriptor must be a memory file of its name, its size, and sealed against another one.
    ///
    /// # Errors
    /// [`MemoryError::NotOffered`], [`MemoryError::Size`], [`MemoryError::Unit`], or the kernel's refusal.
    pub fn accept(offer: Offer) -> Result<NodeMemory, MemoryError> {
        let geometry = Geometry::new(offer.bytes, UnitSize::new(offer.unit)?)?;
        let [copy, twin, table] = geometry.files();
        let files = [
            files::open(File::Copy, offer.pid, offer.fds[0], copy)?,
            files::open(File::Twin, offer.pid, offer.fds[1], twin)?,
            files::open(File::Table, offer.pid, offer.fds[2], table)?,
        ];
        NodeMemory::map(geometry, files)
    }

    fn map(geometry: Geometry, files: [OwnedFd; 3]) -> Result<NodeMemory, MemoryError> {
        let forks = ForkCheck::watch().map_err(failed("pthread_atfork"))?;
        let [copy, twin, table] = geometry.files();
        let region = |at: usize, bytes| Region::new(files[at].as_fd(), bytes, forks);
        let (copy, twin, table) = (region(0, copy)?, region(1, twin)?, region(2, table)?);
        Ok(NodeMemory { geometry, copy, twin, table, files, forks })
    }

    /// Bytes of the shared memory.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.geometry.bytes
    }

    /// Bytes of a page.
    #[must_use]
    pub fn unit(&self) -> UnitSize {
        self.geometry.unit
    }

    /// Pages: bytes divided by the unit.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.geometry.units()
    }

    /// The node's copy of a page.
    ///
    /// # Errors
    /// [`MemoryError::Outside`], [`MemoryError::Forked`].
    pub fn page(&self, page: u64) -> Result<SharedBytesMut<'_>, MemoryError> {
        self.part(&self.copy, page, 0, self.unit_bytes())
    }

    /// The twin of a page.
    ///
    /// # Errors
    /// As [`NodeMemory::page`].
    pub fn twin(&self, page: u64) -> Result<SharedBytesMut<'_>, MemoryError> {
        self.part(&self.twin, page, 0, self.unit_bytes())
    }

    /// Copies the first `into.len()` bytes of a page out, at most a page.
    ///
    /// # Errors
    /// As [`NodeMemory::page`].
    pub fn read_page(&self, page: u64, into: &mut [u8]) -> Result<(), MemoryError> {
        self.part(&self.copy, page, 0, into.len())?.shared().copy_to(into);
        Ok(())
    }

    /// Copies bytes to the node's copy of a page, from byte `offset` of it on.
    ///
    /// # Errors
    /// As [`NodeMemory::page`].
    pub fn write(&self, page: u64, offset: usize, bytes: &[u8]) -> Result<(), MemoryError> {
        self.part(&self.copy, page, offset, bytes.len())?.copy_from(bytes);
        Ok(())
    }

    /// Changes the node's copy of a page, each word at once: ranks may read and write it meanwhile.
    ///
    /// # Errors
    /// As [`NodeMemory::page`].
    pub fn change(&self, page: u64, change: PageChange<'_>) -> Result<(), MemoryError> {
        self.change_in(&self.copy, page, change)
    }

    /// As [`NodeMemory::read_page`], of the twin.
    ///
    /// # Errors
    /// As [`NodeMemory::page`].
    pub fn read_twin(&self, page: u64, into: &mut [u8]) -> Result<(), MemoryError> {
        self.part(&self.twin, page, 0, into.len())?.shared().copy_to(into);
        Ok(())
    }

    /// As [`NodeMemory::write`], to the twin.
    ///
    /// # Errors
    /// As [`NodeMemory::page`].
    pub fn write_twin(&self, page: u64, offset: usize, bytes: &[u8]) -> Result<(), MemoryError> {
        self.part(&self.twin, page, offset, bytes.len())?.copy_from(bytes);
        Ok(())
    }

    /// As [`NodeMemory::change`], of the twin.
    ///
    /// # Errors
    /// As [`NodeMemory::page`].
    pub fn change_twin(&self, page: u64, change: PageChange<'_>) -> Result<(), MemoryError> {
        self.change_in(&self.twin, page, change)
    }

    /// Copies whole pages to the copy and to their twins, from page `first` on. This is the fast way for pages that have no
    /// memory yet: the kernel takes the bytes without zeroing the pages before.
    ///
    /// # Errors
    /// As [`NodeMemory::page`], and the kernel's refusal.
    pub fn store(&self, first: u64, pages: &[u8]) -> Result<(), MemoryError> {
        self.store_in(&self.files[..2], first, pages)
    }

    /// As [`NodeMemory::store`], to the copy only.
    ///
    /// # Errors
    /// As [`NodeMemory::store`].
    pub(crate) fn store_copy(&self, first: u64, pages: &[u8]) -> Result<(), MemoryError> {
        self.store_in(&self.files[..1], first, pages)
    }

    fn store_in(&self, files: &[OwnedFd], first: u64, pages: &[u8]) -> Result<(), MemoryError> {
        let unit = self.unit_bytes();
        let count = (pages.len() / unit) as u64;
        self.check(first, 0, 0)?;
        if !pages.len().is_multiple_of(unit) || count > self.pages() - first {
            let (offset, length) = (0, pages.len());
            let (pages, unit) = (self.pages(), self.geometry.unit.0);
            return Err(MemoryError::Outside { page: first, offset, length, pages, unit });
        }
        let start = first * self.geometry.unit();
        for file in files {
            files::write(file.as_fd(), start, pages)?;
        }
        Ok(())
    }

    /// The table's word of a page.
    ///
    /// # Errors
    /// As [`NodeMemory::page`].
    pub fn word(&self, page: u64) -> Result<&AtomicU64, MemoryError> {
        self.check(page, 0, 0)?;
        Ok(self.table_word(HEAD_WORDS as u64 + page))
    }

    /// A word of the table's head.
    ///
    /// # Panics
    /// If `index` is not below [`HEAD_WORDS`].
    #[must_use]
    pub fn head(&self, index: usize) -> &AtomicU64 {
        assert!(index < HEAD_WORDS, "word {index} of the table's head");
        self.table_word(index as u64)
    }

    fn table_word(&self, at: u64) -> &AtomicU64 {
        let word = self.table.bytes(at * WORD, WORD as usize).atomic_u64();
        word.expect("words of the table are aligned, since its mapping begins at a page")
    }

    fn unit_bytes(&self) -> usize {
        self.geometry.unit.0 as usize
    }

    fn part<'m>(
        &'m self,
        region: &'m Region,
        page: u64,
        offset: usize,
        length: usize,
    ) -> Result<SharedBytesMut<'m>, MemoryError> {
        self.check(page, offset, length)?;
        Ok(region.bytes(page * self.geometry.unit() + offset as u64, length))
    }

    fn change_in(
        &self,
        region: &Region,
        page: u64,
        change: PageChange<'_>,
    ) -> Result<(), MemoryError> {
        match change {
            PageChange::Words { offset, bytes } => {
                self.part(region, page, offset, bytes.len())?.copy_from(bytes);
            }
            PageChange::Bytes { offset, word, mask } => {
                let place = self.part(region, page, offset, word.len())?.atomic_u64();
                let place = place.expect("words of a page are aligned, since its mapping is");
                let bits = [0, 1, 2, 3, 4, 5, 6, 7]
                    .map(|at| if mask >> at & 1 == 0 { 0 } else { u8::MAX });
                let (bits, new) = (u64::from_ne_bytes(bits), u64::from_ne_bytes(word));
                // A rank may write the other bytes meanwhile: then it is tried again.
                let _ = place.fetch_update(Relaxed, Relaxed, |old| Some(old & !bits | new & bits));
            }
        }
        Ok(())
    }

    fn check(&self, page: u64, offset: usize, length: usize) -> Result<(), MemoryError> {
        if self.forks.is_child() {
            return Err(MemoryError::Forked);
        }
        let (pages, unit) = (self.pages(), self.geometry.unit.0);
        let inside = offset.checked_add(length).is_some_and(|end| end <= unit as usize);
        if page < pages && inside {
            Ok(())
        } else {
            Err(MemoryError::Outside { page, offset, length, pages, unit })
        }
    }

    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The file with the node's copy.
    pub(crate) fn copy_file(&self) -> BorrowedFd<'_> {
        self.files[0].as_fd()
    }

    /// Sees to it that bytes of the copy have memory, which reads as zeros if nothing was written.
    pub(crate) fn populate(&self, start: u64, bytes: u64) -> io::Result<()> {
        self.copy.populate(start, bytes)
    }

    /// Gives memory of their own to a page and its twin; whether they have it now. Kernels before 5.14 cannot, and where memory is short
    /// whoever writes the page learns of it.
    ///
    /// # Errors
    /// As [`NodeMemory::page`].
    pub(crate) fn make_ready(&self, page: u64) -> Result<bool, MemoryError> {
        self.check(page, 0, 0)?;
        let (start, bytes) = (page * self.geometry.unit(), self.geometry.unit());
        let made = self.copy.make(start, bytes).and_then(|()| self.twin.make(start, bytes));
        Ok(made.is_ok())
    }

    /// Tells this process from its children.
    pub(crate) fn forks(&self) -> ForkCheck {
        self.forks
    }
}
