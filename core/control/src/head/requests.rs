//! Requests of clients: who may make each of them, and what answers it.

use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::ToString;
use alloc::vec::Vec;

use kumi_sched::{JobId, Mode, NodeId, SliceLength, Timetable};

use super::channels;
use super::sampling::SampleScope;
use super::shutdown::Shutdown;
use super::traces;
use super::transfers::Chunk;
use super::{ClientId, Head, HeadAction, refusal};
use crate::batch::ArrayIndices;
use crate::compat::{OLDEST_VERSION, Versions};
use crate::message::{
    ClientReply, ClientRequest, ClusterStatus, Command, JobRequest, JobState, JobsQuery,
    LONGEST_GRACE, Nanos, NodeDescription, NodeSet, NodeStatus, Outcome, Refusal, RefusalKind,
    User, WindowSize,
};

/// Shortest and longest slice, in nanoseconds.
const SLICES: core::ops::RangeInclusive<u64> = 100_000..=60_000_000_000;
/// Bytes of standard input that the head keeps for a job that does not run yet.
const MOST_INPUT: usize = 1 << 20;
/// Signals that ask a program to end; before it runs, they end the job.
const ENDING_SIGNALS: [u8; 5] = [1, 2, 3, 9, 15];

impl Head {
    pub(super) fn request(&mut self, client: ClientId, user: &User, request: ClientRequest) {
        let done = match request {
            ClientRequest::Hello { version } => self.hello(client, version),
            ClientRequest::Submit(request) => self.client_submit(client, user, *request),
            ClientRequest::SubmitBatch { request, array } => {
                self.submit_batch(client, user, *request, array.map(ArrayIndices::from))
            }
            ClientRequest::SubmitArray { request, indices } => {
                self.submit_batch(client, user, *request, Some(indices))
            }
            ClientRequest::Wait { job } => self.wait(client, user, job),
            ClientRequest::Follow { job, offset, wait } => {
                self.follow((client, user), job, offset, (wait, false))
            }
            ClientRequest::ProgramChunk { hash, offset, total, data } => {
                self.program_chunk(client, Chunk { hash, offset, total, data });
                Ok(())
            }
            ClientRequest::Input { job, data } => self.input(user, job, data),
            ClientRequest::Resize { job, size, redraw } => self.resize(user, job, (size, redraw)),
            ClientRequest::Signal { job, signal } => self.signal(client, user, job, signal),
            ClientRequest::Kill { job, grace_ns } => self.client_kill(client, user, job, grace_ns),
            ClientRequest::Jobs(query) => self.show_page(client, user, &query),
            ClientRequest::Cluster => self.show_status(client, user, None),
            ClientRequest::Overview { columns } => self.show_status(client, user, Some(columns)),
            ClientRequest::Heads => Err(cannot("this head knows of no others")),
            ClientRequest::Troubles => Err(cannot("this head writes nothing")),
            ClientRequest::WebTicket { .. } => Err(cannot("this head serves no browsers")),
            ClientRequest::Usage(_) => Err(cannot("this head keeps no accounts")),
            ClientRequest::Shares => self.show_shares(client, user),
            ClientRequest::Sample => self.sample_all((client, user), SampleScope::Nodes),
            ClientRequest::SampleLoad { slices } => {
                self.sample_all((client, user), SampleScope::Load { slices })
            }
            ClientRequest::SamplePeers { job } => self.sample_peers(client, user, job),
            ClientRequest::SampleChannels { job, rank } => {
                self.sample_channels(client, user, job, rank)
            }
            ClientRequest::SampleTrace { job, rank, from } => {
                self.sample_trace(client, user, job, (rank, from))
            }
            ClientRequest::Explain { job } => self.explain(client, user, job),
            ClientRequest::Configure { mode, slice, policy } => {
                self.configure(client, user, (mode, slice), policy.as_deref())
            }
            ClientRequest::Revoke { node } => self.revoke(client, user, node),
            ClientRequest::Shutdown => self.begin_shutdown(client, user),
            ClientRequest::Drain { nodes, reason } => self.drain(client, user, &nodes, &reason),
            ClientRequest::AddNode { definition } => self.add_node(client, user, definition),
            ClientRequest::RemoveNode { node, force } => self.drop_node(client, user, node, force),
            ClientRequest::Resume { nodes } => self.resume(client, user, &nodes),
            ClientRequest::JoinToken { node, valid_ms } => {
                self.join_token(client, user, node, valid_ms)
            }
        };
        if let Err(refusal) = done {
            self.actions.reply(client, ClientReply::Refused(refusal));
        }
    }

