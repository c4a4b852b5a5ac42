//! Runs a list of jobs on a cluster. Each is submitted when it is due and followed to its end, all over one
//! connection to the head.

use crate::error::BenchError;
use kumi_control::message::{
    ClientReply, ClientRequest, ContentHash, JobRequest, JobState, JobsQuery, Outcome, Program,
    Stream,
};
use kumi_node::client::{Client, ClientError, Replies, Requests};
use kumi_node::clock::monotonic;
use kumi_sched::JobId;
use kumi_sim::Job;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Time from the connection to the first submission.
const LEAD: u64 = 200_000_000;

/// Parameters of ranks.
#[derive(Clone, Copy, Debug)]
pub struct Ranks {
    /// Length of a wait, in milliseconds.
    pub wait_ms: u64,
    /// The cluster's slice, in nanoseconds.
    pub slice_ns: u64,
}

/// Outcome of a job. Times are nanoseconds since its list began; submission is the time of sending.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobRun {
    /// Time of sending to the head.
    pub submitted: u64,
    /// The head reported that all nodes have prepared and that it takes turns.
    pub running: u64,
    /// First instruction of its last rank.
    pub begin: u64,
    /// End of work of its last rank.
    pub done: u64,
    /// The head reported its end.
    pub ended: u64,
    /// The longest delay of a rank that was not stopped.
    pub longest_ns: u64,
    /// Turns of rank 0.
    pub turns: Vec<(u64, u64)>,
    /// Its nodes, ascending.
    pub nodes: Vec<u32>,
}

/// State of a job while it is followed.
#[derive(Default)]
struct FollowedJob {
    ran: JobRun,
    out: Vec<u8>,
    over: bool,
}

/// Runs the jobs, which are in order of submission; returns their outcomes.
///
/// # Errors
/// The cluster refuses or does not finish them, a job fails, or it takes longer than `limit`.
pub fn run(
    dir: &Path,
    nodes: u32,
    jobs: &[Job],
    ranks: Ranks,
    limit: Duration,
) -> Result<Vec<JobRun>, BenchError> {
    let program = crate::cluster::program("kumi-bench-turns")?;
    let list = List { program: identify(&program)?, dir, jobs, ranks };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|source| BenchError::Start { what: "an event loop".to_owned(), source })?;
    runtime.block_on(async {
        let client = Client::connect(dir, nodes).await?;
        let followed = tokio::time::timeout(limit, list.run(client)).await;
        let mut all = followed.map_err(|_| BenchError::Slow { limit })??;
        let mut client = Client::connect(dir, nodes).await?;
        add_nodes(&mut client, &mut all).await?;
        Ok(all.into_iter().map(|(_, ran)| ran).collect())
    })
}

/// The program in the form that nodes know.
fn identify(path: &Path) -> Result<Program, BenchError> {
    let content =
        std::fs::read(path).map_err(|source| BenchError::File { path: path.to_owned(), source })?;
    let hash = ContentHash(*blake3::hash(&content).as_bytes());
    Ok(Program { path: path.display().to_string(), hash, size: content.len() as u64 })
}

struct List<'a> {
    program: Program,
    dir: &'a Path,
    jobs: &'a [Job],
    ranks: Ranks,
}

