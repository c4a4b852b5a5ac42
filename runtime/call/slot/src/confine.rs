//! Confinement of a slot's process: it gives up its rights before it opens a library.

mod domain;
mod system_calls;

use std::ffi::CString;
use std::fmt;
use std::fs::Permissions;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::{set_no_new_privs, set_pdeathsig};
use nix::sys::signal::Signal;
use nix::unistd::{
    AccessFlags, Gid, Uid, User, access, getegid, geteuid, getgrouplist, getppid, setgroups,
    setresgid, setresuid, setsid,
};
use serde::{Deserialize, Serialize};

use crate::native::{
    drop_capabilities, enter_pid_namespace, mount_read_only, mount_writable, mounts_read_only,
    one_thread,
};

/// Processes of a sandbox before a routine starts any: the guard of its PID namespace, the process with number 1 there, and
/// the routine's own.
pub const SANDBOX_PROCESSES: u64 = 3;

/// A system user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunAs {
    user: u32,
    group: u32,
    groups: Vec<u32>,
}

impl RunAs {
    /// The user of this name with the groups that the system assigns.
    ///
    /// # Errors
    /// The user does not exist, or this process may not become another user.
    pub fn named(name: &str) -> io::Result<RunAs> {
        let user = User::from_name(name)?.ok_or_else(|| {
            io::Error::other(format!("the system has no user `{name}` to run it"))
        })?;
        if user.uid != geteuid() && !geteuid().is_root() {
            let text = format!("only a server that runs as root can run routines as `{name}`");
            return Err(io::Error::other(text));
        }
        let c_name = CString::new(name)?;
        let groups = match geteuid().is_root() {
            true => getgrouplist(&c_name, user.gid)?.into_iter().map(Gid::as_raw).collect(),
            false => Vec::new(),
        };
        Ok(RunAs { user: user.uid.as_raw(), group: user.gid.as_raw(), groups })
    }

    /// The user of a process. `None`: the server's. A sandbox never runs as root: even without capabilities,
    /// root's files, devices, sockets and processes would be its own. It uses `nobody` instead of an unnamed
    /// user.
    ///
    /// # Errors
    /// As [`RunAs::named`]; or a sandbox would run as root.
    pub fn of(name: Option<&str>, sandbox: bool) -> io::Result<Option<RunAs>> {
        let root = sandbox && geteuid().is_root();
        let Some(name) = name.or(root.then_some("nobody")) else { return Ok(None) };
        let run_as = RunAs::named(name)?;
        if sandbox && run_as.user == 0 {
            let text = format!(
                "`{name}` is root, which no sandbox can confine; set another user as run_as"
            );
            return Err(io::Error::other(text));
        }
        Ok(Some(run_as))
    }

    /// The user number.
    pub fn user(&self) -> u32 {
        self.user
    }

    /// The group number.
    pub fn group(&self) -> u32 {
        self.group
    }

    /// Whether it is root.
    pub fn is_root(&self) -> bool {
        self.user == 0
    }

    /// Becomes this user for good.
    fn become_it(&self) -> nix::Result<()> {
        let (user, group) = (Uid::from_raw(self.user), Gid::from_raw(self.group));
        if geteuid().is_root() {
            let groups: Vec<Gid> = self.groups.iter().copied().map(Gid::from_raw).collect();
            setgroups(&groups)?;
            setresgid(group, group, group)?;
        }
        setresuid(user, user, user)
    }
}

/// How a slot's process is confined. The guide's page on security says what each level stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// A proxy of parallel routines, which runs no code of them. Programs that it starts talk to daemons.
    Proxy,
    /// A routine outside of a sandbox.
    Plain,
    /// A routine in a sandbox.
    Sandbox,
}

/// Makes this process end when its server ends, whatever the routine does.
///
/// # Errors
/// An error of the system.
pub fn end_with_server() -> io::Result<()> {
    Ok(set_pdeathsig(Signal::SIGKILL)?)
}

/// Folders that a sandboxed routine has to itself while its process lives.
const SCRATCH: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// Folders that are empty in a sandbox: sockets and pipes of services and of the user's session, terminals, and queues. What a
/// routine needs of them is shown.
const HIDDEN: [&str; 4] = ["/run", "/var/run", "/dev/pts", "/dev/mqueue"];

/// Bytes and files of each hidden folder: for what is shown in it.
const HIDDEN_ROOM: &str = "mode=0755,size=64k,nr_inodes=1024";

