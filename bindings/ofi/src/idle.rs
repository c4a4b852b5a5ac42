//! When a thread that reads empty queues again and again lets its processor go.
//!
//! The wait loops of MPI read a queue without a pause. To the system they look like work. So a thread that has done nothing but
//! read nothing for a while blocks in the channel's own wait, where it costs nothing and counts as waiting.
//!
//! A program that tests for a message between small pieces of work looks the same. So for the first second a thread that has its processor
//! for itself pauses for a third of its time only. Where others want the processor, pauses follow each other.
//!
//! What a thread does between its reads counts as the program's work, unless it is in a call of MPI that blocks: then it is the MPI
//! library's own, however long it takes.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kumi_messaging::Unfinished;

use crate::blocking_call;
use crate::engine::{Engine, Errno};

/// The clock is looked at once in so many empty reads, since it takes as long as a read.
const READS: u32 = 16;
/// If so many reads take more of a processor than this there is something between them: 5 us for each. Time that the thread gives away,
/// as MPI libraries do between reads, does not count.
const GAP: Duration = Duration::from_micros(5 * READS as u64);
/// After a pause the caches are cold, so the program's own loop takes longer: by an eighth of the pause, at most this.
const COLD_GAP: Duration = Duration::from_micros(50);
/// A thread that reads for so long without a pause is looked at: it may be in a call that blocks. Each look comes after twice as
/// long, ...
const FIRST_LOOK: Duration = Duration::from_millis(2);
/// ... at most this.
const LOOKS: Duration = Duration::from_millis(100);
const FIRST_PAUSE: Duration = Duration::from_micros(50);
/// Pauses are short for so long, ...
const FRESH: Duration = Duration::from_millis(100);
/// ... at most this,
const FRESH_PAUSE: Duration = Duration::from_millis(1);
/// and so long ...
const RECENT: Duration = Duration::from_secs(1);
/// ... at most this. Later the daemon is to see a rank that does nothing.
const RECENT_PAUSE: Duration = Duration::from_millis(10);

/// A thread that was kept from its processor for more than this part of its time shares it.
const CONTENDED: u32 = 8;

/// What `KUMI_FABRIC_SPIN` sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// How long empty reads follow each other before the first pause. None: there are no pauses.
    pub spin: Option<Duration>,
    /// The longest pause.
    pub longest: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Bounds { spin: Some(Duration::from_micros(100)), longest: Duration::from_millis(100) }
    }
}

impl Bounds {
    /// Reads `infinite`, or microseconds of reading, or these and those of the longest pause (`100,100000`).
    #[must_use]
    pub fn parse(text: &str) -> Option<Bounds> {
        if text == "infinite" {
            return Some(Bounds { spin: None, ..Bounds::default() });
        }
        let (spin, longest) = match text.split_once(',') {
            Some((spin, longest)) => (spin, Some(longest)),
            None => (text, None),
        };
        let mut bounds = Bounds { spin: Some(microseconds(spin)?), ..Bounds::default() };
        if let Some(longest) = longest {
            bounds.longest = microseconds(longest).filter(|longest| !longest.is_zero())?;
        }
        Some(bounds)
    }
}

/// At most a minute.
fn microseconds(text: &str) -> Option<Duration> {
    let number = text.parse::<u32>().ok().filter(|number| *number <= 60_000_000)?;
    Some(Duration::from_micros(u64::from(number)))
}

/// The empty reads of one thread that follow each other. Times are since any fixed instant.
#[derive(Debug, Clone, Copy)]
pub struct Idle {
    /// Reads since the clock was looked at.
    reads: u32,
    /// When it was looked at first.
    since: Duration,
    /// What the thread had used of a processor when it was looked at last.
    latest: Duration,
    /// When it began to read, first or after a pause.
    resumed: Duration,
    /// What it had used of a processor then.
    used_before: Duration,
    /// Number of events at that time.
    events: u64,
    /// The next pause.
    pause: Duration,
    /// How much the thread may use until it is looked at again.
    gap: Duration,
    /// When the next look at its calls is due, and how long after the one before. None: the first is not timed yet.
    look: Option<(Duration, Duration)>,
    /// It is in a call that blocks.
    blocks: bool,
}

