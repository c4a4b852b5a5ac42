//! The address at which a daemon listens. While a machine boots it may not be there yet.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tokio::net::TcpListener;

use crate::exit::{ExitCode, Failure};
use crate::{paths, service, tcp};

/// Between two attempts to have an address or an interface that is not there.
const ATTEMPTS: Duration = Duration::from_millis(500);
/// Between two messages of what is waited for.
const REMINDER: Duration = Duration::from_secs(60);

/// Between two attempts to have a further address.
const AGAIN: Duration = Duration::from_secs(5);

/// Tells what is waited for: at once, and now and then.
pub(crate) struct Patience<'a> {
    what: &'a str,
    told: Option<tokio::time::Instant>,
}

impl<'a> Patience<'a> {
    /// Waits for this.
    pub(crate) fn new(what: &'a str) -> Self {
        Self { what, told: None }
    }

    /// Until it is worth another look.
    pub(crate) async fn wait(&mut self) {
        let due = self.told.is_none_or(|told| told.elapsed() >= REMINDER);
        if due {
            self.told = Some(tokio::time::Instant::now());
            tracing::warn!("{}", self.what);
            service::status(self.what);
        }
        tokio::time::sleep(ATTEMPTS).await;
    }
}

/// Waits until this machine has the interface.
pub(crate) async fn await_interface(name: Option<&str>) {
    let Some(name) = name else { return };
    let what = format!(
        "waiting for the network interface {name}, which is not there; if it never comes, correct `interface` in cluster.toml"
    );
    let mut patience = Patience::new(&what);
    while nix::net::if_::if_nametoindex(name).is_err() {
        patience.wait().await;
    }
}

/// Listens on a TCP address, as soon as this machine has it. `pid` is the file of the daemon
/// whose first address this is.
///
/// # Errors
/// `Exists` when it is in use.
pub(crate) async fn listen(
    address: SocketAddr,
    pid: Option<&Path>,
) -> Result<TcpListener, Failure> {
    let what = format!(
        "waiting for the address {}, which this machine does not have; if it is another host's, correct cluster.toml or start the daemon there",
        address.ip()
    );
    let mut patience = Patience::new(&what);
    loop {
        match bind(address).await {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => patience.wait().await,
            Err(error) => return Err(failure(address, &error, pid)),
        }
    }
}

/// Listens at a further address of a daemon, as soon as this machine has it. It may be one that a router translates: then nobody
/// has to know that it is not here.
pub(crate) async fn listen_also(address: SocketAddr) -> TcpListener {
    let mut told = false;
    loop {
        match bind(address).await {
            Ok(listener) => {
                tracing::info!(%address, "listens here, too");
                return listener;
            }
            Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {}
            Err(error) if !told => {
                told = true;
                tracing::error!(%address, %error, "nobody is heard at this further address");
            }
            Err(_) => {}
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address).await?;
    tcp::prepare(&listener).map(|()| listener)
}

/// Why an address of this machine cannot be listened on, and what to do.
pub(crate) fn failure(address: SocketAddr, error: &io::Error, pid: Option<&Path>) -> Failure {
    if error.kind() == io::ErrorKind::AddrInUse {
        return in_use(address, pid);
    }
    Failure::new(ExitCode::MachineLimits, format!("{address} cannot be listened on: {error}"))
}

/// Why a second head of one folder ends, also if the first one only waits until it leads.
pub(crate) fn second_head(dir: &Path) -> Failure {
    let text = running(&paths::head_pid(dir)).map_or_else(
        || {
            let folder = dir.display();
            format!("another process is the head of {folder}; stop it, or give each head a folder and a number of its own")
        },
        runs_already,
    );
    Failure::new(ExitCode::Exists, text)
}

fn runs_already(process: u32) -> String {
    format!(
        "this daemon runs already, as process {process}: `kumi cluster up` or somebody by hand has started it; for systemd to have it, run `kumi cluster down` first, which ends all jobs"
    )
}

fn in_use(address: SocketAddr, pid: Option<&Path>) -> Failure {
    let text = match pid.and_then(running) {
        Some(process) => runs_already(process),
        None => format!(
            "{address} is in use: another daemon or program listens there; stop it or change the port in cluster.toml"
        ),
    };
    Failure::new(ExitCode::Exists, text)
}

/// The daemon that wrote this file, if it lives. After a loss of power the number may be anybody's.
fn running(pid: &Path) -> Option<u32> {
    let number: u32 = std::fs::read_to_string(pid).ok()?.trim().parse().ok()?;
    let name = std::fs::read_to_string(format!("/proc/{number}/comm")).ok()?;
    (name.trim() == "kumid" && number != std::process::id()).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_daemon_is_taken_for_a_daemon() {
        let folder = tempfile::tempdir().unwrap();
        let pid = folder.path().join("head.pid");
        assert_eq!(running(&pid), None);
        std::fs::write(&pid, "1\n").unwrap();
        assert_eq!(running(&pid), None, "the first process is no daemon of ours");
        let address = "127.0.0.1:1".parse().unwrap();
        assert!(in_use(address, Some(&pid)).to_string().contains("127.0.0.1:1 is in use"));
    }

    /// 192.0.2.0/24 is nobody's.
    #[tokio::test(flavor = "current_thread")]
    async fn an_address_that_is_not_there_is_waited_for() {
        let waiting = listen("192.0.2.1:1".parse().unwrap(), None);
        let long = Duration::from_millis(100);
        assert!(
            tokio::time::timeout(long, waiting).await.is_err(),
            "it neither failed nor listens"
        );
        let missing = await_interface(Some("kumi-no-such"));
        assert!(tokio::time::timeout(long, missing).await.is_err());
        await_interface(None).await;
        await_interface(Some("lo")).await;
        let there = listen("127.0.0.1:0".parse().unwrap(), None).await.unwrap();
        let taken = listen(there.local_addr().unwrap(), None).await.unwrap_err();
        assert_eq!(taken.code, ExitCode::Exists);
    }
}
