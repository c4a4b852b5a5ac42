//! A clock that counts only while somebody looks at it.
//!
//! Silence is judged by time that passed, and a machine with far more to run than processors may not run its
//! daemon for seconds: then everybody else seems silent, while what they said waits to be read. So time is
//! counted in steps: whoever judges looks at least once a step, and what a look comes late by does not count.

use crate::message::Nanos;

/// See the module. Times are nanoseconds.
#[derive(Clone, Copy, Debug)]
pub struct Vigil {
    step: Nanos,
    last: Nanos,
    watched: Nanos,
}

impl Vigil {
    /// Begins at `now`; whoever uses it looks every `step`.
    pub fn new(now: Nanos, step: Nanos) -> Self {
        Self { step: step.max(1), last: now, watched: 0 }
    }

    /// Looks: the time watched since the beginning. Of the time since the look before, two steps count at
    /// most.
    pub fn look(&mut self, now: Nanos) -> Nanos {
        let passed = now.saturating_sub(self.last);
        self.watched = self.watched.saturating_add(passed.min(self.step.saturating_mul(2)));
        self.last = self.last.max(now);
        self.watched
    }

    /// The time watched until the last look.
    pub fn watched(&self) -> Nanos {
        self.watched
    }

    /// When to look again for the time watched to be `until`: it takes more than one look if that is
    /// more than a step away.
    pub fn next_look(&self, until: Nanos) -> Nanos {
        let left = until.saturating_sub(self.watched);
        self.last.saturating_add(left.min(self.step))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_watched_does_not_count() {
        let mut vigil = Vigil::new(1_000, 100);
        assert_eq!(vigil.look(1_100), 100);
        assert_eq!(vigil.look(1_290), 290, "a little late");
        assert_eq!(vigil.look(9_000), 490, "not run for a long time");
        assert_eq!(vigil.look(8_000), 490, "clocks that go back count nothing");
        assert_eq!(vigil.look(9_010), 500);
        assert_eq!(
            (vigil.watched(), vigil.next_look(530), vigil.next_look(9_999)),
            (500, 9_040, 9_110)
        );
        assert_eq!(vigil.next_look(3), 9_010, "due");
        assert_eq!(vigil.look(u64::MAX), 700);
        assert_eq!(vigil.next_look(u64::MAX), u64::MAX);
    }

    /// Always late, it takes longer, but not for ever.
    #[test]
    fn it_ends_on_a_machine_that_is_always_late() {
        let (mut vigil, mut now) = (Vigil::new(0, 100), 0);
        while vigil.look(now) < 1_000 {
            now = vigil.next_look(1_000) + 5_000;
        }
        assert!((5_000..=60_000).contains(&now), "{now}");
    }
}
