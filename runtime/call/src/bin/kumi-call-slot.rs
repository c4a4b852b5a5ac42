//! Process of a call slot, started by `kumi call serve`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    let run = || {
        // SAFETY: the server has started this process and holds the other end. Its owner says which descriptions are those
        // of which library.
        unsafe { kumi_call_slot::run() }
    };
    let ended = match words.next() {
        Some(word) if word == "--check" => kumi_call_slot::check(),
        Some(word) if word == kumi_call_slot::guard::GUARD => kumi_call_slot::guard(words),
        Some(word) if word == kumi_call_slot::join::JOIN => kumi_call_slot::join(words),
        _ => run(),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kumi-call-slot: {error}; it is started by `kumi call serve`");
            ExitCode::FAILURE
        }
    }
}
