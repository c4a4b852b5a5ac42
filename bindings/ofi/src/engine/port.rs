//! What the state machine asks for, done by a channel.

use std::collections::HashMap;

use kumi_mem::{Error, Outbox, PutEnd, Rights, SharedBytes};
use kumi_messaging::header::{AtomicHeader, ExposedPiece, Exposure};
use kumi_messaging::{
    Direction, Failure as MessageFailure, MessageInfo, Port, RemoteEvent, TransferStart,
};

use crate::engine::memory::{bytes, copy_in, copy_out, single};
use crate::engine::near::Neighbour;
use crate::engine::{EndpointEvents, Registration, atomics};
use crate::errno;
use crate::idle;
use crate::operation::{Address, Failure, Operation, Piece, Pieces, Success};

/// Bytes of a message that is sent before its receive is known. Longer ones to another node are worth the round trip that saves
/// a copy; longer ones on the same node are worth a system call.
const EAGER_FAR: u64 = 64 << 10;
const EAGER_NEAR: u64 = 4 << 10;

/// More answers than a rank can have asked for: 1,024 questions, each for 16 KiB.
const FLOOD: usize = 32 << 20;

/// An operation of the program, and where its memory begins.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) operation: Operation,
    pub(super) base: usize,
}

impl Pending {
    pub(super) fn new(operation: Operation, memory: &Pieces) -> Pending {
        let base = memory.as_slice().first().map_or(0, |piece| piece.address);
        Pending { operation, base }
    }
}

/// What the driver knows beside the state machine.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) me: u32,
    /// By rank: it is on this node.
    pub(super) same_node: Vec<bool>,
    process: u32,
    /// By rank: its process, from which memory may be copied.
    neighbours: Vec<Neighbour>,
    pub(super) registrations: HashMap<u64, Registration>,
    /// By endpoint.
    pub(super) events: Vec<EndpointEvents>,
    /// Why nothing goes on: the channel failed, or another rank is out of order.
    pub(super) fault: Option<String>,
}

impl Local {
    pub(super) fn new(me: u32, same_node: Vec<bool>) -> Local {
        let neighbours = same_node.iter().map(|near| Neighbour::new(*near)).collect();
        Local {
            me,
            same_node,
            process: std::process::id(),
            neighbours,
            registrations: HashMap::new(),
            events: Vec::new(),
            fault: None,
        }
    }

    fn near(&self, rank: u32) -> bool {
        self.same_node.get(rank as usize).copied().unwrap_or(false)
    }

    pub(super) fn failed(&mut self, what: impl std::fmt::Display) {
        if self.fault.is_none() {
            let text = what.to_string();
            eprintln!("kumi: rank {} cannot communicate any more: {text}", self.me);
            self.fault = Some(text);
        }
    }
}

/// A view of the driver for one call of the state machine.
pub(super) struct Driver<'d, 'o> {
    pub(super) local: &'d mut Local,
    pub(super) outbox: &'d mut Outbox<'o>,
}

impl Driver<'_, '_> {
    fn check(&mut self, result: Result<(), Error>) {
        if let Err(error) = result {
            self.local.failed(error);
        }
    }

    fn tell(
        operation: Operation,
        base: usize,
        result: Result<MessageInfo, (MessageFailure, MessageInfo)>,
    ) {
        match result {
            Ok(info) => operation.succeed(success(base, &info)),
            Err((failure, info)) => {
                let too_long_by = match failure {
                    MessageFailure::TooLong(excess) => {
                        usize::try_from(excess).unwrap_or(usize::MAX)
                    }
                    _ => 0,
                };
                operation.fail(Failure {
                    error: errno::of_failure(failure),
                    known: success(base, &info),
                    too_long_by,
                });
            }
        }
    }

