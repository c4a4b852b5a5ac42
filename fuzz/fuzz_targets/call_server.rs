//! A client's frames to a server of routines.
#![no_main]

#[path = "../calls.rs"]
mod calls;
#[path = "../samples.rs"]
mod samples;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    calls::server(input);
});
