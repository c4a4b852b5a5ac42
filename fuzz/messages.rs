//! Messages of a hostile rank to one with endpoints, receives, sends and registered memory. They must not make the state machine panic, tell
//! an end twice, or keep more than the sender's credit. `core/messaging/tests/fuzzed.rs` runs the same with inputs from a seed.

use std::cell::Cell;
use std::collections::HashSet;

use kumi_messaging::header::{AtomicHeader, ExposedPiece, Exposure, Header, Kind};
use kumi_messaging::matching::Pattern;
use kumi_messaging::{
    Address, Arrived, Direction, Failure, Limits, Memory, MemoryAccess, MessageInfo, Messenger,
    Port, Receive, RemoteEvent, RemoteRange, Send, SendEnd, TransferStart,
};

/// The rank that is attacked; rank 1 attacks.
const RANKS: u32 = 2;
const CREDIT: u64 = 2_000;
const EAGER: u64 = 100;
/// Bytes of the memory that is registered as key 1.
const REGISTERED: u64 = 500;

/// So many bytes.
#[derive(Clone, Copy)]
struct Extent(u64);

impl Memory for Extent {
    fn length(&self) -> u64 {
        self.0
    }
    fn part(&self, from: u64, length: u64) -> Extent {
        Extent(self.0.saturating_sub(from).min(length))
    }
}

struct Message<'m>(&'m [u8], &'m Cell<u64>);

impl Arrived<Extent> for Message<'_> {
    fn length(&self) -> usize {
        self.0.len()
    }
    fn copy_prefix(&self, into: &mut [u8]) {
        into.copy_from_slice(&self.0[..into.len()]);
    }
    fn copy_to(&self, offset: usize, into: &Extent) {
        assert!(into.0 <= (self.0.len() - offset) as u64, "more is copied than there is");
    }
    fn to_vec(&self, offset: usize) -> Vec<u8> {
        self.1.set(self.1.get() + (self.0.len() - offset) as u64);
        self.0[offset..].to_vec()
    }
}

#[derive(Default)]
struct Attacked {
    next: u64,
    ended: HashSet<u64>,
    exposed: HashSet<u64>,
    /// Transfers under way.
    transfers: Vec<u64>,
    /// Bytes that receives have taken from what was kept.
    taken: u64,
    requests: Vec<u64>,
}

impl Port for Attacked {
    type Memory = Extent;
    type Operation = u64;

    fn send(&mut self, to: u32, header: &[u8], _data: &Extent) {
        self.send_bytes(to, header, &[]);
    }
    fn send_bytes(&mut self, to: u32, header: &[u8], _data: &[u8]) {
        assert!(to < RANKS);
        let (header, _) = Header::decode(header).expect("what is sent is a message");
        self.requests.extend(header.request);
    }
    fn eager_bytes(&self, _to: u32) -> u64 {
        EAGER
    }
    fn has_room(&self, _to: u32) -> bool {
        true
    }
    fn copy_out(&mut self, from: &Extent) -> Vec<u8> {
        vec![0; from.0 as usize]
    }
    fn copy_in(&mut self, bytes: &[u8], _into: &Extent) {
        self.taken += bytes.len() as u64;
    }
    fn expose(&mut self, memory: &Extent, _: Direction) -> Exposure {
        self.next += 1;
        self.exposed.insert(self.next);
        let mut exposure = Exposure::new(1);
        assert!(exposure.add(ExposedPiece { key: self.next, address: 0, length: memory.0 }));
        exposure
    }
    fn conceal(&mut self, exposure: &Exposure) {
        for piece in exposure.pieces() {
            assert!(self.exposed.remove(&piece.key), "concealed twice");
        }
    }
    fn transfer(
        &mut self,
        _: u32,
        exposure: &Exposure,
        _: Direction,
        memory: &Extent,
        token: u64,
    ) -> TransferStart {
        assert!(memory.0 <= exposure.length(), "more is moved than there is");
        match token % 3 {
            0 => TransferStart::Done,
            1 => TransferStart::Failed,
            _ => {
                self.transfers.push(token);
                TransferStart::Pending(1)
            }
        }
    }
    fn release(&mut self, token: u64) {
        self.transfers.retain(|one| *one != token);
    }
    fn is_flooded(&self, _to: u32) -> bool {
        false
    }
    fn registered(&mut self, key: u64, address: u64, length: u64, _: Direction) -> Option<Extent> {
        let inside = address.checked_add(length)? <= REGISTERED;
        (key == 1 && inside).then_some(Extent(length))
    }
    fn atomic(
        &mut self,
        operation: &AtomicHeader,
        memory: &Extent,
        operands: &[u8],
    ) -> Option<Vec<u8>> {
        assert!(operands.len() as u64 <= 2 * memory.0);
        (operation.op == 0).then(|| vec![0; memory.0 as usize])
    }
    fn ended(&mut self, operation: u64, _: Result<MessageInfo, (Failure, MessageInfo)>) {
        assert!(self.ended.insert(operation), "{operation} ended twice");
    }
    fn received_part(&mut self, operation: &u64, _: Result<MessageInfo, (Failure, MessageInfo)>) {
        assert!(!self.ended.contains(operation), "a part of what is over");
    }
    fn unexpected(&mut self) {}
    fn remote_event(&mut self, event: &RemoteEvent) {
        assert!(event.length <= REGISTERED);
    }
}

