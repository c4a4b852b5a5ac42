//! Bytes of a message of shared memory.
#![no_main]

#[path = "../coherence.rs"]
mod coherence;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    coherence::message(input);
});
