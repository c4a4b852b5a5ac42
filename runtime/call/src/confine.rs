//! What the process of a slot may do: it gives up what it has before it opens a library.

use std::ffi::CString;
use std::fmt;
use std::io;
use std::path::Path;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::prctl::{set_no_new_privs, set_pdeathsig};
use nix::sys::signal::Signal;
use nix::unistd::{
    Gid, Uid, User, getegid, geteuid, getgrouplist, getppid, setgroups, setresgid, setresuid,
};
use serde::{Deserialize, Serialize};

use crate::native::{drop_capabilities, mounts_read_only};

/// A user of the system.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunAs {
    user: u32,
    group: u32,
    groups: Vec<u32>,
}

impl RunAs {
    /// The user of this name, with the groups that the system gives it.
    ///
    /// # Errors
    /// There is none, or this process may not become another user.
    pub fn named(name: &str) -> io::Result<RunAs> {
        let user = User::from_name(name)?.ok_or_else(|| {
            io::Error::other(format!("the system has no user `{name}`, as whom it is to run"))
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

    /// Becomes this user, for good.
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

/// Has this process end with its server, whatever it does.
///
/// # Errors
/// What the system says.
pub fn end_with_server() -> io::Result<()> {
    Ok(set_pdeathsig(Signal::SIGKILL)?)
}

/// Folders that a routine in a sandbox has for itself, as long as its process lives.
const SCRATCH: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

/// Takes this process out of the machine's network, of what is shared by its other processes, and makes its files
/// read-only but for empty folders of its own.
fn enclose() -> Result<(), String> {
    let apart = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS;
    let failed = |what: &str, why: &dyn fmt::Display| {
        format!(
            "there can be no sandbox: {what}: {why}; run the server as root, permit user namespaces, or leave \
             --sandbox away"
        )
    };
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
    mounts_read_only().map_err(|error| failed("read-only files", &error))?;
    for folder in SCRATCH.iter().filter(|folder| Path::new(folder).is_dir()) {
        let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
        let open = Some("mode=1777");
        mount(Some("tmpfs"), *folder, Some("tmpfs"), flags, open)
            .map_err(|errno| failed(folder, &errno))?;
    }
    std::env::set_current_dir("/").map_err(|error| failed("/", &error))
}

/// Gives up what is not needed to run a routine. To be called before any code of the routine's is opened.
///
/// # Errors
/// A sentence.
pub fn confine(run_as: Option<&RunAs>, sandbox: bool) -> Result<(), String> {
    let server = getppid();
    if sandbox {
        enclose()?;
    }
    if let Some(run_as) = run_as {
        run_as
            .become_it()
            .map_err(|error| format!("the process cannot become user {}: {error}", run_as.user))?;
        // Another user's process no longer ends with its parent unless it says so again; meanwhile that may have gone.
        end_with_server().map_err(|error| error.to_string())?;
        if getppid() != server {
            return Err("the server has gone".to_owned());
        }
    }
    if sandbox {
        // With them it could undo all this.
        drop_capabilities().map_err(|error| format!("capabilities cannot be given up: {error}"))?;
    }
    set_no_new_privs().map_err(|error| format!("privileges cannot be ruled out: {error}"))
}
