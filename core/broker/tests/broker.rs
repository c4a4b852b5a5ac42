//! The broker's decisions, one by one.

use crate::common::{TestBroker, call, offer};
use kumi_broker::{
    Action, CallId, ClientId, Config, Event, Failure, HeldInput, Link, Outcome, RejectReason,
    Request, ServerId, SiteId, Time, UserId, by_name, policies,
};

const A: ServerId = ServerId(1);
const B: ServerId = ServerId(2);

fn start(call: u64, server: ServerId, attempt: u32) -> Action {
    Action::Start(CallId(call), server, attempt)
}

fn done(call: u64, outcome: Outcome) -> Action {
    Action::Done(CallId(call), outcome)
}

#[test]
fn a_call_runs_and_the_next_waits() {
    let mut desk = TestBroker::new("least-load");
    desk.tell(Event::Joined(A, offer(&["ep"], 1)));
    assert_eq!(desk.tell(Event::Submit(CallId(1), call("ep"))), [start(1, A, 1)]);
    let queued = Action::Queued(CallId(2), 1);
    assert_eq!(desk.tell(Event::Submit(CallId(2), call("ep"))), [queued]);
    assert_eq!(desk.tell(Event::Started(CallId(1), 1)), []);
    let ended = desk.tell(Event::Ended(CallId(1), 1, 2.0));
    assert_eq!(ended, [done(1, Outcome::Completed), start(2, A, 1)]);
    assert_eq!(desk.tell(Event::Ended(CallId(2), 1, 2.0)), [done(2, Outcome::Completed)]);
    assert_eq!((desk.broker.open(), desk.broker.in_flight(A)), (0, 0));
    assert_eq!(desk.tell(Event::Ended(CallId(2), 1, 2.0)), []);
    assert_eq!(desk.broker.counters().stale, 1);
}

#[test]
fn wrong_names_and_absent_servers_have_answers() {
    let mut desk = TestBroker::new("round-robin");
    let wrong = desk.tell(Event::Submit(CallId(1), call("dgesv")));
    assert_eq!(wrong, [done(1, Outcome::Rejected(RejectReason::UnknownRoutine(vec![])))]);
    desk.tell(Event::Joined(A, offer(&["dgesv", "dgemm"], 1)));
    let wrong = desk.tell(Event::Submit(CallId(2), call("dgesb")));
    let near = RejectReason::UnknownRoutine(vec!["dgesv".to_owned()]);
    assert!(near.to_string().contains("did you mean dgesv?"), "{near}");
    assert_eq!(wrong, [done(2, Outcome::Rejected(near))]);
    desk.tell(Event::Submit(CallId(3), call("dgesv")));
    desk.tell(Event::Submit(CallId(4), call("dgesv")));
    assert_eq!(desk.tell(Event::Left(A)), []);
    // What comes and what waits waits for a server to come, for a time.
    let gone = desk.tell(Event::Submit(CallId(5), call("dgesv")));
    assert_eq!(gone, [Action::Queued(CallId(5), 2)]);
    assert_eq!(desk.later(59.0), []);
    let rejected = |call| done(call, Outcome::Rejected(RejectReason::NoServer));
    assert_eq!(desk.later(2.0), [rejected(4), rejected(5)]);
    // What runs there ends as usual.
    assert_eq!(desk.tell(Event::Ended(CallId(3), 1, 1.0)), [done(3, Outcome::Completed)]);
    assert_eq!(desk.broker.routines().count(), 0);
}

#[test]
fn a_server_that_comes_in_time_gets_what_waits() {
    let mut desk = TestBroker::new("round-robin");
    desk.tell(Event::Joined(A, offer(&["f"], 1)));
    desk.tell(Event::Submit(CallId(1), call("f")));
    desk.tell(Event::Submit(CallId(2), call("f")));
    let lost = desk.tell(Event::ServerLost(A));
    assert_eq!(lost, [done(1, Outcome::Lost(A))]);
    desk.later(30.0);
    assert_eq!(desk.tell(Event::Joined(B, offer(&["f"], 1))), [start(2, B, 1)]);
    assert_eq!(desk.later(60.0), []);
}

