//! Messages of a hostile rank to endpoints of the libfabric provider.
#![no_main]

#[path = "../messages.rs"]
mod messages;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    messages::rank(input);
});
