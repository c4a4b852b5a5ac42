//! The context holds everything: endpoints that stop anywhere and go on elsewhere with copies of their contexts, the
//! bytes of a context, and contexts that are damaged.

use crate::sim::{Faults, MAX_DATAGRAM, Net, Old, Random, config, fewer};
use kumi_proto::context::{ContextLayout, ContextReport};
use kumi_proto::wire::{Codec, HEADER_BYTES, Header, PacketKind};
use kumi_proto::{
    ChannelEnd, ChannelKey, Config, ContextError, ContextMemory, Delivery, Endpoint, HeapMemory,
    Rank, SealKey, Sink,
};
use proptest::prelude::*;

const KEY: ChannelKey = ChannelKey(7);

struct Taken;

impl Sink for Taken {
    fn deliver(&mut self, _: Rank, _: &[u8]) -> Delivery {
        Delivery::Taken
    }
}

// ---- going on elsewhere -------------------------------------------------------------------------

/// A job whose ranks all stop in the middle of what they do, several times, and go on elsewhere.
fn moves(seed: u64, old: Old, encrypted: bool, lend: bool) -> Net {
    let mut random = Random(seed);
    // Long packets are not corrupted: that is UDP's to find.
    let config =
        if lend { Config { max_datagram: 700, lend_least: 256, ..config() } } else { config() };
    let faults = Faults {
        loss: 10 * random.below(31) as u32,
        double: 10 * random.below(11) as u32,
        corrupt: if lend { 0 } else { 5 * random.below(11) as u32 },
        delay: 1 + random.below(300),
        jitter: random.below(400),
    };
    let config = Config { first_sequence: u32::MAX - 50, ..config };
    let mut net = Net::with(seed, 3, &config, faults, encrypted);
    if lend {
        net.lend();
    }
    for _ in 0..1 + random.below(4) {
        net.all_to_all(random.below(fewer(60, 3)));
        net.run(random.below(3_000));
        for rank in 0..3 {
            net.stop_after(rank, random.below(30) as u32);
        }
        net.run(random.below(1_000));
        net.check_cut();
        net.move_all(old);
        net.check_cut();
    }
    net.settle(60_000_000);
    net
}

const OLD: [Old; 3] = [Old::Lost, Old::Late, Old::LateWithOldKey];

#[test]
#[cfg_attr(miri, ignore = "half a minute of packets in code without unsafe blocks")]
fn all_ranks_go_on_elsewhere() {
    for seed in 0..fewer(200, 2) {
        moves(seed, OLD[seed as usize % 3], seed % 2 == 1, seed % 5 == 4);
    }
}

/// Without other faults nothing but what was on its way is sent again.
#[test]
fn what_was_on_its_way_is_asked_for_first() {
    let mut net = Net::new(1, 2, &config(), Faults::NONE);
    net.send(0, 1, 20);
    net.run(15);
    assert_eq!(net.data_under_way(0), 20);
    net.move_all(Old::Lost);
    net.settle(10_000);
    assert_eq!((net.total(|c| c.resends), net.total(|c| c.duplicates)), (20, 0));
    // Twenty have arrived and nobody knows.
    net.send(0, 1, 20);
    net.run(35);
    assert_eq!((net.undelivered(), net.nodes[0].endpoint.unacked().0), (0, 20));
    net.move_all(Old::Lost);
    net.settle(10_000);
    assert_eq!((net.total(|c| c.resends), net.total(|c| c.duplicates)), (20, 0));
}

#[test]
fn packets_with_the_old_key_are_refused() {
    let mut net = Net::new(2, 2, &config(), Faults::NONE);
    net.send(0, 1, 20);
    net.run(15);
    net.move_all(Old::LateWithOldKey);
    net.settle(10_000);
    assert_eq!(net.total(|c| c.drop_key), 20);
    assert_eq!(net.total(|c| c.resends), 20);
}

#[test]
#[cfg_attr(miri, ignore = "half a minute of packets in code without unsafe blocks")]
fn one_rank_goes_on_elsewhere_and_the_others_where_they_are() {
    for seed in 0..fewer(30, 1) {
        let mut net = Net::with(seed, 4, &config(), Faults::HEAVY, seed % 2 == 1);
        for round in 0..fewer(4, 2) {
            net.all_to_all(fewer(20, 1));
            net.run(200 + 137 * round);
            net.stop_after(round as usize, 5);
            net.run(100);
            net.move_one(round as usize);
            net.check_cut();
        }
        net.settle(60_000_000);
    }
}