#[test]
fn only_what_cannot_run_twice_is_started_again() {
    let mut desk = TestBroker::new("round-robin");
    desk.tell(Event::Joined(A, offer(&["f"], 4)));
    desk.tell(Event::Joined(B, offer(&["f"], 4)));
    let twice = |idempotent| {
        let mut call = call("f");
        call.idempotent = idempotent;
        call
    };
    // Refused before an argument came: elsewhere, whatever it is.
    assert_eq!(desk.tell(Event::Submit(CallId(1), twice(false))), [start(1, A, 1)]);
    let again = desk.tell(Event::Failed(CallId(1), 1, Failure::NotBegun));
    assert_eq!(again, [start(1, B, 2)]);
    // A connection that broke: it may have run.
    let broken = desk.tell(Event::Failed(CallId(1), 2, Failure::Broken));
    assert_eq!(broken, [done(1, Outcome::Failed(B, Failure::Broken))]);
    assert_eq!(desk.tell(Event::Submit(CallId(2), twice(true))), [start(2, A, 1)]);
    assert_eq!(desk.tell(Event::Failed(CallId(2), 1, Failure::Broken)), [start(2, B, 2)]);
    // What the routine says is an answer.
    let said = desk.tell(Event::Failed(CallId(2), 2, Failure::Routine));
    assert_eq!(said, [done(2, Outcome::Failed(B, Failure::Routine))]);
    // A lost server takes along what may not run twice.
    assert_eq!(desk.tell(Event::Submit(CallId(3), twice(true))), [start(3, A, 1)]);
    assert_eq!(desk.tell(Event::Submit(CallId(4), twice(false))), [start(4, B, 1)]);
    assert_eq!(desk.tell(Event::ServerLost(B)), [done(4, Outcome::Lost(B))]);
    desk.tell(Event::Joined(B, offer(&["f"], 4)));
    assert_eq!(desk.tell(Event::ServerLost(A)), [start(3, B, 2)]);
    assert_eq!(desk.tell(Event::Ended(CallId(3), 1, 1.0)), []);
}

#[test]
fn who_does_not_come_for_places_gets_no_more_of_them_than_others() {
    let mut desk = TestBroker::new("round-robin");
    desk.tell(Event::Joined(A, offer(&["f"], 1)));
    // User 1 asks for places and never comes for them, user 0 calls; calls of both wait all the time.
    let user = |id: u64| u32::from(id % 2 == 1);
    let first = Request { user: UserId(2), ..call("f") };
    assert_eq!(desk.tell(Event::Submit(CallId(100), first)), [start(100, A, 1)]);
    for id in 0..60 {
        let request = Request { user: UserId(user(id)), ..call("f") };
        desk.tell(Event::Submit(CallId(id), request));
    }
    let mut actions = desk.tell(Event::Ended(CallId(100), 1, 1.0));
    let mut turns = [0i32; 2];
    for _ in 0..40 {
        let mut starts = actions.iter().filter_map(|action| match action {
            Action::Start(call, _, attempt) => Some((*call, *attempt)),
            _ => None,
        });
        let (call, attempt) = starts.next().expect("the slot is given to the next");
        assert_eq!(starts.next(), None, "one slot");
        let user = user(call.0);
        turns[user as usize] += 1;
        assert!((turns[0] - turns[1]).abs() <= 1, "{turns:?}");
        actions = desk.tell(match user {
            0 => Event::Ended(call, attempt, 1.0),
            _ => Event::Failed(call, attempt, Failure::Unclaimed),
        });
    }
    assert_eq!(turns, [20, 20]);
    // Each of those calls was tried as often as it may be, and then ended.
    assert_eq!(desk.broker.counters().retried, 15);
}

