//! When a job counts as quiet: pure.

/// What a job did between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    Nothing,
    /// More than one that waits does, but not much: something came, or the machine has charged a thread with what was not its
    /// (time that a virtual machine did not get).
    Little,
    /// It works.
    Much,
}

/// Processor time, in nanoseconds, that a job may use between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Allowance {
    /// Of a thread that does nothing.
    pub(super) each: u64,
    /// Of all such threads together.
    pub(super) all: u64,
    /// What is more than this, of all threads together, is much.
    pub(super) little: u64,
}

/// What stopping and continuing a thread that waits costs it, twice over.
const SWITCH: u64 = 50_000;

impl Allowance {
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

    /// What it is that one thread has used at most so much beyond `free`, and all together so much.
    pub(super) fn judge(&self, one: u64, all: u64, free: u64) -> Doing {
        let beyond = |used: u64, most: u64| used > most.saturating_add(free);
        match beyond(one, self.each) || beyond(all, self.all) {
            true if beyond(all, self.little) => Doing::Much,
            true => Doing::Little,
            false => Doing::Nothing,
        }
    }
}

/// Turns that a job must have had, and used nothing of, to be quiet. The first of them may have begun just before.
const LEAST_TURNS: u64 = 2;
/// How often the quiet time is doubled at most.
const MOST_DOUBLINGS: u32 = 3;
/// A look that finds little counts so much, one that finds nothing takes one away, and at this sum the job has something to do:
/// two looks in a row, or with one between them.
const LITTLE: u32 = 2;
const ENOUGH: u32 = 3;

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
    /// Of looks that found little.
    sum: u32,
    /// Since when it is quiet.
    quiet: Option<u64>,
}

impl Judge {
    pub(super) fn new(after: u64, now: u64) -> Self {
        Self { after, doublings: 0, stirred: now, turns: 0, sum: 0, quiet: None }
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.quiet.is_some()
    }

    /// What it did since the last look: in so many turns that began, or `throughout` one that neither began nor ended.
    /// Whether it is quiet, if that is news; it is not as long as it is `ready` to do something.
    pub(super) fn look(
        &mut self,
        now: u64,
        (begun, throughout): (u64, bool),
        doing: Doing,
        ready: impl FnOnce() -> bool,
    ) -> Option<bool> {
        self.sum = match doing {
            Doing::Nothing => self.sum.saturating_sub(1),
            Doing::Little => (self.sum + LITTLE).min(ENOUGH),
            Doing::Much => ENOUGH,
        };
        if self.sum == ENOUGH {
            return self.stir(now);
        }
        self.turns = self.turns.saturating_add(begun).saturating_add(u64::from(throughout));
        let long = now.saturating_sub(self.stirred) >= self.after << self.doublings;
        let due = long && self.turns >= LEAST_TURNS && doing == Doing::Nothing;
        if self.quiet.is_some() || !due || ready() {
            return None;
        }
        self.quiet = Some(now);
        Some(true)
    }

