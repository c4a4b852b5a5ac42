//! Stored state of the dispatcher: what it keeps and how it restores it.

use std::time::{Duration, SystemTime};

use kumi_broker::{CallId, ClientId, Event, Outcome, Request, ServerId, SiteId, Time, UserId};
use kumi_rpc::{AttemptOutcome, AttemptReport, Code, Failure, InputLocation, PlacementRequest};

use super::super::catalogue::key;
use super::super::dispatcher::{CurrentAttempt, Dispatcher, OpenCall};
use super::super::paths::{Estimate, PathUpdate};
use super::super::store::{PlacedCall, Store, StoreError};

/// The stored identity of a server.
pub fn identity(name: &str, address: &str) -> String {
    format!("{name} {address}")
}

fn wall_ms() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Dispatcher {
    /// Why a peer is refused: another metaserver leads, or none.
    pub fn refusal(&self) -> Option<Failure> {
        let leadership = self.leadership.as_ref().filter(|leadership| !leadership.leads())?;
        Some(Failure::new(Code::NotLeading, 0, leadership.leader()))
    }

    /// Why a call is refused: its place could not be stored.
    pub fn is_stuck(&self) -> Option<Failure> {
        let why = self.store.as_ref()?.trouble()?;
        let text = format!("no calls can be placed now: {why}");
        Some(Failure::new(Code::Busy, 0, text))
    }

    /// Restores the stored state, and uses the store from now on.
    ///
    /// # Errors
    /// The store cannot be read.
    pub fn restore(&mut self, store: Box<dyn Store>) -> Result<(), StoreError> {
        for (from, to, estimate) in store.paths()? {
            let (from, to) = (self.site(&from), self.site(&to));
            self.paths.restore(from, to, estimate);
            if let Some(link) = estimate.link() {
                self.tell(Event::Network(from, to, link));
            }
        }
        self.owners.extend(store.owners()?);
        for kept in store.calls()? {
            self.next = self.next.max(kept.ticket.call + 1);
            self.restore_call(kept);
        }
        self.store = Some(store);
        Ok(())
    }

    fn restore_call(&mut self, kept: PlacedCall) {
        let now = self.now();
        let server = self.server_id(kept.identity);
        let left = kept.until.map(|until| until.saturating_sub(wall_ms()));
        let nanos = |ms: u64| ms.saturating_mul(Time::SECOND / 1000);
        let request = Request {
            routine: key(&kept.routine, kept.hash),
            client: ClientId(0),
            user: UserId(self.users.number(&kept.user)),
            site: self.site(&kept.site),
            bytes_out: kept.bytes_out,
            bytes_back: kept.bytes_back,
            operations: kept.operations,
            priority: kept.priority,
            idempotent: kept.idempotent,
            deadline: left.map(|left| Time(now.0.saturating_add(nanos(left)))),
            held: Vec::new(),
            bound: kept.bound.then_some(server),
        };
        let attempt = CurrentAttempt::new(kept.ticket, server, kept.address, kept.server);
        let running = Some(CurrentAttempt { granted: true, awaited: Some(now), ..attempt });
        let open = OpenCall {
            running,
            orphan: Some(now),
            restored: true,
            ..OpenCall::new(kept.key, kept.routine, kept.hash, request, now)
        };
        self.keys.insert(kept.key, kept.ticket.call);
        self.calls.insert(kept.ticket.call, open);
    }

    /// The number of a server.
    pub fn server_id(&mut self, identity: String) -> ServerId {
        let seen = &mut self.servers_seen;
        *self.identities.entry(identity).or_insert_with(|| {
            *seen += 1;
            ServerId(*seen)
        })
    }

    /// Stores the owner of a server.
    pub fn keep_owner(&mut self, identity: &str, user: &str) {
        if self.config.users.is_none() || self.owners.get(identity).is_some_and(|it| it == user) {
            return;
        }
        self.owners.insert(identity.to_owned(), user.to_owned());
        if let Some(store) = &mut self.store {
            store.owner(identity, Some(user));
        }
    }

    /// Forgets the owner of a server that has been away for so long that another user may take its name.
    pub fn forget_owner(&mut self, identity: &str) {
        if self.owners.remove(identity).is_some()
            && let Some(store) = &mut self.store
        {
            store.owner(identity, None);
        }
    }

    /// A server has registered. Tells the broker its restored calls and times.
    pub fn recall(&mut self, id: ServerId, identity: &str) {
        if let Some(store) = &self.store {
            match store.times(identity) {
                Ok(times) => {
                    for (routine, size, seconds) in times {
                        self.tell(Event::Learned(id, routine, size, seconds));
                    }
                }
                Err(error) => tracing::error!(%error, "the stored call times cannot be read"),
            }
        }
        let calls = self.calls_that(|open| open.restored && open.is_at(id));
        for call in calls {
            let Some(open) = self.calls.get_mut(&call) else { continue };
            let Some(ticket) = open.running.as_ref().map(|running| running.ticket) else {
                continue;
            };
            open.restored = false;
            if open.peer.is_some() {
                // The client came before its server. It goes there now, or reports how the call went.
                open.orphan = None;
            }
            let request = open.request.clone();
            self.tell(Event::Restored(CallId(call), request, id, ticket.attempt));
            if !self.broker.is_open(CallId(call)) {
                self.done(call, &Outcome::Lost(id));
            }
        }
    }

    /// Ends an attempt that the broker does not know because its server has not come back. A call that may
    /// run again is placed anew. If the server comes, it is told to stop the old ticket.
    pub fn over_restored(&mut self, call: u64, over: &AttemptReport) {
        let Some(open) = self.calls.get(&call) else { return };
        let Some(server) = open.running.as_ref().map(|running| running.server) else { return };
        let again = match over.ended {
            AttemptOutcome::NotBegun => true,
            AttemptOutcome::Broken => open.request.idempotent,
            AttemptOutcome::Done | AttemptOutcome::Failed => false,
        };
        if again && open.peer.is_some() && open.attempts + 1 < self.config.attempts {
            return self.place_again(call);
        }
        let end = match over.ended {
            AttemptOutcome::Done => Outcome::Completed,
            AttemptOutcome::NotBegun => Outcome::Failed(server, kumi_broker::Failure::NotBegun),
            AttemptOutcome::Broken => Outcome::Failed(server, kumi_broker::Failure::Broken),
            AttemptOutcome::Failed => Outcome::Failed(server, kumi_broker::Failure::Routine),
        };
        self.done(call, &end);
    }

    /// Places a restored call anew.
    fn place_again(&mut self, call: u64) {
        let Some(open) = self.calls.remove(&call) else { return };
        let Some((peer, stream)) = open.peer else { return };
        if let Some(store) = &mut self.store {
            store.over(call);
        }
        self.keys.remove(&open.key);
        self.streams.remove(&(peer.id, stream));
        let left = open.request.deadline.map_or(0, |deadline| {
            let ms = deadline.0.saturating_sub(self.now().0) / (Time::SECOND / 1000);
            u32::try_from(ms).unwrap_or(u32::MAX).max(1)
        });
        let bound = open.running.as_ref().filter(|_| open.request.bound.is_some());
        let location = bound.map(|at| InputLocation {
            server: at.name.clone(),
            address: at.address.clone(),
            bytes: 0,
        });
        let location = Vec::from_iter(location);
        let placing = PlacementRequest {
            key: open.key,
            hash: open.hash,
            bytes_out: open.request.bytes_out,
            bytes_back: open.request.bytes_back,
            operations: open.request.operations.unwrap_or(f64::NAN),
            time_ms: left,
            attempts: open.attempts + open.running.map_or(1, |it| it.ticket.attempt),
            priority: open.request.priority,
            idempotent: open.request.idempotent,
            routine: open.routine,
            bound: !location.is_empty(),
            input_locations: location,
        };
        self.place(&peer, stream, placing, open.span);
    }

    /// Stores a placed call.
    pub fn keep_placed(&mut self, call: u64) {
        let now = self.now();
        let (Some(store), Some(open)) = (&mut self.store, self.calls.get(&call)) else { return };
        let Some(running) = &open.running else { return };
        let until = open.request.deadline.map(|deadline| {
            let left = Duration::from_nanos(deadline.0.saturating_sub(now.0));
            wall_ms().saturating_add(u64::try_from(left.as_millis()).unwrap_or(u64::MAX))
        });
        store.placed(&PlacedCall {
            ticket: running.ticket,
            key: open.key,
            identity: identity(&running.name, &running.address),
            address: running.address.clone(),
            server: running.name.clone(),
            routine: open.routine.clone(),
            hash: open.hash,
            user: self.users.name(open.request.user.0).to_owned(),
            site: self.sites.name(open.request.site.0).to_owned(),
            bytes_out: open.request.bytes_out,
            bytes_back: open.request.bytes_back,
            operations: open.request.operations,
            idempotent: open.request.idempotent,
            bound: open.request.bound.is_some(),
            priority: open.request.priority,
            until,
        });
    }

    /// Stores the time of a call.
    pub fn keep_time(&mut self, call: u64, seconds: f64) {
        let (Some(store), Some(open)) = (&mut self.store, self.calls.get(&call)) else { return };
        let Some(running) = &open.running else { return };
        let identity = identity(&running.name, &running.address);
        let request = &open.request;
        let bytes = request.bytes_out.saturating_add(request.bytes_back) as f64;
        let size = request.operations.unwrap_or(bytes);
        store.took(&identity, &request.routine, size, seconds);
    }

    /// Stores a measured path, and removes the path that was forgotten for it.
    pub fn measured(&mut self, from: SiteId, to: SiteId, measured: &PathUpdate) {
        if let Some((from, to)) = measured.forgotten {
            self.keep_path(from, to, None);
            self.tell(Event::Forgotten(from, to));
        }
        self.keep_path(from, to, Some(&measured.estimate));
        if let Some(link) = measured.estimate.link() {
            self.tell(Event::Network(from, to, link));
        }
    }

    fn keep_path(&mut self, from: SiteId, to: SiteId, estimate: Option<&Estimate>) {
        if let Some(store) = &mut self.store {
            store.path(self.sites.name(from.0), self.sites.name(to.0), estimate);
        }
    }
}
