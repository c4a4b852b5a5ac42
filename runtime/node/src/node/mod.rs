//! `kumid node`: the daemon of one node.
//!
//! One thread runs the clients of this machine, the tasks of the jobs, and the agent that decides. The links of the tree and the
//! switching have threads of their own.

mod backpressure;
mod channels;
mod clients;
mod disclosure;
mod groups;
mod head_contact;
mod heads;
mod health;
pub(crate) mod keeping;
mod machine_load;
mod memory;
mod metrics;
mod sampling;
pub(crate) mod setup;
mod tree;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use kumi_control::agent::{Agent, AgentAction, AgentConfig, AgentEvent, LinkId};
use kumi_control::disclosure::LinkPeer;
use kumi_control::message::{
    Command, ContentHash, Contribution, ControlMessage, Down, ExchangeId, NodeFacts, Refusal,
    RefusalKind, Up,
};
use kumi_sched::{JobId, NodeId};
use tokio::signal::unix::SignalKind;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};

use crate::client::refusal;
use crate::clock::{self, SharedClock};
use crate::event_loop;
use crate::exit::Failure;
use crate::fill::FillMonitor;
use crate::idle::IdleMonitor;
use crate::job::{self, JobCommand, JobEvent, NodeServices};
use crate::link::{Outbox, Refusals, Traffic};
use crate::service::{self, Signals};
use crate::tls::Credentials;
use crate::verdict::VerdictMonitor;
pub use backpressure::WayUp;
use backpressure::{Backpressure, BlockedOutput, MAX_QUEUED};
use disclosure::DisclosurePublisher;
use keeping::Keeping;
use metrics::NodeMetrics;
use sampling::{Sampler, look_at_ranks};

/// How often to look whether the queue to a slow link has drained.
const DRAIN_LOOK: Duration = Duration::from_millis(5);

/// Between looks for programs that nobody uses.
const CLEAN_UP: Duration = Duration::from_secs(3_600);

/// How long a daemon that is told to stop waits for its jobs to be freed, which may hang on output
/// that nobody takes; and how often it looks.
const STOP_PATIENCE: Duration = Duration::from_secs(3);
const STOP_LOOK: Duration = Duration::from_millis(100);

/// Event from a link for the main loop.
#[derive(Debug)]
enum TreeEvent {
    ParentUp(Outbox),
    ParentDown,
    Parent(Down),
    ChildUp(LinkId, Outbox),
    ChildDown(LinkId),
    Child(LinkId, Up),
}

/// State that the links and the main loop share.
#[derive(Debug, Clone, Default)]
struct Shared {
    clock: SharedClock,
    refusals: Refusals,
    /// Control messages sent and received.
    traffic: Traffic,
    head: head_contact::HeadContact,
}

#[derive(Debug)]
struct JobEntry {
    orders: mpsc::UnboundedSender<JobCommand>,
    /// The agent waits for `Freed`.
    kill_wanted: bool,
}

/// Runs the daemon of `node` of the cluster in `dir` until it is told to stop. `metrics` replaces
/// what the configuration says of where to serve figures.
///
/// # Errors
/// The daemon could not start, or failed.
pub fn run(dir: &Path, node: NodeId, metrics: Option<&str>) -> Result<(), Failure> {
    let runtime = event_loop::make()?;
    let tasks = tokio::task::LocalSet::new();
    let result = tasks.block_on(&runtime, async {
        let started = setup::Started::start(dir, node, metrics).await?;
        let mut driver = NodeDaemon::new(started)?;
        driver.run().await
    });
    // Tasks hold parts of the site, and the switching thread ends with the last of them.
    drop(tasks);
    runtime.shutdown_timeout(Duration::from_secs(1));
    result
}

/// Sends a neighbour the facts that it lacks, unless much waits for it already.
fn send_facts<T: ControlMessage>(
    publisher: &mut DisclosurePublisher,
    to: LinkPeer,
    outbox: &Outbox,
    frame: impl Fn(Vec<NodeFacts>) -> T,
) {
    if outbox.queued() > MAX_QUEUED {
        return;
    }
    let facts = publisher.message(to);
    if !facts.is_empty() {
        outbox.send(&frame(facts));
    }
}

