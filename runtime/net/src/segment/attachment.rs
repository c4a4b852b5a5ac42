//! Attachment of a rank: its mapped segment, and the descriptors it keeps.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};

use kumi_proto::{ContextError, SealKey};

use crate::channel::change::Change;
use crate::disclosure::RankState;
use crate::segment::channel_region::ChannelRegion;
use crate::segment::files::{RankFiles, private_memory};
use crate::segment::header::SegmentNumbers;
use crate::segment::launch::{LaunchBlock, LaunchDescriptors, LaunchError, LocalRank};
use crate::segment::layout::{
    ATTACH_COPY, ATTACH_DONE, ATTACH_NEVER, ATTACH_NOW, ArenaKind, Layout, RankContext,
    RingPosition, SharedLines, VERSION,
};
use crate::segment::range::{RankSegment, map_segment};
use crate::segment::{self, Segment, SegmentError, SegmentSpec};
use crate::shared_bytes::SharedBytesMut;
use crate::shm::mapping::Mapping;
use crate::shm::ring::RingPlace;
use crate::sys;

/// Why a rank cannot attach to its channel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// The environment is not that of a rank.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The segment of a job of one could not be made.
    #[error(transparent)]
    Segment(#[from] SegmentError),
    /// The daemon is of another version.
    #[error(
        "the daemon made the job's memory segment in version {segment}, and this program's libkumi knows version {VERSION}: install the libkumi of the daemon's version on this node, and link programs anew that contain it"
    )]
    OtherVersion {
        /// The segment's version.
        segment: u32,
    },
    /// The segment is not one.
    #[error(
        "the job's memory segment is not usable ({0}): this program and the daemon must be of the same version of Kumi"
    )]
    BadSegment(&'static str),
    /// The node's pages are not usable.
    #[error(
        "the node's pages of information are not usable ({0}): this program and the daemon must be of the same version of Kumi"
    )]
    BadPages(&'static str),
    /// The ring of a traced rank is not usable.
    #[error(
        "the ring for this rank's trace is not usable: this program and the daemon must be of the same version of Kumi"
    )]
    BadTrace,
    /// The channel's state cannot lie where it should, or is not one to go on with.
    #[error("the memory of the rank's channel is not usable: {0}")]
    Context(#[from] ContextError),
    /// A channel was to start anew, but the rank's files are copies.
    #[error(
        "rank {0} goes on with a copy of its channel, and this program starts anew; resume the channel instead"
    )]
    IsCopy(u32),
    /// A channel was to go on, but the rank starts anew.
    #[error("rank {0} has no copy of a channel to go on with; start the channel instead")]
    NoCopy(u32),
    /// Another process uses the rank's channel, or has used it.
    #[error(
        "rank {0} has already joined its job, or tried to: one process per rank can, and only once"
    )]
    AlreadyAttached(u32),
    /// A setting in the environment has a senseless value.
    #[error("the environment variable {name} is {found:?}: use {expected}")]
    BadSetting {
        /// Its name.
        name: &'static str,
        /// Its value.
        found: String,
        /// A correct value.
        expected: &'static str,
    },
    /// The kernel refused something.
    #[error("joining the job failed ({what}): {source}")]
    Io {
        /// The step that failed.
        what: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
}

pub(crate) fn io_error(what: &'static str) -> impl FnOnce(io::Error) -> AttachError {
    move |source| AttachError::Io { what, source }
}

/// A rank's view of its node's part of the job.
#[derive(Debug)]
pub struct Attachment {
    map: Mapping,
    layout: Layout,
    job: u64,
    rank: u32,
    node: u32,
    local: usize,
    channel_key: u64,
    seal_key: Option<SealKey>,
    max_datagram: usize,
    /// Where the sockets are, by rank.
    addresses: Box<[SocketAddr]>,
    bells: Vec<OwnedFd>,
    /// The memory of the channel context has an owner.
    channel_taken: AtomicBool,
    is_copy: bool,
    /// The arena that no other process maps.
    private: OnceLock<Mapping>,
}