impl List<'_> {
    async fn run(&self, client: Client) -> Result<Vec<(JobId, JobRun)>, BenchError> {
        let (mut requests, mut replies) = client.split();
        let start = monotonic() + LEAD;
        let (submitted, followed) =
            tokio::try_join!(self.submit(&mut requests, start), self.follow(&mut replies, start))?;
        let mut all = Vec::new();
        for ((job, seen), submitted) in followed.into_iter().zip(submitted) {
            let mut ran = JobRun { submitted, ..seen.ran };
            add_ranks(&mut ran, &seen.out, self.jobs[all.len()].size, start).map_err(|wanted| {
                BenchError::Output {
                    wanted: wanted.to_owned(),
                    what: format!("job {job}"),
                    output: String::from_utf8_lossy(&seen.out).into_owned(),
                }
            })?;
            all.push((job, ran));
        }
        Ok(all)
    }

    /// Sends each job when it is due; returns the times of sending.
    async fn submit(&self, requests: &mut Requests, start: u64) -> Result<Vec<u64>, BenchError> {
        let mut sent = Vec::new();
        for job in self.jobs {
            let left = (start + job.submit).saturating_sub(monotonic());
            tokio::time::sleep(Duration::from_nanos(left)).await;
            sent.push(monotonic() - start);
            requests.send(&ClientRequest::Submit(Box::new(self.request(job)))).await?;
        }
        Ok(sent)
    }

    fn request(&self, job: &Job) -> JobRequest {
        let path = self.program.path.clone();
        let numbers = [job.service, self.ranks.wait_ms, self.ranks.slice_ns];
        // `kumi cluster down` uses it to find ranks whose daemon was killed.
        let dir = self.dir.display().to_string();
        // The cluster has no other jobs.
        let token = u128::from(job.number) + 1;
        let name = format!("job-{}", job.number);
        JobRequest {
            args: [path].into_iter().chain(numbers.map(|number| number.to_string())).collect(),
            env: vec![("KUMI_CLUSTER_DIR".to_owned(), dir)],
            nodes: Some(job.size),
            encrypt: Some(false),
            priority: job.priority,
            estimate_ns: Some(job.estimate),
            ..JobRequest::new(token, &name, self.program.clone(), job.size)
        }
    }

    /// Takes replies until all jobs have ended; returns the jobs in order of submission.
    async fn follow(
        &self,
        replies: &mut Replies,
        start: u64,
    ) -> Result<Vec<(JobId, FollowedJob)>, BenchError> {
        let mut order = Vec::new();
        let mut jobs: BTreeMap<JobId, FollowedJob> = BTreeMap::new();
        let mut over = 0;
        while over < self.jobs.len() {
            let reply = replies.next().await?.ok_or(ClientError::Lost)?;
            let now = monotonic().saturating_sub(start);
            match reply {
                ClientReply::Submitted { job } => {
                    order.push(job);
                    jobs.entry(job).or_default();
                }
                ClientReply::State { job, state: JobState::Running } => {
                    jobs.entry(job).or_default().ran.running = now;
                }
                ClientReply::Output { job, stream: Stream::Out, data, .. } => {
                    jobs.entry(job).or_default().out.extend(data);
                }
                ClientReply::Ended { job, outcome, .. } => {
                    let seen = jobs.entry(job).or_default();
                    if outcome != Outcome::Success {
                        let (job, outcome) = (job.0, format!("{outcome:?}"));
                        return Err(BenchError::Job { job, outcome });
                    }
                    over += usize::from(!std::mem::replace(&mut seen.over, true));
                    seen.ran.ended = now;
                }
                ClientReply::Refused(refusal) => return Err(ClientError::Refused(refusal).into()),
                _ => {}
            }
        }
        Ok(order.into_iter().filter_map(|job| Some((job, jobs.remove(&job)?))).collect())
    }
}

/// Reads the reports of the ranks.
///
/// # Errors
/// A report is missing.
fn add_ranks(ran: &mut JobRun, out: &[u8], size: u32, start: u64) -> Result<(), &'static str> {
    let text = std::str::from_utf8(out).map_err(|_| "text")?;
    let since = |time: u64| time.saturating_sub(start);
    for line in text.lines() {
        let numbers: Result<Vec<u64>, _> = line.split(' ').map(str::parse).collect();
        let numbers = numbers.map_err(|_| "numbers")?;
        let [rank, begin, done, longest, turns @ ..] = &numbers[..] else {
            return Err("a rank's begin, end and longest wait");
        };
        ran.begin = ran.begin.max(since(*begin));
        ran.done = ran.done.max(since(*done));
        ran.longest_ns = ran.longest_ns.max(*longest);
        if *rank == 0 {
            ran.turns = turns.chunks_exact(2).map(|t| (since(t[0]), since(t[1]))).collect();
        }
    }
    if text.lines().count() == size as usize { Ok(()) } else { Err("a line of each rank") }
}

/// The nodes of the jobs.
async fn add_nodes(client: &mut Client, all: &mut [(JobId, JobRun)]) -> Result<(), BenchError> {
    let list = client.jobs(JobsQuery::first_page(true)).await?;
    let nodes: BTreeMap<JobId, Vec<u32>> = list
        .records
        .into_iter()
        .map(|record| {
            let nodes = record.spec.layout.iter().map(|part| part.node.0);
            (record.spec.job, nodes.collect())
        })
        .collect();
    for (job, ran) in all {
        let forgotten = || ClientError::Protocol(format!("the head no longer knows job {job}"));
        ran.nodes = nodes.get(job).cloned().ok_or_else(forgotten)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ranks_say_is_put_together() {
        let mut ran = JobRun::default();
        let out = b"1 110 300 4\n0 105 290 9 105 150 200 290\n";
        add_ranks(&mut ran, out, 2, 100).unwrap();
        assert_eq!((ran.begin, ran.done, ran.longest_ns), (10, 200, 9));
        assert_eq!(ran.turns, [(5, 50), (100, 190)]);
        assert!(add_ranks(&mut JobRun::default(), out, 3, 100).is_err(), "a rank is missing");
        assert!(add_ranks(&mut JobRun::default(), b"oops\n", 1, 100).is_err());
        assert!(add_ranks(&mut JobRun::default(), b"0 1\n", 1, 100).is_err());
    }
}
