//! Arbitrary contents of a ring in shared memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| kumi_net::fuzz_targets::ring(input));
