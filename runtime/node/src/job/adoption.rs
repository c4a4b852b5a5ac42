//! Jobs that a former daemon of the node started: this one finds their keepers and goes on with them.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use kumi_control::agent::{AdoptedJob, AdoptedOutput};
use kumi_control::message::{JobSpec, NodeRanks, Stream};
use kumi_net::segment::Segment;
use kumi_sched::{JobId, NodeId};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use super::devices::JobDevices;
use super::hooks::JobHooks;
use super::kept::{OutputSource, segment_spec};
use super::launch::{RankProcess, RankStreams};
use super::limits::share_of;
use super::mpi::MpiParts;
use super::mpi_task::MpiTask;
use super::process::Process;
use super::run::{JobParts, JobTask};
use super::streams::CHUNK;
use super::terminal::Terminal;
use super::traces::JobTraces;
use super::{JobCommand, NodeServices};
use crate::cgroup::JobGroups;
use crate::keep::{
    FoundKeeper, Held, InputFile, JobRecord, JobState, KeepSetting, KeeperLink, KeptJob, KeptPhase,
    MpiDescriptor, OutputFile, Relay, find,
};
use crate::wire::JobWires;

/// A job that runs and has a keeper.
pub(crate) struct Survivor {
    keeper: FoundKeeper,
    record: JobRecord,
    part: NodeRanks,
    state: JobState,
}

/// Finds the jobs of the node that run without a daemon. What cannot be gone on with is ended.
pub(crate) async fn survivors(keep: &KeepSetting, node: NodeId) -> Vec<Survivor> {
    let mut survivors = Vec::new();
    for keeper in find(&keep.folder).await {
        let (job, link) = (keeper.job, Rc::clone(&keeper.link));
        match Survivor::of(keeper, node) {
            Ok(survivor) => survivors.push(survivor),
            Err(why) => {
                tracing::warn!(%job, why, "a job of the former daemon is ended");
                end(&link).await;
            }
        }
    }
    survivors
}

/// Ends all jobs of the node that run without a daemon.
pub(crate) async fn end_keepers(folder: &std::path::Path) {
    for keeper in find(folder).await {
        tracing::warn!(job = %keeper.job, "a job of the former daemon is ended: cluster.toml does not let it run on");
        end(&keeper.link).await;
    }
}

/// Ends a job. What it had goes before anything else is made.
async fn end(keeper: &KeeperLink) {
    keeper.release();
    if tokio::time::timeout(super::kept::RELEASE_PATIENCE, keeper.closed()).await.is_err() {
        tracing::warn!("a keeper has not ended yet");
    }
}

fn take(held: &mut BTreeMap<Held, OwnedFd>, what: Held) -> Result<OwnedFd, String> {
    held.remove(&what).ok_or_else(|| format!("its keeper has no {what:?}"))
}

impl Survivor {
    fn of(mut keeper: FoundKeeper, node: NodeId) -> Result<Self, String> {
        let record = JobRecord::read(take(&mut keeper.held, Held::Record)?)?;
        let state = JobState::adopt(take(&mut keeper.held, Held::State)?);
        if record.spec.job != keeper.job {
            return Err(format!("its keeper has job {}", record.spec.job));
        }
        let part = record.spec.layout.iter().find(|part| part.node == node).cloned();
        let part = part.ok_or("it has no rank on this node")?;
        match state.phase() {
            Ok(KeptPhase::Started | KeptPhase::Over) => {}
            Ok(KeptPhase::Preparing) => return Err("it was not started".to_owned()),
            Ok(KeptPhase::Starting) => return Err("nobody knows whether it was started".to_owned()),
            Err(error) => return Err(error.to_string()),
        }
        let servers = u32::from(keeper.held.contains_key(&Held::Mpi(MpiDescriptor::Record)));
        let count = part.count.saturating_add(servers);
        if keeper.processes.len() != usize::try_from(count).unwrap_or(usize::MAX) {
            return Err("its keeper has other processes".to_owned());
        }
        Ok(Self { keeper, record, part, state })
    }

    /// The job.
    pub(crate) fn job(&self) -> JobId {
        self.record.spec.job
    }

    /// The name of its control groups.
    pub(crate) fn group_name(&self) -> String {
        group_name(self.job())
    }

    /// The connection to its keeper.
    pub(crate) fn link(&self) -> Rc<KeeperLink> {
        Rc::clone(&self.keeper.link)
    }

