//! Folders of MPI programs: files of a job's server, and of its ranks.
//!
//! A folder is its user's, who may put anything there at any time. A daemon of root keeps the folders where no user can make
//! one. They are removed one after another by a thread of their own, which nothing waits for.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use kumi_control::message::JobSpec;
use kumi_sched::{JobId, NodeId};
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{Gid, Uid, UnlinkatFlags, chown, geteuid, mkdtemp, unlinkat};

/// Where folders of a daemon of root are. The path is short, since those of sockets are below.
const OF_ROOT: &str = "/run/kumi-mpi";
/// How long the removal of a folder may take. What is left goes when the daemon starts the next time.
const REMOVAL: Duration = Duration::from_secs(10);

/// Folder of a job's server and ranks. It goes some time after the value, unless it is left to a later daemon.
#[derive(Debug)]
pub(in crate::job) struct MpiFolder {
    path: PathBuf,
    /// It stays when this daemon ends, since the job does.
    stays: bool,
}

/// How the names of the folders of a cluster in this directory begin, or of one of its nodes. Two users may have clusters of
/// the same name.
fn beginning(cluster: &Path, node: Option<NodeId>) -> String {
    let hash = blake3::hash(cluster.as_os_str().as_encoded_bytes());
    let node = node.map_or_else(String::new, |node| format!("{node}+"));
    format!("kumi-mpi+{}+{node}", crate::paths::hex(&hash.as_bytes()[..6]))
}

/// How the names of the folders of a job begin.
fn of_job(cluster: &Path, node: NodeId, job: JobId) -> String {
    format!("{}{job}+", beginning(cluster, Some(node)))
}

/// The directory with the folders of this process's user.
fn parent() -> PathBuf {
    if geteuid().is_root() { PathBuf::from(OF_ROOT) } else { std::env::temp_dir() }
}

/// Makes the directory of root's folders, in which others only pass.
fn make_parent(parent: &Path) -> io::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    match std::fs::DirBuilder::new().mode(0o711).create(parent) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = std::fs::symlink_metadata(parent)?;
    if found.is_dir() && found.uid() == 0 && found.mode() & 0o022 == 0 {
        return Ok(());
    }
    let message = format!("{} is not a directory of root alone; remove it", parent.display());
    Err(io::Error::other(message))
}

impl MpiFolder {
    /// Makes one that the job's user owns.
    pub(super) fn make(cluster: &Path, node: NodeId, spec: &JobSpec) -> io::Result<Self> {
        let parent = parent();
        make_parent(&parent)?;
        let name = format!("{}XXXXXX", of_job(cluster, node, spec.job));
        let folder = Self { path: mkdtemp(&parent.join(name))?, stays: false };
        let user = &spec.user;
        chown(&folder.path, Some(Uid::from_raw(user.uid)), Some(Gid::from_raw(user.gid)))?;
        Ok(folder)
    }

    /// That of a job which a former daemon started.
    ///
    /// # Errors
    /// It is no folder of that job.
    pub(super) fn adopt(
        cluster: &Path,
        node: NodeId,
        job: JobId,
        path: PathBuf,
    ) -> Result<Self, String> {
        // It may be elsewhere than this daemon makes its own: `TMPDIR` may have changed.
        if path.is_absolute() && is_of(cluster, node, &[job], &path) {
            return Ok(Self { path, stays: true });
        }
        Err(format!("{} is no folder of its MPI program", path.display()))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The job may outlive this daemon, and its folder with it.
    pub(in crate::job) fn stay(&mut self) {
        self.stays = true;
    }

    /// The job is over.
    pub(in crate::job) fn remove(mut self) {
        self.stays = false;
    }
}

impl Drop for MpiFolder {
    fn drop(&mut self) {
        if !self.stays {
            remove_later(std::mem::take(&mut self.path));
        }
    }
}

/// Lets the thread that removes folders remove this one.
fn remove_later(folder: PathBuf) {
    static REMOVER: OnceLock<Option<Sender<PathBuf>>> = OnceLock::new();
    let remover = REMOVER.get_or_init(|| {
        let (sender, folders) = channel::<PathBuf>();
        let remover = std::thread::Builder::new().name("kumi-mpi-rm".to_owned());
        let started = remover.spawn(move || folders.iter().for_each(|folder| remove(&folder)));
        started.inspect_err(|error| tracing::error!(%error, "no folder is removed")).ok()?;
        Some(sender)
    });
    let sent = remover.as_ref().map(|remover| remover.send(folder));
    if !matches!(sent, Some(Ok(()))) {
        tracing::warn!("a folder of an MPI program is left");
    }
}

/// Removes a folder, as far as that is possible in the time that it may take.
fn remove(folder: &Path) {
    match remove_until(folder, Instant::now() + REMOVAL) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            tracing::warn!(folder = %folder.display(), %error, "a folder of an MPI program is left");
        }
    }
}