    /// Moves the data of a transfer by the channel: how many transfers have begun, and whether all have.
    fn begin(
        &mut self,
        peer: u32,
        exposure: &Exposure,
        direction: Direction,
        memory: &Pieces,
        token: u64,
    ) -> (u32, bool) {
        let (mut count, mut from) = (0, 0);
        for exposed in exposure.pieces() {
            let length = usize::try_from(exposed.length).unwrap_or(usize::MAX);
            let part = memory.part(from, length);
            let mut offset = 0;
            for piece in part.as_slice() {
                let begun = self.begin_piece((peer, exposed.key, offset), direction, *piece, token);
                if let Err(error) = begun {
                    if !matches!(error, Error::TooManyRequests { .. }) {
                        self.local.failed(error);
                    }
                    return (count, false);
                }
                count += 1;
                offset += piece.length as u64;
            }
            from += part.length();
        }
        (count, from == memory.length())
    }

    fn begin_piece(
        &mut self,
        (peer, key, offset): (u32, u64, u64),
        direction: Direction,
        piece: Piece,
        token: u64,
    ) -> Result<(), Error> {
        let memory = bytes(piece);
        match direction {
            // SAFETY: the memory belongs to an operation or a registration that is not over: the state machine ends it only after
            // it has been told of this transfer's end, and a registration that is closed waits for it.
            Direction::Read => unsafe { self.outbox.get(peer, key, offset, memory, token) },
            // SAFETY: as above.
            Direction::Write => unsafe {
                self.outbox.put(peer, key, offset, memory.shared(), token, PutEnd::Placed)
            },
        }
    }
}

fn success(base: usize, info: &MessageInfo) -> Success {
    let whole = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    Success {
        length: whole(info.length),
        buffer: base.wrapping_add(whole(info.offset)),
        data: info.immediate,
        tag: info.tag,
        source: info.source.map(|source| Address { rank: source.rank, endpoint: source.endpoint }),
        last_of_buffer: info.last_of_buffer,
    }
}

impl Port for Driver<'_, '_> {
    type Memory = Pieces;
    type Operation = Pending;

    #[inline]
    fn send(&mut self, to: u32, header: &[u8], data: &Pieces) {
        let sent = match single(data) {
            Some(payload) => self.outbox.send_parts(to, &[header], payload),
            None => self.outbox.send_parts(to, &[header, &copy_out(data)], SharedBytes::default()),
        };
        self.check(sent);
    }

    fn send_bytes(&mut self, to: u32, header: &[u8], data: &[u8]) {
        let sent = self.outbox.send_parts(to, &[header, data], SharedBytes::default());
        self.check(sent);
    }

    #[inline]
    fn eager_bytes(&self, to: u32) -> u64 {
        if self.local.near(to) { EAGER_NEAR } else { EAGER_FAR }
    }

    #[inline]
    fn has_room(&self, to: u32) -> bool {
        self.outbox.is_free(to)
    }

    fn copy_out(&mut self, from: &Pieces) -> Vec<u8> {
        copy_out(from)
    }

    fn copy_in(&mut self, bytes: &[u8], into: &Pieces) {
        copy_in(bytes, into);
    }

    fn expose(&mut self, memory: &Pieces, direction: Direction) -> Exposure {
        let (read, write) = (direction == Direction::Read, direction == Direction::Write);
        let rights = Rights { read, write, atomic: false };
        let mut exposure = Exposure::new(self.local.process);
        for piece in memory.as_slice() {
            // SAFETY: the memory belongs to an operation that is not over before the exposure ends.
            let key = unsafe { self.outbox.register(bytes(*piece), rights) };
            // Without a key the other rank's transfer is refused, unless it copies by itself; the operation then fails.
            let key = key.unwrap_or_default();
            exposure.add(ExposedPiece {
                key,
                address: piece.address as u64,
                length: piece.length as u64,
            });
        }
        exposure
    }

    fn conceal(&mut self, exposure: &Exposure) {
        for piece in exposure.pieces() {
            self.outbox.deregister(piece.key);
        }
    }

