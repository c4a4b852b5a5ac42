//! Options for what a server keeps of the logs of calls.

use clap::Args;
use kumi_call::server::LogLimits;

/// What `kumi call logs` can show.
#[derive(Clone, Debug, Args)]
pub struct LogArgs {
    /// Most calls of which a log is kept for `kumi call logs`; 0: none
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub log_calls: u32,
    /// Most KiB of what one call prints that are kept: the last lines
    #[arg(long, value_name = "KIB", default_value_t = 256, value_parser = clap::value_parser!(u32).range(64..=1 << 20))]
    pub log_lines: u32,
    /// Most MiB of the logs of all calls [default: 16, or more if one call may have more]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub log_memory: Option<u32>,
}

impl LogArgs {
    /// The limits. All calls together may have as much as one.
    pub fn limits(&self) -> LogLimits {
        let call_bytes = (self.log_lines as usize) << 10;
        let bytes = self.log_memory.map_or(16 << 20, |mib| (mib as usize) << 20);
        LogLimits { calls: self.log_calls as usize, call_bytes, bytes: bytes.max(2 * call_bytes) }
    }
}
