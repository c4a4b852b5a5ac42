//! Two endpoints joined by a wire that the test controls.

use kumi_proto::{ChannelKey, Config, Delivery, Endpoint, Rank, SealKey, SendError, Sink};

/// Collects frames; refuses when told to.
#[derive(Default)]
struct Inbox {
    frames: Vec<(Rank, Vec<u8>)>,
    full: bool,
}

impl Sink for Inbox {
    fn deliver(&mut self, from: Rank, frame: &[u8]) -> Delivery {
        if self.full {
            return Delivery::Full;
        }
        self.frames.push((from, frame.to_vec()));
        Delivery::Taken
    }
}

fn pair(config: &Config) -> (Endpoint, Endpoint) {
    let key = ChannelKey(0x0123_4567_89AB_CDEF);
    let make = |me| Endpoint::new(config.clone(), me, 2, key).unwrap();
    (make(0), make(1))
}

/// Everything that `from` wants to send now, datagram by datagram.
fn drain(from: &mut Endpoint, now: u64) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    while let Some(transmit) = from.poll_transmit(now) {
        assert!(transmit.bytes.len() <= 65_507);
        assert!(transmit.datagrams().count() <= 64);
        out.extend(transmit.datagrams().map(<[u8]>::to_vec));
    }
    out
}

fn feed(to: &mut Endpoint, now: u64, datagrams: &[Vec<u8>], inbox: &mut Inbox) {
    for datagram in datagrams {
        to.handle_datagram(now, datagram, inbox);
    }
}

#[test]
fn frames_arrive_once_and_in_order() {
    let (mut a, mut b) = pair(&Config::default());
    let mut inbox = Inbox::default();
    for i in 0..10u8 {
        a.send(0, 1, &[&[i], b"-", &[i]]).unwrap();
    }
    let packets = drain(&mut a, 0);
    assert_eq!(packets.len(), 10);
    feed(&mut b, 10, &packets, &mut inbox);
    let expected: Vec<_> = (0..10u8).map(|i| (0, vec![i, b'-', i])).collect();
    assert_eq!(inbox.frames, expected);
    // Nothing is due before the delayed ack.
    assert!(drain(&mut b, 10).is_empty());
    let due = b.next_timeout().unwrap();
    assert_eq!(due, 10 + Config::default().ack_delay);
    b.handle_timeout(due);
    let acks = drain(&mut b, due);
    assert_eq!(acks.len(), 1);
    assert!(!a.all_flushed() && !a.flushed(1));
    feed(&mut a, due + 10, &acks, &mut Inbox::default());
    assert!(a.all_flushed() && a.flushed(1));
    // A second copy of everything changes nothing but the counters.
    feed(&mut b, due + 20, &packets, &mut inbox);
    assert_eq!(inbox.frames.len(), 10);
    assert_eq!(b.counters().duplicates, 10);
    assert_eq!(a.counters().sent - b.counters().delivered, 0);
}

#[test]
fn acks_ride_on_replies() {
    let (mut a, mut b) = pair(&Config::default());
    let mut inbox = Inbox::default();
    for now in (0..1_000).step_by(10) {
        a.send(now, 1, &[b"ping"]).unwrap();
        let packets = drain(&mut a, now);
        feed(&mut b, now + 4, &packets, &mut inbox);
        b.send(now + 4, 0, &[b"pong"]).unwrap();
        let packets = drain(&mut b, now + 4);
        assert_eq!(packets.len(), 1);
        feed(&mut a, now + 8, &packets, &mut inbox);
    }
    assert_eq!((a.counters().acks_out, b.counters().acks_out), (0, 0));
    assert_eq!(inbox.frames.len(), 200);
}

#[test]
fn full_packets_leave_as_one_run() {
    let config = Config { initial_window: 128, ..Config::default() };
    let (mut a, mut b) = pair(&config);
    let frame = vec![7; a.max_frame()];
    for _ in 0..100 {
        a.send(0, 1, &[&frame]).unwrap();
    }
    a.send(0, 1, &[b"short"]).unwrap();
    let mut runs = Vec::new();
    let mut inbox = Inbox::default();
    while let Some(transmit) = a.poll_transmit(0) {
        assert_eq!(transmit.segment, config.max_datagram);
        runs.push(transmit.datagrams().count());
        for datagram in transmit.datagrams() {
            b.handle_datagram(5, datagram, &mut inbox);
        }
    }
    assert_eq!(runs, [44, 44, 13]);
    assert_eq!(inbox.frames.len(), 101);
    assert_eq!(inbox.frames[100].1, b"short");
}

