//! Frames of a hostile rank, for an engine with windows, a FIFO and a signal port.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    kumi_mem::fuzz_targets::engine(input);
});
