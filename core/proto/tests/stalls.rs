//! Page requests of ranks that are not always scheduled: the cost of waits and losses in packets and
//! time.
#![cfg(not(miri))] // Its machines answer thousands of requests.

use kumi_proto::{ChannelKey, Config, Counters, Delivery, Endpoint, Rank, Sink};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::sim::Random;

const CLIENTS: usize = 16;
const SERVER: usize = CLIENTS;
/// Microseconds on the wire, that the server takes for a request, and between two looks of the handler
/// thread.
const DELAY: u64 = 20;
const SERVICE: u64 = 8;
const TICK: u64 = 500;

#[derive(Default)]
struct Inbox(VecDeque<(Rank, usize)>);

impl Sink for Inbox {
    fn deliver(&mut self, from: Rank, frame: &[u8]) -> Delivery {
        self.0.push_back((from, frame.len()));
        Delivery::Taken
    }
}

struct Node {
    endpoint: Endpoint,
    inbox: Inbox,
    socket: VecDeque<Vec<u8>>,
    /// Not scheduled until then.
    away: u64,
    ticked: u64,
    /// When it has its next turn, unless something comes.
    wake: u64,
    asked: u64,
}

/// Disturbances of ranks and packets.
#[derive(Clone, Copy)]
struct Machine {
    /// In permille of its turns a rank is not scheduled for up to `most` microseconds.
    stalls: u32,
    most: u64,
    /// Permille of packets.
    loss: u32,
}

/// When, in which order, to whom, and what arrives (nothing: a turn).
type Event = (u64, u64, usize, Option<Vec<u8>>);

struct World {
    nodes: Vec<Node>,
    events: BinaryHeap<Reverse<Event>>,
    serial: u64,
    random: Random,
    machine: Machine,
    rounds: u64,
    lost: u64,
}

/// Result of a run.
struct Result {
    counters: Counters,
    packets_per_request: f64,
    /// Microseconds from the first request to the last reply.
    time: u64,
    lost: u64,
}

impl World {
    fn at(&mut self, time: u64, node: usize, datagram: Option<Vec<u8>>) {
        if datagram.is_none() {
            if self.nodes[node].wake <= time {
                return;
            }
            self.nodes[node].wake = time;
        }
        self.serial += 1;
        self.events.push(Reverse((time, self.serial, node, datagram)));
    }

    fn transmit(&mut self, now: u64, me: usize) {
        let mut out = Vec::new();
        while let Some(transmit) = self.nodes[me].endpoint.poll_transmit(now) {
            let to = transmit.to as usize;
            out.extend(transmit.datagrams().map(|datagram| (to, datagram.to_vec())));
        }
        for (to, datagram) in out {
            if self.random.chance(self.machine.loss) {
                self.lost += 1;
            } else {
                self.at(now + DELAY, to, Some(datagram));
            }
        }
    }

    /// Reads the socket, then looks at the deadlines, as a driver does.
    fn service(&mut self, now: u64, me: usize) {
        let node = &mut self.nodes[me];
        node.ticked = now;
        while let Some(datagram) = node.socket.pop_front() {
            node.endpoint.handle_datagram(now, &datagram, &mut node.inbox);
        }
        node.endpoint.handle_timeout(now);
        self.transmit(now, me);
    }

    fn turn(&mut self, now: u64, me: usize) {
        if now < self.nodes[me].away {
            let away = self.nodes[me].away;
            return self.at(away, me, None);
        }
        if self.random.chance(self.machine.stalls) {
            let away = now + self.random.below(self.machine.most);
            self.nodes[me].away = away;
            return self.at(away, me, None);
        }
        if self.nodes[me].inbox.0.is_empty() || now >= self.nodes[me].ticked + TICK {
            self.service(now, me);
        }
        let node = &mut self.nodes[me];
        if let Some((from, _)) = node.inbox.0.pop_front() {
            if me == SERVER {
                node.endpoint.send(now, from, &[&[2; 4096]]).unwrap();
                node.away = now + SERVICE;
            } else if node.asked < self.rounds {
                node.asked += 1;
                node.endpoint.send(now, SERVER as Rank, &[&[1; 64]]).unwrap();
            }
            self.transmit(now, me);
            self.at(now + SERVICE, me, None);
        } else if let Some(time) = node.endpoint.next_timeout() {
            self.at(time.max(now + 1), me, None);
        }
    }
}

