//! Tests with frames that no rank of this library sends: memory stays as it was, and the answer is a
//! refusal.

use super::*;
use kumi_proto::frame::{
    MulticastAppend, REFUSED_ALIGNMENT, REFUSED_BOUNDS, REFUSED_FIFO, REFUSED_NOTIFY,
    REFUSED_RECORD, REFUSED_RIGHT, REFUSED_WINDOW, Width,
};
use proptest::prelude::*;

mod landing;
mod racing;
mod refusals;
mod services;

use crate::fifo::queue::{MARK_FIFO, Queue};
use crate::message::mailbox::{MatchPattern, ReceiveBuffer, Source, Tag};
use crate::request::table::{PendingRequest, Request, RequestEnd};
use crate::window::pieces::LentBuffers;
use crate::window::table::{Rights, WindowMemory};
use kumi_proto::frame::Operation;

const NONE: Rights = Rights { write: false, read: false, atomic: false };
/// Windows of a [`rank`].
const OPEN: usize = 0;
const SEALED: usize = 1;
const LENT: usize = 2;

/// A rank alone, with windows of 64 zero bytes: one in the segment with all rights, one there without
/// rights, and one in its own memory with all rights.
fn rank() -> (Attachment, Engine, [WindowMemory; 3]) {
    let attachment = Attachment::singleton(1 << 20).expect("attachment");
    let mut engine = Engine::new(1000, attachment.arena_bytes(), RandomSource::Seeded(9));
    let windows = &mut engine.windows;
    let open = windows.create(&attachment, 64, Rights::ALL).expect("window");
    let sealed = windows.create(&attachment, 64, NONE).expect("window");
    let own = Box::leak(Box::new([0u64; 8]));
    // SAFETY: leaked, and from here on used by raw copies and atomics only.
    let lent = unsafe { windows.lend(&attachment, own.as_mut_ptr().cast(), 64, Rights::ALL) };
    let pieces = [open, sealed, lent.expect("window")];
    for piece in &pieces {
        windows.know(piece.key, [piece.key].into());
    }
    (attachment, engine, pieces)
}

/// Gives the engine a frame; all answers it owes then.
fn give(attachment: &Attachment, engine: &mut Engine, frame: &[u8]) -> Vec<Vec<u8>> {
    assert_eq!(engine.frame(attachment, 0, frame), Delivery::Taken);
    let mut answers = Vec::new();
    let mut send = |to, parts: &[&[u8]], data: SharedBytes<'_>| {
        assert_eq!(to, 0);
        answers.push([parts.concat(), data.to_vec()].concat());
        Ok(true)
    };
    engine.answer(200, &mut send).expect("answer");
    answers
}

fn encode(frame: &PlainFrame<'_>) -> Vec<u8> {
    [&frame.header(), frame.list(), frame.data()].concat()
}

fn contents(piece: WindowMemory) -> [u8; 64] {
    // SAFETY: the window has 64 bytes, and nobody else uses it.
    unsafe { piece.base.cast::<[u8; 64]>().read() }
}

fn refused(token: u64, code: u8) -> Vec<Vec<u8>> {
    vec![encode(&Frame::Refused { token, code })]
}

/// The request for an operation at an offset, with token 9.
fn operations(window: u64, offset: u64) -> Vec<PlainFrame<'static>> {
    let (token, last, notify, data) = (9, true, None, &[7; 8][..]);
    let atomic = |operation, width| Frame::AtomicRequest {
        token,
        window,
        offset,
        operation,
        width,
        operand: 7,
        operand2: 0,
    };
    vec![
        Frame::PutCounted { token, last, window, offset, notify, data },
        Frame::PutStrided { token, last, window, offset, stride: 4, block: 4, notify, data },
        Frame::GetRequest { token, window, offset, len: 8 },
        Frame::GetStrided { token, window, offset, stride: 4, block: 4, count: 2 },
        Frame::Multicast { token, window, offset, notify, members: &[], data },
        atomic(Operation::FetchAdd, Width::Eight),
        atomic(Operation::Swap, Width::Eight),
        atomic(Operation::CompareSwap, Width::Eight),
        atomic(Operation::FetchOr, Width::Four),
    ]
}

