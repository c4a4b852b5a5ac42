//! A connection as its client drives it.
//!
//! There is no thread of its own: whoever waits for an answer reads for all, and hands over when it has its own.
//! A call's arguments are written by whoever begins it, chunk by chunk, so that other threads' calls go between.

mod called;
mod files;
mod ticket;

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kumi_rpc::{
    CHUNK, CallHead, Client, ClientEvent, Failure, HEADER, MOST_NAME, MOST_REQUEST, Place,
    ResultHead, ServerHello, Size, Step, chunk_header, chunks,
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::CallError;
use super::inbox::Inbox;
use crate::lent::{Lent, LentMut};
use crate::native::{self, Source, Target};
pub use called::{Called, Functions};
pub use files::FileParts;

/// Most pieces that are written at once.
const PIECES: usize = 60;

/// How long a server that asks whether anybody is there may take to read the answer.
const PONG_TIME: Duration = Duration::from_secs(10);

/// What came for a stream.
#[derive(Debug)]
pub enum Answer {
    Hello(ServerHello),
    Description(u64, String),
    Names(Vec<String>),
    Done(ResultHead),
    /// The result has come, but a file of it could not be written, for this reason.
    Unwritten(String),
    /// The routine calls a function, or cannot for this reason.
    Called(Result<Box<Called>, String>),
}

#[derive(Debug, Default)]
struct Pending {
    targets: Vec<(u16, LentMut)>,
    head: Option<ResultHead>,
    answer: Option<Result<Answer, Failure>>,
    functions: Functions,
    files: files::Coming,
    /// What a function is called with, and where it comes to.
    coming: Option<Box<Called>>,
    called_targets: Vec<(u16, LentMut)>,
}

impl Pending {
    /// Whether nothing more comes for it.
    fn is_over(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| !matches!(answer, Ok(Answer::Called(_))))
    }
}

impl Pending {
    /// Where the bytes of an array go; those of a file that are here are written.
    fn target(&mut self, place: Place, here: &[u8]) -> Option<(&mut LentMut, usize)> {
        let targets = if self.coming.is_some() {
            &mut self.called_targets
        } else {
            self.files.write(place, here);
            &mut self.targets
        };
        let target = targets.iter_mut().find(|(other, _)| *other == place.argument)?;
        Some((&mut target.1, usize::try_from(place.offset).ok()?))
    }
}

/// What must come before anything can be done.
enum Hunger {
    /// Bytes of any kind.
    Any,
    /// Bytes of an array, which are read by looking again.
    Array,
}

#[derive(Debug, Default)]
struct State {
    rpc: Client,
    pending: HashMap<u32, Pending>,
    inbox: Inbox,
    /// A thread reads, without the lock.
    driving: bool,
    waiting: usize,
    broken: Option<String>,
}

/// The connection.
#[derive(Debug)]
pub struct Link {
    socket: OwnedFd,
    state: Mutex<State>,
    turn: Condvar,
    writing: Mutex<()>,
}

/// A stream that is waited for; when this goes before the answer has come, nothing is put into its arrays any more.
#[derive(Debug)]
pub struct Ticket<L: std::ops::Deref<Target = Link>> {
    pub link: L,
    stream: u32,
    over: bool,
}

/// The stream by which the hello is waited for; the client gives no stream this number.
const HELLO: u32 = 0;

