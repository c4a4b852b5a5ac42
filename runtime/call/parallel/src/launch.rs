//! Start of a job with `kumi run`, and the wait for its rank 0.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use super::job_listener::{kumi, own_message};
use super::rank_connection::{Key, RankConnection, random};
use super::{Jobs, VARIABLE};
use crate::native::end_with_parent;

/// Most connections at a time that have not proved to be rank 0.
const CANDIDATES: usize = 16;
/// Bytes of a line passed on at once.
const MOST_LINE: u64 = 16 << 10;
/// How often to check for a new connection.
const LOOK: Duration = Duration::from_millis(10);
/// How long a job may take to end by itself.
const LEAVE: Duration = Duration::from_secs(5);

/// State of the command.
#[derive(Debug, Default)]
struct State {
    /// Its exit status.
    ended: Option<ExitStatus>,
    /// Its last message.
    said: String,
    /// The connection to rank 0, shut down when the command has ended.
    stream: Option<TcpStream>,
}

/// A job that is starting or running.
#[derive(Debug)]
pub struct LaunchedJob {
    pid: Pid,
    state: Arc<Mutex<State>>,
}

fn lock(state: &Mutex<State>) -> std::sync::MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LaunchedJob {
    /// Starts a job and waits for its rank 0 on this port.
    ///
    /// # Errors
    /// A message that says what to do.
    pub fn start(
        jobs: &Jobs,
        listener: &TcpListener,
        name: &str,
        ranks: u64,
    ) -> Result<(LaunchedJob, RankConnection), String> {
        let failed = |error: io::Error| error.to_string();
        let address = listener.local_addr().map_err(failed)?;
        let key = random().map_err(failed)?;
        let program = std::env::current_exe().map_err(failed)?;
        let mut command = kumi(jobs);
        // Ranks that ignore signals end too.
        command.args(["run", "--kill", "-n", &ranks.to_string(), "--name", name, "--"]);
        command.arg(program);
        command.env(VARIABLE, format!("{address} {}", blake3::Hash::from_bytes(key)));
        command.stderr(Stdio::piped());
        // If this process and its group are killed, the command still has the time to end the job.
        command.process_group(0);
        end_with_parent(&mut command, Signal::SIGTERM);
        let child = command.spawn().map_err(|error| format!("{}: {error}", jobs.kumi.display()))?;
        let launched = LaunchedJob::attended(child)?;
        let link = launched.wait(listener, &key)?;
        lock(&launched.state).stream = Some(link.stream().map_err(failed)?);
        Ok((launched, link))
    }

    /// Follows the command to its end, in a thread.
    pub(super) fn attended(mut child: Child) -> Result<LaunchedJob, String> {
        let pid = i32::try_from(child.id()).map_err(|error| error.to_string())?;
        let pid = Pid::from_raw(pid);
        let state = Arc::<Mutex<State>>::default();
        let (of, stderr) = (Arc::clone(&state), child.stderr.take());
        std::thread::spawn(move || {
            if let Some(stderr) = stderr {
                pass_on(stderr, &of);
            }
            // The end is waited for first, so that the process number is not reused before the end is known.
            let _ended = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
            let mut state = lock(&of);
            state.ended = Some(child.wait().unwrap_or(ExitStatus::from_raw(1 << 8)));
            if let Some(stream) = &state.stream {
                // It may be shut down already.
                let _shut = stream.shutdown(Shutdown::Both);
            }
        });
        Ok(LaunchedJob { pid, state })
    }

    /// Waits for rank 0, or for the end of the job.
    fn wait(&self, listener: &TcpListener, key: &Key) -> Result<RankConnection, String> {
        let (known, come) = sync_channel(1);
        let mut candidates = VecDeque::new();
        loop {
            // No connection waits, or it is gone already.
            if let Ok((stream, _)) = listener.accept()
                && let Ok(candidate) = PendingConnection::greet(stream, *key, known.clone())
            {
                candidates.retain(PendingConnection::is_there);
                if candidates.len() >= CANDIDATES
                    && let Some(oldest) = candidates.pop_front()
                {
                    oldest.evict();
                }
                candidates.push_back(candidate);
            }
            if let Ok(link) = come.recv_timeout(LOOK) {
                return Ok(link);
            }
            if self.ended() {
                return Err(self.said());
            }
        }
    }

    /// Whether the job is over.
    pub fn ended(&self) -> bool {
        lock(&self.state).ended.is_some()
    }

    fn said(&self) -> String {
        let state = lock(&self.state);
        match &state.ended {
            None => "its rank 0 is gone".to_owned(),
            Some(_) if state.said.is_empty() => "it has ended without a message".to_owned(),
            Some(_) => state.said.clone(),
        }
    }

    /// Why the job ended after its connection closed: the protocol's crash detail, and a message.
    pub fn verdict(&self) -> (i64, String) {
        self.give_time(LEAVE);
        let code = lock(&self.state).ended.and_then(|status| status.code()).unwrap_or(1);
        // `kumi run` reports signals as shells do.
        let detail = if code > 128 { code - 128 } else { -1 - code };
        (i64::from(detail), self.said())
    }

    /// Kills the job unless it has ended.
    pub fn kill(&self) {
        let state = lock(&self.state);
        if state.ended.is_none() {
            // Not reaped yet, so the process number is still valid.
            let _sent = kill(self.pid, Signal::SIGTERM);
        }
    }

    fn give_time(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.ended() && Instant::now() < until {
            std::thread::sleep(LOOK);
        }
    }
}

