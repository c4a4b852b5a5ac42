//! State machine of the client end of a connection.

mod answers;
mod memory_grant;
mod metadata;

pub use metadata::CallMetadata;

use crate::callback::{CallbackHead, CallbackReturn};
use crate::codec::Encode;
use crate::frame::{self, FrameKind, HEADER, Header, ReadingEnd};
use crate::frame_reader::{ArrayPosition, IncomingChunk, RawFrame, Step, raw};
use crate::held_array::{FetchRequest, HeldArrayName, HoldRequest};
use crate::hello::{ServerHello, VERSIONS};
use crate::incoming_arrays::{ArraySize, IncomingArrays};
use crate::log_request::LogRequest;
use crate::message::{self, CallHead, Failure, ResultHead};
use crate::placement::{AttemptReport, Placement, PlacementRequest, Ticket, TicketReason};
use crate::shared_memory::{MemoryGrant, SharedDirections};
use crate::{MOST_REQUEST, ProtocolError};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// An event at the client: an answer of the server or metaserver.
#[derive(Debug, PartialEq)]
pub enum ClientEvent {
    /// The server's hello, which accepts or refuses this client.
    Hello(ServerHello),
    /// A description with its hash; the stream has ended.
    Description(u32, u64, String),
    /// Names of routines; the stream has ended.
    Names(u32, Vec<String>),
    /// The head of a result; its arrays follow.
    Result(u32, ResultHead),
    /// All arrays of a result have arrived; the stream has ended.
    Done(u32),
    /// A failure; the stream has ended.
    Failed(u32, Failure),
    /// The server closes the connection, for this reason.
    Ended(Failure),
    /// The answer to [`Client::ping`].
    Pong,
    /// The routine calls a function of the client, and its arrays follow. Answer with [`Client::accept_callback`] or
    /// [`Client::refuse_callback`].
    Callback(u32, CallbackHead),
    /// All arrays of the callback have arrived. [`Client::callback_return`] answers it.
    CallbackReady(u32),
    /// The metaserver has placed a call; the stream stays open.
    Placed(u32, Placement),
    /// The metaserver has closed a placed call; the stream has ended.
    Closed(u32),
    /// A metaserver's state, or logs of calls, as JSON; the stream has ended.
    State(u32, String),
    /// The server has granted a call shared memory, possibly a call that was abandoned. [`Client::filled`] reports that the
    /// inputs are written, if there are any; [`Client::release`] gives the memory back.
    Granted(u32, MemoryGrant),
    /// An object exists; the stream stays open as long as it does.
    Created(u32),
    /// A voucher; the stream has ended.
    Voucher(u32, String),
    /// What the routine of a call has printed, and whether it has printed more than the server passes on.
    Output(u32, Vec<u8>, bool),
}

#[derive(Debug)]
enum Stream {
    Interface,
    List,
    Call(Call),
    Place,
    Status,
    Vouch,
    /// An object; whether it exists already.
    Object(bool),
}

#[derive(Debug, Default)]
struct Call {
    /// The arrays that come back.
    parts: IncomingArrays,
    /// Whether the head of the result has arrived.
    begun: bool,
    /// The state of the callback.
    back: CallbackState,
    /// Parameters that come back as files.
    files: Vec<u16>,
    /// Whether it runs a routine, which may call functions; fetching an array does not.
    runs: bool,
    /// Whether what the routine prints is wanted.
    listens: bool,
    /// The arrays for which shared memory was requested, until the answer.
    asked: Option<Vec<(u16, SharedDirections)>>,
    /// The results among those.
    shared: Vec<ArraySize>,
}

impl Call {
    /// Adds a file of this size to the arrays that come back.
    fn file(&mut self, stream: u32, argument: u16, bytes: u64) -> Result<(), ProtocolError> {
        let expected = self.files.iter().position(|file| *file == argument);
        let expected = expected.ok_or(ProtocolError::Excess { stream, argument })?;
        self.files.swap_remove(expected);
        self.parts.push(ArraySize { argument, bytes });
        Ok(())
    }
}

