//! Jobs whose processes are children of a keeper: how they are started, and what their ranks write and read.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::time::Duration;

use kumi_control::agent::AgentEvent;
use kumi_control::message::{JobSpec, NodeRanks, Refusal, Stream};
use kumi_net::SealKey;
use kumi_net::layout::{DEFAULT_RING_BYTES, arena_bytes};
use kumi_net::segment::SegmentSpec;
use kumi_sched::JobId;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use super::group_changes::elsewhere;
use super::input_room::HeldRoom;
use super::launch::{
    InheritedByShims, JobResources, RankEnds, RankProcess, RankStreams, ShimProcesses, resources,
    terminal_of,
};
use super::mpi::{MpiLaunch, ServerStart};
use super::process::Process;
use super::run::{JobTask, TaskEvent};
use super::starting::StartProgress;
use super::streams::{CHUNK, Input};
use super::terminal::Terminal;
use super::{JobEvent, NodeServices};
use crate::keep::{
    Held, InputFile, JobRecord, JobState, KeepRequest, KeepSetting, KeptCommand, KeptJob,
    KeptPhase, KeptProcess, MpiDescriptor, OutputFile, Relay,
};

/// The group of version 2 for the keepers of a node's jobs.
const HOME: &str = "keepers";

/// The group of the node's keepers, made if need be.
async fn home(services: &NodeServices) -> io::Result<Option<std::path::PathBuf>> {
    let Some(groups) = services.groups.clone() else { return Ok(None) };
    let made = move || match groups.main().child(HOME) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(groups.main().path().join(HOME)),
    };
    elsewhere(made).await.map(Some)
}

/// The specification of a job's segment on this node.
pub(super) fn segment_spec(
    spec: &JobSpec,
    part: &NodeRanks,
    (ring_bytes, arena_bytes): (usize, u64),
) -> SegmentSpec {
    SegmentSpec {
        channel_key: spec.channel_key,
        seal_key: spec.seal_key.as_ref().map(|key| SealKey(key.0)),
        ranks: spec.request.ranks,
        local_ranks: part.first..part.first.saturating_add(part.count),
        ring_bytes,
        arena_bytes,
    }
}

/// Sizes of rings and windows of a job that is made here.
pub(super) fn segment_sizes(part: &NodeRanks) -> (usize, u64) {
    (DEFAULT_RING_BYTES, arena_bytes(part.count, kumi_net::sys::memory()))
}

/// Files for what the ranks of a job write.
fn output_files(part: &NodeRanks) -> io::Result<Vec<((u32, Stream), OutputFile)>> {
    let ranks = part.first..part.first.saturating_add(part.count);
    let streams = ranks.flat_map(|rank| [(rank, Stream::Out), (rank, Stream::Err)]);
    streams.map(|stream| Ok((stream, OutputFile::create()?))).collect()
}

/// Files that a keeper holds.
struct KeptFiles {
    record: OwnedFd,
    /// Of the server of an MPI program.
    mpi: Option<OwnedFd>,
    state: JobState,
    output: Vec<((u32, Stream), OutputFile)>,
    input: Option<InputFile>,
    relay: Option<Relay>,
}

/// What a keeper has started, and holds.
struct KeptProcesses {
    ranks: Vec<RankProcess>,
    /// That of an MPI program.
    server: Option<Process>,
    job: Rc<KeptJob>,
}

/// A rank that is to be started, with both ends of its streams.
struct Planned {
    streams: RankStreams,
    ends: RankEnds,
}

impl Planned {
    /// Its process is there.
    fn with(self, process: KeptProcess) -> RankProcess {
        RankProcess { process: Process::Kept(process), streams: self.streams }
    }
}

impl JobResources {
    /// Whether a keeper can keep the job. What AF_XDP has of the node ends with its daemon.
    fn can_be_kept(&self) -> bool {
        self.wires.iter().all(Option::is_none)
    }

