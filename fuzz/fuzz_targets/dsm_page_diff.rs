//! Bytes of a diff of a page of shared memory.
#![no_main]

#[path = "../coherence.rs"]
mod coherence;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    coherence::page_diff(input);
});