/// Packets of one length make a run wherever they lie in the ring; a longer one begins the next.
#[test]
#[cfg_attr(miri, ignore = "the cipher is assembly")]
fn equal_packets_leave_as_one_run() {
    for encrypted in [false, true] {
        let config = Config { initial_window: 128, ..Config::default() };
        let (key, seal) = (ChannelKey(7), SealKey([7; 16]));
        let make = |me| match encrypted {
            true => Endpoint::encrypted(config.clone(), me, 2, key, &seal).unwrap(),
            false => Endpoint::new(config.clone(), me, 2, key).unwrap(),
        };
        let (mut a, mut b) = (make(0), make(1));
        let mut inbox = Inbox::default();
        let mut sent = Vec::new();
        // The second and third time round the ring some of these runs wrap.
        for round in 0..3u8 {
            let lengths = [[16; 70].as_slice(), &[5], &[300; 9], &[299, 300], &[0; 4]].concat();
            for length in lengths {
                sent.push((0, vec![round ^ length as u8; length]));
                a.send(0, 1, &[&sent[sent.len() - 1].1]).unwrap();
            }
            let mut runs = Vec::new();
            while let Some(transmit) = a.poll_transmit(0) {
                runs.push(transmit.datagrams().count());
                for datagram in transmit.datagrams() {
                    b.handle_datagram(5, datagram, &mut inbox);
                }
            }
            // 64 of 16; six more and the 5; nine of 300 and the 299; 300 and a 0; three 0.
            assert_eq!(runs, [64, 7, 10, 2, 3]);
            b.send_delayed_acks();
            let acks = drain(&mut b, 5);
            feed(&mut a, 5, &acks, &mut Inbox::default());
            assert!(a.all_flushed());
        }
        assert_eq!(inbox.frames, sent);
        assert_eq!(a.counters().resends, 0);
    }
}

const DATA: u8 = 1;
const ACK: u8 = 2;
const NACK: u8 = 3;
const PROBE: u8 = 4;

/// Kinds, numbers, acks and lengths of packets.
fn summary(packets: &[Vec<u8>]) -> Vec<(u8, u32, u32, usize)> {
    let number = |p: &[u8], at| u32::from_le_bytes([p[at], p[at + 1], p[at + 2], p[at + 3]]);
    packets.iter().map(|p| (p[7], number(p, 20), number(p, 24), p.len() - 32)).collect()
}

/// The example at the end of docs/reference/channel-protocol.md.
#[test]
fn a_gap_is_nacked_probed_and_filled() {
    let (mut a, mut b) = pair(&Config::default());
    let mut inbox = Inbox::default();
    for frame in [b"A", b"B", b"C"] {
        a.send(0, 1, &[frame]).unwrap();
    }
    let packets = drain(&mut a, 0);
    assert_eq!(summary(&packets), [(DATA, 0, 0, 1), (DATA, 1, 0, 1), (DATA, 2, 0, 1)]);
    feed(&mut b, 10, &[packets[0].clone(), packets[2].clone()], &mut inbox);
    let nack = drain(&mut b, 10);
    assert_eq!(summary(&nack), [(NACK, 0, 1, 8)]);
    assert_eq!(nack[0][32..], [2, 0, 0, 0, 0, 0, 0, 0]);
    feed(&mut a, 20, &nack, &mut Inbox::default());
    let probe = drain(&mut a, 20);
    assert_eq!(summary(&probe), [(PROBE, 1, 0, 0)]);
    feed(&mut b, 30, &probe, &mut inbox);
    let answer = drain(&mut b, 30);
    assert_eq!(summary(&answer), [(ACK, 1, 1, 8)]);
    feed(&mut a, 40, &answer, &mut Inbox::default());
    let resend = drain(&mut a, 40);
    assert_eq!(summary(&resend), [(DATA, 1, 0, 1), (PROBE, 2, 0, 0)]);
    feed(&mut b, 50, &resend, &mut inbox);
    let answer = drain(&mut b, 50);
    assert_eq!(summary(&answer), [(ACK, 2, 3, 0)]);
    feed(&mut a, 60, &answer, &mut Inbox::default());
    assert!(a.all_flushed());
    let frames: Vec<_> = inbox.frames.iter().map(|(_, frame)| frame[0]).collect();
    assert_eq!(frames, b"ABC");
    assert_eq!((a.counters().resends, b.counters().nacks_out, b.kept()), (1, 1, 0));
}