    /// Goes on with it. Orders go to the sender that is returned, and the agent is to know what comes with it.
    ///
    /// # Errors
    /// A sentence: what a keeper holds is not what it should be.
    pub(crate) fn adopt(
        self,
        services: &Rc<NodeServices>,
    ) -> Result<(mpsc::UnboundedSender<JobCommand>, AdoptedJob), String> {
        let Self { keeper, record, part, state } = self;
        let FoundKeeper { job, link, mut processes, mut held } = keeper;
        let said = |error: &dyn std::fmt::Display| error.to_string();
        let JobRecord { spec, prepared, group, segment, trace, devices } = record;
        let control = control(services, &spec, &part, group.as_deref())?;
        let files: Vec<OwnedFd> = (0..).map_while(|at| held.remove(&Held::Segment(at))).collect();
        let segment = Segment::adopt(&segment_spec(&spec, &part, segment), files);
        let segment = segment.map_err(|error| said(&error))?;
        let rings: Vec<OwnedFd> = (0..).map_while(|at| held.remove(&Held::Trace(at))).collect();
        let traces = match trace {
            Some(events) => JobTraces::adopt(part.first, events, rings.into_iter()),
            None => Ok(JobTraces::default()),
        };
        let traces = traces.map_err(|error| said(&error))?;
        let mpi = mpi_parts(services, &spec, &part, &mut held)?;
        let server = mpi.is_some().then(|| processes.pop()).flatten();
        let status = pipe::Receiver::from_owned_fd(take(&mut held, Held::Status)?);
        let status = status.map_err(|error| said(&error))?;
        let streams = streams(&mut held, &part).map_err(|error| said(&error))?;
        let ranks = processes.into_iter().zip(streams);
        let ranks = ranks
            .map(|(process, streams)| RankProcess { process: Process::Kept(process), streams });
        let output = output(&mut held, &part).map_err(|error| said(&error))?;
        let relay = relay(&mut held);
        if let Some(relay) = &relay
            && let Some(file) = output.get(&(part.first, Stream::Out))
        {
            relay.empty_into(file, CHUNK).map_err(|error| said(&error))?;
        }
        let adopted = AdoptedJob {
            job,
            ranks: (part.first, part.count),
            over: matches!(state.phase(), Ok(KeptPhase::Over)),
            prepared: prepared.clone(),
            output: unacknowledged(&output).map_err(|error| said(&error))?,
        };
        let input = held.remove(&Held::InputEnd).zip(held.remove(&Held::InputNext));
        let input = input.map(|(end, next)| InputFile::adopt(end, next));
        let kept = Rc::new(KeptJob { link, state, output, input, relay });
        let devices = JobDevices::adopt(&services.devices, job, &devices);
        let (page, wires) = (None, JobWires::new(Vec::new()));
        let kept = Some(kept);
        let had = JobParts { control, devices, segment, page, traces, prepared, wires, kept };
        let task = (ranks.collect(), status);
        let (mut task, tell) = JobTask::assemble(services, (&spec, &part), had, task);
        if let Some(((parts, errors), process)) = mpi.zip(server) {
            task.pump_kept(part.first, Stream::Err, OutputSource::of(errors), &tell);
            task.mpi = Some(MpiTask::adopt(parts, &spec, services, Process::Kept(process)));
        }
        task.resume();
        let (orders, inbox) = mpsc::unbounded_channel();
        tokio::task::spawn_local(task.run(inbox, JobHooks::of_adopted(&spec)));
        Ok((orders, adopted))
    }
}

/// What an MPI program has, and what its server writes to its standard error.
fn mpi_parts(
    services: &NodeServices,
    spec: &JobSpec,
    part: &NodeRanks,
    held: &mut BTreeMap<Held, OwnedFd>,
) -> Result<Option<(MpiParts, pipe::Receiver)>, String> {
    if !held.contains_key(&Held::Mpi(MpiDescriptor::Record)) {
        return Ok(None);
    }
    let mut take = |what| take(held, Held::Mpi(what));
    let files =
        [take(MpiDescriptor::Door)?, take(MpiDescriptor::Record)?, take(MpiDescriptor::State)?];
    let parts = MpiParts::adopt(services, (spec, part), files)?;
    let errors = pipe::Receiver::from_owned_fd(take(MpiDescriptor::Errors)?);
    Ok(Some((parts, errors.map_err(|error| error.to_string())?)))
}

/// The name of the control groups of a job.
pub(super) fn group_name(job: JobId) -> String {
    format!("job-{job}")
}