/// The refusal in an answer with token 9.
fn code(answers: &[Vec<u8>]) -> Option<u8> {
    assert_eq!(answers.len(), 1, "{answers:?}");
    match Frame::decode(&answers[0]).expect("a frame") {
        Frame::Refused { token: 9, code } => Some(code),
        Frame::MulticastDone { token: 9, refused } => refused.map(|(rank, code)| {
            assert_eq!(rank, 0);
            code
        }),
        _ => None,
    }
}

#[test]
fn no_operation_gets_anywhere_by_a_wrong_key_a_wild_offset_or_without_the_right() {
    let (attachment, mut engine, pieces) = rank();
    let [open, sealed, lent] = pieces.map(|piece| piece.key);
    let mut count = 0;
    let mut refuse = |window, offset, expected| {
        for frame in operations(window, offset) {
            assert_eq!(
                code(&give(&attachment, &mut engine, &encode(&frame))),
                Some(expected),
                "{frame:?}"
            );
            count += 1;
            assert_eq!(engine.refused(), count, "{frame:?}");
        }
    };
    // The slots alone, a bit off, another slot's, none, those of a window that could have been.
    for wrong in [0, 1, 2, 255, open ^ 1 << 63, open ^ 1 << 9, open ^ 1 << 8, open ^ 1, u64::MAX] {
        refuse(wrong, 0, REFUSED_WINDOW);
    }
    for offset in [64, 72, 1 << 32, 1 << 63, u64::MAX - 7] {
        refuse(open, offset, REFUSED_BOUNDS);
        refuse(lent, offset, REFUSED_BOUNDS);
    }
    for offset in [0, 64, u64::MAX - 7] {
        refuse(sealed, offset, REFUSED_RIGHT);
    }
    for piece in [open, lent] {
        for frame in operations(piece, 2).split_off(5) {
            let answers = give(&attachment, &mut engine, &encode(&frame));
            assert_eq!(code(&answers), Some(REFUSED_ALIGNMENT));
            count += 1;
        }
    }
    // Uncounted puts and appends are refused too.
    for (window, expected, no_fifo) in
        [(open ^ 1 << 40, REFUSED_WINDOW, REFUSED_WINDOW), (sealed, REFUSED_RIGHT, REFUSED_FIFO)]
    {
        let (offset, data) = (0, &[7][..]);
        let put = Frame::Put { window, offset, notify: Some(0), data };
        assert_eq!(give(&attachment, &mut engine, &encode(&put)), refused(0, expected));
        let append = Frame::Append { token: 9, window, offset, wait: true, signal: false, data };
        assert_eq!(give(&attachment, &mut engine, &encode(&append)), refused(9, no_fifo));
        count += 2;
    }
    assert_eq!(engine.refused(), count);
    assert_eq!(pieces.map(contents), [[0; 64]; 3], "untouched");
    let raised =
        |notify: &kumi_net::layout::Notify| notify.count.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(attachment.own_lines().notifies.0.iter().map(raised).sum::<u64>(), 0);
    // And what is right is done, in both kinds of memory.
    for (piece, key) in [(OPEN, open), (LENT, lent)] {
        for frame in operations(key, 8) {
            assert_eq!(code(&give(&attachment, &mut engine, &encode(&frame))), None);
        }
        assert_eq!(contents(pieces[piece])[16..], [0; 48]);
        assert_ne!(contents(pieces[piece])[8..16], [0; 8]);
    }
}

#[test]
fn a_fence_is_a_get_of_nothing_and_nothing_else() {
    let (attachment, mut engine, _) = rank();
    let fence = |offset, len| encode(&Frame::GetRequest { token: 9, window: 0, offset, len });
    let reply = encode(&Frame::GetReply { token: 9, offset_in_request: 0, data: &[] });
    assert_eq!(give(&attachment, &mut engine, &fence(0, 0)), [reply]);
    for (offset, length) in [(0, 1), (8, 0), (u64::MAX, 0)] {
        assert_eq!(
            give(&attachment, &mut engine, &fence(offset, length)),
            refused(9, REFUSED_WINDOW)
        );
    }
}

