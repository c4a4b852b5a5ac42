//! Access checks of the metaserver, and the passes that clients show to servers.

use std::collections::HashMap;
use std::rc::Rc;

use kumi_broker::{CallId, Event, UserId};
use kumi_call_wire::logs::{GoneServer, LogDirectory, LogServer};
use kumi_rpc::{ClientHello, Code, Failure, LogRequest, ServerRegistration, Ticket};

use super::dispatcher::Dispatcher;
use super::members::Member;
use super::peer::{Peer, reachable};
use super::persistence::identity;
use super::startup_queue::StartupRequest;
use crate::pass::Pass;
use kumi_call_access::refused;

/// Most servers that are gone and named to clients that look for logs: the latest ones.
const MOST_GONE: usize = 1000;

impl Member {
    /// The pass for an attempt at this server. Empty: the server has given no key.
    pub fn pass(&mut self, ticket: Ticket, routine: &str, user: &str) -> String {
        let Some(key) = &self.register.key else { return String::new() };
        self.passes += 1;
        Pass::new(ticket, self.passes, routine, user).signed(key)
    }

    /// What a user shows once at this server to see the logs of the own calls.
    fn log_pass(&mut self, user: &str) -> String {
        let Some(key) = &self.register.key else { return String::new() };
        self.passes += 1;
        Pass::for_logs(self.passes, self.reports, user).signed(key)
    }
}

impl Dispatcher {
    /// Whether this peer may connect.
    pub fn admit(&self, peer: &Peer, hello: &ClientHello, open: bool) -> Result<(), Failure> {
        if open {
            let text = "this metaserver wants TLS: give its address as tls://HOST:PORT";
            return Err(Failure::new(Code::TlsWanted, 0, text));
        }
        if let Some(users) = &self.config.users {
            let user = users.who(&hello.token).map_err(|refusal| refused(&refusal))?;
            *peer.user.borrow_mut() = Some(user);
        }
        Ok(())
    }

    /// Whether a peer's user still exists. The user file may have changed.
    pub fn check(&self, peer: &Peer) -> Result<(), Failure> {
        let mut own = peer.user.borrow_mut();
        if let (Some(users), Some(user)) = (&self.config.users, own.as_mut()) {
            *user = users.again(user).map_err(|refusal| refused(&refusal))?;
        }
        Ok(())
    }

    /// The user to whom a call of this routine is charged, if the user may call it.
    pub fn may_call(&mut self, peer: &Peer, routine: &str) -> Result<UserId, Failure> {
        self.check(peer)?;
        let user = self.users.number(&peer.user());
        let own = peer.user.borrow();
        let Some(account) = own.as_ref() else { return Ok(UserId(user)) };
        if !account.permits(routine) {
            let near = self.catalogue.near(routine, |name| account.permits(name));
            let text = format!("`{}` may not call `{routine}` here{near}", account.name());
            return Err(Failure::new(Code::NotPermitted, 0, text));
        }
        let weight = account.weight();
        drop(own);
        // Number 0 stands for all users beyond the limit, who would otherwise share arrays and passes.
        if user == 0 {
            let text = "this metaserver has too many users; restart it";
            return Err(Failure::new(Code::Busy, 0, text));
        }
        if self.weights.insert(user, weight).unwrap_or(1) != weight {
            self.tell(Event::Weight(UserId(user), weight));
        }
        Ok(UserId(user))
    }

    /// The failure for a routine that no server offers now.
    pub fn unknown(&self, peer: &Peer, routine: &str) -> Failure {
        if self.catalogue.had(routine) {
            let text = format!(
                "no server that offers `{routine}` is there now; call again when one is back"
            );
            return Failure::new(Code::NoServer, 0, text);
        }
        let own = peer.user.borrow();
        let permits = |name: &str| own.as_ref().is_none_or(|user| user.permits(name));
        let near = self.catalogue.near(routine, permits);
        Failure::new(Code::NoSuchRoutine, 0, format!("no server has a routine `{routine}`{near}"))
    }

    /// Answers a client's request for a description.
    pub fn describe(&mut self, peer: &Rc<Peer>, stream: u32, name: String) {
        let allowed = self.may_call(peer, &name);
        if allowed.is_ok() && self.catalogue.find(&name).is_none() && self.waits_for_servers() {
            return self.queue_request(peer, stream, StartupRequest::Describe(name));
        }
        let found = allowed.and_then(|_| match self.catalogue.find(&name) {
            Some(entry) => Ok((entry.hash, Rc::clone(&entry.json))),
            None => Err(self.unknown(peer, &name)),
        });
        match found {
            Ok((hash, json)) => peer.tell(|rpc| rpc.describe(stream, hash, &json)),
            Err(failure) => peer.fail(stream, &failure),
        }
    }

