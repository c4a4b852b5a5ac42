//! Spinning: how long a wait spins before it blocks.

use crate::disclosure::{DisclosedPages, PollingAdvice};
use crate::segment::attachment::AttachError;
use crate::segment::counters::Counter;

/// Longest spin of the adaptive bound, microseconds.
const MOST: u64 = 500;
/// Shortest spin of the adaptive bound: about what blocking and being woken costs.
const LEAST: u64 = 20;
/// First bound.
const START: u64 = 200;
/// Longest spin, microseconds, where others have what this rank leaves: what blocking and being woken costs.
const BRIEF: u64 = LEAST;
/// Microseconds in which a wait of a crowded rank gives its processor to others before it blocks. Others that only
/// communicate need some tens each; one that computes keeps it for milliseconds.
const YIELD: u64 = 500;
/// Most ranks for each processor with which that pays: every one that waits looks for itself in its turn.
const MOST_YIELDING: usize = 8;
/// Waits that block at once after one whose end did not come in time: at first, and at most.
const PAUSES: [u32; 2] = [4, 1_024];

/// The setting `KUMI_SPIN`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpinMode {
    /// Asks the node's page whether it pays to go on (SS-Wait, §3.2); if it may, the bound follows
    /// what earlier waits would have needed.
    Adaptive,
    /// As adaptive, without asking.
    Blind,
    /// So many microseconds ("two-phase fixed spin-block"); 0 blocks at once.
    Fixed(u64),
    /// Never blocks.
    Infinite,
}

impl SpinMode {
    /// Reads `KUMI_SPIN`.
    ///
    /// # Errors
    /// [`AttachError::BadSetting`].
    pub fn from_env() -> Result<SpinMode, AttachError> {
        SpinMode::parse(std::env::var("KUMI_SPIN").ok().as_deref())
    }

    fn parse(text: Option<&str>) -> Result<SpinMode, AttachError> {
        match text {
            None | Some("" | "adaptive") => Ok(SpinMode::Adaptive),
            Some("blind") => Ok(SpinMode::Blind),
            Some("infinite") => Ok(SpinMode::Infinite),
            Some(number) => {
                number.parse().map(SpinMode::Fixed).map_err(|_| AttachError::BadSetting {
                    name: "KUMI_SPIN",
                    found: number.to_string(),
                    expected: "adaptive, blind, infinite, or a number of microseconds",
                })
            }
        }
    }
}

/// Why a wait blocked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockReason {
    /// The awaited rank does not run.
    Unscheduled,
    /// Others want the processor.
    Others,
    /// It had spun as long as it may.
    Bound,
}

impl BlockReason {
    /// Where it is counted.
    pub(crate) fn counter(self) -> Counter {
        match self {
            BlockReason::Unscheduled => Counter::BlockedUnscheduled,
            BlockReason::Others => Counter::BlockedOthers,
            BlockReason::Bound => Counter::BlockedBound,
        }
    }
}

/// How long this wait may spin.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SpinLimit<'p> {
    /// Microseconds; none: for ever.
    pub(crate) bound: Option<u64>,
    /// Why it blocks if that is 0.
    pub(crate) at_once: BlockReason,
    /// The page to ask, and the index of this rank's processor among the node's.
    pub(crate) page: Option<(&'p DisclosedPages, usize)>,
    /// Where it says that the job is outside the rotation, so that no wait spins, whatever its bound.
    pub(crate) rotation: Option<&'p DisclosedPages>,
    /// The processor is given to others between two looks.
    pub(crate) yields: bool,
}

impl SpinLimit<'_> {
    /// Whether a wait for `awaited` that has spun for so many microseconds is to block, and why. Looked at when
    /// the clock is.
    pub(crate) fn ends(&self, spun: u64, awaited: Option<u32>) -> Option<BlockReason> {
        if self.rotation.is_some_and(DisclosedPages::job_is_idle) {
            return Some(BlockReason::Unscheduled);
        }
        let bound = self.bound?;
        if bound == 0 {
            return Some(self.at_once);
        }
        let advice = self.page.map(|(page, processor)| page.advice(processor, awaited));
        match advice {
            Some(PollingAdvice::Unscheduled) => Some(BlockReason::Unscheduled),
            Some(PollingAdvice::Others) => Some(BlockReason::Others),
            // Nobody else wants the processor, so spinning costs less than was learned.
            Some(PollingAdvice::Spin) => {
                (spun >= (2 * bound).min(2 * MOST)).then_some(BlockReason::Bound)
            }
            // What others do in longer waits is worth more than what waking costs.
            Some(PollingAdvice::SpinBriefly) => {
                (spun >= bound.min(BRIEF)).then_some(BlockReason::Others)
            }
            None => (spun >= bound).then_some(BlockReason::Bound),
        }
    }
}

