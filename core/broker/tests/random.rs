//! Whatever happens, in any order: no call is started twice that must not be, no limit is exceeded, every call
//! ends once, nobody starves, and shares are fair.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{TestBroker, call, offer};
use kumi_broker::{
    Action, CallId, ClientId, Config, Event, Failure, Link, Offer, Outcome, ServerId, SiteId, Time,
    UserId,
};
use proptest::prelude::*;

const NAMES: [&str; 4] = ["f", "g", "h", "i"];

/// What happens next; numbers choose among what there is.
#[derive(Clone, Copy, Debug)]
enum Step {
    Join {
        server: u32,
        names: u8,
        limit: u32,
    },
    Leave(u32),
    Away(u32),
    Return(u32),
    Lose(u32),
    Submit {
        user: u32,
        name: usize,
        idempotent: bool,
        priority: u8,
        deadline: Option<u64>,
        bound: Option<u32>,
    },
    Started(usize),
    Ended(usize),
    Failed(usize, Failure),
    Cancel(u64),
    Stale(u64),
    ClientLost(u64),
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let failure = prop_oneof![
        Just(Failure::NotBegun),
        Just(Failure::Unclaimed),
        Just(Failure::Broken),
        Just(Failure::Routine)
    ];
    let may = (any::<bool>(), prop::option::of(1..40u64), prop::option::of(0..4u32));
    let submit = (0..4u32, 0..4usize, 0..12u8, may).prop_map(
        |(user, name, priority, (idempotent, deadline, bound))| Step::Submit {
            user,
            name,
            idempotent,
            priority,
            deadline,
            bound,
        },
    );
    let join = (0..4u32, 1..16u8, 0..4u32).prop_map(|(server, names, limit)| Step::Join {
        server,
        names,
        limit,
    });
    prop_oneof![
        2 => join,
        1 => (0..4u32).prop_map(Step::Leave),
        1 => (0..4u32).prop_map(Step::Away),
        1 => (0..4u32).prop_map(Step::Return),
        1 => (0..4u32).prop_map(Step::Lose),
        12 => submit,
        5 => any::<usize>().prop_map(Step::Started),
        8 => any::<usize>().prop_map(Step::Ended),
        3 => (any::<usize>(), failure).prop_map(|(which, failure)| Step::Failed(which, failure)),
        1 => (0..200u64).prop_map(Step::Cancel),
        1 => (0..200u64).prop_map(Step::Stale),
        1 => (0..8u64).prop_map(Step::ClientLost),
        3 => (1..30u64).prop_map(Step::Pass),
    ]
}

#[derive(Debug)]
struct Known {
    idempotent: bool,
    attempts: u32,
    /// It may have begun.
    begun: bool,
    /// The only server at which it may run.
    bound: Option<u32>,
    /// An attempt may have begun and failed.
    broken: bool,
    outcome: Option<Outcome>,
}

