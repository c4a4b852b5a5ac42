//! The client at the other end of a local socket, as the kernel knows it.

use std::io;

use kumi_control::message::{JobRequest, ProcessLimits, Refusal, User};
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;

use crate::config::{ClusterConfig, handler_of};
use crate::names::NameService;
use crate::process_limits::{believed, of_client};

/// A client: nothing here is what it says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientPeer {
    /// The user whose process it is.
    pub user: User,
    /// Limits of that process; `None` if it is not seen on this machine.
    pub limits: Option<ProcessLimits>,
}

impl ClientPeer {
    /// Asks the kernel who is connected; the name of the user is still to be looked up.
    ///
    /// # Errors
    /// The system's error.
    pub fn of(stream: &UnixStream) -> io::Result<Self> {
        let credentials = stream.peer_cred()?;
        let user = User { uid: credentials.uid(), gid: credentials.gid(), name: String::new() };
        let limits = of_client(credentials.pid(), user.uid);
        Ok(Self { user, limits })
    }

    /// The same with the name that this machine has for the user.
    ///
    /// # Errors
    /// The name service does not answer.
    pub async fn with_name(mut self, names: &NameService) -> Result<Self, Refusal> {
        self.user.name = names.name_of(self.user.uid).await?.unwrap_or_default();
        Ok(self)
    }

    /// Lowers the limits of a job that the client submits to what it has and the cluster gives. Returns a sentence for the
    /// user if the cluster gives less.
    #[must_use]
    pub fn limit(&self, job: &mut JobRequest, config: &ClusterConfig) -> Option<String> {
        let mut limits = believed(job.limits.take(), self.limits.as_ref());
        let handler = handler_of(&job.env, config.job.handler.as_deref());
        let note = config.limits.apply(&mut limits, handler);
        job.limits = Some(limits);
        note
    }
}
