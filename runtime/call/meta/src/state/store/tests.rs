//! What the tests of every store need: random histories, reopened at any point, against a model.

use std::collections::BTreeMap;

use kumi_rpc::Ticket;
use proptest::prelude::*;

use super::{PlacedCall, Store, WINDOW};
use crate::paths::Estimate;

/// One step of a history. Names are numbered.
#[derive(Debug, Clone)]
pub enum Step {
    Placed(u64, u32),
    Over(u64),
    Took(u8, u8, u32),
    Path(u8, u8, Option<u64>),
    Owner(u8, Option<u8>),
    Reopen,
}

/// Random histories.
pub fn histories() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..6_u64, 1..4_u32).prop_map(|(call, attempt)| Step::Placed(call, attempt)),
        3 => (0..6_u64).prop_map(Step::Over),
        8 => (0..2_u8, 0..2_u8, any::<u32>()).prop_map(|(who, what, size)| Step::Took(who, what, size)),
        2 => (0..2_u8, 0..2_u8, proptest::option::weighted(0.8, 0..u64::MAX >> 1))
            .prop_map(|(from, to, calls)| Step::Path(from, to, calls)),
        2 => (0..3_u8, proptest::option::of(0..3_u8)).prop_map(|(who, user)| Step::Owner(who, user)),
        1 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 1..120)
}

pub fn call(number: u64, attempt: u32) -> PlacedCall {
    PlacedCall {
        ticket: Ticket { call: number << 32 | number, attempt },
        key: (u64::MAX - number, number),
        identity: "a \"h\":1".into(),
        address: "h:1".into(),
        server: "a/…".into(),
        routine: "f".into(),
        hash: u64::MAX - u64::from(attempt),
        user: String::new(),
        site: "s\n".into(),
        bytes_out: number,
        bytes_back: u64::MAX,
        operations: number.is_multiple_of(2).then_some(1.5e300),
        idempotent: attempt == 1,
        bound: attempt == 3,
        priority: 255,
        until: (attempt == 2).then_some(u64::MAX >> 1),
    }
}

fn name(number: u8) -> String {
    format!("name/{number} ")
}

pub fn estimate(calls: u64) -> Estimate {
    Estimate { out: calls as f64, back: 0.0, latency: 0.25, calls }
}

/// The expected content.
#[derive(Debug, Default)]
pub struct Model {
    calls: BTreeMap<u64, PlacedCall>,
    times: BTreeMap<(u8, u8), Vec<(f64, f64)>>,
    paths: BTreeMap<(u8, u8), Estimate>,
    owners: BTreeMap<u8, u8>,
}

impl Model {
    /// Applies a step to both, unless it is the opening.
    pub fn step(&mut self, store: &mut dyn Store, step: &Step) {
        match *step {
            Step::Placed(number, attempt) => {
                let call = call(number, attempt);
                store.placed(&call);
                self.calls.insert(call.ticket.call, call);
            }
            Step::Over(number) => {
                let number = number << 32 | number;
                store.over(number);
                self.calls.remove(&number);
            }
            Step::Took(who, what, size) => {
                let (size, seconds) = (f64::from(size), 0.5);
                store.took(&name(who), &name(what), size, seconds);
                let times = self.times.entry((who, what)).or_default();
                times.push((size, seconds));
                let most = times.len().saturating_sub(WINDOW);
                times.drain(..most);
            }
            Step::Path(from, to, calls) => {
                let estimate = calls.map(estimate);
                store.path(&name(from), &name(to), estimate.as_ref());
                match estimate {
                    Some(estimate) => drop(self.paths.insert((from, to), estimate)),
                    None => drop(self.paths.remove(&(from, to))),
                }
            }
            Step::Owner(who, user) => {
                store.owner(&name(who), user.map(name).as_deref());
                match user {
                    Some(user) => drop(self.owners.insert(who, user)),
                    None => drop(self.owners.remove(&who)),
                }
            }
            Step::Reopen => {}
        }
    }

    /// Compares it with a store that was just opened.
    pub fn check(&self, store: &dyn Store) {
        let calls: Vec<PlacedCall> = self.calls.values().cloned().collect();
        assert_eq!(store.calls().expect("calls"), calls);
        for who in 0..2 {
            let times = store.times(&name(who)).expect("times");
            for what in 0..2 {
                let of_routine = times.iter().filter(|(routine, ..)| *routine == name(what));
                let found: Vec<(f64, f64)> = of_routine.map(|it| (it.1, it.2)).collect();
                assert_eq!(&found, self.times.get(&(who, what)).unwrap_or(&Vec::new()));
            }
        }
        let mut owners = store.owners().expect("owners");
        owners.sort();
        let owner = |(who, user): (&u8, &u8)| (name(*who), name(*user));
        assert_eq!(owners, self.owners.iter().map(owner).collect::<Vec<_>>());
        let mut paths = store.paths().expect("paths");
        paths.sort_by(|one, other| (&one.0, &one.1).cmp(&(&other.0, &other.1)));
        let path =
            |(&(from, to), estimate): (&(u8, u8), &Estimate)| (name(from), name(to), *estimate);
        assert_eq!(paths, self.paths.iter().map(path).collect::<Vec<_>>());
    }
}
