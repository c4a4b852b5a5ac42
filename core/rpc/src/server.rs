//! A connection as its server sees it.

use crate::callback::{CallbackHead, CallbackReturn};
use crate::codec::{Cursor, DecodeError};
use crate::frame::{self, FrameKind, HEADER, Header, ReadingEnd};
use crate::frame_reader::{ArrayPosition, IncomingChunk, RawFrame, Step, raw};
use crate::held_array::{self, FetchRequest, HeldArrayName};
use crate::hello::{ClientHello, LocalEndpoint, Role, ServerHello, VERSIONS, VoucherSupport};
use crate::incoming_arrays::{ArraySize, IncomingArrays};
use crate::message::{self, CallHead, Code, Failure, ResultHead};
use crate::placement::{self, Ticket};
use crate::send_queue::SendQueue;
use crate::shared_memory::MemoryGrant;
use crate::{MOST_ANSWER, MOST_UNREAD, ProtocolError};
use alloc::borrow::ToOwned;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// What a client wants.
#[derive(Debug, PartialEq)]
pub enum ServerEvent {
    /// It has said who it is; [`Server::welcome`] or [`Server::refuse`] answers.
    Hello(ClientHello),
    /// A description; [`Server::describe`] or [`Server::fail`] answers.
    Interface(u32, String),
    /// Names; [`Server::names`] answers.
    List(u32, String),
    /// A call begins; [`Server::accept`] takes it, [`Server::fail`] refuses it.
    Call(u32, CallHead),
    /// All arrays of a call have come.
    Ready(u32),
    /// A call is to end; [`Server::fail`] answers when it has.
    Cancel(u32),
    /// A function of the client has ended; [`Server::accept_return`] takes what it returns.
    Returned(u32, CallbackReturn),
    /// All arrays that a function of the client returns have come.
    Back(u32),
    /// A metaserver has sent the call that directly follows.
    Ticket(u32, Ticket, String),
    /// Bytes of a held array; [`Server::finish`] with one array, of parameter 0, or [`Server::fail`] answers.
    Fetch(u32, FetchRequest),
    /// These arrays are to be held no longer.
    Drop(Vec<HeldArrayName>),
    /// The client touches a memory no more that it was granted.
    Release(u32),
    /// An object of this class; [`Server::created`] says that it is there, [`Server::fail`] that it cannot be, or is no more.
    /// It ends with [`ServerEvent::Cancel`].
    Create(u32, String),
    /// A voucher for a held array, good for so many milliseconds; [`Server::send_voucher`] or [`Server::fail`] answers.
    Vouch(u32, HeldArrayName, u32),
}

/// What a stream waits for.
#[derive(Debug)]
enum Stream {
    /// An answer of the driver's.
    Asked,
    /// Its end: it is an object, there or about to be.
    Object,
    /// Arrays, and that the client says that it has filled the call's memory.
    Receiving { parts: IncomingArrays, filled: bool },
    /// The routine.
    Running,
    /// A function of the client: to be called, while its arrays are written, and then to end.
    Called { written: bool },
    /// Arrays that a function of the client returns.
    Returning(IncomingArrays),
    /// Its end, which is to come: what still comes is skipped.
    Ending,
    /// Its result to be written.
    Answered,
}

/// The state of a connection at its server. After an error nothing more is read; what [`Server::outbox`] has left says why.
#[derive(Debug)]
pub struct Server {
    greeted: bool,
    most_streams: usize,
    streams: BTreeMap<u32, Stream>,
    coming: IncomingChunk,
    /// Streams of which all arrays have come that were to come.
    ready: VecDeque<ServerEvent>,
    outbox: SendQueue,
    /// Whether the client is given the memory of its calls.
    shares_memory: bool,
    local: Option<LocalEndpoint>,
    /// Who fetches this client's arrays has to show a voucher.
    wants_vouchers: bool,
    /// Memories that the client may touch.
    lent: BTreeSet<u32>,
}

/// A frame's body cannot be read.
fn in_body(header: Header, why: DecodeError) -> ProtocolError {
    ProtocolError::Body { kind: header.kind.map_or(0, |kind| kind as u8), why }
}

