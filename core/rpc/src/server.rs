//! State machine of the server end of a connection.

mod answers;

use crate::callback::{CallbackHead, CallbackReturn};
use crate::codec::{self, DecodeError, Encode, whole};
use crate::frame::{self, FrameError, FrameKind, HEADER, Header, ReadingEnd};
use crate::frame_reader::{ArrayPosition, IncomingChunk, RawFrame, Step, raw};
use crate::held_array::{FetchRequest, HeldArrayName, HoldRequest};
use crate::hello::{ClientHello, LocalEndpoint, ServerHello, VERSIONS, VoucherSupport};
use crate::incoming_arrays::{ArraySize, IncomingArrays};
use crate::log_request::LogRequest;
use crate::message::{self, CallHead, Code, Failure, ResultHead};
use crate::placement::{self, Ticket};
use crate::resources::Resources;
use crate::send_queue::SendQueue;
use crate::shared_memory::MemoryGrant;
use crate::trace_context::TraceContext;
use crate::{MOST_ANSWER, MOST_UNREAD, ProtocolError};
use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// An event at the server: a request of the client, or the arrival of its arrays.
#[derive(Debug, PartialEq)]
pub enum ServerEvent {
    /// The client's hello. Answer with [`Server::welcome`] or [`Server::refuse`].
    Hello(ClientHello),
    /// A request for a description. Answer with [`Server::describe`] or [`Server::fail`].
    Interface(u32, String),
    /// A request for names. Answer with [`Server::names`].
    List(u32, String),
    /// A call begins. Answer with [`Server::accept`] or [`Server::fail`].
    Call(u32, CallHead),
    /// All arrays of a call have arrived.
    Ready(u32),
    /// The client cancels a call. Answer with [`Server::fail`] when it has ended.
    Cancel(u32),
    /// A callback has ended. Decode its arrays with [`Server::accept_return`].
    Returned(u32, CallbackReturn),
    /// All arrays of a callback's return have arrived.
    ReturnReady(u32),
    /// The ticket and the pass of the call that follows directly.
    Ticket(u32, Ticket, String),
    /// A request for bytes of a held array. Answer with [`Server::finish`] and one array, of parameter 0, or [`Server::fail`].
    Fetch(u32, FetchRequest),
    /// A request to hold an array. Answer with [`Server::accept`] and one array, of parameter 0, or [`Server::fail`]. When
    /// it is ready, answer with [`Server::finish`] without arrays.
    Hold(u32, HoldRequest),
    /// The client releases these held arrays.
    Drop(Vec<HeldArrayName>),
    /// The client no longer uses a granted memory.
    Release(u32),
    /// A request for an object of this class. [`Server::created`] confirms it; [`Server::fail`] refuses or ends it. The client
    /// ends it with [`ServerEvent::Cancel`].
    Create(u32, String),
    /// A request for a voucher for a held array, valid for this many milliseconds. Answer with [`Server::send_voucher`] or
    /// [`Server::fail`].
    Vouch(u32, HeldArrayName, u32),
    /// The client wants what the routine of the call that follows prints: [`Server::printed`].
    Listen(u32),
    /// The place in a trace of the call that follows directly.
    Trace(u32, TraceContext),
    /// The threads and the memory that the client asks for the call that follows directly.
    Resources(u32, Resources),
    /// A request for logs of calls. Answer with [`Server::logs`] or [`Server::fail`].
    Logs(u32, LogRequest),
}

/// The state of a stream.
#[derive(Debug)]
enum Stream {
    /// It waits for the driver's answer.
    Asked,
    /// It is an object, which exists or is being created.
    Object,
    /// It waits for arrays, and for FILLED if the call has shared memory.
    Receiving { parts: IncomingArrays, filled: bool },
    /// The routine runs.
    Running,
    /// The client runs a callback; whether its arrays are written.
    CallingBack { written: bool },
    /// It waits for the arrays of a callback's return.
    Returning(IncomingArrays),
    /// The call is about to end: what still arrives is skipped.
    Ending,
    /// The result is being written.
    Answered,
}

