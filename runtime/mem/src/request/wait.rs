//! Waits for requests.

use kumi_net::{ChannelError, Wait};
use kumi_net::{Description, WaitKind};

use crate::context::Context;
use crate::engine::Engine;
use crate::error::Error;
use crate::request::table::{ReportTo, Request, RequestEnd};
use crate::request::{Outcome, RequestHandle};

impl Context {
    /// Whether a request is over, and how it ended; `None` if it is under way. A request's end is told once: then its handle
    /// is spent, whether it ended well or not.
    ///
    /// # Errors
    /// - The request's own error.
    /// - [`Error::StaleRequest`] if its end was told before, [`Error::ForeignRequest`] if it is another context's.
    /// - [`Error::HandlerPanicked`] and errors of the channel, after which the request stays.
    pub fn test(&self, request: RequestHandle) -> Result<Option<Outcome>, Error> {
        self.check_handlers()?;
        let mut guard = self.channel.lock()?;
        let place = guard.handler().requests.find(request)?;
        if let Some(over) = guard.handler().take_over(place) {
            return told(over).map(Some);
        }
        guard.progress()?;
        let engine = guard.handler();
        match engine.take_over(place) {
            Some(over) => told(over).map(Some),
            None => engine.check_fault().map(|()| None),
        }
    }

    /// Waits until a request is over, and tells how it ended. Then its handle is spent.
    ///
    /// # Errors
    /// As [`Context::test`]. Errors of the channel release the request; after [`Error::Interrupted`] and
    /// [`Error::HandlerPanicked`] it stays.
    pub fn wait(&self, request: RequestHandle) -> Result<Outcome, Error> {
        told(self.wait_over(request)?)
    }

    /// Waits until a request is over and takes it out of the table.
    pub(crate) fn wait_over(&self, request: RequestHandle) -> Result<Request, Error> {
        self.check_handlers()?;
        let mut found = false;
        let _described = Description::of(WaitKind::Request, None).enter();
        let result = self.await_only(Wait::Frames, |guard| {
            let engine = guard.handler();
            let place = engine.requests.find(request)?;
            found = true;
            let over = engine.take_over(place);
            engine.await_request(if over.is_none() { Some(place) } else { None });
            Ok(over)
        });
        if result.is_err() {
            self.await_nothing();
        }
        if found && ends_all(&result) {
            self.release(request)?;
        }
        result
    }

    /// Waits until all of several requests are over; how each of them ended, in their order. Then their handles are spent.
    ///
    /// # Errors
    /// - [`Error::StaleRequest`], [`Error::ForeignRequest`], [`Error::RequestListed`] if a handle is wrong: then all others
    ///   stay.
    /// - Others as [`Context::wait`], for all of them.
    pub fn wait_all(
        &self,
        requests: &[RequestHandle],
    ) -> Result<Vec<Result<Outcome, Error>>, Error> {
        self.check_handlers()?;
        let (mut found, mut over) = (false, 0);
        let _described = Description::of(WaitKind::Request, None).enter();
        let result = self.await_only(Wait::Frames, |guard| {
            let engine = guard.handler();
            if !found {
                engine.requests.find_all(requests)?;
                found = true;
            }
            while requests.get(over).is_some_and(|request| engine.requests.is_over(*request)) {
                over += 1;
            }
            if let Some(request) = requests.get(over) {
                // One after the other: what is kept for its sake stays little.
                engine.await_request(engine.requests.find(*request).ok());
                return Ok(None);
            }
            engine.await_request(None);
            Ok(Some(requests.iter().filter_map(|request| engine.tell(*request)).collect()))
        });
        if result.is_err() {
            self.await_nothing();
        }
        if found && ends_all(&result) {
            for request in requests {
                self.release(*request)?;
            }
        }
        result
    }

