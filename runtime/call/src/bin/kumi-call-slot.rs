//! Process of a call slot, started by `kumi call serve`.

use std::process::ExitCode;

fn main() -> ExitCode {
    // SAFETY: the server has started this process and holds the other end. Its owner says which descriptions are those
    // of which library.
    match unsafe { kumi_call::slot::run() } {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kumi-call-slot: {error}; it is started by `kumi call serve`");
            ExitCode::FAILURE
        }
    }
}
