//! Frames of clients and servers to a metaserver.
#![no_main]

#[path = "../calls.rs"]
mod calls;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    calls::metaserver(input);
});
