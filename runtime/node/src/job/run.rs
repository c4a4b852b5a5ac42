//! Task of one job on this node.

mod assembly;

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use kumi_control::agent::AgentEvent;
use kumi_control::message::{
    JobSpec, NodeRanks, RankAddress, RankStatus, Refusal, RefusalKind, Stream,
};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::MissedTickBehavior;

use super::admission::LaunchAborted;
use super::cleanup::kill_groups;
use super::devices::JobDevices;
use super::hooks::JobHooks;
use super::kept::OutputSource;
use super::launch::{JobResources, RankProcess, RankStreams, ShimProcesses};
use super::limits::not_enforced;
use super::memory_kills::{self, LOOK, MemoryKills};
use super::mpi::{MpiLaunch, ServerProcess};
use super::mpi_task::MpiTask;
use super::rank_address::JobPart;
use super::shim::{SERVER, ShimReport, read_reports};
use super::starting::JobStart;
use super::streams::{Input, pump};
use super::terminal::Terminal;
use super::unkillable::KillWatch;
use super::usage::UseMeter;
use super::{JobCommand, JobEvent, NodeServices};
use crate::cgroup::JobGroups;
use crate::client::refusal;
use crate::config::on_link;
use crate::fill::JobThread;
use crate::keep::{KeptJob, KeptPhase};
use crate::switch::{IdlePriority, MOST_RANKS, SliceMeter, Stopper, SwitchedJob};
use crate::verdict::last_standing;
use crate::wire::JobWires;

/// Event from a part of a job for its task.
pub(super) enum TaskEvent {
    Report(ShimReport),
    /// No shim has the status pipe any more: all are programs, or gone.
    Launched,
    Exited(usize, RankStatus),
    /// One of the output pipes has ended.
    Closed,
    /// A shim ended a while ago, and if it had a reason it has come.
    Silent(usize, RankStatus),
}

pub(super) use assembly::JobParts;

/// How long after the end of a shim its report is waited for.
const REPORT_LAG: Duration = Duration::from_millis(20);

pub(super) type JobCommands = mpsc::UnboundedReceiver<JobCommand>;

/// A job that has processes.
pub(super) struct JobTask {
    pub(super) services: Rc<NodeServices>,
    pub(super) job: kumi_sched::JobId,
    pub(super) first: u32,
    /// Some of its ranks are on other nodes.
    has_other_nodes: bool,
    /// Which ranks are where.
    layout: Vec<JobPart>,
    /// Its control groups.
    pub(super) control: Option<JobGroups>,
    /// Free again once nothing of the job is left.
    pub(super) devices: Option<JobDevices>,
    memory_kills: MemoryKills,
    pub(super) kill_watch: KillWatch,
    pub(super) use_meter: UseMeter,
    /// Process groups of the ranks; 0 once the rank is reaped.
    pub(super) groups: Arc<Vec<AtomicI32>>,
    pub(super) input: Input,
    /// That of rank 0, if it has one and runs here.
    pub(super) terminal: Option<Terminal>,
    go: Option<pipe::Sender>,
    pub(super) parts: mpsc::UnboundedReceiver<TaskEvent>,
    tell: mpsc::UnboundedSender<TaskEvent>,
    /// Of an MPI program.
    pub(super) mpi: Option<MpiTask>,
    addresses: kumi_control::message::PreparedRanks,
    wires: JobWires,
    /// Shims that are not ready yet.
    pub(super) unready: usize,
    pub(super) prepared: bool,
    pub(super) started: bool,
    pub(super) launched: bool,
    pub(super) killed: bool,
    pub(super) failed: Option<Refusal>,
    /// Exits that came before the start was reported.
    early: Vec<(usize, RankStatus)>,
    pub(super) running: usize,
    pub(super) open_pipes: usize,
    /// Tasks that read them.
    pub(super) readers: Vec<AbortHandle>,
    /// What outlives this daemon, if the job has a keeper.
    pub(super) kept: Option<Rc<KeptJob>>,
}

