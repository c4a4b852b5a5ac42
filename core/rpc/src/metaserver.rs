//! A connection as a metaserver sees it, from a client or from a server.

use crate::codec::Malformed;
use crate::frame::{self, End, HEADER, Header, Kind};
use crate::hello::{ClientHello, Role, ServerHello, VERSIONS, Vouchers};
use crate::member::EXPIRE;
use crate::message::{self, Code, Failure};
use crate::meta::{self, Fate, Over, Placed, Placing, Register, Report, Ticket};
use crate::reader::{Raw, raw};
use crate::{MOST_ANSWER, ProtocolError};
use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// What has come to a metaserver.
#[derive(Debug, PartialEq)]
pub enum MetaEvent {
    /// Who it is; [`Metaserver::welcome`] or [`Metaserver::refuse`] answers.
    Hello(ClientHello),
    /// A description is asked for.
    Interface(u32, String),
    /// Names are asked for.
    List(u32, String),
    /// A call is to be placed.
    Place(u32, Placing),
    /// The call of a stream is not wanted any more.
    Cancel(u32),
    /// How an attempt went; stream 0: of a call that was placed on another connection.
    Over(u32, Over),
    /// The state is asked for.
    Status(u32),
    /// Who this server is.
    Register(Register),
    /// A routine of it.
    Offer(u64, String),
    /// What it runs.
    Holds(Vec<Ticket>),
    /// Its load.
    Report(Report),
    /// What is with a ticket.
    Told(Ticket, Fate),
    /// It takes no new calls.
    Leave,
    /// It is alive.
    Pong,
}

/// What [`Metaserver::step`] and [`crate::Member::step`] found.
#[derive(Debug, PartialEq)]
pub enum Look<E> {
    /// So many bytes of input are needed at least.
    More(usize),
    /// So many bytes of input are done with, and this has come.
    Event(usize, Option<E>),
}

/// A whole frame, or how to go on without one.
type Cut<'a, E> = Result<(Header, Kind, &'a [u8]), Look<E>>;

/// What of the input is a frame, and what is skipped.
#[derive(Debug, Default)]
pub(crate) struct Cutter {
    skip: usize,
}

impl Cutter {
    /// The next whole frame, or how to go on without one.
    pub fn cut<'a, E>(&mut self, input: &'a [u8], end: End) -> Result<Cut<'a, E>, ProtocolError> {
        if self.skip > 0 {
            let count = self.skip.min(input.len());
            self.skip -= count;
            return Ok(Err(if count == 0 { Look::More(1) } else { Look::Event(count, None) }));
        }
        Ok(match raw(input, end)? {
            Raw::More(needed) => Err(Look::More(needed)),
            Raw::Chunk(header) => {
                if header.kind.is_some() {
                    return Err(ProtocolError::Kind(Kind::Chunk as u8));
                }
                self.skip = header.length;
                Err(Look::Event(HEADER, None))
            }
            Raw::Frame(header, body) => match header.kind {
                Some(kind) => Ok((header, kind, body)),
                None => Err(Look::Event(HEADER + header.length, None)),
            },
        })
    }
}

/// The state of a connection at a metaserver.
#[derive(Debug)]
pub struct Metaserver {
    greeted: bool,
    most_streams: usize,
    streams: BTreeSet<u32>,
    cutter: Cutter,
    out: Vec<u8>,
}

impl Metaserver {
    /// A connection on which nothing has come, with at most so many streams at once.
    #[must_use]
    pub fn new(most_streams: usize) -> Metaserver {
        Metaserver {
            greeted: false,
            most_streams,
            streams: BTreeSet::new(),
            cutter: Cutter::default(),
            out: Vec::new(),
        }
    }

    /// What is to be written; whoever writes takes from its front.
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Streams that are open.
    #[must_use]
    pub fn open(&self) -> usize {
        self.streams.len()
    }

    /// Looks at what has come and is not done with.
    ///
    /// # Errors
    /// The other side broke the protocol. [`Metaserver::end`] tells it.
    pub fn step(&mut self, input: &[u8]) -> Result<Look<MetaEvent>, ProtocolError> {
        if !self.greeted {
            return Ok(match ClientHello::decode(input)? {
                Ok((hello, length)) => {
                    self.greeted = true;
                    Look::Event(length, Some(MetaEvent::Hello(hello)))
                }
                Err(needed) => Look::More(needed),
            });
        }
        match self.cutter.cut(input, End::Server)? {
            Err(look) => Ok(look),
            Ok((header, kind, body)) => {
                let event = self.take(header.stream, kind, body)?;
                Ok(Look::Event(HEADER + body.len(), event))
            }
        }
    }

