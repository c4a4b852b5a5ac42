//! State machine of the metaserver end of a connection, from a client or from a server.

use crate::codec::DecodeError;
use crate::frame::{self, FrameKind, HEADER, Header, ReadingEnd};
use crate::frame_reader::{RawFrame, raw};
use crate::hello::{ClientHello, Role, ServerHello, VERSIONS, VoucherSupport};
use crate::log_request::LogRequest;
use crate::message::{self, Code, Failure};
use crate::placement::{
    self, AttemptReport, AttemptState, LoadReport, Placement, PlacementRequest, ServerRegistration,
    Ticket,
};
use crate::registered_server::EXPIRE;
use crate::resources::Resources;
use crate::trace_context::{self, TraceContext};
use crate::{MOST_ANSWER, ProtocolError};
use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::format;
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
type FrameOrStep<'a, E> = Result<(Header, FrameKind, &'a [u8]), FrameStep<E>>;

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
            RawFrame::Frame(header, body) => match header.kind {
                Some(kind) => Ok((header, kind, body)),
                None => Err(FrameStep::Event(HEADER + header.length, None)),
            },
        })
    }
}

/// The metaserver end of a connection.
#[derive(Debug)]
pub struct Metaserver {
    greeted: bool,
    most_streams: usize,
    streams: BTreeSet<u32>,
    cutter: FrameCutter,
    out: Vec<u8>,
}

/// Decodes a frame of a server.
fn of_server(kind: FrameKind, body: &[u8]) -> Result<MetaserverEvent, ProtocolError> {
    let malformed = |why| ProtocolError::Body { kind: kind as u8, why };
    Ok(match kind {
        FrameKind::Register => {
            MetaserverEvent::Register(ServerRegistration::decode(body).map_err(malformed)?)
        }
        FrameKind::Offer => {
            let (hash, json) = placement::offer(body).map_err(malformed)?;
            MetaserverEvent::Offer(hash, json)
        }
        FrameKind::RunningTickets => {
            MetaserverEvent::RunningTickets(Ticket::decode_all(body).map_err(malformed)?)
        }
        FrameKind::Report => MetaserverEvent::Report(LoadReport::decode(body).map_err(malformed)?),
        FrameKind::TicketState => {
            let (ticket, fate) = placement::told(body).map_err(malformed)?;
            MetaserverEvent::TicketState(ticket, fate)
        }
        FrameKind::AskAddress => {
            MetaserverEvent::AskAddress(placement::address(body).map_err(malformed)?.to_owned())
        }
        FrameKind::Leave => MetaserverEvent::Leave,
        _ => return Err(ProtocolError::Kind(kind as u8)),
    })
}