#[test]
fn what_is_gone_is_refused_though_its_slot_is_used_again() {
    let (attachment, mut engine, [open, sealed, lent]) = rank();
    for gone in [open, lent] {
        engine.windows.remove(&attachment, gone.key).expect("remove");
    }
    // All slots are used again.
    let again: Vec<WindowMemory> =
        std::iter::from_fn(|| engine.windows.create(&attachment, 64, Rights::ALL).ok()).collect();
    assert_eq!(again.len(), kumi_net::layout::WINDOWS - 1);
    for gone in [open, lent] {
        for frame in operations(gone.key, 0) {
            assert_eq!(
                code(&give(&attachment, &mut engine, &encode(&frame))),
                Some(REFUSED_WINDOW)
            );
        }
    }
    assert!(again.iter().all(|piece| contents(*piece) == [0; 64]));
    assert_eq!((contents(lent), contents(sealed)), ([0; 64], [0; 64]));
}

#[test]
fn puts_and_gets_are_checked_block_by_block_before_any_is_done() {
    let (attachment, mut engine, pieces) = rank();
    let [open, sealed, lent] = pieces.map(|piece| piece.key);
    let put = |window, offset, stride, notify| {
        let (data, last, token, block) = (&[7; 24][..], true, 9, 8);
        encode(&Frame::PutStrided { token, last, window, offset, stride, block, notify, data })
    };
    for (frame, code) in [
        (put(open, 41, 8, None), REFUSED_BOUNDS),
        (put(open, 0, 29, None), REFUSED_BOUNDS),
        (put(lent, 0, u64::MAX / 2, None), REFUSED_BOUNDS),
        (put(lent, u64::MAX, 8, None), REFUSED_BOUNDS),
        (put(sealed, 0, 8, None), REFUSED_RIGHT),
        (put(256, 0, 8, None), REFUSED_WINDOW),
        (put(open, 0, 8, Some(64)), REFUSED_NOTIFY),
    ] {
        assert_eq!(give(&attachment, &mut engine, &frame), refused(9, code), "{frame:?}");
    }
    let get = |window, offset, stride, count| {
        encode(&Frame::GetStrided { token: 9, window, offset, stride, block: 8, count })
    };
    for (frame, code) in [
        (get(open, 1, 28, 3), REFUSED_BOUNDS),
        (get(lent, 0, u64::MAX, 2), REFUSED_BOUNDS),
        (get(sealed, 0, 8, 1), REFUSED_RIGHT),
    ] {
        assert_eq!(give(&attachment, &mut engine, &frame), refused(9, code), "{frame:?}");
    }
    assert_eq!(pieces.map(contents), [[0; 64]; 3], "untouched");
    assert_eq!(engine.refused(), 10);
    assert_eq!(
        give(&attachment, &mut engine, &put(open, 0, 28, None)),
        [encode(&Frame::PutDone { token: 9 })]
    );
    let memory = contents(pieces[OPEN]);
    let written: Vec<usize> = (0..64).filter(|at| memory[*at] == 7).collect();
    assert_eq!(written, [0..8, 28..36, 56..64].into_iter().flatten().collect::<Vec<_>>());
}

/// Bytes that tell of pieces.
fn list(pieces: &[(u32, u32)]) -> Vec<u8> {
    let told = |&(distance, length): &(u32, u32)| [distance.to_le_bytes(), length.to_le_bytes()];
    pieces.iter().flat_map(told).flatten().collect()
}

fn put_list(
    window: WindowKey,
    offset: u64,
    notify: Option<u32>,
    pieces: &[(u32, u32)],
    data: &[u8],
) -> Vec<u8> {
    let (token, last, pieces) = (9, true, &list(pieces)[..]);
    let put = PutList { token, last, window, offset, notify, pieces, data };
    encode(&Frame::PutList(put))
}

