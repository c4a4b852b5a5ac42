//! Writer of a connection: one thread at a time writes whole frames.

use std::io;
use std::sync::TryLockError;
use std::time::{Duration, Instant};

use nix::poll::PollFlags;

use super::{Link, State};
use crate::native::{Source, length_of};
use crate::{CallError, locked};

/// How long to wait for the reading thread to find out why a write failed.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long a server may take to read a short frame and everything before it.
const SHORT_TIME: Duration = Duration::from_secs(60);

impl Link {
    /// Asks the server to end a stream. Waits for no other thread.
    pub(crate) fn cancel(&self, stream: u32) -> Result<(), CallError> {
        let mut state = self.lock();
        let State { rpc, soon, .. } = &mut *state;
        rpc.cancel(stream, soon);
        drop(state);
        self.flush()
    }

    /// Sends queued short frames, and which memories are no longer in use. A thread that is writing sends them when it is done.
    pub(crate) fn flush(&self) -> Result<(), CallError> {
        self.flush_within(SHORT_TIME)
    }

    /// [`Link::flush`] with a time limit for the other side to read.
    pub(super) fn flush_within(&self, time: Duration) -> Result<(), CallError> {
        loop {
            let mut state = self.lock();
            state.give_back();
            if state.soon.is_empty() {
                return Ok(());
            }
            drop(state);
            let _turn = match self.writing.try_lock() {
                Ok(turn) => turn,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => return Ok(()),
            };
            let soon = std::mem::take(&mut self.lock().soon);
            let deadline = Instant::now().checked_add(time);
            self.write(&[Source::Bytes(&soon)], deadline, &|| false)?;
        }
    }

    /// Writes all pieces when no other thread writes.
    pub(super) fn put(
        &self,
        pieces: &[Source<'_>],
        deadline: Option<Instant>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), CallError> {
        let turn = locked(&self.writing);
        let written = self.write(pieces, deadline, interrupted);
        drop(turn);
        written.and(self.flush())
    }

    /// Writes all pieces; the caller has its turn.
    fn write(
        &self,
        pieces: &[Source<'_>],
        deadline: Option<Instant>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), CallError> {
        self.check_ours()?;
        if let Some(broken) = &self.lock().broken {
            return Err(CallError::Lost(broken.clone()));
        }
        let (mut first, mut skip) = (0, 0);
        loop {
            let all = first == pieces.len();
            let rest = pieces[first..]
                .iter()
                .enumerate()
                .map(|(index, piece)| if index == 0 { without(*piece, skip) } else { *piece });
            let sent = if all { self.wire.flush().map(|()| 0) } else { self.wire.write(rest) };
            let wrote = match sent {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    match self.wire.ready(PollFlags::POLLOUT, deadline) {
                        Ok(true) => continue,
                        Ok(false) => {
                            // A part of a frame is sent, so nothing else can be sent any more.
                            let peer = self.peer();
                            self.fail(&format!("{peer} did not read what was sent in time"));
                            let text = format!(
                                "the call took longer than it may while its arguments were sent to {peer}"
                            );
                            return Err(CallError::TimedOut(text));
                        }
                        Err(error) => Err(error),
                    }
                }
                other => other,
            };
            match wrote {
                Ok(_) if all => return Ok(()),
                Ok(mut count) => {
                    while first < pieces.len() && count >= length_of(pieces[first]) - skip {
                        count -= length_of(pieces[first]) - skip;
                        (first, skip) = (first + 1, 0);
                    }
                    skip += count;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    if interrupted() {
                        if (first, skip) != (0, 0) {
                            self.fail("the program was interrupted while it sent");
                        }
                        return Err(CallError::Interrupted);
                    }
                }
                Err(error) => {
                    self.read_final_answers();
                    return Err(self.fail(&error.to_string()));
                }
            }
        }
    }

    /// Processes what the server sent before it closed the connection: it explains the failure.
    fn read_final_answers(&self) {
        let until = Instant::now() + LAST_WORDS;
        let mut state = self.lock();
        // The reading thread comes to the end too.
        while state.driving && state.broken.is_none() && Instant::now() < until {
            state = self.follow(state, Some(until));
        }
        while !state.driving && state.broken.is_none() && state.poll_input(&self.wire) {}
    }
}

/// A piece without its first bytes.
fn without(piece: Source<'_>, skip: usize) -> Source<'_> {
    match piece {
        Source::Bytes(bytes) => Source::Bytes(&bytes[skip..]),
        Source::Arena(arena, offset, length) => Source::Arena(arena, offset + skip, length - skip),
        Source::Lent(lent, offset, length) => Source::Lent(lent, offset + skip, length - skip),
    }
}
