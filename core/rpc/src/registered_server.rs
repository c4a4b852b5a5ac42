//! A connection to a metaserver as a server of routines sees it.

use crate::codec::{Cursor, DecodeError};
use crate::frame::{self, FrameKind, HEADER, ReadingEnd};
use crate::hello::ServerHello;
use crate::message::Failure;
use crate::metaserver::{FrameCutter, FrameStep};
use crate::placement::{AttemptState, LoadReport, ServerRegistration, Ticket};
use crate::{MOST_REQUEST, ProtocolError};
use alloc::vec::Vec;

/// What a metaserver says to a server.
#[derive(Debug, PartialEq)]
pub enum RegisteredServerEvent {
    /// Who it is, and whether it takes this server.
    Hello(ServerHello),
    /// This server is known, and reports this often, in milliseconds.
    Registered(u32),
    /// An attempt is to end, or is not to begin.
    Stop(Ticket),
    /// It is to be told what is with a ticket.
    Ask(Ticket),
    /// If the call of a ticket has not come it is not to begin any more, and that is to be told.
    Expire(Ticket),
    /// The metaserver gives up the connection.
    Ended(Failure),
}

/// What follows the ticket of an ASK that ends what has not come.
pub(crate) const EXPIRE: u8 = 1;

/// The state of such a connection.
#[derive(Debug, Default)]
pub struct RegisteredServer {
    greeted: bool,
    cutter: FrameCutter,
    out: Vec<u8>,
}

impl RegisteredServer {
    /// A connection on which nothing has come.
    #[must_use]
    pub fn new() -> RegisteredServer {
        RegisteredServer::default()
    }

    /// What is to be written; whoever writes takes from its front.
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    fn put(&mut self, kind: FrameKind, write: impl FnOnce(&mut Vec<u8>)) {
        frame::put(&mut self.out, kind, 0, write);
    }

    /// Says who this server is; its routines follow.
    pub fn register(&mut self, register: &ServerRegistration) {
        self.put(FrameKind::Register, |out| register.encode(out));
    }

    /// Whether a description can be registered.
    #[must_use]
    pub fn fits(json: &str) -> bool {
        json.len() + 8 <= MOST_REQUEST
    }

    /// Offers a routine, whose description [`RegisteredServer::fits`].
    pub fn offer(&mut self, hash: u64, json: &str) {
        self.put(FrameKind::Offer, |out| {
            out.extend_from_slice(&hash.to_le_bytes());
            out.extend_from_slice(json.as_bytes());
        });
    }

    /// Says what runs here.
    pub fn report_running(&mut self, tickets: &[Ticket]) {
        for some in tickets.chunks(MOST_REQUEST / Ticket::LENGTH) {
            self.put(FrameKind::Holds, |out| some.iter().for_each(|ticket| ticket.encode(out)));
        }
    }

    /// Tells the load.
    pub fn report(&mut self, report: &LoadReport) {
        self.put(FrameKind::Report, |out| report.encode(out));
    }

    /// Tells what is with a ticket.
    pub fn report_attempt(&mut self, ticket: Ticket, fate: AttemptState) {
        self.put(FrameKind::Told, |out| {
            ticket.encode(out);
            fate.encode(out);
        });
    }

    /// Says that no new calls are taken.
    pub fn leave(&mut self) {
        self.put(FrameKind::Leave, |_| {});
    }

    /// Looks at what has come and is not done with.
    ///
    /// # Errors
    /// The metaserver broke the protocol.
    pub fn step(
        &mut self,
        input: &[u8],
    ) -> Result<FrameStep<RegisteredServerEvent>, ProtocolError> {
        if !self.greeted {
            return Ok(match ServerHello::decode(input)? {
                Ok((hello, length)) => {
                    self.greeted = true;
                    FrameStep::Event(length, Some(RegisteredServerEvent::Hello(hello)))
                }
                Err(needed) => FrameStep::More(needed),
            });
        }
        let (kind, body) = match self.cutter.cut(input, ReadingEnd::Client)? {
            Err(look) => return Ok(look),
            Ok((_, kind, body)) => (kind, body),
        };
        let event = self.take(kind, body).map_err(|why| match why {
            Some(why) => ProtocolError::Body { kind: kind as u8, why },
            None => ProtocolError::Kind(kind as u8),
        })?;
        Ok(FrameStep::Event(HEADER + body.len(), event))
    }

    /// `Err(None)`: not a kind for this side.
    fn take(
        &mut self,
        kind: FrameKind,
        body: &[u8],
    ) -> Result<Option<RegisteredServerEvent>, Option<DecodeError>> {
        Ok(Some(match kind {
            FrameKind::Registered => {
                let mut cursor = Cursor::new(body);
                let ms = cursor.u32()?;
                cursor.end()?;
                RegisteredServerEvent::Registered(ms)
            }
            FrameKind::Stop => RegisteredServerEvent::Stop(Ticket::decode(body)?),
            FrameKind::Ask => match body.split_at_checked(Ticket::LENGTH) {
                Some((ticket, [EXPIRE])) => RegisteredServerEvent::Expire(Ticket::decode(ticket)?),
                _ => RegisteredServerEvent::Ask(Ticket::decode(body)?),
            },
            FrameKind::Error => RegisteredServerEvent::Ended(Failure::decode(body)?),
            FrameKind::Ping => {
                self.put(FrameKind::Pong, |out| out.extend_from_slice(body));
                return Ok(None);
            }
            FrameKind::Pong => return Ok(None),
            _ => return Err(None),
        }))
    }
}
