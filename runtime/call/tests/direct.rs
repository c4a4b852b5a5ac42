//! Clients of a server by hand: what they send of a call, and what they take from a server that means them no good.
#![forbid(unsafe_code)]

#[path = "common/hand.rs"]
mod hand;

use std::path::Path;

use hand::{CALL, CANCEL, Hand};
use kumi_call::{CallError, Client, Files, Options};
use kumi_idl::Interface;

fn interface(text: &str) -> Interface {
    let parsed = kumi_idl::parse(text.as_bytes());
    parsed.module.unwrap_or_else(|| panic!("{:?}", parsed.diagnostics)).interfaces.remove(0)
}

/// What comes of a file of which a server says this length; in the folder there is nothing but `to`, which has "before".
fn coming(options: &Options, length: u64, folder: &Path) -> CallError {
    let copy = interface("Define copy(mode_out filename to) Calls copy(to);");
    let (address, server) = Hand::attends(&copy, 1 << 20, move |hand| {
        let Some((stream, CALL, _)) = hand.next() else { panic!("no call") };
        hand.announce_files(stream, &[(0, length)]);
        // A beginning, which is nowhere to be seen.
        hand.say(stream, 4, 0, &[7; 1000]);
        let Some((cancelled, CANCEL, _)) = hand.next() else { panic!("it is not cancelled") };
        assert_eq!(cancelled, stream);
    });
    let to = folder.join("to");
    std::fs::write(&to, "before").expect("written");
    let client = Client::connect(&address, options).expect("a connection");
    let error = client.call("copy", vec![Files::to(&to).into()]).expect_err("it is too long");
    server.join().expect("a server that was told");
    drop(client);
    assert_eq!(std::fs::read(&to).expect("it is there"), b"before");
    assert_eq!(std::fs::read_dir(folder).expect("a folder").count(), 1);
    error
}

#[test]
fn a_file_that_is_too_long_does_not_come_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let said = |options: &Options, length| match coming(options, length, folder.path()) {
        CallError::File(text) => text,
        other => panic!("{other:?}"),
    };
    let usual = Options::default();
    assert_eq!(usual.file_bytes, 16 << 30);
    assert!(said(&usual, (16 << 30) + 1).contains("17179869185 bytes"));
    assert!(said(&usual, u64::MAX).contains("more than the 17179869184"));
    let few = Options { file_bytes: 4096, ..Options::default() };
    assert!(said(&few, 4097).contains("more than the 4096"));
}
