//! Traces of jobs: a ring for each local rank, kept for a while after the job.

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use kumi_control::message::{
    JobRequest, MOST_TRACE_EVENTS, NodeRanks, Refusal, RefusalKind, TraceAllocation, TraceEvent,
    TraceKind, TraceSample,
};
use kumi_net::segment::SegmentError;
use kumi_net::trace::{
    Event, EventKind, FEWEST_EVENTS, MOST_EVENTS, NO_PEER, TraceDescriptor, TraceRing, ring_bytes,
};
use kumi_sched::JobId;

use crate::client::refusal;

/// The variable by which a job asks to be traced: events to be kept of each rank.
pub const TRACE: &str = "KUMI_TRACE";
/// Most bytes of the rings of a job on a node. Jobs with many ranks get shorter rings.
const MOST_OF_JOB: usize = 128 << 20;
/// Most bytes of rings of jobs that are over. The oldest go first.
const MOST_KEPT: usize = 256 << 20;

/// Events that a job wants to be kept of each rank; none if it is not to be traced.
///
/// # Errors
/// A sentence: the number is none, or out of bounds.
pub fn events_wanted(env: &[(String, String)]) -> Result<Option<u64>, String> {
    let found = env.iter().find(|(name, value)| name == TRACE && !value.is_empty());
    let Some((_, value)) = found.filter(|(_, value)| value != "0") else { return Ok(None) };
    let events = value.parse().ok().filter(|events| (FEWEST_EVENTS..=MOST_EVENTS).contains(events));
    events.map(Some).ok_or_else(|| {
        format!("{TRACE} is {value:?}: use {FEWEST_EVENTS} to {MOST_EVENTS} events for each rank")
    })
}

/// The rings of a job's local ranks.
#[derive(Debug, Default)]
pub struct JobTraces {
    first: u32,
    /// Empty if the job is not traced.
    rings: Vec<TraceRing>,
}

impl JobTraces {
    /// Makes the rings, if the job wants to be traced.
    ///
    /// # Errors
    /// A senseless number of events; the kernel's error.
    pub(super) fn make(request: &JobRequest, part: &NodeRanks) -> Result<JobTraces, Refusal> {
        let bad = |message| refusal(RefusalKind::BadRequest, message);
        let Some(events) = events_wanted(&request.env).map_err(bad)? else {
            return Ok(JobTraces::default());
        };
        let ranks = part.count as usize;
        let mut events = events.next_power_of_two();
        while events > FEWEST_EVENTS && ring_bytes(events).saturating_mul(ranks) > MOST_OF_JOB {
            events /= 2;
        }
        let rings = (0..ranks).map(|_| TraceRing::create(events)).collect::<Result<_, _>>();
        let rings = rings.map_err(|error| {
            let message = format!(
                "the node cannot make the rings of the job's trace: {error}; run it without a trace"
            );
            refusal(RefusalKind::NoResources, message)
        })?;
        Ok(JobTraces { first: part.first, rings })
    }

    /// The file that a local rank inherits.
    pub(super) fn inherited(&self, local: usize) -> Option<BorrowedFd<'_>> {
        self.rings.get(local).map(TraceRing::file)
    }

    /// The files of all local ranks.
    pub(super) fn files(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.rings.iter().map(TraceRing::file)
    }

    /// Events of each ring, if there are rings.
    pub(super) fn events(&self) -> Option<u64> {
        self.rings.first().map(TraceRing::events)
    }

    /// The rings that a former daemon made, for so many events each.
    ///
    /// # Errors
    /// One of the files is none.
    pub(super) fn adopt(
        first: u32,
        events: u64,
        files: impl Iterator<Item = OwnedFd>,
    ) -> Result<JobTraces, SegmentError> {
        let rings = files.map(|file| TraceRing::adopt(file, events)).collect::<Result<_, _>>()?;
        Ok(JobTraces { first, rings })
    }

    /// The variable that names it.
    pub(super) fn env(&self, local: usize) -> Option<(String, String)> {
        let ring = self.rings.get(local)?;
        let file = ring.file().as_raw_fd();
        Some(TraceDescriptor { file, events: ring.events() }.to_env())
    }

    fn bytes(&self) -> usize {
        self.rings.iter().map(TraceRing::bytes).sum()
    }

    /// A part of the trace of a rank, if it is here and traced.
    #[must_use]
    pub fn sample(&self, rank: u32, from: u64, clock_offset: i64) -> Option<TraceSample> {
        let ring = self.rings.get(rank.checked_sub(self.first)? as usize)?;
        let reading = ring.read(from, MOST_TRACE_EVENTS);
        let (allocations, allocations_left_out) =
            if from == 0 { ring.allocations() } else { Default::default() };
        let allocation = |one: kumi_net::trace::TracedAllocation| TraceAllocation {
            first: one.first,
            pages: one.pages,
            name: one.name,
        };
        Some(TraceSample {
            rank,
            first: reading.first,
            next: reading.next,
            begun: reading.begun,
            unreadable: reading.unreadable,
            events: reading.events.into_iter().map(event).collect(),
            clock_offset,
            page_bytes: ring.page_bytes(),
            allocations: allocations.into_iter().map(allocation).collect(),
            allocations_left_out,
        })
    }
}

