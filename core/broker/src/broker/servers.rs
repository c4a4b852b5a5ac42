//! Handling of servers in the broker: join, load, leave and loss.

use alloc::borrow::ToOwned;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use super::{Broker, Call, Routine, Timer};
use crate::model::{Action, CallId, Failure, Offer, Outcome, RejectReason, ServerId, Time};
use crate::server::{Routines, RunningAttempts, Server};

/// Most routines of a server.
const MOST_ROUTINES: usize = 4096;
/// Longest name of a routine, in bytes.
const LONGEST_NAME: usize = 256;
/// Most names of routines of all servers together.
const MOST_NAMES: usize = 65_536;
/// Most servers.
const MOST_SERVERS: usize = 65_536;

impl Broker {
    pub(super) fn joined(&mut self, id: ServerId, offer: &Offer) {
        if self.servers.contains_key(&id) {
            self.server_lost(id);
        }
        self.admit(id, offer, RunningAttempts::new());
    }

    /// Adds an unknown server with its running attempts. If the broker refuses the offer, it returns them.
    fn admit(&mut self, id: ServerId, offer: &Offer, flights: RunningAttempts) -> RunningAttempts {
        let long = offer.routines.iter().any(|name| name.is_empty() || name.len() > LONGEST_NAME);
        let new = offer.routines.iter().filter(|name| !self.names.contains_key(*name)).count();
        let many = offer.routines.len() > MOST_ROUTINES
            || self.names.len() + new > MOST_NAMES
            || self.servers.len() >= MOST_SERVERS;
        if long || many {
            self.actions.push_back(Action::Declined(id));
            return flights;
        }
        let numbers: BTreeSet<u32> = offer.routines.iter().map(|name| self.number(name)).collect();
        let numbers: Vec<u32> = numbers.into_iter().collect();
        let routines = Routines::from(numbers);
        let group = self.group(&routines);
        for routine in routines.iter() {
            let Some(known) = self.routines.get_mut(routine) else { continue };
            known.servers.insert(id);
            if let Some(time) = known.given_up.take() {
                self.timers.remove(&(time, Timer::GiveUp(*routine)));
            }
        }
        if let Some(known) = self.groups.get_mut(&group) {
            known.insert(id);
        }
        let mut server = Server::new(offer, routines, group);
        for ((call, attempt), flight) in flights {
            server.take(call, attempt, flight);
        }
        self.servers.insert(id, server);
        self.dispatch(group);
        self.look_again();
        RunningAttempts::new()
    }

    /// A known server has connected again; its attempts still run.
    pub(super) fn rejoined(&mut self, id: ServerId, offer: &Offer) {
        self.withdraw(id);
        let mut flights = RunningAttempts::new();
        if let Some(mut server) = self.servers.remove(&id) {
            flights = server.clear();
            // The server may be at another site now.
            for flight in flights.values_mut() {
                if let Some(from) = flight.sending_from.take() {
                    self.network.end(from, server.site);
                }
            }
        }
        let lost = self.admit(id, offer, flights);
        // The broker refuses the new offer.
        for (call, attempt) in lost.into_keys() {
            self.attempts.remove(&(call, attempt));
            if self.is_current(call, attempt) {
                self.again_or(call, id, Failure::Broken, Outcome::Lost(id));
            }
        }
        self.reject_bound(id);
    }

    fn number(&mut self, name: &str) -> u32 {
        if let Some(&number) = self.names.get(name) {
            return number;
        }
        let number = self.numbers.0;
        self.numbers.0 += 1;
        self.names.insert(name.to_owned(), number);
        let routine = Routine { name: name.to_owned(), servers: BTreeSet::new(), given_up: None };
        self.routines.insert(number, routine);
        number
    }

    fn group(&mut self, routines: &Routines) -> u32 {
        if let Some(&group) = self.by_offer.get(routines) {
            return group;
        }
        let group = self.numbers.1;
        self.numbers.1 += 1;
        self.by_offer.insert(routines.clone(), group);
        self.groups.insert(group, BTreeSet::new());
        self.queue.offer(group, routines);
        group
    }

    pub(super) fn left(&mut self, id: ServerId) {
        self.withdraw(id);
        if let Some(server) = self.servers.get_mut(&id) {
            server.away = false;
            if server.in_flight() == 0 {
                self.servers.remove(&id);
            }
        }
        self.reject_bound(id);
        self.look_again();
    }

    /// The connection of a server is lost. It is known until it is back or lost.
    pub(super) fn away(&mut self, id: ServerId) {
        let Some(server) = self.servers.get_mut(&id).filter(|server| !server.leaving) else {
            return;
        };
        server.away = true;
        self.withdraw(id);
        self.look_again();
    }

    /// Rejects the waiting calls that are bound to this server, if it will not take them.
    fn reject_bound(&mut self, id: ServerId) {
        let waits = |call: &Call| {
            let is_bound = call.bound == Some(id) && call.server.is_none();
            is_bound && !self.may_take(id, call.routine)
        };
        let calls = self.calls.iter().filter(|(_, call)| waits(call));
        let calls: Vec<CallId> = calls.map(|(&call, _)| call).collect();
        for call in calls {
            self.done(call, Outcome::Rejected(RejectReason::BoundServerGone));
        }
    }

    /// Removes a server from its group and its routines.
    fn withdraw(&mut self, id: ServerId) {
        let Some(server) = self.servers.get_mut(&id) else { return };
        if core::mem::replace(&mut server.leaving, true) {
            return;
        }
        let (group, routines) = (server.group, server.routines.clone());
        for routine in routines.iter() {
            let Some(known) = self.routines.get_mut(routine) else { continue };
            known.servers.remove(&id);
            if known.servers.is_empty() {
                let time = Time(self.now.0.saturating_add(self.config.patience));
                known.given_up = Some(time);
                self.timers.insert((time, Timer::GiveUp(*routine)));
            }
        }
        let Some(known) = self.groups.get_mut(&group) else { return };
        known.remove(&id);
        if known.is_empty() {
            self.groups.remove(&group);
            self.by_offer.remove(&routines);
            self.release(group);
            self.queue.withdraw(group, &routines);
        }
    }

    pub(super) fn server_lost(&mut self, id: ServerId) {
        self.withdraw(id);
        let Some(mut server) = self.servers.remove(&id) else { return };
        for ((call, attempt), flight) in server.clear() {
            self.attempts.remove(&(call, attempt));
            if let Some(from) = flight.sending_from {
                self.network.end(from, server.site);
            }
            if self.is_current(call, attempt) {
                self.again_or(call, id, Failure::Broken, Outcome::Lost(id));
            }
        }
        self.reject_bound(id);
        self.look_again();
    }

    /// No server has joined for a routine: rejects its calls, and forgets its name.
    pub(super) fn give_up(&mut self, number: u32, time: Time) {
        let Some(routine) = self.routines.get(&number) else { return };
        if routine.given_up != Some(time) {
            return;
        }
        self.names.remove(&routine.name);
        self.routines.remove(&number);
        for call in self.queue.all_of(number) {
            self.done(call, Outcome::Rejected(RejectReason::NoServer));
        }
    }
}
