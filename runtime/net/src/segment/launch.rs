//! Launch block of a rank: the descriptors it inherits from its daemon, and the environment variables
//! that name them.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::segment::files::FilesOfRank;
pub use crate::sys::{bind_socket, doorbell};
use crate::sys::{is_open, set_cloexec};

/// The lowest descriptor that a daemon can pass on: those before are the streams of the program.
const FIRST_DESCRIPTOR: RawFd = 3;

/// The launch block of one rank. The daemon fills it, the rank reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchBlock {
    /// The job's number.
    pub job: u64,
    /// This rank.
    pub rank: u32,
    /// Ranks of the job.
    pub ranks: u32,
    /// The node it runs on.
    pub node: u32,
    /// The job file of the segment, for reading.
    pub job_file: RawFd,
    /// The shared file of the segment.
    pub shared_file: RawFd,
    /// This rank's own UDP socket.
    pub socket: RawFd,
    /// Those of each local rank, in order.
    pub local: Vec<LocalRank<RawFd>>,
}

/// What a rank has open of a rank of its node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalRank<F> {
    /// Its doorbell, an eventfd.
    pub doorbell: F,
    /// Its rank file, for reading unless it is the own one.
    pub rank_file: F,
    /// Its arena file, as the rank file.
    pub arena_file: F,
}

impl<F> LocalRank<F> {
    fn each(self) -> [F; 3] {
        [self.doorbell, self.rank_file, self.arena_file]
    }
}

/// The descriptors of a launch block, which this process owns now. They close when a program that this one becomes
/// starts.
#[derive(Debug)]
pub struct LaunchDescriptors {
    /// The job file of the segment.
    pub job_file: OwnedFd,
    /// The shared file of the segment.
    pub shared_file: OwnedFd,
    /// This rank's own UDP socket.
    pub socket: OwnedFd,
    /// Those of each local rank, in order.
    pub local: Vec<LocalRank<OwnedFd>>,
}

impl LaunchDescriptors {
    /// Those of a rank that is started in this process, or by it: copies of its files.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn of(
        files: &FilesOfRank<'_>,
        socket: OwnedFd,
        doorbells: Vec<OwnedFd>,
    ) -> io::Result<LaunchDescriptors> {
        let mut local = Vec::new();
        for (doorbell, [rank_file, arena_file]) in doorbells.into_iter().zip(&files.ranks) {
            let rank_file = rank_file.try_clone_to_owned()?;
            let arena_file = arena_file.try_clone_to_owned()?;
            local.push(LocalRank { doorbell, rank_file, arena_file });
        }
        let job_file = files.job.try_clone_to_owned()?;
        let shared_file = files.shared.try_clone_to_owned()?;
        Ok(LaunchDescriptors { job_file, shared_file, socket, local })
    }

    /// The block that names them, of this rank of so many on this node.
    #[must_use]
    pub fn block(&self, job: u64, rank: u32, ranks: u32, node: u32) -> LaunchBlock {
        let local = |of: &LocalRank<OwnedFd>| LocalRank {
            doorbell: of.doorbell.as_raw_fd(),
            rank_file: of.rank_file.as_raw_fd(),
            arena_file: of.arena_file.as_raw_fd(),
        };
        LaunchBlock {
            job,
            rank,
            ranks,
            node,
            job_file: self.job_file.as_raw_fd(),
            shared_file: self.shared_file.as_raw_fd(),
            socket: self.socket.as_raw_fd(),
            local: self.local.iter().map(local).collect(),
        }
    }
}

/// Why a program cannot join its job.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum LaunchError {
    /// None of the variables is there.
    #[error(
        "this program was not started by `kumi run`: start it with `kumi run -n RANKS PROGRAM`, or set KUMI_SINGLETON=1 to run it as a job of one rank"
    )]
    NotLaunched,
    /// A variable is missing or wrong.
    #[error(
        "the environment variable {name} that `kumi run` sets is {found:?}: it was changed on the way; start the program with `kumi run` again and leave it alone"
    )]
    BadVariable {
        /// Its name.
        name: &'static str,
        /// Its value, empty if it is missing.
        found: String,
    },
    /// A descriptor is not open here.
    #[error(
        "descriptor {descriptor} ({what}) that `kumi run` passes to its ranks is not open: a program in between closed it; let it pass open files on"
    )]
    Closed {
        /// The number.
        descriptor: RawFd,
        /// The expected value.
        what: &'static str,
    },
    /// The kernel refused to have a descriptor closed in children.
    #[error(
        "descriptor {descriptor} that `kumi run` passes to its ranks cannot be taken over: {reason}"
    )]
    Refused {
        /// The number.
        descriptor: RawFd,
        /// The kernel's reason.
        reason: io::ErrorKind,
    },
}

const NAMES: [&str; 5] = ["KUMI_JOB", "KUMI_RANK", "KUMI_RANKS", "KUMI_NODE", "KUMI_FDS"];

