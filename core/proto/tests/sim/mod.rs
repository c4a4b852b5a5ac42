//! A network in virtual time that loses, doubles, reorders, delays and corrupts by a seed, with ranks
//! that are stopped at any instant. It records every send and delivery and checks every frame.

#![allow(dead_code)] // Each test program uses a part of it.

mod lent;
mod moves;

use kumi_proto::{
    ChannelKey, Config, Counters, Delivery, Endpoint, Rank, SealKey, SendError, Sink,
};
use lent::Lender;
pub use moves::Old;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet, VecDeque};

/// Steele, Lea, Flood: "Fast splittable pseudorandom number generators" (SplitMix64).
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.next() % bound }
    }

    /// True in `permille` of 1,000 cases.
    pub fn chance(&mut self, permille: u32) -> bool {
        self.below(1_000) < u64::from(permille)
    }
}

/// `many`, or `few` under Miri, which takes a second for some ten packets.
pub const fn fewer(many: u64, few: u64) -> u64 {
    if cfg!(miri) { few } else { many }
}

/// Faults of the wire, in permille and microseconds.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    pub loss: u32,
    pub double: u32,
    pub corrupt: u32,
    /// Least time on the wire.
    pub delay: u64,
    /// Up to this much is added; packets overtake each other.
    pub jitter: u64,
}

impl Faults {
    pub const NONE: Self = Self { loss: 0, double: 0, corrupt: 0, delay: 20, jitter: 0 };
    pub const HEAVY: Self = Self { loss: 300, double: 100, corrupt: 50, delay: 20, jitter: 200 };
}

enum Event {
    Arrive { to: usize, bytes: Vec<u8> },
    Wake { rank: usize },
}

/// Checks what is delivered.
struct Inbox {
    me: Rank,
    /// Longest frame.
    most: usize,
    /// By source: frames delivered.
    delivered: Vec<u64>,
    full: bool,
    /// Refuses this many of 1,000 frames.
    refuse: u32,
    random: Random,
}

impl Sink for Inbox {
    fn deliver(&mut self, from: Rank, frame: &[u8]) -> Delivery {
        let index = self.delivered[from as usize];
        let expected = payload(from, self.me, index, self.most);
        assert_eq!(frame, expected, "{from} to {}: frame {index}", self.me);
        if self.full || self.random.chance(self.refuse) {
            return Delivery::Full;
        }
        self.delivered[from as usize] += 1;
        Delivery::Taken
    }
}

/// The content of frame `index` of a pair; its length, at most `most`, is a function of the pair and index too.
fn payload(from: Rank, to: Rank, index: u64, most: usize) -> Vec<u8> {
    let mut random = Random(u64::from(from) << 48 | u64::from(to) << 32 | index);
    let length = match random.below(4) {
        0 => 0,
        1 => random.below(32),
        2 => most as u64,
        _ => random.below(most as u64 + 1),
    };
    let mut frame = vec![0; length as usize];
    // Eight bytes a number: frames are a good part of what a simulation costs.
    for part in frame.chunks_mut(8) {
        part.copy_from_slice(&random.next().to_le_bytes()[..part.len()]);
    }
    frame
}

/// Small, so that tests are quick.
pub const MAX_DATAGRAM: usize = 128;

pub fn config() -> Config {
    Config { max_datagram: MAX_DATAGRAM, window: 32, reorder_packets: 64, ..Config::default() }
}

/// A link through which all packets to one rank pass one behind the other.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub to: usize,
    /// Nanoseconds that a byte takes.
    pub byte: u64,
    /// Bytes that may wait; more are lost.
    pub queue: u64,
}

/// Traffic of the link.
#[derive(Clone, Copy, Debug, Default)]
pub struct Passed {
    /// Nanoseconds since the start of the clock.
    free: u64,
    pub bytes: u64,
    pub lost: u64,
    /// Longest wait, in microseconds.
    pub longest: u64,
}

