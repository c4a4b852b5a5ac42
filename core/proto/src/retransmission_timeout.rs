//! Retransmission timeout of one peer, computed from its round trips (RFC 6298, in microseconds).

use crate::{Config, Micros};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Smoothed round trip, its variation, and the back-off.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub(crate) struct RetransmissionTimeout {
    /// Eight times the smoothed round trip; 0 before the first sample.
    srtt_8: u32,
    /// Four times the mean deviation.
    var_4: u32,
    /// Timeouts since the last progress: each doubles the timeout.
    backoff: u8,
    reserved: [u8; 3],
}

/// Longer round trips are taken as this long: one minute.
const LONGEST: u64 = 60_000_000;
/// A sample counts as at most this many timeouts.
const AT_MOST: u64 = 4;

impl RetransmissionTimeout {
    /// Takes a sample (RFC 6298, 2.2 and 2.3, with alpha = 1/8 and beta = 1/4).
    ///
    /// It counts as at most [`AT_MOST`] timeouts: a peer that was stopped is not a longer path.
    pub(crate) fn sample(&mut self, round_trip: Micros, config: &Config) {
        let most = (AT_MOST * self.base(config)).clamp(1, LONGEST);
        // At least one: 0 means "no sample yet".
        let r = u32::try_from(round_trip.clamp(1, most)).unwrap_or(u32::MAX);
        if self.srtt_8 == 0 {
            self.srtt_8 = 8 * r;
            self.var_4 = 2 * r;
        } else {
            let deviation = (self.srtt_8 / 8).abs_diff(r);
            // Above: beta = 1/4. Below: a quarter of that, so that waits that come now and then are
            // remembered until the next one.
            self.var_4 = if deviation >= self.var_4 / 4 {
                self.var_4 - self.var_4 / 4 + deviation
            } else {
                self.var_4 - self.var_4 / 16 + deviation / 4
            };
            self.srtt_8 = (self.srtt_8 - self.srtt_8 / 8 + r).max(1);
        }
        self.backoff = 0;
    }