impl Server {
    /// A connection on which nothing has come, with at most so many streams at once.
    #[must_use]
    pub fn new(most_streams: usize) -> Server {
        Server {
            greeted: false,
            most_streams,
            streams: BTreeMap::new(),
            coming: IncomingChunk::default(),
            ready: VecDeque::new(),
            outbox: SendQueue::default(),
            shares_memory: false,
            local: None,
            wants_vouchers: false,
            lent: BTreeSet::new(),
        }
    }

    /// Before [`Server::welcome`]: whether the client is told that it is given the memory of its calls, and where it
    /// finds the server on its machine.
    pub fn offer(&mut self, shares_memory: bool, local: Option<LocalEndpoint>) {
        (self.shares_memory, self.local) = (shares_memory, local);
    }

    /// Before [`Server::welcome`]: whether who fetches arrays of this client has to show a voucher.
    pub fn want_vouchers(&mut self, wants: bool) {
        self.wants_vouchers = wants;
    }

    /// What is to be written.
    pub fn outbox(&mut self) -> &mut SendQueue {
        &mut self.outbox
    }

    /// Looks at what has come and is not done with.
    ///
    /// # Errors
    /// The client broke the protocol; it is told.
    pub fn step(&mut self, input: &[u8]) -> Result<Step<ServerEvent>, ProtocolError> {
        let step = self.look(input);
        if let Err(error) = &step {
            let failure = Failure::new(Code::Protocol, 0, error.to_string());
            if self.greeted {
                self.put(FrameKind::Error, 0, |out| failure.encode(out));
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
            RawFrame::Frame(header, body) => {
                let event = self.take(header, body)?;
                Ok(Step::Event(HEADER + header.length, event))
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

    /// Takes the client in, in the highest version that both speak. False: there is none, and it has been told so.
    pub fn welcome(&mut self, client: &ClientHello, name: &str, most_bytes: u64) -> bool {
        let Some(version) = client.common(&VERSIONS) else {
            self.refuse(Failure::version(*VERSIONS.end()));
            return false;
        };
        let streams = u32::try_from(self.most_streams).unwrap_or(u32::MAX);
        let hello = ServerHello {
            version: Ok(version),
            highest: *VERSIONS.end(),
            name: name.to_owned(),
            streams,
            bytes: most_bytes,
            role: Role::Server,
            shares_memory: self.shares_memory,
            local: self.local,
            vouchers: if self.wants_vouchers {
                VoucherSupport::Wanted
            } else {
                VoucherSupport::Known
            },
        };
        self.outbox.append(|out| out.extend_from_slice(&hello.encode()));
        true
    }

    /// Does not take the client in; nothing more is read.
    pub fn refuse(&mut self, failure: Failure) {
        let hello = ServerHello {
            version: Err(failure),
            highest: *VERSIONS.end(),
            name: String::new(),
            streams: 0,
            bytes: 0,
            role: Role::Server,
            shares_memory: false,
            local: None,
            vouchers: VoucherSupport::Unknown,
        };
        self.outbox.append(|out| out.extend_from_slice(&hello.encode()));
    }

    fn put(&mut self, kind: FrameKind, stream: u32, write: impl FnOnce(&mut Vec<u8>)) {
        self.outbox.append(|out| frame::put(out, kind, stream, write));
    }

    /// Where the bytes of a chunk belong.
    fn place(&self, header: Header) -> Result<Option<ArrayPosition>, ProtocolError> {
        let Header { stream, argument, length, kind } = header;
        let excess = ProtocolError::Excess { stream, argument };
        match (kind, self.streams.get(&stream)) {
            // An extension, or a call that has ended early.
            (None, _) | (_, None | Some(Stream::Asked | Stream::Ending | Stream::Answered)) => {
                Ok(None)
            }
            (_, Some(Stream::Running | Stream::Called { .. } | Stream::Object)) => Err(excess),
            (_, Some(Stream::Receiving { parts, .. } | Stream::Returning(parts))) => {
                let offset = parts.offset(argument, length as u64).ok_or(excess)?;
                Ok(Some(ArrayPosition { stream, argument, offset }))
            }
        }
    }

    /// Notes that so many bytes of the chunk have been put where they belong.
    pub fn placed(&mut self, count: usize) {
        let Some(place) = self.coming.placed(count) else { return };
        let (parts, filled, event) = match self.streams.get_mut(&place.stream) {
            Some(Stream::Receiving { parts, filled }) => {
                (parts, *filled, ServerEvent::Ready(place.stream))
            }
            Some(Stream::Returning(parts)) => (parts, true, ServerEvent::Back(place.stream)),
            _ => return,
        };
        parts.add(place.argument, count as u64);
        if parts.is_complete() && filled {
            self.streams.insert(place.stream, Stream::Running);
            self.ready.push_back(event);
        }
    }

    fn take(&mut self, header: Header, body: &[u8]) -> Result<Option<ServerEvent>, ProtocolError> {
        let Header { stream, kind, .. } = header;
        let kind = kind.unwrap_or(FrameKind::Error);
        let malformed = |why| ProtocolError::Body { kind: kind as u8, why };
        Ok(match kind {
            FrameKind::Interface => {
                let name = message::name(body).map_err(malformed)?.to_owned();
                self.begin(stream)?.then_some(ServerEvent::Interface(stream, name))
            }
            FrameKind::List => {
                let part = core::str::from_utf8(body);
                let part = part.map_err(|_| malformed(DecodeError::Text))?.to_owned();
                self.begin(stream)?.then_some(ServerEvent::List(stream, part))
            }
            FrameKind::Call => self.call(header, CallHead::decode(body))?,
            FrameKind::Invoke => self.call(header, CallHead::decode_on_object(body))?,
            FrameKind::Create => self.create(header, message::name(body))?,
            FrameKind::Fetch => {
                let head = FetchRequest::decode(body).map_err(malformed)?;
                self.begin(stream)?.then_some(ServerEvent::Fetch(stream, head))
            }
            FrameKind::Vouch => {
                let (name, lifetime_ms) = held_array::take_wish(body).map_err(malformed)?;
                self.begin(stream)?.then_some(ServerEvent::Vouch(stream, name, lifetime_ms))
            }
            FrameKind::Drop => {
                Some(ServerEvent::Drop(held_array::take_names(body).map_err(malformed)?))
            }
            FrameKind::Filled => {
                self.filled(stream)?;
                None
            }
            FrameKind::Release => {
                let number = Cursor::new(body).u32().map_err(malformed)?;
                if !self.lent.remove(&number) {
                    return Err(ProtocolError::Unasked { kind: kind as u8, stream });
                }
                Some(ServerEvent::Release(number))
            }
            // Of a stream that has ended meanwhile it says nothing.
            FrameKind::Cancel => match self.streams.get(&stream) {
                None | Some(Stream::Asked | Stream::Answered) => None,
                Some(_) => Some(ServerEvent::Cancel(stream)),
            },
            FrameKind::CallbackReturn => {
                let back = CallbackReturn::decode(body).map_err(malformed)?;
                self.returned(stream, back)?
            }
            FrameKind::Ping => {
                self.is_read()?;
                self.put(FrameKind::Pong, 0, |out| out.extend_from_slice(body));
                None
            }
            FrameKind::Pong => None,
            FrameKind::Ticket => {
                let (ticket, pass) = placement::shown(body).map_err(malformed)?;
                Some(ServerEvent::Ticket(stream, ticket, pass))
            }
            _ => return Err(ProtocolError::Kind(kind as u8)),
        })
    }

    /// A call begins.
    fn call(
        &mut self,
        header: Header,
        head: Result<CallHead, DecodeError>,
    ) -> Result<Option<ServerEvent>, ProtocolError> {
        let head = head.map_err(|why| in_body(header, why))?;
        if !(self.shares_memory || head.shared.is_empty()) {
            return Err(in_body(header, DecodeError::Tag));
        }
        Ok(self.begin(header.stream)?.then_some(ServerEvent::Call(header.stream, head)))
    }

    /// An object is to be made.
    fn create(
        &mut self,
        header: Header,
        class: Result<&str, DecodeError>,
    ) -> Result<Option<ServerEvent>, ProtocolError> {
        let class = class.map_err(|why| in_body(header, why))?.to_owned();
        if !self.begin(header.stream)? {
            return Ok(None);
        }
        self.streams.insert(header.stream, Stream::Object);
        Ok(Some(ServerEvent::Create(header.stream, class)))
    }

    /// A function of the client has ended.
    fn returned(
        &mut self,
        stream: u32,
        back: CallbackReturn,
    ) -> Result<Option<ServerEvent>, ProtocolError> {
        let unasked = ProtocolError::Unasked { kind: FrameKind::CallbackReturn as u8, stream };
        Ok(match (self.streams.get(&stream), &back) {
            // A call that has ended early.
            (None | Some(Stream::Ending | Stream::Answered), _) => None,
            (Some(Stream::Called { .. }), CallbackReturn::Failed(_)) => {
                self.streams.insert(stream, Stream::Ending);
                Some(ServerEvent::Returned(stream, back))
            }
            (Some(Stream::Called { written: true }), _) => {
                Some(ServerEvent::Returned(stream, back))
            }
            _ => return Err(unasked),
        })
    }

    /// Whether the client reads what it is answered: it may not ask for more as long as too much of that waits.
    fn is_read(&self) -> Result<(), ProtocolError> {
        let waiting = self.outbox.waiting();
        if waiting > MOST_UNREAD { Err(ProtocolError::Unread(waiting)) } else { Ok(()) }
    }

    /// Begins a stream. False: it is one too many, and the client is told; what it sends for it is skipped.
    fn begin(&mut self, stream: u32) -> Result<bool, ProtocolError> {
        self.is_read()?;
        if self.streams.contains_key(&stream) {
            return Err(ProtocolError::Reused(stream));
        }
        if self.streams.len() >= self.most_streams {
            let most = self.most_streams;
            let text = format!("too many calls at once on this connection: {most} may be open");
            let most = i64::try_from(most).unwrap_or(i64::MAX);
            self.fail(stream, &Failure::new(Code::Busy, most, text));
            return Ok(false);
        }
        self.streams.insert(stream, Stream::Asked);
        Ok(true)
    }

    /// Tells the client that its object is there, unless that has ended meanwhile.
    pub fn created(&mut self, stream: u32) {
        if matches!(self.streams.get(&stream), Some(Stream::Object)) {
            self.put(FrameKind::Created, stream, |_| {});
        }
    }

    /// Takes a call whose arrays have these sizes. If nothing is to come it is ready at once.
    pub fn accept(&mut self, stream: u32, sizes: &[ArraySize]) {
        let parts = IncomingArrays::new(sizes);
        if parts.is_complete() {
            self.streams.insert(stream, Stream::Running);
            self.ready.push_back(ServerEvent::Ready(stream));
        } else {
            self.streams.insert(stream, Stream::Receiving { parts, filled: true });
        }
    }

    /// [`Server::accept`], of a call that asks for memory: tells the client what it is granted. It is ready when the client
    /// has put there what it is to put there too; that memory is the client's to touch until [`ServerEvent::Release`].
    pub fn accept_with(&mut self, stream: u32, sizes: &[ArraySize], grant: &MemoryGrant) {
        let write = |out: &mut Vec<u8>| {
            frame::put(out, FrameKind::Grant, stream, |out| grant.encode(out));
        };
        match grant.fresh {
            true => self.outbox.append_with(grant.memory, write),
            false => self.outbox.append(write),
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

    /// The client has put into a call's memory what belongs there.
    fn filled(&mut self, stream: u32) -> Result<(), ProtocolError> {
        match self.streams.get_mut(&stream) {
            // A call that has ended early.
            None | Some(Stream::Asked | Stream::Ending | Stream::Answered) => {}
            Some(Stream::Receiving { parts, filled }) if !*filled => {
                *filled = true;
                if parts.is_complete() {
                    self.streams.insert(stream, Stream::Running);
                    self.ready.push_back(ServerEvent::Ready(stream));
                }
            }
            Some(_) => {
                return Err(ProtocolError::Unasked { kind: FrameKind::Filled as u8, stream });
            }
        }
        Ok(())
    }

    /// Answers with a description. One that is too long for a frame is a failure.
    pub fn describe(&mut self, stream: u32, hash: u64, json: &str) {
        if json.len() + 8 > MOST_ANSWER {
            let text = "the description is too long to be sent";
            self.fail(stream, &Failure::new(Code::TooLarge, json.len() as i64, text));
            return;
        }
        self.streams.remove(&stream);
        self.put(FrameKind::Description, stream, |out| {
            out.extend_from_slice(&hash.to_le_bytes());
            out.extend_from_slice(json.as_bytes());
        });
    }

    /// Answers with names, as many as fit.
    pub fn names<'a>(&mut self, stream: u32, names: impl IntoIterator<Item = &'a str>) {
        self.streams.remove(&stream);
        self.put(FrameKind::Names, stream, |out| message::put_names(out, names));
    }

    /// Answers with a voucher.
    pub fn send_voucher(&mut self, stream: u32, voucher: &str) {
        self.streams.remove(&stream);
        self.put(FrameKind::Voucher, stream, |out| out.extend_from_slice(voucher.as_bytes()));
    }

    /// Ends a stream with a failure. What its driver holds for it may go at once, unless [`SendQueue::refers`] to it:
    /// then [`SendQueue::written`] tells when, and [`Server::ended`] is to be called.
    pub fn fail(&mut self, stream: u32, failure: &Failure) {
        if self.outbox.stop(stream) {
            // The number is in use until what is decided on is written.
            self.streams.insert(stream, Stream::Answered);
        } else {
            self.streams.remove(&stream);
        }
        self.coming.forget(stream);
        let of_stream = |event: &ServerEvent| matches!(event, ServerEvent::Ready(other) | ServerEvent::Back(other) if *other == stream);
        self.ready.retain(|event| !of_stream(event));
        self.put(FrameKind::Error, stream, |out| failure.encode(out));
    }

    /// Answers with a result, and arrays of these sizes. [`SendQueue::written`] tells when all is written;
    /// then [`Server::ended`] is to be called. A head that is too long for a frame is a failure instead, of which
    /// [`SendQueue::written`] tells too.
    pub fn finish(&mut self, stream: u32, head: &ResultHead, sizes: &[ArraySize]) {
        let mut body = Vec::new();
        head.encode(&mut body);
        if body.len() > MOST_ANSWER {
            let text = "the routine has run, but its texts are too long to be sent";
            let length = i64::try_from(body.len()).unwrap_or(i64::MAX);
            self.fail(stream, &Failure::new(Code::Protocol, length, text));
            self.outbox.send(stream, &[]);
            return;
        }
        self.put(FrameKind::Result, stream, |out| out.extend_from_slice(&body));
        self.streams.insert(stream, Stream::Answered);
        self.outbox.send(stream, sizes);
    }

    /// The result of a stream is written: its number may be used again.
    pub fn ended(&mut self, stream: u32) {
        match self.streams.get_mut(&stream) {
            Some(Stream::Answered) => {
                self.streams.remove(&stream);
            }
            Some(Stream::Called { written }) => *written = true,
            _ => {}
        }
    }

    /// Has the client call a function of its, with arrays of these sizes. [`SendQueue::written`] tells when they are
    /// written; then [`Server::ended`] is to be called. False: the head is too long for a frame, or the call does not
    /// run; nothing is sent.
    #[must_use]
    pub fn callback(&mut self, stream: u32, head: &CallbackHead, sizes: &[ArraySize]) -> bool {
        let mut body = Vec::new();
        head.encode(&mut body);
        if body.len() > MOST_ANSWER || !matches!(self.streams.get(&stream), Some(Stream::Running)) {
            return false;
        }
        self.put(FrameKind::Callback, stream, |out| out.extend_from_slice(&body));
        self.streams.insert(stream, Stream::Called { written: false });
        self.outbox.send(stream, sizes);
        true
    }

    /// Takes arrays of these sizes from a function that has returned. If nothing is to come they are there at once.
    pub fn accept_return(&mut self, stream: u32, sizes: &[ArraySize]) {
        let parts = IncomingArrays::new(sizes);
        if parts.is_complete() {
            self.streams.insert(stream, Stream::Running);
            self.ready.push_back(ServerEvent::Back(stream));
        } else {
            self.streams.insert(stream, Stream::Returning(parts));
        }
    }

    /// What a function has returned does not fit: of its call nothing more is taken. Its end is for the driver to tell.
    pub fn refuse_return(&mut self, stream: u32) {
        if let Some(state @ Stream::Called { .. }) = self.streams.get_mut(&stream) {
            *state = Stream::Ending;
        }
    }

    /// Tells the client why nothing more comes: the server ends.
    pub fn end(&mut self, failure: &Failure) {
        self.put(FrameKind::Error, 0, |out| failure.encode(out));
    }
}
