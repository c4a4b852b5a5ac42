use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

fn exposure() -> impl Strategy<Value = Exposure> {
    let piece = (any::<u64>(), any::<u64>(), 0..u64::MAX / 8);
    let pieces = prop::collection::vec(piece, 0..=MOST_PIECES);
    (any::<u32>(), pieces).prop_map(|(process, pieces)| {
        let mut exposure = Exposure::new(process);
        for (key, address, length) in pieces {
            assert!(exposure.add(ExposedPiece { key, address, length }));
        }
        exposure
    })
}

prop_compose! {
    fn header()(
        kind in 1..=10_u8,
        (endpoint, source, credit, status) in any::<(u16, u16, u32, u8)>(),
        (tagged, tag, immediate, length, request) in any::<(bool, u64, Option<u64>, u64, Option<u64>)>(),
        (address, datatype, op, atomic) in any::<(u64, u8, u8, u8)>(),
        exposure in exposure(),
    ) -> Header {
        let kind = Kind::from_byte(kind).unwrap();
        let mut header = Header { credit, tagged, tag, immediate, length, request, status, exposure, ..Header::new(kind, endpoint, source) };
        if kind.is_access() {
            (header.address, header.atomic) = (address, AtomicHeader { datatype, op, kind: atomic });
        }
        header
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(header in header(), data in prop::collection::vec(any::<u8>(), 0..40)) {
        let (bytes, length) = header.encode();
        let message: Vec<u8> = bytes[..length].iter().chain(&data).copied().collect();
        let first = &message[..message.len().min(LONGEST_HEADER)];
        prop_assert_eq!(Header::decode(first), Ok((header, length)));
        for end in 0..length {
            prop_assert_eq!(Header::decode(&message[..end]), Err(BadMessage::Short(end)), "cut at {}", end);
        }
    }

    #[test]
    fn any_bytes_are_a_header_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..=LONGEST_HEADER)) {
        if let Ok((header, length)) = Header::decode(&bytes) {
            prop_assert!(length <= bytes.len());
            let (written, again) = header.encode();
            prop_assert_eq!(Header::decode(&written[..again]), Ok((header, length)));
        }
    }
}

#[test]
fn what_is_no_header_is_refused() {
    let (mut bytes, length) = Header::new(Kind::Announce, 0, 0).encode();
    let change = |bytes: &mut [u8; LONGEST_HEADER], at: usize, value: u8| {
        let old = core::mem::replace(&mut bytes[at], value);
        let found = Header::decode(bytes).map(|_| ());
        bytes[at] = old;
        found
    };
    assert_eq!(length, HEADER_BYTES);
    assert_eq!(change(&mut bytes, 0, 0), Err(BadMessage::Kind(0)));
    assert_eq!(change(&mut bytes, 0, 11), Err(BadMessage::Kind(11)));
    assert_eq!(change(&mut bytes, 1, 8), Err(BadMessage::Flags(8)));
    assert_eq!(change(&mut bytes, 6, 5), Err(BadMessage::Exposure(5)));
    // Two pieces that are together longer than a number.
    bytes[6] = 2;
    bytes[HEADER_BYTES..HEADER_BYTES + 48].fill(0xff);
    assert_eq!(Header::decode(&bytes), Err(BadMessage::Exposure(2)));
}
