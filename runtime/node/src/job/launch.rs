//! Launch of a job on a node: control group, segment, sockets, doorbells, pipes, and the ranks as
//! shims.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::rc::Rc;
use std::sync::atomic::AtomicI32;

use kumi_control::batch::RESTARTS;
use kumi_control::message::{
    JobSpec, NodeRanks, PreparedRanks, RankAddress, Refusal, RefusalKind, WindowSize,
};
use kumi_net::disclosure::JobPage;
use kumi_net::launch::{LaunchBlock, LocalRank, PageDescriptors};
use kumi_net::segment::{Segment, SegmentFiles};
use kumi_net::trace::RING;
use nix::sys::memfd::{MFdFlags, memfd_create};
use tokio::net::unix::pipe;

use super::adoption::group_name;
use super::cleanup::LeftOfStart;
use super::devices::JobDevices;
use super::group_changes::elsewhere;
use super::kept::{segment_sizes, segment_spec};
use super::mpi::environment::is_foreign;
use super::mpi::{MpiLaunch, ServerProcess, ServerStart};
use super::process::{self, Process};
use super::processors::RankProcessors;
use super::shim::ShimSpec;
use super::starting::StartProgress;
use super::terminal::Terminal;
use super::traces::JobTraces;
use super::{NodeServices, limits};
use crate::cgroup::{JobGroups, JobLimits, NodeGroups};
use crate::client::refusal;
use crate::keep::KeptJob;
use crate::wire::{RankWire, hops_of};

/// Everything of a job that is ready and has no rank yet.
pub(super) struct JobResources {
    pub(super) control: Option<JobGroups>,
    processors: RankProcessors,
    pub(super) devices: JobDevices,
    pub(super) segment: Segment,
    /// Needed until the shims have them.
    pub(super) files: SegmentFiles,
    pub(super) page: Option<JobPage>,
    pub(super) traces: JobTraces,
    /// Of an MPI program.
    pub(super) mpi: Option<MpiLaunch>,
    pub(super) prepared: PreparedRanks,
    sockets: Vec<OwnedFd>,
    /// By local rank: its parts of AF_XDP, if it gets some.
    pub(super) wires: Vec<Option<RankWire>>,
    doorbells: Vec<OwnedFd>,
}

/// The ranks as shims, and the pipes to and from them.
pub(super) struct ShimProcesses {
    pub(super) ranks: Vec<RankProcess>,
    pub(super) go: pipe::Sender,
    pub(super) status: pipe::Receiver,
    /// That of an MPI program.
    pub(super) server: Option<ServerProcess>,
    /// Of a job that has a keeper.
    pub(super) kept: Option<Rc<KeptJob>>,
}

/// A process that is or becomes a rank, and the ends of its streams.
pub(super) struct RankProcess {
    pub(super) process: Process,
    pub(super) streams: RankStreams,
}

/// The daemon's ends of a rank's standard streams.
pub(super) enum RankStreams {
    /// Of pipes: input, if it has some, output and errors.
    Pipes(Option<pipe::Sender>, [pipe::Receiver; 2]),
    /// All of them are one terminal.
    Terminal(Terminal),
}

/// What the shims of a job inherit together, the spec's file first; nothing to read; the folder of their control group.
pub(super) type InheritedByShims<'a> = (&'a [BorrowedFd<'a>; 3], BorrowedFd<'a>, Option<&'a File>);

/// The rank's ends of its pipes: input, if it has some, output and errors. None of a terminal, which has them itself.
pub(super) type RankEnds = Option<(Option<OwnedFd>, [OwnedFd; 2])>;

impl RankStreams {
    /// The terminal, or pipes, that for input only if asked. Also returns the rank's ends of these.
    pub(super) fn make(input: bool, terminal: Option<Terminal>) -> io::Result<(Self, RankEnds)> {
        if let Some(terminal) = terminal {
            return Ok((Self::Terminal(terminal), None));
        }
        let (streams, input, outputs) = Self::pipes(input)?;
        Ok((streams, Some((input, outputs))))
    }

    /// Standard input, output and errors of the rank, which reads nothing if it has no input.
    pub(super) fn given<'a>(
        &'a self,
        ends: &'a RankEnds,
        null: BorrowedFd<'a>,
    ) -> [BorrowedFd<'a>; 3] {
        match (self, ends) {
            (Self::Terminal(terminal), _) => [terminal.slave(); 3],
            (Self::Pipes(..), Some((input, [out, err]))) => {
                [input.as_ref().map_or(null, AsFd::as_fd), out.as_fd(), err.as_fd()]
            }
            (Self::Pipes(..), None) => [null; 3],
        }
    }

    fn pipes(input: bool) -> io::Result<(Self, Option<OwnedFd>, [OwnedFd; 2])> {
        let (out, out_end) = output_pipe()?;
        let (err, err_end) = output_pipe()?;
        let (input, input_end) = match input {
            true => {
                let (sender, receiver) = pipe::pipe()?;
                (Some(sender), Some(receiver.into_blocking_fd()?))
            }
            false => (None, None),
        };
        Ok((Self::Pipes(input, [out, err]), input_end, [out_end, err_end]))
    }
}

