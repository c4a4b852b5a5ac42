//! A client notices a lost connection before it calls.
#![forbid(unsafe_code)]

mod common;

use common::{config, served};
use kumi_call::CallError;

#[test]
fn a_lost_connection_is_seen_without_a_call() {
    let mut server = served(config());
    let client = server.client();
    assert!(!client.is_lost());
    client.call("noop", vec![]).expect("it runs");
    let call = client.call_async("nap", vec![1.into()], None).expect("it begins");
    assert!(!client.is_lost());
    drop(call);
    assert!(!client.is_lost());
    // The server has closed its connections when this returns.
    server.stop();
    assert!(client.is_lost());
    assert!(matches!(client.call("noop", vec![]), Err(CallError::Lost(_))));
}
