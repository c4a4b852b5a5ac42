//! Connection of a client to a server or metaserver, shared by threads.
//!
//! The connection has no thread of its own. One of the threads that wait for answers reads for all, and hands
//! over when it has its answer. The thread that begins a call writes its arguments in chunks, so that frames
//! of other calls go between.

mod callbacks;
mod events;
mod files;
mod heartbeat;
mod meta;
mod peer;
pub(super) mod read_buffer;
mod requests;
mod shared_memory;
mod wake_events;
pub(super) mod wire;
mod writer;

pub use callbacks::{CallbackInvocation, Functions};
pub use files::IncomingFiles;
pub use meta::goes_on;
use peer::Peer;
pub use requests::no_name;
pub use shared_memory::GrantedMemory;
pub use wake_events::Reader;

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kumi_rpc::{
    ArrayPosition, ArraySize, CHUNK, CallHead, Client, ClientEvent, Failure, Placement, ResultHead,
    ServerHello, Step, chunk_header, chunks,
};
use nix::poll::PollFlags;

use super::answer_handle::AnswerHandle;
use super::read_buffer::ReadBuffer;
use super::wake_event::WakeEvents;
use super::wire::Wire;
use super::{CallError, CallMetadata, CallOutput, locked};
use crate::lent::{LendMut, LentBytes, LentBytesMut};
use crate::native::{Source, Target};

/// Most chunks in one write. Each has two pieces.
const MOST_CHUNKS: usize = 30;

/// An answer to a stream.
#[derive(Debug)]
pub enum Answer {
    Hello(ServerHello),
    Description(u64, String),
    Names(Vec<String>),
    /// With the arrival time of its head, and the shared memory that holds its arrays.
    Done(ResultHead, Instant, Option<Arc<GrantedMemory>>),
    /// A result file could not be written or is too long, for this reason. A file that is too long may still
    /// be arriving.
    FileNotWritten(String),
    /// The routine calls a function, or cannot for this reason.
    Callback(Result<Box<CallbackInvocation>, String>),
    Placed(Placement),
    Closed,
    State(String),
    /// An object exists. Its end arrives as an error.
    Created,
    Voucher(String),
}

#[derive(Debug, Default)]
struct PendingStream {
    targets: Vec<(u16, LentBytesMut)>,
    head: Option<(ResultHead, Instant)>,
    /// [`Link::next_ready`] reports its answer.
    queued: bool,
    answer: Option<Result<Answer, Failure>>,
    functions: Functions,
    files: IncomingFiles,
    /// The arguments of a callback while they arrive.
    coming: Option<Box<CallbackInvocation>>,
    called_targets: Vec<(u16, LentBytesMut)>,
    /// The memory grant, once the server has answered.
    granted: Option<Arc<GrantedMemory>>,
    /// Where what the routine prints goes.
    output: Option<CallOutput>,
}

impl PendingStream {
    /// Whether nothing more will arrive for it.
    fn is_over(&self) -> bool {
        self.answer.as_ref().is_some_and(|answer| !matches!(answer, Ok(Answer::Callback(_))))
    }

    /// The destination of bytes of an array. Bytes of a file are written here.
    fn target(&mut self, place: ArrayPosition, here: &[u8]) -> Option<(&mut LentBytesMut, usize)> {
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

/// What a call sends, and the buffers for its results.
pub struct CallParts<'a> {
    pub placed: Option<&'a Placement>,
    pub head: &'a CallHead,
    pub sends: &'a [(u16, LentBytes)],
    pub targets: Vec<(u16, LentBytesMut)>,
    pub functions: Functions,
    /// Files that are sent: parameter, file, bytes.
    pub files: &'a [(u16, File, u64)],
    pub incoming: IncomingFiles,
    pub output: Option<CallOutput>,
    pub metadata: CallMetadata,
}

/// What the connection must read next.
enum NextRead {
    /// Bytes of any kind.
    Any,
    /// Bytes of an array, read straight to their destination.
    Array,
}

#[derive(Debug, Default)]
struct State {
    rpc: Client,
    pending: HashMap<u32, PendingStream>,
    read_buffer: ReadBuffer,
    /// A thread reads, without the lock.
    driving: bool,
    waiting: usize,
    /// Streams whose answers [`Link::next_ready`] reports.
    ready: VecDeque<u32>,
    heartbeat: heartbeat::Heartbeat,
    broken: Option<String>,
    /// Short frames to send as soon as nobody else writes.
    soon: Vec<u8>,
    /// Wake events of threads that wait for several calls.
    wake_events: WakeEvents,
    memories: shared_memory::MappedMemories,
}

/// The connection.
#[derive(Debug)]
pub struct Link {
    wire: Wire,
    peer: Peer,
    state: Mutex<State>,
    turn: Condvar,
    writing: Mutex<()>,
    /// The process that connected. A forked process has no part in the connection.
    process: u32,
}

/// The stream of the hello; the client gives no other stream this number.
pub(super) const HELLO: u32 = 0;
/// How long to wait for another thread before asking the program whether it was interrupted.
const STEP: Duration = Duration::from_millis(100);

impl Link {
    /// A connection over a blocking socket. It leads to this address.
    pub fn new(wire: Wire, address: &str) -> Link {
        let mut state = State::default();
        state.pending.insert(HELLO, PendingStream::default());
        Link {
            wire,
            peer: Peer::at(address),
            state: Mutex::new(state),
            turn: Condvar::new(),
            writing: Mutex::new(()),
            process: std::process::id(),
        }
    }

