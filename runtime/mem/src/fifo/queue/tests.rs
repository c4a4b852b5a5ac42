use super::*;
use proptest::prelude::*;
use std::collections::VecDeque;

/// Memory for a queue, with something else behind it.
struct Memory {
    words: Vec<u64>,
    start: usize,
    capacity: u64,
}

const GUARD: u64 = 0x5a5a_5a5a_5a5a_5a5a;

impl Memory {
    fn new(capacity: u64) -> Memory {
        let words = vec![GUARD; (OVERHEAD + capacity as usize + 2 * ALIGNMENT) / 8];
        let start = words.as_ptr().align_offset(ALIGNMENT);
        Memory { words, start, capacity }
    }

    fn queue(&mut self) -> Queue {
        let base = NonNull::from(&mut self.words[self.start]).cast();
        // SAFETY: aligned by `start`, and so many bytes are there; the tests keep the memory.
        unsafe { Queue::at(base, self.capacity) }
    }

    fn opened(&mut self) -> Queue {
        let queue = self.queue();
        queue.open(MARK_FIFO, 5);
        queue
    }

    fn inside(&self) -> Vec<u64> {
        let from = self.start;
        self.words[from..from + (OVERHEAD + self.capacity as usize) / 8].to_vec()
    }

    fn assert_guards(&self) {
        let end = self.start + (OVERHEAD + self.capacity as usize) / 8;
        let outside = self.words[..self.start].iter().chain(&self.words[end..]);
        assert!(outside.into_iter().all(|word| *word == GUARD), "written outside of the queue");
    }
}

fn take(queue: &Queue, head: &mut u64) -> Result<Option<(u32, Vec<u8>)>, QueueDamage> {
    let Some(next) = queue.peek(*head, 8)? else { return Ok(None) };
    let mut data = vec![0; next.length];
    *head = queue.take(*head, next, (&mut data[..]).into());
    Ok(Some((next.from, data)))
}

#[test]
fn the_bytes_are_those_of_the_document() {
    let mut memory = Memory::new(32);
    let queue = memory.opened();
    assert_eq!(queue.push(3, &b"abcdefghi"[..]), Ok(PushOutcome::Taken));
    let words = memory.inside();
    assert_eq!(words[0].to_le_bytes(), *b"KUMIFIF\x01");
    assert_eq!(words[1..3], [32, 5]);
    assert_eq!((words[8], words[16]), (24, 0));
    assert_eq!(words[32], 1 << 63 | 3 << 24 | 9);
    assert_eq!(words[33].to_ne_bytes(), *b"abcdefgh");
    assert_eq!(words[34].to_ne_bytes(), *b"i\0\0\0\0\0\0\0");
    assert_eq!(words[35], 0);
    let mut head = 0;
    assert_eq!(take(&queue, &mut head), Ok(Some((3, b"abcdefghi".to_vec()))));
    let words = memory.inside();
    assert_eq!((words[8], words[16]), (24, 24));
    assert!(words[32..].iter().all(|word| *word == 0), "what was taken is cleared");
}

#[test]
fn the_edges_of_full_and_empty() {
    let mut memory = Memory::new(32);
    let queue = memory.opened();
    let mut head = 0;
    assert_eq!(take(&queue, &mut head), Ok(None));
    assert!(queue.takes(24) && !queue.takes(25));
    assert_eq!(queue.push(0, &[7; 25][..]), Ok(PushOutcome::TooLong));
    assert_eq!(queue.push(0, &[7; 24][..]), Ok(PushOutcome::Taken));
    assert_eq!(queue.push(0, &[][..]), Ok(PushOutcome::Full));
    assert_eq!(queue.has_room(0), Ok(false));
    assert_eq!(take(&queue, &mut head), Ok(Some((0, vec![7; 24]))));
    for _ in 0..4 {
        assert_eq!(
            queue.push(1, &[][..]),
            Ok(PushOutcome::Taken),
            "empty records take a word each"
        );
    }
    assert_eq!(queue.push(1, &[][..]), Ok(PushOutcome::Full));
    assert_eq!(take(&queue, &mut head), Ok(Some((1, vec![]))));
    assert_eq!((queue.has_room(0), queue.has_room(1)), (Ok(true), Ok(false)));
}

