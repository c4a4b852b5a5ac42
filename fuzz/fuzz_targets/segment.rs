//! Arbitrary contents of a segment, as the daemon reads it.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    kumi_net::fuzz_targets::segment(input);
});
