//! Attachment of a rank: its mapped segment, and the descriptors it inherited.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use kumi_proto::SealKey;

use crate::disclosure::RankState;
use crate::segment::header::{HeaderCopy, SegmentNumbers};
use crate::segment::launch::{LaunchBlock, LaunchDescriptors, LaunchError};
use crate::segment::layout::{ATTACH_DONE, ATTACH_NEVER, ATTACH_NOW, Layout, PAGE, RankContext};
use crate::segment::{self, Segment, SegmentError, SegmentSpec};
use crate::shm::mapping::Mapping;
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
    /// The segment is not one, or of another version.
    #[error(
        "the job's memory segment is not usable ({0}): this program and the daemon must be of the same version of Kumi"
    )]
    BadSegment(&'static str),
    /// The node's pages are not usable.
    #[error(
        "the node's pages of information are not usable ({0}): this program and the daemon must be of the same version of Kumi"
    )]
    BadPages(&'static str),
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
    addresses: Box<[SocketAddrV4]>,
    bells: Vec<OwnedFd>,
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
        let LaunchDescriptors { segment, socket, doorbells } = descriptors;
        let (map, numbers) = map_segment(&segment)?;
        let layout = numbers.layout;
        let local = launch
            .rank
            .checked_sub(layout.local_first)
            .filter(|index| *index < layout.local_count)
            .ok_or(AttachError::BadSegment("it is for other ranks"))? as usize;
        if launch.ranks != layout.ranks || doorbells.len() != layout.local_count as usize {
            return Err(AttachError::BadSegment("it does not fit the environment"));
        }
        claim(&segment::context(&map, &layout, local).state.attached, launch.rank)?;
        let mut attachment = Attachment::of(map, numbers, doorbells);
        (attachment.job, attachment.node) = (launch.job, launch.node);
        (attachment.rank, attachment.local) = (launch.rank, local);
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
        let mut segment = Segment::create(&spec)?;
        // Nothing is sent to it.
        segment
            .publish_peers(&[SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)], segment::MIN_DATAGRAM)?;
        let file = segment.as_fd().try_clone_to_owned().map_err(io_error("dup"))?;
        let (map, numbers) = map_segment(&file)?;
        claim(&segment::context(&map, &numbers.layout, 0).state.attached, 0)?;
        let bells = vec![sys::doorbell().map_err(io_error("eventfd"))?];
        Ok(Attachment::of(map, numbers, bells))
    }

    /// The first rank of a segment. Of the header and the peer table nothing is read after this.
    fn of(map: Mapping, numbers: SegmentNumbers, bells: Vec<OwnedFd>) -> Attachment {
        let SegmentNumbers { layout, channel_key, seal_key, max_datagram } = numbers;
        let word = |rank| segment::peer(&map, &layout, rank).address.load(Relaxed);
        let addresses =
            (0..layout.ranks as usize).map(|rank| segment::unpack(word(rank))).collect();
        let (job, rank, node, local) = (0, layout.local_first, 0, 0);
        Attachment {
            map,
            layout,
            job,
            rank,
            node,
            local,
            channel_key,
            seal_key,
            max_datagram,
            addresses,
            bells,
        }
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
        segment::context(&self.map, &self.layout, local)
    }

    /// Activity of a rank of this node, by its context; none if it is on another node.
    #[must_use]
    pub fn rank_state(&self, rank: u32) -> Option<RankState> {
        self.local_of(rank).map(|local| segment::state_of(self.context(local)))
    }

    /// The own context.
    #[must_use]
    #[inline]
    pub fn own(&self) -> &RankContext {
        self.context(self.local)
    }

    /// The window memory of a rank of this node.
    ///
    /// # Panics
    /// If there is no such rank.
    #[must_use]
    pub fn arena(&self, local: usize) -> NonNull<u8> {
        assert!(local < self.local_count(), "no such rank on this node");
        self.map.at(self.layout.arena(local), self.layout.arena_bytes)
    }

    /// Bytes of an arena.
    #[must_use]
    pub fn arena_bytes(&self) -> usize {
        self.layout.arena_bytes
    }

    /// Gives pages of the own arena back to the system; they read as zeros afterwards.
    ///
    /// # Errors
    /// The kernel's error.
    ///
    /// # Panics
    /// If the range is not inside of the arena.
    pub fn discard(&self, offset: usize, bytes: usize) -> io::Result<()> {
        let start = self.arena(self.local);
        assert!(offset.checked_add(bytes).is_some_and(|end| end <= self.arena_bytes()));
        // SAFETY: a range of the own arena, checked above; the mapping stays, only what it shows
        // changes, as any write would.
        let done =
            unsafe { libc::madvise(start.as_ptr().add(offset).cast(), bytes, libc::MADV_REMOVE) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Wakes a rank of this node if it sleeps. Write what it is to notice before, with sequentially
    /// consistent order.
    #[inline]
    pub fn wake(&self, local: usize) {
        self.context(local).sleep.wake(|| self.ring_bell(local));
    }

    /// Wakes a rank of this node if it sleeps for room in a ring from which this rank has just consumed.
    #[inline]
    pub(crate) fn wake_for_room(&self, local: usize) {
        self.context(local).sleep.wake_for_room(|| self.ring_bell(local));
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
        // A peer that scribbles over the context may have left any number here.
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
    pub fn address(&self, rank: u32) -> SocketAddrV4 {
        self.addresses[rank as usize]
    }

    /// Head and data of the ring between two ranks of this node.
    pub(crate) fn ring(
        &self,
        from: usize,
        to: usize,
    ) -> (NonNull<crate::segment::layout::RingHead>, NonNull<u8>, usize) {
        let start = self.layout.ring(from, to);
        let head = self.map.at(start, PAGE).cast();
        (head, self.map.at(start + PAGE, self.layout.ring_bytes), self.layout.ring_bytes)
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
        state.attached.store(ATTACH_DONE, Relaxed);
    }
}

fn claim(attached: &std::sync::atomic::AtomicU32, rank: u32) -> Result<(), AttachError> {
    let claimed = attached.compare_exchange(ATTACH_NEVER, ATTACH_NOW, SeqCst, SeqCst);
    claimed.map(drop).map_err(|_| AttachError::AlreadyAttached(rank))
}

/// Maps a segment after checking that it is one, of this version, and as long as it says.
fn map_segment(file: &OwnedFd) -> Result<(Mapping, SegmentNumbers), AttachError> {
    let bad = AttachError::BadSegment;
    // SAFETY: an all-zero stat is valid; the kernel fills it in.
    let mut stat: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: pointer to our own structure.
    if unsafe { libc::fstat(file.as_raw_fd(), &raw mut stat) } != 0 {
        return Err(io_error("fstat")(io::Error::last_os_error()));
    }
    let length = usize::try_from(stat.st_size).map_err(|_| bad("bad length"))?;
    // SAFETY: no pointers.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 || length < PAGE {
        return Err(bad("it is not a sealed memory file"));
    }
    let numbers = {
        let start = Mapping::new(file.as_fd(), PAGE).map_err(io_error("mmap"))?;
        // SAFETY: Header consists of atomics only.
        HeaderCopy::of(unsafe { start.view(0) }).check(length).map_err(bad)?
    };
    let map = Mapping::new(file.as_fd(), length).map_err(io_error("mmap"))?;
    // A dump would allocate every page that was never touched, of all local ranks, and it would show the channel's keys.
    map.keep_out_of_dumps().map_err(io_error("madvise"))?;
    Ok((map, numbers))
}
