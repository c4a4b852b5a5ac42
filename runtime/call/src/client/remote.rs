//! A server or a metaserver, whichever answers.

use std::sync::Arc;
use std::time::Duration;

use kumi_idl::Limits;

#[cfg(doc)]
use super::WakeEvent;
use super::grid::GridCanceller;
use super::{
    Arg, Call, CallError, CallWatch, Canceller, Client, Grid, GridCall, KnownRoutine, Object,
    Options, Outcome,
};

/// Something that calls go to.
#[derive(Debug, Clone)]
pub enum Remote {
    /// A server, which runs them.
    Server(Client),
    /// A metaserver, which says where they run.
    Grid(Grid),
}

/// A call that is under way there. When it is dropped before its end it is cancelled.
#[derive(Debug)]
pub enum RemoteCall {
    /// On a server.
    Server(Box<Call<'static>>),
    /// Through a metaserver.
    Grid(GridCall),
}

/// Ends a call from wherever; it may outlive the call.
#[derive(Debug, Clone)]
pub enum RemoteCanceller {
    /// On a server.
    Server(Canceller),
    /// Through a metaserver.
    Grid(GridCanceller),
}

impl Remote {
    /// Connects to the first of these addresses, separated by commas, that answers, and notices what it is.
    ///
    /// # Errors
    /// [`CallError`]: none can be reached, or takes this client.
    pub fn connect(addresses: &str, options: &Options) -> Result<Remote, CallError> {
        let mut last = CallError::Address(addresses.to_owned());
        for address in addresses.split(',').map(str::trim).filter(|address| !address.is_empty()) {
            match Client::connect(address, options) {
                Ok(client) if client.is_metaserver() => {
                    return Grid::connect(addresses, options).map(Remote::Grid);
                }
                Err(CallError::NotLeading { .. }) => {
                    return Grid::connect(addresses, options).map(Remote::Grid);
                }
                Ok(client) => return Ok(Remote::Server(client)),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// [`Grid::with_priority`].
    ///
    /// # Errors
    /// [`CallError::NoPriority`]: it is a server, which has none but that of every call, 0.
    pub fn with_priority(&self, priority: u8) -> Result<Remote, CallError> {
        match self {
            Remote::Server(client) if priority == 0 => Ok(Remote::Server(client.clone())),
            Remote::Server(client) => Err(CallError::NoPriority(client.server().to_owned())),
            Remote::Grid(grid) => Ok(Remote::Grid(grid.with_priority(priority))),
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

    /// Whether the connection to a server is lost; one to a metaserver is made anew when it is.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        match self {
            Remote::Server(client) => client.is_lost(),
            Remote::Grid(_) => false,
        }
    }

    /// What a call may have at most, as far as that is known before there is a server for it.
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
        match self {
            Remote::Server(client) => client.names(part),
            Remote::Grid(grid) => grid.names(part),
        }
    }

    /// [`Client::interface`].
    ///
    /// # Errors
    /// [`CallError`].
    pub fn interface(&self, name: &str) -> Result<Arc<KnownRoutine>, CallError> {
        match self {
            Remote::Server(client) => client.interface(name),
            Remote::Grid(grid) => grid.interface(name),
        }
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
        match self {
            Remote::Server(client) => client.object_within(class, time, interrupted),
            Remote::Grid(grid) => grid.object_within(class, time, interrupted),
        }
    }

    /// Calls a routine and waits, in at most so much time.
    ///
    /// # Errors
    /// [`CallError`]; of arguments that do not fit nothing is sent.
    pub fn call_within(
        &self,
        routine: &str,
        args: Vec<Arg<'_>>,
        time: Option<Duration>,
    ) -> Result<Outcome, CallError> {
        match self {
            Remote::Server(client) => client.call_within(routine, args, time),
            Remote::Grid(grid) => grid.call_within(routine, args, time),
        }
    }

    /// [`Client::begin`], and [`Grid::call_async`], in which the arguments are lent until the end.
    ///
    /// # Errors
    /// [`CallError`]; of arguments that do not fit nothing is sent.
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
    /// Waits for its end; `interrupted` is asked from time to time.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn wait(&mut self, interrupted: &dyn Fn() -> bool) -> Result<Outcome, CallError> {
        match self {
            RemoteCall::Server(call) => call.wait(interrupted),
            RemoteCall::Grid(call) => call.wait(interrupted),
        }
    }

    /// Waits for at most so long; `None`: it is not over, and may be waited for again.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn wait_for(
        &mut self,
        time: Duration,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Option<Outcome>, CallError> {
        match self {
            RemoteCall::Server(call) => call.wait_for(time, interrupted),
            RemoteCall::Grid(call) => call.wait_for(time, interrupted),
        }
    }

    /// For waits for several calls: [`WakeEvent::wait`].
    #[must_use]
    pub fn watch(&self) -> CallWatch {
        match self {
            RemoteCall::Server(call) => call.watch(),
            RemoteCall::Grid(call) => call.watch(),
        }
    }

    /// Whether its end has come; does not wait.
    #[must_use]
    pub fn is_over(&self) -> bool {
        match self {
            RemoteCall::Server(call) => call.is_over(),
            RemoteCall::Grid(call) => call.is_over(),
        }
    }

    /// Bytes of its arguments, and of its arrays that come back.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        match self {
            RemoteCall::Server(call) => (call.plan().sent, call.plan().returned),
            RemoteCall::Grid(call) => call.bytes(),
        }
    }

    /// What ends it while another thread waits for it.
    #[must_use]
    pub fn canceller(&self) -> RemoteCanceller {
        match self {
            RemoteCall::Server(call) => RemoteCanceller::Server(call.canceller()),
            RemoteCall::Grid(call) => RemoteCanceller::Grid(call.canceller()),
        }
    }
}

impl RemoteCanceller {
    /// Asks for the end of the call, which is waited for as ever. Does nothing after its end.
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