#[test]
fn calls_that_avoid_a_server_keep_nobody_from_it() {
    let mut desk = TestBroker::new("round-robin");
    desk.tell(Event::Joined(A, offer(&["f"], 1)));
    desk.tell(Event::Joined(B, offer(&["f"], 1)));
    let of = |user| {
        let mut call = call("f");
        call.user = UserId(user);
        call
    };
    desk.tell(Event::Submit(CallId(1), of(1)));
    desk.tell(Event::Submit(CallId(2), of(1)));
    // B is busy for long, and A refuses one call of the user after the other.
    for id in 3..40 {
        desk.tell(Event::Submit(CallId(id), of(1)));
    }
    let mut at_a = 1;
    for next in 3..39 {
        let started = desk.tell(Event::Failed(CallId(at_a), 1, Failure::NotBegun));
        assert!(started.contains(&start(next, A, 1)), "{next}: {started:?}");
        at_a = next;
    }
    // Those who wait for B do not keep the others of their user from A, nor those of another user.
    let started = desk.tell(Event::Ended(CallId(at_a), 1, 1.0));
    assert!(started.contains(&start(39, A, 1)), "{started:?}");
    desk.tell(Event::Submit(CallId(100), of(2)));
    desk.tell(Event::Submit(CallId(101), of(2)));
    assert!(desk.tell(Event::Ended(CallId(39), 1, 1.0)).contains(&start(100, A, 1)));
    assert!(desk.tell(Event::Ended(CallId(100), 1, 1.0)).contains(&start(101, A, 1)));
    // And they run when B is free.
    let started = desk.tell(Event::Ended(CallId(2), 1, 1.0));
    assert!(started.contains(&start(1, B, 2)), "{started:?}");
}

#[test]
fn retries_are_bounded() {
    let config = Config { most_attempts: 3, ..Config::default() };
    let mut desk = TestBroker::with("round-robin", config);
    desk.tell(Event::Joined(A, offer(&["f"], 1)));
    desk.tell(Event::Submit(CallId(1), call("f")));
    for attempt in 1..3 {
        let again = desk.tell(Event::Failed(CallId(1), attempt, Failure::NotBegun));
        assert_eq!(again, [start(1, A, attempt + 1)]);
    }
    let end = desk.tell(Event::Failed(CallId(1), 3, Failure::NotBegun));
    assert_eq!(end, [done(1, Outcome::Failed(A, Failure::NotBegun))]);
    assert_eq!(desk.broker.counters().retried, 2);
}

#[test]
fn who_is_cancelled_keeps_the_slot_until_the_server_has_stopped() {
    let mut desk = TestBroker::new("round-robin");
    desk.tell(Event::Joined(A, offer(&["f"], 1)));
    desk.tell(Event::Submit(CallId(1), call("f")));
    desk.tell(Event::Submit(CallId(2), call("f")));
    desk.tell(Event::Submit(CallId(3), call("f")));
    assert_eq!(desk.tell(Event::Cancel(CallId(3))), [done(3, Outcome::Cancelled)]);
    let stop = Action::Stop(CallId(1), A, 1);
    assert_eq!(desk.tell(Event::Cancel(CallId(1))), [stop, done(1, Outcome::Cancelled)]);
    assert_eq!(desk.broker.in_flight(A), 1);
    assert_eq!(desk.tell(Event::Submit(CallId(1), call("f"))), []);
    assert_eq!(desk.tell(Event::Cancelled(CallId(1), 1)), [start(2, A, 1)]);
    let stop = Action::Stop(CallId(2), A, 1);
    let lost = desk.tell(Event::ClientLost(ClientId(0)));
    assert_eq!(lost, [stop, done(2, Outcome::Cancelled)]);
}

#[test]
fn deadlines_end_calls_that_wait_and_calls_that_run() {
    let mut desk = TestBroker::new("round-robin");
    desk.tell(Event::Joined(A, offer(&["f"], 1)));
    let by = |seconds: u64| {
        let mut call = call("f");
        call.deadline = Some(Time(seconds * Time::SECOND));
        call
    };
    desk.tell(Event::Submit(CallId(1), by(10)));
    desk.tell(Event::Submit(CallId(2), by(5)));
    assert_eq!(desk.broker.next_time(), Some(Time(5 * Time::SECOND)));
    assert_eq!(desk.later(5.0), [done(2, Outcome::Rejected(RejectReason::Deadline))]);
    let stop = Action::Stop(CallId(1), A, 1);
    assert_eq!(desk.later(5.0), [stop, done(1, Outcome::Expired)]);
    let late = desk.tell(Event::Submit(CallId(3), by(10)));
    assert_eq!(late, [done(3, Outcome::Rejected(RejectReason::Deadline))]);
    assert_eq!(desk.broker.next_time(), None);
}

