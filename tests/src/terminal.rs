//! A terminal that a test plays: it types, reads the screen, changes the window's size, and may go away.

use crate::command::{PATIENCE, wait_for};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::pty::OpenptFlags;
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

/// A command in a terminal of its own, of which it is the session's leader.
pub struct TestTerminal {
    child: Child,
    master: Arc<File>,
    /// Keeps the settings, for looks at them.
    slave: OwnedFd,
    screen: Arc<Mutex<Vec<u8>>>,
    /// Up to here the test has seen it.
    seen: usize,
    reads: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

impl TestTerminal {
    /// Starts a command in a window of 30 lines of 100 characters.
    ///
    /// # Panics
    /// When that fails.
    #[track_caller]
    pub fn start(command: &Command) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = rustix::pty::openpt(flags).expect("a terminal");
        rustix::pty::unlockpt(&master).expect("a terminal");
        let slave = rustix::pty::ioctl_tiocgptpeer(&master, flags).expect("its slave");
        tcsetwinsize(&slave, size(30, 100)).expect("its size");
        let mut wrapper = Command::new("setsid");
        wrapper.arg("--ctty").arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => wrapper.env(name, value),
                None => wrapper.env_remove(name),
            };
        }
        let end = || Stdio::from(slave.try_clone().expect("a descriptor"));
        wrapper.stdin(end()).stdout(end()).stderr(end()).env("TERM", "dumb");
        let child = wrapper.spawn().expect("setsid is installed");
        let mut terminal = Self {
            child,
            master: Arc::new(File::from(master)),
            slave,
            screen: Arc::default(),
            seen: 0,
            reads: Arc::new(AtomicBool::new(true)),
            over: Arc::default(),
            reader: None,
        };
        terminal.reader = Some(terminal.read());
        terminal
    }

    fn read(&self) -> JoinHandle<()> {
        let (master, screen) = (Arc::clone(&self.master), Arc::clone(&self.screen));
        let (reads, over) = (Arc::clone(&self.reads), Arc::clone(&self.over));
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while !over.load(Ordering::Relaxed) {
                let mut ready = [PollFd::new(master.as_fd(), PollFlags::POLLIN)];
                let soon = PollTimeout::from(10u8);
                if !reads.load(Ordering::Relaxed) || poll(&mut ready, soon).is_ok_and(|n| n == 0) {
                    std::thread::sleep(std::time::Duration::from_millis(1));
                    continue;
                }
                let Ok(count) = (&*master).read(&mut buffer) else { continue };
                let mut screen = screen.lock().unwrap_or_else(PoisonError::into_inner);
                screen.extend_from_slice(&buffer[..count]);
            }
        })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Types this; `\r` is the return key.
    ///
    /// # Panics
    /// When the terminal refuses.
    #[track_caller]
    pub fn type_keys(&self, keys: &str) {
        (&*self.master).write_all(keys.as_bytes()).expect("a terminal takes keys");
    }

    /// All that was shown so far.
    pub fn screen(&self) -> String {
        let screen = self.screen.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&screen).into_owned()
    }

    /// Waits until this is shown behind what was waited for before.
    ///
    /// # Panics
    /// When it is not within [`PATIENCE`].
    #[track_caller]
    pub fn wait_text(&mut self, text: &str) {
        let begin = Instant::now();
        loop {
            let screen = self.screen();
            if let Some(at) = screen.get(self.seen..).and_then(|rest| rest.find(text)) {
                self.seen += at + text.len();
                return;
            }
            assert!(begin.elapsed() < PATIENCE, "no {text:?} behind {} of {screen:?}", self.seen);
            std::thread::sleep(std::time::Duration::from_millis(2));
        }
    }

    /// Gives the window another size.
    ///
    /// # Panics
    /// When the terminal refuses.
    #[track_caller]
    pub fn resize(&self, rows: u16, columns: u16) {
        tcsetwinsize(&*self.master, size(rows, columns)).expect("a terminal has a size");
    }

    /// Whether keys are shown and edited by the terminal itself, as before and after a command that makes it raw.
    ///
    /// # Panics
    /// When the terminal refuses.
    pub fn is_cooked(&self) -> bool {
        let settings: Termios = tcgetattr(&self.slave).expect("a terminal has settings");
        let modes = settings.local_modes;
        use rustix::termios::{LocalModes, OutputModes};
        modes.contains(LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG)
            && settings.output_modes.contains(OutputModes::OPOST)
    }

    /// From now on nobody reads, or somebody does again.
    pub fn set_reading(&self, reads: bool) {
        self.reads.store(reads, Ordering::Relaxed);
    }

    /// The terminal goes away. Returns how the command ended.
    #[track_caller]
    pub fn hang_up(mut self) -> ExitStatus {
        self.stop();
        let Self { ref mut child, .. } = self;
        let child = std::mem::replace(child, Command::new("true").spawn().expect("true"));
        // The slave and the master go with the rest.
        drop(self);
        wait(child)
    }

    /// Waits for the end of the command.
    #[track_caller]
    pub fn finish(&mut self) -> ExitStatus {
        wait_for("end of the command in the terminal", || self.child.try_wait().expect("our child"))
    }

    fn stop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(reader) = self.reader.take() {
            // A reader that panicked has been told of.
            let _told = reader.join();
        }
    }
}

#[track_caller]
fn wait(mut child: Child) -> ExitStatus {
    wait_for("end of a command whose terminal has gone", || child.try_wait().expect("our child"))
}

impl Drop for TestTerminal {
    fn drop(&mut self) {
        self.stop();
        if matches!(self.child.try_wait(), Ok(None)) {
            let _already_gone = self.child.kill();
        }
        let _already_gone = self.child.wait();
    }
}
