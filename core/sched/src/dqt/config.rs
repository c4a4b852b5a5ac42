//! Configuration of a queue tree, and the name that spells it.

use core::fmt;
use core::str::FromStr;

/// Task allocation policy: chooses the child whose part of the tree gets a job (SCore-D paper,
/// §7.1.3). Among equal children it chooses the leftmost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AllocationPolicy {
    /// The child with the smallest maximum TQLB.
    Max,
    /// The child with the smallest minimum TQLB.
    Min,
    /// The child with the smallest assigned amount of processors: the sum of queue length times
    /// partition size. Children with unequal numbers of nodes up are compared per node.
    Apa,
    /// The child that holds the shortest queue of the partition size wanted.
    Ff,
    /// [`AllocationPolicy::Ff`]; [`AllocationPolicy::Apa`] decides between equals.
    #[default]
    FfApa,
}

/// Name of each policy.
const ALLOCATION_POLICIES: [(&str, AllocationPolicy); 5] = [
    ("max", AllocationPolicy::Max),
    ("min", AllocationPolicy::Min),
    ("apa", AllocationPolicy::Apa),
    ("ff", AllocationPolicy::Ff),
    ("ff-apa", AllocationPolicy::FfApa),
];

impl fmt::Display for AllocationPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            ALLOCATION_POLICIES
                .iter()
                .find(|(_, allocation)| allocation == self)
                .map_or("", |&(name, _)| name),
        )
    }
}

/// Configuration of a [`Dqt`](crate::Dqt). It is parsed from a name and displayed as one:
/// `[fair-]dqt[ARITY][:TAP][+migrate][+shares]`, for example `dqt`, `fair-dqt:apa`,
/// `dqt4:ff+migrate`. Names do not contain limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DqtConfig {
    /// Children of a tree node, 2 to [`DqtConfig::MAX_ARITY`]: sizes of partitions are its powers.
    /// With a larger arity, jobs leave more of their partitions idle.
    pub arity: u32,
    /// How a job's partition is chosen.
    pub allocation: AllocationPolicy,
    /// Fair-DQT: a part of the tree that has finished its round waits for the others. Without this
    /// flag it runs again, so its processors are not idle (SCore-D paper, §7.1.1).
    pub fair: bool,
    /// Moves jobs to even out the load: [`Policy::next_migration`] names the moves.
    ///
    /// [`Policy::next_migration`]: crate::Policy::next_migration
    pub migrate: bool,
    /// Users, not jobs, get equal parts of a queue's turns.
    pub shares: bool,
    /// Most jobs in the queues from a leaf to the root: the limit of jobs per processor. Further
    /// jobs wait. Zero counts as 1.
    pub max_jobs_per_processor: u32,
    /// Most turns that a job may have in a round. A round is as long as the sum of all turns, so
    /// this limits how long other jobs wait. 0 counts as 1.
    pub max_turns: u16,
    /// Slots after which a timetable that has not repeated is cut; see
    /// [`Policy::columns`](crate::Policy::columns) of [`Dqt`](crate::Dqt).
    pub horizon: u32,
    /// Slots that a timetable may not exceed, even if a round is longer; see
    /// [`Policy::columns`](crate::Policy::columns) of [`Dqt`](crate::Dqt).
    pub most_slots: u32,
}

impl DqtConfig {
    /// The largest arity.
    pub const MAX_ARITY: u32 = 64;
}

impl Default for DqtConfig {
    /// A binary tree, FF-APA, as many jobs as come, 100 turns, 1,024 slots or a round.
    fn default() -> Self {
        Self {
            arity: 2,
            allocation: AllocationPolicy::default(),
            fair: false,
            migrate: false,
            shares: false,
            max_jobs_per_processor: u32::MAX,
            max_turns: 100,
            horizon: 1024,
            most_slots: u32::MAX,
        }
    }
}

impl fmt::Display for DqtConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.fair { "fair-dqt" } else { "dqt" })?;
        if self.arity != 2 {
            write!(f, "{}", self.arity)?;
        }
        write!(f, ":{}", self.allocation)?;
        let suffixes = [(self.migrate, "+migrate"), (self.shares, "+shares")];
        suffixes.iter().filter(|(on, _)| *on).try_for_each(|(_, suffix)| f.write_str(suffix))
    }
}

/// Reason why a name is not that of a distributed queue tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DqtNameError {
    /// It begins with neither `dqt` nor `fair-dqt`.
    #[error("the name of a queue tree begins with dqt or fair-dqt")]
    Prefix,
    /// The arity is not a number between 2 and [`DqtConfig::MAX_ARITY`].
    #[error("the arity of a queue tree is a number from 2 to {max}", max = DqtConfig::MAX_ARITY)]
    Arity,
    /// The word after the colon is not a task allocation policy.
    #[error("task allocation policies are max, min, apa, ff and ff-apa")]
    AllocationPolicy,
    /// The word after a plus is unknown or repeated.
    #[error("only +migrate and +shares may follow the policy, each once")]
    Suffix,
}

impl FromStr for DqtConfig {
    type Err = DqtNameError;

    fn from_str(name: &str) -> Result<Self, DqtNameError> {
        let mut config = Self::default();
        let rest = match name.strip_prefix("fair-") {
            Some(rest) => {
                config.fair = true;
                rest
            }
            None => name,
        };
        let mut parts = rest.strip_prefix("dqt").ok_or(DqtNameError::Prefix)?.split('+');
        let head = parts.next().unwrap_or_default();
        let (arity, allocation) =
            head.split_once(':').map_or((head, None), |(a, allocation)| (a, Some(allocation)));
        if !arity.is_empty() {
            let digits = arity.bytes().all(|byte| byte.is_ascii_digit());
            let number = arity.parse().ok().filter(|n| (2..=Self::MAX_ARITY).contains(n));
            config.arity = number.filter(|_| digits).ok_or(DqtNameError::Arity)?;
        }
        if let Some(allocation) = allocation {
            let known = ALLOCATION_POLICIES.iter().find(|(name, _)| *name == allocation);
            config.allocation = known.ok_or(DqtNameError::AllocationPolicy)?.1;
        }
        for suffix in parts {
            let flag = match suffix {
                "migrate" => &mut config.migrate,
                "shares" => &mut config.shares,
                _ => return Err(DqtNameError::Suffix),
            };
            if core::mem::replace(flag, true) {
                return Err(DqtNameError::Suffix);
            }
        }
        Ok(config)
    }
}
