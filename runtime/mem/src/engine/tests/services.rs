//! Messages to services, as frames of another rank.

use kumi_proto::frame::ServiceMessage;

use super::*;
use crate::service::{Outbox, Service};

/// Answers with what it gets, twice.
struct Double;

impl Service for Double {
    fn message(&mut self, from: u32, message: &[u8], outbox: &mut Outbox) {
        outbox.send(from, [message, message].concat()).expect("a rank");
    }
}

fn serving() -> (Attachment, Engine) {
    let (attachment, mut engine, _) = rank();
    engine.services.join(1, 2, Default::default());
    assert_eq!(engine.services.add(Box::new(Double)).expect("a number"), 0);
    (attachment, engine)
}

fn message(service: u16, total: u32, data: &[u8]) -> Vec<u8> {
    encode(&Frame::Service(ServiceMessage { service, total, data }))
}

#[test]
fn a_service_answers_with_the_other_answers() {
    let (attachment, mut engine) = serving();
    assert!(give(&attachment, &mut engine, &message(0, 3, b"a")).is_empty());
    assert!(!engine.owes_answers());
    let part = encode(&Frame::ServicePart { data: b"bc" });
    assert_eq!(give(&attachment, &mut engine, &part), [message(0, 6, b"abcabc")]);
    // Of 200 bytes each.
    let answers = give(&attachment, &mut engine, &message(0, 150, &[7; 150]));
    let rest = encode(&Frame::ServicePart { data: &[7; 108] });
    assert_eq!(answers, [message(0, 300, &[7; 192]), rest]);
    assert_eq!(engine.fault, None);
}

#[test]
fn what_no_rank_sends_to_a_service_is_a_fault() {
    let cases = [
        (message(1, 0, b""), "service 1, which there is not"),
        (message(0, u32::MAX, b""), "4294967295 bytes"),
        (encode(&Frame::ServicePart { data: b"x" }), "part of no message"),
    ];
    for (frame, text) in cases {
        let (attachment, mut engine) = serving();
        assert!(give(&attachment, &mut engine, &frame).is_empty());
        let fault = engine.fault.expect("a fault");
        assert!(
            fault.contains("rank 0 sent what no rank sends") && fault.contains(text),
            "{fault}"
        );
    }
}