/// Gives the attacked rank what `input` says; how many messages were taken.
pub fn rank(input: &[u8]) -> usize {
    let mut messenger = Messenger::with_limits(RANKS, Limits { credit: CREDIT, announcements: 50 });
    let mut port = Attacked::default();
    messenger.open().expect("an endpoint");
    let (mut operation, mut good) = (0, 0);
    let kept = Cell::new(0);
    let mut rest = input;
    while let [choice, length, tail @ ..] = rest {
        let (bytes, tail) = tail.split_at(usize::from(*length).min(tail.len()));
        rest = tail;
        operation += 1;
        match choice % 8 {
            0 => own_call(&mut messenger, &mut port, operation, *length),
            1 if !port.transfers.is_empty() => {
                let token = port.transfers.swap_remove(usize::from(*length) % port.transfers.len());
                messenger.transferred(&mut port, token, true);
            }
            2 => good += answer(&mut messenger, &mut port, bytes, &kept),
            _ => {
                good +=
                    usize::from(messenger.message(&mut port, 1, &Message(bytes, &kept)).is_ok());
            }
        }
        assert!(kept.get() - port.taken <= CREDIT, "more is kept than the sender's credit");
        if choice % 64 == 63 {
            messenger.close(&mut port, 0);
        }
    }
    good
}

/// An answer to a request that was made, with a kind and a length from the input.
fn answer(
    messenger: &mut Messenger<Extent, u64>,
    port: &mut Attacked,
    bytes: &[u8],
    kept: &Cell<u64>,
) -> usize {
    let [kind, which, length, rest @ ..] = bytes else { return 0 };
    let kind = [Kind::Want, Kind::Data, Kind::Done, Kind::Done][usize::from(kind % 4)];
    let Some(request) =
        port.requests.get(usize::from(*which) % port.requests.len().max(1)).copied()
    else {
        return 0;
    };
    let mut header = Header::new(kind, 0, 0);
    (header.request, header.tag, header.status) = (Some(request), 1, length % 5);
    let data = if kind == Kind::Data { &rest[..rest.len().min(usize::from(*length))] } else { &[] };
    header.length = data.len() as u64;
    let (encoded, end) = header.encode();
    let message = [&encoded[..end], data].concat();
    usize::from(messenger.message(port, 1, &Message(&message, kept)).is_ok())
}

/// Something that the attacked rank's program does itself.
fn own_call(
    messenger: &mut Messenger<Extent, u64>,
    port: &mut Attacked,
    operation: u64,
    choice: u8,
) {
    let peer = Address { rank: 1, endpoint: 0 };
    let length = u64::from(choice) * 4;
    let pattern = Pattern {
        source: None,
        tag: u64::from(choice % 3),
        ignore: u64::from(choice % 2) * u64::MAX,
    };
    // What is refused is not begun.
    let _ = match choice % 5 {
        0 | 1 => {
            let several = choice.is_multiple_of(7).then_some(64);
            let receive = Receive {
                operation,
                buffer: Extent(length),
                pattern,
                tagged: !choice.is_multiple_of(3),
                several,
            };
            messenger.receive(port, 0, receive)
        }
        2 | 3 => {
            let end = if choice.is_multiple_of(2) { SendEnd::Sent } else { SendEnd::Matched };
            let inject = length <= EAGER && choice.is_multiple_of(3);
            let send = Send {
                operation,
                to: peer,
                data: Extent(length),
                inject,
                tag: Some(0),
                immediate: None,
                end,
            };
            messenger.send(port, 0, send)
        }
        _ => {
            let direction =
                if choice.is_multiple_of(2) { Direction::Read } else { Direction::Write };
            let remote = [RemoteRange { address: 0, length, key: 1 }];
            let access = MemoryAccess {
                operation,
                direction,
                peer,
                local: Extent(length),
                remote: &remote,
                inject: false,
                immediate: None,
            };
            messenger.access(port, 0, access)
        }
    };
}
