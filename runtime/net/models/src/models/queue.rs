//! Model of the queue behind FIFOs and signal ports.

use std::ptr::NonNull;
use std::sync::atomic::Ordering::SeqCst;

use loom::sync::Arc;
use loom::thread;

use super::{ModelDoorbell, explore};
use crate::queue::{OVERHEAD, PushOutcome, Queue, QueueHead};
use crate::sync::{AtomicU64, Run, begin};

/// A queue in memory of its own.
struct Memory {
    place: Box<Place>,
    queue: Queue,
    _run: Run,
}

#[repr(C)]
struct Place {
    head: QueueHead,
    data: std::cell::UnsafeCell<[u64; 6]>,
}

// SAFETY: as in a window: reached by the queue only, and the model checks how.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(capacity: u64) -> Arc<Memory> {
        const { assert!(std::mem::offset_of!(Place, data) == OVERHEAD) };
        let place =
            Box::new(Place { head: QueueHead::default(), data: std::cell::UnsafeCell::default() });
        let run = begin(place.data.get().cast(), 48);
        // SAFETY: the head and 48 bytes are there, behind each other.
        let queue = unsafe { Queue::at(NonNull::from(&*place).cast(), capacity) };
        Arc::new(Memory { place, queue, _run: run })
    }
}

/// Takes the next record: its sender, and its first byte, which all its bytes must equal.
fn take(queue: &Queue, head: &mut u64) -> Option<(u32, u8)> {
    let next = queue.peek(*head, 4).expect("nobody has damaged it")?;
    let mut data = vec![0; next.length];
    *head = queue.take(*head, next, (&mut data[..]).into());
    assert!(data.iter().all(|byte| *byte == data[0]), "{data:?} is not one record");
    Some((next.from, data[0]))
}

/// Records of two senders come out whole, once, and each sender's in order.
pub fn records_of_two_senders() {
    explore(2, || {
        let memory = Memory::new(48);
        let queue = memory.queue;
        let senders = [(0, 2), (1, 1)].map(|(from, count)| {
            thread::spawn(move || {
                for value in 0..count {
                    assert_eq!(queue.push(from, &[value + 1; 8][..]), Ok(PushOutcome::Taken));
                }
            })
        });
        let (mut head, mut seen) = (0, [0; 2]);
        while seen != [2, 1] {
            match take(&queue, &mut head) {
                Some((from, value)) => {
                    seen[from as usize] += 1;
                    assert_eq!(value, seen[from as usize]);
                }
                None => thread::yield_now(),
            }
        }
        for sender in senders {
            sender.join().expect("a sender ends");
        }
        drop(memory);
    });
}

/// A sender that found the queue full sleeps until it is told of room; memory that was used before is
/// clean again.
pub fn a_full_queue_wakes_its_senders() {
    explore(3, || {
        let memory = Memory::new(24);
        let queue = memory.queue;
        assert_eq!(queue.push(0, &[1; 8][..]), Ok(PushOutcome::Taken));
        let room = Arc::new((AtomicU64::default(), ModelDoorbell::new()));
        let told = Arc::clone(&room);
        let sender = thread::spawn(move || {
            // As `Window::append` does on the node.
            for value in 2..4 {
                loop {
                    let seen = told.0.load(SeqCst);
                    match queue.push(0, &[value; 8][..]).expect("nobody has damaged it") {
                        PushOutcome::Taken => break,
                        PushOutcome::Full => {}
                        PushOutcome::TooLong => panic!("it fits"),
                    }
                    queue.await_room(0);
                    if !queue.has_room(8).expect("nobody has damaged it") {
                        while told.0.load(SeqCst) == seen {
                            told.1.wait();
                        }
                    }
                }
            }
        });
        let (mut head, mut next) = (0, 1);
        while next < 4 {
            match take(&queue, &mut head) {
                Some((_, value)) => {
                    assert_eq!(value, next);
                    next += 1;
                    if queue.take_waiting(0) != 0 {
                        room.0.fetch_add(1, SeqCst);
                        room.1.ring();
                    }
                }
                None => thread::yield_now(),
            }
        }
        sender.join().expect("the sender ends");
        assert_eq!(take(&queue, &mut head), None);
        drop(memory);
    });
}

/// A port's thread sleeps when there is nothing and misses no record.
pub fn the_ports_thread_wakes() {
    explore(3, || {
        let memory = Memory::new(48);
        let queue = memory.queue;
        let port = thread::spawn(move || {
            let (mut head, mut next) = (0, 1);
            while next < 3 {
                match take(&queue, &mut head) {
                    Some((_, value)) => {
                        assert_eq!(value, next);
                        next += 1;
                    }
                    None => queue.rest(|| queue.peek(head, 4) == Ok(None)),
                }
            }
        });
        for value in 1..3 {
            assert_eq!(queue.push(2, &[value; 8][..]), Ok(PushOutcome::Taken));
            queue.wake_taker();
        }
        port.join().expect("the port's thread ends");
        drop(memory);
    });
}
