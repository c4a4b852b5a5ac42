//! Generations of timetables: the number of the head that made one, then which of its timetables it is.
//!
//! Each head draws its number. So no clock and no file decides which of two timetables is newer: of one head the
//! later, and of two heads the one that came later, because nodes hear of a head only by links that it has.

/// Bits of a generation that count the timetables of one head.
const COUNT_BITS: u32 = 32;

/// Generation of the first timetable of a head with this number.
pub(crate) fn first_generation(head: u32) -> u64 {
    u64::from(head) << COUNT_BITS | 1
}

/// Whether a timetable of this generation, which comes now, replaces one that came before.
pub(crate) fn replaces(new: u64, old: u64) -> bool {
    new >> COUNT_BITS != old >> COUNT_BITS || new > old
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_timetables_and_other_heads_replace() {
        let (low, high) = (first_generation(3), first_generation(u32::MAX));
        assert!(replaces(low, 0) && replaces(high, 0) && replaces(first_generation(0), 0));
        assert!(replaces(low + 1, low) && !replaces(low, low) && !replaces(low, low + 1));
        assert!(replaces(low, high + 7) && replaces(high, low));
    }
}
