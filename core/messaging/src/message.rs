//! Messages of programs: how they are sent, and how they arrive.

use alloc::vec::Vec;

use crate::endpoint::{Body, Destination, Unexpected};
use crate::header::{BadMessage, Exposure, Header, Kind};
use crate::messenger::{Messenger, Pull, Refused, Request, Status, info_of};
use crate::port::{Address, Arrived, Direction, Failure, Memory, MessageInfo, Port};

/// When a send is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendEnd {
    /// Its memory may be used again.
    Sent,
    /// A receive has taken the message.
    Matched,
}

/// A message that is to be sent.
#[derive(Debug)]
pub struct Send<M, O> {
    /// Told when it is over.
    pub operation: O,
    /// Where it goes.
    pub to: Address,
    /// Its data, which stays until the send is over.
    pub data: M,
    /// The memory is the program's again at once.
    pub inject: bool,
    /// Its tag; none: a message without one.
    pub tag: Option<u64>,
    /// A word beside it.
    pub immediate: Option<u64>,
    /// When it is over.
    pub end: SendEnd,
}

/// Data of a message that waits for its receive.
#[derive(Debug)]
pub(crate) enum Source<M> {
    /// It has been sent, or the other rank takes it by itself.
    Gone,
    /// The program's.
    Program(M),
    /// A copy.
    Copy(Vec<u8>),
}

/// A message that waits for its receive.
#[derive(Debug)]
pub(crate) struct SendRequest<M, O> {
    pub(crate) endpoint: u16,
    pub(crate) to: u32,
    /// None: its end has been told.
    operation: Option<O>,
    end: SendEnd,
    length: u64,
    source: Source<M>,
    exposure: Option<Exposure>,
    announced: bool,
}

impl<M: Memory, O> SendRequest<M, O> {
    /// The rank that is to receive it, if its end has not been told.
    pub(crate) fn awaits(&self) -> Option<u32> {
        self.operation.as_ref().map(|_| self.to)
    }

    /// Its endpoint is closed: the program's memory is not touched any more. A short message still arrives. The operation, if it was not
    /// over.
    pub(crate) fn close<P: Port<Memory = M, Operation = O>>(&mut self, port: &mut P) -> Option<O> {
        if let Some(exposure) = self.exposure.take() {
            port.conceal(&exposure);
        }
        if let Source::Program(data) = &self.source {
            self.source = Source::Copy(port.copy_out(data));
        }
        self.operation.take()
    }
}