fn open_folder(at: impl std::os::fd::AsFd, name: &Path) -> nix::Result<OwnedFd> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(at, name, flags, Mode::empty())
}

/// Names in a folder that is open.
fn names(folder: &OwnedFd) -> io::Result<std::fs::ReadDir> {
    std::fs::read_dir(format!("/proc/self/fd/{}", folder.as_raw_fd()))
}

/// However deep it is, two folders are open at a time: what is deeper is moved to the top before it is removed. No link is
/// followed.
fn remove_until(folder: &Path, deadline: Instant) -> io::Result<()> {
    let top = open_folder(AT_FDCWD, folder)?;
    let mut moved = 0_u64;
    loop {
        let mut found = false;
        for entry in names(&top)? {
            found = true;
            remove_entry(&top, Path::new(&entry?.file_name()), &mut moved, deadline)?;
        }
        if !found {
            return std::fs::remove_dir(folder);
        }
    }
}

/// Removes an entry of the top folder. Folders in it go to the top.
fn remove_entry(top: &OwnedFd, name: &Path, moved: &mut u64, deadline: Instant) -> io::Result<()> {
    if unlink(top, name, deadline)? {
        return Ok(());
    }
    let inner = open_folder(top, name)?;
    for entry in names(&inner)? {
        let entry = PathBuf::from(entry?.file_name());
        if unlink(&inner, &entry, deadline)? {
            continue;
        }
        loop {
            *moved += 1;
            let other = PathBuf::from(format!("{moved}"));
            match renameat(&inner, &entry, top, &other) {
                // There is something of this name.
                Err(Errno::ENOTEMPTY | Errno::EEXIST | Errno::ENOTDIR) => check_time(deadline)?,
                result => break result?,
            }
        }
    }
    // What was moved here meanwhile is seen the next time.
    match unlinkat(top, name, UnlinkatFlags::RemoveDir) {
        Err(Errno::ENOTEMPTY | Errno::EEXIST | Errno::ENOENT) | Ok(()) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn check_time(deadline: Instant) -> io::Result<()> {
    let late = || io::Error::new(io::ErrorKind::TimedOut, "its removal takes too long");
    if Instant::now() < deadline { Ok(()) } else { Err(late()) }
}

/// Removes what is no folder, or an empty one. Returns false for others.
fn unlink(at: &OwnedFd, name: &Path, deadline: Instant) -> io::Result<bool> {
    check_time(deadline)?;
    match unlinkat(at, name, UnlinkatFlags::NoRemoveDir) {
        Err(Errno::EISDIR | Errno::EPERM) => {}
        Err(Errno::ENOENT) | Ok(()) => return Ok(true),
        Err(error) => return Err(error.into()),
    }
    match unlinkat(at, name, UnlinkatFlags::RemoveDir) {
        Err(Errno::ENOTEMPTY | Errno::EEXIST) => Ok(false),
        Err(Errno::ENOENT) | Ok(()) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// Folders that killed daemons of the cluster in this directory, or of one of its nodes, have left. None of them runs.
fn left_in(parent: &Path, cluster: &Path, node: Option<NodeId>) -> Vec<PathBuf> {
    let beginning = beginning(cluster, node);
    // Where others can make folders, too, only this user's are of the cluster.
    let root = geteuid();
    let ours = |at: &Path| {
        let found = std::fs::symlink_metadata(at);
        found.is_ok_and(|found| found.is_dir() && (root.is_root() || found.uid() == root.as_raw()))
    };
    let Ok(entries) = std::fs::read_dir(parent) else { return Vec::new() };
    let names = entries.flatten();
    let named = names.filter(|one| one.file_name().to_string_lossy().starts_with(&beginning));
    named.map(|one| one.path()).filter(|at| ours(at)).collect()
}

/// Removes what killed daemons have left of all nodes of the cluster in this directory. None of them runs.
pub fn remove_left(cluster: &Path) {
    left(cluster, None).iter().for_each(|folder| remove(folder));
}

/// The same of one node, while its daemon starts, which does not wait for that. Those of jobs that go on stay.
pub(super) fn remove_left_later(cluster: &Path, node: NodeId, go_on: &[JobId]) {
    let left = left(cluster, Some(node)).into_iter();
    left.filter(|folder| !is_of(cluster, node, go_on, folder)).for_each(remove_later);
}

/// Whether a folder is of one of these jobs.
fn is_of(cluster: &Path, node: NodeId, jobs: &[JobId], folder: &Path) -> bool {
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.unwrap_or_default();
    jobs.iter().any(|&job| name.starts_with(&of_job(cluster, node, job)))
}

fn left(cluster: &Path, node: Option<NodeId>) -> Vec<PathBuf> {
    let parent = parent();
    // Nothing is removed for root where a user may have made it.
    if parent.exists() && make_parent(&parent).is_err() {
        tracing::warn!(parent = %parent.display(), "is not a directory of root alone");
        return Vec::new();
    }
    left_in(&parent, cluster, node)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn far() -> Instant {
        Instant::now() + Duration::from_secs(600)
    }

    #[test]
    fn folders_are_known_by_their_cluster_and_node() {
        let parent = tempfile::tempdir().unwrap();
        let cluster = Path::new("/some/cluster");
        let folder = |node: u32| {
            let name = format!("{}7+XXXXXX", beginning(cluster, Some(NodeId(node))));
            let made = mkdtemp(&parent.path().join(name)).unwrap();
            std::fs::write(made.join("file"), "x").unwrap();
            made
        };
        let (one, eleven) = (folder(1), folder(11));
        let left = |node| left_in(parent.path(), cluster, node);
        assert_eq!(left(Some(NodeId(1))), std::slice::from_ref(&one));
        assert_eq!(left(None).len(), 2);
        remove(&one);
        assert_eq!(left(None), [eleven]);
        // What looks so and is no folder.
        let link = parent.path().join(format!("{}x", beginning(cluster, Some(NodeId(3)))));
        std::os::unix::fs::symlink("/etc", link).unwrap();
        assert_eq!(left(Some(NodeId(3))), Vec::<PathBuf>::new());
    }

    #[test]
    fn folders_of_jobs_that_go_on_stay() {
        let (cluster, node) = (Path::new("/some/cluster"), NodeId(1));
        let folder = |job| parent().join(format!("{}abcdef", of_job(cluster, node, JobId(job))));
        let of = |jobs: &[JobId], job| is_of(cluster, node, jobs, &folder(job));
        assert!(of(&[JobId(7), JobId(8)], 8));
        assert!(!of(&[], 8) && !of(&[JobId(7)], 71) && !of(&[JobId(71)], 7));
        let adopt = |job, path| MpiFolder::adopt(cluster, node, JobId(job), path);
        assert_eq!(adopt(7, folder(7)).unwrap().path(), folder(7));
        let elsewhere = Path::new("/elsewhere").join(folder(7).file_name().unwrap());
        assert_eq!(adopt(7, elsewhere.clone()).unwrap().path(), elsewhere);
        assert!(adopt(7, folder(8)).is_err() && adopt(7, "kumi-mpi".into()).is_err());
        assert!(adopt(7, folder(7).join("kumi-mpi+")).is_err());
        assert!(adopt(7, "/etc".into()).is_err());
    }

    #[test]
    fn a_folder_is_removed_with_its_job_and_not_with_its_daemon() {
        let parent = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let path = parent.path().join(name);
            std::fs::create_dir(&path).unwrap();
            MpiFolder { path, stays: false }
        };
        let mut kept = folder("kept");
        kept.stay();
        drop(kept);
        let mut over = folder("over");
        over.stay();
        over.remove();
        drop(folder("none"));
        let left = || {
            let names = std::fs::read_dir(parent.path()).unwrap();
            names.map(|name| name.unwrap().file_name()).collect::<Vec<_>>()
        };
        // They go by a thread, in their order.
        let end = Instant::now() + Duration::from_secs(300);
        while left().len() > 1 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(left(), ["kept"]);
    }

    #[test]
    fn folders_of_root_are_where_users_make_none() {
        let folder = tempfile::tempdir().unwrap();
        if !geteuid().is_root() {
            return assert_eq!(parent(), std::env::temp_dir());
        }
        assert_eq!(parent(), Path::new(OF_ROOT));
        let at = folder.path().join("mpi");
        make_parent(&at).unwrap();
        make_parent(&at).unwrap();
        chown(&at, Some(Uid::from_raw(1)), None).unwrap();
        assert!(make_parent(&at).is_err(), "a user's");
        std::fs::remove_dir(&at).unwrap();
        std::os::unix::fs::symlink("/run", &at).unwrap();
        assert!(make_parent(&at).is_err(), "a link");
    }

    #[test]
    fn a_folder_of_any_depth_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("deep");
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("1"), "in the way of a name").unwrap();
        let mut at = open_folder(AT_FDCWD, &folder).unwrap();
        for _ in 0..3_000 {
            nix::sys::stat::mkdirat(&at, "d", Mode::S_IRWXU).unwrap();
            nix::unistd::symlinkat("/etc", &at, "link").unwrap();
            at = open_folder(&at, Path::new("d")).unwrap();
        }
        drop(at);
        remove_until(&folder, far()).unwrap();
        assert!(!folder.exists() && Path::new("/etc").exists());
    }

    #[test]
    fn removal_ends_in_time() {
        let parent = tempfile::tempdir().unwrap();
        std::fs::write(parent.path().join("file"), "x").unwrap();
        let error = remove_until(parent.path(), Instant::now()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
