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

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        Config { max_datagram: 9_000, path_retry: 1_000, ..Config::default() }
    }

    /// Finds long packets lost until they count as too long.
    fn vanish(path: &mut PathMtu, now: Micros, config: &Config) {
        for _ in 0..TRIES {
            assert!(!path.lost(now, TRIES, config));
        }
        assert!(path.lost(now, TRIES, config));
    }

    #[test]
    fn a_length_is_blamed_after_more_than_three_losses_of_a_packet_sent_three_times_again() {
        let config = config();
        let mut path = PathMtu::new(&config);
        for _ in 0..TRIES {
            assert!(!path.lost(0, 200, &config));
        }
        assert!(!path.lost(0, TRIES - 1, &config), "not sent again often enough");
        path.passed();
        for _ in 0..TRIES {
            assert!(!path.lost(0, TRIES, &config), "one has arrived meanwhile");
        }
        assert_eq!(path.whole_datagram(&config), 9_000);
        assert!(path.lost(0, TRIES, &config));
        assert_eq!(path.whole_datagram(&config), config.safe_datagram);
    }

    #[test]
    fn long_packets_are_tried_again_after_pauses_that_double_six_times() {
        let config = config();
        let mut path = PathMtu::new(&config);
        let mut now = 50;
        for pause in [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 64_000, 64_000] {
            vanish(&mut path, now, &config);
            path.retry(now + pause - 1);
            assert_eq!(path.whole_datagram(&config), 1_200, "{pause}");
            now += pause;
            path.retry(now);
            assert_eq!(path.whole_datagram(&config), 9_000, "{pause}");
        }
        // For ever is not "never": the limit stays.
        let config = Config { path_retry: Micros::MAX, ..config };
        vanish(&mut path, now, &config);
        assert_eq!(path.whole_datagram(&config), 1_200);
    }

    #[test]
    fn the_wire_may_tell_any_length() {
        let config = config();
        let mut path = PathMtu::new(&config);
        for (told, whole) in [(10, 64), (64, 64), (500, 500), (9_000, 9_000), (70_000, 9_000)] {
            path.set(told, &config);
            assert_eq!(path.whole_datagram(&config), whole);
        }
        path.set(500, &config);
        vanish(&mut path, 0, &config);
        assert_eq!(path.whole_datagram(&config), 500, "the lesser of both limits");
    }

    #[test]
    fn frames_are_not_cut_shorter_than_the_settings_say() {
        let config = Config { least_datagram: 600, ..config() };
        let mut path = PathMtu::new(&config);
        assert_eq!(path.datagram_limit(&config), 9_000);
        path.set(100, &config);
        assert_eq!((path.whole_datagram(&config), path.datagram_limit(&config)), (100, 600));
        let short = Config { max_datagram: 200, ..config };
        assert_eq!(path.datagram_limit(&short), 200);
    }

    #[test]
    fn long_are_those_that_might_not_arrive_for_their_length() {
        let config = config();
        let mut path = PathMtu::new(&config);
        let long = |path: &PathMtu| [1_200, 1_201, 9_000, 9_001].map(|n| path.is_long(n, &config));
        assert_eq!(long(&path), [false, true, true, false]);
        vanish(&mut path, 0, &config);
        assert_eq!(long(&path), [false; 4], "those are fragmented now");
    }
}