#[test]
fn lists_are_checked_piece_by_piece_before_any_is_done() {
    let (attachment, mut engine, pieces) = rank();
    let [open, sealed, lent] = pieces.map(|piece| piece.key);
    let put = |window, offset, notify, pieces: &[(u32, u32)]| {
        put_list(window, offset, notify, pieces, b"abcdefghijkl")
    };
    let good = [(40, 4), (0, 6), (4, 2)];
    for (frame, code) in [
        (put(open, 0, None, &[(0, 6), (59, 6)]), REFUSED_BOUNDS),
        (put(open, 0, None, &[(u32::MAX, 6), (0, 6)]), REFUSED_BOUNDS),
        (put(open, 21, None, &good), REFUSED_BOUNDS),
        (put(open, u64::MAX, None, &good), REFUSED_BOUNDS),
        (put(open, u64::MAX - 20, None, &good), REFUSED_BOUNDS),
        (put(sealed, 0, None, &good), REFUSED_RIGHT),
        (put(open ^ 1 << 40, 0, None, &good), REFUSED_WINDOW),
        (put(open, 0, Some(64), &good), REFUSED_NOTIFY),
    ] {
        assert_eq!(give(&attachment, &mut engine, &frame), refused(9, code), "{frame:?}");
    }
    let get = |window, offset, pieces: &[(u32, u32)]| {
        let pieces = &list(pieces)[..];
        encode(&Frame::GetList(GetList { token: 9, window, offset, pieces }))
    };
    for (frame, code) in [
        (get(open, 60, &[(0, 5)]), REFUSED_BOUNDS),
        (get(open, 0, &[(1, 1), (0, u32::MAX - 1)]), REFUSED_BOUNDS),
        (get(open, u64::MAX, &[(1, 1)]), REFUSED_BOUNDS),
        (get(sealed, 0, &good), REFUSED_RIGHT),
        (get(NO_WINDOW, 0, &good), REFUSED_WINDOW),
    ] {
        assert_eq!(give(&attachment, &mut engine, &frame), refused(9, code), "{frame:?}");
    }
    assert_eq!(pieces.map(contents), [[0; 64]; 3], "untouched");
    assert_eq!(engine.refused(), 13);
    let done = [encode(&Frame::PutDone { token: 9 })];
    assert_eq!(give(&attachment, &mut engine, &put(lent, 20, Some(3), &good)), done);
    let mut expected = [0; 64];
    expected[60..].copy_from_slice(b"abcd");
    // The last of those that overlap remains.
    expected[20..26].copy_from_slice(b"efghkl");
    assert_eq!(contents(pieces[LENT]), expected);
    let reply = |data| encode(&Frame::GetReply { token: 9, offset_in_request: 0, data });
    let back = give(&attachment, &mut engine, &get(lent, 20, &good));
    assert_eq!(back, [reply(b"abcdefghklkl")]);
}

/// An answer that takes several frames goes on where the last one ended, inside of a piece too.
#[test]
fn a_long_answer_to_a_list_is_in_parts() {
    let (attachment, mut engine, pieces) = rank();
    // SAFETY: the window has 64 bytes, and nobody else uses it.
    unsafe { pieces[OPEN].base.cast::<[u8; 64]>().write(std::array::from_fn(|at| at as u8)) };
    let all = list(&[(1, 63), (0, 64), (63, 1), (7, 50), (0, 64), (2, 60)]);
    let get = GetList { token: 9, window: pieces[OPEN].key, offset: 0, pieces: &all };
    let mut got: Vec<u8> = Vec::new();
    for reply in give(&attachment, &mut engine, &encode(&Frame::GetList(get))) {
        let Ok(Frame::GetReply { token: 9, offset_in_request, data }) = Frame::decode(&reply)
        else {
            panic!("{reply:?}")
        };
        assert_eq!((offset_in_request as usize, reply.len() <= 200), (got.len(), true));
        got.extend(data);
    }
    let expected = [1..64, 0..64, 63..64, 7..57, 0..64, 2..62].into_iter().flatten();
    assert_eq!(got, expected.collect::<Vec<u8>>());
}

