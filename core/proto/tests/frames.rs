//! Frames: test vectors, sizes, and refusal of everything else.

use kumi_proto::frame::{
    APPEND_BYTES, APPEND_REPLY_BYTES, ATOMIC_REPLY_BYTES, ATOMIC_REQUEST_BYTES, Frame, FrameError,
    GET_LIST_BYTES, GET_REPLY_BYTES, GET_REQUEST_BYTES, GET_STRIDED_BYTES, GetList, MESSAGE_BYTES,
    MESSAGE_PART_BYTES, MOST_GET_PIECES, MULTICAST_APPEND_BYTES, MULTICAST_APPEND_DONE_BYTES,
    MULTICAST_BYTES, MULTICAST_DONE_BYTES, MulticastAppend, MulticastAppendDone, Operation,
    PUT_BYTES, PUT_COUNTED_BYTES, PUT_DONE_BYTES, PUT_LIST_BYTES, PUT_STRIDED_BYTES, PutList,
    REFUSED_BYTES, SERVICE_BYTES, SERVICE_PART_BYTES, ServiceMessage, Width, members, pad, pieces,
};
use proptest::prelude::*;

fn bytes(frame: &Frame<'_, &[u8]>) -> Vec<u8> {
    [&frame.header(), frame.list(), frame.data()].concat()
}

