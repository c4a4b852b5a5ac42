//! What the ranks of an MPI program and their server are started with.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use kumi_control::message::{JobSpec, NodeRanks, Refusal, RefusalKind};
use kumi_pmi::message::{ServedJob, ServedNode};
use kumi_sched::JobId;
use nix::sys::memfd::{MFdFlags, memfd_create};
use tokio::net::unix::pipe;

use super::super::NodeServices;
use super::super::launch::resources;
use super::super::process::{self, Process};
use super::super::shim::ShimSpec;
use super::environment::{self, PROVIDER, Surroundings};
use super::folder::MpiFolder;
use super::setting::{Fabric, MpiSetting};
use crate::client::refusal;

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
    control: UnixStream,
    control_end: OwnedFd,
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
        let (control, control_end) = UnixStream::pair().map_err(failed)?;
        let variables = memfd_create(c"kumi-mpi", MFdFlags::MFD_CLOEXEC)
            .map_err(|error| failed(error.into()))?;
        let pair = || UnixStream::pair().map(|(one, other)| (one.into(), other.into()));
        let count = if setting.library.pmi() { part.count } else { 0 };
        let pmi = (0..count).map(|_| pair()).collect::<io::Result<_>>().map_err(failed)?;
        let place = spec.layout.iter().position(|one| one.node == part.node);
        let place = place.and_then(|place| u32::try_from(place).ok()).unwrap_or(0);
        let served = spec.layout.iter().map(|part| served(services, part)).collect();
        let (variables, control_end) = (File::from(variables), control_end.into());
        Ok(Some(Self {
            setting,
            folder,
            provider,
            control,
            control_end,
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

    /// Starts the server as a shim like `shim`, which has a rank's spec.
    pub(in crate::job) async fn start_server(
        &self,
        services: &NodeServices,
        (job, shim): (JobId, &ShimSpec),
        shared: (BorrowedFd<'_>, BorrowedFd<'_>),
        group: Option<&File>,
    ) -> io::Result<ServerProcess> {
        let (status, null) = shared;
        let path = programs(services).join(SERVER);
        let (go, mut goes) = io::pipe()?;
        goes.write_all(&[1])?;
        let argument = self.control_end.as_raw_fd().to_string();
        let spec = ShimSpec {
            args: vec![SERVER.to_owned(), argument],
            env: server_env(job, &shim.env),
            rank_env: Vec::new(),
            cwd: "/".to_owned(),
            path,
            go: go.as_raw_fd(),
            status: status.as_raw_fd(),
            variables: None,
            terminal: false,
            server: true,
            ..shim.clone()
        };
        let file = super::super::launch::spec_file(&spec)?;
        let (output, output_end) = super::super::launch::output_pipe()?;
        let mut inherited = vec![file.as_fd(), go.as_fd(), status, self.control_end.as_fd()];
        inherited.extend(self.pmi.iter().map(|(end, _)| end.as_fd()));
        let request = process::SpawnRequest {
            executable: services.executable.clone(),
            arguments: vec!["rank".to_owned(), file.as_raw_fd().to_string(), "0".to_owned()],
            streams: [null, output_end.as_fd(), output_end.as_fd()].map(|file| file.as_raw_fd()),
            inherited: inherited.iter().map(AsRawFd::as_raw_fd).collect(),
            session: false,
            group: group.map(AsRawFd::as_raw_fd),
        };
        Ok(ServerProcess { process: services.starter.start(request).await?, output })
    }

    /// What stays with the daemon, once ranks and server have the rest.
    pub(in crate::job) fn into_parts(self, spec: &JobSpec) -> MpiParts {
        MpiParts {
            job: self.job(spec),
            setting: self.setting,
            has_provider: self.provider.is_some() || self.setting.fabric != Fabric::Kumi,
            control: self.control,
            variables: self.variables,
            folder: self.folder,
        }
    }
}

/// What the daemon keeps of an MPI program.
#[derive(Debug)]
pub(in crate::job) struct MpiParts {
    pub(super) job: ServedJob,
    pub(super) setting: MpiSetting,
    pub(super) has_provider: bool,
    pub(super) control: UnixStream,
    pub(super) variables: File,
    pub(super) folder: MpiFolder,
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
