//! Process of a call slot, started by `kumi call serve`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    match kumi_call::slot::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kumi-call-slot: {error}; it is started by `kumi call serve`");
            ExitCode::FAILURE
        }
    }
}
