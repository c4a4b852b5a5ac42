//! What the ranks of an MPI program and their server are started with.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use kumi_control::message::{JobSpec, NodeRanks, Refusal, RefusalKind};
use kumi_pmi::message::{ServedJob, ServedNode, ToServer};
use kumi_sched::JobId;
use nix::sys::memfd::{MFdFlags, memfd_create};
use tokio::net::unix::pipe;

use super::super::NodeServices;
use super::super::launch::resources;
use super::super::process::{self, Process};
use super::super::shim::ShimSpec;
use super::door::Door;
use super::environment::{self, PROVIDER, Surroundings};
use super::folder::MpiFolder;
use super::kept::{MpiRecord, MpiState};
use super::link::ServerWay;
use super::setting::{Fabric, MpiSetting};
use crate::client::refusal;
use crate::keep::{Held, KeptCommand, MpiDescriptor};

/// The server's program, beside this one.
const SERVER: &str = "kumi-pmi-server";

/// The server's process and the end of its standard error.
pub(in crate::job) struct ServerProcess {
    pub(in crate::job) process: Process,
    pub(in crate::job) output: pipe::Receiver,
}

/// The sockets of an MPI program's ranks and of their server, before these exist.
#[derive(Debug)]
pub(in crate::job) struct MpiLaunch {
    setting: MpiSetting,
    folder: MpiFolder,
    provider: Option<PathBuf>,
    door: Door,
    door_end: OwnedFd,
    state: MpiState,
    /// Variables of ranks that only the server knows, for the shims to read when they go.
    variables: File,
    /// By local rank: the server's end and the rank's.
    pmi: Vec<(OwnedFd, OwnedFd)>,
    place: u32,
    served: Vec<ServedNode>,
    /// The node's address is on the loopback interface.
    loopback: bool,
}

impl MpiLaunch {
    /// What the job needs if it is an MPI program.
    ///
    /// # Errors
    /// It cannot be started so.
    pub(in crate::job) fn make(
        services: &NodeServices,
        spec: &JobSpec,
        part: &NodeRanks,
    ) -> Result<Option<Self>, Refusal> {
        let bad = |message| refusal(RefusalKind::BadRequest, message);
        let Some(setting) = MpiSetting::of(&spec.request.env).map_err(bad)? else {
            return Ok(None);
        };
        let provider = check_fabric(services, spec, setting)?;
        let failed = |error: io::Error| resources("what an MPI program needs", &error);
        let folder = MpiFolder::make(&services.mpi.cluster, services.node, spec).map_err(failed)?;
        let (door, door_end) = Door::make().map_err(failed)?;
        let state = MpiState::create(ranks_of(part)).map_err(failed)?;
        let variables = memfd_create(c"kumi-mpi", MFdFlags::MFD_CLOEXEC)
            .map_err(|error| failed(error.into()))?;
        let pair = || UnixStream::pair().map(|(one, other)| (one.into(), other.into()));
        let count = if setting.library.pmi() { part.count } else { 0 };
        let pmi = (0..count).map(|_| pair()).collect::<io::Result<_>>().map_err(failed)?;
        let place = spec.layout.iter().position(|one| one.node == part.node);
        let place = place.and_then(|place| u32::try_from(place).ok()).unwrap_or(0);
        let served = spec.layout.iter().map(|part| served(services, part)).collect();
        let variables = File::from(variables);
        Ok(Some(Self {
            setting,
            folder,
            provider,
            door,
            door_end,
            state,
            variables,
            pmi,
            place,
            served,
            loopback: services.address.ip().is_loopback(),
        }))
    }

    /// Settings of libraries, which give way to what the user has set. `crowded`: ranks share processors.
    pub(in crate::job) fn settings(&self, crowded: bool) -> Vec<(String, String)> {
        let (provider, loopback) = (self.provider.as_deref(), self.loopback);
        environment::settings(self.setting, Surroundings { provider, loopback, crowded })
    }

