//! Calls in a world of servers that vanish and metaservers that forget: what may not run twice begins at most once, and every
//! call ends.

use std::collections::{BTreeMap, BTreeSet};

use kumi_routing::{Action, Call, Event, Rules};
use proptest::prelude::*;

/// How long a world is unkind; after that nothing is lost any more.
const UNKIND: usize = 120;

/// A ticket at a server.
type Place = (u32, usize);

/// The same choices on every machine.
struct Choices(Vec<u16>);

impl Choices {
    fn below(&mut self, most: usize) -> usize {
        self.0.pop().map_or(0, |choice| usize::from(choice) % most.max(1))
    }
}

/// What a metaserver has of the call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Known {
    Nothing,
    /// It waits for a place.
    Waits,
    Placed(Place),
}

#[derive(Default)]
struct Server {
    /// Tickets that it takes no more.
    refused: BTreeSet<u32>,
    running: BTreeSet<u32>,
}

struct World {
    idempotent: bool,
    /// The only server that has the call's arrays.
    bound: Option<usize>,
    call: Call<Place, &'static str, usize>,
    known: Known,
    /// The client has a request there.
    asked: bool,
    servers: [Server; 3],
    next: u32,
    /// The attempt of the client, and whether its arguments are on their way.
    attempt: Option<(Place, bool)>,
    wants: bool,
    begun: u32,
    outcome: BTreeMap<Place, kumi_routing::Outcome>,
    over: bool,
}

impl World {
    fn new(idempotent: bool, bound: Option<usize>) -> World {
        let rules = Rules { idempotent, retry_time: None };
        let call = match bound {
            Some(server) => Call::bound(rules, server, |(_, at), server| at == server),
            None => Call::new(rules),
        };
        let mut world = World {
            idempotent,
            bound,
            call,
            known: Known::Nothing,
            asked: false,
            servers: Default::default(),
            next: 0,
            attempt: None,
            wants: false,
            begun: 0,
            outcome: BTreeMap::new(),
            over: false,
        };
        world.carry_out();
        world
    }

    fn tell(&mut self, event: Event<Place, &'static str>) {
        self.call.handle(0, event);
        self.carry_out();
    }

    fn carry_out(&mut self) {
        while let Some(action) = self.call.poll() {
            match action {
                Action::Ask => self.wants = true,
                Action::Start(place) => {
                    assert!(self.bound.is_none_or(|server| place.1 == server), "it is elsewhere");
                    self.attempt = Some((place, false));
                }
                Action::Leave => {
                    // The metaserver has the server's word that the ticket begins nothing any more.
                    self.attempt = None;
                    self.call.handle(0, Event::Left);
                }
                Action::Report(place, outcome) => {
                    let told = *self.outcome.entry(place).or_insert(outcome);
                    assert_eq!(told, outcome, "{place:?} has ended twice");
                    if self.asked && self.known == Known::Placed(place) {
                        self.reported(place, outcome);
                    }
                }
                Action::CancelRequest => {
                    assert!(self.asked, "there is no request");
                    self.give_back();
                }
                Action::CloseRequest => self.asked = false,
                Action::End(_) => {
                    self.over = true;
                    self.attempt = None;
                }
            }
        }
    }

    /// The metaserver takes the call away from its server, and forgets it.
    fn give_back(&mut self) {
        if let Known::Placed((ticket, server)) = self.known {
            self.servers[server].refused.insert(ticket);
        }
        (self.known, self.asked) = (Known::Nothing, false);
    }

    /// The metaserver reads a report on the place that it knows.
    fn reported(&mut self, (ticket, server): Place, outcome: kumi_routing::Outcome) {
        self.servers[server].refused.insert(ticket);
        self.known = match outcome {
            kumi_routing::Outcome::NotBegun => Known::Waits,
            kumi_routing::Outcome::Broken if self.idempotent => Known::Waits,
            _ => Known::Nothing,
        };
    }

    /// The client asks a metaserver.
    fn ask(&mut self) {
        (self.wants, self.asked) = (false, true);
        if self.known == Known::Nothing {
            self.known = Known::Waits;
        }
        let known = self.known;
        self.tell(Event::Asked);
        if let (Known::Placed(place), true) = (known, self.asked) {
            self.tell(Event::Placed(place));
        }
    }