    /// How the node keeps this job, if it does.
    pub(super) fn keeping<'s>(&self, services: &'s NodeServices) -> Option<&'s KeepSetting> {
        services.kept.setting().filter(|_| self.can_be_kept())
    }

    /// Starts the shims as children of a keeper, all or none. They are let go and report through these pipes.
    pub(super) async fn spawn_kept(
        &self,
        services: &NodeServices,
        keep: &KeepSetting,
        job: (&JobSpec, &NodeRanks),
        shared: InheritedByShims<'_>,
        (go, status, progress): (pipe::Sender, pipe::Receiver, StartProgress),
        server: Option<ServerStart>,
    ) -> Result<ShimProcesses, Refusal> {
        let with = (&status, progress, server.as_ref());
        let kept = self.spawn_by_keeper(services, keep, job, shared, with).await;
        let KeptProcesses { ranks, server: process, job: kept } =
            kept.map_err(|error| resources("the ranks' processes", &error))?;
        let server = server.zip(process).map(|(start, process)| start.with(process));
        Ok(ShimProcesses { ranks, go, status, server, kept: Some(kept) })
    }

    async fn spawn_by_keeper(
        &self,
        services: &NodeServices,
        keep: &KeepSetting,
        (spec, part): (&JobSpec, &NodeRanks),
        (shims, null, folder): InheritedByShims<'_>,
        (status, progress, server): (&pipe::Receiver, StartProgress, Option<&ServerStart>),
    ) -> io::Result<KeptProcesses> {
        let ranks = self.plan(spec, part)?;
        let (mut commands, mut inherited) = (Vec::new(), Vec::new());
        for (local, rank) in ranks.iter().enumerate() {
            let (command, files) = self.rank_command(services, local, rank, (shims, null));
            commands.push(command);
            inherited.extend(files);
        }
        // Behind the ranks: it is the last process, if there is one.
        let server = self.mpi.as_ref().zip(server);
        if let Some((mpi, start)) = server {
            let (command, files) = mpi.server_command(start, (shims[2], null));
            commands.push(command);
            inherited.extend(files);
        }
        let kept = self.kept_files(spec, part)?;
        let mut held = self.held(&kept, status);
        for (rank, planned) in (part.first..).zip(&ranks) {
            held.extend(planned.streams.held(rank));
        }
        held.extend(server.into_iter().flat_map(|(mpi, start)| mpi.held(start)));
        let home = home(services).await?;
        let group = self.control.as_ref().map(|groups| groups.main().path().to_owned());
        let request = KeepRequest {
            executable: &services.executable,
            cluster: &keep.cluster,
            folder: &keep.folder,
            job: spec.job,
            patience: keep.patience,
            starter: &services.starter,
            step: services.starts.step(),
            progress,
            group: folder.map(AsFd::as_fd).zip(group.as_deref()),
            home,
            commands,
            held,
            inherited,
        };
        let (link, mut processes) = request.start().await?;
        let server = processes.split_off(ranks.len()).pop().map(Process::Kept);
        let KeptFiles { state, output, input, relay, .. } = kept;
        let kept = KeptJob { link, state, output: output.into_iter().collect(), input, relay };
        let ranks = processes.into_iter().zip(ranks);
        let ranks = ranks.map(|(process, planned)| planned.with(process)).collect();
        Ok(KeptProcesses { ranks, server, job: Rc::new(kept) })
    }

    /// The streams of all ranks.
    fn plan(&self, spec: &JobSpec, part: &NodeRanks) -> io::Result<Vec<Planned>> {
        let mut terminal =
            terminal_of(spec, part).map(|size| Terminal::make(size, &spec.user)).transpose()?;
        let mut one = |local| {
            let input = part.first == 0 && local == 0;
            let (streams, ends) = RankStreams::make(input, terminal.take())?;
            Ok(Planned { streams, ends })
        };
        (0..self.rank_count()).map(&mut one).collect()
    }

    /// How a keeper starts a rank, and the descriptors that it needs for that.
    fn rank_command<'a>(
        &'a self,
        services: &'a NodeServices,
        local: usize,
        rank: &'a Planned,
        (shims, null): (&[BorrowedFd<'a>; 3], BorrowedFd<'a>),
    ) -> (KeptCommand, Vec<BorrowedFd<'a>>) {
        let given = rank.streams.given(&rank.ends, null);
        let mut files = self.inherited_by(services, local, shims);
        let command = KeptCommand {
            arguments: Self::shim_arguments(shims, local),
            streams: given.map(|file| file.as_raw_fd()),
            inherited: files.iter().map(AsRawFd::as_raw_fd).collect(),
            session: matches!(rank.streams, RankStreams::Terminal(_)),
        };
        files.extend(given);
        (command, files)
    }

    fn kept_files(&self, spec: &JobSpec, part: &NodeRanks) -> io::Result<KeptFiles> {
        let has_terminal = terminal_of(spec, part).is_some();
        Ok(KeptFiles {
            record: self.record(spec, part)?,
            mpi: self.mpi.as_ref().map(MpiLaunch::record).transpose()?,
            state: JobState::create()?,
            output: output_files(part)?,
            input: (part.first == 0).then(InputFile::create).transpose()?,
            relay: has_terminal.then(Relay::create).transpose()?,
        })
    }

    /// What a keeper holds, beside the streams of the ranks.
    fn held<'a>(
        &'a self,
        kept: &'a KeptFiles,
        status: &'a pipe::Receiver,
    ) -> Vec<(Held, BorrowedFd<'a>)> {
        let mut held = vec![
            (Held::Record, kept.record.as_fd()),
            (Held::State, kept.state.as_fd()),
            (Held::Status, status.as_fd()),
        ];
        let mpi = kept.mpi.iter().map(|file| (Held::Mpi(MpiDescriptor::Record), file.as_fd()));
        held.extend(mpi);
        held.extend((0..).map(Held::Segment).zip(self.files.of_daemon()));
        held.extend((0..).zip(self.traces.files()).map(|(at, file)| (Held::Trace(at), file)));
        let files = kept.output.iter().map(|((rank, stream), file)| (*rank, *stream, file.as_fd()));
        held.extend(files.map(|(rank, stream, file)| (Held::Output(rank, stream), file)));
        held.extend(
            kept.input
                .iter()
                .flat_map(|input| [Held::InputEnd, Held::InputNext].into_iter().zip(input.files())),
        );
        held.extend(kept.relay.iter().flat_map(|relay| {
            [(Held::RelayOut, relay.out.as_fd()), (Held::RelayIn, relay.into.as_fd())]
        }));
        held
    }

    fn record(&self, spec: &JobSpec, part: &NodeRanks) -> io::Result<OwnedFd> {
        let record = JobRecord {
            spec: spec.clone(),
            prepared: self.prepared.clone(),
            group: self.control.as_ref().map(|groups| groups.main().path().to_owned()),
            segment: segment_sizes(part),
            trace: self.traces.events(),
            devices: self.devices.places(),
        };
        record.write()
    }
}

