//! When a job counts as quiet: pure.

/// What is no work: processor time, in nanoseconds, that may pass between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Allowance {
    /// Of one thread.
    pub(super) each: u64,
    /// Of all threads together.
    pub(super) all: u64,
}

/// What stopping and continuing a thread that waits costs it, twice over.
const SWITCH: u64 = 50_000;

impl Allowance {
    /// For an interval in which so many turns began, each a slice long. A thread that has work uses its turn, all of them
    /// together at least one processor's; a thread that has none uses what a switch costs, and its timers.
    pub(super) fn new(interval: u64, turns: u64, slice: u64) -> Self {
        let turns = |most: u64| turns.saturating_mul(most);
        Self {
            each: (interval / 1_000).saturating_add(turns(SWITCH.min(slice / 8))),
            all: (interval / 100).saturating_add(turns(slice / 4)),
        }
    }
}

/// Turns that a job must have had, and used nothing of, to be quiet. The first of them may have begun just before.
const LEAST_TURNS: u64 = 2;
/// How often the quiet time is doubled at most.
const MOST_DOUBLINGS: u32 = 3;

/// Decides from look to look.
#[derive(Debug)]
pub(super) struct Judge {
    /// Quiet time, nanoseconds.
    after: u64,
    /// Doubled so often, because the last quiet was short.
    doublings: u32,
    /// When it last had something to do.
    stirred: u64,
    /// Turns since then, or looks between which its turn did not end.
    turns: u64,
    /// Since when it is quiet.
    quiet: Option<u64>,
}

impl Judge {
    pub(super) fn new(after: u64, now: u64) -> Self {
        Self { after, doublings: 0, stirred: now, turns: 0, quiet: None }
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.quiet.is_some()
    }

    /// It has something to do; `Some(false)` if that is news.
    pub(super) fn stir(&mut self, now: u64) -> Option<bool> {
        (self.stirred, self.turns) = (now, 0);
        let since = self.quiet.take()?;
        let short = now.saturating_sub(since) < self.after;
        self.doublings = if short { (self.doublings + 1).min(MOST_DOUBLINGS) } else { 0 };
        Some(false)
    }

    /// It has done nothing since the last look: in so many turns that began, or `throughout` one that neither began nor
    /// ended. `Some(true)` if it is quiet now and was not, unless it is `ready` to do something.
    pub(super) fn rest(
        &mut self,
        now: u64,
        begun: u64,
        throughout: bool,
        ready: impl FnOnce() -> bool,
    ) -> Option<bool> {
        self.turns = self.turns.saturating_add(begun).saturating_add(u64::from(throughout));
        let long = now.saturating_sub(self.stirred) >= self.after << self.doublings;
        if self.quiet.is_some() || !long || self.turns < LEAST_TURNS || ready() {
            return None;
        }
        self.quiet = Some(now);
        Some(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Looks at these times, in each of which one turn has begun since the last, find nothing.
    fn rest(judge: &mut Judge, times: &[u64]) -> Vec<Option<bool>> {
        times.iter().map(|&at| judge.rest(at * MS, 1, false, || false)).collect()
    }

    #[test]
    fn quiet_after_a_time_and_awake_at_once() {
        let mut judge = Judge::new(300 * MS, 0);
        assert_eq!(rest(&mut judge, &[100, 200, 300, 400]), [None, None, Some(true), None]);
        assert!(judge.is_quiet());
        assert_eq!((judge.stir(700 * MS), judge.stir(800 * MS)), (Some(false), None));
        assert_eq!(rest(&mut judge, &[900, 1_000, 1_100]), [None, None, Some(true)]);
    }

    #[test]
    fn time_in_which_it_was_stopped_says_nothing() {
        let mut judge = Judge::new(300 * MS, 0);
        for at in 1..100 {
            assert_eq!(judge.rest(at * 100 * MS, 0, false, || false), None);
        }
        assert_eq!(judge.rest(10_000 * MS, 1, false, || false), None, "the turn has just begun");
        assert_eq!(judge.rest(10_100 * MS, 0, false, || false), None);
        assert_eq!(judge.rest(10_200 * MS, 0, true, || true), None, "it would run");
        assert_eq!(judge.rest(10_300 * MS, 0, true, || false), Some(true));
    }

    #[test]
    fn who_is_never_quiet_for_long_must_be_quiet_for_longer() {
        let mut judge = Judge::new(100 * MS, 0);
        let mut now = 0;
        let mut until_quiet = |judge: &mut Judge, lasts: u64| {
            let begin = now;
            while judge.rest(now, 1, false, || false) != Some(true) {
                now += 100 * MS;
            }
            let took = now - begin;
            now += lasts * MS;
            assert_eq!(judge.stir(now), Some(false));
            took / MS
        };
        let times: Vec<u64> = [50, 50, 50, 50, 500, 50]
            .into_iter()
            .map(|lasts| until_quiet(&mut judge, lasts))
            .collect();
        assert_eq!(times, [100, 200, 400, 800, 800, 100]);
    }

    #[test]
    fn whoever_computes_uses_more_than_is_allowed() {
        // One thread, in slices from the shortest to long ones, in half of the turns of two jobs.
        for slice in [250_000, MS, 10 * MS, 100 * MS] {
            let turns = 200 * MS / (2 * slice).max(1);
            let allowance = Allowance::new(200 * MS, turns, slice);
            assert!(turns == 0 || allowance.each * 4 < turns * slice, "{slice}");
            // So many that each gets little.
            assert!(turns == 0 || allowance.all < turns * slice / 2, "{slice}");
        }
        // Alone.
        let allowance = Allowance::new(100 * MS, 0, 10 * MS);
        assert_eq!(allowance, Allowance { each: MS / 10, all: MS });
    }
}
