//! What the process of a slot may do: it gives up what it has before it opens a library.

use std::ffi::CString;
use std::io;

use nix::sys::prctl::{set_no_new_privs, set_pdeathsig};
use nix::sys::signal::Signal;
use nix::unistd::{
    Gid, Uid, User, geteuid, getgrouplist, getppid, setgroups, setresgid, setresuid,
};
use serde::{Deserialize, Serialize};

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

/// Gives up what is not needed to run a routine. To be called before any code of the routine's is opened.
///
/// # Errors
/// A sentence.
pub fn confine(run_as: Option<&RunAs>) -> Result<(), String> {
    let server = getppid();
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
    set_no_new_privs().map_err(|error| format!("privileges cannot be ruled out: {error}"))
}
