//! A row as the bytes of a slot: length, checksum, then the row, all little-endian; the rest of the slot is not looked at.

use alloc::vec::Vec;

use crate::{JobRow, NodeCell, Row};

/// Length (`u32`) and checksum (eight bytes of BLAKE3 of what follows).
const FRONT: usize = 12;
/// Time, numbers of nodes and jobs.
const HEAD: usize = 8 + 4 + 4;
/// A node.
pub(crate) const NODE: usize = 4 + 1 + 1 + 2 + 4;
/// A job without its loads.
const JOB: usize = 8 + 4 + 4;

/// Bytes of a row in a slot.
fn bytes(row: &Row) -> usize {
    let loads: usize = row.jobs.iter().map(|job| JOB + job.loads.len()).sum();
    FRONT + HEAD + row.nodes.len() * NODE + loads
}

/// Makes a row fit into a slot: ranks are taken together, of the job with the most loads first. Then the jobs with the lowest
/// numbers and at last the nodes with the highest go.
pub fn shrink(row: &mut Row, slot: usize) {
    while bytes(row) > slot {
        let longest = row.jobs.iter_mut().max_by_key(|job| job.loads.len());
        if longest.is_some_and(JobRow::halve) {
            continue;
        }
        if row.jobs.is_empty() {
            if row.nodes.pop().is_none() {
                return;
            }
        } else {
            let over = (bytes(row) - slot).div_ceil(JOB + 1).min(row.jobs.len());
            row.jobs.drain(..over);
        }
    }
}

/// The bytes of a row for a slot of this length. The row is made to fit.
#[must_use]
pub fn encode(mut row: Row, slot: usize) -> Vec<u8> {
    shrink(&mut row, slot);
    let length = |count: usize| u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes();
    let mut body = Vec::with_capacity(bytes(&row));
    body.extend_from_slice(&row.at_s.to_le_bytes());
    body.extend_from_slice(&length(row.nodes.len()));
    body.extend_from_slice(&length(row.jobs.len()));
    for cell in &row.nodes {
        body.extend_from_slice(&cell.node.to_le_bytes());
        body.extend_from_slice(&[cell.busy, cell.memory]);
        body.extend_from_slice(&cell.switching.to_le_bytes());
        body.extend_from_slice(&cell.network_kib.to_le_bytes());
    }
    for job in &row.jobs {
        body.extend_from_slice(&job.job.to_le_bytes());
        body.extend_from_slice(&job.ranks.to_le_bytes());
        body.extend_from_slice(&length(job.loads.len()));
        body.extend_from_slice(&job.loads);
    }
    let mut out = Vec::with_capacity(FRONT + body.len());
    out.extend_from_slice(&length(body.len()));
    out.extend_from_slice(&checksum(&body));
    out.extend_from_slice(&body);
    out
}

fn checksum(body: &[u8]) -> [u8; 8] {
    let hash = blake3::hash(body);
    let mut short = [0; 8];
    short.copy_from_slice(&hash.as_bytes()[..8]);
    short
}

/// What is left of some bytes.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (part, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(part)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// A number of things of at least so many bytes each, which must be there.
    fn count(&mut self, each: usize) -> Option<usize> {
        let count = usize::try_from(self.u32()?).ok()?;
        (count.checked_mul(each)? <= self.0.len()).then_some(count)
    }
}

/// The row of a slot; none if the slot was never written or is damaged.
#[must_use]
pub fn decode(slot: &[u8]) -> Option<Row> {
    let mut front = Reader(slot);
    let length = usize::try_from(front.u32()?).ok()?;
    let sum: [u8; 8] = front.array()?;
    let body = front.take(length)?;
    if length == 0 || checksum(body) != sum {
        return None;
    }
    let mut reader = Reader(body);
    let at_s = reader.array().map(u64::from_le_bytes)?;
    let nodes = reader.count(NODE)?;
    let jobs = usize::try_from(reader.u32()?).ok()?;
    let mut row = Row { at_s, nodes: Vec::with_capacity(nodes), jobs: Vec::new() };
    for _ in 0..nodes {
        let node = reader.u32()?;
        let [busy, memory] = reader.array()?;
        let switching = reader.array().map(u16::from_le_bytes)?;
        let network_kib = reader.u32()?;
        row.nodes.push(NodeCell { node, busy, memory, switching, network_kib });
    }
    for _ in 0..jobs {
        let job = reader.array().map(u64::from_le_bytes)?;
        let ranks = reader.u32()?;
        let loads = reader.count(1)?;
        row.jobs.push(JobRow { job, ranks, loads: reader.take(loads)?.to_vec() });
    }
    reader.0.is_empty().then_some(row)
}
