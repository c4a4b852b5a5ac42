//! Writer of the pages, for the daemon.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::atomic::{AtomicU64, fence};

use super::read::NodeLoad;
use super::{
    EVERYONE, JOB_MAGIC, JOB_SLOTS, JobEntry, JobHeader, MOST_NODES, MOST_PROCESSORS, MOST_RANKS,
    NOBODY, NODE_MAGIC, NodeEntry, NodeHeader, OTHERS, PAGES_VERSION, RankState, node_offset,
    node_page_bytes, rank_offset, slot_offset,
};
use crate::shm::mapping::Mapping;

/// Owner of the node's processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// No job.
    Nobody,
    /// This job alone.
    Job(u64),
    /// All, as the operating system shares them.
    Everyone,
}

/// A job of the node as its daemon sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobSlot {
    /// The job.
    pub job: u64,
    /// Its ranks here.
    pub ranks: u32,
    /// The processors (by their place among the node's) of those that compute or could, one each.
    pub runnable: Vec<usize>,
}

/// A node's page. Shared by the daemon's threads: one of them says whose turn it is, another one
/// everything else.
#[derive(Debug)]
pub struct NodePage {
    file: OwnedFd,
    map: Mapping,
    nodes: u32,
}

impl NodePage {
    /// Makes the page of node `own` of `nodes` nodes.
    ///
    /// # Errors
    /// The kernel's error; kernels before 5.1 cannot seal a file against future writers. Too many nodes
    /// are an invalid input.
    pub fn create(own: u32, nodes: u32, processors: u32) -> io::Result<NodePage> {
        if nodes > MOST_NODES || own >= nodes {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let (file, map) = page(c"kumi-node", node_page_bytes(nodes))?;
        let page = NodePage { file, map, nodes };
        let header = page.header();
        header.version.store(PAGES_VERSION, Relaxed);
        header.own.store(own, Relaxed);
        header.nodes.store(nodes, Relaxed);
        header.processors.store(processors, Relaxed);
        header.magic.store(NODE_MAGIC, Release);
        Ok(page)
    }

    /// The file to hand to ranks, which can map it for reading only.
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Says whose turn it is. One word: the switching thread never waits for it.
    pub fn set_turn(&self, turn: Turn) {
        let word = match turn {
            Turn::Nobody => NOBODY,
            Turn::Job(job) => job.saturating_add(1),
            Turn::Everyone => EVERYONE,
        };
        self.header().current.store(word, Relaxed);
    }

    /// Whether a job has the processors now, alone or with others.
    #[must_use]
    pub fn has_turn(&self, job: u64) -> bool {
        let word = self.header().current.load(Relaxed);
        word == EVERYONE || word == job.saturating_add(1)
    }

    /// Whether the operating system shares the processors among all jobs.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.header().current.load(Relaxed) == EVERYONE
    }

    /// Says which jobs are on the node. A job keeps its slot as long as it is there, so that a reader never takes
    /// one for another. By one thread only.
    pub fn set_jobs(&self, jobs: &[JobSlot]) {
        let (last, own) = (JOB_SLOTS - 1, 0..JOB_SLOTS - 1);
        for slot in own.clone() {
            let word = self.slot(slot).job.load(Relaxed);
            if word != 0 && !jobs.iter().any(|job| job.job + 1 == word) {
                self.slot(slot).job.store(0, Release);
            }
        }
        let mut rest = JobSlot { job: 0, ranks: 0, runnable: Vec::new() };
        let mut more = false;
        for job in jobs {
            let has = |word: u64| own.clone().find(|&i| self.slot(i).job.load(Relaxed) == word);
            match has(job.job + 1).or_else(|| has(0)) {
                Some(slot) => fill(self.slot(slot), job.job + 1, job),
                None => {
                    more = true;
                    rest.ranks = rest.ranks.saturating_add(job.ranks);
                    rest.runnable.extend(&job.runnable);
                }
            }
        }
        fill(self.slot(last), if more { OTHERS } else { 0 }, &rest);
        let used = (0..JOB_SLOTS).rev().find(|&slot| self.slot(slot).job.load(Relaxed) != 0);
        self.header().slots.store(used.map_or(0, |slot| slot as u32 + 1), Release);
    }

    /// Says how a node is; `load.age_us` is not looked at, `stamp` says when it was so (microseconds on the
    /// monotonic clock). A node that there is not is ignored. By one thread only.
    pub fn set_node(&self, node: u32, stamp: u64, load: &NodeLoad) {
        if node >= self.nodes {
            return;
        }
        // SAFETY: NodeEntry consists of atomics only.
        let entry: &NodeEntry = unsafe { self.map.view(node_offset(node)) };
        let sequence = entry.sequence.load(Relaxed);
        entry.sequence.store(sequence | 1, Relaxed);
        fence(Release);
        let halves = |upper: u32, lower: u32| u64::from(upper) << 32 | u64::from(lower);
        entry.stamp.store(stamp.max(1), Relaxed);
        entry.processors_runnable.store(halves(load.processors, load.runnable), Relaxed);
        entry.jobs_busy.store(halves(load.jobs, load.busy_permille), Relaxed);
        entry.memory_used.store(load.memory_used, Relaxed);
        entry.memory_total.store(load.memory_total, Relaxed);
        entry.network.store(load.network_bytes, Relaxed);
        entry.sequence.store((sequence | 1).wrapping_add(1), Release);
    }

