//! Clock filter: estimates the cluster's common clock from probes of the parent.
//!
//! A node probes its parent: it knows when it sent the probe and when the answer came, and the
//! answer carries the parent's cluster time. The error of such a sample is at most half its round
//! trip, and grows with its age because crystals differ; the sample with the smallest bound among
//! the last few gives the offset (as in Cristian, "Probabilistic clock synchronization", 1989).
//! The clock that is read from it approaches a new offset gradually, so that it never goes back
//! and two switches never come out of order.

use kumi_sched::ClusterTime;

use crate::message::Nanos;

const SAMPLES: usize = 16;
/// How much two clocks may drift apart: parts per million.
const DRIFT_PPM: u64 = 30;
/// The clock approaches a new offset by at most one nanosecond in this many.
const SLEW: u64 = 100;
/// An offset further off than this is another clock (the head moved, or its machine restarted),
/// and is taken over at once.
const STEP_NS: u64 = 100_000_000;

#[derive(Clone, Copy, Debug)]
struct Sample {
    offset: i64,
    half_trip: u64,
    received: Nanos,
}

impl Sample {
    fn error_at(&self, now: Nanos) -> u64 {
        let age = now.saturating_sub(self.received);
        self.half_trip.saturating_add(age / 1_000_000 * DRIFT_PPM)
    }
}

/// Estimates the offset of the cluster's clock to the local one from probes.
#[derive(Clone, Debug, Default)]
pub struct ClockFilter {
    samples: [Option<Sample>; SAMPLES],
    next: usize,
    /// The offset in force at `anchored`, from where it moves towards `target`.
    anchor: i64,
    anchored: Nanos,
    target: i64,
    synchronised: bool,
}

fn difference(a: u64, b: u64) -> i64 {
    let difference = i128::from(a) - i128::from(b);
    i64::try_from(difference).unwrap_or(if difference < 0 { i64::MIN } else { i64::MAX })
}

impl ClockFilter {
    /// A filter without samples: cluster time is local time until the first one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether there has been a sample.
    pub fn synchronised(&self) -> bool {
        self.synchronised
    }

    /// Takes an answered probe: local times of sending and receiving, and the parent's cluster
    /// time. A probe answered before it was sent is ignored.
    pub fn sample(&mut self, sent: Nanos, parent_time: ClusterTime, received: Nanos) {
        let Some(trip) = received.checked_sub(sent) else { return };
        let half_trip = trip / 2;
        let offset = difference(parent_time.0, sent.saturating_add(half_trip));
        let sample = Sample { offset, half_trip, received };
        if self.is_another_clock(&sample) {
            self.samples = [None; SAMPLES];
            self.synchronised = false;
        }
        self.samples[self.next] = Some(sample);
        self.next = (self.next + 1) % SAMPLES;
        let now = self.offset_at(received);
        let best = self.samples.iter().flatten().min_by_key(|sample| sample.error_at(received));
        self.target = best.map_or(offset, |best| best.offset);
        self.anchor = if self.synchronised { now } else { self.target };
        self.anchored = received;
        self.synchronised = true;
    }

    fn is_another_clock(&self, sample: &Sample) -> bool {
        let off = sample.offset.abs_diff(self.target);
        self.synchronised && off > STEP_NS.saturating_add(sample.half_trip.saturating_mul(2))
    }

    /// Cluster time minus local time, in nanoseconds, by the best sample. What
    /// [`ClockFilter::cluster_time`] uses approaches it at one part in a hundred.
    pub fn offset(&self) -> i64 {
        self.target
    }

    fn offset_at(&self, local: Nanos) -> i64 {
        let room = i64::try_from(local.saturating_sub(self.anchored) / SLEW).unwrap_or(i64::MAX);
        let wanted = self.target.saturating_sub(self.anchor);
        self.anchor.saturating_add(wanted.clamp(-room, room))
    }

