//! Model of the ring between two ranks of a node.

use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;

use loom::sync::Arc;
use loom::thread;

use super::explore;
use crate::layout::RingPosition;
use crate::ring::{Consumer, Producer, RingPlace};
use crate::sync::{Run, begin};

/// A ring and its memory.
pub(super) struct Memory<const SIZE: usize> {
    tail: RingPosition,
    head: RingPosition,
    data: Box<[std::cell::UnsafeCell<u64>]>,
    _run: Run,
}

// SAFETY: as in a segment: the data is reached by the two ends only, and the model checks how.
unsafe impl<const SIZE: usize> Send for Memory<SIZE> {}
// SAFETY: as above.
unsafe impl<const SIZE: usize> Sync for Memory<SIZE> {}

impl<const SIZE: usize> Memory<SIZE> {
    /// An empty ring whose positions are at `position`.
    pub(super) fn new(position: u64) -> Arc<Memory<SIZE>> {
        let data: Box<[_]> = (0..SIZE / 8).map(|_| std::cell::UnsafeCell::new(0)).collect();
        let run = begin(data.as_ptr().cast(), SIZE);
        let (tail, head) = (RingPosition::default(), RingPosition::default());
        tail.0.store(position, Relaxed);
        head.0.store(position, Relaxed);
        Arc::new(Memory { tail, head, data, _run: run })
    }

    fn place(&self) -> RingPlace {
        let (tail, head) = (NonNull::from(&self.tail), NonNull::from(&self.head));
        RingPlace { tail, head, data: NonNull::from(&self.data[0]).cast(), size: SIZE }
    }

    pub(super) fn producer(&self) -> Producer {
        // SAFETY: the models keep the memory and make one of each.
        unsafe { Producer::new(self.place()) }
    }

    pub(super) fn consumer(&self) -> Consumer {
        // SAFETY: as above.
        unsafe { Consumer::new(self.place()) }
    }
}

/// Takes the next record, if there is one, and checks that it is `length` bytes of `value`.
pub(super) fn take(consumer: &mut Consumer, value: u8, length: usize) -> bool {
    match consumer.peek().expect("nobody has damaged it") {
        None => false,
        Some(record) => {
            assert_eq!(record.to_vec(), &[value; 32][..length]);
            consumer.consume();
            true
        }
    }
}

fn passes<const SIZE: usize>(position: u64, before: u8, lengths: &'static [usize]) {
    explore(3, move || {
        let memory = Memory::<SIZE>::new(position);
        let (mut producer, mut consumer) = (memory.producer(), memory.consumer());
        let record = |value: u8| ([value; 32], lengths[usize::from(value)]);
        for value in 0..before {
            let (bytes, length) = record(value);
            assert!(producer.push(&[], &[&bytes[..length]]));
        }
        let all = lengths.len() as u8;
        let other = Arc::clone(&memory);
        let thread = thread::spawn(move || {
            for value in before..all {
                let (bytes, length) = record(value);
                while !producer.push(&[&bytes[..length / 2]], &[&bytes[length / 2..length]]) {
                    thread::yield_now();
                }
            }
            drop(other);
            producer
        });
        for value in 0..all {
            while !take(&mut consumer, value, lengths[usize::from(value)]) {
                thread::yield_now();
            }
        }
        let producer = thread.join().expect("the producer ends");
        assert!(producer.drained() && matches!(consumer.peek(), Ok(None)));
    });
}

/// Records go through whole and in order, also where the producer has to wait for room and the memory is
/// used again.
pub fn records_pass_in_order_through_a_full_ring() {
    passes::<64>(48, 3, &[8, 8, 1, 8, 8]);
}

/// The same where a record does not fit before the end, and where positions pass their largest value.
pub fn the_end_of_a_ring_is_skipped() {
    passes::<128>(128 - 24, 1, &[24, 16, 24, 8]);
    passes::<64>(0_u64.wrapping_sub(8), 0, &[8, 8, 0]);
}