impl RankProcess {
    /// Its process group; 0 if it has ended.
    pub(super) fn group(&self) -> AtomicI32 {
        let pid = self.process.pid().and_then(|pid| i32::try_from(pid).ok());
        AtomicI32::new(pid.unwrap_or(0))
    }
}

pub(super) fn resources(what: &str, error: &dyn std::fmt::Display) -> Refusal {
    let message = format!("the node cannot make {what}: {error}; see `kumi doctor` there");
    refusal(RefusalKind::NoResources, message)
}

impl JobResources {
    /// Makes all of it, or nothing.
    async fn make(
        services: &NodeServices,
        spec: &JobSpec,
        part: &NodeRanks,
    ) -> Result<Self, Refusal> {
        let local_ranks = part.first..part.first.saturating_add(part.count);
        let segment = segment_spec(spec, part, segment_sizes(part));
        let (segment, files) =
            Segment::create(&segment).map_err(|error| resources("the job's segment", &error))?;
        let page = job_page(services, spec).map_err(|error| resources("the job's page", &error))?;
        let traces = JobTraces::make(&spec.request, part)?;
        let mpi = MpiLaunch::make(services, spec, part)?;
        let (mut sockets, mut doorbells, mut addresses) = (Vec::new(), Vec::new(), Vec::new());
        let (address, max_datagram) = services.way_of_ranks(&spec.layout);
        for _ in local_ranks {
            let (socket, port) = kumi_net::launch::bind_socket(address).map_err(|error| {
                resources(&format!("a rank's socket at {}", address.ip()), &error)
            })?;
            addresses.push(RankAddress { ip: address.ip(), port });
            sockets.push(socket);
            let bell = kumi_net::launch::doorbell();
            doorbells.push(bell.map_err(|error| resources("a rank's doorbell", &error))?);
        }
        let wires = rank_wires(services, spec, part, &addresses);
        let processors = processors(services, spec, part)?;
        let devices = &spec.request.resources.devices;
        let devices = JobDevices::take(&services.devices, spec.job, devices, part.count)?;
        // Last, since they are what would stay if something else failed.
        let limits = limits::of_groups(services, spec, part, (&processors, &devices));
        let control = match services.groups.clone() {
            Some(node) => Some(groups(node, group_name(spec.job), limits).await?),
            None => None,
        };
        let prepared = PreparedRanks { addresses, max_datagram };
        Ok(Self {
            control,
            processors,
            devices,
            segment,
            files,
            page,
            traces,
            mpi,
            prepared,
            sockets,
            wires,
            doorbells,
        })
    }

    fn rank_env(
        &self,
        services: &NodeServices,
        spec: &JobSpec,
        part: &NodeRanks,
    ) -> Vec<Vec<(String, String)>> {
        let launches = (0..).zip(part.first..).zip(&self.sockets).map(|((local, rank), socket)| {
            let files = self.files.for_rank(local);
            let local = self.doorbells.iter().zip(&files.ranks);
            LaunchBlock {
                job: spec.job.number().0,
                rank,
                ranks: spec.request.ranks,
                node: services.node.0,
                job_file: files.job.as_raw_fd(),
                shared_file: files.shared.as_raw_fd(),
                socket: socket.as_raw_fd(),
                local: local.map(local_rank).collect(),
            }
        });
        let pages = self.pages(services).map(|[node, job]| {
            PageDescriptors { node: node.as_raw_fd(), job: job.as_raw_fd() }.to_env()
        });
        let wires = self.wires.iter().map(|wire| wire.as_ref().map(RankWire::to_env));
        let devices = (0..).map(|local| self.devices.env(local).iter().cloned());
        let restarts = (RESTARTS.to_owned(), spec.job.restarts().to_string());
        launches
            .zip(wires)
            .zip(devices)
            .enumerate()
            .map(|(local, ((launch, wire), devices))| {
                launch
                    .to_env()
                    .into_iter()
                    .chain(pages.clone())
                    .chain(wire)
                    .chain(devices)
                    .chain([restarts.clone()])
                    .chain(self.traces.env(local))
                    .chain(self.mpi.iter().flat_map(|mpi| mpi.env(part, local, spec.request.ranks)))
                    .collect()
            })
            .collect()
    }