fn event(event: Event) -> TraceEvent {
    TraceEvent {
        time: event.time,
        duration: event.duration,
        kind: kind(event.kind),
        thread: event.thread,
        peer: (event.peer != NO_PEER).then_some(event.peer),
        object: event.object,
        amount: event.amount,
    }
}

fn kind(kind: EventKind) -> TraceKind {
    match kind {
        EventKind::Fetch => TraceKind::Fetch,
        EventKind::Found => TraceKind::Found,
        EventKind::Written => TraceKind::Written,
        EventKind::Diff => TraceKind::Diff,
        EventKind::Flush => TraceKind::Flush,
        EventKind::Lock => TraceKind::Lock,
        EventKind::Unlock => TraceKind::Unlock,
        EventKind::Barrier => TraceKind::Barrier,
        EventKind::Wait => TraceKind::Wait,
        EventKind::SetCondition => TraceKind::SetCondition,
        EventKind::WaitCondition => TraceKind::WaitCondition,
        EventKind::Stale => TraceKind::Stale,
        EventKind::Send => TraceKind::Send,
        EventKind::Receive => TraceKind::Receive,
        EventKind::ProgramSend => TraceKind::ProgramSend,
        EventKind::ProgramReceive => TraceKind::ProgramReceive,
    }
}

/// Traces of jobs that are over.
#[derive(Debug, Default)]
pub struct KeptTraces(BTreeMap<JobId, JobTraces>);

impl KeptTraces {
    /// Keeps the traces of a job; those of older jobs go if there is no room for all.
    pub fn keep(&mut self, job: JobId, traces: JobTraces) {
        if traces.rings.is_empty() {
            return;
        }
        self.0.insert(job, traces);
        while self.0.len() > 1 && self.0.values().map(JobTraces::bytes).sum::<usize>() > MOST_KEPT {
            self.0.pop_first();
        }
    }

    /// The traces of a job, if they are kept.
    #[must_use]
    pub fn of(&self, job: JobId) -> Option<&JobTraces> {
        self.0.get(&job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_net::trace::Tracer;

    fn env(value: &str) -> Vec<(String, String)> {
        vec![(TRACE.to_owned(), value.to_owned())]
    }

    fn traces(events: u64, ranks: usize) -> JobTraces {
        let rings = (0..ranks).map(|_| TraceRing::create(events).unwrap()).collect();
        JobTraces { first: 4, rings }
    }

    #[test]
    fn jobs_ask_for_traces_by_a_variable() {
        assert_eq!((events_wanted(&[]), events_wanted(&env(""))), (Ok(None), Ok(None)));
        assert_eq!(
            (events_wanted(&env("0")), events_wanted(&env("5000"))),
            (Ok(None), Ok(Some(5_000)))
        );
        for wrong in ["1", "1023", "4194305", "-1", "yes"] {
            assert!(events_wanted(&env(wrong)).unwrap_err().contains("1024 to 4194304"), "{wrong}");
        }
    }

    #[test]
    fn what_a_rank_recorded_is_told_with_its_peer() {
        let traces = traces(1_024, 2);
        let file = traces.inherited(1).unwrap().try_clone_to_owned().unwrap();
        let tracer = Tracer::open(&file, 1_024).unwrap();
        tracer.allocation(3, 4, "here");
        tracer.mark(EventKind::Fetch, (7, 3, 4));
        tracer.note(EventKind::Unlock, 9, 0);
        assert!(traces.sample(3, 0, 0).is_none() && traces.sample(6, 0, 0).is_none());
        let sample = traces.sample(5, 0, -2).unwrap();
        assert_eq!((sample.rank, sample.next, sample.clock_offset), (5, 2, -2));
        let told: Vec<_> = sample.events.iter().map(|e| (e.kind, e.peer, e.object)).collect();
        assert_eq!(told, [(TraceKind::Fetch, Some(7), 3), (TraceKind::Unlock, None, 9)]);
        assert_eq!(sample.allocations[0].name, "here");
        assert!(traces.sample(5, 1, 0).unwrap().allocations.is_empty(), "they are told once");
        assert!(traces.sample(4, 0, 0).unwrap().events.is_empty());
    }

    #[test]
    fn the_oldest_traces_give_way() {
        let mut kept = KeptTraces::default();
        kept.keep(JobId(1), JobTraces::default());
        assert!(kept.of(JobId(1)).is_none(), "a job that is not traced");
        for job in 2..6 {
            // 64 MiB and a little each; the files are sparse.
            kept.keep(JobId(job), traces(1 << 21, 1));
        }
        let left: Vec<_> = (1..9).filter(|job| kept.of(JobId(*job)).is_some()).collect();
        assert_eq!(left, [3, 4, 5]);
    }
}
