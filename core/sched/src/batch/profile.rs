//! Profile of free nodes over time, as far as it is planned.

use alloc::vec;
use alloc::vec::Vec;

/// Steps in ascending order of time: each holds until the next begins, the last for ever. There is
/// always at least one. All are in one array, so a search for room scans neighbouring numbers.
#[derive(Clone, Debug)]
pub(crate) struct Profile(Vec<Step>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Step {
    from: u64,
    free: u32,
}

impl Default for Profile {
    fn default() -> Self {
        Self::new(0, 0)
    }
}

impl Profile {
    /// A profile with this many nodes free for ever.
    pub(crate) fn new(now: u64, free: u32) -> Self {
        Self(vec![Step { from: now, free }])
    }

    /// The step that holds at `time`.
    fn at(&self, time: u64) -> usize {
        self.0.partition_point(|step| step.from <= time).saturating_sub(1)
    }

    /// Makes a step begin at `time`, which is not before the first. Returns its index.
    fn cut(&mut self, time: u64) -> usize {
        let index = self.at(time);
        if self.0[index].from == time {
            return index;
        }
        let free = self.0[index].free;
        self.0.insert(index + 1, Step { from: time, free });
        index + 1
    }

    fn change(&mut self, from: u64, length: u64, by: impl Fn(u32) -> u32) {
        let to = from.saturating_add(length);
        let from = from.max(self.0[0].from);
        if from >= to {
            return;
        }
        let first = self.cut(from);
        // A reservation to the end of time never ends.
        let end = if to == u64::MAX { self.0.len() } else { self.cut(to) };
        self.0[first..end].iter_mut().for_each(|step| step.free = by(step.free));
        self.merge(end);
        self.merge(first);
    }

    /// Drops a step that does not differ from the one before.
    fn merge(&mut self, index: usize) {
        if index > 0 && index < self.0.len() && self.0[index - 1].free == self.0[index].free {
            self.0.remove(index);
        }
    }

    /// Takes nodes from `from` on for `length` nanoseconds.
    pub(crate) fn take(&mut self, from: u64, length: u64, nodes: u32) {
        self.change(from, length, |free| free.saturating_sub(nodes));
    }

    /// Gives back nodes that were taken.
    pub(crate) fn give(&mut self, from: u64, length: u64, nodes: u32) {
        self.change(from, length, |free| free.saturating_add(nodes));
    }

    /// Adds nodes for ever.
    pub(crate) fn grow(&mut self, nodes: u32) {
        self.0.iter_mut().for_each(|step| step.free = step.free.saturating_add(nodes));
    }

    /// Drops the part before `now`.
    pub(crate) fn forget_before(&mut self, now: u64) {
        let index = self.at(now);
        self.0.drain(..index);
        self.0[0].from = self.0[0].from.max(now);
    }

    /// The first time, not before `from`, at which `nodes` become free for `length` nanoseconds;
    /// `None` if they never do.
    pub(crate) fn earliest(&self, from: u64, length: u64, nodes: u32) -> Option<u64> {
        Self::room(&self.0[self.at(from)..], from, length, nodes)
    }

    /// The first time, not before `from`, to which a reservation of so many nodes that begins at `start` can move. The
    /// reservation is taken in the profile, and does not stand in its own way. `None` if it stays.
    pub(crate) fn earlier(&self, from: u64, start: u64, length: u64, nodes: u32) -> Option<u64> {
        if start <= from {
            return None;
        }
        // From `start` on it has its own nodes.
        let before = self.0[self.at(from)..].iter().take_while(|step| step.from < start);
        Self::room(before, from, length, nodes)
    }

    /// The first time, not before `from`, at which `nodes` become free in these steps. They stay free for `length` nanoseconds
    /// or to the last of the steps.
    fn room<'a>(
        steps: impl IntoIterator<Item = &'a Step>,
        from: u64,
        length: u64,
        nodes: u32,
    ) -> Option<u64> {
        let mut begin: Option<u64> = None;
        for step in steps {
            if begin.is_some_and(|begin| step.from > begin.saturating_add(length.max(1) - 1)) {
                break;
            }
            if step.free < nodes {
                begin = None;
            } else {
                begin = begin.or(Some(step.from.max(from)));
            }
        }
        begin
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_found_between_what_is_taken() {
        let mut profile = Profile::new(10, 4);
        profile.take(20, 10, 3);
        profile.take(25, 20, 1);
        assert_eq!(profile.earliest(10, 10, 2), Some(10));
        assert_eq!(profile.earliest(10, 11, 2), Some(30));
        assert_eq!(profile.earliest(10, 16, 1), Some(30));
        assert_eq!(profile.earliest(10, 15, 1), Some(10));
        assert_eq!(profile.earliest(12, 1, 4), Some(12));
        assert_eq!(profile.earliest(12, u64::MAX, 4), Some(45));
        assert_eq!(profile.earliest(10, 1, 5), None);
        profile.give(20, 10, 3);
        profile.give(25, 20, 1);
        assert_eq!(profile.0, [Step { from: 10, free: 4 }]);
        profile.take(20, u64::MAX, 4);
        assert_eq!((profile.earliest(10, 10, 4), profile.earliest(10, 11, 4)), (Some(10), None));
        profile.grow(1);
        assert_eq!(profile.earliest(10, 11, 1), Some(10));
        profile.forget_before(50);
        assert_eq!(profile.0, [Step { from: 50, free: 1 }]);
    }

    /// `earlier` finds what giving the reservation back and asking anew would.
    #[test]
    fn a_reservation_does_not_stand_in_its_own_way() {
        let mut random = 1_u64;
        let mut below = move |bound: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % bound
        };
        let mut moved = 0;
        for _ in 0..if cfg!(miri) { 20 } else { 2_000 } {
            let mut profile = Profile::new(0, 6);
            let mut reservations = Vec::new();
            for _ in 0..8 {
                let (length, nodes) = (below(12), 1 + below(6) as u32);
                let start = profile.earliest(below(30), length, nodes).expect("it is free at last");
                profile.take(start, length, nodes);
                reservations.push((start, length, nodes));
            }
            let gone = below(8) as usize;
            let (start, length, nodes) = reservations.remove(gone);
            profile.give(start, length, nodes);
            let now = below(10);
            for (start, length, nodes) in reservations {
                let mut without = profile.clone();
                without.give(start, length, nodes);
                let anew = without.earliest(now, length, nodes).filter(|&at| at < start);
                assert_eq!(profile.earlier(now, start, length, nodes), anew);
                moved += u32::from(anew.is_some());
            }
        }
        assert!(moved > 0);
    }

    #[test]
    fn no_time_at_all_needs_room_too() {
        let mut profile = Profile::new(0, 1);
        profile.take(0, 5, 1);
        assert_eq!(profile.earliest(0, 0, 1), Some(5));
    }
}
