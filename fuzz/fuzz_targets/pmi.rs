//! Arbitrary bytes of ranks that speak PMI.
#![no_main]

#[path = "../pmi.rs"]
mod pmi;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    pmi::ranks(input);
});
