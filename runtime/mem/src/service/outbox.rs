//! The outbox of a service that runs: what it sends and begins goes by here.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use kumi_net::{ChannelError, CopySource, Guard, SharedBytes};
use kumi_proto::Rank;
use kumi_proto::frame::SERVICE_BYTES;

use crate::engine::Engine;
use crate::error::{Error, panic_text};
use crate::service::arrived::ArrivedMessage;
use crate::service::table::{Panic, no_service};
use crate::service::unsent::first_header;
use crate::service::{SERVICE_MESSAGE_BYTES, Service};

/// Most private parts of a message that are sent from where they are.
const MOST_PARTS: usize = 7;

/// A message that a service has sent in this call.
#[derive(Debug, Default)]
pub(crate) struct ServiceMessage {
    to: Rank,
    data: Vec<u8>,
}

/// What an outbox reaches.
pub(super) enum Way<'e> {
    /// The engine, while it takes a frame or hands out answers: what is sent leaves afterwards.
    Engine(&'e mut Engine),
    /// The channel: what is sent leaves at once if there is room.
    Channel(Guard<'e, Engine>),
}

/// Ranks of other nodes to which frames have been queued that are not on the wire.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Queued {
    Nothing,
    To(Rank),
    ToSeveral,
}

/// What a service sends and begins while it runs, in its order.
pub struct Outbox<'e> {
    pub(super) way: Way<'e>,
    pub(super) number: u16,
    /// Messages that wait until the service has run, and how many of them are on their way.
    messages: Vec<ServiceMessage>,
    handed: usize,
    queued: Queued,
}

impl Outbox<'_> {
    /// Sends a message to the same service at a rank. It leaves when the call that has this outbox returns, or as soon as there
    /// is room afterwards. One to the own rank is taken before that call's caller goes on.
    ///
    /// What finds no room is kept without a bound. So a service that answers what it is asked bounds how much others ask at a time.
    ///
    /// # Errors
    /// [`Error::BadRank`], [`Error::ServiceMessageTooLong`]. Nothing is sent then.
    pub fn send(&mut self, to: u32, message: Vec<u8>) -> Result<(), Error> {
        self.check(to, message.len())?;
        self.messages.push(ServiceMessage { to, data: message });
        Ok(())
    }

    /// As [`Outbox::send`], of a message made of `parts` and then `payload`. If it fits one frame
    /// ([`Outbox::max_frame_payload`]) it is written where its target reads it, or where it is sent from, and has left when this
    /// returns, also if the service panics afterwards. It is copied instead:
    ///
    /// - while the library takes a frame or tells of a transfer's end, and does not run a call of the program;
    /// - if an earlier message to that rank waits, there is no room, or it goes to the own rank;
    /// - if it is longer, or has more than seven parts.
    ///
    /// Memory of such copies is used again, so short messages allocate nothing in the long run.
    ///
    /// # Errors
    /// As [`Outbox::send`]; [`Error::Fault`], [`Error::Io`].
    pub fn send_parts(
        &mut self,
        to: u32,
        parts: &[&[u8]],
        payload: SharedBytes<'_>,
    ) -> Result<(), Error> {
        if self.send_now(to, parts, payload)? {
            return Ok(());
        }
        self.push_copy(to, parts, payload);
        Ok(())
    }

    /// Bytes of a message that fits one frame to any rank. They never change.
    #[must_use]
    pub fn max_frame_payload(&self) -> usize {
        self.engine_ref().max_service_frame()
    }

    /// Whether nothing that this rank's services sent to a rank still waits for room.
    #[must_use]
    pub fn is_free(&self, to: u32) -> bool {
        let waits = |message: &ServiceMessage| message.to == to;
        !self.messages[self.handed..].iter().any(waits)
            && self.engine_ref().services.unsent.is_free(to)
    }

    /// Bytes of messages to a rank that wait for room. It looks at each of these messages.
    #[must_use]
    pub fn waiting_bytes(&self, to: u32) -> usize {
        let own = self.messages[self.handed..].iter().filter(|message| message.to == to);
        own.map(|message| message.data.len()).sum::<usize>()
            + self.engine_ref().services.unsent.bytes(to)
    }

    fn check(&self, to: Rank, length: usize) -> Result<(), Error> {
        let ranks = self.engine_ref().services.ranks;
        if to >= ranks {
            return Err(Error::BadRank { rank: to, ranks });
        }
        if length > SERVICE_MESSAGE_BYTES {
            return Err(Error::ServiceMessageTooLong { length, most: SERVICE_MESSAGE_BYTES });
        }
        Ok(())
    }

    fn push_copy(&mut self, to: Rank, parts: &[&[u8]], payload: SharedBytes<'_>) {
        let mut data = self.engine().services.unsent.buffer();
        parts.iter().for_each(|part| data.extend_from_slice(part));
        kumi_proto::frame::Payload::append_to(payload, &mut data);
        self.messages.push(ServiceMessage { to, data });
    }

    /// Sends a message in one frame if nothing has to wait for it; false otherwise.
    pub(super) fn send_now(
        &mut self,
        to: Rank,
        parts: &[&[u8]],
        payload: SharedBytes<'_>,
    ) -> Result<bool, Error> {
        let length = parts.iter().map(|part| part.len()).sum::<usize>() + payload.len();
        self.check(to, length)?;
        let services = &self.engine_ref().services;
        let behind = self.handed < self.messages.len() || !services.unsent.is_free(to);
        let fits = length <= self.max_frame_payload() && parts.len() <= MOST_PARTS;
        if behind || !fits || to == services.me {
            return Ok(false);
        }
        let Way::Channel(guard) = &mut self.way else { return Ok(false) };
        let header = first_header(self.number, length);
        let mut head: [&[u8]; MOST_PARTS + 1] = [&[]; MOST_PARTS + 1];
        head[0] = &header;
        head[1..=parts.len()].copy_from_slice(parts);
        let sent = guard.send_parts(to, &head[..=parts.len()], &[payload])?;
        if sent && !guard.is_near(to) {
            self.note_queued(to);
        }
        Ok(sent)
    }

    /// Frames to a rank of another node are to be put on the wire.
    fn note_queued(&mut self, to: Rank) {
        self.queued = match self.queued {
            Queued::Nothing => Queued::To(to),
            Queued::To(before) if before == to => Queued::To(to),
            Queued::To(_) | Queued::ToSeveral => Queued::ToSeveral,
        };
    }
}

