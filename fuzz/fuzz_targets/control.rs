//! Control messages with arbitrary contents, for a head with nodes and jobs.
#![no_main]

#[path = "../control.rs"]
mod control;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    control::head(input);
});
