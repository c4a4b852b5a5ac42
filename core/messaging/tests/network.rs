//! A job in one thread: messages of each pair of ranks come in order, and everything else in any order.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::rc::Rc;

use kumi_messaging::header::{AtomicHeader, BadMessage, ExposedPiece, Exposure};
use kumi_messaging::{
    Arrived, Direction, Failure, Limits, Memory, MessageInfo, Messenger, Port, RemoteEvent,
    TransferStart,
};

/// Bytes of a longest message that is sent at once.
pub const EAGER: u64 = 64;

/// Messages that wait for a rank beyond those that it may have asked for.
pub const FLOOD: usize = 2_000;

/// A part of a buffer.
#[derive(Debug, Clone)]
pub struct Part {
    pub bytes: Rc<RefCell<Vec<u8>>>,
    pub from: usize,
    pub length: usize,
}

impl Part {
    pub fn new(bytes: Vec<u8>) -> Part {
        let length = bytes.len();
        Part { bytes: Rc::new(RefCell::new(bytes)), from: 0, length }
    }

    /// Its first bytes.
    pub fn part_of(&self, length: u64) -> Part {
        self.part(0, length)
    }

    pub fn read(&self) -> Vec<u8> {
        self.bytes.borrow()[self.from..self.from + self.length].to_vec()
    }

    fn write(&self, data: &[u8]) {
        let length = self.length.min(data.len());
        self.bytes.borrow_mut()[self.from..self.from + length].copy_from_slice(&data[..length]);
    }
}

impl Memory for Part {
    fn length(&self) -> u64 {
        self.length as u64
    }

    fn part(&self, from: u64, length: u64) -> Part {
        let skipped = (from as usize).min(self.length);
        let length = (length.min(self.length as u64) as usize).min(self.length - skipped);
        Part { bytes: Rc::clone(&self.bytes), from: self.from + skipped, length }
    }
}

struct Message(Vec<u8>);

impl Arrived<Part> for Message {
    fn length(&self) -> usize {
        self.0.len()
    }
    fn copy_prefix(&self, into: &mut [u8]) {
        into.copy_from_slice(&self.0[..into.len()]);
    }
    fn copy_to(&self, offset: usize, into: &Part) {
        into.write(&self.0[offset..]);
    }
    fn to_vec(&self, offset: usize) -> Vec<u8> {
        self.0[offset..].to_vec()
    }
}

/// How an operation has ended.
pub type End = Result<MessageInfo, (Failure, MessageInfo)>;

/// A transfer under way.
struct Transfer {
    rank: u32,
    token: u64,
    key: u64,
    near: Part,
    direction: Direction,
}

/// What ranks share.
#[derive(Default)]
struct Wires {
    /// By sender and receiver.
    pairs: BTreeMap<(u32, u32), VecDeque<Vec<u8>>>,
    transfers: Vec<Transfer>,
    exposed: HashMap<u64, (Part, Direction)>,
    next_key: u64,
    registered: HashMap<(u32, u64), Part>,
    /// How registered memory may be used; none: in all ways.
    allowed: Option<Direction>,
    /// By rank: messages that may be under way to one rank.
    room: usize,
    random: u64,
}

impl Wires {
    fn random(&mut self, below: usize) -> usize {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % below.max(1)
    }
}

/// A rank's view of the network.
pub struct RankPort {
    me: u32,
    wires: Rc<RefCell<Wires>>,
    pub ended: Vec<(u64, End)>,
    pub parts: Vec<(u64, End)>,
    pub events: Vec<RemoteEvent>,
    pub unexpected: u32,
}

impl RankPort {
    fn put(&mut self, to: u32, header: &[u8], data: &[u8]) {
        let message = header.iter().chain(data).copied().collect();
        self.wires.borrow_mut().pairs.entry((self.me, to)).or_default().push_back(message);
    }
}

impl Port for RankPort {
    type Memory = Part;
    type Operation = u64;

