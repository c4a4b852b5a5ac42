//! Why jobs wait, and how long they may.

use alloc::vec::Vec;
use core::fmt;

use kumi_sched::JobId;
use serde::{Deserialize, Serialize};

use crate::deadlock::Verdict;
use crate::message::{JobRecord, Nanos};

/// How long a job may wait in the queue; then the head withdraws it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitLimit {
    /// Not at all: it starts at once or is refused.
    No,
    /// So many nanoseconds, at most [`crate::message::LONGEST_ESTIMATE`].
    AtMost(Nanos),
    /// As long as it takes.
    Forever,
}

/// What a job waits for that has not started. As text it is the part of a sentence that gives the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WaitReason {
    /// How many nodes it wants depends on nodes, and these have not attached yet.
    NodesAttaching {
        /// Nodes that are up.
        up: u32,
        /// Configured nodes.
        nodes: u32,
    },
    /// It wants more than the nodes have that are up.
    NodesDown {
        /// Processors that it wants.
        wanted: u32,
        /// Processors of the nodes that are up.
        has: u32,
        /// Nodes that are up.
        up: u32,
        /// Configured nodes.
        nodes: u32,
    },
    /// Other jobs have the processors, which it would have for itself.
    ProcessorsTaken {
        /// Processors that it wants.
        wanted: u32,
        /// Processors without a job. They may suffice in number and not be where it can use them.
        free: u32,
    },
    /// The processors that it could have are full.
    ProcessorsFull {
        /// Most jobs on one processor.
        limit: u32,
    },
    /// Other jobs have the memory or devices that it wants.
    ResourcesTaken,
    /// A job before it in the queue, which the policy serves first.
    Behind {
        /// That job.
        job: JobId,
    },
    /// A job after which it runs is not over.
    After {
        /// That job.
        job: JobId,
    },
    /// As many tasks of its array as may are under way.
    ArrayFull {
        /// So many.
        most: u32,
    },
    /// It has its nodes, and they prepare.
    Preparing {
        /// Those that are ready.
        ready: u32,
        /// All of its nodes.
        nodes: u32,
    },
    /// It wants more than the nodes have that take jobs, and some are drained.
    NodesDrained {
        /// Processors that it wants.
        wanted: u32,
        /// Processors of the nodes that take jobs.
        has: u32,
        /// Nodes that take jobs.
        take: u32,
        /// Nodes that are drained.
        drained: u32,
        /// Configured nodes.
        nodes: u32,
    },
    /// A later job goes before it: that job's user has spent less.
    BehindShare {
        /// That job.
        job: JobId,
    },
}

impl WaitReason {
    /// The kind without numbers, as a word for programs.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::NodesAttaching { .. } => "nodes_attaching",
            Self::NodesDown { .. } => "nodes_down",
            Self::ProcessorsTaken { .. } => "processors_taken",
            Self::ProcessorsFull { .. } => "processors_full",
            Self::ResourcesTaken => "resources_taken",
            Self::Behind { .. } => "behind",
            Self::After { .. } => "after",
            Self::ArrayFull { .. } => "array_full",
            Self::Preparing { .. } => "preparing",
            Self::NodesDrained { .. } => "nodes_drained",
            Self::BehindShare { .. } => "behind_share",
        }
    }
}

/// `1 processor`, `3 processors`.
struct Processors(u32);

impl fmt::Display for Processors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} processor{}", self.0, if self.0 == 1 { "" } else { "s" })
    }
}

/// A job wants more than nodes have; `which` completes "the nodes that".
fn too_few_nodes(
    f: &mut fmt::Formatter<'_>,
    (wanted, has): (u32, u32),
    which: &str,
    (count, of): (u32, u32),
) -> fmt::Result {
    let processors = Processors(wanted);
    if has < wanted {
        return write!(
            f,
            "it wants {processors}, and the nodes that {which}, {count} of {of}, have {has}"
        );
    }
    write!(
        f,
        "it wants {processors} with its memory and devices, each rank on one node, and no nodes that {which}, \
         {count} of {of}, have them"
    )
}

