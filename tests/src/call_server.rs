//! Servers of routines and metaservers, as `kumi call` starts them.

use crate::command::wait_for;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a server has to end in order.
const ENDING: Duration = Duration::from_secs(20);

/// A folder with descriptions in `routines.idl` and their C code in `libroutines.so`.
///
/// # Panics
/// When that does not compile.
pub fn routines(descriptions: &str, source: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("routines.idl"), descriptions).expect("descriptions");
    fs::write(folder.path().join("routines.c"), source).expect("routines");
    let compiled = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".to_owned()))
        .current_dir(folder.path())
        .args(["-O1", "-fPIC", "-shared", "-o", "libroutines.so", "routines.c"])
        .status();
    assert!(compiled.expect("a C compiler").success());
    folder
}

/// A server of routines or a metaserver, which does not outlive a test that fails, and its log.
#[derive(Debug)]
pub struct CallServer {
    /// Its process.
    pub child: Child,
    /// Where it listens.
    pub address: String,
    log: PathBuf,
}

impl CallServer {
    /// Starts one that listens at 127.0.0.1, with its log in a file of this folder.
    ///
    /// # Panics
    /// When it does not say where it listens.
    #[track_caller]
    pub fn start(mut command: Command, folder: &Path) -> CallServer {
        let log = folder.join(format!("log-{}", fs::read_dir(folder).expect("it").count()));
        command.stderr(File::create(&log).expect("a log")).stdin(Stdio::null());
        let child = command.spawn().expect("a server");
        let mut server = CallServer { child, address: String::new(), log };
        server.address = wait_for("address of a server", || {
            let log = server.log();
            let words = log.split_inclusive([' ', '\n']);
            let mut whole = words.filter(|word| word.ends_with(char::is_whitespace));
            whole.find(|word| word.starts_with("127.0.0.1:")).map(|word| word.trim().to_owned())
        });
        server
    }

    /// Its log.
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).expect("the log")
    }

    /// Its log, as soon as it is so and its last line is whole.
    ///
    /// # Panics
    /// When it is not so in time.
    #[track_caller]
    pub fn wait_for(&self, what: &str, is: impl Fn(&str) -> bool) -> String {
        wait_for(what, || Some(self.log()).filter(|log| log.ends_with('\n') && is(log)))
    }

    /// Asks it to end.
    pub fn terminate(&mut self) {
        // One that has ended has no number any more.
        if let (Ok(None), Ok(pid)) = (self.child.try_wait(), i32::try_from(self.child.id())) {
            let _ended = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
    }
}

impl Drop for CallServer {
    fn drop(&mut self) {
        // In order, so that it removes its control groups.
        self.terminate();
        let end = Instant::now() + ENDING;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ended = self.child.kill();
        let _waited = self.child.wait();
    }
}
