//! Frames that no rank of this library sends: memory stays as it was, and the answer is a refusal.

use super::*;
use kumi_proto::frame::{
    MulticastAppend, REFUSED_BOUNDS, REFUSED_FIFO, REFUSED_NOTIFY, REFUSED_RECORD, REFUSED_RIGHT,
    REFUSED_WINDOW, Width,
};
use proptest::prelude::*;

use crate::queue::{MARK_FIFO, Queue};
use crate::windows::Rights;
use kumi_proto::frame::Operation;

/// A rank alone, with a window of 64 bytes (number 0) and a sealed one (number 1).
fn rank() -> (Place, Engine, [NonNull<u8>; 2]) {
    let place = Place::singleton(1 << 20).expect("place");
    let mut engine = Engine::new(1000, place.arena_bytes());
    let sealed = Rights { write: false, read: false, atomic: false };
    let pieces = [(0, Rights::ALL), (1, sealed)].map(|(number, rights)| {
        engine.windows.create(&place, number, 64, rights).expect("window").base
    });
    (place, engine, pieces)
}

/// Gives the engine a frame; all answers it owes then.
fn give(place: &Place, engine: &mut Engine, frame: &[u8]) -> Vec<Vec<u8>> {
    assert_eq!(engine.frame(place, 0, frame), Delivery::Taken);
    let mut answers = Vec::new();
    let mut send = |to, parts: &[&[u8]]| {
        assert_eq!(to, 0);
        answers.push(parts.concat());
        Ok(true)
    };
    engine.answer(200, &mut send).expect("answer");
    answers
}

fn encode(frame: &Frame<'_>) -> Vec<u8> {
    [&frame.header(), frame.data()].concat()
}

fn contents(piece: NonNull<u8>) -> [u8; 64] {
    // SAFETY: the window has 64 bytes, and nobody else uses it.
    unsafe { piece.cast::<[u8; 64]>().read() }
}

fn refused(token: u64, code: u8) -> Vec<Vec<u8>> {
    vec![encode(&Frame::Refused { token, code })]
}

#[test]
fn puts_and_gets_are_checked_block_by_block_before_any_is_done() {
    let (place, mut engine, pieces) = rank();
    let put = |window, offset, stride, notify| {
        let (data, last, token, block) = (&[7; 24][..], true, 9, 8);
        encode(&Frame::PutStrided { token, last, window, offset, stride, block, notify, data })
    };
    for (frame, code) in [
        (put(0, 41, 8, None), REFUSED_BOUNDS),
        (put(0, 0, 29, None), REFUSED_BOUNDS),
        (put(0, 0, u64::MAX / 2, None), REFUSED_BOUNDS),
        (put(0, u64::MAX, 8, None), REFUSED_BOUNDS),
        (put(1, 0, 8, None), REFUSED_RIGHT),
        (put(256, 0, 8, None), REFUSED_WINDOW),
        (put(0, 0, 8, Some(64)), REFUSED_NOTIFY),
    ] {
        assert_eq!(give(&place, &mut engine, &frame), refused(9, code), "{frame:?}");
    }
    let get = |window, offset, stride, count| {
        encode(&Frame::GetStrided { token: 9, window, offset, stride, block: 8, count })
    };
    for (frame, code) in [
        (get(0, 1, 28, 3), REFUSED_BOUNDS),
        (get(0, 0, u64::MAX, 2), REFUSED_BOUNDS),
        (get(1, 0, 8, 1), REFUSED_RIGHT),
    ] {
        assert_eq!(give(&place, &mut engine, &frame), refused(9, code), "{frame:?}");
    }
    assert_eq!(pieces.map(contents), [[0; 64]; 2], "untouched");
    assert_eq!(engine.refused(), 10);
    assert_eq!(
        give(&place, &mut engine, &put(0, 0, 28, None)),
        [encode(&Frame::PutDone { token: 9 })]
    );
    let memory = contents(pieces[0]);
    let written: Vec<usize> = (0..64).filter(|at| memory[*at] == 7).collect();
    assert_eq!(written, [0..8, 28..36, 56..64].into_iter().flatten().collect::<Vec<_>>());
}

