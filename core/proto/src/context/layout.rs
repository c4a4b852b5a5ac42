//! Layout of a context: the one definition of its parts and their offsets.
//!
//! ```text
//! identity | changes | totals and counters by peer | peer records | blocks: send rings and early packets
//! ```

use super::Flag;
use crate::counters::Counters;
use crate::peer::{PeerRecord, Slot};
use crate::peer_counts::{PEERS_LISTED, TallyRecord};
use crate::{Config, ConfigError, Rank};
use core::mem::offset_of;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version of the layout of contexts.
pub const CONTEXT_VERSION: u32 = 2;
/// First eight bytes.
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"KUMICTX\x01");
/// Each part, and each ring, starts at a multiple of this.
const PAGE: usize = 4_096;
/// Where the number of changes is.
pub(super) const MUTATIONS: usize = 64;
/// Where [`Totals`] are.
pub(super) const TOTALS: usize = 72;
/// Where they end.
const END: usize = TOTALS + size_of::<Totals>();
/// Where the peer records are.
pub(super) const PEERS: usize = 8_192;

/// Numbers that never change: which channel end it is, and how the region is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Identity {
    pub(super) magic: u64,
    pub(super) version: u32,
    /// 1 if packets are encrypted.
    pub(super) encrypted: u32,
    pub(super) me: Rank,
    pub(super) ranks: u32,
    pub(super) window: u32,
    pub(super) max_datagram: u32,
    /// Most early packets kept.
    pub(super) early: u32,
    pub(super) first_sequence: u32,
    /// Bytes of the region when every part is used to the full.
    pub(super) total: u64,
    pub(super) reserved: [u64; 2],
}

/// Numbers of the endpoint as a whole.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct Totals {
    pub(crate) counters: Counters,
    /// Number of the next encrypted packet.
    pub(crate) nonce: u64,
    /// Peer records and blocks used so far.
    pub(crate) peers: u32,
    pub(crate) blocks: u32,
    /// Early packets kept now.
    pub(crate) kept: u32,
    /// Entries of `tallies` used so far.
    pub(crate) listed: u32,
    /// No data is sent: the channel is being settled.
    pub(crate) closed: Flag,
    /// To some peer not all packets arrive whole, or did not.
    pub(crate) narrowed: Flag,
    pub(super) reserved: [u8; 6],
    /// Counters by peer; the last entry is for all that have none of their own.
    pub(crate) tallies: [TallyRecord; PEERS_LISTED + 1],
}

const _: () = assert!(size_of::<Identity>() == MUTATIONS && MUTATIONS + 8 == TOTALS);
const _: () = assert!(size_of::<Counters>() == 264 && size_of::<TallyRecord>() == 112);
const _: () = assert!(offset_of!(Totals, nonce) == 264 && offset_of!(Totals, tallies) == 296);
const _: () = assert!(size_of::<Totals>() == 7_352 && TOTALS + size_of::<Totals>() <= PEERS);
const _: () = assert!(size_of::<PeerRecord>() == 256 && size_of::<Slot>() == 32);

/// How the region of a context is divided. Only pages that are written need memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContextLayout {
    pub(super) window: usize,
    pub(super) max_datagram: usize,
    /// Most early packets.
    pub(super) early: usize,
    /// Peers. Each has two blocks at most.
    pub(super) peers: usize,
    /// Where the blocks are, and bytes of each.
    pub(super) blocks_at: usize,
    pub(super) block_stride: usize,
    total: usize,
}

/// The parts of a region that change.
pub(crate) struct Parts<'m> {
    pub(crate) totals: &'m mut Totals,
    /// The peer records and the rest of their last page; see [`records`] and [`record`].
    pub(crate) peers: &'m mut [u8],
    pub(crate) blocks: &'m mut [u8],
}

/// A block: so many slots as the window has packets, and room for as many datagrams.
pub(crate) struct Block<'m> {
    pub(crate) slots: &'m mut [Slot],
    pub(crate) bytes: &'m mut [u8],
}

/// The outcome of a cast. The region had the right length and alignment when the endpoint was made.
#[inline(always)]
pub(super) fn cast<T, E>(result: Result<T, E>) -> T {
    match result {
        Ok(part) => part,
        Err(_) => shrunk(),
    }
}

#[cold]
fn shrunk() -> ! {
    panic!("the memory of a context shrank or moved to an odd address")
}

impl ContextLayout {
    /// The layout for an endpoint with these settings in a job of so many ranks.
    ///
    /// # Errors
    /// A setting that is out of its range, or so many ranks that the region would not fit an address space.
    pub fn new(config: &Config, ranks: u32) -> Result<Self, ConfigError> {
        config.check()?;
        Self::divide(config, ranks).ok_or(ConfigError::TooLarge { ranks })
    }

    fn divide(config: &Config, ranks: u32) -> Option<Self> {
        let (window, max_datagram) = (config.window, config.max_datagram);
        u32::try_from(config.reorder_packets).ok()?;
        let peers = ranks.saturating_sub(1) as usize;
        let block_stride = page_up(window * (size_of::<Slot>() + max_datagram))?;
        let blocks_at = page_up(peers.checked_mul(size_of::<PeerRecord>())?.checked_add(PEERS)?)?;
        let blocks = peers.checked_mul(2)?.checked_mul(block_stride)?;
        let total = blocks_at.checked_add(blocks)?;
        isize::try_from(total).ok()?;
        let early = config.reorder_packets;
        Some(Self { window, max_datagram, early, peers, blocks_at, block_stride, total })
    }

