//! One rank's state: endpoints, and what is under way with other ranks.

use alloc::vec::Vec;

use crate::credit::{Credit, Limits};
use crate::endpoint::{Destination, Endpoint, SharedBuffer};
use crate::header::{BadMessage, Exposure, Header, Kind, LONGEST_HEADER};
use crate::matching::{Pattern, PostedReceives};
use crate::message::SendRequest;
use crate::port::{Arrived, Failure, Memory, MessageInfo, Port, RemoteEvent, TransferStart};
use crate::requests::Table;

/// Most requests of a rank under way.
const MOST_REQUESTS: usize = 1 << 21;

/// Why a call of the program did nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is no room now; the caller tries again after it has made progress.
    #[error("too much is under way: make progress and try again")]
    Again,
    /// No such endpoint here, or no such rank.
    #[error("no such endpoint")]
    NoEndpoint,
    /// Local and remote memory have different lengths, or no length at all.
    #[error("local and remote memory have different lengths")]
    Lengths,
}

/// Something that this rank waits for another one to answer, or that it does for another one.
#[derive(Debug)]
pub(crate) enum Request<M, O> {
    /// A message that waits for its receive.
    Send(SendRequest<M, O>),
    /// Data of a message is on its way here.
    Pull(Pull<M, O>),
    /// A part of an access to memory of another rank.
    Access(AccessPart<M>),
    /// All parts of an access.
    Group(Group<O>),
    /// Data on its way to or from registered memory, for another rank.
    Serve(Serve),
}

/// See [`Request::Pull`].
#[derive(Debug)]
pub(crate) struct Pull<M, O> {
    pub(crate) endpoint: u16,
    pub(crate) from: u32,
    /// The sender's request.
    pub(crate) request: u64,
    /// Bytes of the message.
    pub(crate) length: u64,
    pub(crate) into: M,
    /// None: the receive's endpoint was closed, and what comes is dropped.
    pub(crate) destination: Option<Destination<O>>,
    /// Transfers that are not over; none: the data comes as a message.
    pub(crate) pending: u32,
    pub(crate) failed: bool,
}

/// See [`Request::Access`].
#[derive(Debug)]
pub(crate) struct AccessPart<M> {
    pub(crate) endpoint: u16,
    pub(crate) group: u64,
    pub(crate) peer: u32,
    /// Memory here that the other rank uses.
    pub(crate) exposure: Option<Exposure>,
    /// Where data goes that comes as a message.
    pub(crate) into: Option<M>,
    /// Its endpoint was closed: what comes is dropped.
    pub(crate) dropped: bool,
}

/// See [`Request::Group`].
#[derive(Debug)]
pub(crate) struct Group<O> {
    pub(crate) endpoint: u16,
    /// None: its endpoint was closed.
    pub(crate) operation: Option<O>,
    pub(crate) remaining: usize,
    pub(crate) failure: Option<Failure>,
}

/// See [`Request::Serve`].
#[derive(Debug)]
pub(crate) struct Serve {
    pub(crate) request: u64,
    pub(crate) event: RemoteEvent,
    pub(crate) pending: u32,
    pub(crate) failed: bool,
}

/// How a request has ended, in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    Good = 0,
    NoEndpoint = 1,
    NoAccess = 2,
    NotSupported = 3,
    Broken = 4,
}

impl Status {
    pub(crate) fn of(good: bool) -> Status {
        if good { Status::Good } else { Status::Broken }
    }

    fn failure(byte: u8) -> Option<Failure> {
        match byte {
            0 => None,
            1 => Some(Failure::NoEndpoint),
            2 => Some(Failure::NoAccess),
            3 => Some(Failure::NotSupported),
            _ => Some(Failure::Broken),
        }
    }
}

/// What a rank has begun that other ranks have to end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Unfinished {
    /// The oldest receive of a message with a tag, in the order of endpoints.
    pub first_receive: Option<Pattern>,
    /// The latest.
    pub last_receive: Option<Pattern>,
    /// What the program has looked for last, in vain.
    pub searched: Option<Pattern>,
    /// A rank that has not received a message of this one.
    pub send: Option<u32>,
    /// Receives and sends that are not over.
    pub count: usize,
    /// Receives posted so far.
    pub posted: u64,
}