/// Bytes that tell of pieces.
fn list(pieces: &[(u32, u32)]) -> Vec<u8> {
    let told = |&(distance, length): &(u32, u32)| [distance.to_le_bytes(), length.to_le_bytes()];
    pieces.iter().flat_map(told).flatten().collect()
}

fn put_list(
    window: u32,
    offset: u64,
    notify: Option<u32>,
    pieces: &[(u32, u32)],
    data: &[u8],
) -> Vec<u8> {
    let tail = [&list(pieces), data].concat();
    let (token, last, pieces) = (9, true, pieces.len() as u16);
    let put = PutList { token, last, window, offset, notify, pieces, tail: &tail };
    encode(&Frame::PutList(put))
}

#[test]
fn lists_are_checked_piece_by_piece_before_any_is_done() {
    let (place, mut engine, pieces) = rank();
    let put = |window, offset, notify, pieces: &[(u32, u32)]| {
        put_list(window, offset, notify, pieces, b"abcdefghijkl")
    };
    let good = [(40, 4), (0, 6), (4, 2)];
    for (frame, code) in [
        (put(0, 0, None, &[(0, 6), (59, 6)]), REFUSED_BOUNDS),
        (put(0, 0, None, &[(u32::MAX, 6), (0, 6)]), REFUSED_BOUNDS),
        (put(0, 21, None, &good), REFUSED_BOUNDS),
        (put(0, u64::MAX, None, &good), REFUSED_BOUNDS),
        (put(0, u64::MAX - 20, None, &good), REFUSED_BOUNDS),
        (put(1, 0, None, &good), REFUSED_RIGHT),
        (put(256, 0, None, &good), REFUSED_WINDOW),
        (put(0, 0, Some(64), &good), REFUSED_NOTIFY),
    ] {
        assert_eq!(give(&place, &mut engine, &frame), refused(9, code), "{frame:?}");
    }
    let get = |window, offset, pieces: &[(u32, u32)]| {
        let pieces = &list(pieces)[..];
        encode(&Frame::GetList(GetList { token: 9, window, offset, pieces }))
    };
    for (frame, code) in [
        (get(0, 60, &[(0, 5)]), REFUSED_BOUNDS),
        (get(0, 0, &[(1, 1), (0, u32::MAX - 1)]), REFUSED_BOUNDS),
        (get(0, u64::MAX, &[(1, 1)]), REFUSED_BOUNDS),
        (get(1, 0, &good), REFUSED_RIGHT),
        (get(FENCE, 0, &good), REFUSED_WINDOW),
    ] {
        assert_eq!(give(&place, &mut engine, &frame), refused(9, code), "{frame:?}");
    }
    assert_eq!(pieces.map(contents), [[0; 64]; 2], "untouched");
    assert_eq!(engine.refused(), 13);
    let done = [encode(&Frame::PutDone { token: 9 })];
    assert_eq!(give(&place, &mut engine, &put(0, 20, Some(3), &good)), done);
    let mut expected = [0; 64];
    expected[60..].copy_from_slice(b"abcd");
    // The last of those that overlap remains.
    expected[20..26].copy_from_slice(b"efghkl");
    assert_eq!(contents(pieces[0]), expected);
    let reply = |data| encode(&Frame::GetReply { token: 9, offset_in_request: 0, data });
    let back = give(&place, &mut engine, &get(0, 20, &good));
    assert_eq!(back, [reply(b"abcdefghklkl")]);
}

