//! Frames of clients and servers to a metaserver.
#![no_main]

#[path = "../calls.rs"]
mod calls;
#[path = "../samples.rs"]
mod samples;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    calls::metaserver(input);
});
