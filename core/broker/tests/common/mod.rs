//! What the tests share.
#![allow(dead_code, reason = "each test uses a part")]

use kumi_broker::{
    Action, Broker, ClientId, Config, Event, Offer, Request, SiteId, Time, UserId, by_name,
};

/// A broker and a clock.
pub struct TestBroker {
    pub broker: Broker,
    pub now: Time,
}

impl TestBroker {
    pub fn new(policy: &str) -> Self {
        Self::with(policy, Config::default())
    }

    pub fn with(policy: &str, config: Config) -> Self {
        Self { broker: Broker::new(by_name(policy).unwrap(), config), now: Time(0) }
    }

    /// What the broker says to an event.
    pub fn tell(&mut self, event: Event) -> Vec<Action> {
        self.broker.handle(self.now, event);
        std::iter::from_fn(|| self.broker.poll()).collect()
    }

    /// What the broker says when so many seconds have passed.
    pub fn later(&mut self, seconds: f64) -> Vec<Action> {
        self.now = self.now.after_seconds(seconds);
        self.tell(Event::Tick)
    }
}

/// A server of one processor and a million operations a second.
pub fn offer(routines: &[&str], limit: u32) -> Offer {
    let routines = routines.iter().map(|&name| name.to_owned()).collect();
    Offer { site: SiteId(0), routines, limit, processors: 1, speed: 1e6 }
}

/// A call of user 0 without arguments.
pub fn call(routine: &str) -> Request {
    Request {
        routine: routine.to_owned(),
        client: ClientId(0),
        user: UserId(0),
        site: SiteId(0),
        bytes_out: 0,
        bytes_back: 0,
        operations: None,
        priority: 0,
        idempotent: false,
        deadline: None,
        held: Vec::new(),
        bound: None,
    }
}
