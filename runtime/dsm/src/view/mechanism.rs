//! The choice between the two mechanisms, by what the kernel can do.

use std::io;
use std::ops::Range;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};

use super::backend::Backend;
use super::error::ViewError;
use super::kernel;
use super::space::Space;
use super::user_fault::UserFault;
use crate::node_memory::{NodeMemory, UnitSize, system_page};

/// How a view learns of accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mechanism {
    /// userfaultfd: missing pages raise SIGBUS, the kernel notes writes by itself. Needs Linux 6.7, and no privilege.
    UserFault,
    /// Access rights: missing pages and first writes raise SIGSEGV. Works everywhere, and costs more for each first write.
    Protect,
}

/// Why userfaultfd cannot be used here, and what that costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Missing {
    /// The system call is refused.
    UserFaultFd {
        /// Number of the kernel's error.
        error: i32,
    },
    /// The kernel's userfaultfd can do less.
    Features {
        /// Bits of `UFFD_FEATURE_*` that are missing.
        lacking: u64,
    },
    /// Page tables cannot be scanned for writes.
    PageScan {
        /// Number of the kernel's error.
        error: i32,
    },
    /// The kernel accepts everything and reports other pages than those that were written.
    Inexact,
}

/// The better mechanism, and why it is not [`Mechanism::UserFault`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// To be used.
    pub mechanism: Mechanism,
    /// `None` if the kernel has everything.
    pub missing: Option<Missing>,
}

impl Mechanism {
    /// The best that this kernel has. Asked once in a process; later calls give the same answer.
    #[must_use]
    pub fn best() -> Choice {
        static MISSING: OnceLock<Option<Missing>> = OnceLock::new();
        let missing = *MISSING.get_or_init(|| probe().err());
        let mechanism = if missing.is_none() { Mechanism::UserFault } else { Mechanism::Protect };
        Choice { mechanism, missing }
    }
}

/// A name of a mechanism that there is not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is no way to learn of page faults: use userfault or mprotect")]
pub struct UnknownMechanism(pub String);

impl FromStr for Mechanism {
    type Err = UnknownMechanism;

    /// `userfault` or `mprotect`, as `KUMI_DSM_FAULTS` has it.
    fn from_str(name: &str) -> Result<Mechanism, UnknownMechanism> {
        match name {
            "userfault" => Ok(Mechanism::UserFault),
            "mprotect" => Ok(Mechanism::Protect),
            _ => Err(UnknownMechanism(name.to_owned())),
        }
    }
}

impl std::fmt::Display for Mechanism {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Mechanism::UserFault => "userfault",
            Mechanism::Protect => "mprotect",
        })
    }
}

impl Missing {
    pub(super) fn userfaultfd(error: &io::Error) -> Missing {
        Missing::UserFaultFd { error: error.raw_os_error().unwrap_or(0) }
    }

    pub(super) fn page_scan(error: &io::Error) -> Missing {
        Missing::PageScan { error: error.raw_os_error().unwrap_or(0) }
    }
}

/// Features by name.
const NAMES: [(u64, &str); 5] = [
    (kernel::FEATURE_SIGBUS, "SIGBUS"),
    (kernel::FEATURE_MINOR_SHMEM, "MINOR_SHMEM"),
    (kernel::FEATURE_WP_SHMEM, "WP_HUGETLBFS_SHMEM"),
    (kernel::FEATURE_WP_UNPOPULATED, "WP_UNPOPULATED"),
    (kernel::FEATURE_WP_ASYNC, "WP_ASYNC"),
];

