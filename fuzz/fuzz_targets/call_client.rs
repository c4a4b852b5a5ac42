//! Frames of servers and metaservers to a client.
#![no_main]

#[path = "../calls.rs"]
mod calls;
#[path = "../samples.rs"]
mod samples;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    calls::client(input);
});