#[test]
fn a_multicast_that_is_none_is_a_fault_or_refused() {
    let (attachment, mut engine, pieces) = rank();
    let [open, sealed, _] = pieces.map(|piece| piece.key);
    let cast = |window, offset, data| {
        let (token, notify, members) = (9, None, &[][..]);
        encode(&Frame::Multicast { token, window, offset, notify, members, data })
    };
    for (frame, code) in [
        (cast(open, 60, &[7; 8][..]), REFUSED_BOUNDS),
        (cast(sealed, 0, &[7; 8]), REFUSED_RIGHT),
        (cast(7, 0, &[7; 8]), REFUSED_WINDOW),
    ] {
        let answer = encode(&Frame::MulticastDone { token: 9, refused: Some((0, code)) });
        assert_eq!(give(&attachment, &mut engine, &frame), [answer]);
    }
    assert_eq!(pieces.map(contents), [[0; 64]; 3], "untouched");
    // An answer that nobody waits for.
    let answer = encode(&Frame::MulticastDone { token: 77, refused: None });
    assert!(give(&attachment, &mut engine, &answer).is_empty() && engine.fault.is_none());
    let (window, members, data) = (open, &[5, 0, 0, 0][..], &[7; 8][..]);
    let stranger = Frame::Multicast { token: 9, window, offset: 0, notify: None, members, data };
    assert!(give(&attachment, &mut engine, &encode(&stranger)).is_empty());
    assert!(engine.fault.as_ref().is_some_and(|fault| fault.contains("rank 5")));
    assert_eq!(pieces.map(contents), [[0; 64]; 3], "untouched");
}

#[test]
fn a_record_for_many_is_taken_or_answered_why_not() {
    let (attachment, mut engine, pieces) = rank();
    let WindowMemory { base, key, .. } =
        engine.windows.create(&attachment, 4096, Rights::ALL).expect("window");
    engine.windows.know(key, [key].into());
    // Room for one record of 8 bytes.
    // SAFETY: the start of a window, which nobody else uses.
    let queue = unsafe { Queue::at(base, 16) };
    queue.open(MARK_FIFO, 5);
    assert!(engine.fifos.add((key, 0), queue, 16, false, 5).is_some());
    let cast = |window, offset, signal, data| {
        let (token, source, members) = (9, 0, &[][..]);
        let cast = MulticastAppend { token, window, offset, signal, source, members, data };
        encode(&Frame::MulticastAppend(cast))
    };
    let done = |code: u8, full: &[u8]| {
        let refused = (code != 0).then_some((0, code));
        vec![encode(&Frame::MulticastAppendDone(MulticastAppendDone { token: 9, refused, full }))]
    };
    for (frame, code) in [
        (cast(key, 64, false, &[1][..]), REFUSED_FIFO),
        (cast(key, 1, false, &[1]), REFUSED_FIFO),
        (cast(key, u64::MAX, false, &[1]), REFUSED_FIFO),
        (cast(key, 0, true, &[1]), REFUSED_FIFO),
        (cast(pieces[OPEN].key, 0, false, &[1]), REFUSED_FIFO),
        (cast(key ^ 1 << 40, 0, false, &[1]), REFUSED_WINDOW),
        (cast(key, 0, false, &[1; 9]), REFUSED_RECORD),
    ] {
        assert_eq!(give(&attachment, &mut engine, &frame), done(code, &[]), "{frame:?}");
    }
    assert_eq!(engine.refused(), 7);
    assert_eq!(give(&attachment, &mut engine, &cast(key, 0, false, &[1; 8])), done(0, &[]));
    // Full: no mistake, and nothing waits here.
    assert_eq!(give(&attachment, &mut engine, &cast(key, 0, false, &[2; 8])), done(0, &[0; 4]));
    assert_eq!((engine.refused(), engine.fifos.owes_answers()), (7, false));
    assert!(engine.fault.is_none());
}

#[test]
fn records_and_answers_of_ranks_that_do_not_exist_are_faults() {
    let fault = |frame: &PlainFrame<'_>, prepare: &dyn Fn(&mut Engine)| {
        let (attachment, mut engine, pieces) = rank();
        prepare(&mut engine);
        assert!(give(&attachment, &mut engine, &encode(frame)).is_empty());
        assert_eq!(pieces.map(contents), [[0; 64]; 3], "untouched");
        engine.fault
    };
    let nothing = |_: &mut Engine| {};
    let (token, window, offset, signal, data) = (9, 1, 0, false, &[5, 0, 0, 0][..]);
    for (source, members) in [(1, &[][..]), (u32::MAX, &[]), (0, &[5, 0, 0, 0])] {
        let cast = MulticastAppend { token, window, offset, signal, source, members, data };
        assert!(fault(&Frame::MulticastAppend(cast), &nothing).is_some());
    }
    let done = |token, full| {
        Frame::MulticastAppendDone(MulticastAppendDone { token, refused: Some((7, 16)), full })
    };
    let waits = |engine: &mut Engine| engine.multicasts.expect_record(77, 0, 2);
    // To nothing that waits: dropped. Of strangers, or of more ranks than were to be seen to: not.
    assert_eq!(fault(&done(76, &[0; 4]), &waits), None);
    assert_eq!(fault(&done(77, &[0; 8]), &waits), None);
    assert!(fault(&done(77, &[0; 12]), &waits).is_some());
    assert!(fault(&done(77, &[1, 0, 0, 0]), &waits).is_some());
    // An answer to an append that was not asked for.
    assert!(fault(&Frame::AppendReply { token: 77, again: true }, &waits).is_some());
}

