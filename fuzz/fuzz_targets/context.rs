//! A context with arbitrary changes, continued by a new endpoint.
#![no_main]

#[path = "../harness.rs"]
mod harness;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    harness::context(input);
});
