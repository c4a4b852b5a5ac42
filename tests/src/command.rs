//! Runner of commands with a time limit, so that a command that hangs fails instead.

use std::io::{ErrorKind, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A limit that only what hangs exceeds, on however slow a machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// How a command ended and what it printed.
#[derive(Debug)]
pub struct FinishedCommand {
    /// How.
    pub status: ExitStatus,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
    /// From its start to its end.
    pub took: Duration,
}

impl FinishedCommand {
    /// The exit code, −1 if a signal ended it.
    pub fn code(&self) -> i32 {
        self.status.code().unwrap_or(-1)
    }

    /// Itself, if it ended with 0.
    ///
    /// # Panics
    /// Otherwise, with all it printed.
    #[track_caller]
    pub fn ok(self) -> Self {
        assert!(self.status.success(), "failed: {self:#?}");
        self
    }

    /// Itself, if it ended with `code` and its standard error contains all of `words`.
    ///
    /// # Panics
    /// Otherwise, with all it printed.
    #[track_caller]
    pub fn fails(self, code: i32, words: &[&str]) -> Self {
        assert_eq!(self.code(), code, "wrong exit code: {self:#?}");
        for word in words {
            assert!(self.err.contains(word), "no '{word}' on standard error: {self:#?}");
        }
        self
    }
}

/// A command that runs, its output being collected.
#[derive(Debug)]
pub struct RunningCommand {
    child: Child,
    out: Option<OutputCollector>,
    err: Option<OutputCollector>,
    begin: Instant,
}

impl RunningCommand {
    /// Starts it with standard input open.
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    pub fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let begin = Instant::now();
        let mut child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let out = child.stdout.take().map(collect);
        let err = child.stderr.take().map(collect);
        Self { child, out, err, begin }
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Writes to its standard input.
    ///
    /// # Panics
    /// When the input is closed.
    pub fn write(&mut self, text: &str) {
        let input = self.child.stdin.as_mut().expect("standard input is open");
        input.write_all(text.as_bytes()).expect("the command reads its input");
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().expect("our child").is_none()
    }

    /// The first line on its standard error, which [`RunningCommand::finish`] gives again.
    ///
    /// # Panics
    /// When there is none within [`PATIENCE`].
    #[track_caller]
    pub fn error_line(&self) -> String {
        wait_for("line on standard error", || {
            let text = self.err.as_ref()?.so_far();
            text.split_once('\n').map(|(line, _)| line.to_owned())
        })
    }

    /// The first line on its standard output, which [`RunningCommand::finish`] gives again.
    ///
    /// # Panics
    /// When there is none within [`PATIENCE`].
    #[track_caller]
    pub fn output_line(&self) -> String {
        wait_for("line on standard output", || {
            let text = self.out.as_ref()?.so_far();
            text.split_once('\n').map(|(line, _)| line.to_owned())
        })
    }

    /// Closes its standard input and waits for its end.
    ///
    /// # Panics
    /// When that takes longer than [`PATIENCE`]; it is killed then.
    #[track_caller]
    pub fn finish(mut self) -> FinishedCommand {
        drop(self.child.stdin.take());
        // From now on: the test may have done much since the start.
        let waits = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("our child") {
                break Some(status);
            }
            if waits.elapsed() > PATIENCE {
                break None;
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        let took = self.begin.elapsed();
        if status.is_none() {
            self.child.kill().expect("our child");
        }
        let text =
            |pipe: Option<OutputCollector>| pipe.map(OutputCollector::all).unwrap_or_default();
        let (out, err) = (text(self.out.take()), text(self.err.take()));
        let Some(status) = status else {
            panic!("still running after {took:?}\nstdout: {out}\nstderr: {err}")
        };
        FinishedCommand { status, out, err, took }
    }
}

impl Drop for RunningCommand {
    /// A test that fails leaves no command behind.
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _already_gone = self.child.kill();
            let _already_gone = self.child.wait();
        }
    }
}

/// What comes from a pipe.
#[derive(Debug)]
struct OutputCollector {
    bytes: Arc<Mutex<Vec<u8>>>,
    thread: JoinHandle<()>,
}

impl OutputCollector {
    fn so_far(&self) -> String {
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn all(self) -> String {
        let OutputCollector { bytes, thread } = self;
        thread.join().expect("the reader ends");
        let bytes = bytes.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

fn collect(mut pipe: impl Read + Send + 'static) -> OutputCollector {
    let bytes = Arc::<Mutex<Vec<u8>>>::default();
    let all = Arc::clone(&bytes);
    let thread = std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        loop {
            let count = match pipe.read(&mut buffer) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                // A broken pipe ends the output as its end does.
                Ok(0) | Err(_) => return,
                Ok(count) => count,
            };
            all.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&buffer[..count]);
        }
    });
    OutputCollector { bytes, thread }
}

/// Runs `command` to its end, with nothing on standard input.
///
/// # Panics
/// As [`RunningCommand::start`] and [`RunningCommand::finish`].
#[track_caller]
pub fn run(command: Command) -> FinishedCommand {
    RunningCommand::start(command).finish()
}

/// Waits until `condition` gives something.
///
/// # Panics
/// When it does not within [`PATIENCE`].
#[track_caller]
pub fn wait_for<T>(what: &str, condition: impl FnMut() -> Option<T>) -> T {
    wait_at_most(PATIENCE, what, condition)
}

/// Waits until `condition` gives something, at most `limit`.
///
/// # Panics
/// When it does not.
#[track_caller]
pub fn wait_at_most<T>(limit: Duration, what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(begin.elapsed() < limit, "no {what} after {limit:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
