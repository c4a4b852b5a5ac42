//! Registry of scheduling policies by name, for the head of a cluster and for the simulator.

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use crate::batch::{Conservative, Easy, Fcfs, FcfsBuddy, FirstFit, RESERVATIONS};
use crate::dhc::Dhc;
use crate::scan::{Scan, ScanDown, ScanUp};
use crate::{Dqt, DqtConfig, DqtNameError, MatrixGang, Policy};

/// Limits of a policy, beside its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most jobs on one processor at a time; 0 counts as 1. Policies that do not share time give a
    /// processor one job in any case.
    pub jobs_per_processor: u32,
    /// Most slots in a processor's column of a timetable. It must be several times `jobs_per_processor`, or a
    /// job may get no turn.
    pub slots: u32,
    /// Most waiting jobs that have a reservation at a time; 0 counts as 1. Only `conservative` makes any. A job that waits
    /// behind them does not begin, even where it would fit.
    pub reservations: usize,
}

/// Most slots in all columns of a timetable together. With the widest job numbers a
/// message with so many takes 11 MiB, and the timetable 16 MiB in memory.
const MOST_CELLS: u32 = 1 << 20;
/// A timetable has at least this many times as many slots as a processor has jobs.
const SLOTS_PER_JOB: u32 = 4;

impl Default for Limits {
    /// No limit, but for reservations: one end of a job may move all of them.
    fn default() -> Self {
        Self { jobs_per_processor: u32::MAX, slots: u32::MAX, reservations: RESERVATIONS }
    }
}

impl Limits {
    /// The limits of a cluster with this many processors: all columns of [`Policy::columns`] fit into
    /// one message. On large clusters this may also lower the limit of jobs per processor.
    pub fn of_cluster(processors: u32, jobs_per_processor: u32) -> Self {
        let slots = (MOST_CELLS / processors.max(1)).max(SLOTS_PER_JOB);
        let jobs_per_processor = jobs_per_processor.clamp(1, slots / SLOTS_PER_JOB);
        Self { jobs_per_processor, slots, ..Self::default() }
    }
}

/// No policy has this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPolicy {
    /// The name that was asked for.
    pub name: String,
    /// Names that look like it, the nearest first; all names if none does.
    pub nearest: Vec<&'static str>,
    /// The error in it, if it begins like the name of a queue tree.
    pub because: Option<DqtNameError>,
}

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no scheduling policy is called {:?}; ", self.name)?;
        if let Some(because) = self.because {
            write!(f, "{because}; ")?;
        }
        let (last, others) = match self.nearest.split_last() {
            None => return f.write_str("there is none at all"),
            Some((last, [])) => return write!(f, "did you mean {last}?"),
            Some(split) => split,
        };
        f.write_str("did you mean ")?;
        for (index, name) in others.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            write!(f, "{comma}{name}")?;
        }
        write!(f, " or {last}?")
    }
}

impl core::error::Error for UnknownPolicy {}

type BoxedPolicy = Box<dyn Policy + Send>;
type Make = Box<dyn Fn(Limits) -> BoxedPolicy + Send + Sync>;

/// Maker of one policy. Its name was read before, so making it cannot fail.
pub struct PolicyMaker(Make);

impl PolicyMaker {
    /// The policy, without nodes or jobs.
    pub fn make(&self, limits: Limits) -> Box<dyn Policy + Send> {
        (self.0)(limits)
    }
}

impl fmt::Debug for PolicyMaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PolicyMaker").finish_non_exhaustive()
    }
}

/// Policies that are made in one place.
struct PolicyFamily {
    /// Names to show, each with a line of help.
    names: &'static [(&'static str, &'static str)],
    /// What makes the policy of this name; `None` if the name is not of this family. A name put together from
    /// parts need not be among `names`.
    find: fn(&str) -> Option<Make>,
}

/// In the order of [`names`]. A family with a grammar of its own also has its line here.
static FAMILIES: [PolicyFamily; 5] = [DQT, MATRIX, BATCH, SCAN, DHC];

/// [`DqtConfig`] reads more names of this family; these are the common ones.
const DQT: PolicyFamily = PolicyFamily {
    names: &[
        ("dqt", "distributed queue tree, the same as dqt:ff-apa"),
        ("dqt:max", "where the busiest node has fewest jobs"),
        ("dqt:min", "where the least busy node has fewest jobs"),
        ("dqt:apa", "where the least processor amount is assigned"),
        ("dqt:ff", "into the shortest queue of the size"),
        ("dqt:ff-apa", "into the shortest queue of the size, of equals by processor amount"),
        ("dqt+shares", "users, not jobs, get equal parts of a queue's turns"),
        ("dqt+migrate", "jobs move to even out the load (simulator only)"),
        ("fair-dqt", "queue tree in which no part runs again before all have, as fair-dqt:ff-apa"),
        ("fair-dqt:max", "the same by max"),
        ("fair-dqt:min", "the same by min"),
        ("fair-dqt:apa", "the same by apa"),
        ("fair-dqt:ff", "the same by ff"),
        ("fair-dqt:ff-apa", "the same by ff-apa"),
    ],
    find: |name| {
        let config: DqtConfig = name.parse().ok()?;
        maker(move |limits| {
            let Limits { jobs_per_processor: max_jobs_per_processor, slots: most_slots, .. } =
                limits;
            Dqt::new(DqtConfig { max_jobs_per_processor, most_slots, ..config })
        })
    },
};

