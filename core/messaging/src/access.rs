//! Reads, writes and atomic operations on memory that other ranks have registered.

use alloc::vec::Vec;

use crate::header::{AtomicHeader, BadMessage, Header, Kind};
use crate::messenger::{AccessPart, Group, Messenger, Refused, Request, Serve, Status};
use crate::port::{Address, Arrived, Direction, Failure, Memory, MessageInfo, Port, RemoteEvent};

/// Most bytes that go with a read, write or atomic operation, or its answer, if short messages to that rank may be as long. A rank may
/// ask many such questions at once, so their answers stay bounded.
const MOST_CARRIED: u64 = 16 << 10;

/// Bytes of an access to a rank that are carried by its messages; more are copied from memory to memory.
fn carried_bytes<P: Port>(port: &P, rank: u32) -> u64 {
    port.eager_bytes(rank).min(MOST_CARRIED)
}

/// Bytes of registered memory of another rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteRange {
    /// Where they begin, as the registration counts.
    pub address: u64,
    /// How many.
    pub length: u64,
    /// Key of the registration.
    pub key: u64,
}

/// A read or write.
#[derive(Debug)]
pub struct MemoryAccess<'r, M, O> {
    /// Told when the data is in its place.
    pub operation: O,
    /// Which way data goes.
    pub direction: Direction,
    /// Whose memory.
    pub peer: Address,
    /// Memory here.
    pub local: M,
    /// Memory there, in the order of the memory here, and together as long.
    pub remote: &'r [RemoteRange],
    /// The memory here is the program's again at once. It must be short enough for a message.
    pub inject: bool,
    /// A word for the other rank's program, when all is in its place.
    pub immediate: Option<u64>,
}

/// Atomic operations on elements.
#[derive(Debug)]
pub struct AtomicAccess<'r, M, O> {
    /// Told when it is done.
    pub operation: O,
    /// What is done.
    pub atomic: AtomicHeader,
    /// Whose memory.
    pub peer: Address,
    /// An operand for each element; none for reads.
    pub operand: M,
    /// What each element is compared with; none for operations that do not compare.
    pub compare: M,
    /// Where the elements go as they were before; none if nobody wants them.
    pub result: M,
    /// The elements.
    pub remote: &'r [RemoteRange],
}

/// [`AtomicHeader::kind`] of operations that give nothing back.
const UPDATE: u8 = 0;
/// [`AtomicHeader::op`] of those that change nothing.
const ATOMIC_READ: u8 = 10;

/// What an atomic operation does with memory. What gives back reads, too.
fn atomic_rights(atomic: &AtomicHeader) -> &'static [Direction] {
    match (atomic.kind, atomic.op) {
        (UPDATE, _) => &[Direction::Write],
        (_, ATOMIC_READ) => &[Direction::Read],
        _ => &[Direction::Read, Direction::Write],
    }
}