struct NodeDaemon {
    agent: Agent,
    services: Rc<NodeServices>,
    shared: Shared,
    sampler: Rc<RefCell<Sampler>>,
    publisher: DisclosurePublisher,
    idle_monitor: IdleMonitor,
    verdict_monitor: VerdictMonitor,
    fill_monitor: FillMonitor,
    jobs: BTreeMap<JobId, JobEntry>,
    parent: Option<Outbox>,
    children: BTreeMap<LinkId, Outbox>,
    credentials: Credentials,
    backpressure: Backpressure,
    job_events: mpsc::Receiver<JobEvent>,
    tree_events: mpsc::Receiver<TreeEvent>,
    files: setup::Files,
    /// Told to stop by a signal: until when to wait for the jobs to be freed.
    stopping: Option<Instant>,
    done: bool,
    keeping: Keeping,
}

impl NodeDaemon {
    fn new(started: setup::Started) -> Result<Self, Failure> {
        let setup::Started {
            services,
            shared,
            description,
            config,
            credentials,
            backpressure,
            job_events,
            tree_events,
            files,
            slices,
            samples: (sample_recent, sample_peers),
            metrics,
            former: (adopted, life),
        } = started;
        let sampler = Rc::new(RefCell::new(Sampler::new(sample_recent, sample_peers)));
        if let Some((listener, cluster)) = metrics {
            let shown = (cluster, config.privacy.show_others);
            let source = NodeMetrics::new(shown, &services, &shared, &sampler);
            let page = kumi_metrics::Page::metrics(move |page| source.write(page));
            tokio::task::spawn_local(kumi_metrics::serve(listener, vec![page]));
        }
        let names = (config.name.clone(), services.hooks.node().to_owned());
        let check = health::watch(config.health.clone(), names, Rc::clone(&services));
        tokio::task::spawn_local(check);
        tokio::task::spawn_local(look_at_ranks(Rc::clone(&sampler), Rc::clone(&services)));
        let publisher = DisclosurePublisher::new(
            &services,
            crate::config::MOST_NUMBERS,
            description.incarnation,
        );
        let fill_monitor = FillMonitor::new(slices, services.cpus.len());
        let mut daemon = Self {
            agent: Agent::new(AgentConfig { description }),
            services,
            shared,
            sampler,
            publisher,
            idle_monitor: IdleMonitor::new(config.idle_after_ms),
            verdict_monitor: VerdictMonitor::new(),
            fill_monitor,
            jobs: BTreeMap::new(),
            parent: None,
            children: BTreeMap::new(),
            credentials,
            backpressure,
            job_events,
            tree_events,
            files,
            stopping: None,
            done: false,
            keeping: Keeping::new(life),
        };
        daemon.go_on_with(adopted);
        Ok(daemon)
    }

    async fn run(&mut self) -> Result<(), Failure> {
        let (mut signals, mut child) = (Signals::listen()?, service::hear(SignalKind::child())?);
        service::ready();
        let mut clean_up = tokio::time::interval(CLEAN_UP);
        clean_up.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.done {
            let timeout = self.next_timeout();
            let (disclose, idle_monitor) = (self.publisher.due(), self.idle_monitor.due());
            let (fill_monitor, verdicts) = (self.fill_monitor.due(), self.verdict_monitor.due());
            tokio::select! {
                biased;
                // First: a flood of events must not keep it from stopping.
                _ = signals.terminate.recv() => self.stop(),
                _ = signals.interrupt.recv() => self.stop(),
                _ = signals.hangup.recv() => self.credentials.reload_or_warn(),
                Some(event) = self.tree_events.recv() => self.tree_event(event),
                Some(event) = self.job_events.recv() => self.job_event(event),
                () = tokio::time::sleep(timeout) => self.agent_event(AgentEvent::Timeout),
                () = tokio::time::sleep_until(disclose) => self.disclose(),
                () = tokio::time::sleep_until(idle_monitor) => self.look_for_idle_jobs(),
                () = tokio::time::sleep_until(verdicts) => self.look_for_stopped_jobs(),
                () = tokio::time::sleep_until(fill_monitor) => self.fill_monitor.look(&self.services),
                _ = clean_up.tick() => self.services.programs.borrow().clean_up(),
                _ = child.recv() => self.services.watcher.revive(),
            }
            self.update_backpressure();
            // The head is to know how the jobs ended, behind their last output.
            let waits = self.jobs.keys().any(|&job| !self.leaves(job))
                || self.parent.is_some() && self.agent.awaits_acknowledgement();
            self.done |= self.stopping.is_some_and(|end| !waits || Instant::now() >= end);
        }
        self.flush().await;
        let leaves_jobs = self.release_others().await;
        if leaves_jobs {
            self.services.watcher.leave_jobs();
        }
        tracing::info!("stopped");
        self.files.remove(leaves_jobs);
        Ok(())
    }

