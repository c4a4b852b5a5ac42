//! Registered servers: registration, reports, silence and loss.

use std::collections::HashSet;
use std::rc::Rc;

use kumi_broker::{CallId, Event, Failure, Offer, Outcome, ServerId, SiteId, Time};
use kumi_call_wire::state::ServerCondition;
use kumi_rpc::{AttemptState, LoadReport, ServerRegistration, Ticket};

use super::super::catalogue::RoutineOffer;
use super::super::dispatcher::{CurrentAttempt, Dispatcher, end_sending};
use super::super::peer::{Peer, network, reachable};
use super::super::persistence::identity;

/// How long a server that closed its connection may be away before its calls count as lost.
const BACK: u64 = 2 * Time::SECOND;
/// How long a server that is gone keeps its number, and a lost one is shown.
const FORGET: u64 = 600 * Time::SECOND;
/// How long a server that ended in order is shown.
const ENDED: u64 = 60 * Time::SECOND;

/// A server.
#[derive(Debug)]
pub struct Member {
    /// Its connection. `None`: it has none now.
    pub peer: Option<Rc<Peer>>,
    pub register: ServerRegistration,
    /// The address for clients.
    pub address: String,
    pub site: SiteId,
    /// Most calls that it gets at a time.
    pub limit: u32,
    pub report: Option<LoadReport>,
    /// When it last gave a sign of life.
    pub heard: Time,
    /// Since when it has no connection.
    pub away: Option<Time>,
    /// It gets no new calls, and its running calls are lost.
    pub lost: bool,
    /// It has said that it takes no new calls.
    pub leaving: bool,
    pub done: u64,
    pub failed: u64,
    /// Number of passes for it since it registered.
    pub passes: u64,
    /// Number of its reports since then.
    pub reports: u64,
}

/// A complete registration of a server.
#[derive(Debug)]
pub struct CompleteRegistration {
    pub register: ServerRegistration,
    pub offers: Vec<RoutineOffer>,
    pub holds: Vec<Ticket>,
}

impl Member {
    /// Whether it is there.
    pub fn state(&self) -> ServerCondition {
        match (&self.peer, self.leaving, self.lost) {
            (Some(_), false, _) => ServerCondition::Up,
            (Some(_), true, _) => ServerCondition::Leaving,
            (None, true, _) => ServerCondition::Ended,
            (None, false, false) => ServerCondition::Away,
            (None, false, true) => ServerCondition::Lost,
        }
    }

    /// Whether it is still shown. One that ended in order leaves soon; one that was lost stays for who looks for it.
    pub fn is_shown(&self, now: Time) -> bool {
        let gone = self.away.map_or(0, |away| now.0.saturating_sub(away.0));
        self.peer.is_some() || !self.leaving || gone <= ENDED
    }

    /// Counts the end of a call at this server.
    pub fn ended(&mut self, end: &Outcome) {
        match end {
            Outcome::Completed => self.done += 1,
            Outcome::Failed(..) | Outcome::Lost(_) => self.failed += 1,
            _ => {}
        }
    }
}

impl Dispatcher {
    /// The connection of a server, if it has one.
    pub fn peer_of(&self, server: ServerId) -> Option<&Rc<Peer>> {
        self.members.get(&server)?.peer.as_ref()
    }

    /// Whether a server is registered that clients reach at this address. One that is away counts until it is lost.
    pub fn has_server_at(&self, address: &str) -> bool {
        self.members.values().any(|member| !member.lost && member.address == address)
    }

