//! Standings of a job that hostile nodes tell, and waits of a hostile rank.
#![no_main]

#[path = "../verdict.rs"]
mod verdict;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    verdict::standings(input);
    verdict::wait(input);
});
