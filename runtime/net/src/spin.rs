//! How long a wait spins before it blocks.

use crate::place::AttachError;

/// Longest spin of the adaptive bound, microseconds.
const MOST: u64 = 500;
/// Shortest spin of the adaptive bound: about what blocking and being woken costs.
const LEAST: u64 = 20;
/// First bound.
const START: u64 = 200;

/// The setting `KUMI_SPIN`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpinMode {
    /// Follows what earlier waits would have needed.
    Adaptive,
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
            Some("infinite") => Ok(SpinMode::Infinite),
            Some(number) => {
                number.parse().map(SpinMode::Fixed).map_err(|_| AttachError::BadSetting {
                    name: "KUMI_SPIN",
                    found: number.to_string(),
                    expected: "adaptive, infinite, or a number of microseconds",
                })
            }
        }
    }
}

/// The bound, which learns from every wait.
#[derive(Debug)]
pub(crate) struct Spin {
    mode: SpinMode,
    bound: u64,
    /// More ranks here than processors: whoever spins keeps the peer from answering.
    crowded: bool,
}

impl Spin {
    pub(crate) fn new(mode: SpinMode, crowded: bool) -> Spin {
        Spin { mode, bound: START, crowded }
    }

    /// Microseconds to spin now; `None`: for ever.
    pub(crate) fn bound(&self) -> Option<u64> {
        match self.mode {
            SpinMode::Adaptive if self.crowded => Some(0),
            SpinMode::Adaptive => Some(self.bound),
            SpinMode::Fixed(bound) => Some(bound),
            SpinMode::Infinite => None,
        }
    }

    /// Tells how a wait that blocked went: had it ended within a spin that is worth it? Otherwise
    /// shorter spins lose less (Karlin et al., competitive spinning, give the least bound its
    /// size: what blocking costs).
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
        assert_eq!(SpinMode::parse(Some("infinite")).expect("infinite"), SpinMode::Infinite);
        assert_eq!(SpinMode::parse(Some("0")).expect("0"), SpinMode::Fixed(0));
        assert!(matches!(SpinMode::parse(Some("lots")), Err(AttachError::BadSetting { .. })));
    }

    #[test]
    fn the_bound_shrinks_with_long_waits_and_recovers() {
        let mut spin = Spin::new(SpinMode::Adaptive, false);
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
        assert_eq!(Spin::new(SpinMode::Adaptive, true).bound(), Some(0));
        assert_eq!(Spin::new(SpinMode::Infinite, true).bound(), None);
    }
}
