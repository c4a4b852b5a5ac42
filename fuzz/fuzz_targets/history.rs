//! A slot of the file of history with arbitrary contents.
#![no_main]

#[path = "../history.rs"]
mod history;

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    history::slot(input);
});
