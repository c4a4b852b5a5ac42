//! Which server a call of a routine goes to (paper 4, sections 2 and 5): the decisions of the metaserver as a
//! pure state machine. Events and the time go in, actions come out.
//!
//! [`Broker`] keeps the servers and what they offer, the network between the sites of clients and servers as it
//! was measured, and the calls from their submission to their one end. It queues what no server has room for,
//! in fair shares between users, and starts a call again elsewhere only where that cannot run it twice. Which of
//! the servers is taken is up to a [`Policy`], found by its name. [`Graph`] is a transaction: calls that were
//! recorded, with the dependencies that follow from their arguments.
//!
//! Nothing here knows a clock, a socket or a random number: the metaserver and the simulator run the same code.
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
