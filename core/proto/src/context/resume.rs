//! Checks of a context that was copied from elsewhere, and what is derived from it.
//!
//! The bytes may be any: every count, number and state is checked before it is used.

use super::layout::{MAGIC, MUTATIONS, PEERS};
use super::{
    CONTEXT_VERSION, ContextError, ContextLayout, ContextMemory, Identity, Totals, mark, records,
};
use crate::counters::Counters;
use crate::peer::{PeerRecord, RecordCheck};
use crate::peer_counts::{NOWHERE, PEERS_LISTED, TallyRecord};
use crate::seal::TRAILER_BYTES;
use crate::{Config, Micros, Rank};
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;
use zerocopy::{FromBytes, IntoBytes};

/// So many encrypted packets may the old endpoint have sent since its context was copied.
const NONCE_JUMP: u64 = 1 << 20;
/// Counters at or above this are not real: they would take thousands of years.
const MOST_COUNTED: u64 = 1 << 56;

/// What is derived from a context.
pub(crate) struct Rebuilt {
    /// Peers that have a send ring.
    pub(crate) rings: Vec<u32>,
    /// Blocks that no peer has, by their numbers plus one.
    pub(crate) free: Vec<u32>,
    pub(crate) unflushed: usize,
    /// Entries of the table of counters that nobody has read here.
    pub(crate) changed: u64,
    /// Changes begun and ended.
    pub(crate) changes: u64,
    /// Number of the next encrypted packet.
    pub(crate) nonce: u64,
}

impl ContextLayout {
    /// Makes the memory long enough for an endpoint without blocks.
    ///
    /// # Errors
    /// Memory that is too small for all blocks, or not aligned.
    pub(crate) fn prepare(&self, memory: &mut impl ContextMemory) -> Result<(), ContextError> {
        let (have, need) = (memory.capacity(), self.total());
        if have < need {
            return Err(ContextError::TooSmall { have, need });
        }
        memory.grow(self.with_blocks(0));
        if !memory.bytes().as_ptr().cast::<u64>().is_aligned() {
            return Err(ContextError::Alignment);
        }
        Ok(())
    }
}

impl Identity {
    /// Writes the beginning of a new context.
    pub(crate) fn start(&self, bytes: &mut [u8]) {
        bytes[..PEERS].fill(0);
        bytes[..size_of::<Self>()].copy_from_slice(self.as_bytes());
    }

    /// Reads the one at the beginning of `bytes`.
    ///
    /// # Errors
    /// No context of this version.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, ContextError> {
        let short = ContextError::TooSmall { have: bytes.len(), need: PEERS };
        let (found, _) = Self::read_from_prefix(bytes).map_err(|_| short)?;
        if found.magic != MAGIC {
            return Err(ContextError::Magic);
        }
        if found.version != CONTEXT_VERSION {
            return Err(ContextError::Version(found.version));
        }
        Ok(found)
    }

    /// Compares the one found with this one.
    fn compare(&self, found: &Self) -> Result<(), ContextError> {
        let fields = [
            ("rank", found.me, self.me),
            ("ranks", found.ranks, self.ranks),
            ("window", found.window, self.window),
            ("max_datagram", found.max_datagram, self.max_datagram),
            ("reorder_packets", found.early, self.early),
            ("first_sequence", found.first_sequence, self.first_sequence),
            ("encryption", found.encrypted, self.encrypted),
        ];
        for (field, found, wanted) in fields {
            if found != wanted {
                let (found, wanted) = (found.into(), wanted.into());
                return Err(ContextError::Mismatch { field, found, wanted });
            }
        }
        if found == self { Ok(()) } else { Err(ContextError::damaged("the identity")) }
    }
}

/// Number of changes begun and ended; odd: one is under way.
pub(super) fn changes(bytes: &[u8]) -> u64 {
    u64::read_from_bytes(&bytes[MUTATIONS..MUTATIONS + 8]).unwrap_or(1)
}