#[test]
fn queues_are_bounded() {
    let config = Config { most_waiting: 2, most_waiting_of_user: 1, ..Config::default() };
    let mut desk = TestBroker::with("round-robin", config);
    desk.tell(Event::Joined(A, offer(&["f"], 1)));
    desk.tell(Event::Submit(CallId(1), call("f")));
    desk.tell(Event::Submit(CallId(2), call("f")));
    let full = desk.tell(Event::Submit(CallId(3), call("f")));
    assert_eq!(full, [done(3, Outcome::Rejected(RejectReason::UserQueueFull))]);
    let of = |user| {
        let mut call = call("f");
        call.user = UserId(user);
        call
    };
    assert_eq!(desk.tell(Event::Submit(CallId(4), of(2))), [Action::Queued(CallId(4), 2)]);
    let full = desk.tell(Event::Submit(CallId(5), of(3)));
    assert_eq!(full, [done(5, Outcome::Rejected(RejectReason::QueueFull))]);
}

#[test]
fn a_users_own_calls_go_by_priority_but_nobody_waits_for_ever() {
    let mut desk = TestBroker::new("round-robin");
    desk.tell(Event::Joined(A, offer(&["f"], 1)));
    desk.tell(Event::Submit(CallId(0), call("f")));
    desk.tell(Event::Submit(CallId(1), call("f")));
    let mut order = Vec::new();
    let mut running = (CallId(0), 1);
    for number in 2..60 {
        let mut urgent = call("f");
        urgent.priority = 1;
        desk.tell(Event::Submit(CallId(number), urgent));
        let next = desk.tell(Event::Ended(running.0, running.1, 1.0));
        let Some(Action::Start(call, _, attempt)) = next.last() else { panic!("{next:?}") };
        running = (*call, *attempt);
        order.push(call.0);
    }
    assert_eq!(order[0], 2);
    assert_eq!(order.iter().position(|&call| call == 1), Some(15), "{order:?}");
}

#[test]
fn policies_have_names() {
    for (name, help) in policies() {
        assert_eq!(by_name(name).unwrap().name(), name);
        assert!(!help.is_empty());
    }
    let error = by_name("least-lode").unwrap_err();
    assert!(error.to_string().contains("least-load?"), "{error}");
    let error = by_name("x").unwrap_err();
    assert!(error.to_string().contains("round-robin or least-load or min-completion?"), "{error}");
}

#[test]
fn the_least_load_is_that_of_each_processor() {
    let mut desk = TestBroker::new("least-load");
    let mut large = offer(&["f"], 9);
    large.processors = 4;
    desk.tell(Event::Joined(A, offer(&["f"], 9)));
    desk.tell(Event::Joined(B, large));
    desk.tell(Event::Load(B, 2.0, 0.0));
    let mut went = Vec::new();
    for number in 0..5 {
        match desk.tell(Event::Submit(CallId(number), call("f")))[..] {
            [Action::Start(_, server, _)] => went.push(server),
            ref other => panic!("{other:?}"),
        }
    }
    assert_eq!(went, [A, B, B, A, B]);
}

#[test]
fn the_path_decides_where_little_is_computed() {
    let mut desk = TestBroker::new("min-completion");
    let (near, far) = (SiteId(1), SiteId(2));
    let at = |site, speed| {
        let mut offer = offer(&["f"], 1);
        offer.site = site;
        offer.speed = speed;
        offer
    };
    desk.tell(Event::Joined(A, at(near, 1e6)));
    desk.tell(Event::Joined(B, at(far, 1e7)));
    let link = |rate| Link { out: rate, back: rate, latency: 0.0 };
    desk.tell(Event::Network(SiteId(0), near, link(1e6)));
    desk.tell(Event::Network(SiteId(0), far, link(1e5)));
    let with = |operations, bytes| {
        let mut call = call("f");
        call.operations = Some(operations);
        call.bytes_out = bytes;
        call
    };
    // 1 + 1 seconds against 10 + 0.1.
    assert_eq!(desk.tell(Event::Submit(CallId(1), with(1e6, 1_000_000))), [start(1, A, 1)]);
    // The near server is free again in 2 seconds and would need 2 more: it is waited for.
    let waits = desk.tell(Event::Submit(CallId(2), with(1e6, 1_000_000)));
    assert_eq!(waits, [Action::Queued(CallId(2), 1)]);
    // Much is computed, little sent.
    assert_eq!(desk.tell(Event::Submit(CallId(3), with(1e8, 1000))), [start(3, B, 1)]);
    desk.later(2.0);
    let next = desk.tell(Event::Ended(CallId(1), 1, 1.0));
    assert_eq!(next, [done(1, Outcome::Completed), start(2, A, 1)]);
}

