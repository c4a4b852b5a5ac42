//! A connection as its client sees it.

mod answers;
mod memory_grant;

use crate::callback::{CallbackHead, CallbackReturn};
use crate::frame::{self, FrameKind, HEADER, Header, ReadingEnd};
use crate::frame_reader::{ArrayPosition, IncomingChunk, RawFrame, Step, raw};
use crate::held_array::{FetchRequest, HeldArrayName};
use crate::hello::{ServerHello, VERSIONS};
use crate::incoming_arrays::{ArraySize, IncomingArrays};
use crate::message::{self, CallHead, Failure, ResultHead};
use crate::placement::{AttemptReport, Placement, PlacementRequest};
use crate::shared_memory::{MemoryGrant, SharedDirections};
use crate::{MOST_REQUEST, ProtocolError};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// What a server has answered.
#[derive(Debug, PartialEq)]
pub enum ClientEvent {
    /// Who it is, and whether it takes this client.
    Hello(ServerHello),
    /// A description with its hash; the stream has ended.
    Description(u32, u64, String),
    /// Names of routines; the stream has ended.
    Names(u32, Vec<String>),
    /// A result's head; its arrays follow.
    Result(u32, ResultHead),
    /// All arrays of a result have come; the stream has ended.
    Done(u32),
    /// A failure; the stream has ended.
    Failed(u32, Failure),
    /// The server gives up the connection.
    Ended(Failure),
    /// Answers [`Client::ping`].
    Pong,
    /// The routine of a call calls a function; [`Client::accept_callback`] or [`Client::refuse_callback`] says what
    /// becomes of its arrays, which follow.
    Callback(u32, CallbackHead),
    /// All arrays for the function have come; [`Client::callback_return`] answers.
    Called(u32),
    /// A metaserver says where a call is to go; the stream goes on.
    Placed(u32, Placement),
    /// A call through a metaserver is over; the stream has ended.
    Closed(u32),
    /// A metaserver's state, as JSON; the stream has ended.
    State(u32, String),
    /// The memory of a call that has asked for it, also of one for which nobody waits any more: [`Client::filled`] says that
    /// what is sent is there, if anything is, and [`Client::release`] that it is touched no more.
    Granted(u32, MemoryGrant),
    /// An object is there; the stream goes on as long as it is.
    Created(u32),
    /// A voucher; the stream has ended.
    Voucher(u32, String),
}

#[derive(Debug)]
enum Stream {
    Interface,
    List,
    Call(Call),
    Place,
    Status,
    Vouch,
    /// An object; whether it is there.
    Object(bool),
}

#[derive(Debug, Default)]
struct Call {
    /// The arrays that will come.
    parts: IncomingArrays,
    /// Whether the head has.
    begun: bool,
    /// The function that the routine calls.
    back: CallbackState,
    /// Parameters that come back as files.
    files: Vec<u16>,
    /// Whether it runs a routine, which may call functions: the fetch of an array does not.
    runs: bool,
    /// The arrays for which memory was asked, as long as there is no answer.
    asked: Option<Vec<(u16, SharedDirections)>>,
    /// What comes back of those.
    shared: Vec<ArraySize>,
}

impl Call {
    /// A file of so many bytes comes back.
    fn file(&mut self, stream: u32, argument: u16, bytes: u64) -> Result<(), ProtocolError> {
        let expected = self.files.iter().position(|file| *file == argument);
        let expected = expected.ok_or(ProtocolError::Excess { stream, argument })?;
        self.files.swap_remove(expected);
        self.parts.push(ArraySize { argument, bytes });
        Ok(())
    }
}

/// Where a function of the client is that the routine calls.
#[derive(Debug, Default)]
enum CallbackState {
    /// None is called.
    #[default]
    None,
    /// The driver has to say what becomes of its arrays.
    Asked,
    /// Its arrays come.
    Coming(IncomingArrays),
    /// It is not called: what comes is skipped.
    Refused,
    /// It runs.
    Runs,
}