impl Idle {
    /// No read yet.
    #[must_use]
    pub const fn new() -> Idle {
        Idle {
            reads: 0,
            since: Duration::ZERO,
            latest: Duration::ZERO,
            resumed: Duration::ZERO,
            used_before: Duration::ZERO,
            events: u64::MAX,
            pause: FIRST_PAUSE,
            gap: GAP,
            look: None,
            blocks: false,
        }
    }

    /// Whether the calls of the thread are to be looked at now: [`Idle::in_call`] follows.
    pub fn wants_look(&mut self, now: Duration) -> bool {
        let Some((due, after)) = self.look else {
            self.look = Some((now + FIRST_LOOK, FIRST_LOOK));
            return false;
        };
        if now < due {
            return false;
        }
        let after = (after * 2).min(LOOKS);
        self.look = Some((now + after, after));
        true
    }

    /// Whether it is in a call that blocks, as far as the last look or event tells.
    pub fn in_call(&mut self, blocks: bool) {
        self.blocks = blocks;
    }

    /// A read found nothing, after `events` events of the process; whether the clock is to be looked at ([`Idle::empty`]).
    #[inline]
    pub fn count(&mut self, events: u64) -> bool {
        if events != self.events {
            *self = Idle { events, ..Idle::new() };
        }
        self.reads += 1;
        if self.reads < READS {
            return false;
        }
        self.reads = 0;
        true
    }

    /// So many reads found nothing; now it is `now`, and the thread has used so much of a processor. Gives how long the thread should pause, if it should; [`Idle::paused`] follows.
    pub fn empty(&mut self, bounds: Bounds, now: Duration, used: Duration) -> Option<Duration> {
        if used.saturating_sub(self.latest) > self.gap && !self.blocks {
            let resumed = Idle { resumed: now, used_before: used, ..Idle::new() };
            *self = Idle { since: now, events: self.events, look: self.look, ..resumed };
        }
        self.latest = used;
        self.gap = GAP;
        let (idle, spin) = (now.saturating_sub(self.since), bounds.spin?);
        if idle < spin {
            return None;
        }
        let limit = match idle {
            _ if idle < FRESH => FRESH_PAUSE.min(bounds.longest),
            _ if idle < RECENT => RECENT_PAUSE.min(bounds.longest),
            _ => bounds.longest,
        };
        let pause = self.pause.min(limit);
        if idle < RECENT && self.has_read_too_little(spin, pause, now, used) {
            return None;
        }
        self.pause = (pause * 2).min(bounds.longest);
        self.gap = GAP + (pause / 8).min(COLD_GAP);
        Some(pause)
    }

    /// Whether the thread has its processor for itself, and has not read for long enough since its last pause: `spin` for each
    /// [`FIRST_PAUSE`] of the next one.
    fn has_read_too_little(
        &self,
        spin: Duration,
        pause: Duration,
        now: Duration,
        used: Duration,
    ) -> bool {
        let reading = now.saturating_sub(self.resumed);
        let kept_off = reading.saturating_sub(used.saturating_sub(self.used_before));
        let wanted = spin.mul_f64(pause.div_duration_f64(FIRST_PAUSE));
        kept_off <= reading / CONTENDED && reading < wanted
    }

    /// The pause is over now; the thread has used so much of a processor.
    pub fn paused(&mut self, now: Duration, used: Duration) {
        (self.latest, self.resumed, self.used_before) = (used, now, used);
    }
}

impl Default for Idle {
    fn default() -> Self {
        Idle::new()
    }
}

static EVENTS: AtomicU64 = AtomicU64::new(0);
static BOUNDS: OnceLock<Option<Bounds>> = OnceLock::new();

thread_local! {
    static IDLE: Cell<Idle> = const { Cell::new(Idle::new()) };
}

/// A queue has an entry more, or a counter has changed.
pub fn note_event() {
    EVENTS.fetch_add(1, Ordering::Release);
}

/// Number of events of this process.
#[must_use]
pub fn events() -> u64 {
    EVENTS.load(Ordering::Acquire)
}

/// Reads `KUMI_FABRIC_SPIN`, once for a process.
///
/// # Errors
/// `FI_EINVAL` after a line on standard error, if it cannot be understood.
pub fn configure() -> Result<Bounds, Errno> {
    let bounds = BOUNDS.get_or_init(|| {
        let Some(text) = std::env::var_os("KUMI_FABRIC_SPIN") else { return Some(Bounds::default()) };
        let bounds = text.to_str().and_then(Bounds::parse);
        if bounds.is_none() {
            eprintln!(
                "kumi: KUMI_FABRIC_SPIN={}: give microseconds of reading before a pause, as 100, with those of the longest \
                 pause, as 100,100000, or infinite",
                text.to_string_lossy()
            );
        }
        bounds
    });
    bounds.ok_or(crate::errors::FI_EINVAL)
}