    /// The pages that ranks may read, if the node has them.
    fn pages<'a>(&'a self, services: &'a NodeServices) -> Option<[BorrowedFd<'a>; 2]> {
        Some([services.page.as_ref()?.as_fd(), self.page.as_ref()?.as_fd()])
    }

    /// Starts the shims. On failure those that were started are killed; the group stays.
    async fn spawn(
        &self,
        services: &NodeServices,
        spec: &JobSpec,
        part: &NodeRanks,
        (program, progress): (std::path::PathBuf, StartProgress),
    ) -> Result<ShimProcesses, SpawnFailure> {
        let refused = |error: io::Error| resources("the ranks' processes", &error);
        let failed = |error: io::Error| SpawnFailure::of_all(refused(error));
        let (go, go_end) = pipe::pipe().map_err(failed)?;
        let (status_end, status) = pipe::pipe().map_err(failed)?;
        let go_end = go_end.into_blocking_fd().map_err(failed)?;
        let status_end = status_end.into_blocking_fd().map_err(failed)?;
        let own = nix::unistd::geteuid().as_raw();
        let request = &spec.request;
        let shim = ShimSpec {
            path: program,
            args: request.args.clone(),
            settings: self.mpi_settings(),
            env: self.inherited_env(&request.env),
            rank_env: self.rank_env(services, spec, part),
            cwd: request.cwd.clone(),
            user: (spec.user.uid != own).then(|| spec.user.clone()),
            processors: self.processors.clone(),
            limits: limits::of_ranks(spec),
            nice: services.nice,
            group: self.control.as_ref().map(|groups| groups.main().path().to_owned()),
            to_join: self.control.as_ref().map(JobGroups::to_join).unwrap_or_default(),
            daemon: std::process::id(),
            go: go_end.as_raw_fd(),
            status: status_end.as_raw_fd(),
            variables: self.mpi.as_ref().map(MpiLaunch::variables),
            terminal: terminal_of(spec, part).is_some(),
            server: false,
        };
        let file = spec_file(&shim).map_err(failed)?;
        let (null, folder) = self.null_and_folder().map_err(failed)?;
        let all = [file.as_fd(), go_end.as_fd(), status_end.as_fd()];
        let shared = (&all, null.as_fd(), folder.as_ref());
        let server = self.mpi.as_ref().map(|mpi| mpi.prepare_server(services, (spec.job, &shim)));
        let server = server.transpose().map_err(failed)?;
        if let Some(keep) = self.keeping(services) {
            let pipes = (go, status, progress);
            let kept = self.spawn_kept(services, keep, (spec, part), shared, pipes, server).await;
            return kept.map_err(SpawnFailure::of_all);
        }
        progress.goes_on().map_err(failed)?;
        let server = self.start_server(services, server, shared).await.map_err(failed)?;
        progress.step();
        let ranks = self.spawn_ranks(services, (spec, part), shared, &progress);
        match ranks.await {
            Ok(ranks) => Ok(ShimProcesses { ranks, go, status, server, kept: None }),
            Err((error, mut processes)) => {
                processes.extend(server.map(|server| server.process));
                Err(SpawnFailure { refused: refused(error), processes })
            }
        }
    }

    /// Nothing to read, and the folder of the job's control group.
    fn null_and_folder(&self) -> io::Result<(File, Option<File>)> {
        let folder = self.control.as_ref().map(|groups| groups.main().open_folder());
        Ok((File::open("/dev/null")?, folder.transpose()?))
    }

    /// Spawns the ranks' shims: all, or else with the error come those that are there. They have not become anything yet.
    async fn spawn_ranks(
        &self,
        services: &NodeServices,
        (spec, part): (&JobSpec, &NodeRanks),
        shared: InheritedByShims<'_>,
        progress: &StartProgress,
    ) -> Result<Vec<RankProcess>, (io::Error, Vec<Process>)> {
        let terminal = terminal_of(spec, part).map(|size| Terminal::make(size, &spec.user));
        let mut terminal = terminal.transpose().map_err(|error| (error, Vec::new()))?;
        let mut ranks: Vec<RankProcess> = Vec::new();
        for local in 0..self.sockets.len() {
            let input = part.first == 0 && local == 0;
            let streams = (input, terminal.take());
            let spawned = match progress.goes_on() {
                Ok(()) => self.spawn_one(services, local, streams, shared).await,
                Err(error) => Err(error),
            };
            match spawned {
                Ok(rank) => {
                    ranks.push(rank);
                    progress.step();
                }
                Err(error) => {
                    return Err((error, ranks.into_iter().map(|rank| rank.process).collect()));
                }
            }
        }
        Ok(ranks)
    }

    /// Starts the server of an MPI program.
    async fn start_server(
        &self,
        services: &NodeServices,
        start: Option<ServerStart>,
        (shared, null, group): InheritedByShims<'_>,
    ) -> io::Result<Option<ServerProcess>> {
        let Some((mpi, start)) = self.mpi.as_ref().zip(start) else { return Ok(None) };
        mpi.start_server(services, start, (shared[2], null), group).await.map(Some)
    }

    /// Settings of an MPI program.
    fn mpi_settings(&self) -> Vec<(String, String)> {
        let crowded = self.processors.shared() < self.sockets.len();
        self.mpi.as_ref().map(|mpi| mpi.settings(crowded)).unwrap_or_default()
    }

    /// The environment of the user, without what only a launcher may say.
    fn inherited_env(&self, env: &[(String, String)]) -> Vec<(String, String)> {
        let foreign = |name: &str| self.mpi.is_some() && is_foreign(name);
        env.iter().filter(|(name, _)| name != RING && !foreign(name)).cloned().collect()
    }

    /// Starts one shim. `shared` are descriptors that all ranks inherit, the spec's first.
    async fn spawn_one(
        &self,
        services: &NodeServices,
        local: usize,
        (input, terminal): (bool, Option<Terminal>),
        (shared, null, group): InheritedByShims<'_>,
    ) -> io::Result<RankProcess> {
        let (streams, ends) = RankStreams::make(input, terminal)?;
        let inherited = self.inherited_by(services, local, shared);
        let request = process::SpawnRequest {
            executable: services.executable.clone(),
            arguments: Self::shim_arguments(shared, local),
            streams: streams.given(&ends, null).map(|file| file.as_raw_fd()),
            inherited: inherited.iter().map(AsRawFd::as_raw_fd).collect(),
            session: matches!(streams, RankStreams::Terminal(_)),
            group: group.map(AsRawFd::as_raw_fd),
        };
        let process = services.starter.start(request).await?;
        Ok(RankProcess { process, streams })
    }

    /// Ranks of the job here.
    pub(super) fn rank_count(&self) -> usize {
        self.sockets.len()
    }

    /// By these this program becomes a rank.
    pub(super) fn shim_arguments(shared: &[BorrowedFd<'_>; 3], local: usize) -> Vec<String> {
        vec!["rank".to_owned(), shared[0].as_raw_fd().to_string(), local.to_string()]
    }

    /// The descriptors of a local rank beside its streams.
    pub(super) fn inherited_by<'a>(
        &'a self,
        services: &'a NodeServices,
        local: usize,
        shared: &[BorrowedFd<'a>; 3],
    ) -> Vec<BorrowedFd<'a>> {
        let mut inherited = shared.to_vec();
        let files = self.files.for_rank(local);
        inherited.extend([files.job, files.shared, self.sockets[local].as_fd()]);
        inherited.extend(files.ranks.into_iter().flatten());
        inherited.extend(self.doorbells.iter().map(AsFd::as_fd));
        inherited.extend(self.pages(services).into_iter().flatten());
        inherited.extend(self.traces.inherited(local));
        inherited.extend(self.wires[local].iter().flat_map(RankWire::inherited));
        inherited.extend(self.mpi.iter().flat_map(|mpi| mpi.inherited(local)));
        inherited
    }
}

