//! What clients ask, and who may.

use alloc::format;
use alloc::vec::Vec;

use kumi_sched::{JobId, Mode, NodeId};

use super::jobs::refusal;
use super::quota::input_bytes;
use super::transfers::Chunk;
use super::{ClientId, Head, HeadAction, Shutdown};
use crate::message::{
    CONTROL_VERSION, ClientReply, ClientRequest, ClusterStatus, Command, JobRecord, JobRequest,
    JobState, Nanos, NodeDescription, NodeSet, NodeStatus, Outcome, Refusal, RefusalKind, User,
};

/// Shortest and longest slice, in nanoseconds.
const SLICES: core::ops::RangeInclusive<u64> = 100_000..=60_000_000_000;
/// Standard input kept for a job that does not run yet.
const MOST_INPUT: usize = 1 << 20;
/// About what the records in one answer may take; the newest go first.
const MOST_RECORDS: usize = 700 << 10;
/// How long daemons have to stop at a shutdown.
const SHUTDOWN_GRACE: Nanos = 5_000_000_000;
/// Signals that ask a program to end; before it runs, they end the job.
const ENDING_SIGNALS: [u8; 5] = [1, 2, 3, 9, 15];

impl Head {
    pub(super) fn client(&mut self, client: ClientId, user: &User, request: ClientRequest) {
        let done = match request {
            ClientRequest::Hello { version } => self.hello(client, version),
            ClientRequest::Submit(request) => self.client_submit(client, user, *request),
            ClientRequest::Follow { job, offset, wait } => {
                self.follow(client, user, job, offset, wait)
            }
            ClientRequest::ProgramChunk { hash, offset, total, data } => {
                self.program_chunk(client, Chunk { hash, offset, total, data });
                Ok(())
            }
            ClientRequest::Input { job, data } => self.input(user, job, data),
            ClientRequest::Signal { job, signal } => self.signal(client, user, job, signal),
            ClientRequest::Kill { job } => self.client_kill(client, user, job),
            ClientRequest::Jobs { all } => {
                let (records, idle) = (self.listed(all), self.idle_jobs());
                self.reply(client, ClientReply::Jobs(records, idle));
                Ok(())
            }
            ClientRequest::Cluster => {
                let status = self.status();
                self.reply(client, ClientReply::Cluster(status));
                Ok(())
            }
            ClientRequest::Sample => self.sample(client, None),
            ClientRequest::SamplePeers { job } => self.sample(client, Some(job)),
            ClientRequest::Configure { mode, slice_ns, policy } => {
                self.configure(client, user, (mode, slice_ns), policy.as_deref())
            }
            ClientRequest::Shutdown => self.begin_shutdown(client, user),
        };
        if let Err(refusal) = done {
            self.reply(client, ClientReply::Refused(refusal));
        }
    }

    fn hello(&mut self, client: ClientId, version: u32) -> Result<(), Refusal> {
        if version != CONTROL_VERSION {
            let message = format!(
                "the head speaks control version {CONTROL_VERSION} and the client {version}; \
                 install the same version of Kumi on both"
            );
            return Err(refusal(RefusalKind::Version, message));
        }
        self.reply(client, ClientReply::Welcome { version: CONTROL_VERSION });
        Ok(())
    }

    pub(super) fn owns_cluster(&self, user: &User) -> bool {
        user.uid == 0 || user.uid == self.config.owner_uid
    }

    /// # Errors
    /// There is no such job, or it is not this user's to see or touch.
    fn permitted(&self, user: &User, id: JobId) -> Result<(), Refusal> {
        let Some(job) = self.jobs.get(&id) else {
            let message = format!("there is no job {id}; `kumi ps --all` lists those there are");
            return Err(refusal(RefusalKind::NoSuchJob, message));
        };
        if self.owns_cluster(user) || job.record.spec.user.uid == user.uid {
            return Ok(());
        }
        let message = format!("job {id} belongs to another user; only they and the owner may");
        Err(refusal(RefusalKind::NotPermitted, message))
    }