    fn hello(&mut self, client: ClientId, version: u32) -> Result<(), Refusal> {
        if !Versions::OURS.include(version) {
            let advice = if version < OLDEST_VERSION {
                "install the head's version of Kumi where you are"
            } else {
                "upgrade the head's machine before yours"
            };
            let message = format!(
                "the head speaks {} of the control protocol and the client version {version}; {advice}",
                Versions::OURS
            );
            return Err(refusal(RefusalKind::Version, message));
        }
        self.actions.reply(client, ClientReply::Welcome { version });
        Ok(())
    }

    fn show_page(
        &mut self,
        client: ClientId,
        user: &User,
        query: &JobsQuery,
    ) -> Result<(), Refusal> {
        let page = self.page(user, query);
        self.actions.reply(client, ClientReply::Jobs(page));
        Ok(())
    }

    /// With the timetable of all nodes, or of as many of the first ones as are wanted.
    fn show_status(
        &mut self,
        client: ClientId,
        user: &User,
        columns: Option<u32>,
    ) -> Result<(), Refusal> {
        let all = self.timetable.published();
        let timetable = columns.map_or_else(|| all.clone(), |first| all.of_first_nodes(first));
        let mut status = self.status(timetable);
        self.hide_in_status(user, &mut status);
        self.actions.reply(client, ClientReply::Cluster(status));
        Ok(())
    }

    /// Checks that a user may do something to a job; `action` completes the sentence of the refusal.
    ///
    /// # Errors
    /// There is no such job, or it belongs to another user.
    pub(super) fn permitted(&self, user: &User, id: JobId, action: &str) -> Result<(), Refusal> {
        let Some(job) = self.jobs.get(id) else { return Err(no_such_job(id)) };
        if self.owns_cluster(user) || job.record.spec.user.is_same(user) {
            return Ok(());
        }
        let message = format!(
            "job {id} belongs to another user; only that user, the cluster's owner and root may {action}"
        );
        Err(refusal(RefusalKind::NotPermitted, message))
    }

    fn client_submit(
        &mut self,
        client: ClientId,
        user: &User,
        request: JobRequest,
    ) -> Result<(), Refusal> {
        let job = self.submit(user, request)?;
        self.actions.reply(client, ClientReply::Submitted { job });
        if self.jobs.get(job).is_some_and(|job| !job.is_over()) {
            self.transfers.set_submitter(job, client);
        }
        self.follow((client, user), job, 0, (true, true))?;
        // The client may be able to supply the program.
        self.supply_program(job);
        Ok(())
    }

    /// A job or an array that its client does not follow.
    fn submit_batch(
        &mut self,
        client: ClientId,
        user: &User,
        mut request: JobRequest,
        array: Option<ArrayIndices>,
    ) -> Result<(), Refusal> {
        request.batch.detached = true;
        let (first, last) = match array {
            Some(indices) => self.submit_array(user, request, &indices)?,
            None => self.submit(user, request).map(|job| (job, job))?,
        };
        self.actions.reply(client, ClientReply::Accepted { first, last });
        Ok(())
    }

