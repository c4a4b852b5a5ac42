//! New endpoints, and endpoints that go on with the context of another.

use super::{CONTROL_BYTES, Endpoint, Local, Schedule};
use crate::context::{
    ContextError, ContextLayout, ContextMemory, HeapMemory, Identity, Rebuilt, rebuild, records,
};
use crate::peer::{NEVER, run_bytes};
use crate::seal::{PacketCodec, SealKey, TRAILER_BYTES};
use crate::wire::{ChannelKey, HEADER_BYTES};
use crate::{Config, ConfigError, Micros, Rank};
use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

/// Which end of which channel an endpoint is.
#[derive(Clone, Copy, Debug)]
pub struct ChannelEnd<'k> {
    /// The rank whose end it is.
    pub me: Rank,
    /// Ranks of the job.
    pub ranks: u32,
    /// The channel's key.
    pub key: ChannelKey,
    /// The key with which packets are encrypted, if they are.
    pub seal: Option<&'k SealKey>,
}

impl ChannelEnd<'_> {
    /// The codec of its packets. The first encrypted one gets the number `first`.
    fn packets(&self, config: &Config, first: u64) -> PacketCodec {
        let (key, run) = (self.key, run_bytes(config));
        match self.seal {
            Some(seal) => PacketCodec::sealed(key, seal, config.max_datagram, run, first),
            None => PacketCodec::clear(key, config, run),
        }
    }

    fn layout(&self, config: &Config) -> Result<ContextLayout, ConfigError> {
        let (me, ranks) = (self.me, self.ranks);
        let layout = ContextLayout::new(config, ranks)?;
        if me >= ranks {
            return Err(ConfigError::Rank { me, ranks });
        }
        // A selective ack of the whole window has to fit into one packet, trailer included.
        let trailer = if self.seal.is_some() { TRAILER_BYTES } else { 0 };
        if HEADER_BYTES + config.window.div_ceil(64) * 8 + trailer > config.max_datagram {
            return Err(ConfigError::Window(config.window));
        }
        Ok(layout)
    }

    fn identity(&self, layout: &ContextLayout, config: &Config) -> Identity {
        Identity::new(layout, config, self.me, self.ranks, self.seal.is_some())
    }
}

impl Endpoint {
    /// An endpoint of rank `me` of a job of `ranks` ranks, in memory of its own. Cheap: a peer costs four bytes
    /// until the first packet to or from it.
    ///
    /// # Errors
    /// A setting that is out of its range, or a rank that does not exist.
    pub fn new(config: Config, me: Rank, ranks: u32, key: ChannelKey) -> Result<Self, ConfigError> {
        Self::on_heap(config, &ChannelEnd { me, ranks, key, seal: None })
    }

    /// The same on a channel whose packets are encrypted with `seal`. It takes 65,507 bytes more, and
    /// about as much again as one datagram.
    ///
    /// For each key there may be one endpoint of a rank, ever.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn encrypted(
        config: Config,
        me: Rank,
        ranks: u32,
        key: ChannelKey,
        seal: &SealKey,
    ) -> Result<Self, ConfigError> {
        Self::on_heap(config, &ChannelEnd { me, ranks, key, seal: Some(seal) })
    }

    fn on_heap(config: Config, end: &ChannelEnd<'_>) -> Result<Self, ConfigError> {
        let layout = end.layout(&config)?;
        let mut memory = HeapMemory::default();
        memory.grow(layout.with_blocks(0));
        end.identity(&layout, &config).start(memory.bytes_mut());
        let packets = end.packets(&config, 0);
        Ok(Self::around(memory, Local::new(config, layout, end, packets)))
    }
}

impl<M: ContextMemory> Endpoint<M> {
    /// A new endpoint whose state lies in `memory`. What was there is overwritten.
    ///
    /// # Errors
    /// As [`Endpoint::new`]; memory that is too small or not aligned.
    pub fn create(
        mut memory: M,
        config: Config,
        end: &ChannelEnd<'_>,
    ) -> Result<Self, ContextError> {
        let layout = end.layout(&config)?;
        layout.prepare(&mut memory)?;
        end.identity(&layout, &config).start(memory.bytes_mut());
        let packets = end.packets(&config, 0);
        Ok(Self::around(memory, Local::new(config, layout, end, packets)))
    }

    /// An endpoint that goes on where the one stopped whose context `memory` is a copy of.
    ///
    /// - The sizes in `config`, rank and number of ranks must be those of the old one. Addresses, times and keys may
    ///   be others.
    /// - `now` need not be of the old clock: deadlines and estimates of paths start anew.
    /// - `lent` finds data of packets that was lent: it gets the rank addressed, the place, and the room to copy
    ///   to. It says false if it cannot.
    /// - The old endpoint must not send any more. A new channel key makes sure that nothing of it is taken.
    /// - Encrypted, with the same key: the old one may have sent 2²⁰ packets since it was copied, and a copy may be
    ///   continued once. Otherwise give a new key.
    ///
    /// # Errors
    /// [`ContextError`]. The region may then be changed: keep the copy that it came from.
    pub fn resume(
        mut memory: M,
        config: Config,
        end: &ChannelEnd<'_>,
        now: Micros,
        lent: impl FnMut(Rank, u64, &mut [u8]) -> bool,
    ) -> Result<Self, ContextError> {
        let layout = end.layout(&config)?;
        layout.prepare(&mut memory)?;
        let identity = end.identity(&layout, &config);
        let rebuilt = rebuild(&mut memory, &layout, &config, &identity, now, lent)?;
        let packets = end.packets(&config, rebuilt.nonce);
        let mut endpoint = Self::around(memory, Local::new(config, layout, end, packets));
        let Rebuilt { free, rings, unflushed, changed, changes, .. } = rebuilt;
        let local = &mut endpoint.local;
        (local.free, local.changed, local.changes) = (free, changed, changes);
        // A packet of the old clock gives no round trip.
        local.stopped = now.saturating_add(1);
        (endpoint.rings, endpoint.unflushed) = (rings, unflushed);
        endpoint.schedule_all();
        Ok(endpoint)
    }

    fn around(memory: M, local: Local) -> Self {
        let opened = if local.packets.trailer() == 0 { 0 } else { local.config.max_datagram };
        Self {
            memory,
            numbers: vec![0; local.ranks as usize].into(),
            local,
            schedule: Schedule { ready: VecDeque::new(), listed: Vec::new(), deadline: NEVER },
            unflushed: 0,
            rings: Vec::new(),
            next_ring: 0,
            control: [0; CONTROL_BYTES],
            opened: vec![0; opened].into(),
        }
    }

    /// Finds every peer's record, looks at each at the next [`Self::poll_transmit`], and notes its deadline.
    fn schedule_all(&mut self) {
        let parts = self.local.layout.parts(self.memory.bytes_mut());
        let used = parts.totals.peers;
        for (peer, record) in (0..).zip(records(parts.peers, used)) {
            self.numbers[record.rank as usize] = peer + 1;
            self.schedule.enqueue(record, peer);
            self.schedule.note_deadline(record, peer);
        }
    }

    /// The memory of its context.
    pub fn memory_of_context(&self) -> &M {
        &self.memory
    }
}