impl Link {
    /// A connection over a socket that waits.
    pub fn new(socket: OwnedFd) -> Link {
        let mut state = State::default();
        state.pending.insert(HELLO, Pending::default());
        Link { socket, state: Mutex::new(state), turn: Condvar::new(), writing: Mutex::new(()) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A thread that panicked has left the state as it was between two steps.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says who this is; the answer is waited for as that of any stream.
    pub fn hello(&self, bytes: &[u8], deadline: Option<Instant>) -> Result<ServerHello, CallError> {
        self.put(&[Source::Bytes(bytes)], deadline)?;
        let mut ticket = Ticket { link: self, stream: HELLO, over: false };
        match ticket.wait(deadline, &|| false)? {
            Ok(Answer::Hello(hello)) => Ok(hello),
            Ok(_) => Err(CallError::Lost("the server did not greet".to_owned())),
            Err(failure) => Err(CallError::of(failure, "")),
        }
    }

    /// Asks for a description.
    pub fn interface(&self, name: &str, deadline: Option<Instant>) -> Result<u32, CallError> {
        let mut out = Vec::new();
        let mut state = self.lock();
        let stream = state.rpc.interface(name, &mut out).map_err(|_| {
            let name: String = name.chars().take(64).flat_map(char::escape_debug).collect();
            let text = format!(
                "no routine can have the name `{name}`: names have 1 to {MOST_NAME} bytes and no control characters"
            );
            CallError::RoutineNotFound(text)
        })?;
        self.begin(state, stream, Pending::default());
        self.put(&[Source::Bytes(&out)], deadline)?;
        Ok(stream)
    }

    /// Asks for names.
    pub fn list(&self, part: &str, deadline: Option<Instant>) -> Result<u32, CallError> {
        let mut out = Vec::new();
        let mut state = self.lock();
        let stream = state.rpc.list(part, &mut out).map_err(|too_long| {
            let text = format!(
                "{} bytes of a name are more than the {MOST_REQUEST} that can be looked for",
                too_long.0
            );
            CallError::TooLarge(text)
        })?;
        self.begin(state, stream, Pending::default());
        self.put(&[Source::Bytes(&out)], deadline)?;
        Ok(stream)
    }

    fn begin(&self, mut state: MutexGuard<'_, State>, stream: u32, pending: Pending) {
        state.pending.insert(stream, pending);
    }

    /// Begins a call: sends its head and its arrays.
    pub fn call<L: std::ops::Deref<Target = Link>>(
        link: L,
        head: &CallHead,
        sends: &[(u16, Lent)],
        targets: Vec<(u16, LentMut)>,
        functions: Functions,
        files: &FileParts<'_>,
        deadline: Option<Instant>,
    ) -> Result<Ticket<L>, CallError> {
        let results: Vec<Size> = targets
            .iter()
            .map(|(argument, target)| Size { argument: *argument, bytes: target.length() as u64 })
            .collect();
        let mut out = Vec::with_capacity(256);
        let mut state = link.lock();
        let stream = state.rpc.call(head, &results, &mut out).map_err(|too_long| {
            let text =
                format!("scalars and texts of {} bytes are more than a call may have", too_long.0);
            CallError::TooLarge(text)
        })?;
        state.rpc.expect_files(stream, files.parameters(), files.most);
        let coming = files.coming();
        link.begin(
            state,
            stream,
            Pending { targets, functions, files: coming, ..Pending::default() },
        );
        // From here on the ticket takes the targets back, however this ends.
        let ticket = Ticket { link, stream, over: false };
        ticket.link.send(stream, &out, sends, deadline)?;
        ticket.link.send_files(stream, files.sent, deadline)?;
        Ok(ticket)
    }

    /// Writes a call's head and its arrays, as long as nothing has been answered.
    fn send(
        &self,
        stream: u32,
        head: &[u8],
        sends: &[(u16, Lent)],
        deadline: Option<Instant>,
    ) -> Result<(), CallError> {
        let sizes: Vec<Size> = sends
            .iter()
            .map(|(argument, lent)| Size { argument: *argument, bytes: lent.length() as u64 })
            .collect();
        let lent =
            |argument| sends.iter().find(|(other, _)| *other == argument).map(|(_, lent)| lent);
        let mut headers: Vec<[u8; HEADER]> = Vec::new();
        let mut data: Vec<(&Lent, usize, usize)> = Vec::new();
        let mut head = Some(head);
        let mut bytes = 0;
        let mut flush = |headers: &mut Vec<[u8; HEADER]>, data: &mut Vec<(&Lent, usize, usize)>| {
            let chunks =
                headers.iter().zip(data.iter()).flat_map(|(header, (lent, from, length))| {
                    [Source::Bytes(header), Source::Lent(lent, *from, *length)]
                });
            let pieces: Vec<Source<'_>> =
                head.take().map(Source::Bytes).into_iter().chain(chunks).collect();
            let result = self.put(&pieces, deadline);
            headers.clear();
            data.clear();
            result
        };
        for (argument, offset, length) in chunks(&sizes) {
            let Some(lent) = lent(argument) else { continue };
            headers.push(chunk_header(stream, argument, length));
            // Inside of an array that is in memory.
            data.push((lent, offset as usize, length as usize));
            bytes += length as usize;
            if bytes >= CHUNK || 2 * headers.len() + 1 >= PIECES {
                flush(&mut headers, &mut data)?;
                bytes = 0;
                if self.answered(stream) {
                    return Ok(());
                }
            }
        }
        if head_left(bytes, &headers, sizes.is_empty()) {
            flush(&mut headers, &mut data)?;
        }
        Ok(())
    }

    /// Writes all of the pieces, while nobody else does.
    fn put(&self, pieces: &[Source<'_>], deadline: Option<Instant>) -> Result<(), CallError> {
        let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(broken) = &self.lock().broken {
            return Err(CallError::Lost(broken.clone()));
        }
        let (mut first, mut skip) = (0, 0);
        while first < pieces.len() {
            let rest = pieces[first..]
                .iter()
                .enumerate()
                .map(|(index, piece)| if index == 0 { without(*piece, skip) } else { *piece });
            match native::write(self.socket.as_fd(), rest) {
                Ok(mut count) => {
                    while first < pieces.len() && count >= length_of(pieces[first]) - skip {
                        count -= length_of(pieces[first]) - skip;
                        (first, skip) = (first + 1, 0);
                    }
                    skip += count;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if !self.ready(PollFlags::POLLOUT, deadline).unwrap_or(true) {
                        // A part of a frame is sent: nothing else can be sent any more.
                        self.fail("the server did not read what was sent in time");
                        let text = "the call took longer than it may while its arguments were sent";
                        return Err(CallError::TimedOut(text.to_owned()));
                    }
                }
                Err(error) => {
                    // What the server has said before it closed is worth more than this.
                    return Err(self.fail(&error.to_string()));
                }
            }
        }
        Ok(())
    }

    /// Waits until the socket is ready; false: the time is over.
    fn ready(&self, flags: PollFlags, deadline: Option<Instant>) -> io::Result<bool> {
        let timeout = match deadline {
            None => PollTimeout::NONE,
            Some(deadline) => {
                let left = deadline.saturating_duration_since(Instant::now());
                // Rounded up, so that it does not end a little too early again and again.
                let left = left.as_millis().saturating_add(u128::from(left.subsec_nanos() > 0));
                PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
            }
        };
        let mut polled = [PollFd::new(self.socket.as_fd(), flags)];
        Ok(poll(&mut polled, timeout)? > 0)
    }

    /// The connection is of no use any more.
    fn fail(&self, why: &str) -> CallError {
        let mut state = self.lock();
        let why = state.broken.get_or_insert_with(|| why.to_owned()).clone();
        // Whoever waits in a read wakes up.
        let _shut = nix::sys::socket::shutdown(
            std::os::fd::AsRawFd::as_raw_fd(&self.socket),
            nix::sys::socket::Shutdown::Both,
        );
        drop(state);
        self.turn.notify_all();
        CallError::Lost(why)
    }

    /// Whether a stream has its answer, as far as can be seen without waiting.
    fn answered(&self, stream: u32) -> bool {
        let mut state = self.lock();
        if !state.driving {
            state.look_around(&self.socket);
        }
        let state = self.answer_pings(state).unwrap_or_else(|| self.lock());
        state.broken.is_some() || state.pending.get(&stream).is_none_or(Pending::is_over)
    }

    /// Answers pings that have come, for which the lock is given up; `None`: it was.
    fn answer_pings<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
    ) -> Option<MutexGuard<'a, State>> {
        let mut out = Vec::new();
        state.rpc.pongs(&mut out);
        if out.is_empty() {
            return Some(state);
        }
        drop(state);
        // A server that does not take them in this time is lost, which is seen in the state.
        let _lost = self.put(&[Source::Bytes(&out)], Instant::now().checked_add(PONG_TIME));
        None
    }

    /// Waits for a stream's answer. The caller reads for all if nobody does.
    fn wait(
        &self,
        stream: u32,
        deadline: Option<Instant>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Result<Answer, Failure>, CallError> {
        let mut state = self.lock();
        loop {
            let hunger = if state.driving { None } else { Some(state.digest(&self.socket)) };
            state = match self.answer_pings(state) {
                Some(state) => state,
                None => {
                    state = self.lock();
                    continue;
                }
            };
            if let Some(answer) = state.pending.get_mut(&stream).and_then(|it| it.answer.take()) {
                if !matches!(answer, Ok(Answer::Called(_))) {
                    state.pending.remove(&stream);
                }
                if state.waiting > 0 {
                    self.turn.notify_all();
                }
                return Ok(answer);
            }
            if let Some(broken) = &state.broken {
                self.turn.notify_all();
                return Err(CallError::Lost(broken.clone()));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                self.turn.notify_all();
                return Err(CallError::TimedOut("the server did not answer in time".to_owned()));
            }
            state = match hunger {
                Some(hunger) => self.drive(state, &hunger, deadline, interrupted)?,
                None => self.follow(state, deadline),
            };
        }
    }

    /// Waits for the thread that reads.
    fn follow<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        deadline: Option<Instant>,
    ) -> MutexGuard<'a, State> {
        state.waiting += 1;
        let left = deadline.map_or(Duration::from_secs(3600), |deadline| {
            deadline.saturating_duration_since(Instant::now())
        });
        let waited = self.turn.wait_timeout(state, left);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.waiting -= 1;
        state
    }

