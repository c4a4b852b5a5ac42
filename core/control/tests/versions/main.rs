//! The form of what is on the wire and in the job table stays that of the versions that are still understood.
//!
//! `15.txt` was made by the code of version 15 (`examples/vectors.rs`). Each line has a type, bytes, and what they mean as JSON.
//! A field that moves, a variant before others or another number format changes one of the two.

mod samples;
mod vectors;

use std::fmt::Debug;

use kumi_control::compat::{OLDEST_VERSION, Versioned, for_version};
use kumi_control::message::{ClientReply, ClientRequest, Command, Down, Report, Up};
use serde::Serialize;
use serde::de::DeserializeOwned;
use vectors::{Visit, visit_all};

/// What version 15 sent and kept.
const VERSION_15: &str = include_str!("15.txt");

struct Line {
    name: &'static str,
    bytes: Vec<u8>,
    meaning: &'static str,
}

fn lines() -> impl Iterator<Item = Line> {
    VERSION_15.lines().map(|line| {
        let mut parts = line.splitn(3, ' ');
        let mut part = || parts.next().expect("a line has three parts");
        let (name, digits, meaning) = (part(), part(), part());
        let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("two digits");
        Line { name, bytes: (0..digits.len()).step_by(2).map(byte).collect(), meaning }
    })
}

fn decode<T: DeserializeOwned>(line: &Line) -> T {
    let decoded = postcard::take_from_bytes(&line.bytes);
    let (value, rest) = decoded.unwrap_or_else(|error| {
        panic!("{} {}: {error}", line.name, line.meaning);
    });
    assert!(rest.is_empty(), "{} {}: bytes are left over", line.name, line.meaning);
    value
}

#[derive(Default)]
struct Reader {
    lines: usize,
}

impl Visit for Reader {
    fn visit<T>(&mut self, name: &'static str)
    where
        T: Serialize + DeserializeOwned + PartialEq + Debug,
    {
        let before = self.lines;
        for line in lines().filter(|line| line.name == name) {
            let value: T = decode(&line);
            let meaning = serde_json::to_string(&value).expect("it is JSON");
            assert_eq!(meaning, line.meaning, "{name} means something else than in version 15");
            let bytes = postcard::to_allocvec(&value).expect("it encodes");
            assert_eq!(bytes, line.bytes, "{name} {meaning}");
            self.lines += 1;
        }
        assert!(self.lines > before, "{name} has no vector");
    }
}

#[test]
fn all_of_version_15_is_read_and_written_as_that_version_did() {
    let mut reader = Reader::default();
    visit_all(&mut reader);
    assert_eq!(reader.lines, VERSION_15.lines().count());
}

/// What a peer of version 15 gets of each message of its version is the same message in the same bytes.
fn sent_as_it_was<T>(name: &str)
where
    T: Versioned + Serialize + DeserializeOwned + PartialEq + Debug,
{
    let mut kinds = 0;
    for line in lines().filter(|line| line.name == name) {
        let value: T = decode(&line);
        assert!(value.since() <= OLDEST_VERSION, "{value:?} is in version 15");
        let told = for_version(&value, OLDEST_VERSION).expect("version 15 knows it");
        let bytes = postcard::to_allocvec(&*told).expect("it encodes");
        assert_eq!(bytes, line.bytes, "{name} {}", line.meaning);
        kinds += 1;
    }
    assert!(kinds > 0, "{name} has no vector");
}

#[test]
fn a_peer_of_version_15_gets_every_message_of_its_version() {
    sent_as_it_was::<Down>("Down");
    sent_as_it_was::<Up>("Up");
    sent_as_it_was::<Command>("Command");
    sent_as_it_was::<Report>("Report");
    sent_as_it_was::<ClientRequest>("ClientRequest");
    sent_as_it_was::<ClientReply>("ClientReply");
}

/// A kind without a line would be checked by none of these tests.
#[test]
fn kinds_of_version_15_are_all_in_its_file() {
    let kinds = |name: &str| {
        let mut kinds: Vec<u8> =
            lines().filter(|line| line.name == name).map(|line| line.bytes[0]).collect();
        kinds.dedup();
        assert!(kinds.iter().copied().eq(0..kinds.len() as u8), "{name}: {kinds:?}");
        kinds.len()
    };
    let found = ["Down", "Up", "Command", "Report", "ClientRequest", "ClientReply"].map(kinds);
    assert_eq!(found, KINDS_15);
}

/// The number of kinds that version 15 had. A peer of that version cannot read any other.
const KINDS_15: [usize; 6] = [3, 3, 23, 15, 29, 25];

/// What is new has samples too, so that the next version's file has all of it.
#[test]
fn every_kind_of_this_version_has_a_sample() {
    // It panics and names those of which a variant does not occur.
    vectors::vectors();
}
