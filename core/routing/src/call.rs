//! The machine.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

use super::{Action, CallEnd, Event, GiveUpReason, Nanos, Outcome, RetryReason, Rules};

/// Where the call is.
#[derive(Debug)]
enum Phase<P, E> {
    /// It has no place.
    Waiting,
    /// Its server is being connected. Nothing was sent.
    Connecting(P),
    /// Arguments may have arrived.
    Running(P),
    /// The metaserver has given up this attempt; what it wants instead.
    Leaving(P, Next<P, E>),
    Over,
}

#[derive(Debug)]
enum Next<P, E> {
    Place(P),
    End(E),
}

/// The request at the metaserver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    /// There is none, and none is wanted: the metaserver does not know the attempt, or has ended the call.
    Absent,
    /// A metaserver is to be asked.
    Wanted,
    /// The metaserver has not yet said whether it knows the attempt.
    Rejoining,
    /// What the metaserver says counts.
    Open,
}

/// The only server at which a call may run.
#[derive(Debug)]
struct Binding<P, S> {
    server: S,
    /// Whether a place is there.
    is_at: fn(&P, &S) -> bool,
}

/// A call through a metaserver. `S` tells servers apart.
#[derive(Debug)]
pub struct Call<P, E, S = ()> {
    rules: Rules,
    bound: Option<Binding<P, S>>,
    phase: Phase<P, E>,
    request: Request,
    /// The latest place.
    last: Option<P>,
    /// The report on the latest place, which a metaserver may not have yet.
    unreported: Option<Outcome>,
    tried: Vec<(P, RetryReason<E>)>,
    may_have_run: bool,
    first_failure: Option<Nanos>,
    actions: VecDeque<Action<P, E>>,
}

