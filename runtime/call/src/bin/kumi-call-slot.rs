//! Process of a call slot, started by `kumi call serve`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let checks = std::env::args_os().nth(1).is_some_and(|word| word == "--check");
    match if checks { kumi_call::slot::check() } else { kumi_call::slot::run() } {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kumi-call-slot: {error}; it is started by `kumi call serve`");
            ExitCode::FAILURE
        }
    }
}