pub struct Node {
    pub endpoint: Endpoint,
    inbox: Inbox,
    socket: VecDeque<Vec<u8>>,
    /// Datagrams polled but not yet given to the wire when the rank was stopped.
    in_hand: VecDeque<(Rank, Vec<u8>)>,
    stopped: bool,
    /// What its clock is ahead of the simulation's, modulo 2^64.
    ahead: u64,
    /// Lends what it sends.
    pub lender: Option<Lender>,
    /// Stops after this many further steps of its driver.
    fuse: Option<u32>,
    /// By destination: frames accepted by the endpoint, frames still to send.
    sent: Vec<u64>,
    wanted: Vec<u64>,
}

pub struct Net {
    pub now: u64,
    pub faults: Faults,
    pub nodes: Vec<Node>,
    /// Datagrams that a socket holds; more are lost.
    pub socket_limit: usize,
    pub link: Option<Link>,
    pub passed: Passed,
    /// Packets given to the wire, by destination.
    pub packets_to: Vec<u64>,
    side: Vec<bool>,
    partitioned: bool,
    events: BinaryHeap<Reverse<(u64, u64, usize)>>,
    bodies: Vec<Option<Event>>,
    free: Vec<usize>,
    serial: u64,
    random: Random,
    key: ChannelKey,
    encrypted: bool,
    /// Sender and counter of every encrypted packet.
    numbers: HashSet<(usize, u64)>,
}

impl Net {
    pub fn new(seed: u64, ranks: u32, config: &Config, faults: Faults) -> Self {
        Self::with(seed, ranks, config, faults, false)
    }

    /// A network whose channel is encrypted, or not.
    pub fn with(seed: u64, ranks: u32, config: &Config, faults: Faults, encrypted: bool) -> Self {
        // The cipher is assembly, which Miri cannot run.
        let encrypted = encrypted && !cfg!(miri);
        let count = ranks as usize;
        let key = ChannelKey(seed ^ 0x5eed);
        let endpoint = |me| match encrypted {
            true => Endpoint::encrypted(config.clone(), me, ranks, key, &SealKey([9; 16])).unwrap(),
            false => Endpoint::new(config.clone(), me, ranks, key).unwrap(),
        };
        let most = endpoint(0).max_frame();
        let node = |me| Node {
            endpoint: endpoint(me),
            inbox: Inbox {
                me,
                most,
                delivered: vec![0; count],
                full: false,
                refuse: 0,
                random: Random(seed ^ u64::from(me) << 8),
            },
            socket: VecDeque::new(),
            in_hand: VecDeque::new(),
            stopped: false,
            ahead: 0,
            lender: None,
            fuse: None,
            sent: vec![0; count],
            wanted: vec![0; count],
        };
        Self {
            // Not 0: the protocol must not depend on where the clock starts.
            now: 1_000_000,
            faults,
            nodes: (0..ranks).map(node).collect(),
            socket_limit: usize::MAX,
            link: None,
            passed: Passed::default(),
            packets_to: vec![0; count],
            side: vec![false; count],
            partitioned: false,
            events: BinaryHeap::new(),
            bodies: Vec::new(),
            free: Vec::new(),
            serial: 0,
            random: Random(seed),
            key,
            encrypted,
            numbers: HashSet::new(),
        }
    }

    fn at(&mut self, time: u64, event: Event) {
        let body = self.free.pop().unwrap_or_else(|| {
            self.bodies.push(None);
            self.bodies.len() - 1
        });
        self.bodies[body] = Some(event);
        self.serial += 1;
        self.events.push(Reverse((time, self.serial, body)));
    }

    // ---- what a test does -------------------------------------------------------------------

    /// The program of `from` wants to send `frames` more frames to `to`.
    pub fn send(&mut self, from: usize, to: usize, frames: u64) {
        self.nodes[from].wanted[to] += frames;
        self.at(self.now, Event::Wake { rank: from });
    }

