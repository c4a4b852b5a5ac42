//! The fuzz target's harness with inputs from a seed: a bounded run that needs no fuzzer.

#[path = "../../../fuzz/input.rs"]
mod input;
#[path = "../../../fuzz/messages.rs"]
mod messages;

use input::Numbers;

impl Numbers {
    /// A step of the harness: mostly a message of a kind that exists, with small numbers in it.
    fn step(&mut self) -> Vec<u8> {
        let length = [48, 48 + 24, 48 + 48, 72 + 24][self.below(4) as usize] + self.below(30);
        let mut bytes = vec![self.next() as u8, length as u8];
        bytes.extend((0..length).map(|_| 0));
        let (fields, message) = ([0, 1, 2, 4, 16, 24, 32, 40, 48, 64, 72], 2);
        for field in fields.into_iter().filter(|field| *field < length as usize) {
            bytes[message + field] =
                if self.below(6) == 0 { self.next() as u8 } else { self.below(4) as u8 };
        }
        (bytes[message], bytes[message + 1]) = (1 + self.below(10) as u8, self.below(8) as u8);
        if self.below(2) == 0 {
            // As much data as there is, for kinds that carry some.
            let header = if bytes[message] >= 7 { 72 } else { 48 };
            let carries = [1, 4, 7].contains(&bytes[message]);
            bytes[message + 32] = if carries { length.saturating_sub(header) as u8 } else { 0 };
            if !carries {
                bytes.truncate(message + header as usize);
                bytes[1] = (bytes.len() - message) as u8;
            }
            bytes[message + 6] = 0;
        } else {
            bytes[message + 6] = self.below(3) as u8;
        }
        bytes
    }
}

#[test]
fn messages_of_a_hostile_rank() {
    let mut numbers = Numbers(1);
    let mut messages = 0;
    let inputs = if cfg!(miri) { 15 } else { 3_000 };
    for _ in 0..inputs {
        let steps = numbers.below(80);
        let input: Vec<u8> = (0..steps).flat_map(|_| numbers.step()).collect();
        messages += messages::rank(&input);
        let noise: Vec<u8> = (0..200).map(|_| numbers.next() as u8).collect();
        messages::rank(&noise);
    }
    assert!(messages > inputs * 4, "only {messages} were messages");
}