    fn next_timeout(&self) -> Duration {
        let now = clock::boottime();
        let agent = self.agent.next_timeout();
        let agent = agent
            .map_or(Duration::from_secs(3600), |at| Duration::from_nanos(at.saturating_sub(now)));
        let agent = if self.stopping.is_some() { agent.min(STOP_LOOK) } else { agent };
        if self.backpressure.is_any() { agent.min(DRAIN_LOOK) } else { agent }
    }

    fn update_backpressure(&mut self) {
        let output = BlockedOutput::new(self.agent.output_blocked(), self.agent.blocked_jobs());
        self.backpressure.update(output, self.parent.as_ref(), self.children.values());
    }

    /// A signal asks the daemon to stop; the second one stops it at once.
    fn stop(&mut self) {
        if self.stopping.is_some() {
            tracing::warn!("told to stop again: stopping at once");
            self.done = true;
            return;
        }
        tracing::info!("told to stop: killing jobs that have no keeper");
        service::stopping();
        self.stopping = Some(Instant::now() + STOP_PATIENCE);
        self.leave_jobs();
        // Not by the agent's order, so that it reports the jobs as given up, not as ended well.
        let jobs: Vec<_> = self.jobs.keys().copied().filter(|&job| !self.leaves(job)).collect();
        for job in jobs {
            self.order(job, JobCommand::Kill);
        }
    }

    fn tree_event(&mut self, event: TreeEvent) {
        let event = match event {
            TreeEvent::Parent(Down::Disclosed(facts)) => {
                return self.disclosed(LinkPeer::Parent, facts);
            }
            TreeEvent::Child(link, Up::Disclosed(facts)) => {
                return self.disclosed(LinkPeer::Child(link), facts);
            }
            TreeEvent::ParentUp(outbox) => {
                self.publisher.link_up(LinkPeer::Parent);
                self.parent = Some(outbox);
                AgentEvent::ParentUp
            }
            TreeEvent::ParentDown => {
                self.publisher.link_down(LinkPeer::Parent);
                self.parent = None;
                AgentEvent::ParentDown
            }
            TreeEvent::Parent(down) => {
                self.note_acknowledged(&down);
                AgentEvent::Parent(down)
            }
            TreeEvent::ChildUp(link, outbox) => {
                self.publisher.link_up(LinkPeer::Child(link));
                self.children.insert(link, outbox);
                AgentEvent::ChildUp(link)
            }
            TreeEvent::ChildDown(link) => {
                self.publisher.link_down(LinkPeer::Child(link));
                self.children.remove(&link);
                AgentEvent::ChildDown(link)
            }
            TreeEvent::Child(link, up) => AgentEvent::Child(link, up),
        };
        self.agent_event(event);
    }

    /// Writes the pages of ranks, and tells the neighbours in the tree what they do not know yet.
    fn disclose(&mut self) {
        self.publisher.look();
        if !self.publisher.exchange_due() {
            return;
        }
        if let Some(parent) = &self.parent {
            send_facts(&mut self.publisher, LinkPeer::Parent, parent, Up::Disclosed);
        }
        for (&link, child) in &self.children {
            send_facts(&mut self.publisher, LinkPeer::Child(link), child, Down::Disclosed);
        }
    }