    /// So many frames from every rank to every other.
    pub fn all_to_all(&mut self, frames: u64) {
        let ranks = self.nodes.len();
        for from in 0..ranks {
            for to in (0..ranks).filter(|&to| to != from) {
                self.send(from, to, frames);
            }
        }
    }

    /// From now on all lend what they send.
    pub fn lend(&mut self) {
        for (seed, node) in (1..).zip(&mut self.nodes) {
            node.lender = Some(Lender::new(seed));
        }
    }

    pub fn stop(&mut self, rank: usize) {
        self.nodes[rank].stopped = true;
    }

    /// Stops `rank` in the middle of what its driver does, after `steps` more steps.
    pub fn stop_after(&mut self, rank: usize, steps: u32) {
        self.nodes[rank].fuse = Some(steps);
    }

    pub fn resume(&mut self, rank: usize) {
        self.nodes[rank].stopped = false;
        self.nodes[rank].fuse = None;
        self.at(self.now, Event::Wake { rank });
    }

    pub fn set_full(&mut self, rank: usize, full: bool) {
        self.nodes[rank].inbox.full = full;
    }

    pub fn set_refuse(&mut self, rank: usize, permille: u32) {
        self.nodes[rank].inbox.refuse = permille;
    }

    /// Nothing passes between ranks whose bits in `side` differ.
    pub fn partition(&mut self, side: u64) {
        self.partitioned = true;
        for (rank, other) in self.side.iter_mut().enumerate() {
            *other = side >> rank & 1 == 1;
        }
    }

    pub fn heal(&mut self) {
        self.partitioned = false;
    }

    /// A datagram from outside arrives.
    pub fn inject(&mut self, to: usize, bytes: Vec<u8>) {
        self.at(self.now, Event::Arrive { to, bytes });
    }

    /// Runs for `duration` microseconds.
    pub fn run(&mut self, duration: u64) {
        let end = self.now + duration;
        while let Some(&Reverse((time, _, body))) = self.events.peek() {
            if time > end {
                break;
            }
            self.events.pop();
            self.free.push(body);
            self.now = self.now.max(time);
            match self.bodies[body].take().expect("an event for every entry") {
                Event::Arrive { to, bytes } => self.arrive(to, bytes),
                Event::Wake { rank } => self.step(rank),
            }
        }
        self.now = end;
    }

    /// Undoes every hindrance and runs until everything is delivered and acked; fails after `limit`
    /// microseconds.
    pub fn settle(&mut self, limit: u64) {
        self.heal();
        for rank in 0..self.nodes.len() {
            self.set_full(rank, false);
            self.resume(rank);
        }
        let end = self.now + limit;
        while !self.settled() {
            assert!(self.now < end, "not settled after {limit} us: {:?}", self.state());
            self.run(500);
        }
        self.check_cut();
        assert_eq!(self.undelivered(), 0);
    }

    /// Closes what `rank` sends until [`Self::reopen`].
    pub fn quiesce(&mut self, rank: usize) {
        self.nodes[rank].endpoint.quiesce();
        self.at(self.now, Event::Wake { rank });
    }

    pub fn reopen(&mut self, rank: usize) {
        let now = self.nodes[rank].clock(self.now);
        self.nodes[rank].endpoint.reopen(now);
        self.at(self.now, Event::Wake { rank });
    }

    // ---- what a test asks -------------------------------------------------------------------

    pub fn settled(&self) -> bool {
        self.nodes.iter().all(|node| {
            node.endpoint.all_flushed() && node.wanted.iter().all(|&frames| frames == 0)
        })
    }

    pub fn total(&self, counter: impl Fn(&Counters) -> u64) -> u64 {
        self.nodes.iter().map(|node| counter(node.endpoint.counters())).sum()
    }

    pub fn delivered(&self, from: usize, to: usize) -> u64 {
        self.nodes[to].inbox.delivered[from]
    }

