//! Reader of the pages, for ranks.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::atomic::{AtomicU64, fence};

use super::{
    EVERYONE, JOB_MAGIC, JOB_SLOTS, JobEntry, JobHeader, MOST_NODES, MOST_PROCESSORS, MOST_RANKS,
    NODE_MAGIC, NodeEntry, NodeHeader, OTHERS, PAGES_VERSION, RankState, node_offset,
    node_page_bytes, rank_offset, slot_offset,
};
use crate::segment::attachment::{AttachError, io_error};
use crate::shm::mapping::Mapping;
use crate::sys;

/// How a node was some time ago.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeLoad {
    /// Processors that ranks may use.
    pub processors: u32,
    /// Ranks of all jobs that computed, or could.
    pub runnable: u32,
    /// Jobs with ranks there.
    pub jobs: u32,
    /// Share of its processors' time in use, by all programs: 0 to 1000.
    pub busy_permille: u32,
    /// Memory in use, bytes.
    pub memory_used: u64,
    /// Memory in all, bytes.
    pub memory_total: u64,
    /// Bytes that its network interfaces sent and received in a second.
    pub network_bytes: u64,
    /// Microseconds since it was so, without what the network took to tell.
    pub age_us: u64,
}

/// A job on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobLoad {
    /// The job; none: all those together that found no place in the page.
    pub job: Option<u64>,
    /// Its ranks here.
    pub ranks: u32,
    /// Threads that compute, or could if they had the processors.
    pub runnable: u32,
    /// It has the processors now, alone or with others.
    pub scheduled: bool,
}

/// Report about a rank of the own job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankReport {
    /// Its node.
    pub node: u32,
    /// Its activity.
    pub state: RankState,
    /// Microseconds since it was so; none: nothing was heard yet.
    pub age_us: Option<u64>,
}

/// Whether it pays to go on polling (SS-Wait, §3.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PollingAdvice {
    /// The awaited rank can run, and nobody else wants the processor.
    Spin,
    /// The awaited rank does not run.
    Unscheduled,
    /// Other work waits for this processor.
    Others,
}

/// Age in microseconds beyond which a report says nothing about who runs now.
const STALE: u64 = 2_000_000;
/// How often an entry that is being written is read again. Its writer may have died.
const TRIES: usize = 1_000;

/// The pages of this rank's node and job.
#[derive(Debug)]
pub struct DisclosedPages {
    node: Mapping,
    job: Mapping,
    number: u64,
    ranks: u32,
    nodes: u32,
    own: u32,
}

fn bad(what: &'static str) -> AttachError {
    AttachError::BadPages(what)
}

impl DisclosedPages {
    /// Maps pages.
    ///
    /// # Errors
    /// [`AttachError`].
    pub fn open(node: &OwnedFd, job: &OwnedFd) -> Result<DisclosedPages, AttachError> {
        let (node, node_bytes) = map(node)?;
        let (job, job_bytes) = map(job)?;
        if node_bytes < size_of::<NodeHeader>() || job_bytes < size_of::<JobHeader>() {
            return Err(bad("too short"));
        }
        // SAFETY: NodeHeader consists of atomics only.
        let header: &NodeHeader = unsafe { node.view(0) };
        // SAFETY: as above.
        let job_header: &JobHeader = unsafe { job.view(0) };
        if header.magic.load(Acquire) != NODE_MAGIC || job_header.magic.load(Acquire) != JOB_MAGIC {
            return Err(bad("wrong mark"));
        }
        let versions = [&header.version, &job_header.version];
        if versions.iter().any(|version| version.load(Relaxed) != PAGES_VERSION) {
            return Err(bad("another version"));
        }
        let (nodes, own) = (header.nodes.load(Relaxed), header.own.load(Relaxed));
        let (number, ranks) = (job_header.job.load(Relaxed), job_header.ranks.load(Relaxed));
        let fits = nodes <= MOST_NODES
            && own < nodes
            && ranks <= MOST_RANKS
            && node_bytes == node_page_bytes(nodes)
            && job_bytes == rank_offset(ranks);
        if !fits {
            return Err(bad("its length does not fit its header"));
        }
        Ok(DisclosedPages { node, job, number, ranks, nodes, own })
    }

    /// Nodes of the cluster.
    #[must_use]
    pub fn nodes(&self) -> u32 {
        self.nodes
    }

    /// This node.
    #[must_use]
    pub fn own(&self) -> u32 {
        self.own
    }

    /// The own job.
    #[must_use]
    pub fn job(&self) -> u64 {
        self.number
    }