    /// The cluster's time at local time `local`. Never goes back as `local` rises, unless the
    /// parent's clock turned out to be another one, more than a tenth of a second off.
    pub fn cluster_time(&self, local: Nanos) -> ClusterTime {
        ClusterTime(local.saturating_add_signed(self.offset_at(local)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quickest_probe_wins_and_time_never_goes_back() {
        let mut filter = ClockFilter::new();
        assert_eq!(filter.cluster_time(77), ClusterTime(77));
        // True offset 1_000_000; a slow answer makes it seem 1_400_000.
        filter.sample(0, ClusterTime(1_900_000), 1_000_000);
        assert_eq!(filter.offset(), 1_400_000);
        let before = filter.cluster_time(2_000_000);
        filter.sample(2_000_000, ClusterTime(3_010_000), 2_020_000);
        assert_eq!(filter.offset(), 1_000_000);
        let mut last = before;
        for local in (2_020_000..60_000_000).step_by(50_000) {
            let time = filter.cluster_time(local);
            assert!(time >= last);
            last = time;
        }
        assert_eq!(filter.cluster_time(60_000_000), ClusterTime(61_000_000));
        // A worse sample changes nothing.
        filter.sample(60_000_000, ClusterTime(61_900_000), 61_000_000);
        assert_eq!(filter.offset(), 1_000_000);
    }

    #[test]
    fn old_samples_give_way_to_drift() {
        let mut filter = ClockFilter::new();
        filter.sample(0, ClusterTime(10), 20);
        assert_eq!(filter.offset(), 0);
        // Ten seconds later the clocks are 200 us apart, and the answer took 100 us.
        let now = 10_000_000_000;
        filter.sample(now, ClusterTime(now + 250_000), now + 100_000);
        assert_eq!(filter.offset(), 200_000);
    }

    #[test]
    fn another_clock_is_taken_over_at_once() {
        let mut filter = ClockFilter::new();
        filter.sample(10_000_000_000, ClusterTime(50_000_000_000), 10_000_000_000);
        filter.sample(11_000_000_000, ClusterTime(5_000), 11_000_000_000);
        assert_eq!(filter.cluster_time(11_000_000_500), ClusterTime(5_500));
        // Answered before it was sent: ignored.
        filter.sample(20, ClusterTime(5), 10);
        assert_eq!(filter.cluster_time(11_000_000_500), ClusterTime(5_500));
    }

    #[test]
    fn a_new_offset_is_approached_at_one_part_in_a_hundred() {
        let mut filter = ClockFilter::new();
        filter.sample(0, ClusterTime(1_000), 0);
        assert!(filter.synchronised());
        assert_eq!((filter.offset(), filter.cluster_time(7)), (1_000, ClusterTime(1_007)));
        // 50 us more: that takes 5 ms.
        let start = 1_000_000;
        filter.sample(start, ClusterTime(start + 51_000), start);
        assert_eq!(filter.offset(), 51_000);
        for (passed, offset) in [
            (0, 1_000),
            (99, 1_000),
            (100, 1_001),
            (4_999_900, 50_999),
            (5_000_000, 51_000),
            (9_000_000, 51_000),
        ] {
            let local = start + passed;
            assert_eq!(filter.cluster_time(local), ClusterTime(local + offset), "{passed}");
        }
        // Back by 20 us, and in the middle of that another sample says the same.
        let back = 10_000_000;
        filter.sample(back, ClusterTime(back + 31_000), back);
        let half = back + 1_000_000;
        assert_eq!(filter.cluster_time(half), ClusterTime(half + 41_000));
        filter.sample(half, ClusterTime(half + 31_000), half);
        for (passed, offset) in [(0, 41_000), (500_000, 36_000), (1_000_000, 31_000)] {
            let local = half + passed;
            assert_eq!(filter.cluster_time(local), ClusterTime(local + offset), "{passed}");
        }
    }

    #[test]
    fn a_sample_is_worse_by_thirty_nanoseconds_a_millisecond() {
        // The first answer takes 200 ns, the second comes 10 ms later: by then the first is off by up to 400.
        for (half_trip, wins) in [(399, true), (401, false)] {
            let mut filter = ClockFilter::new();
            filter.sample(0, ClusterTime(100), 200);
            let sent = 10_000_200 - 2 * half_trip;
            filter.sample(sent, ClusterTime(sent + half_trip + 70), 10_000_200);
            assert_eq!(filter.offset(), if wins { 70 } else { 0 }, "{half_trip}");
        }
    }

    #[test]
    fn the_best_of_the_last_sixteen_samples_counts() {
        let mut filter = ClockFilter::new();
        filter.sample(0, ClusterTime(0), 0);
        for sent in 1..16 {
            filter.sample(sent, ClusterTime(sent + 600), sent + 200);
            assert_eq!(filter.offset(), 0, "{sent}");
        }
        filter.sample(16, ClusterTime(16 + 600), 216);
        assert_eq!(filter.offset(), 500);
    }

    #[test]
    fn another_clock_is_more_than_a_tenth_of_a_second_and_a_trip_away() {
        for (trip, off, other) in [
            (0, STEP_NS, false),
            (0, STEP_NS + 1, true),
            (1_000, STEP_NS + 1_000, false),
            (1_000, STEP_NS + 1_001, true),
        ] {
            let mut filter = ClockFilter::new();
            filter.sample(0, ClusterTime(0), 0);
            filter.sample(100, ClusterTime(100 + trip / 2 + off), 100 + trip);
            // Taken over at once, or approached from where it was.
            let time = filter.cluster_time(100 + trip).0;
            assert_eq!(time, 100 + trip + if other { off } else { 0 }, "{trip} {off}");
        }
    }
}