    /// Reads for all, without the lock.
    fn drive<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        hunger: &Hunger,
        deadline: Option<Instant>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<MutexGuard<'a, State>, CallError> {
        state.driving = true;
        let mut inbox = std::mem::take(&mut state.inbox);
        drop(state);
        let got = match hunger {
            Hunger::Array => self.ready(PollFlags::POLLIN, deadline).map(|_| None),
            Hunger::Any if deadline.is_some() => match self.ready(PollFlags::POLLIN, deadline) {
                Ok(true) => inbox.fill(&self.socket, false).map(Some),
                Ok(false) => Ok(None),
                Err(error) => Err(error),
            },
            Hunger::Any => inbox.fill(&self.socket, true).map(Some),
        };
        let mut state = self.lock();
        state.driving = false;
        state.inbox = inbox;
        match got {
            Ok(Some(0)) => state.lose("the server closed it"),
            Ok(_) => {}
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted => {
                    if interrupted() {
                        self.turn.notify_all();
                        return Err(CallError::Interrupted);
                    }
                }
                io::ErrorKind::WouldBlock => {}
                _ => state.lose(&error.to_string()),
            },
        }
        if state.waiting > 0 {
            self.turn.notify_all();
        }
        Ok(state)
    }
}

/// Whether something is left to be written: the head, if there was no chunk, or chunks.
fn head_left(bytes: usize, headers: &[[u8; HEADER]], nothing: bool) -> bool {
    nothing || bytes > 0 || !headers.is_empty()
}

