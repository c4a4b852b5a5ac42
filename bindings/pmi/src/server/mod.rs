//! The event loop: the daemon, ranks that speak PMI, and the library with ranks that speak PMIx.

mod daemon;
mod peers;
mod pmi_ranks;

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Instant;

use kumi_pmi::frame::FrameError;
use kumi_pmi::message::{Exchange, FromServer, ServedJob, ServerReport, ToServer};
use kumi_pmi::peer::Question;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::pmix::{self, Env, Event, ModexReply};
use crate::{ffi, library};
use daemon::Daemon;
use peers::{Asker, Peers};
use pmi_ranks::PmiRanks;

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

/// The group of all ranks by PMI, and that by PMIx.
const ALL_BY_PMI: u64 = 0;
const ALL_BY_PMIX: u64 = 1;

/// What a rank hears that wants more ranks.
const NO_SPAWN: &str = "MPI_Comm_spawn is refused: a job keeps the ranks that it began with; start all of them with `kumi run -n`";

/// Serves until no daemon can come through the door any more.
///
/// # Errors
/// The daemon cannot be understood any more.
pub fn run(door: OwnedFd) -> Result<(), ServerError> {
    let mut daemon = Daemon::new(door);
    let Some(job) = first_message(&mut daemon)? else { return Ok(()) };
    let Started { pmix, env, without_pmix } = match start(&job) {
        Ok(started) => started,
        Err(failure) => return daemon.send(&FromServer::Failed(failure)),
    };
    daemon.send(&FromServer::Ready { env, without_pmix: without_pmix.clone() })?;
    let server = Server {
        ranks: PmiRanks::new(&job),
        peers: Peers::new(job.place),
        began: Instant::now(),
        daemon,
        job,
        pmix,
        without_pmix,
        counts: HashMap::new(),
        fences: HashMap::new(),
    };
    server.run()
}

