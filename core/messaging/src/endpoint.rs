//! Receives of an endpoint, and the messages that wait for one.

use alloc::vec::Vec;

use crate::header::Exposure;
use crate::matching::{Found, Pattern, PostedReceives, UnexpectedMessages};
use crate::messenger::{Messenger, Refused, Status};
use crate::port::{Failure, Memory, MessageInfo, Port};

/// A receive.
#[derive(Debug)]
pub struct Receive<M, O> {
    /// Told when it is over.
    pub operation: O,
    /// Where the message goes.
    pub buffer: M,
    /// Which messages it takes.
    pub pattern: Pattern,
    /// It takes messages with tags, or those without.
    pub tagged: bool,
    /// It takes messages until its buffer has less room than so many bytes.
    pub several: Option<u64>,
}

/// What is done with a message that is found but not received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peek {
    /// It stays.
    Look,
    /// It waits for [`Messenger::receive_claimed`] with this number.
    Claim(u64),
    /// It is dropped.
    Discard,
}

/// Where data of a message is.
#[derive(Debug)]
pub(crate) enum Body {
    Here(Vec<u8>),
    /// With its sender; no pieces: it is asked for.
    There(Exposure),
}

/// A message without a receive.
#[derive(Debug)]
pub(crate) struct Unexpected {
    pub(crate) info: MessageInfo,
    /// The sender wants an answer.
    pub(crate) request: Option<u64>,
    pub(crate) body: Body,
}

/// A receive in its queue.
#[derive(Debug)]
pub(crate) enum Posted<M, O> {
    One {
        operation: O,
        buffer: M,
    },
    /// Number of a buffer for several messages, and what it takes.
    Several(u64, Pattern),
}

/// A buffer for several messages.
#[derive(Debug)]
pub(crate) struct SharedBuffer<M, O> {
    operation: O,
    buffer: M,
    used: u64,
    least: u64,
    /// Messages whose data is under way.
    under_way: u32,
    used_up: bool,
}

/// What is told when the data of a message is in its place.
#[derive(Debug)]
pub(crate) struct Destination<O> {
    kind: DestinationKind<O>,
    info: MessageInfo,
    too_long: Option<Failure>,
    message_length: u64,
}

#[derive(Debug)]
enum DestinationKind<O> {
    One(O),
    Part(u64),
}

impl<O> Destination<O> {
    /// Bytes of the message, which its receive may have no room for.
    pub(crate) fn message_length(&self) -> u64 {
        self.message_length
    }
}

/// Messages and receives of one kind.
#[derive(Debug)]
pub(crate) struct Queues<M, O> {
    pub(crate) posted: PostedReceives<Posted<M, O>>,
    pub(crate) unexpected: UnexpectedMessages<Unexpected>,
}

impl<M, O> Default for Queues<M, O> {
    fn default() -> Self {
        Queues { posted: PostedReceives::default(), unexpected: UnexpectedMessages::default() }
    }
}

/// An endpoint.
#[derive(Debug)]
pub(crate) struct Endpoint<M, O> {
    tagged: Queues<M, O>,
    untagged: Queues<M, O>,
    claimed: Vec<(u64, crate::Address, Unexpected)>,
}

impl<M, O> Default for Endpoint<M, O> {
    fn default() -> Self {
        Endpoint { tagged: Queues::default(), untagged: Queues::default(), claimed: Vec::new() }
    }
}

impl<M, O> Endpoint<M, O> {
    /// Receives of messages with a tag.
    pub(crate) fn tagged(&self) -> &PostedReceives<Posted<M, O>> {
        &self.tagged.posted
    }

    #[inline]
    pub(crate) fn queues(&mut self, tagged: bool) -> &mut Queues<M, O> {
        if tagged { &mut self.tagged } else { &mut self.untagged }
    }
}