    fn wait(&mut self, client: ClientId, user: &User, id: JobId) -> Result<(), Refusal> {
        self.permitted(user, id, "wait for it")?;
        let Some(job) = self.jobs.get(id) else { return Ok(()) };
        if let JobState::Ended(outcome) = job.record.state.clone() {
            self.actions.reply(
                client,
                ClientReply::Ended { job: id, outcome, not_kept: job.record.output_not_kept },
            );
        } else {
            self.subscribers.await_outcome(id, client);
        }
        Ok(())
    }

    fn follow(
        &mut self,
        (client, user): (ClientId, &User),
        id: JobId,
        offset: u64,
        (wait, paces): (bool, bool),
    ) -> Result<(), Refusal> {
        self.permitted(user, id, "read its output")?;
        let Some(job) = self.jobs.get(id) else { return Ok(()) };
        let (state, not_kept) = (job.record.state.clone(), job.record.output_not_kept);
        if let JobState::Ended(outcome) = state {
            self.actions.push(HeadAction::Follow { client, job: id, offset, wait, paces });
            self.actions.push(HeadAction::EndSpool { job: id, outcome, not_kept });
            return Ok(());
        }
        if wait {
            self.subscribers.follow(id, client);
            if state == JobState::Queued {
                self.waiting.followed(id, self.time.now());
            }
            self.actions.reply(client, ClientReply::State { job: id, state });
            self.tell_deadlock(id, client);
        }
        self.actions.push(HeadAction::Follow { client, job: id, offset, wait, paces });
        Ok(())
    }

    /// Input may come at any time. Before the job runs it is kept, up to a limit. After the job's end
    /// it is dropped, like data in a pipe that nobody reads.
    fn input(&mut self, user: &User, id: JobId, data: Vec<u8>) -> Result<(), Refusal> {
        self.permitted(user, id, "write to its input")?;
        let Some(job) = self.jobs.get(id) else { return Ok(()) };
        match job.record.state {
            // It finds the end of its input at once.
            _ if job.record.spec.request.batch.detached => {}
            JobState::Running => self.send_input(id, data),
            JobState::Queued | JobState::Preparing => {
                let more = data.len() + 64;
                if job.input_bytes().saturating_add(more) > MOST_INPUT {
                    let message = format!(
                        "job {id} has not started, and 1 MiB of its input is waiting already; \
                         send the rest when it runs"
                    );
                    return Err(refusal(RefusalKind::NoResources, message));
                }
                let owner = self.account(&job.record.spec.user);
                self.quota.check_bytes(owner, more)?;
                self.quota.charge(owner.uid, 0, more);
                if let Some(job) = self.jobs.get_mut(id) {
                    job.input.push(data);
                }
            }
            JobState::Ending(_) | JobState::Ended(_) => {}
        }
        Ok(())
    }

