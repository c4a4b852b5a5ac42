//! When a thread that reads empty queues again and again lets its processor go.
//!
//! The wait loops of MPI read a queue without a pause. To the system they look like work. So a thread that has done nothing but
//! read nothing for a while blocks in the channel's own wait, where it costs nothing and counts as waiting.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::engine::{Engine, Errno};

/// Reads further apart than this have something between them.
const GAP: Duration = Duration::from_micros(2);
/// After a pause the caches are cold, so the program's own loop takes longer: by an eighth of the pause, at most this.
const COLD_GAP: Duration = Duration::from_micros(50);
const FIRST_PAUSE: Duration = Duration::from_micros(50);
/// Pauses are short for so long, ...
const FRESH: Duration = Duration::from_millis(100);
/// ... at most this.
const FRESH_PAUSE: Duration = Duration::from_millis(1);

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
        Bounds { spin: Some(Duration::from_micros(100)), longest: Duration::from_millis(10) }
    }
}

impl Bounds {
    /// Reads `infinite`, or microseconds of reading, or these and those of the longest pause (`100,10000`).
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
    /// When the first one began.
    since: Duration,
    /// When the latest one ended.
    latest: Duration,
    /// Number of events at that time.
    events: u64,
    /// The next pause.
    pause: Duration,
    /// How far from the latest read the next one may begin.
    gap: Duration,
}

impl Idle {
    /// No read yet.
    #[must_use]
    pub const fn new() -> Idle {
        Idle {
            since: Duration::ZERO,
            latest: Duration::ZERO,
            events: u64::MAX,
            pause: FIRST_PAUSE,
            gap: GAP,
        }
    }

    /// A read began and ended at these times and found nothing, after `events` events of the process. Gives how long the thread
    /// should pause, if it should; [`Idle::paused`] follows.
    pub fn empty(
        &mut self,
        bounds: Bounds,
        begun: Duration,
        ended: Duration,
        events: u64,
    ) -> Option<Duration> {
        if events != self.events || begun.saturating_sub(self.latest) > self.gap {
            *self = Idle { since: begun, events, ..Idle::new() };
        }
        self.latest = ended;
        self.gap = GAP;
        let idle = ended.saturating_sub(self.since);
        if idle < bounds.spin? {
            return None;
        }
        let limit = if idle < FRESH { FRESH_PAUSE.min(bounds.longest) } else { bounds.longest };
        let pause = self.pause.min(limit);
        self.pause = (pause * 2).min(bounds.longest);
        self.gap = GAP + (pause / 8).min(COLD_GAP);
        Some(pause)
    }

    /// The pause is over.
    pub fn paused(&mut self, now: Duration) {
        self.latest = now;
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
                 pause, as 100,10000, or infinite",
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

/// Drives the channel for a read that found nothing. If nothing came and the thread has read nothing else for a while, it pauses
/// until something comes.
///
/// # Errors
/// The channel's.
pub fn progress(engine: &Engine, mut found: impl FnMut() -> bool) -> Result<(), Errno> {
    let begun = now();
    engine.poll()?;
    if found() {
        return Ok(());
    }
    let events = events();
    let mut idle = IDLE.get();
    let pause = idle.empty(configure()?, begun, now(), events);
    if let Some(pause) = pause {
        engine.wait(pause, &mut || self::events() != events || found())?;
        idle.paused(now());
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

    /// Reads of 500 ns at once after each other, until `end`; the pauses with the times when they begin.
    fn pauses(bounds: Bounds, end: Duration) -> Vec<(Duration, Duration)> {
        let mut idle = Idle::new();
        let mut now = us(1000);
        let mut pauses = Vec::new();
        while now < end {
            let ended = now + Duration::from_nanos(500);
            now = ended;
            if let Some(pause) = idle.empty(bounds, ended - Duration::from_nanos(500), ended, 3) {
                pauses.push((ended - us(1000), pause));
                now += pause;
                idle.paused(now);
            }
        }
        pauses
    }

    #[test]
    fn pauses_begin_after_the_spin_and_grow() {
        let pauses = pauses(Bounds::default(), Duration::from_millis(300));
        assert_eq!(pauses[0], (us(100), us(50)));
        let lengths: Vec<Duration> = pauses.iter().map(|(_, length)| *length).collect();
        assert_eq!(lengths[1..6], [us(100), us(200), us(400), us(800), us(1000)]);
        assert!(pauses.iter().all(|(at, length)| *at >= FRESH || *length <= FRESH_PAUSE));
        assert_eq!(*lengths.last().unwrap(), Duration::from_millis(10));
    }

    #[test]
    fn an_event_or_something_else_between_begins_anew() {
        let bounds = Bounds::default();
        let mut idle = Idle::new();
        assert_eq!(idle.empty(bounds, us(0), us(1), 0), None);
        assert_eq!(idle.empty(bounds, us(2), us(120), 0), Some(us(50)));
        idle.paused(us(170));
        assert_eq!(idle.empty(bounds, us(171), us(172), 0), Some(us(100)));
        idle.paused(us(272));
        assert_eq!(idle.empty(bounds, us(273), us(274), 1), None);
        assert_eq!(idle.empty(bounds, us(275), us(400), 1), Some(us(50)));
        idle.paused(us(450));
        assert_eq!(idle.empty(bounds, us(459), us(460), 1), None);
    }

    #[test]
    fn the_first_read_after_a_pause_may_be_late() {
        let bounds = Bounds::default();
        let mut idle = Idle::new();
        idle.empty(bounds, us(0), us(1), 0);
        assert_eq!(idle.empty(bounds, us(2), us(120), 0), Some(us(50)));
        idle.paused(us(170));
        assert_eq!(idle.empty(bounds, us(178), us(179), 0), Some(us(100)));
        idle.paused(us(279));
        assert_eq!(
            idle.empty(bounds, us(294), us(295), 0),
            None,
            "later than an eighth of the pause"
        );
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
        assert!(pauses(Bounds::parse("infinite").unwrap(), Duration::from_millis(50)).is_empty());
        assert_eq!(pauses(Bounds::parse("0,60").unwrap(), us(2000))[1].1, us(60));
    }
}