/// Whether a path is a folder of its own. A link leads to a folder that is covered itself.
fn is_folder(path: &str) -> bool {
    std::fs::symlink_metadata(path).is_ok_and(|found| found.is_dir())
}

/// Most files in each of these folders.
const SCRATCH_FILES: u32 = 65_536;

/// Moves this process to namespaces and a session of its own: no network, no shared IPC, no processes but its own. Its
/// files become read-only, except empty folders of its own, which hold `room` bytes together. Needed files that these
/// folders cover are shown in them.
fn enclose(needed: &[PathBuf], files: Option<&Path>, room: u64) -> Result<(), String> {
    let apart = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWUTS;
    let failed = |what: &str, why: &dyn fmt::Display| {
        format!(
            "there can be no sandbox: {what}: {why}; run the server as root, permit user namespaces, or omit --sandbox"
        )
    };
    one_thread().map_err(|error| format!("there can be no sandbox: {error}"))?;
    if geteuid().is_root() {
        unshare(apart).map_err(|errno| failed("namespaces", &errno))?;
    } else {
        let (user, group) = (geteuid(), getegid());
        unshare(apart | CloneFlags::CLONE_NEWUSER).map_err(|errno| failed("namespaces", &errno))?;
        let files = [
            ("setgroups", "deny".to_owned()),
            ("uid_map", format!("{user} {user} 1")),
            ("gid_map", format!("{group} {group} 1")),
        ];
        for (name, line) in files {
            let path = format!("/proc/self/{name}");
            std::fs::write(&path, line).map_err(|error| failed(&path, &error))?;
        }
    }
    enter_pid_namespace().map_err(|error| failed("processes of its own", &error))?;
    // Without the server's terminal: a routine could type into it.
    setsid().map_err(|errno| failed("a session of its own", &errno))?;
    mounts_read_only().map_err(|error| failed("read-only files", &error))?;
    // The old one shows the processes of the machine.
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC | MsFlags::MS_RDONLY;
    mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>)
        .map_err(|errno| failed("a /proc of its own", &errno))?;
    let covered = CoveredPaths::among(needed);
    let files = files.map(|folder| (folder, std::fs::File::open(folder)));
    let each = room / SCRATCH.len() as u64;
    let open = format!("mode=1777,size={each},nr_inodes={SCRATCH_FILES}");
    for folder in SCRATCH.iter().filter(|folder| Path::new(folder).is_dir()) {
        cover(Path::new(folder), &open).map_err(|errno| failed(folder, &errno))?;
    }
    let hidden: Vec<&str> = HIDDEN.into_iter().filter(|folder| is_folder(folder)).collect();
    for folder in &hidden {
        cover(Path::new(folder), HIDDEN_ROOM).map_err(|errno| failed(folder, &errno))?;
    }
    covered.show().map_err(|error| failed("what is needed below /tmp or /run", &error))?;
    if let Some((folder, opened)) = files {
        let shown = opened.and_then(|opened| show_files(folder, &opened));
        shown.map_err(|error| failed("the files of calls", &error))?;
    }
    for folder in hidden {
        mount_read_only(Path::new(folder)).map_err(|error| failed(folder, &error))?;
    }
    std::env::set_current_dir("/").map_err(|error| failed("/", &error))
}

/// Covers a folder by an empty one with these options.
fn cover(folder: &Path, options: &str) -> nix::Result<()> {
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), folder, Some("tmpfs"), flags, Some(options))
}

/// Mounts the folder with the owner's calls writable at its path, and hides everything beside it.
fn show_files(folder: &Path, opened: &std::fs::File) -> io::Result<()> {
    let beside = folder.parent().unwrap_or(Path::new("/"));
    // Below /tmp it has gone: the folder's parents are made anew there.
    let covers = beside.is_dir();
    if covers {
        cover(beside, HIDDEN_ROOM)?;
    }
    make_open(folder)?;
    bind(opened, folder)?;
    mount_writable(folder)?;
    if covers {
        mount_read_only(beside)?;
    }
    Ok(())
}