#[test]
fn a_settled_channel_is_open_where_it_goes_on() {
    let mut net = Net::new(3, 2, &config(), Faults::NONE);
    net.all_to_all(20);
    net.quiesce(0);
    net.quiesce(1);
    net.run(1_000);
    net.move_all(Old::Lost);
    assert!(net.nodes.iter().all(|node| !node.endpoint.closed()));
    net.settle(10_000);
    assert_eq!(net.total(|c| c.resends + c.duplicates), 0);
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 100,
        max_shrink_iters: 100,
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(17),
        ..ProptestConfig::default()
    })]

    #[test]
    #[cfg_attr(miri, ignore = "half a minute of packets in code without unsafe blocks")]
    fn wherever_they_stop(seed in any::<u64>(), old in 0..3usize, encrypted: bool, lend: bool) {
        moves(seed, OLD[old], encrypted, lend);
    }
}

// ---- sizes --------------------------------------------------------------------------------------

/// Pages in which something was written.
fn pages(memory: &HeapMemory) -> usize {
    memory.bytes().chunks(4_096).filter(|page| page.iter().any(|&byte| byte != 0)).count()
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn an_idle_rank_that_has_heard_from_a_thousand_is_small() {
    let config = Config::default();
    let mut endpoint = Endpoint::new(config.clone(), 0, 1_024, KEY).unwrap();
    assert_eq!(pages(endpoint.memory_of_context()), 1);
    let codec = Codec::new(KEY, config.max_datagram);
    for from in 1..1_024 {
        let header = Header { kind: PacketKind::Data, flags: 0, from, to: 0, sequence: 0, ack: 0 };
        let mut packet = vec![1; HEADER_BYTES + 8];
        codec.seal(&header, &mut packet);
        endpoint.handle_datagram(1, &packet, &mut Taken);
    }
    endpoint.send_delayed_acks();
    while endpoint.poll_transmit(2).is_some() {}
    assert_eq!(endpoint.counters().acks_out, 1_023);
    let bytes = 4_096 * pages(endpoint.memory_of_context());
    // Three pages, and 256 bytes for each peer.
    assert!(bytes <= 4_096 * 3 + 1_024 * 256, "{bytes} bytes");
}

#[test]
fn a_large_job_needs_address_space_and_no_memory() {
    let layout = ContextLayout::new(&Config::default(), 16_384).unwrap();
    assert!(layout.total() < 8 << 30, "{} bytes", layout.total());
    let small = ContextLayout::new(&Config::default(), 2).unwrap();
    assert!(small.total() < 4 << 20, "{} bytes", small.total());
    assert!(
        ContextLayout::new(&Config { reorder_packets: usize::MAX, ..Config::default() }, 2)
            .is_err()
    );
}

// ---- refusals -----------------------------------------------------------------------------------

fn end(me: Rank, ranks: u32) -> ChannelEnd<'static> {
    ChannelEnd { me, ranks, key: KEY, seal: None }
}

fn resume(bytes: &[u8], config: &Config, end: &ChannelEnd<'_>) -> Result<Endpoint, ContextError> {
    let nothing_lent = |_, _, _: &mut [u8]| false;
    Endpoint::resume(HeapMemory::copy_of(bytes), config.clone(), end, 0, nothing_lent)
}

/// A context with packets in flight and a packet that came early.
fn sample() -> (Config, Vec<u8>) {
    let config = config();
    let mut endpoint = Endpoint::new(config.clone(), 0, 4, KEY).unwrap();
    for frame in [&b"hello"[..], b"to", b"rank two"] {
        endpoint.send(1_000, 2, &[frame]).unwrap();
    }
    while endpoint.poll_transmit(1_005).is_some() {}
    let codec = Codec::new(KEY, MAX_DATAGRAM);
    let header = Header { kind: PacketKind::Data, flags: 0, from: 1, to: 0, sequence: 3, ack: 0 };
    let mut packet = vec![b'e'; HEADER_BYTES + 5];
    codec.seal(&header, &mut packet);
    endpoint.handle_datagram(1_010, &packet, &mut Taken);
    while endpoint.poll_transmit(1_010).is_some() {}
    endpoint.send(1_011, 2, &[b"later"]).unwrap();
    (config, endpoint.memory_of_context().bytes().to_vec())
}

