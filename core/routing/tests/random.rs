//! Events in any order: a call ends once, no place is told in two ways, and a call that may not run twice is begun again only
//! at the word of a metaserver that knows its last attempt.

use std::collections::{BTreeMap, BTreeSet};

use kumi_routing::{Action, Call, Event, Outcome, RetryReason, Rules};
use proptest::prelude::*;

/// An event; a place is the latest or a new one.
#[derive(Clone, Copy, Debug)]
enum Step {
    Asked,
    PlacedAgain,
    PlacedAnew,
    RequestEnded,
    MetaserverLost,
    NoMetaserver,
    Sent,
    Done,
    Failed,
    NotBegun,
    Broken,
    Left,
    Stays,
    Stopped,
    Pass(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => Just(Step::Asked),
        4 => Just(Step::PlacedAgain),
        12 => Just(Step::PlacedAnew),
        2 => Just(Step::RequestEnded),
        6 => Just(Step::MetaserverLost),
        1 => Just(Step::NoMetaserver),
        8 => Just(Step::Sent),
        1 => Just(Step::Done),
        1 => Just(Step::Failed),
        6 => Just(Step::NotBegun),
        4 => Just(Step::Broken),
        6 => Just(Step::Left),
        2 => Just(Step::Stays),
        1 => Just(Step::Stopped),
        4 => (1..20u64).prop_map(Step::Pass),
    ]
}

/// What an onlooker knows.
#[derive(Default)]
struct Judge {
    started: Vec<u32>,
    reports: BTreeMap<u32, Outcome>,
    /// Places that the metaserver took away while the call was there.
    taken: BTreeSet<u32>,
    wanted: bool,
    /// The request that is open, and whether its metaserver knows the last attempt.
    request: Option<bool>,
    leaves: bool,
    over: bool,
    /// The last attempt may have begun.
    uncertain: bool,
    first_failure: Option<u64>,
    /// Even or odd: the places of the only server.
    bound: Option<u32>,
    broken: bool,
}

impl Judge {
    /// Whether the event is one that a driver could give.
    fn event(&self, step: Step, new: u32) -> Option<Event<u32, u8>> {
        Some(match step {
            Step::Asked if self.wanted => Event::Asked,
            Step::PlacedAgain => Event::Placed(*self.started.last()?),
            Step::PlacedAnew => Event::Placed(new),
            Step::RequestEnded => Event::RequestEnded(1),
            Step::MetaserverLost => Event::MetaserverLost,
            Step::NoMetaserver => Event::NoMetaserver(2),
            Step::Sent => Event::Sent,
            Step::Done => Event::Done,
            Step::Failed => Event::Failed(3),
            Step::NotBegun => Event::NotBegun(4),
            Step::Broken => Event::Broken(5),
            Step::Left if self.leaves => Event::Left,
            Step::Stays if self.leaves => Event::Stays,
            Step::Stopped => Event::Stopped(6),
            Step::Pass(_) => Event::Tick,
            Step::Asked | Step::Left | Step::Stays => return None,
        })
    }

    /// Before the call gets the event. Returns whether its metaserver knew the last attempt.
    fn before(&mut self, now: u64, event: &Event<u32, u8>, has_attempt: bool) -> bool {
        // Who has it left knew it.
        let knew = self.leaves || self.request == Some(true);
        match event {
            Event::Asked => {
                self.wanted = false;
                self.request = Some(self.started.is_empty());
            }
            Event::Placed(place)
                if self.request.is_some()
                    && (self.started.last() == Some(place) || !has_attempt) =>
            {
                self.request = Some(true);
            }
            Event::RequestEnded(_) | Event::MetaserverLost if self.request.is_some() => {
                self.request = None;
            }
            Event::NotBegun(_) | Event::Broken(_) if has_attempt => {
                self.uncertain |= matches!(event, Event::Broken(_));
                self.broken |= matches!(event, Event::Broken(_));
                self.first_failure.get_or_insert(now);
                self.leaves = false;
            }
            Event::Left => {
                self.first_failure.get_or_insert(now);
                (self.leaves, self.uncertain) = (false, true);
            }
            Event::Stays => {
                self.leaves = false;
                self.taken.remove(self.started.last().expect("an attempt stays"));
            }
            _ => {}
        }
        knew
    }