/// Why a job was not launched, and what there is of it. That is to be kept until none of its processes is left.
pub(super) struct LaunchFailure {
    pub(super) refused: Refusal,
    pub(super) left: Option<LeftOfStart>,
}

/// Why the processes of a job were not started, and those that were.
struct SpawnFailure {
    refused: Refusal,
    processes: Vec<Process>,
}

impl SpawnFailure {
    /// No process was started.
    fn of_all(refused: Refusal) -> Self {
        Self { refused, processes: Vec::new() }
    }
}

/// Makes what a job needs here and starts its ranks as shims.
pub(super) async fn launch(
    services: &NodeServices,
    spec: &JobSpec,
    part: &NodeRanks,
    program: std::path::PathBuf,
    progress: StartProgress,
) -> Result<(JobResources, ShimProcesses), LaunchFailure> {
    let made = JobResources::make(services, spec, part).await;
    let resources = made.map_err(|refused| LaunchFailure { refused, left: None })?;
    progress.step();
    match resources.spawn(services, spec, part, (program, progress)).await {
        Ok(shims) => Ok((resources, shims)),
        Err(SpawnFailure { refused, processes }) => {
            let left = LeftOfStart { processes, resources: Box::new(resources) };
            Err(LaunchFailure { refused, left: Some(left) })
        }
    }
}

