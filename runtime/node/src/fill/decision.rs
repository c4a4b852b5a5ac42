//! Whether others run beside a job in its turns: decided from what it leaves idle there, and from what they cost it.
//!
//! At first they do. The daemon measures some slices of the job with others beside it, and some without. They stop running
//! beside it if it leaves nothing, or if it gets less done. That is told by frames where it has some, otherwise by the time that it gets. After a while it is
//! tried again, each time after twice as long.

use crate::switch::SliceMeasure;

/// Whether others run beside a job in its turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filling {
    /// No.
    Off,
    /// Yes, but in one slice of so many.
    On {
        /// At least 2.
        strict_every: u32,
    },
}

/// Why nobody runs beside a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It leaves nothing idle.
    NothingLeft,
    /// It gets less of the processors.
    Displaced,
    /// It gets less done in the same time.
    Slowed,
}

/// Slices of each kind that are measured before anything is decided.
const ENOUGH: u32 = 6;
/// Pairs of slices, without and with others, before their speeds are compared.
const PAIRS: u32 = 12;
/// Share of the processors' time that a job must leave for others to go on beside it, and to begin.
const LEAVES: [f64; 2] = [0.02, 0.04];
/// If it used everything and then leaves so much of a slice, others run beside it at once: it works by turns.
const LEFT_AT_ONCE: f64 = 0.25;
/// Share of its speed, or of its processors' time, that a job may lose to the others.
const LOSS: f64 = 0.03;
/// Frames in a slice from which it tells how far a job has come.
const LEAST_FRAMES: u64 = 16;
/// Nanoseconds for which nobody runs beside a job: at first, and at most.
const PAUSES: [u64; 2] = [2_000_000_000, 64_000_000_000];
/// So long others must have run beside it for the next pause to be short again.
const GOOD: u64 = 10_000_000_000;
/// One slice of so many is without others: while little is known, and later.
const STRICT: [u32; 2] = [2, 32];
/// Averages are over about so many slices: of the time that a job uses, and of its speed, where chance has more to say.
const SHARES: u32 = 8;
const SPEEDS: u32 = 32;

/// A mean and a variance of the last values, the newest of which count most.
#[derive(Clone, Copy, Debug, Default)]
struct Average {
    count: u32,
    mean: f64,
    variance: f64,
}

impl Average {
    /// Takes a value; those before count as `most` at most.
    fn add(&mut self, value: f64, most: u32) {
        self.count = (self.count + 1).min(most);
        let weight = 1.0 / f64::from(self.count);
        let distance = value - self.mean;
        self.mean += weight * distance;
        self.variance = (1.0 - weight) * (self.variance + weight * distance * distance);
    }

    /// How far the true mean is seldom away.
    fn uncertainty(&self) -> f64 {
        2.0 * (self.variance / f64::from(self.count.max(1))).sqrt()
    }

    /// A bound that the true mean is seldom above.
    fn upper(&self) -> f64 {
        self.mean + self.uncertainty()
    }

    /// A bound that it is seldom below.
    fn lower(&self) -> f64 {
        self.mean - self.uncertainty()
    }
}

/// A slice without others, to be compared with the one after it.
#[derive(Clone, Copy, Debug)]
struct StrictSlice {
    tick: u64,
    used: f64,
    /// If it has enough frames to tell it.
    speed: Option<f64>,
}

/// What is known of a job since others began to run beside it.
#[derive(Clone, Copy, Debug, Default)]
struct Findings {
    /// Share of the processors' time that it uses: without others, and with.
    used: [Average; 2],
    /// Logarithm of its speed with others to that without.
    speed: Average,
    /// Share of the processors' time that it uses without others, less that with.
    lost: Average,
    strict: Option<StrictSlice>,
}

impl Findings {
    /// Whether enough slices were compared.
    fn are_known(&self) -> bool {
        // Who exchanges no messages is judged by its time.
        let compared = if self.speed.count == 0 { self.lost } else { self.speed };
        compared.count >= PAIRS
    }
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Others run beside it, since then; it must leave more than this.
    On { since: u64, leaves: f64 },
    /// Nobody does, until then.
    Off { until: u64 },
}