fn length_of(piece: Source<'_>) -> usize {
    match piece {
        Source::Bytes(bytes) => bytes.len(),
        Source::Arena(_, _, length) | Source::Lent(_, _, length) => length,
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

impl State {
    fn lose(&mut self, why: &str) {
        self.broken.get_or_insert_with(|| why.to_owned());
    }

    /// Takes in what has come, without waiting.
    fn look_around(&mut self, socket: &OwnedFd) {
        if matches!(self.digest(socket), Hunger::Any) && self.broken.is_none() {
            match self.inbox.fill(socket, false) {
                Ok(0) => self.lose("the server closed it"),
                Ok(_) => {
                    self.digest(socket);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => self.lose(&error.to_string()),
            }
        }
    }

    /// Does what can be done with what has come, and says what is needed next. Bytes of arrays are read straight to
    /// their places.
    fn digest(&mut self, socket: &OwnedFd) -> Hunger {
        loop {
            if self.broken.is_some() {
                return Hunger::Any;
            }
            let input = &self.inbox.buffer[self.inbox.begin..self.inbox.end];
            match self.rpc.step(input) {
                Ok(Step::More(needed)) => {
                    self.inbox.needed = needed;
                    return Hunger::Any;
                }
                Ok(Step::Event(consumed, event)) => {
                    self.inbox.begin += consumed;
                    if let Some(event) = event {
                        self.take(event);
                    }
                }
                Ok(Step::Data(place, length)) => {
                    let here = length.min(input.len());
                    let pending = place.map(|place| (place, self.pending.get_mut(&place.stream)));
                    let target = match pending {
                        Some((place, Some(pending))) => pending.target(place, &input[..here]),
                        _ => None,
                    };
                    if here > 0 {
                        if let Some((target, offset)) = target {
                            target.write(offset, &input[..here]);
                        }
                        self.rpc.placed(here);
                        self.inbox.begin += here;
                        continue;
                    }
                    let Some((target, offset)) = target else { return Hunger::Any };
                    let target = Target::Lent(target, offset, length);
                    let inbox = &mut self.inbox;
                    (inbox.begin, inbox.end) = (0, 0);
                    match native::read(socket.as_fd(), target, &mut inbox.buffer, false) {
                        Ok(0) => self.lose("the server closed it"),
                        Ok(count) => {
                            self.rpc.placed(count.min(length));
                            self.inbox.end = count.saturating_sub(length);
                        }
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                            return Hunger::Array;
                        }
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) => self.lose(&error.to_string()),
                    }
                }
                Err(error) => self.lose(&error.to_string()),
            }
        }
    }

    fn take(&mut self, event: ClientEvent) {
        let (stream, answer) = match event {
            ClientEvent::Hello(hello) => match hello.version.clone() {
                Ok(_) => (HELLO, Ok(Answer::Hello(hello))),
                Err(failure) => (HELLO, Err(failure)),
            },
            ClientEvent::Description(stream, hash, json) => {
                (stream, Ok(Answer::Description(hash, json)))
            }
            ClientEvent::Names(stream, names) => (stream, Ok(Answer::Names(names))),
            ClientEvent::Result(stream, head) => {
                if let Some(pending) = self.pending.get_mut(&stream) {
                    pending.head = Some(head);
                }
                return;
            }
            ClientEvent::Done(stream) => {
                let head = self.pending.get_mut(&stream).and_then(|pending| pending.head.take());
                let Some(head) = head else { return };
                let file = self.pending.get_mut(&stream).and_then(|it| it.files.failed());
                (stream, Ok(file.map_or(Answer::Done(head), Answer::Unwritten)))
            }
            ClientEvent::Failed(stream, failure) => (stream, Err(failure)),
            ClientEvent::Callback(stream, head) => return self.callback(stream, &head),
            ClientEvent::Called(stream) => return self.called(stream),
            ClientEvent::Ended(failure) => return self.lose(&failure.text),
            ClientEvent::Pong => return,
        };
        if let Some(pending) = self.pending.get_mut(&stream) {
            pending.answer = Some(answer);
            pending.targets.clear();
            pending.called_targets.clear();
            pending.coming = None;
        }
    }
}
