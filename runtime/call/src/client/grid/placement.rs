//! What a transaction needs of a metaserver: places, without the calls that go there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kumi_rpc::{AttemptReport, Code, Placement, PlacementRequest};

use super::{Grid, Inner, Ordering, locked};
use crate::client::answer_handle::AnswerHandle;
use crate::client::link::{Answer, Link};
use crate::client::{CallError, Client, KnownRoutine};

/// How long a listener waits at a time.
const WATCH: Duration = Duration::from_millis(250);
/// How long after the loss of a connection the next is made: one that does not lead is asked no more often.
const PAUSE: Duration = Duration::from_millis(50);

/// What a listener hears.
#[derive(Debug)]
pub enum PlacementEvent {
    /// A stream has an answer.
    Answered(u32),
    /// The connection is lost; what was asked on it has no answer.
    Away,
    /// There is another.
    Back(Client),
    /// There is none for the time being.
    Unreachable(String),
}

/// What a metaserver says of a call.
#[derive(Debug)]
pub enum PlacementAnswer {
    /// Where it is to go.
    Placed(Placement),
    /// It is over, as was told.
    Closed,
    /// It does not run, for now: too much waits.
    Busy,
    /// Another metaserver is to be asked.
    Elsewhere,
    /// It does not run.
    Failed(CallError),
}

/// A call that a metaserver was asked for. When it goes, the call is not wanted any more.
#[derive(Debug)]
pub struct PlacementHandle {
    ticket: AnswerHandle<Arc<Link>>,
}

impl PlacementHandle {
    /// By what its answers are told.
    pub fn stream(&self) -> u32 {
        self.ticket.stream
    }

    /// The answer that has come.
    pub fn take(&mut self, routine: &str) -> Option<PlacementAnswer> {
        Some(match self.ticket.wait(Some(Instant::now()), &|| false).ok()? {
            Ok(Answer::Placed(placed)) => PlacementAnswer::Placed(placed),
            Ok(_) => PlacementAnswer::Closed,
            Err(failure) if failure.code == Code::NotLeading => PlacementAnswer::Elsewhere,
            Err(failure) if failure.code == Code::Busy => PlacementAnswer::Busy,
            Err(failure) => PlacementAnswer::Failed(CallError::of(failure, routine)),
        })
    }

    /// Tells how an attempt went. Whether that was possible.
    pub fn tell(&self, over: &AttemptReport) -> bool {
        self.ticket.link.over(self.ticket.stream, over).is_ok()
    }
}

impl Grid {
    /// A connection to the metaserver of one's own, and what makes others.
    pub(crate) fn apart(&self) -> Result<(Grid, Client), CallError> {
        let own = Grid::connect(&self.inner.addresses.join(","), &self.inner.options)?;
        let grid = own.with_priority(self.priority);
        let client = grid.inner.metaserver(None)?;
        Ok((grid, client))
    }

    /// Has `tell` hear what comes on this connection, and on those that are made when it is lost, until it says no.
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
                if !tell(PlacementEvent::Back(meta.clone())) {
                    return;
                }
            }
        });
    }

    /// What a metaserver is asked for a call of this routine.
    pub(crate) fn placing(
        &self,
        known: &KnownRoutine,
        bytes: (u64, u64),
        operations: f64,
    ) -> PlacementRequest {
        PlacementRequest {
            key: (self.inner.key, self.inner.calls.fetch_add(1, Ordering::Relaxed)),
            hash: known.hash,
            bytes_out: bytes.0,
            bytes_back: bytes.1,
            operations,
            time_ms: 0,
            attempts: 0,
            priority: self.priority,
            idempotent: known.interface.idempotent,
            routine: known.interface.name.clone(),
            input_locations: Vec::new(),
        }
    }

    /// How an attempt went whose stream is gone.
    pub(crate) fn report(&self, meta: Option<&Client>, over: &AttemptReport) {
        if meta.is_none_or(|meta| meta.link.over(0, over).is_err()) {
            Inner::report_later(&self.inner, *over);
        }
    }

    /// Ends the connection to the metaserver: nobody listens any more.
    pub(crate) fn end(&self) {
        if let Some(meta) = locked(&self.inner.meta).0.take() {
            meta.disconnect();
        }
    }

    /// A connection to the server of a place.
    pub(crate) fn connect_server(&self, placed: &Placement) -> Result<Client, CallError> {
        self.inner.connect_server(placed)
    }
}

impl Client {
    /// Asks a metaserver for a call.
    pub(crate) fn ask(&self, placing: &PlacementRequest) -> Result<PlacementHandle, CallError> {
        let stream = self.link.request_place_soon(placing)?;
        let asked = PlacementHandle { ticket: AnswerHandle::of(Arc::clone(&self.link), stream) };
        self.link.send_soon()?;
        Ok(asked)
    }
}

/// Hears what comes until the connection is lost; whether anybody still listens.
fn forward_events(meta: &Client, tell: &impl Fn(PlacementEvent) -> bool) -> bool {
    loop {
        match meta.link.next_ready(Instant::now() + WATCH) {
            Ok(Some(stream)) if !tell(PlacementEvent::Answered(stream)) => return false,
            Ok(_) => {}
            Err(_) => return tell(PlacementEvent::Away),
        }
    }
}

/// Looks for a metaserver, as long as somebody wants one.
fn find(inner: &Arc<Inner>, tell: &impl Fn(PlacementEvent) -> bool) -> Option<Client> {
    loop {
        std::thread::sleep(PAUSE);
        match inner.metaserver(None) {
            Ok(client) => return Some(client),
            Err(error) if !tell(PlacementEvent::Unreachable(error.to_string())) => return None,
            // A metaserver that refuses answers at once.
            Err(_) => std::thread::sleep(super::AGAIN),
        }
    }
}

impl Inner {
    /// A new connection to the server of a place, which is shown what the metaserver has given, and never the token.
    pub(super) fn connect_server(&self, placed: &Placement) -> Result<Client, CallError> {
        let options = super::Options { token: placed.pass.clone(), ..self.options.clone() };
        Client::connect(&placed.address, &options)
    }
}