fn now() -> Duration {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

/// What this thread has used of a processor.
fn used() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes the structure. There is always this clock, so it does not fail.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    // Neither is negative.
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Drives the channel for a read that found nothing. If nothing came and the thread has read nothing else for a while, it pauses
/// until something comes.
///
/// # Errors
/// The channel's.
pub fn progress(engine: &Engine, mut found: impl FnMut() -> bool) -> Result<(), Errno> {
    engine.poll()?;
    if found() {
        return Ok(());
    }
    let events = events();
    let mut idle = IDLE.get();
    if !idle.count(events) {
        IDLE.set(idle);
        return Ok(());
    }
    let (bounds, start) = (configure()?, now());
    if bounds.spin.is_some() && idle.wants_look(start) {
        idle.in_call(blocking_call::blocks());
    }
    if let Some(pause) = idle.empty(bounds, start, used()) {
        // Short waits are nobody's business.
        let long = pause >= RECENT_PAUSE;
        let unfinished = if long { engine.unfinished()? } else { Unfinished::default() };
        let description = if long { blocking_call::describe(events, unfinished) } else { None };
        let _described = description.map(kumi_mem::Description::enter);
        engine.wait(pause, &mut || self::events() != events || found())?;
        idle.paused(now(), used());
    }
    IDLE.set(idle);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(count: u64) -> Duration {
        Duration::from_micros(count)
    }

    /// Reads of 500 ns at once after each other, until `end`, by a thread that gets one of `shared` parts of its processor; the
    /// pauses with the times when they begin.
    fn pauses(bounds: Bounds, shared: u32, end: Duration) -> Vec<(Duration, Duration)> {
        let mut idle = Idle::new();
        let start = us(1000);
        let (mut now, mut used) = (start, start);
        let mut pauses = Vec::new();
        while now < end {
            now += Duration::from_nanos(500) * shared;
            used += Duration::from_nanos(500);
            if idle.count(3)
                && let Some(pause) = idle.empty(bounds, now, used)
            {
                pauses.push((now - start, pause));
                now += pause;
                idle.paused(now, used);
            }
        }
        pauses
    }

    #[test]
    fn pauses_begin_after_the_spin_and_grow() {
        let pauses = pauses(Bounds::default(), 1, Duration::from_millis(3000));
        assert_eq!(
            pauses[0],
            (us(112), us(50)),
            "the clock is looked at every 8 us, first after 8"
        );
        let lengths: Vec<Duration> = pauses.iter().map(|(_, length)| *length).collect();
        assert_eq!(lengths[1..6], [us(100), us(200), us(400), us(800), us(1000)]);
        assert!(pauses.iter().all(|(at, length)| *at >= FRESH || *length <= FRESH_PAUSE));
        assert!(pauses.iter().all(|(at, length)| *at >= RECENT || *length <= RECENT_PAUSE));
        assert_eq!(*lengths.last().unwrap(), Duration::from_millis(100));
    }

    #[test]
    fn who_has_a_processor_alone_pauses_for_a_third_of_the_first_second() {
        let asleep = |shared, end| {
            let pauses = pauses(Bounds::default(), shared, Duration::from_millis(end));
            pauses.iter().map(|(_, length)| *length).sum::<Duration>()
        };
        let alone = asleep(1, 900);
        assert!(
            alone < Duration::from_millis(305) && alone > Duration::from_millis(280),
            "{alone:?}"
        );
        let sharing = asleep(2, 900);
        assert!(sharing > Duration::from_millis(850), "{sharing:?}");
        let later = asleep(1, 20_000) - asleep(1, 10_000);
        assert!(later > Duration::from_millis(9_900), "{later:?}");
    }

    #[test]
    fn the_clock_is_looked_at_once_in_so_many_reads_without_an_event() {
        let mut idle = Idle::new();
        let looks = (0..3 * READS).filter(|_| idle.count(1)).count();
        assert_eq!(looks, 3);
        (0..READS - 1).for_each(|_| assert!(!idle.count(1)));
        assert!(!idle.count(2), "an event begins anew");
        assert_eq!((0..READS).filter(|_| idle.count(2)).count(), 1);
    }

    #[test]
    fn an_event_or_something_else_between_begins_anew() {
        let bounds = Bounds::default();
        let mut idle = Idle::new();
        assert_eq!(idle.empty(bounds, us(1), us(1)), None);
        assert_eq!(idle.empty(bounds, us(30), us(30)), None);
        let at = |idle: &mut Idle, from: u64, to: u64| {
            (from..to).step_by(20).find_map(|now| idle.empty(bounds, us(now), us(now)))
        };
        assert_eq!(at(&mut idle, 50, 200), Some(us(50)));
        assert_eq!(idle.empty(bounds, us(1000), us(1000)), None, "the program did something else");
        assert_eq!(at(&mut idle, 1020, 1090), None);
        assert_eq!(at(&mut idle, 1100, 1200), Some(us(50)));
        idle.count(1);
        assert_eq!(idle.empty(bounds, us(1120), us(1120)), None, "there was an event");
    }

    #[test]
    fn work_of_a_call_that_blocks_is_no_work_of_the_program() {
        let mut idle = Idle::new();
        let reads = |idle: &mut Idle, blocks: bool| {
            let times = (0..2_000).map(|number| us(1_000 + 100 * number));
            let mut looks = 0;
            let found = times.filter(|&now| {
                idle.count(1);
                if idle.wants_look(now) {
                    looks += 1;
                    idle.in_call(blocks);
                }
                idle.empty(Bounds::default(), now, now).is_some()
            });
            (found.count() > 0, looks)
        };
        let (pauses, looks) = reads(&mut idle, false);
        assert!(!pauses && (6..10).contains(&looks), "{looks} looks in 200 ms");
        // It may leave the call without an event, so it is looked at again.
        let (pauses, looks) = reads(&mut Idle::new(), true);
        assert!(pauses && (6..10).contains(&looks), "{looks} looks in 200 ms");
    }

    #[test]
    fn the_first_reads_after_a_pause_may_be_late() {
        let bounds = Bounds { spin: Some(Duration::ZERO), ..Bounds::default() };
        let mut idle = Idle::new();
        assert_eq!(idle.empty(bounds, us(100), us(100)), Some(us(50)));
        idle.paused(us(150), us(150));
        assert_eq!(idle.empty(bounds, us(150 + 80 + 6), us(150 + 80 + 6)), Some(us(100)));
        idle.paused(us(340), us(340));
        assert_eq!(idle.empty(bounds, us(340 + 80 + 12), us(340 + 80 + 12)), Some(us(200)));
        idle.paused(us(640), us(640));
        assert_eq!(
            idle.empty(bounds, us(640 + 80 + 26), us(640 + 80 + 26)),
            Some(us(50)),
            "later than an eighth of the pause"
        );
    }

    #[test]
    fn time_that_is_given_away_does_not_count() {
        let bounds = Bounds::default();
        let mut idle = Idle::new();
        assert_eq!(idle.empty(bounds, us(1), us(1)), None);
        assert_eq!(idle.empty(bounds, us(5000), us(20)), Some(us(50)));
        idle.paused(us(5050), us(25));
        assert_eq!(idle.empty(bounds, us(9000), us(40)), Some(us(100)));
        idle.paused(us(9100), us(45));
        assert_eq!(idle.empty(bounds, us(9200), us(300)), None, "the program has computed");
    }

    #[test]
    fn bounds_are_read_and_wrong_ones_refused() {
        assert_eq!(Bounds::parse("0").unwrap().spin, Some(Duration::ZERO));
        assert_eq!(Bounds::parse("infinite").unwrap().spin, None);
        assert_eq!(Bounds::parse("20,500"), Some(Bounds { spin: Some(us(20)), longest: us(500) }));
        for wrong in ["", "x", "-1", "1,", "1,0", "1,2,3", "60000001"] {
            assert_eq!(Bounds::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn without_a_bound_there_is_no_pause_and_with_zero_at_once() {
        assert!(
            pauses(Bounds::parse("infinite").unwrap(), 1, Duration::from_millis(50)).is_empty()
        );
        assert_eq!(pauses(Bounds::parse("0,60").unwrap(), 1, us(2000))[1].1, us(60));
    }
}
