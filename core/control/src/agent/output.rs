//! Queue of output that waits for a parent.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::vec::Vec;

use kumi_sched::{JobId, NodeId};

use crate::message::{Report, Stream};

/// The driver stops reading its ranks' pipes at this many bytes.
const BLOCK_BYTES: usize = 4 << 20;
/// Children cannot be stopped from here; beyond this, output is dropped, and a line says so.
const DROP_BYTES: usize = 16 << 20;
/// What an entry costs beside its bytes, so that many empty ones are bounded too.
const ENTRY_BYTES: usize = 64;

/// Something that a rank wrote.
#[derive(Debug)]
pub(super) struct RankOutput {
    pub(super) job: JobId,
    pub(super) rank: u32,
    /// Of the rank.
    pub(super) node: NodeId,
    pub(super) stream: Stream,
    pub(super) data: Vec<u8>,
}

impl RankOutput {
    pub(super) fn report(self) -> Report {
        let Self { job, rank, node, stream, data } = self;
        Report::Output { job, rank, node, stream, data }
    }
}

#[derive(Debug, Default)]
pub(super) struct OutputQueue {
    entries: VecDeque<RankOutput>,
    bytes: usize,
    /// Bytes that were dropped of each rank.
    dropped: BTreeMap<(JobId, u32, NodeId), u64>,
}

impl OutputQueue {
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= BLOCK_BYTES
    }

    pub(super) fn push(&mut self, output: RankOutput) {
        let cost = output.data.len().saturating_add(ENTRY_BYTES);
        if self.bytes.saturating_add(cost) > DROP_BYTES {
            let rank = (output.job, output.rank, output.node);
            *self.dropped.entry(rank).or_default() += output.data.len() as u64;
            return;
        }
        self.bytes += cost;
        self.entries.push_back(output);
    }

    /// All output in the queue, with a line for each rank some of whose output `node` has dropped.
    pub(super) fn take(&mut self, node: NodeId) -> impl Iterator<Item = Report> + use<> {
        let queue = core::mem::take(self);
        let output = queue.entries.into_iter().map(RankOutput::report);
        let dropped = queue.dropped.into_iter().map(move |((job, rank, of), bytes)| {
            let line = format!(
                "kumi: {bytes} bytes of output were dropped here: node {node} had no connection\n"
            );
            let data = line.into_bytes();
            RankOutput { job, rank, node: of, stream: Stream::Err, data }.report()
        });
        output.chain(dropped)
    }
}