impl RankStreams {
    /// What a keeper holds of them.
    fn held(&self, rank: u32) -> Vec<(Held, BorrowedFd<'_>)> {
        match self {
            Self::Pipes(input, [out, err]) => {
                let input = input.iter().map(|pipe| (Held::InputPipe, pipe.as_fd()));
                let pipes = [(Stream::Out, out.as_fd()), (Stream::Err, err.as_fd())];
                let pipes = pipes.map(|(stream, pipe)| (Held::Pipe(rank, stream), pipe));
                input.chain(pipes).collect()
            }
            Self::Terminal(terminal) => vec![
                (Held::Terminal, terminal.master_fd()),
                (Held::TerminalSlave, terminal.slave()),
            ],
        }
    }
}

/// Where output of a kept job comes from.
pub(super) enum OutputSource {
    Pipe(OwnedFd),
    Terminal(Rc<AsyncFd<OwnedFd>>),
}

impl OutputSource {
    /// A pipe from which the daemon reads.
    pub(super) fn of(pipe: pipe::Receiver) -> io::Result<Self> {
        pipe.into_nonblocking_fd().map(Self::Pipe)
    }

    fn register(self) -> io::Result<Rc<AsyncFd<OwnedFd>>> {
        match self {
            Self::Terminal(terminal) => Ok(terminal),
            Self::Pipe(pipe) => {
                #[expect(
                    deprecated,
                    reason = "the other constructor is unsafe; an OwnedFd keeps its descriptor"
                )]
                let pipe = AsyncFd::with_interest(pipe, Interest::READABLE)?;
                Ok(Rc::new(pipe))
            }
        }
    }
}