/// The server end of a connection. After an error the driver reads nothing more; [`Server::send_queue`] still has the failure to
/// send.
#[derive(Debug, Default)]
pub struct Server {
    greeted: bool,
    most_streams: usize,
    streams: BTreeMap<u32, Stream>,
    coming: IncomingChunk,
    /// Events of streams whose arrays have all arrived.
    ready: VecDeque<ServerEvent>,
    send_queue: SendQueue,
    /// Whether the client gets shared memory for its calls.
    shares_memory: bool,
    local: Option<LocalEndpoint>,
    /// Whether access to this client's held arrays requires a voucher.
    wants_vouchers: bool,
    /// Memories that the client may use.
    lent: BTreeSet<u32>,
}

impl Server {
    /// A connection on which nothing has arrived, with a limit of open streams.
    #[must_use]
    pub fn new(most_streams: usize) -> Server {
        Server { most_streams, ..Server::default() }
    }

    /// Before [`Server::welcome`]: sets whether the hello offers shared memory, and the local socket.
    pub fn offer(&mut self, shares_memory: bool, local: Option<LocalEndpoint>) {
        (self.shares_memory, self.local) = (shares_memory, local);
    }

    /// Before [`Server::welcome`]: sets whether access to this client's held arrays requires a voucher.
    pub fn want_vouchers(&mut self, wants: bool) {
        self.wants_vouchers = wants;
    }

    /// The output.
    pub fn send_queue(&mut self) -> &mut SendQueue {
        &mut self.send_queue
    }

    /// Processes the unread input: what the driver has to do next.
    ///
    /// # Errors
    /// The client broke the protocol. The failure for the client is in the output.
    pub fn step(&mut self, input: &[u8]) -> Result<Step<ServerEvent>, ProtocolError> {
        let step = self.look(input);
        if let Err(error) = &step {
            let failure = Failure::new(Code::Protocol, 0, error.to_string());
            if self.greeted {
                self.put(FrameKind::Error, 0, failure);
            } else {
                self.refuse(failure);
            }
        }
        step
    }

    fn look(&mut self, input: &[u8]) -> Result<Step<ServerEvent>, ProtocolError> {
        if let Some(event) = self.ready.pop_front() {
            return Ok(Step::Event(0, Some(event)));
        }
        if !self.greeted {
            return self.greet(input);
        }
        if let Some(step) = self.coming.step() {
            return Ok(step);
        }
        match raw(input, ReadingEnd::Server)? {
            RawFrame::More(needed) => Ok(Step::More(needed)),
            RawFrame::Chunk(header) => {
                let place = self.place(header)?;
                self.coming.begin(place, place.is_some(), header.length);
                Ok(Step::Event(HEADER, None))
            }
            RawFrame::Frame(kind, stream, body) => {
                let event =
                    self.take(kind, stream, body).map_err(|error| error.of(kind, stream))?;
                Ok(Step::Event(HEADER + body.len(), event))
            }
        }
    }

    fn greet(&mut self, input: &[u8]) -> Result<Step<ServerEvent>, ProtocolError> {
        let (hello, length) = match ClientHello::decode(input)? {
            Ok(decoded) => decoded,
            Err(needed) => return Ok(Step::More(needed)),
        };
        self.greeted = true;
        Ok(Step::Event(length, Some(ServerEvent::Hello(hello))))
    }

    /// Accepts the client in the highest common version. False: there is none, and the client gets a failure.
    pub fn welcome(&mut self, client: &ClientHello, name: &str, most_bytes: u64) -> bool {
        let Some(version) = client.common(&VERSIONS) else {
            self.refuse(Failure::version(*VERSIONS.end()));
            return false;
        };
        let streams = u32::try_from(self.most_streams).unwrap_or(u32::MAX);
        let hello = ServerHello {
            name: name.to_owned(),
            streams,
            bytes: most_bytes,
            shares_memory: self.shares_memory,
            local: self.local,
            vouchers: if self.wants_vouchers {
                VoucherSupport::Wanted
            } else {
                VoucherSupport::Known
            },
            gives_resources: true,
            holds_arrays: true,
            shows_logs: true,
            ..ServerHello::new(Ok(version), *VERSIONS.end())
        };
        self.send_queue.append(|out| out.extend_from_slice(&hello.encode()));
        true
    }

