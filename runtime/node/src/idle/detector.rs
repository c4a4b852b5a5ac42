//! Detector of idle jobs: decides from the processor time that a job has used.

/// Activity of a job between two observations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    None,
    /// More than a waiting job uses, but little: a message came, or the machine charged a thread with time that was not its own
    /// (time that a virtual machine did not get).
    Slight,
    /// The job works.
    Busy,
}

/// Processor time, in nanoseconds, that an idle job may use between two observations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IdleAllowance {
    /// Of one thread.
    pub(super) each: u64,
    /// Of all threads together.
    pub(super) all: u64,
    /// If all threads together use more than this, the job is busy.
    pub(super) little: u64,
}

/// Twice the time that stopping and continuing costs a waiting thread.
const SWITCH: u64 = 50_000;

impl IdleAllowance {
    /// For an interval in which so many turns began, each a slice long. A thread that has work uses its turn, and all of them
    /// together at least one processor's; a thread that has none uses what a switch costs, and its timers (the library's handler
    /// threads beside a long wait: a thousandth).
    pub(super) fn new(interval: u64, turns: u64, slice: u64) -> Self {
        let of_turns = |most: u64| turns.saturating_mul(most);
        Self {
            each: (interval / 200).saturating_add(of_turns(SWITCH.min(slice / 8))),
            all: if turns > 0 { of_turns(slice / 4) } else { interval / 4 },
            little: (interval / 10).min(turns.max(1).saturating_mul(slice / 4)),
        }
    }

    /// Classifies processor time: `one` is the most that one thread used, `all` the sum, of which `free` is excused.
    pub(super) fn detector(&self, one: u64, all: u64, free: u64) -> Activity {
        let beyond = |used: u64, most: u64| used > most.saturating_add(free);
        match beyond(one, self.each) || beyond(all, self.all) {
            true if beyond(all, self.little) => Activity::Busy,
            true => Activity::Slight,
            false => Activity::None,
        }
    }
}

/// Turns that a job must have had without using them, to be idle. The first of them may have begun just before.
const LEAST_TURNS: u64 = 2;
/// How often the idle time is doubled at most.
const MOST_DOUBLINGS: u32 = 3;
/// Slight activity adds so much to a sum, none takes one away, and at the second number the job is
/// busy: after two observations in a row, or with one between them.
const LITTLE: u32 = 2;
const ENOUGH: u32 = 3;

/// Detector for one job, updated at each observation.
#[derive(Debug)]
pub(super) struct IdleDetector {
    /// Idle time, nanoseconds.
    after: u64,
    /// Doubled so often, because the last idle was short.
    doublings: u32,
    /// When it last had something to do.
    last_active: u64,
    /// Turns since then, or looks between which its turn did not end.
    turns: u64,
    /// Of looks that found little.
    sum: u32,
    /// Since when it is idle.
    idle: Option<u64>,
}

impl IdleDetector {
    pub(super) fn new(after: u64, now: u64) -> Self {
        Self { after, doublings: 0, last_active: now, turns: 0, sum: 0, idle: None }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.idle.is_some()
    }

    /// What it did since the last look: in so many turns that began, or `throughout` one that neither began nor ended.
    /// Whether it is idle, if that is news; it is not as long as it is `ready` to do something.
    pub(super) fn look(
        &mut self,
        now: u64,
        (begun, throughout): (u64, bool),
        doing: Activity,
        ready: impl FnOnce() -> bool,
    ) -> Option<bool> {
        self.sum = match doing {
            Activity::None => self.sum.saturating_sub(1),
            Activity::Slight => (self.sum + LITTLE).min(ENOUGH),
            Activity::Busy => ENOUGH,
        };
        if self.sum == ENOUGH {
            return self.wake(now);
        }
        self.turns = self.turns.saturating_add(begun).saturating_add(u64::from(throughout));
        let long = now.saturating_sub(self.last_active) >= self.after << self.doublings;
        let due = long && self.turns >= LEAST_TURNS && doing == Activity::None;
        if self.idle.is_some() || !due || ready() {
            return None;
        }
        self.idle = Some(now);
        Some(true)
    }