/// Makes the job's control groups.
async fn groups(node: NodeGroups, name: String, limits: JobLimits) -> Result<JobGroups, Refusal> {
    let made = elsewhere(move || node.job(&name, &limits)).await;
    made.map_err(|error| resources("the job's control groups", &error))
}

/// Size of the terminal of the first rank here, if it is rank 0 and has one.
pub(super) fn terminal_of(spec: &JobSpec, part: &NodeRanks) -> Option<WindowSize> {
    spec.request.terminal.filter(|_| part.first == 0)
}

/// The processors of the job's ranks here.
fn processors(
    services: &NodeServices,
    spec: &JobSpec,
    part: &NodeRanks,
) -> Result<RankProcessors, Refusal> {
    let place = |processor| services.numa.of(processor);
    let made = RankProcessors::new(part, &spec.request.resources, &services.cpus, place);
    made.map_err(|place| {
        let message = format!(
            "the job was to have processor {place} of the node's list, which has {}: its `cpus` in cluster.toml have changed; start the head again",
            services.cpus.len()
        );
        refusal(RefusalKind::Internal, message)
    })
}

/// AF_XDP for the ranks of a job that has others elsewhere, where the node has it.
fn rank_wires(
    services: &NodeServices,
    spec: &JobSpec,
    part: &NodeRanks,
    addresses: &[RankAddress],
) -> Vec<Option<RankWire>> {
    let alone = part.count == spec.request.ranks;
    // AF_XDP steers what comes to the first address.
    let is_first = addresses.iter().all(|address| address.ip == services.address.ip());
    let xdp = services.xdp.as_ref().filter(|_| !alone && is_first);
    let hops = xdp.map(|xdp| hops_of(xdp, spec.request.ranks));
    let make = |(local, address): (u32, &RankAddress)| {
        let rank = part.first.saturating_add(local);
        let (xdp, hops) = (xdp?, hops.as_ref()?);
        let made = hops
            .as_ref()
            .map_err(String::clone)
            .and_then(|hops| RankWire::make(xdp, spec.job, (rank, local), address.port, hops));
        made.inspect_err(|reason| {
            tracing::info!(job = %spec.job, rank, reason, "a rank has no AF_XDP; it uses UDP");
        })
        .ok()
    };
    (0..).zip(addresses).map(make).collect()
}

fn local_rank((doorbell, files): (&OwnedFd, &[BorrowedFd<'_>; 2])) -> LocalRank<RawFd> {
    let [rank_file, arena_file] = files.map(|file| file.as_raw_fd());
    LocalRank { doorbell: doorbell.as_raw_fd(), rank_file, arena_file }
}

/// The page of a job, if the node has pages.
fn job_page(services: &NodeServices, spec: &JobSpec) -> io::Result<Option<JobPage>> {
    let part = |part: &NodeRanks| (part.node.0, part.first..part.first.saturating_add(part.count));
    let make = |_: &_| {
        JobPage::create(spec.job.number().0, spec.request.ranks, spec.layout.iter().map(part))
    };
    services.page.as_ref().map(make).transpose()
}

pub(super) fn output_pipe() -> io::Result<(pipe::Receiver, OwnedFd)> {
    let (sender, receiver) = pipe::pipe()?;
    Ok((receiver, sender.into_blocking_fd()?))
}

pub(super) fn spec_file(shim: &ShimSpec) -> io::Result<OwnedFd> {
    let bytes = postcard::to_allocvec(shim).map_err(io::Error::other)?;
    let file = memfd_create(c"kumi-rank", MFdFlags::MFD_CLOEXEC)?;
    let mut file = File::from(file);
    file.write_all(&bytes)?;
    Ok(file.into())
}