impl fmt::Display for WaitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::NodesAttaching { up, nodes } => {
                write!(f, "the cluster's nodes have not all attached yet, {up} of {nodes} have")
            }
            Self::NodesDown { wanted, has, up, nodes } => {
                too_few_nodes(f, (wanted, has), "are up", (up, nodes))
            }
            Self::ProcessorsTaken { wanted, free } if free < wanted => {
                let wanted = Processors(wanted);
                write!(f, "it wants {wanted} without another job, and {free} are free")
            }
            Self::ProcessorsTaken { wanted, free } => write!(
                f,
                "it wants {}, and the {free} that are free are not on the nodes or in the partition for it",
                Processors(wanted)
            ),
            Self::ProcessorsFull { limit } => write!(
                f,
                "a processor takes at most {limit} job{}, and those for it have as many",
                if limit == 1 { "" } else { "s" }
            ),
            Self::ResourcesTaken => {
                write!(f, "other jobs have the memory or the devices that it wants")
            }
            Self::Behind { job } => write!(f, "job {job} is before it in the queue"),
            Self::BehindShare { job } => write!(
                f,
                "job {job} is before it in the queue, whose user has spent less (`kumi usage --shares`)"
            ),
            Self::After { job } => write!(f, "job {job} has to be over first"),
            Self::ArrayFull { most } => {
                write!(
                    f,
                    "its array has at most {most} task{} at a time",
                    if most == 1 { "" } else { "s" }
                )
            }
            Self::Preparing { ready, nodes } => {
                write!(f, "its nodes prepare, {ready} of {nodes} are ready")
            }
            Self::NodesDrained { wanted, has, take, drained, nodes } => {
                too_few_nodes(f, (wanted, has), "take jobs", (take, nodes))?;
                write!(f, "; {drained} {} drained", if drained == 1 { "is" } else { "are" })
            }
        }
    }
}

/// Jobs as the head lists them for a user.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobList {
    /// The jobs, ascending, without environments and keys.
    pub records: Vec<JobRecord>,
    /// Which running jobs are idle, so that they have no slots, ascending.
    pub idle: Vec<JobId>,
    /// Which running jobs are stopped, ascending.
    pub stopped: Vec<JobId>,
    /// What those of them that have not started wait for, ascending.
    pub waiting: Vec<(JobId, WaitReason)>,
}

impl JobList {
    /// This list and one of later jobs.
    #[must_use]
    pub fn followed_by(mut self, later: Self) -> Self {
        self.records.extend(later.records);
        self.idle.extend(later.idle);
        self.stopped.extend(later.stopped);
        self.waiting.extend(later.waiting);
        self
    }

    /// Whether the job runs and has nothing to do.
    pub fn is_idle(&self, job: JobId) -> bool {
        self.idle.binary_search(&job).is_ok()
    }

    /// Whether the job has something to do, if it runs.
    pub fn verdict(&self, job: JobId) -> Verdict {
        match self.stopped.binary_search(&job) {
            Ok(_) => Verdict::Stopped,
            Err(_) if self.is_idle(job) => Verdict::Idle,
            Err(_) => Verdict::Running,
        }
    }

    /// What the job waits for, if it has not started.
    pub fn waits_for(&self, job: JobId) -> Option<&WaitReason> {
        let index = self.waiting.binary_search_by_key(&job, |(waiting, _)| *waiting).ok()?;
        Some(&self.waiting[index].1)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn reasons_in_words() {
        let job = JobId(7);
        let cases = [
            (
                WaitReason::NodesDown { wanted: 4, has: 3, up: 3, nodes: 4 },
                "it wants 4 processors, and the nodes that are up, 3 of 4, have 3",
            ),
            (
                WaitReason::NodesDown { wanted: 4, has: 4, up: 2, nodes: 4 },
                "it wants 4 processors with its memory and devices, each rank on one node, and no nodes that are up, \
                 2 of 4, have them",
            ),
            (
                WaitReason::ProcessorsTaken { wanted: 1, free: 0 },
                "it wants 1 processor without another job, and 0 are free",
            ),
            (
                WaitReason::ProcessorsTaken { wanted: 2, free: 2 },
                "it wants 2 processors, and the 2 that are free are not on the nodes or in the partition for it",
            ),
            (
                WaitReason::ProcessorsFull { limit: 1 },
                "a processor takes at most 1 job, and those for it have as many",
            ),
            (WaitReason::ResourcesTaken, "other jobs have the memory or the devices that it wants"),
            (WaitReason::Behind { job }, "job 7 is before it in the queue"),
            (
                WaitReason::BehindShare { job },
                "job 7 is before it in the queue, whose user has spent less (`kumi usage --shares`)",
            ),
            (WaitReason::After { job }, "job 7 has to be over first"),
            (WaitReason::ArrayFull { most: 1 }, "its array has at most 1 task at a time"),
            (
                WaitReason::NodesDrained { wanted: 4, has: 2, take: 2, drained: 1, nodes: 3 },
                "it wants 4 processors, and the nodes that take jobs, 2 of 3, have 2; 1 is drained",
            ),
            (
                WaitReason::NodesDrained { wanted: 1, has: 2, take: 2, drained: 2, nodes: 4 },
                "it wants 1 processor with its memory and devices, each rank on one node, and no nodes that take \
                 jobs, 2 of 4, have them; 2 are drained",
            ),
        ];
        for (reason, words) in cases {
            assert_eq!(reason.to_string(), words);
        }
    }
}
