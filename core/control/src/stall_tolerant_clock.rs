//! Clock that leaves out time in which its own process did not run.
//!
//! Silence is measured as time that has passed. On an overloaded machine a daemon may not run for
//! seconds: then all others seem silent, although their messages wait to be read. So the user of this
//! clock advances it at least once a step, and of a longer gap only two steps count.

use crate::message::Nanos;

/// Clock that leaves out stalls of its process. Times are nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct StallTolerantClock {
    step: Nanos,
    last: Nanos,
    elapsed: Nanos,
}

impl StallTolerantClock {
    /// Begins at `now`; the user advances it every `step`.
    pub fn new(now: Nanos, step: Nanos) -> Self {
        Self { step: step.max(1), last: now, elapsed: 0 }
    }

    /// Advances the clock and returns the time elapsed. At most two steps count of the time since the
    /// last call.
    pub fn advance(&mut self, now: Nanos) -> Nanos {
        let passed = now.saturating_sub(self.last);
        self.elapsed = self.elapsed.saturating_add(passed.min(self.step.saturating_mul(2)));
        self.last = self.last.max(now);
        self.elapsed
    }

    /// The time elapsed at the last call of [`StallTolerantClock::advance`].
    pub fn elapsed(&self) -> Nanos {
        self.elapsed
    }

    /// When to advance again so that the time elapsed reaches `until`. It takes more than one call if
    /// that is more than a step away.
    pub fn next_advance(&self, until: Nanos) -> Nanos {
        let left = until.saturating_sub(self.elapsed);
        self.last.saturating_add(left.min(self.step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_do_not_count() {
        let mut clock = StallTolerantClock::new(1_000, 100);
        assert_eq!(clock.advance(1_100), 100);
        assert_eq!(clock.advance(1_290), 290, "a little late");
        assert_eq!(clock.advance(9_000), 490, "not run for a long time");
        assert_eq!(clock.advance(8_000), 490, "clocks that go back count nothing");
        assert_eq!(clock.advance(9_010), 500);
        assert_eq!(
            (clock.elapsed(), clock.next_advance(530), clock.next_advance(9_999)),
            (500, 9_040, 9_110)
        );
        assert_eq!(clock.next_advance(3), 9_010, "due");
        assert_eq!(clock.advance(u64::MAX), 700);
        assert_eq!(clock.next_advance(u64::MAX), u64::MAX);
    }

    /// Always late, it takes longer, but not for ever.
    #[test]
    fn it_ends_on_a_machine_that_is_always_late() {
        let (mut clock, mut now) = (StallTolerantClock::new(0, 100), 0);
        while clock.advance(now) < 1_000 {
            now = clock.next_advance(1_000) + 5_000;
        }
        assert!((5_000..=60_000).contains(&now), "{now}");
    }
}