/// One rank's part: calls of its program and messages of other ranks go in, and its [`Port`] is asked to act.
///
/// `M` is memory of the program, `O` what the program has begun.
#[derive(Debug)]
pub struct Messenger<M, O> {
    pub(crate) credit: Credit,
    pub(crate) endpoints: Vec<Option<Endpoint<M, O>>>,
    pub(crate) requests: Table<Request<M, O>>,
    /// Buffers for several messages.
    pub(crate) buffers: Table<SharedBuffer<M, O>>,
    /// See [`Unfinished::searched`].
    pub(crate) searched: Option<Pattern>,
}

impl<M: Memory, O> Messenger<M, O> {
    /// Of a rank of a job of so many.
    #[must_use]
    pub fn new(ranks: u32) -> Messenger<M, O> {
        Messenger::with_limits(ranks, Limits::of_job(ranks))
    }

    /// With other limits than usual, which must be the same at all ranks.
    #[must_use]
    pub fn with_limits(ranks: u32, limits: Limits) -> Messenger<M, O> {
        Messenger {
            credit: Credit::new(ranks, limits),
            endpoints: Vec::new(),
            requests: Table::default(),
            buffers: Table::default(),
            searched: None,
        }
    }

    /// What waits for other ranks, for reports on programs that wait.
    #[must_use]
    pub fn unfinished(&self) -> Unfinished {
        let open = || self.endpoints.iter().flatten().map(Endpoint::tagged);
        let mut sends = self.requests.values().filter_map(|request| match request {
            Request::Send(send) => send.awaits(),
            _ => None,
        });
        let send = sends.next();
        Unfinished {
            first_receive: open().find_map(PostedReceives::first),
            last_receive: open().filter_map(PostedReceives::last).next_back(),
            searched: self.searched,
            send,
            count: open().map(PostedReceives::len).sum::<usize>()
                + usize::from(send.is_some())
                + sends.count(),
            posted: open().map(PostedReceives::posted).sum(),
        }
    }

    /// Opens an endpoint: its number, or none if there are too many.
    pub fn open(&mut self) -> Option<u16> {
        let number = u16::try_from(self.endpoints.len()).ok()?;
        self.endpoints.push(Some(Endpoint::default()));
        Some(number)
    }

    /// Closes an endpoint. All its operations end, with [`Failure::Cancelled`] if they are not over, and nothing touches their memory any
    /// more. The senders of messages that nobody has taken hear of it. Short messages that were sent still arrive.
    pub fn close<P: Port<Memory = M, Operation = O>>(&mut self, port: &mut P, endpoint: u16) {
        let place = self.endpoints.get_mut(usize::from(endpoint));
        let Some(queues) = place.and_then(Option::take) else { return };
        self.close_queues(port, queues);
        for number in self.requests.numbers() {
            self.close_request(port, endpoint, number);
        }
    }

    /// Ends everything at once, because nothing more may come: all endpoints are closed, and no transfer of another rank touches
    /// registered memory any more.
    pub fn abandon<P: Port<Memory = M, Operation = O>>(&mut self, port: &mut P) {
        for endpoint in 0..self.endpoints.len() {
            self.close(port, endpoint as u16);
        }
        self.end_served(port, |_| true);
    }

    /// The registration of this key has ended: transfers of other ranks there end, and they hear of it.
    pub fn end_registration<P: Port<Memory = M, Operation = O>>(&mut self, port: &mut P, key: u64) {
        self.end_served(port, |serve| serve.event.key == key);
    }