    /// Variables of a local rank that are known now.
    pub(in crate::job) fn env(
        &self,
        part: &NodeRanks,
        local: usize,
        ranks: u32,
    ) -> Vec<(String, String)> {
        let number = u32::try_from(local).unwrap_or(u32::MAX);
        let mut env = environment::identity(part, number, ranks, self.place, self.served.len());
        if let Some((_, end)) = self.pmi.get(local) {
            env.push(("PMI_FD".to_owned(), end.as_raw_fd().to_string()));
        }
        env
    }

    /// The file with the others.
    pub(in crate::job) fn variables(&self) -> i32 {
        self.variables.as_raw_fd()
    }

    /// Descriptors that a local rank inherits.
    pub(in crate::job) fn inherited(&self, local: usize) -> impl Iterator<Item = BorrowedFd<'_>> {
        let end = self.pmi.get(local).map(|(_, end)| end.as_fd());
        [self.variables.as_fd()].into_iter().chain(end)
    }

    /// The job as the server has to know it.
    fn job(&self, spec: &JobSpec) -> ServedJob {
        ServedJob {
            job: spec.job.number().0,
            ranks: spec.request.ranks,
            nodes: self.served.clone(),
            place: self.place,
            uid: spec.user.uid,
            gid: spec.user.gid,
            folder: self.folder.path().to_string_lossy().into_owned(),
            pmix: self.setting.library.pmix(),
            pmi: self.pmi.iter().map(|(end, _)| end.as_raw_fd()).collect(),
        }
    }

    /// What the server is started with: a shim like `shim`, which has a rank's spec.
    ///
    /// # Errors
    /// The kernel's error.
    pub(in crate::job) fn prepare_server(
        &self,
        services: &NodeServices,
        (job, shim): (JobId, &ShimSpec),
    ) -> io::Result<ServerStart> {
        let (go, mut goes) = io::pipe()?;
        goes.write_all(&[1])?;
        let argument = self.door_end.as_raw_fd().to_string();
        let spec = ShimSpec {
            args: vec![SERVER.to_owned(), argument],
            env: server_env(job, &shim.env),
            rank_env: Vec::new(),
            cwd: "/".to_owned(),
            path: programs(services).join(SERVER),
            go: go.as_raw_fd(),
            variables: None,
            terminal: false,
            server: true,
            ..shim.clone()
        };
        let spec = super::super::launch::spec_file(&spec)?;
        let (output, output_end) = super::super::launch::output_pipe()?;
        Ok(ServerStart { spec, go: go.into(), output, output_end })
    }

    /// Descriptors that the server inherits, beside that by which its shim reports.
    fn inherited_by_server<'a>(&'a self, start: &'a ServerStart) -> Vec<BorrowedFd<'a>> {
        let shim = [start.spec.as_fd(), start.go.as_fd(), self.door_end.as_fd()];
        shim.into_iter().chain(self.pmi.iter().map(|(end, _)| end.as_fd())).collect()
    }

    /// Starts the server as a child of the daemon.
    pub(in crate::job) async fn start_server(
        &self,
        services: &NodeServices,
        start: ServerStart,
        (status, null): (BorrowedFd<'_>, BorrowedFd<'_>),
        group: Option<&File>,
    ) -> io::Result<ServerProcess> {
        let inherited = self.inherited_by_server(&start).into_iter().chain([status]);
        let request = process::SpawnRequest {
            executable: services.executable.clone(),
            arguments: start.arguments(),
            streams: start.streams(null).map(|file| file.as_raw_fd()),
            inherited: inherited.map(|file| file.as_raw_fd()).collect(),
            session: false,
            group: group.map(AsRawFd::as_raw_fd),
        };
        let process = services.starter.start(request).await?;
        Ok(ServerProcess { process, output: start.output })
    }

    /// The same for a keeper, with the descriptors that it needs for that.
    pub(in crate::job) fn server_command<'a>(
        &'a self,
        start: &'a ServerStart,
        (status, null): (BorrowedFd<'a>, BorrowedFd<'a>),
    ) -> (KeptCommand, Vec<BorrowedFd<'a>>) {
        let mut files = self.inherited_by_server(start);
        files.push(status);
        let streams = start.streams(null);
        let command = KeptCommand {
            arguments: start.arguments(),
            streams: streams.map(|file| file.as_raw_fd()),
            inherited: files.iter().map(AsRawFd::as_raw_fd).collect(),
            session: false,
        };
        files.extend(streams);
        (command, files)
    }

    /// What a later daemon has to know.
    ///
    /// # Errors
    /// The kernel's error.
    pub(in crate::job) fn record(&self) -> io::Result<OwnedFd> {
        let folder = self.folder.path().to_owned();
        MpiRecord { has_provider: self.has_provider(), folder }.write()
    }

    /// What a keeper holds of the server, beside its record.
    pub(in crate::job) fn held<'a>(
        &'a self,
        start: &'a ServerStart,
    ) -> [(Held, BorrowedFd<'a>); 3] {
        [
            (Held::Mpi(MpiDescriptor::Door), self.door.as_fd()),
            (Held::Mpi(MpiDescriptor::State), self.state.as_fd()),
            (Held::Mpi(MpiDescriptor::Errors), start.output.as_fd()),
        ]
    }

    fn has_provider(&self) -> bool {
        self.provider.is_some() || self.setting.fabric != Fabric::Kumi
    }

    /// What stays with the daemon, once ranks and server have the rest. The job may have a keeper.
    pub(in crate::job) fn into_parts(self, spec: &JobSpec, is_kept: bool) -> MpiParts {
        let (job, has_provider) = (self.job(spec), self.has_provider());
        let mut folder = self.folder;
        if is_kept {
            folder.stay();
        }
        let way = ServerWay {
            begin: ToServer::Job(job),
            setting: self.setting,
            has_provider,
            door: self.door,
            variables: Some(self.variables),
        };
        MpiParts { way, folder, state: self.state }
    }
}