impl JobTask {
    pub(super) async fn launch(
        services: &Rc<NodeServices>,
        spec: &JobSpec,
        part: &NodeRanks,
        program: std::path::PathBuf,
        (orders, start): (&mut JobCommands, &mut JobStart),
    ) -> Result<Self, LaunchAborted> {
        let (resources, shims) = start.run(services, spec, part, program, orders).await?;
        let JobResources { control, devices, segment, page, traces, prepared, wires, mpi, .. } =
            resources;
        let ShimProcesses { ranks, go, status, server, kept } = shims;
        let wires = JobWires::new(wires.into_iter().flatten().collect());
        let had = JobParts { control, devices, segment, page, traces, prepared, wires, kept };
        let (mut task, tell) = Self::assemble(services, (spec, part), had, (ranks, status));
        task.go = Some(go);
        task.attend_server(mpi.zip(server), spec, &tell);
        if let Some(note) = not_enforced(services, spec) {
            task.say(note).await;
        }
        Ok(task)
    }

    /// Starts the tasks that wait for a rank and read its output.
    fn attend(&mut self, index: usize, rank: RankProcess, tell: &mpsc::UnboundedSender<TaskEvent>) {
        let RankProcess { process, streams } = rank;
        // Who has a keeper is ended by it.
        let watched = self.kept.is_none();
        if let Some(group) = process.pid().filter(|_| watched) {
            self.services.watcher.add(group);
        }
        let rank = self.rank(index);
        match streams {
            streams if self.kept.is_some() => self.attend_kept(rank, streams, tell),
            RankStreams::Pipes(input, outputs) => {
                if let Some(pipe) = input {
                    self.input = Input::start(pipe);
                }
                for (stream, pipe) in [Stream::Out, Stream::Err].into_iter().zip(outputs) {
                    self.read_output(rank, stream, pipe, tell);
                }
            }
            RankStreams::Terminal(terminal) => {
                self.input = Input::start(terminal.master());
                self.read_output(rank, Stream::Out, terminal.master(), tell);
                self.terminal = Some(terminal);
            }
        }
        let (groups, services, tell) =
            (Arc::clone(&self.groups), Rc::clone(&self.services), tell.clone());
        let ended = self.use_meter.ended();
        tokio::task::spawn_local(async move {
            let used = process.processor_time().await;
            let reaper = process.reaper();
            let status = process.wait().await;
            // Before anything else runs: from now on the number may be another process's.
            let group = groups[index].swap(0, Ordering::Relaxed);
            if let Some(reaper) = reaper {
                reaper.reap();
            }
            ended.add(used);
            if watched {
                services.watcher.remove(group);
            }
            let status = status.unwrap_or_else(|error| {
                tracing::error!(group, %error, "a rank could not be waited for");
                RankStatus::Exited(255)
            });
            let _ = tell.send(TaskEvent::Exited(index, status));
        });
    }

    /// Starts the task that reads a pipe or a terminal, as output of this rank.
    fn read_output(
        &mut self,
        rank: u32,
        stream: Stream,
        pipe: impl AsyncRead + Unpin + 'static,
        tell: &mpsc::UnboundedSender<TaskEvent>,
    ) {
        self.open_pipes += 1;
        let (services, tell, job) = (Rc::clone(&self.services), tell.clone(), self.job);
        let reader = tokio::task::spawn_local(async move {
            if let Err(error) = pump(services, job, rank, stream, pipe).await {
                tracing::error!(%job, rank, %error, "output of a rank could not be read");
            }
            // The job's task outlives its parts.
            let _ = tell.send(TaskEvent::Closed);
        });
        self.readers.push(reader.abort_handle());
    }

    /// Starts the tasks that talk with the MPI program's server, if there is one.
    fn attend_server(
        &mut self,
        mpi: Option<(MpiLaunch, ServerProcess)>,
        spec: &JobSpec,
        tell: &mpsc::UnboundedSender<TaskEvent>,
    ) {
        let Some((launch, ServerProcess { process, output })) = mpi else { return };
        match self.kept.is_some() {
            true => self.pump_kept(self.first, Stream::Err, OutputSource::of(output), tell),
            false => self.read_output(self.first, Stream::Err, output, tell),
        }
        self.await_one_more();
        let parts = launch.into_parts(spec, self.kept.is_some());
        self.mpi = Some(MpiTask::start(parts, spec, &self.services, process));
    }

    fn rank(&self, index: usize) -> u32 {
        self.first.saturating_add(u32::try_from(index).unwrap_or(u32::MAX))
    }

