//! Layout of a job's segment: the one definition of its structures and their offsets.
//!
//! A segment has several memory files, since the kernel gives rights by the file. A rank maps all of them one behind the
//! other:
//!
//! ```text
//! job file:    header | peer table                                  the daemon writes
//! shared file: lines of each local rank | open arena of each        all local ranks write
//! rank files:  context | tails | heads | ring data, of each rank    that rank writes
//! arena files: readable arena of each local rank                    that rank writes
//! the own rank file's end: channel context                          that rank writes, no other rank maps it
//! ```
//!
//! All numbers are in the machine's byte order: a segment never leaves its machine. Everything that is
//! read after the ranks have started is an atomic. Readers check every value at every use, since
//! another process can write it. `docs/reference/segment.md` has the bytes.

use std::sync::atomic::{AtomicU32, AtomicU64};

/// First eight bytes of a segment.
pub const MAGIC: u64 = u64::from_le_bytes(*b"KUMISEG\x01");
/// Version of this layout; a rank refuses a segment of another one.
pub const VERSION: u32 = 7;
/// Everything large starts at a multiple of this.
pub const PAGE: usize = 4096;
/// Most ranks of one job on one node: one bit each in [`Wake::pending`].
pub const MAX_LOCAL_RANKS: u32 = 512;
/// Most windows that exist at the same time.
pub const WINDOWS: usize = 256;
/// Notification counters of a window.
pub const NOTIFIES: usize = 64;
/// Bytes of a ring when nothing else is asked for.
pub const DEFAULT_RING_BYTES: usize = 256 * 1024;
/// Least address space for the windows of one rank, see [`arena_bytes`].
const LEAST_ARENA_BYTES: u64 = 8 << 30;
/// Most address space for the arenas of one kind of all ranks of a node: a quarter of a process's.
const MOST_ARENAS_BYTES: u64 = 1 << 45;
/// Most address space for a segment: three quarters of a process's.
const MOST_BYTES: usize = 3 << 45;
/// Address space in a channel context for each other rank of the job: two send rings of the largest window.
const CHANNEL_BYTES_PER_RANK: usize = 4 << 20;
/// Address space in a channel context for everything else.
const CHANNEL_BYTES: usize = 1 << 20;
/// Smallest ring.
pub const MIN_RING_BYTES: usize = 4096;
/// Largest ring.
pub const MAX_RING_BYTES: usize = 1 << 28;

/// Start of the job file. Written by the daemon before any rank starts, then only read.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// 1 once the peer table is filled in.
    pub published: AtomicU32,
    /// Secret of the job's channel: seeds every packet's checksum.
    pub channel_key: AtomicU64,
    /// Ranks of the job.
    pub ranks: AtomicU32,
    /// First rank on this node.
    pub local_first: AtomicU32,
    /// Ranks on this node.
    pub local_count: AtomicU32,
    /// Largest datagram (UDP payload, bytes).
    pub max_datagram: AtomicU32,
    /// Data bytes of one ring; a power of two.
    pub ring_bytes: AtomicU64,
    /// Bytes of one arena; a multiple of [`PAGE`].
    pub arena_bytes: AtomicU64,
    /// Bytes of all files as a rank maps them, see [`Layout::total`].
    pub total_bytes: AtomicU64,
    /// 1 if the channel's packets are encrypted, 0 if not.
    pub encrypted: AtomicU32,
    /// 0.
    pub reserved: AtomicU32,
    /// Key with which they are encrypted, its first byte lowest; 0 if they are not.
    pub seal_key: [AtomicU64; 2],
}

/// Where one rank's socket is.
#[repr(C)]
#[derive(Debug)]
pub struct Peer {
    /// IPv6 address, its first byte lowest in the first word; IPv4 addresses as `::ffff:a.b.c.d`.
    pub address: [AtomicU64; 2],
    /// UDP port in the low 16 bits; in the upper 32 this machine's interface of a link-local address, else 0.
    pub port: AtomicU64,
}