/// Makes a folder and its parents, open to all users.
fn make_open(folder: &Path) -> io::Result<()> {
    let missing = folder.ancestors().take_while(|folder| !folder.is_dir());
    for folder in missing.collect::<Vec<_>>().into_iter().rev() {
        std::fs::create_dir(folder)?;
        std::fs::set_permissions(folder, Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// Mounts an open file or folder at a path.
fn bind(opened: &std::fs::File, place: &Path) -> io::Result<()> {
    let from = format!("/proc/self/fd/{}", opened.as_raw_fd());
    // Mounts below a folder belong to it; a process without root rights cannot leave them out.
    let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
    Ok(mount(Some(from.as_str()), place, None::<&str>, flags, None::<&str>)?)
}

/// Files and folders that empty folders will cover, held open.
struct CoveredPaths(Vec<(PathBuf, std::fs::File)>);

impl CoveredPaths {
    /// Opens those of `paths` that will be covered, by name and by resolved name. If one cannot be opened,
    /// its user reports that later.
    fn among(paths: &[PathBuf]) -> CoveredPaths {
        let below =
            |path: &PathBuf| SCRATCH.iter().chain(&HIDDEN).any(|folder| path.starts_with(folder));
        // A path with `..` would lead out of the folder.
        let plain = |path: &PathBuf| !path.components().any(|part| part == Component::ParentDir);
        let meant = paths.iter().filter_map(|path| std::fs::canonicalize(path).ok());
        let mut covered: Vec<PathBuf> = paths.iter().cloned().chain(meant).collect();
        covered.retain(|path| below(path) && plain(path) && !is_scratch(path));
        // Parents before children.
        covered.sort_unstable();
        covered.dedup();
        let mut held: Vec<(PathBuf, std::fs::File)> = Vec::new();
        for path in covered {
            if !held.iter().any(|(other, _)| path.starts_with(other))
                && let Ok(file) = std::fs::File::open(&path)
            {
                held.push((path, file));
            }
        }
        CoveredPaths(held)
    }

    /// Mounts them again at their paths, read-only, with their own permissions.
    fn show(self) -> io::Result<()> {
        for (path, file) in self.0 {
            if file.metadata()?.is_dir() {
                make_open(&path)?;
            } else {
                make_open(path.parent().unwrap_or(Path::new("/")))?;
                std::fs::File::create(&path)?;
            }
            bind(&file, &path)?;
        }
        Ok(())
    }
}

/// Whether a folder is private to sandboxes, so that nothing in it can be shown.
pub fn is_own_folder(folder: &Path) -> bool {
    is_scratch(folder) || std::fs::canonicalize(folder).is_ok_and(|folder| is_scratch(&folder))
}

fn is_scratch(folder: &Path) -> bool {
    SCRATCH.iter().any(|scratch| folder == Path::new(scratch))
}

/// Gives up all rights that are not needed at a level. Must run before any of the routine's code is opened. A
/// sandbox shows `needed` files also inside its empty folders, and may write to `files`, the folder of the
/// calls' files. Its temporary folders hold `room` bytes together.
///
/// # Errors
/// An error message.
pub fn confine(
    run_as: Option<&RunAs>,
    level: Level,
    needed: &[PathBuf],
    files: Option<&Path>,
    room: u64,
) -> Result<(), String> {
    let sandbox = level == Level::Sandbox;
    if sandbox {
        enclose(needed, files, room)?;
    }
    // In a sandbox its init, which ends with the server.
    let server = getppid();
    if let Some(run_as) = run_as {
        run_as
            .become_it()
            .map_err(|error| format!("the process cannot become user {}: {error}", run_as.user))?;
        // A change of user clears the parent-death signal, and the parent may have ended meanwhile.
        end_with_server().map_err(|error| error.to_string())?;
        if getppid() != server {
            return Err("the server has gone".to_owned());
        }
    }
    if let Some(files) = files {
        let reached = access(files, AccessFlags::X_OK);
        reached.map_err(|errno| {
            format!(
                "the files of calls are below {}, where user {} cannot go: {errno}; give the server a --scratch that everybody \
                 may enter",
                files.display(),
                geteuid()
            )
        })?;
    }
    if sandbox {
        // With capabilities it could undo all this.
        drop_capabilities().map_err(|error| format!("capabilities cannot be dropped: {error}"))?;
    }
    set_no_new_privs().map_err(|error| format!("privileges cannot be ruled out: {error}"))?;
    match level {
        Level::Proxy => {}
        Level::Plain => domain::enter()?,
        Level::Sandbox => {
            let scratch = SCRATCH.map(PathBuf::from).into_iter().filter(|folder| folder.is_dir());
            let own: Vec<PathBuf> = scratch.chain(files.map(Path::to_owned)).collect();
            domain::enter_writing_only(&own)?;
        }
    }
    system_calls::filter(level)
}
