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

#[derive(Debug, Default)]
pub(super) struct OutputQueue {
    entries: VecDeque<(JobId, u32, Stream, Vec<u8>)>,
    bytes: usize,
    dropped: BTreeMap<(JobId, u32), u64>,
}

impl OutputQueue {
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= BLOCK_BYTES
    }

    pub(super) fn push(&mut self, job: JobId, rank: u32, stream: Stream, data: Vec<u8>) {
        let cost = data.len().saturating_add(ENTRY_BYTES);
        if self.bytes.saturating_add(cost) > DROP_BYTES {
            *self.dropped.entry((job, rank)).or_default() += data.len() as u64;
            return;
        }
        self.bytes += cost;
        self.entries.push_back((job, rank, stream, data));
    }

    /// All output in the queue, with a line for each rank some of whose output `node` has dropped.
    pub(super) fn take(&mut self, node: NodeId) -> impl Iterator<Item = Report> + use<> {
        let queue = core::mem::take(self);
        let entries = queue.entries.into_iter();
        let output =
            entries.map(|(job, rank, stream, data)| Report::Output { job, rank, stream, data });
        let dropped = queue.dropped.into_iter().map(move |((job, rank), bytes)| {
            let line = format!(
                "kumi: {bytes} bytes of output were dropped here: node {node} had no connection\n"
            );
            Report::Output { job, rank, stream: Stream::Err, data: line.into_bytes() }
        });
        output.chain(dropped)
    }
}