/// Checks that descriptors can be taken over, and has them closed in programs that follow.
pub(crate) fn prepare(all: &[(RawFd, &'static str)]) -> Result<(), LaunchError> {
    for (descriptor, what) in all {
        if !is_open(*descriptor) {
            return Err(LaunchError::Closed { descriptor: *descriptor, what });
        }
    }
    for (descriptor, _) in all {
        set_cloexec(*descriptor, true).map_err(|error| LaunchError::Refused {
            descriptor: *descriptor,
            reason: error.kind(),
        })?;
    }
    Ok(())
}

/// Numbers of descriptors that a daemon can have passed on: none twice, none of a stream.
pub(crate) fn descriptors(text: &str) -> Option<Vec<RawFd>> {
    let numbers: Vec<RawFd> =
        text.split(',').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let different: BTreeSet<_> = numbers.iter().filter(|raw| **raw >= FIRST_DESCRIPTOR).collect();
    (different.len() == numbers.len()).then_some(numbers)
}

impl LaunchBlock {
    /// The variables to set for the rank. The descriptors must be open in it under these numbers.
    #[must_use]
    pub fn to_env(&self) -> Vec<(String, String)> {
        let descriptors: Vec<String> = self.descriptors().map(|raw| raw.to_string()).collect();
        let values = [
            self.job.to_string(),
            self.rank.to_string(),
            self.ranks.to_string(),
            self.node.to_string(),
            descriptors.join(","),
        ];
        NAMES.iter().map(ToString::to_string).zip(values).collect()
    }

    /// Takes the descriptors over, all or none.
    ///
    /// # Safety
    /// The block is the one that this process's environment names, as its daemon wrote it. Nothing else in the process
    /// owns or closes the descriptors, and this has not succeeded before: call it once, at initialisation.
    ///
    /// # Errors
    /// [`LaunchError::Closed`] and [`LaunchError::Refused`].
    pub unsafe fn adopt(&self) -> Result<LaunchDescriptors, LaunchError> {
        let first = [
            (self.job_file, "the job file"),
            (self.shared_file, "the shared file"),
            (self.socket, "the socket"),
        ];
        let names = ["a doorbell", "a rank file", "an arena file"];
        let local = self.local.iter().flat_map(|rank| rank.each().into_iter().zip(names));
        prepare(&first.into_iter().chain(local).collect::<Vec<_>>())?;
        // SAFETY: open, each number once (see `prepare`), and owned by nobody else by the caller's promise.
        let own = |raw: RawFd| unsafe { OwnedFd::from_raw_fd(raw) };
        let local = |rank: &LocalRank<RawFd>| {
            let [doorbell, rank_file, arena_file] = rank.each().map(own);
            LocalRank { doorbell, rank_file, arena_file }
        };
        Ok(LaunchDescriptors {
            job_file: own(self.job_file),
            shared_file: own(self.shared_file),
            socket: own(self.socket),
            local: self.local.iter().map(local).collect(),
        })
    }

    /// All descriptors that the rank inherits, in the order of the environment variable.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let first = [self.job_file, self.shared_file, self.socket];
        first.into_iter().chain(self.local.iter().flat_map(|rank| rank.each()))
    }

    /// Reads the variables of this process.
    ///
    /// # Errors
    /// [`LaunchError::NotLaunched`] if there are none, [`LaunchError::BadVariable`] if one is missing or wrong.
    pub fn from_env() -> Result<LaunchBlock, LaunchError> {
        LaunchBlock::from_lookup(|name| std::env::var(name).ok())
    }

    /// Reads the variables through `lookup`.
    ///
    /// # Errors
    /// As [`LaunchBlock::from_env`].
    pub fn from_lookup(
        lookup: impl Fn(&str) -> Option<String>,
    ) -> Result<LaunchBlock, LaunchError> {
        if NAMES.iter().all(|name| lookup(name).is_none()) {
            return Err(LaunchError::NotLaunched);
        }
        let bad = |name: &'static str| LaunchError::BadVariable {
            name,
            found: lookup(name).unwrap_or_default(),
        };
        let number = |name: &'static str| {
            lookup(name).and_then(|text| text.parse::<u64>().ok()).ok_or_else(|| bad(name))
        };
        let small = |name: &'static str| {
            number(name).and_then(|value| u32::try_from(value).map_err(|_| bad(name)))
        };
        let text = lookup("KUMI_FDS").unwrap_or_default();
        let found = descriptors(&text).ok_or_else(|| bad("KUMI_FDS"))?;
        let [job_file, shared_file, socket, ref of_ranks @ ..] = found[..] else {
            return Err(bad("KUMI_FDS"));
        };
        let (triples, rest) = of_ranks.as_chunks::<3>();
        if triples.is_empty() || !rest.is_empty() {
            return Err(bad("KUMI_FDS"));
        }
        let local = triples.iter().map(|[doorbell, rank_file, arena_file]| LocalRank {
            doorbell: *doorbell,
            rank_file: *rank_file,
            arena_file: *arena_file,
        });
        let launch = LaunchBlock {
            job: number("KUMI_JOB")?,
            rank: small("KUMI_RANK")?,
            ranks: small("KUMI_RANKS")?,
            node: small("KUMI_NODE")?,
            job_file,
            shared_file,
            socket,
            local: local.collect(),
        };
        if launch.rank >= launch.ranks {
            return Err(bad("KUMI_RANK"));
        }
        Ok(launch)
    }
}

