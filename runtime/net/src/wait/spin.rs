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
    crowded: bool,
}

impl AdaptiveSpin {
    pub(crate) fn new(mode: SpinMode, crowded: bool) -> AdaptiveSpin {
        AdaptiveSpin { mode, bound: START, crowded }
    }

    /// Microseconds to spin now; `None`: for ever.
    pub(crate) fn bound(&self) -> Option<u64> {
        match self.mode {
            SpinMode::Adaptive | SpinMode::Blind if self.crowded => Some(0),
            SpinMode::Adaptive | SpinMode::Blind => Some(self.bound),
            SpinMode::Fixed(bound) => Some(bound),
            SpinMode::Infinite => None,
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
        self.bound = if waited <= 2 * MOST {
            (self.bound * 2).min(MOST)
        } else {
            (self.bound / 2).max(LEAST)
        };
    }

    /// Tells that a wait ended while it spun.
    pub(crate) fn spun(&mut self) {
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
        let mut spin = AdaptiveSpin::new(SpinMode::Adaptive, false);
        for _ in 0..20 {
            spin.blocked(1_000_000);
        }
        assert_eq!(spin.bound(), Some(LEAST));
        for _ in 0..40 {
            spin.spun();
        }
        assert!(spin.bound().is_some_and(|bound| (START..=MOST).contains(&bound)));
        for _ in 0..20 {
            spin.blocked(300);
        }
        assert_eq!(spin.bound(), Some(MOST));
        assert_eq!(AdaptiveSpin::new(SpinMode::Adaptive, true).bound(), Some(0));
        assert_eq!(AdaptiveSpin::new(SpinMode::Infinite, true).bound(), None);
    }

    #[test]
    fn the_page_decides_before_the_bound() {
        use crate::disclosure::{JobPage, JobSlot, NodePage, Turn};
        let node = NodePage::create(0, 1, 2).unwrap();
        let job = JobPage::create(7, 2, [(0, 0..2)]).unwrap();
        let fds = [node.as_fd(), job.as_fd()].map(|fd| fd.try_clone_to_owned().unwrap());
        let page = DisclosedPages::open(&fds[0], &fds[1]).unwrap();
        let at_once = BlockReason::Bound;
        let asking =
            SpinLimit { bound: Some(100), at_once, page: Some((&page, 1)), rotation: None };
        assert_eq!(asking.ends(0, None), Some(BlockReason::Unscheduled));
        node.set_turn(Turn::Job(7));
        assert_eq!(
            (asking.ends(199, None), asking.ends(200, None)),
            (None, Some(BlockReason::Bound))
        );
        node.set_turn(Turn::Everyone);
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
        assert_eq!(AdaptiveSpin::new(SpinMode::Adaptive, true).why_at_once(), BlockReason::Others);
        assert_eq!(AdaptiveSpin::new(SpinMode::Fixed(0), true).why_at_once(), BlockReason::Bound);
        let asks = |mode| AdaptiveSpin::new(mode, false).asks();
        assert!(asks(SpinMode::Adaptive) && !asks(SpinMode::Blind) && !asks(SpinMode::Fixed(9)));
    }
}
