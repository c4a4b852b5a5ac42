//! What a job needs on a node before its ranks may go: control group, segment, sockets, doorbells,
//! pipes, and the ranks themselves as shims.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process::Stdio;

use kumi_control::message::{JobSpec, NodeRanks, PreparedRanks, RankAddress, Refusal, RefusalKind};
use kumi_net::launch::Launch;
use kumi_net::layout::{DEFAULT_ARENA_BYTES, DEFAULT_RING_BYTES};
use kumi_net::segment::{Segment, SegmentSpec};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};

use super::Site;
use super::shim::ShimSpec;
use crate::cgroup::Group;
use crate::client::refusal;

/// Everything of a job that is ready and has no rank yet.
pub(super) struct Resources {
    pub(super) group: Option<Group>,
    pub(super) segment: Segment,
    pub(super) prepared: PreparedRanks,
    sockets: Vec<OwnedFd>,
    doorbells: Vec<OwnedFd>,
}

/// The ranks as shims, and the pipes to and from them.
pub(super) struct Shims {
    pub(super) children: Vec<Child>,
    pub(super) go: pipe::Sender,
    pub(super) status: pipe::Receiver,
}

fn resources(what: &str, error: &dyn std::fmt::Display) -> Refusal {
    let message = format!("the node cannot make {what}: {error}; see `kumi doctor` there");
    refusal(RefusalKind::NoResources, message)
}

impl Resources {
    /// Makes all of it, or nothing.
    pub(super) fn make(site: &Site, spec: &JobSpec, part: &NodeRanks) -> Result<Self, Refusal> {
        let ranks = spec.request.ranks;
        let local_ranks = part.first..part.first.saturating_add(part.count);
        let segment = Segment::create(&SegmentSpec {
            channel_key: spec.channel_key,
            ranks,
            local_ranks: local_ranks.clone(),
            ring_bytes: DEFAULT_RING_BYTES,
            arena_bytes: DEFAULT_ARENA_BYTES,
        })
        .map_err(|error| resources("the job's segment", &error))?;
        let (mut sockets, mut doorbells, mut addresses) = (Vec::new(), Vec::new(), Vec::new());
        for _ in local_ranks {
            let (socket, port) = kumi_net::launch::bind_socket(site.address)
                .map_err(|error| resources("a rank's socket", &error))?;
            addresses.push(RankAddress { ip: site.address.octets(), port });
            sockets.push(socket);
            let bell = kumi_net::launch::doorbell();
            doorbells.push(bell.map_err(|error| resources("a rank's doorbell", &error))?);
        }
        // Last, since it is what would stay if something else failed.
        let group = match &site.group {
            Some(node) => Some(
                node.child(&format!("job-{}", spec.job))
                    .map_err(|error| resources("the job's control group", &error))?,
            ),
            None => None,
        };
        let prepared = PreparedRanks { addresses, max_datagram: site.max_datagram };
        Ok(Self { group, segment, prepared, sockets, doorbells })
    }

    fn rank_env(
        &self,
        site: &Site,
        spec: &JobSpec,
        part: &NodeRanks,
    ) -> Vec<Vec<(String, String)>> {
        let doorbells: Vec<_> = self.doorbells.iter().map(AsRawFd::as_raw_fd).collect();
        let launches = (part.first..).zip(&self.sockets).map(|(rank, socket)| Launch {
            job: spec.job.0,
            rank,
            ranks: spec.request.ranks,
            node: site.node.0,
            segment: self.segment.as_fd().as_raw_fd(),
            socket: socket.as_raw_fd(),
            doorbells: doorbells.clone(),
        });
        launches.map(|launch| launch.to_env()).collect()
    }

    /// Starts the shims. On failure those that were started are killed; the group stays.
    pub(super) fn spawn(
        &self,
        site: &Site,
        spec: &JobSpec,
        part: &NodeRanks,
        program: std::path::PathBuf,
    ) -> Result<Shims, Refusal> {
        let failed = |error: io::Error| resources("the ranks' processes", &error);
        let (go, go_end) = pipe::pipe().map_err(failed)?;
        let (status_end, status) = pipe::pipe().map_err(failed)?;
        let go_end = go_end.into_blocking_fd().map_err(failed)?;
        let status_end = status_end.into_blocking_fd().map_err(failed)?;
        let own = nix::unistd::geteuid().as_raw();
        let request = &spec.request;
        let shim = ShimSpec {
            path: program,
            args: request.args.clone(),
            env: request.env.clone(),
            rank_env: self.rank_env(site, spec, part),
            cwd: request.cwd.clone(),
            user: (spec.user.uid != own).then(|| spec.user.clone()),
            cpus: site.cpus.clone(),
            open_files: site.open_files,
            group: self.group.as_ref().map(|group| group.path().join("cgroup.procs")),
            daemon: std::process::id(),
            go: go_end.as_raw_fd(),
            status: status_end.as_raw_fd(),
        };
        let file = spec_file(&shim).map_err(failed)?;
        let mut children: Vec<Child> = Vec::new();
        for (local, socket) in self.sockets.iter().enumerate() {
            let mut fds = vec![file.as_fd(), go_end.as_fd(), status_end.as_fd()];
            fds.extend([self.segment.as_fd(), socket.as_fd()]);
            fds.extend(self.doorbells.iter().map(AsFd::as_fd));
            let child = Inherit::new(&fds).and_then(|inherit| {
                let child =
                    self.spawn_one(site, file.as_raw_fd(), local, part.first == 0 && local == 0);
                inherit.end().and(child)
            });
            match child {
                Ok(child) => children.push(child),
                Err(error) => {
                    for child in &mut children {
                        // They have not become anything yet; their group is killed as well.
                        let _ = child.start_kill();
                    }
                    return Err(failed(error));
                }
            }
        }
        Ok(Shims { children, go, status })
    }

    fn spawn_one(&self, site: &Site, spec: i32, local: usize, input: bool) -> io::Result<Child> {
        Command::new(&site.executable)
            .arg("rank")
            .arg(spec.to_string())
            .arg(local.to_string())
            .env_clear()
            .stdin(if input { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
    }
}

fn spec_file(shim: &ShimSpec) -> io::Result<OwnedFd> {
    let bytes = postcard::to_allocvec(shim).map_err(io::Error::other)?;
    let file = memfd_create(c"kumi-rank", MFdFlags::MFD_CLOEXEC)?;
    let mut file = File::from(file);
    file.write_all(&bytes)?;
    Ok(file.into())
}

/// Lets children inherit descriptors, under the numbers they have here, while it lives. Children
/// are started by one thread only, so no other can inherit them by accident.
struct Inherit<'fd>(Vec<BorrowedFd<'fd>>);

fn set_inherited(fd: BorrowedFd<'_>, inherited: bool) -> io::Result<()> {
    let flags = if inherited { FdFlag::empty() } else { FdFlag::FD_CLOEXEC };
    fcntl(fd, FcntlArg::F_SETFD(flags))?;
    Ok(())
}

impl<'fd> Inherit<'fd> {
    fn new(fds: &[BorrowedFd<'fd>]) -> io::Result<Self> {
        let inherit = Self(fds.to_vec());
        for &fd in fds {
            set_inherited(fd, true)?;
        }
        Ok(inherit)
    }

    fn end(mut self) -> io::Result<()> {
        std::mem::take(&mut self.0).into_iter().try_for_each(|fd| set_inherited(fd, false))
    }
}

impl Drop for Inherit<'_> {
    fn drop(&mut self) {
        for &fd in &self.0 {
            // On the way out of an error; the descriptors are about to be closed.
            let _ = set_inherited(fd, false);
        }
    }
}
