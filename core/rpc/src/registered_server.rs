//! State machine of the server end of a connection to a metaserver.

use crate::codec::{Encode, whole};
use crate::frame::{self, FrameError, FrameKind, HEADER, ReadingEnd};
use crate::hello::ServerHello;
use crate::message::Failure;
use crate::metaserver::{FrameCutter, FrameStep};
use crate::placement::{self, AttemptState, LoadReport, ServerRegistration, Ticket};
use crate::{MOST_REQUEST, ProtocolError};
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

/// An event at the server: a frame of the metaserver.
#[derive(Debug, PartialEq)]
pub enum RegisteredServerEvent {
    /// The metaserver's hello, which accepts or refuses this server.
    Hello(ServerHello),
    /// The registration is confirmed; the interval of load reports in milliseconds.
    Registered(u32),
    /// Stop an attempt, or refuse it if it arrives later.
    Stop(Ticket),
    /// Report the state of a ticket.
    Ask(Ticket),
    /// Refuse the call of a ticket if it has not arrived yet, and report its state.
    Expire(Ticket),
    /// Whether a server is registered that clients reach at this address.
    AddressState(String, bool),
    /// The metaserver closes the connection, for this reason.
    Ended(Failure),
}

/// The byte after the ticket in an ASK that expires the ticket.
pub(crate) const EXPIRE: u8 = 1;

/// The server end of a connection to a metaserver.
#[derive(Debug, Default)]
pub struct RegisteredServer {
    greeted: bool,
    cutter: FrameCutter,
    out: Vec<u8>,
}

impl RegisteredServer {
    /// A connection on which nothing has arrived.
    #[must_use]
    pub fn new() -> RegisteredServer {
        RegisteredServer::default()
    }

    /// The output; the driver removes what it has written.
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    fn put(&mut self, kind: FrameKind, body: impl Encode) {
        frame::put(&mut self.out, kind, 0, body);
    }

    /// Registers this server; its routines have to follow.
    pub fn register(&mut self, register: &ServerRegistration) {
        self.put(FrameKind::Register, register);
    }

    /// Whether a description fits into an OFFER frame.
    #[must_use]
    pub fn fits(json: &str) -> bool {
        json.len() + 8 <= MOST_REQUEST
    }

    /// Offers a routine whose description [`RegisteredServer::fits`].
    pub fn offer(&mut self, hash: u64, json: &str) {
        self.put(FrameKind::Offer, (hash, json.as_bytes()));
    }

    /// Reports the tickets of all calls that run or wait here.
    pub fn report_running(&mut self, tickets: &[Ticket]) {
        for some in tickets.chunks(MOST_REQUEST / Ticket::LENGTH) {
            self.put(FrameKind::RunningTickets, some);
        }
    }

    /// Reports the load.
    pub fn report(&mut self, report: &LoadReport) {
        self.put(FrameKind::Report, report);
    }

    /// Reports the state of a ticket.
    pub fn report_attempt(&mut self, ticket: Ticket, fate: AttemptState) {
        self.put(FrameKind::TicketState, (ticket, fate));
    }

    /// Asks whether a server is registered that clients reach at this address. Older metaservers do not answer, and
    /// nobody answers for an address that is too long.
    pub fn ask_address(&mut self, address: &str) {
        if address.len() <= placement::MOST_TEXT {
            self.put(FrameKind::AskAddress, address.as_bytes());
        }
    }

    /// Announces that this server accepts no new calls.
    pub fn leave(&mut self) {
        self.put(FrameKind::Leave, ());
    }

    /// Processes the unread input.
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
        match self.cutter.cut(input, ReadingEnd::Client)? {
            Err(look) => Ok(look),
            Ok((kind, stream, body)) => {
                let event = self.take(kind, body).map_err(|error| error.of(kind, stream))?;
                Ok(FrameStep::Event(HEADER + body.len(), event))
            }
        }
    }

    fn take(
        &mut self,
        kind: FrameKind,
        body: &[u8],
    ) -> Result<Option<RegisteredServerEvent>, FrameError> {
        Ok(Some(match kind {
            FrameKind::Registered => RegisteredServerEvent::Registered(whole(body)?),
            FrameKind::Stop => RegisteredServerEvent::Stop(whole(body)?),
            FrameKind::Ask => match body.split_at_checked(Ticket::LENGTH) {
                Some((ticket, [EXPIRE])) => RegisteredServerEvent::Expire(whole(ticket)?),
                _ => RegisteredServerEvent::Ask(whole(body)?),
            },
            FrameKind::AddressState => {
                let (address, is_known) = placement::address_state(body)?;
                RegisteredServerEvent::AddressState(address.to_owned(), is_known)
            }
            FrameKind::Error => RegisteredServerEvent::Ended(whole(body)?),
            FrameKind::Ping => {
                self.put(FrameKind::Pong, body);
                return Ok(None);
            }
            FrameKind::Pong => return Ok(None),
            _ => return Err(FrameError::Kind),
        }))
    }
}