/// The line that same-node peers of a rank read after every delivery.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Sleep {
    /// 1 while the rank is about to sleep or sleeps. A peer that delivers something sets it back to 0
    /// and rings the doorbell.
    pub sleeping: AtomicU32,
    /// 1 while the rank sleeps because a ring of its own is full. A peer that makes room in it wakes
    /// the rank.
    pub wants_room: AtomicU32,
}

/// The line that says which rings towards a rank have something.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Wake {
    /// Bit `i`: the ring from local rank `i` may have records.
    pub pending: [AtomicU64; (MAX_LOCAL_RANKS / 64) as usize],
}

/// Flags of a rank.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct State {
    /// One of the `ATTACH_` constants.
    pub attached: AtomicU32,
    /// 1 while the rank waits for its peers and has nothing else to do. Cleared before anything that arrived is taken.
    pub idle: AtomicU32,
    /// Changes begun and ended that take several stores: odd while one is under way, and the rank is not to be copied.
    pub changes: AtomicU32,
    /// Index of the notification counter that is waited for plus one; 0: waits for something else.
    pub wait_counter: AtomicU32,
    /// The count that is waited for.
    pub wait_at_least: AtomicU64,
    /// Frames put into rings so far.
    pub ring_sent: AtomicU64,
    /// Frames taken out of rings so far.
    pub ring_delivered: AtomicU64,
    /// Threads of the program that sleep until they can have the channel. As long as there are some, nobody is idle.
    pub wanting: AtomicU32,
}

/// No process has attached to the context.
pub const ATTACH_NEVER: u32 = 0;
/// A process uses the context.
pub const ATTACH_NOW: u32 = 1;
/// The process that used the context has finished with it.
pub const ATTACH_DONE: u32 = 2;
/// The context is a copy of one that a process used; another may go on with it.
pub const ATTACH_COPY: u32 = 3;

/// A window as peers on the same node see it. `key` is written last.
#[repr(C)]
#[derive(Debug)]
pub struct WindowEntry {
    /// The window's name at its owner, see "Windows' names" in `docs/reference/channel-protocol.md`; 0: none.
    pub key: AtomicU64,
    /// Start in the arena that the key says, bytes; 0 if it lies in none.
    pub offset: AtomicU64,
    /// Length in bytes.
    pub length: AtomicU64,
    /// Bit 0 write, 1 read, 2 atomic operations.
    pub rights: AtomicU64,
}

/// Waits of a rank that can be described at the same time.
pub const WAIT_PLACES: usize = kumi_verdict::MOST_WAITS;
/// Locks of shared memory that a rank can name at the same time.
pub const HELD_LOCKS: usize = kumi_verdict::MOST_HELD;
/// Words that describe a wait.
pub const WAIT_WORDS: usize = 13;

/// The wait of a thread, as its rank describes it.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct WaitPlace {
    /// Changes begun and ended: odd while one is under way.
    pub changes: AtomicU64,
    /// In this order: number of the wait; thread, and kind << 32; peer + 1; what; further; flags; index of the counter that
    /// is waited for + 1; the count; address; four words of the call's name. The thread is 0 where there is no wait.
    pub words: [AtomicU64; WAIT_WORDS],
}

/// Waits of a rank. Only the rank writes them.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct WaitTable {
    /// By thread, in any order.
    pub places: [WaitPlace; WAIT_PLACES],
    /// Waits for which there is no place.
    pub undescribed: AtomicU64,
    /// Locks of shared memory that the rank holds, each plus one; 0: none.
    pub held: [AtomicU64; HELD_LOCKS],
}

/// One notification counter, alone on its line.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Notify {
    /// Notifications so far.
    pub count: AtomicU64,
}

/// What the peers of a rank on its node write. In the shared file.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct SharedLines {
    /// Written by the owner; a peer that wakes it clears it.
    pub sleep: Sleep,
    /// Written by peers; the owner clears it.
    pub wake: Wake,
    /// Notification counters: window slot × [`NOTIFIES`] + number.
    pub notifies: NotifyTable,
}