/// State of the callback of a call.
#[derive(Debug, Default)]
enum CallbackState {
    /// No callback.
    #[default]
    None,
    /// The driver has to accept or refuse it.
    Asked,
    /// Its arrays are arriving.
    Coming(IncomingArrays),
    /// It is refused: its arrays are skipped.
    Refused,
    /// The function runs.
    Runs,
}

/// The client end of a connection: the open requests.
///
/// The driver orders the output: heads from [`Client::call`] and the like, then chunks ([`crate::chunks`]) in any order.
#[derive(Debug, Default)]
pub struct Client {
    greeted: bool,
    next: u32,
    /// The open requests, and whether somebody waits for each.
    streams: BTreeMap<u32, (Stream, bool)>,
    coming: IncomingChunk,
    done: Option<u32>,
    /// The stream of a callback whose arrays have all arrived.
    called: Option<u32>,
    /// Calls whose request for shared memory is not answered.
    pending_grants: usize,
    pings: Vec<[u8; 8]>,
}

/// A request that every server would refuse: its head is too long, or a name is empty, too long or has control characters.
/// It is not sent. The number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestTooLong(pub usize);

/// Inserts the metaserver's ticket for the request on the stream, which `out` has from byte `at` on.
fn show(placed: Option<&Placement>, stream: u32, at: usize, out: &mut Vec<u8>) {
    if let Some(Placement { ticket, pass, .. }) = placed {
        frame::insert(out, at, FrameKind::Ticket, stream, (ticket, pass.as_bytes()));
    }
}

/// Takes back the frame from byte `before` on if it is longer than servers accept.
fn bounded(before: usize, out: &mut Vec<u8>) -> Result<(), RequestTooLong> {
    let length = out.len() - before - HEADER;
    if length > MOST_REQUEST {
        out.truncate(before);
        return Err(RequestTooLong(length));
    }
    Ok(())
}

/// Checks that something can have this name.
fn named(name: &str) -> Result<&[u8], RequestTooLong> {
    message::name(name.as_bytes()).map(str::as_bytes).map_err(|_| RequestTooLong(name.len()))
}

/// Most pings that wait for an answer.
const MOST_PINGS: usize = 16;

impl Client {
    /// A connection on which nothing has arrived.
    #[must_use]
    pub fn new() -> Client {
        Client::default()
    }

    /// A stream number that is not in use.
    fn fresh(&mut self) -> u32 {
        loop {
            self.next = self.next.wrapping_add(1);
            if self.next != 0 && !self.streams.contains_key(&self.next) {
                return self.next;
            }
        }
    }

    /// Appends a request, and returns its stream.
    fn request(
        &mut self,
        kind: FrameKind,
        body: impl Encode,
        state: Stream,
        out: &mut Vec<u8>,
    ) -> u32 {
        let stream = self.fresh();
        frame::put(out, kind, stream, body);
        self.streams.insert(stream, (state, true));
        stream
    }

    /// Appends a request for a description, and returns its stream.
    ///
    /// # Errors
    /// No routine can have this name. Nothing is appended.
    pub fn interface(&mut self, routine: &str, out: &mut Vec<u8>) -> Result<u32, RequestTooLong> {
        Ok(self.request(FrameKind::Interface, named(routine)?, Stream::Interface, out))
    }

    /// Appends a request for names that contain `part`, and returns its stream.
    ///
    /// # Errors
    /// `part` is longer than servers accept. Nothing is appended.
    pub fn list(&mut self, part: &str, out: &mut Vec<u8>) -> Result<u32, RequestTooLong> {
        if part.len() > MOST_REQUEST {
            return Err(RequestTooLong(part.len()));
        }
        Ok(self.request(FrameKind::List, part.as_bytes(), Stream::List, out))
    }