    fn send(&mut self, to: u32, header: &[u8], data: &Part) {
        self.put(to, header, &data.read());
    }
    fn send_bytes(&mut self, to: u32, header: &[u8], data: &[u8]) {
        self.put(to, header, data);
    }
    fn eager_bytes(&self, _to: u32) -> u64 {
        EAGER
    }
    fn has_room(&self, to: u32) -> bool {
        let wires = self.wires.borrow();
        wires.pairs.get(&(self.me, to)).map_or(0, VecDeque::len) < wires.room
    }
    fn copy_out(&mut self, from: &Part) -> Vec<u8> {
        from.read()
    }
    fn copy_in(&mut self, bytes: &[u8], into: &Part) {
        into.write(bytes);
    }
    fn expose(&mut self, memory: &Part, direction: Direction) -> Exposure {
        let mut wires = self.wires.borrow_mut();
        let mut exposure = Exposure::new(self.me);
        // In two pieces, as a program's list of memory may be.
        let half = memory.length() / 2;
        for part in [memory.part(0, half), memory.part(half, u64::MAX)] {
            wires.next_key += 1;
            let key = wires.next_key;
            assert!(exposure.add(ExposedPiece { key, address: 0, length: part.length() }));
            wires.exposed.insert(key, (part, direction));
        }
        exposure
    }
    fn conceal(&mut self, exposure: &Exposure) {
        for piece in exposure.pieces() {
            assert!(
                self.wires.borrow_mut().exposed.remove(&piece.key).is_some(),
                "concealed twice"
            );
        }
    }
    fn transfer(
        &mut self,
        _: u32,
        exposure: &Exposure,
        direction: Direction,
        memory: &Part,
        token: u64,
    ) -> TransferStart {
        let mut wires = self.wires.borrow_mut();
        let mut from = 0;
        let mut begun = Vec::new();
        for piece in exposure.pieces() {
            let near = memory.part(from, piece.length);
            from += near.length();
            if near.length > 0 {
                begun.push(Transfer { rank: self.me, token, key: piece.key, near, direction });
            }
        }
        if wires.random(3) == 0 {
            let good = begun.iter().all(|transfer| transfer.run(&wires));
            return if good { TransferStart::Done } else { TransferStart::Failed };
        }
        let count = begun.len() as u32;
        wires.transfers.extend(begun);
        TransferStart::Pending(count)
    }
    fn release(&mut self, token: u64) {
        let me = self.me;
        self.wires.borrow_mut().transfers.retain(|one| (one.rank, one.token) != (me, token));
    }
    fn is_flooded(&self, to: u32) -> bool {
        let wires = self.wires.borrow();
        wires.pairs.get(&(self.me, to)).map_or(0, VecDeque::len) > FLOOD
    }
    fn registered(
        &mut self,
        key: u64,
        address: u64,
        length: u64,
        direction: Direction,
    ) -> Option<Part> {
        let wires = self.wires.borrow();
        if wires.allowed.is_some_and(|allowed| allowed != direction) {
            return None;
        }
        let memory = wires.registered.get(&(self.me, key))?;
        (address.checked_add(length)? <= memory.length()).then(|| memory.part(address, length))
    }
    fn atomic(
        &mut self,
        operation: &AtomicHeader,
        memory: &Part,
        operands: &[u8],
    ) -> Option<Vec<u8>> {
        // Sums of bytes.
        let before = memory.read();
        if operation.op == 10 {
            return Some(before);
        }
        (operation.op == 1 && operands.len() == before.len()).then(|| {
            let sums = before.iter().zip(operands).map(|(old, new)| old.wrapping_add(*new));
            memory.write(&sums.collect::<Vec<_>>());
            before
        })
    }
    fn ended(&mut self, operation: u64, result: End) {
        self.ended.push((operation, result));
    }
    fn received_part(&mut self, operation: &u64, result: End) {
        self.parts.push((*operation, result));
    }
    fn unexpected(&mut self) {
        self.unexpected += 1;
    }
    fn remote_event(&mut self, event: &RemoteEvent) {
        self.events.push(*event);
    }
}