    /// A timeout expired (RFC 6298, 5.5).
    pub(crate) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(30);
    }

    /// The peer answered or something was acked.
    pub(crate) fn progress(&mut self) {
        self.backoff = 0;
    }

    /// Timeouts since the last progress.
    pub(crate) fn expired(&self) -> u8 {
        self.backoff
    }

    /// The timeout now, back-off included.
    pub(crate) fn timeout(&self, config: &Config) -> Micros {
        (self.base(config) << self.backoff).min(config.max_rto)
    }

    /// The timeout without back-off.
    pub(crate) fn base(&self, config: &Config) -> Micros {
        let base = if self.srtt_8 == 0 {
            config.initial_rto
        } else {
            u64::from(self.srtt_8 / 8) + u64::from(self.var_4).max(1)
        };
        base.max(config.min_rto)
    }

    /// Smoothed round trip in microseconds, if measured.
    pub(crate) fn smoothed(&self) -> Option<Micros> {
        (self.srtt_8 != 0).then(|| u64::from(self.srtt_8 / 8))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_a_sample_the_initial_timeout_holds() {
        let config = Config::default();
        assert_eq!(RetransmissionTimeout::default().timeout(&config), config.initial_rto);
        assert_eq!(RetransmissionTimeout::default().smoothed(), None);
    }

    #[test]
    fn first_sample_as_the_standard_says() {
        let config = Config { min_rto: 1_000, ..Config::default() };
        let mut retransmission = RetransmissionTimeout::default();
        retransmission.sample(8_000, &config);
        // SRTT = R, RTTVAR = R/2, RTO = SRTT + 4 RTTVAR
        assert_eq!(retransmission.smoothed(), Some(8_000));
        assert_eq!(retransmission.timeout(&config), 8_000 + 4 * 4_000);
    }

    #[test]
    fn steady_samples_approach_the_least_timeout() {
        let config = Config::default();
        let mut retransmission = RetransmissionTimeout::default();
        for _ in 0..100 {
            retransmission.sample(100, &config);
        }
        assert_eq!(retransmission.timeout(&config), config.min_rto);
        assert_eq!(retransmission.smoothed(), Some(100));
    }

    #[test]
    fn back_off_doubles_up_to_the_bound_and_ends_with_progress() {
        let config = Config::default();
        let mut retransmission = RetransmissionTimeout::default();
        retransmission.sample(100, &config);
        let base = retransmission.timeout(&config);
        retransmission.back_off();
        assert_eq!(retransmission.timeout(&config), 2 * base);
        for _ in 0..200 {
            retransmission.back_off();
        }
        assert_eq!(retransmission.timeout(&config), config.max_rto);
        retransmission.progress();
        assert_eq!(retransmission.timeout(&config), base);
    }

    #[test]
    fn a_wait_is_remembered_for_a_while_and_counts_as_four_timeouts_at_most() {
        let config = Config::default();
        let mut retransmission = RetransmissionTimeout::default();
        let samples = |retransmission: &mut RetransmissionTimeout, count| {
            (0..count).for_each(|_| retransmission.sample(100, &config));
        };
        samples(&mut retransmission, 100);
        retransmission.sample(6_000, &config);
        samples(&mut retransmission, 16);
        assert!(retransmission.timeout(&config) > config.min_rto);
        samples(&mut retransmission, 16);
        assert_eq!(retransmission.timeout(&config), config.min_rto);
        retransmission.sample(10_000_000, &config);
        assert!(
            retransmission.timeout(&config) < 5 * config.min_rto,
            "{}",
            retransmission.timeout(&config)
        );
    }

    #[test]
    fn samples_are_weighed_as_the_standard_says_and_calm_ones_count_less() {
        let config = Config { min_rto: 1, initial_rto: 100_000, ..Config::default() };
        let mut retransmission = RetransmissionTimeout::default();
        // Round trip, then the smoothed one and the timeout, worked out by hand from RFC 6298, 2.3. The last two deviate
        // by less than the mean deviation, which then weighs a sixteenth.
        for (round_trip, smoothed, timeout) in [
            (8_000, 8_000, 8_000 + 16_000),
            (4_000, 7_500, 7_500 + 16_000),
            (15_500, 8_500, 8_500 + 20_000),
            (8_500, 8_500, 8_500 + 18_750),
            (10_500, 8_750, 8_750 + 18_079),
        ] {
            retransmission.sample(round_trip, &config);
            assert_eq!(retransmission.smoothed(), Some(smoothed));
            assert_eq!(retransmission.timeout(&config), timeout);
        }
    }

    #[test]
    fn a_sample_counts_as_four_timeouts_a_minute_and_a_microsecond_at_the_ends() {
        let first = |round_trip, initial_rto| {
            let config = Config { initial_rto, max_rto: u64::MAX, ..Config::default() };
            let mut retransmission = RetransmissionTimeout::default();
            retransmission.sample(round_trip, &config);
            retransmission.smoothed()
        };
        assert_eq!(first(1_000_000, 10_000), Some(40_000));
        assert_eq!(first(39_999, 10_000), Some(39_999));
        assert_eq!(first(u64::MAX, 1 << 40), Some(60_000_000));
        assert_eq!(first(0, 10_000), Some(1));
    }

    #[test]
    fn a_sample_ends_the_back_off() {
        let config = Config::default();
        let mut retransmission = RetransmissionTimeout::default();
        retransmission.back_off();
        retransmission.back_off();
        assert_eq!(retransmission.timeout(&config), 4 * config.initial_rto);
        assert_eq!(retransmission.base(&config), config.initial_rto);
        retransmission.sample(100, &config);
        assert_eq!(retransmission.timeout(&config), config.min_rto);
    }

    #[test]
    fn absurd_samples_do_not_overflow() {
        let config = Config::default();
        let mut retransmission = RetransmissionTimeout::default();
        for sample in [u64::MAX, 0, u64::MAX, 1, 0, 0] {
            retransmission.sample(sample, &config);
            let timeout = retransmission.timeout(&config);
            assert!((config.min_rto..=config.max_rto).contains(&timeout));
        }
    }
}