    /// Appends the head of a call, and returns its stream. Arrays of `results` sizes will come back.
    ///
    /// # Errors
    /// The head is longer than servers accept, or no routine can have this name. Nothing is appended.
    pub fn call(
        &mut self,
        head: &CallHead,
        results: &[ArraySize],
        out: &mut Vec<u8>,
    ) -> Result<u32, RequestTooLong> {
        named(&head.routine)?;
        let before = out.len();
        let stream = self.fresh();
        match head.object {
            0 => frame::put(out, FrameKind::Call, stream, head),
            object => frame::put(out, FrameKind::Invoke, stream, (object, head)),
        }
        bounded(before, out)?;
        let call = self.new_call(head, results);
        self.streams.insert(stream, (Stream::Call(call), true));
        Ok(stream)
    }

    /// Appends a call as [`Client::call`] does, after the ticket and pass of the metaserver that placed it.
    ///
    /// # Errors
    /// As of [`Client::call`]. Nothing is appended.
    pub fn call_with(
        &mut self,
        placed: Option<&Placement>,
        head: &CallHead,
        results: &[ArraySize],
        out: &mut Vec<u8>,
    ) -> Result<u32, RequestTooLong> {
        let at = out.len();
        let stream = self.call(head, results, out)?;
        show(placed, stream, at, out);
        Ok(stream)
    }

    /// Requests an object as [`Client::create`] does, after the ticket and pass of the metaserver that placed it.
    ///
    /// # Errors
    /// No class can have this name. Nothing is appended.
    pub fn create_with(
        &mut self,
        placed: Option<&Placement>,
        class: &str,
        out: &mut Vec<u8>,
    ) -> Result<u32, RequestTooLong> {
        let at = out.len();
        let stream = self.create(class, out)?;
        show(placed, stream, at, out);
        Ok(stream)
    }

    /// Appends a request for an object of a class, and returns its stream, by which calls name the object.
    /// [`Client::cancel`] ends the object.
    ///
    /// # Errors
    /// No class can have this name. Nothing is appended.
    pub fn create(&mut self, class: &str, out: &mut Vec<u8>) -> Result<u32, RequestTooLong> {
        Ok(self.request(FrameKind::Create, named(class)?, Stream::Object(false), out))
    }

    /// Appends a request to place a call, and returns its stream.
    ///
    /// # Errors
    /// No routine can have this name. Nothing is appended.
    pub fn request_placement(
        &mut self,
        place: &PlacementRequest,
        out: &mut Vec<u8>,
    ) -> Result<u32, RequestTooLong> {
        named(&place.routine)?;
        Ok(self.request(FrameKind::Place, place, Stream::Place, out))
    }

    /// Appends the report on an attempt, on the stream of its call, or on stream 0 if another connection placed the call.
    pub fn report_attempt(&mut self, stream: u32, over: &AttemptReport, out: &mut Vec<u8>) {
        frame::put(out, FrameKind::AttemptReport, stream, over);
    }

    /// Appends why an attempt failed, on the stream of its call, before the report. Older metaservers skip it.
    pub fn attempt_reason(&mut self, stream: u32, ticket: Ticket, text: &str, out: &mut Vec<u8>) {
        if !text.is_empty() {
            frame::put(out, FrameKind::AttemptReason, stream, TicketReason(ticket, text));
        }
    }

    /// Appends a request for the metaserver's state, and returns its stream.
    pub fn status(&mut self, out: &mut Vec<u8>) -> u32 {
        self.request(FrameKind::Status, (), Stream::Status, out)
    }

    /// Appends a request for logs of calls, and returns its stream. The answer is a state. Only servers and metaservers whose
    /// hello mentions logs know this request.
    pub fn logs(&mut self, request: &LogRequest, out: &mut Vec<u8>) -> u32 {
        self.request(FrameKind::Logs, request, Stream::Status, out)
    }

    /// Appends a request for bytes of a held array, and returns its stream. They arrive as a result with one array, of
    /// parameter 0.
    pub fn fetch(&mut self, head: &FetchRequest, out: &mut Vec<u8>) -> u32 {
        let parts = IncomingArrays::new(&[ArraySize { argument: 0, bytes: head.length }]);
        let call = Call { parts, ..Call::default() };
        self.request(FrameKind::Fetch, head, Stream::Call(call), out)
    }

