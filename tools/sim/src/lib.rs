//! Simulators in virtual time: scheduling policies of `kumi-sched` (SCore-D paper, chapter 7), and calls of
//! routines.
//!
//! [`generate`], [`swf`] and [`history`] make lists of jobs. [`engine::run`] runs one policy over one list,
//! and [`report::Report`] has the results. [`sweep::run`] does this for many cases on all cores.
//!
//! [`calls`] is the other simulator: calls of routines over networks. `kumi-broker` chooses their servers.
#![forbid(unsafe_code)]

pub mod calls;
pub mod csv;
pub mod engine;
pub mod error;
pub mod figures;
pub mod generate;
pub mod history;
pub mod job;
mod machine;
pub mod policies;
pub mod random;
pub mod report;
pub mod stats;
pub mod sweep;
pub mod swf;

pub use engine::{Instant, Monitor, Options, Outcome};
pub use error::SimError;
pub use job::{Job, SECOND, Source, Workload};
pub use report::Report;