    fn wake(&mut self, now: u64) -> Option<bool> {
        (self.last_active, self.turns) = (now, 0);
        let since = self.idle.take()?;
        let short = now.saturating_sub(since) < self.after;
        self.doublings = if short { (self.doublings + 1).min(MOST_DOUBLINGS) } else { 0 };
        Some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A look at this time; one turn has begun since the last.
    fn look(detector: &mut IdleDetector, at: u64, doing: Activity) -> Option<bool> {
        detector.look(at * MS, (1, false), doing, || false)
    }

    fn rest(detector: &mut IdleDetector, durations: &[u64]) -> Vec<Option<bool>> {
        durations.iter().map(|&at| look(detector, at, Activity::None)).collect()
    }

    #[test]
    fn idle_after_a_time_and_awake_at_once() {
        let mut detector = IdleDetector::new(300 * MS, 0);
        assert_eq!(rest(&mut detector, &[100, 200, 300, 400]), [None, None, Some(true), None]);
        assert!(detector.is_idle());
        let work = [700, 800].map(|at| look(&mut detector, at, Activity::Busy));
        assert_eq!(work, [Some(false), None]);
        assert_eq!(rest(&mut detector, &[900, 1_000, 1_100]), [None, None, Some(true)]);
    }

    #[test]
    fn little_counts_if_it_comes_again() {
        use Activity::{None as Nothing, Slight};
        let stirs = |found: &[Activity]| {
            let mut detector = IdleDetector::new(100 * MS, 0);
            rest(&mut detector, &[100, 200]);
            assert!(detector.is_idle());
            (300..)
                .step_by(100)
                .zip(found)
                .any(|(at, &doing)| look(&mut detector, at, doing).is_some())
        };
        assert!(!stirs(&[Slight, Nothing, Nothing, Slight, Nothing, Nothing]));
        assert!(stirs(&[Slight, Slight]));
        assert!(stirs(&[Slight, Nothing, Slight]));
        // Who has just done a little is not idle yet.
        let mut detector = IdleDetector::new(100 * MS, 0);
        rest(&mut detector, &[50, 60]);
        assert_eq!(look(&mut detector, 100, Slight), None);
        assert_eq!(rest(&mut detector, &[200]), [Some(true)]);
    }

    #[test]
    fn time_in_which_it_was_stopped_says_nothing() {
        let mut detector = IdleDetector::new(300 * MS, 0);
        let mut look =
            |at: u64, turns, ready: bool| detector.look(at * MS, turns, Activity::None, || ready);
        for at in 1..100 {
            assert_eq!(look(at * 100, (0, false), false), None);
        }
        assert_eq!(look(10_000, (1, false), false), None, "the turn has just begun");
        assert_eq!(look(10_100, (0, false), false), None);
        assert_eq!(look(10_200, (0, true), true), None, "it would run");
        assert_eq!(look(10_300, (0, true), false), Some(true));
    }

    #[test]
    fn who_is_never_idle_for_long_must_be_idle_for_longer() {
        let mut detector = IdleDetector::new(100 * MS, 0);
        let mut now = 0;
        let mut until_idle = |detector: &mut IdleDetector, lasts: u64| {
            let begin = now;
            while look(detector, now, Activity::None) != Some(true) {
                now += 100;
            }
            let took = now - begin;
            now += lasts;
            assert_eq!(look(detector, now, Activity::Busy), Some(false));
            took
        };
        let durations = [50, 50, 50, 50, 500, 50].map(|lasts| until_idle(&mut detector, lasts));
        assert_eq!(durations, [100, 200, 400, 800, 800, 100]);
    }

    #[test]
    fn whoever_computes_uses_more_than_is_allowed() {
        // One job of two, in slices from the shortest to long ones: of each turn that it had, it has used all.
        for slice in [250_000, MS, 10 * MS, 100 * MS] {
            let turns = (100 * MS / (2 * slice)).max(1);
            let allowance = IdleAllowance::new(100 * MS, turns, slice);
            let used = turns * slice;
            assert_eq!(allowance.detector(used, used, 0), Activity::Busy, "{slice}");
            // By many threads, none of which uses much.
            assert_eq!(allowance.detector(used / 1_000, used, 0), Activity::Busy, "{slice}");
            let switches = turns * 20_000;
            assert_eq!(allowance.detector(switches, switches, 0), Activity::None, "{slice}");
        }
        // One job of sixteen has a turn in every second look, and that may lie between two looks.
        let slice = 10 * MS;
        assert_eq!(
            IdleAllowance::new(100 * MS, 1, slice).detector(3 * MS, 3 * MS, 0),
            Activity::Busy
        );
        assert_ne!(IdleAllowance::new(100 * MS, 0, slice).detector(MS, MS, 0), Activity::None);
        // Alone, and outside the rotation.
        let allowance = IdleAllowance::new(100 * MS, 0, slice);
        let detector = |used: u64| allowance.detector(used, used, 0);
        assert_eq!(
            [MS / 20, MS, 5 * MS].map(detector),
            [Activity::None, Activity::Slight, Activity::Busy]
        );
        assert_eq!(allowance.detector(MS, MS, MS), Activity::None, "so much is free");
    }
}
