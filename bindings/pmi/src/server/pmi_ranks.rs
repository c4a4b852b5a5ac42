//! Sockets of the ranks that speak PMI.

use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;

use kumi_pmi::message::{Exchange, ServedJob, ServerReport};
use kumi_pmi::peer::Question;
use kumi_pmi::pmi::{Action, Ranks};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::peers::Asker;
use super::{ALL_BY_PMI, Server, ServerError};

/// Longest piece read at once, in bytes.
const PIECE: usize = 16 << 10;

/// The ranks and their sockets.
pub(super) struct PmiRanks {
    ranks: Ranks,
    /// By local rank; none once it is closed.
    sockets: Vec<Option<UnixStream>>,
}

impl PmiRanks {
    pub(super) fn new(job: &ServedJob) -> Self {
        // SAFETY: the daemon let this process inherit these descriptors for this purpose, each is named once, and nothing else
        // here uses them.
        let socket = |&fd: &i32| unsafe { OwnedFd::from_raw_fd(fd) };
        let sockets = job.pmi.iter().map(|fd| Some(UnixStream::from(socket(fd)))).collect();
        Self { ranks: Ranks::new(job), sockets }
    }

    /// Local ranks that may say something.
    pub(super) fn open(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>)> {
        let sockets = self.sockets.iter().enumerate();
        sockets.filter_map(|(local, socket)| Some((local, socket.as_ref()?.as_fd())))
    }

    pub(super) fn exchanged(&mut self, parts: &[Vec<u8>]) {
        self.ranks.exchanged(parts);
    }

    pub(super) fn published(&mut self, local: usize, done: Result<(), String>) {
        self.ranks.published(local, done);
    }

    pub(super) fn unpublished(&mut self, local: usize, done: Result<(), String>) {
        self.ranks.unpublished(local, done);
    }

    pub(super) fn looked_up(&mut self, local: usize, value: Option<String>) {
        self.ranks.looked_up(local, value);
    }

    /// Reads what a rank has written; false once there is nothing.
    fn read(&mut self, local: usize) -> bool {
        let Some(socket) = self.sockets.get_mut(local).and_then(Option::as_mut) else {
            return false;
        };
        let mut ready = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
        if !matches!(poll(&mut ready, PollTimeout::ZERO), Ok(count) if count > 0) {
            return false;
        }
        let mut piece = [0; PIECE];
        match socket.read(&mut piece) {
            Ok(count) if count > 0 => {
                self.ranks.received(local, &piece[..count]);
                true
            }
            // It ended, or is as good as ended.
            _ => {
                self.close(local);
                false
            }
        }
    }

    fn close(&mut self, local: usize) {
        self.ranks.gone(local);
        if let Some(socket) = self.sockets.get_mut(local) {
            *socket = None;
        }
    }

    fn write(&mut self, local: usize, text: &str) {
        let socket = self.sockets.get_mut(local).and_then(Option::as_mut);
        if socket.is_some_and(|socket| socket.write_all(text.as_bytes()).is_err()) {
            self.close(local);
        }
    }
}

impl Server {
    /// A local rank has written something.
    pub(super) fn rank_says(&mut self, local: usize) -> Result<(), ServerError> {
        self.ranks.read(local);
        self.serve_ranks()
    }

    /// Reads all that a local rank has written.
    pub(super) fn hear_out(&mut self, local: usize) -> Result<(), ServerError> {
        while self.ranks.read(local) {
            self.serve_ranks()?;
        }
        Ok(())
    }

    /// Does what follows from what ranks said.
    pub(super) fn serve_ranks(&mut self) -> Result<(), ServerError> {
        while let Some(action) = self.ranks.ranks.poll_action() {
            self.pmi_action(action)?;
        }
        Ok(())
    }

    fn pmi_action(&mut self, action: Action) -> Result<(), ServerError> {
        match action {
            Action::Send(local, text) => self.ranks.write(local, &text),
            Action::Exchange(number, data) => {
                let places = (0..).take(self.job.nodes.len()).collect();
                let exchange = Exchange { group: ALL_BY_PMI, number };
                self.daemon.contribute(exchange, places, data)?;
            }
            Action::Joined(local) => {
                let rank = self.rank(local);
                self.daemon.tell(ServerReport::Joined { rank })?;
            }
            Action::Finalized(local) => {
                let rank = self.rank(local);
                self.daemon.tell(ServerReport::Finalized { rank })?;
            }
            Action::Aborted(local, code, message) => {
                let rank = self.rank(local);
                self.daemon.tell(ServerReport::Aborted { rank, code, message })?;
            }
            Action::SpawnRefused(local) => self.refuse_spawn(self.rank(local))?,
            Action::Publish(local, name, value) => {
                let owner = self.rank(local);
                let question = Question::Publish { owner, name, value };
                self.ask(0, question, Asker::PmiPublish(local))?;
            }
            Action::Lookup(local, name) => {
                self.ask(0, Question::Lookup { name }, Asker::PmiLookup(local))?;
            }
            Action::Unpublish(local, name) => {
                let question = Question::Unpublish { owner: self.rank(local), name };
                self.ask(0, question, Asker::PmiUnpublish(local))?;
            }
            Action::Close(local, error) => {
                let text = format!("its PMI connection is closed: {error}");
                self.daemon.tell(ServerReport::Note { rank: self.rank(local), text })?;
                self.ranks.close(local);
            }
            Action::Broken(reason) => self.daemon.tell(ServerReport::Broken(reason))?,
        }
        Ok(())
    }
}
