//! The event loop: the daemon, ranks that speak PMI, and the library with ranks that speak PMIx.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use kumi_pmi::frame::{self, FrameBuffer, FrameError};
use kumi_pmi::message::{Exchange, FromServer, ServedJob, ToServer};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::pmix::{self, Env, Event, ModexReply};
use crate::{ffi, library};

/// Why the server ended.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("the daemon's socket failed: {0}")]
    Socket(#[from] io::Error),
    #[error("the daemon's messages: {0}")]
    Frame(#[from] FrameError),
    #[error("the daemon sent something else before the job")]
    NoJob,
}

/// Longest piece read at once, in bytes.
const PIECE: usize = 64 << 10;
/// The group of all ranks by PMIx.
const ALL_BY_PMIX: u64 = 1;

/// Serves until the daemon closes its end.
///
/// # Errors
/// The daemon cannot be understood any more.
pub fn run(control: OwnedFd) -> Result<(), ServerError> {
    let mut daemon = Daemon { stream: UnixStream::from(control), buffer: FrameBuffer::default() };
    let job = loop {
        if !daemon.read()? {
            return Ok(());
        }
        match daemon.buffer.take()? {
            Some(ToServer::Job(job)) => break job,
            Some(_) => return Err(ServerError::NoJob),
            None => {}
        }
    };
    let Started { pmix, env, without_pmix } = match start(&job) {
        Ok(started) => started,
        Err(failure) => return daemon.send(&FromServer::Failed(failure)),
    };
    daemon.send(&FromServer::Ready { env, without_pmix })?;
    Server { daemon, job, pmix, counts: HashMap::new(), fences: HashMap::new() }.run()
}

/// What a server begins with.
#[derive(Default)]
struct Started {
    pmix: Option<pmix::Server>,
    /// By local rank.
    env: Vec<Env>,
    without_pmix: Option<String>,
}

fn start(job: &ServedJob) -> Result<Started, String> {
    if !job.pmix {
        return Ok(Started::default());
    }
    match library::load() {
        Ok(library) => {
            let (server, env) = pmix::Server::start(library, job)?;
            Ok(Started { pmix: Some(server), env, without_pmix: None })
        }
        Err(reason) => Ok(Started { without_pmix: Some(reason), ..Started::default() }),
    }
}

/// The daemon's end.
struct Daemon {
    stream: UnixStream,
    buffer: FrameBuffer,
}

impl Daemon {
    /// Reads what there is; false at the end.
    fn read(&mut self) -> io::Result<bool> {
        let mut piece = [0; PIECE];
        let count = self.stream.read(&mut piece)?;
        self.buffer.extend(&piece[..count]);
        Ok(count > 0)
    }

    fn send(&mut self, message: &FromServer) -> Result<(), ServerError> {
        Ok(self.stream.write_all(&frame::encode(message)?)?)
    }
}

struct Server {
    daemon: Daemon,
    job: ServedJob,
    pmix: Option<pmix::Server>,
    /// Exchanges of each group so far.
    counts: HashMap<u64, u32>,
    fences: HashMap<Exchange, ModexReply>,
}

impl Server {
    fn run(mut self) -> Result<(), ServerError> {
        loop {
            if self.wait()? {
                if !self.daemon.read()? {
                    return Ok(());
                }
                while let Some(message) = self.daemon.buffer.take()? {
                    self.from_daemon(message)?;
                }
            }
            self.from_pmix()?;
        }
    }

    /// Waits until somebody wants something. Returns whether the daemon does.
    fn wait(&self) -> io::Result<bool> {
        let mut fds = vec![PollFd::new(self.daemon.stream.as_fd(), PollFlags::POLLIN)];
        fds.extend(pmix::wake().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(fds[0].any().unwrap_or(false))
    }

    fn from_daemon(&mut self, message: ToServer) -> Result<(), ServerError> {
        match message {
            ToServer::Job(_) => Err(ServerError::NoJob),
            ToServer::Exchanged { exchange, data } => {
                if let Some(reply) = self.fences.remove(&exchange) {
                    reply.answer(Ok(data.concat()));
                }
                Ok(())
            }
            ToServer::Relayed { .. } => Ok(()),
            ToServer::Ended { rank } => {
                self.from_pmix()?;
                self.daemon.send(&FromServer::Ended { rank })
            }
        }
    }

    fn from_pmix(&mut self) -> Result<(), ServerError> {
        for event in pmix::events() {
            self.pmix_event(event)?;
        }
        Ok(())
    }

    fn pmix_event(&mut self, event: Event) -> Result<(), ServerError> {
        match event {
            Event::Connected(rank, reply) => {
                self.daemon.send(&FromServer::Joined { rank })?;
                reply.answer(ffi::SUCCESS);
            }
            Event::Finalized(rank, reply) => {
                // Before the rank goes on, so that the daemon has heard of it when the rank ends.
                self.daemon.send(&FromServer::Finalized { rank })?;
                reply.answer(ffi::SUCCESS);
            }
            Event::Aborted { rank, code, message, reply } => {
                self.daemon.send(&FromServer::Aborted { rank, code, message })?;
                reply.answer(ffi::SUCCESS);
            }
            Event::Fence { ranks, data, reply } => self.fence(&ranks, data, reply)?,
            Event::Modex { reply, .. } => reply.answer(Err(ffi::ERR_NOT_FOUND)),
            Event::Data { .. } => {}
            Event::SpawnRefused(rank) => {
                let text = "MPI_Comm_spawn is refused: a job keeps the ranks that it began with; start all of them with `kumi run -n`".to_owned();
                self.daemon.send(&FromServer::Note { rank, text })?;
            }
        }
        Ok(())
    }

    fn fence(
        &mut self,
        ranks: &[u32],
        data: Vec<u8>,
        reply: ModexReply,
    ) -> Result<(), ServerError> {
        let mut places: Vec<u32> = match ranks {
            [] => (0..).take(self.job.nodes.len()).collect(),
            some => some.iter().filter_map(|&rank| self.job.place_of(rank)).collect(),
        };
        places.sort_unstable();
        places.dedup();
        let group = group_of(ranks);
        let number = self.counts.entry(group).or_insert(0);
        let exchange = Exchange { group, number: *number };
        *number += 1;
        self.fences.insert(exchange, reply);
        self.daemon.send(&FromServer::Exchange { exchange, places, data })
    }
}

/// The name of a group of ranks, the same on all nodes: FNV-1a of their numbers, ascending.
fn group_of(ranks: &[u32]) -> u64 {
    let mut ranks = ranks.to_vec();
    ranks.sort_unstable();
    ranks.dedup();
    if ranks.is_empty() {
        return ALL_BY_PMIX;
    }
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let bytes = ranks.iter().flat_map(|rank| rank.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, mix).max(ALL_BY_PMIX + 1)
}