impl std::fmt::Display for Missing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Missing::UserFaultFd { error } => write!(
                f,
                "the kernel refuses userfaultfd ({}): it was built without, or a container's filter of system calls forbids it",
                io::Error::from_raw_os_error(*error)
            )?,
            Missing::Features { lacking } => {
                f.write_str("the kernel's userfaultfd lacks")?;
                for (_, name) in NAMES.iter().filter(|(bit, _)| lacking & bit != 0) {
                    write!(f, " {name}")?;
                }
                f.write_str(" (Linux 6.7 has all)")?;
            }
            Missing::PageScan { error } => write!(
                f,
                "the kernel cannot scan page tables for writes (PAGEMAP_SCAN: {}; Linux 6.7 can)",
                io::Error::from_raw_os_error(*error)
            )?,
            Missing::Inexact => f.write_str(
                "the kernel's userfaultfd and PAGEMAP_SCAN report other pages than those that were written",
            )?,
        }
        f.write_str(
            "; access rights take its place: a first write to a page costs a signal, and scattered pages count against vm.max_map_count",
        )
    }
}

impl std::error::Error for Missing {}

/// Tries what views rely on, on a few pages.
fn probe() -> Result<(), Missing> {
    let tried = try_pages();
    match tried {
        Ok(true) => Ok(()),
        Ok(false) => Err(Missing::Inexact),
        Err(ViewError::Missing(missing)) => Err(missing),
        Err(ViewError::Io { what: "PAGEMAP_SCAN", source }) => Err(Missing::page_scan(&source)),
        Err(ViewError::Io { source, .. }) => Err(Missing::userfaultfd(&source)),
        Err(_) => Err(Missing::UserFaultFd { error: libc::ENOMEM }),
    }
}

/// Whether exactly the written ones of a few pages are reported, when collected and when dropped.
fn try_pages() -> Result<bool, ViewError> {
    let page = system_page();
    let unit = u32::try_from(page).map_or(UnitSize::MOST, |page| page.min(UnitSize::MOST));
    let memory = Arc::new(NodeMemory::create(page * 16, UnitSize::new(unit)?)?);
    let space = Arc::new(Space::new(&memory, libc::PROT_READ | libc::PROT_WRITE)?);
    let pages = UserFault::new(&space, true)?;
    let (mut collected, mut dropped, mut again) = (Vec::new(), Vec::new(), Vec::new());
    pages.map(2..10)?;
    touch(&space, 3..5);
    pages.collect(0..16, &mut collected)?;
    touch(&space, 4..5);
    touch(&space, 7..8);
    pages.drop_units(&[2..5, 5..9], &mut dropped)?;
    pages.map(2..9)?;
    pages.collect(0..16, &mut again)?;
    Ok(collected == [3..5] && dropped == [4..5, 7..8] && again.is_empty())
}

/// Writes to pages that are mapped.
fn touch(space: &Space, pages: Range<u64>) {
    for page in pages {
        let place = space.base().as_ptr().wrapping_add((page * system_page()) as usize);
        // SAFETY: a mapped page of a space that nobody else knows of.
        unsafe { place.write_volatile(1) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() {
        for mechanism in [Mechanism::UserFault, Mechanism::Protect] {
            assert_eq!(mechanism.to_string().parse(), Ok(mechanism));
        }
        let error = "signals".parse::<Mechanism>().expect_err("no such name");
        assert!(error.to_string().contains("userfault or mprotect"), "{error}");
    }

    #[test]
    fn what_is_missing_is_named_with_its_price() {
        let missing =
            Missing::Features { lacking: kernel::FEATURE_WP_ASYNC | kernel::FEATURE_SIGBUS };
        let text = missing.to_string();
        assert!(
            text.starts_with("the kernel's userfaultfd lacks SIGBUS WP_ASYNC (Linux 6.7"),
            "{text}"
        );
        assert!(text.contains("vm.max_map_count"), "{text}");
    }

    #[test]
    fn a_kernel_that_has_everything_gets_userfaultfd() {
        let choice = Mechanism::best();
        assert_eq!(choice, Mechanism::best(), "the answer changes");
        assert_eq!(choice.missing.is_none(), choice.mechanism == Mechanism::UserFault);
        if let Some(missing) = choice.missing {
            kumi_skip::skip("a_kernel_that_has_everything_gets_userfaultfd", &missing.to_string());
        }
    }
}