/// The job, from the daemon that started this server; none if that ends before it has said so. A later one ends a job that was
/// not started.
fn first_message(daemon: &mut Daemon) -> Result<Option<ServedJob>, ServerError> {
    if !daemon.let_in()? {
        return Ok(None);
    }
    while daemon.stream().is_some() {
        daemon.read()?;
        match daemon.take()? {
            Some(ToServer::Job(job)) => {
                daemon.greet();
                return Ok(Some(job));
            }
            Some(_) => return Err(ServerError::NoJob),
            None => {}
        }
    }
    Ok(None)
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

struct Server {
    daemon: Daemon,
    job: ServedJob,
    ranks: PmiRanks,
    peers: Peers,
    pmix: Option<pmix::Server>,
    /// Why there is none, if ranks want it.
    without_pmix: Option<String>,
    began: Instant,
    /// Exchanges by PMIx of each group so far.
    counts: HashMap<u64, u32>,
    fences: HashMap<Exchange, ModexReply>,
}

impl Server {
    fn run(mut self) -> Result<(), ServerError> {
        loop {
            let Waiting { door, daemon, ranks } = self.wait()?;
            if daemon {
                self.daemon.read()?;
                while let Some(message) = self.daemon.take()? {
                    self.daemon_says(message)?;
                }
            }
            if door && !self.daemon.let_in()? {
                return Ok(());
            }
            for local in ranks {
                self.rank_says(local)?;
            }
            if !self.daemon.is_behind() {
                self.serve_pmix()?;
            }
            for (to, message) in self.peers.due(self.now_ms()) {
                self.daemon.relay(to, &message)?;
            }
        }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Waits until somebody wants something. Ranks wait while a daemon has much to hear.
    fn wait(&self) -> io::Result<Waiting> {
        let readable = |fd| PollFd::new(fd, PollFlags::POLLIN);
        let stream = self.daemon.stream();
        let mut fds = vec![readable(self.daemon.door())];
        fds.extend(stream.map(readable));
        let first_rank = fds.len();
        let open: Vec<_> = match self.daemon.is_behind() {
            true => Vec::new(),
            false => self.ranks.open().collect(),
        };
        fds.extend(open.iter().map(|&(_, fd)| readable(fd)));
        fds.extend(pmix::wake().filter(|_| !self.daemon.is_behind()).map(readable));
        let timeout = self.peers.next_ms().map_or(PollTimeout::NONE, |at| {
            let wait = at.saturating_sub(self.now_ms()).saturating_add(1);
            PollTimeout::try_from(wait.min(60_000)).unwrap_or(PollTimeout::MAX)
        });
        match poll(&mut fds, timeout) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_ready = |fd: &PollFd<'_>| fd.any().unwrap_or(false);
        let ranks = open.iter().zip(&fds[first_rank..]).filter(|(_, fd)| is_ready(fd));
        Ok(Waiting {
            door: is_ready(&fds[0]),
            daemon: stream.is_some() && is_ready(&fds[1]),
            ranks: ranks.map(|(&(local, _), _)| local).collect(),
        })
    }

    fn daemon_says(&mut self, message: ToServer) -> Result<(), ServerError> {
        match message {
            ToServer::Job(_) => Err(ServerError::NoJob),
            ToServer::Resume { heard } => self.daemon.resume(heard, self.without_pmix.clone()),
            ToServer::Heard { number } => {
                self.daemon.heard(number);
                Ok(())
            }
            ToServer::Exchanged { exchange, .. } if !self.daemon.exchanged(exchange) => Ok(()),
            ToServer::Exchanged { exchange, data } if exchange.group == ALL_BY_PMI => {
                self.ranks.exchanged(&data);
                self.serve_ranks()
            }
            ToServer::Exchanged { exchange, data } => {
                if let Some(reply) = self.fences.remove(&exchange) {
                    reply.answer(Ok(data.concat()));
                }
                Ok(())
            }
            ToServer::Relayed { from, data } => self.relayed(from, &data),
            ToServer::Ended { rank } => {
                self.serve_pmix()?;
                if let Some(local) = self.local(rank) {
                    self.hear_out(local)?;
                }
                self.daemon.send(&FromServer::Ended { rank })
            }
        }
    }

    fn local(&self, rank: u32) -> Option<usize> {
        let local = rank.checked_sub(self.job.own()?.first)?;
        usize::try_from(local).ok()
    }

    /// The number of a local rank among all.
    fn rank(&self, local: usize) -> u32 {
        let first = self.job.own().map_or(0, |own| own.first);
        first.saturating_add(u32::try_from(local).unwrap_or(u32::MAX))
    }

    fn serve_pmix(&mut self) -> Result<(), ServerError> {
        for event in pmix::events() {
            self.pmix_event(event)?;
        }
        Ok(())
    }

    fn pmix_event(&mut self, event: Event) -> Result<(), ServerError> {
        match event {
            Event::Connected(rank, reply) => {
                self.daemon.tell(ServerReport::Joined { rank })?;
                reply.answer(ffi::SUCCESS);
            }
            Event::Finalized(rank, reply) => {
                // Before the rank goes on, so that the daemon hears of it before the rank's end.
                self.daemon.tell(ServerReport::Finalized { rank })?;
                reply.answer(ffi::SUCCESS);
            }
            Event::Aborted { rank, code, message, reply } => {
                self.daemon.tell(ServerReport::Aborted { rank, code, message })?;
                reply.answer(ffi::SUCCESS);
            }
            Event::Fence { ranks, data, reply } => self.fence(&ranks, data, reply)?,
            Event::Modex { rank, reply } => match self.job.place_of(rank) {
                Some(to) => self.ask(to, Question::Told { rank }, Asker::Modex(reply))?,
                None => reply.answer(Err(ffi::ERR_NOT_FOUND)),
            },
            Event::Data { request, data } => self.told(request, data)?,
            Event::Publish { rank: owner, name, value, reply } => {
                self.ask(0, Question::Publish { owner, name, value }, Asker::Op(reply))?;
            }
            Event::Lookup { name, reply } => {
                self.ask(0, Question::Lookup { name: name.clone() }, Asker::Lookup(name, reply))?;
            }
            Event::Unpublish { rank: owner, name, reply } => {
                self.ask(0, Question::Unpublish { owner, name }, Asker::Op(reply))?;
            }
            Event::SpawnRefused(rank) => self.refuse_spawn(rank)?,
        }
        Ok(())
    }

    fn refuse_spawn(&mut self, rank: u32) -> Result<(), ServerError> {
        self.daemon.tell(ServerReport::Note { rank, text: NO_SPAWN.to_owned() })
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
        self.daemon.contribute(exchange, places, data)
    }
}

/// Who wants something.
struct Waiting {
    door: bool,
    daemon: bool,
    ranks: Vec<usize>,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_names_that_their_order_does_not_change() {
        assert_eq!(group_of(&[]), ALL_BY_PMIX);
        assert_eq!(group_of(&[3, 1, 3]), group_of(&[1, 3]));
        assert_ne!(group_of(&[1, 3]), group_of(&[1, 2]));
        assert!(group_of(&[0]) > ALL_BY_PMIX);
    }
}
