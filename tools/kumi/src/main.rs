//! `kumi`: the command with which people use a cluster.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    kumi_command::main()
}
