//! Dispatch: starts waiting calls on free servers.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::{Broker, Call, Routine, Timer};
use crate::model::{Action, CallId, ServerId, Time};
use crate::policy::{Candidate, Prediction};
use crate::server::{RunningAttempt, Server};

/// Most calls to examine when the first ones prefer to wait for a busy server.
const LOOK_AHEAD: usize = 16;
/// Bounds of the interval, in seconds, at which calls that wait for a busy server are checked again.
const LOOK_AGAIN: (f64, f64) = (0.001, 1.0);

/// Calls of this dispatch that wait for each busy server; later ones get their slot after these.
type Claims = BTreeMap<ServerId, u32>;

enum Decision {
    Start(ServerId, Prediction),
    /// Wait this many seconds for this server.
    Wait(ServerId, f64),
    /// No server is free for the call.
    None,
}

impl Call {
    /// Whether the call failed on the only free server, and therefore waits for another.
    fn avoids(
        &self,
        servers: &BTreeMap<ServerId, Server>,
        routines: &BTreeMap<u32, Routine>,
    ) -> bool {
        let Some(routine) = routines.get(&self.routine) else { return false };
        let free = |id: &ServerId| servers.get(id).is_some_and(Server::is_free);
        let mut free = routine.servers.iter().filter(|id| free(id));
        let avoid = self.avoid.filter(|_| routine.servers.len() > 1);
        avoid.is_some() && free.next() == avoid.as_ref() && free.next().is_none()
    }
}

impl Broker {
    /// Checks all groups whose free servers have calls that wait for busy ones.
    pub(super) fn look_again(&mut self) {
        for (group, time) in core::mem::take(&mut self.holding) {
            self.timers.remove(&(time, Timer::Recheck(group)));
            self.dispatch(group);
        }
    }

    /// Cancels the next check of a group.
    pub(super) fn release(&mut self, group: u32) {
        if let Some(time) = self.holding.remove(&group) {
            self.timers.remove(&(time, Timer::Recheck(group)));
        }
    }

    pub(super) fn dispatch_routine(&mut self, routine: u32) {
        let Some(known) = self.routines.get(&routine) else { return };
        let group = |id| self.servers.get(id).filter(|s| s.is_free()).map(|s| s.group);
        let mut groups: Vec<u32> = known.servers.iter().filter_map(group).collect();
        groups.sort_unstable();
        groups.dedup();
        groups.into_iter().for_each(|group| self.dispatch(group));
    }

    /// Starts calls on the free servers of a group, and on other servers of the same routines.
    pub(super) fn dispatch(&mut self, group: u32) {
        let mut look = 1;
        'next: while self.has_free(group) {
            let mut claims = Claims::new();
            let mut shortest = f64::INFINITY;
            let (calls, servers, routines) = (&self.calls, &self.servers, &self.routines);
            let avoids = |call| calls.get(&call).is_some_and(|it| it.avoids(servers, routines));
            let free = |server| servers.get(&server).is_some_and(Server::is_free);
            let (front, passed) = self.queue.front(group, look, free, avoids);
            let all = front.len() < look || look > 1;
            let waiting = !front.is_empty() || passed;
            for call in front {
                match self.decide(call, &claims) {
                    Decision::Start(server, prediction) => {
                        self.start(call, server, &prediction);
                        continue 'next;
                    }
                    Decision::Wait(server, seconds) => {
                        *claims.entry(server).or_default() += 1;
                        shortest = shortest.min(seconds);
                    }
                    Decision::None => {}
                }
            }
            if !all && waiting {
                look = LOOK_AHEAD;
                continue;
            }
            if waiting {
                self.hold(group, shortest);
            }
            return;
        }
    }

    fn has_free(&self, group: u32) -> bool {
        let free = |id| self.servers.get(id).is_some_and(Server::is_free);
        self.groups.get(&group).is_some_and(|group| group.iter().any(free))
    }

    fn hold(&mut self, group: u32, seconds: f64) {
        self.release(group);
        let later = self.now.after_seconds(seconds.clamp(LOOK_AGAIN.0, LOOK_AGAIN.1));
        self.holding.insert(group, later);
        self.timers.insert((later, Timer::Recheck(group)));
    }

    fn decide(&mut self, id: CallId, claims: &Claims) -> Decision {
        let Some(call) = self.calls.get(&id) else { return Decision::None };
        let Some(routine) = self.routines.get(&call.routine) else { return Decision::None };
        let avoid = call.avoid.filter(|_| routine.servers.len() > 1);
        let mut candidates = Vec::with_capacity(routine.servers.len());
        let may_run = |id: &ServerId| Some(*id) != avoid && call.bound.is_none_or(|it| it == *id);
        for &id in routine.servers.iter().filter(|id| may_run(id)) {
            let Some(server) = self.servers.get(&id) else { continue };
            candidates.push(Candidate {
                server: id,
                free: server.is_free(),
                in_flight: server.in_flight(),
                load: server.load,
                processors: server.processors,
                prediction: if self.policy.predicts() {
                    self.predict(call, id, server, claims)
                } else {
                    Prediction::default()
                },
            });
        }
        self.counters.decisions += 1;
        self.counters.examined += candidates.len() as u64;
        if !candidates.iter().any(|candidate| candidate.free) {
            return Decision::None;
        }
        if let (Some(_), [only]) = (call.bound, &*candidates) {
            // It is no choice, so the policy does not hear of it.
            return Decision::Start(only.server, only.prediction);
        }
        let chosen = self.policy.choose(call.routine, &candidates);
        match chosen.and_then(|index| candidates.get(index)) {
            Some(chosen) if chosen.free => Decision::Start(chosen.server, chosen.prediction),
            Some(chosen) => Decision::Wait(chosen.server, chosen.prediction.wait),
            None => Decision::None,
        }
    }

    fn predict(&self, call: &Call, id: ServerId, server: &Server, claims: &Claims) -> Prediction {
        let (mut there, mut out) = (0u64, 0.0f64);
        for held in call.held.iter().filter(|held| self.servers.contains_key(&held.server)) {
            there = there.saturating_add(held.bytes);
            if held.server != id
                && let Some(from) = self.servers.get(&held.server)
            {
                out = out.max(self.network.between(from.site, server.site, held.bytes));
            }
        }
        let sent = call.bytes_out.saturating_sub(there);
        let (own, back) = self.network.seconds(call.site, server.site, sent, call.bytes_back);
        let alone =
            self.history.seconds(call.routine, id, call.size(), call.operations, server.speed);
        let compute = alone * server.slowdown();
        let ahead = f64::from(claims.get(&id).copied().unwrap_or(0));
        let wait = server.wait(self.now) + ahead * compute / f64::from(server.limit);
        Prediction { out: out.max(own), wait, compute, back }
    }

    fn start(&mut self, id: CallId, at: ServerId, prediction: &Prediction) {
        let (Some(call), Some(server)) = (self.calls.get_mut(&id), self.servers.get_mut(&at))
        else {
            return;
        };
        if core::mem::take(&mut call.costs_turn) {
            self.queue.charge(call.user, server.group);
        }
        self.counters.retried += u64::from(call.attempts > 0);
        self.queue.remove(call.user, (call.routine, call.bound), call.entry);
        self.counters.started += 1;
        call.attempts += 1;
        call.server = Some(at);
        let end: Time = self.now.after_seconds(prediction.total());
        server.take(id, call.attempts, RunningAttempt { end, sending_from: Some(call.site) });
        self.network.begin(call.site, server.site);
        self.attempts.insert((id, call.attempts), at);
        self.actions.push_back(Action::Start(id, at, call.attempts));
    }
}
