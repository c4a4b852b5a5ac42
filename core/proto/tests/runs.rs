//! Runs: taken and queued together, they are what single packets and frames are. Padding, and rings that grow.

use crate::sim::{Random, fewer};
use kumi_proto::frame::{Frame, FrameError, PutFrame, decode_put, pad};
use kumi_proto::wire::{COVERED_BYTES, Codec, HOLD};
use kumi_proto::{
    ChannelKey, Checksum, Config, ContextMemory, Delivery, Endpoint, LandedSink, Rank, SendError,
    Sink,
};

const KEY: ChannelKey = ChannelKey(7);

/// Takes what comes, but every so often is full.
#[derive(Clone, Default, PartialEq, Debug)]
struct Inbox {
    frames: Vec<Vec<u8>>,
    offered: u64,
    full_every: u64,
}

impl Sink for Inbox {
    fn deliver(&mut self, _: Rank, frame: &[u8]) -> Delivery {
        self.offered += 1;
        if self.full_every > 0 && self.offered.is_multiple_of(self.full_every) {
            return Delivery::Full;
        }
        self.frames.push(frame.to_vec());
        Delivery::Taken
    }
}

fn config() -> Config {
    Config { max_datagram: 400, window: 64, ..Config::default() }
}

fn pair(config: &Config) -> [Endpoint; 2] {
    [0, 1].map(|me| Endpoint::new(config.clone(), me, 2, KEY).expect("settings"))
}

/// What one end sends now: runs, and the length of their packets.
fn polled(endpoint: &mut Endpoint, now: u64) -> Vec<(Vec<u8>, usize)> {
    let mut runs = Vec::new();
    while let Some(transmit) = endpoint.poll_transmit(now) {
        runs.push((transmit.bytes.to_vec(), transmit.segment));
    }
    runs
}

/// Drops, doubles, swaps and damages packets of a run. Packets keep their length.
fn disturb(run: &[u8], segment: usize, random: &mut Random) -> Vec<u8> {
    let mut packets: Vec<Vec<u8>> = run.chunks(segment).map(<[u8]>::to_vec).collect();
    for _ in 0..random.below(3) {
        let whole = packets.iter().filter(|packet| packet.len() == segment).count() as u64;
        if whole < 2 {
            break;
        }
        let (one, other) = (random.below(whole) as usize, random.below(whole) as usize);
        match random.below(4) {
            0 => drop(packets.remove(one)),
            1 => packets.insert(one, packets[other].clone()),
            2 => packets.swap(one, other),
            _ => packets[one][random.below(segment as u64) as usize] ^= 1,
        }
    }
    packets.concat()
}

/// Changes of some packets of a run whether their sender asks to hold back: runs that left at different times can
/// arrive as one.
fn hold(run: &mut [u8], segment: usize, random: &mut Random) {
    let config = config();
    let codec = Codec::new(KEY, config.max_datagram).covering(config.checksum);
    let most = [0, 200, 1_000][random.below(3) as usize];
    for packet in run.chunks_mut(segment) {
        if random.chance(most) {
            let (mut header, _) = codec.open(1, 2, packet).expect("a right packet");
            header.flags ^= HOLD;
            codec.seal(&header, packet);
        }
    }
}

/// The state of an endpoint, but for the number of its changes.
fn state(endpoint: &Endpoint) -> [&[u8]; 2] {
    let bytes = endpoint.memory_of_context().bytes();
    [&bytes[..64], &bytes[72..]]
}