/// (frame, bytes before its list and data, its bytes in hexadecimal)
type Vector = (Frame<'static, &'static [u8]>, usize, &'static str);

fn vectors() -> Vec<Vector> {
    [
        older_vectors(),
        newer_vectors(),
        multicast_vectors(),
        append_vectors(),
        list_vectors(),
        cast_vectors(),
        service_vectors(),
    ]
    .concat()
}

fn older_vectors() -> Vec<Vector> {
    let token = 0x1817_1615_1413_1211;
    let offset = 0x0807_0605_0403_0201;
    let window = 0x2827_2625_2423_2221;
    vec![
        (
            Frame::Message { tag: (-2i32).cast_unsigned(), total: 5, data: b"abc" },
            MESSAGE_BYTES,
            "01000000 feffffff 0500000000000000 616263",
        ),
        (Frame::MessagePart { data: b"de" }, MESSAGE_PART_BYTES, "02000000 6465"),
        (
            Frame::Put { window, offset, notify: Some(7), data: b"x" },
            PUT_BYTES,
            "03010000 2122232425262728 0102030405060708 07000000 78",
        ),
        (
            Frame::Put { window, offset, notify: None, data: b"" },
            PUT_BYTES,
            "03000000 2122232425262728 0102030405060708 00000000",
        ),
        (
            Frame::GetRequest { token, window, offset, len: 0x100 },
            GET_REQUEST_BYTES,
            "04000000 2122232425262728 0102030405060708 1112131415161718 00010000",
        ),
        (
            Frame::GetReply { token, offset_in_request: 9, data: b"yz" },
            GET_REPLY_BYTES,
            "05000000 09000000 1112131415161718 797a",
        ),
        (
            Frame::AtomicRequest {
                token,
                window,
                offset,
                operation: Operation::CompareSwap,
                width: Width::Eight,
                operand: 1,
                operand2: 2,
            },
            ATOMIC_REQUEST_BYTES,
            "06020000 2122232425262728 0102030405060708 1112131415161718 0100000000000000 0200000000000000",
        ),
        (
            Frame::AtomicReply { token, value: u64::MAX },
            ATOMIC_REPLY_BYTES,
            "07000000 1112131415161718 ffffffffffffffff",
        ),
        (Frame::Refused { token, code: 3 }, REFUSED_BYTES, "08030000 1112131415161718"),
    ]
}

fn newer_vectors() -> Vec<Vector> {
    let token = 0x1817_1615_1413_1211;
    let offset = 0x0807_0605_0403_0201;
    let window = 0x2827_2625_2423_2221;
    let (stride, block) = (0x50, 2);
    vec![
        (
            Frame::AtomicRequest {
                token,
                window,
                offset,
                operation: Operation::FetchXor,
                width: Width::Four,
                operand: 0xa1a2_a3a4,
                operand2: 0,
            },
            ATOMIC_REQUEST_BYTES,
            "06050100 2122232425262728 0102030405060708 1112131415161718 a4a3a2a100000000 0000000000000000",
        ),
        (
            Frame::PutCounted { token, last: true, window, offset, notify: Some(7), data: b"x" },
            PUT_COUNTED_BYTES,
            "09030000 2122232425262728 0102030405060708 07000000 1112131415161718 78",
        ),
        (
            Frame::PutCounted { token, last: false, window, offset, notify: None, data: b"" },
            PUT_COUNTED_BYTES,
            "09000000 2122232425262728 0102030405060708 00000000 1112131415161718",
        ),
        (Frame::PutDone { token }, PUT_DONE_BYTES, "0a000000 1112131415161718"),
        (
            Frame::PutStrided {
                token,
                last: true,
                window,
                offset,
                stride,
                block,
                notify: None,
                data: b"abcd",
            },
            PUT_STRIDED_BYTES,
            "0b020000 2122232425262728 0102030405060708 5000000000000000 02000000 00000000
             1112131415161718 61626364",
        ),
        (
            Frame::GetStrided { token, window, offset, stride, block, count: 3 },
            GET_STRIDED_BYTES,
            "0c000000 2122232425262728 0102030405060708 1112131415161718 5000000000000000 02000000
             03000000",
        ),
    ]
}

fn multicast_vectors() -> Vec<Vector> {
    let token = 0x1817_1615_1413_1211;
    let offset = 0x0807_0605_0403_0201;
    let window = 0x2827_2625_2423_2221;
    vec![
        (
            Frame::Multicast {
                token,
                window,
                offset,
                notify: Some(7),
                members: b"\x05\0\0\0\x08\x01\0\0",
                data: b"xyz",
            },
            MULTICAST_BYTES,
            "0d010200 2122232425262728 0102030405060708 07000000 1112131415161718 05000000 08010000
             78797a",
        ),
        (
            Frame::MulticastDone { token, refused: Some((9, 2)) },
            MULTICAST_DONE_BYTES,
            "0e020000 1112131415161718 09000000",
        ),
    ]
}

fn append_vectors() -> Vec<Vector> {
    let (token, offset, window) =
        (0x1817_1615_1413_1211, 0x0807_0605_0403_0201, 0x2827_2625_2423_2221);
    vec![
        (
            Frame::Append { token, window, offset, wait: true, signal: false, data: b"rec" },
            APPEND_BYTES,
            "10010000 2122232425262728 0102030405060708 1112131415161718 726563",
        ),
        (
            Frame::Append { token, window, offset, wait: false, signal: true, data: b"" },
            APPEND_BYTES,
            "10020000 2122232425262728 0102030405060708 1112131415161718",
        ),
        (
            Frame::AppendReply { token, again: true },
            APPEND_REPLY_BYTES,
            "11010000 1112131415161718",
        ),
    ]
}

fn list_vectors() -> Vec<Vector> {
    let (token, offset, window) =
        (0x1817_1615_1413_1211, 0x0807_0605_0403_0201, 0x2827_2625_2423_2221);
    vec![
        (
            Frame::PutList(PutList {
                token,
                last: true,
                window,
                offset,
                notify: Some(7),
                pieces: b"\x50\0\0\0\x02\0\0\0\0\0\0\0\x01\0\0\0",
                data: b"xyz",
            }),
            PUT_LIST_BYTES,
            "14030200 2122232425262728 0102030405060708 07000000 1112131415161718 50000000 02000000
             00000000 01000000 78797a",
        ),
        (
            Frame::GetList(GetList {
                token,
                window,
                offset,
                pieces: b"\x50\0\0\0\x02\0\0\0\0\0\0\0\x01\0\0\0",
            }),
            GET_LIST_BYTES,
            "15000200 2122232425262728 0102030405060708 1112131415161718 50000000 02000000 00000000
             01000000",
        ),
    ]
}

fn cast_vectors() -> Vec<Vector> {
    let (token, offset, window) =
        (0x1817_1615_1413_1211, 0x0807_0605_0403_0201, 0x2827_2625_2423_2221);
    vec![
        (
            Frame::MulticastAppend(MulticastAppend {
                token,
                window,
                offset,
                signal: true,
                source: 0x34,
                members: b"\x05\0\0\0\x08\x01\0\0",
                data: b"rec",
            }),
            MULTICAST_APPEND_BYTES,
            "16020200 2122232425262728 0102030405060708 1112131415161718 34000000 05000000 08010000
             726563",
        ),
        (
            Frame::MulticastAppendDone(MulticastAppendDone {
                token,
                refused: Some((9, 16)),
                full: b"\x05\0\0\0\x08\x01\0\0",
            }),
            MULTICAST_APPEND_DONE_BYTES,
            "17100200 1112131415161718 09000000 05000000 08010000",
        ),
    ]
}

fn service_vectors() -> Vec<Vector> {
    vec![
        (
            Frame::Service(ServiceMessage { service: 0x0201, total: 5, data: b"abc" }),
            SERVICE_BYTES,
            "18000102 05000000 616263",
        ),
        (
            Frame::Service(ServiceMessage { service: 0, total: 0, data: b"" }),
            SERVICE_BYTES,
            "18000000 00000000",
        ),
        (Frame::ServicePart { data: b"de" }, SERVICE_PART_BYTES, "19000000 6465"),
    ]
}

#[test]
fn vectors_of_every_kind() {
    for (frame, header, hexadecimal) in vectors() {
        let found: String = bytes(&frame).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(found, hexadecimal.replace([' ', '\n'], ""), "{frame:?}");
        assert_eq!(frame.header().len(), header, "{frame:?}");
        assert_eq!(Frame::decode(&bytes(&frame)), Ok(frame));
    }
}

#[test]
fn a_frame_cut_short_does_not_decode() {
    for (frame, header, _) in vectors() {
        let bytes = bytes(&frame);
        for length in 0..header {
            let error = Frame::decode(&bytes[..length]).unwrap_err();
            assert!(matches!(error, FrameError::Empty | FrameError::Length { .. }), "{error}");
        }
    }
}

#[test]
fn forbidden_values_do_not_decode() {
    let field = |kind, field| Err(FrameError::Field { kind, field });
    let changed = |index: usize, at: usize, byte| {
        let mut bytes = bytes(&vectors()[index].0);
        bytes[at] = byte;
        bytes
    };
    assert_eq!(Frame::decode(&[]), Err(FrameError::Empty));
    for kind in [0, 15, 18, 26, 255] {
        assert_eq!(Frame::decode(&[kind; 64]), Err(FrameError::Kind(kind)));
    }
    for index in 0..vectors().len() {
        for at in [2, 3] {
            let bytes = changed(index, at, 2);
            let name = if bytes[0] == 6 && at == 2 { "width" } else { "reserved" };
            // Those with a list, with padding, or with the number of a service.
            if ![13, 20, 21, 22, 23, 1, 2, 3, 9, 11, 24].contains(&bytes[0]) {
                assert_eq!(Frame::decode(&bytes), field(bytes[0], name));
            }
        }
    }
    for index in [0, 1, 4, 5, 7, 12, 14] {
        let bytes = changed(index, 1, 1);
        assert_eq!(Frame::decode(&bytes), field(bytes[0], "reserved"));
    }
    assert_eq!(Frame::decode(&changed(0, 8, 2)), field(1, "total"));
    assert_eq!(Frame::decode(&changed(2, 1, 2)), field(3, "notify"));
    assert_eq!(Frame::decode(&changed(2, 1, 0)), field(3, "notify"));
    assert_eq!(Frame::decode(&changed(6, 1, 6)), field(6, "operation"));
    assert_eq!(Frame::decode(&changed(9, 32, 1)), field(6, "operand"));
    let mut wide = bytes(&vectors()[6].0);
    (wide[2], wide[40]) = (1, 1);
    assert_eq!(Frame::decode(&wide), field(6, "operand2"));
    assert_eq!(Frame::decode(&changed(6, 1, 1)), field(6, "operand2"));
    assert_eq!(Frame::decode(&changed(8, 1, 0)), field(8, "code"));
    assert_eq!(Frame::decode(&[2, 0, 0, 0]), Err(FrameError::Length { kind: 2, length: 4 }));
    for index in [4, 6, 7, 8, 9, 12, 13, 14, 16] {
        let mut bytes = bytes(&vectors()[index].0);
        bytes.push(0);
        assert!(matches!(Frame::decode(&bytes), Err(FrameError::Length { .. })));
    }
}

#[test]
fn forbidden_values_of_appends_do_not_decode() {
    let changed = |index: usize, byte| {
        let mut bytes = bytes(&append_vectors()[index].0);
        bytes[1] = byte;
        bytes
    };
    let flags = Err(FrameError::Field { kind: 16, field: "flags" });
    assert_eq!(Frame::decode(&changed(0, 4)), flags);
    assert_eq!(Frame::decode(&changed(1, 0x82)), flags);
    let outcome = Err(FrameError::Field { kind: 17, field: "outcome" });
    assert_eq!(Frame::decode(&changed(2, 2)), outcome);
    let mut longer = bytes(&append_vectors()[2].0);
    longer.push(0);
    assert_eq!(Frame::decode(&longer), Err(FrameError::Length { kind: 17, length: 13 }));
}

#[test]
fn forbidden_values_of_lists_do_not_decode() {
    let changed = |index: usize, at: usize, byte| {
        let mut bytes = bytes(&list_vectors()[index].0);
        bytes[at] = byte;
        bytes
    };
    let field = |kind, field| Err(FrameError::Field { kind, field });
    let length = |kind, length| Err(FrameError::Length { kind, length });
    assert_eq!(Frame::decode(&changed(0, 1, 4)), field(20, "notify"));
    assert_eq!(Frame::decode(&changed(0, 1, 2)), field(20, "notify"));
    let mut uncounted = changed(0, 1, 3);
    uncounted[24..32].fill(0);
    assert_eq!(Frame::decode(&uncounted), field(20, "last"));
    assert_eq!(Frame::decode(&changed(0, 2, 0)), field(20, "pieces"));
    assert_eq!(Frame::decode(&changed(0, 2, 3)), length(20, 51));
    assert_eq!(Frame::decode(&changed(0, 3, 255)), length(20, 51));
    assert_eq!(Frame::decode(&changed(0, 36, 0)), field(20, "length"));
    // More or less data than the pieces have.
    for byte in [1, 3] {
        assert_eq!(Frame::decode(&changed(0, 36, byte)), length(20, 51));
    }
    assert_eq!(Frame::decode(&changed(0, 39, 255)), length(20, 51));
    assert_eq!(Frame::decode(&changed(1, 1, 1)), field(21, "reserved"));
    assert_eq!(Frame::decode(&changed(1, 2, 1)), length(21, 44));
    assert_eq!(Frame::decode(&changed(1, 3, 1)), length(21, 44));
    assert_eq!(Frame::decode(&changed(1, 32, 0)), field(21, "length"));
    let list = |count: usize, each: u32| {
        let pieces = [[0; 4], each.to_le_bytes()].concat().repeat(count);
        bytes(&Frame::GetList(GetList { token: 1, window: 2, offset: 3, pieces: &pieces }))
    };
    assert_eq!(Frame::decode(&list(0, 1)), field(21, "pieces"));
    assert!(Frame::decode(&list(MOST_GET_PIECES, (1 << 22) - 1)).is_ok());
    assert_eq!(Frame::decode(&list(MOST_GET_PIECES, 1 << 22)), field(21, "length"));
    assert_eq!(Frame::decode(&list(MOST_GET_PIECES + 1, 1)), field(21, "pieces"));
    let told = pieces(list_vectors()[1].0.list());
    assert_eq!(told.collect::<Vec<_>>(), [(0x50, 2), (0, 1)]);
}

#[test]
fn forbidden_values_of_records_to_many_do_not_decode() {
    let changed = |index: usize, at: usize, byte| {
        let mut bytes = bytes(&cast_vectors()[index].0);
        bytes[at] = byte;
        bytes
    };
    let field = |kind, field| Err(FrameError::Field { kind, field });
    let length = |kind, length| Err(FrameError::Length { kind, length });
    for flags in [1, 3, 4, 128] {
        assert_eq!(Frame::decode(&changed(0, 1, flags)), field(22, "flags"));
    }
    let mut unanswered = changed(0, 1, 0);
    unanswered[20..28].fill(0);
    assert_eq!(Frame::decode(&unanswered), field(22, "token"));
    assert_eq!(Frame::decode(&changed(0, 2, 3)), length(22, 43));
    assert_eq!(Frame::decode(&changed(0, 3, 1)), length(22, 43));
    assert_eq!(Frame::decode(&changed(1, 1, 0)), field(23, "rank"));
    assert_eq!(Frame::decode(&changed(1, 2, 1)), length(23, 24));
    assert_eq!(Frame::decode(&changed(1, 3, 1)), length(23, 24));
    let frame = cast_vectors()[0].0;
    let (ranks, data) = (members(frame.list()), frame.data());
    assert_eq!((ranks.collect::<Vec<_>>(), data), (vec![5, 0x108], &b"rec"[..]));
}

#[test]
fn forbidden_values_of_messages_to_services_do_not_decode() {
    let changed = |index: usize, at: usize, byte| {
        let mut bytes = bytes(&service_vectors()[index].0);
        bytes[at] = byte;
        bytes
    };
    let field = |kind, field| Err(FrameError::Field { kind, field });
    assert_eq!(Frame::decode(&changed(0, 1, 1)), field(24, "reserved"));
    assert_eq!(Frame::decode(&changed(0, 4, 2)), field(24, "total"));
    for at in 1..4 {
        assert_eq!(Frame::decode(&changed(2, at, 1)), field(25, "reserved"));
    }
    assert_eq!(Frame::decode(&[25, 0, 0, 0]), Err(FrameError::Length { kind: 25, length: 4 }));
    let most = ServiceMessage { service: u16::MAX, total: u32::MAX, data: &b"x"[..] };
    assert_eq!(Frame::decode(&bytes(&Frame::Service(most))), Ok(Frame::Service(most)));
}

#[test]
fn forbidden_values_of_one_sided_operations_do_not_decode() {
    let field = |kind, field| Err(FrameError::Field { kind, field });
    let changed = |index: usize, at: usize, byte| {
        let mut bytes = bytes(&vectors()[index].0);
        bytes[at] = byte;
        bytes
    };
    let zeroed = |index: usize, range: std::ops::Range<usize>| {
        let mut bytes = bytes(&vectors()[index].0);
        bytes[range].fill(0);
        bytes
    };
    assert_eq!(Frame::decode(&changed(10, 1, 4)), field(9, "notify"));
    assert_eq!(Frame::decode(&changed(10, 1, 2)), field(9, "notify"));
    assert_eq!(Frame::decode(&zeroed(10, 24..32)), field(9, "token"));
    assert_eq!(Frame::decode(&changed(13, 1, 4)), field(11, "notify"));
    assert_eq!(Frame::decode(&zeroed(13, 36..44)), field(11, "last"));
    assert_eq!(Frame::decode(&changed(13, 20, 1)), field(11, "stride"));
    assert_eq!(Frame::decode(&changed(13, 28, 0)), field(11, "block"));
    assert_eq!(
        Frame::decode(&changed(13, 28, 3)),
        Err(FrameError::Length { kind: 11, length: 48 })
    );
    assert_eq!(
        Frame::decode(&bytes(&vectors()[13].0)[..44]),
        Err(FrameError::Length { kind: 11, length: 44 })
    );
    assert_eq!(Frame::decode(&changed(14, 28, 1)), field(12, "stride"));
    assert_eq!(Frame::decode(&changed(14, 36, 0)), field(12, "block"));
    assert_eq!(Frame::decode(&changed(14, 40, 0)), field(12, "count"));
    assert_eq!(Frame::decode(&changed(14, 43, 0x80)), field(12, "count"));
    assert_eq!(Frame::decode(&changed(15, 1, 2)), field(13, "notify"));
    assert_eq!(Frame::decode(&changed(15, 2, 3)), Err(FrameError::Length { kind: 13, length: 43 }));
    assert_eq!(Frame::decode(&changed(15, 3, 1)), Err(FrameError::Length { kind: 13, length: 43 }));
    assert_eq!(Frame::decode(&changed(16, 1, 0)), field(14, "rank"));
    let frame = vectors()[15].0;
    let (ranks, data) = (members(frame.list()), frame.data());
    assert_eq!((ranks.collect::<Vec<_>>(), data), (vec![5, 0x108], &b"xyz"[..]));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// A frame that decodes has exactly one encoding: that of its own fields. Only what its padding holds does not matter.
    #[test]
    fn one_encoding(kind in 0..26u8, parameter in 0..7u8, second in 0..3u8, rest in prop::collection::vec(0..2u8, 0..64)) {
        let input = [&[kind, parameter, second, 0], &rest[..]].concat();
        if let Ok(frame) = Frame::decode(&input) {
            let mut encoded = bytes(&frame);
            let length = encoded.len();
            encoded.resize(input.len(), 0);
            prop_assert!(length == input.len() || pad(&mut encoded, length));
            prop_assert_eq!(&encoded[..length], &input[..length]);
        }
    }
}
