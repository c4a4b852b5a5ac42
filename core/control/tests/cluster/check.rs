//! What must always hold.

use std::collections::{BTreeMap, BTreeSet};

use kumi_control::message::{
    AbandonCause, JobRecord, JobState, NodeRanks, Outcome, PartUse, RankStatus, RefusalKind,
    Report, WaitLimit,
};
use kumi_sched::{ClusterTime, JobId, NodeId, Timetable};

use crate::nodes::used_by;
use crate::world::{Faults, GRACE, LEASE, MS, World};

/// What really happened, to compare with what the head says.
#[derive(Default)]
pub struct Ledger {
    pub control_messages: u64,
    /// Nodes that ended a start of a job because their lease was over.
    leases_over: BTreeSet<(JobId, u32)>,
    /// When the last lease ends that a node got.
    pub leased_until: BTreeMap<u32, u64>,
    /// Starts that ended so that their job was started again.
    pub restarts: u64,
    /// When the way between a node and the head was last disturbed.
    pub disturbed: BTreeMap<u32, u64>,
    pub died: BTreeSet<u32>,
    pub refused: BTreeSet<JobId>,
    pub killed: BTreeSet<JobId>,
    pub exits: BTreeMap<(JobId, u32), RankStatus>,
    /// Ranks that failed, or will, because a peer's node died. Jobs have here the names of their starts.
    pub failed_for_loss: BTreeSet<(JobId, u32)>,
    started: BTreeSet<(JobId, u32)>,
    causes: BTreeMap<JobId, u64>,
}

impl Ledger {
    pub fn rank_started(&mut self, job: JobId, rank: u32) {
        assert!(self.started.insert((job, rank)), "rank {rank} of job {job} started twice");
    }

    /// Something happened that must end the job.
    pub fn must_end(&mut self, job: JobId, now: u64) {
        self.causes.entry(job).or_insert(now);
    }
}

impl World {
    /// A job only ever goes on in its life.
    pub fn check_step(&self, record: &JobRecord) {
        let place = |state: &JobState| match state {
            JobState::Queued => 0,
            JobState::Preparing => 1,
            JobState::Running => 2,
            JobState::Ending(_) => 3,
            JobState::Ended(_) => 4,
        };
        if let Some(last) = self.record_of(record.spec.job) {
            let again = record.restarts > last.restarts;
            // Somebody who wants it to end takes its restarts, whatever state it is in.
            let given_up = last.state == record.state
                && matches!(record.state, JobState::Ending(_))
                && record.spec.request.batch.requeues == 0
                && self.ledger.killed.contains(&record.spec.job);
            let asked = last.state == record.state && record.end_request.is_some();
            // A rank failed, and then it turned out that a node was lost.
            let blamed = matches!(
                (&last.state, &record.state),
                (
                    JobState::Ending(Outcome::RankFailed { node, .. }),
                    JobState::Ending(Outcome::NodeLost(lost)),
                ) if node != lost && record.restarts < record.spec.request.batch.requeues
            );
            if again {
                self.check_restart(last, record);
            } else if !given_up && !asked && !blamed {
                assert!(place(&last.state) < place(&record.state), "{last:?} then {record:?}");
            }
            if let (JobState::Ending(ending), JobState::Ended(ended)) = (&last.state, &record.state)
            {
                assert_eq!(ending, ended, "the outcome does not change");
            }
        }
    }

    /// A job is started again only because a node was lost or the head was away, and when nothing of it runs.
    fn check_restart(&self, last: &JobRecord, record: &JobRecord) {
        let (job, restarts) = (record.spec.job, record.restarts);
        // Who recorded that somebody wants it to end recorded that none is left.
        let most = record.spec.request.batch.requeues;
        assert!(restarts == last.restarts + 1 && restarts <= most, "{last:?} then {record:?}");
        assert_eq!(record.state, JobState::Queued);
        assert!(record.spec.layout.is_empty() && record.started_ms.is_none());
        assert_ne!(record.spec.channel_key, last.spec.channel_key, "keys of its own");
        // The disk may not have had what was between.
        if let JobState::Ending(outcome) = &last.state {
            self.check_lost(job.of_start(last.restarts), outcome);
        }
        self.check_nothing_runs(job);
    }