    /// Appends a request to hold an array, and returns its stream. The array's bytes have to follow as chunks of parameter 0.
    /// The answer is a result without values. Only a server whose hello mentions it knows this request.
    pub fn hold(&mut self, head: &HoldRequest, out: &mut Vec<u8>) -> u32 {
        self.request(FrameKind::Hold, head, Stream::Call(Call::default()), out)
    }

    /// Appends a request for a voucher for a held array, valid for this many milliseconds, and returns its stream. Only a server
    /// whose hello mentions vouchers knows this request.
    pub fn request_voucher(
        &mut self,
        name: HeldArrayName,
        lifetime_ms: u32,
        out: &mut Vec<u8>,
    ) -> u32 {
        self.request(FrameKind::Vouch, (name, lifetime_ms), Stream::Vouch, out)
    }

    /// Appends the release of held arrays, which has no answer.
    pub fn drop_held(&mut self, names: &[HeldArrayName], out: &mut Vec<u8>) {
        for names in names.chunks(MOST_REQUEST / HeldArrayName::LENGTH) {
            frame::put(out, FrameKind::Drop, 0, names);
        }
    }

    /// Appends the cancellation of a request. Its answer still arrives.
    pub fn cancel(&mut self, stream: u32, out: &mut Vec<u8>) {
        if self.streams.contains_key(&stream) {
            frame::put(out, FrameKind::Cancel, stream, ());
        }
    }

    /// Appends a ping.
    pub fn ping(&mut self, out: &mut Vec<u8>) {
        frame::put(out, FrameKind::Ping, 0, [0; 8]);
    }

    /// Appends answers to the server's pings.
    pub fn answer_pings(&mut self, out: &mut Vec<u8>) {
        for ping in self.pings.drain(..) {
            frame::put(out, FrameKind::Pong, 0, ping);
        }
    }

    /// Announces that files come back in these parameters of a call. Their lengths arrive with the result; the driver limits
    /// their size.
    pub fn expect_files(&mut self, stream: u32, files: Vec<u16>) {
        if let Some((Stream::Call(call), _)) = self.streams.get_mut(&stream) {
            call.files = files;
        }
    }

    /// Accepts a callback with arrays of these sizes. Without arrays it is ready at once.
    pub fn accept_callback(&mut self, stream: u32, sizes: &[ArraySize]) {
        if let Some((Stream::Call(call), _)) = self.streams.get_mut(&stream)
            && matches!(call.back, CallbackState::Asked)
        {
            let parts = IncomingArrays::new(sizes);
            if parts.is_complete() {
                call.back = CallbackState::Runs;
                self.called = Some(stream);
            } else {
                call.back = CallbackState::Coming(parts);
            }
        }
    }

    /// Refuses a callback and skips its arrays. [`Client::callback_return`] gives the reason.
    pub fn refuse_callback(&mut self, stream: u32) {
        if let Some((Stream::Call(call), _)) = self.streams.get_mut(&stream)
            && matches!(call.back, CallbackState::Asked)
        {
            call.back = CallbackState::Refused;
        }
    }

    /// Appends the outcome of a callback; its arrays have to follow. False: the call has ended meanwhile, and nothing is
    /// appended.
    ///
    /// # Errors
    /// The outcome is longer than servers accept. Nothing is appended.
    pub fn callback_return(
        &mut self,
        stream: u32,
        back: &CallbackReturn,
        out: &mut Vec<u8>,
    ) -> Result<bool, RequestTooLong> {
        let Some((Stream::Call(call), _)) = self.streams.get_mut(&stream) else { return Ok(false) };
        match (&call.back, back) {
            (CallbackState::Runs, _) | (CallbackState::Refused, CallbackReturn::Failed(_)) => {}
            _ => return Ok(false),
        }
        let before = out.len();
        frame::put(out, FrameKind::CallbackReturn, stream, back);
        bounded(before, out)?;
        if matches!(call.back, CallbackState::Runs) {
            call.back = CallbackState::None;
        }
        Ok(true)
    }