    /// Refuses the client. The driver reads nothing more.
    pub fn refuse(&mut self, failure: Failure) {
        let hello = ServerHello::refusing(failure);
        self.send_queue.append(|out| out.extend_from_slice(&hello.encode()));
    }

    fn put(&mut self, kind: FrameKind, stream: u32, body: impl Encode) {
        self.send_queue.append(|out| frame::put(out, kind, stream, body));
    }

    /// All that a call or a callback waited for is there.
    fn goes_on(&mut self, stream: u32, event: ServerEvent) {
        self.streams.insert(stream, Stream::Running);
        self.ready.push_back(event);
    }

    /// The position of a chunk's bytes.
    fn place(&self, header: Header) -> Result<Option<ArrayPosition>, ProtocolError> {
        let Header { stream, argument, length, kind } = header;
        let excess = ProtocolError::Excess { stream, argument };
        match (kind, self.streams.get(&stream)) {
            // An extension, or a chunk of a call that has ended early.
            (None, _) | (_, None | Some(Stream::Asked | Stream::Ending | Stream::Answered)) => {
                Ok(None)
            }
            (_, Some(Stream::Running | Stream::CallingBack { .. } | Stream::Object)) => Err(excess),
            (_, Some(Stream::Receiving { parts, .. } | Stream::Returning(parts))) => {
                let offset = parts.offset(argument, length as u64).ok_or(excess)?;
                Ok(Some(ArrayPosition { stream, argument, offset }))
            }
        }
    }

    /// Notes that the driver has stored this many bytes of the chunk.
    pub fn placed(&mut self, count: usize) {
        let Some(place) = self.coming.placed(count) else { return };
        let (parts, filled, event) = match self.streams.get_mut(&place.stream) {
            Some(Stream::Receiving { parts, filled }) => {
                (parts, *filled, ServerEvent::Ready(place.stream))
            }
            Some(Stream::Returning(parts)) => (parts, true, ServerEvent::ReturnReady(place.stream)),
            _ => return,
        };
        parts.add(place.argument, count as u64);
        if parts.is_complete() && filled {
            self.goes_on(place.stream, event);
        }
    }

    fn take(
        &mut self,
        kind: FrameKind,
        stream: u32,
        body: &[u8],
    ) -> Result<Option<ServerEvent>, FrameError> {
        let event = match kind {
            FrameKind::Interface => ServerEvent::Interface(stream, message::name(body)?.to_owned()),
            FrameKind::List => ServerEvent::List(stream, codec::text(body)?.to_owned()),
            FrameKind::Call => ServerEvent::Call(stream, self.granting(whole(body)?)?),
            FrameKind::Invoke => {
                ServerEvent::Call(stream, self.granting(CallHead::decode_on_object(body)?)?)
            }
            FrameKind::Create => ServerEvent::Create(stream, message::name(body)?.to_owned()),
            FrameKind::Fetch => ServerEvent::Fetch(stream, whole(body)?),
            FrameKind::Hold => ServerEvent::Hold(stream, whole(body)?),
            FrameKind::Vouch => {
                let (name, lifetime_ms) = whole(body)?;
                ServerEvent::Vouch(stream, name, lifetime_ms)
            }
            FrameKind::Logs => ServerEvent::Logs(stream, whole(body)?),
            _ => return self.take_within(kind, stream, body),
        };
        if !self.begin(stream)? {
            return Ok(None);
        }
        if kind == FrameKind::Create {
            self.streams.insert(stream, Stream::Object);
        }
        Ok(Some(event))
    }

    /// The head of a call, unless it asks for shared memory that this client does not get.
    fn granting(&self, head: CallHead) -> Result<CallHead, DecodeError> {
        let may = self.shares_memory || head.shared.is_empty();
        if may { Ok(head) } else { Err(DecodeError::Tag) }
    }

