//! Arbitrary contents of a FIFO in shared memory.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| kumi_mem::fuzz_targets::queue(input));