/// What a rank shows to its peers on the node and to the daemon. At the start of its rank file: nobody else can write it.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct RankContext {
    /// Flags.
    pub state: State,
    /// See [`crate::segment::counters`].
    pub counters: [AtomicU64; 64],
    /// Windows by slot, which their names' low bits tell.
    pub windows: [WindowEntry; WINDOWS],
    /// What its threads wait for.
    pub waits: WaitTable,
    /// Now and then: counts by peer.
    pub peers: PeerTable,
}

/// Index of the room counter among the notification counters, behind those of the windows. After taking
/// a record from a FIFO, its owner raises this counter of each local rank that waits for room in it.
pub const ROOM: usize = WINDOWS * NOTIFIES;

/// Index of the count of signals that no handler has finished yet. The sender raises it; the port's
/// thread lowers it. A rank with such signals is not idle, whatever its main thread does.
pub const SIGNALS: usize = ROOM + 1;

/// Values of a [`PeerEntry`]: packets out (data, acks, nacks, probes), packets in (the same), bytes out
/// and in, resends, duplicates, smoothed round trip in microseconds, unacked packets and bytes, bytes
/// of the longest datagram, packets that the network may fragment.
pub const PEER_VALUES: usize = 17;
/// [`PeerEntry::who`] of an entry that is not used.
pub const PEER_NOBODY: u64 = 0;
/// [`PeerEntry::who`] of the entry that is for all peers together that have none of their own.
pub const PEER_OTHERS: u64 = u64::MAX;

/// Traffic between a rank and one peer on another node.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct PeerEntry {
    /// The peer's rank plus one, [`PEER_NOBODY`] or [`PEER_OTHERS`].
    pub who: AtomicU64,
    /// See [`PEER_VALUES`].
    pub values: [AtomicU64; PEER_VALUES],
}

/// The peers with the first traffic, and all others together.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct PeerTable(pub [PeerEntry; kumi_proto::PEERS_LISTED + 1]);

/// All notification counters of a rank, from a page boundary on: those of the windows, then [`ROOM`] and [`SIGNALS`].
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct NotifyTable(pub [Notify; SIGNALS + 1]);

/// A position in a ring alone on its line (two lines: processors fetch pairs): the tail, bytes ever written, lies in the
/// producer's rank file, the head, bytes ever taken, in the consumer's.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct RingPosition(pub AtomicU64);

const _: () = assert!(size_of::<Header>() == 128 && size_of::<Peer>() == 24);
const _: () =
    assert!(size_of::<Sleep>() == 64 && size_of::<Wake>() == 64 && size_of::<State>() == 64);
const _: () = assert!(std::mem::offset_of!(State, changes) == 8);
const _: () = assert!(std::mem::offset_of!(State, ring_sent) == 24);
const _: () = assert!(std::mem::offset_of!(State, ring_delivered) == 32);
const _: () = assert!(size_of::<WindowEntry>() == 32 && size_of::<Notify>() == 64);
const _: () = assert!(std::mem::offset_of!(RankContext, counters) == 64);
const _: () = assert!(std::mem::offset_of!(RankContext, windows) == 576);
const _: () = assert!(std::mem::offset_of!(State, wanting) == 40);
const _: () = assert!(size_of::<WaitPlace>() == 128 && size_of::<WaitTable>() == 1216);
const _: () = assert!(std::mem::offset_of!(WaitTable, undescribed) == 1024);
const _: () = assert!(std::mem::offset_of!(WaitTable, held) == 1032);
const _: () = assert!(std::mem::offset_of!(RankContext, waits) == 8768);
const _: () = assert!(std::mem::offset_of!(RankContext, peers) == 12288);
const _: () = assert!(size_of::<RankContext>() == 12288 + 3 * PAGE);
const _: () = assert!(size_of::<PeerEntry>() == 192 && size_of::<PeerTable>() == 3 * PAGE);
const _: () = assert!(size_of::<NotifyTable>() == ROOM * 64 + PAGE);
const _: () = assert!(std::mem::offset_of!(SharedLines, wake) == 64);
const _: () = assert!(std::mem::offset_of!(SharedLines, notifies) == PAGE);
const _: () = assert!(size_of::<SharedLines>() == 2 * PAGE + ROOM * 64);
const _: () = assert!(size_of::<RingPosition>() == 128);

