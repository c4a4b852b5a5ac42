//! Fast advance of a queue tree over many slots at once.

use super::Dqt;

impl Dqt {
    /// Lets this many slots pass. It skips whole rounds of the root, whose effect is known.
    pub(super) fn pass(&mut self, slots: u64) {
        if !self.front.is_live() {
            return;
        }
        if self.config.shares {
            return self.pass_until_it_repeats(slots);
        }
        let mut left = slots;
        // With few slots left it is quickest to run them.
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

    /// The same with fair shares. It skips slots that only repeat earlier ones: those between two
    /// beginnings of the root's round with the same positions in all queues. If no repetition is
    /// found within [`DqtConfig::horizon`](super::DqtConfig::horizon) slots, it skips whole rounds.
    /// Then only the choice of the next job in a queue may differ from running every slot.
    fn pass_until_it_repeats(&mut self, slots: u64) {
        let horizon = u64::from(self.config.horizon);
        // The rest of the present round may differ from later rounds.
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

    /// Runs slots until the root begins a round, at most this many. Returns how many.
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