impl Attachment {
    /// Attaches to the segment of the launch block, whose descriptors these are. Returns the rank's socket too.
    ///
    /// # Errors
    /// [`AttachError`]; the descriptors are closed then.
    pub fn attach(
        launch: &LaunchBlock,
        descriptors: LaunchDescriptors,
    ) -> Result<(Attachment, OwnedFd), AttachError> {
        let LaunchDescriptors { job_file, shared_file, socket, local } = descriptors;
        let (mut bells, mut ranks) = (Vec::new(), Vec::new());
        for LocalRank { doorbell, rank_file, arena_file } in local {
            bells.push(doorbell);
            ranks.push(RankFiles { own: rank_file, arena: arena_file });
        }
        let (rank, local_ranks) = (launch.rank, ranks.len());
        let files = RankSegment { job: job_file, shared: shared_file, ranks, rank };
        let (map, numbers) = map_segment(&files, |layout| {
            if launch.ranks != layout.ranks || local_ranks != layout.local_count as usize {
                return Err(AttachError::BadSegment("it does not fit the environment"));
            }
            Ok(())
        })?;
        let mut attachment = Attachment::of(map, numbers, bells, rank)?;
        (attachment.job, attachment.node) = (launch.job, launch.node);
        Ok((attachment, socket))
    }