/// A memory file of a segment. Ranks are local indices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentPart {
    /// Header and peer table.
    Job,
    /// Lines and open arenas.
    Shared,
    /// What this rank writes: context, rings, channel context.
    Rank(usize),
    /// The arena of this rank that peers only read.
    Arena(usize),
}

/// The arenas of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArenaKind {
    /// Ranks of the node map it for writing.
    Open,
    /// Ranks of the node map it for reading only.
    Readable,
    /// No other process maps it. It is in no file of the segment.
    Private,
}

/// Offsets of the parts of a segment, computed from the few numbers in its header. They count from the start of the range
/// into which a rank maps all files; [`Layout::locate`] tells file and place in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Ranks of the job.
    pub ranks: u32,
    /// First rank on this node.
    pub local_first: u32,
    /// Ranks on this node.
    pub local_count: u32,
    /// Data bytes of a ring.
    pub ring_bytes: usize,
    /// Bytes of an arena.
    pub arena_bytes: usize,
    /// Start of the peer table.
    pub peers: usize,
    /// Start of the shared file, with the lines; the job file lies before it.
    pub shared: usize,
    /// Start of the open arenas.
    pub open_arenas: usize,
    /// Start of the rank files.
    pub rank_files: usize,
    /// Bytes of a rank file that all local ranks map.
    pub rank_front: usize,
    /// Start of the readable arenas.
    pub readable_arenas: usize,
    /// Start of the own channel context.
    pub channel: usize,
    /// Bytes of a channel context, 0 if all ranks are on this node.
    pub channel_bytes: usize,
    /// Bytes in all.
    pub total: usize,
}

impl Layout {
    /// The layout for these numbers, or `None` if they make no sense or do not fit an address space.
    #[must_use]
    pub fn new(
        ranks: u32,
        local_first: u32,
        local_count: u32,
        ring_bytes: u64,
        arena_bytes: u64,
    ) -> Option<Layout> {
        let ring_bytes = usize::try_from(ring_bytes).ok()?;
        let arena_bytes = usize::try_from(arena_bytes).ok()?;
        let last = local_first.checked_add(local_count)?;
        let sane = (1..=MAX_LOCAL_RANKS).contains(&local_count)
            && last <= ranks
            && ring_bytes.is_power_of_two()
            && (MIN_RING_BYTES..=MAX_RING_BYTES).contains(&ring_bytes)
            && arena_bytes.is_multiple_of(PAGE)
            && arena_bytes <= 1 << 46;
        if !sane {
            return None;
        }
        let local = local_count as usize;
        let arenas = local.checked_mul(arena_bytes)?;
        let peers = size_of::<Header>();
        let shared = page_up(peers.checked_add((ranks as usize).checked_mul(size_of::<Peer>())?)?)?;
        let open_arenas = shared.checked_add(local.checked_mul(size_of::<SharedLines>())?)?;
        let rank_files = open_arenas.checked_add(arenas)?;
        let rank_front = data_start(local).checked_add(local.checked_mul(ring_bytes)?)?;
        let readable_arenas = rank_files.checked_add(local.checked_mul(rank_front)?)?;
        let channel = readable_arenas.checked_add(arenas)?;
        let channel_bytes = channel_bytes(ranks, local_count)?;
        let total = channel.checked_add(channel_bytes)?;
        (total <= MOST_BYTES).then_some(Layout {
            ranks,
            local_first,
            local_count,
            ring_bytes,
            arena_bytes,
            peers,
            shared,
            open_arenas,
            rank_files,
            rank_front,
            readable_arenas,
            channel,
            channel_bytes,
            total,
        })
    }

    /// Start of the lines of the local rank with this index.
    #[must_use]
    pub fn lines(&self, local: usize) -> usize {
        self.shared + local * size_of::<SharedLines>()
    }