    /// Gives the memory of a request back at once, whatever its state, and forgets it: its end is never told. What has not
    /// been sent is copied and sent on; what a get or an atomic operation gives is dropped; a message that was
    /// to be received stays for the next receive. Never waits.
    ///
    /// # Errors
    /// [`Error::StaleRequest`], [`Error::ForeignRequest`].
    pub fn release(&self, request: RequestHandle) -> Result<(), Error> {
        let mut guard = match self.channel.lock() {
            Ok(guard) => guard,
            Err(ChannelError::Forked) => return Err(Error::Forked),
            // The channel has failed: nobody touches any memory for it again.
            Err(_) => return Ok(()),
        };
        let engine = guard.handler();
        let place = engine.requests.find(request)?;
        engine.release(place);
        Ok(())
    }

    /// Whether a request that is not over uses bytes of this memory: for bindings that free memory, of a window say, which
    /// is [`Error::BufferLent`] then.
    #[must_use]
    pub fn lends(&self, base: *const u8, length: usize) -> bool {
        // Without the lock the channel has failed: nobody touches any memory for it again.
        let guard = self.channel.lock();
        guard.is_ok_and(|mut guard| guard.handler().requests.use_any_of(base.addr(), length))
    }

    /// Those of these requests whose end was not told.
    pub(crate) fn still_there(
        &self,
        handles: &[RequestHandle],
    ) -> Result<Vec<RequestHandle>, Error> {
        let mut guard = self.channel.lock()?;
        let requests = &guard.handler().requests;
        Ok(handles.iter().copied().filter(|handle| requests.find(*handle).is_ok()).collect())
    }

    /// A wait has failed.
    pub(crate) fn await_nothing(&self) {
        // Without the lock the channel is broken, and nothing comes any more.
        if let Ok(mut guard) = self.channel.lock() {
            guard.handler().await_no_longer();
        }
    }

    /// Requests under way and requests whose end has not been told.
    ///
    /// # Errors
    /// [`Error::Fault`] if the channel is broken.
    pub fn requests(&self) -> Result<usize, Error> {
        Ok(self.channel.lock()?.handler().requests.len())
    }
}

/// Such an error of a wait ends the requests that were waited for.
fn ends_all<R>(result: &Result<R, Error>) -> bool {
    let stays = |error: &Error| {
        matches!(
            error,
            Error::Interrupted
                | Error::StaleRequest { .. }
                | Error::ForeignRequest { .. }
                | Error::RequestListed { .. }
        )
    };
    result.as_ref().is_err_and(|error| !stays(error))
}

/// What the program gets of a request that is over.
pub(crate) fn told(request: Request) -> Result<Outcome, Error> {
    let target = request.target;
    request.end.unwrap_or(RequestEnd::Done).told(target)
}

impl Engine {
    /// How a request ended, if it is over: its handle is spent then. One whose end was told elsewhere meanwhile is stale.
    pub(crate) fn tell(&mut self, request: RequestHandle) -> Option<Result<Outcome, Error>> {
        match self.requests.find(request) {
            Ok(place) => self.take_over(place).map(told),
            Err(stale) => Some(Err(stale)),
        }
    }

    /// The program waits for this request, or for none any more: messages that an answer to it may be behind are kept.
    pub(crate) fn await_request(&mut self, place: Option<u32>) {
        self.mailbox.awaited = place.and_then(|place| self.awaited_by(place));
        self.mailbox.awaits_anybody = false;
        self.mailbox.awaited_too.clear();
        if let Some(place) = place {
            self.await_steps(place);
        }
    }

    /// A thread waits no longer. Others that wait say anew for whom: there is one note of it.
    pub(crate) fn await_no_longer(&mut self) {
        self.await_request(None);
        self.ends += 1;
    }

    /// The program waits for requests that are told there.
    pub(crate) fn await_reports(&mut self, report: ReportTo) {
        let of = |place: &u32| match self.requests.get(*place).map(|request| request.report) {
            Some(ReportTo::Queue(number, _)) => report == ReportTo::Queue(number, 0),
            other => other == Some(report),
        };
        let places: Vec<u32> = self.requests.places().filter(of).collect();
        self.mailbox.awaited_too.clear();
        for place in &places {
            self.await_steps(*place);
        }
        let mut ranks = std::mem::take(&mut self.mailbox.awaited_too);
        ranks.extend(places.iter().filter_map(|place| self.awaited_by(*place)));
        ranks.sort_unstable();
        ranks.dedup();
        self.mailbox.awaited_too = ranks;
    }
}
