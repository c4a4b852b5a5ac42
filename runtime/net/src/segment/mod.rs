//! A job's segment, as the daemon makes and reads it: peer addresses, and the contexts of its ranks.

mod adoption;
pub(crate) mod attachment;
pub(crate) mod channel_region;
mod context_reader;
mod copy;
pub mod counters;
pub(crate) mod files;
pub(crate) mod header;
pub mod launch;
pub mod layout;
mod peer_address;
mod progress;
mod published_counters;
pub(crate) mod range;
mod waits;

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, Ordering};

use kumi_proto::SealKey;
use kumi_verdict::RankReading;

use crate::disclosure::RankState;
use crate::segment::counters::Counter;
pub use crate::segment::files::{FilesOfRank, SegmentFiles};
use crate::segment::files::{WritableFiles, failed, seal_against_writers};
use crate::segment::header::MAX_DATAGRAM;
use crate::segment::layout::{
    ATTACH_DONE, ATTACH_NOW, Header, Layout, MAGIC, Peer, RankContext, SIGNALS, SharedLines,
    VERSION, page_up,
};
use crate::shm::idle_flag;
use crate::shm::mapping::Mapping;

pub use context_reader::{ContextReader, ContextReading};
pub use copy::{CopyError, SegmentCopy};
pub use kumi_proto::Counters as EndpointCounters;
pub use kumi_proto::context::{ContextReport, PeerReport};
pub use progress::ProgressReader;

/// Smallest datagram size that [`Segment::publish_peers`] accepts: every path carries it.
pub const MIN_DATAGRAM: u16 = 548;

/// Parameters of a segment.
#[derive(Debug, Clone)]
pub struct SegmentSpec {
    /// Secret of the job's channel, random.
    pub channel_key: u64,
    /// Secret with which packets are encrypted, random; none if they are not to be.
    pub seal_key: Option<SealKey>,
    /// Ranks of the job.
    pub ranks: u32,
    /// The ranks on this node.
    pub local_ranks: Range<u32>,
    /// Data bytes of a ring between two local ranks; rounded up to a power of two. See [`crate::segment::layout::DEFAULT_RING_BYTES`].
    pub ring_bytes: usize,
    /// Address space for the windows of one rank; rounded up to pages, used only where written. See [`crate::segment::layout::arena_bytes`].
    pub arena_bytes: u64,
}

impl SegmentSpec {
    fn layout(&self) -> Result<Layout, SegmentError> {
        let Range { start: first, end } = self.local_ranks;
        let (ranks, ring_bytes, arena_bytes) = (self.ranks, self.ring_bytes, self.arena_bytes);
        let divide = || {
            let ring = ring_bytes.checked_next_power_of_two()?.max(layout::MIN_RING_BYTES);
            let arena = page_up(usize::try_from(arena_bytes).ok()?)?;
            let count = end.checked_sub(first)?;
            Layout::new(ranks, first, count, ring as u64, arena as u64)
        };
        divide().ok_or(SegmentError::BadSpec { first, end, ranks, ring_bytes, arena_bytes })
    }
}

/// Why a segment could not be made or filled in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SegmentError {
    /// Numbers that make no sense together.
    #[error(
        "a segment for ranks {first}..{end} of {ranks} with rings of {ring_bytes} and arenas of {arena_bytes} bytes cannot be made: check the ranks, use smaller rings or arenas"
    )]
    BadSpec {
        /// First local rank.
        first: u32,
        /// One more than the last local rank.
        end: u32,
        /// Ranks of the job.
        ranks: u32,
        /// Bytes of a ring.
        ring_bytes: usize,
        /// Bytes of an arena.
        arena_bytes: u64,
    },
    /// Not one address for each rank.
    #[error("{given} addresses for {ranks} ranks: give one each")]
    AddressCount {
        /// Addresses given.
        given: usize,
        /// Ranks of the job.
        ranks: u32,
    },
    /// A copy of a segment of other ranks or sizes.
    #[error(
        "the copy is of a segment of other ranks or sizes; go on with the same ranks, rings and arenas"
    )]
    OtherSizes,
    /// A daemon of another version made it.
    #[error(
        "the segment was made in version {segment}, and this daemon knows version {VERSION}: jobs do not outlive such an upgrade, so drain the node before it"
    )]
    OtherVersion {
        /// Its version.
        segment: u32,
    },
    /// Ranks that cannot send to each other.
    #[error(
        "some ranks have IPv4 addresses and some IPv6: give the nodes of a job addresses of one family"
    )]
    TwoFamilies,
    /// Datagrams too small or too large.
    #[error("datagrams of {0} bytes are not possible: use {MIN_DATAGRAM} to {MAX_DATAGRAM}")]
    BadDatagram(u16),
    /// The kernel refused.
    #[error("the kernel refused the job's memory segment ({what}): {source}")]
    Io {
        /// The call.
        what: &'static str,
        /// Its error.
        source: io::Error,
    },
}