/// Answers to several requests come in any order, and go each where they belong.
#[test]
fn requests_of_a_list_end_in_any_order() {
    let (attachment, mut engine, _) = rank();
    let mut buffers = [[0u8; 5], [0; 5]];
    {
        let [one, two] = &mut buffers;
        // SAFETY: nobody else uses the buffers until the requests have ended.
        let mut lent =
            unsafe { LentBuffers::new([&mut one[..], two].into_iter().map(SharedBytesMut::from)) };
        for length in [3, 4, 2, 1] {
            let into = lent.split(length as usize);
            let pending = PendingRequest::Pieces { into, length, received: 0 };
            engine.requests.add(Request::to(1, pending)).expect("room");
        }
    }
    let tokens: Vec<u64> = (0..4).map(|place| engine.requests.token(place)).collect();
    let reply = |place: usize, offset_in_request, data| {
        encode(&Frame::GetReply { token: tokens[place], offset_in_request, data })
    };
    let refusal =
        |place: usize| encode(&Frame::Refused { token: tokens[place], code: REFUSED_RIGHT });
    let ended = |engine: &mut Engine, place| match engine.take_over(place)?.end? {
        RequestEnd::Done => Some(None),
        RequestEnd::Refused(reason) => Some(Some(reason)),
        other => panic!("{other:?}"),
    };
    for frame in [reply(2, 0, b"hi"), reply(1, 0, b"d"), reply(1, 1, b"efg")] {
        engine.frame(&attachment, 1, &frame[..]);
    }
    let all = [0, 1, 2, 3].map(|place| ended(&mut engine, place));
    assert_eq!((engine.fault.take(), all), (None, [None, Some(None), Some(None), None]));
    engine.frame(&attachment, 1, &refusal(3)[..]);
    engine.frame(&attachment, 2, &refusal(0)[..]);
    engine.frame(&attachment, 1, &reply(0, 0, b"abc")[..]);
    let all = [0, 3].map(|place| ended(&mut engine, place));
    assert_eq!((engine.fault.take(), all), (None, [Some(None), Some(Some(Refusal::Right))]));
    // An ended request is forgotten, and one takes no more bytes than it asked for.
    engine.frame(&attachment, 1, &reply(0, 0, b"abc")[..]);
    assert!(engine.fault.take().is_some() && engine.requests.len() == 0);
    assert_eq!(buffers, [*b"abcde", *b"fghi\0"]);
}

/// A rank that guesses the token of a request to another one answers nothing.
#[test]
fn only_who_was_asked_answers() {
    let (_, mut engine, _) = rank();
    // The first request of every context has the same token.
    let place = engine.requests.add(Request::to(1, PendingRequest::Value)).expect("room");
    let token = engine.requests.token(place);
    let value = |value| Frame::AtomicReply { token, value };
    let bytes = |data| Frame::GetReply { token, offset_in_request: 0, data };
    let again = |again| Frame::AppendReply { token, again };
    let refused = || Frame::Refused { token, code: REFUSED_RIGHT };
    let mut buffer = [0u8; 4];
    // SAFETY: nobody uses the buffer by its name from here on.
    let into = unsafe { SharedBytesMut::from(&mut buffer[..]).lend() };
    let get = || PendingRequest::Bytes { into, received: 0 };
    let ask = || PendingRequest::Value;
    for (pending, wrong, right) in [
        (get(), bytes(&b"evil"[..]), bytes(b"good")),
        (ask(), value(6), value(7)),
        (ask(), again(true), again(false)),
        (ask(), refused(), value(7)),
        (get(), refused(), bytes(b"good")),
    ] {
        let (attachment, mut engine, _) = rank();
        let place = engine.requests.add(Request::to(1, pending)).expect("room");
        assert_eq!(engine.requests.token(place), token);
        engine.frame(&attachment, 2, &encode(&wrong)[..]);
        assert!(engine.requests.get(place).is_some_and(|it| it.end.is_none()));
        assert_eq!(engine.fault.take().is_some(), !matches!(wrong, Frame::Refused { .. }));
        engine.frame(&attachment, 1, &encode(&right)[..]);
        assert_eq!(engine.fault, None);
        match (engine.take_over(place).and_then(|it| it.end), right) {
            (Some(RequestEnd::Value(found)), Frame::AppendReply { .. }) => assert_eq!(found, 0),
            (Some(RequestEnd::Value(found)), _) => assert_eq!(found, 7),
            (Some(RequestEnd::Done), _) => assert_eq!(into.shared().to_vec(), *b"good"),
            (other, _) => panic!("{other:?}"),
        }
    }
}