    /// The start of a job ended because of what really happened to that node.
    fn check_lost(&self, start: JobId, outcome: &Outcome) {
        match outcome {
            Outcome::NodeLost(node) => {
                let at = self.ledger.disturbed.get(&node.0);
                let recent =
                    at.is_some_and(|at| self.now.saturating_sub(*at) < 3 * (LEASE + GRACE));
                assert!(recent, "job {start} lost node {node}, which was never away");
                let single = Faults { ranks: true, long_stalls: true, ..Faults::default() };
                assert_ne!(self.scenario.faults, single, "a stall shorter than the lease");
            }
            Outcome::HeadAway(node) => {
                let over = self.ledger.leases_over.contains(&(start, node.0));
                assert!(over, "job {start} ended for a lease of node {node} that was not over");
            }
            other => panic!("job {start} lost nothing: {other:?}"),
        }
    }

    /// A node ends what it runs, because the head has not granted it any more time.
    pub fn lease_is_over(&mut self, number: u32) {
        let until = self.ledger.leased_until.get(&number).copied();
        let until = until.expect("a lease that is over was granted");
        assert!(self.now >= until, "node {number} has a lease for {} ns", until - self.now);
        let jobs = self.nodes[number as usize].jobs.keys();
        let over: Vec<(JobId, u32)> = jobs.map(|&job| (job, number)).collect();
        self.ledger.leases_over.extend(over);
    }

    /// A node may give up a job for that of which nothing is left, if it has not heard so.
    pub fn note_lease_over(&mut self, number: u32, report: &Report) {
        let Report::Abandoned { job, nodes, cause: AbandonCause::LeaseOver } = report else {
            return;
        };
        let over = self.ledger.leased_until.get(&number).is_some_and(|&until| self.now >= until);
        if over && nodes.contains(NodeId(number)) {
            self.ledger.leases_over.insert((*job, number));
        }
    }

    /// No other start of the job runs anywhere.
    pub fn check_only_start(&self, number: u32, job: JobId) {
        for (other_number, node) in self.nodes.iter().enumerate() {
            let asleep = self.now < node.asleep_until;
            for (other, local) in &node.jobs {
                let same = other.number() == job.number() && *other != job;
                assert!(
                    !(same && local.runs() && !asleep),
                    "{job} starts on node {number} while {other} runs on node {other_number}"
                );
            }
        }
    }

    /// A job's end has a real cause, and came soon after it.
    pub fn check_end(&self, record: &JobRecord) {
        let number = record.spec.job;
        // Nodes know its last start by this name.
        let job = number.of_start(record.restarts);
        let JobState::Ended(outcome) = &record.state else { return };
        match outcome {
            Outcome::Success => {
                for rank in 0..record.spec.request.ranks {
                    let status = self.ledger.exits.get(&(job, rank));
                    assert_eq!(status, Some(&RankStatus::Exited(0)), "job {job} rank {rank}");
                }
                self.check_use(record);
            }
            Outcome::RankFailed { rank, node, status } => {
                assert_eq!(self.ledger.exits.get(&(job, *rank)), Some(status));
                let part = record.spec.layout.iter().find(|part| part.node == *node).unwrap();
                assert!((part.first..part.first + part.count).contains(rank));
                self.check_own_failure(record, (job, *rank));
            }
            Outcome::Refused(refusal) => {
                let token = record.spec.request.token;
                let left = self.clients.iter().any(|client| client.token() == token && client.left);
                let withdrawn = refusal.kind == RefusalKind::NotNow;
                if withdrawn {
                    let limited = matches!(record.spec.request.wait, Some(WaitLimit::AtMost(_)));
                    assert!(limited, "job {job} waits for ever and was withdrawn");
                    assert_eq!(record.spec.layout, [], "job {job} had its nodes");
                }
                let real = self.ledger.refused.contains(&job) || left || withdrawn;
                assert!(real, "job {job} was refused for nothing: {refusal:?}");
            }
            Outcome::NodeLost(_) | Outcome::HeadAway(_) => {
                self.check_lost(job, outcome);
                let left = record.spec.request.batch.requeues.saturating_sub(record.restarts);
                let ends = self.ledger.killed.contains(&number);
                assert!(left == 0 || ends, "job {job} could have been started again");
            }
            Outcome::Killed => assert!(self.ledger.killed.contains(&number)),
            Outcome::Deadlocked => panic!("job {job} has no ranks that wait for each other"),
            Outcome::TimeLimit(_) => panic!("job {job} has no time limit"),
        }
        self.check_nothing_runs(number);
        if let Some(at) = self.ledger.causes.get(&job)
            && self.scenario.faults.prompt()
        {
            // Daemons that die may take until their leases are over to come back.
            let lease = if self.scenario.faults.daemons { LEASE + GRACE + 1_000 * MS } else { 0 };
            let most = lease + 2_000 * MS;
            let took = self.now - at;
            assert!(took <= most, "job {job} took {took} ns to end: {outcome:?}");
        }
    }

