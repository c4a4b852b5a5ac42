//! Tests of the two ack modes and of counters by peer.

use crate::sim::{Faults, Net, config, fewer};
use kumi_proto::{
    AckMode, ChannelKey, Config, Counters, Delivery, Endpoint, PEERS_LISTED, PeerCounters, Rank,
    Sink,
};
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

const MODES: [AckMode; 2] = [AckMode::Reduced, AckMode::PerMessage];

fn in_mode(ack: AckMode) -> Config {
    Config { ack, ..config() }
}

#[test]
fn every_packet_gets_an_ack_of_its_own() {
    let frames = fewer(500, 4);
    let mut net = Net::new(1, 4, &in_mode(AckMode::PerMessage), Faults::NONE);
    net.all_to_all(frames);
    net.settle(1_000_000);
    // The last acks may still be on the wire when everything is acked.
    net.run(1_000);
    assert_eq!(net.total(|c| c.data_in), 4 * 3 * frames);
    assert_eq!(net.total(|c| c.acks_out), 4 * 3 * frames);
    assert_eq!(net.total(|c| c.nacks_out + c.probes_out + c.resends + c.timeouts), 0);
}

#[test]
fn the_ack_leaves_at_once_and_before_the_reply() {
    let config = Config { ack: AckMode::PerMessage, ..Config::default() };
    let make = |me| Endpoint::new(config.clone(), me, 2, ChannelKey(7)).unwrap();
    let (mut a, mut b) = (make(0), make(1));
    a.send(0, 1, &[b"ask"]).unwrap();
    let ask = a.poll_transmit(0).unwrap().bytes.to_vec();
    b.handle_datagram(10, &ask, &mut Inbox::default());
    assert_eq!(b.counters().delivered, 1);
    b.send(10, 0, &[b"answer"]).unwrap();
    let kinds: Vec<u8> =
        std::iter::from_fn(|| b.poll_transmit(10).map(|transmit| transmit.bytes[7])).collect();
    assert_eq!(kinds, [2, 1], "an ack, then data");
    assert_eq!(b.next_timeout(), Some(10 + config.initial_rto), "no delayed ack is due");
}

#[test]
#[cfg_attr(miri, ignore = "half a minute of packets in code without unsafe blocks")]
fn a_terrible_wire_in_both_modes() {
    for ack in MODES {
        for seed in 0..fewer(5, 1) {
            let mut net = Net::new(seed, 3, &in_mode(ack), Faults::HEAVY);
            net.set_refuse(2, 200);
            net.all_to_all(fewer(100, 3));
            for _ in 0..fewer(100, 10) {
                net.run(1_000);
                net.check_cut();
            }
            net.settle(60_000_000);
            assert!(net.total(|c| c.resends) > 0);
        }
    }
}

#[test]
fn ranks_may_differ_in_mode() {
    let mut net = Net::new(3, 3, &in_mode(AckMode::Reduced), Faults::HEAVY);
    let each = Endpoint::new(in_mode(AckMode::PerMessage), 1, 3, ChannelKey(3 ^ 0x5eed)).unwrap();
    net.nodes[1].endpoint = each;
    net.all_to_all(fewer(200, 4));
    net.settle(60_000_000);
}

// ---- page requests --------------------------------------------------------------------------

const CLIENTS: u32 = 16;
const SERVER: Rank = CLIENTS;
/// Microseconds on the wire, and that the server takes for a request.
const DELAY: u64 = 20;
const SERVICE: u64 = 5;

#[derive(Default)]
struct Inbox(VecDeque<(Rank, usize)>);

impl Sink for Inbox {
    fn deliver(&mut self, from: Rank, frame: &[u8]) -> Delivery {
        self.0.push_back((from, frame.len()));
        Delivery::Taken
    }
}

/// The endpoint to drive next, the time, and the datagram that arrives there (none: a deadline).
type Events = BinaryHeap<Reverse<(u64, u64, usize, Vec<u8>)>>;

/// Sends what an endpoint has to send, and asks to be called at its deadline.
fn drive(now: u64, me: usize, endpoint: &mut Endpoint, events: &mut Events, serial: &mut u64) {
    endpoint.handle_timeout(now);
    while let Some(transmit) = endpoint.poll_transmit(now) {
        for datagram in transmit.datagrams() {
            *serial += 1;
            let to = transmit.to as usize;
            events.push(Reverse((now + DELAY, *serial, to, datagram.to_vec())));
        }
    }
    if let Some(time) = endpoint.next_timeout() {
        *serial += 1;
        events.push(Reverse((time.max(now + 1), *serial, me, Vec::new())));
    }
}

