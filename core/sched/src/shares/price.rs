//! What things cost: the more of a thing is wanted, the more.

use super::decay::{self, Decay};
use crate::demand::{Amounts, KINDS};

/// A price of 1.
pub(super) const PAR: u64 = 1_024;
/// The least price: what nobody else wants is nearly free, but not quite, or nobody would care how much it is.
const LEAST: u64 = PAR / 8;
/// The highest: beyond it a price tells nobody anything new.
const MOST: u64 = 4 * PAR;
/// Most that is ever spent, so that no sum overflows.
const CAP: u128 = 1 << 95;
/// Parts of a processor in which holdings are counted.
const PARTS: u64 = 1_024;
/// Processors, and the kinds of other things.
const THINGS: usize = KINDS + 1;
/// What is spent in a microsecond with one processor, at a price of 1.
const MICROSECOND: u128 = 1_000 * (PAR * PARTS) as u128;

/// What somebody holds of each thing, in 1,024ths of a processor. Of memory and devices, holding all that the machine has counts
/// as holding all of its processors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Holding([u64; THINGS]);

impl Holding {
    pub(super) fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine = mine.saturating_add(theirs);
        }
    }

    pub(super) fn subtract(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine = mine.saturating_sub(theirs);
        }
    }

    /// The same without processors, as of a job that has no turns.
    pub(super) fn without_turns(mut self) -> Self {
        self.0[0] = 0;
        self
    }

    /// What that costs in so many nanoseconds, at a price of 1.
    pub(super) fn at_par(&self, ns: u64) -> u128 {
        let held: u128 = self.0.iter().map(|&held| u128::from(held)).sum();
        (held * u128::from(PAR)).saturating_mul(ns.into()).min(CAP)
    }
}

/// What the machine has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Capacity {
    pub(super) processors: u64,
    pub(super) amounts: Amounts,
}

impl Capacity {
    /// What a job holds that takes so many processors and so much else. It holds no more than there is.
    pub(super) fn holding(&self, processors: u32, amounts: &Amounts) -> Holding {
        let mut holding = Holding::default();
        holding.0[0] = u64::from(processors).min(self.processors) * PARTS;
        let all = u128::from(self.processors * PARTS);
        for (kind, held) in holding.0[1..].iter_mut().enumerate() {
            let (taken, total) = (u128::from(amounts.0[kind]), u128::from(self.amounts.0[kind]));
            let part = (taken.min(total) * all).checked_div(total).unwrap_or(0);
            *held = u64::try_from(part).unwrap_or(u64::MAX);
        }
        holding
    }
}

/// Prices, and what holding a thing has cost since the beginning, less what is forgotten.
#[derive(Clone, Debug)]
pub(super) struct PriceIndex {
    decay: Decay,
    at: u64,
    prices: [u64; THINGS],
    /// For a 1,024th of a processor.
    cost: [u128; THINGS],
}

impl PriceIndex {
    pub(super) fn new(half_life_ns: u64) -> Self {
        let (prices, cost) = ([PAR; THINGS], [0; THINGS]);
        Self { decay: Decay::new(half_life_ns), at: 0, prices, cost }
    }

    /// Time passes. It never runs backwards.
    pub(super) fn advance(&mut self, now: u64) {
        if now <= self.at {
            return;
        }
        let split = self.decay.split(self.at, now);
        for (cost, price) in self.cost.iter_mut().zip(self.prices) {
            let price = u128::from(price);
            *cost = match split {
                None => *cost + u128::from(now - self.at) * price,
                Some((before, whole, after)) => {
                    let then = *cost + u128::from(before) * price;
                    decay::left(then, whole + 1)
                        + self.decay.grown(price, whole)
                        + u128::from(after) * price
                }
            }
            .min(CAP);
        }
        self.at = now;
    }

    pub(super) fn now(&self) -> u64 {
        self.at
    }

    /// So much is wanted of each thing, of what there is: all of a thing counts as all of so many processors.
    pub(super) fn set_wanted(&mut self, wanted: &Holding, processors: u64) {
        for (price, wanted) in self.prices.iter_mut().zip(wanted.0) {
            let ratio = wanted.checked_div(processors).unwrap_or(PAR);
            *price = ratio.clamp(LEAST, MOST);
        }
    }

    /// What is left of an amount that somebody had spent so many nanoseconds ago.
    pub(super) fn left(&self, amount: u128, ns: u64) -> u128 {
        decay::left(amount.min(CAP), self.decay.steps(ns))
    }

    /// What a holding has cost in all of the last nanoseconds, at a price of 1.
    pub(super) fn cost_at_par(&self, holding: &Holding, ns: u64) -> u128 {
        let (whole, rest) = (self.decay.steps(ns), ns - self.decay.time(self.decay.steps(ns)));
        let each = self.decay.grown(1, whole) + u128::from(rest);
        (holding.at_par(1)).saturating_mul(each).min(CAP)
    }
}

/// Counts what somebody spends.
#[derive(Clone, Debug)]
pub(super) struct Meter {
    holding: Holding,
    spent: u128,
    /// When `spent` was right, and what things had cost then.
    steps: u64,
    cost: [u128; THINGS],
}

impl Meter {
    /// Somebody who holds nothing, and has spent so much.
    pub(super) fn new(index: &PriceIndex, spent: u128) -> Self {
        let steps = index.decay.steps(index.at);
        Self { holding: Holding::default(), spent: spent.min(CAP), steps, cost: index.cost }
    }

    /// What was spent until the index's time.
    pub(super) fn spent(&self, index: &PriceIndex) -> u128 {
        let steps = index.decay.steps(index.at).saturating_sub(self.steps);
        let since = |thing: usize| {
            let before = decay::left(self.cost[thing], steps);
            u128::from(self.holding.0[thing])
                .saturating_mul(index.cost[thing].saturating_sub(before))
        };
        let more = (0..THINGS).map(since).fold(0u128, u128::saturating_add);
        decay::left(self.spent, steps).saturating_add(more).min(CAP)
    }

    /// From now on that much is held.
    pub(super) fn hold(&mut self, index: &PriceIndex, change: impl FnOnce(&mut Holding)) {
        let spent = self.spent(index);
        let mut holding = self.holding;
        change(&mut holding);
        *self = Self { holding, ..Self::new(index, spent) };
    }

    /// So much was spent besides.
    pub(super) fn add(&mut self, index: &PriceIndex, amount: u128) {
        self.hold(index, |_| {});
        self.spent = self.spent.saturating_add(amount).min(CAP);
    }

    pub(super) fn holding(&self) -> Holding {
        self.holding
    }
}

/// Microseconds of a processor at a price of 1, of an amount.
pub(super) fn microseconds(amount: u128) -> u64 {
    u64::try_from(amount / MICROSECOND).unwrap_or(u64::MAX)
}

/// The amount of so many microseconds of a processor at a price of 1.
pub(super) fn amount(microseconds: u64) -> u128 {
    u128::from(microseconds).saturating_mul(MICROSECOND).min(CAP)
}