/// The state of a connection at its client: what has been asked and is not answered.
///
/// What is written is for the driver to order: heads by [`Client::call`] and the like, then chunks
/// ([`crate::chunks`]) in any order.
#[derive(Debug, Default)]
pub struct Client {
    greeted: bool,
    next: u32,
    /// What is asked; and whether anybody waits for it.
    streams: BTreeMap<u32, (Stream, bool)>,
    coming: IncomingChunk,
    done: Option<u32>,
    /// A function whose arrays have all come.
    called: Option<u32>,
    /// Calls that have asked for memory and have no answer to that.
    pending_grants: usize,
    pings: Vec<[u8; 8]>,
}

/// What a server would end the connection for, and what is not sent therefore: a head that is too long, or a name that is
/// empty, too long or has control characters. Its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestTooLong(pub usize);

/// Appends the ticket with which a metaserver has sent what follows on the stream.
fn show(placed: &Placement, stream: u32, out: &mut Vec<u8>) {
    frame::put(out, FrameKind::Ticket, stream, |out| {
        placed.ticket.encode(out);
        out.extend_from_slice(placed.pass.as_bytes());
    });
}

/// Pings that wait to be answered.
const MOST_PINGS: usize = 16;

impl Client {
    /// A connection on which nothing has come.
    #[must_use]
    pub fn new() -> Client {
        Client::default()
    }

    /// A number that no open stream has.
    fn fresh(&mut self) -> u32 {
        loop {
            self.next = self.next.wrapping_add(1);
            if self.next != 0 && !self.streams.contains_key(&self.next) {
                return self.next;
            }
        }
    }

    /// Appends a request for a description; its stream.
    ///
    /// # Errors
    /// It is no name that a routine can have; nothing is appended.
    pub fn interface(&mut self, routine: &str, out: &mut Vec<u8>) -> Result<u32, RequestTooLong> {
        message::name(routine.as_bytes()).map_err(|_| RequestTooLong(routine.len()))?;
        let stream = self.fresh();
        frame::put(out, FrameKind::Interface, stream, |out| {
            out.extend_from_slice(routine.as_bytes())
        });
        self.streams.insert(stream, (Stream::Interface, true));
        Ok(stream)
    }

    /// Appends a request for names that contain `part`; its stream.
    ///
    /// # Errors
    /// It is longer than servers take; nothing is appended.
    pub fn list(&mut self, part: &str, out: &mut Vec<u8>) -> Result<u32, RequestTooLong> {
        if part.len() > MOST_REQUEST {
            return Err(RequestTooLong(part.len()));
        }
        let stream = self.fresh();
        frame::put(out, FrameKind::List, stream, |out| out.extend_from_slice(part.as_bytes()));
        self.streams.insert(stream, (Stream::List, true));
        Ok(stream)
    }

    /// Appends a call's head; its stream. Arrays of `results` sizes will come back.
    ///
    /// # Errors
    /// It is longer than servers take, or names what can be no routine; nothing is appended.
    pub fn call(
        &mut self,
        head: &CallHead,
        results: &[ArraySize],
        out: &mut Vec<u8>,
    ) -> Result<u32, RequestTooLong> {
        message::name(head.routine.as_bytes()).map_err(|_| RequestTooLong(head.routine.len()))?;
        let before = out.len();
        let stream = self.fresh();
        let kind = if head.object == 0 { FrameKind::Call } else { FrameKind::Invoke };
        frame::put(out, kind, stream, |out| {
            if head.object != 0 {
                out.extend_from_slice(&head.object.to_le_bytes());
            }
            head.encode(out);
        });
        let length = out.len() - before - HEADER;
        if length > MOST_REQUEST {
            out.truncate(before);
            return Err(RequestTooLong(length));
        }
        let call = self.new_call(head, results);
        self.streams.insert(stream, (Stream::Call(call), true));
        Ok(stream)
    }

