//! Queue of output that waits for a parent.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::vec::Vec;

use kumi_sched::JobId;

use super::{Agent, AgentAction};
use crate::message::{Report, Stream};

/// The driver stops reading its ranks' pipes at this many bytes.
const BLOCK_BYTES: usize = 4 << 20;
/// Children cannot be stopped from here; beyond this, output is dropped, and a line says so.
const DROP_BYTES: usize = 16 << 20;
/// What an entry costs beside its bytes, so that many empty ones are bounded too.
const ENTRY_BYTES: usize = 64;

#[derive(Debug, Default)]
pub(super) struct OutputQueue {
    entries: VecDeque<(JobId, u32, Stream, Vec<u8>)>,
    bytes: usize,
    dropped: BTreeMap<(JobId, u32), u64>,
}

impl OutputQueue {
    pub(super) fn full(&self) -> bool {
        self.bytes >= BLOCK_BYTES
    }

    fn push(&mut self, job: JobId, rank: u32, stream: Stream, data: Vec<u8>) {
        let cost = data.len().saturating_add(ENTRY_BYTES);
        if self.bytes.saturating_add(cost) > DROP_BYTES {
            *self.dropped.entry((job, rank)).or_default() += data.len() as u64;
            return;
        }
        self.bytes += cost;
        self.entries.push_back((job, rank, stream, data));
    }
}

impl Agent {
    pub(super) fn output(&mut self, job: JobId, rank: u32, stream: Stream, data: Vec<u8>) {
        if self.parent_up {
            self.push(AgentAction::ToParent(Report::Output { job, rank, stream, data }));
        } else {
            self.output.push(job, rank, stream, data);
        }
    }

    /// Sends what has waited.
    pub(super) fn flush_output(&mut self) {
        let queue = core::mem::take(&mut self.output);
        for (job, rank, stream, data) in queue.entries {
            self.report(Report::Output { job, rank, stream, data });
        }
        for ((job, rank), bytes) in queue.dropped {
            let line = format!(
                "kumi: {bytes} bytes of output were dropped here: node {} had no connection\n",
                self.description.node
            );
            let data = line.into_bytes();
            self.report(Report::Output { job, rank, stream: Stream::Err, data });
        }
    }
}