/// What the world knows, to judge the broker by.
struct World {
    desk: TestBroker,
    limits: BTreeMap<ServerId, (u32, Vec<&'static str>)>,
    calls: BTreeMap<CallId, (Known, &'static str)>,
    flights: Vec<(CallId, u32, ServerId)>,
    away: BTreeSet<u32>,
    next: u64,
}

impl World {
    fn new(policy: &str) -> Self {
        let config = Config { patience: 20 * Time::SECOND, ..Config::default() };
        Self {
            desk: TestBroker::with(policy, config),
            limits: BTreeMap::new(),
            calls: BTreeMap::new(),
            flights: Vec::new(),
            away: BTreeSet::new(),
            next: 0,
        }
    }

    fn tell(&mut self, event: Event) {
        for action in self.desk.tell(event) {
            self.judge(action);
        }
        for (&server, (limit, _)) in &self.limits {
            let here = self.flights.iter().filter(|flight| flight.2 == server).count();
            assert!(here <= (*limit).max(1) as usize, "{server:?} has {here} of {limit}");
            assert_eq!(self.desk.broker.in_flight(server) as usize, here);
        }
    }

    fn judge(&mut self, action: Action) {
        match action {
            Action::Start(id, server, attempt) => {
                let (call, name) = self.calls.get_mut(&id).expect("a call that was submitted");
                assert!(self.limits[&server].1.contains(name), "{server:?} does not offer {name}");
                assert_eq!(call.outcome, None);
                assert!(call.idempotent || !call.begun, "{id:?} could run twice");
                assert_eq!(attempt, call.attempts + 1);
                assert!(attempt <= 4);
                assert!(call.bound.is_none_or(|it| it == server.0), "{id:?} runs elsewhere");
                assert!(call.bound.is_none() || !call.broken, "{id:?} has lost its arrays");
                assert!(!self.flights.iter().any(|f| f.0 == id), "{id:?} runs twice at a time");
                (call.attempts, call.begun) = (attempt, true);
                self.flights.push((id, attempt, server));
            }
            Action::Done(id, outcome) => {
                let (call, _) = self.calls.get_mut(&id).expect("a call that was submitted");
                assert_eq!(call.outcome, None, "{id:?} ends twice");
                call.outcome = Some(outcome);
            }
            Action::Stop(id, server, attempt) => {
                assert!(self.flights.contains(&(id, attempt, server)));
            }
            Action::Queued(..) | Action::Declined(_) => {}
        }
    }

    fn flight(&self, which: usize) -> Option<(CallId, u32, ServerId)> {
        let count = self.flights.len();
        (count > 0).then(|| self.flights[which % count])
    }

    fn land(&mut self, flight: (CallId, u32, ServerId), event: Event) {
        self.flights.retain(|&other| other != flight);
        if matches!(event, Event::Failed(_, _, Failure::Broken)) {
            self.calls.get_mut(&flight.0).expect("known").0.broken = true;
        }
        if matches!(event, Event::Failed(_, _, Failure::NotBegun | Failure::Unclaimed)) {
            self.calls.get_mut(&flight.0).expect("known").0.begun = false;
        }
        self.tell(event);
    }

    fn submit(&mut self, step: Step) {
        let Step::Submit { user, name, idempotent, priority, deadline, bound } = step else {
            return;
        };
        let mut new = call(NAMES[name]);
        new.user = UserId(user);
        new.client = ClientId(u64::from(user));
        (new.idempotent, new.priority) = (idempotent, priority);
        new.bound = bound.map(ServerId);
        let by = |seconds| Time(self.desk.now.0 + seconds * Time::SECOND);
        new.deadline = deadline.map(by);
        let id = CallId(self.next);
        self.next += 1;
        let known =
            Known { idempotent, attempts: 0, begun: false, bound, broken: false, outcome: None };
        self.calls.insert(id, (known, NAMES[name]));
        self.tell(Event::Submit(id, new));
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Join { server, names, limit } => self.join(ServerId(server), names, limit),
            Step::Leave(server) => self.tell(Event::Left(ServerId(server))),
            Step::Away(server) => {
                self.away.insert(server);
                self.tell(Event::Away(ServerId(server)));
            }
            Step::Return(server) => {
                let Some((limit, names)) = self.limits.get(&ServerId(server)).cloned() else {
                    return;
                };
                self.away.remove(&server);
                let there = Offer { site: SiteId(server), ..offer(&names, limit) };
                self.tell(Event::Rejoined(ServerId(server), there));
            }
            Step::Lose(server) => self.lose(ServerId(server)),
            submit @ Step::Submit { .. } => self.submit(submit),
            Step::Started(which) => {
                if let Some((id, attempt, _)) = self.flight(which) {
                    self.tell(Event::Started(id, attempt));
                }
            }
            Step::Ended(which) => {
                if let Some(flight) = self.flight(which) {
                    self.land(flight, Event::Ended(flight.0, flight.1, 1.0));
                }
            }
            Step::Failed(which, failure) => {
                if let Some(flight) = self.flight(which) {
                    self.land(flight, Event::Failed(flight.0, flight.1, failure));
                }
            }
            Step::Cancel(id) => self.tell(Event::Cancel(CallId(id))),
            Step::Stale(id) => self.tell(Event::Ended(CallId(id), 77, f64::NAN)),
            Step::ClientLost(client) => self.tell(Event::ClientLost(ClientId(client))),
            Step::Pass(seconds) => {
                self.desk.now = Time(self.desk.now.0 + seconds * Time::SECOND);
                self.tell(Event::Tick);
            }
        }
    }

    /// A server is lost, with what runs there.
    fn lose(&mut self, server: ServerId) {
        for (id, ..) in self.flights.extract_if(.., |flight| flight.2 == server) {
            self.calls.get_mut(&id).expect("known").0.broken = true;
        }
        self.away.remove(&server.0);
        self.tell(Event::ServerLost(server));
    }

    fn join(&mut self, server: ServerId, names: u8, limit: u32) {
        let chosen = |&(bit, _): &(usize, &&str)| names & (1 << bit) != 0;
        let names: Vec<&str> =
            NAMES.iter().enumerate().filter(chosen).map(|(_, &name)| name).collect();
        for (id, ..) in self.flights.extract_if(.., |flight| flight.2 == server) {
            self.calls.get_mut(&id).expect("known").0.broken = true;
        }
        self.away.remove(&server.0);
        self.limits.insert(server, (limit, names.clone()));
        let there = Offer { site: SiteId(server.0), ..offer(&names, limit) };
        self.tell(Event::Joined(server, there));
        let link = Link { out: 1e6, back: 1e6, latency: 0.1 };
        self.tell(Event::Network(SiteId(0), SiteId(server.0), link));
    }

    /// Everything that runs ends, a server that offers everything comes, and all calls end.
    fn end(&mut self) {
        self.join(ServerId(9), 15, 2);
        // What is away is soon back or lost.
        for server in std::mem::take(&mut self.away) {
            self.lose(ServerId(server));
        }
        for _ in 0..2000 {
            self.desk.now = Time(self.desk.now.0 + Time::SECOND);
            self.tell(Event::Tick);
            let Some(flight) = self.flight(0) else { break };
            self.land(flight, Event::Ended(flight.0, flight.1, 1.0));
        }
        for (id, (call, _)) in &self.calls {
            assert!(call.outcome.is_some(), "{id:?} has no end: {call:?}");
        }
        assert_eq!((self.desk.broker.open(), self.desk.broker.waiting()), (0, 0));
        assert!(self.flights.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_lost_doubled_or_too_much(
        policy in prop::sample::select(vec!["round-robin", "least-load", "min-completion"]),
        steps in prop::collection::vec(step(), 1..160),
    ) {
        let mut world = World::new(policy);
        steps.into_iter().for_each(|step| world.step(step));
        world.end();
    }

    #[test]
    #[cfg_attr(miri, ignore = "minutes, in code without unsafe blocks")]
    fn shares_are_fair_within_a_call(
        weights in prop::collection::vec(1..12u32, 2..9),
        limit in 1..4u32,
    ) {
        let mut desk = TestBroker::new("least-load");
        desk.tell(Event::Joined(ServerId(0), offer(&["f"], limit)));
        for number in 0..limit {
            desk.tell(Event::Submit(CallId(u64::from(number)), call("f")));
        }
        let mut running: Vec<u64> = (0..u64::from(limit)).collect();
        for (user, &weight) in weights.iter().enumerate() {
            let user = user as u32 + 1;
            desk.tell(Event::Weight(UserId(user), weight));
            for number in 0..300u64 {
                let mut new = call("f");
                new.user = UserId(user);
                desk.tell(Event::Submit(CallId(u64::from(user) * 1000 + number), new));
            }
        }
        let all: u32 = weights.iter().sum();
        let mut served = vec![0u32; weights.len()];
        for turn in 1..=250u32 {
            let ended = running.remove(0);
            for action in desk.tell(Event::Ended(CallId(ended), 1, 1.0)) {
                if let Action::Start(id, ..) = action {
                    running.push(id.0);
                    served[id.0 as usize / 1000 - 1] += 1;
                }
            }
            for (count, &weight) in served.iter().zip(&weights) {
                let due = f64::from(turn) * f64::from(weight) / f64::from(all);
                let off = (f64::from(*count) - due).abs();
                prop_assert!(off <= 1.0, "{weights:?} after {turn}: {served:?}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Servers of three kinds, and users who want something of some of them: each server's turns are shared fairly among
    /// those who want them, whatever these are given elsewhere.
    #[test]
    #[cfg_attr(miri, ignore = "minutes, in code without unsafe blocks")]
    fn shares_are_fair_in_each_group(
        users in prop::collection::vec((1..9u32, 1..8u8), 2..7),
        turns in prop::collection::vec(0..3usize, 1..240),
    ) {
        let mut desk = TestBroker::new("least-load");
        let mut running = [0u64; 3];
        for (group, name) in NAMES[..3].iter().enumerate() {
            desk.tell(Event::Joined(ServerId(group as u32), offer(&[name], 1)));
            desk.tell(Event::Submit(CallId(group as u64), call(name)));
            running[group] = group as u64;
        }
        for (user, &(weight, wants)) in users.iter().enumerate() {
            desk.tell(Event::Weight(UserId(user as u32 + 1), weight));
            for number in 0..240 * 3u64 {
                let group = number as usize % 3;
                if wants & (1 << group) != 0 {
                    let mut new = call(NAMES[group]);
                    new.user = UserId(user as u32 + 1);
                    desk.tell(Event::Submit(CallId((user as u64 + 1) * 1000 + number), new));
                }
            }
        }
        let mut served = [[0u32; 8]; 3];
        for group in turns {
            let ended = Event::Ended(CallId(running[group]), 1, 1.0);
            for action in desk.tell(ended) {
                if let Action::Start(id, server, _) = action {
                    prop_assert_eq!(server, ServerId(group as u32));
                    running[group] = id.0;
                    served[group][id.0 as usize / 1000 - 1] += 1;
                }
            }
            let wants = |user: &&(u32, u8)| user.1 & (1 << group) != 0;
            let all: u32 = users.iter().filter(wants).map(|user| user.0).sum();
            let turns: u32 = served[group].iter().sum();
            for (user, count) in users.iter().zip(served[group]).filter(|(user, _)| wants(user)) {
                let due = f64::from(turns) * f64::from(user.0) / f64::from(all);
                let off = (f64::from(count) - due).abs();
                prop_assert!(off <= 1.0, "{users:?} at {group}: {served:?}");
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn a_user_with_one_call_is_not_behind_thousands_of_another() {
    let mut desk = TestBroker::new("least-load");
    desk.tell(Event::Joined(ServerId(0), offer(&["f"], 1)));
    for number in 0..5000 {
        desk.tell(Event::Submit(CallId(number), call("f")));
    }
    for turn in 0..50u64 {
        desk.tell(Event::Ended(CallId(turn), 1, 1.0));
    }
    let mut other = call("f");
    other.user = UserId(1);
    desk.tell(Event::Submit(CallId(9999), other));
    let next: Vec<Action> =
        (50..52).flat_map(|n| desk.tell(Event::Ended(CallId(n), 1, 1.0))).collect();
    assert!(next.contains(&Action::Start(CallId(9999), ServerId(0), 1)), "{next:?}");
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn a_thousand_clients_and_ten_thousand_calls_cost_little_each() {
    const SERVERS: u32 = 20;
    for policy in ["round-robin", "least-load", "min-completion"] {
        let mut desk = TestBroker::new(policy);
        for server in 0..SERVERS {
            desk.tell(Event::Joined(ServerId(server), offer(&NAMES, 4)));
        }
        let mut running = Vec::new();
        let note = |actions: Vec<Action>, running: &mut Vec<CallId>| {
            for action in actions {
                if let Action::Start(id, ..) = action {
                    running.push(id);
                }
            }
        };
        for number in 0..10_080u64 {
            let mut new = call(NAMES[number as usize % 4]);
            new.user = UserId(number as u32 % 1000);
            new.client = ClientId(number % 1000);
            new.operations = Some(1e6);
            let actions = desk.tell(Event::Submit(CallId(number), new));
            note(actions, &mut running);
        }
        assert_eq!(desk.broker.waiting(), 10_000);
        while let Some(id) = running.pop() {
            let actions = desk.tell(Event::Ended(id, 1, 1.0));
            note(actions, &mut running);
        }
        let counters = desk.broker.counters();
        assert_eq!(counters.started, 10_080, "{policy}");
        assert!(counters.most_examined <= u64::from(SERVERS), "{policy}: {counters:?}");
        assert!(counters.decisions <= 10_080, "{policy}: {counters:?}");
        assert_eq!((desk.broker.open(), desk.broker.users()), (0, 0), "{policy}");
    }
}