impl Drop for LaunchedJob {
    /// Ends the job unless it ends by itself in time.
    fn drop(&mut self) {
        if let Some(stream) = &lock(&self.state).stream {
            // Rank 0 may have closed it.
            let _shut = stream.shutdown(Shutdown::Both);
        } else {
            self.kill();
        }
        self.give_time(LEAVE);
        self.kill();
    }
}

/// Passes the output of command and ranks on to standard error, and keeps the command's last message.
fn pass_on(stderr: ChildStderr, state: &Mutex<State>) {
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        // Ranks may write lines of any length.
        match (&mut reader).take(MOST_LINE).read_until(b'\n', &mut line) {
            Ok(1..) => {}
            Ok(0) | Err(_) => return,
        }
        // Standard error may be closed.
        let _written = io::stderr().write_all(&line);
        if let Some(said) = own_message(String::from_utf8_lossy(&line).trim_end()) {
            said.clone_into(&mut lock(state).said);
        }
    }
}

/// A connection that has not proved to be rank 0.
struct PendingConnection {
    stream: TcpStream,
    /// Whether the proof has succeeded or failed.
    done: Arc<AtomicBool>,
}

impl PendingConnection {
    /// Checks in a thread whether a connection is from rank 0. A connection has some seconds, or less if many
    /// come.
    fn greet(
        stream: TcpStream,
        key: Key,
        known: SyncSender<RankConnection>,
    ) -> io::Result<PendingConnection> {
        let done = Arc::new(AtomicBool::new(false));
        let candidate = PendingConnection { stream: stream.try_clone()?, done: Arc::clone(&done) };
        std::thread::spawn(move || {
            let accepted = RankConnection::accept(stream, &key);
            done.store(true, Ordering::SeqCst);
            if let Ok(link) = accepted {
                // A second rank 0 does not belong to this job.
                let _second = known.try_send(link);
            }
        });
        Ok(candidate)
    }

    fn is_there(&self) -> bool {
        !self.done.load(Ordering::SeqCst)
    }

    /// Evicts this connection for a newer one. Rank 0 identifies itself at once, and tries again if it was
    /// evicted.
    fn evict(&self) {
        // It may be closed already.
        let _shut = self.stream.shutdown(Shutdown::Both);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn strangers_who_say_nothing_keep_nobody_away() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        listener.set_nonblocking(true).expect("set");
        let address = listener.local_addr().expect("an address").to_string();
        let key = random().expect("bytes");
        let mut silent: Vec<TcpStream> = Vec::new();
        for _ in 0..3 * CANDIDATES {
            silent.push(TcpStream::connect(&address).expect("a connection"));
        }
        let child = Command::new("sleep").arg("600").stderr(Stdio::piped()).spawn();
        let job = LaunchedJob::attended(child.expect("sleep")).expect("a job");
        let rank = std::thread::spawn(move || {
            RankConnection::connect(&address, &key).expect("it is let in")
        });
        let mut link = job.wait(&listener, &key).expect("rank 0");
        link.send(b"first").expect("sent");
        let (other, first) = rank.join().expect("rank 0");
        assert_eq!(first, b"first");
        assert_eq!(
            link.stream().and_then(|it| it.peer_addr()).ok(),
            other.stream().and_then(|it| it.local_addr()).ok()
        );
        // The first connections were evicted.
        let mut first = &silent[0];
        assert_eq!(first.read(&mut [0]).expect("the end"), 0);
        job.kill();
    }
}
