//! Calls of routines over networks in virtual time: the queueing model of the Ninf paper, section 4.
//!
//! A call goes out over its site's path, is computed at a server, and comes back. Paths and servers are queues:
//! first come, first served, or shared equally by all who are there. Which server is taken, and who waits, is
//! decided by `kumi-broker`, the very code that a metaserver runs.
//!
//! [`Model`] says what there is, [`run`] simulates it, [`Report`] says what came of it.

mod engine;
pub mod figures;
mod model;
mod plan;
mod report;
mod run;
mod station;
mod tally;

pub use model::{Clients, Discipline, Law, Link, Model, Routine, Server, Site, Source, Task};
pub use report::{LinkReport, Report, Row, ServerReport, Spread, csv};
pub use run::{Options, run, run_all};