#[test]
fn inputs_that_lie_at_a_server_draw_the_call_there() {
    let mut desk = TestBroker::new("min-completion");
    for (server, site) in [(A, 1), (B, 2)] {
        let mut offer = offer(&["f"], 1);
        offer.site = SiteId(site);
        desk.tell(Event::Joined(server, offer));
        let link = Link { out: 1e6, back: 1e6, latency: 0.0 };
        desk.tell(Event::Network(SiteId(0), SiteId(site), link));
        desk.tell(Event::Network(SiteId(3 - site), SiteId(site), link));
    }
    let mut dear = call("f");
    dear.bytes_out = 1_000_000;
    dear.held = vec![HeldInput { server: B, bytes: 900_000 }];
    assert_eq!(desk.tell(Event::Submit(CallId(1), dear)), [start(1, B, 1)]);
}

#[test]
fn what_calls_took_is_learnt() {
    let mut desk = TestBroker::new("min-completion");
    for server in [A, B] {
        desk.tell(Event::Joined(server, offer(&["f"], 1)));
    }
    // Both say that they are as fast; A is not.
    let mut went = Vec::new();
    for number in 0..12 {
        let mut call = call("f");
        call.operations = Some(1e6);
        let [Action::Start(id, server, attempt)] =
            desk.tell(Event::Submit(CallId(number), call))[..]
        else {
            panic!("it starts")
        };
        went.push(server);
        let seconds = if server == A { 5.0 } else { 1.0 };
        desk.later(seconds);
        desk.tell(Event::Ended(id, attempt, seconds));
    }
    assert!(went[6..].iter().all(|&server| server == B), "{went:?}");
}

#[test]
fn a_server_comes_back_with_what_runs_there() {
    let mut desk = TestBroker::new("round-robin");
    desk.tell(Event::Joined(A, offer(&["ep"], 1)));
    assert_eq!(desk.tell(Event::Submit(CallId(1), call("ep"))), [start(1, A, 1)]);
    desk.tell(Event::Left(A));
    let late = desk.tell(Event::Submit(CallId(2), call("ep")));
    assert_eq!(late, [Action::Queued(CallId(2), 1)]);
    assert_eq!(desk.tell(Event::Rejoined(A, offer(&["ep"], 1))), []);
    assert_eq!(desk.broker.in_flight(A), 1, "nothing is lost");
    let ended = desk.tell(Event::Ended(CallId(1), 1, 1.0));
    assert_eq!(ended, [done(1, Outcome::Completed), start(2, A, 1)]);
    // One that nobody has seen is as good as one that joins.
    assert_eq!(desk.tell(Event::Rejoined(B, offer(&["ep"], 1))), []);
    assert_eq!(desk.tell(Event::Submit(CallId(4), call("ep"))), [start(4, B, 1)]);
    // What it offers now is too much.
    let long = "x".repeat(300);
    let declined = desk.tell(Event::Rejoined(B, offer(&[&long], 1)));
    assert_eq!(declined, [Action::Declined(B), done(4, Outcome::Lost(B))]);
}

