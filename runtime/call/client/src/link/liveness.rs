//! Check whether a connection is lost.

use super::super::Client;
use super::Link;

impl Link {
    /// Whether the connection is lost. Does not wait.
    fn is_lost(&self) -> bool {
        let mut state = self.lock();
        if !state.driving {
            state.poll_input(&self.wire);
        }
        state.broken.is_some()
    }
}

impl Client {
    /// Whether the connection is lost, so that a call over it would fail with nothing sent. Does not wait.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.link.is_lost()
    }
}
