//! Clock that leaves out time in which its own process did not run.
//!
//! Silence is judged by time that passed, and a machine with far more to run than processors may not run its
//! daemon for seconds: then everybody else seems silent, while what they said waits to be read. So time is
//! counted in steps: whoever judges looks at least once a step, and what a look comes late by does not count.

use crate::message::Nanos;

/// See the module. Times are nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct StallTolerantClock {
    step: Nanos,
    last: Nanos,
    elapsed: Nanos,
}

impl StallTolerantClock {
    /// Begins at `now`; whoever uses it looks every `step`.
    pub fn new(now: Nanos, step: Nanos) -> Self {
        Self { step: step.max(1), last: now, elapsed: 0 }
    }

    /// Looks: the time watched since the beginning. Of the time since the look before, two steps count at
    /// most.
    pub fn advance(&mut self, now: Nanos) -> Nanos {
        let passed = now.saturating_sub(self.last);
        self.elapsed = self.elapsed.saturating_add(passed.min(self.step.saturating_mul(2)));
        self.last = self.last.max(now);
        self.elapsed
    }

    /// The time watched until the last look.
    pub fn elapsed(&self) -> Nanos {
        self.elapsed
    }

    /// When to look again for the time watched to be `until`: it takes more than one look if that is
    /// more than a step away.
    pub fn next_advance(&self, until: Nanos) -> Nanos {
        let left = until.saturating_sub(self.elapsed);
        self.last.saturating_add(left.min(self.step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_watched_does_not_count() {
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