    /// Answers with the names of routines that contain `part`.
    pub fn list(&self, peer: &Peer, stream: u32, part: &str) {
        if let Err(failure) = self.check(peer) {
            return peer.fail(stream, &failure);
        }
        let own = peer.user.borrow();
        let fits =
            |name: &&str| name.contains(part) && own.as_ref().is_none_or(|user| user.permits(name));
        peer.tell(|rpc| rpc.names(stream, self.catalogue.names().filter(fits)));
    }

    /// The servers at which a client finds the logs of its calls, as JSON, and where the call was that it asks for.
    pub fn log_servers(&mut self, peer: &Peer, request: &LogRequest) -> Result<String, Failure> {
        self.check(peer)?;
        let there = self.members.values_mut().filter(|member| member.peer.is_some());
        let servers = there.map(|member| LogServer {
            name: member.register.name.clone(),
            address: member.address.clone(),
            pass: member.log_pass(&peer.user()),
        });
        let servers = servers.collect();
        let now = self.now();
        let away = |member: &&Member| member.peer.is_none() && member.is_shown(now);
        let gone = self.members.values().rev().filter(away).take(MOST_GONE);
        let gone = gone.map(|member| GoneServer {
            name: member.register.name.clone(),
            address: member.address.clone(),
            state: member.state().to_string(),
        });
        let gone = gone.collect();
        let placed = match *request {
            LogRequest::Placed(call) => self.last_places.of(&peer.user(), call, now),
            _ => None,
        };
        let servers = LogDirectory { servers, gone, placed };
        serde_json::to_string(&servers).map_err(|error| {
            Failure::new(Code::Busy, 0, format!("the servers cannot be written as JSON: {error}"))
        })
    }

    /// Whether a peer may offer routines, and so receive other users' data.
    pub fn may_offer(&self, peer: &Peer) -> Result<(), Failure> {
        self.check(peer)?;
        if peer.user.borrow().as_ref().is_some_and(|user| !user.is_server()) {
            let text = format!(
                "`{}` may not offer routines here: a server needs a token of its own (`kumi call token add \
                 NAME --server`)",
                peer.user()
            );
            return Err(Failure::new(Code::NotPermitted, 0, text));
        }
        Ok(())
    }

    /// Whether a server may register under this name and address. They may belong to another user's server.
    pub fn may_register(&self, peer: &Peer, register: &ServerRegistration) -> Result<(), Failure> {
        let identity = identity(&register.name, &reachable(&register.address, peer.from));
        match self.owners.get(&identity) {
            Some(owner) if *owner != peer.user() => {
                let text = format!("`{}` at this address is the server of another", register.name);
                Err(Failure::new(Code::NotPermitted, 0, text))
            }
            _ => Ok(()),
        }
    }

    /// Ends the waiting calls and the servers of users whose tokens are no longer valid.
    pub fn check_users(&mut self) {
        if self.config.users.is_none() {
            return;
        }
        let mut out = Vec::new();
        for (id, member) in &self.members {
            let Some(peer) = member.peer.as_ref().filter(|peer| !peer.closing.get()) else {
                continue;
            };
            if let Err(failure) = self.may_offer(peer) {
                tracing::warn!(server = member.register.name, "a server goes: {}", failure.text);
                peer.end(failure);
                out.push(*id);
            }
        }
        // The connection may stay open, but it gets no more calls.
        for id in out {
            self.counters.refused += 1;
            self.withdraw(id);
        }
        let mut known: HashMap<u64, bool> = HashMap::new();
        let mut gone = Vec::new();
        for (call, open) in &self.calls {
            let (None, Some((peer, _))) = (&open.running, &open.peer) else { continue };
            let good = *known.entry(peer.id).or_insert_with(|| self.check(peer).is_ok());
            let user = peer.user.borrow();
            let may = good && user.as_ref().is_none_or(|user| user.permits(&open.routine));
            gone.extend((!may).then_some(*call));
        }
        gone.into_iter().for_each(|call| self.tell(Event::Cancel(CallId(call))));
    }
}