/// An answer that takes several frames goes on where the last one ended, inside of a piece too.
#[test]
fn a_long_answer_to_a_list_is_in_parts() {
    let (place, mut engine, pieces) = rank();
    // SAFETY: the window has 64 bytes, and nobody else uses it.
    unsafe { pieces[0].cast::<[u8; 64]>().write(std::array::from_fn(|at| at as u8)) };
    let all = list(&[(1, 63), (0, 64), (63, 1), (7, 50), (0, 64), (2, 60)]);
    let get = GetList { token: 9, window: 0, offset: 0, pieces: &all };
    let mut got: Vec<u8> = Vec::new();
    for reply in give(&place, &mut engine, &encode(&Frame::GetList(get))) {
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
    let (place, mut engine, pieces) = rank();
    let cast = |window, offset, tail| {
        encode(&Frame::Multicast { token: 9, window, offset, notify: None, members: 0, tail })
    };
    for (frame, code) in [
        (cast(0, 60, &[7; 8][..]), REFUSED_BOUNDS),
        (cast(1, 0, &[7; 8]), REFUSED_RIGHT),
        (cast(7, 0, &[7; 8]), REFUSED_WINDOW),
    ] {
        let answer = encode(&Frame::MulticastDone { token: 9, refused: Some((0, code)) });
        assert_eq!(give(&place, &mut engine, &frame), [answer]);
    }
    assert_eq!(pieces.map(contents), [[0; 64]; 2], "untouched");
    // An answer that nobody waits for.
    let answer = encode(&Frame::MulticastDone { token: 77, refused: None });
    assert!(give(&place, &mut engine, &answer).is_empty() && engine.fault.is_none());
    let tail = [&[5, 0, 0, 0][..], &[7; 8]].concat();
    let stranger =
        Frame::Multicast { token: 9, window: 0, offset: 0, notify: None, members: 1, tail: &tail };
    assert!(give(&place, &mut engine, &encode(&stranger)).is_empty());
    assert!(engine.fault.as_ref().is_some_and(|fault| fault.contains("rank 5")));
    assert_eq!(pieces.map(contents), [[0; 64]; 2], "untouched");
}

/// A FIFO for records of 8 bytes at most, one of them, in the first window.
fn open_fifo(engine: &mut Engine, piece: NonNull<u8>) {
    // SAFETY: the place was given to the test, which uses a larger window there.
    let queue = unsafe { Queue::at(piece, 16) };
    queue.open(MARK_FIFO, 5);
    assert!(engine.fifos.add((2, 0), queue, 16, false, 5).is_some());
}

#[test]
fn a_record_for_many_is_taken_or_answered_why_not() {
    let (place, mut engine, _) = rank();
    let piece = engine.windows.create(&place, 2, 4096, Rights::ALL).expect("window").base;
    open_fifo(&mut engine, piece);
    let cast = |window, offset, signal, tail| {
        let (token, source, members) = (9, 0, 0);
        let cast = MulticastAppend { token, window, offset, signal, source, members, tail };
        encode(&Frame::MulticastAppend(cast))
    };
    let done = |code: u8, full: &[u8]| {
        let refused = (code != 0).then_some((0, code));
        vec![encode(&Frame::MulticastAppendDone(MulticastAppendDone { token: 9, refused, full }))]
    };
    for (frame, code) in [
        (cast(2, 64, false, &[1][..]), REFUSED_FIFO),
        (cast(2, 1, false, &[1]), REFUSED_FIFO),
        (cast(2, u64::MAX, false, &[1]), REFUSED_FIFO),
        (cast(2, 0, true, &[1]), REFUSED_FIFO),
        (cast(0, 0, false, &[1]), REFUSED_FIFO),
        (cast(700, 0, false, &[1]), REFUSED_FIFO),
        (cast(2, 0, false, &[1; 9]), REFUSED_RECORD),
    ] {
        assert_eq!(give(&place, &mut engine, &frame), done(code, &[]), "{frame:?}");
    }
    assert_eq!(engine.refused(), 7);
    assert_eq!(give(&place, &mut engine, &cast(2, 0, false, &[1; 8])), done(0, &[]));
    // Full: no mistake, and nothing waits here.
    assert_eq!(give(&place, &mut engine, &cast(2, 0, false, &[2; 8])), done(0, &[0; 4]));
    assert_eq!((engine.refused(), engine.fifos.owes_answers()), (7, false));
    assert!(engine.fault.is_none());
}

#[test]
fn records_and_answers_of_ranks_that_do_not_exist_are_faults() {
    let fault = |frame: &Frame<'_>, prepare: &dyn Fn(&mut Engine)| {
        let (place, mut engine, pieces) = rank();
        prepare(&mut engine);
        assert!(give(&place, &mut engine, &encode(frame)).is_empty());
        assert_eq!(pieces.map(contents), [[0; 64]; 2], "untouched");
        engine.fault
    };
    let nothing = |_: &mut Engine| {};
    let (token, window, offset, signal, tail) = (9, 0, 0, false, &[5, 0, 0, 0][..]);
    for (source, members) in [(1, 0), (u32::MAX, 0), (0, 1)] {
        let cast = MulticastAppend { token, window, offset, signal, source, members, tail };
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

#[test]
fn answers_to_counted_puts_are_combined() {
    let (place, mut engine, _) = rank();
    for token in 1..=3 {
        let frame =
            Frame::PutCounted { token, last: true, window: 0, offset: 0, notify: None, data: &[1] };
        assert_eq!(engine.frame(&place, 0, &encode(&frame)), Delivery::Taken);
    }
    assert_eq!(engine.answers.len(), 1);
    let sealed =
        Frame::PutCounted { token: 4, last: true, window: 1, offset: 0, notify: None, data: &[1] };
    let answers = give(&place, &mut engine, &encode(&sealed));
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

    /// Whatever is asked with whatever numbers: what is refused has changed nothing.
    #[test]
    fn a_refused_operation_changes_nothing(
        kind in 0..6u8,
        window in prop_oneof![0..3u32, any::<u32>()],
        offset in prop_oneof![0..80u64, any::<u64>()],
        stride in prop_oneof![4..80u64, 4..u64::MAX],
        block in 1..5u32,
        count in 1..5usize,
        notify in prop::option::of(prop_oneof![0..66u32, any::<u32>()]),
    ) {
        let (place, mut engine, pieces) = rank();
        let bytes = vec![7; block as usize * count];
        let (token, last, data) = (9, true, &bytes[..]);
        let listed: Vec<_> = (0..count as u64)
            .map(|index| (index.wrapping_mul(stride) as u32, block))
            .collect();
        let tail = [&list(&listed), data].concat();
        let frame = match kind {
            0 => Frame::PutCounted { token, last, window, offset, notify, data },
            1 => Frame::PutStrided { token, last, window, offset, stride, block, notify, data },
            2 => Frame::Multicast { token, window, offset, notify, members: 0, tail: data },
            5 => {
                let (pieces, tail) = (count as u16, &tail[..]);
                Frame::PutList(PutList { token, last, window, offset, notify, pieces, tail })
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
        let answers = give(&place, &mut engine, &encode(&frame));
        prop_assert_eq!(answers.len(), 1);
        let refused = match Frame::decode(&answers[0]) {
            Ok(Frame::Refused { token: 9, .. }) => true,
            Ok(Frame::MulticastDone { token: 9, refused }) => refused.is_some(),
            _ => false,
        };
        let untouched = pieces.map(contents) == [[0; 64]; 2];
        prop_assert_eq!(refused, untouched);
        let raised: u64 = place.own().notifies.0.iter()
            .map(|notify| notify.count.load(std::sync::atomic::Ordering::Relaxed))
            .sum();
        prop_assert_eq!(raised, u64::from(!refused && ![3, 4].contains(&kind) && notify.is_some()));
    }
}