    /// The metaserver has a server for a call that waits.
    fn place(&mut self, server: usize) {
        if self.known == Known::Waits && self.asked {
            self.next += 1;
            let place = (self.next, server);
            self.known = Known::Placed(place);
            self.tell(Event::Placed(place));
        }
    }

    /// The metaserver ends a call of which it knows that it has failed.
    fn end_request(&mut self) {
        if self.asked && self.known == Known::Nothing {
            self.asked = false;
            self.tell(Event::RequestEnded("it has failed"));
        }
    }

    /// The metaserver takes a place back to which nothing has come.
    fn expire(&mut self) {
        if let Known::Placed((ticket, server)) = self.known
            && !self.servers[server].running.contains(&ticket)
        {
            self.servers[server].refused.insert(ticket);
            self.known = Known::Waits;
        }
    }

    /// The client sends the call, or its server has got it.
    fn go_on(&mut self) {
        match self.attempt {
            Some((place, false)) => {
                self.attempt = Some((place, true));
                self.tell(Event::Sent);
            }
            Some((place @ (ticket, server), true)) => {
                let server = &mut self.servers[server];
                if server.running.contains(&ticket) {
                    server.running.remove(&ticket);
                    server.refused.insert(ticket);
                    self.attempt = None;
                    self.tell(Event::Done);
                } else if server.refused.contains(&ticket) {
                    self.attempt = None;
                    self.tell(Event::NotBegun("no such ticket"));
                } else {
                    server.running.insert(place.0);
                    self.begun += 1;
                    assert!(self.begun == 1 || self.idempotent, "it has run twice");
                }
            }
            None => {}
        }
    }

    /// A server loses all that it runs, and knows none of its tickets any more.
    fn kill(&mut self, server: usize) {
        let has_begun = !self.servers[server].running.is_empty();
        self.servers[server].running.clear();
        self.servers[server].refused.extend(0..=self.next);
        if let Some(((_, at), sent)) = self.attempt
            && at == server
        {
            self.attempt = None;
            let connecting = !sent && !has_begun;
            self.tell(if connecting { Event::NotBegun("gone") } else { Event::Broken("gone") });
        }
    }

    /// The connection to the metaserver is lost; it forgets the call or does not.
    fn lose_metaserver(&mut self, forgets: bool) {
        if forgets {
            // Servers are told to stop what a metaserver does not know.
            self.known = Known::Nothing;
        }
        if std::mem::take(&mut self.asked) {
            self.tell(Event::MetaserverLost);
        }
    }

    fn step(&mut self, choices: &mut Choices, unkind: bool) {
        let most = if unkind { 12 } else { 8 };
        match choices.below(most) {
            0 | 1 if self.wants && !self.asked => self.ask(),
            2 | 3 => self.place(choices.below(3)),
            4 => self.end_request(),
            8 => self.expire(),
            9 => self.kill(choices.below(3)),
            10 => self.lose_metaserver(true),
            11 => self.lose_metaserver(false),
            _ => self.go_on(),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 4096 }))]
    #[test]
    fn what_may_not_run_twice_begins_once_and_every_call_ends(
        idempotent: bool,
        bound in prop::option::of(0..3usize),
        choices in prop::collection::vec(any::<u16>(), 2 * UNKIND),
    ) {
        let mut choices = Choices(choices);
        let mut world = World::new(idempotent, bound);
        for _ in 0..UNKIND {
            if !world.over {
                world.step(&mut choices, true);
            }
        }
        // A kind world ends every call.
        for turn in 0..64 {
            if !world.over {
                match turn % 4 {
                    0 if world.wants && !world.asked => world.ask(),
                    1 => world.place(0),
                    2 => world.end_request(),
                    _ => world.go_on(),
                }
            }
        }
        prop_assert!(world.over, "a call that does not end");
        prop_assert!(!world.asked, "a request that nobody has any more");
        prop_assert!(world.begun <= 1 || idempotent);
    }
}