    /// Data packets of `from` that are on the wire, in a socket, or on their way into it.
    pub fn data_under_way(&self, from: usize) -> usize {
        let flying = self.bodies.iter().filter_map(|body| match body {
            Some(Event::Arrive { bytes, .. }) => Some(bytes),
            _ => None,
        });
        let held = self.nodes.iter().flat_map(|node| &node.socket);
        let in_hand = self.nodes.iter().flat_map(|node| node.in_hand.iter().map(|one| &one.1));
        flying
            .chain(held)
            .chain(in_hand)
            .filter(|bytes| bytes[7] == 1 && bytes[12] == from as u8)
            .count()
    }

    /// Frames that an endpoint accepted and no sink took yet, by the harness's own books.
    pub fn undelivered(&self) -> u64 {
        let sent: u64 = self.nodes.iter().flat_map(|node| &node.sent).sum();
        let delivered: u64 = self.nodes.iter().flat_map(|node| &node.inbox.delivered).sum();
        sent - delivered
    }

    fn state(&self) -> Vec<(u64, u64)> {
        let count = |node: &Node| (node.sent.iter().sum(), node.wanted.iter().sum());
        self.nodes.iter().map(count).collect()
    }

    /// Invariants at every instant.
    pub fn check_cut(&self) {
        let (sent, delivered) = (self.total(|c| c.sent), self.total(|c| c.delivered));
        assert_eq!(sent - delivered, self.undelivered(), "counters against the books");
        for (from, node) in self.nodes.iter().enumerate() {
            let config = node.endpoint.config();
            let mut rings = 0;
            for to in 0..self.nodes.len() {
                if to == from {
                    continue;
                }
                let pending = node.sent[to] - self.nodes[to].inbox.delivered[from];
                let held = config.window - node.endpoint.room(to as Rank);
                assert!(pending <= held as u64, "an undelivered frame left its sender's ring");
                assert!(!(pending > 0 && node.endpoint.flushed(to as Rank)));
                rings += usize::from(node.sent[to] > 0);
            }
            assert!(node.endpoint.kept() <= config.reorder_packets);
            let ring = config.window * (config.max_datagram + 32);
            let most = rings * ring + config.reorder_packets * config.max_datagram;
            assert!(node.endpoint.memory() <= most, "memory is bounded");
        }
    }

    // ---- the wire ---------------------------------------------------------------------------

    fn wire(&mut self, from: usize, to: usize, bytes: &[u8]) {
        self.packets_to[to] += 1;
        if self.encrypted {
            let (low, high) = (&bytes[..4], &bytes[bytes.len() - 4..]);
            let number = u64::from_le_bytes([low, high].concat().try_into().unwrap());
            assert!(self.numbers.insert((from, number)), "{from} used number {number} twice");
        }
        if self.partitioned && self.side[from] != self.side[to] {
            return;
        }
        let Some(queued) = self.queued(to, bytes.len() as u64) else { return };
        let faults = self.faults;
        let copies = 1 + u32::from(self.random.chance(faults.double));
        for _ in 0..copies {
            if self.random.chance(faults.loss) {
                continue;
            }
            let mut bytes = bytes.to_vec();
            if self.random.chance(faults.corrupt) {
                self.corrupt(&mut bytes);
            }
            let time = self.now + queued + faults.delay + self.random.below(faults.jitter + 1);
            self.at(time, Event::Arrive { to, bytes });
        }
    }

    /// How long a packet to this rank takes through the link, in microseconds; `None` if it is lost there.
    fn queued(&mut self, to: usize, bytes: u64) -> Option<u64> {
        let Some(link) = self.link.filter(|link| link.to == to) else { return Some(0) };
        let now = self.now * 1_000;
        let waits = self.passed.free.saturating_sub(now);
        if waits > link.queue * link.byte {
            self.passed.lost += 1;
            return None;
        }
        self.passed.longest = self.passed.longest.max(waits / 1_000);
        self.passed.free = now + waits + bytes * link.byte;
        self.passed.bytes += bytes;
        Some((self.passed.free - now) / 1_000)
    }

