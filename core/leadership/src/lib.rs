//! Which of several processes leads, and until when it is sure of that.
//!
//! A store that all of them reach holds the leader's key, which goes with a lease. Whoever makes the key leads until the lease
//! is over by the store's clock. The leader itself counts from the moment at which it *asked* for a renewal, and only to four
//! fifths of the lease. So it stops before the store lets another lead, as long as clocks differ by less than a fifth.
//!
//! What the leader acknowledges is on the machines of others, too: [`Copies`] says who has it.
//!
//! Times are nanoseconds of a clock that no one can set, and that goes on while the machine sleeps.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod candidacy;
mod copies;
mod matching;
mod term;

pub use candidacy::{Claim, LeaderKey, Step, may_claim, next_step};
pub use copies::Copies;
pub use matching::{TermEnds, common_end};
pub use term::Term;

/// Nanoseconds.
pub type Nanos = u64;