    /// Whether this is the process that connected.
    pub(super) fn is_ours(&self) -> bool {
        self.process == std::process::id()
    }

    fn check_ours(&self) -> Result<(), CallError> {
        if self.is_ours() {
            return Ok(());
        }
        let text = "it belongs to the process from which this one was forked; connect again here";
        Err(CallError::Lost(text.to_owned()))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic leaves the state between two complete steps.
        locked(&self.state)
    }

    /// Begins a call: sends its head and its arrays.
    pub fn call<L: std::ops::Deref<Target = Link>>(
        link: L,
        parts: CallParts<'_>,
        deadline: Option<Instant>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<AnswerHandle<L>, CallError> {
        let CallParts { placed, head, sends, targets, functions, files, incoming, .. } = parts;
        let (output, metadata, expected) = (parts.output, parts.metadata, incoming.parameters());
        let results: Vec<ArraySize> = targets
            .iter()
            .map(|(argument, target)| ArraySize {
                argument: *argument,
                bytes: target.length() as u64,
            })
            .collect();
        let pending = PendingStream {
            targets,
            functions,
            files: incoming,
            output,
            ..PendingStream::default()
        };
        let (ticket, out) = Link::begin(link, pending, |rpc, out| {
            let stream = rpc.call_with(placed, head, &results, out).map_err(|too_long| {
                let bytes = too_long.0;
                let text =
                    format!("scalars and texts of {bytes} bytes are more than a call may have");
                CallError::TooLarge(text)
            })?;
            rpc.metadata(stream, &metadata, out);
            rpc.expect_files(stream, expected);
            Ok(stream)
        })?;
        let stream = ticket.stream;
        let is_asked = |send: &&(u16, LentBytes)| shared_memory::is_asked(head, send.0);
        let (asked, chunks): (Vec<_>, Vec<_>) = sends.iter().partition(is_asked);
        let sent = ticket.link.send(stream, &out, &chunks, deadline, interrupted);
        let sent = sent.and_then(|()| ticket.link.send_files(stream, files, deadline, interrupted));
        let sent = match head.shared.is_empty() {
            true => sent,
            false => sent.and_then(|()| ticket.link.fill(stream, &asked, deadline, interrupted)),
        };
        match sent {
            Err(error @ (CallError::Interrupted | CallError::File(_))) => Err(error),
            // The server has answered and then closed the connection.
            Err(error) if !ticket.link.has_answer(stream) => Err(error),
            _ => Ok(ticket),
        }
    }

    /// Writes a call's head and arrays, until the server has answered.
    fn send(
        &self,
        stream: u32,
        head: &[u8],
        sends: &[(u16, LentBytes)],
        deadline: Option<Instant>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), CallError> {
        // An array may have several pieces.
        let mut chunks = sends
            .iter()
            .flat_map(|(argument, lent)| {
                let size = ArraySize { argument: *argument, bytes: lent.length() as u64 };
                let chunks: Vec<(u16, u64, u32)> = chunks(&[size]).collect();
                chunks.into_iter().map(move |(argument, offset, length)| {
                    let header = chunk_header(stream, argument, length);
                    // The range lies inside an array in memory.
                    (header, lent, offset as usize, length as usize)
                })
            })
            .peekable();
        let mut head = Some(head);
        while head.is_some() || chunks.peek().is_some() {
            let (mut batch, mut bytes) = (Vec::new(), 0);
            while let Some(chunk) = chunks.next_if(|_| bytes < CHUNK && batch.len() < MOST_CHUNKS) {
                bytes += chunk.3;
                batch.push(chunk);
            }
            let pieces = batch.iter().flat_map(|(header, lent, from, length)| {
                [Source::Bytes(header), Source::Lent(lent, *from, *length)]
            });
            let pieces: Vec<Source<'_>> =
                head.take().map(Source::Bytes).into_iter().chain(pieces).collect();
            self.put(&pieces, deadline, interrupted)?;
            if chunks.peek().is_some() && self.answered(stream) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Marks the connection as lost.
    fn fail(&self, why: &str) -> CallError {
        let mut state = self.lock();
        let why = state.broken.get_or_insert_with(|| why.to_owned()).clone();
        state.wake_events.wake();
        drop(state);
        // Wakes a thread that reads.
        self.wire.shut();
        self.turn.notify_all();
        CallError::Lost(why)
    }

    /// Whether a stream has its answer. Reads what has arrived, without waiting.
    pub(super) fn answered(&self, stream: u32) -> bool {
        if !self.is_ours() {
            return true;
        }
        let mut state = self.lock();
        if !state.driving {
            state.poll_input(&self.wire);
        }
        let state = self.answer_pings(state).unwrap_or_else(|| self.lock());
        state.broken.is_some() || state.pending.get(&stream).is_none_or(PendingStream::is_over)
    }

    /// Whether anything has arrived for a stream: its answer, or a callback.
    pub(super) fn has_news(&self, stream: u32) -> bool {
        self.lock().pending.get(&stream).is_some_and(|pending| pending.answer.is_some())
    }

    /// Whether a stream's answer has arrived.
    fn has_answer(&self, stream: u32) -> bool {
        self.lock().pending.get(&stream).is_some_and(PendingStream::is_over)
    }

    /// Forgets a stream. Returns whether the server must still be asked to end it.
    pub(super) fn forget(&self, stream: u32) -> bool {
        let mut state = self.lock();
        // A stream with an unread placement is still open.
        let open = |it: PendingStream| it.answer.as_ref().is_none_or(meta::goes_on);
        let open = state.pending.remove(&stream).is_some_and(open);
        state.rpc.abandon(stream);
        open && state.broken.is_none() && stream != HELLO
    }

    /// Answers pings that have arrived. It gives up the lock to do so; `None`: it did.
    fn answer_pings<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
    ) -> Option<MutexGuard<'a, State>> {
        let before = state.soon.len();
        state.give_back();
        let State { rpc, soon, .. } = &mut *state;
        rpc.answer_pings(soon);
        if soon.len() == before {
            return Some(state);
        }
        drop(state);
        // A server that does not read the answers is lost; the state then says so.
        let _lost = self.flush();
        None
    }

    /// Waits for a stream's answer.
    pub(super) fn wait(
        &self,
        stream: u32,
        deadline: Option<Instant>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Result<Answer, Failure>, CallError> {
        let take = |state: &mut State| {
            let answer = state.pending.get_mut(&stream).and_then(|it| it.answer.take())?;
            if !meta::goes_on(&answer) {
                state.pending.remove(&stream);
            }
            Some(answer)
        };
        self.wait_until(take, deadline, interrupted)
    }

    /// Waits until `take` returns something. This thread reads for all if no other does.
    fn wait_until<T>(
        &self,
        take: impl Fn(&mut State) -> Option<T>,
        deadline: Option<Instant>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<T, CallError> {
        self.check_ours()?;
        let mut asked = Instant::now();
        let mut state = self.lock();
        loop {
            let next_read =
                if state.driving { None } else { Some(state.process_input(&self.wire)) };
            state = match self.answer_pings(state) {
                Some(state) => state,
                None => {
                    state = self.lock();
                    continue;
                }
            };
            if let Some(taken) = take(&mut state) {
                self.hand_over(&state);
                return Ok(taken);
            }
            if let Some(broken) = &state.broken {
                self.hand_over(&state);
                return Err(CallError::Lost(broken.clone()));
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                self.hand_over(&state);
                return Err(self.unanswered());
            }
            state = match next_read {
                Some(next_read) => self.drive(state, &next_read, deadline, interrupted)?,
                None => {
                    let state = self.follow(state, deadline);
                    if asked.elapsed() < STEP {
                        state
                    } else {
                        // Without the lock: the program's code may call this connection.
                        drop(state);
                        if interrupted() {
                            return Err(CallError::Interrupted);
                        }
                        asked = Instant::now();
                        self.lock()
                    }
                }
            };
        }
    }

    /// Waits for the reading thread, one interval at most.
    fn follow<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        deadline: Option<Instant>,
    ) -> MutexGuard<'a, State> {
        state.waiting += 1;
        let left = deadline
            .map_or(STEP, |deadline| deadline.saturating_duration_since(Instant::now()).min(STEP));
        let waited = self.turn.wait_timeout(state, left);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
        state.waiting -= 1;
        state
    }

    /// Reads for all, without the lock.
    fn drive<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        next_read: &NextRead,
        deadline: Option<Instant>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<MutexGuard<'a, State>, CallError> {
        state.driving = true;
        let mut read_buffer = std::mem::take(&mut state.read_buffer);
        drop(state);
        let got = match next_read {
            NextRead::Array => self.wire.ready(PollFlags::POLLIN, deadline).map(|_| None),
            NextRead::Any if deadline.is_some() => {
                match self.wire.ready(PollFlags::POLLIN, deadline) {
                    Ok(true) => read_buffer.fill(&self.wire, false).map(Some),
                    Ok(false) => Ok(None),
                    Err(error) => Err(error),
                }
            }
            NextRead::Any => read_buffer.fill(&self.wire, true).map(Some),
        };
        let mut state = self.lock();
        state.driving = false;
        state.read_buffer = read_buffer;
        match got {
            Ok(Some(0)) => state.lose("the server closed it"),
            Ok(_) => {}
            Err(error) => match error.kind() {
                io::ErrorKind::Interrupted => {
                    self.hand_over(&state);
                    // Without the lock and not as the reader: the program's code may call this connection.
                    drop(state);
                    return if interrupted() {
                        Err(CallError::Interrupted)
                    } else {
                        Ok(self.lock())
                    };
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

impl State {
    fn lose(&mut self, why: &str) {
        self.broken.get_or_insert_with(|| why.to_owned());
        self.wake_events.wake();
    }

    /// Processes what has arrived, without waiting. Returns whether there may be more.
    fn poll_input(&mut self, wire: &Wire) -> bool {
        if matches!(self.process_input(wire), NextRead::Any) && self.broken.is_none() {
            match self.read_buffer.fill(wire, false) {
                Ok(0) => self.lose("the server closed it"),
                Ok(_) => {
                    self.process_input(wire);
                    // Bytes in the buffer wake no thread that polls the socket.
                    if wire.has_input() {
                        self.wake_events.wake();
                    }
                    return true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => self.lose(&error.to_string()),
            }
        }
        false
    }

    /// Processes the buffered input and returns what to read next. Bytes of arrays are read straight to their
    /// destination.
    fn process_input(&mut self, wire: &Wire) -> NextRead {
        let next_read = self.process_all_input(wire);
        if wire.descriptors() > self.rpc.pending_grants() {
            self.lose("the server sent unexpected file descriptors");
        }
        next_read
    }

    fn process_all_input(&mut self, wire: &Wire) -> NextRead {
        loop {
            if self.broken.is_some() {
                return NextRead::Any;
            }
            let input = &self.read_buffer.buffer[self.read_buffer.begin..self.read_buffer.end];
            match self.rpc.step(input) {
                Ok(Step::More(needed)) => {
                    self.read_buffer.needed = needed;
                    return NextRead::Any;
                }
                Ok(Step::Event(consumed, event)) => {
                    self.read_buffer.begin += consumed;
                    match event {
                        Some(ClientEvent::Granted(stream, grant)) => {
                            self.granted(wire, stream, grant);
                        }
                        Some(event) => {
                            self.take(event);
                            self.wake_events.wake();
                        }
                        None => {}
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
                        self.read_buffer.begin += here;
                        continue;
                    }
                    let Some((target, offset)) = target else { return NextRead::Any };
                    let target = Target::Lent(target, offset, length);
                    let read_buffer = &mut self.read_buffer;
                    (read_buffer.begin, read_buffer.end) = (0, 0);
                    match wire.read(target, &mut read_buffer.buffer, false) {
                        Ok(0) => self.lose("the server closed it"),
                        Ok(count) => {
                            self.rpc.placed(count.min(length));
                            self.read_buffer.end = count.saturating_sub(length);
                        }
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                            return NextRead::Array;
                        }
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                        Err(error) => self.lose(&error.to_string()),
                    }
                }
                Err(error) => self.lose(&error.to_string()),
            }
        }
    }
}