    fn corrupt(&mut self, bytes: &mut Vec<u8>) {
        match self.random.below(4) {
            0 => bytes.truncate(self.random.below(bytes.len() as u64) as usize),
            1 => bytes.push(self.random.next() as u8),
            _ => {
                for _ in 0..=self.random.below(3) {
                    let at = self.random.below(bytes.len() as u64) as usize;
                    bytes[at] ^= 1 << self.random.below(8);
                }
            }
        }
    }

    fn arrive(&mut self, to: usize, bytes: Vec<u8>) {
        let node = &mut self.nodes[to];
        if node.socket.len() < self.socket_limit {
            node.socket.push_back(bytes);
        }
        let time = self.now + self.random.below(10);
        self.at(time, Event::Wake { rank: to });
    }

    // ---- a rank's driver --------------------------------------------------------------------

    /// False when the fuse has burnt down: the rank stops here.
    fn burn(&mut self, rank: usize) -> bool {
        let node = &mut self.nodes[rank];
        match &mut node.fuse {
            Some(0) => node.stopped = true,
            Some(steps) => *steps -= 1,
            None => {}
        }
        !node.stopped
    }

    /// Reads the socket, then acts on timeouts, then sends.
    fn step(&mut self, rank: usize) {
        if self.nodes[rank].stopped {
            return;
        }
        let now = self.nodes[rank].clock(self.now);
        while let Some((to, bytes)) = self.nodes[rank].in_hand.pop_front() {
            self.wire(rank, to as usize, &bytes);
        }
        while !self.nodes[rank].socket.is_empty() {
            if !self.burn(rank) {
                return;
            }
            let node = &mut self.nodes[rank];
            let datagram = node.socket.pop_front().expect("not empty");
            node.endpoint.handle_datagram(now, &datagram, &mut node.inbox);
        }
        if !self.burn(rank) {
            return;
        }
        self.nodes[rank].endpoint.handle_timeout(now);
        self.nodes[rank].queue(now);
        loop {
            if !self.burn(rank) {
                return;
            }
            let Node { endpoint, lender, .. } = &mut self.nodes[rank];
            let Some(transmit) = endpoint.poll_transmit(now) else { break };
            let to = transmit.to;
            let datagrams = match lender {
                Some(lender) => lender.datagrams(&transmit),
                None => transmit.datagrams().map(<[u8]>::to_vec).collect(),
            };
            self.nodes[rank].in_hand.extend(datagrams.into_iter().map(|bytes| (to, bytes)));
            while let Some((to, bytes)) = self.nodes[rank].in_hand.pop_front() {
                if !self.burn(rank) {
                    self.nodes[rank].in_hand.push_front((to, bytes));
                    return;
                }
                self.wire(rank, to as usize, &bytes);
            }
        }
        let Node { endpoint, lender, .. } = &mut self.nodes[rank];
        if let Some(lender) = lender {
            lender.take_back(endpoint);
        }
        if let Some(time) = self.nodes[rank].endpoint.next_timeout() {
            let after = time.wrapping_sub(now).max(1);
            self.at(self.now + after, Event::Wake { rank });
        }
    }
}

impl Node {
    /// What its clock shows at this time of the simulation.
    fn clock(&self, now: u64) -> u64 {
        now.wrapping_add(self.ahead)
    }

    /// Gives the endpoint what the program wants to send, as far as it fits.
    fn queue(&mut self, now: u64) {
        let me = self.inbox.me;
        for to in 0..self.wanted.len() {
            while self.wanted[to] > 0 {
                let frame = payload(me, to as Rank, self.sent[to], self.inbox.most);
                let (head, tail) = frame.split_at(frame.len() / 3);
                let sent = match &mut self.lender {
                    Some(lender) => lender.send(&mut self.endpoint, now, to as Rank, [head, tail]),
                    None => self.endpoint.send(now, to as Rank, &[head, tail]),
                };
                match sent {
                    Ok(()) => {
                        self.sent[to] += 1;
                        self.wanted[to] -= 1;
                    }
                    Err(SendError::Full | SendError::Closed) => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
}