    fn look_for_idle_jobs(&mut self) {
        for (job, idle) in self.idle_monitor.look(&self.services) {
            tracing::debug!(%job, idle, "nothing to do, or something again");
            self.agent_event(AgentEvent::Idle { job, idle });
        }
    }

    fn look_for_stopped_jobs(&mut self) {
        for (job, standing) in self.verdict_monitor.look(&self.services, &self.idle_monitor) {
            tracing::debug!(%job, ?standing, "the ranks wait for each other, or not any more");
            self.agent_event(AgentEvent::Standing { job, standing });
        }
    }

    fn disclosed(&mut self, from: LinkPeer, facts: Vec<NodeFacts>) {
        for _ in 0..self.publisher.receive(from, facts) {
            self.shared.refusals.count("disclosure refused");
        }
    }

    fn job_event(&mut self, event: JobEvent) {
        match event {
            JobEvent::Agent(event) => {
                if let AgentEvent::Freed { job } = *event {
                    self.jobs.remove(&job);
                }
                self.agent_event(*event);
            }
            JobEvent::Gone(job) => {
                self.release(job);
                if self.jobs.remove(&job).is_some_and(|entry| entry.kill_wanted) {
                    self.agent_event(AgentEvent::Freed { job });
                }
            }
        }
    }

    fn agent_event(&mut self, event: AgentEvent) {
        let now = clock::boottime();
        self.agent.set_cluster_time(now, self.shared.clock.now());
        let forgotten = match &event {
            AgentEvent::Parent(Down::Command(_, Command::Forget { job })) => Some(*job),
            _ => None,
        };
        self.agent.handle(now, event);
        while let Some(action) = self.agent.poll_action() {
            self.act(action);
        }
        self.note_kept(forgotten);
    }

    fn act(&mut self, action: AgentAction) {
        match action {
            AgentAction::ToParent(report) => {
                if let Some(parent) = &self.parent {
                    parent.send(&Up::Report(report));
                }
            }
            AgentAction::ToChild(link, nodes, command) => {
                if let Some(child) = self.children.get(&link) {
                    child.send(&Down::Command(nodes, command));
                }
            }
            AgentAction::Prepare(spec) => self.prepare(spec),
            AgentAction::Start { job, addresses, max_datagram } => {
                self.order(job, JobCommand::Start { addresses, max_datagram });
            }
            AgentAction::StoreProgram { hash, offset, total, data } => {
                let stored = self.services.programs.borrow_mut().store(hash, offset, total, &data);
                match stored {
                    Ok(false) => {}
                    Ok(true) => self.program(hash, &Ok(())),
                    Err(refused) => self.program(hash, &Err(refused)),
                }
            }
            AgentAction::ProgramMissing(hash) => self.program(hash, &Err(setup::program_missing())),
            AgentAction::Signal { job, signal } => self.order(job, JobCommand::Signal(signal)),
            AgentAction::Input { job, data } => self.input(job, data),
            AgentAction::Resize { job, size, redraw } => {
                self.order(job, JobCommand::Resize(size, redraw));
            }
            AgentAction::Kill { job } => self.kill(job),
            AgentAction::Exchanged { id, parts } => self.exchanged(id, parts),
            AgentAction::Relayed { job, from, data } => self.relayed(job, from, data),
            AgentAction::Apply(timetable) => {
                self.idle_monitor.set_timetable(&self.services, &timetable);
                self.fill_monitor.set_timetable(&self.services, &timetable);
                self.sampler.borrow_mut().set_timetable(&timetable);
                self.services.switcher.set_timetable(timetable);
                self.switch_adopted();
            }
            AgentAction::Sample { request } => self.sample(request),
            AgentAction::LeaseExpired => {
                tracing::warn!("the head has not been heard of for its lease: killing all jobs");
            }
            AgentAction::Confirm { job, round } => self.verdict_monitor.confirm(job, round),
            AgentAction::Revoke(list) => self.credentials.revoke(&list),
            AgentAction::Shutdown => self.done = true,
            AgentAction::SamplePeers { request, job } => {
                let sample = self.sampler.borrow().sample_peers(&self.services, &self.shared, job);
                self.agent_event(AgentEvent::Sampled { request, sample });
            }
            AgentAction::SampleLoad { request, slices } => self.sample_load(request, slices),
            AgentAction::SampleTrace { request, job, rank, from } => {
                self.sample_trace(request, job, (rank, from));
            }
            AgentAction::SampleChannels { request, job, rank } => {
                self.sample_channels(request, job, rank);
            }
        }
    }

