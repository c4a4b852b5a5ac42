//! Requests for places at metaservers, and what these say.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Instant;

use kumi_routing::Event;
use kumi_rpc::{Code, Failure, Placement};

use super::{Control, RoutedCall, SLICE};
use crate::answer_handle::AnswerHandle;
use crate::grid::Inner;
use crate::link::Answer;
use crate::{CallError, Client};

/// A place. It is the same if ticket and server are: two unrelated metaservers may use the same ticket.
#[derive(Debug, Clone)]
pub(crate) struct Place(Arc<Placement>);

impl Place {
    pub fn new(placed: Placement) -> Place {
        Place(Arc::new(placed))
    }
}

impl PartialEq for Place {
    fn eq(&self, other: &Place) -> bool {
        self.ticket == other.ticket && self.address == other.address
    }
}

impl Deref for Place {
    type Target = Placement;

    fn deref(&self) -> &Placement {
        &self.0
    }
}

#[cfg(feature = "transactions")]
impl RoutedCall<'_> {
    /// The latest place.
    pub fn place(&self) -> Option<&Place> {
        self.routing.last()
    }

    /// Whether a metaserver has still to be asked.
    pub fn wants_metaserver(&self) -> bool {
        self.routing.wants_metaserver()
    }
}

impl RoutedCall<'_> {
    /// Asks for a place on this connection; false: the connection is lost. With `soon`,
    /// [`crate::link::Link::send_soon`] sends the request and nothing waits; then the caller reports a lost
    /// connection.
    pub fn request_place_on(&mut self, meta: &Client, soon: bool) -> Result<bool, CallError> {
        self.check_metaserver(meta)?;
        let left = self.left()?;
        self.placing.time_ms =
            left.map_or(0, |left| u32::try_from(left.as_millis()).unwrap_or(u32::MAX).max(1));
        match meta.link.request_place(&self.placing, self.trace.as_ref(), soon) {
            Ok(stream) => {
                let ticket = AnswerHandle::of(Arc::clone(&meta.link), stream);
                self.place_request = Some((meta.clone(), ticket));
                self.tell(Event::Asked);
                if !soon && meta.link.send_soon().is_err() {
                    self.lose_metaserver();
                    return Ok(false);
                }
                Ok(true)
            }
            Err(CallError::Lost(_)) => {
                if !soon {
                    self.inner.lost(meta);
                }
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// The connection on which the call asked is lost.
    pub fn lose_metaserver(&mut self) {
        if let Some((meta, _)) = self.place_request.take() {
            self.inner.lost(&meta);
        }
        self.tell(Event::MetaserverLost);
    }

    /// Waits a little for a place. The call has no attempt.
    pub(crate) fn await_place(&mut self, control: &Control, interrupted: &dyn Fn() -> bool) {
        if control.is_cancelled() {
            return self.tell(Event::Stopped(self.cancelled()));
        }
        if let Some(error) = self.waits_in_vain() {
            return self.tell(Event::Stopped(error));
        }
        if self.routing.wants_metaserver() {
            match self.left().and_then(|left| self.inner.metaserver(left)) {
                Ok(meta) => {
                    if let Err(error) = self.request_place_on(&meta, false) {
                        self.tell(Event::Stopped(error));
                    }
                }
                Err(error) => self.tell(Event::NoMetaserver(error)),
            }
            return;
        }
        let Some((meta, ticket)) = &mut self.place_request else { return self.lose_metaserver() };
        match ticket.wait(Some(Instant::now() + SLICE), interrupted) {
            Ok(word) => self.hear(word),
            Err(CallError::TimedOut(_)) => {
                meta.link.check_alive();
                // The metaserver enforces this limit too, but it may be gone.
                let event = self.left().map_or_else(Event::Stopped, |_| Event::Tick);
                self.tell(event);
            }
            Err(CallError::Lost(_)) => self.lose_metaserver(),
            Err(error) => self.tell(Event::Stopped(error)),
        }
    }

    /// Looks whether the metaserver of a running attempt has moved or ended the call. If that metaserver is gone,
    /// the client tells the next one of the call, which would otherwise count as abandoned.
    pub(crate) fn look_at_metaserver(&mut self) {
        match &mut self.place_request {
            Some((meta, ticket)) if !meta.link.is_broken() => {
                if !ticket.is_answered() {
                    return meta.link.check_alive();
                }
                match ticket.wait(Some(Instant::now()), &|| false) {
                    Ok(word) => self.hear(word),
                    Err(_) => self.lose_metaserver(),
                }
            }
            Some(_) => self.lose_metaserver(),
            None => {}
        }
        // At once: a server stops what its new metaserver does not know.
        if self.routing.wants_metaserver()
            && let Some(meta) = Inner::at_hand(&self.inner)
        {
            // Time that is over, and any other error, shows when the attempt ends.
            let _later = self.request_place_on(&meta, false);
        }
    }

    /// The metaserver has answered.
    fn hear(&mut self, word: Result<Answer, Failure>) {
        let error = match word {
            Ok(Answer::Placed(placed)) => return self.tell(Event::Placed(Place::new(placed))),
            Err(failure) if failure.code == Code::NotLeading => return self.lose_metaserver(),
            Err(failure) if failure.code == Code::Busy && self.turned_away.is_some() => {
                (self.place_request, self.turned_away) = (None, Some(true));
                return self.tell(Event::MetaserverLost);
            }
            Ok(_) => {
                let text = "the metaserver ended the call".to_owned();
                CallError::NoServer { text, has_not_run: !self.routing.may_have_run() }
            }
            Err(failure) => {
                self.note_lost_server(failure.code, failure.detail);
                if let (Code::InterfaceChanged, Some((meta, _))) =
                    (failure.code, &self.place_request)
                {
                    meta.forget(&self.known.interface.name);
                }
                CallError::of(failure, &self.known.interface.name)
            }
        };
        self.place_request = None;
        self.tell(Event::RequestEnded(error));
    }
}
