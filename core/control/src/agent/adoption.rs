//! Jobs that a former daemon of the node started, and that its successor goes on with.
//!
//! The head knows nothing of the change but that the node attached anew: it compares what the node lists with what should run
//! there, as after any attachment. So an adopted job is one like all others here. Its output goes on at the number where it
//! was, and the head says from where on it wants it again.

use alloc::vec::Vec;

use kumi_sched::JobId;

use super::Agent;
use crate::message::{Nanos, PreparedNode, PreparedRanks, Stream};

/// A started job that the driver found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdoptedJob {
    /// The job.
    pub job: JobId,
    /// First rank of this node, and how many it has. The driver reports again which have exited.
    pub ranks: (u32, u32),
    /// Nothing of it runs any more. Only the head has to hear how it ended.
    pub over: bool,
    /// The answer to `Prepare`.
    pub prepared: PreparedRanks,
    /// Its output, as far as the head has not acknowledged it.
    pub output: Vec<AdoptedOutput>,
}

/// What a rank has written to one of its streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdoptedOutput {
    /// The rank.
    pub rank: u32,
    /// The stream.
    pub stream: Stream,
    /// Number of the first byte that is here. The head has all before it.
    pub base: u64,
    /// The bytes from there on, in pieces as they are to be sent.
    pub pieces: Vec<Vec<u8>>,
}

impl Agent {
    /// Goes on with a job that a former daemon started. To be called before the first event.
    pub fn adopt(&mut self, adopted: AdoptedJob) {
        let AdoptedJob { job, ranks: (first, count), over, prepared, output } = adopted;
        self.jobs.adopt(job, super::commands::rank_numbers(first, count), over);
        for AdoptedOutput { rank, stream, base, pieces } in output {
            self.output.adopt(job, (rank, stream), base, pieces);
        }
        // Repeated at each attachment, as that of a job that was prepared here.
        let prepared = PreparedNode { node: self.node(), result: Ok(prepared) };
        self.reports.keep_prepared(job, Vec::from([prepared]));
    }

    /// Until when jobs may run here; `None` while nothing was granted.
    pub fn lease_until(&self) -> Option<Nanos> {
        self.lease.until()
    }

    /// The lease that a former daemon had.
    pub fn restore_lease(&mut self, until: Nanos) {
        self.lease.restore(until);
    }

    /// Whether anything is kept of a job of this node: itself, its output, or reports that the head has not recorded.
    pub fn knows(&self, job: JobId) -> bool {
        self.jobs.phase(job).is_some()
    }
}
