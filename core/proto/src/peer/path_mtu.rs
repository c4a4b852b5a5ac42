//! Path MTU of one peer: the longest datagram that arrives without fragmentation.

use super::NEVER;
use crate::{Config, Micros};
use zerocopy::native_endian::U64;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// So often a packet is sent again, and so many losses follow each other, before its length is blamed.
const TRIES: u8 = 3;
/// The pause before longer packets are tried again doubles so often at most.
const DOUBLINGS: u8 = 6;

/// Knowledge of the path to a peer. *Long* packets are longer than `safe_datagram` and sent to arrive
/// whole.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(super) struct PathMtu {
    /// Long packets vanish on the way; they are tried again then. [`NEVER`]: they do not.
    retry_at: U64,
    /// Bytes of the longest datagram that arrives whole, as the wire has told.
    told: u16,
    /// Times in a row that long packets were found lost while none arrived.
    fails: u8,
    /// How often long packets were found to vanish.
    holes: u8,
}

impl PathMtu {
    pub(super) fn new(config: &Config) -> Self {
        // `max_datagram` is at most 65,507.
        let told = u16::try_from(config.max_datagram).unwrap_or(u16::MAX);
        Self { retry_at: U64::new(NEVER), told, fails: 0, holes: 0 }
    }

    /// Bytes of the longest datagram that is taken to arrive whole.
    pub(super) fn whole_datagram(&self, config: &Config) -> usize {
        let told = usize::from(self.told);
        if self.retry_at.get() == NEVER { told } else { told.min(config.safe_datagram) }
    }

    /// Bytes of the longest datagram to cut for it.
    pub(super) fn datagram_limit(&self, config: &Config) -> usize {
        self.whole_datagram(config).max(config.least_datagram.min(config.max_datagram))
    }

    /// The wire has told.
    pub(super) fn set(&mut self, datagram: usize, config: &Config) {
        let bounded = datagram.clamp(64, config.max_datagram);
        self.told = u16::try_from(bounded).unwrap_or(u16::MAX);
    }

    /// A packet of this many bytes is sent to arrive whole, and might not for its length.
    pub(super) fn is_long(&self, bytes: usize, config: &Config) -> bool {
        bytes > config.safe_datagram && bytes <= self.whole_datagram(config)
    }

    /// A long packet has arrived.
    pub(super) fn passed(&mut self) {
        self.fails = 0;
    }

    /// Long packets were found lost, one of which had been sent again `resends` times; true if from now on
    /// they count as too long.
    pub(super) fn lost(&mut self, now: Micros, resends: u8, config: &Config) -> bool {
        self.fails = self.fails.saturating_add(1);
        if resends < TRIES || self.fails <= TRIES {
            return false;
        }
        let pause = config.path_retry.saturating_mul(1 << self.holes.min(DOUBLINGS));
        self.retry_at.set(now.saturating_add(pause).min(NEVER - 1));
        self.holes = self.holes.saturating_add(1);
        self.fails = 0;
        true
    }

    /// Long packets are tried again when it is time.
    pub(super) fn retry(&mut self, now: Micros) {
        if self.retry_at.get() <= now {
            self.retry_at.set(NEVER);
        }
    }
}