#[test]
fn a_record_that_is_not_there_yet_holds_up_those_behind_it() {
    let mut memory = Memory::new(64);
    let queue = memory.opened();
    // A sender that has reserved 16 bytes and was stopped then.
    queue.positions().tail.0.store(16, SeqCst);
    assert_eq!(queue.push(1, &b"later"[..]), Ok(PushOutcome::Taken));
    let mut head = 0;
    assert_eq!(take(&queue, &mut head), Ok(None));
    queue.copy_in(8, &b"first"[..]);
    queue.word(0).store(word_of(2, 5), SeqCst);
    assert_eq!(take(&queue, &mut head), Ok(Some((2, b"first".to_vec()))));
    assert_eq!(take(&queue, &mut head), Ok(Some((1, b"later".to_vec()))));
}

#[test]
fn senders_keep_their_order_and_lose_nothing() {
    const RECORDS: u32 = if cfg!(miri) { 30 } else { 4_000 };
    let mut memory = Memory::new(200);
    let queue = memory.opened();
    std::thread::scope(|scope| {
        for from in 0..4u32 {
            scope.spawn(move || {
                for number in 0..RECORDS {
                    let mut record = number.to_le_bytes().to_vec();
                    record.resize(4 + (number * 7 + from) as usize % 60, from as u8);
                    while queue.push(from, &record[..]) != Ok(PushOutcome::Taken) {
                        std::thread::yield_now();
                    }
                }
            });
        }
        let (mut head, mut next) = (0, [0u32; 4]);
        while next != [RECORDS; 4] {
            let Some((from, data)) = take(&queue, &mut head).expect("undamaged") else {
                std::thread::yield_now();
                continue;
            };
            let number = next[from as usize];
            assert_eq!(data[..4], number.to_le_bytes());
            assert_eq!(data.len(), 4 + (number * 7 + from) as usize % 60);
            assert!(data[4..].iter().all(|byte| *byte == from as u8));
            next[from as usize] += 1;
        }
        assert_eq!(take(&queue, &mut head), Ok(None));
    });
    memory.assert_guards();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Against a queue of whole records: the same records in the same order, full exactly when the
    /// bytes do not fit; a refused record leaves no trace.
    #[test]
    fn behaves_like_a_queue(
        capacity in 2u64..40,
        steps in prop::collection::vec((any::<bool>(), 0u32..8, 0usize..100), 1..200),
    ) {
        let capacity = 8 * capacity;
        let mut memory = Memory::new(capacity);
        let queue = memory.opened();
        let mut reference: VecDeque<(u32, Vec<u8>)> = VecDeque::new();
        let mut head = 0;
        for (number, (push, from, length)) in steps.into_iter().enumerate() {
            if push {
                let record: Vec<u8> = (0..length).map(|at| (at + number) as u8 | 1).collect();
                let used: u64 = reference.iter().map(|(_, data)| need(data.len())).sum();
                let before = memory.inside();
                let pushed = queue.push(from, &record[..]);
                let right = if need(length) > capacity {
                    PushOutcome::TooLong
                } else if used + need(length) > capacity {
                    PushOutcome::Full
                } else {
                    PushOutcome::Taken
                };
                prop_assert_eq!(pushed, Ok(right));
                if right == PushOutcome::Taken {
                    reference.push_back((from, record));
                } else {
                    prop_assert_eq!(before, memory.inside());
                }
            } else {
                prop_assert_eq!(take(&queue, &mut head), Ok(reference.pop_front()));
            }
        }
        memory.assert_guards();
    }

    /// Whatever others write there, a call returns an error or some bytes of the queue. It never panics
    /// and touches nothing outside.
    #[test]
    fn any_contents_are_survived(
        capacity in 2u64..40,
        tail in prop_oneof![any::<u64>(), 0u64..600],
        positions in prop_oneof![any::<u64>(), 0u64..600],
        words in prop::collection::vec((0usize..40, prop_oneof![
            any::<u64>(),
            (0u32..9, 0usize..400).prop_map(|(from, length)| word_of(from, length)),
        ]), 0..40),
        own in 0u64..600,
    ) {
        let mut memory = Memory::new(8 * capacity);
        let queue = memory.opened();
        queue.positions().tail.0.store(tail, SeqCst);
        queue.positions().head.0.store(positions, SeqCst);
        for (at, word) in words {
            queue.word(8 * at as u64).store(word, SeqCst);
        }
        let mut head = own & !7;
        for _ in 0..20 {
            let _ = queue.push(1, &[1; 20][..]);
            let _ = queue.has_room(5);
            match take(&queue, &mut head) {
                Ok(Some((from, data))) => {
                    prop_assert!(from < 8 && need(data.len()) <= 8 * capacity);
                }
                Ok(None) | Err(QueueDamage) => break,
            }
        }
        memory.assert_guards();
    }
}
