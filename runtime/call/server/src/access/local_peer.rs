//! Clients on this machine: their local socket, and the check that they may share memory.
//!
//! A process that maps the memory of a call can change it while the routine works on it. So the server shares
//! memory only with a process that could do so anyway by tracing the process of the routine. Such a process
//! has the same user, the same namespaces and at least the same capabilities. A container with this machine's
//! network has other namespaces, so it gets no memory.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::rc::Rc;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::geteuid;

use super::super::owner::Owner;
use super::super::{Config, Listener, Shared};
use crate::confine::RunAs;
use crate::native::peer_process;
use crate::nearby::{Secret, address};

/// Namespaces that a client must share with this process.
const NAMESPACES: [&str; 2] = ["user", "pid"];

/// A process at the other end of a Unix socket, with this process's user and namespaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LocalPeer {
    user: u32,
    /// It has all capabilities of this process.
    is_capable: bool,
}

/// Opens the local socket for clients that connected over TCP. `None`: it would be useless or cannot be
/// opened, and such clients stay on TCP.
pub(crate) fn listen(config: &Config, listener: &Listener) -> Option<(Secret, UnixListener)> {
    let is_plain = matches!(listener, Listener::Tcp(_)) && config.tls.is_none();
    if !(is_plain && config.share_memory && !config.sandbox) {
        return None;
    }
    let open = || {
        let secret = crate::random::bytes()?;
        Ok((secret, UnixListener::bind_addr(&address(&secret)?)?))
    };
    open()
        .inspect_err(|error: &io::Error| {
            tracing::warn!(%error, "clients on this machine get no shared memory: the local socket cannot be opened");
        })
        .ok()
}

/// Accepts local clients if there is a local socket. Ends only with an error.
pub(crate) async fn accept(
    shared: &Rc<Shared>,
    listening: Option<(Secret, UnixListener)>,
) -> io::Result<()> {
    match listening {
        Some((_, listener)) => super::super::accept(shared, Listener::Unix(listener), true).await,
        None => std::future::pending().await,
    }
}

/// The process at the other end of a socket. `None`: it may not trace ours, or cannot be determined.
pub(crate) fn at(socket: &OwnedFd) -> Option<LocalPeer> {
    // TCP sockets have no credentials.
    let theirs = getsockopt(socket, sockopt::PeerCredentials).ok()?;
    // A process of another PID namespace has none.
    let process = Some(theirs.pid()).filter(|process| *process > 0)?;
    let handle = peer_process(socket.as_fd(), process).ok()?;
    described(theirs.uid(), process, handle.as_fd())
}

/// The process of this user and number, of which the handle is. `None`: it has ended, and the number may be another's.
fn described(user: u32, process: i32, handle: BorrowedFd<'_>) -> Option<LocalPeer> {
    let of = |process: &str, name: &str| -> Option<PathBuf> {
        std::fs::read_link(format!("/proc/{process}/ns/{name}")).ok()
    };
    let process = process.to_string();
    let is_same = |name: &&str| of(&process, name).is_some_and(|it| Some(it) == of("self", name));
    if !NAMESPACES.iter().all(is_same) {
        return None;
    }
    let is_capable = capabilities("self")? & !capabilities(&process)? == 0;
    // Read last: as long as it lives, its number was its own above. The handle is readable when it has ended.
    let mut ended = [PollFd::new(handle, PollFlags::POLLIN)];
    let lives = poll(&mut ended, PollTimeout::ZERO) == Ok(0);
    lives.then_some(LocalPeer { user, is_capable })
}

/// The capabilities that a process may have, as bits.
fn capabilities(process: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let bits = status.lines().find_map(|line| line.strip_prefix("CapPrm:"))?;
    u64::from_str_radix(bits.trim(), 16).ok()
}

impl LocalPeer {
    /// Whether this process may trace the processes of an owner's calls.
    pub fn may_trace(self, owner: &Owner, sandbox: bool) -> bool {
        // A sandbox has other namespaces, and nothing outside may steer what it confines.
        if sandbox {
            return false;
        }
        match RunAs::of(owner.run_as.as_deref(), sandbox) {
            // A process of root has all that this process has.
            Ok(Some(run_as)) => {
                self.user == run_as.user() && (self.is_capable || !run_as.is_root())
            }
            Ok(None) => self.user == geteuid().as_raw() && self.is_capable,
            // The calls will report the error.
            Err(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A number of a process that has ended may go to one that may do more.
    #[test]
    fn who_has_only_the_number_of_a_process_is_not_taken_for_it() {
        let (user, own) = (geteuid().as_raw(), std::process::id().cast_signed());
        let ours = crate::native::open_process(own).expect("this very process");
        let known = described(user, own, ours.as_fd()).expect("this very process");
        assert!(known.may_trace(&Owner::default(), false));
        let mut child = std::process::Command::new("true").spawn().expect("a process");
        let gone = crate::native::open_process(child.id().cast_signed()).expect("it is a child");
        child.wait().expect("it ends");
        assert_eq!(described(user, own, gone.as_fd()), None);
    }

    #[test]
    fn who_is_of_this_process_s_user_is_trusted_and_nobody_over_tcp() {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        let local_peer = at(&ours.into()).expect("this very process");
        assert!(local_peer.may_trace(&Owner::default(), false));
        assert!(
            !local_peer.may_trace(&Owner::default(), true),
            "a sandbox is not led from outside"
        );
        let other = LocalPeer { user: local_peer.user + 1, ..local_peer };
        assert!(!other.may_trace(&Owner::default(), false), "another user");
        let confined = LocalPeer { is_capable: false, ..local_peer };
        assert!(!confined.may_trace(&Owner::default(), false), "it may do less than we");
        let run_as = Some("no such user of this system".to_owned());
        let owner = Owner { user: "ada".to_owned(), run_as };
        assert!(!local_peer.may_trace(&owner, false), "nobody knows as whom its routines run");
        drop(theirs);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address");
        let _client = TcpStream::connect(address).expect("a connection");
        let (taken, _) = listener.accept().expect("it comes");
        assert_eq!(at(&taken.into()), None);
    }
}