/// Every client asks with 64 bytes for a page of 4,096, again and again; the counters of all ranks.
fn page_requests(ack: AckMode, rounds: u64) -> Vec<Counters> {
    let config = Config { max_datagram: 8_972, window: 32, ack, ..Config::default() };
    let make = |me| Endpoint::new(config.clone(), me, CLIENTS + 1, ChannelKey(5)).unwrap();
    let mut endpoints: Vec<Endpoint> = (0..=CLIENTS).map(make).collect();
    let (mut events, mut serial, mut busy) = (Events::new(), 0, 0);
    let mut asked = vec![1; CLIENTS as usize];
    for (client, endpoint) in endpoints.iter_mut().enumerate().take(CLIENTS as usize) {
        endpoint.send(0, SERVER, &[&[1; 64]]).unwrap();
        drive(0, client, endpoint, &mut events, &mut serial);
    }
    while let Some(Reverse((time, _, me, datagram))) = events.pop() {
        let endpoint = &mut endpoints[me];
        // The server is busy with one request at a time.
        let now = if me == SERVER as usize { time.max(busy) } else { time };
        if !datagram.is_empty() {
            let mut inbox = Inbox::default();
            endpoint.handle_datagram(now, &datagram, &mut inbox);
            for (from, length) in inbox.0 {
                if me == SERVER as usize {
                    assert_eq!(length, 64);
                    busy = now + SERVICE;
                    endpoint.send(now, from, &[&[2; 4096]]).unwrap();
                } else {
                    assert_eq!(length, 4096);
                    if asked[me] < rounds {
                        asked[me] += 1;
                        endpoint.send(now, SERVER, &[&[1; 64]]).unwrap();
                    }
                }
            }
        }
        drive(now, me, endpoint, &mut events, &mut serial);
    }
    endpoints.iter().map(|endpoint| *endpoint.counters()).collect()
}