    /// Abandons a stream: what still arrives for it is skipped.
    pub fn abandon(&mut self, stream: u32) {
        if let Some((_, wanted)) = self.streams.get_mut(&stream) {
            *wanted = false;
            self.coming.forget(stream);
        }
    }

    /// Processes the unread input: what the driver has to do next.
    ///
    /// # Errors
    /// The server broke the protocol.
    pub fn step(&mut self, input: &[u8]) -> Result<Step<ClientEvent>, ProtocolError> {
        if let Some(stream) = self.done.take() {
            let wanted = self.end(stream);
            return Ok(Step::Event(0, wanted.then_some(ClientEvent::Done(stream))));
        }
        if let Some(stream) = self.called.take() {
            return Ok(Step::Event(0, Some(ClientEvent::CallbackReady(stream))));
        }
        if !self.greeted {
            return self.greet(input);
        }
        if let Some(step) = self.coming.step() {
            return Ok(step);
        }
        match raw(input, ReadingEnd::Client)? {
            RawFrame::More(needed) => Ok(Step::More(needed)),
            RawFrame::Chunk(header) => {
                let (place, wanted) = self.place(header)?;
                self.coming.begin(place, wanted, header.length);
                Ok(Step::Event(HEADER, None))
            }
            RawFrame::Frame(kind, stream, body) => {
                let event =
                    self.take(kind, stream, body).map_err(|error| error.of(kind, stream))?;
                Ok(Step::Event(HEADER + body.len(), event))
            }
        }
    }

    fn greet(&mut self, input: &[u8]) -> Result<Step<ClientEvent>, ProtocolError> {
        let (mut hello, length) = match ServerHello::decode(input)? {
            Ok(decoded) => decoded,
            Err(needed) => return Ok(Step::More(needed)),
        };
        if hello.version.as_ref().is_ok_and(|version| !VERSIONS.contains(version)) {
            hello.version = Err(Failure::version(hello.highest));
        }
        self.greeted = true;
        Ok(Step::Event(length, Some(ClientEvent::Hello(hello))))
    }

    /// The position of a chunk's bytes, and whether somebody waits for them.
    fn place(&self, header: Header) -> Result<(Option<ArrayPosition>, bool), ProtocolError> {
        let Header { stream, argument, length, kind } = header;
        if kind.is_none() {
            return Ok((None, false));
        }
        match self.streams.get(&stream) {
            Some((Stream::Call(Call { back: CallbackState::Refused, begun: false, .. }), _)) => {
                Ok((None, false))
            }
            Some((
                Stream::Call(
                    Call { parts, begun: true, .. }
                    | Call { back: CallbackState::Coming(parts), begun: false, .. },
                ),
                wanted,
            )) => {
                let excess = ProtocolError::Excess { stream, argument };
                let offset = parts.offset(argument, length as u64).ok_or(excess)?;
                Ok((Some(ArrayPosition { stream, argument, offset }), *wanted))
            }
            _ => Err(ProtocolError::Unasked { kind: FrameKind::Chunk as u8, stream }),
        }
    }

    /// Ends a stream. Whether somebody waits for it.
    fn end(&mut self, stream: u32) -> bool {
        let Some((ended, wanted)) = self.streams.remove(&stream) else { return false };
        if matches!(ended, Stream::Call(Call { asked: Some(_), .. })) {
            self.pending_grants -= 1;
        }
        wanted
    }

    /// Notes that the driver has stored this many bytes of the chunk.
    pub fn placed(&mut self, count: usize) {
        let Some(place) = self.coming.placed(count) else { return };
        if let Some((Stream::Call(call), wanted)) = self.streams.get_mut(&place.stream) {
            if let CallbackState::Coming(parts) = &mut call.back {
                parts.add(place.argument, count as u64);
                if parts.is_complete() {
                    call.back = if *wanted { CallbackState::Runs } else { CallbackState::Refused };
                    self.called = wanted.then_some(place.stream);
                }
                return;
            }
            call.parts.add(place.argument, count as u64);
            if call.parts.is_complete() {
                self.done = Some(place.stream);
            }
        }
    }
}