/// As [`super::streams::pump`], by way of the file of the stream. Nothing comes between what the file gets and the event that
/// tells of it: the numbers of bytes are theirs in both.
pub(super) async fn pump(
    services: Rc<NodeServices>,
    job: JobId,
    (rank, stream): (u32, Stream),
    kept: Rc<KeptJob>,
    source: OutputSource,
) -> io::Result<()> {
    let is_terminal = matches!(source, OutputSource::Terminal(_));
    let source = source.register()?;
    let relay = kept.relay.as_ref().filter(|_| is_terminal);
    let file = kept.output.get(&(rank, stream)).ok_or(io::ErrorKind::NotFound)?;
    let mut blocked = services.way_up.output.clone();
    loop {
        if blocked.wait_for(|blocked| !blocked.blocks(job)).await.is_err() {
            return Ok(());
        }
        let mut ready = source.readable().await?;
        // Fails only when the main loop is gone.
        let Ok(place) = services.events.reserve().await else { return Ok(()) };
        let taken = ready.try_io(|source| match relay {
            Some(relay) => relay.take(source.as_fd(), file, CHUNK),
            None => file.take_from(source.as_fd(), CHUNK),
        });
        let data = match taken {
            Err(_would_block) => continue,
            Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => continue,
            // Nobody has the terminal any more.
            Ok(Err(error)) if is_terminal && error.raw_os_error() == Some(EIO) => return Ok(()),
            Ok(taken) => taken?,
        };
        if data.is_empty() {
            return Ok(());
        }
        place.send(JobEvent::Agent(Box::new(AgentEvent::Output { job, rank, stream, data })));
    }
}

const EIO: i32 = nix::errno::Errno::EIO as i32;

/// Gives rank 0 of a kept job what its input file has, until that is closed and empty. `room` is that of what is in the file.
pub(super) async fn feed(
    kept: Rc<KeptJob>,
    more: Rc<tokio::sync::Notify>,
    sink: OutputSource,
    room: &HeldRoom,
) -> io::Result<()> {
    let is_terminal = matches!(sink, OutputSource::Terminal(_));
    let sink = match sink {
        OutputSource::Terminal(terminal) => terminal,
        OutputSource::Pipe(pipe) => {
            #[expect(
                deprecated,
                reason = "the other constructor is unsafe; an OwnedFd keeps its descriptor"
            )]
            let pipe = AsyncFd::with_interest(pipe, Interest::WRITABLE)?;
            Rc::new(pipe)
        }
    };
    let Some(input) = &kept.input else { return Ok(()) };
    loop {
        room.set(input.bytes_waiting()?);
        if input.waiting()? == 0 {
            if kept.state.input_closed()? {
                return Ok(());
            }
            more.notified().await;
            continue;
        }
        let mut ready = sink.writable().await?;
        let given = ready.try_io(|sink| {
            if is_terminal {
                let data = input.peek()?;
                let count = nix::unistd::write(sink.as_fd(), &data)?;
                input.given(count)
            } else {
                input.give(sink.as_fd())
            }
        });
        match given {
            Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(given) => given?,
            Err(_would_block) => {}
        }
    }
}

