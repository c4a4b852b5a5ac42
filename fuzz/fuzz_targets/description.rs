//! Arbitrary bytes as a description of routines, as text and as canonical JSON.
#![no_main]

#[path = "../descriptions.rs"]
mod descriptions;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    descriptions::check(input);
    descriptions::canonical(input);
});
