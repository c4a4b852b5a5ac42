//! Settling a rank's channel.

use std::time::Duration;

use crate::context::Context;
use crate::error::Error;

impl Context {
    /// Waits until nothing that this rank sent to other nodes is on the wire: acked, refused, or found
    /// lost. Nothing new is sent meanwhile; afterwards what was lost is sent again. How long that took,
    /// or `None` if it was not so within `patience`: a peer is stopped, or the network is down.
    ///
    /// No program needs this for its results: whatever is on the wire is in some sender's memory too.
    /// It serves wires that lose nothing and keep no copy, and measurements of what settling costs.
    ///
    /// # Errors
    /// [`Error::Fault`] if the channel has failed.
    pub fn quiesce(&self, patience: Duration) -> Result<Option<Duration>, Error> {
        self.check_handlers()?;
        Ok(self.channel.quiesce(patience)?)
    }
}
