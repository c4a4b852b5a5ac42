//! What an endpoint keeps beside its context, and what one call sees of a peer.

use super::ChannelEnd;
use crate::context::{ContextLayout, Flag, Parts, record};
use crate::peer::{NEVER, PeerRecord, SharedState};
use crate::peer_counts::PeerCountTable;
use crate::seal::PacketCodec;
use crate::{Config, Micros, Piece, Rank};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// What is derived from the context or given by the caller: settings, codec and scratch memory.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) config: Config,
    pub(super) layout: ContextLayout,
    pub(super) packets: PacketCodec,
    pub(super) me: Rank,
    pub(super) ranks: u32,
    /// When this rank was last found to have been stopped; round trips from before give no sample.
    pub(super) stopped: Micros,
    /// No data is sent: the channel is being settled. As the context says.
    pub(super) closed: bool,
    pub(super) pieces: Vec<Piece>,
    /// Blocks below the last one used that no peer has, by their numbers plus one.
    pub(super) free: Vec<u32>,
    /// Entries of the table of counters that have changed since they were last read.
    pub(super) changed: u64,
    /// Changes of the context begun and ended.
    pub(super) changes: u64,
}

impl Local {
    pub(super) fn new(
        config: Config,
        layout: ContextLayout,
        end: &ChannelEnd<'_>,
        packets: PacketCodec,
    ) -> Self {
        Self {
            config,
            layout,
            packets,
            me: end.me,
            ranks: end.ranks,
            stopped: 0,
            closed: false,
            pieces: Vec::new(),
            free: Vec::new(),
            changed: 0,
            changes: 0,
        }
    }

    /// A deadline found late means that this rank was stopped.
    #[inline]
    pub(super) fn notice_stop(&mut self, now: Micros, deadline: Micros) {
        if now > deadline.saturating_add(self.config.late) {
            self.stopped = now;
        }
    }

    #[inline(always)]
    pub(super) fn view<'m>(&'m mut self, bytes: &'m mut [u8], number: u32) -> View<'m> {
        let Parts { totals, peers, blocks } = self.layout.parts(bytes);
        let peer = record(peers, number);
        View {
            peer,
            blocks,
            kept: &mut totals.kept,
            shared: SharedState {
                config: &self.config,
                packets: &mut self.packets,
                me: self.me,
                counters: &mut totals.counters,
                stopped: self.stopped,
                closed: self.closed,
                narrowed: &mut totals.narrowed,
                pieces: &mut self.pieces,
            },
            table: PeerCountTable {
                entries: &mut totals.tallies,
                used: &mut totals.listed,
                changed: &mut self.changed,
            },
            nonce: &mut totals.nonce,
            layout: &self.layout,
            free: &mut self.free,
        }
    }
}

/// Everything about one peer, as one call sees it.
pub(super) struct View<'m> {
    pub(super) peer: &'m mut PeerRecord,
    pub(super) blocks: &'m mut [u8],
    /// Early packets of all peers.
    pub(super) kept: &'m mut u32,
    pub(super) shared: SharedState<'m>,
    pub(super) table: PeerCountTable<'m>,
    pub(super) nonce: &'m mut u64,
    pub(super) layout: &'m ContextLayout,
    /// See [`Local::free`].
    pub(super) free: &'m mut Vec<u32>,
}

/// Which peers to look at, by the numbers of their records.
#[derive(Debug)]
pub(super) struct Schedule {
    /// Peers that may have something to transmit, in turn.
    pub(super) ready: VecDeque<u32>,
    /// Peers that may have a deadline.
    pub(super) listed: Vec<u32>,
    /// Not later than the earliest deadline.
    pub(super) deadline: Micros,
}

impl Schedule {
    /// Puts a peer into the queue of those that may have something to transmit.
    #[inline(always)]
    pub(super) fn enqueue(&mut self, peer: &mut PeerRecord, number: u32) {
        if !peer.queued.get() {
            peer.queued = Flag::SET;
            self.ready.push_back(number);
        }
    }

    /// Notes a peer's deadline.
    #[inline]
    pub(super) fn note_deadline(&mut self, peer: &mut PeerRecord, number: u32) {
        let own = peer.deadline();
        if own == NEVER {
            return;
        }
        if !peer.listed.get() {
            peer.listed = Flag::SET;
            self.listed.push(number);
        }
        self.deadline = self.deadline.min(own);
    }
}