fn packets(all: &[Counters]) -> u64 {
    all.iter().map(|c| c.data_out + c.acks_out + c.nacks_out + c.probes_out).sum()
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn packets_of_a_page_request() {
    let rounds = 200;
    let requests = u64::from(CLIENTS) * rounds;
    let reduced = page_requests(AckMode::Reduced, rounds);
    assert_eq!(reduced.iter().map(|c| c.delivered).sum::<u64>(), 2 * requests);
    // Request and reply, and an ack of the last reply of each client.
    assert_eq!(packets(&reduced), 2 * requests + u64::from(CLIENTS));
    assert!(packets(&reduced) * 100 <= requests * 205, "at most 2.05 packets per request");
    let each = page_requests(AckMode::PerMessage, rounds);
    assert_eq!(packets(&each), 4 * requests);
}

// ---- waits of unknown length ----------------------------------------------------------------

/// Ten seconds in which everybody waits for the last one, as in a barrier.
const LONG: u64 = 10_000_000;

#[test]
fn a_long_wait_costs_one_ack_a_request() {
    let ranks = 16;
    let mut net = Net::new(21, ranks, &config(), Faults::NONE);
    for rank in 1..ranks as usize {
        net.send(rank, 0, 1);
    }
    net.run(LONG);
    let others = u64::from(ranks) - 1;
    assert_eq!(net.total(|c| c.data_out), others, "no request is sent again");
    assert_eq!(net.total(|c| c.acks_out), others, "the delayed ack says: it is here, wait");
    assert_eq!(net.total(|c| c.probes_out + c.nacks_out + c.timeouts), 0);
    assert!(net.nodes.iter_mut().all(|node| node.endpoint.next_timeout().is_none()), "nobody asks");
    for rank in 1..ranks as usize {
        net.send(0, rank, 1);
    }
    net.run(10_000);
    assert_eq!(net.total(|c| c.data_out + c.acks_out), 4 * others);
    assert_eq!(net.total(|c| c.probes_out + c.nacks_out + c.resends), 0);
}

#[test]
fn a_long_wait_is_told_from_a_loss() {
    for seed in 0..fewer(40, 3) {
        let mut net = Net::new(seed, 2, &config(), Faults { loss: 300, ..Faults::NONE });
        net.send(1, 0, 1);
        net.run(LONG);
        // The request, its ack, and for each of them that was lost a probe and its answer.
        let lost = net.total(|c| c.data_out + c.acks_out + c.nacks_out + c.probes_out)
            - net.total(|c| c.data_in + c.acks_in + c.nacks_in + c.probes_in);
        let packets: u64 = net.packets_to.iter().sum();
        assert!(packets <= 2 + 4 * lost, "{packets} packets, {lost} lost");
        assert_eq!(net.total(|c| c.duplicates), 0, "sent again only when it was lost");
        assert_eq!((net.delivered(1, 0), net.nodes[1].endpoint.all_flushed()), (1, true));
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn a_wait_for_a_full_receiver_costs_a_hundred_packets_a_second() {
    let mut net = Net::new(22, 2, &config(), Faults::NONE);
    net.set_full(0, true);
    net.send(1, 0, 1);
    net.run(LONG);
    // Refused for lack of room in the channel itself, which the layer above avoids: asked again at
    // `full_retry_max`.
    let (data, nacks) = (net.total(|c| c.data_out), net.total(|c| c.nacks_out));
    assert!(data <= 1_010 && nacks == data, "{data} packets, {nacks} nacks");
    assert_eq!(net.total(|c| c.probes_out + c.acks_out), 0);
}

// ---- counters by peer -----------------------------------------------------------------------

/// Published counters of an endpoint, by place.
fn published(endpoint: &mut Endpoint, table: &mut BTreeMap<usize, PeerCounters>) {
    endpoint.changed_peers(|place, counters| {
        assert!(place <= PEERS_LISTED);
        if let Some(before) = table.insert(place, *counters) {
            assert_eq!(before.rank, counters.rank, "a peer keeps its place");
        }
    });
}

fn sums_are_right(endpoint: &Endpoint, table: &BTreeMap<usize, PeerCounters>) {
    let of = |value: fn(&PeerCounters) -> u64| table.values().map(value).sum::<u64>();
    let all = endpoint.counters();
    assert_eq!(of(|p| p.data_out), all.data_out);
    assert_eq!(of(|p| p.acks_out), all.acks_out);
    assert_eq!(of(|p| p.nacks_out), all.nacks_out);
    assert_eq!(of(|p| p.probes_out), all.probes_out);
    assert_eq!(of(|p| p.data_in), all.data_in);
    assert_eq!(of(|p| p.acks_in), all.acks_in);
    assert_eq!(of(|p| p.nacks_in), all.nacks_in);
    assert_eq!(of(|p| p.probes_in), all.probes_in);
    assert_eq!(of(|p| p.bytes_out), all.bytes_out);
    assert_eq!(of(|p| p.bytes_in), all.bytes_in);
    assert_eq!(of(|p| p.resends), all.resends);
    assert_eq!(of(|p| p.duplicates), all.duplicates);
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn peers_beyond_the_list_are_counted_together() {
    let ranks = 80;
    let mut net = Net::new(12, ranks, &config(), Faults { loss: 50, ..Faults::NONE });
    let mut table = BTreeMap::new();
    for to in 1..ranks as usize {
        net.send(0, to, 5);
    }
    net.settle(60_000_000);
    published(&mut net.nodes[0].endpoint, &mut table);
    assert_eq!(table.len(), PEERS_LISTED + 1);
    sums_are_right(&net.nodes[0].endpoint, &table);
    let others = &table[&PEERS_LISTED];
    assert_eq!((others.rank, others.data_out - others.resends), (None, 5 * (79 - 62)));
    assert!(table.values().all(|peer| peer.unacked_packets == 0 && peer.unacked_bytes == 0));
    assert!(table.values().take(PEERS_LISTED).all(|peer| peer.round_trip_us > 0));
    // Unchanged counters are not handed out again.
    net.nodes[0].endpoint.changed_peers(|place, _| panic!("{place} has not changed"));
    net.send(0, 3, 1);
    net.run(1_000);
    let mut changed = Vec::new();
    net.nodes[0].endpoint.changed_peers(|_, counters| changed.push(counters.rank));
    assert_eq!(changed, [Some(3)]);
}

#[test]
fn what_lies_in_the_ring_is_told() {
    let mut endpoint = Endpoint::new(Config::default(), 0, 3, ChannelKey(1)).unwrap();
    for _ in 0..3 {
        endpoint.send(0, 2, &[&[0; 68]]).unwrap();
    }
    endpoint.send(0, 1, &[]).unwrap();
    while endpoint.poll_transmit(0).is_some() {}
    let mut table = BTreeMap::new();
    published(&mut endpoint, &mut table);
    let fill = |place: usize| {
        let peer: &PeerCounters = &table[&place];
        (peer.rank, peer.unacked_packets, peer.unacked_bytes, peer.round_trip_us)
    };
    assert_eq!((fill(0), fill(1)), ((Some(2), 3, 300, 0), (Some(1), 1, 32, 0)));
    assert_eq!((endpoint.unacked(), endpoint.round_trip_us()), ((4, 332), 0));
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 32,
        max_shrink_iters: 100,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(2),
        ..ProptestConfig::default()
    })]

    /// Exactly once and in order in both modes (the harness checks every frame), under any faults and
    /// stops. Counters by peer add up at every look.
    #[test]
    fn whatever_happens(
        seed in any::<u64>(),
        each in any::<bool>(),
        (loss, double, jitter) in (0..=250u32, 0..=200u32, 0..=400u64),
        script in prop::collection::vec((0..4usize, 0..4usize, 1..fewer(60, 4), 1..20_000u64), 1..20),
    ) {
        let faults = Faults { loss, double, jitter, ..Faults::NONE };
        let mut net = Net::new(seed, 4, &in_mode(MODES[usize::from(each)]), faults);
        let mut tables = vec![BTreeMap::new(); 4];
        for (from, to, frames, time) in script {
            if from == to {
                net.stop(from);
            } else {
                net.send(from, to, frames);
                net.resume(to);
            }
            net.run(time);
            net.check_cut();
            for (node, table) in net.nodes.iter_mut().zip(&mut tables) {
                published(&mut node.endpoint, table);
                sums_are_right(&node.endpoint, table);
                let (packets, bytes) = node.endpoint.unacked();
                prop_assert!(packets <= bytes && bytes <= packets * 128);
            }
        }
        net.settle(120_000_000);
        prop_assert!(net.nodes.iter().all(|node| node.endpoint.unacked() == (0, 0)));
    }
}
