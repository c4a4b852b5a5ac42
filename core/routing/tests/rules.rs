//! What a call does, event by event.

use kumi_routing::{Action, Call, CallEnd, Event, GiveUpReason, Outcome, RetryReason, Rules};

type Error = &'static str;
type Actions = Vec<Action<u32, Error>>;

struct Run(Call<u32, Error, u32>);

impl Run {
    fn new(idempotent: bool) -> Run {
        Run::with(Rules { idempotent, retry_time: None })
    }

    fn with(rules: Rules) -> Run {
        let mut run = Run(Call::new(rules));
        assert_eq!(run.actions(), [Action::Ask]);
        run
    }

    fn actions(&mut self) -> Actions {
        std::iter::from_fn(|| self.0.poll()).collect()
    }

    fn at(&mut self, now: u64, event: Event<u32, Error>) -> Actions {
        self.0.handle(now, event);
        self.actions()
    }

    fn on(&mut self, event: Event<u32, Error>) -> Actions {
        self.at(0, event)
    }

    /// A call that is bound to the server of the even places, or to that of the odd ones.
    fn bound(idempotent: bool, server: u32) -> Run {
        let rules = Rules { idempotent, retry_time: None };
        let mut run = Run(Call::bound(rules, server, |place, server| place % 2 == *server));
        assert_eq!(run.actions(), [Action::Ask]);
        assert_eq!(run.on(Event::Asked), []);
        run
    }

    /// A call that runs at the place 1.
    fn running(idempotent: bool) -> Run {
        let mut run = Run::new(idempotent);
        assert_eq!(run.on(Event::Asked), []);
        assert_eq!(run.on(Event::Placed(1)), [Action::Start(1)]);
        assert_eq!(run.on(Event::Sent), []);
        run
    }
}

fn given_up(why: GiveUpReason<Error>) -> Action<u32, Error> {
    Action::End(CallEnd::GivenUp(why))
}

#[test]
fn a_call_that_runs_at_once() {
    let mut run = Run::running(false);
    let done = [Action::Report(1, Outcome::Done), Action::CloseRequest, Action::End(CallEnd::Done)];
    assert_eq!(run.on(Event::Done), done);
    assert_eq!(run.on(Event::Broken("late")), []);
    assert!(run.0.tried().is_empty());
}

#[test]
fn a_call_that_did_not_begin_gets_the_next_place() {
    let mut run = Run::running(false);
    assert_eq!(run.on(Event::NotBegun("busy")), [Action::Report(1, Outcome::NotBegun)]);
    assert_eq!(run.on(Event::Placed(2)), [Action::Start(2)]);
    assert_eq!(run.0.tried(), [(1, RetryReason::Failed(Box::new("busy")))]);
    assert!(!run.0.may_have_run());
}

#[test]
fn the_metaserver_that_knows_a_broken_attempt_decides() {
    let mut run = Run::running(false);
    assert_eq!(run.on(Event::Broken("lost")), [Action::Report(1, Outcome::Broken)]);
    assert!(run.0.may_have_run());
    let end = [given_up(GiveUpReason::Because("its server is gone"))];
    assert_eq!(run.on(Event::RequestEnded("its server is gone")), end);
}

#[test]
fn a_broken_call_asks_no_other_metaserver_unless_it_may_run_twice() {
    for idempotent in [false, true] {
        let mut run = Run::running(idempotent);
        run.on(Event::Broken("lost"));
        let then = if idempotent { Action::Ask } else { given_up(GiveUpReason::Unknown) };
        assert_eq!(run.on(Event::MetaserverLost), [then]);
    }
}

#[test]
fn a_call_that_breaks_before_a_new_metaserver_has_spoken() {
    for idempotent in [false, true] {
        let mut run = Run::running(idempotent);
        assert_eq!(run.on(Event::MetaserverLost), [Action::Ask]);
        assert_eq!(run.on(Event::Asked), []);
        let mut then = vec![Action::Report(1, Outcome::Broken)];
        if !idempotent {
            then.extend([Action::CancelRequest, given_up(GiveUpReason::Unknown)]);
        }
        assert_eq!(run.on(Event::Broken("lost")), then);
        // Named before the report was read: no second attempt there.
        assert_eq!(run.on(Event::Placed(1)), []);
        let then: &[Action<u32, Error>] = if idempotent { &[Action::Start(2)] } else { &[] };
        assert_eq!(run.on(Event::Placed(2)), then);
    }
}