/// A job's segment on one node, as its daemon holds it.
///
/// The files are sealed: their sizes cannot change, so reading them never faults, whatever the ranks do. The daemon writes
/// the job file only, and maps of the others what it reads.
#[derive(Debug)]
pub struct Segment {
    job: Mapping,
    lines: Mapping,
    ranks: Vec<RankView>,
    layout: Layout,
    /// The job file is mapped for reading only.
    adopted: bool,
}

/// What a rank writes and the daemon reads.
#[derive(Debug)]
struct RankView {
    context: Arc<Mapping>,
    /// Its rank file.
    file: File,
}

/// A rank as the daemon sees it. The rank can write anything there: these values are well-formed, not
/// necessarily true.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContextSample {
    /// The rank waits for its peers and what it waits for has not come.
    pub idle: bool,
    /// A process uses the context now.
    pub attached: bool,
    /// Counters by name; see [`crate::segment::counters::Counter`].
    pub counters: Vec<(&'static str, u64)>,
}

impl Segment {
    /// Makes and seals the segment, and the files to hand to the ranks.
    ///
    /// # Errors
    /// [`SegmentError::BadSpec`] and [`SegmentError::Io`].
    pub fn create(spec: &SegmentSpec) -> Result<(Segment, SegmentFiles), SegmentError> {
        Segment::filled(spec, |_, _| Ok(()))
    }

    /// The same, with something in the files from the start.
    fn filled(
        spec: &SegmentSpec,
        fill: impl FnOnce(&Layout, &WritableFiles) -> Result<(), SegmentError>,
    ) -> Result<(Segment, SegmentFiles), SegmentError> {
        let layout = spec.layout()?;
        let files = WritableFiles::create(&layout)?;
        fill(&layout, &files)?;
        let segment = Segment::write(spec, &layout, &files)?;
        let files = SegmentFiles::new(files)?;
        Ok((segment.with_ranks(&files)?, files))
    }

    /// The segment of a job of one rank, which is its own daemon.
    pub(crate) fn of_one(spec: &SegmentSpec) -> Result<(Segment, WritableFiles), SegmentError> {
        let layout = spec.layout()?;
        let files = WritableFiles::create(&layout)?;
        Ok((Segment::write(spec, &layout, &files)?, files))
    }

    /// Maps the files and writes the header. Ranks are not read yet.
    fn write(
        spec: &SegmentSpec,
        layout: &Layout,
        files: &WritableFiles,
    ) -> Result<Segment, SegmentError> {
        let layout = *layout;
        let job = Mapping::new(files.job.as_fd(), layout.shared).map_err(failed("mmap"))?;
        seal_against_writers(files.job.as_fd()).map_err(failed("F_ADD_SEALS"))?;
        let lines = layout.open_arenas - layout.shared;
        let lines = Mapping::read_only(files.shared.as_fd(), lines).map_err(failed("mmap"))?;
        let segment = Segment { job, lines, ranks: Vec::new(), layout, adopted: false };
        let header = segment.header();
        header.version.store(VERSION, Relaxed);
        header.channel_key.store(spec.channel_key, Relaxed);
        if let Some(key) = &spec.seal_key {
            let key = u128::from_le_bytes(key.0);
            header.seal_key[0].store(key as u64, Relaxed);
            header.seal_key[1].store((key >> 64) as u64, Relaxed);
            header.encrypted.store(1, Relaxed);
        }
        header.ranks.store(layout.ranks, Relaxed);
        header.local_first.store(layout.local_first, Relaxed);
        header.local_count.store(layout.local_count, Relaxed);
        header.ring_bytes.store(layout.ring_bytes as u64, Relaxed);
        header.arena_bytes.store(layout.arena_bytes as u64, Relaxed);
        header.total_bytes.store(layout.total as u64, Relaxed);
        header.magic.store(MAGIC, Release);
        Ok(segment)
    }

    fn with_ranks(mut self, files: &SegmentFiles) -> Result<Segment, SegmentError> {
        for file in files.rank_files().map_err(failed("dup"))? {
            let context = Mapping::read_only(file.as_fd(), size_of::<RankContext>());
            let (context, file) = (context.map_err(failed("mmap"))?, file.into());
            self.ranks.push(RankView { context: Arc::new(context), file });
        }
        Ok(self)
    }

