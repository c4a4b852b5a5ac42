//! Held arrays on servers with users.
#![forbid(unsafe_code)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{TestServer, config, served};
use kumi_call::users::{NewToken, Users, add};
use kumi_call::{Arg, CallError, Client, HeldNames, Options, RemoteArray};
use kumi_rpc::HeldArrayName;

fn token(file: &std::path::Path, user: &str) -> String {
    add(file, &NewToken { user: user.to_owned(), ..NewToken::default() }).expect("a token")
}

fn client(server: &TestServer, token: &str) -> Client {
    let options = Options { token: token.to_owned(), ..Options::default() };
    Client::connect(&server.address.to_string(), &options).expect("a connection")
}

fn fill(client: &Client, name: HeldArrayName) -> Result<(), CallError> {
    let y = Arg::Remote(Box::new(RemoteArray::stays(name, Duration::from_secs(60))));
    client.call("fill", vec![2.into(), 0.into(), 3.0.into(), y]).map(|_| ())
}

/// Adds the held array at `server` to ones.
fn sum(client: &Client, name: HeldArrayName, server: &str) -> Result<[f64; 2], CallError> {
    let x = Arg::Remote(Box::new(RemoteArray::held(name, 16, server)));
    let mut y = [1.0; 2];
    client.call("add", vec![2.into(), x, y.as_mut_slice().into()])?;
    Ok(y)
}

#[test]
fn arrays_are_those_of_the_user_who_made_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("users.toml");
    let (ada, bob) = (token(&file, "ada"), token(&file, "bob"));
    let mut config = config();
    config.users = Some(Arc::new(Users::open(&file).expect("users")));
    let server = served(config);
    let (hers, his) = (client(&server, &ada), client(&server, &bob));
    let name = HeldNames::new().expect("random bytes").fresh();
    fill(&hers, name).expect("it runs");

    let mut got = [0.0; 2];
    let error = his.fetch(name, 0, &mut got).expect_err("it is not his");
    assert!(matches!(error, CallError::NotHeld { yet: false, .. }), "{error:?}");
    let error = sum(&his, name, "").expect_err("it is not his");
    assert!(matches!(error, CallError::NotHeld { yet: false, .. }), "{error:?}");
    his.let_go(&[name]).expect("it is sent");
    // The answer comes after the release.
    his.call("noop", vec![]).expect("it runs");
    assert_eq!(sum(&client(&server, &ada), name, "").expect("it is hers"), [4.0; 2]);

    // He does not take her place even when her connection is lost.
    let other = client(&server, &ada);
    hers.disconnect();
    for _ in 0..20 {
        his.fetch(name, 0, &mut got).expect_err("it is not his");
        std::thread::sleep(Duration::from_millis(5));
    }
    other.fetch(name, 0, &mut got).expect("it is hers");
    assert_eq!(got, [3.0; 2]);
    other.let_go(&[name]).expect("it is sent");
    assert!(matches!(other.fetch(name, 0, &mut got), Err(CallError::NotHeld { .. })));

    // Other servers have no token: they get nothing, and report it.
    fill(&other, name).expect("it runs");
    let plain = served(common::config());
    let address = server.address.to_string();
    for address in [address.clone(), format!("tls://{address}")] {
        let error = sum(&plain.client(), name, &address).expect_err("it has no token");
        assert!(matches!(error, CallError::NoSource(_)) && error.has_not_run(), "{error:?}");
    }
}
