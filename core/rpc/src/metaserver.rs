//! State machine of the metaserver end of a connection, from a client or from a server.

use crate::codec::{self, Encode, whole};
use crate::frame::{self, FrameError, FrameKind, HEADER, ReadingEnd};
use crate::frame_reader::{RawFrame, raw};
use crate::hello::{ClientHello, Role, ServerHello, VERSIONS};
use crate::log_request::LogRequest;
use crate::message::{self, Code, Failure};
use crate::placement::{
    self, AttemptReport, AttemptState, LoadReport, Placement, PlacementRequest, ServerRegistration,
    Ticket,
};
use crate::registered_server::EXPIRE;
use crate::resources::Resources;
use crate::trace_context::TraceContext;
use crate::{MOST_ANSWER, ProtocolError};
use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

/// An event at the metaserver.
#[derive(Debug, PartialEq)]
pub enum MetaserverEvent {
    /// The hello of the other side. Answer with [`Metaserver::welcome`] or [`Metaserver::refuse`].
    Hello(ClientHello),
    /// A client requests a description.
    Interface(u32, String),
    /// A client requests names.
    List(u32, String),
    /// A client requests a placement.
    Place(u32, PlacementRequest),
    /// The place in a trace of the call whose placement is requested directly after this.
    Trace(u32, TraceContext),
    /// A client cancels the call of a stream.
    Cancel(u32),
    /// A client reports an attempt; stream 0: another connection placed its call.
    AttemptReport(u32, AttemptReport),
    /// A client says why an attempt failed; its report follows.
    AttemptReason(Ticket, String),
    /// A client requests the state.
    Status(u32),
    /// A client looks for logs of calls. Answer with [`Metaserver::state`]: which servers have them.
    Logs(u32, LogRequest),
    /// A server registers.
    Register(ServerRegistration),
    /// A server offers a routine: hash and description.
    Offer(u64, String),
    /// A server reports the calls that it runs.
    RunningTickets(Vec<Ticket>),
    /// A server reports its load.
    Report(LoadReport),
    /// A server reports the state of a ticket.
    TicketState(Ticket, AttemptState),
    /// A server asks whether a server is registered that clients reach at this address.
    AskAddress(String),
    /// A server accepts no new calls.
    Leave,
    /// The other side answers a ping.
    Pong,
}

/// The result of [`Metaserver::step`] and [`crate::RegisteredServer::step`].
#[derive(Debug, PartialEq)]
pub enum FrameStep<E> {
    /// Read until the input has at least this many bytes.
    More(usize),
    /// Remove this many bytes from the input, and handle the event.
    Event(usize, Option<E>),
}

/// A whole frame, or the next step without one.
type FrameOrStep<'a, E> = Result<(FrameKind, u32, &'a [u8]), FrameStep<E>>;

/// Splits the input into frames, and skips extensions.
#[derive(Debug, Default)]
pub(crate) struct FrameCutter {
    skip: usize,
}

impl FrameCutter {
    /// The next whole frame, or the next step without one.
    pub fn cut<'a, E>(
        &mut self,
        input: &'a [u8],
        end: ReadingEnd,
    ) -> Result<FrameOrStep<'a, E>, ProtocolError> {
        if self.skip > 0 {
            let count = self.skip.min(input.len());
            self.skip -= count;
            return Ok(Err(if count == 0 {
                FrameStep::More(1)
            } else {
                FrameStep::Event(count, None)
            }));
        }
        Ok(match raw(input, end)? {
            RawFrame::More(needed) => Err(FrameStep::More(needed)),
            RawFrame::Chunk(header) => {
                if header.kind.is_some() {
                    return Err(ProtocolError::Kind(FrameKind::Chunk as u8));
                }
                self.skip = header.length;
                Err(FrameStep::Event(HEADER, None))
            }
            RawFrame::Frame(kind, stream, body) => Ok((kind, stream, body)),
        })
    }
}

/// The metaserver end of a connection.
#[derive(Debug, Default)]
pub struct Metaserver {
    greeted: bool,
    most_streams: usize,
    streams: BTreeSet<u32>,
    cutter: FrameCutter,
    out: Vec<u8>,
}