    /// Handles a frame that opens no stream.
    fn take_within(
        &mut self,
        kind: FrameKind,
        stream: u32,
        body: &[u8],
    ) -> Result<Option<ServerEvent>, FrameError> {
        Ok(Some(match kind {
            FrameKind::Drop => ServerEvent::Drop(codec::list(body)?),
            FrameKind::Filled => return self.filled(stream).map(|()| None),
            FrameKind::Release => {
                let number = whole(body)?;
                if !self.lent.remove(&number) {
                    return Err(FrameError::Unasked);
                }
                ServerEvent::Release(number)
            }
            FrameKind::Cancel => match self.streams.get(&stream) {
                // The stream has ended meanwhile.
                None | Some(Stream::Asked | Stream::Answered) => return Ok(None),
                Some(_) => ServerEvent::Cancel(stream),
            },
            FrameKind::CallbackReturn => return self.returned(stream, whole(body)?),
            FrameKind::Ping => {
                self.is_read()?;
                self.put(FrameKind::Pong, 0, body);
                return Ok(None);
            }
            FrameKind::Pong => return Ok(None),
            FrameKind::Listen => ServerEvent::Listen(stream),
            FrameKind::Trace => ServerEvent::Trace(stream, whole(body)?),
            FrameKind::Resources => ServerEvent::Resources(stream, whole(body)?),
            FrameKind::Ticket => {
                let (ticket, pass) = placement::shown(body)?;
                ServerEvent::Ticket(stream, ticket, pass)
            }
            _ => return Err(FrameError::Kind),
        }))
    }

    /// Handles the end of a callback.
    fn returned(
        &mut self,
        stream: u32,
        back: CallbackReturn,
    ) -> Result<Option<ServerEvent>, FrameError> {
        Ok(match (self.streams.get(&stream), &back) {
            // A call that has ended early.
            (None | Some(Stream::Ending | Stream::Answered), _) => None,
            (Some(Stream::CallingBack { .. }), CallbackReturn::Failed(_)) => {
                self.streams.insert(stream, Stream::Ending);
                Some(ServerEvent::Returned(stream, back))
            }
            (Some(Stream::CallingBack { written: true }), _) => {
                Some(ServerEvent::Returned(stream, back))
            }
            _ => return Err(FrameError::Unasked),
        })
    }

    /// Fails if too many answers are unsent: the client must read them before it sends further requests.
    fn is_read(&self) -> Result<(), ProtocolError> {
        let waiting = self.send_queue.waiting();
        if waiting > MOST_UNREAD { Err(ProtocolError::Unread(waiting)) } else { Ok(()) }
    }

    /// Opens a stream. False: too many are open. The client gets a failure, and what it sends for the stream is skipped.
    fn begin(&mut self, stream: u32) -> Result<bool, ProtocolError> {
        self.is_read()?;
        if self.streams.contains_key(&stream) {
            return Err(ProtocolError::Reused(stream));
        }
        if self.streams.len() >= self.most_streams {
            self.fail(stream, &Failure::too_many(self.most_streams));
            return Ok(false);
        }
        self.streams.insert(stream, Stream::Asked);
        Ok(true)
    }

    /// Accepts a call whose arrays have these sizes. Without arrays it is ready at once.
    pub fn accept(&mut self, stream: u32, sizes: &[ArraySize]) {
        let parts = IncomingArrays::new(sizes);
        if parts.is_complete() {
            self.goes_on(stream, ServerEvent::Ready(stream));
        } else {
            self.streams.insert(stream, Stream::Receiving { parts, filled: true });
        }
    }

    /// Accepts a call as [`Server::accept`] does, and grants it shared memory. The call is ready when the client has written
    /// its inputs there too. The client may use the memory until [`ServerEvent::Release`].
    pub fn accept_with(&mut self, stream: u32, sizes: &[ArraySize], grant: &MemoryGrant) {
        let write = |out: &mut Vec<u8>| frame::put(out, FrameKind::Grant, stream, grant);
        match grant.fresh {
            true => self.send_queue.append_with(grant.memory, write),
            false => self.send_queue.append(write),
        }
        if grant.memory != 0 {
            self.lent.insert(grant.memory);
        }
        if grant.fills() {
            let parts = IncomingArrays::new(sizes);
            self.streams.insert(stream, Stream::Receiving { parts, filled: false });
        } else {
            self.accept(stream, sizes);
        }
    }

