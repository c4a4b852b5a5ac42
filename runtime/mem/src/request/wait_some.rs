//! Waits for some of several requests, and cancellation.

use kumi_net::Wait;
use kumi_net::{Description, WaitKind};

use crate::context::Context;
use crate::engine::Engine;
use crate::error::Error;
use crate::request::{Outcome, RequestHandle};

/// The place of a request in the list, and how it ended.
type Ended = (usize, Result<Outcome, Error>);

impl Context {
    /// Waits until one of several requests is over: its index, and how it ended. Its handle is spent then, the others stay.
    ///
    /// # Errors
    /// - [`Error::NoRequests`] for an empty list.
    /// - [`Error::StaleRequest`], [`Error::ForeignRequest`], [`Error::RequestListed`] if a handle is wrong.
    /// - Errors of the channel. After any of these all requests stay.
    pub fn wait_any(&self, requests: &[RequestHandle]) -> Result<Ended, Error> {
        let mut ended = self.wait_first(requests, take_first)?;
        ended.pop().ok_or(Error::NoRequests)
    }

    /// Waits until at least one of several requests is over: all that are, with their indices. Their handles are spent then.
    ///
    /// # Errors
    /// As [`Context::wait_any`].
    pub fn wait_some(&self, requests: &[RequestHandle]) -> Result<Vec<Ended>, Error> {
        self.wait_first(requests, take_over)
    }

    /// Waits until one of several requests is over: its index. No handle is spent.
    ///
    /// # Errors
    /// As [`Context::wait_any`].
    pub fn ready_any(&self, requests: &[RequestHandle]) -> Result<usize, Error> {
        let first = |engine: &mut Engine, requests: &[RequestHandle]| {
            let over = requests.iter().position(|request| engine.requests.is_over(*request));
            over.map(|index| vec![(index, Ok(Outcome::Done))]).unwrap_or_default()
        };
        let ended = self.wait_first(requests, first)?;
        ended.first().map(|one| one.0).ok_or(Error::NoRequests)
    }

    /// As [`Context::wait_any`] without waiting: `None` if none is over.
    ///
    /// # Errors
    /// As [`Context::wait_any`] but [`Error::NoRequests`].
    pub fn test_any(&self, requests: &[RequestHandle]) -> Result<Option<Ended>, Error> {
        let ended = self.test_now(requests, take_first)?;
        Ok(ended.into_iter().next())
    }

    /// As [`Context::wait_some`] without waiting: empty if none is over.
    ///
    /// # Errors
    /// As [`Context::test_any`].
    pub fn test_some(&self, requests: &[RequestHandle]) -> Result<Vec<Ended>, Error> {
        self.test_now(requests, take_over)
    }

    /// As [`Context::wait_all`] without waiting: `None` if one of them is under way; then all stay.
    ///
    /// # Errors
    /// As [`Context::test_any`].
    pub fn test_all(
        &self,
        requests: &[RequestHandle],
    ) -> Result<Option<Vec<Result<Outcome, Error>>>, Error> {
        let all = |engine: &mut Engine, requests: &[RequestHandle]| {
            let over = requests.iter().all(|request| engine.requests.is_over(*request));
            if over { take_over(engine, requests) } else { Vec::new() }
        };
        let ended = self.test_now(requests, all)?;
        let all = ended.len() == requests.len();
        Ok(all.then(|| ended.into_iter().map(|one| one.1).collect()))
    }

    /// Cancels a request of which nothing has happened yet: a receive that has no message, or what waits for its way and of
    /// which no part has left. True if so: the request is over then and ends with [`Outcome::Cancelled`], for which it is still
    /// to be waited. Otherwise false, and it goes on.
    ///
    /// # Errors
    /// [`Error::StaleRequest`], [`Error::ForeignRequest`], [`Error::Fault`].
    pub fn cancel(&self, request: RequestHandle) -> Result<bool, Error> {
        let mut guard = self.channel.lock()?;
        let engine = guard.handler();
        let place = engine.requests.find(request)?;
        Ok(engine.cancel(place))
    }

    fn wait_first(
        &self,
        requests: &[RequestHandle],
        take: impl Fn(&mut Engine, &[RequestHandle]) -> Vec<Ended>,
    ) -> Result<Vec<Ended>, Error> {
        self.check_handlers()?;
        if requests.is_empty() {
            return Err(Error::NoRequests);
        }
        let mut found = false;
        let mut seen = None;
        let _described = Description::of(WaitKind::Request, None).enter();
        let result = self.await_only(Wait::Frames, |guard| {
            let engine = guard.handler();
            if !found {
                engine.requests.find_all(requests)?;
                found = true;
            }
            // Unless a request has ended since the last look, none of these has.
            let ends = Some(engine.ends);
            if std::mem::replace(&mut seen, ends) == ends {
                return Ok(None);
            }
            let ended = take(engine, requests);
            engine.await_any(if ended.is_empty() { requests } else { &[] });
            Ok((!ended.is_empty()).then_some(ended))
        });
        if result.is_err() {
            self.await_nothing();
        }
        result
    }

    fn test_now(
        &self,
        requests: &[RequestHandle],
        take: impl Fn(&mut Engine, &[RequestHandle]) -> Vec<Ended>,
    ) -> Result<Vec<Ended>, Error> {
        self.check_handlers()?;
        let mut guard = self.channel.lock()?;
        guard.handler().requests.find_all(requests)?;
        let ended = take(guard.handler(), requests);
        if !ended.is_empty() || requests.is_empty() {
            return Ok(ended);
        }
        guard.progress()?;
        let engine = guard.handler();
        let ended = take(engine, requests);
        if ended.is_empty() {
            engine.check_fault()?;
        }
        Ok(ended)
    }
}

/// Those that are over.
fn take_over(engine: &mut Engine, requests: &[RequestHandle]) -> Vec<Ended> {
    let over = |(index, request): (usize, &RequestHandle)| Some((index, engine.tell(*request)?));
    requests.iter().enumerate().filter_map(over).collect()
}

/// The first that is over.
fn take_first(engine: &mut Engine, requests: &[RequestHandle]) -> Vec<Ended> {
    let over = |(index, request): (usize, &RequestHandle)| Some((index, engine.tell(*request)?));
    requests.iter().enumerate().find_map(over).into_iter().collect()
}

impl Engine {
    /// The program waits for any of these requests.
    fn await_any(&mut self, requests: &[RequestHandle]) {
        self.await_request(None);
        let found = requests.iter().filter_map(|request| self.requests.find(*request).ok());
        let places: Vec<_> = found.collect();
        for place in &places {
            self.await_steps(*place);
        }
        let mut ranks = std::mem::take(&mut self.mailbox.awaited_too);
        ranks.extend(places.iter().filter_map(|place| self.awaited_by(*place)));
        ranks.sort_unstable();
        ranks.dedup();
        if let [rank] = ranks[..] {
            self.mailbox.awaited = Some(rank);
        }
        self.mailbox.awaited_too = ranks;
    }
}