    /// A job of one rank without a daemon: an own segment and no socket.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn singleton(arena_bytes: u64) -> Result<Attachment, AttachError> {
        let spec = SegmentSpec {
            channel_key: 1,
            seal_key: None,
            ranks: 1,
            local_ranks: 0..1,
            ring_bytes: crate::segment::layout::DEFAULT_RING_BYTES,
            arena_bytes,
        };
        let (mut segment, files) = Segment::of_one(&spec)?;
        // Nothing is sent to it.
        segment.publish_peers(&[(Ipv4Addr::LOCALHOST, 0).into()], segment::MIN_DATAGRAM)?;
        let bells = vec![sys::doorbell().map_err(io_error("eventfd"))?];
        let (map, numbers) = map_segment(&RankSegment::of_one(files), |_| Ok(()))?;
        Attachment::of(map, numbers, bells, 0)
    }

    /// A rank of a segment, one that nobody was before. Of the header and the peer table nothing is read after this.
    fn of(
        map: Mapping,
        numbers: SegmentNumbers,
        bells: Vec<OwnedFd>,
        rank: u32,
    ) -> Result<Attachment, AttachError> {
        let SegmentNumbers { layout, channel_key, seal_key, max_datagram } = numbers;
        let addresses =
            (0..layout.ranks as usize).map(|rank| segment::peer(&map, &layout, rank).load());
        let addresses = addresses.collect();
        let local = (rank - layout.local_first) as usize;
        // SAFETY: RankContext consists of atomics only.
        let context: &RankContext = unsafe { map.view(layout.context(local)) };
        let is_copy = claim(&context.state.attached, rank)?;
        Ok(Attachment {
            map,
            layout,
            job: 0,
            rank,
            node: 0,
            local,
            channel_key,
            seal_key,
            max_datagram,
            addresses,
            bells,
            channel_taken: AtomicBool::new(false),
            is_copy,
            private: OnceLock::new(),
        })
    }

    /// Whether its files are copies of those of a rank that was stopped: its channel goes on by
    /// [`Channel::resume`](crate::Channel::resume).
    #[must_use]
    pub fn is_copy(&self) -> bool {
        self.is_copy
    }

    /// Begins a change that takes several stores.
    #[inline]
    pub(crate) fn change(&self) -> Change<'_> {
        Change::begin(&self.own().state.changes)
    }

    /// The job's number.
    #[must_use]
    pub fn job(&self) -> u64 {
        self.job
    }

    /// This rank.
    #[must_use]
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Ranks of the job.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.layout.ranks
    }

    /// This node.
    #[must_use]
    pub fn node(&self) -> u32 {
        self.node
    }

    /// This rank's index among those of its node.
    #[must_use]
    #[inline]
    pub fn local(&self) -> usize {
        self.local
    }

    /// Ranks of the job on this node.
    #[must_use]
    #[inline]
    pub fn local_count(&self) -> usize {
        self.layout.local_count as usize
    }

    /// The index of a rank among those of this node, if it is one of them.
    #[must_use]
    #[inline]
    pub fn local_of(&self, rank: u32) -> Option<usize> {
        let index = rank.checked_sub(self.layout.local_first)?;
        (index < self.layout.local_count).then_some(index as usize)
    }

    /// The context of a rank of this node.
    ///
    /// # Panics
    /// If there is no such rank.
    #[must_use]
    #[inline]
    pub fn context(&self, local: usize) -> &RankContext {
        assert!(local < self.local_count(), "no such rank on this node");
        // SAFETY: RankContext consists of atomics only.
        unsafe { self.map.view(self.layout.context(local)) }
    }

    /// What the peers of a rank of this node write: its flags of sleep, marks of rings and notification counters.
    ///
    /// # Panics
    /// If there is no such rank.
    #[must_use]
    #[inline]
    pub fn lines(&self, local: usize) -> &SharedLines {
        assert!(local < self.local_count(), "no such rank on this node");
        // SAFETY: SharedLines consists of atomics only.
        unsafe { self.map.view(self.layout.lines(local)) }
    }

    /// Activity of a rank of this node, by its context; none if it is on another node.
    #[must_use]
    pub fn rank_state(&self, rank: u32) -> Option<RankState> {
        let state = |local| segment::state_of(self.context(local), self.lines(local));
        self.local_of(rank).map(state)
    }

    /// The own context, which this rank alone writes.
    #[must_use]
    #[inline]
    pub fn own(&self) -> &RankContext {
        self.context(self.local)
    }

    /// The own lines, which peers write too.
    #[must_use]
    #[inline]
    pub fn own_lines(&self) -> &SharedLines {
        self.lines(self.local)
    }

    /// The open arena of a rank of this node.
    ///
    /// # Panics
    /// If there is no such rank.
    #[must_use]
    pub fn open_arena(&self, local: usize) -> NonNull<u8> {
        assert!(local < self.local_count(), "no such rank on this node");
        self.map.at(self.layout.open_arena(local), self.layout.arena_bytes)
    }

    /// The readable arena of a rank of this node. Writing into that of another rank ends this process.
    ///
    /// # Panics
    /// If there is no such rank.
    #[must_use]
    pub fn readable_arena(&self, local: usize) -> NonNull<u8> {
        assert!(local < self.local_count(), "no such rank on this node");
        self.map.at(self.layout.readable_arena(local), self.layout.arena_bytes)
    }

    /// An own arena. The private one is made when it is first asked for.
    ///
    /// # Errors
    /// The kernel's, of the private one.
    pub fn own_arena(&self, kind: ArenaKind) -> io::Result<NonNull<u8>> {
        match kind {
            ArenaKind::Open => Ok(self.open_arena(self.local)),
            ArenaKind::Readable => Ok(self.readable_arena(self.local)),
            ArenaKind::Private => {
                let map = match self.private.get() {
                    Some(map) => map,
                    None => {
                        let made = private_memory(self.layout.arena_bytes)?;
                        self.private.get_or_init(|| made)
                    }
                };
                Ok(map.at(0, self.layout.arena_bytes))
            }
        }
    }

    /// Whether any of these bytes lie in an own arena.
    #[must_use]
    pub fn in_own_arena(&self, start: *const u8, bytes: usize) -> bool {
        let private = self.private.get().map(|map| map.at(0, self.layout.arena_bytes));
        let arenas = [self.open_arena(self.local), self.readable_arena(self.local)];
        arenas.into_iter().chain(private).any(|arena| {
            let (start, arena) = (start.addr(), arena.addr().get());
            start < arena + self.layout.arena_bytes && arena < start.saturating_add(bytes)
        })
    }

    /// The memory for the state of this rank's endpoint, all zeros: once only.
    pub(crate) fn take_channel_region(&self) -> Option<ChannelRegion> {
        if self.layout.channel_bytes == 0 || self.channel_taken.swap(true, SeqCst) {
            return None;
        }
        let start = self.map.at(self.layout.channel, self.layout.channel_bytes);
        // SAFETY: mapped as long as this value, which the channel's core does not outlive. Nothing else here reaches that
        // part of the mapping, and it is handed out once. Other ranks have the file for reading only, and it is sealed
        // against new writers. A mapping made before by a process of the daemon's user would remain, and kernels before 5.1
        // lack the seal; no code of Kumi makes such a mapping.
        Some(unsafe { ChannelRegion::new(start, self.layout.channel_bytes) })
    }

    /// Bytes of an arena.
    #[must_use]
    pub fn arena_bytes(&self) -> usize {
        self.layout.arena_bytes
    }

    /// Gives pages of an own arena back to the system; they read as zeros afterwards.
    ///
    /// # Errors
    /// The kernel's error.
    ///
    /// # Panics
    /// If the range is not inside of the arena.
    pub fn discard(&self, kind: ArenaKind, offset: usize, bytes: usize) -> io::Result<()> {
        let start = self.own_arena(kind)?;
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.arena_bytes()));
        // Miri knows no files whose pages could go.
        if cfg!(miri) {
            // SAFETY: a range of the own arena, checked above, which stays.
            unsafe { SharedBytesMut::new(start.add(offset), bytes) }.copy_from(&*vec![0; bytes]);
            return Ok(());
        }
        // SAFETY: a range of the own arena, checked above; the mapping stays, only what it shows
        // changes, as any write would.
        let done =
            unsafe { libc::madvise(start.as_ptr().add(offset).cast(), bytes, libc::MADV_REMOVE) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Says that this rank holds a lock of shared memory, or that it does not any more. If it holds more than it can name,
    /// some are not told.
    pub fn tell_lock(&self, lock: u32, held: bool) {
        let word = u64::from(lock) + 1;
        let (from, to) = if held { (0, word) } else { (word, 0) };
        let places = &self.own().waits.held;
        let _told =
            places.iter().any(|place| place.compare_exchange(from, to, SeqCst, Relaxed).is_ok());
    }

    /// Wakes a rank of this node if it sleeps. Write what it is to notice before, with sequentially
    /// consistent order.
    #[inline]
    pub fn wake(&self, local: usize) {
        self.lines(local).sleep.wake(|| self.ring_bell(local));
    }

    /// Wakes a rank of this node if it sleeps for room in a ring from which this rank has just consumed.
    #[inline]
    pub(crate) fn wake_for_room(&self, local: usize) {
        self.lines(local).sleep.wake_for_room(|| self.ring_bell(local));
    }

    fn ring_bell(&self, local: usize) {
        let one = 1u64;
        // A full eventfd (EAGAIN) rings already; there is no other failure.
        // SAFETY: eight bytes are read from `one`.
        unsafe { libc::write(self.bells[local].as_raw_fd(), (&raw const one).cast(), 8) };
        // Threads without the channel's lock ring too.
        let count = &self.own().counters[crate::segment::counters::Counter::Doorbells as usize];
        count.fetch_add(1, Relaxed);
    }

    /// Adds to one of the own counters. Only the owner's threads write them, and each counter has
    /// one thread or a lock.
    #[inline]
    pub fn count(&self, counter: crate::segment::counters::Counter, amount: u64) {
        let counter = &self.own().counters[counter as usize];
        // In a copy that a process goes on with, any number may be here.
        counter.store(counter.load(Relaxed).wrapping_add(amount), Relaxed);
    }

    /// Sets one of the own counters.
    #[inline]
    pub fn set(&self, counter: crate::segment::counters::Counter, value: u64) {
        self.own().counters[counter as usize].store(value, Relaxed);
    }

    pub(crate) fn own_bell(&self) -> RawFd {
        self.bells[self.local].as_raw_fd()
    }

    pub(crate) fn channel_key(&self) -> u64 {
        self.channel_key
    }

    pub(crate) fn seal_key(&self) -> Option<&SealKey> {
        self.seal_key.as_ref()
    }

    pub(crate) fn max_datagram(&self) -> usize {
        self.max_datagram
    }

    /// Where the socket of a rank is.
    ///
    /// # Panics
    /// If there is no such rank.
    #[must_use]
    pub fn address(&self, rank: u32) -> SocketAddr {
        self.addresses[rank as usize]
    }

    /// The ring between two ranks of this node.
    pub(crate) fn ring(&self, from: usize, to: usize) -> RingPlace {
        let (layout, size) = (&self.layout, self.layout.ring_bytes);
        let position = |at| self.map.at(at, size_of::<RingPosition>()).cast();
        let (tail, head) = (position(layout.tail(from, to)), position(layout.head(from, to)));
        RingPlace { tail, head, data: self.map.at(layout.ring(from, to), size), size }
    }

    /// Bytes of the longest frame between ranks of this node.
    pub(crate) fn max_local_frame(&self) -> usize {
        crate::shm::ring::max_record(self.layout.ring_bytes)
    }

    pub(crate) fn ring_bytes(&self) -> usize {
        self.layout.ring_bytes
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let state = &self.own().state;
        state.idle.store(0, Relaxed);
        // Whoever sees this sees what was counted before.
        state.attached.store(ATTACH_DONE, Release);
    }
}

/// Makes this process the rank; whether it goes on with a copy.
fn claim(attached: &std::sync::atomic::AtomicU32, rank: u32) -> Result<bool, AttachError> {
    let claim = |from| attached.compare_exchange(from, ATTACH_NOW, SeqCst, SeqCst).is_ok();
    match (claim(ATTACH_NEVER), claim(ATTACH_COPY)) {
        (true, _) => Ok(false),
        (_, true) => Ok(true),
        _ => Err(AttachError::AlreadyAttached(rank)),
    }
}