impl<M: Memory, O> Messenger<M, O> {
    /// Posts a receive, or takes the oldest message that fits.
    ///
    /// # Errors
    /// [`Refused::NoEndpoint`].
    pub fn receive<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &mut P,
        endpoint: u16,
        receive: Receive<M, O>,
    ) -> Result<(), Refused> {
        let Receive { operation, buffer, pattern, tagged, several } = receive;
        let queues = self.endpoint(endpoint).ok_or(Refused::NoEndpoint)?.queues(tagged);
        if let Some(least) = several {
            let shared = SharedBuffer {
                operation,
                buffer,
                used: 0,
                least: least.max(1),
                under_way: 0,
                used_up: false,
            };
            let number = self.buffers.add(shared);
            return self.receive_several(port, (endpoint, tagged), number, pattern);
        }
        match queues.unexpected.take(pattern) {
            None => queues.posted.post(pattern, Posted::One { operation, buffer }),
            Some((source, _, message)) => {
                let (into, destination) = one(operation, &buffer, message.info);
                self.take(port, (endpoint, source.rank), message, &into, destination);
            }
        }
        Ok(())
    }

    fn receive_several<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &mut P,
        (endpoint, tagged): (u16, bool),
        number: u64,
        pattern: Pattern,
    ) -> Result<(), Refused> {
        loop {
            let queues = self.endpoint(endpoint).ok_or(Refused::NoEndpoint)?.queues(tagged);
            let Some((source, _, message)) = queues.unexpected.take(pattern) else {
                queues.posted.post(pattern, Posted::Several(number, pattern));
                return Ok(());
            };
            let Some((into, destination, used_up)) = self.part(number, message.info) else {
                return Ok(());
            };
            self.take(port, (endpoint, source.rank), message, &into, destination);
            if used_up {
                return Ok(());
            }
        }
    }

    /// Where a message goes whose receive has been found. A buffer that takes more stays posted.
    pub(crate) fn destination(
        &mut self,
        endpoint: u16,
        tagged: bool,
        found: Found<Posted<M, O>>,
        info: MessageInfo,
    ) -> (M, Destination<O>)
    where
        M: Memory,
    {
        let (number, pattern) = match found.receive {
            Posted::One { operation, buffer } => return one(operation, &buffer, info),
            Posted::Several(number, pattern) => (number, pattern),
        };
        let (into, destination, used_up) =
            self.part(number, info).expect("a posted buffer is in the table");
        if let (false, Some(endpoint)) = (used_up, self.endpoint(endpoint)) {
            let receive = Posted::Several(number, pattern);
            endpoint
                .queues(tagged)
                .posted
                .put_back(pattern, Found { number: found.number, receive });
        }
        (into, destination)
    }

    /// Room for a message in a buffer for several, and whether that is used up by it.
    fn part(&mut self, number: u64, mut info: MessageInfo) -> Option<(M, Destination<O>, bool)> {
        let shared = self.buffers.get_mut(number)?;
        let message_length = info.length;
        let into = shared.buffer.part(shared.used, message_length);
        (info.offset, info.length) = (shared.used, into.length());
        shared.used += into.length();
        shared.used_up = shared.buffer.length() - shared.used < shared.least;
        shared.under_way += 1;
        let too_long = too_long(message_length, into.length());
        let kind = DestinationKind::Part(number);
        let used_up = shared.used_up;
        Some((into, Destination { kind, info, too_long, message_length }, used_up))
    }

    /// Gives a message that waited to its receive.
    fn take<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &mut P,
        (endpoint, from): (u16, u32),
        message: Unexpected,
        into: &M,
        destination: Destination<O>,
    ) {
        match message.body {
            Body::There(exposure) => {
                let request = message.request.unwrap_or_default();
                self.pull(port, (endpoint, from, request), &exposure, into, destination);
            }
            Body::Here(bytes) => {
                port.copy_in(&bytes, into);
                self.give_room_back(port, from, bytes.len() as u64);
                if let Some(request) = message.request {
                    self.tell_end(port, from, request, Status::Good);
                }
                self.received(port, destination, None);
            }
        }
    }

    /// The data of a message is in its place, or cannot be had.
    pub(crate) fn received<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &mut P,
        destination: Destination<O>,
        failure: Option<Failure>,
    ) {
        let Destination { kind, mut info, too_long, .. } = destination;
        let failure = failure.or(too_long);
        let result = |info| match failure {
            None => Ok(info),
            Some(failure) => Err((failure, info)),
        };
        let number = match kind {
            DestinationKind::One(operation) => return port.ended(operation, result(info)),
            DestinationKind::Part(number) => number,
        };
        let Some(shared) = self.buffers.get_mut(number) else { return };
        shared.under_way -= 1;
        if shared.used_up && shared.under_way == 0 {
            info.last_of_buffer = true;
            if let Some(shared) = self.buffers.remove(number) {
                port.ended(shared.operation, result(info));
            }
        } else {
            port.received_part(&shared.operation, result(info));
        }
    }

    /// Looks for a message that waits. What is found is the operation's end, or [`Failure::NoMessage`].
    ///
    /// # Errors
    /// [`Refused::NoEndpoint`].
    pub fn peek<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &mut P,
        endpoint: u16,
        (pattern, tagged): (Pattern, bool),
        operation: O,
        what: Peek,
    ) -> Result<(), Refused> {
        let endpoint = self.endpoint(endpoint).ok_or(Refused::NoEndpoint)?;
        let queues = endpoint.queues(tagged);
        let Some((_, tag, message)) = queues.unexpected.peek(pattern) else {
            self.searched = Some(pattern);
            port.ended(operation, Err((Failure::NoMessage, MessageInfo::default())));
            return Ok(());
        };
        let info = MessageInfo { tag, ..message.info };
        match what {
            Peek::Look => {}
            Peek::Claim(number) => {
                if let Some((source, _, message)) = queues.unexpected.take(pattern) {
                    endpoint.claimed.push((number, source, message));
                }
            }
            Peek::Discard => {
                if let Some((source, _, message)) = queues.unexpected.take(pattern) {
                    self.drop_message(port, source.rank, &message, Status::Good);
                }
            }
        }
        self.searched = None;
        port.ended(operation, Ok(info));
        Ok(())
    }

    /// Receives the message that was claimed with this number, or drops it if there is no buffer. [`Failure::NoMessage`] if there is none.
    ///
    /// # Errors
    /// [`Refused::NoEndpoint`].
    pub fn receive_claimed<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &mut P,
        endpoint: u16,
        number: u64,
        operation: O,
        buffer: Option<&M>,
    ) -> Result<(), Refused> {
        let queues = self.endpoint(endpoint).ok_or(Refused::NoEndpoint)?;
        let Some(place) = queues.claimed.iter().position(|claimed| claimed.0 == number) else {
            port.ended(operation, Err((Failure::NoMessage, MessageInfo::default())));
            return Ok(());
        };
        let (_, source, message) = queues.claimed.remove(place);
        match buffer {
            Some(buffer) => {
                let (into, destination) = one(operation, buffer, message.info);
                self.take(port, (endpoint, source.rank), message, &into, destination);
            }
            None => {
                let info = message.info;
                self.drop_message(port, source.rank, &message, Status::Good);
                port.ended(operation, Ok(info));
            }
        }
        Ok(())
    }

    fn drop_message<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &mut P,
        from: u32,
        message: &Unexpected,
        status: Status,
    ) {
        match &message.body {
            Body::Here(bytes) => self.give_room_back(port, from, bytes.len() as u64),
            Body::There(_) => self.credit.promise_is_over(from),
        }
        if let Some(request) = message.request {
            self.tell_end(port, from, request, status);
        }
    }

    /// Cancels the oldest posted receive whose operation is meant; false if there is none. Its end is [`Failure::Cancelled`].
    pub fn cancel<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &mut P,
        endpoint: u16,
        is_it: impl Fn(&O) -> bool,
    ) -> bool {
        let buffers = &mut self.buffers;
        let Some(Some(endpoint)) = self.endpoints.get_mut(usize::from(endpoint)) else {
            return false;
        };
        let mut meant = |posted: &Posted<M, O>| match posted {
            Posted::One { operation, .. } => is_it(operation),
            Posted::Several(number, _) => {
                buffers.get_mut(*number).is_some_and(|shared| is_it(&shared.operation))
            }
        };
        let found = endpoint.tagged.posted.remove(&mut meant);
        let Some(posted) = found.or_else(|| endpoint.untagged.posted.remove(&mut meant)) else {
            return false;
        };
        self.cancelled(port, posted);
        true
    }

    fn cancelled<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &mut P,
        posted: Posted<M, O>,
    ) {
        let failure = Err((Failure::Cancelled, MessageInfo::default()));
        let number = match posted {
            Posted::One { operation, .. } => return port.ended(operation, failure),
            Posted::Several(number, _) => number,
        };
        let Some(shared) = self.buffers.get_mut(number) else { return };
        shared.used_up = true;
        // If data is under way its end is the buffer's.
        if shared.under_way == 0
            && let Some(shared) = self.buffers.remove(number)
        {
            port.ended(shared.operation, failure);
        }
    }

    pub(crate) fn close_queues<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &mut P,
        mut endpoint: Endpoint<M, O>,
    ) {
        for tagged in [true, false] {
            let queues = endpoint.queues(tagged);
            let (posted, unexpected) = (queues.posted.drain(), queues.unexpected.drain());
            posted.into_iter().for_each(|posted| self.cancelled(port, posted));
            unexpected.for_each(|(source, _, message)| {
                self.drop_message(port, source.rank, &message, Status::NoEndpoint);
            });
        }
        for (_, source, message) in endpoint.claimed {
            self.drop_message(port, source.rank, &message, Status::NoEndpoint);
        }
    }
}

fn too_long(message: u64, room: u64) -> Option<Failure> {
    message.checked_sub(room).filter(|excess| *excess > 0).map(Failure::TooLong)
}

fn one<M: Memory, O>(operation: O, buffer: &M, mut info: MessageInfo) -> (M, Destination<O>) {
    let message_length = info.length;
    let into = buffer.part(0, message_length);
    info.length = into.length();
    let too_long = too_long(message_length, into.length());
    (into, Destination { kind: DestinationKind::One(operation), info, too_long, message_length })
}