    /// [`Client::call`], with the ticket of the metaserver that has sent it here, and what is to be shown with it.
    ///
    /// # Errors
    /// It is longer than servers take; nothing is appended.
    pub fn call_with(
        &mut self,
        placed: Option<&Placement>,
        head: &CallHead,
        results: &[ArraySize],
        out: &mut Vec<u8>,
    ) -> Result<u32, RequestTooLong> {
        let Some(placed) = placed else { return self.call(head, results, out) };
        let mut call = Vec::new();
        let stream = self.call(head, results, &mut call)?;
        show(placed, stream, out);
        out.extend_from_slice(&call);
        Ok(stream)
    }

    /// [`Client::create`], with the ticket of the metaserver that has sent it here, and what is to be shown with it.
    ///
    /// # Errors
    /// It is no name that a class can have; nothing is appended.
    pub fn create_with(
        &mut self,
        placed: Option<&Placement>,
        class: &str,
        out: &mut Vec<u8>,
    ) -> Result<u32, RequestTooLong> {
        let mut create = Vec::new();
        let stream = self.create(class, &mut create)?;
        if let Some(placed) = placed {
            show(placed, stream, out);
        }
        out.extend_from_slice(&create);
        Ok(stream)
    }

    /// Appends the wish for an object of a class; its stream, by which calls name the object. It ends with
    /// [`Client::cancel`].
    ///
    /// # Errors
    /// It is no name that a class can have; nothing is appended.
    pub fn create(&mut self, class: &str, out: &mut Vec<u8>) -> Result<u32, RequestTooLong> {
        message::name(class.as_bytes()).map_err(|_| RequestTooLong(class.len()))?;
        let stream = self.fresh();
        frame::put(out, FrameKind::Create, stream, |out| out.extend_from_slice(class.as_bytes()));
        self.streams.insert(stream, (Stream::Object(false), true));
        Ok(stream)
    }

    /// Appends the question where a call is to go; its stream.
    ///
    /// # Errors
    /// It names what can be no routine; nothing is appended.
    pub fn request_placement(
        &mut self,
        place: &PlacementRequest,
        out: &mut Vec<u8>,
    ) -> Result<u32, RequestTooLong> {
        message::name(place.routine.as_bytes()).map_err(|_| RequestTooLong(place.routine.len()))?;
        let stream = self.fresh();
        frame::put(out, FrameKind::Place, stream, |out| place.encode(out));
        self.streams.insert(stream, (Stream::Place, true));
        Ok(stream)
    }

    /// Appends how an attempt went, on the stream of its call, or on stream 0 if that was another connection's.
    pub fn report_attempt(&mut self, stream: u32, over: &AttemptReport, out: &mut Vec<u8>) {
        frame::put(out, FrameKind::Over, stream, |out| over.encode(out));
    }

    /// Appends the question for a metaserver's state; its stream.
    pub fn status(&mut self, out: &mut Vec<u8>) -> u32 {
        let stream = self.fresh();
        frame::put(out, FrameKind::Status, stream, |_| {});
        self.streams.insert(stream, (Stream::Status, true));
        stream
    }

    /// Appends the wish for bytes of a held array; its stream. They come as a result with one array, of parameter 0.
    pub fn fetch(&mut self, head: &FetchRequest, out: &mut Vec<u8>) -> u32 {
        let stream = self.fresh();
        frame::put(out, FrameKind::Fetch, stream, |out| head.encode(out));
        let parts = IncomingArrays::new(&[ArraySize { argument: 0, bytes: head.length }]);
        let call = Call { parts, ..Call::default() };
        self.streams.insert(stream, (Stream::Call(call), true));
        stream
    }

    /// Appends the wish for a voucher for a held array, good for so many milliseconds; its stream. Only a server whose hello
    /// tells of vouchers knows the wish.
    pub fn request_voucher(
        &mut self,
        name: HeldArrayName,
        lifetime_ms: u32,
        out: &mut Vec<u8>,
    ) -> u32 {
        let stream = self.fresh();
        frame::put(out, FrameKind::Vouch, stream, |out| {
            name.encode(out);
            out.extend_from_slice(&lifetime_ms.to_le_bytes());
        });
        self.streams.insert(stream, (Stream::Vouch, true));
        stream
    }