impl<P: Clone + PartialEq, E, S> Call<P, E, S> {
    /// A call that wants a place.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Call::with(rules, None)
    }

    /// A call that wants a place at this server, and runs nowhere else: its arguments are there. An attempt that may have begun
    /// is its last one, since the arguments may be gone with it.
    #[must_use]
    pub fn bound(rules: Rules, server: S, is_at: fn(&P, &S) -> bool) -> Self {
        Call::with(rules, Some(Binding { server, is_at }))
    }

    fn with(rules: Rules, bound: Option<Binding<P, S>>) -> Self {
        let mut call = Call {
            rules,
            bound,
            phase: Phase::Waiting,
            request: Request::Absent,
            last: None,
            unreported: None,
            tried: Vec::new(),
            may_have_run: false,
            first_failure: None,
            actions: VecDeque::new(),
        };
        call.ask();
        call
    }

    /// What the driver is to do next.
    pub fn poll(&mut self) -> Option<Action<P, E>> {
        self.actions.pop_front()
    }

    /// Whether a metaserver is still to be asked.
    #[must_use]
    pub fn wants_metaserver(&self) -> bool {
        self.request == Request::Wanted && !matches!(self.phase, Phase::Over)
    }

    /// Whether there is an attempt.
    #[must_use]
    pub fn has_attempt(&self) -> bool {
        matches!(self.phase, Phase::Connecting(_) | Phase::Running(_) | Phase::Leaving(..))
    }

    /// Whether nothing of the present attempt was sent yet.
    #[must_use]
    pub fn is_connecting(&self) -> bool {
        matches!(self.phase, Phase::Connecting(_))
    }

    /// The latest place.
    #[must_use]
    pub fn last(&self) -> Option<&P> {
        self.last.as_ref()
    }

    /// The attempts that failed or were left, in their order.
    #[must_use]
    pub fn tried(&self) -> &[(P, RetryReason<E>)] {
        &self.tried
    }

    /// Takes what [`Call::tried`] has.
    pub fn take_tried(&mut self) -> Vec<(P, RetryReason<E>)> {
        core::mem::take(&mut self.tried)
    }

    /// Whether the routine may have begun at some server.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        self.may_have_run
    }

    /// When [`Event::Tick`] is due.
    #[must_use]
    pub fn wakes_at(&self) -> Option<Nanos> {
        self.retry_until().filter(|_| matches!(self.phase, Phase::Waiting))
    }

    fn retry_until(&self) -> Option<Nanos> {
        Some(self.first_failure?.saturating_add(self.rules.retry_time?))
    }

    /// Something has happened. What does not fit the state of the call has come too late, and changes nothing.
    pub fn handle(&mut self, now: Nanos, event: Event<P, E>) {
        if matches!(self.phase, Phase::Over) {
            return;
        }
        match event {
            Event::Asked => self.asked(),
            Event::Placed(place) => self.placed(now, place),
            Event::RequestEnded(error) => self.request_ended(now, error),
            Event::MetaserverLost => self.metaserver_lost(),
            Event::NoMetaserver(error) if self.wants_metaserver() && !self.has_attempt() => {
                self.give_up(GiveUpReason::Because(error));
            }
            Event::Sent => self.sent(),
            Event::Done => self.conclude(Outcome::Done, CallEnd::Done),
            Event::Failed(error) => self.conclude(Outcome::Failed, CallEnd::Failed(error)),
            Event::NotBegun(error) => self.attempt_failed(now, Outcome::NotBegun, error),
            Event::Broken(error) => self.attempt_failed(now, Outcome::Broken, error),
            Event::Left => self.left(now),
            Event::Stays => self.stays(),
            Event::Stopped(error) if self.has_attempt() => {
                self.conclude(Outcome::Failed, CallEnd::Failed(error));
            }
            Event::Stopped(error) => self.give_up(GiveUpReason::Because(error)),
            Event::Tick if !self.has_attempt() && self.is_late(now) => {
                self.give_up(GiveUpReason::RetryTime);
            }
            Event::NoMetaserver(_) | Event::Tick => {}
        }
    }

    fn ask(&mut self) {
        if self.request != Request::Wanted {
            self.request = Request::Wanted;
            // A driver that looks at `wants_metaserver` may have left the last one there.
            if !matches!(self.actions.back(), Some(Action::Ask)) {
                self.actions.push_back(Action::Ask);
            }
        }
    }

    /// A metaserver that does not know the attempt would run a call twice.
    fn ask_if_allowed(&mut self) {
        if self.may_have_run && !self.rules.idempotent {
            self.give_up(GiveUpReason::Unknown);
        } else {
            self.ask();
        }
    }

    fn asked(&mut self) {
        if self.request != Request::Wanted {
            return;
        }
        self.request = Request::Open;
        if self.has_attempt() {
            self.request = Request::Rejoining;
        } else if let (Some(place), Some(outcome)) = (&self.last, self.unreported) {
            self.request = Request::Rejoining;
            // The report may be lost with the metaserver that got it.
            self.actions.push_back(Action::Report(place.clone(), outcome));
        }
    }

    fn placed(&mut self, now: Nanos, place: P) {
        let rejoins = match self.request {
            Request::Absent | Request::Wanted => return,
            Request::Rejoining => true,
            Request::Open => false,
        };
        self.request = Request::Open;
        let is_known = self.last.as_ref() == Some(&place);
        match core::mem::replace(&mut self.phase, Phase::Waiting) {
            // Named before the report on it was read. With a request that rejoins the report was sent.
            Phase::Waiting if is_known => {
                if let Some(outcome) = self.unreported.filter(|_| !rejoins) {
                    self.actions.push_back(Action::Report(place, outcome));
                }
            }
            Phase::Waiting => self.start(now, place),
            attempt if is_known => self.phase = attempt,
            attempt if rejoins => {
                self.phase = attempt;
                self.drop_request();
            }
            Phase::Running(at) => self.leave(at, Next::Place(place), false),
            Phase::Leaving(at, _) => self.leave(at, Next::Place(place), true),
            Phase::Connecting(at) => {
                self.attempt_over(now, at, RetryReason::Superseded);
                self.start(now, place);
            }
            Phase::Over => self.phase = Phase::Over,
        }
    }

    fn request_ended(&mut self, now: Nanos, error: E) {
        if !self.is_asked() {
            return;
        }
        let is_known = core::mem::replace(&mut self.request, Request::Absent) == Request::Open;
        match core::mem::replace(&mut self.phase, Phase::Waiting) {
            Phase::Waiting => self.give_up(GiveUpReason::Because(error)),
            // It does not know the attempt, which goes on.
            attempt if !is_known => self.phase = attempt,
            Phase::Running(at) => self.leave(at, Next::End(error), false),
            Phase::Leaving(at, _) => self.leave(at, Next::End(error), true),
            Phase::Connecting(at) => {
                self.attempt_over(now, at, RetryReason::Superseded);
                self.give_up(GiveUpReason::Because(error));
            }
            Phase::Over => self.phase = Phase::Over,
        }
    }

    fn metaserver_lost(&mut self) {
        if !self.is_asked() {
            return;
        }
        self.request = Request::Absent;
        match self.phase {
            Phase::Waiting => self.ask_if_allowed(),
            Phase::Connecting(_) | Phase::Running(_) => self.ask(),
            // Asked when the attempt is left.
            Phase::Leaving(..) | Phase::Over => {}
        }
    }

    fn sent(&mut self) {
        self.phase = match core::mem::replace(&mut self.phase, Phase::Waiting) {
            Phase::Connecting(at) => Phase::Running(at),
            other => other,
        };
    }

    fn start(&mut self, now: Nanos, place: P) {
        if self.bound.as_ref().is_some_and(|it| !(it.is_at)(&place, &it.server)) {
            // With the request the place goes back.
            return self.give_up(GiveUpReason::Elsewhere);
        }
        if self.bound.is_some() && self.may_have_run {
            return self.give_up(GiveUpReason::Unknown);
        }
        if self.is_late(now) {
            return self.give_up(GiveUpReason::RetryTime);
        }
        self.unreported = None;
        self.last = Some(place.clone());
        self.phase = Phase::Connecting(place.clone());
        self.actions.push_back(Action::Start(place));
    }

    /// The metaserver has given up the attempt. `is_leaving`: it has said so before, and this word replaces that one.
    fn leave(&mut self, at: P, next: Next<P, E>, is_leaving: bool) {
        self.phase = Phase::Leaving(at, next);
        if !is_leaving {
            self.actions.push_back(Action::Leave);
        }
    }

    fn left(&mut self, now: Nanos) {
        match core::mem::replace(&mut self.phase, Phase::Waiting) {
            Phase::Leaving(at, next) => {
                self.attempt_over(now, at, RetryReason::Superseded);
                self.may_have_run = true;
                self.go_on(now, next);
            }
            other => self.phase = other,
        }
    }

    /// The metaserver that gave up the attempt has asked its server, so its next word counts.
    fn go_on(&mut self, now: Nanos, next: Next<P, E>) {
        match next {
            Next::Place(place) => {
                self.start(now, place);
                if self.has_attempt() && self.request == Request::Absent {
                    self.ask();
                }
            }
            Next::End(error) => self.give_up(GiveUpReason::Because(error)),
        }
    }

    fn stays(&mut self) {
        match core::mem::replace(&mut self.phase, Phase::Waiting) {
            Phase::Leaving(at, _) => {
                self.phase = Phase::Running(at);
                // Its metaserver knows it no more, and another would not.
                self.drop_request();
            }
            other => self.phase = other,
        }
    }

    fn attempt_failed(&mut self, now: Nanos, outcome: Outcome, error: E) {
        if self.bound.is_some() && outcome == Outcome::Broken {
            self.may_have_run |= self.has_attempt();
            return self.conclude(Outcome::Failed, CallEnd::Failed(error));
        }
        match core::mem::replace(&mut self.phase, Phase::Waiting) {
            Phase::Connecting(at) | Phase::Running(at) => {
                self.attempt_over(now, at.clone(), RetryReason::Failed(Box::new(error)));
                self.may_have_run |= outcome == Outcome::Broken;
                if self.is_late(now) {
                    // The metaserver must not place the call again.
                    self.close(at, Outcome::Failed);
                    return self.give_up(GiveUpReason::RetryTime);
                }
                self.unreported = Some(outcome);
                self.actions.push_back(Action::Report(at, outcome));
                match self.request {
                    Request::Open => {}
                    Request::Rejoining if self.rules.idempotent || outcome == Outcome::NotBegun => {
                    }
                    // It may not know the attempt, and would place the call anew.
                    Request::Rejoining => self.give_up(GiveUpReason::Unknown),
                    Request::Absent | Request::Wanted => self.ask_if_allowed(),
                }
            }
            // The metaserver has given it up before it failed.
            Phase::Leaving(at, next) => {
                self.attempt_over(now, at, RetryReason::Failed(Box::new(error)));
                self.may_have_run |= outcome == Outcome::Broken;
                self.go_on(now, next);
            }
            other => self.phase = other,
        }
    }

    fn attempt_over(&mut self, now: Nanos, at: P, why: RetryReason<E>) {
        self.first_failure.get_or_insert(now);
        self.tried.push((at, why));
    }

    /// The last attempt has ended.
    fn conclude(&mut self, outcome: Outcome, end: CallEnd<E>) {
        match core::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Connecting(at) | Phase::Running(at) => self.close(at, outcome),
            Phase::Leaving(at, _) => {
                self.actions.push_back(Action::Report(at, outcome));
                // The later place goes back.
                self.drop_request();
            }
            other => return self.phase = other,
        }
        self.actions.push_back(Action::End(end));
    }

    /// Reports an attempt after which the call gets no other.
    fn close(&mut self, at: P, outcome: Outcome) {
        self.actions.push_back(Action::Report(at, outcome));
        match core::mem::replace(&mut self.request, Request::Absent) {
            // A metaserver that knows the attempt ends the request by itself.
            Request::Open => self.actions.push_back(Action::CloseRequest),
            Request::Rejoining => self.actions.push_back(Action::CancelRequest),
            Request::Absent | Request::Wanted => {}
        }
    }

    /// Whether no further attempt may begin.
    fn is_late(&self, now: Nanos) -> bool {
        self.retry_until().is_some_and(|until| until <= now)
    }

    /// Whether there is a request at a metaserver.
    fn is_asked(&self) -> bool {
        matches!(self.request, Request::Open | Request::Rejoining)
    }

    fn drop_request(&mut self) {
        if self.is_asked() {
            self.actions.push_back(Action::CancelRequest);
        }
        self.request = Request::Absent;
    }

    fn give_up(&mut self, why: GiveUpReason<E>) {
        if matches!(self.phase, Phase::Over) {
            return;
        }
        self.drop_request();
        self.phase = Phase::Over;
        self.actions.push_back(Action::End(CallEnd::GivenUp(why)));
    }
}