impl<M: Memory, O> Messenger<M, O> {
    /// Reads or writes memory of another rank. Accesses to the same memory take place in the order of their beginning, unless they
    /// are longer than a message.
    ///
    /// # Errors
    /// Nothing was begun, and the operation's end is not told.
    pub fn access<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &mut P,
        endpoint: u16,
        access: MemoryAccess<'_, M, O>,
    ) -> Result<(), Refused> {
        let (to, remote) = (access.peer.rank, access.remote);
        self.may_begin(port, endpoint, to)?;
        let longest = carried_bytes(port, to);
        if total(remote) != Some(access.local.length())
            || access.inject && access.local.length() > longest
        {
            return Err(Refused::Lengths);
        }
        if !self.credit.begin_access(to, remote.len()) {
            return Err(Refused::Again);
        }
        let operation = Some(access.operation);
        let group = Group { endpoint, operation, remaining: remote.len(), failure: None };
        let group = self.requests.add(Request::Group(group));
        let mut from = 0;
        for (place, range) in remote.iter().enumerate() {
            let part = access.local.part(from, range.length);
            from += range.length;
            let mut header = Header::new(Kind::Write, access.peer.endpoint, endpoint);
            (header.tag, header.address, header.length) = (range.key, range.address, range.length);
            header.immediate = access.immediate.filter(|_| place + 1 == remote.len());
            self.access_part(port, (to, group), header, access.direction, &part, longest);
        }
        Ok(())
    }

    fn access_part<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &mut P,
        (to, group): (u32, u64),
        mut header: Header,
        direction: Direction,
        part: &M,
        longest: u64,
    ) {
        let long = header.length > longest;
        let (kind, exposed) = match direction {
            Direction::Write if !long => (Kind::Write, None),
            Direction::Write => (Kind::FetchWrite, Some(Direction::Read)),
            Direction::Read => (Kind::Read, long.then_some(Direction::Write)),
        };
        header.kind = kind;
        let exposure = exposed.map(|direction| port.expose(part, direction));
        header.exposure = exposure.unwrap_or_default();
        let into = (kind == Kind::Read && !long).then(|| part.clone());
        header.request = Some(self.requests.add(Request::Access(AccessPart {
            endpoint: header.source,
            group,
            peer: to,
            exposure,
            into,
            dropped: false,
        })));
        match kind {
            Kind::Write => self.transmit(port, to, header, part),
            _ => self.transmit_bytes(port, to, header, &[]),
        }
    }

    /// Applies atomic operations to memory of another rank, in the order of their beginning.
    ///
    /// # Errors
    /// Nothing was begun, and the operation's end is not told.
    pub fn atomic<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &mut P,
        endpoint: u16,
        access: AtomicAccess<'_, M, O>,
    ) -> Result<(), Refused> {
        let (to, remote) = (access.peer.rank, access.remote);
        self.may_begin(port, endpoint, to)?;
        let length = total(remote).filter(|length| *length > 0).ok_or(Refused::Lengths)?;
        let wrong = |memory: &M| memory.length() != 0 && memory.length() != length;
        let wanted = access.atomic.kind != UPDATE;
        if wrong(&access.operand)
            || wrong(&access.compare)
            || wanted != (access.result.length() == length)
        {
            return Err(Refused::Lengths);
        }
        if !self.credit.begin_access(to, remote.len()) {
            return Err(Refused::Again);
        }
        let operation = Some(access.operation);
        let group = Group { endpoint, operation, remaining: remote.len(), failure: None };
        let group = self.requests.add(Request::Group(group));
        let mut from = 0;
        for range in remote {
            let mut header = Header::new(Kind::Atomic, access.peer.endpoint, endpoint);
            (header.tag, header.address, header.length) = (range.key, range.address, range.length);
            header.atomic = access.atomic;
            let mut operands = port.copy_out(&access.operand.part(from, range.length));
            operands.extend(port.copy_out(&access.compare.part(from, range.length)));
            let into = wanted.then(|| access.result.part(from, range.length));
            let part =
                AccessPart { endpoint, group, peer: to, exposure: None, into, dropped: false };
            header.request = Some(self.requests.add(Request::Access(part)));
            self.transmit_bytes(port, to, header, &operands);
            from += range.length;
        }
        Ok(())
    }

    /// A part of an access is over.
    pub(crate) fn part_is_over<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &mut P,
        part: &AccessPart<M>,
        failure: Option<Failure>,
    ) {
        self.credit.access_is_over(part.peer);
        if let Some(exposure) = &part.exposure {
            port.conceal(exposure);
        }
        let Some(Request::Group(group)) = self.requests.get_mut(part.group) else { return };
        group.remaining -= 1;
        group.failure = group.failure.or(failure);
        if group.remaining > 0 {
            return;
        }
        if let Some(Request::Group(group)) = self.requests.remove(part.group) {
            let result = group.failure.map_or(Ok(MessageInfo::default()), |failure| {
                Err((failure, MessageInfo::default()))
            });
            if let Some(operation) = group.operation {
                port.ended(operation, result);
            }
        }
    }

    /// Registered memory that a request names; if it may not be used so, the other rank hears of it.
    fn named<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &mut P,
        from: u32,
        header: &Header,
        directions: &[Direction],
    ) -> Result<Option<(u64, M)>, BadMessage> {
        let request = header.request.ok_or(BadMessage::Request(0))?;
        if port.is_flooded(from) {
            return Err(BadMessage::TooMany);
        }
        let exposed = header.exposure.pieces().len();
        if exposed > 0 && header.exposure.length() != header.length {
            return Err(BadMessage::Exposure(exposed as u16));
        }
        let status = if self.endpoint(header.endpoint).is_none() {
            Status::NoEndpoint
        } else {
            // The memory is the same for each.
            let (key, address, length) = (header.tag, header.address, header.length);
            let memory = directions.iter().try_fold(None, |_, direction| {
                port.registered(key, address, length, *direction).map(Some)
            });
            match memory.flatten() {
                Some(memory) => return Ok(Some((request, memory))),
                None => Status::NoAccess,
            }
        };
        self.tell_end(port, from, request, status);
        Ok(None)
    }

    /// Data for registered memory has come.
    pub(crate) fn write<P, A>(
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
        let Some((request, memory)) = self.named(port, from, header, &[Direction::Write])? else {
            return Ok(());
        };
        message.copy_to(begin, &memory);
        let event = event(from, header, Direction::Write);
        self.served(port, &Serve { request, event, pending: 0, failed: false });
        Ok(())
    }

    /// Data for registered memory is to be fetched.
    pub(crate) fn fetch_write<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &mut P,
        from: u32,
        header: &Header,
    ) -> Result<(), BadMessage> {
        let Some((request, memory)) = self.named(port, from, header, &[Direction::Write])? else {
            return Ok(());
        };
        let event = event(from, header, Direction::Write);
        let token =
            self.requests.add(Request::Serve(Serve { request, event, pending: 0, failed: false }));
        let start = port.transfer(from, &header.exposure, Direction::Read, &memory, token);
        self.transfer_began(port, token, start);
        Ok(())
    }

    /// Data of registered memory is asked for: as a message, or, if the other rank has said where it is to go, there.
    pub(crate) fn read<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &mut P,
        from: u32,
        header: &Header,
    ) -> Result<(), BadMessage> {
        let Some((request, memory)) = self.named(port, from, header, &[Direction::Read])? else {
            return Ok(());
        };
        let event = event(from, header, Direction::Read);
        if !header.exposure.pieces().is_empty() {
            let token = self.requests.add(Request::Serve(Serve {
                request,
                event,
                pending: 0,
                failed: false,
            }));
            let start = port.transfer(from, &header.exposure, Direction::Write, &memory, token);
            self.transfer_began(port, token, start);
            return Ok(());
        }
        if header.length > carried_bytes(port, from) {
            self.tell_end(port, from, request, Status::NotSupported);
            return Ok(());
        }
        let mut answer = Header::new(Kind::Data, 0, 0);
        (answer.request, answer.length) = (Some(request), header.length);
        self.transmit(port, from, answer, &memory);
        port.remote_event(&event);
        Ok(())
    }

    /// What another rank has asked of registered memory is done.
    pub(crate) fn served<P: Port<Memory = M, Operation = O>>(
        &mut self,
        port: &mut P,
        serve: &Serve,
    ) {
        if !serve.failed {
            port.remote_event(&serve.event);
        }
        self.tell_end(port, serve.event.source.rank, serve.request, Status::of(!serve.failed));
    }

    /// Atomic operations on registered memory.
    pub(crate) fn atomic_request<P, A>(
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
        let found = message.length() - begin;
        if found as u64 > header.length.saturating_mul(2)
            || header.length > carried_bytes(port, from)
        {
            return Err(BadMessage::Length { found, said: header.length });
        }
        let Some((request, memory)) =
            self.named(port, from, header, atomic_rights(&header.atomic))?
        else {
            return Ok(());
        };
        let operands: Vec<u8> = message.to_vec(begin);
        let Some(before) = port.atomic(&header.atomic, &memory, &operands) else {
            self.tell_end(port, from, request, Status::NotSupported);
            return Ok(());
        };
        let direction =
            if header.atomic.op == ATOMIC_READ { Direction::Read } else { Direction::Write };
        port.remote_event(&event(from, header, direction));
        if header.atomic.kind == UPDATE {
            self.tell_end(port, from, request, Status::Good);
        } else {
            let mut answer = Header::new(Kind::Data, 0, 0);
            (answer.request, answer.length) = (Some(request), before.len() as u64);
            self.transmit_bytes(port, from, answer, &before);
        }
        Ok(())
    }
}

fn event(from: u32, header: &Header, direction: Direction) -> RemoteEvent {
    RemoteEvent {
        endpoint: header.endpoint,
        source: Address { rank: from, endpoint: header.source },
        key: header.tag,
        direction,
        length: header.length,
        immediate: header.immediate,
    }
}

/// Bytes of all ranges together; none if there is no range, or that is no number.
fn total(remote: &[RemoteRange]) -> Option<u64> {
    let sum = remote.iter().try_fold(0_u64, |sum, range| sum.checked_add(range.length))?;
    (!remote.is_empty()).then_some(sum)
}
