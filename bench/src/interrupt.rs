//! Signals (Ctrl-C, SIGTERM and SIGHUP): running clusters and servers are ended before the program ends.

use crate::cluster;
use rustix::process::{Pid, Signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A cluster that runs or is starting.
struct RunningCluster {
    kumi: PathBuf,
    name: OsString,
    directory: PathBuf,
}

static RUNNING: Mutex<Vec<RunningCluster>> = Mutex::new(Vec::new());

/// Servers that run. Each leaves the list before it is waited for, so that its number is still its own.
static SERVERS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

fn servers() -> MutexGuard<'static, Vec<Pid>> {
    // A list of numbers stays valid after a panic.
    SERVERS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn up() -> MutexGuard<'static, Vec<RunningCluster>> {
    // A list of names stays valid after a panic.
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Installs handlers: these signals take down running clusters, and end the program with 128 plus their
/// number.
///
/// # Errors
/// The kernel refuses the handlers.
pub fn catch() -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    std::thread::spawn(move || {
        if let Some(signal) = signals.forever().next() {
            // Held until the end, so that no cluster starts any more.
            let mut all = up();
            all.drain(..).for_each(|one| one.down());
            let servers = servers();
            for server in servers.iter() {
                // It may have ended by itself.
                let _ended = rustix::process::kill_process(*server, Signal::KILL);
            }
            std::process::exit(128 + signal);
        }
    });
    Ok(())
}

/// Registers a cluster that is about to start.
pub(crate) fn add(kumi: &Path, name: &str, directory: &Path) {
    let (kumi, directory) = (kumi.to_owned(), directory.to_owned());
    up().push(RunningCluster { kumi, name: name.into(), directory });
}

/// Starts a server, which a signal ends. Once a signal has come, none starts any more.
///
/// # Errors
/// The system's.
pub(crate) fn start_server(command: &mut Command) -> std::io::Result<Child> {
    let mut servers = servers();
    let server = command.spawn()?;
    servers.push(Pid::from_child(&server));
    Ok(server)
}

/// Ends a server, and waits until it has ended.
pub(crate) fn end_server(server: &mut Child) {
    let own = Pid::from_child(server);
    servers().retain(|other| *other != own);
    // It may have ended by itself.
    let _ended = server.kill();
    let _status = server.wait();
}

/// Takes a cluster down, unless a signal has done that.
pub(crate) fn take_down(directory: &Path) {
    let mut all = up();
    if let Some(at) = all.iter().position(|one| one.directory == directory) {
        all.swap_remove(at).down();
    }
}

impl RunningCluster {
    fn down(self) {
        let mut command = Command::new(&self.kumi);
        command.args(["cluster", "destroy", "--yes"]);
        command.env("KUMI_DIR", &self.directory).env("KUMI_CLUSTER", &self.name);
        if let Err(error) = cluster::output(&mut command) {
            eprintln!("kumi-bench: {error}");
        }
        // A cluster that never started may have left nothing.
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