    fn transfer(
        &mut self,
        peer: u32,
        exposure: &Exposure,
        direction: Direction,
        memory: &Pieces,
        token: u64,
    ) -> TransferStart {
        let neighbour = self.local.neighbours.get_mut(peer as usize);
        let own = (peer == self.local.me).then_some(self.local.process);
        match neighbour.and_then(|it| it.copy(exposure, direction, memory, own)) {
            Some(true) => return TransferStart::Done,
            Some(false) => return TransferStart::Failed,
            None => {}
        }
        match self.begin(peer, exposure, direction, memory, token) {
            (0, false) => TransferStart::Failed,
            (0, true) => TransferStart::Done,
            (count, all) => {
                if all {
                    TransferStart::Pending(count)
                } else {
                    TransferStart::Partly(count)
                }
            }
        }
    }

    fn release(&mut self, token: u64) {
        self.outbox.release(token);
    }

    fn is_flooded(&self, to: u32) -> bool {
        !self.outbox.is_free(to) && self.outbox.waiting_bytes(to) > FLOOD
    }

    fn registered(
        &mut self,
        key: u64,
        address: u64,
        length: u64,
        direction: Direction,
    ) -> Option<Pieces> {
        let registration = self.local.registrations.get(&key)?;
        let allowed = match direction {
            Direction::Read => registration.remote_read,
            Direction::Write => registration.remote_write,
        };
        let base = registration.pieces.as_slice().first().map_or(0, |piece| piece.address as u64);
        let offset = if registration.by_address { address.checked_sub(base)? } else { address };
        let inside = offset.checked_add(length)? <= registration.pieces.length() as u64;
        // Both are no more than a length here.
        (allowed && inside).then(|| registration.pieces.part(offset as usize, length as usize))
    }

    fn atomic(
        &mut self,
        operation: &AtomicHeader,
        memory: &Pieces,
        operands: &[u8],
    ) -> Option<Vec<u8>> {
        let AtomicHeader { datatype, op, kind } = *operation;
        let before = copy_out(memory);
        let after = atomics::apply(datatype, op, kind, &before, operands)?;
        if op != atomics::READ {
            copy_in(&after, memory);
        }
        Some(before)
    }

    #[inline]
    fn ended(
        &mut self,
        pending: Pending,
        result: Result<MessageInfo, (MessageFailure, MessageInfo)>,
    ) {
        Self::tell(pending.operation, pending.base, result);
    }

    fn received_part(
        &mut self,
        pending: &Pending,
        result: Result<MessageInfo, (MessageFailure, MessageInfo)>,
    ) {
        Self::tell(pending.operation.clone(), pending.base, result);
    }

    #[inline]
    fn unexpected(&mut self) {
        idle::note_event();
    }

    fn remote_event(&mut self, event: &RemoteEvent) {
        let counter = self
            .local
            .registrations
            .get(&event.key)
            .and_then(|registration| registration.counter.as_ref());
        let endpoint = self.local.events.get(usize::from(event.endpoint));
        let (of_endpoint, flags) = match event.direction {
            Direction::Write => {
                (endpoint.and_then(|events| events.remote_write.as_ref()), errno::REMOTE_WRITE)
            }
            Direction::Read => (endpoint.and_then(|events| events.remote_read.as_ref()), 0),
        };
        for counter in counter.into_iter().filter(|_| flags != 0).chain(of_endpoint) {
            counter.add(1);
        }
        let queue = endpoint.and_then(|events| events.receive_queue.clone());
        if let (Some(data), true) = (event.immediate, flags != 0) {
            let operation = Operation { context: 0, flags, completion: true, queue, counter: None };
            let source = Address { rank: event.source.rank, endpoint: event.source.endpoint };
            let length = usize::try_from(event.length).unwrap_or(usize::MAX);
            operation.succeed(Success {
                length,
                data: Some(data),
                source: Some(source),
                ..Success::default()
            });
        }
    }
}
