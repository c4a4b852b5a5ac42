//! Whether a connection is of use still.

use super::super::Client;
use super::Link;

impl Link {
    /// Whether it is lost, as far as can be seen without waiting.
    fn is_lost(&self) -> bool {
        let mut state = self.lock();
        if !state.driving {
            state.look_around(&self.wire);
        }
        state.broken.is_some()
    }
}

impl Client {
    /// Whether the connection is lost, as far as can be seen without waiting: a call over it would fail, and nothing of it
    /// would be sent.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.link.is_lost()
    }
}