#[test]
fn calls_and_times_of_an_earlier_life_count() {
    let mut desk = TestBroker::new("min-completion");
    let running = || Event::Restored(CallId(1), call("ep"), A, 2);
    assert_eq!(desk.tell(running()), [], "the server is not known");
    desk.tell(Event::Joined(A, offer(&["ep"], 1)));
    desk.tell(Event::Joined(B, offer(&["ep"], 1)));
    assert_eq!(desk.tell(running()), []);
    assert_eq!((desk.broker.open(), desk.broker.in_flight(A)), (1, 1));
    desk.tell(running());
    assert_eq!((desk.broker.in_flight(A), desk.broker.counters().stale), (1, 1));
    let ended = desk.tell(Event::Ended(CallId(1), 2, 1.0));
    assert_eq!(ended, [done(1, Outcome::Completed)]);
    // A is the first of equals, until it is known to be slow.
    for _ in 0..3 {
        desk.tell(Event::Learned(A, "ep".to_owned(), 0.0, 9.0));
        desk.tell(Event::Learned(B, "ep".to_owned(), 0.0, 1.0));
        desk.tell(Event::Learned(B, "fft".to_owned(), 0.0, 99.0));
    }
    assert_eq!(desk.tell(Event::Submit(CallId(2), call("ep"))), [start(2, B, 1)]);
    // One that was restored is started again as any other.
    let mut twice = call("ep");
    twice.idempotent = true;
    desk.tell(Event::Restored(CallId(3), twice, A, 1));
    let broken = desk.tell(Event::Failed(CallId(3), 1, Failure::Broken));
    assert_eq!(broken, [Action::Queued(CallId(3), 1)], "it is told that it waits again");
    let after = desk.tell(Event::Ended(CallId(2), 1, 1.0));
    assert_eq!(after, [done(2, Outcome::Completed), start(3, B, 2)]);
}

fn bound(name: &str, server: ServerId) -> Request {
    Request { bound: Some(server), ..call(name) }
}

#[test]
fn a_call_that_is_bound_runs_only_at_its_server() {
    for policy in ["round-robin", "least-load", "min-completion"] {
        let mut desk = TestBroker::new(policy);
        desk.tell(Event::Joined(A, offer(&["f"], 1)));
        desk.tell(Event::Joined(B, offer(&["f"], 2)));
        for id in [1, 2] {
            let here = desk.tell(Event::Submit(CallId(id), bound("f", B)));
            assert_eq!(here, [start(id, B, 1)], "{policy}");
        }
        // It waits for its server though the other is free, and nobody waits behind it.
        let waits = desk.tell(Event::Submit(CallId(3), bound("f", B)));
        assert_eq!(waits, [Action::Queued(CallId(3), 1)], "{policy}");
        assert_eq!(desk.tell(Event::Submit(CallId(4), call("f"))), [start(4, A, 1)], "{policy}");
        let ended = desk.tell(Event::Ended(CallId(1), 1, 1.0));
        assert_eq!(ended, [done(1, Outcome::Completed), start(3, B, 1)], "{policy}");
        // Another attempt is there, too.
        let again = desk.tell(Event::Failed(CallId(3), 1, Failure::NotBegun));
        assert_eq!(again, [start(3, B, 2)], "{policy}");
    }
}

#[test]
fn a_bound_call_changes_nobodys_turn() {
    let mut desk = TestBroker::new("round-robin");
    desk.tell(Event::Joined(A, offer(&["f"], 9)));
    desk.tell(Event::Joined(B, offer(&["f"], 9)));
    assert_eq!(desk.tell(Event::Submit(CallId(1), call("f"))), [start(1, A, 1)]);
    assert_eq!(desk.tell(Event::Submit(CallId(2), bound("f", B))), [start(2, B, 1)]);
    assert_eq!(desk.tell(Event::Submit(CallId(3), call("f"))), [start(3, B, 1)]);
}

#[test]
fn thousands_of_bound_calls_hold_nobody_up() {
    let mut desk = TestBroker::new("least-load");
    desk.tell(Event::Joined(A, offer(&["f"], 1)));
    desk.tell(Event::Joined(B, offer(&["f"], 1)));
    for id in 0..3000 {
        desk.tell(Event::Submit(CallId(id), bound("f", B)));
    }
    let mut other = call("f");
    other.user = UserId(7);
    assert_eq!(desk.tell(Event::Submit(CallId(9000), other)), [start(9000, A, 1)]);
    assert_eq!(desk.tell(Event::Submit(CallId(9001), call("f"))).len(), 1, "it waits");
    let next = desk.tell(Event::Ended(CallId(9000), 1, 1.0));
    assert_eq!(next, [done(9000, Outcome::Completed), start(9001, A, 1)]);
}

