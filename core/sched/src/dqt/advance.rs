//! Many slots at once.

use super::Dqt;

impl Dqt {
    /// So many slots pass, of which those are left out that only repeat what was before: from where
    /// the root begins a round to where it does so with the same positions in all queues. Where that
    /// takes longer than [`DqtConfig::horizon`](super::DqtConfig::horizon), whole rounds are left
    /// out, and only which job of a queue is next is not what it would have been.
    pub(super) fn pass(&mut self, slots: u64) {
        let rings = &self.front.rings;
        if !self.jobs.values().any(|&member| rings.members[member as usize].active()) {
            return;
        }
        let horizon = u64::from(self.config.horizon);
        // The rest of the present round may be unlike those that follow.
        let mut left = slots - self.finish_round(slots);
        let begun = self.front.clone();
        let mut length = 0;
        while left > 0 {
            let passed = self.finish_round(left);
            length += passed;
            left -= passed;
            if left >= length && (length >= horizon || self.front.same(&begun)) {
                let times = left / length;
                self.front.rounds += times * (self.front.rounds - begun.rounds);
                left -= times * length;
            }
        }
    }

    /// Runs slots until the root begins a round, at most so many. Returns how many.
    fn finish_round(&mut self, most: u64) -> u64 {
        let rounds = self.front.rounds;
        let mut slots = 0;
        while slots < most && self.front.rounds == rounds {
            self.front.next_turn(|_, _| {});
            slots += 1;
        }
        slots
    }
}