#[test]
fn a_report_goes_to_the_next_metaserver_too() {
    let mut run = Run::running(true);
    assert_eq!(run.on(Event::NotBegun("full")), [Action::Report(1, Outcome::NotBegun)]);
    assert_eq!(run.on(Event::MetaserverLost), [Action::Ask]);
    assert_eq!(run.on(Event::Asked), [Action::Report(1, Outcome::NotBegun)]);
}

#[test]
fn a_running_call_rejoins_a_metaserver_that_knows_it() {
    let mut run = Run::running(false);
    run.on(Event::MetaserverLost);
    assert_eq!(run.on(Event::NoMetaserver("none")), [], "the attempt goes on");
    assert!(run.0.wants_metaserver());
    run.on(Event::Asked);
    assert_eq!(run.on(Event::Placed(1)), []);
    assert_eq!(run.on(Event::Placed(2)), [Action::Leave], "its word counts now");
}

#[test]
fn a_running_call_wants_no_place_of_a_metaserver_that_does_not_know_it() {
    let mut run = Run::running(true);
    run.on(Event::MetaserverLost);
    run.on(Event::Asked);
    assert_eq!(run.on(Event::Placed(2)), [Action::CancelRequest]);
    assert_eq!(run.on(Event::Done), [Action::Report(1, Outcome::Done), Action::End(CallEnd::Done)]);
}

#[test]
fn a_call_that_its_metaserver_has_moved() {
    let mut run = Run::running(false);
    assert_eq!(run.on(Event::Placed(2)), [Action::Leave]);
    assert_eq!(run.on(Event::Placed(3)), [], "the attempt is not left yet");
    assert_eq!(run.on(Event::Left), [Action::Start(3)]);
    assert_eq!(run.0.tried(), [(1, RetryReason::Superseded)]);
}

#[test]
fn a_call_that_cannot_leave_gives_the_new_place_back() {
    let mut run = Run::running(false);
    assert_eq!(run.on(Event::Placed(2)), [Action::Leave]);
    assert_eq!(run.on(Event::Stays), [Action::CancelRequest]);
    let broke = run.on(Event::Broken("lost"));
    assert_eq!(broke, [Action::Report(1, Outcome::Broken), given_up(GiveUpReason::Unknown)]);
}

#[test]
fn a_metaserver_that_goes_while_a_call_moves_is_asked_for_the_new_place() {
    let mut run = Run::running(false);
    run.on(Event::Placed(2));
    assert_eq!(run.on(Event::MetaserverLost), []);
    assert_eq!(run.on(Event::Left), [Action::Start(2), Action::Ask]);
    run.on(Event::Asked);
    assert_eq!(run.on(Event::Placed(2)), []);
}

#[test]
fn before_anything_is_sent_a_call_moves_at_once() {
    let mut run = Run::new(false);
    run.on(Event::Asked);
    run.on(Event::Placed(1));
    assert_eq!(run.on(Event::Placed(2)), [Action::Start(2)]);
    assert!(!run.0.may_have_run());
}

#[test]
fn a_call_that_is_stopped() {
    let mut waits = Run::new(false);
    waits.on(Event::Asked);
    let end = [Action::CancelRequest, given_up(GiveUpReason::Because("stopped"))];
    assert_eq!(waits.on(Event::Stopped("stopped")), end);
    let mut runs = Run::running(false);
    let end = [
        Action::Report(1, Outcome::Failed),
        Action::CloseRequest,
        Action::End(CallEnd::Failed("stopped")),
    ];
    assert_eq!(runs.on(Event::Stopped("stopped")), end);
}

#[test]
fn further_attempts_begin_only_while_there_is_time() {
    let rules = Rules { idempotent: true, retry_time: Some(10) };
    let mut run = Run::with(rules);
    run.at(0, Event::Asked);
    assert_eq!(run.at(50, Event::Placed(1)), [Action::Start(1)], "the first has no limit");
    run.at(100, Event::NotBegun("full"));
    assert_eq!(run.0.wakes_at(), Some(110));
    assert_eq!(run.at(109, Event::Placed(2)), [Action::Start(2)]);
    assert_eq!(run.0.wakes_at(), None, "an attempt may run as long as it likes");
    let failed = run.at(110, Event::NotBegun("full"));
    // So that the metaserver places it nowhere else.
    let end = [
        Action::Report(2, Outcome::Failed),
        Action::CloseRequest,
        given_up(GiveUpReason::RetryTime),
    ];
    assert_eq!(failed, end);
}

