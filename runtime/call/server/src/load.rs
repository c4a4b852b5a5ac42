//! Load and speed of this machine.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Processor time of all processors since boot, in ticks: busy, and all.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Ticks {
    busy: u64,
    all: u64,
}

/// Meter of the processors' load.
#[derive(Debug, Default)]
pub struct Load {
    last: Ticks,
}

fn parse(stat: &str) -> Option<Ticks> {
    let mut fields = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    // User, nice, system, idle, I/O wait, interrupts, and time stolen by a hypervisor. User time includes
    // guests.
    let mut numbers = [0_u64; 8];
    for number in &mut numbers {
        *number = fields.next()?.parse().ok()?;
    }
    let all = numbers.iter().sum();
    Some(Ticks { busy: all - numbers[3] - numbers[4], all })
}

impl Load {
    /// Average number of busy processors since the last call.
    pub fn busy(&mut self, processors: usize) -> f64 {
        let now = std::fs::read_to_string("/proc/stat").ok().and_then(|stat| parse(&stat));
        let Some(now) = now else { return 0.0 };
        let last = std::mem::replace(&mut self.last, now);
        share(last, now) * processors as f64
    }
}

fn share(last: Ticks, now: Ticks) -> f64 {
    let all = now.all.saturating_sub(last.all);
    if last.all == 0 || all == 0 {
        return 0.0;
    }
    (now.busy.saturating_sub(last.busy) as f64 / all as f64).clamp(0.0, 1.0)
}

/// Floating-point operations per second of one processor, measured with plain code. It is a first guess for
/// comparing servers; real call times replace it.
pub fn speed() -> f64 {
    let mut best = 0.0_f64;
    for _ in 0..3 {
        let begin = Instant::now();
        let mut sums = [1.0_f64; 8];
        let mut done = 0_u32;
        while begin.elapsed() < Duration::from_millis(2) {
            for _ in 0..1000 {
                for sum in &mut sums {
                    *sum = *sum * black_box(0.999) + 0.001;
                }
            }
            done += 16_000;
        }
        black_box(sums);
        best = best.max(f64::from(done) / begin.elapsed().as_secs_f64());
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_says() {
        let ticks = parse("cpu  10 1 4 80 5 0 1 2 3 4\ncpu0 1 2 3").expect("eight numbers");
        assert_eq!(ticks, Ticks { busy: 18, all: 103 });
        let later = Ticks { busy: 28, all: 123 };
        assert!((share(ticks, later) - 0.5).abs() < 1e-9);
        assert_eq!(share(Ticks::default(), later), 0.0);
        assert_eq!(parse("intr 1"), None);
        assert!(speed() > 0.0);
    }
}
