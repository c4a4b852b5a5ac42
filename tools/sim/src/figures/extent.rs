//! Extent of the simulations behind the figures.

/// Extent of the simulations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The least that makes every figure: a test of the program, not of the paper.
    Tiny,
    /// Fewer seeds, shorter times and smaller machines than the paper's: some minutes.
    Quick,
    /// The paper's machines and times.
    Full,
}

/// Parameters that an [`Extent`] sets for the parts of the chapter. Times are units.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    /// Replications of table 7.1.
    pub(super) seeds: u64,
    /// How long is simulated in table 7.1.
    pub(super) long: u64,
    /// How long is simulated at one load elsewhere.
    pub(super) units: u64,
    /// Replications while load rises; the first is drawn.
    pub(super) gradient_seeds: u64,
    /// How long is simulated while load rises.
    pub(super) gradient: u64,
    /// The large machine of figure 7.15, and how long is simulated there.
    pub(super) large: (u32, u64),
    /// The machines of figure 7.18.
    pub(super) machines: &'static [u32],
    /// The machine of figures 7.19 to 7.21.
    pub(super) compared: u32,
    /// Replications of tables 7.2 to 7.4.
    pub(super) list_seeds: u64,
}

impl Extent {
    pub(super) fn size(self) -> Size {
        match self {
            Self::Tiny => Size {
                seeds: 2,
                long: 20_000,
                units: 12_000,
                gradient_seeds: 1,
                gradient: 44_000,
                large: (256, 22_000),
                machines: &[16, 32],
                compared: 32,
                list_seeds: 2,
            },
            Self::Quick => Size {
                seeds: 3,
                long: 200_000,
                units: 100_000,
                gradient_seeds: 2,
                gradient: 440_000,
                large: (512, 220_000),
                machines: &[128, 256, 512],
                compared: 256,
                list_seeds: 5,
            },
            Self::Full => Size {
                seeds: 20,
                long: 1_000_000,
                units: 1_000_000,
                gradient_seeds: 10,
                gradient: 2_200_000,
                large: (2048, 1_000_000),
                machines: &[128, 256, 512, 1024, 2048, 4096],
                compared: 1024,
                list_seeds: 40,
            },
        }
    }

    /// Whether machines and times are the paper's, so that its absolute numbers should come out.
    pub(super) fn is_whole(self) -> bool {
        self == Self::Full
    }

    /// Warning for readers of the results.
    pub(super) fn warning(self) -> Option<&'static str> {
        match self {
            Self::Tiny => {
                Some("Tiny: a test of the program. The statements' verdicts mean nothing.")
            }
            Self::Quick => Some(
                "Quick: fewer seeds, shorter times and smaller machines than the paper's. Where it states a number that hangs on them, nothing can be said.",
            ),
            Self::Full => None,
        }
    }
}