#[test]
fn time_ends_a_call_that_waits_for_another_attempt() {
    let mut run = Run::with(Rules { idempotent: true, retry_time: Some(10) });
    run.at(0, Event::Asked);
    run.at(0, Event::Placed(1));
    run.at(5, Event::NotBegun("full"));
    assert_eq!(run.at(14, Event::Tick), []);
    assert_eq!(run.at(15, Event::Tick), [Action::CancelRequest, given_up(GiveUpReason::RetryTime)]);
}

#[test]
fn a_bound_call_runs_at_its_server() {
    let mut run = Run::bound(false, 1);
    assert_eq!(run.on(Event::Placed(3)), [Action::Start(3)]);
    assert_eq!(run.on(Event::NotBegun("busy")), [Action::Report(3, Outcome::NotBegun)]);
    assert_eq!(run.on(Event::Placed(5)), [Action::Start(5)], "another attempt there");
    run.on(Event::Sent);
    let done = [Action::Report(5, Outcome::Done), Action::CloseRequest, Action::End(CallEnd::Done)];
    assert_eq!(run.on(Event::Done), done);
}

#[test]
fn a_bound_call_gives_a_place_elsewhere_back_and_ends() {
    let end = [Action::CancelRequest, given_up(GiveUpReason::Elsewhere)];
    let mut waits = Run::bound(true, 1);
    assert_eq!(waits.on(Event::Placed(2)), end);
    let mut connects = Run::bound(true, 1);
    connects.on(Event::Placed(1));
    assert_eq!(connects.on(Event::Placed(2)), end);
    let mut runs = Run::bound(true, 1);
    runs.on(Event::Placed(1));
    runs.on(Event::Sent);
    assert_eq!(runs.on(Event::Placed(2)), [Action::Leave]);
    assert_eq!(runs.on(Event::Left), end);
}

#[test]
fn a_bound_call_whose_attempt_was_taken_back_while_it_ran_has_no_other() {
    let mut run = Run::bound(true, 1);
    run.on(Event::Placed(1));
    run.on(Event::Sent);
    assert_eq!(run.on(Event::Placed(3)), [Action::Leave], "the same server");
    assert_eq!(run.on(Event::Left), [Action::CancelRequest, given_up(GiveUpReason::Unknown)]);
}

#[test]
fn a_bound_call_that_may_have_begun_has_had_its_last_attempt() {
    for idempotent in [false, true] {
        let mut run = Run::bound(idempotent, 1);
        run.on(Event::Placed(1));
        run.on(Event::Sent);
        // So that the metaserver places it nowhere else.
        let end = [
            Action::Report(1, Outcome::Failed),
            Action::CloseRequest,
            Action::End(CallEnd::Failed("lost")),
        ];
        assert_eq!(run.on(Event::Broken("lost")), end);
        assert!(run.0.may_have_run());
    }
}

#[test]
fn a_bound_call_that_breaks_while_it_is_moved_ends_too() {
    let mut run = Run::bound(true, 1);
    run.on(Event::Placed(1));
    run.on(Event::Sent);
    run.on(Event::Placed(3));
    let end = [
        Action::Report(1, Outcome::Failed),
        Action::CancelRequest,
        Action::End(CallEnd::Failed("lost")),
    ];
    assert_eq!(run.on(Event::Broken("lost")), end);
}

#[test]
fn a_bound_call_that_runs_outlives_its_metaserver() {
    let mut run = Run::bound(false, 1);
    run.on(Event::Placed(1));
    run.on(Event::Sent);
    assert_eq!(run.on(Event::MetaserverLost), [Action::Ask]);
    run.on(Event::Asked);
    assert_eq!(run.on(Event::Placed(2)), [Action::CancelRequest], "it does not know the attempt");
    assert_eq!(run.on(Event::Done), [Action::Report(1, Outcome::Done), Action::End(CallEnd::Done)]);
}