    fn sample(&mut self, request: u64) {
        let sample = self.sampler.borrow_mut().sample(&self.services, &self.shared);
        self.agent_event(AgentEvent::Sampled { request, sample });
    }

    fn sample_channels(&mut self, request: u64, job: JobId, rank: Option<u32>) {
        let (services, shared) = (&self.services, &self.shared);
        let sample = self.sampler.borrow().sample_channels(services, shared, job, rank);
        self.agent_event(AgentEvent::Sampled { request, sample });
    }

    fn sample_load(&mut self, request: u64, slices: bool) {
        let (services, shared) = (&self.services, &self.shared);
        let machine = self.publisher.machine();
        let sample = self.sampler.borrow_mut().sample_load(services, shared, machine, slices);
        self.agent_event(AgentEvent::Sampled { request, sample });
    }

    fn sample_trace(&mut self, request: u64, job: JobId, part: (u32, u64)) {
        let (services, shared) = (&self.services, &self.shared);
        let sample = self.sampler.borrow().sample_trace(services, shared, job, part);
        self.agent_event(AgentEvent::Sampled { request, sample });
    }

    fn exchanged(&mut self, id: ExchangeId, parts: Vec<Contribution>) {
        self.order(id.job, JobCommand::Exchanged(id, parts));
    }

    fn relayed(&mut self, job: JobId, from: NodeId, data: Vec<u8>) {
        self.order(job, JobCommand::Relayed(from, data));
    }

    fn prepare(&mut self, spec: Box<kumi_control::message::JobSpec>) {
        let id = spec.job;
        if self.stopping.is_some() {
            let refused =
                refusal(RefusalKind::NodeLost, "the node is being stopped; try again later");
            return self.agent_event(AgentEvent::Prepared { job: id, result: Err(refused) });
        }
        tracing::info!(job = %id, name = spec.request.name, "prepare");
        let orders = job::start(&self.services, spec);
        self.jobs.insert(id, JobEntry { orders, kill_wanted: false });
    }

    /// Input for a job, if there is room, or else the word that there is none.
    fn input(&mut self, job: JobId, data: Vec<u8>) {
        if let Some(piece) = self.services.input_room.take(job, data) {
            self.order(job, JobCommand::Input(piece));
        }
    }

    fn order(&mut self, job: JobId, order: JobCommand) {
        // A job that has just ended takes no orders; what became of it is on its way to the agent.
        if let Some(entry) = self.jobs.get(&job)
            && entry.orders.send(order).is_err()
        {
            tracing::debug!(%job, "an order came after the end of the job");
        }
    }

    fn kill(&mut self, job: JobId) {
        match self.jobs.get_mut(&job) {
            Some(entry) => {
                entry.kill_wanted = true;
                self.order(job, JobCommand::Kill);
            }
            None => self.agent_event(AgentEvent::Freed { job }),
        }
    }

    /// All jobs are told; those that do not wait for this program ignore it.
    fn program(&mut self, hash: ContentHash, result: &Result<(), Refusal>) {
        if let Err(refused) = result {
            tracing::warn!(
                hash = crate::paths::hex(&hash.0),
                reason = refused.message,
                "no program"
            );
        }
        for entry in self.jobs.values() {
            // A job that has ended waits for nothing.
            let _ = entry.orders.send(JobCommand::Program(hash, result.clone()));
        }
    }

    /// Lets the last reports leave before the connections are closed.
    async fn flush(&self) {
        let end = Instant::now() + Duration::from_secs(1);
        while self.parent.as_ref().is_some_and(|parent| parent.queued() > 0) && Instant::now() < end
        {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let messages = self.shared.traffic.counts();
        tracing::debug!(?messages, "control messages in all");
    }
}