/// Decodes a frame that opens no stream and needs no answer.
fn within(kind: FrameKind, stream: u32, body: &[u8]) -> Result<MetaserverEvent, FrameError> {
    Ok(match kind {
        FrameKind::Trace => MetaserverEvent::Trace(stream, whole(body)?),
        FrameKind::AttemptReport => MetaserverEvent::AttemptReport(stream, whole(body)?),
        FrameKind::AttemptReason => {
            let (ticket, text) = placement::reason(body)?;
            MetaserverEvent::AttemptReason(ticket, text.to_owned())
        }
        FrameKind::Pong => MetaserverEvent::Pong,
        FrameKind::Register => MetaserverEvent::Register(whole(body)?),
        FrameKind::Offer => {
            let (hash, json) = placement::description(body)?;
            MetaserverEvent::Offer(hash, json)
        }
        FrameKind::RunningTickets => MetaserverEvent::RunningTickets(codec::list(body)?),
        FrameKind::Report => MetaserverEvent::Report(whole(body)?),
        FrameKind::TicketState => {
            let (ticket, fate) = whole(body)?;
            MetaserverEvent::TicketState(ticket, fate)
        }
        FrameKind::AskAddress => MetaserverEvent::AskAddress(message::name(body)?.to_owned()),
        FrameKind::Leave => MetaserverEvent::Leave,
        _ => return Err(FrameError::Kind),
    })
}

impl Metaserver {
    /// A connection on which nothing has arrived, with a limit of open streams.
    #[must_use]
    pub fn new(most_streams: usize) -> Metaserver {
        Metaserver { most_streams, ..Metaserver::default() }
    }

    /// The output; the driver removes what it has written.
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Number of open streams.
    #[must_use]
    pub fn open(&self) -> usize {
        self.streams.len()
    }

    /// Processes the unread input.
    ///
    /// # Errors
    /// The other side broke the protocol. [`Metaserver::end`] reports it.
    pub fn step(&mut self, input: &[u8]) -> Result<FrameStep<MetaserverEvent>, ProtocolError> {
        if !self.greeted {
            return Ok(match ClientHello::decode(input)? {
                Ok((hello, length)) => {
                    self.greeted = true;
                    FrameStep::Event(length, Some(MetaserverEvent::Hello(hello)))
                }
                Err(needed) => FrameStep::More(needed),
            });
        }
        match self.cutter.cut(input, ReadingEnd::Server)? {
            Err(look) => Ok(look),
            Ok((kind, stream, body)) => {
                let event =
                    self.take(kind, stream, body).map_err(|error| error.of(kind, stream))?;
                Ok(FrameStep::Event(HEADER + body.len(), event))
            }
        }
    }

    fn take(
        &mut self,
        kind: FrameKind,
        stream: u32,
        body: &[u8],
    ) -> Result<Option<MetaserverEvent>, FrameError> {
        let event = match kind {
            FrameKind::Interface => {
                MetaserverEvent::Interface(stream, message::name(body)?.to_owned())
            }
            FrameKind::List => MetaserverEvent::List(stream, codec::text(body)?.to_owned()),
            FrameKind::Place => MetaserverEvent::Place(stream, whole(body)?),
            FrameKind::Status => MetaserverEvent::Status(stream),
            FrameKind::Logs => MetaserverEvent::Logs(stream, whole(body)?),
            FrameKind::Cancel => {
                // The stream may have ended meanwhile.
                let is_open = self.streams.contains(&stream);
                return Ok(is_open.then_some(MetaserverEvent::Cancel(stream)));
            }
            // Places are given as without it: a server that does not give it refuses the call, which goes to another.
            FrameKind::Resources => {
                let _asked: Resources = whole(body)?;
                return Ok(None);
            }
            FrameKind::Ping => {
                self.put(FrameKind::Pong, 0, body);
                return Ok(None);
            }
            _ => return within(kind, stream, body).map(Some),
        };
        Ok(self.begin(stream)?.then_some(event))
    }

    /// Opens a stream. False: too many are open, and the other side gets a failure.
    fn begin(&mut self, stream: u32) -> Result<bool, ProtocolError> {
        if !self.streams.insert(stream) {
            return Err(ProtocolError::Reused(stream));
        }
        if self.streams.len() <= self.most_streams {
            return Ok(true);
        }
        self.fail(stream, &Failure::too_many(self.most_streams));
        Ok(false)
    }

