//! A context as another process sees it, which may copy it at any moment and believes nothing of it.

use super::layout::{MUTATIONS, PEERS, TOTALS};
use super::resume::changes;
use super::{ContextError, Identity, Totals};
use crate::peer::PeerRecord;
use crate::{Counters, Micros, Rank};
use alloc::vec::Vec;
use zerocopy::FromBytes;

/// What a context says. Its numbers are those that were there; only what bounds this structure is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextReport {
    /// The rank whose context it is.
    pub me: Rank,
    /// Ranks of the job.
    pub ranks: u32,
    /// Most packets in flight to a peer.
    pub window: u32,
    /// Bytes of the longest datagram.
    pub max_datagram: u32,
    /// Packets are encrypted.
    pub encrypted: bool,
    /// The copy was taken in the middle of a change: its numbers may contradict each other.
    pub changing: bool,
    /// Changes of the context so far.
    pub changes: u64,
    /// The channel is being settled.
    pub closed: bool,
    /// Blocks used: send rings, and early packets of a peer.
    pub blocks: u32,
    /// Early packets kept.
    pub kept: u32,
    /// Counts of the endpoint.
    pub counters: Counters,
    /// Peers, in the order of first contact.
    pub peers: Vec<PeerReport>,
}

/// What a context says of one peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerReport {
    /// The other rank.
    pub rank: Rank,
    /// The oldest packet to it that is not acked.
    pub oldest: u32,
    /// The next packet to send for the first time.
    pub next: u32,
    /// The number that the next frame queued will get.
    pub tail: u32,
    /// Packets sent and not answered.
    pub in_flight: u32,
    /// Packets to be sent again.
    pub lost: u32,
    /// Packets of which a part is lent.
    pub lent: u32,
    /// Bytes of the packets not acked, headers included.
    pub unacked_bytes: u32,
    /// Packets that may be in flight.
    pub congestion_window: u32,
    /// Smoothed round trip in microseconds, if measured.
    pub round_trip_us: Option<Micros>,
    /// Retransmission timeouts since the last progress.
    pub timeouts: u8,
    /// Probes sent and not answered.
    pub probes: u32,
    /// Refusals in a row.
    pub refusals: u8,
    /// The next packet to deliver from it.
    pub expected: u32,
    /// Early packets kept.
    pub kept: u16,
}

impl ContextReport {
    /// Where the number of changes begun and ended lies: odd while one is under way. Who copies the context of a rank
    /// that runs reads it before and after, and compares.
    pub const CHANGES: core::ops::Range<usize> = MUTATIONS..MUTATIONS + 8;
    /// Bytes at the beginning of a context that [`Self::needed`] looks at.
    pub const START: usize = PEERS;

    /// Bytes at the beginning of a context that [`Self::read`] needs, told by its first [`Self::START`] bytes.
    ///
    /// # Errors
    /// No context, or a damaged one.
    pub fn needed(start: &[u8]) -> Result<usize, ContextError> {
        let identity = Identity::read(start)?;
        let peers = numbers(start)?.peers;
        if identity.me >= identity.ranks || peers >= identity.ranks {
            return Err(ContextError::damaged("the number of peers"));
        }
        let records = (peers as usize).checked_mul(size_of::<PeerRecord>());
        let end = records.and_then(|records| records.checked_add(PEERS));
        end.ok_or(ContextError::damaged("the number of peers"))
    }

    /// Reads a copy of at least [`Self::needed`] bytes.
    ///
    /// # Errors
    /// No context, a damaged one, or a copy that is too short.
    pub fn read(copy: &[u8]) -> Result<Self, ContextError> {
        let need = Self::needed(copy)?;
        let short = ContextError::TooSmall { have: copy.len(), need };
        let records = copy.get(PEERS..need).ok_or(short)?;
        let (identity, totals) = (Identity::read(copy)?, numbers(copy)?);
        let records = records.chunks_exact(size_of::<PeerRecord>());
        let peers = records.filter_map(|record| PeerRecord::read_from_bytes(record).ok());
        Ok(Self {
            me: identity.me,
            ranks: identity.ranks,
            window: identity.window,
            max_datagram: identity.max_datagram,
            encrypted: identity.encrypted != 0,
            changing: changes(copy) & 1 == 1,
            changes: changes(copy) / 2,
            closed: totals.closed.get(),
            blocks: totals.blocks,
            kept: totals.kept,
            counters: totals.counters,
            peers: peers.map(|record| record.report()).collect(),
        })
    }
}

fn numbers(copy: &[u8]) -> Result<Totals, ContextError> {
    let short = ContextError::TooSmall { have: copy.len(), need: PEERS };
    let totals = copy.get(TOTALS..TOTALS + size_of::<Totals>()).ok_or(short)?;
    Totals::read_from_bytes(totals).map_err(|_| short)
}

impl PeerRecord {
    fn report(&self) -> PeerReport {
        let mut report = PeerReport { rank: self.rank, ..PeerReport::default() };
        self.sender.report(&mut report);
        (report.expected, report.kept) = (self.receiver.expected(), self.receiver.kept());
        report
    }
}
