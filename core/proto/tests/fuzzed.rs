//! The fuzz targets' harness with inputs from a seed: a bounded run that needs no fuzzer.

#[path = "../../../fuzz/harness.rs"]
mod harness;
use crate::sim::Random;
use kumi_proto::frame::{
    APPEND_BYTES, APPEND_REPLY_BYTES, ATOMIC_REPLY_BYTES, ATOMIC_REQUEST_BYTES, Frame, FrameError,
    GET_LIST_BYTES, GET_REPLY_BYTES, GET_REQUEST_BYTES, GET_STRIDED_BYTES, MESSAGE_BYTES,
    MESSAGE_PART_BYTES, MULTICAST_APPEND_BYTES, MULTICAST_APPEND_DONE_BYTES, MULTICAST_BYTES,
    MULTICAST_DONE_BYTES, PIECE_BYTES, PUT_BYTES, PUT_COUNTED_BYTES, PUT_DONE_BYTES,
    PUT_LIST_BYTES, PUT_STRIDED_BYTES, REFUSED_BYTES, SERVICE_BYTES, SERVICE_PART_BYTES,
};
use kumi_proto::seal::SealedCodec;
use kumi_proto::wire::{Codec, Header, PacketKind};
use kumi_proto::{ChannelKey, SealKey};

fn bytes(random: &mut Random, most: u64) -> Vec<u8> {
    (0..random.below(most)).map(|_| random.next() as u8).collect()
}

#[test]
#[cfg_attr(miri, ignore = "the cipher is assembly")]
fn datagrams() {
    let mut random = Random(1);
    for length in 0..100 {
        harness::datagram(&vec![0; length]);
        harness::datagram(&vec![255; length]);
    }
    // Right packets, then the same with bytes changed, cut and made longer.
    let header = Header { kind: PacketKind::Data, flags: 0, from: 1, to: 0, sequence: 0, ack: 0 };
    let mut good = [vec![0; 60], vec![0; 60]];
    let key = ChannelKey(0xF022);
    Codec::new(key, 96).seal(&header, &mut good[0]);
    SealedCodec::new(key, &SealKey([0xF0; 16]), 96, 0).seal(&header, &mut good[1]);
    good.iter().for_each(|good| harness::datagram(good));
    for turn in 0..5_000 {
        harness::datagram(&bytes(&mut random, 128));
        let mut bad = good[turn % 2].clone();
        for _ in 0..=random.below(3) {
            let at = random.below(60) as usize;
            bad[at] = random.next() as u8;
        }
        bad.resize(random.below(100) as usize, 0);
        harness::datagram(&bad);
    }
}

#[test]
#[cfg_attr(miri, ignore = "the cipher is assembly")]
fn packets() {
    let mut random = Random(2);
    for _ in 0..400 {
        let mut input = bytes(&mut random, 2_000);
        // Most of them without bodies full of noise in the place of numbers: more packets are accepted.
        if random.chance(700) {
            for byte in &mut input {
                if random.chance(300) {
                    *byte = random.below(16) as u8;
                }
            }
        }
        harness::packets(&input);
    }
}

#[test]
#[cfg_attr(miri, ignore = "the cipher is assembly")]
fn contexts() {
    let mut random = Random(4);
    assert!(harness::context(&[]));
    let mut resumed = 0;
    for _ in 0..6_000 {
        let edits = 4 * (1 + random.below(4)) as usize;
        let mut input = bytes(&mut random, 400);
        input.resize(input.len().max(64), 0);
        // What is not edited: a change that changes nothing.
        for edit in input[edits..64].chunks_exact_mut(4) {
            edit.copy_from_slice(&[0; 4]);
        }
        resumed += u32::from(harness::context(&input));
    }
    assert!((1_000..5_000).contains(&resumed), "{resumed} of 6,000");
}