    pub(super) async fn run(mut self, mut orders: JobCommands, hooks: JobHooks) {
        let mut looks = tokio::time::interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !self.kill_watch.gave_up() && (self.running > 0 || self.awaits_standings()) {
            tokio::select! {
                // A rank that has ended is heard of before the next look.
                biased;
                Some(part) = self.parts.recv() => self.part(part).await,
                // Answers for the server come this way, and count before it is heard again.
                order = orders.recv() => match order {
                    Some(order) => self.order(order).await,
                    None => {
                        // The main loop is gone; this must not be left behind.
                        self.kill();
                        break;
                    }
                },
                Some(message) = MpiTask::next(&mut self.mpi) => self.server_says(message).await,
                _ = looks.tick() => {
                    self.look_at_kills().await;
                    self.look_at_killed().await;
                    self.tell_use_so_far().await;
                }
            }
        }
        self.finish().await;
        hooks.epilog(&self.services).await;
        if let Some(&(index, status)) = self.early.first() {
            self.fail_silently(index, status).await;
        }
        if self.failed.is_some() && !self.killed {
            // Refused, and cleaned up: the head's `Kill` is answered without this task.
            let _ = self.services.events.send(JobEvent::Gone(self.job)).await;
        } else {
            self.keep_phase(KeptPhase::Over);
            self.services.tell(AgentEvent::Freed { job: self.job }).await;
        }
    }

    pub(super) async fn part(&mut self, part: TaskEvent) {
        match part {
            TaskEvent::Report(ShimReport { local: SERVER, result: Ok(()) }) => {}
            TaskEvent::Report(ShimReport { result: Ok(()), .. }) => self.one_ready().await,
            TaskEvent::Report(ShimReport { result: Err(refused), .. }) => self.fail(refused).await,
            TaskEvent::Launched => self.launched().await,
            TaskEvent::Exited(index, status) => self.exited(index, status).await,
            TaskEvent::Silent(index, status) => self.fail_silently(index, status).await,
            TaskEvent::Closed => self.open_pipes = self.open_pipes.saturating_sub(1),
        }
    }

    /// A shim or the MPI program's server is ready.
    pub(super) async fn one_ready(&mut self) {
        self.unready = self.unready.saturating_sub(1);
        if self.unready == 0 && !self.prepared && self.failed.is_none() {
            self.prepared = true;
            let (job, result) = (self.job, Ok(self.addresses.clone()));
            self.services.tell(AgentEvent::Prepared { job, result }).await;
        }
    }

    /// One more is to be ready before the job is prepared.
    pub(super) fn await_one_more(&mut self) {
        self.unready += 1;
    }

    /// Whether the job goes on as far as this node knows.
    pub(super) fn goes_on(&self) -> bool {
        self.failed.is_none() && !self.killed
    }

    /// A rank ended before it was ready and did not say why.
    async fn fail_silently(&mut self, index: usize, status: RankStatus) {
        if !self.prepared {
            let rank = self.rank(index);
            self.fail(ended_early(rank, status)).await;
        }
    }

    /// A rank cannot be started, so none is.
    pub(super) async fn fail(&mut self, refused: Refusal) {
        if self.failed.is_some() || self.killed {
            return;
        }
        tracing::info!(job = %self.job, reason = refused.message, "could not be started");
        self.failed = Some(refused.clone());
        self.kill_ranks();
        let job = self.job;
        if !self.prepared {
            self.services.tell(AgentEvent::Prepared { job, result: Err(refused) }).await;
        } else if self.started {
            self.services.tell(AgentEvent::Started { job, result: Err(refused) }).await;
        }
    }

    async fn launched(&mut self) {
        self.launched = true;
        if self.started && self.failed.is_none() && !self.killed {
            self.services.tell(AgentEvent::Started { job: self.job, result: Ok(()) }).await;
        }
        self.tell_early_exits().await;
    }

    /// Whether what becomes of a rank can be told.
    fn tells_exits(&self) -> bool {
        self.launched && self.prepared && !self.is_resuming()
    }

    /// Tells of the ranks that have ended before that could be told.
    pub(super) async fn tell_early_exits(&mut self) {
        if self.tells_exits() {
            for (index, status) in std::mem::take(&mut self.early) {
                self.tell_exit(index, status).await;
            }
        }
    }

    /// The status with its cause, if that was the kernel for want of memory. A shell says so of its command, too.
    fn caused(&mut self, status: RankStatus) -> RankStatus {
        match &self.control {
            Some(groups) if !self.killed => self.memory_kills.caused(status, groups),
            _ => status,
        }
    }

    /// Tells the user of processes that the kernel killed for want of memory, and that no rank ended by.
    async fn look_at_kills(&mut self) {
        let Some(groups) = self.control.as_ref().filter(|_| !self.killed) else { return };
        let ranks = self.groups.iter().map(|group| group.load(Ordering::Relaxed));
        if self.memory_kills.look_at(groups, ranks) {
            self.say(memory_kills::outlived(self.services.node)).await;
        }
    }