impl Metaserver {
    /// A connection on which nothing has arrived, with a limit of open streams.
    #[must_use]
    pub fn new(most_streams: usize) -> Metaserver {
        Metaserver {
            greeted: false,
            most_streams,
            streams: BTreeSet::new(),
            cutter: FrameCutter::default(),
            out: Vec::new(),
        }
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
            Ok((header, kind, body)) => {
                let event = self.take(header.stream, kind, body)?;
                Ok(FrameStep::Event(HEADER + body.len(), event))
            }
        }
    }

    fn take(
        &mut self,
        stream: u32,
        kind: FrameKind,
        body: &[u8],
    ) -> Result<Option<MetaserverEvent>, ProtocolError> {
        let malformed = |why| ProtocolError::Body { kind: kind as u8, why };
        let event = match kind {
            FrameKind::Interface => MetaserverEvent::Interface(
                stream,
                message::name(body).map_err(malformed)?.to_owned(),
            ),
            FrameKind::List => {
                let part = core::str::from_utf8(body).map_err(|_| malformed(DecodeError::Text))?;
                MetaserverEvent::List(stream, part.to_owned())
            }
            FrameKind::Place => {
                MetaserverEvent::Place(stream, PlacementRequest::decode(body).map_err(malformed)?)
            }
            FrameKind::Trace => {
                MetaserverEvent::Trace(stream, trace_context::decode(body).map_err(malformed)?)
            }
            // Places are given as without it: a server that does not give it refuses the call, which goes to another.
            FrameKind::Resources => {
                return Resources::decode(body).map(|_| None).map_err(malformed);
            }
            FrameKind::Status => MetaserverEvent::Status(stream),
            FrameKind::Logs => {
                MetaserverEvent::Logs(stream, LogRequest::decode(body).map_err(malformed)?)
            }
            // The stream has ended meanwhile.
            FrameKind::Cancel if !self.streams.contains(&stream) => return Ok(None),
            FrameKind::Cancel => MetaserverEvent::Cancel(stream),
            FrameKind::AttemptReport => MetaserverEvent::AttemptReport(
                stream,
                AttemptReport::decode(body).map_err(malformed)?,
            ),
            FrameKind::AttemptReason => {
                let (ticket, text) = placement::reason(body).map_err(malformed)?;
                MetaserverEvent::AttemptReason(ticket, text.to_owned())
            }
            FrameKind::Ping => {
                self.put(FrameKind::Pong, 0, |out| out.extend_from_slice(body));
                return Ok(None);
            }
            FrameKind::Pong => MetaserverEvent::Pong,
            _ => of_server(kind, body)?,
        };
        if matches!(
            kind,
            FrameKind::Interface
                | FrameKind::List
                | FrameKind::Place
                | FrameKind::Status
                | FrameKind::Logs
        ) {
            return Ok(self.begin(stream)?.then_some(event));
        }
        Ok(Some(event))
    }

    /// Opens a stream. False: too many are open, and the other side gets a failure.
    fn begin(&mut self, stream: u32) -> Result<bool, ProtocolError> {
        if !self.streams.insert(stream) {
            return Err(ProtocolError::Reused(stream));
        }
        if self.streams.len() <= self.most_streams {
            return Ok(true);
        }
        let most = self.most_streams;
        let text = format!("too many calls at once on this connection: {most} may be open");
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.fail(stream, &Failure::new(Code::Busy, most, text));
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
        let (highest, name) = (*VERSIONS.end(), name.to_owned());
        // Arguments do not come here: the server of the call limits their bytes.
        let (bytes, role) = (i64::MAX.unsigned_abs(), Role::Metaserver);
        let hello = ServerHello {
            version,
            highest,
            name,
            streams,
            bytes,
            role,
            shares_memory: false,
            local: None,
            vouchers: VoucherSupport::Unknown,
            gives_resources: false,
            binds_calls: true,
            holds_arrays: false,
            shows_logs: true,
        };
        self.out.extend_from_slice(&hello.encode());
    }

    /// Closes the connection with a failure.
    pub fn end(&mut self, failure: Failure) {
        if self.greeted {
            self.put(FrameKind::Error, 0, |out| failure.encode(out));
        } else {
            self.refuse(failure);
        }
    }

    fn put(&mut self, kind: FrameKind, stream: u32, write: impl FnOnce(&mut Vec<u8>)) {
        frame::put(&mut self.out, kind, stream, write);
    }

    /// Answers with a description.
    pub fn describe(&mut self, stream: u32, hash: u64, json: &str) {
        self.streams.remove(&stream);
        self.put(FrameKind::Description, stream, |out| {
            out.extend_from_slice(&hash.to_le_bytes());
            out.extend_from_slice(json.as_bytes());
        });
    }

    /// Answers with as many names as fit.
    pub fn names<'a>(&mut self, stream: u32, names: impl IntoIterator<Item = &'a str>) {
        self.streams.remove(&stream);
        self.put(FrameKind::Names, stream, |out| message::put_names(out, names));
    }

    /// Answers with a placement.
    pub fn placed(&mut self, stream: u32, placed: &Placement) {
        self.put(FrameKind::Placed, stream, |out| placed.encode(out));
    }

    /// Ends a stream with a failure.
    pub fn fail(&mut self, stream: u32, failure: &Failure) {
        if self.streams.remove(&stream) {
            self.put(FrameKind::Error, stream, |out| failure.encode(out));
        }
    }

    /// Closes the stream of a call.
    pub fn close(&mut self, stream: u32) {
        if self.streams.remove(&stream) {
            self.put(FrameKind::Closed, stream, |_| {});
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
        self.put(FrameKind::State, stream, |out| out.extend_from_slice(json.as_bytes()));
    }

    /// Confirms a registration, and sets the server's interval of reports.
    pub fn registered(&mut self, report_ms: u32) {
        self.put(FrameKind::Registered, 0, |out| out.extend_from_slice(&report_ms.to_le_bytes()));
    }

    /// Has a server stop an attempt.
    pub fn stop(&mut self, ticket: Ticket) {
        self.put(FrameKind::Stop, 0, |out| ticket.encode(out));
    }

    /// Asks a server about a ticket. It answers with TICKET_STATE.
    pub fn ask(&mut self, ticket: Ticket) {
        self.put(FrameKind::Ask, 0, |out| ticket.encode(out));
    }

    /// Has a server refuse the call of a ticket if that has not arrived yet. Then it answers with TICKET_STATE.
    pub fn expire(&mut self, ticket: Ticket) {
        self.put(FrameKind::Ask, 0, |out| {
            ticket.encode(out);
            out.push(EXPIRE);
        });
    }

    /// Answers whether a server is registered that clients reach at this address.
    pub fn address_state(&mut self, address: &str, is_known: bool) {
        self.put(FrameKind::AddressState, 0, |out| {
            placement::put_address_state(out, address, is_known);
        });
    }

    /// Sends a ping.
    pub fn ping(&mut self) {
        self.put(FrameKind::Ping, 0, |out| out.extend_from_slice(&[0; 8]));
    }
}