    /// Bytes of the channel context of each local rank; 0 if all ranks of the job are on this node.
    #[must_use]
    pub fn channel_context_bytes(&self) -> usize {
        self.layout.channel_bytes
    }

    /// Copies a part of the channel context of a local rank, from byte `at` on; how many bytes there are of it. The rank may
    /// be writing, and may have written anything. What was never written reads as zeros and takes no memory.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn read_channel_context(
        &self,
        local_index: usize,
        at: usize,
        into: &mut [u8],
    ) -> io::Result<usize> {
        let rest = self.layout.channel_bytes.saturating_sub(at);
        let Some(rank) = self.ranks.get(local_index) else { return Ok(0) };
        let length = into.len().min(rest);
        let start = (self.layout.rank_front + at) as u64;
        rank.file.read_exact_at(&mut into[..length], start)?;
        Ok(length)
    }

    /// Looks at the channel of a local rank to other nodes. Accepts any contents and takes a bounded time; a rank that is
    /// not there has an empty one.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn channel(
        &self,
        local_index: usize,
        reader: &mut ContextReader,
    ) -> io::Result<ContextReading> {
        let bytes = self.channel_context_bytes();
        if bytes == 0 || local_index >= self.ranks.len() {
            return Ok(ContextReading::Empty);
        }
        let me = self.layout.local_first + local_index as u32;
        reader.read((me, self.layout.ranks), bytes, |at, room| {
            let copied = self.read_channel_context(local_index, at, room)?;
            if copied == room.len() { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
        })
    }

    /// Says where every rank's socket is (by rank) and how large a datagram (UDP payload) may be. To be called before the ranks start.
    ///
    /// # Errors
    /// [`SegmentError::AddressCount`], [`SegmentError::TwoFamilies`] and [`SegmentError::BadDatagram`].
    pub fn publish_peers(
        &mut self,
        addresses: &[SocketAddr],
        max_datagram: u16,
    ) -> Result<(), SegmentError> {
        if self.adopted {
            let source = io::Error::from(io::ErrorKind::PermissionDenied);
            return Err(SegmentError::Io { what: "addresses after the start", source });
        }
        if addresses.len() != self.layout.ranks as usize {
            return Err(SegmentError::AddressCount {
                given: addresses.len(),
                ranks: self.layout.ranks,
            });
        }
        if !(u32::from(MIN_DATAGRAM)..=MAX_DATAGRAM).contains(&u32::from(max_datagram)) {
            return Err(SegmentError::BadDatagram(max_datagram));
        }
        if addresses.iter().any(|address| address.is_ipv4() != addresses[0].is_ipv4()) {
            return Err(SegmentError::TwoFamilies);
        }
        for (rank, address) in addresses.iter().enumerate() {
            peer(&self.job, &self.layout, rank).store(*address);
        }
        let header = self.header();
        header.max_datagram.store(u32::from(max_datagram), Relaxed);
        header.published.store(1, Release);
        Ok(())
    }

    /// Looks at the context of a local rank. Never blocks and accepts any contents; an index without a rank gives an empty sample.
    #[must_use]
    pub fn sample(&self, local_index: usize) -> ContextSample {
        let Some((context, lines)) = self.rank(local_index) else {
            return ContextSample::default();
        };
        let state = &context.state;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counter = Counter::Delivered as usize;
        let mut counters: Vec<_> = counters::NAMES
            .iter()
            .zip(&context.counters)
            .map(|(name, counter)| (*name, load(counter)))
            .collect();
        let (idle, delivered) = idle_and_delivered(context, lines);
        counters[counter].1 = delivered;
        ContextSample { idle, attached: state.attached.load(Relaxed) == ATTACH_NOW, counters }
    }

    /// Activity of a local rank, by its context; a stopped rank does not know that it is stopped.
    /// Cheaper than [`Segment::sample`], and as trusting.
    #[must_use]
    pub fn rank_state(&self, local_index: usize) -> RankState {
        let rank = self.rank(local_index);
        rank.map_or(RankState::Unknown, |(context, lines)| state_of(context, lines))
    }

    /// Whether a local rank has something to do, as far as its context tells. Cheap and as trusting as [`Segment::rank_state`].
    #[must_use]
    pub fn rank_activity(&self, local_index: usize) -> RankActivity {
        let rank = self.rank(local_index);
        rank.map_or_else(RankActivity::default, |(context, lines)| activity_of(context, lines))
    }

    /// What a local rank does, for the verdict on its job. Accepts any contents; none without such a rank.
    #[must_use]
    pub fn rank_reading(&self, local_index: usize) -> Option<RankReading> {
        let (context, lines) = self.rank(local_index)?;
        let rank = self.layout.local_first + local_index as u32;
        Some(waits::read(context, lines, rank, self.layout.ranks))
    }

    /// Counters of a local rank for its peers on other nodes: the first with traffic one by one, all
    /// others together, each once. Some milliseconds old; accepts any contents, as [`Segment::sample`]
    /// does.
    #[must_use]
    pub fn sample_peers(&self, local_index: usize) -> Vec<kumi_proto::PeerCounters> {
        let Some((context, _)) = self.rank(local_index) else { return Vec::new() };
        published_counters::read(&context.peers, self.layout.ranks)
    }

    fn header(&self) -> &Header {
        // SAFETY: Header consists of atomics only.
        unsafe { self.job.view(0) }
    }

    /// What a rank writes, and what its peers write of it.
    fn rank(&self, local: usize) -> Option<(&RankContext, &SharedLines)> {
        let rank = self.ranks.get(local)?;
        // SAFETY: both consist of atomics only.
        unsafe { Some((rank.context.view(0), self.lines.view(local * size_of::<SharedLines>()))) }
    }
}

