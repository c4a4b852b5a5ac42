//! Memory of a machine that ranks leave to others: keys `memory_reserve` and `daemon_memory`.

use super::{ClusterConfig, ConfigError, invalid};
use crate::sizes;

/// The least that a daemon of a node is given, in bytes.
const LEAST_DAEMON_MEMORY: u64 = 256 << 20;

impl ClusterConfig {
    /// Bytes that the daemon of a node may take for itself.
    pub fn daemon_memory(&self) -> u64 {
        self.daemon_memory.as_deref().and_then(sizes::bytes).unwrap_or(2 << 30)
    }

    /// Bytes that ranks leave of a machine with so much memory.
    pub fn memory_reserve_of(&self, memory: u64) -> u64 {
        let told = self.memory_reserve.as_deref().and_then(sizes::bytes);
        told.unwrap_or_else(|| (memory / 20).clamp(256 << 20, 4 << 30)).min(memory)
    }

    pub(super) fn check_memory(&self) -> Result<(), ConfigError> {
        for (key, text) in
            [("memory_reserve", &self.memory_reserve), ("daemon_memory", &self.daemon_memory)]
        {
            if let Some(text) = text
                && sizes::bytes(text).is_none()
            {
                return invalid(format!("{key} is wrong: {}", sizes::wrong(text)));
            }
        }
        if self.daemon_memory() < LEAST_DAEMON_MEMORY {
            return invalid(
                "daemon_memory is less than 256MiB, with which a daemon may not get through",
            );
        }
        Ok(())
    }
}