/// One endpoint takes runs, another the same packets one by one: they deliver, count, answer and know the same.
#[test]
fn a_run_is_what_its_packets_are() {
    for seed in 0..fewer(300, 1) {
        let mut random = Random(seed);
        let [mut sender, mut whole] = pair(&config());
        let mut single = Endpoint::new(config(), 1, 2, KEY).expect("settings");
        let full_every = [0, 0, 7, 40][random.below(4) as usize];
        let mut inboxes = [(); 2].map(|()| Inbox { full_every, ..Inbox::default() });
        let mut now = 1;
        for _ in 0..fewer(40, 8) {
            let (count, length) = (random.below(30), [0, 200, 368][random.below(3) as usize]);
            for at in 0..count {
                let frame = vec![at as u8; length];
                if sender.send(now, 1, &[&frame]) == Err(SendError::Full) {
                    break;
                }
            }
            for (mut run, segment) in polled(&mut sender, now) {
                hold(&mut run, segment, &mut random);
                let run = disturb(&run, segment, &mut random);
                whole.handle_run(now + 5, &run, segment, &mut inboxes[0]);
                for datagram in run.chunks(segment) {
                    single.handle_datagram(now + 5, datagram, &mut inboxes[1]);
                }
                assert_eq!(whole.counters(), single.counters(), "seed {seed}");
                assert!(state(&whole) == state(&single), "seed {seed}");
            }
            now += [10, 400, 3_000][random.below(3) as usize];
            whole.handle_timeout(now);
            single.handle_timeout(now);
            let answers = polled(&mut whole, now);
            assert_eq!(answers, polled(&mut single, now), "seed {seed}");
            for (answer, segment) in answers {
                sender.handle_run(now + 5, &answer, segment, &mut Inbox::default());
            }
            sender.handle_timeout(now + 5);
            now += 10;
        }
        assert_eq!(inboxes[0], inboxes[1]);
        assert!(
            inboxes[0].frames.len() as u64 > fewer(50, 5),
            "seed {seed}: {}",
            inboxes[0].frames.len()
        );
    }
}

/// A packet that is like one that was taken, but not of its channel, is not taken behind it either.
#[test]
fn what_follows_is_checked_too() {
    let [mut sender, mut receiver] = pair(&config());
    for _ in 0..2 {
        sender.send(1, 1, &[&[7; 300]]).expect("room");
    }
    let (run, segment) = polled(&mut sender, 1).remove(0);
    for at in 0..60 {
        let mut bad = run.clone();
        bad[segment + at] ^= 0x10;
        let mut inbox = Inbox::default();
        receiver = Endpoint::new(config(), 1, 2, KEY).expect("settings");
        receiver.handle_run(5, &bad, segment, &mut inbox);
        assert_eq!((inbox.frames.len(), receiver.counters().dropped_in_all()), (1, 1), "byte {at}");
    }
    assert_eq!(receiver.counters().data_in, 1);
}

#[test]
fn frames_are_queued_together_as_far_as_there_is_room() {
    let [mut sender, mut receiver] = pair(&config());
    let mut made = 0u8;
    let queued = sender.send_run(1, 1, 50, |room| {
        room[0] = made;
        made += 1;
        (made <= 20).then_some(1)
    });
    assert_eq!(queued, Ok(20), "as many as there were");
    let queued = sender.send_run(1, 1, 50, |room| {
        room.fill(1);
        Some(room.len())
    });
    assert_eq!((queued, sender.room(1)), (Ok(44), 0), "as many as fit");
    assert_eq!(sender.send_run(1, 1, 1, |_| Some(0)), Err(SendError::Full));
    assert_eq!(sender.send_run(1, 0, 1, |_| Some(0)), Err(SendError::ToSelf));
    let mut inbox = Inbox::default();
    for (run, segment) in polled(&mut sender, 1) {
        receiver.handle_run(2, &run, segment, &mut inbox);
    }
    // The congestion window takes no more at first.
    assert_eq!(inbox.frames.len(), 32);
    assert!(inbox.frames[..20].iter().zip(0..).all(|(frame, at)| frame == &[at]));
    assert_eq!((sender.counters().sent, sender.counters().sent_bytes), (64, 20 + 44 * 368));
}

/// A short frame that waits is lengthened, so that the frames behind it leave in its run; its receiver sees the data only.
#[test]
fn padding_joins_runs() {
    let [mut sender, mut receiver] = pair(&config());
    let most = sender.max_frame();
    let put = |data: &'static [u8]| Frame::Put { window: 9, offset: 1, notify: None, data };
    let full = vec![7; most - 24];
    let full: &'static [u8] = full.leak();
    for data in [full, &[1; 100], full, full] {
        sender.pad_last(1, most, pad);
        sender.send_with(1, 1, |room| put(data).write(room)).expect("room");
    }
    let runs = polled(&mut sender, 1);
    assert_eq!(runs.len(), 1, "one run");
    let mut inbox = Inbox::default();
    receiver.handle_run(2, &runs[0].0, runs[0].1, &mut inbox);
    let data: Vec<_> = inbox.frames.iter().map(|it| Frame::decode(it).expect("frame")).collect();
    assert_eq!(data, [put(full), put(&[1; 100]), put(full), put(full)]);
    assert_eq!(inbox.frames[1].len(), most);
    assert!(inbox.frames[1][124..].iter().all(|byte| *byte == 0), "nothing of older frames");
    // What has left stays as it is.
    sender.pad_last(1, most, |_, _| panic!("it has left"));
}