impl Transfer {
    /// Moves the data, if the memory is exposed for that now.
    fn run(&self, wires: &Wires) -> bool {
        let exposed = wires.exposed.get(&self.key).filter(|exposed| exposed.1 == self.direction);
        let Some((far, _)) = exposed else { return false };
        match self.direction {
            Direction::Read => self.near.write(&far.part(0, self.near.length()).read()),
            Direction::Write => far.write(&self.near.read()),
        }
        true
    }
}

/// The job.
pub struct Network {
    pub ranks: Vec<(Messenger<Part, u64>, RankPort)>,
    wires: Rc<RefCell<Wires>>,
}

impl Network {
    pub fn new(ranks: u32, limits: Limits, seed: u64) -> Network {
        let wires = Rc::new(RefCell::new(Wires { room: 100, random: seed, ..Wires::default() }));
        let port = |me| RankPort {
            me,
            wires: Rc::clone(&wires),
            ended: vec![],
            parts: vec![],
            events: vec![],
            unexpected: 0,
        };
        let rank = |me| (Messenger::with_limits(ranks, limits), port(me));
        let mut network = Network { ranks: (0..ranks).map(rank).collect(), wires };
        for (messenger, _) in &mut network.ranks {
            assert_eq!(messenger.open(), Some(0));
        }
        network
    }

    pub fn register(&mut self, rank: u32, key: u64, memory: Part) {
        self.wires.borrow_mut().registered.insert((rank, key), memory);
    }

    pub fn unregister(&mut self, rank: u32, key: u64) {
        self.wires.borrow_mut().registered.remove(&(rank, key));
    }

    /// Registered memory may be used in this way only.
    pub fn allow_only(&mut self, direction: Direction) {
        self.wires.borrow_mut().allowed = Some(direction);
    }

    /// Memory that others may use now, and messages and transfers under way.
    pub fn exposed(&self) -> usize {
        self.wires.borrow().exposed.len()
    }

    pub fn room(&mut self, messages: usize) {
        self.wires.borrow_mut().room = messages;
    }

    /// Gives a rank a message that nobody has sent.
    pub fn forge(&mut self, from: u32, to: u32, bytes: Vec<u8>) -> Result<(), BadMessage> {
        let (messenger, port) = &mut self.ranks[to as usize];
        messenger.message(port, from, &Message(bytes))
    }

    /// Lets one thing happen that is under way; what it was, if there was any.
    pub fn step(&mut self) -> Option<Step> {
        let chosen = {
            let mut wires = self.wires.borrow_mut();
            let pairs: Vec<_> =
                wires.pairs.iter().filter(|pair| !pair.1.is_empty()).map(|pair| *pair.0).collect();
            let transfers = wires.transfers.len();
            let at = wires.random(pairs.len() + transfers);
            match pairs.get(at) {
                Some(pair) => Step::Message(*pair, wires.pairs.get_mut(pair)?.pop_front()?),
                None if transfers > 0 => Step::Transfer(at - pairs.len()),
                None => return None,
            }
        };
        match &chosen {
            Step::Message((from, to), bytes) => {
                let (messenger, port) = &mut self.ranks[*to as usize];
                messenger
                    .message(port, *from, &Message(bytes.clone()))
                    .expect("ranks send good messages");
            }
            Step::Transfer(at) => {
                let transfer = self.wires.borrow_mut().transfers.swap_remove(*at);
                let (messenger, port) = &mut self.ranks[transfer.rank as usize];
                let good = transfer.run(&self.wires.borrow());
                messenger.transferred(port, transfer.token, good);
            }
        }
        Some(chosen)
    }

    pub fn run(&mut self) {
        while self.step().is_some() {}
    }
}

/// See [`Network::step`].
#[derive(Debug)]
pub enum Step {
    Message((u32, u32), Vec<u8>),
    Transfer(usize),
}