/// Each kind of frame: its first byte, the bytes of its header, and the bytes of one entry of the list whose length
/// its bytes 2 and 3 tell (0: it has none).
const KINDS: [(u8, usize, usize); 22] = [
    (1, MESSAGE_BYTES, 0),
    (2, MESSAGE_PART_BYTES, 0),
    (3, PUT_BYTES, 0),
    (4, GET_REQUEST_BYTES, 0),
    (5, GET_REPLY_BYTES, 0),
    (6, ATOMIC_REQUEST_BYTES, 0),
    (7, ATOMIC_REPLY_BYTES, 0),
    (8, REFUSED_BYTES, 0),
    (9, PUT_COUNTED_BYTES, 0),
    (10, PUT_DONE_BYTES, 0),
    (11, PUT_STRIDED_BYTES, 0),
    (12, GET_STRIDED_BYTES, 0),
    (13, MULTICAST_BYTES, 4),
    (14, MULTICAST_DONE_BYTES, 0),
    (16, APPEND_BYTES, 0),
    (17, APPEND_REPLY_BYTES, 0),
    (20, PUT_LIST_BYTES, PIECE_BYTES),
    (21, GET_LIST_BYTES, PIECE_BYTES),
    (22, MULTICAST_APPEND_BYTES, 4),
    (23, MULTICAST_APPEND_DONE_BYTES, 4),
    (24, SERVICE_BYTES, 0),
    (25, SERVICE_PART_BYTES, 0),
];

/// Bytes with small numbers in the places of a header's fields, and a list that is as long as it says.
fn frame_of((kind, header, entry): (u8, usize, usize), random: &mut Random) -> Vec<u8> {
    let count = if entry > 0 { random.below(4) as u8 } else { 0 };
    let mut frame = vec![kind, random.below(4) as u8, count, 0];
    // Every field is a multiple of four bytes long.
    while frame.len() < header {
        frame.extend([random.below(4) as u8, 0, 0, 0]);
    }
    let (mut listed, mut data) = (Vec::new(), random.below(9) as usize);
    if entry == PIECE_BYTES {
        data = 0;
    }
    for _ in 0..count {
        let (place, length) = (random.below(9) as u8, 1 + random.below(4) as u8);
        listed.extend([place, 0, 0, 0, length, 0, 0, 0].into_iter().take(entry));
        // What a put of pieces carries; a request for pieces carries nothing.
        if (entry, header) == (PIECE_BYTES, PUT_LIST_BYTES) {
            data += usize::from(length);
        }
    }
    [frame, listed, vec![7; data]].concat()
}

/// The list above is complete: every other first byte is no kind.
#[test]
fn kinds_of_frames() {
    for kind in 0..=u8::MAX {
        let input = [kind, 0, 0, 0];
        let decoded = Frame::decode(&input);
        let unknown = matches!(decoded, Err(FrameError::Kind(found)) if found == kind);
        assert_eq!(unknown, KINDS.iter().all(|known| known.0 != kind), "kind {kind}");
    }
}

/// Frames of each kind that are tried.
const FRAMES: u32 = if cfg!(miri) { 20 } else { 2_000 };

#[test]
fn frames() {
    let mut random = Random(3);
    for known in KINDS {
        let (mut accepted, mut refused) = (0, 0);
        for _ in 0..FRAMES {
            let mut input = frame_of(known, &mut random);
            if random.chance(300) {
                let at = random.below(input.len() as u64) as usize;
                input[at] = random.next() as u8;
            }
            if random.chance(200) {
                input.resize(random.below(60) as usize, 0);
            }
            harness::frame(&input);
            match Frame::decode(&input) {
                Ok(frame) if frame.header()[0] == known.0 => accepted += 1,
                _ => refused += 1,
            }
        }
        let least = FRAMES / 100;
        assert!(
            accepted >= least && refused >= least,
            "{known:?}: {accepted} taken, {refused} not"
        );
    }
    // And noise.
    (0..10 * FRAMES).for_each(|_| harness::frame(&bytes(&mut random, 48)));
}