#[test]
fn a_small_frame_is_not_lengthened() {
    let [mut sender, _] = pair(&config());
    sender.send(1, 1, &[&[3; 20]]).expect("room");
    sender.pad_last(1, 300, |_, _| panic!("it costs more than it gains"));
    assert_eq!(sender.counters().sent_bytes, 20);
}

#[test]
fn kinds_with_padding_are_those_of_long_data() {
    let mut message = [1, 0, 0, 0, 5, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, b'h', b'i', 0xEE, 0xEE];
    assert!(pad(&mut message, 18));
    let decoded = Frame::decode(&message);
    assert_eq!(decoded, Ok(Frame::Message { tag: 5, total: 2, data: &b"hi"[..] }));
    assert!(!pad(&mut message, 19), "once only");
    message[2] = 16;
    assert_eq!(Frame::decode(&message), Err(FrameError::Length { kind: 1, length: 4 }));
    for most in 17..24 {
        message[2] = most;
        assert_eq!(Frame::decode(&message), Err(FrameError::Field { kind: 1, field: "padding" }));
    }
    for kind in [4, 5, 6, 7, 8, 10, 12, 13, 14, 16, 17, 20, 21, 22, 23] {
        let mut frame = [0; 60];
        frame[0] = kind;
        assert!(!pad(&mut frame, 50), "{kind}");
    }
}

/// The quick way decodes puts as the other does, and nothing else.
#[test]
fn puts_are_decoded_alike_in_both_ways() {
    let mut random = Random(3);
    let mut taken = 0;
    let count = fewer(20_000, 500);
    for _ in 0..count {
        let mut bytes = vec![0; 20 + random.below(30) as usize];
        bytes[0] = if random.chance(900) { 3 } else { random.below(30) as u8 };
        bytes[1] = random.below(3) as u8;
        if bytes.len() > 20 {
            (bytes[2], bytes[20]) = (random.below(12) as u8, random.below(2) as u8);
        }
        let quick = decode_put(&bytes[..]);
        let put = match Frame::decode(&bytes) {
            Ok(Frame::Put { window, offset, notify, data }) => {
                Some(PutFrame { window, offset, notify, data })
            }
            _ => None,
        };
        taken += u64::from(put.is_some());
        assert_eq!(quick, put, "{bytes:?}");
    }
    assert!(taken > count / 10, "{taken}");
}

/// Moves everything over a path of `delay` microseconds whose receiver takes `packet` nanoseconds for each packet; packets
/// delivered, and the sender.
fn stream(delay: u64, packet: u64) -> (usize, Endpoint) {
    let config = Config { max_datagram: 400, window: 512, first_window: 32, ..Config::default() };
    let [mut sender, mut receiver] = pair(&config);
    let (mut inbox, mut free) = (Inbox::default(), 0);
    let mut wire = std::collections::VecDeque::new();
    for now in (0..400_000).step_by(5) {
        while sender.send(now, 1, &[&[5; 300]]).is_ok() {}
        for (run, segment) in polled(&mut sender, now) {
            for datagram in run.chunks(segment) {
                free = free.max((now + delay) * 1_000) + packet;
                wire.push_back((free / 1_000, 1, datagram.to_vec()));
            }
        }
        for (run, _) in polled(&mut receiver, now) {
            wire.push_back((now + delay, 0, run));
        }
        let mut late = Vec::new();
        for (at, to, datagram) in wire.drain(..) {
            match (at <= now, to) {
                (true, 1) => receiver.handle_datagram(now, &datagram, &mut inbox),
                (true, _) => sender.handle_datagram(now, &datagram, &mut Inbox::default()),
                _ => late.push((at, to, datagram)),
            }
        }
        wire.extend(late);
        receiver.handle_timeout(now);
        sender.handle_timeout(now);
    }
    (inbox.frames.len(), sender)
}