    /// Handles FILLED: the client has written its inputs to the shared memory.
    fn filled(&mut self, stream: u32) -> Result<(), FrameError> {
        match self.streams.get_mut(&stream) {
            // A call that has ended early.
            None | Some(Stream::Asked | Stream::Ending | Stream::Answered) => {}
            Some(Stream::Receiving { parts, filled }) if !*filled => {
                *filled = true;
                if parts.is_complete() {
                    self.goes_on(stream, ServerEvent::Ready(stream));
                }
            }
            Some(_) => return Err(FrameError::Unasked),
        }
        Ok(())
    }

    /// Ends a stream with a failure. The driver may free the stream's arrays at once, unless [`SendQueue::refers`] to it. Then
    /// it waits until [`SendQueue::written`] reports the stream, and calls [`Server::ended`].
    pub fn fail(&mut self, stream: u32, failure: &Failure) {
        if self.send_queue.stop(stream) {
            // The number is in use until the queued data is written.
            self.streams.insert(stream, Stream::Answered);
        } else {
            self.streams.remove(&stream);
        }
        self.coming.forget(stream);
        let of_stream = |event: &ServerEvent| matches!(event, ServerEvent::Ready(other) | ServerEvent::ReturnReady(other) if *other == stream);
        self.ready.retain(|event| !of_stream(event));
        self.put(FrameKind::Error, stream, failure);
    }

    /// Answers with a result and arrays of these sizes, or with a failure if the head is too long for a frame.
    /// [`SendQueue::written`] reports the stream when all is written. Then the driver calls [`Server::ended`].
    pub fn finish(&mut self, stream: u32, head: &ResultHead, sizes: &[ArraySize]) {
        let mut body = Vec::new();
        head.encode(&mut body);
        if body.len() > MOST_ANSWER {
            let text = "the routine has run, but its texts are too long to be sent";
            let length = i64::try_from(body.len()).unwrap_or(i64::MAX);
            self.fail(stream, &Failure::new(Code::Protocol, length, text));
            self.send_queue.send(stream, &[]);
            return;
        }
        self.put(FrameKind::Result, stream, &body[..]);
        self.streams.insert(stream, Stream::Answered);
        self.send_queue.send(stream, sizes);
    }

    /// Notes that the result of a stream is written. Its number may be used again.
    pub fn ended(&mut self, stream: u32) {
        match self.streams.get_mut(&stream) {
            Some(Stream::Answered) => {
                self.streams.remove(&stream);
            }
            Some(Stream::CallingBack { written }) => *written = true,
            _ => {}
        }
    }

    /// Sends a callback with arrays of these sizes. [`SendQueue::written`] reports the stream when they are written. Then the
    /// driver calls [`Server::ended`]. False: nothing is sent, because the head is too long for a frame or the call does not
    /// run.
    #[must_use]
    pub fn callback(&mut self, stream: u32, head: &CallbackHead, sizes: &[ArraySize]) -> bool {
        let mut body = Vec::new();
        head.encode(&mut body);
        if body.len() > MOST_ANSWER || !matches!(self.streams.get(&stream), Some(Stream::Running)) {
            return false;
        }
        self.put(FrameKind::Callback, stream, &body[..]);
        self.streams.insert(stream, Stream::CallingBack { written: false });
        self.send_queue.send(stream, sizes);
        true
    }

    /// Accepts the return of a callback with arrays of these sizes. Without arrays it is ready at once.
    pub fn accept_return(&mut self, stream: u32, sizes: &[ArraySize]) {
        let parts = IncomingArrays::new(sizes);
        if parts.is_complete() {
            self.goes_on(stream, ServerEvent::ReturnReady(stream));
        } else {
            self.streams.insert(stream, Stream::Returning(parts));
        }
    }

    /// Refuses the return of a callback, and skips what still arrives for the call. The driver has to end the call.
    pub fn refuse_return(&mut self, stream: u32) {
        if let Some(state @ Stream::CallingBack { .. }) = self.streams.get_mut(&stream) {
            *state = Stream::Ending;
        }
    }

    /// Closes the connection with a failure, because the server is shutting down.
    pub fn end(&mut self, failure: &Failure) {
        self.put(FrameKind::Error, 0, failure);
    }
}