impl<'e> Outbox<'e> {
    pub(super) fn new(mut way: Way<'e>, number: u16) -> Outbox<'e> {
        let messages = std::mem::take(&mut way.engine().services.sending);
        Outbox { way, number, messages, handed: 0, queued: Queued::Nothing }
    }

    #[inline]
    pub(super) fn engine(&mut self) -> &mut Engine {
        self.way.engine()
    }

    #[inline]
    fn engine_ref(&self) -> &Engine {
        match &self.way {
            Way::Engine(engine) => engine,
            Way::Channel(guard) => guard.handler_ref(),
        }
    }

    /// Runs `body` with the service. After a panic of it nothing is sent of what waited for its end, and the service is of no
    /// use any more.
    ///
    /// # Errors
    /// [`Error::ServicePanicked`] if it is of no use.
    pub(super) fn run<R>(
        &mut self,
        body: impl FnOnce(&mut dyn Service, &mut Outbox<'_>) -> R,
    ) -> Result<Result<R, Panic>, Error> {
        let number = self.number;
        let mut service = self.engine().services.run(number)?;
        let before = self.messages.len();
        let result = catch_unwind(AssertUnwindSafe(|| body(&mut *service, &mut *self)));
        let failed = result.as_ref().err().map(|panic| panic_text(&**panic));
        if failed.is_some() {
            // A part of what it was about to say is not to be acted on.
            self.messages.truncate(before);
        }
        self.engine().services.ran(number, service, failed);
        Ok(result)
    }

    /// Runs a call of the program with the service, which it knows by its type.
    ///
    /// # Errors
    /// As [`Outbox::run`].
    pub(super) fn call<S: Service, T>(
        &mut self,
        call: impl FnOnce(&mut S, &mut Outbox<'_>) -> T,
    ) -> Result<Result<T, Panic>, Error> {
        let called = self.run(|service, outbox| {
            let service: &mut dyn Any = service;
            service.downcast_mut::<S>().map(|service| call(service, outbox))
        })?;
        called
            .map(|found| found.ok_or_else(no_service))
            .map_or_else(|panic| Ok(Err(panic)), |found| found.map(Ok))
    }

    /// Runs the service for something that comes from elsewhere. A panic ends it and is told by the program's next call.
    pub(super) fn run_for_others(&mut self, body: impl FnOnce(&mut dyn Service, &mut Outbox<'_>)) {
        // One that has ended gets nothing.
        let Ok(result) = self.run(body) else { return };
        let number = self.number;
        let services = &mut self.engine().services;
        match result {
            Ok(()) => services.changed(number),
            Err(panic) => services.tell_panic(number, &panic_text(&*panic)),
        }
    }

    /// Gives the service a whole message, first where it lies.
    pub(super) fn deliver(&mut self, from: Rank, data: impl CopySource) {
        let mut scratch = std::mem::take(&mut self.engine().services.scratch);
        let room = &mut scratch;
        self.run_for_others(|service, outbox| {
            if service.arrived(from, &ArrivedMessage::new(data), outbox) {
                return;
            }
            if room.len() < data.len() {
                room.resize(data.len(), 0);
            }
            service.message(from, data.private(&mut room[..data.len()]), outbox);
        });
        self.engine().services.scratch = scratch;
    }

    /// Gives the service a message that was put together.
    pub(super) fn deliver_private(&mut self, from: Rank, message: &[u8]) {
        self.run_for_others(|service, outbox| service.message(from, message, outbox));
    }

    /// Sends a message to the own rank, which gets it before this returns.
    pub(super) fn send_to_self(
        &mut self,
        parts: &[&[u8]],
        payload: SharedBytes<'_>,
    ) -> Result<(), Error> {
        let me = self.engine_ref().services.me;
        self.check(me, parts.iter().map(|part| part.len()).sum::<usize>() + payload.len())?;
        self.push_copy(me, parts, payload);
        self.hand_on();
        Ok(())
    }

    /// Takes what the service has sent: to others it waits for its way, and to this rank it is there at once.
    pub(super) fn hand_on(&mut self) {
        let me = self.engine_ref().services.me;
        while self.handed < self.messages.len() {
            let ServiceMessage { to, data } = std::mem::take(&mut self.messages[self.handed]);
            self.handed += 1;
            if to == me {
                self.deliver(me, &data[..]);
                self.engine().services.unsent.give_back(data);
            } else {
                let number = self.number;
                self.engine().services.unsent.add(number, to, data);
            }
        }
        self.messages.clear();
        self.handed = 0;
    }

    /// Hands on all; whoever drives the channel sends it.
    pub(super) fn finish_later(&mut self) {
        self.hand_on();
        self.engine().services.sending = std::mem::take(&mut self.messages);
    }

    /// Sends all.
    ///
    /// # Errors
    /// Those of the channel.
    pub(super) fn finish(mut self) -> Result<(), ChannelError> {
        self.finish_later();
        let Way::Channel(mut guard) = self.way else { return Ok(()) };
        match self.queued {
            Queued::Nothing => {}
            Queued::To(to) => guard.transmit_soon(to)?,
            Queued::ToSeveral => guard.transmit()?,
        }
        guard.answer()
    }
}

impl Way<'_> {
    #[inline]
    fn engine(&mut self) -> &mut Engine {
        match self {
            Way::Engine(engine) => engine,
            Way::Channel(guard) => guard.handler(),
        }
    }
}

impl Engine {
    /// Bytes of a message to a service that one frame to any rank takes.
    pub(crate) fn max_service_frame(&self) -> usize {
        // A job of one rank sends no frames.
        (self.longest - SERVICE_BYTES).min(SERVICE_MESSAGE_BYTES)
    }
}

impl fmt::Debug for Outbox<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = &self.messages[self.handed..];
        f.debug_struct("Outbox").field("messages", &waiting).finish_non_exhaustive()
    }
}