#[test]
fn a_bound_call_ends_with_its_server() {
    let gone = |call| done(call, Outcome::Rejected(RejectReason::BoundServerGone));
    let mut desk = TestBroker::new("least-load");
    desk.tell(Event::Joined(A, offer(&["f"], 1)));
    desk.tell(Event::Joined(B, offer(&["f"], 1)));
    let mut twice = bound("f", B);
    twice.idempotent = true;
    desk.tell(Event::Submit(CallId(1), twice));
    desk.tell(Event::Submit(CallId(2), bound("f", B)));
    // Its connection may come back.
    assert_eq!(desk.tell(Event::Away(B)), []);
    let waits = desk.tell(Event::Submit(CallId(3), bound("f", B)));
    assert_eq!(waits, [Action::Queued(CallId(3), 2)]);
    assert_eq!(desk.tell(Event::Rejoined(B, offer(&["f"], 1))), [], "what ran there runs on");
    let next = desk.tell(Event::Ended(CallId(1), 1, 1.0));
    assert_eq!(next, [done(1, Outcome::Completed), start(2, B, 1)]);
    // What may have begun is not begun again, though it may run twice.
    let mut runs = bound("f", A);
    runs.idempotent = true;
    desk.tell(Event::Submit(CallId(4), runs));
    let lost = desk.tell(Event::ServerLost(A));
    assert_eq!(lost, [done(4, Outcome::Lost(A))]);
    let lost = desk.tell(Event::ServerLost(B));
    assert_eq!(lost, [done(2, Outcome::Lost(B)), gone(3)]);
    // The server is not there, or does not offer the routine.
    desk.tell(Event::Joined(A, offer(&["f"], 1)));
    desk.tell(Event::Joined(B, offer(&["g"], 1)));
    assert_eq!(desk.tell(Event::Submit(CallId(5), bound("f", B))), [gone(5)]);
    assert_eq!(desk.tell(Event::Submit(CallId(6), bound("f", ServerId(7)))), [gone(6)]);
}

#[test]
fn bound_calls_end_when_their_server_leaves_or_stops_to_offer_the_routine() {
    let gone = |call| done(call, Outcome::Rejected(RejectReason::BoundServerGone));
    let mut desk = TestBroker::new("least-load");
    desk.tell(Event::Joined(A, offer(&["f"], 1)));
    desk.tell(Event::Joined(B, offer(&["f"], 1)));
    for id in 1..=3 {
        desk.tell(Event::Submit(CallId(id), bound("f", B)));
    }
    assert_eq!(desk.tell(Event::Left(B)), [gone(2), gone(3)]);
    assert_eq!(desk.tell(Event::Submit(CallId(4), bound("f", B))), [gone(4)], "it is leaving");
    assert_eq!(desk.tell(Event::Ended(CallId(1), 1, 1.0)), [done(1, Outcome::Completed)]);
    for id in 5..=6 {
        desk.tell(Event::Submit(CallId(id), bound("f", A)));
    }
    desk.tell(Event::Away(A));
    assert_eq!(desk.tell(Event::Rejoined(A, offer(&["g"], 1))), [gone(6)]);
}

#[test]
fn who_waits_for_a_busy_server_gathers_no_turns_at_others() {
    let mut desk = TestBroker::new("least-load");
    desk.tell(Event::Joined(A, offer(&["f"], 1)));
    desk.tell(Event::Joined(B, offer(&["f"], 1)));
    desk.tell(Event::Submit(CallId(1), bound("f", B)));
    let of = |user, request: Request| Request { user: UserId(user), ..request };
    desk.tell(Event::Submit(CallId(2), of(1, bound("f", B))));
    for id in 1000..1300 {
        desk.tell(Event::Submit(CallId(id), of(2, call("f"))));
    }
    for id in 1000..1100 {
        let next = desk.tell(Event::Ended(CallId(id), 1, 1.0));
        assert_eq!(next, [done(id, Outcome::Completed), start(id + 1, A, 1)]);
    }
    for id in 3000..3100 {
        desk.tell(Event::Submit(CallId(id), of(1, call("f"))));
    }
    let (mut runs, mut turns) = (1100, 0);
    for _ in 0..20 {
        let next = desk.tell(Event::Ended(CallId(runs), 1, 1.0));
        let [_, Action::Start(CallId(id), A, 1)] = next[..] else { panic!("{next:?}") };
        turns += usize::from(id >= 3000);
        runs = id;
    }
    assert!((9..=11).contains(&turns), "{turns} of 20 turns");
}
