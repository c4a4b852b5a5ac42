//! Placement requests of transactions: places from a metaserver, without the calls themselves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kumi_routing::Rules;
use kumi_rpc::{AttemptReport, Code, Placement, PlacementRequest, Ticket};

use super::{Grid, Inner, locked};
use crate::answer_handle::AnswerHandle;
use crate::link::{Answer, Link};
use crate::{CallError, Client, trace_context};

/// How long the listener waits at a time.
const WATCH: Duration = Duration::from_millis(250);
/// Pause between two connection attempts, so that a metaserver that is not the leader is asked rarely.
const PAUSE: Duration = Duration::from_millis(50);

/// An event for the listener.
#[derive(Debug)]
pub enum PlacementEvent {
    /// A stream has an answer.
    Answered(u32),
    /// The connection is lost. Requests on it get no answer.
    Disconnected,
    /// A new connection.
    Reconnected(Client),
    /// No metaserver is reachable at present.
    Unreachable(String),
}

/// A metaserver's answer for a call.
#[derive(Debug)]
pub enum PlacementAnswer {
    /// The server of the call.
    Placed(Placement),
    /// The call is over, as was reported.
    Closed,
    /// The call does not run for now: too many calls wait.
    Busy,
    /// Another metaserver has to be asked.
    OtherMetaserver,
    /// The call does not run.
    Failed(CallError),
}

/// A request for the place of a call. Dropping it withdraws the request.
#[derive(Debug)]
pub struct PlacementHandle {
    ticket: AnswerHandle<Arc<Link>>,
}

impl PlacementHandle {
    /// The stream that identifies its answers.
    pub fn stream(&self) -> u32 {
        self.ticket.stream
    }

    /// The answer that has arrived.
    pub fn take(&mut self, routine: &str) -> Option<PlacementAnswer> {
        Some(match self.ticket.wait(Some(Instant::now()), &|| false).ok()? {
            Ok(Answer::Placed(placed)) => PlacementAnswer::Placed(placed),
            Ok(_) => PlacementAnswer::Closed,
            Err(failure) if failure.code == Code::NotLeading => PlacementAnswer::OtherMetaserver,
            Err(failure) if failure.code == Code::Busy => PlacementAnswer::Busy,
            Err(failure) => PlacementAnswer::Failed(CallError::of(failure, routine)),
        })
    }

    /// Says why an attempt failed, for those who look on. Its report follows.
    pub fn give_reason(&self, ticket: Ticket, why: &str) {
        // The report finds out whether the connection is lost.
        let _lost = self.ticket.link.reason(self.ticket.stream, ticket, why);
    }

    /// Reports how an attempt ended. Returns whether that was possible.
    pub fn tell(&self, over: &AttemptReport) -> bool {
        self.ticket.link.over(self.ticket.stream, over).is_ok()
    }
}

impl Grid {
    /// A separate connection to the metaserver, and the grid that can renew it.
    pub(crate) fn separate_connection(&self) -> Result<(Grid, Client), CallError> {
        let own = Grid::connect(&self.inner.addresses.join(","), &self.inner.options)?;
        let grid = own.with_priority(self.priority);
        let client = grid.inner.metaserver(None)?;
        Ok((grid, client))
    }

    /// Sends the events of this connection, and of its successors when it is lost, to `tell` until that
    /// returns false.
    pub(crate) fn listen(
        &self,
        first: Client,
        tell: impl Fn(PlacementEvent) -> bool + Send + 'static,
    ) {
        let inner = Arc::clone(&self.inner);
        std::thread::spawn(move || {
            let mut meta = first;
            while forward_events(&meta, &tell) {
                inner.lost(&meta);
                meta = match find(&inner, &tell) {
                    Some(client) => client,
                    None => return,
                };
                if !tell(PlacementEvent::Reconnected(meta.clone())) {
                    return;
                }
            }
        });
    }

    /// What calls may do.
    pub(crate) fn rules(&self, idempotent: bool) -> Rules {
        self.inner.rules(idempotent)
    }

    /// Reports an attempt whose stream is gone.
    pub(crate) fn report(&self, meta: Option<&Client>, over: &AttemptReport) {
        if meta.is_none_or(|meta| meta.link.over(0, over).is_err()) {
            Inner::report_later(&self.inner, *over);
        }
    }

    /// Ends the connection to the metaserver.
    pub(crate) fn end(&self) {
        if let Some(meta) = locked(&self.inner.meta).0.take() {
            meta.disconnect();
        }
    }

    /// A connection to the server of a place.
    pub(crate) fn connect_server(&self, placed: &Placement) -> Result<Client, CallError> {
        let client = self.inner.connect_server(placed)?;
        Ok(match self.resources {
            Some(resources) => client.with_resources(resources),
            None => client,
        })
    }
}

impl Client {
    /// Asks a metaserver for a place.
    pub(crate) fn ask(&self, placing: &PlacementRequest) -> Result<PlacementHandle, CallError> {
        let stream = self.link.request_place_soon(placing, trace_context().as_ref())?;
        let asked = PlacementHandle { ticket: AnswerHandle::of(Arc::clone(&self.link), stream) };
        self.link.send_soon()?;
        Ok(asked)
    }
}

/// Forwards events until the connection is lost. Returns whether anybody still listens.
fn forward_events(meta: &Client, tell: &impl Fn(PlacementEvent) -> bool) -> bool {
    loop {
        match meta.link.next_ready(Instant::now() + WATCH) {
            Ok(Some(stream)) if !tell(PlacementEvent::Answered(stream)) => return false,
            Ok(_) => {}
            Err(_) => return tell(PlacementEvent::Disconnected),
        }
    }
}

/// Looks for a metaserver while anybody wants one.
fn find(inner: &Arc<Inner>, tell: &impl Fn(PlacementEvent) -> bool) -> Option<Client> {
    loop {
        std::thread::sleep(PAUSE);
        match inner.metaserver(None) {
            Ok(client) => return Some(client),
            Err(error) if !tell(PlacementEvent::Unreachable(error.to_string())) => return None,
            // A metaserver that refuses answers at once, so this pauses.
            Err(_) => std::thread::sleep(super::AGAIN),
        }
    }
}