    /// The window that shows the terminal of a job has another size. Until the job runs the request's size stands, and its
    /// clients say theirs when it does.
    fn resize(
        &mut self,
        user: &User,
        id: JobId,
        (size, redraw): (WindowSize, bool),
    ) -> Result<(), Refusal> {
        self.permitted(user, id, "change its terminal")?;
        let Some(job) = self.jobs.get(id) else { return Ok(()) };
        if job.record.spec.request.terminal.is_none() {
            let message = format!("job {id} has no terminal; `kumi run -t` makes one");
            return Err(refusal(RefusalKind::BadRequest, message));
        }
        if job.record.state == JobState::Running {
            self.send_to_first(id, &Command::Resize { job: id, size, redraw });
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
        self.permitted(user, id, "signal it")?;
        if !(1..=64).contains(&signal) {
            let message = format!("{signal} is not a signal; give a number from 1 to 64");
            return Err(refusal(RefusalKind::BadRequest, message));
        }
        let state = self.jobs.get(id).map(|job| (job.record.state.clone(), job.live_nodes()));
        match state {
            Some((JobState::Running, nodes)) => {
                if let Some(job) = self.jobs.get_mut(id) {
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
        self.actions.reply(client, ClientReply::Done);
        Ok(())
    }

    fn client_kill(
        &mut self,
        client: ClientId,
        user: &User,
        id: JobId,
        grace: Nanos,
    ) -> Result<(), Refusal> {
        self.permitted(user, id, "stop it")?;
        if grace > LONGEST_GRACE {
            let message = "ranks get at most an hour to end by themselves; give less".to_string();
            return Err(refusal(RefusalKind::BadRequest, message));
        }
        if self.jobs.get(id).is_some_and(|job| !job.is_over()) {
            self.subscribers.await_end(id, client);
            self.give_up_restarts(id);
            self.end_after(id, Outcome::Killed, grace);
        } else {
            self.actions.reply(client, ClientReply::Done);
        }
        Ok(())
    }

    fn status(&self, timetable: Timetable) -> ClusterStatus {
        let taken = self.taken();
        let nodes = self.membership.descriptions().map(|(node, description)| NodeStatus {
            node,
            numbers: self.scheduler.processors(node),
            taken: self.node_use(taken.get(&node)),
            up: self.is_up(node),
            description: description.map(|said| NodeDescription {
                // What it had when it attached; what it has now is below.
                jobs: Vec::new(),
                path: Vec::new(),
                ..said.clone()
            }),
            jobs: self.jobs.on_node(node).into_iter().collect(),
            name: self.name_of_node(node),
            drain: self.membership.drains().get(node).cloned(),
        });
        ClusterStatus {
            name: self.config.cluster_name.clone(),
            nodes: nodes.collect(),
            mode: self.timetable.mode(),
            slice: self.timetable.slice(),
            timetable,
            since_ms: self.time.started_ms(),
            control_messages: self.actions.messages(),
            policy: self.scheduler.name().to_string(),
            tree: match self.timetable.mode() {
                Mode::OperatingSystem => None,
                Mode::Gang { .. } => {
                    self.scheduler.tree(self.timetable.slots_since(self.time.now()))
                }
            },
        }
    }

    /// Asks all nodes that are reached for samples.
    fn sample_all(&mut self, client: (ClientId, &User), scope: SampleScope) -> Result<(), Refusal> {
        let nodes = self.membership.tree().routes().nodes().collect();
        self.sample(client, scope, &nodes);
        Ok(())
    }

    /// Asks these nodes for samples, as far as they are reached.
    fn sample(&mut self, client: (ClientId, &User), scope: SampleScope, nodes: &BTreeSet<NodeId>) {
        if let Some(samples) = self.shared_samples.take(scope, client.0, self.time.now()) {
            return self.give_samples(client.0, client.1, samples);
        }
        if self.samples.join(scope, client) {
            return;
        }
        let reached = self.membership.tree().routes().nodes();
        let nodes: BTreeSet<NodeId> = reached.filter(|node| nodes.contains(node)).collect();
        let set = NodeSet::from_nodes(nodes.iter().copied());
        let request = self.samples.begin(scope, client, nodes, self.time.now());
        self.send(&set, &scope.command(request));
    }

    /// Since only known jobs have any nodes, requests for samples are bounded.
    fn sample_peers(&mut self, client: ClientId, user: &User, id: JobId) -> Result<(), Refusal> {
        self.may_see_peers(user, id)?;
        let Some(job) = self.jobs.get(id) else { return Err(no_such_job(id)) };
        let nodes = job.record.spec.layout.iter().map(|part| part.node).collect();
        self.sample((client, user), SampleScope::Peers(id), &nodes);
        Ok(())
    }

    /// Ranks that do not exist are refused, so these requests are bounded too.
    fn sample_channels(
        &mut self,
        client: ClientId,
        user: &User,
        id: JobId,
        rank: Option<u32>,
    ) -> Result<(), Refusal> {
        self.permitted(user, id, "look at its channels")?;
        let Some(job) = self.jobs.get(id) else { return Err(no_such_job(id)) };
        let parts = channels::parts(&job.record, rank)?;
        let nodes = parts.iter().map(|part| part.node).collect();
        self.sample((client, user), SampleScope::Channels(id, rank), &nodes);
        Ok(())
    }

    fn sample_trace(
        &mut self,
        client: ClientId,
        user: &User,
        id: JobId,
        (rank, from): (u32, u64),
    ) -> Result<(), Refusal> {
        self.permitted(user, id, "see its trace")?;
        let Some(job) = self.jobs.get(id) else { return Err(no_such_job(id)) };
        let node = traces::node_of(&job.record, rank)?;
        if self.samples.too_many_traces() {
            let message = "the head already reads as many traces as it can; try again";
            return Err(refusal(RefusalKind::NotNow, message.to_string()));
        }
        self.sample((client, user), SampleScope::Trace(id, rank, from), &BTreeSet::from([node]));
        Ok(())
    }

    pub(super) fn owner_only(&self, user: &User, what: &str) -> Result<(), Refusal> {
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
        (mode, slice): (Option<Mode>, Option<SliceLength>),
        policy: Option<&str>,
    ) -> Result<(), Refusal> {
        self.owner_only(user, "change how processors are shared")?;
        if matches!(slice, Some(SliceLength::Fixed(slice_ns)) if !SLICES.contains(&slice_ns)) {
            let message =
                "a slice lasts from 100 microseconds to 60 seconds; choose one in this range";
            return Err(refusal(RefusalKind::BadRequest, message.into()));
        }
        if let Some(name) = policy {
            self.change_policy(name)?;
        }
        self.timetable.set_sharing(mode, slice);
        self.publish_timetable();
        self.actions.reply(client, ClientReply::Done);
        Ok(())
    }

    fn begin_shutdown(&mut self, client: ClientId, user: &User) -> Result<(), Refusal> {
        self.owner_only(user, "shut it down")?;
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.add_client(client);
            return Ok(());
        }
        self.shutdown = Some(Shutdown::new(client, self.time.now()));
        for id in self.jobs.live() {
            self.end(id, Outcome::Killed);
        }
        self.send(&self.membership.attached(), &Command::Shutdown);
        Ok(())
    }

    /// Finishes a shutdown once all jobs and all daemons are gone, or the daemons took too long. Jobs
    /// that are not over then stay recorded as ending; the next head takes them over.
    pub(super) fn check_shutdown(&mut self) {
        let all_gone = !self.membership.tree().has_links() && self.jobs.all_over();
        let now = self.time.now();
        let finished = self.shutdown.as_mut().and_then(|s| s.take_finished(all_gone, now));
        let Some(clients) = finished else { return };
        for client in clients {
            self.actions.reply(client, ClientReply::Done);
        }
        self.actions.push(HeadAction::Shutdown);
    }

    /// A client's connection is gone; its jobs go on.
    pub(super) fn client_gone(&mut self, client: ClientId) {
        self.subscribers.forget_client(client);
        self.shared_samples.forget_client(client);
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.remove_client(client);
        }
        self.source_gone(client);
    }

    /// Another policy takes over. Slices keep their rhythm.
    ///
    /// # Errors
    /// As of [`super::scheduler::Scheduler::prepare_change`]; then all is as it was.
    fn change_policy(&mut self, name: &str) -> Result<(), Refusal> {
        if name == self.scheduler.name() {
            return Ok(());
        }
        let policy = self.scheduler.prepare_change(
            name,
            &self.jobs,
            &self.membership,
            &self.idle,
            &self.time,
        )?;
        self.timetable.pass_slots(self.time.now(), &mut self.scheduler);
        self.scheduler.change(name, policy);
        self.waiting.set_changed(self.time.now());
        Ok(())
    }
}

/// Refusal of what the driver does where it can be done: such requests do not come here then.
fn cannot(why: &str) -> Refusal {
    refusal(RefusalKind::Internal, why.to_string())
}

fn no_such_job(id: JobId) -> Refusal {
    let message = format!("there is no job {id}; `kumi ps --all` lists the jobs");
    refusal(RefusalKind::NoSuchJob, message)
}