    fn end_served<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &mut P,
        meant: impl Fn(&Serve) -> bool,
    ) {
        for number in self.requests.numbers() {
            let Some(Request::Serve(serve)) = self.requests.get_mut(number) else { continue };
            if meant(serve)
                && let Some(Request::Serve(serve)) = self.requests.remove(number)
            {
                port.release(number);
                self.tell_end(port, serve.event.source.rank, serve.request, Status::NoAccess);
            }
        }
    }

    /// Ends the part of a closed endpoint in a request. What the other rank may still answer stays in the table.
    fn close_request<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &mut P,
        endpoint: u16,
        number: u64,
    ) {
        let cancelled = Err((Failure::Cancelled, MessageInfo::default()));
        match self.requests.get_mut(number) {
            Some(Request::Send(send)) if send.endpoint == endpoint => {
                if let Some(operation) = send.close(port) {
                    port.ended(operation, cancelled);
                }
            }
            Some(Request::Group(group)) if group.endpoint == endpoint => {
                if let Some(operation) = group.operation.take() {
                    port.ended(operation, cancelled);
                }
            }
            Some(Request::Access(part)) if part.endpoint == endpoint => {
                if let Some(exposure) = part.exposure.take() {
                    port.conceal(&exposure);
                }
                (part.into, part.dropped) = (None, true);
            }
            Some(Request::Pull(pull)) if pull.endpoint == endpoint => {
                let destination = pull.destination.take();
                pull.into = pull.into.part(0, 0);
                if pull.pending > 0 {
                    port.release(number);
                    if let Some(Request::Pull(pull)) = self.requests.remove(number) {
                        self.credit.promise_is_over(pull.from);
                        self.tell_end(port, pull.from, pull.request, Status::NoEndpoint);
                    }
                }
                if let Some(destination) = destination {
                    self.received(port, destination, Some(Failure::Cancelled));
                }
            }
            _ => {}
        }
    }

    pub(crate) fn endpoint(&mut self, number: u16) -> Option<&mut Endpoint<M, O>> {
        self.endpoints.get_mut(usize::from(number))?.as_mut()
    }

    /// Whether the program may begin another operation with a rank.
    pub(crate) fn may_begin<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &P,
        endpoint: u16,
        to: u32,
    ) -> Result<(), Refused> {
        if to >= self.credit.ranks() || self.endpoint(endpoint).is_none() {
            return Err(Refused::NoEndpoint);
        }
        let room = self.requests.len() < MOST_REQUESTS && port.has_room(to);
        if room { Ok(()) } else { Err(Refused::Again) }
    }

    /// Takes a message of another rank, or of this one.
    ///
    /// # Errors
    /// The message is none. Nothing has been changed by it, and what other messages say is still good; but a rank that sends such a thing is out of order.
    pub fn message<P, A>(&mut self, port: &mut P, from: u32, message: &A) -> Result<(), BadMessage>
    where
        P: Port<Memory = M, Operation = O>,
        A: Arrived<M>,
    {
        let mut bytes = [0; LONGEST_HEADER];
        let bytes = &mut bytes[..message.length().min(LONGEST_HEADER)];
        message.copy_prefix(bytes);
        let (header, begin) = Header::decode(bytes)?;
        let found = message.length() - begin;
        if header.credit > 0 {
            self.credit.returned(from, u64::from(header.credit))?;
        }
        let carried = match header.kind {
            Kind::Eager | Kind::Data | Kind::Write => Some(header.length),
            Kind::Atomic => None,
            Kind::Announce
            | Kind::Want
            | Kind::Done
            | Kind::Credit
            | Kind::FetchWrite
            | Kind::Read => Some(0),
        };
        if let Some(said) = carried.filter(|said| *said != found as u64) {
            return Err(BadMessage::Length { found, said });
        }
        match header.kind {
            Kind::Eager => self.eager(port, from, &header, (message, begin)),
            Kind::Announce => self.announced(port, from, &header),
            Kind::Want => self.wanted(port, from, &header),
            Kind::Data => self.data(port, from, &header, (message, begin)),
            Kind::Done => self.done(port, from, &header),
            Kind::Credit => Ok(()),
            Kind::Write => self.write(port, from, &header, (message, begin)),
            Kind::FetchWrite => self.fetch_write(port, from, &header),
            Kind::Read => self.read(port, from, &header),
            Kind::Atomic => self.atomic_request(port, from, &header, (message, begin)),
        }
    }

    /// A transfer that the port has begun is over. `token` is what it was begun with.
    pub fn transferred<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &mut P,
        token: u64,
        good: bool,
    ) {
        let (pending, failed) = match self.requests.get_mut(token) {
            Some(Request::Pull(pull)) => (&mut pull.pending, &mut pull.failed),
            Some(Request::Serve(serve)) => (&mut serve.pending, &mut serve.failed),
            _ => return,
        };
        *pending = pending.saturating_sub(1);
        *failed |= !good;
        if *pending == 0 {
            self.transfers_are_over(port, token);
        }
    }

    /// The port has begun the transfers of a request.
    pub(crate) fn transfer_began<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &mut P,
        token: u64,
        start: TransferStart,
    ) {
        let (pending, failed) = match self.requests.get_mut(token) {
            Some(Request::Pull(pull)) => (&mut pull.pending, &mut pull.failed),
            Some(Request::Serve(serve)) => (&mut serve.pending, &mut serve.failed),
            _ => return,
        };
        *failed = matches!(start, TransferStart::Failed | TransferStart::Partly(_));
        if let TransferStart::Pending(count) | TransferStart::Partly(count) = start
            && count > 0
        {
            *pending = count;
            return;
        }
        self.transfers_are_over(port, token);
    }

    fn transfers_are_over<P: Port<Memory = M, Operation = O>>(&mut self, port: &mut P, token: u64) {
        match self.requests.remove(token) {
            Some(Request::Pull(pull)) => self.pulled(port, pull),
            Some(Request::Serve(serve)) => self.served(port, &serve),
            _ => {}
        }
    }

    /// A request of this rank is over, as the other one says.
    fn done<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &mut P,
        from: u32,
        header: &Header,
    ) -> Result<(), BadMessage> {
        let number = header.request.unwrap_or_default();
        let peer = match self.requests.get_mut(number) {
            Some(Request::Send(send)) => Some(send.to),
            // Without the data that it asks for, it can only have failed.
            Some(Request::Access(part)) if part.into.is_none() || header.status != 0 => {
                Some(part.peer)
            }
            _ => None,
        };
        if peer != Some(from) {
            return Err(BadMessage::Request(number));
        }
        let failure = Status::failure(header.status);
        match self.requests.remove(number) {
            Some(Request::Send(send)) => self.send_is_over(port, send, failure),
            Some(Request::Access(part)) => self.part_is_over(port, &part, failure),
            _ => {}
        }
        Ok(())
    }

    /// Data that was asked for has come.
    fn data<P, A>(
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
        let number = header.request.unwrap_or_default();
        let expected = match self.requests.get_mut(number) {
            Some(Request::Pull(pull)) if pull.from == from && pull.pending == 0 => {
                Some(pull.length)
            }
            Some(Request::Access(part)) if part.peer == from && part.dropped => Some(header.length),
            Some(Request::Access(part)) if part.peer == from => {
                part.into.as_ref().map(Memory::length)
            }
            _ => None,
        };
        let said = expected.ok_or(BadMessage::Request(number))?;
        if header.length != said {
            return Err(BadMessage::Length { found: message.length() - begin, said });
        }
        match self.requests.remove(number) {
            Some(Request::Pull(pull)) => {
                message.copy_to(begin, &pull.into);
                self.pulled(port, pull);
            }
            Some(Request::Access(part)) => {
                if let Some(into) = &part.into {
                    message.copy_to(begin, into);
                }
                self.part_is_over(port, &part, None);
            }
            _ => {}
        }
        Ok(())
    }

    /// Sends a message, with the credit that is to be given back.
    #[inline]
    pub(crate) fn transmit<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &mut P,
        to: u32,
        mut header: Header,
        data: &M,
    ) {
        header.credit = self.credit.give_back(to);
        let (bytes, length) = header.encode();
        port.send(to, &bytes[..length], data);
    }

    /// Sends a message of bytes that this state has kept.
    pub(crate) fn transmit_bytes<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &mut P,
        to: u32,
        mut header: Header,
        data: &[u8],
    ) {
        header.credit = self.credit.give_back(to);
        let (bytes, length) = header.encode();
        port.send_bytes(to, &bytes[..length], data);
    }

    /// Tells a rank how its request has ended.
    pub(crate) fn tell_end<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &mut P,
        to: u32,
        request: u64,
        status: Status,
    ) {
        let mut header = Header::new(Kind::Done, 0, 0);
        (header.request, header.status) = (Some(request), status as u8);
        self.transmit_bytes(port, to, header, &[]);
    }

    /// A receive has taken data that was sent before it was known.
    pub(crate) fn give_room_back<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &mut P,
        to: u32,
        bytes: u64,
    ) {
        if self.credit.taken(to, bytes) {
            self.transmit_bytes(port, to, Header::new(Kind::Credit, 0, 0), &[]);
        }
    }
}

/// What is told about a message.
pub(crate) fn info_of(source: crate::Address, header: &Header) -> MessageInfo {
    MessageInfo {
        length: header.length,
        offset: 0,
        tag: header.tag,
        immediate: header.immediate,
        source: Some(source),
        last_of_buffer: false,
    }
}
