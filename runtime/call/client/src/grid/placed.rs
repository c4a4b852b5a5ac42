//! Calls at a server that a metaserver has chosen.

use std::sync::Arc;
use std::time::Duration;

use kumi_rpc::Placement;

use super::super::{Arg, Call, CallError, CallRoute, Client, KnownRoutine, arguments, context};

impl Client {
    /// Begins a call with this placement, otherwise like [`Client::call_async`].
    pub(crate) fn begin_placed(
        &self,
        known: &Arc<KnownRoutine>,
        args: Vec<Arg<'static>>,
        time: Option<Duration>,
        placed: &Placement,
    ) -> Result<Call<'static>, CallError> {
        let (checked, functions) = arguments::check(&known.interface, args, self.server.bytes)?;
        let time = context::limit(time, &known.name)?;
        let route = CallRoute { placed: Some(placed), ..CallRoute::within(time) };
        let begun = self.send(known, checked, functions, route, &|| false);
        begun.map_err(|(error, _)| error)
    }
}

impl Call<'_> {
    /// Gives up the call: it ends at once, nothing more is written to its arrays, and the server is asked to
    /// end it.
    pub(crate) fn give_up(&self) {
        self.ticket.link.give_up(self.ticket.stream);
    }
}