impl<M: Memory, O> Messenger<M, O> {
    /// Sends a message. It arrives whatever the program does then.
    ///
    /// # Errors
    /// Nothing was sent, and the operation's end is not told.
    pub fn send<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &mut P,
        endpoint: u16,
        send: Send<M, O>,
    ) -> Result<(), Refused> {
        let (to, length) = (send.to.rank, send.data.length());
        self.may_begin(port, endpoint, to)?;
        let mut header = Header::new(Kind::Eager, send.to.endpoint, endpoint);
        (header.tagged, header.tag) = (send.tag.is_some(), send.tag.unwrap_or_default());
        (header.immediate, header.length) = (send.immediate, length);
        let short = length <= port.eager_bytes(to);
        if !(short && self.credit.spend(to, length)) {
            return self.announce(port, header, send, short);
        }
        match send.end {
            SendEnd::Sent => {
                self.transmit(port, to, header, &send.data);
                port.ended(send.operation, Ok(MessageInfo::default()));
            }
            SendEnd::Matched => {
                header.request = Some(self.requests.add(Request::Send(SendRequest {
                    endpoint,
                    to,
                    operation: Some(send.operation),
                    end: send.end,
                    length,
                    source: Source::Gone,
                    exposure: None,
                    announced: false,
                })));
                self.transmit(port, to, header, &send.data);
            }
        }
        Ok(())
    }

    /// Says that there is a message, whose data stays here until its receive is known. A short one is then asked for, a long one
    /// is fetched from the program's memory.
    fn announce<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &mut P,
        mut header: Header,
        send: Send<M, O>,
        short: bool,
    ) -> Result<(), Refused> {
        let to = send.to.rank;
        if !self.credit.announce(to) {
            return Err(Refused::Again);
        }
        let (mut operation, mut exposure) = (Some(send.operation), None);
        let source = if send.inject {
            Source::Copy(port.copy_out(&send.data))
        } else if short {
            Source::Program(send.data)
        } else {
            exposure = Some(port.expose(&send.data, Direction::Read));
            Source::Gone
        };
        let over = matches!(source, Source::Copy(_)) && send.end == SendEnd::Sent;
        let ended = if over { operation.take() } else { None };
        header.kind = Kind::Announce;
        header.exposure = exposure.unwrap_or_default();
        let (end, length) = (send.end, header.length);
        let endpoint = header.source;
        let request =
            SendRequest { endpoint, to, operation, end, length, source, exposure, announced: true };
        header.request = Some(self.requests.add(Request::Send(request)));
        self.transmit_bytes(port, to, header, &[]);
        if let Some(operation) = ended {
            port.ended(operation, Ok(MessageInfo::default()));
        }
        Ok(())
    }

    /// A message has come with its data.
    pub(crate) fn eager<P, A>(
        &mut self,
        port: &mut P,
        from: u32,
        header: &Header,
        (message, begin): (&A, usize),
    ) -> Result<(), BadMessage>
    where
        P: Port<Memory = M, Operation = O>,
        A: Arrived<M>,
    {
        self.credit.arrived(from, header.length)?;
        let source = Address { rank: from, endpoint: header.source };
        let info = info_of(source, header);
        let Some(endpoint) = self.endpoint(header.endpoint) else {
            self.give_room_back(port, from, header.length);
            if let Some(request) = header.request {
                self.tell_end(port, from, request, Status::NoEndpoint);
            }
            return Ok(());
        };
        let queues = endpoint.queues(header.tagged);
        let Some(found) = queues.posted.find(source, header.tag) else {
            let body = Body::Here(message.to_vec(begin));
            queues.unexpected.push(
                source,
                header.tag,
                Unexpected { info, request: header.request, body },
            );
            port.unexpected();
            return Ok(());
        };
        let (into, destination) = self.destination(header.endpoint, header.tagged, found, info);
        message.copy_to(begin, &into);
        self.give_room_back(port, from, header.length);
        if let Some(request) = header.request {
            self.tell_end(port, from, request, Status::Good);
        }
        self.received(port, destination, None);
        Ok(())
    }

    /// A message has been announced.
    pub(crate) fn announced<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &mut P,
        from: u32,
        header: &Header,
    ) -> Result<(), BadMessage> {
        let request = header.request.ok_or(BadMessage::Request(0))?;
        let exposed = header.exposure.pieces().len();
        if exposed > 0 && header.exposure.length() != header.length {
            return Err(BadMessage::Exposure(exposed as u16));
        }
        self.credit.promised(from)?;
        let source = Address { rank: from, endpoint: header.source };
        let info = info_of(source, header);
        let Some(endpoint) = self.endpoint(header.endpoint) else {
            self.credit.promise_is_over(from);
            self.tell_end(port, from, request, Status::NoEndpoint);
            return Ok(());
        };
        let queues = endpoint.queues(header.tagged);
        match queues.posted.find(source, header.tag) {
            Some(found) => {
                let (into, destination) =
                    self.destination(header.endpoint, header.tagged, found, info);
                self.pull(
                    port,
                    (header.endpoint, from, request),
                    &header.exposure,
                    &into,
                    destination,
                );
            }
            None => {
                let body = Body::There(header.exposure);
                queues.unexpected.push(
                    source,
                    header.tag,
                    Unexpected { info, request: Some(request), body },
                );
                port.unexpected();
            }
        }
        Ok(())
    }

    /// Fetches the data of a message that was announced, or as much of it as there is memory for.
    pub(crate) fn pull<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &mut P,
        (endpoint, from, request): (u16, u32, u64),
        exposure: &Exposure,
        into: &M,
        destination: Destination<O>,
    ) {
        let length = destination.message_length();
        let exposed = !exposure.pieces().is_empty();
        let nothing = if exposed { into.length() == 0 } else { length == 0 };
        let pull = Pull {
            endpoint,
            from,
            request,
            length,
            into: into.clone(),
            destination: Some(destination),
            pending: 0,
            failed: false,
        };
        if nothing {
            return self.pulled(port, pull);
        }
        let token = self.requests.add(Request::Pull(pull));
        if exposed {
            let start = port.transfer(from, exposure, Direction::Read, into, token);
            return self.transfer_began(port, token, start);
        }
        let mut header = Header::new(Kind::Want, 0, 0);
        (header.request, header.tag) = (Some(request), token);
        self.transmit_bytes(port, from, header, &[]);
    }

    /// The data of a message is here, or cannot be had.
    pub(crate) fn pulled<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &mut P,
        pull: Pull<M, O>,
    ) {
        self.credit.promise_is_over(pull.from);
        self.tell_end(port, pull.from, pull.request, Status::of(!pull.failed));
        if let Some(destination) = pull.destination {
            self.received(port, destination, pull.failed.then_some(Failure::Broken));
        }
    }

    /// The receiver of a short message that was announced asks for it.
    pub(crate) fn wanted<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &mut P,
        from: u32,
        header: &Header,
    ) -> Result<(), BadMessage> {
        let number = header.request.unwrap_or_default();
        let bad = BadMessage::Request(number);
        let Some(Request::Send(send)) = self.requests.get_mut(number) else { return Err(bad) };
        if send.to != from {
            return Err(bad);
        }
        // It is given once: from then on the memory is the program's.
        let source = core::mem::replace(&mut send.source, Source::Gone);
        let ended = if send.end == SendEnd::Sent { send.operation.take() } else { None };
        let mut answer = Header::new(Kind::Data, 0, 0);
        (answer.request, answer.length) = (Some(header.tag), send.length);
        match source {
            Source::Gone => {
                // The operation, if it was not over, still waits for the receiver's word.
                self.restore(number, ended);
                return Err(bad);
            }
            Source::Program(data) => self.transmit(port, from, answer, &data),
            Source::Copy(data) => self.transmit_bytes(port, from, answer, &data),
        }
        if let Some(operation) = ended {
            port.ended(operation, Ok(MessageInfo::default()));
        }
        Ok(())
    }

    fn restore(&mut self, number: u64, operation: Option<O>) {
        if let (Some(Request::Send(send)), Some(operation)) =
            (self.requests.get_mut(number), operation)
        {
            send.operation = Some(operation);
        }
    }

    /// The receiver has all that it wants of a message.
    pub(crate) fn send_is_over<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &mut P,
        send: SendRequest<M, O>,
        failure: Option<Failure>,
    ) {
        if send.announced {
            self.credit.announced_is_over(send.to);
        }
        if let Some(exposure) = &send.exposure {
            port.conceal(exposure);
        }
        let Some(operation) = send.operation else { return };
        match failure {
            None => port.ended(operation, Ok(MessageInfo::default())),
            Some(failure) => port.ended(operation, Err((failure, MessageInfo::default()))),
        }
    }
}