/// The decision for one job.
#[derive(Clone, Debug)]
pub struct FillDecision {
    processors: u32,
    state: State,
    pause: u64,
    findings: Findings,
    reason: Option<Reason>,
    /// It used everything, and has just left much.
    has_stopped: bool,
}

impl FillDecision {
    /// For a job on a node with so many processors.
    pub fn new(processors: u32, now: u64) -> Self {
        Self {
            processors: processors.max(1),
            state: State::On { since: now, leaves: LEAVES[0] },
            pause: PAUSES[0],
            findings: Findings::default(),
            reason: None,
            has_stopped: false,
        }
    }

    /// Takes a slice that was measured.
    pub fn take(&mut self, slice: &SliceMeasure) {
        let [looked_at, all] = slice.ranks.map(f64::from);
        if slice.wall_ns == 0 || looked_at < 1.0 {
            return;
        }
        let wall = slice.wall_ns as f64;
        let processors = all.min(f64::from(self.processors));
        let used = (slice.used_ns as f64 * (all / looked_at) / (wall * processors)).min(1.0);
        if matches!(self.state, State::Off { .. }) {
            let left = !slice.filled && 1.0 - used > LEFT_AT_ONCE;
            self.has_stopped |= left && self.reason == Some(Reason::NothingLeft);
            return;
        }
        let findings = &mut self.findings;
        findings.used[usize::from(slice.filled)].add(used, SHARES);
        let speed = slice.frames as f64 / wall;
        if !slice.filled {
            let told = slice.frames >= LEAST_FRAMES;
            let speed = told.then_some(speed);
            findings.strict = Some(StrictSlice { tick: slice.tick, used, speed });
            return;
        }
        // The two slices of a pair follow each other, as far as the job's turns do.
        let Some(strict) = findings.strict.take().filter(|strict| strict.tick < slice.tick) else {
            return;
        };
        findings.lost.add(strict.used - used, SPEEDS);
        if let Some(alone) = strict.speed {
            findings.speed.add((speed.max(alone / 100.0) / alone).ln(), SPEEDS);
        }
    }

    /// What is decided now.
    pub fn decide(&mut self, now: u64) -> Filling {
        match self.state {
            State::Off { .. } if std::mem::take(&mut self.has_stopped) => {
                // What is known of its speed still holds.
                self.findings.used = Default::default();
                self.pause = PAUSES[0];
                self.state = State::On { since: now, leaves: LEAVES[1] };
            }
            State::Off { until } if now < until => return Filling::Off,
            State::Off { .. } => {
                self.findings = Findings::default();
                self.state = State::On { since: now, leaves: LEAVES[1] };
            }
            State::On { since, leaves } => {
                let good = now.saturating_sub(since) >= GOOD;
                if good {
                    self.pause = PAUSES[0];
                }
                if self.findings.used[1].count >= ENOUGH {
                    // It has shown that it leaves enough to begin.
                    let leaves = if good { LEAVES[0] } else { leaves };
                    self.state = State::On { since, leaves };
                }
                self.reason = self.trouble(leaves);
                if self.reason.is_some() {
                    self.state = State::Off { until: now.saturating_add(self.pause) };
                    self.pause = (self.pause * 2).min(PAUSES[1]);
                    return Filling::Off;
                }
            }
        }
        Filling::On { strict_every: STRICT[usize::from(self.findings.are_known())] }
    }

    /// Why nobody runs beside it, if so.
    pub fn reason(&self) -> Option<Reason> {
        self.reason
    }

    /// What the decision is made from: the shares of the processors that it uses without others and with, and its speed with others
    /// as a part of that without.
    pub fn findings(&self) -> [f64; 3] {
        let Findings { used: [without, with], speed, .. } = &self.findings;
        [without.mean, with.mean, speed.mean.exp()]
    }

