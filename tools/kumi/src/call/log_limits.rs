//! Options for what a server keeps of the logs of calls.

use crate::error::Error;
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
    /// Most MiB of the logs of all calls, at least as much as two may have [default: 16, or that]
    #[arg(long, value_name = "MIB", value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub log_memory: Option<u32>,
}

impl LogArgs {
    /// The limits.
    ///
    /// # Errors
    /// All calls together are to have less than two of them.
    pub fn limits(&self) -> Result<LogLimits, Error> {
        let call_bytes = (self.log_lines as usize) << 10;
        let least = 2 * call_bytes;
        let bytes = self.log_memory.map_or(least.max(16 << 20), |mib| (mib as usize) << 20);
        if bytes < least {
            let (lines, mib) = (self.log_lines, least.div_ceil(1 << 20));
            return Err(Error::Usage(format!(
                "--log-memory is less than two calls may have with --log-lines {lines}: give at least --log-memory {mib}"
            )));
        }
        Ok(LogLimits { calls: self.log_calls as usize, call_bytes, bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(log_lines: u32, log_memory: Option<u32>) -> Result<LogLimits, Error> {
        LogArgs { log_calls: 5, log_lines, log_memory }.limits()
    }

    #[test]
    fn all_calls_have_at_least_what_two_may_have() {
        let bytes = |lines, memory| limits(lines, memory).map(|limits| limits.bytes >> 20).ok();
        assert_eq!(bytes(256, None), Some(16));
        assert_eq!(bytes(16 << 10, None), Some(32));
        assert_eq!(bytes(256, Some(1)), Some(1));
        let refused = limits(1025, Some(2)).expect_err("it is too little").to_string();
        assert!(refused.contains("at least --log-memory 3"), "{refused}");
    }
}