    /// Start of the context of the local rank with this index, and of its rank file.
    #[must_use]
    pub fn context(&self, local: usize) -> usize {
        self.rank_files + local * self.rank_front
    }

    /// The tail of the ring that `from` fills and `to` empties (local indices). The producer writes it.
    #[must_use]
    pub fn tail(&self, from: usize, to: usize) -> usize {
        self.context(from) + size_of::<RankContext>() + to * size_of::<RingPosition>()
    }

    /// The head of that ring. The consumer writes it.
    #[must_use]
    pub fn head(&self, from: usize, to: usize) -> usize {
        let heads = self.tail(to, self.local_count as usize);
        heads + from * size_of::<RingPosition>()
    }

    /// Start of the records of that ring. The producer writes them.
    #[must_use]
    pub fn ring(&self, from: usize, to: usize) -> usize {
        self.context(from) + data_start(self.local_count as usize) + to * self.ring_bytes
    }

    /// Start of the open arena of the local rank with this index, which its peers may write.
    #[must_use]
    pub fn open_arena(&self, local: usize) -> usize {
        self.open_arenas + local * self.arena_bytes
    }

    /// Start of its readable arena, which its peers may only read.
    #[must_use]
    pub fn readable_arena(&self, local: usize) -> usize {
        self.readable_arenas + local * self.arena_bytes
    }

    /// Bytes of a file.
    #[must_use]
    pub fn bytes_of(&self, part: SegmentPart) -> usize {
        match part {
            SegmentPart::Job => self.shared,
            SegmentPart::Shared => self.rank_files - self.shared,
            SegmentPart::Rank(_) => self.rank_front + self.channel_bytes,
            SegmentPart::Arena(_) => self.arena_bytes,
        }
    }

    /// The file in which a byte of the range lies, and where in it. The channel context is that of the local rank `own`.
    #[must_use]
    pub fn locate(&self, offset: usize, own: usize) -> (SegmentPart, usize) {
        if offset < self.shared {
            (SegmentPart::Job, offset)
        } else if offset < self.rank_files {
            (SegmentPart::Shared, offset - self.shared)
        } else if offset < self.readable_arenas {
            let at = offset - self.rank_files;
            (SegmentPart::Rank(at / self.rank_front), at % self.rank_front)
        } else if offset < self.channel {
            let at = offset - self.readable_arenas;
            (SegmentPart::Arena(at / self.arena_bytes), at % self.arena_bytes)
        } else {
            (SegmentPart::Rank(own), offset - self.channel + self.rank_front)
        }
    }
}

/// Where the records begin in the rank file of one of so many local ranks.
fn data_start(local_count: usize) -> usize {
    let positions = 2 * local_count * size_of::<RingPosition>();
    // At most 512 ranks: far from the end of the numbers.
    (size_of::<RankContext>() + positions).next_multiple_of(PAGE)
}

/// Address space in bytes for a channel context, of which only what is used takes memory. Without ranks elsewhere there is
/// no such channel.
fn channel_bytes(ranks: u32, local_ranks: u32) -> Option<usize> {
    if local_ranks == ranks {
        return Some(0);
    }
    (ranks as usize).checked_mul(CHANNEL_BYTES_PER_RANK)?.checked_add(CHANNEL_BYTES)
}

/// Address space in bytes for an arena of one rank, on a node with so many ranks of the job and so
/// many bytes of memory. It is twice the memory, so that anything that fits the memory finds a place
/// beside earlier windows. Only written pages use memory.
#[must_use]
pub fn arena_bytes(local_ranks: u32, memory: u64) -> u64 {
    let most = MOST_ARENAS_BYTES / u64::from(local_ranks.max(1));
    let bytes = memory.saturating_mul(2).max(LEAST_ARENA_BYTES).min(most);
    bytes & !(PAGE as u64 - 1)
}

/// The next multiple of [`PAGE`].
#[must_use]
pub fn page_up(bytes: usize) -> Option<usize> {
    bytes.checked_add(PAGE - 1).map(|sum| sum & !(PAGE - 1))
}