/// Whether a rank has something to do, by its context. Anything can be in a context: these values are
/// well-formed, not necessarily true.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RankActivity {
    /// It waits for its peers, and what it waits for has not come.
    pub waits: bool,
    /// It waits for its peers and something has come that it has not taken, or what it sent is not acked. Never so once it has left its job.
    pub pending: bool,
    /// Sum of frames sent and taken and of waits ended. While it stays and the rank waits, it is the
    /// same wait.
    pub sums: [u64; 4],
}

fn activity_of(context: &RankContext, lines: &SharedLines) -> RankActivity {
    let count = |counter: Counter| context.counters[counter as usize].load(Relaxed);
    let (waits, delivered) = idle_and_delivered(context, lines);
    let attached = context.state.attached.load(Relaxed) == ATTACH_NOW;
    let arrived = lines.wake.pending.iter().any(|word| word.load(Relaxed) != 0);
    // A program that does something else than wait for its peers takes nothing: only what it does itself counts then.
    let in_wait = context.state.idle.load(Relaxed) == 1;
    let untaken = in_wait && (arrived || count(Counter::Unread) > 0);
    RankActivity {
        waits: waits && attached,
        pending: attached && (untaken || count(Counter::UnackedPackets) > 0),
        sums: [
            count(Counter::Sent),
            delivered,
            count(Counter::WaitsSpun),
            count(Counter::WaitsBlocked),
        ],
    }
}

/// Activity of a rank, by its context.
pub(crate) fn state_of(context: &RankContext, lines: &SharedLines) -> RankState {
    match context.state.attached.load(Relaxed) {
        ATTACH_NOW if idle_and_delivered(context, lines).0 => RankState::Idle,
        ATTACH_NOW => RankState::Running,
        ATTACH_DONE => RankState::Over,
        _ => RankState::Unknown,
    }
}

/// Whether a rank is idle, and the frames it has taken: never idle from before what it has taken.
fn idle_and_delivered(context: &RankContext, lines: &SharedLines) -> (bool, u64) {
    let delivered = &context.counters[Counter::Delivered as usize];
    let (idle, delivered) = idle_flag::sample(&context.state.idle, delivered);
    let nothing_left = context.state.wanting.load(Acquire) == 0
        && !has_what_it_waits_for(context, lines)
        && lines.notifies.0[SIGNALS].count.load(Relaxed) == 0;
    (idle && nothing_left, delivered)
}

/// A peer on the same node raises notification counters without the waiting rank's help. The idle flag
/// of a waiting rank can therefore be out of date: look at the counter itself.
fn has_what_it_waits_for(context: &RankContext, lines: &SharedLines) -> bool {
    let Some(index) = (context.state.wait_counter.load(Relaxed) as usize).checked_sub(1) else {
        return false;
    };
    let wanted = context.state.wait_at_least.load(Relaxed);
    lines.notifies.0.get(index).is_some_and(|notify| notify.count.load(Relaxed) >= wanted)
}

pub(crate) fn peer<'m>(map: &'m Mapping, layout: &Layout, rank: usize) -> &'m Peer {
    // SAFETY: Peer consists of atomics only.
    unsafe { map.view(layout.peers + rank * size_of::<Peer>()) }
}
