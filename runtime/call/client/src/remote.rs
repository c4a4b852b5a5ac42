//! A connection to a server or to a metaserver, whichever answers.

use std::sync::Arc;
use std::time::Duration;

use kumi_idl::Limits;

#[cfg(doc)]
use super::WakeEvent;
use super::grid::{GridCanceller, each};
use super::{
    Arg, Call, CallError, CallOutput, CallWatch, Canceller, Client, Grid, GridCall, KnownRoutine,
    Object, Options, Outcome, Resources,
};

/// Does the same with a server and with a metaserver.
macro_rules! either {
    ($it:ident of $target:expr => $does:expr) => {
        match $target {
            Self::Server($it) => $does,
            Self::Grid($it) => $does,
        }
    };
}

/// The target of calls.
#[derive(Debug, Clone)]
pub enum Remote {
    /// A server, which runs them.
    Server(Client),
    /// A metaserver, which chooses the servers that run them.
    Grid(Grid),
}

/// A call in progress. Dropping it cancels the call.
#[derive(Debug)]
pub enum RemoteCall {
    /// On a server.
    Server(Box<Call<'static>>),
    /// Through a metaserver.
    Grid(GridCall),
}

/// Cancels a call from any thread. It may outlive the call.
#[derive(Debug, Clone)]
pub enum RemoteCanceller {
    /// On a server.
    Server(Canceller),
    /// Through a metaserver.
    Grid(GridCanceller),
}

impl Remote {
    /// Connects to the first address of a comma-separated list that answers, and finds out whether it is a
    /// server or a metaserver.
    ///
    /// # Errors
    /// [`CallError`]: no address can be reached, or none accepts this client.
    pub fn connect(addresses: &str, options: &Options) -> Result<Remote, CallError> {
        let mut last = CallError::Address(addresses.to_owned());
        for address in each(addresses) {
            match Client::connect(address, options) {
                Ok(client) if !client.is_metaserver() => return Ok(Remote::Server(client)),
                Ok(_) | Err(CallError::NotLeading { .. }) => {
                    return Grid::connect(addresses, options).map(Remote::Grid);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// [`Grid::with_priority`].
    ///
    /// # Errors
    /// [`CallError::NoPriority`]: a server has no priorities.
    pub fn with_priority(&self, priority: u8) -> Result<Remote, CallError> {
        match self {
            Remote::Server(client) if priority == 0 => Ok(Remote::Server(client.clone())),
            Remote::Server(client) => Err(CallError::NoPriority(client.server().to_owned())),
            Remote::Grid(grid) => Ok(Remote::Grid(grid.with_priority(priority))),
        }
    }

    /// [`Client::with_output`], or [`Grid::with_output`].
    #[must_use]
    pub fn with_output(&self, output: &CallOutput) -> Remote {
        match self {
            Remote::Server(client) => Remote::Server(client.with_output(output)),
            Remote::Grid(grid) => Remote::Grid(grid.with_output(output)),
        }
    }

    /// [`Client::with_resources`], or [`Grid::with_resources`].
    #[must_use]
    pub fn with_resources(&self, resources: Resources) -> Remote {
        match self {
            Remote::Server(client) => Remote::Server(client.with_resources(resources)),
            Remote::Grid(grid) => Remote::Grid(grid.with_resources(resources)),
        }
    }

    /// Its name.
    #[must_use]
    pub fn server(&self) -> String {
        match self {
            Remote::Server(client) => client.server().to_owned(),
            Remote::Grid(grid) => grid.server(),
        }
    }

    /// Whether the connection to a server is lost. A connection to a metaserver is renewed instead.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        match self {
            Remote::Server(client) => client.is_lost(),
            Remote::Grid(_) => false,
        }
    }

    /// Limits of a call, as far as they are known before a server is chosen.
    #[must_use]
    pub fn limits(&self) -> Limits {
        match self {
            Remote::Server(client) => client.limits(),
            Remote::Grid(_) => Limits::default(),
        }
    }

    /// [`Client::names`].
    ///
    /// # Errors
    /// [`CallError`].
    pub fn names(&self, part: &str) -> Result<Vec<String>, CallError> {
        either!(it of self => it.names(part))
    }

    /// [`Client::interface`].
    ///
    /// # Errors
    /// [`CallError`].
    pub fn interface(&self, name: &str) -> Result<Arc<KnownRoutine>, CallError> {
        either!(it of self => it.interface(name))
    }

    /// [`Client::object_within`], or [`Grid::object_within`].
    ///
    /// # Errors
    /// [`CallError`].
    pub fn object_within(
        &self,
        class: &str,
        time: Option<Duration>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Object, CallError> {
        either!(it of self => it.object_within(class, time, interrupted))
    }

    /// Calls a routine and waits, at most for the given time.
    ///
    /// # Errors
    /// [`CallError`]. Nothing is sent if the arguments do not fit.
    pub fn call_within(
        &self,
        routine: &str,
        args: Vec<Arg<'_>>,
        time: Option<Duration>,
    ) -> Result<Outcome, CallError> {
        either!(it of self => it.call_within(routine, args, time))
    }

    /// [`Client::begin`], or [`Grid::call_async`], which borrows the arguments until the call ends.
    ///
    /// # Errors
    /// [`CallError`]. Nothing is sent if the arguments do not fit.
    pub fn begin(
        &self,
        routine: &str,
        args: Vec<Arg<'static>>,
        time: Option<Duration>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<RemoteCall, CallError> {
        match self {
            Remote::Server(client) => {
                let call = client.begin(routine, args, time, interrupted)?;
                Ok(RemoteCall::Server(Box::new(call)))
            }
            Remote::Grid(grid) => grid.call_async(routine, args, time).map(RemoteCall::Grid),
        }
    }
}

impl RemoteCall {
    /// Waits for the end of the call. `interrupted` is asked from time to time.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn wait(&mut self, interrupted: &dyn Fn() -> bool) -> Result<Outcome, CallError> {
        either!(it of self => it.wait(interrupted))
    }

    /// Waits at most this long. `None`: the call is not over, and may be waited for again.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn wait_for(
        &mut self,
        time: Duration,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<Outcome>, CallError> {
        either!(it of self => it.wait_for(time, interrupted))
    }

    /// A handle for waits for several calls: [`WakeEvent::wait`].
    #[must_use]
    pub fn watch(&self) -> CallWatch {
        either!(it of self => it.watch())
    }

    /// Whether the call is over. Does not wait.
    #[must_use]
    pub fn is_over(&self) -> bool {
        either!(it of self => it.is_over())
    }

    /// Bytes of the arguments, and of the arrays that come back.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        match self {
            RemoteCall::Server(call) => (call.plan().sent, call.plan().returned),
            RemoteCall::Grid(call) => call.bytes(),
        }
    }

    /// A handle that cancels the call while another thread waits for it.
    #[must_use]
    pub fn canceller(&self) -> RemoteCanceller {
        match self {
            RemoteCall::Server(call) => RemoteCanceller::Server(call.canceller()),
            RemoteCall::Grid(call) => RemoteCanceller::Grid(call.canceller()),
        }
    }
}

impl RemoteCanceller {
    /// Asks for the end of the call. The caller still waits for it. Does nothing after the end.
    ///
    /// # Errors
    /// The connection is lost.
    pub fn cancel(&self) -> Result<(), CallError> {
        match self {
            RemoteCanceller::Server(call) => call.cancel(),
            RemoteCanceller::Grid(call) => {
                call.cancel();
                Ok(())
            }
        }
    }
}
