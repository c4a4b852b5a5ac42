//! Layout of a job's segment: the one definition of its structures and their offsets.
//!
//! ```text
//! Header | peer table | contexts of the local ranks | rings of every ordered pair of local ranks | one arena per local rank
//! ```
//!
//! All numbers are in the machine's byte order: a segment never leaves its machine. Everything that is
//! read after the ranks have started is an atomic. Readers check every value at every use, since
//! another process can write it.

use std::sync::atomic::{AtomicU32, AtomicU64};

/// First eight bytes of a segment.
pub const MAGIC: u64 = u64::from_le_bytes(*b"KUMISEG\x01");
/// Version of this layout; a rank refuses a segment of another one.
pub const VERSION: u32 = 5;
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
/// Most address space for the windows of all ranks of a node: a quarter of a process's.
const MOST_ARENAS_BYTES: u64 = 1 << 45;
/// Smallest ring.
pub const MIN_RING_BYTES: usize = 4096;
/// Largest ring.
pub const MAX_RING_BYTES: usize = 1 << 28;

/// Start of the segment. Written by the daemon before any rank starts, then only read.
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
    /// Bytes of the whole segment.
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

/// The line of a context that its same-node peers read after every delivery.
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

/// The line of a context that says which rings towards it have something.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Wake {
    /// Bit `i`: the ring from local rank `i` may have records.
    pub pending: [AtomicU64; (MAX_LOCAL_RANKS / 64) as usize],
}

/// The line of a context that only its own rank writes.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct State {
    /// One of the `ATTACH_` constants.
    pub attached: AtomicU32,
    /// 1 while the rank waits for its peers and has nothing else to do. Cleared before anything that arrived is taken.
    pub idle: AtomicU32,
    /// Unused. (The lock that decides which thread drives the channel is in the rank's own memory: a
    /// peer's stray write to this page must not let both in.)
    pub reserved: AtomicU32,
    /// Index of the notification counter that is waited for plus one; 0: waits for something else.
    pub wait_counter: AtomicU32,
    /// The count that is waited for.
    pub wait_at_least: AtomicU64,
}

/// No process has attached to the context.
pub const ATTACH_NEVER: u32 = 0;
/// A process uses the context.
pub const ATTACH_NOW: u32 = 1;
/// The process that used the context has finished with it.
pub const ATTACH_DONE: u32 = 2;

/// A window as peers on the same node see it. `key` is written last.
#[repr(C)]
#[derive(Debug)]
pub struct WindowEntry {
    /// The window's name at its owner, see "Windows' names" in `docs/reference/channel-protocol.md`; 0: none.
    pub key: AtomicU64,
    /// Start in the owner's arena, bytes; 0 if it does not lie there, as the key says.
    pub offset: AtomicU64,
    /// Length in bytes.
    pub length: AtomicU64,
    /// Bit 0 write, 1 read, 2 atomic operations.
    pub rights: AtomicU64,
}

/// One notification counter, alone on its line.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Notify {
    /// Notifications so far.
    pub count: AtomicU64,
}

/// Everything about one rank that others on its node can see.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct RankContext {
    /// Read by peers.
    pub sleep: Sleep,
    /// Written by peers.
    pub wake: Wake,
    /// Written by the owner only.
    pub state: State,
    /// Written by the owner only; see [`crate::segment::counters`].
    pub counters: [AtomicU64; 64],
    /// Windows by slot, which their names' low bits tell.
    pub windows: [WindowEntry; WINDOWS],
    /// Notification counters: window slot × [`NOTIFIES`] + number.
    pub notifies: NotifyTable,
    /// Written by the owner only, now and then: counts by peer.
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

/// Positions of a ring from one rank to another; the data follows at the next page.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct RingHead {
    /// Bytes ever written; only the producer writes it.
    pub tail: RingPosition,
    /// Bytes ever consumed; only the consumer writes it.
    pub head: RingPosition,
}

/// A position alone on its line (two lines: processors fetch pairs).
#[repr(C, align(128))]
#[derive(Debug)]
pub struct RingPosition(pub AtomicU64);

const _: () = assert!(size_of::<Header>() == 128 && size_of::<Peer>() == 24);
const _: () =
    assert!(size_of::<Sleep>() == 64 && size_of::<Wake>() == 64 && size_of::<State>() == 64);
const _: () = assert!(size_of::<WindowEntry>() == 32 && size_of::<Notify>() == 64);
const _: () = assert!(std::mem::offset_of!(RankContext, counters) == 192);
const _: () = assert!(std::mem::offset_of!(RankContext, windows) == 704);
const _: () = assert!(std::mem::offset_of!(RankContext, notifies) == 12288);
const _: () = assert!(size_of::<NotifyTable>() == ROOM * 64 + PAGE);
const _: () = assert!(std::mem::offset_of!(RankContext, peers) == 12288 + ROOM * 64 + PAGE);
const _: () = assert!(size_of::<PeerEntry>() == 192 && size_of::<PeerTable>() == 3 * PAGE);
const _: () = assert!(size_of::<RankContext>() == 12288 + ROOM * 64 + 4 * PAGE);
const _: () = assert!(size_of::<RingHead>() == PAGE);

/// Offsets of the parts of a segment, computed from the few numbers in its header.
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
    /// Start of the contexts.
    pub contexts: usize,
    /// Start of the rings.
    pub rings: usize,
    /// Start of the arenas.
    pub arenas: usize,
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
        let peers = size_of::<Header>();
        let contexts =
            page_up(peers.checked_add((ranks as usize).checked_mul(size_of::<Peer>())?)?)?;
        let rings = contexts.checked_add(local.checked_mul(size_of::<RankContext>())?)?;
        let arenas =
            rings.checked_add(local.checked_mul(local)?.checked_mul(PAGE + ring_bytes)?)?;
        let total = arenas.checked_add(local.checked_mul(arena_bytes)?)?;
        (total <= 1 << 46).then_some(Layout {
            ranks,
            local_first,
            local_count,
            ring_bytes,
            arena_bytes,
            peers,
            contexts,
            rings,
            arenas,
            total,
        })
    }

    /// Start of the context of the local rank with this index.
    #[must_use]
    pub fn context(&self, local: usize) -> usize {
        self.contexts + local * size_of::<RankContext>()
    }

    /// Start of the ring that `from` fills and `to` empties (local indices).
    #[must_use]
    pub fn ring(&self, from: usize, to: usize) -> usize {
        self.rings + (from * self.local_count as usize + to) * (PAGE + self.ring_bytes)
    }

    /// Start of the arena of the local rank with this index.
    #[must_use]
    pub fn arena(&self, local: usize) -> usize {
        self.arenas + local * self.arena_bytes
    }
}

/// Address space in bytes for the windows of one rank, on a node with so many ranks of the job and so
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