#[test]
#[cfg_attr(miri, ignore = "the cipher is assembly")]
fn a_context_of_another_channel_is_refused() {
    let (good, bytes) = sample();
    assert!(resume(&bytes, &good, &end(0, 4)).is_ok());
    let mismatch = |result: Result<Endpoint, ContextError>, wanted: &str| match result {
        Err(ContextError::Mismatch { field, .. }) => assert_eq!(field, wanted),
        other => panic!("{wanted}: {other:?}"),
    };
    mismatch(resume(&bytes, &good, &end(1, 4)), "rank");
    mismatch(resume(&bytes, &good, &end(0, 5)), "ranks");
    mismatch(resume(&bytes, &Config { window: 64, ..good.clone() }, &end(0, 4)), "window");
    mismatch(
        resume(&bytes, &Config { max_datagram: 130, ..good.clone() }, &end(0, 4)),
        "max_datagram",
    );
    mismatch(
        resume(&bytes, &Config { reorder_packets: 9, ..good.clone() }, &end(0, 4)),
        "reorder_packets",
    );
    mismatch(
        resume(&bytes, &Config { first_sequence: 1, ..good.clone() }, &end(0, 4)),
        "first_sequence",
    );
    let seal = SealKey([1; 16]);
    let sealed = ChannelEnd { seal: Some(&seal), ..end(0, 4) };
    mismatch(resume(&bytes, &good, &sealed), "encryption");
    // Times and keys may be others.
    let other = Config { max_rto: 1_000_000, initial_window: 2, ..good };
    assert!(resume(&bytes, &other, &ChannelEnd { key: ChannelKey(8), ..end(0, 4) }).is_ok());
}

#[test]
fn what_is_no_context_is_refused() {
    let (config, bytes) = sample();
    let with = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        resume(&bytes, &config, &end(0, 4)).map(|_| ())
    };
    assert_eq!(with(7, 2), Err(ContextError::Magic));
    assert_eq!(with(8, 9), Err(ContextError::Version(9)));
    assert_eq!(resume(&[], &config, &end(0, 4)).map(|_| ()), Err(ContextError::Magic));
    // Cut off behind the peers: the blocks are not there.
    let short = ContextLayout::new(&config, 4).unwrap().total() - 6 * 8_192;
    let cut = resume(&bytes[..short], &config, &end(0, 4)).map(|_| ());
    assert!(matches!(cut, Err(ContextError::Damaged { peer: Some(2), .. })), "{cut:?}");
}

/// Memory of a fixed length.
struct Fixed(HeapMemory, usize);

impl ContextMemory for Fixed {
    fn capacity(&self) -> usize {
        self.1
    }
    fn grow(&mut self, bytes: usize) {
        self.0.grow(bytes);
    }
    fn bytes(&self) -> &[u8] {
        self.0.bytes()
    }
    fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.bytes_mut()
    }
}

#[test]
fn memory_that_is_too_small_is_refused() {
    let need = ContextLayout::new(&config(), 4).unwrap().total();
    let create = |have| Endpoint::create(Fixed(HeapMemory::default(), have), config(), &end(0, 4));
    assert!(create(need).is_ok());
    let refused = create(need - 1).map(|_| ()).unwrap_err();
    assert_eq!(refused, ContextError::TooSmall { have: need - 1, need });
}

struct Stops;

impl Sink for Stops {
    fn deliver(&mut self, _: Rank, _: &[u8]) -> Delivery {
        // As if the process were stopped here, in the middle of a change.
        std::panic::resume_unwind(Box::new(()))
    }
}

#[test]
fn a_copy_from_the_middle_of_a_change_is_refused() {
    let mut one = Endpoint::new(config(), 1, 4, KEY).unwrap();
    one.send(0, 0, &[b"x"]).unwrap();
    let packet = one.poll_transmit(0).unwrap().bytes.to_vec();
    let mut zero = Endpoint::new(config(), 0, 4, KEY).unwrap();
    let stopped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        zero.handle_datagram(0, &packet, &mut Stops);
    }));
    assert!(stopped.is_err());
    let bytes = zero.memory_of_context().bytes();
    assert_eq!(resume(bytes, &config(), &end(0, 4)).map(|_| ()), Err(ContextError::Busy));
    assert!(ContextReport::read(bytes).unwrap().changing);
}