    fn client_submit(
        &mut self,
        client: ClientId,
        user: &User,
        request: JobRequest,
    ) -> Result<(), Refusal> {
        let job = self.submit(user, request)?;
        self.reply(client, ClientReply::Submitted { job });
        if let Some(entry) = self.jobs.get_mut(&job).filter(|job| !job.is_over()) {
            entry.submitter = Some(client);
            entry.awaits_client = false;
        }
        self.follow(client, user, job, 0, true)?;
        // It may be the one who can supply the program.
        self.program_ready(job);
        Ok(())
    }

    fn follow(
        &mut self,
        client: ClientId,
        user: &User,
        id: JobId,
        offset: u64,
        wait: bool,
    ) -> Result<(), Refusal> {
        self.permitted(user, id)?;
        let Some(job) = self.jobs.get_mut(&id) else { return Ok(()) };
        let state = job.record.state.clone();
        if let JobState::Ended(outcome) = state {
            self.push(HeadAction::Follow { client, job: id, offset, wait });
            self.push(HeadAction::EndSpool { job: id, outcome });
            return Ok(());
        }
        if wait {
            job.followers.insert(client);
            self.reply(client, ClientReply::State { job: id, state });
        }
        self.push(HeadAction::Follow { client, job: id, offset, wait });
        Ok(())
    }

    /// Input comes as it may: what comes before the job runs is kept up to a limit, what comes
    /// after its end is dropped like what is written to a pipe nobody reads.
    fn input(&mut self, user: &User, id: JobId, data: Vec<u8>) -> Result<(), Refusal> {
        self.permitted(user, id)?;
        let Some(job) = self.jobs.get(&id) else { return Ok(()) };
        match job.record.state {
            JobState::Running => self.send_input(id, data),
            JobState::Queued | JobState::Preparing => {
                let more = data.len() + 64;
                if input_bytes(job).saturating_add(more) > MOST_INPUT {
                    let message = format!(
                        "job {id} does not run yet, and 1 MiB of input waits for it already; \
                         send the rest when it runs"
                    );
                    return Err(refusal(RefusalKind::NoResources, message));
                }
                let whose = job.record.spec.user.clone();
                self.check_bytes(&whose, more)?;
                self.hold(whose.uid, 0, more);
                if let Some(job) = self.jobs.get_mut(&id) {
                    job.input.push(data);
                }
            }
            JobState::Ending(_) | JobState::Ended(_) => {}
        }
        Ok(())
    }

    fn signal(
        &mut self,
        client: ClientId,
        user: &User,
        id: JobId,
        signal: u8,
    ) -> Result<(), Refusal> {
        self.permitted(user, id)?;
        if !(1..=64).contains(&signal) {
            let message = format!("{signal} is no signal; they are 1 to 64");
            return Err(refusal(RefusalKind::BadRequest, message));
        }
        let state = self.jobs.get(&id).map(|job| (job.record.state.clone(), job.live_nodes()));
        match state {
            Some((JobState::Running, nodes)) => {
                if let Some(job) = self.jobs.get_mut(&id) {
                    job.asked_to_end |= ENDING_SIGNALS.contains(&signal);
                }
                self.send(&nodes, &Command::Signal { job: id, signal });
            }
            Some((JobState::Queued | JobState::Preparing, _))
                if ENDING_SIGNALS.contains(&signal) =>
            {
                self.end(id, Outcome::Killed);
            }
            _ => {}
        }
        self.reply(client, ClientReply::Done);
        Ok(())
    }

    fn client_kill(&mut self, client: ClientId, user: &User, id: JobId) -> Result<(), Refusal> {
        self.permitted(user, id)?;
        match self.jobs.get_mut(&id) {
            Some(job) if !job.is_over() => {
                job.killers.insert(client);
                self.end(id, Outcome::Killed);
            }
            _ => self.reply(client, ClientReply::Done),
        }
        Ok(())
    }

    /// Environments may hold secrets and are not listed. Ascending, and cut to what fits a frame:
    /// jobs that are not over before those that are, new ones before old ones.
    fn listed(&self, all: bool) -> Vec<JobRecord> {
        let live = self.jobs.values().rev().filter(|job| !job.is_over());
        let over = self.jobs.values().rev().filter(|job| all && job.is_over());
        let mut records: Vec<JobRecord> = Vec::new();
        let mut size = 0;
        for job in live.chain(over) {
            let request = &job.record.spec.request;
            let text: usize = request.args.iter().map(|arg| arg.len() + 4).sum();
            size +=
                256 + text + request.cwd.len() + request.name.len() + request.program.path.len();
            size += job.record.spec.layout.len() * 16;
            if size > MOST_RECORDS {
                break;
            }
            let mut record = job.record.clone();
            record.spec.request.env = Vec::new();
            record.spec.channel_key = 0;
            record.spec.seal_key = None;
            records.push(record);
        }
        records.sort_by_key(|record| record.spec.job);
        records
    }

