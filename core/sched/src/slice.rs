//! Length of a slice: as it is set, or chosen from the timetable.
//!
//! A job that comes back to its turn finds less in the caches than it left there, so long slices cost less. A person notices how
//! long a job waits for its turn: all other slots of a round. The chooser takes the longest slice whose round is still short.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::timetable::{Column, JobId};

const MS: u64 = 1_000_000;
/// Shortest slice that is chosen, in nanoseconds: below it switching costs more than a per cent.
pub const SHORTEST_CHOSEN: u64 = MS;
/// Longest slice that is chosen, in nanoseconds: a longer one saves no more than a per cent.
pub const LONGEST_CHOSEN: u64 = 100 * MS;
/// Length of a round in nanoseconds: such a delay is hardly noticed.
const ROUND: u64 = 200 * MS;
/// The same while somebody works with one of the jobs.
const INTERACTIVE_ROUND: u64 = 100 * MS;
/// A slice stays while it is within one part in so many of what would be chosen.
const TOLERANCE: u64 = 4;

/// How long slices are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SliceLength {
    /// Chosen for the jobs that take turns, see [`SliceChooser`].
    Auto,
    /// So many nanoseconds, whatever runs.
    Fixed(u64),
}

/// Chooses the slice of each timetable.
///
/// A round of [`SliceLength::Auto`] lasts about 200 ms, or 100 ms where a job is interactive, and its slices 1 to 100 ms.
#[derive(Clone, Copy, Debug)]
pub struct SliceChooser {
    length: SliceLength,
    /// What was chosen last; none until then.
    chosen: Option<u64>,
}

impl SliceChooser {
    /// Slices of this length.
    pub fn new(length: SliceLength) -> Self {
        Self { length, chosen: None }
    }

    /// How long slices are to be.
    pub fn length(&self) -> SliceLength {
        self.length
    }

    /// Slices are of another length from the next timetable on.
    pub fn set(&mut self, length: SliceLength) {
        if self.length != length {
            *self = Self::new(length);
        }
    }

    /// The slice in nanoseconds, never 0, as it is without a new choice.
    pub fn current(&self) -> u64 {
        match self.length {
            SliceLength::Fixed(slice_ns) => slice_ns.max(1),
            SliceLength::Auto => self.chosen.unwrap_or(LONGEST_CHOSEN),
        }
    }

    /// The slice in nanoseconds, never 0, for a timetable whose rounds have so many slots ([`round_slots`]). `interactive`:
    /// somebody works with one of its jobs.
    pub fn choose(&mut self, slots: u64, interactive: bool) -> u64 {
        if self.length == SliceLength::Auto {
            let wanted = wanted(slots, interactive);
            self.chosen = self.chosen.filter(|&chosen| is_near(chosen, wanted)).or(Some(wanted));
        }
        self.current()
    }
}

/// The longest slice in whole milliseconds whose round is short enough.
fn wanted(slots: u64, interactive: bool) -> u64 {
    let round = if interactive { INTERACTIVE_ROUND } else { ROUND };
    let slice = round / slots.max(1);
    (slice - slice % MS).clamp(SHORTEST_CHOSEN, LONGEST_CHOSEN)
}

/// Whether two slices differ so little that neither is worth a change.
fn is_near(one: u64, other: u64) -> bool {
    let (low, high) = (one.min(other), one.max(other));
    (high - low) * TOLERANCE <= low
}

/// Slots after which every job has had a turn, as the mean over its column for the job with the fewest turns; 0 without jobs.
///
/// A column often has several rounds. Where it is cut, one job may have a turn less than another.
pub fn round_slots(columns: &[Column]) -> u64 {
    let mut most = 0;
    let mut jobs: Vec<JobId> = Vec::new();
    let mut before: &[_] = &[];
    for column in columns {
        // Nodes of the same jobs follow one another.
        if column.slots == before {
            continue;
        }
        before = &column.slots;
        jobs.clear();
        jobs.extend(column.slots.iter().flatten());
        jobs.sort_unstable();
        let fewest = jobs.chunk_by(|one, other| one == other).map(<[_]>::len).min();
        if let Some(turns) = fewest {
            most = most.max(before.len().div_ceil(turns));
        }
    }
    most as u64
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::timetable::NodeId;

    fn column(node: u32, slots: &[u64]) -> Column {
        Column { node: NodeId(node), slots: slots.iter().map(|&job| vec![JobId(job)]).collect() }
    }

    #[test]
    fn a_round_is_that_of_the_job_with_the_fewest_turns() {
        assert_eq!(round_slots(&[]), 0);
        assert_eq!(round_slots(&[column(0, &[1])]), 1);
        assert_eq!(round_slots(&[column(0, &[1, 2, 3])]), 3);
        assert_eq!(round_slots(&[column(0, &[1, 2, 1, 2])]), 2, "two rounds");
        assert_eq!(round_slots(&[column(0, &[1, 1, 1, 2])]), 4, "a job of priority 3");
        assert_eq!(round_slots(&[column(0, &[1, 1, 1]), column(1, &[1, 2, 3])]), 3);
        assert_eq!(round_slots(&[column(0, &[1, 2, 3, 1])]), 4, "cut");
        let idle = Column { node: NodeId(0), slots: vec![Vec::new(); 3] };
        assert_eq!(round_slots(core::slice::from_ref(&idle)), 0);
        assert_eq!(round_slots(&[idle, column(1, &[5, 5, 6])]), 3);
    }

    #[test]
    fn slices_are_as_long_as_a_round_permits() {
        let chosen = |slots, interactive| {
            SliceChooser::new(SliceLength::Auto).choose(slots, interactive) / MS
        };
        let of = |interactive| [0, 1, 2, 3, 10, 200, 5_000].map(|slots| chosen(slots, interactive));
        assert_eq!(of(false), [100, 100, 100, 66, 20, 1, 1]);
        assert_eq!(of(true), [100, 100, 50, 33, 10, 1, 1]);
    }

    #[test]
    fn small_changes_change_nothing() {
        let mut chooser = SliceChooser::new(SliceLength::Auto);
        let slots = [10, 11, 12, 13, 12, 11, 10, 9, 8, 7, 6];
        let slices = slots.map(|slots| chooser.choose(slots, false) / MS);
        assert_eq!(slices, [20, 20, 20, 15, 15, 15, 20, 20, 20, 28, 28]);
        chooser.set(SliceLength::Auto);
        assert_eq!(chooser.current(), 28 * MS, "as it was");
        chooser.set(SliceLength::Fixed(5));
        chooser.set(SliceLength::Auto);
        assert_eq!(chooser.choose(6, false), 33 * MS, "nothing to compare with");
    }
}