#[test]
fn lent_data_that_is_gone_is_told() {
    let config = Config { lend_least: 256, ..Config::default() };
    let mut endpoint = Endpoint::new(config.clone(), 0, 2, KEY).unwrap();
    endpoint.send_lent(0, 1, &[1; 24], &[2; 1_000][..], 5_000).unwrap();
    let bytes = endpoint.memory_of_context().bytes();
    let gone = resume(bytes, &config, &end(0, 2)).map(|_| ());
    assert!(matches!(gone, Err(ContextError::Lent { to: 1, place: 5_000.. })), "{gone:?}");
    endpoint.take_all_back(&(0..u64::MAX), |_, room| room.fill(3));
    assert!(resume(endpoint.memory_of_context().bytes(), &config, &end(0, 2)).is_ok());
}

// ---- what others see ----------------------------------------------------------------------------

#[test]
fn a_report_says_what_the_endpoint_knows() {
    let (_, bytes) = sample();
    let need = ContextReport::needed(&bytes[..ContextReport::START]).unwrap();
    assert!(need <= ContextReport::most(4) && need > ContextReport::most(2));
    assert!(ContextReport::read(&bytes[..need - 1]).is_err());
    let report = ContextReport::read(&bytes[..need]).unwrap();
    assert_eq!(
        (report.me, report.ranks, report.window, report.blocks, report.kept),
        (0, 4, 32, 2, 1)
    );
    assert!(!report.changing && !report.closed && !report.encrypted);
    let changes = u64::from_ne_bytes(bytes[ContextReport::CHANGES].try_into().unwrap());
    assert!(changes > 0 && report.changes == changes / 2);
    assert_eq!((report.counters.sent, report.counters.data_out), (4, 3));
    let [two, one] = report.peers[..] else { panic!("{:?}", report.peers) };
    assert_eq!((two.rank, two.oldest, two.next, two.tail, two.in_flight), (2, 0, 3, 4, 3));
    assert_eq!((one.rank, one.oldest, one.tail, one.expected, one.kept), (1, 0, 0, 0, 1));
    assert_eq!((two.round_trip_us, two.congestion_window), (None, 32));
}

/// Lines of 32 bytes that are not all 0, each with the number of its first byte.
fn dump(bytes: &[u8]) -> Vec<String> {
    let lines = bytes.chunks(32).enumerate();
    let used = lines.filter(|(_, line)| line.iter().any(|&byte| byte != 0));
    let hex = |word: &[u8]| word.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let words = |line: &[u8]| line.chunks(4).map(hex).collect::<Vec<_>>().join(" ");
    used.map(|(at, line)| format!("{:5}: {}", at * 32, words(line))).collect()
}

/// The example of docs/reference/channel-context.md, byte for byte.
#[test]
#[cfg(target_endian = "little")]
fn the_bytes_are_those_of_the_documentation() {
    let page = include_str!("../../../docs/reference/channel-context.md");
    let example = page.split("```text\n").last().and_then(|rest| rest.split("```").next());
    let documented: Vec<_> = example.expect("an example").lines().map(str::to_owned).collect();
    let (_, bytes) = sample();
    let written = dump(&bytes);
    assert_eq!(documented, written, "now:\n{}", written.join("\n"));
}

#[test]
fn changes_are_counted_by_twos() {
    let mut endpoint = Endpoint::new(config(), 0, 4, KEY).unwrap();
    let changes = |endpoint: &Endpoint| {
        u64::from_ne_bytes(endpoint.memory_of_context().bytes()[64..72].try_into().unwrap())
    };
    assert_eq!(changes(&endpoint), 0);
    endpoint.send(0, 1, &[b"x"]).unwrap();
    assert_eq!(changes(&endpoint), 2);
    assert!(endpoint.poll_transmit(0).is_some() && endpoint.poll_transmit(0).is_none());
    let before = changes(&endpoint);
    assert!(before > 2 && before.is_multiple_of(2));
    // These only look.
    assert!(endpoint.poll_transmit(0).is_none());
    endpoint.handle_timeout(0);
    assert!(endpoint.next_timeout().is_some() && endpoint.room(1) == 31);
    assert_eq!(changes(&endpoint), before);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Whatever another process wrote there, a report is made or refused.
    #[test]
    fn a_report_of_anything(edits in prop::collection::vec((0..9_000usize, any::<u8>()), 0..20), length in 0..10_000usize) {
        let (_, mut bytes) = sample();
        for (at, byte) in edits {
            bytes[at] = byte;
        }
        bytes.truncate(length);
        if let Ok(report) = ContextReport::read(&bytes) {
            prop_assert!(report.peers.len() < 40);
        }
    }
}
