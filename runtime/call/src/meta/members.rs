//! Servers of routines: they come, report, are silent, and go.

use std::collections::HashSet;
use std::rc::Rc;

use kumi_broker::{CallId, Event, Failure, Offer, Outcome, ServerId, SiteId, Time};
use kumi_rpc::{AttemptState, LoadReport, ServerRegistration, Ticket};

use super::catalogue::RoutineOffer;
use super::dispatcher::{Dispatcher, OpenCall, end_sending};
use super::peer::{Peer, network, reachable};
use super::persistence::identity;

/// How long a server that closed its connection may take to be back until its calls are taken for lost.
const BACK: u64 = 2 * Time::SECOND;
/// How long a server that has gone keeps its number and is shown.
const FORGET: u64 = 600 * Time::SECOND;

/// A server.
#[derive(Debug)]
pub struct Member {
    /// Its connection; `None`: it has none now.
    pub peer: Option<Rc<Peer>>,
    pub register: ServerRegistration,
    /// The address for clients.
    pub address: String,
    pub site: SiteId,
    /// Most calls that it is given at a time.
    pub limit: u32,
    pub report: Option<LoadReport>,
    /// When it was last heard of.
    pub heard: Time,
    /// Since when it has no connection.
    pub away: Option<Time>,
    /// It takes no new calls, and what ran there is lost.
    pub lost: bool,
    pub done: u64,
    pub failed: u64,
    /// Passes that were given for it since it registered.
    pub passes: u64,
}

/// What a server says when it registers.
#[derive(Debug)]
pub struct CompleteRegistration {
    pub register: ServerRegistration,
    pub offers: Vec<RoutineOffer>,
    pub holds: Vec<Ticket>,
}

impl Member {
    /// A call that was there is over.
    pub fn ended(&mut self, end: &Outcome) {
        match end {
            Outcome::Completed => self.done += 1,
            Outcome::Failed(..) | Outcome::Lost(_) => self.failed += 1,
            _ => {}
        }
    }
}

impl Dispatcher {
    /// A server is there, perhaps again.
    pub fn register(&mut self, peer: &Rc<Peer>, registration: CompleteRegistration) -> ServerId {
        let CompleteRegistration { register, offers, holds } = registration;
        let address = reachable(&register.address, peer.from);
        let site = match register.site.as_str() {
            "" => network(peer.from),
            site => site.to_owned(),
        };
        let site = self.site(&site);
        let identity = identity(&register.name, &address);
        let id = self.server_id(identity.clone());
        self.keep_owner(&identity, &peer.user());
        let limit = self.config.limit.map_or(register.slots, |most| most.min(register.slots));
        let before = self.members.remove(&id);
        let fresh = before.as_ref().is_none_or(|member| member.lost);
        if let Some(old) = before.as_ref().and_then(|member| member.peer.as_ref()) {
            old.close();
        }
        let offer = Offer {
            site,
            routines: offers.iter().map(RoutineOffer::key).collect(),
            limit: limit.max(1),
            processors: register.processors.max(1),
            speed: register.speed,
        };
        self.catalogue.forget(id);
        for offered in offers {
            self.catalogue.add(id, offered);
        }
        let now = self.now();
        let (done, failed) = before.as_ref().map_or((0, 0), |old| (old.done, old.failed));
        let member = Member {
            peer: Some(Rc::clone(peer)),
            register,
            address,
            site,
            limit,
            report: None,
            heard: now,
            away: None,
            lost: false,
            done,
            failed,
            passes: 0,
        };
        self.members.insert(id, member);
        let report_ms = u32::try_from(self.config.report.as_millis()).unwrap_or(u32::MAX);
        peer.tell(|rpc| rpc.registered(report_ms));
        // One that has begun anew holds nothing; then what is not there is told below.
        self.tell(Event::Rejoined(id, offer));
        if fresh {
            self.recall(id, &identity);
        }
        self.compare(id, &holds);
        self.replay_queued_requests();
        id
    }

    /// What runs on a server that is there again, by its own word.
    fn compare(&mut self, id: ServerId, holds: &[Ticket]) {
        let there: HashSet<Ticket> = holds.iter().copied().collect();
        let is_there = |ticket: &Ticket| there.contains(ticket);
        let stopping: Vec<Ticket> =
            self.stopping.iter().filter(|(_, at)| **at == id).map(|(ticket, _)| *ticket).collect();
        let here = |open: &OpenCall| match &open.running {
            Some(running) if running.server == id => Some(running.ticket),
            _ => None,
        };
        let open: Vec<Ticket> = self.calls.values().filter_map(here).collect();
        for ticket in stopping {
            if is_there(&ticket) {
                self.stop_again(id, ticket);
            } else {
                self.told(id, ticket, AttemptState::Unknown);
            }
        }
        // What became of what is not there any more the server knows.
        if let Some(peer) = self.members.get(&id).and_then(|member| member.peer.as_ref()) {
            let gone = open.iter().filter(|ticket| !is_there(ticket));
            gone.for_each(|ticket| peer.tell(|rpc| rpc.ask(*ticket)));
        }
        let unknown = |ticket: &&Ticket| !self.calls.contains_key(&ticket.call);
        let unknown: Vec<Ticket> = holds.iter().filter(unknown).copied().collect();
        for ticket in unknown {
            self.stop_again(id, ticket);
        }
    }

    fn stop_again(&mut self, id: ServerId, ticket: Ticket) {
        if let Some(peer) = self.members.get(&id).and_then(|member| member.peer.as_ref()) {
            peer.tell(|rpc| rpc.stop(ticket));
        }
    }

