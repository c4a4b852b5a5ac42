//! Gang scheduling as pure algorithms: jobs and nodes go in, a cyclic timetable comes out.
//!
//! Nothing here knows a clock, a socket or a random number: the head of a cluster and the job
//! simulator run the same code.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

mod batch;
mod bits;
mod buddy;
mod demand;
mod dhc;
mod dqt;
mod inventory;
mod matrix;
mod numbering;
mod policy;
pub mod registry;
mod round;
mod scan;
mod shares;
mod slice;
mod timetable;

pub use demand::{Amounts, Demand, KINDS, NodeResources, PartSize};
pub use dqt::{
    AllocationPolicy, Dqt, DqtConfig, DqtJob, DqtNameError, DqtNode, DqtState, Fragmentation,
};
pub use matrix::MatrixGang;
pub use numbering::{Numbering, RenewedColumns};
pub use policy::{ArriveError, Obstacle, Placement, Policy, Request, Sharing, UserId};
pub use round::{Line, Round};
pub use shares::{FairPolicy, FairShares, ORDINARY_WEIGHT, QueueRank, ShareRules, UserShare};
pub use slice::{LONGEST_CHOSEN, SHORTEST_CHOSEN, SliceChooser, SliceLength, round_slots};
pub use timetable::{
    ClusterTime, Column, JobId, Mode, NodeId, ProcessorColumn, ProcessorId, Timetable,
};
