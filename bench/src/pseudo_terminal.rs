//! A terminal that a benchmark types into.

use crate::error::BenchError;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A limit that only what hangs exceeds.
const PATIENCE: Duration = Duration::from_secs(60);

/// A command in a terminal of its own; killed when dropped.
pub struct PseudoTerminal {
    child: Child,
    master: File,
    what: String,
}

impl PseudoTerminal {
    /// Starts a command.
    ///
    /// # Errors
    /// When there is no terminal, or the command cannot be started.
    pub fn start(command: &Command) -> Result<Self, BenchError> {
        let what = format!("{command:?}");
        let failed = |source: std::io::Error| BenchError::Start { what: what.clone(), source };
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = rustix::pty::openpt(flags).map_err(|error| failed(error.into()))?;
        rustix::pty::unlockpt(&master).map_err(|error| failed(error.into()))?;
        let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags);
        let slave = slave.map_err(|error| failed(error.into()))?;
        let size = Winsize { ws_row: 24, ws_col: 200, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&slave, size).map_err(|error| failed(error.into()))?;
        let mut wrapper = Command::new("setsid");
        wrapper.arg("--ctty").arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            wrapper.env(name, value.unwrap_or_default());
        }
        let end = || slave.try_clone().map(Stdio::from).map_err(failed);
        wrapper.stdin(end()?).stdout(end()?).stderr(end()?).env("TERM", "dumb");
        let child = wrapper.spawn().map_err(failed)?;
        Ok(Self { child, master: File::from(master), what })
    }

    /// Types this.
    ///
    /// # Errors
    /// When the terminal refuses.
    pub fn type_keys(&mut self, keys: &str) -> Result<(), BenchError> {
        let failed = |source| BenchError::Start { what: self.what.clone(), source };
        self.master.write_all(keys.as_bytes()).map_err(failed)
    }

    /// Reads until this was shown.
    ///
    /// # Errors
    /// When it is not shown.
    pub fn wait_text(&mut self, text: &str) -> Result<(), BenchError> {
        let mut shown = Vec::new();
        let end = Instant::now() + PATIENCE;
        let mut buffer = [0; 4096];
        while !String::from_utf8_lossy(&shown).contains(text) {
            let mut ready = [PollFd::new(self.master.as_fd(), PollFlags::POLLIN)];
            let left = end.saturating_duration_since(Instant::now());
            let left = PollTimeout::try_from(left.as_millis()).unwrap_or(PollTimeout::MAX);
            let there = poll(&mut ready, left).is_ok_and(|count| count > 0);
            match if there { self.master.read(&mut buffer).ok() } else { None } {
                Some(count) if count > 0 => shown.extend_from_slice(&buffer[..count]),
                _ => {
                    return Err(BenchError::Output {
                        wanted: format!("{text:?}"),
                        what: self.what.clone(),
                        output: String::from_utf8_lossy(&shown).into_owned(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Milliseconds until a key is shown.
    ///
    /// # Errors
    /// When it is not shown.
    pub fn echo(&mut self, key: &str) -> Result<f64, BenchError> {
        let begin = Instant::now();
        self.type_keys(key)?;
        self.wait_text(key)?;
        Ok(begin.elapsed().as_secs_f64() * 1e3)
    }
}

impl Drop for PseudoTerminal {
    fn drop(&mut self) {
        // Gone already is as good.
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}
