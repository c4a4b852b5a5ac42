//! Jobs whose user thinks between two pieces of work (SCore-D, section 6.4): how long both take, and what such jobs have of processors
//! that they share perfectly.

/// A piece of work and the thinking after it, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Turn {
    /// Seconds of a processor.
    pub work: f64,
    /// Seconds of thinking.
    pub think: f64,
}

/// The turns of a job, the same for the same seed: exponentially distributed.
#[derive(Clone, Debug)]
pub struct Turns {
    state: u64,
    mean: Turn,
}

impl Turns {
    /// Turns of such means.
    pub fn new(seed: u64, mean: Turn) -> Self {
        Self { state: seed, mean }
    }

    /// A number above 0 and not above 1 (splitmix64).
    fn uniform(&mut self) -> f64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let bits = (mixed ^ (mixed >> 31)) >> 11;
        (bits + 1) as f64 / (1_u64 << 53) as f64
    }
}

impl Iterator for Turns {
    type Item = Turn;

    fn next(&mut self) -> Option<Turn> {
        let (work, think) = (-self.uniform().ln(), -self.uniform().ln());
        Some(Turn { work: work * self.mean.work, think: think * self.mean.think })
    }
}

/// What a job does.
enum Doing {
    /// It works; so much is left, in seconds. Less than a nanosecond is nothing: the clock of a long run is not finer.
    Works(f64),
    /// It thinks until then.
    Thinks(f64),
}

/// Seconds of work of each job in `horizon` seconds, if those that work share the processors equally and without cost.
pub fn ideal(jobs: Vec<Turns>, horizon: f64) -> Vec<f64> {
    let mut done = vec![0.0; jobs.len()];
    let mut jobs: Vec<(Turns, f64, Doing)> = jobs
        .into_iter()
        .map(|mut turns| {
            let first = turns.next().unwrap_or(Turn { work: 0.0, think: f64::INFINITY });
            (turns, first.think, Doing::Works(first.work))
        })
        .collect();
    let mut now = 0.0;
    while now < horizon {
        let working = jobs.iter().filter(|(_, _, doing)| matches!(doing, Doing::Works(_))).count();
        let share = 1.0 / working.max(1) as f64;
        let next = jobs.iter().map(|(_, _, doing)| match doing {
            Doing::Works(left) => now + left / share,
            Doing::Thinks(until) => *until,
        });
        let then = next.fold(horizon, f64::min);
        let worked = (then - now) * share;
        now = then;
        for ((turns, think, doing), done) in jobs.iter_mut().zip(&mut done) {
            match doing {
                Doing::Works(left) => {
                    *done += worked.min(*left);
                    *left -= worked;
                    if *left <= 1e-9 {
                        *doing = Doing::Thinks(now + *think);
                    }
                }
                Doing::Thinks(until) if *until <= now => {
                    let turn = turns.next().unwrap_or(Turn { work: 0.0, think: f64::INFINITY });
                    (*think, *doing) = (turn.think, Doing::Works(turn.work));
                }
                Doing::Thinks(_) => {}
            }
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEAN: Turn = Turn { work: 0.25, think: 1.0 };

    #[test]
    fn turns_have_their_means_and_repeat() {
        let turns: Vec<Turn> = Turns::new(7, MEAN).take(40_000).collect();
        let mean = |of: &dyn Fn(&Turn) -> f64| turns.iter().map(of).sum::<f64>() / 40_000.0;
        assert!((mean(&|turn| turn.work) - 0.25).abs() < 0.01);
        assert!((mean(&|turn| turn.think) - 1.0).abs() < 0.03);
        assert_eq!(Turns::new(7, MEAN).take(3).collect::<Vec<_>>(), turns[..3]);
        assert_ne!(Turns::new(8, MEAN).next(), Some(turns[0]));
    }

    #[test]
    fn jobs_share_as_queueing_theory_says() {
        // Mean value analysis of a closed network with thinking: throughput of n jobs times work, by job.
        let mut queue = 0.0;
        for count in 1..=4_u32 {
            let response = MEAN.work * (1.0 + queue);
            let throughput = f64::from(count) / (response + MEAN.think);
            queue = throughput * response;
            let expected = throughput * MEAN.work / f64::from(count);
            let jobs = (0..u64::from(count)).map(|job| Turns::new(100 + job, MEAN)).collect();
            let horizon = 20_000.0;
            let done = ideal(jobs, horizon);
            let found = done.iter().sum::<f64>() / horizon / f64::from(count);
            assert!((found / expected - 1.0).abs() < 0.03, "{count}: {found} {expected}");
        }
    }

    #[test]
    fn who_is_alone_loses_nothing_and_nobody_works_more_than_there_is() {
        let first = Turns::new(3, MEAN).next().unwrap();
        let alone = ideal(vec![Turns::new(3, MEAN)], first.work / 2.0);
        assert!((alone[0] - first.work / 2.0).abs() < 1e-9);
        let busy = Turn { work: 1e6, think: 0.0 };
        let three = ideal((0..3).map(|job| Turns::new(job, busy)).collect(), 30.0);
        assert!(three.iter().all(|done| (done - 10.0).abs() < 1e-6), "{three:?}");
    }
}