    /// Most bytes of the region.
    #[must_use]
    pub fn total(&self) -> usize {
        self.total
    }

    /// Bytes up to the end of the last of so many blocks.
    pub(crate) fn with_blocks(&self, blocks: usize) -> usize {
        self.blocks_at + blocks * self.block_stride
    }

    /// Divides the region.
    ///
    /// # Panics
    /// If it is shorter than it was when the endpoint was made: the fault of the memory's owner.
    #[inline(always)]
    pub(crate) fn parts<'m>(&self, bytes: &'m mut [u8]) -> Parts<'m> {
        let (front, blocks) = bytes.split_at_mut(self.blocks_at);
        let (front, peers) = front.split_at_mut(PEERS);
        Parts { totals: cast(Totals::mut_from_bytes(&mut front[TOTALS..END])), peers, blocks }
    }

    /// The peer record with this number.
    #[inline(always)]
    pub(crate) fn record<'m>(&self, bytes: &'m [u8], number: u32) -> &'m PeerRecord {
        let at = PEERS + number as usize * size_of::<PeerRecord>();
        cast(PeerRecord::ref_from_bytes(&bytes[at..at + size_of::<PeerRecord>()]))
    }

    /// All peer records, used or not.
    pub(crate) fn records<'m>(&self, bytes: &'m [u8]) -> &'m [PeerRecord] {
        let end = PEERS + self.peers * size_of::<PeerRecord>();
        cast(<[PeerRecord]>::ref_from_bytes(&bytes[PEERS..end]))
    }

    /// The block with this number plus one; for 0 one without slots.
    #[inline(always)]
    pub(crate) fn block<'m>(&self, blocks: &'m mut [u8], number: u32) -> Block<'m> {
        match number.checked_sub(1) {
            None => Block { slots: &mut [], bytes: &mut [] },
            Some(at) => {
                let start = at as usize * self.block_stride;
                self.divide_block(&mut blocks[start..start + self.block_stride])
            }
        }
    }

    /// Two blocks, which are not the same.
    #[inline(always)]
    pub(crate) fn two_blocks<'m>(
        &self,
        blocks: &'m mut [u8],
        one: u32,
        two: u32,
    ) -> (Block<'m>, Block<'m>) {
        if two == 0 {
            return (self.block(blocks, one), Block { slots: &mut [], bytes: &mut [] });
        }
        self.both(blocks, one, two)
    }

    #[cold]
    fn both<'m>(&self, blocks: &'m mut [u8], one: u32, two: u32) -> (Block<'m>, Block<'m>) {
        if one == 0 {
            return (Block { slots: &mut [], bytes: &mut [] }, self.block(blocks, two));
        }
        let range = |number: u32| {
            let start = (number as usize - 1) * self.block_stride;
            start..start + self.block_stride
        };
        let both = blocks.get_disjoint_mut([range(one), range(two)]);
        let [one, two] = both.expect("no block is used twice");
        (self.divide_block(one), self.divide_block(two))
    }

    #[inline(always)]
    fn divide_block<'m>(&self, block: &'m mut [u8]) -> Block<'m> {
        let (slots, bytes) = block.split_at_mut(self.window * size_of::<Slot>());
        Block { slots: cast(<[Slot]>::mut_from_bytes(slots)), bytes }
    }

    /// Where in the region the datagrams of the block with this number plus one begin.
    pub(crate) fn packets_at(&self, number: u32) -> usize {
        self.with_blocks(number.saturating_sub(1) as usize) + self.window * size_of::<Slot>()
    }
}

/// The record with this number.
#[inline(always)]
pub(crate) fn record(peers: &mut [u8], number: u32) -> &mut PeerRecord {
    let at = number as usize * size_of::<PeerRecord>();
    cast(PeerRecord::mut_from_bytes(&mut peers[at..at + size_of::<PeerRecord>()]))
}

/// The first `count` records.
pub(crate) fn records(peers: &mut [u8], count: u32) -> &mut [PeerRecord] {
    cast(<[PeerRecord]>::mut_from_bytes(&mut peers[..count as usize * size_of::<PeerRecord>()]))
}

/// The numbers of the endpoint as a whole.
#[inline(always)]
pub(crate) fn totals(bytes: &[u8]) -> &Totals {
    cast(Totals::ref_from_bytes(&bytes[TOTALS..END]))
}

fn page_up(bytes: usize) -> Option<usize> {
    bytes.checked_next_multiple_of(PAGE)
}

impl Identity {
    pub(crate) fn new(
        layout: &ContextLayout,
        config: &Config,
        me: Rank,
        ranks: u32,
        encrypted: bool,
    ) -> Self {
        // The layout was made, so each fits.
        let short = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Self {
            magic: MAGIC,
            version: CONTEXT_VERSION,
            encrypted: u32::from(encrypted),
            me,
            ranks,
            window: short(layout.window),
            max_datagram: short(layout.max_datagram),
            early: short(layout.early),
            first_sequence: config.first_sequence,
            total: layout.total as u64,
            reserved: [0; 2],
        }
    }
}