    /// Ranks of the own job.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.ranks
    }

    /// How a node is; none if it does not exist or nothing was heard of it yet.
    #[must_use]
    pub fn node(&self, node: u32) -> Option<NodeLoad> {
        if node >= self.nodes {
            return None;
        }
        // SAFETY: NodeEntry consists of atomics only.
        let entry: &NodeEntry = unsafe { self.node.view(node_offset(node)) };
        for _ in 0..TRIES {
            let before = entry.sequence.load(Acquire);
            let words = [
                &entry.stamp,
                &entry.processors_runnable,
                &entry.jobs_busy,
                &entry.memory_used,
                &entry.memory_total,
                &entry.network,
            ];
            let words = words.map(|word| word.load(Relaxed));
            fence(Acquire);
            if before & 1 == 0 && entry.sequence.load(Relaxed) == before {
                return load(words);
            }
            std::hint::spin_loop();
        }
        None
    }

    /// The jobs on this node.
    #[must_use]
    pub fn jobs(&self) -> Vec<JobLoad> {
        let current = self.header().current.load(Relaxed);
        let load = |entry: &JobEntry| {
            let word = entry.job.load(Acquire);
            let job = if word == OTHERS { None } else { Some(word.checked_sub(1)?) };
            let scheduled = current == EVERYONE || current == word;
            let [ranks, runnable] =
                [&entry.ranks, &entry.runnable].map(|number| number.load(Relaxed));
            Some(JobLoad { job, ranks, runnable, scheduled })
        };
        self.slots().filter_map(load).collect()
    }

    /// Whether the own job has the processors of this node now, alone or with others.
    #[must_use]
    pub fn scheduled(&self) -> bool {
        let current = self.header().current.load(Relaxed);
        current == EVERYONE || current == self.number.saturating_add(1)
    }

    /// Whether the own job is outside the rotation: no slot is its, and whatever its ranks do beside waiting
    /// takes processors from those whose slot it is.
    #[must_use]
    pub fn job_is_idle(&self) -> bool {
        // SAFETY: JobHeader consists of atomics only.
        let header: &JobHeader = unsafe { self.job.view(0) };
        header.idle.load(Relaxed) != 0
    }

    /// The report about a rank of the own job; none if there is no such rank. For ranks of this node,
    /// their contexts are more exact.
    #[must_use]
    pub fn rank(&self, rank: u32) -> Option<RankReport> {
        let word = self.rank_word(rank)?;
        let age_us = match word >> 24 {
            0 => None,
            stamp => Some(sys::now().saturating_sub(stamp * 1_000)),
        };
        Some(RankReport { node: node_of(word), state: RankState::from_word(word), age_us })
    }

    /// Whether it pays for a rank on the node's processor number `processor` to go on waiting awake, for `awaited`
    /// if it is known for whom.
    pub(crate) fn advice(&self, processor: usize, awaited: Option<u32>) -> PollingAdvice {
        let current = self.header().current.load(Relaxed);
        let awaited = awaited.and_then(|rank| self.rank_word(rank));
        if awaited.is_some_and(|word| RankState::from_word(word) == RankState::Over) {
            return PollingAdvice::Unscheduled;
        }
        if current != EVERYONE {
            // All nodes of a job give it the same slots. So while its own job has the slot, a waiting
            // rank's peers run too, and the slot belongs to nobody else.
            let on = current == self.number.saturating_add(1);
            return if on { PollingAdvice::Spin } else { PollingAdvice::Unscheduled };
        }
        if self.others_want(processor) {
            return PollingAdvice::Others;
        }
        let crowded = |load: &NodeLoad| load.age_us < STALE && load.runnable > load.processors;
        match awaited.map(node_of).filter(|&node| node != self.own) {
            Some(node) if self.node(node).as_ref().is_some_and(crowded) => {
                PollingAdvice::Unscheduled
            }
            _ => PollingAdvice::Spin,
        }
    }

    /// Some other job has work for this processor.
    fn others_want(&self, processor: usize) -> bool {
        let place = processor % MOST_PROCESSORS;
        self.slots().any(|entry| {
            let word = entry.job.load(Acquire);
            let wants = entry.runnable_on[place / 64].load(Relaxed) >> (place % 64) & 1 == 1;
            wants && word != 0 && word != self.number.saturating_add(1)
        })
    }

    fn slots(&self) -> impl Iterator<Item = &JobEntry> {
        let used = (self.header().slots.load(Acquire) as usize).min(JOB_SLOTS);
        // SAFETY: JobEntry consists of atomics only.
        (0..used).map(|slot| unsafe { self.node.view(slot_offset(slot)) })
    }

    fn header(&self) -> &NodeHeader {
        // SAFETY: NodeHeader consists of atomics only.
        unsafe { self.node.view(0) }
    }

    fn rank_word(&self, rank: u32) -> Option<u64> {
        if rank >= self.ranks {
            return None;
        }
        // SAFETY: an atomic.
        let word: &AtomicU64 = unsafe { self.job.view(rank_offset(rank)) };
        Some(word.load(Relaxed))
    }
}

fn node_of(word: u64) -> u32 {
    (word >> 4) as u32 & 0xf_ffff
}

fn load(words: [u64; 6]) -> Option<NodeLoad> {
    let [stamp, processors_runnable, jobs_busy, memory_used, memory_total, network_bytes] = words;
    (stamp != 0).then(|| NodeLoad {
        processors: (processors_runnable >> 32) as u32,
        runnable: processors_runnable as u32,
        jobs: (jobs_busy >> 32) as u32,
        busy_permille: jobs_busy as u32,
        memory_used,
        memory_total,
        network_bytes,
        age_us: sys::now().saturating_sub(stamp),
    })
}

/// Miri's files are as long as they are.
#[cfg(miri)]
pub(crate) fn map(file: &OwnedFd) -> Result<(Mapping, usize), AttachError> {
    let length = crate::miri::length(file).map_err(io_error("length"))? as usize;
    Ok((Mapping::read_only(file.as_fd(), length).map_err(io_error("map"))?, length))
}

/// Maps a page after checking that nobody can make it shorter.
#[cfg(not(miri))]
pub(crate) fn map(file: &OwnedFd) -> Result<(Mapping, usize), AttachError> {
    // SAFETY: an all-zero stat is valid; the kernel fills it in.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: pointer to our own structure.
    if unsafe { libc::fstat(file.as_raw_fd(), &raw mut stat) } != 0 {
        return Err(io_error("fstat")(std::io::Error::last_os_error()));
    }
    let length = usize::try_from(stat.st_size).map_err(|_| bad("bad length"))?;
    // SAFETY: no pointers.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 || length == 0 {
        return Err(bad("it is not a sealed memory file"));
    }
    Ok((Mapping::read_only(file.as_fd(), length).map_err(io_error("mmap"))?, length))
}