/// Checks the context in `memory`, puts it into the time `now`, and derives what does not lie in it.
///
/// # Errors
/// [`ContextError`]; the memory may then be changed.
pub(crate) fn rebuild<M: ContextMemory>(
    memory: &mut M,
    layout: &ContextLayout,
    config: &Config,
    identity: &Identity,
    now: Micros,
    lent: impl FnMut(Rank, u64, &mut [u8]) -> bool,
) -> Result<Rebuilt, ContextError> {
    identity.compare(&Identity::read(memory.bytes())?)?;
    let mut changes = changes(memory.bytes());
    if changes & 1 == 1 {
        return Err(ContextError::Busy);
    }
    let blocks = check_totals(layout.parts(memory.bytes_mut()).totals, layout)?;
    memory.grow(layout.with_blocks(blocks));
    changes = changes.wrapping_add(1);
    mark(memory.bytes_mut(), changes);
    let mut parts = layout.parts(memory.bytes_mut());
    let used = parts.totals.peers;
    let mut rebuilt = Rebuilt {
        rings: Vec::new(),
        free: check_owners(parts.totals, records(parts.peers, used), identity, blocks)?,
        unflushed: 0,
        changed: (1 << parts.totals.listed) - 1,
        changes: changes.wrapping_add(1),
        nonce: 0,
    };
    let trailer = if identity.encrypted == 0 { 0 } else { TRAILER_BYTES };
    let mut check = RecordCheck { config, trailer, lent };
    let mut kept = 0;
    for (number, record) in (0..).zip(records(parts.peers, used)) {
        let blocks = (record.sender.ring, record.receiver.block);
        let (ring, early) = layout.two_blocks(parts.blocks, blocks.0, blocks.1);
        record.check_slots(config)?;
        let mut ring = record.sender.ring_in(ring);
        record.check(&mut ring, early.slots, &mut check)?;
        record.restart(now, &mut ring, config);
        kept += u32::from(record.receiver.kept());
        rebuilt.unflushed += usize::from(!record.sender.flushed());
        rebuilt.rings.extend(record.sender.has_ring().then_some(number));
    }
    if kept != parts.totals.kept {
        return Err(ContextError::damaged("the number of early packets"));
    }
    let totals = &mut parts.totals;
    totals.closed.take();
    totals.nonce += if identity.encrypted == 0 { 0 } else { NONCE_JUMP };
    rebuilt.nonce = totals.nonce;
    mark(memory.bytes_mut(), rebuilt.changes);
    Ok(rebuilt)
}

/// Checks the counts; how many blocks there are.
fn check_totals(totals: &Totals, layout: &ContextLayout) -> Result<usize, ContextError> {
    let (peers, blocks) = (totals.peers as usize, totals.blocks as usize);
    if peers > layout.peers || blocks > 2 * peers {
        return Err(ContextError::damaged("the number of peers or blocks"));
    }
    if totals.kept as usize > layout.early {
        return Err(ContextError::damaged("the number of early packets"));
    }
    if !totals.closed.is_valid() || !totals.narrowed.is_valid() {
        return Err(ContextError::damaged("a flag of the endpoint"));
    }
    if totals.nonce >= MOST_COUNTED || counted(totals.counters.as_bytes()) {
        return Err(ContextError::damaged("the counters"));
    }
    if totals.listed as usize > PEERS_LISTED + 1
        || totals.tallies.iter().any(|tally| counted(&tally.as_bytes()[8..]))
    {
        return Err(ContextError::damaged("the counters by peer"));
    }
    Ok(blocks)
}

const _: () = assert!(size_of::<Counters>().is_multiple_of(8));
const _: () = assert!(size_of::<TallyRecord>().is_multiple_of(8));

/// One of these numbers of eight bytes is too great for a counter.
fn counted(numbers: &[u8]) -> bool {
    let numbers = numbers.chunks_exact(8);
    numbers
        .map(u64::read_from_bytes)
        .any(|number| number.is_ok_and(|number| number >= MOST_COUNTED))
}

/// Checks whose the records, blocks and entries of the table are; the blocks that no peer has.
fn check_owners(
    totals: &Totals,
    records: &[PeerRecord],
    identity: &Identity,
    blocks: usize,
) -> Result<Vec<u32>, ContextError> {
    let mut owned = vec![false; blocks];
    let mut ranks = BTreeSet::new();
    let mut places = 0u64;
    for record in records {
        let rank = record.rank;
        if rank >= identity.ranks || rank == identity.me || !ranks.insert(rank) {
            return Err(ContextError::damaged("the rank of a peer"));
        }
        for number in [record.sender.ring, record.receiver.block] {
            let Some(block) = number.checked_sub(1) else { continue };
            match owned.get_mut(block as usize) {
                Some(owned @ false) => *owned = true,
                _ => return Err(ContextError::of_peer("the number of a block", rank)),
            }
        }
        check_place(record, totals, &mut places)?;
    }
    let free = (1..).zip(owned).filter(|(_, owned)| !owned);
    Ok(free.map(|(number, _)| number).collect())
}

/// Checks a peer's place in the table of counters; `places` has a bit for each that is taken.
fn check_place(record: &PeerRecord, totals: &Totals, places: &mut u64) -> Result<(), ContextError> {
    let place = usize::from(record.tally);
    if record.tally == NOWHERE || (place == PEERS_LISTED && totals.listed as usize > PEERS_LISTED) {
        return Ok(());
    }
    let listed = place < PEERS_LISTED.min(totals.listed as usize);
    if !listed || totals.tallies[place].rank != record.rank || *places >> place & 1 == 1 {
        return Err(ContextError::of_peer("its place in the table of counters", record.rank));
    }
    *places |= 1 << place;
    Ok(())
}