    async fn exited(&mut self, index: usize, status: RankStatus) {
        let status = self.caused(status);
        self.running -= 1;
        if !self.prepared {
            // Its report may be on its way still.
            let tell = self.tell.clone();
            tokio::task::spawn_local(async move {
                tokio::time::sleep(REPORT_LAG).await;
                tokio::task::yield_now().await;
                // The job may be over by then.
                let _ = tell.send(TaskEvent::Silent(index, status));
            });
        }
        if self.tells_exits() {
            self.tell_exit(index, status).await;
        } else {
            self.early.push((index, status));
        }
    }

    async fn tell_exit(&mut self, index: usize, status: RankStatus) {
        let rank = self.rank(index);
        if self.goes_on()
            && let Some(status) = self.mpi_status(rank, status).await
        {
            self.tell_end(rank, status).await;
        }
    }

    /// How a rank ends that is killed says nothing; the job is told of as a whole.
    pub(super) async fn tell_end(&self, rank: u32, status: RankStatus) {
        if self.goes_on() {
            self.services.tell(AgentEvent::RankExited { job: self.job, rank, status }).await;
        }
    }

    async fn order(&mut self, order: JobCommand) {
        match order {
            JobCommand::Program(..) => {}
            JobCommand::Start { addresses, max_datagram } => {
                self.start(&addresses, max_datagram).await;
            }
            JobCommand::Signal(signal) => self.signal(signal),
            JobCommand::Input(piece) => self.give_input(piece).await,
            JobCommand::Resize(size, redraw) => self.resize(size, redraw),
            JobCommand::Kill => self.kill(),
            JobCommand::Switch => self.switch_again().await,
            JobCommand::Exchanged(id, parts) => self.exchanged(id, parts).await,
            JobCommand::Relayed(from, data) => self.relayed(from, data).await,
        }
    }

    /// Tells the user something, among what the lowest rank here writes to its standard error.
    pub(super) async fn say(&self, text: String) {
        self.say_of(self.first, text).await;
    }

    /// The same, among what this rank writes.
    pub(super) async fn say_of(&self, rank: u32, text: String) {
        self.put(rank, Stream::Err, text.into_bytes()).await;
    }

    async fn start(&mut self, addresses: &[RankAddress], max_datagram: u16) {
        if self.started || self.killed || self.failed.is_some() {
            return;
        }
        let Some(mut go) = self.go.take() else { return };
        self.started = true;
        if let Err(why) = self.services.rank_addresses.check(&self.layout, addresses) {
            let message = format!("the job's addresses cannot be used: {why}");
            return self.fail(refusal(RefusalKind::Internal, message)).await;
        }
        let scope = match self.services.address {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(own) => own.scope_id(),
        };
        let here = |at: &RankAddress| on_link(SocketAddr::new(at.ip, at.port), scope);
        let peers: Vec<_> = addresses.iter().map(here).collect();
        let published = match self.services.live.borrow_mut().get_mut(&self.job) {
            Some(live) => live.segment.publish_peers(&peers, max_datagram),
            None => Ok(()),
        };
        if let Err(error) = published {
            let message = format!("the job's addresses cannot be used: {error}");
            return self.fail(refusal(RefusalKind::Internal, message)).await;
        }
        self.wires.start(self.job, &peers);
        match self.stopper() {
            Ok(stopper) => self.hand_over(stopper),
            Err(error) => {
                let message =
                    format!("the job cannot be stopped and continued: {error}; see `kumi doctor`");
                return self.fail(refusal(RefusalKind::NoResources, message)).await;
            }
        }
        self.keep_phase(KeptPhase::Starting);
        // A rank that is gone already takes no byte; the others each take one.
        if let Err(error) = go.write_all(&vec![1; self.groups.len()]).await {
            let message =
                format!("the ranks ended before they were started: {error}; see the node's log");
            self.fail(refusal(RefusalKind::Internal, message)).await;
        }
        self.keep_phase(KeptPhase::Started);
    }

    /// From now on the switching thread keeps it from the processors outside its turns.
    fn hand_over(&self, stopper: Stopper) {
        self.hand_over_with(stopper, false);
    }

    /// The same of a job that somebody else has switched.
    pub(super) fn hand_over_as_it_is(&self, stopper: Stopper) {
        self.hand_over_with(stopper, true);
    }