/// The bound, which learns from every wait.
#[derive(Debug)]
pub(crate) struct AdaptiveSpin {
    mode: SpinMode,
    bound: u64,
    /// More ranks here than processors: a spinning rank keeps its peer from answering.
    crowd: Option<YieldPhase>,
}

/// Waits of a rank that shares its processor with other ranks. They give it away and look again, which costs less than to
/// block and be woken while all of them only communicate. If one computes, the processor comes back late: then they block.
#[derive(Debug)]
struct YieldPhase {
    /// Few enough ranks share the processor.
    pays: bool,
    /// Waits that block at once.
    pause: u32,
    /// How many will, after the next one whose end does not come in time.
    next_pause: u32,
    /// The wait under way gives the processor away.
    under_way: bool,
}

impl YieldPhase {
    fn of(ranks: usize, processors: usize) -> Option<YieldPhase> {
        let pays = ranks <= MOST_YIELDING * processors;
        let phase = YieldPhase { pays, pause: 0, next_pause: PAUSES[0], under_way: false };
        (ranks > processors).then_some(phase)
    }

    /// Microseconds for a wait that begins.
    fn begin(&mut self) -> u64 {
        self.under_way = self.pays && self.pause == 0;
        self.pause = self.pause.saturating_sub(1);
        if self.under_way { YIELD } else { 0 }
    }

    fn end(&mut self, in_time: bool) {
        if !std::mem::replace(&mut self.under_way, false) {
            return;
        }
        if in_time {
            self.next_pause = (self.next_pause / 2).max(PAUSES[0]);
        } else {
            self.pause = self.next_pause;
            self.next_pause = (self.next_pause * 2).min(PAUSES[1]);
        }
    }
}

impl AdaptiveSpin {
    /// For a rank of so many on a node, which have so many processors.
    pub(crate) fn new(mode: SpinMode, ranks: usize, processors: usize) -> AdaptiveSpin {
        AdaptiveSpin { mode, bound: START, crowd: YieldPhase::of(ranks, processors) }
    }

    /// Microseconds that a wait that begins may spin; `None`: for ever. And whether it yields meanwhile.
    pub(crate) fn begin(&mut self) -> (Option<u64>, bool) {
        match (self.mode, &mut self.crowd) {
            (SpinMode::Adaptive | SpinMode::Blind, Some(crowd)) => {
                let bound = crowd.begin();
                (Some(bound), bound > 0)
            }
            (SpinMode::Adaptive | SpinMode::Blind, None) => (Some(self.bound), false),
            (SpinMode::Fixed(bound), _) => (Some(bound), false),
            (SpinMode::Infinite, _) => (None, false),
        }
    }

    /// Whether the page is to be asked.
    pub(crate) fn asks(&self) -> bool {
        self.mode == SpinMode::Adaptive
    }

    /// Why a wait that may not spin at all blocks.
    pub(crate) fn why_at_once(&self) -> BlockReason {
        match self.mode {
            SpinMode::Adaptive | SpinMode::Blind => BlockReason::Others,
            SpinMode::Fixed(_) | SpinMode::Infinite => BlockReason::Bound,
        }
    }

    /// Learns from a wait that blocked. If a spin of at most twice `MOST` would have seen its end, later
    /// spins are longer; otherwise shorter spins waste less. The least bound is the cost of blocking (Karlin et
    /// al., competitive spinning).
    pub(crate) fn blocked(&mut self, waited: u64) {
        if let Some(crowd) = &mut self.crowd {
            crowd.end(false);
        }
        self.bound = if waited <= 2 * MOST {
            (self.bound * 2).min(MOST)
        } else {
            (self.bound / 2).max(LEAST)
        };
    }

    /// Tells that a wait ended while it spun, or yielded for so many microseconds.
    pub(crate) fn spun(&mut self, yielded: Option<u64>) {
        if let Some((crowd, yielded)) = self.crowd.as_mut().zip(yielded) {
            crowd.end(yielded <= YIELD);
        }
        if self.bound < START {
            self.bound += self.bound / 8 + 1;
        }
    }
}