fn page_requests(seed: u64, rounds: u64, machine: Machine) -> Result {
    let config = Config { max_datagram: 8_972, window: 32, late: 5_000, ..Config::default() };
    let ranks = CLIENTS as u32 + 1;
    let node = |me| Node {
        endpoint: Endpoint::new(config.clone(), me, ranks, ChannelKey(5)).unwrap(),
        inbox: Inbox::default(),
        socket: VecDeque::new(),
        away: 0,
        ticked: 0,
        wake: u64::MAX,
        asked: 0,
    };
    let mut world = World {
        nodes: (0..ranks).map(node).collect(),
        events: BinaryHeap::new(),
        serial: 0,
        random: Random(seed),
        machine,
        rounds,
        lost: 0,
    };
    for client in 0..CLIENTS {
        // As if a reply had come: the first request.
        world.nodes[client].inbox.0.push_back((SERVER as Rank, 0));
        world.at(1, client, None);
    }
    let (mut now, mut end) = (0, 0);
    while let Some(Reverse((time, _, me, datagram))) = world.events.pop() {
        now = time.max(now);
        if let Some(datagram) = datagram {
            world.nodes[me].socket.push_back(datagram);
            end = now;
        } else {
            world.nodes[me].wake = u64::MAX;
        }
        world.turn(now, me);
    }
    let mut all = Counters::default();
    for node in &world.nodes {
        assert!(node.endpoint.all_flushed());
        let c = node.endpoint.counters();
        all.delivered += c.delivered;
        all.data_out += c.data_out;
        all.acks_out += c.acks_out;
        all.nacks_out += c.nacks_out;
        all.probes_out += c.probes_out;
        all.resends += c.resends;
        all.duplicates += c.duplicates;
    }
    let requests = CLIENTS as u64 * rounds;
    assert_eq!(all.delivered, 2 * requests);
    let packets = all.data_out + all.acks_out + all.nacks_out + all.probes_out;
    let packets_per_request = packets as f64 / requests as f64;
    Result { counters: all, packets_per_request, time: end, lost: world.lost }
}

const QUIET: Machine = Machine { stalls: 0, most: 0, loss: 0 };

#[test]
fn ranks_that_are_not_scheduled_cost_few_packets() {
    let machines = [(0, 0), (2, 6_000), (10, 6_000), (30, 10_000)];
    for (seed, (stalls, most)) in (0..).zip(machines) {
        let result = page_requests(seed, 300, Machine { stalls, most, loss: 0 });
        let Counters { resends, duplicates, nacks_out, .. } = result.counters;
        assert_eq!((resends, duplicates, nacks_out), (0, 0, 0));
        let each = result.packets_per_request;
        assert!(each <= 2.05, "{each} packets per request, stalls {stalls} of 1,000");
    }
}

#[test]
fn losses_are_found_in_good_time() {
    let least = Config::default().min_rto;
    for seed in 0..3 {
        let quiet = page_requests(seed, 150, QUIET);
        for loss in [5, 50] {
            let result = page_requests(seed, 150, Machine { loss, ..QUIET });
            // A client stands still for a timeout, and for a second one if the probe is lost too.
            let waits = 2 * result.lost * least / CLIENTS as u64;
            let most = quiet.time + quiet.time / 4 + waits;
            assert!(result.time <= most, "{} us of {most}, {} lost", result.time, result.lost);
            assert!(result.counters.resends <= result.lost);
        }
    }
    let busy = Machine { stalls: 10, most: 6_000, loss: 0 };
    let time = |machine| (0..6).map(|seed| page_requests(seed, 100, machine).time).sum::<u64>();
    let (stalled, both) = (time(busy), time(Machine { loss: 10, ..busy }));
    assert!(both <= stalled * 7 / 4, "{both} us with losses, {stalled} us without");
}