    fn stir(&mut self, now: u64) -> Option<bool> {
        (self.stirred, self.turns) = (now, 0);
        let since = self.quiet.take()?;
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
    fn look(judge: &mut Judge, at: u64, doing: Doing) -> Option<bool> {
        judge.look(at * MS, (1, false), doing, || false)
    }

    fn rest(judge: &mut Judge, times: &[u64]) -> Vec<Option<bool>> {
        times.iter().map(|&at| look(judge, at, Doing::Nothing)).collect()
    }

    #[test]
    fn quiet_after_a_time_and_awake_at_once() {
        let mut judge = Judge::new(300 * MS, 0);
        assert_eq!(rest(&mut judge, &[100, 200, 300, 400]), [None, None, Some(true), None]);
        assert!(judge.is_quiet());
        let work = [700, 800].map(|at| look(&mut judge, at, Doing::Much));
        assert_eq!(work, [Some(false), None]);
        assert_eq!(rest(&mut judge, &[900, 1_000, 1_100]), [None, None, Some(true)]);
    }

    #[test]
    fn little_counts_if_it_comes_again() {
        use Doing::{Little, Nothing};
        let stirs = |found: &[Doing]| {
            let mut judge = Judge::new(100 * MS, 0);
            rest(&mut judge, &[100, 200]);
            assert!(judge.is_quiet());
            (300..)
                .step_by(100)
                .zip(found)
                .any(|(at, &doing)| look(&mut judge, at, doing).is_some())
        };
        assert!(!stirs(&[Little, Nothing, Nothing, Little, Nothing, Nothing]));
        assert!(stirs(&[Little, Little]));
        assert!(stirs(&[Little, Nothing, Little]));
        // Who has just done a little is not quiet yet.
        let mut judge = Judge::new(100 * MS, 0);
        rest(&mut judge, &[50, 60]);
        assert_eq!(look(&mut judge, 100, Little), None);
        assert_eq!(rest(&mut judge, &[200]), [Some(true)]);
    }

    #[test]
    fn time_in_which_it_was_stopped_says_nothing() {
        let mut judge = Judge::new(300 * MS, 0);
        let mut look =
            |at: u64, turns, ready: bool| judge.look(at * MS, turns, Doing::Nothing, || ready);
        for at in 1..100 {
            assert_eq!(look(at * 100, (0, false), false), None);
        }
        assert_eq!(look(10_000, (1, false), false), None, "the turn has just begun");
        assert_eq!(look(10_100, (0, false), false), None);
        assert_eq!(look(10_200, (0, true), true), None, "it would run");
        assert_eq!(look(10_300, (0, true), false), Some(true));
    }

    #[test]
    fn who_is_never_quiet_for_long_must_be_quiet_for_longer() {
        let mut judge = Judge::new(100 * MS, 0);
        let mut now = 0;
        let mut until_quiet = |judge: &mut Judge, lasts: u64| {
            let begin = now;
            while look(judge, now, Doing::Nothing) != Some(true) {
                now += 100;
            }
            let took = now - begin;
            now += lasts;
            assert_eq!(look(judge, now, Doing::Much), Some(false));
            took
        };
        let times = [50, 50, 50, 50, 500, 50].map(|lasts| until_quiet(&mut judge, lasts));
        assert_eq!(times, [100, 200, 400, 800, 800, 100]);
    }

    #[test]
    fn whoever_computes_uses_more_than_is_allowed() {
        // One job of two, in slices from the shortest to long ones: of each turn that it had, it has used all.
        for slice in [250_000, MS, 10 * MS, 100 * MS] {
            let turns = (100 * MS / (2 * slice)).max(1);
            let allowance = Allowance::new(100 * MS, turns, slice);
            let used = turns * slice;
            assert_eq!(allowance.judge(used, used, 0), Doing::Much, "{slice}");
            // By many threads, none of which uses much.
            assert_eq!(allowance.judge(used / 1_000, used, 0), Doing::Much, "{slice}");
            let switches = turns * 20_000;
            assert_eq!(allowance.judge(switches, switches, 0), Doing::Nothing, "{slice}");
        }
        // One job of sixteen has a turn in every second look, and that may lie between two looks.
        let slice = 10 * MS;
        assert_eq!(Allowance::new(100 * MS, 1, slice).judge(3 * MS, 3 * MS, 0), Doing::Much);
        assert_ne!(Allowance::new(100 * MS, 0, slice).judge(MS, MS, 0), Doing::Nothing);
        // Alone, and outside the rotation.
        let allowance = Allowance::new(100 * MS, 0, slice);
        let judge = |used: u64| allowance.judge(used, used, 0);
        assert_eq!([MS / 20, MS, 5 * MS].map(judge), [Doing::Nothing, Doing::Little, Doing::Much]);
        assert_eq!(allowance.judge(MS, MS, MS), Doing::Nothing, "so much is free");
    }
}
