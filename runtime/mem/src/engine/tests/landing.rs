//! Data that a wire lays where it belongs.

use super::*;

/// Memory is on offer to a wire only while an answer comes, and only a frame that goes on with it is in its place.
#[test]
fn the_rest_of_an_answer_is_expected_once_its_first_bytes_have_come() {
    let (attachment, mut engine, _) = rank();
    let mut buffers = [[0u8; 64]; 2];
    let start = buffers.as_ptr().addr();
    for buffer in &mut buffers {
        // SAFETY: the buffers outlive the requests, and are read by nobody else until these are over.
        let into = unsafe { SharedBytesMut::from(&mut buffer[..]).lend() };
        let pending = PendingRequest::Bytes { into, received: 0 };
        engine.requests.add(Request::to(1, pending)).expect("room");
    }
    let tokens = [0, 1].map(|place| engine.requests.token(place));
    let reply = |at, token, data| encode(&Frame::GetReply { token, offset_in_request: at, data });
    let place = |engine: &Engine| {
        engine.expected().map(|now| (now.header, now.memory.as_ptr().addr(), now.memory.len()))
    };
    assert_eq!(place(&engine), None, "it may still be refused");
    engine.frame(&attachment, 1, &reply(0, tokens[0], &[1; 10])[..]);
    assert_eq!(place(&engine), Some((16, start + 10, 54)));
    let head = reply(10, tokens[0], &[2; 8]);
    assert!(engine.is_expected(1, &head, 20) && engine.is_expected(1, &head, 46));
    let wrong = [
        (2, reply(10, tokens[0], &[2; 8]), 20),
        (1, reply(10, tokens[0], &[2; 8]), 47),
        (1, reply(11, tokens[0], &[2; 8]), 20),
        (1, reply(9, tokens[0], &[2; 8]), 20),
        (1, reply(10, tokens[1], &[2; 8]), 20),
        (1, reply(10, 7, &[2; 8]), 20),
        (1, encode(&Frame::Put { window: 7, offset: 10, notify: None, data: &[2; 8] }), 20),
        (1, vec![0xff; 30], 20),
    ];
    for (from, head, rest) in &wrong {
        assert!(!engine.is_expected(*from, head, *rest), "{from} {head:?} {rest}");
    }
    // What lies in its place already is not written.
    assert_eq!(engine.landed(&attachment, 1, &head, 20), Delivery::Taken);
    assert_eq!(place(&engine), Some((16, start + 38, 26)));
    engine.frame(&attachment, 1, &reply(0, tokens[1], &[3; 4])[..]);
    assert_eq!(place(&engine), Some((16, start + 64 + 4, 60)), "the answer that came last");
    let refusal = encode(&Frame::Refused { token: tokens[1], code: REFUSED_RIGHT });
    engine.frame(&attachment, 1, &refusal[..]);
    assert_eq!(place(&engine), None, "it is over");
    assert_eq!(engine.landed(&attachment, 1, &reply(38, tokens[0], &[4; 6]), 20), Delivery::Taken);
    assert!(matches!(engine.take_over(0).and_then(|over| over.end), Some(RequestEnd::Done)));
    assert_eq!((place(&engine), engine.fault.take()), (None, None));
    let parts = [(1, 10), (2, 8), (0, 20), (4, 6), (0, 20)];
    let expected = parts.map(|(byte, count)| vec![byte; count]).concat();
    assert_eq!(buffers[0][..], expected);
}
