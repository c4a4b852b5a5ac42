//! The scheduler of routine calls (Ninf paper, sections 2 and 5): it decides which server runs a call. It is a pure state
//! machine: events and the time go in, actions come out.
//!
//! - [`Broker`] tracks servers and their routines, the measured network between sites, and calls from submission to their
//!   single end. It queues calls that no server has room for, in fair shares between users. It starts a call again only
//!   where that cannot run the call twice.
//! - A [`Policy`] chooses the server. Policies are found by name.
//! - [`Graph`] is a transaction: recorded calls, with the dependencies that follow from their arguments.
//!
//! This crate knows no clock, no socket and no random number: the metaserver and the simulator run the same code.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod broker;
mod fair_queue;
mod graph;
mod history;
mod model;
mod network;
mod policy;
mod server;
mod similar_names;

pub use broker::{Broker, Config, Counters};
pub use graph::{
    Access, BufferId, DependencyKind, Graph, GraphError, Node, NodeInput, RecordedCall, State,
};
pub use history::LinearFit;
pub use model::{
    Action, CallId, ClientId, Event, Failure, HeldInput, Link, Offer, Outcome, RejectReason,
    Request, ServerId, SiteId, Time, UserId,
};
pub use policy::{Candidate, Policy, Prediction, UnknownPolicy, by_name, policies};
