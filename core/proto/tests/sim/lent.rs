//! Programs that lend their data to the endpoint, and notice when it asks for a byte that is no longer
//! lent.

use super::Random;
use kumi_proto::{Endpoint, Micros, Rank, SendError, Transmit};
use std::collections::BTreeMap;

/// The memory of a program that lends what it sends, and takes it back at any time.
pub struct Lender {
    /// By the number of their first byte: buffers that are lent.
    buffers: BTreeMap<u64, Vec<u8>>,
    next: u64,
    random: Random,
    /// Packets of which a part was elsewhere when they left.
    pub pieces: u64,
    /// Buffers from which something was copied when they were taken back.
    pub copied: u64,
}

impl Lender {
    pub fn new(seed: u64) -> Self {
        let random = Random(seed);
        Self { buffers: BTreeMap::new(), next: 1 << 40, random, pieces: 0, copied: 0 }
    }

    pub fn send(
        &mut self,
        endpoint: &mut Endpoint,
        now: Micros,
        to: Rank,
        parts: [&[u8]; 2],
    ) -> Result<(), SendError> {
        endpoint.send_lent(now, to, parts[0], parts[1], self.next)?;
        self.buffers.insert(self.next, parts[1].to_vec());
        self.next += parts[1].len() as u64 + 1;
        Ok(())
    }

    fn lent(buffers: &BTreeMap<u64, Vec<u8>>, place: u64) -> &[u8] {
        let (start, bytes) = buffers.range(..=place).next_back().expect("nothing is lent there");
        bytes.get((place - start) as usize..).expect("nothing is lent there")
    }

    /// The datagrams of a run, put together.
    pub fn datagrams(&mut self, transmit: &Transmit<'_>) -> Vec<Vec<u8>> {
        if transmit.pieces.is_empty() {
            return transmit.datagrams().map(<[u8]>::to_vec).collect();
        }
        assert!(transmit.pieces.len() <= 64);
        let (last, others) = transmit.pieces.split_last().expect("not empty");
        assert!(others.iter().all(|piece| piece.head + piece.rest == transmit.segment));
        assert!(last.head + last.rest <= transmit.segment);
        let datagram = |piece: &kumi_proto::Piece| {
            let mut bytes = transmit.bytes[piece.at..piece.at + piece.head].to_vec();
            if piece.rest > 0 {
                bytes.extend(&Self::lent(&self.buffers, piece.place)[..piece.rest]);
            }
            bytes
        };
        self.pieces += transmit.pieces.iter().filter(|piece| piece.rest > 0).count() as u64;
        transmit.pieces.iter().map(datagram).collect()
    }

    /// Finds what was lent at a place, for the packet that is `room`.
    pub fn copy(&self, place: u64, room: &mut [u8]) -> bool {
        room.copy_from_slice(&Self::lent(&self.buffers, place)[..room.len()]);
        true
    }

    /// Takes back now and then what was lent up to some instant; it is gone then.
    pub fn take_back(&mut self, endpoint: &mut Endpoint) {
        if !self.random.chance(50) || self.buffers.is_empty() {
            return;
        }
        let at = self.random.below(self.buffers.len() as u64) as usize;
        let end = *self.buffers.keys().nth(at).expect("one of them");
        let Self { buffers, copied, .. } = self;
        let copy = |place: u64, room: &mut [u8]| {
            room.copy_from_slice(&Self::lent(buffers, place)[..room.len()]);
            *copied += 1;
        };
        endpoint.take_all_back(&(0..end), copy);
        endpoint.take_all_back(&(0..end), |_, _| panic!("it was taken back"));
        self.buffers = self.buffers.split_off(&end);
    }
}
