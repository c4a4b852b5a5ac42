//! Output that the head has not acknowledged. It is sent again after a link was lost.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use kumi_sched::{JobId, NodeId};

use crate::message::{KeptOutput, Report, Stream};

/// The driver stops reading the pipes of a job at this many bytes of it.
const JOB_BYTES: usize = 4 << 20;
/// It stops reading all pipes at this many bytes.
const ALL_BYTES: usize = 256 << 20;
/// What a piece costs beside its bytes, so that many small ones are bounded too.
const PIECE_BYTES: usize = 64;

#[derive(Debug)]
struct Piece {
    /// Its place among all pieces of the node.
    order: u64,
    data: Vec<u8>,
}

/// What a rank has written to one of its streams.
#[derive(Debug, Default)]
struct StreamWindow {
    /// Where the first piece begins: all before it is acknowledged.
    base: u64,
    pieces: VecDeque<Piece>,
    /// Behind the last piece.
    next: u64,
}

impl StreamWindow {
    /// Takes off what is acknowledged up to `next`. Returns the memory that this frees.
    fn acknowledge(&mut self, next: u64) -> usize {
        let mut freed = 0;
        while let Some(piece) = self.pieces.front() {
            let end = self.base + piece.data.len() as u64;
            if end > next {
                break;
            }
            freed += piece.data.len() + PIECE_BYTES;
            self.base = end;
            self.pieces.pop_front();
        }
        freed
    }
}

#[derive(Debug, Default)]
struct JobWindow {
    streams: BTreeMap<(u32, Stream), StreamWindow>,
    bytes: usize,
    /// Nothing else is left of the job here.
    ended: bool,
}

impl JobWindow {
    fn is_empty(&self) -> bool {
        self.streams.values().all(|stream| stream.pieces.is_empty())
    }
}

/// How far streams had come: each of a rank, and the bytes of it.
type StreamEnds = Vec<((u32, Stream), u64)>;

/// The windows of all jobs of a node.
#[derive(Debug, Default)]
pub(super) struct OutputWindows {
    jobs: BTreeMap<JobId, JobWindow>,
    /// How far the streams of jobs had come of which nothing is left, until the head has recorded their end.
    over: BTreeMap<JobId, StreamEnds>,
    bytes: usize,
    pieces: u64,
}

impl OutputWindows {
    /// Whether the driver must not read more output of any job.
    pub(super) fn is_full(&self) -> bool {
        self.bytes >= ALL_BYTES
    }

