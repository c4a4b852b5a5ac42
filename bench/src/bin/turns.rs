//! A rank that does a given amount of light work: work is the time in which it is not stopped. It reports its
//! begin and end, and the longest delay of a wait. Rank 0 also reports its turns.
//!
//! It waits for nothing, a few milliseconds at a time. A stop and continuation of the process interrupts a
//! wait in an epoll set. Nothing else here does, so it sees each stop. Half of an interrupted wait counts as
//! work, which is right on average. A rank that was merely late (its node is one of many on the machine)
//! counts the whole time. If that is half a slice or more, it must have been stopped between two waits.
#![forbid(unsafe_code)]

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollTimeout};
use nix::time::{ClockId, clock_gettime};
use std::fmt::Write as _;
use std::time::Duration;

const MILLISECOND: u64 = 1_000_000;

/// Progress of a rank. Times are nanoseconds of the machine's monotonic clock.
struct Work {
    /// Longest wait, when it is not interrupted.
    wait: u64,
    /// A longer delay cannot be a late wake-up.
    stop: u64,
    done: u64,
    /// When the last wait ended.
    last: u64,
    /// The longest wait that counted.
    longest: u64,
    /// Begins and ends of turns; the last has not ended.
    turns: Vec<(u64, u64)>,
}

impl Work {
    fn new(now: u64, wait: u64, slice: u64) -> Self {
        let stop = wait + slice / 2;
        Self { wait, stop, done: 0, last: now, longest: 0, turns: vec![(now, now)] }
    }

    /// A wait ended now.
    fn waited(&mut self, now: u64, interrupted: bool) {
        let passed = now.saturating_sub(self.last);
        let stopped = interrupted || passed >= self.stop;
        let counts = if stopped { passed.min(self.wait) / 2 } else { passed };
        self.done += counts;
        if stopped {
            if let Some(turn) = self.turns.last_mut() {
                turn.1 = self.last + counts;
            }
            self.turns.push((now, now));
        } else {
            self.longest = self.longest.max(passed);
        }
        self.last = now;
    }

    fn line(mut self, rank: &str) -> String {
        if let Some(turn) = self.turns.last_mut() {
            turn.1 = self.last;
        }
        let begin = self.turns.first().map_or(self.last, |turn| turn.0);
        let mut line = format!("{rank} {begin} {} {}", self.last, self.longest);
        if rank == "0" {
            for (from, to) in self.turns {
                let written = write!(line, " {from} {to}");
                debug_assert!(written.is_ok(), "writing to a string cannot fail");
            }
        }
        line
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let begin = monotonic()?;
    let number = |at: usize| std::env::args().nth(at)?.parse::<u64>().ok();
    let (Some(work), Some(wait), Some(slice)) = (number(1), number(2), number(3)) else {
        return Err("usage: kumi-bench-turns WORK_NS WAIT_MS SLICE_NS".into());
    };
    let rank = std::env::var("KUMI_RANK")?;
    let mut state = Work::new(begin, wait * MILLISECOND, slice);
    let nothing = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    while state.done < work {
        let left = work - state.done;
        if left < MILLISECOND {
            std::thread::sleep(Duration::from_nanos(left));
            state.waited(monotonic()?, false);
            continue;
        }
        let wait = u16::try_from(wait.min(left / MILLISECOND))?;
        let interrupted = match nothing.wait(&mut [EpollEvent::empty()], EpollTimeout::from(wait)) {
            Ok(_) => false,
            Err(Errno::EINTR) => true,
            Err(error) => return Err(error.into()),
        };
        state.waited(monotonic()?, interrupted);
    }
    println!("{}", state.line(&rank));
    Ok(())
}

fn monotonic() -> nix::Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    Ok(Duration::from(now).as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_time_of_turns_counts() {
        let mut work = Work::new(1_000, 200, 10_000);
        work.waited(1_200, false);
        // Late, but not stopped.
        work.waited(2_400, false);
        // Stopped while it waited, for an unknown time: half of the wait counts.
        work.waited(22_400, true);
        work.waited(22_600, false);
        // Stopped between two waits.
        work.waited(40_000, false);
        work.waited(40_050, true);
        work.waited(40_250, false);
        assert_eq!(work.done, 200 + 1_200 + 100 + 200 + 100 + 25 + 200);
        assert_eq!(work.longest, 1_200);
        let line = work.line("0");
        assert_eq!(line, "0 1000 40250 1200 1000 2500 22400 22700 40000 40025 40050 40250");
    }

    #[test]
    fn other_ranks_say_no_turns() {
        let mut work = Work::new(5, 200, 10_000);
        work.waited(100, false);
        assert_eq!(work.line("3"), "3 5 100 95");
    }
}