/// What a server is started with.
pub(in crate::job) struct ServerStart {
    /// The shim's.
    spec: OwnedFd,
    /// It need not wait.
    go: OwnedFd,
    output: pipe::Receiver,
    output_end: OwnedFd,
}

impl ServerStart {
    /// By these this program becomes the server.
    fn arguments(&self) -> Vec<String> {
        vec!["rank".to_owned(), self.spec.as_raw_fd().to_string(), "0".to_owned()]
    }

    fn streams<'a>(&'a self, null: BorrowedFd<'a>) -> [BorrowedFd<'a>; 3] {
        [null, self.output_end.as_fd(), self.output_end.as_fd()]
    }

    /// It has started.
    pub(in crate::job) fn with(self, process: Process) -> ServerProcess {
        ServerProcess { process, output: self.output }
    }
}

/// What the daemon keeps of an MPI program.
#[derive(Debug)]
pub(in crate::job) struct MpiParts {
    pub(in crate::job) way: ServerWay,
    pub(in crate::job) folder: MpiFolder,
    pub(in crate::job) state: MpiState,
}

impl MpiParts {
    /// Those of a job that a former daemon started, from what its keeper holds.
    ///
    /// # Errors
    /// A sentence: that is not what it should be.
    pub(in crate::job) fn adopt(
        services: &NodeServices,
        (spec, part): (&JobSpec, &NodeRanks),
        [door, record, state]: [OwnedFd; 3],
    ) -> Result<Self, String> {
        let setting = MpiSetting::of(&spec.request.env)?.ok_or("it is no MPI program")?;
        let MpiRecord { has_provider, folder } = MpiRecord::read(record)?;
        let state = MpiState::adopt(state, ranks_of(part));
        let state = state.map_err(|error| format!("how its MPI ranks stand: {error}"))?;
        let folder = MpiFolder::adopt(&services.mpi.cluster, services.node, spec.job, folder)?;
        let begin = ToServer::Resume { heard: state.heard() };
        let (door, variables) = (Door::adopt(door), None);
        let way = ServerWay { begin, setting, has_provider, door, variables };
        Ok(Self { way, folder, state })
    }
}