    /// Accepts the other side. False: there is no common version, and the other side gets a failure.
    pub fn welcome(&mut self, client: &ClientHello, name: &str) -> bool {
        let Some(version) = client.common(&VERSIONS) else {
            self.refuse(Failure::version(*VERSIONS.end()));
            return false;
        };
        let streams = u32::try_from(self.most_streams).unwrap_or(u32::MAX);
        self.greet(Ok(version), name, streams);
        true
    }

    /// Refuses the other side. The driver reads nothing more.
    pub fn refuse(&mut self, failure: Failure) {
        self.greet(Err(failure), "", 0);
    }

    fn greet(&mut self, version: Result<u16, Failure>, name: &str, streams: u32) {
        let hello = ServerHello {
            name: name.to_owned(),
            streams,
            // Arguments do not come here: the server of the call limits their bytes.
            bytes: i64::MAX.unsigned_abs(),
            role: Role::Metaserver,
            binds_calls: true,
            shows_logs: true,
            ..ServerHello::new(version, *VERSIONS.end())
        };
        self.out.extend_from_slice(&hello.encode());
    }

    /// Closes the connection with a failure.
    pub fn end(&mut self, failure: Failure) {
        if self.greeted {
            self.put(FrameKind::Error, 0, failure);
        } else {
            self.refuse(failure);
        }
    }

    fn put(&mut self, kind: FrameKind, stream: u32, body: impl Encode) {
        frame::put(&mut self.out, kind, stream, body);
    }

    /// Answers with a description.
    pub fn describe(&mut self, stream: u32, hash: u64, json: &str) {
        self.streams.remove(&stream);
        self.put(FrameKind::Description, stream, (hash, json.as_bytes()));
    }

    /// Answers with as many names as fit.
    pub fn names<'a>(&mut self, stream: u32, names: impl IntoIterator<Item = &'a str>) {
        self.streams.remove(&stream);
        self.put(FrameKind::Names, stream, &message::fitting(names)[..]);
    }

    /// Answers with a placement.
    pub fn placed(&mut self, stream: u32, placed: &Placement) {
        self.put(FrameKind::Placed, stream, placed);
    }

    /// Ends a stream with a failure.
    pub fn fail(&mut self, stream: u32, failure: &Failure) {
        if self.streams.remove(&stream) {
            self.put(FrameKind::Error, stream, failure);
        }
    }

    /// Closes the stream of a call.
    pub fn close(&mut self, stream: u32) {
        if self.streams.remove(&stream) {
            self.put(FrameKind::Closed, stream, ());
        }
    }

    /// Answers with the state, or with a failure if it does not fit into a frame.
    pub fn state(&mut self, stream: u32, json: &str) {
        if json.len() > MOST_ANSWER {
            let text = "the state is too long to be sent; look at /status.json";
            let failure = Failure::new(Code::TooLarge, json.len() as i64, text);
            return self.fail(stream, &failure);
        }
        self.streams.remove(&stream);
        self.put(FrameKind::State, stream, json.as_bytes());
    }

    /// Confirms a registration, and sets the server's interval of reports.
    pub fn registered(&mut self, report_ms: u32) {
        self.put(FrameKind::Registered, 0, report_ms);
    }

    /// Has a server stop an attempt.
    pub fn stop(&mut self, ticket: Ticket) {
        self.put(FrameKind::Stop, 0, ticket);
    }

    /// Asks a server about a ticket. It answers with TICKET_STATE.
    pub fn ask(&mut self, ticket: Ticket) {
        self.put(FrameKind::Ask, 0, ticket);
    }

    /// Has a server refuse the call of a ticket if that has not arrived yet. Then it answers with TICKET_STATE.
    pub fn expire(&mut self, ticket: Ticket) {
        self.put(FrameKind::Ask, 0, (ticket, EXPIRE));
    }

    /// Answers whether a server is registered that clients reach at this address.
    pub fn address_state(&mut self, address: &str, is_known: bool) {
        self.put(FrameKind::AddressState, 0, (is_known, address.as_bytes()));
    }

    /// Sends a ping.
    pub fn ping(&mut self) {
        self.put(FrameKind::Ping, 0, [0; 8]);
    }
}