    fn take(
        &mut self,
        stream: u32,
        kind: Kind,
        body: &[u8],
    ) -> Result<Option<MetaEvent>, ProtocolError> {
        let malformed = |why| ProtocolError::Body { kind: kind as u8, why };
        let event = match kind {
            Kind::Interface => {
                MetaEvent::Interface(stream, message::name(body).map_err(malformed)?.to_owned())
            }
            Kind::List => {
                let part = core::str::from_utf8(body).map_err(|_| malformed(Malformed::Text))?;
                MetaEvent::List(stream, part.to_owned())
            }
            Kind::Place => MetaEvent::Place(stream, Placing::decode(body).map_err(malformed)?),
            Kind::Status => MetaEvent::Status(stream),
            // Of a stream that has ended meanwhile it says nothing.
            Kind::Cancel if !self.streams.contains(&stream) => return Ok(None),
            Kind::Cancel => MetaEvent::Cancel(stream),
            Kind::Over => MetaEvent::Over(stream, Over::decode(body).map_err(malformed)?),
            Kind::Register => MetaEvent::Register(Register::decode(body).map_err(malformed)?),
            Kind::Offer => {
                let (hash, json) = meta::offer(body).map_err(malformed)?;
                MetaEvent::Offer(hash, json)
            }
            Kind::Holds => MetaEvent::Holds(Ticket::decode_all(body).map_err(malformed)?),
            Kind::Report => MetaEvent::Report(Report::decode(body).map_err(malformed)?),
            Kind::Told => {
                let (ticket, fate) = meta::told(body).map_err(malformed)?;
                MetaEvent::Told(ticket, fate)
            }
            Kind::Leave => MetaEvent::Leave,
            Kind::Ping => {
                self.put(Kind::Pong, 0, |out| out.extend_from_slice(body));
                return Ok(None);
            }
            Kind::Pong => MetaEvent::Pong,
            _ => return Err(ProtocolError::Kind(kind as u8)),
        };
        if matches!(kind, Kind::Interface | Kind::List | Kind::Place | Kind::Status) {
            return Ok(self.begin(stream)?.then_some(event));
        }
        Ok(Some(event))
    }

    /// Begins a stream. False: it is one too many, and the other side is told.
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

    /// Takes the other side in. False: there is no common version, and it has been told so.
    pub fn welcome(&mut self, client: &ClientHello, name: &str) -> bool {
        let Some(version) = client.common(&VERSIONS) else {
            self.refuse(Failure::version(*VERSIONS.end()));
            return false;
        };
        let streams = u32::try_from(self.most_streams).unwrap_or(u32::MAX);
        self.greet(Ok(version), name, streams);
        true
    }

    /// Does not take the other side in; nothing more is read.
    pub fn refuse(&mut self, failure: Failure) {
        self.greet(Err(failure), "", 0);
    }

    fn greet(&mut self, version: Result<u16, Failure>, name: &str, streams: u32) {
        let (highest, name) = (*VERSIONS.end(), name.to_owned());
        // Arguments do not come here: how many bytes a call may have is its server's business.
        let (bytes, role) = (i64::MAX.unsigned_abs(), Role::Metaserver);
        let hello = ServerHello {
            version,
            highest,
            name,
            streams,
            bytes,
            role,
            gives: false,
            local: None,
            vouchers: Vouchers::Unknown,
        };
        self.out.extend_from_slice(&hello.encode());
    }

    /// Tells the other side why nothing more comes.
    pub fn end(&mut self, failure: Failure) {
        if self.greeted {
            self.put(Kind::Error, 0, |out| failure.encode(out));
        } else {
            self.refuse(failure);
        }
    }

    fn put(&mut self, kind: Kind, stream: u32, write: impl FnOnce(&mut Vec<u8>)) {
        frame::put(&mut self.out, kind, stream, write);
    }

    /// Answers with a description.
    pub fn describe(&mut self, stream: u32, hash: u64, json: &str) {
        self.streams.remove(&stream);
        self.put(Kind::Description, stream, |out| {
            out.extend_from_slice(&hash.to_le_bytes());
            out.extend_from_slice(json.as_bytes());
        });
    }

    /// Answers with names, as many as fit.
    pub fn names<'a>(&mut self, stream: u32, names: impl IntoIterator<Item = &'a str>) {
        self.streams.remove(&stream);
        self.put(Kind::Names, stream, |out| message::put_names(out, names));
    }

    /// Says where a call is to go.
    pub fn placed(&mut self, stream: u32, placed: &Placed) {
        self.put(Kind::Placed, stream, |out| placed.encode(out));
    }

    /// Ends a stream with a failure.
    pub fn fail(&mut self, stream: u32, failure: &Failure) {
        if self.streams.remove(&stream) {
            self.put(Kind::Error, stream, |out| failure.encode(out));
        }
    }

    /// Ends the stream of a call.
    pub fn close(&mut self, stream: u32) {
        if self.streams.remove(&stream) {
            self.put(Kind::Closed, stream, |_| {});
        }
    }

    /// Answers with the state, which is too long if it does not fit into a frame.
    pub fn state(&mut self, stream: u32, json: &str) {
        if json.len() > MOST_ANSWER {
            let text = "the state is too long to be sent; look at /status.json";
            let failure = Failure::new(Code::TooLarge, json.len() as i64, text);
            return self.fail(stream, &failure);
        }
        self.streams.remove(&stream);
        self.put(Kind::State, stream, |out| out.extend_from_slice(json.as_bytes()));
    }

    /// Tells a server that it is known, and how often it reports.
    pub fn registered(&mut self, report_ms: u32) {
        self.put(Kind::Registered, 0, |out| out.extend_from_slice(&report_ms.to_le_bytes()));
    }

    /// Has a server end an attempt.
    pub fn stop(&mut self, ticket: Ticket) {
        self.put(Kind::Stop, 0, |out| ticket.encode(out));
    }

    /// Asks a server what is with a ticket; it answers with TOLD.
    pub fn ask(&mut self, ticket: Ticket) {
        self.put(Kind::Ask, 0, |out| ticket.encode(out));
    }

    /// Has a server refuse the call of a ticket if it has not come yet; then it answers with TOLD.
    pub fn expire(&mut self, ticket: Ticket) {
        self.put(Kind::Ask, 0, |out| {
            ticket.encode(out);
            out.push(EXPIRE);
        });
    }

    /// Asks for a sign of life.
    pub fn ping(&mut self) {
        self.put(Kind::Ping, 0, |out| out.extend_from_slice(&[0; 8]));
    }
}
