//! Verdicts on jobs: whether the ranks of a job wait for each other for ever, and why. Readings go in, standings, rounds and
//! verdicts come out. The design is in `docs/design/verdicts.md`.

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod explanation;
mod judge;
mod node_watch;
mod reading;
mod wait;

pub use explanation::{Cause, Explanation};
pub use judge::{Judge, Ruling};
pub use node_watch::{NodeWatch, Standing};
pub use reading::{
    FINAL_ROUND, MOST_HELD, MOST_LISTED, MOST_WAITS, NodeReading, RankReading, RankStanding,
    Summary,
};
pub use wait::{CALL_BYTES, CallName, Wait, WaitKind};