/// The job's control groups, where they were.
fn control(
    services: &NodeServices,
    spec: &JobSpec,
    part: &NodeRanks,
    place: Option<&std::path::Path>,
) -> Result<Option<JobGroups>, String> {
    let share = share_of(services, spec, part);
    let memory = (share.memory > 0).then_some(share.memory);
    let weight = spec.request.priority.into();
    let find =
        |node: &crate::cgroup::NodeGroups| node.job_again(&group_name(spec.job), (memory, weight));
    let control = services.groups.as_ref().map(find);
    if control.as_ref().map(|groups| groups.main().path()) == place {
        return Ok(control);
    }
    Err("its control groups are not where this daemon has its own".to_owned())
}

fn streams(held: &mut BTreeMap<Held, OwnedFd>, part: &NodeRanks) -> io::Result<Vec<RankStreams>> {
    let missing = || io::Error::new(io::ErrorKind::NotFound, "its keeper lacks a pipe");
    let terminal = held.remove(&Held::Terminal).zip(held.remove(&Held::TerminalSlave));
    let mut terminal =
        terminal.map(|(master, slave)| Terminal::adopt(master, slave)).transpose()?;
    let mut input = held.remove(&Held::InputPipe).map(pipe::Sender::from_owned_fd).transpose()?;
    let mut all = Vec::new();
    for rank in part.first..part.first.saturating_add(part.count) {
        if let Some(terminal) = terminal.take() {
            all.push(RankStreams::Terminal(terminal));
            continue;
        }
        let mut pipe = |stream| {
            let pipe = held.remove(&Held::Pipe(rank, stream)).ok_or_else(missing)?;
            pipe::Receiver::from_owned_fd(pipe)
        };
        let pipes = [pipe(Stream::Out)?, pipe(Stream::Err)?];
        all.push(RankStreams::Pipes(input.take(), pipes));
    }
    Ok(all)
}

fn output(
    held: &mut BTreeMap<Held, OwnedFd>,
    part: &NodeRanks,
) -> io::Result<BTreeMap<(u32, Stream), OutputFile>> {
    let mut files = BTreeMap::new();
    for rank in part.first..part.first.saturating_add(part.count) {
        for stream in [Stream::Out, Stream::Err] {
            let file = held.remove(&Held::Output(rank, stream)).ok_or(io::ErrorKind::NotFound)?;
            files.insert((rank, stream), OutputFile::adopt(file)?);
        }
    }
    Ok(files)
}

fn relay(held: &mut BTreeMap<Held, OwnedFd>) -> Option<Relay> {
    let (out, into) = held.remove(&Held::RelayOut).zip(held.remove(&Held::RelayIn))?;
    Some(Relay { out, into })
}

fn unacknowledged(files: &BTreeMap<(u32, Stream), OutputFile>) -> io::Result<Vec<AdoptedOutput>> {
    let read = |(&(rank, stream), file): (&(u32, Stream), &OutputFile)| {
        let (base, pieces) = file.rest(CHUNK)?;
        Ok(AdoptedOutput { rank, stream, base, pieces })
    };
    files.iter().map(read).collect()
}

impl JobTask {
    /// It was started by a former daemon, and all that is known of its ranks is told again.
    fn resume(&mut self) {
        (self.prepared, self.started) = (true, true);
        self.unready = 0;
        tracing::info!(job = %self.job, "goes on under this daemon");
        let Some(kept) = self.kept.clone() else { return };
        match (kept.state.turns(), kept.state.killed()) {
            (Ok(turns), Ok(killed)) => {
                self.use_meter.begin_at(turns);
                if killed {
                    self.kill();
                }
            }
            (Err(error), _) | (_, Err(error)) => {
                tracing::error!(job = %self.job, %error, "it is not known how far the job was");
            }
        }
    }

    /// There is a timetable: from now on it is switched. The former daemon may have left it stopped, or behind others.
    pub(super) async fn switch_again(&mut self) {
        let switched = self.services.live.borrow().get(&self.job).is_none_or(|live| live.started);
        if switched || !self.goes_on() {
            return;
        }
        match self.stopper() {
            Ok(stopper) => self.hand_over_as_it_is(stopper),
            Err(error) => {
                let message =
                    format!("the job cannot be stopped and continued: {error}; see `kumi doctor`");
                let kind = kumi_control::message::RefusalKind::NoResources;
                self.fail(crate::client::refusal(kind, message)).await;
            }
        }
    }
}