    /// Appends the wish that arrays be held no longer; it has no answer.
    pub fn drop_held(&mut self, names: &[HeldArrayName], out: &mut Vec<u8>) {
        for names in names.chunks(MOST_REQUEST / HeldArrayName::LENGTH) {
            frame::put(out, FrameKind::Drop, 0, |out| {
                names.iter().for_each(|name| name.encode(out))
            });
        }
    }

    /// Appends the wish that a call end; its answer comes all the same.
    pub fn cancel(&mut self, stream: u32, out: &mut Vec<u8>) {
        if self.streams.contains_key(&stream) {
            frame::put(out, FrameKind::Cancel, stream, |_| {});
        }
    }

    /// Appends a ping.
    pub fn ping(&mut self, out: &mut Vec<u8>) {
        frame::put(out, FrameKind::Ping, 0, |out| out.extend_from_slice(&[0; 8]));
    }

    /// Appends answers to pings that have come.
    pub fn answer_pings(&mut self, out: &mut Vec<u8>) {
        for ping in self.pings.drain(..) {
            frame::put(out, FrameKind::Pong, 0, |out| out.extend_from_slice(&ping));
        }
    }

    /// Files come back in these parameters of a call; their lengths come with the result, and how much of them is kept is
    /// the driver's affair.
    pub fn expect_files(&mut self, stream: u32, files: Vec<u16>) {
        if let Some((Stream::Call(call), _)) = self.streams.get_mut(&stream) {
            call.files = files;
        }
    }

    /// Takes the arrays of these sizes for a function that the routine calls. If nothing is to come they are there at
    /// once.
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

    /// Skips the arrays for a function that cannot be called; [`Client::callback_return`] says why.
    pub fn refuse_callback(&mut self, stream: u32) {
        if let Some((Stream::Call(call), _)) = self.streams.get_mut(&stream)
            && matches!(call.back, CallbackState::Asked)
        {
            call.back = CallbackState::Refused;
        }
    }

    /// Appends the end of a function that the routine has called; arrays are to follow. False: the call has ended
    /// meanwhile, nothing is appended.
    ///
    /// # Errors
    /// It is longer than servers take; nothing is appended.
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
        frame::put(out, FrameKind::CallbackReturn, stream, |out| back.encode(out));
        let length = out.len() - before - HEADER;
        if length > MOST_REQUEST {
            out.truncate(before);
            return Err(RequestTooLong(length));
        }
        if matches!(call.back, CallbackState::Runs) {
            call.back = CallbackState::None;
        }
        Ok(true)
    }

    /// Nobody waits for this stream any more: what it still brings is skipped.
    pub fn abandon(&mut self, stream: u32) {
        if let Some((_, wanted)) = self.streams.get_mut(&stream) {
            *wanted = false;
            self.coming.forget(stream);
        }
    }

    /// Looks at what has come and is not done with.
    ///
    /// # Errors
    /// The server broke the protocol.
    pub fn step(&mut self, input: &[u8]) -> Result<Step<ClientEvent>, ProtocolError> {
        if let Some(stream) = self.done.take() {
            let wanted = self.end(stream);
            return Ok(Step::Event(0, wanted.then_some(ClientEvent::Done(stream))));
        }
        if let Some(stream) = self.called.take() {
            return Ok(Step::Event(0, Some(ClientEvent::Called(stream))));
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
            RawFrame::Frame(header, body) => {
                let event = self.take(header, body)?;
                Ok(Step::Event(HEADER + header.length, event))
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

    /// Where the bytes of a chunk belong, and whether anybody waits for them.
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

    /// Ends a stream: whether anybody waits for it.
    fn end(&mut self, stream: u32) -> bool {
        let Some((ended, wanted)) = self.streams.remove(&stream) else { return false };
        if matches!(ended, Stream::Call(Call { asked: Some(_), .. })) {
            self.pending_grants -= 1;
        }
        wanted
    }

    /// Notes that so many bytes of the chunk have been put where they belong.
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
