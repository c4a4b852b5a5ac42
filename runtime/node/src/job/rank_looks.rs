//! Counts of looks at the ranks of a job, from which their load is known.

/// How often a job's ranks were seen, and busy. Counts only rise, so that each reader takes differences of its own.
#[derive(Debug)]
pub struct RankLooks {
    /// Looks in which the ranks could run.
    turns: u64,
    /// Of these, those in which each rank had something to do.
    busy: Vec<u64>,
    /// Both as of the last [`RankLooks::take_permille`].
    told: (u64, Vec<u64>),
}

impl RankLooks {
    /// None yet, of so many ranks.
    pub fn new(ranks: usize) -> Self {
        Self { turns: 0, busy: vec![0; ranks], told: (0, vec![0; ranks]) }
    }

    /// How many ranks there are.
    pub fn len(&self) -> usize {
        self.busy.len()
    }

    /// Whether there are no ranks.
    pub fn is_empty(&self) -> bool {
        self.busy.is_empty()
    }

    /// The ranks could run, and these of them, by place, had something to do.
    pub fn count(&mut self, is_busy: impl Fn(usize) -> bool) {
        self.turns += 1;
        for (place, busy) in self.busy.iter_mut().enumerate() {
            *busy += u64::from(is_busy(place));
        }
    }

    /// Looks in which the ranks could run.
    pub fn turns(&self) -> u64 {
        self.turns
    }

    /// Of these, those in which each rank had something to do.
    pub fn busy(&self) -> &[u64] {
        &self.busy
    }

    /// The share of looks since the last time in which each rank had something to do, 0 to 1000.
    pub fn take_permille(&mut self) -> Vec<u16> {
        let turns = self.turns - self.told.0;
        let share = |(now, before): (&u64, &u64)| {
            let permille = ((now - before) * 1000).checked_div(turns).unwrap_or(0);
            u16::try_from(permille).unwrap_or(1000)
        };
        let shares = self.busy.iter().zip(&self.told.1).map(share).collect();
        self.told = (self.turns, self.busy.clone());
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_looks_since_the_last_time() {
        let mut looks = RankLooks::new(2);
        assert_eq!((looks.take_permille(), looks.len(), looks.is_empty()), (vec![0, 0], 2, false));
        looks.count(|place| place == 0);
        looks.count(|_| true);
        assert_eq!(looks.take_permille(), [1000, 500]);
        looks.count(|_| false);
        assert_eq!(looks.take_permille(), [0, 0]);
        assert_eq!((looks.turns(), looks.busy()), (3, &[2, 1][..]));
    }
}
