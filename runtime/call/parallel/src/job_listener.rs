//! Listener to which rank 0 of a job connects, on a port that the cluster's nodes reach.

use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, setns};
use nix::unistd::geteuid;

use super::Jobs;

/// The command `kumi` for this cluster, without the call tokens of the server's user.
pub fn kumi(jobs: &Jobs) -> Command {
    let mut command = Command::new(&jobs.kumi);
    command.env("KUMI_CLUSTER", &jobs.cluster).env("KUMI_DIR", &jobs.folder);
    command.env_remove("KUMI_CALL_TOKEN").stdin(Stdio::null());
    // The current folder may be closed to the slot's user.
    let own_message = std::env::current_dir().and_then(|folder| folder.metadata());
    if own_message.is_err() {
        command.current_dir("/");
    }
    command
}

/// The text of a line that the command wrote for its own part.
pub fn own_message(line: &str) -> Option<&str> {
    line.strip_prefix("kumi: ")
}

/// Opens a port on the address from which packets to the first node would go, so that the nodes reach it.
///
/// # Errors
/// A message that says what to do.
pub fn open(jobs: &Jobs) -> Result<TcpListener, String> {
    let output = kumi(jobs).args(["cluster", "status", "--json"]).output();
    let output = output.map_err(|error| format!("{}: {error}", jobs.kumi.display()))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(said
            .lines()
            .filter_map(own_message)
            .next_back()
            .unwrap_or("no answer")
            .to_owned());
    }
    let status: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    let node = status["nodes"][0]["address"].as_str().ok_or("the cluster has no nodes")?;
    let listener = match inside(jobs)? {
        None => listen(node),
        Some(network) => {
            let entered = std::thread::scope(|scope| {
                let thread = scope.spawn(|| {
                    setns(network, CloneFlags::CLONE_NEWNET)?;
                    listen(node)
                });
                thread.join()
            });
            entered.map_err(|_| "the node's network namespace cannot be entered".to_owned())?
        }
    };
    listener.map_err(|error| {
        let user = geteuid();
        format!("no way to the node {node} for user {user}: {error}")
    })
}

/// The network namespace of the nodes, if they are namespaces of this machine that reach only each other.
fn inside(jobs: &Jobs) -> Result<Option<File>, String> {
    let inside = Path::new("/run/netns").join(format!("kumi-{}-0", jobs.cluster));
    if !inside.exists() {
        return Ok(None);
    }
    File::open(&inside).map(Some).map_err(|error| format!("{}: {error}", inside.display()))
}

fn listen(node: &str) -> io::Result<TcpListener> {
    let node: SocketAddr =
        node.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let any = if node.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" };
    let socket = UdpSocket::bind(any)?;
    socket.connect(node)?;
    let listener = TcpListener::bind((socket.local_addr()?.ip(), 0))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_listens_in_the_family_of_the_nodes() {
        for (node, own) in [("127.0.0.2:7701", "127.0.0.1"), ("[::1]:7701", "::1")] {
            let listener = listen(node).expect("a listener");
            assert_eq!(listener.local_addr().expect("its address").ip().to_string(), own);
        }
        assert!(listen("nowhere").is_err());
    }
}