/// Processors the ranks of this node may run on. A daemon that pins each rank to one of them says in
/// `KUMI_PROCESSORS` how many there are; otherwise those of this thread are all.
pub(crate) fn processors() -> usize {
    let told = std::env::var("KUMI_PROCESSORS").ok().and_then(|number| number.parse().ok());
    if let Some(number @ 1..) = told {
        return number;
    }
    // SAFETY: an all-zero set is valid, and the kernel writes at most its size.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) != 0 {
            return 1;
        }
        libc::CPU_COUNT(&set).max(1) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_is_read() {
        assert_eq!(SpinMode::parse(None).expect("default"), SpinMode::Adaptive);
        assert_eq!(SpinMode::parse(Some("blind")).expect("blind"), SpinMode::Blind);
        assert_eq!(SpinMode::parse(Some("infinite")).expect("infinite"), SpinMode::Infinite);
        assert_eq!(SpinMode::parse(Some("0")).expect("0"), SpinMode::Fixed(0));
        assert!(matches!(SpinMode::parse(Some("lots")), Err(AttachError::BadSetting { .. })));
    }

    #[test]
    fn the_bound_shrinks_with_long_waits_and_recovers() {
        let mut spin = AdaptiveSpin::new(SpinMode::Adaptive, 2, 2);
        for _ in 0..20 {
            spin.blocked(1_000_000);
        }
        assert_eq!(spin.begin(), (Some(LEAST), false));
        for _ in 0..40 {
            spin.spun(None);
        }
        assert!(spin.begin().0.is_some_and(|bound| (START..=MOST).contains(&bound)));
        for _ in 0..20 {
            spin.blocked(300);
        }
        assert_eq!(spin.begin(), (Some(MOST), false));
        assert_eq!(AdaptiveSpin::new(SpinMode::Infinite, 3, 2).begin(), (None, false));
    }

    /// Waits that block at once, until one yields again.
    fn pause(spin: &mut AdaptiveSpin) -> u32 {
        (0..).find(|_| spin.begin() != (Some(0), false)).unwrap_or(u32::MAX)
    }

    #[test]
    fn a_crowded_rank_yields_while_that_pays() {
        let mut spin = AdaptiveSpin::new(SpinMode::Adaptive, 3, 2);
        assert_eq!(spin.begin(), (Some(YIELD), true));
        // The longer it does not pay, the rarer it is tried.
        for times in 0..12 {
            spin.blocked(3_000);
            assert_eq!(pause(&mut spin), (PAUSES[0] << times).min(PAUSES[1]));
        }
        // A wait that did not yield says nothing.
        spin.blocked(3_000);
        assert_eq!(spin.begin(), (Some(0), false));
        spin.blocked(3_000);
        assert_eq!(pause(&mut spin), PAUSES[1] - 1);
        for _ in 0..12 {
            spin.spun(Some(YIELD));
            assert_eq!(spin.begin(), (Some(YIELD), true));
        }
        // The end was there when the processor came back, but that was late.
        spin.spun(Some(YIELD + 1));
        assert_eq!(pause(&mut spin), PAUSES[0]);
        let mut many = AdaptiveSpin::new(SpinMode::Adaptive, 2 * MOST_YIELDING + 1, 2);
        assert_eq!(many.begin(), (Some(0), false));
    }

    #[test]
    fn the_page_decides_before_the_bound() {
        use crate::disclosure::{JobPage, JobSlot, NodePage, Turn};
        let node = NodePage::create(0, 1, 2).unwrap();
        let job = JobPage::create(7, 2, [(0, 0..2)]).unwrap();
        let fds = [node.as_fd(), job.as_fd()].map(|fd| fd.try_clone_to_owned().unwrap());
        let page = DisclosedPages::open(&fds[0], &fds[1]).unwrap();
        let at_once = BlockReason::Bound;
        let asking = SpinLimit {
            bound: Some(100),
            at_once,
            page: Some((&page, 1)),
            rotation: None,
            yields: false,
        };
        assert_eq!(asking.ends(0, None), Some(BlockReason::Unscheduled));
        job.set_turn(Turn::Filled);
        assert_eq!(
            (asking.ends(BRIEF - 1, None), asking.ends(BRIEF, None)),
            (None, Some(BlockReason::Others))
        );
        job.set_turn(Turn::Own);
        assert_eq!(
            (asking.ends(199, None), asking.ends(200, None)),
            (None, Some(BlockReason::Bound))
        );
        job.set_turn(Turn::Shared);
        node.set_jobs(&[JobSlot { job: 8, ranks: 1, runnable: vec![1] }]);
        assert_eq!(asking.ends(0, None), Some(BlockReason::Others));
        let blind = SpinLimit { page: None, ..asking };
        assert_eq!((blind.ends(99, None), blind.ends(100, None)), (None, Some(BlockReason::Bound)));
        let infinite = SpinLimit { bound: None, ..asking };
        assert_eq!(infinite.ends(u64::MAX, None), None);
        let in_rotation = SpinLimit { rotation: Some(&page), ..infinite };
        assert_eq!(in_rotation.ends(u64::MAX, None), None);
        job.set_idle(true);
        assert_eq!(in_rotation.ends(0, None), Some(BlockReason::Unscheduled));
        job.set_idle(false);
        assert_eq!(in_rotation.ends(0, None), None);
        assert_eq!(AdaptiveSpin::new(SpinMode::Adaptive, 3, 2).why_at_once(), BlockReason::Others);
        assert_eq!(AdaptiveSpin::new(SpinMode::Fixed(0), 3, 2).why_at_once(), BlockReason::Bound);
        let asks = |mode| AdaptiveSpin::new(mode, 2, 2).asks();
        assert!(asks(SpinMode::Adaptive) && !asks(SpinMode::Blind) && !asks(SpinMode::Fixed(9)));
    }
}
