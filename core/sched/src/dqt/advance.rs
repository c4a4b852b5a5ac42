//! Fast advance of a queue tree over many slots at once.

use super::Dqt;

impl Dqt {
    /// So many slots pass. Whole rounds of the root are left out: what they change is known.
    pub(super) fn pass(&mut self, slots: u64) {
        if !self.front.is_live() {
            return;
        }
        if self.config.shares {
            return self.pass_until_it_repeats(slots);
        }
        let mut left = slots;
        // Where few slots are left, to run them is the shortest way.
        while left > u64::from(self.loads.nodes[0].most) {
            if let Some(length) = self.front.planned() {
                self.front.skip(left / length);
                left %= length;
                break;
            }
            left -= self.finish_round(left);
        }
        (0..left).for_each(|_| self.front.next_turn(|_, _| {}));
    }

    /// The same with fair shares: of the slots those are left out that only repeat what was before,
    /// from where the root begins a round to where it does so with the same positions in all
    /// queues. Where that takes longer than [`DqtConfig::horizon`](super::DqtConfig::horizon), whole
    /// rounds are left out, and only which job of a queue is next is not what it would have been.
    fn pass_until_it_repeats(&mut self, slots: u64) {
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
