//! Refusals that nobody asked for.

use super::*;

/// A rank refuses what it was not asked: the receive stays, and its memory is the mailbox's until its message has come.
#[test]
fn a_refusal_of_what_nobody_asked_ends_nothing() {
    let (attachment, mut engine, _) = rank();
    let mut into = [0; 8];
    let request = Request::to(0, PendingRequest::Nothing);
    let place = engine.requests.add(request).expect("room");
    let token = engine.requests.token(place);
    // SAFETY: it outlives the receive, which ends here.
    let buffer = ReceiveBuffer::Lent(unsafe { SharedBytesMut::from(&mut into[..]).lend() });
    let wanted = MatchPattern { from: Source::Rank(0), tag: Tag::Is(3) };
    engine.post_receive(place, wanted, buffer);
    give(&attachment, &mut engine, &encode(&Frame::Refused { token, code: REFUSED_WINDOW }));
    assert!(engine.take_over(place).is_none(), "it waits for its message");
    let message = Frame::Message { tag: 3, total: 4, data: &[7; 4][..] };
    give(&attachment, &mut engine, &encode(&message));
    let over = engine.take_over(place).expect("it came");
    assert!(matches!(over.end, Some(RequestEnd::Received(status)) if status.len == 4), "{over:?}");
    assert_eq!(into, [7, 7, 7, 7, 0, 0, 0, 0]);
}
