//! Threads and memory that calls ask for.

use super::{CallError, Client, Resources};

impl Client {
    /// The same connection, whose calls and objects ask for these resources. A call counts as so many of the server's slots as its
    /// threads need, and waits until these are free. An object has what it was made with, and so have all calls on it.
    ///
    /// A server refuses what it does not give ([`CallError::NoResources`]). So does a client whose server is of an earlier version.
    #[must_use]
    pub fn with_resources(&self, resources: Resources) -> Client {
        Client { resources: Some(resources), ..self.clone() }
    }

    /// The same connection, whose calls ask for nothing, and print where the server has it.
    pub(crate) fn plain(&self) -> Client {
        Client { output: None, resources: None, ..self.clone() }
    }

    /// Whether the server gives what this asks for, as far as its hello says.
    pub(crate) fn check_resources(&self) -> Result<(), CallError> {
        if self.resources.is_none() || self.server.gives_resources {
            return Ok(());
        }
        Err(CallError::NoResources(format!(
            "`{}` is of a version that gives calls no threads and no memory that they ask for (protocol {}): ask for nothing, or \
             have it updated",
            self.server(),
            self.server.highest
        )))
    }
}