    fn header(&self) -> &NodeHeader {
        // SAFETY: NodeHeader consists of atomics only.
        unsafe { self.map.view(0) }
    }

    fn slot(&self, slot: usize) -> &JobEntry {
        // SAFETY: JobEntry consists of atomics only.
        unsafe { self.map.view(slot_offset(slot)) }
    }
}

/// Writes a slot; a new job's name comes last.
fn fill(entry: &JobEntry, word: u64, job: &JobSlot) {
    entry.ranks.store(job.ranks, Relaxed);
    entry.runnable.store(u32::try_from(job.runnable.len()).unwrap_or(u32::MAX), Relaxed);
    let mut bits = [0u64; MOST_PROCESSORS / 64];
    for processor in job.runnable.iter().filter(|&&processor| processor < MOST_PROCESSORS) {
        bits[processor / 64] |= 1 << (processor % 64);
    }
    for (place, bits) in entry.runnable_on.iter().zip(bits) {
        place.store(bits, Relaxed);
    }
    entry.job.store(word, Release);
}

/// A job's page on a node.
#[derive(Debug)]
pub struct JobPage {
    file: OwnedFd,
    map: Mapping,
    ranks: u32,
}

impl JobPage {
    /// Makes the page of a job whose ranks are on these nodes: a node and its ranks each.
    ///
    /// # Errors
    /// As [`NodePage::create`]; a layout beyond the ranks, or too many, are an invalid input.
    pub fn create(
        job: u64,
        ranks: u32,
        layout: impl IntoIterator<Item = (u32, Range<u32>)>,
    ) -> io::Result<JobPage> {
        if ranks > MOST_RANKS {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        let (file, map) = page(c"kumi-job", rank_offset(ranks))?;
        let page = JobPage { file, map, ranks };
        for (node, part) in layout {
            if node >= 1 << 20 || part.end > ranks {
                return Err(io::Error::from(io::ErrorKind::InvalidInput));
            }
            for rank in part {
                page.word(rank).store(u64::from(node) << 4, Relaxed);
            }
        }
        let header = page.header();
        header.version.store(PAGES_VERSION, Relaxed);
        header.ranks.store(ranks, Relaxed);
        header.job.store(job, Relaxed);
        header.magic.store(JOB_MAGIC, Release);
        Ok(page)
    }

    /// As [`NodePage::as_fd`].
    #[must_use]
    pub fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Says whether the job is outside the rotation: no slot is its, and it is not stopped, because all its ranks wait.
    pub fn set_idle(&self, idle: bool) {
        self.header().idle.store(u64::from(idle), Relaxed);
    }

    /// Records the activity of a rank at `stamp` (microseconds on the monotonic clock), as `node`
    /// reports it. False, and ignored, if `node` is not the rank's own.
    pub fn set_rank(&self, rank: u32, node: u32, state: RankState, stamp: u64) -> bool {
        if rank >= self.ranks {
            return false;
        }
        let word = self.word(rank);
        if (word.load(Relaxed) >> 4) as u32 & 0xf_ffff != node {
            return false;
        }
        let stamp = (stamp / 1_000).max(1) << 24;
        word.store(stamp | u64::from(node) << 4 | state as u64, Relaxed);
        true
    }

    fn header(&self) -> &JobHeader {
        // SAFETY: JobHeader consists of atomics only.
        unsafe { self.map.view(0) }
    }

    fn word(&self, rank: u32) -> &AtomicU64 {
        // SAFETY: an atomic.
        unsafe { self.map.view(rank_offset(rank)) }
    }
}

/// Miri knows no rights.
#[cfg(miri)]
pub(crate) fn page(name: &std::ffi::CStr, length: usize) -> io::Result<(OwnedFd, Mapping)> {
    let file = crate::miri::memory_file(name, length).map_err(io::Error::other)?;
    let map = Mapping::new(file.as_fd(), length)?;
    Ok((file, map))
}

/// A memory file of this length that only this mapping can write.
#[cfg(not(miri))]
pub(crate) fn page(name: &std::ffi::CStr, length: usize) -> io::Result<(OwnedFd, Mapping)> {
    let check = |ok: bool| if ok { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: the name is a C string; the call touches nothing else.
    let raw =
        unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    check(raw >= 0)?;
    // SAFETY: a descriptor that was just made and that nobody else owns.
    let file = unsafe { OwnedFd::from_raw_fd(raw) };
    // SAFETY: plain system calls on our own descriptor.
    check(unsafe { libc::ftruncate(file.as_raw_fd(), length as libc::off_t) } == 0)?;
    // SAFETY: as above.
    let seal =
        |seals: libc::c_int| check(unsafe { libc::fcntl(raw, libc::F_ADD_SEALS, seals) } == 0);
    seal(libc::F_SEAL_SHRINK | libc::F_SEAL_GROW)?;
    let map = Mapping::new(file.as_fd(), length)?;
    seal(libc::F_SEAL_FUTURE_WRITE | libc::F_SEAL_SEAL)?;
    Ok((file, map))
}