    fn action(&mut self, rules: Rules, now: u64, knew: bool, action: &Action<u32, u8>) {
        assert!(!self.over, "{action:?} after the end");
        match action {
            Action::Ask => {
                assert!(!self.wanted && self.request.is_none(), "asked twice");
                let safe = rules.idempotent || !self.uncertain;
                assert!(safe, "another metaserver is asked for a call that may have run");
                self.wanted = true;
            }
            Action::Start(place) => {
                assert!(!self.started.contains(place), "a place is used twice");
                assert!(self.bound.is_none_or(|server| place % 2 == server), "begun elsewhere");
                assert!(self.bound.is_none() || !self.broken, "its arrays may be gone");
                let first = self.started.is_empty();
                assert!(first || rules.idempotent || !self.uncertain || knew, "it may run twice");
                let late = |since: u64| rules.retry_time.is_some_and(|time| since + time <= now);
                assert!(!self.first_failure.is_some_and(late), "begun too late");
                if !first {
                    self.first_failure.get_or_insert(now);
                }
                self.started.push(*place);
                self.uncertain = false;
            }
            Action::Leave => {
                assert!(knew, "a metaserver that does not know the attempt has it left");
                self.leaves = true;
                self.taken.extend(self.started.last());
            }
            Action::Report(place, outcome) => {
                assert!(self.started.contains(place));
                let before = *self.reports.entry(*place).or_insert(*outcome);
                assert_eq!(before, *outcome, "the place {place} ended twice");
            }
            Action::CancelRequest | Action::CloseRequest => {
                assert!(self.request.take().is_some(), "there is no request");
            }
            Action::End(_) => self.over = true,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 4096 }))]
    #[test]
    fn whatever_happens(
        idempotent: bool,
        retry_time in prop::option::of(0..60u64),
        bound in prop::option::of(0..2u32),
        steps in prop::collection::vec(step(), 0..80),
    ) {
        let rules = Rules { idempotent, retry_time };
        let mut call: Call<u32, u8, u32> = match bound {
            Some(server) => Call::bound(rules, server, |place, server| place % 2 == *server),
            None => Call::new(rules),
        };
        let (mut judge, mut now) = (Judge { bound, ..Judge::default() }, 0);
        for (new, step) in (1..).zip(steps) {
            while let Some(action) = call.poll() {
                judge.action(rules, now, false, &action);
            }
            if let Step::Pass(time) = step {
                now += time;
            }
            let Some(event) = judge.event(step, new) else { continue };
            let knew = if judge.over { false } else { judge.before(now, &event, call.has_attempt()) };
            call.handle(now, event);
            while let Some(action) = call.poll() {
                judge.action(rules, now, knew, &action);
            }
            prop_assert_eq!(call.wants_metaserver(), judge.wanted && !judge.over);
            prop_assert_eq!(call.last(), judge.started.last());
        }
        // The error names every attempt but the last, and each once.
        let tried: Vec<u32> = call.tried().iter().map(|(place, _)| *place).collect();
        prop_assert!(judge.started.starts_with(&tried), "{tried:?} of {:?}", judge.started);
        prop_assert!(judge.started.len() - tried.len() <= 1);
        for (place, why) in call.tried() {
            let taken = *why == RetryReason::Superseded || judge.taken.contains(place);
            prop_assert!(judge.reports.contains_key(place) != taken, "{place} is told, or else taken away");
        }
        if judge.over && tried.len() < judge.started.len() {
            prop_assert!(judge.reports.contains_key(&judge.started[tried.len()]));
        }
    }
}