    fn trouble(&self, leaves: f64) -> Option<Reason> {
        let Findings { used: [_, with], speed, lost, .. } = &self.findings;
        if with.count >= ENOUGH && 1.0 - with.mean < leaves {
            return Some(Reason::NothingLeft);
        }
        if !self.findings.are_known() {
            return None;
        }
        if speed.count == 0 {
            // Who waits awake uses less where others run, and loses nothing by that: so only of jobs whose speed nobody knows.
            return (lost.mean > LOSS && lost.lower() > 0.0).then_some(Reason::Displaced);
        }
        // Slower by more than it may be, and not by chance.
        (speed.mean < (1.0 - LOSS).ln() && speed.upper() < 0.0).then_some(Reason::Slowed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_sched::JobId;

    const SECOND: u64 = 1_000_000_000;
    const SLICE: u64 = 10_000_000;

    /// A job that leaves this share, loses this much time to others beside it, is slower by this factor then, and sends so many frames.
    #[derive(Clone, Copy)]
    struct Job {
        leaves: f64,
        loses: f64,
        speed: f64,
        frames: f64,
    }

    const IDLE: Job = Job { leaves: 0.4, loses: 0.0, speed: 1.0, frames: 1_000.0 };

    fn slice(job: Job, tick: u64, filled: bool, noise: f64) -> SliceMeasure {
        let share = |part: f64| (part * SLICE as f64) as u64;
        let speed = if filled { job.speed } else { 1.0 };
        SliceMeasure {
            job: JobId(1),
            tick,
            filled,
            wall_ns: SLICE,
            ranks: [1, 1],
            used_ns: share(1.0 - job.leaves - if filled { job.loses } else { 0.0 }),
            frames: (job.frames * speed * noise) as u64,
        }
    }

    /// Measures as many pairs as slices of a job among two pass in a time; the decision at its end.
    fn run(decision: &mut FillDecision, job: Job, from: u64, seconds: u64) -> Filling {
        let mut last = Filling::Off;
        for pair in 0..seconds * 10 {
            let now = from + pair * SECOND / 10;
            last = decision.decide(now);
            if last != Filling::Off {
                decision.take(&slice(job, 2 * pair, false, 1.0));
                decision.take(&slice(job, 2 * pair + 1, true, 1.0));
            }
        }
        last
    }

    #[test]
    fn who_leaves_something_and_loses_nothing_is_filled_around() {
        let mut decision = FillDecision::new(1, 0);
        assert_eq!(decision.decide(0), Filling::On { strict_every: STRICT[0] });
        assert_eq!(run(&mut decision, IDLE, 0, 60), Filling::On { strict_every: STRICT[1] });
        assert_eq!(decision.reason(), None);
        // It need not wait awake where others run, and is none the slower.
        let mut decision = FillDecision::new(1, 0);
        let waits = Job { leaves: 0.1, loses: 0.2, ..IDLE };
        assert_ne!(run(&mut decision, waits, 0, 20), Filling::Off);
    }

    #[test]
    fn each_trouble_ends_it() {
        let cases = [
            (Job { leaves: 0.01, ..IDLE }, Reason::NothingLeft),
            (Job { loses: 0.05, frames: 0.0, ..IDLE }, Reason::Displaced),
            (Job { speed: 0.9, ..IDLE }, Reason::Slowed),
        ];
        for (job, reason) in cases {
            let mut decision = FillDecision::new(1, 0);
            run(&mut decision, job, 0, 2);
            assert_eq!(
                (decision.decide(2 * SECOND), decision.reason()),
                (Filling::Off, Some(reason))
            );
        }
    }

    /// A job that works for a while and then waits, without messages, as one does at which somebody types.
    #[test]
    fn who_works_by_turns_is_filled_around_whenever_it_waits() {
        let mut decision = FillDecision::new(1, 0);
        let works = Job { leaves: 0.0, frames: 0.0, ..IDLE };
        let waits = Job { leaves: 1.0, ..works };
        let (mut tick, mut filled) = (0, [0, 0]);
        for phase in 0..40 {
            let job = if phase % 2 == 0 { works } else { waits };
            // Five slices of the job between two looks, ten looks a second.
            for look in 0..10 {
                let filling = decision.decide(tick * SLICE);
                for _ in 0..5 {
                    let strict = match filling {
                        Filling::Off => true,
                        Filling::On { strict_every } => tick.is_multiple_of(strict_every.into()),
                    };
                    decision.take(&slice(job, tick, !strict, 1.0));
                    // The first looks after a change do not count.
                    filled[phase % 2] += u64::from(!strict && look > 1 && phase >= 20);
                    tick += 1;
                }
            }
        }
        // 10 phases of 40 slices each.
        assert!(filled[1] > 380, "{filled:?} of 400 slices are filled");
        assert!(filled[0] < 200, "{filled:?} of 400 slices are filled");
        assert_ne!(decision.reason(), Some(Reason::Displaced));
    }

    #[test]
    fn it_is_tried_again_each_time_after_longer() {
        let mut decision = FillDecision::new(1, 0);
        let busy = Job { leaves: 0.0, ..IDLE };
        let mut tries = Vec::new();
        let mut before = Filling::Off;
        for tick in 0..3_000 {
            let now = tick * SECOND / 10;
            let filling = decision.decide(now);
            if before == Filling::Off && filling != Filling::Off {
                tries.push(tick);
            }
            before = filling;
            decision.take(&slice(busy, tick, true, 1.0));
        }
        let gaps: Vec<u64> = tries.windows(2).map(|pair| pair[1] - pair[0]).collect();
        // The pause, and the slices that show once more what the job leaves.
        assert_eq!(gaps, [26, 46, 86, 166, 326, 646, 646, 646]);
        // After it has left something for long, the next pause is short.
        let end = 600 * SECOND;
        run(&mut decision, IDLE, end, 100);
        let now = end + 100 * SECOND;
        assert_eq!(run(&mut decision, busy, now, 4), Filling::Off);
        assert_ne!(run(&mut decision, IDLE, now + 4 * SECOND, 4), Filling::Off);
    }

    #[test]
    fn who_leaves_between_the_bounds_stays_as_it_is() {
        let between = Job { leaves: 0.03, ..IDLE };
        let mut decision = FillDecision::new(1, 0);
        assert_ne!(run(&mut decision, between, 0, 20), Filling::Off);
        assert_eq!(run(&mut decision, Job { leaves: 0.0, ..IDLE }, 20 * SECOND, 2), Filling::Off);
        run(&mut decision, between, 22 * SECOND, 100);
        assert_eq!(decision.reason(), Some(Reason::NothingLeft));
    }

    #[test]
    fn what_a_rank_writes_does_no_harm() {
        let mut decision = FillDecision::new(1, 0);
        let wrong = SliceMeasure {
            wall_ns: 1,
            ranks: [1, u32::MAX],
            used_ns: u64::MAX,
            frames: u64::MAX,
            ..slice(IDLE, 1, false, 1.0)
        };
        for filled in [false, true, false, true] {
            decision.take(&SliceMeasure { filled, ..wrong });
            decision.take(&SliceMeasure { filled, ranks: [0, 0], wall_ns: 0, ..wrong });
        }
        assert_ne!(decision.decide(0), Filling::Off);
    }

    /// Numbers from 0.8 to 1.25 that look random, the same in every run.
    fn noise(seed: u64) -> impl FnMut() -> f64 {
        let mut state = seed;
        move || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            0.8 + 0.45 * ((state >> 40) as f64 / f64::from(1 << 24))
        }
    }

    /// How often a job of this speed beside others was not filled around, of 100 times.
    fn times_off(speed: f64, mut noise: impl FnMut() -> f64) -> u32 {
        let mut decision = FillDecision::new(1, 0);
        let mut off = 0;
        for pair in 0..100 {
            let now = pair * SECOND / 10;
            let (alone, filled) = (noise(), noise());
            if decision.decide(now) == Filling::Off {
                off += 1;
                continue;
            }
            let job = Job { speed, ..IDLE };
            decision.take(&slice(job, 2 * pair, false, alone));
            decision.take(&slice(job, 2 * pair + 1, true, filled));
        }
        off
    }

    /// What chance does to single slices does not decide: a job that loses nothing is filled around, and one that loses a tenth is not.
    /// A long run of chance may still mislead; these are the same runs each time.
    #[test]
    fn chance_does_not_decide() {
        for seed in 0..1_000 {
            let off = times_off(1.0, noise(seed));
            assert!(off <= 70, "{off} of 100 with seed {seed}");
            assert!(times_off(0.9, noise(seed)) > 0, "never off with seed {seed}");
        }
    }
}