    fn status(&self) -> ClusterStatus {
        let nodes = (0..).zip(&self.nodes).map(|(number, node)| NodeStatus {
            node: NodeId(number),
            up: self.is_up(NodeId(number)),
            description: node.description.as_ref().map(|said| NodeDescription {
                // What it had when it attached; what it has now is below.
                jobs: Vec::new(),
                path: Vec::new(),
                ..said.clone()
            }),
            jobs: node.jobs.iter().copied().collect(),
        });
        ClusterStatus {
            name: self.config.cluster_name.clone(),
            nodes: nodes.collect(),
            mode: self.config.mode,
            slice_ns: self.config.slice_ns,
            timetable: self.timetable.clone(),
            since_ms: self.started.map_or(self.wall_ms, |(_, wall_ms)| wall_ms),
            control_messages: self.messages,
            policy: self.config.policy.clone(),
            tree: self.tree(),
        }
    }

    fn owner_only(&self, user: &User, what: &str) -> Result<(), Refusal> {
        if self.owns_cluster(user) {
            return Ok(());
        }
        let message = format!("only the cluster's owner and root may {what}");
        Err(refusal(RefusalKind::NotPermitted, message))
    }

    fn configure(
        &mut self,
        client: ClientId,
        user: &User,
        (mode, slice_ns): (Option<Mode>, Option<u64>),
        policy: Option<&str>,
    ) -> Result<(), Refusal> {
        self.owner_only(user, "change how processors are shared")?;
        if slice_ns.is_some_and(|slice| !SLICES.contains(&slice)) {
            let message = "a slice is 100 microseconds to 60 seconds long; choose one between";
            return Err(refusal(RefusalKind::BadRequest, message.into()));
        }
        if let Some(name) = policy {
            self.change_policy(name)?;
        }
        self.config.mode = mode.unwrap_or(self.config.mode);
        self.config.slice_ns = slice_ns.unwrap_or(self.config.slice_ns);
        self.timetable_changed();
        self.publish_if_stale();
        self.reply(client, ClientReply::Done);
        Ok(())
    }

    fn begin_shutdown(&mut self, client: ClientId, user: &User) -> Result<(), Refusal> {
        self.owner_only(user, "shut it down")?;
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.clients.push(client);
            return Ok(());
        }
        let deadline = self.now.saturating_add(SHUTDOWN_GRACE);
        self.shutdown = Some(Shutdown { clients: Vec::from([client]), deadline, done: false });
        let live = self.jobs.values().filter(|job| !job.is_over());
        let live: Vec<JobId> = live.map(super::jobs::Job::id).collect();
        for id in live {
            self.end(id, Outcome::Killed);
        }
        let attached = NodeSet::from_nodes(self.routes.nodes());
        self.send(&attached, &Command::Shutdown);
        Ok(())
    }

    /// Over when all jobs and all daemons are, or the daemons took too long: jobs that are not over
    /// then stay recorded as ending, and the next head sees to them.
    pub(super) fn check_shutdown(&mut self) {
        let now = self.now;
        let free = self.links.is_empty() && self.jobs.values().all(super::jobs::Job::is_over);
        let due = |shutdown: &&mut Shutdown| !shutdown.done && (free || now >= shutdown.deadline);
        let Some(shutdown) = self.shutdown.as_mut().filter(due) else { return };
        shutdown.done = true;
        for client in core::mem::take(&mut shutdown.clients) {
            self.reply(client, ClientReply::Done);
        }
        self.push(HeadAction::Shutdown);
    }

    /// A client's connection is gone; its jobs go on.
    pub(super) fn client_gone(&mut self, client: ClientId) {
        for job in self.jobs.values_mut() {
            job.followers.remove(&client);
            job.killers.remove(&client);
        }
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.clients.retain(|&other| other != client);
        }
        self.source_gone(client);
    }
}
