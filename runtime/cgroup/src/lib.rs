//! Control groups: one set of groups for each node and each job of it, and for each server of routines and each slot of it.
//!
//! The first group of a set is of version 2. Processes are born in it, stopped, killed and waited for by it. Limits are
//! there, too, where version 2 has the controllers. Where version 1 has them, as on systems that mount both, the set also
//! has a group in each such hierarchy, which processes join before they become the program.
//!
//! | file | content |
//! |---|---|
//! | `mounts` | the hierarchies of the machine |
//! | `unified` | a group of version 2 |
//! | `part` | files of limits in both versions |
//! | `node` | the groups of a node: where they may be, and which controllers they have |
//! | `job` | the groups of a job, and its limits |
//! | `counters` | how often limits were reached, in open files |
//! | `again` | groups that a former daemon made |
//! | `server` | the groups of a server of routines and of its slots |
#![forbid(unsafe_code)]

mod again;
mod counters;
mod folder;
mod job;
mod mounts;
mod node;
mod part;
mod server;
mod unified;

pub use counters::{LimitCounters, LimitCounts};
pub use job::{JobGroups, JobLimits};
pub use mounts::{Controller, mount_point, mount_points};
pub use node::{DaemonGroup, NodeGroups, NodeLimits, memory_limit};
pub use part::{DeviceNumber, IdleSwitch};
pub use server::{ServerGroups, SlotLimits};
pub use unified::ControlGroup;