    /// The jobs of which it must not read more.
    pub(super) fn full_jobs(&self) -> impl Iterator<Item = JobId> + '_ {
        let full = self.jobs.iter().filter(|(_, window)| window.bytes >= JOB_BYTES);
        full.map(|(&job, _)| job)
    }

    /// A rank wrote something. Returns the report of it.
    pub(super) fn push(
        &mut self,
        job: JobId,
        (rank, node): (u32, NodeId),
        stream: Stream,
        data: Vec<u8>,
    ) -> Report {
        let of_job = self.jobs.entry(job).or_default();
        of_job.bytes += data.len() + PIECE_BYTES;
        let window = of_job.streams.entry((rank, stream)).or_default();
        let (base, at, order) = (window.base, window.next, self.pieces);
        window.next += data.len() as u64;
        window.pieces.push_back(Piece { order, data: data.clone() });
        self.pieces += 1;
        self.bytes += data.len() + PIECE_BYTES;
        Report::Output { job, rank, node, stream, base, at, data }
    }

    /// A former daemon read these pieces of a stream, the first of which begins at `base`.
    pub(super) fn adopt(
        &mut self,
        job: JobId,
        stream: (u32, Stream),
        base: u64,
        pieces: Vec<Vec<u8>>,
    ) {
        let of_job = self.jobs.entry(job).or_default();
        let window = of_job.streams.entry(stream).or_default();
        (window.base, window.next) = (base, base);
        for data in pieces {
            window.next += data.len() as u64;
            of_job.bytes += data.len() + PIECE_BYTES;
            self.bytes += data.len() + PIECE_BYTES;
            window.pieces.push_back(Piece { order: self.pieces, data });
            self.pieces += 1;
        }
    }

    /// The head has so much of the job's streams.
    pub(super) fn acknowledge(&mut self, job: JobId, kept: &[KeptOutput]) {
        let Some(window) = self.jobs.get_mut(&job) else { return };
        for &KeptOutput { rank, stream, next } in kept {
            if let Some(stream) = window.streams.get_mut(&(rank, stream)) {
                let freed = stream.acknowledge(next);
                window.bytes -= freed;
                self.bytes -= freed;
            }
        }
    }

    /// Drops all that waits of a job. What comes later has its place behind it.
    pub(super) fn clear(&mut self, job: JobId) {
        let Some(window) = self.jobs.get_mut(&job) else { return };
        for stream in window.streams.values_mut() {
            stream.pieces.clear();
            stream.base = stream.next;
        }
        self.bytes -= core::mem::take(&mut window.bytes);
    }

    /// The report that all output of a job has been sent, of which nothing else is left.
    pub(super) fn last(&self, job: JobId, node: NodeId) -> Option<Report> {
        let window = self.jobs.get(&job).filter(|window| window.ended && !window.is_empty())?;
        let mut waiting = window.streams.iter().filter(|(_, stream)| !stream.pieces.is_empty());
        let (&(rank, stream), &StreamWindow { base, next, .. }) = waiting.next()?;
        Some(Report::Output { job, rank, node, stream, base, at: next, data: Vec::new() })
    }

    /// Reports of how far streams of a job had come that are acknowledged as a whole. A head that took over knows by them what
    /// only the one before it had. They have no place behind `base`, by which they differ from the last report of a job.
    pub(super) fn acknowledged(&self, job: JobId, node: NodeId) -> Vec<Report> {
        let windows = self.jobs.get(&job).into_iter().flat_map(|window| &window.streams);
        let whole = windows.filter(|(_, window)| window.pieces.is_empty() && window.base > 0);
        let whole = whole.map(|(&stream, window)| (stream, window.base));
        let over = self.over.get(&job).into_iter().flatten().copied();
        let report = |((rank, stream), base)| Report::Output {
            job,
            rank,
            node,
            stream,
            base,
            at: 0,
            data: Vec::new(),
        };
        whole.chain(over).map(report).collect()
    }

    /// The head has recorded the end of the job.
    pub(super) fn forget(&mut self, job: JobId) {
        self.over.remove(&job);
    }

    /// Reports of all that is not acknowledged of a job, in the order in which it came.
    pub(super) fn again(&self, job: JobId, node: NodeId) -> Vec<Report> {
        let mut reports = Vec::new();
        let streams = self.jobs.get(&job).into_iter().flat_map(|window| &window.streams);
        for (&(rank, stream), window) in streams {
            let mut at = window.base;
            for piece in &window.pieces {
                let (base, data) = (window.base, piece.data.clone());
                let next = at + data.len() as u64;
                let report = Report::Output { job, rank, node, stream, base, at, data };
                reports.push((piece.order, report));
                at = next;
            }
        }
        reports.sort_by_key(|&(order, _)| order);
        reports.into_iter().map(|(_, report)| report).collect()
    }

    /// Nothing else is left of the job. Returns whether nothing of its output waits either; then its windows are gone.
    pub(super) fn end(&mut self, job: JobId) -> bool {
        if let Some(window) = self.jobs.get_mut(&job) {
            window.ended = true;
        }
        self.take_ended(job) || !self.jobs.contains_key(&job)
    }

    /// Whether nothing else is left of the job, and nothing of its output any more; then its windows are gone.
    pub(super) fn take_ended(&mut self, job: JobId) -> bool {
        let over = self.jobs.get(&job).is_some_and(|window| window.ended && window.is_empty());
        if over && let Some(window) = self.jobs.remove(&job) {
            let streams = window.streams.iter().map(|(&stream, window)| (stream, window.base));
            self.over.insert(job, streams.filter(|&(_, base)| base > 0).collect());
        }
        over
    }

    /// Gives up the output of all jobs of which nothing else is left. Returns these.
    pub(super) fn give_up(&mut self) -> Vec<JobId> {
        let ended = self.jobs.iter().filter(|(_, window)| window.ended);
        let ended: Vec<JobId> = ended.map(|(&job, _)| job).collect();
        for job in &ended {
            let window = self.jobs.remove(job).unwrap_or_default();
            self.bytes -= window.bytes;
        }
        ended
    }

    /// Whether output of a job waits of which nothing else is left.
    pub(super) fn any_ended(&self) -> bool {
        self.jobs.values().any(|window| window.ended)
    }
}
