//! Calls of routines over networks in virtual time: the queueing model of the Ninf paper, section 4.
//!
//! A call goes out over its site's path, is computed at a server, and comes back. Paths and servers are
//! queues: first come, first served, or shared equally by all jobs in them. The broker `kumi-broker`, the
//! same code as in a metaserver, chooses the server and decides which calls wait.
//!
//! [`Model`] describes the system, [`run`] simulates it, and [`Report`] has the results.

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