    /// A server registers, for the first time or again.
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
            leaving: false,
            done,
            failed,
            passes: 0,
            reports: 0,
        };
        self.members.insert(id, member);
        let report_ms = u32::try_from(self.config.report.as_millis()).unwrap_or(u32::MAX);
        peer.tell(|rpc| rpc.registered(report_ms));
        // A server that has restarted runs nothing; below it is told which attempts are missing.
        self.tell(Event::Rejoined(id, offer));
        if fresh {
            self.recall(id, &identity);
        }
        self.compare(id, &holds);
        self.replay_queued_requests();
        id
    }

    /// Compares the attempts that a returning server reports with those that are known.
    fn compare(&mut self, id: ServerId, holds: &[Ticket]) {
        let there: HashSet<Ticket> = holds.iter().copied().collect();
        let is_there = |ticket: &Ticket| there.contains(ticket);
        let stopping: Vec<Ticket> =
            self.stopping.iter().filter(|(_, at)| **at == id).map(|(ticket, _)| *ticket).collect();
        let here = self.calls.values().filter(|open| open.is_at(id));
        let open: Vec<Ticket> =
            here.filter_map(|open| Some(open.running.as_ref()?.ticket)).collect();
        for ticket in stopping {
            if is_there(&ticket) {
                self.forbid(ticket, id);
            } else {
                self.told(id, ticket, AttemptState::Unknown);
            }
        }
        // The server knows the outcome of attempts that it does not run any more.
        if let Some(peer) = self.peer_of(id) {
            let gone = open.iter().filter(|ticket| !is_there(ticket));
            gone.for_each(|ticket| peer.tell(|rpc| rpc.ask(*ticket)));
        }
        let unknown = |ticket: &&Ticket| !self.calls.contains_key(&ticket.call);
        let unknown: Vec<Ticket> = holds.iter().filter(unknown).copied().collect();
        for ticket in unknown {
            self.forbid(ticket, id);
        }
    }

    /// The broker refuses a server's offer.
    pub fn declined(&mut self, id: ServerId) {
        self.counters.hostile += 1;
        tracing::warn!(server = id.0, "a server offers too much, or routines with too long names");
        self.catalogue.forget(id);
        if let Some(peer) = self.members.remove(&id).and_then(|member| member.peer) {
            peer.close();
        }
    }

    /// A server reports its load.
    pub fn report(&mut self, id: ServerId, report: LoadReport) {
        let now = self.now();
        let Some(member) = self.members.get_mut(&id) else { return };
        // JSON has no infinity and no NaN.
        let load = if report.load.is_finite() { report.load.max(0.0) } else { 0.0 };
        let report = LoadReport { load, ..report };
        member.heard = now;
        member.report = Some(report);
        member.reports += 1;
        let speed = member.register.speed;
        self.tell(Event::Load(id, report.load, speed));
    }

    /// A server gives a sign of life.
    pub fn heard(&mut self, id: ServerId) {
        let now = self.now();
        if let Some(member) = self.members.get_mut(&id) {
            member.heard = now;
        }
    }

    /// A server reports the state of a ticket.
    pub fn told(&mut self, id: ServerId, ticket: Ticket, fate: AttemptState) {
        let Ticket { call, attempt } = ticket;
        let here = fate == AttemptState::Accepted;
        if !here && self.stopping.get(&ticket) == Some(&id) {
            self.stopping.remove(&ticket);
            return self.tell(Event::Cancelled(CallId(call), attempt));
        }
        let Some(open) = self.calls.get_mut(&call) else { return };
        let is_it =
            |running: &&mut CurrentAttempt| running.server == id && running.ticket == ticket;
        let Some(running) = open.running.as_mut().filter(is_it) else { return };
        end_sending(&mut self.paths, Some(running));
        if here {
            (running.awaited, running.expires) = (None, None);
            return self.tell(Event::Started(CallId(call), attempt));
        }
        // No client has come, and the server refuses one that comes later.
        let peer = self.members.get(&id).and_then(|member| member.peer.as_ref());
        if fate == AttemptState::Unknown
            && !open.gone
            && peer.is_some_and(|peer| running.expires == Some(peer.id))
        {
            return self.tell(Event::Failed(CallId(call), attempt, Failure::Unclaimed));
        }
        // The client reports the end, if it is there or comes back soon.
        open.gone = true;
        open.fate = fate;
        let now = Time(u64::try_from(self.begin.elapsed().as_nanos()).unwrap_or(u64::MAX));
        if open.peer.is_none() {
            open.orphan = Some(now);
        }
        self.end_reported(call);
    }

    /// A server takes no new calls.
    pub fn withdraw(&mut self, id: ServerId) {
        if let Some(member) = self.members.get_mut(&id) {
            member.leaving = true;
        }
        self.catalogue.remove(id);
        self.tell(Event::Left(id));
    }

    /// A server's connection is closed.
    pub fn away(&mut self, id: ServerId, peer: &Peer) {
        let now = self.now();
        let Some(member) = self.members.get_mut(&id) else { return };
        if member.peer.as_ref().is_some_and(|own| own.id == peer.id) {
            member.peer = None;
            member.away = Some(now);
            self.tell(Event::Away(id));
        }
    }

    /// Looks for servers that are silent for longer than the configured time, or that have not come back.
    pub fn check_silence(&mut self) {
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
        self.ask_for_missing_reports();
        self.give_up_orphans();
        self.replay_queued_requests();
    }

    /// Forgets the owners of servers that have been away for long, perhaps since before this metaserver.
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
        let reported = self.calls_that(|open| open.client_report.is_some() && open.is_at(id));
        reported.into_iter().for_each(|call| self.end_reported(call));
        self.tell(Event::ServerLost(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server without a connection since second 100.
    fn gone(leaving: bool, lost: bool) -> Member {
        Member {
            peer: None,
            register: ServerRegistration {
                name: "a".to_owned(),
                address: "a:1".to_owned(),
                site: String::new(),
                version: String::new(),
                slots: 1,
                processors: 1,
                speed: 0.0,
                offers: 1,
                key: None,
            },
            address: "a:1".to_owned(),
            site: SiteId(0),
            limit: 1,
            report: None,
            heard: Time(0),
            away: Some(Time(100 * Time::SECOND)),
            lost,
            leaving,
            done: 0,
            failed: 0,
            passes: 0,
            reports: 0,
        }
    }

    #[test]
    fn a_server_that_left_in_order_is_not_lost_and_goes_after_a_while() {
        let after = |seconds: u64| Time((100 + seconds) * Time::SECOND);
        for lost in [false, true] {
            let member = gone(true, lost);
            assert_eq!(member.state(), ServerCondition::Ended);
            assert!(member.is_shown(after(0)) && member.is_shown(after(60)));
            assert!(!member.is_shown(after(61)));
        }
        assert_eq!(
            (gone(false, false).state(), gone(false, true).state()),
            (ServerCondition::Away, ServerCondition::Lost)
        );
        assert!(gone(false, true).is_shown(after(599)), "somebody looks for it");
    }
}