const MATRIX: PolicyFamily = PolicyFamily {
    names: &[("matrix", "gang scheduling by rows of a matrix, with unification (Ousterhout)")],
    find: |name| match name {
        "matrix" => maker(|limits| MatrixGang::new(limits.jobs_per_processor)),
        _ => None,
    },
};

const BATCH: PolicyFamily = PolicyFamily {
    names: &[
        ("fcfs", "first come, first served; any free nodes"),
        ("fcfs-bb", "first come, first served; partitions of a binary buddy system"),
        ("first-fit", "whoever fits, in order of arrival; large jobs may starve"),
        ("easy", "backfilling that does not delay the first in the queue (needs estimates)"),
        ("conservative", "backfilling that delays nobody in the queue (needs estimates)"),
    ],
    find: |name| match name {
        "fcfs" => maker(|_| Fcfs::default()),
        "fcfs-bb" => maker(|_| FcfsBuddy::default()),
        "first-fit" => maker(|_| FirstFit::default()),
        "easy" => maker(|_| Easy::default()),
        "conservative" => maker(|limits| Conservative::planning(limits.reservations)),
        _ => None,
    },
};

const SCAN: PolicyFamily = PolicyFamily {
    names: &[
        ("scan", "size after size, upwards; who comes meanwhile waits, so nobody starves"),
        ("scan-up", "all waiting jobs of a size, then of the next larger (Krueger et al.)"),
        ("scan-down", "all waiting jobs of a size, then of the next smaller (Krueger et al.)"),
    ],
    find: |name| match name {
        "scan" => maker(|_| Scan::default()),
        "scan-up" => maker(|_| ScanUp::default()),
        "scan-down" => maker(|_| ScanDown::default()),
        _ => None,
    },
};

const DHC: PolicyFamily = PolicyFamily {
    names: &[
        ("dhc", "gang scheduling by a hierarchy of controllers, with selective disabling"),
        ("dhc:no-disabling", "the same, with what a job leaves of its partition idle"),
    ],
    find: |name| match name {
        "dhc" => maker(|limits| Dhc::new(limits.jobs_per_processor, true)),
        "dhc:no-disabling" => maker(|limits| Dhc::new(limits.jobs_per_processor, false)),
        _ => None,
    },
};

fn maker<P: Policy + Send + 'static>(
    make: impl Fn(Limits) -> P + Send + Sync + 'static,
) -> Option<Make> {
    Some(Box::new(move |limits| Box::new(make(limits))))
}

/// What makes the policy called `name`.
///
/// # Errors
/// No policy is called that; the error names the nearest.
pub fn find(name: &str) -> Result<PolicyMaker, UnknownPolicy> {
    let found = FAMILIES.iter().find_map(|family| (family.find)(name));
    found.map(PolicyMaker).ok_or_else(|| UnknownPolicy {
        name: name.to_owned(),
        nearest: nearest(name),
        because: name.parse::<DqtConfig>().err().filter(|why| *why != DqtNameError::Prefix),
    })
}

/// The policy called `name`, without nodes or jobs.
///
/// # Errors
/// No policy is called that; the error names the nearest.
pub fn by_name(name: &str, limits: Limits) -> Result<BoxedPolicy, UnknownPolicy> {
    Ok(find(name)?.make(limits))
}

/// Every name with a line of help, families together.
pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    FAMILIES.iter().flat_map(|family| family.names.iter().copied())
}

/// Most names that an error suggests.
const SUGGESTIONS: usize = 3;

fn nearest(wanted: &str) -> Vec<&'static str> {
    let wanted: Vec<char> = wanted.chars().take(64).flat_map(char::to_lowercase).collect();
    let bound = (wanted.len() / 3).max(2);
    let mut near: Vec<(usize, &'static str)> = names()
        .map(|(name, _)| (distance(&wanted, name), name))
        .filter(|&(distance, _)| distance <= bound)
        .collect();
    if near.is_empty() {
        return names().map(|(name, _)| name).collect();
    }
    near.sort_by_key(|&(distance, _)| distance);
    near.into_iter().take(SUGGESTIONS).map(|(_, name)| name).collect()
}

/// Edit distance: how many characters to insert, remove or replace to turn one into the other.
fn distance(wanted: &[char], name: &str) -> usize {
    let mut row: Vec<usize> = (0..=wanted.len()).collect();
    for (line, letter) in name.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, &other) in wanted.iter().enumerate() {
            let replaced = diagonal + usize::from(letter != other);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(diagonal + 1).min(row[column] + 1);
        }
    }
    row[wanted.len()]
}