    /// A job that may be started again does not end because a rank failed whose peer's node was lost.
    fn check_own_failure(&self, record: &JobRecord, failed: (JobId, u32)) {
        // A new head may have seen neither the node nor its loss.
        if self.scenario.faults.head || !self.ledger.failed_for_loss.contains(&failed) {
            return;
        }
        let left = record.spec.request.batch.requeues.saturating_sub(record.restarts);
        let ends = self.ledger.killed.contains(&record.spec.job);
        assert!(left == 0 || ends, "{failed:?} failed because a node was lost: {record:?}");
    }

    /// What a job has used on each of its nodes is counted once, whatever broke meanwhile.
    fn check_use(&self, record: &JobRecord) {
        let (job, layout) = (record.spec.job, &record.spec.layout);
        let parts = layout.iter().map(|part| used_by(job, part.node.0));
        let measured = parts.fold(PartUse::default(), PartUse::plus);
        match record.restarts {
            0 => assert_eq!(record.used.measured, measured, "job {job}"),
            // What it used before a node was lost counts, too.
            _ => assert!(record.used.measured.used_us >= measured.used_us, "job {job}"),
        }
        assert_eq!(record.used.nodes as usize, layout.len(), "job {job}");
        assert!(record.used.processors > 0, "job {job} held nothing");
    }

    /// Whoever starts the job again meets nothing of it, on nodes that are cut off neither.
    fn check_nothing_runs(&self, job: JobId) {
        for (number, node) in self.nodes.iter().enumerate() {
            let mut starts = node.jobs.iter().filter(|(start, _)| start.number() == job);
            // Nothing runs on a machine that sleeps; see `node_is_awake`.
            let asleep = self.now < node.asleep_until;
            let runs = starts.any(|(_, local)| local.runs()) && !asleep;
            assert!(!runs, "job {job} has ended, and runs on node {number}");
        }
    }

    /// Every running job that is not idle is in the timetable, on all of its nodes in the same slots,
    /// and nothing else is.
    pub fn check_timetable(&self) {
        let Some(head) = &self.head.head else { return };
        let timetable = head.timetable();
        let cycle = timetable.cycle() as u64;
        let slots_of = |node: NodeId, job: JobId| -> Vec<u64> {
            (0..cycle).filter(|&tick| timetable.jobs_at(node, tick).contains(&job)).collect()
        };
        let mut running = BTreeSet::new();
        let idle: BTreeSet<JobId> = timetable.idle.iter().copied().collect();
        for record in head.records().filter(|record| record.state == JobState::Running) {
            let job = record.spec.job;
            if idle.contains(&job) {
                continue;
            }
            running.insert(job);
            let mut common: Option<Vec<u64>> = None;
            for part in &record.spec.layout {
                let slots = slots_of(part.node, job);
                assert!(!slots.is_empty(), "job {job} gets no slice on node {}", part.node);
                assert!(common.as_ref().is_none_or(|common| *common == slots));
                common = Some(slots);
            }
        }
        for column in &timetable.columns {
            assert_eq!(timetable.cycle() % column.slots.len(), 0);
            assert!(column.slots.iter().flatten().all(|job| running.contains(job)));
        }
    }

