//! Packets with right checksums and arbitrary contents, in a running exchange.
#![no_main]

#[path = "../harness.rs"]
mod harness;

libfuzzer_sys::fuzz_target!(|input: &[u8]| harness::packets(input));