    /// The broker does not take a server's offer.
    pub fn declined(&mut self, id: ServerId) {
        self.counters.hostile += 1;
        tracing::warn!(server = id.0, "a server offers too much, or routines with too long names");
        self.catalogue.forget(id);
        if let Some(peer) = self.members.remove(&id).and_then(|member| member.peer) {
            peer.close();
        }
    }

    /// A server's load.
    pub fn report(&mut self, id: ServerId, report: LoadReport) {
        let now = self.now();
        let Some(member) = self.members.get_mut(&id) else { return };
        // JSON has no number for others.
        let load = if report.load.is_finite() { report.load.max(0.0) } else { 0.0 };
        let report = LoadReport { load, ..report };
        member.heard = now;
        member.report = Some(report);
        let speed = member.register.speed;
        self.tell(Event::Load(id, report.load, speed));
    }

    /// A server is alive.
    pub fn heard(&mut self, id: ServerId) {
        let now = self.now();
        if let Some(member) = self.members.get_mut(&id) {
            member.heard = now;
        }
    }

    /// What is with a ticket at a server, as it says.
    pub fn told(&mut self, id: ServerId, ticket: Ticket, fate: AttemptState) {
        let Ticket { call, attempt } = ticket;
        let here = fate == AttemptState::Accepted;
        if !here && self.stopping.get(&ticket) == Some(&id) {
            self.stopping.remove(&ticket);
            return self.tell(Event::Cancelled(CallId(call), attempt));
        }
        let Some(open) = self.calls.get_mut(&call) else { return };
        let is_it = |running: &&mut super::dispatcher::CurrentAttempt| {
            running.server == id && running.ticket == ticket
        };
        let Some(running) = open.running.as_mut().filter(is_it) else { return };
        end_sending(&mut self.paths, Some(running));
        if here {
            (running.awaited, running.expires) = (None, None);
            return self.tell(Event::Started(CallId(call), attempt));
        }
        // Nobody has come for it, and nobody who comes later is taken.
        let peer = self.members.get(&id).and_then(|member| member.peer.as_ref());
        if fate == AttemptState::Unknown
            && !open.gone
            && peer.is_some_and(|peer| running.expires == Some(peer.id))
        {
            return self.tell(Event::Failed(CallId(call), attempt, Failure::Unclaimed));
        }
        // Its client will say how it went, if it is there or comes back soon.
        open.gone = true;
        open.fate = fate;
        let now = Time(u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX));
        if open.peer.is_none() {
            open.orphan = Some(now);
        }
        self.end_said(call);
    }

    /// A server takes no new calls.
    pub fn withdraw(&mut self, id: ServerId) {
        self.catalogue.remove(id);
        self.tell(Event::Left(id));
    }

    /// A server's connection is gone.
    pub fn away(&mut self, id: ServerId, peer: &Peer) {
        let now = self.now();
        let Some(member) = self.members.get_mut(&id) else { return };
        if member.peer.as_ref().is_some_and(|own| own.id == peer.id) {
            member.peer = None;
            member.away = Some(now);
            self.tell(Event::Left(id));
        }
    }

    /// Looks for servers that are silent or have not come back. How long ago the last sign of life may be is
    /// the configuration's.
    pub fn look_around(&mut self) {
        let now = self.now();
        let silence = u64::try_from(self.config.silence.as_nanos()).unwrap_or(u64::MAX);
        let (mut lost, mut forgotten) = (Vec::new(), Vec::new());
        for (id, member) in &mut self.members {
            let since = |time: Time| now.0.saturating_sub(time.0);
            match &member.peer {
                Some(peer) if since(member.heard) > silence => {
                    tracing::warn!(server = member.register.name, "a server is silent");
                    peer.close();
                    member.peer = None;
                    member.away = Some(now);
                    lost.push(*id);
                }
                Some(peer) => peer.tell(|rpc| rpc.ping()),
                None if member.lost => {
                    let long = member.away.is_none_or(|away| since(away) > FORGET);
                    forgotten.extend(long.then_some(*id));
                }
                None if member.away.is_none_or(|away| since(away) > BACK) => lost.push(*id),
                None => {}
            }
        }
        for id in lost {
            self.lose(id);
        }
        for id in forgotten {
            self.members.remove(&id);
            self.catalogue.forget(id);
            self.identities.retain(|_, of| *of != id);
        }
        self.forget_owners();
        self.expire_places();
        self.look_for_said();
        self.give_up_orphans();
        self.replay_queued_requests();
    }

    /// Whose servers those were that have not been there for long, since before this metaserver perhaps.
    fn forget_owners(&mut self) {
        if self.now().0 <= FORGET {
            return;
        }
        let there = |identity: &String| {
            self.identities.get(identity).is_some_and(|id| self.members.contains_key(id))
        };
        let gone: Vec<String> =
            self.owners.keys().filter(|identity| !there(identity)).cloned().collect();
        gone.iter().for_each(|identity| self.forget_owner(identity));
    }

    fn lose(&mut self, id: ServerId) {
        if let Some(member) = self.members.get_mut(&id) {
            member.lost = true;
        }
        self.catalogue.remove(id);
        self.stopping.retain(|_, at| *at != id);
        let of_server =
            |open: &OpenCall| open.running.as_ref().is_some_and(|running| running.server == id);
        let calls = self.calls.iter().filter(|(_, open)| open.said.is_some() && of_server(open));
        let said: Vec<u64> = calls.map(|(call, _)| *call).collect();
        said.into_iter().for_each(|call| self.end_said(call));
        self.tell(Event::ServerLost(id));
    }
}