    /// Long after the last fault: everybody is attached, goes by the timetable, and runs what runs.
    pub fn check_settled(&self) {
        let head = self.head.head.as_ref().expect("the head is back");
        let start_of = |record: &JobRecord| record.spec.job.of_start(record.restarts);
        let live = |job: JobId| {
            head.records().any(|r| start_of(r) == job && !matches!(r.state, JobState::Ended(_)))
        };
        let numbers = |timetable: &Timetable| {
            let mut timetable = timetable.clone();
            let slots = timetable.columns.iter_mut().flat_map(|column| &mut column.slots);
            slots.flatten().chain(&mut timetable.idle).for_each(|job| *job = job.number());
            let slots = timetable.columns.iter_mut().flat_map(|column| &mut column.slots);
            slots.for_each(|slot| slot.sort_unstable());
            timetable.idle.sort_unstable();
            timetable
        };
        for (number, node) in (0..).zip(&self.nodes) {
            let id = NodeId(number);
            assert!(head.is_up(id), "node {number} is not attached");
            let applied = numbers(node.timetable.as_ref().expect("every node has a timetable"));
            self.check_applied(&applied, head.timetable(), id);
            for &job in node.jobs.keys() {
                assert!(live(job), "job {job} is over, and half alive on node {number}");
            }
        }
        for record in head.records().filter(|record| record.state == JobState::Running) {
            let (job, start) = (record.spec.job, start_of(record));
            let here = |part: &NodeRanks| self.nodes[part.node.0 as usize].jobs.get(&start);
            let idle = record.spec.layout.iter().all(|part| here(part).is_none_or(|l| l.idle));
            assert_eq!(head.timetable().idle.contains(&job), idle, "job {job}");
        }
        for record in head.records() {
            assert_ne!(record.state, JobState::Preparing, "job {} hangs", record.spec.job);
            assert!(!matches!(record.state, JobState::Ending(_)), "{:?} hangs", record);
            let for_ever =
                record.state == JobState::Running && self.plan_of(record.spec.job).runs_for_ever;
            for part in record.spec.layout.iter().filter(|_| for_ever) {
                let local = self.nodes[part.node.0 as usize].jobs.get(&start_of(record));
                assert!(local.is_some_and(|local| local.started && !local.alive.is_empty()));
            }
        }
    }

    /// A node does what the head's timetable says, also if it has one from before, which said the same of it.
    fn check_applied(&self, applied: &Timetable, last: &Timetable, node: NodeId) {
        assert!(applied.generation <= last.generation, "node {node}");
        assert_eq!((applied.mode, applied.slice_ns), (last.mode, last.slice_ns), "node {node}");
        let now = ClusterTime(applied.start.0.max(last.start.0));
        let (old, new) = (applied.tick_at(now), last.tick_at(now));
        assert_eq!(applied.tick_start(old + 1), last.tick_start(new + 1), "node {node}");
        for slot in 0..(applied.cycle() * last.cycle()) as u64 {
            let [was, is] = [applied.jobs_at(node, old + slot), last.jobs_at(node, new + slot)];
            assert_eq!(was, is, "node {node} after {slot} slots");
        }
        let here = |timetable: &Timetable| -> Vec<JobId> {
            let jobs = &self.nodes[node.0 as usize].jobs;
            timetable.idle.iter().copied().filter(|job| jobs.contains_key(job)).collect()
        };
        assert_eq!(here(applied), here(last), "node {node}");
    }

    /// The end: everything has ended, everywhere, and everybody was told.
    pub fn check_over(&self) {
        for (job, record) in &self.head.records {
            assert!(self.head.ended(*job).is_some(), "job {job} did not end: {:?}", record.state);
        }
        let tokens: BTreeSet<u128> =
            self.head.records.values().map(|record| record.spec.request.token).collect();
        assert_eq!(tokens.len(), self.head.records.len(), "a token has two jobs");
        for (index, client) in self.clients.iter().enumerate().filter(|(_, c)| !c.left) {
            let job = client.job.unwrap_or_else(|| panic!("client {index}'s job is lost"));
            assert_eq!(client.outcome.as_ref(), self.head.ended(job), "client {index}");
        }
        for (number, node) in self.nodes.iter().enumerate() {
            assert!(node.jobs.is_empty(), "node {number} has something left");
            let agent = node.agent.as_ref().expect("all nodes are up");
            assert_eq!(agent.description().jobs, [], "node {number} forgot its reports");
            assert!(node.timetable.as_ref().is_none_or(|timetable| timetable.columns.is_empty()));
        }
        self.check_spools();
    }

    /// After a shutdown: all is recorded as over, and nobody is left.
    pub fn check_stopped(&self) {
        assert!(self.head.stopped, "the head did not stop");
        for (job, record) in &self.head.records {
            assert!(self.head.ended(*job).is_some(), "job {job} did not end: {:?}", record.state);
        }
        for (number, node) in self.nodes.iter().enumerate() {
            assert!(node.agent.is_none() && node.jobs.is_empty(), "node {number} did not stop");
        }
    }

    /// The output of a job that ended well is complete, whatever broke meanwhile.
    fn check_spools(&self) {
        for (job, record) in &self.head.records {
            if self.head.ended(*job) == Some(&Outcome::Success) {
                let text = &self.head.spools[job].text;
                let mut lines: Vec<&str> = std::str::from_utf8(text).unwrap().lines().collect();
                let count = lines.len();
                lines.sort_unstable();
                lines.dedup();
                assert_eq!(lines.len(), count, "job {job}");
                assert_eq!(count, 2 * record.spec.request.ranks as usize, "job {job}");
            }
        }
    }
}