#[test]
fn answers_to_counted_puts_are_combined() {
    let (attachment, mut engine, pieces) = rank();
    let put = |token, piece: usize| {
        let (window, last, notify) = (pieces[piece].key, true, None);
        encode(&Frame::PutCounted { token, last, window, offset: 0, notify, data: &[1][..] })
    };
    for token in 1..=3 {
        assert_eq!(engine.frame(&attachment, 0, &put(token, OPEN)[..]), Delivery::Taken);
    }
    assert_eq!(engine.answers.len(), 1);
    let answers = give(&attachment, &mut engine, &put(4, SEALED));
    assert_eq!(
        answers,
        [
            encode(&Frame::PutDone { token: 3 }),
            encode(&Frame::Refused { token: 4, code: REFUSED_RIGHT })
        ]
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// A refused request, with any numbers, has changed nothing.
    #[test]
    fn a_refused_operation_changes_nothing(
        kind in 0..6u8,
        (piece, mask) in (0..3usize, prop_oneof![3 => Just(0u64), 1 => (0..64u32).prop_map(|bit| 1 << bit), 1 => any::<u64>()]),
        offset in prop_oneof![0..80u64, any::<u64>()],
        stride in prop_oneof![4..80u64, 4..u64::MAX],
        block in 1..5u32,
        count in 1..5usize,
        notify in prop::option::of(prop_oneof![0..66u32, any::<u32>()]),
    ) {
        let (attachment, mut engine, pieces) = rank();
        let bytes = vec![7; block as usize * count];
        let (token, last, data, window) = (9, true, &bytes[..], pieces[piece].key ^ mask);
        let listed: Vec<_> = (0..count as u64)
            .map(|index| (index.wrapping_mul(stride) as u32, block))
            .collect();
        let listed = list(&listed);
        let frame = match kind {
            0 => Frame::PutCounted { token, last, window, offset, notify, data },
            1 => Frame::PutStrided { token, last, window, offset, stride, block, notify, data },
            2 => Frame::Multicast { token, window, offset, notify, members: &[], data },
            5 => {
                let pieces = &listed[..];
                Frame::PutList(PutList { token, last, window, offset, notify, pieces, data })
            }
            _ => Frame::AtomicRequest {
                token,
                window,
                offset,
                operation: Operation::Swap,
                width: if kind == 3 { Width::Four } else { Width::Eight },
                operand: 7,
                operand2: 0,
            },
        };
        let answers = give(&attachment, &mut engine, &encode(&frame));
        prop_assert_eq!(answers.len(), 1);
        let refused = match Frame::decode(&answers[0]) {
            Ok(Frame::Refused { token: 9, .. }) => true,
            Ok(Frame::MulticastDone { token: 9, refused }) => refused.is_some(),
            _ => false,
        };
        prop_assert!(refused || mask == 0 && piece != SEALED);
        let untouched = pieces.map(contents) == [[0; 64]; 3];
        prop_assert_eq!(refused, untouched);
        let raised: u64 = attachment.own_lines().notifies.0.iter()
            .map(|notify| notify.count.load(std::sync::atomic::Ordering::Relaxed))
            .sum();
        prop_assert_eq!(raised, u64::from(!refused && ![3, 4].contains(&kind) && notify.is_some()));
    }
}
