//! Handling of calls in the broker: submission, start, end and retries.

use super::{Broker, Call, Timer};
use crate::model::{Action, CallId, Failure, Outcome, RejectReason, Request, ServerId, Time};
use crate::server::RunningAttempt;
use crate::similar_names;

/// Most servers whose held inputs count; further inputs count as sent by the client.
const MOST_HELD: usize = 64;

impl Broker {
    pub(super) fn submit(&mut self, id: CallId, request: Request) {
        if self.calls.contains_key(&id) || self.attempts.range((id, 0)..=(id, u32::MAX)).count() > 0
        {
            self.counters.stale += 1;
            return;
        }
        let reject = |broker: &mut Self, why| {
            broker.actions.push_back(Action::Done(id, Outcome::Rejected(why)));
        };
        let Some(&routine) = self.names.get(&request.routine) else {
            let near = similar_names::nearest(&request.routine, self.routines());
            return reject(self, RejectReason::UnknownRoutine(near));
        };
        // A routine whose servers are gone stays known for a while, and its calls wait.
        if !self.routines.contains_key(&routine) {
            return reject(self, RejectReason::NoServer);
        }
        if request.deadline.is_some_and(|deadline| deadline <= self.now) {
            return reject(self, RejectReason::Deadline);
        }
        if request.bound.is_some_and(|server| !self.may_take(server, routine)) {
            return reject(self, RejectReason::BoundServerGone);
        }
        let user = request.user;
        let rank = self.queue.rank(user, request.priority);
        self.numbers.2 += 1;
        let call = Call::new(routine, request, (rank, self.numbers.2, id));
        self.clients.entry(call.client).or_default().insert(id);
        if let Some(deadline) = call.deadline {
            self.timers.insert((deadline, Timer::Deadline(id)));
        }
        self.queue.push(user, (routine, call.bound), call.entry);
        self.calls.insert(id, call);
        self.dispatch_routine(routine);
        if self.calls.get(&id).is_none_or(|call| call.server.is_some()) {
            return;
        }
        if self.queue.len() > self.config.most_waiting {
            self.done(id, Outcome::Rejected(RejectReason::QueueFull));
        } else if self.queue.len_of(user) > self.config.most_waiting_of_user {
            self.done(id, Outcome::Rejected(RejectReason::UserQueueFull));
        } else {
            self.actions.push_back(Action::Queued(id, self.queue.len()));
        }
    }

    /// Whether a server may take calls of a routine, now or later.
    pub(super) fn may_take(&self, server: ServerId, routine: u32) -> bool {
        let server = self.servers.get(&server);
        server.is_some_and(|server| server.stays() && server.routines.contains(&routine))
    }

    /// Takes in a call that runs already.
    pub(super) fn restored(&mut self, id: CallId, request: Request, at: ServerId, attempt: u32) {
        let known = self.names.get(&request.routine).copied();
        let (Some(routine), Some(server)) = (known, self.servers.get_mut(&at)) else { return };
        if self.calls.contains_key(&id) || self.attempts.contains_key(&(id, attempt)) {
            self.counters.stale += 1;
            return;
        }
        let rank = self.queue.rank(request.user, request.priority);
        self.numbers.2 += 1;
        let mut call = Call::new(routine, request, (rank, self.numbers.2, id));
        call.attempts = attempt;
        call.costs_turn = false;
        call.server = Some(at);
        self.clients.entry(call.client).or_default().insert(id);
        if let Some(deadline) = call.deadline {
            self.timers.insert((deadline, Timer::Deadline(id)));
        }
        // Its end is not known and may come any time.
        server.take(id, attempt, RunningAttempt { end: self.now, sending_from: None });
        self.attempts.insert((id, attempt), at);
        self.calls.insert(id, call);
    }

    /// Whether this is the current attempt of an open call.
    pub(super) fn is_current(&self, call: CallId, attempt: u32) -> bool {
        let call = self.calls.get(&call);
        call.is_some_and(|call| call.server.is_some() && call.attempts == attempt)
    }

    pub(super) fn started(&mut self, call: CallId, attempt: u32) {
        let found = self.attempts.get(&(call, attempt));
        let Some(server) = found.and_then(|server| self.servers.get_mut(server)) else {
            self.counters.stale += 1;
            return;
        };
        let flight = server.flight(call, attempt);
        if let Some(from) = flight.and_then(|flight| flight.sending_from.take()) {
            self.network.end(from, server.site);
        }
    }

    pub(super) fn ended(&mut self, id: CallId, attempt: u32, seconds: f64) {
        let current = self.is_current(id, attempt);
        let Some(server) = self.give_back(id, attempt) else { return };
        if current {
            if let (Some(call), Some(at)) = (self.calls.get(&id), self.servers.get(&server)) {
                let (routine, size) = (call.routine, call.size());
                self.history.add(routine, server, size, seconds, at.speed);
            }
            self.done(id, Outcome::Completed);
        }
        self.freed(server);
    }