fn ranks_of(part: &NodeRanks) -> Range<u32> {
    part.first..part.first.saturating_add(part.count)
}

/// Environment of a server, from that of its job.
fn server_env(number: JobId, job: &[(String, String)]) -> Vec<(String, String)> {
    // The libraries that it loads are those that its user names: it has the user's rights
    // and no more, and what it says is believed no more than what ranks say.
    const PASSED: [&str; 6] =
        ["PATH", "HOME", "LD_LIBRARY_PATH", "TMPDIR", "KUMI_LIBPMIX", "KUMI_CLUSTER_DIR"];
    let passed = |name: &str| PASSED.contains(&name) || name.starts_with("PMIX_MCA_");
    let own = job.iter().filter(|(name, _)| passed(name)).cloned();
    // The library looks at all devices otherwise, which takes longer than all else.
    let quick = [
        ("HWLOC_COMPONENTS", "-linux:io,-linux:pci,linux,stop"),
        ("HWLOC_PLUGINS_PATH", "/nonexistent"),
    ];
    let quick = quick.map(|(name, value)| (name.to_owned(), value.to_owned()));
    // By this its orphans are found where there is no control group.
    let job = ("KUMI_JOB".to_owned(), number.number().to_string());
    own.chain(quick).chain([job]).collect()
}

/// The folder with this program and the server.
fn programs(services: &NodeServices) -> &Path {
    services.executable.parent().unwrap_or(Path::new("/"))
}

fn served(services: &NodeServices, part: &NodeRanks) -> ServedNode {
    let known = usize::try_from(part.node.0).ok().and_then(|at| services.mpi.node_names.get(at));
    let name = known.cloned().unwrap_or_else(|| format!("node-{}", part.node));
    ServedNode { name, first: part.first, count: part.count }
}

/// Whether messages can go as the job wants. Returns the provider's folder.
fn check_fabric(
    services: &NodeServices,
    spec: &JobSpec,
    setting: MpiSetting,
) -> Result<Option<PathBuf>, Refusal> {
    match setting.fabric {
        Fabric::Shm if spec.layout.len() > 1 => {
            let message = format!(
                "shared memory joins ranks of one node, and job {} has {}; give it --nodes 1 or another --fabric",
                spec.job,
                spec.layout.len()
            );
            Err(refusal(RefusalKind::BadRequest, message))
        }
        Fabric::Shm | Fabric::Tcp => Ok(None),
        Fabric::Kumi => match environment::find_provider(programs(services)) {
            Some(folder) => Ok(Some(folder)),
            // A script may have nothing to do with MPI.
            None if setting.library == super::setting::MpiLibrary::Any => Ok(None),
            None => Err(no_provider(services)),
        },
    }
}

/// There is no way over Kumi's channels.
pub(super) fn no_provider(services: &NodeServices) -> Refusal {
    let message = format!(
        "node {} has no {PROVIDER} beside {}, by which MPI programs send through Kumi; install it, or use --fabric=tcp",
        services.node,
        services.executable.display()
    );
    refusal(RefusalKind::NotFound, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orphans_of_a_server_are_known_by_their_job() {
        let own = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let env = server_env(JobId(7), &[own("PATH", "/bin"), own("KUMI_JOB", "8")]);
        let jobs: Vec<_> = env.iter().filter(|(name, _)| name == "KUMI_JOB").collect();
        assert_eq!(jobs, [&own("KUMI_JOB", "7")]);
        assert!(env.contains(&own("PATH", "/bin")));
    }
}
