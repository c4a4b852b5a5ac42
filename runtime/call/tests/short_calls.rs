//! Short calls, for which server and slots poll a shared mailbox.
#![forbid(unsafe_code)]

mod common;

use std::process::Command;

use common::{TestServer, config, served};
use kumi_call::{CallError, Client};
use kumi_idl::Scalar;

/// Calls of one client, each with its own values.
fn sums(client: &Client, of: u16, calls: u16) {
    for call in 0..calls {
        let x = [f32::from(of), f32::from(call), 0.5];
        let outcome = client.call("total", vec![3.into(), x.as_slice().into(), 2.0.into()]);
        let sum = outcome.expect("it runs").scalar(3);
        let expected = 2.0 * (f64::from(of) + f64::from(call) + 0.5);
        assert_eq!(sum, Some(Scalar::F64(expected)), "call {call} of client {of}");
    }
}

fn together(server: &TestServer, clients: u16, calls: u16) {
    std::thread::scope(|scope| {
        for of in 0..clients {
            scope.spawn(move || sums(&server.client(), of, calls));
        }
    });
}

#[test]
fn every_call_has_its_own_result() {
    let server = served(config());
    together(&server, 1, 500);
    together(&server, 4, 500);
}

#[test]
fn more_clients_than_slots_take_turns() {
    let mut one = config();
    one.slots = 1;
    let server = served(one);
    together(&server, 4, 300);
}

#[test]
fn calls_of_different_routines_share_slots() {
    let mut one = config();
    one.slots = 1;
    let server = served(one);
    let client = server.client();
    for round in 0..100 {
        sums(&client, round, 3);
        client.call("noop", vec![]).expect("it runs");
        let mut x = [1, 2, 3];
        client.call("negate", vec![3.into(), x.as_mut_slice().into()]).expect("it runs");
        assert_eq!(x, [-1, 2, -3]);
    }
}

#[test]
fn a_slot_that_is_killed_between_short_calls_costs_one_at_most() {
    let mut one = config();
    one.slots = 1;
    let server = served(one);
    let client = server.client();
    let pid = || match client.call("nap", vec![0.into()]) {
        Ok(outcome) => outcome.scalar(1).and_then(Scalar::integer),
        Err(CallError::Crashed { detail: 9, .. }) => None,
        Err(other) => panic!("{other:?}"),
    };
    let mut killed = 0;
    for _ in 0..40 {
        // The second of the two goes to a polling slot.
        let (Some(_), Some(found)) = (pid(), pid()) else { continue };
        let kill = Command::new("kill").args(["-9", &found.to_string()]).status();
        killed += usize::from(kill.expect("a command").success());
        let next = (0..2).find_map(|_| pid()).expect("a call after one that was lost runs");
        assert_ne!(next, found);
    }
    assert!(killed >= 20);
}