/// The ring grows with the product of bandwidth and delay, and no further.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn a_ring_grows_when_the_path_holds_more_than_it() {
    // 300 us there, 300 back, a packet a microsecond: 600 packets are on the way.
    let (moved, sender) = stream(300, 1_000);
    assert_eq!(sender.unacked().0, 512, "all of the greatest window");
    assert!(moved > 200_000, "{moved}: a ring of 32 would move 20,000");
    // Short path, slow receiver: packets queue, and more of them would queue longer.
    let (moved, sender) = stream(20, 10_000);
    assert!(sender.unacked().0 <= 64, "{}", sender.unacked().0);
    assert!(moved > 35_000, "{moved} of 40,000");
}

/// Takes what comes, and has the bytes of the packet that is looked at where they belong, or not.
struct LandedInbox {
    inbox: Inbox,
    landed: Vec<u8>,
    in_place: bool,
}

impl Sink for LandedInbox {
    fn deliver(&mut self, from: Rank, frame: &[u8]) -> Delivery {
        self.inbox.deliver(from, frame)
    }
}

impl LandedSink for LandedInbox {
    fn is_in_place(&mut self, _: Rank, _: &[u8], rest: usize) -> bool {
        assert_eq!(rest, self.landed.len());
        self.in_place
    }

    fn deliver_landed(&mut self, from: Rank, head: &[u8], rest: usize) -> Delivery {
        assert!(self.in_place && rest == self.landed.len());
        self.inbox.deliver(from, &[head, &self.landed].concat())
    }
}

/// One endpoint gets packets of which only the beginning is private, another the whole ones: they deliver, count, answer and
/// know the same, also under loss, reordering, duplicates and damage.
#[test]
fn a_packet_that_has_landed_is_what_the_whole_one_is() {
    let (mut landed, mut refused) = (0, 0);
    for seed in 0..300 {
        let mut random = Random(seed);
        let checksum = if seed % 4 == 0 { Checksum::All } else { Checksum::Headers };
        let config = Config { checksum, ..config() };
        let [mut sender, mut parts] = pair(&config);
        let mut single = Endpoint::new(config.clone(), 1, 2, KEY).expect("settings");
        let full_every = [0, 0, 7, 40][random.below(4) as usize];
        let inbox = Inbox { full_every, ..Inbox::default() };
        let mut other = inbox.clone();
        let mut sink = LandedInbox { inbox, landed: Vec::new(), in_place: true };
        let mut now = 1;
        for _ in 0..40 {
            for at in 0..random.below(30) {
                let frame = vec![at as u8; [0, 200, 230, 368][random.below(4) as usize]];
                if sender.send(now, 1, &[&frame]) == Err(SendError::Full) {
                    break;
                }
            }
            for (run, segment) in polled(&mut sender, now) {
                for datagram in disturb(&run, segment, &mut random).chunks(segment) {
                    single.handle_datagram(now + 5, datagram, &mut other);
                    let (head, rest) = datagram.split_at(datagram.len().min(COVERED_BYTES));
                    (sink.landed, sink.in_place) = (rest.to_vec(), random.chance(900));
                    let before = state(&parts).map(<[u8]>::to_vec);
                    if parts.handle_landed(now + 5, (head, rest.len()), &mut sink) {
                        assert!(checksum == Checksum::Headers && sink.in_place, "seed {seed}");
                        landed += 1;
                    } else {
                        assert!(state(&parts) == [&before[0][..], &before[1][..]], "seed {seed}");
                        parts.handle_datagram(now + 5, datagram, &mut sink);
                        refused += 1;
                    }
                }
                assert_eq!(parts.counters(), single.counters(), "seed {seed}");
                assert!(state(&parts) == state(&single), "seed {seed}");
            }
            now += [10, 400, 3_000][random.below(3) as usize];
            parts.handle_timeout(now);
            single.handle_timeout(now);
            let answers = polled(&mut parts, now);
            assert_eq!(answers, polled(&mut single, now), "seed {seed}");
            for (answer, segment) in answers {
                sender.handle_run(now + 5, &answer, segment, &mut Inbox::default());
            }
            sender.handle_timeout(now);
        }
        assert_eq!(sink.inbox, other, "seed {seed}");
    }
    assert!(landed > 10_000 && refused > 10_000, "{landed} landed, {refused} did not");
}
