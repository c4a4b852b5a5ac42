//! Process of a call slot, started by `kumi call serve`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let checks = std::env::args_os().nth(1).is_some_and(|word| word == "--check");
    let run = || {
        // SAFETY: the server has started this process and holds the other end. Its owner says which descriptions are those
        // of which library.
        unsafe { kumi_call_slot::run() }
    };
    match if checks { kumi_call_slot::check() } else { run() } {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kumi-call-slot: {error}; it is started by `kumi call serve`");
            ExitCode::FAILURE
        }
    }
}
