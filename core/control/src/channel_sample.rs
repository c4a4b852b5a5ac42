//! Channels of ranks, as the daemon of their node reads them out of the ranks' contexts.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

/// A rank's channel as its daemon sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelSample {
    /// The rank.
    pub rank: u32,
    /// What was seen.
    pub seen: ChannelReading,
}

/// What a daemon sees where a rank's context should be. The rank can have written anything there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ChannelReading {
    /// Nothing yet: the rank has not joined its job.
    NotJoined,
    /// What is not a context: why.
    Damaged(String),
    /// A context.
    Context(ChannelState),
}

/// What a context says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelState {
    /// The rank was changing its context at every look: the numbers may not fit together.
    pub busy: bool,
    /// How often the context was changed: half of the number of changes begun and ended.
    pub changes: u64,
    /// Most packets in flight to a peer.
    pub window: u32,
    /// Bytes of the longest datagram.
    pub max_datagram: u32,
    /// Packets are encrypted.
    pub encrypted: bool,
    /// The channel is being settled.
    pub closed: bool,
    /// Blocks of memory used, for send rings and early packets.
    pub blocks: u32,
    /// Early packets kept.
    pub early: u32,
    /// Counts by name.
    pub counters: Vec<(String, u64)>,
    /// Peers: first those with unacked packets, then in the order of ranks.
    pub peers: Vec<ChannelPeer>,
    /// Peers that are not in `peers` because the answer would be too long.
    pub peers_left_out: u32,
}

/// What a context says of a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChannelPeer {
    /// The peer.
    pub rank: u32,
    /// Number of the oldest unacked packet.
    pub oldest: u32,
    /// Number of the next packet to send for the first time.
    pub next: u32,
    /// Number that the next frame queued gets.
    pub tail: u32,
    /// Packets sent and not answered.
    pub in_flight: u32,
    /// Packets to be sent again.
    pub lost: u32,
    /// Packets of which a part is lent.
    pub lent: u32,
    /// Bytes of the unacked packets, headers included.
    pub unacked_bytes: u32,
    /// Packets that may be in flight.
    pub congestion_window: u32,
    /// Smoothed round trip in microseconds, if measured.
    pub round_trip_us: Option<u64>,
    /// Retransmission timeouts since the last progress.
    pub timeouts: u8,
    /// Probes sent and not answered.
    pub probes: u32,
    /// Refusals in a row.
    pub refusals: u8,
    /// Number of the next packet to take from it.
    pub expected: u32,
    /// Early packets of it that are kept.
    pub early: u16,
}

impl ChannelPeer {
    /// Packets queued and not acked.
    pub fn unacked(&self) -> u32 {
        self.tail.wrapping_sub(self.oldest)
    }
}