    pub(super) fn failed(&mut self, call: CallId, attempt: u32, failure: Failure) {
        let current = self.is_current(call, attempt);
        let Some(server) = self.give_back(call, attempt) else { return };
        if current {
            self.again_or(call, server, failure, Outcome::Failed(server, failure));
        }
        self.freed(server);
    }

    /// Handles a stopped attempt. Its call was cancelled, here or at the server.
    pub(super) fn stopped(&mut self, call: CallId, attempt: u32) {
        let current = self.is_current(call, attempt);
        let Some(server) = self.give_back(call, attempt) else { return };
        if current {
            self.done(call, Outcome::Cancelled);
        }
        self.freed(server);
    }

    /// Frees the slot of an attempt.
    fn give_back(&mut self, call: CallId, attempt: u32) -> Option<ServerId> {
        let Some(id) = self.attempts.remove(&(call, attempt)) else {
            self.counters.stale += 1;
            return None;
        };
        let server = self.servers.get_mut(&id)?;
        let flight = server.give_back(call, attempt)?;
        if let Some(from) = flight.sending_from {
            self.network.end(from, server.site);
        }
        Some(id)
    }

    fn freed(&mut self, id: ServerId) {
        if let Some(server) = self.servers.get(&id) {
            if !server.leaving {
                self.dispatch(server.group);
            } else if server.in_flight() == 0 && !server.away {
                self.servers.remove(&id);
            }
        }
        self.look_again();
    }

    /// Queues a call again if it cannot run twice or is idempotent, and has attempts left.
    pub(super) fn again_or(
        &mut self,
        id: CallId,
        server: ServerId,
        failure: Failure,
        otherwise: Outcome,
    ) {
        let most = self.config.most_attempts;
        let Some(call) = self.calls.get_mut(&id) else { return };
        let harmless = match failure {
            Failure::NotBegun | Failure::Unclaimed => true,
            Failure::Broken => call.idempotent && call.bound.is_none(),
            Failure::Routine => false,
        };
        if !harmless || call.attempts >= most {
            return self.done(id, otherwise);
        }
        call.server = None;
        call.avoid = Some(server).filter(|_| call.bound.is_none());
        call.costs_turn = failure == Failure::Unclaimed;
        // It has paid its turn, so it goes before calls that came later.
        call.entry.0 = i64::MIN;
        let (user, routine, entry, bound) = (call.user, call.routine, call.entry, call.bound);
        if bound.is_some_and(|server| !self.may_take(server, routine)) {
            return self.done(id, Outcome::Rejected(RejectReason::BoundServerGone));
        }
        if !self.routines.contains_key(&routine) {
            return self.done(id, Outcome::Rejected(RejectReason::NoServer));
        }
        self.queue.push(user, (routine, bound), entry);
        self.dispatch_routine(routine);
        if self.calls.get(&id).is_some_and(|call| call.server.is_none()) {
            self.actions.push_back(Action::Queued(id, self.queue.len()));
        }
    }

    /// Cancels a call, or expires it.
    pub(super) fn cancel(&mut self, id: CallId, outcome: Outcome) {
        let Some(call) = self.calls.get(&id) else {
            self.counters.stale += 1;
            return;
        };
        let Some(server) = call.server else {
            let outcome = match outcome {
                Outcome::Expired => Outcome::Rejected(RejectReason::Deadline),
                other => other,
            };
            return self.done(id, outcome);
        };
        self.actions.push_back(Action::Stop(id, server, call.attempts));
        self.done(id, outcome);
    }

    /// Ends a call, once.
    pub(super) fn done(&mut self, id: CallId, outcome: Outcome) {
        let Some(call) = self.calls.remove(&id) else { return };
        if call.server.is_none() {
            self.queue.remove(call.user, (call.routine, call.bound), call.entry);
        }
        if let Some(deadline) = call.deadline {
            self.timers.remove(&(deadline, Timer::Deadline(id)));
        }
        if let Some(calls) = self.clients.get_mut(&call.client) {
            calls.remove(&id);
            if calls.is_empty() {
                self.clients.remove(&call.client);
            }
        }
        self.actions.push_back(Action::Done(id, outcome));
    }
}

impl Call {
    fn new(routine: u32, request: Request, entry: (i64, u64, CallId)) -> Self {
        let right = |operations: &f64| operations.is_finite() && *operations >= 0.0;
        Self {
            routine,
            client: request.client,
            user: request.user,
            site: request.site,
            bytes_out: request.bytes_out,
            bytes_back: request.bytes_back,
            operations: request.operations.filter(right),
            idempotent: request.idempotent,
            deadline: request.deadline.filter(|&deadline| deadline < Time(u64::MAX)),
            held: request.held.into_iter().take(MOST_HELD).collect(),
            bound: request.bound,
            entry,
            attempts: 0,
            costs_turn: true,
            server: None,
            avoid: None,
        }
    }
}
