//! Model of doorbells: sleeping and being woken, as `Channel::wait` and its peers do it.

use loom::sync::Arc;
use loom::thread;

use super::ring::{Memory, take};
use super::{ModelDoorbell, explore};
use crate::layout::{Sleep, Wake};
use crate::ring::{Consumer, Producer};
use crate::sync::{AtomicU64, begin};
use std::sync::atomic::Ordering::SeqCst;

/// The shared state of a rank, and its doorbell.
struct Rank {
    sleep: Sleep,
    wake: Wake,
    counter: AtomicU64,
    doorbell: ModelDoorbell,
}

impl Rank {
    fn new() -> Rank {
        let (sleep, wake) = (Sleep::default(), Wake::default());
        Rank { sleep, wake, counter: AtomicU64::default(), doorbell: ModelDoorbell::new() }
    }

    fn wake(&self) {
        self.sleep.wake(|| self.doorbell.ring());
    }

    /// As `Guard::sleep`.
    fn sleep(&self, satisfied: impl FnOnce() -> bool) {
        let mut rank = self;
        self.sleep.sleep_unless(
            &mut rank,
            |rank| satisfied() || rank.wake.any(1),
            |rank| rank.doorbell.wait(),
        );
    }

    /// Consumes what `expected` values lie there, as `ChannelCore::drain_rings` does; how many.
    fn drain(&self, consumer: &mut Consumer, first: u8) -> u8 {
        let mut next = first;
        if self.wake.take(0) != 0 {
            while take(consumer, next, 8) {
                next += 1;
            }
        }
        next - first
    }
}

fn deliver(producer: &mut Producer, value: u8, to: &Rank) -> bool {
    let pushed = producer.push(&[], &[&[value; 8][..]]);
    if pushed {
        producer.left_marked = to.wake.mark(0, producer.left_marked);
        to.wake();
    }
    pushed
}

/// A rank that waits for frames, and one that sends two.
pub fn both_ways_round() {
    explore(3, || {
        let memory = Memory::<64>::new(0);
        let rank = Arc::new(Rank::new());
        let mut consumer = memory.consumer();
        let (peer, ring) = (Arc::clone(&rank), Arc::clone(&memory));
        let thread = thread::spawn(move || {
            let mut producer = ring.producer();
            for value in 0..2 {
                assert!(deliver(&mut producer, value, &peer));
            }
        });
        let mut seen = 0;
        while seen < 2 {
            let found = rank.drain(&mut consumer, seen);
            seen += found;
            if found == 0 {
                rank.sleep.announce_sleep(false);
                rank.sleep(|| false);
            }
        }
        thread.join().expect("the sender ends");
    });
}

/// A rank that looks at its ring by itself, leaves the mark, and waits in the end; and one that finds the mark left.
pub fn a_mark_that_was_left() {
    explore(3, || {
        let memory = Memory::<64>::new(0);
        let rank = Arc::new(Rank::new());
        rank.wake.mark(0, false);
        let mut consumer = memory.consumer();
        let (peer, ring) = (Arc::clone(&rank), Arc::clone(&memory));
        let thread = thread::spawn(move || {
            let mut producer = ring.producer();
            producer.left_marked = true;
            assert!(deliver(&mut producer, 0, &peer));
        });
        // As `Guard::poll`.
        let mut seen = u8::from(consumer.has_more() && take(&mut consumer, 0, 8));
        while seen < 1 {
            let found = rank.drain(&mut consumer, seen);
            seen += found;
            if found == 0 {
                rank.sleep.announce_sleep(false);
                rank.sleep(|| false);
            }
        }
        thread.join().expect("the sender ends");
    });
}

/// A rank that waits for a counter, which two others raise.
pub fn two_senders_wake_a_sleeper() {
    explore(3, || {
        let _run = begin(std::ptr::null(), 0);
        let rank = Arc::new(Rank::new());
        let senders = [0, 1].map(|_| {
            let peer = Arc::clone(&rank);
            thread::spawn(move || {
                peer.counter.fetch_add(1, SeqCst);
                peer.wake();
            })
        });
        while rank.counter.load(SeqCst) < 2 {
            rank.sleep.announce_sleep(false);
            rank.sleep(|| rank.counter.load(SeqCst) >= 2);
        }
        for sender in senders {
            sender.join().expect("a sender ends");
        }
    });
}

/// A rank that waits for room in its ring, and the peer that consumes and then sleeps itself until there
/// is more.
pub fn room_wakes_the_producer() {
    explore(3, || {
        let memory = Memory::<64>::new(0);
        let ranks = Arc::new([Rank::new(), Rank::new()]);
        let mut producer = memory.producer();
        for value in 0..4 {
            assert!(deliver(&mut producer, value, &ranks[1]));
        }
        let (peers, ring) = (Arc::clone(&ranks), Arc::clone(&memory));
        let thread = thread::spawn(move || {
            let mut consumer = ring.consumer();
            let mut seen = 0;
            while seen < 5 {
                let found = peers[1].drain(&mut consumer, seen);
                seen += found;
                if found > 0 {
                    peers[0].sleep.wake_for_room(|| peers[0].doorbell.ring());
                } else {
                    peers[1].sleep.announce_sleep(false);
                    peers[1].sleep(|| false);
                }
            }
        });
        while !deliver(&mut producer, 4, &ranks[1]) {
            ranks[0].sleep.announce_sleep(true);
            // Once more, now that the peer knows of it.
            let pushed = deliver(&mut producer, 4, &ranks[1]);
            if pushed {
                ranks[0].sleep.end_sleep();
                break;
            }
            ranks[0].sleep(|| false);
        }
        thread.join().expect("the consumer ends");
    });
}
