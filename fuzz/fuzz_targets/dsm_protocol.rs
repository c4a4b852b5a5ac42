//! Messages of other ranks to a rank with shared memory.
#![no_main]

#[path = "../coherence.rs"]
mod coherence;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    coherence::protocol(input);
});
