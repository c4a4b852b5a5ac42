//! The fuzz target's harness with inputs from a seed: a bounded run that needs no fuzzer.

#[path = "../../../fuzz/control.rs"]
mod control;
#[path = "../../../fuzz/input.rs"]
mod input;

use input::Numbers;

impl Numbers {
    /// Mostly the small numbers of which messages consist.
    fn byte(&mut self) -> u8 {
        let number = self.next();
        if number.is_multiple_of(8) { (number >> 8) as u8 } else { (number >> 8) as u8 % 4 }
    }
}

#[test]
fn messages_of_hostile_daemons_and_clients() {
    let mut numbers = Numbers(1);
    let mut messages = 0;
    let inputs = if cfg!(miri) { 15 } else { 1_500 };
    for _ in 0..inputs {
        let mut input = Vec::new();
        for _ in 0..numbers.next() % 40 {
            let length = numbers.next() as u8 % 48;
            input.extend([numbers.next() as u8, length]);
            input.extend((0..length).map(|_| numbers.byte()));
        }
        messages += control::head(&input);
    }
    assert!(messages > inputs * 10 / 3, "only {messages} were messages");
}