#[test]
fn three_later_packets_prove_a_loss() {
    let (mut a, mut b) = pair(&Config::default());
    for frame in [b"A", b"B", b"C", b"D", b"E"] {
        a.send(0, 1, &[frame]).unwrap();
    }
    let mut packets = drain(&mut a, 0);
    packets.remove(1);
    feed(&mut b, 10, &packets, &mut Inbox::default());
    let nack = drain(&mut b, 10);
    assert_eq!(summary(&nack), [(NACK, 0, 1, 8)]);
    feed(&mut a, 20, &nack, &mut Inbox::default());
    // Sent again at once; the probe behind it asks how that went.
    assert_eq!(summary(&drain(&mut a, 20)), [(DATA, 1, 0, 1), (PROBE, 1, 0, 0)]);
}

#[test]
fn a_nack_does_not_ride_on_data() {
    let (mut a, mut b) = pair(&Config::default());
    for frame in [b"A", b"B", b"C"] {
        a.send(0, 1, &[frame]).unwrap();
    }
    let mut packets = drain(&mut a, 0);
    packets.remove(1);
    feed(&mut b, 10, &packets, &mut Inbox::default());
    b.send(10, 0, &[b"reply"]).unwrap();
    assert_eq!(summary(&drain(&mut b, 10)), [(NACK, 0, 1, 8), (DATA, 0, 1, 5)]);
}

#[test]
fn a_full_receiver_is_retried_with_pauses() {
    let config = Config::default();
    let (mut a, mut b) = pair(&config);
    let mut inbox = Inbox { full: true, ..Inbox::default() };
    for i in 0..20u8 {
        a.send(0, 1, &[&[i]]).unwrap();
    }
    let mut now = 0;
    let mut tries = 0;
    while !a.all_flushed() {
        let forth = drain(&mut a, now);
        feed(&mut b, now, &forth, &mut inbox);
        tries += usize::from(!forth.is_empty());
        inbox.full = now < 100_000;
        let back = drain(&mut b, now);
        feed(&mut a, now, &back, &mut Inbox::default());
        let next = [a.next_timeout(), b.next_timeout()].into_iter().flatten().min();
        now = next.unwrap_or(now).max(now + 1);
        a.handle_timeout(now);
        b.handle_timeout(now);
        assert!(now < 200_000);
    }
    assert_eq!(
        inbox.frames.iter().map(|f| f.1[0]).collect::<Vec<_>>(),
        (0..20).collect::<Vec<_>>()
    );
    assert!(tries < 30, "{tries} bursts of packets to a receiver that was full for 100 ms");
    assert!(b.counters().refused > 5);
}

#[test]
fn a_ring_that_is_full_says_so() {
    let config = Config { window: 4, ..Config::default() };
    let (mut a, _) = pair(&config);
    assert_eq!(a.room(1), 4);
    for _ in 0..4 {
        a.send(0, 1, &[b"x"]).unwrap();
    }
    assert_eq!(a.send(0, 1, &[b"x"]), Err(SendError::Full));
    assert_eq!(a.room(1), 0);
    assert_eq!(a.counters().sent, 4);
    assert_eq!(a.send(0, 0, &[]), Err(SendError::ToSelf));
    assert_eq!(a.send(0, 2, &[]), Err(SendError::NoSuchRank { to: 2, ranks: 2 }));
    let most = a.max_frame();
    let long = vec![0; most + 1];
    assert_eq!(a.send(0, 1, &[&long]), Err(SendError::TooLong { length: most + 1, most }));
}

#[test]
fn an_ack_can_be_asked_for() {
    let (mut a, mut b) = pair(&Config::default());
    a.send(0, 1, &[b"x"]).unwrap();
    a.request_ack(1);
    let forth = drain(&mut a, 0);
    assert_eq!(forth.len(), 2, "data and probe");
    a.request_ack(1);
    assert!(drain(&mut a, 0).is_empty(), "one probe at a time");
    feed(&mut b, 5, &forth, &mut Inbox::default());
    let back = drain(&mut b, 5);
    feed(&mut a, 10, &back, &mut Inbox::default());
    assert!(a.all_flushed());
    a.request_ack(1);
    assert!(drain(&mut a, 10).is_empty(), "nothing to ack");
}
