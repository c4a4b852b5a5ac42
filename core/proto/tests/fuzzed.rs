//! The fuzz targets' harness with inputs from a seed: a bounded run that needs no fuzzer.

#[path = "../../../fuzz/harness.rs"]
mod harness;
mod sim;

use kumi_proto::seal::SealedCodec;
use kumi_proto::wire::{Codec, Header, PacketKind};
use kumi_proto::{ChannelKey, SealKey, frame::Frame};
use sim::Random;

fn bytes(random: &mut Random, most: u64) -> Vec<u8> {
    (0..random.below(most)).map(|_| random.next() as u8).collect()
}

#[test]
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
fn frames() {
    let mut random = Random(3);
    let mut decoded = 0;
    for _ in 0..20_000 {
        let mut input = bytes(&mut random, 48);
        if let Some(start) = input.get_mut(..4) {
            start.copy_from_slice(&[random.below(16) as u8, random.below(3) as u8, 0, 0]);
        }
        harness::frame(&input);
        decoded += u32::from(Frame::decode(&input).is_ok());
    }
    assert!(decoded > 1_000, "{decoded} inputs were frames");
}
