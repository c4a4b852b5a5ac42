//! Asks the head for a job's trace, part by part.

use super::model::{RankPlace, Trace};
use crate::error::Error;
use kumi_control::message::{ClientReply, ClientRequest, JobRecord, NodeSample, TraceSample};
use kumi_node::client::Client;
use kumi_sched::JobId;
use std::collections::BTreeMap;

/// How often a node is asked that does not answer within a second.
const TRIES: u32 = 5;

/// What is known of a rank's trace.
struct Told {
    place: RankPlace,
    machine_clock: String,
    samples: Vec<TraceSample>,
}

/// The trace of a job, running or over.
///
/// # Errors
/// There is no such job, no trace of it, or no answer.
pub async fn collect(client: &mut Client, job: u64) -> Result<Trace, Error> {
    let record = record(client, job).await?;
    let mut told = Vec::new();
    let mut untraced = Vec::new();
    let layout = &record.spec.layout;
    for (part, rank) in layout.iter().flat_map(|part| (0..part.count).map(move |at| (part, at))) {
        let place = RankPlace { rank: part.first + rank, node: part.node.0, offset: 0 };
        match of_rank(client, job, place).await? {
            Some(one) => told.push(one),
            None => untraced.push(part.first + rank),
        }
    }
    if told.is_empty() {
        return Err(Error::NoTrace { job });
    }
    for rank in untraced {
        crate::output::note(&format!("rank {rank} has no trace: its node has lost it"));
    }
    put_on_one_clock(&mut told);
    let told = told.into_iter().map(|one| (one.place, one.samples)).collect();
    let name = record.spec.request.name;
    Ok(Trace::new((job, name), record.spec.request.ranks, told))
}

async fn record(client: &mut Client, job: u64) -> Result<JobRecord, Error> {
    client.job(JobId(job)).await?.records.pop().ok_or(Error::NoTrace { job })
}

/// Nodes of one machine read the same clock; those of several are compared by the cluster's time, with its error.
fn put_on_one_clock(told: &mut [Told]) {
    let mut clocks = told.iter().map(|one| &one.machine_clock);
    let first = clocks.next().filter(|name| !name.is_empty()).cloned();
    if first.is_some_and(|first| clocks.all(|other| *other == first)) {
        return;
    }
    // One estimate for each node: all ranks of a node read the same clock.
    let mut by_node = BTreeMap::new();
    for one in told {
        let offset = one.samples.first().map_or(0, |sample| sample.clock_offset);
        one.place.offset = *by_node.entry(one.place.node).or_insert(offset);
    }
}

/// All that a rank's node has of it; none if the rank is not traced. Of a running job, what there was at the first question.
async fn of_rank(client: &mut Client, job: u64, place: RankPlace) -> Result<Option<Told>, Error> {
    let mut told = Told { place, machine_clock: String::new(), samples: Vec::new() };
    let (mut from, mut end) = (0, None);
    loop {
        let (rank, node) = (told.place.rank, told.place.node);
        let mut sample = ask(client, job, (rank, node), from).await?;
        let Some(at) = sample.traces.iter().position(|trace| trace.rank == rank) else {
            return Ok(end.is_some().then_some(told));
        };
        let trace = sample.traces.swap_remove(at);
        told.machine_clock = sample.machine_clock;
        let (next, last) = (trace.next, *end.get_or_insert(trace.begun));
        told.samples.push(trace);
        if next <= from || next >= last {
            return Ok(Some(told));
        }
        from = next;
    }
}

async fn ask(
    client: &mut Client,
    job: u64,
    (rank, node): (u32, u32),
    from: u64,
) -> Result<NodeSample, Error> {
    let request = ClientRequest::SampleTrace { job: JobId(job), rank, from };
    for _ in 0..TRIES {
        let samples = match client.ask(&request).await? {
            ClientReply::Samples(samples) => samples,
            other => return Err(Error::unexpected(&other)),
        };
        if let Some(sample) = samples.into_iter().find(|sample| sample.node.0 == node) {
            return Ok(sample);
        }
    }
    Err(Error::TraceUnseen { job, node })
}