    fn hand_over_with(&self, stopper: Stopper, switched_before: bool) {
        let mut live = self.services.live.borrow_mut();
        let Some(live) = live.get_mut(&self.job) else { return };
        let leaders = live.leaders();
        let priority = self.idle_priority(&leaders);
        let meter = SliceMeter::new(&leaders, live.segment.progress_reader(MOST_RANKS));
        (live.started, live.may_fill) = (true, priority.is_some());
        let mut switched = SwitchedJob::new(stopper, priority, Arc::clone(&live.turns), meter);
        if switched_before && let Err(error) = switched.let_run() {
            tracing::error!(job = %self.job, %error, "it may be stopped until its turn is over");
        }
        self.services.switcher.add(self.job, switched);
    }

    pub(super) fn stopper(&self) -> std::io::Result<Stopper> {
        match &self.control {
            Some(groups) => groups.main().open("cgroup.freeze").map(Stopper::Freezer),
            None => Ok(Stopper::Signals(Arc::clone(&self.groups))),
        }
    }

    /// How it is put behind others: as a whole if it has a share of the processors as a whole, otherwise thread by thread.
    fn idle_priority(&self, leaders: &[i32]) -> Option<IdlePriority> {
        if let Some(groups) = &self.control
            && let Ok(switch) = groups.idle_switch()
        {
            return Some(IdlePriority::Group(switch));
        }
        let threads = leaders.iter().copied().filter(|&leader| leader > 0).map(JobThread::new);
        self.services.may_lower.then(|| IdlePriority::Threads(threads.collect()))
    }

    fn signal(&self, signal: u8) {
        let Ok(signal) = Signal::try_from(i32::from(signal)) else {
            return tracing::warn!(job = %self.job, signal, "no such signal");
        };
        if let Some(live) = self.services.live.borrow_mut().get_mut(&self.job) {
            match signal {
                Signal::SIGSTOP => live.stopped = true,
                Signal::SIGCONT => live.stopped = false,
                _ => {}
            }
        }
        for group in self.groups.iter() {
            let group = group.load(Ordering::Relaxed);
            if group > 0
                && let Err(error) = killpg(Pid::from_raw(group), signal)
                && error != nix::Error::ESRCH
            {
                tracing::warn!(job = %self.job, %signal, %error, "a rank could not be signalled");
            }
        }
    }

    pub(super) fn kill(&mut self) {
        self.killed = true;
        self.keep_kill();
        self.kill_ranks();
    }

    fn kill_ranks(&mut self) {
        self.go = None;
        self.kill_watch.killed();
        self.services.switcher.let_end(self.job);
        if let Some(groups) = self.control.clone() {
            kill_groups(self.job, groups);
        }
        self.signal(Signal::SIGKILL as u8);
        self.kill_server();
    }

    /// All ranks have ended: kills what they left, takes in their last output and removes the rest.
    async fn finish(&mut self) {
        self.end_server();
        self.kill_ranks();
        self.wait_for_processes().await;
        self.terminal = None;
        self.last_parts().await;
        self.tell_last_use().await;
        self.services.switcher.remove(self.job);
        let live = self.services.live.borrow_mut().remove(&self.job);
        if let Some(live) = live {
            let standing = last_standing(&live.segment, live.load.len());
            self.services.kept_traces.borrow_mut().keep(self.job, live.traces);
            if self.has_other_nodes && !self.killed {
                // Ranks of other nodes may wait for those that were here.
                self.services.tell(AgentEvent::Standing { job: self.job, standing }).await;
            }
        }
        self.remove_what_it_had().await;
        self.end_mpi();
    }
}

/// Why a rank did not get as far as its program.
fn ended_early(rank: u32, status: RankStatus) -> Refusal {
    match status {
        RankStatus::OutOfMemory(bytes) => {
            let message = format!(
                "the job's {bytes} bytes of memory on the node of rank {rank} are not enough for it to start; give it more"
            );
            refusal(RefusalKind::NoResources, message)
        }
        _ => {
            let message =
                format!("rank {rank} ended before it was started ({status:?}); see the node's log");
            refusal(RefusalKind::Internal, message)
        }
    }
}

async fn pass_reports(status: pipe::Receiver, tell: mpsc::UnboundedSender<TaskEvent>) {
    // The job's task outlives its parts.
    let told = |event| drop(tell.send(event));
    read_reports(status, |report| told(TaskEvent::Report(report))).await;
    told(TaskEvent::Launched);
}