/// The descriptors of the pages that the node's daemon discloses, as a rank inherits them; see [`crate::disclosure`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageDescriptors {
    /// The node's.
    pub node: RawFd,
    /// The job's.
    pub job: RawFd,
}

/// The variable that names the pages.
const PAGES: &str = "KUMI_PAGES";

impl PageDescriptors {
    /// The variable to set for the rank.
    #[must_use]
    pub fn to_env(&self) -> (String, String) {
        (PAGES.to_owned(), format!("{},{}", self.node, self.job))
    }

    /// Takes the descriptors over: the node's page, then the job's.
    ///
    /// # Safety
    /// As [`LaunchBlock::adopt`].
    ///
    /// # Errors
    /// As [`LaunchBlock::adopt`].
    pub unsafe fn adopt(&self) -> Result<[OwnedFd; 2], LaunchError> {
        let both = [self.node, self.job];
        prepare(&both.map(|raw| (raw, "a page of the node")))?;
        // SAFETY: open, different (as `from_text` checks), and owned by nobody else by the caller's promise.
        Ok(both.map(|raw| unsafe { OwnedFd::from_raw_fd(raw) }))
    }

    /// Reads the variable of this process; none if it is not set: a rank without a daemon has no pages.
    ///
    /// # Errors
    /// [`LaunchError::BadVariable`].
    pub fn from_env() -> Result<Option<PageDescriptors>, LaunchError> {
        PageDescriptors::from_text(std::env::var(PAGES).ok())
    }

    fn from_text(text: Option<String>) -> Result<Option<PageDescriptors>, LaunchError> {
        let Some(found) = text else { return Ok(None) };
        match descriptors(&found).as_deref() {
            Some(&[node, job]) => Ok(Some(PageDescriptors { node, job })),
            _ => Err(LaunchError::BadVariable { name: PAGES, found }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::IntoRawFd;

    #[test]
    #[cfg_attr(miri, ignore = "flags of descriptors stay as they are there")]
    fn only_descriptors_that_can_be_owned_are_adopted() {
        let own = || doorbell().expect("eventfd").into_raw_fd();
        let (job_file, shared_file, socket) = (own(), own(), own());
        let (bell, rank_file, arena_file) = (own(), own(), own());
        let (job, rank, ranks, node) = (1, 0, 1, 0);
        let block = |doorbell| {
            let local = vec![LocalRank { doorbell, rank_file, arena_file }];
            LaunchBlock { job, rank, ranks, node, job_file, shared_file, socket, local }
        };
        // SAFETY: nothing is taken over: the last one is not open.
        let closed = unsafe { block(1_000_000).adopt() };
        assert!(matches!(closed, Err(LaunchError::Closed { descriptor: 1_000_000, .. })));
        assert!(is_open(job_file) && is_open(socket), "all or none");
        // SAFETY: they were just made, and this test gave up owning them.
        let owned = unsafe { block(bell).adopt() }.expect("all are open");
        assert_eq!(owned.job_file.as_raw_fd(), job_file);
        assert_eq!(owned.local[0].arena_file.as_raw_fd(), arena_file);
        drop(owned);
        let good = "3,4,5,6,7,8";
        for text in [
            "3,4,5",
            "3,4,5,6,7",
            "3,4,5,6,7,7",
            "0,3,4,5,6,7",
            "3,2,5,6,7,8",
            "3,4,5,6,7,",
            "3,4,5,6,7,-8",
            good,
        ] {
            let look = |name: &str| match name {
                "KUMI_FDS" => Some(text.to_owned()),
                "KUMI_RANKS" => Some("1".to_owned()),
                _ => Some("0".to_owned()),
            };
            let result = LaunchBlock::from_lookup(look);
            let bad = matches!(result, Err(LaunchError::BadVariable { name: "KUMI_FDS", .. }));
            assert_eq!(bad, text != good, "{text}: {result:?}");
        }
    }

    #[test]
    fn pages_go_through_the_environment() {
        let pages = PageDescriptors { node: 17, job: 4 };
        let (name, value) = pages.to_env();
        assert_eq!((name.as_str(), value.as_str()), ("KUMI_PAGES", "17,4"));
        assert_eq!(PageDescriptors::from_text(Some(value)), Ok(Some(pages)));
        assert_eq!(PageDescriptors::from_text(None), Ok(None));
        for wrong in ["", "7", "7,", "-1,7", "7,8,9", "a,b", "7,7", "2,7"] {
            assert!(PageDescriptors::from_text(Some(wrong.to_owned())).is_err(), "{wrong}");
        }
    }
}