impl JobTask {
    /// What a later daemon is to know of how far the job is.
    pub(super) fn keep_phase(&self, phase: KeptPhase) {
        if let Some(kept) = &self.kept
            && let Err(error) = kept.state.set_phase(phase)
        {
            tracing::error!(job = %self.job, %error, "a later daemon cannot go on with the job");
        }
    }

    /// The same of its being killed.
    pub(super) fn keep_kill(&self) {
        if let Some(kept) = &self.kept
            && let Err(error) = kept.state.set_killed()
        {
            tracing::error!(job = %self.job, %error, "a later daemon will not know that the job is killed");
        }
    }

    /// Output of this daemon's own, among what a rank writes.
    pub(super) async fn put(&self, rank: u32, stream: Stream, data: Vec<u8>) {
        let job = self.job;
        let Some(kept) = &self.kept else {
            return self.services.tell(AgentEvent::Output { job, rank, stream, data }).await;
        };
        let Some(file) = kept.output.get(&(rank, stream)) else { return };
        // The main loop ends after all jobs.
        let Ok(place) = self.services.events.reserve().await else { return };
        match file.append(&data) {
            Ok(()) => {
                let event = AgentEvent::Output { job, rank, stream, data };
                place.send(JobEvent::Agent(Box::new(event)));
            }
            Err(error) => {
                tracing::error!(%job, rank, %error, "a sentence for the job's user is lost");
            }
        }
    }
}

/// How long the daemon waits at its end for keepers that it has released.
pub(crate) const RELEASE_PATIENCE: Duration = Duration::from_secs(2);

impl JobTask {
    /// Starts the tasks that read what a rank writes, and give it what it reads, by way of files.
    pub(super) fn attend_kept(
        &mut self,
        rank: u32,
        streams: RankStreams,
        tell: &mpsc::UnboundedSender<TaskEvent>,
    ) {
        let Some(kept) = self.kept.clone() else { return };
        let (input, outputs) = match streams {
            RankStreams::Pipes(input, outputs) => {
                let input = input.map(|pipe| pipe.into_nonblocking_fd()).transpose();
                let outputs = outputs.map(OutputSource::of);
                let named = [Stream::Out, Stream::Err].into_iter().zip(outputs).collect::<Vec<_>>();
                (input.map(|pipe| pipe.map(OutputSource::Pipe)), named)
            }
            RankStreams::Terminal(terminal) => {
                let master = || OutputSource::Terminal(terminal.shared_master());
                let both = (Ok(Some(master())), vec![(Stream::Out, Ok(master()))]);
                self.terminal = Some(terminal);
                both
            }
        };
        match input {
            Ok(Some(sink)) => {
                let room = self.services.input_room.hold(self.job);
                self.input = Input::start_kept(&kept, sink, room);
            }
            Ok(None) => {}
            Err(error) => tracing::error!(job = %self.job, %error, "a rank gets no input"),
        }
        for (stream, source) in outputs {
            self.pump_kept(rank, stream, source, tell);
        }
    }

    /// Starts the task that reads a pipe or a terminal, as output of this rank, by way of its file.
    pub(super) fn pump_kept(
        &mut self,
        rank: u32,
        stream: Stream,
        source: io::Result<OutputSource>,
        tell: &mpsc::UnboundedSender<TaskEvent>,
    ) {
        let Some(kept) = self.kept.clone() else { return };
        self.open_pipes += 1;
        let (services, tell, job) = (Rc::clone(&self.services), tell.clone(), self.job);
        let reader = tokio::task::spawn_local(async move {
            let read = match source {
                Ok(source) => pump(services, job, (rank, stream), kept, source).await,
                Err(error) => Err(error),
            };
            if let Err(error) = read {
                tracing::error!(%job, rank, %error, "output of a rank could not be read");
            }
            // The job's task outlives its parts.
            let _ = tell.send(TaskEvent::Closed);
        });
        self.readers.push(reader.abort_handle());
    }
}
