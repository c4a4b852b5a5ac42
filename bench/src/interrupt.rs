//! Signals (Ctrl-C, SIGTERM and SIGHUP): running clusters are taken down before the program ends.

use crate::cluster;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A cluster that runs or is starting.
struct RunningCluster {
    kumi: PathBuf,
    name: OsString,
    directory: PathBuf,
}

static RUNNING: Mutex<Vec<RunningCluster>> = Mutex::new(Vec::new());

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
