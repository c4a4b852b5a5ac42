//! Bytes of messages.

use kumi_coherence::message::{Written, diffs, push_diff};
use kumi_coherence::{BadMessage, BarrierKind, Interval, Knowledge, Message, PageSet};
use proptest::prelude::*;

fn pages() -> impl Strategy<Value = PageSet> {
    prop::collection::vec((any::<u16>(), 1..300u32), 0..6)
        .prop_map(|all| all.into_iter().map(|(at, n)| u32::from(at)..u32::from(at) + n).collect())
}

fn intervals() -> impl Strategy<Value = Vec<Interval>> {
    let one = (any::<u32>(), any::<u64>(), any::<u32>(), pages())
        .prop_map(|(epoch, number, writer, pages)| Interval { epoch, number, writer, pages });
    prop::collection::vec(one, 0..4)
}

fn knowledge() -> impl Strategy<Value = Knowledge> {
    (any::<u32>(), prop::collection::vec(any::<u64>(), 0..5))
        .prop_map(|(epoch, numbers)| Knowledge { epoch, numbers })
}

fn written() -> impl Strategy<Value = Written> {
    prop::collection::vec((any::<u32>(), pages()), 0..4)
}

fn barrier_kind() -> impl Strategy<Value = BarrierKind> {
    prop_oneof![Just(BarrierKind::Memory), Just(BarrierKind::Plain)]
}

fn messages() -> impl Strategy<Value = Message> {
    let (lock, rank, big) = (any::<u32>(), any::<u32>(), any::<u64>());
    let arrive = (big, barrier_kind(), big, written());
    prop_oneof![
        (lock, knowledge()).prop_map(|(lock, known)| Message::LockRequest { lock, known }),
        (lock, rank, knowledge()).prop_map(|(lock, requester, known)| Message::LockForward {
            lock,
            requester,
            known
        }),
        (lock, rank, big, intervals()).prop_map(|(lock, departed, last, intervals)| {
            Message::LockGrant { lock, departed, last, intervals }
        }),
        arrive.prop_map(|(number, kind, allocations, written)| Message::Arrive {
            number,
            kind,
            allocations,
            written
        }),
        (big, written()).prop_map(|(number, written)| Message::Depart { number, written }),
        (lock, rank, intervals()).prop_map(|(condition, departed, intervals)| {
            Message::ConditionSet { condition, departed, intervals }
        }),
        (lock, rank, intervals()).prop_map(|(condition, departed, intervals)| {
            Message::ConditionGrant { condition, departed, intervals }
        }),
        lock.prop_map(|condition| Message::ConditionReset { condition }),
        lock.prop_map(|condition| Message::ConditionWait { condition }),
        (big, prop::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(batch, diffs)| Message::Diffs { batch, diffs }),
        big.prop_map(|batch| Message::DiffsDone { batch }),
        lock.prop_map(|page| Message::Locate { page }),
        (lock, rank).prop_map(|(page, home)| Message::Located { page, home }),
        (big, lock, lock)
            .prop_map(|(ticket, start, end)| Message::Subscribe { ticket, pages: start..end }),
        (big, lock, prop::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(ticket, first, bytes)| Message::Subscribed { ticket, first, bytes }),
        (big, prop::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(batch, diffs)| Message::Update { batch, diffs }),
        (big, prop::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(batch, diffs)| Message::UpdateDiffs { batch, diffs }),
        big.prop_map(|batch| Message::UpdateDone { batch }),
    ]
}

proptest! {
    #[test]
    fn messages_come_back(message in messages()) {
        prop_assert_eq!(Message::decode(&message.encode()), Ok(message));
    }

    /// Whatever arrives is refused or is a message, whose bytes are no longer than what arrived.
    #[test]
    fn any_bytes_are_safe(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        if let Ok(message) = Message::decode(&bytes) {
            prop_assert!(message.encode().len() <= bytes.len());
        }
    }

    #[test]
    fn cut_messages_are_refused(message in messages(), cut in any::<prop::sample::Index>()) {
        let bytes = message.encode();
        let cut = cut.index(bytes.len());
        let open = matches!(
            message,
            Message::Diffs { .. }
                | Message::Subscribed { .. }
                | Message::Update { .. }
                | Message::UpdateDiffs { .. }
        );
        if !open {
            prop_assert!(Message::decode(&bytes[..cut]).is_err());
        }
    }

    #[test]
    fn sets_are_as_sets(ranges in prop::collection::vec((0..60u32, 0..20u32), 0..12), split in 0..12usize) {
        let ranges: Vec<_> = ranges.iter().map(|(at, n)| *at..at + n).collect();
        let (some, others) = ranges.split_at(split.min(ranges.len()));
        let holds = |all: &[std::ops::Range<u32>], page| all.iter().any(|range| range.contains(&page));
        let (mut union, other): (PageSet, PageSet) =
            (some.iter().cloned().collect(), others.iter().cloned().collect());
        let mut less = union.clone();
        less.subtract(&other);
        union.union(&other);
        for page in 0..100 {
            let (one, two) = (holds(some, page), holds(others, page));
            prop_assert_eq!(union.contains(page), one || two);
            prop_assert_eq!(less.contains(page), one && !two);
        }
        for set in [&union, &less] {
            prop_assert!(set.ranges().windows(2).all(|pair| pair[0].end < pair[1].start));
            prop_assert_eq!(set.pages(), (0..100).filter(|page| set.contains(*page)).count() as u64);
        }
    }
}

/// The bytes of a message, as docs/reference/dsm-protocol.md has them.
#[test]
fn a_message_has_these_bytes() {
    let pages = [3..5, 200..201].into_iter().collect();
    let interval = Interval { epoch: 1, number: 300, writer: 2, pages };
    let grant = Message::LockGrant { lock: 7, departed: 5, last: 301, intervals: vec![interval] };
    let bytes = [3, 7, 5, 0xad, 2, 1, 1, 0xac, 2, 2, 2, 3, 2, 0xc3, 1, 1];
    assert_eq!(grant.encode(), bytes);
}

#[test]
fn diffs_are_found_again_and_broken_ones_end() {
    let mut body = Vec::new();
    push_diff(&mut body, 9, &[1, 2, 3]);
    push_diff(&mut body, 10, &[]);
    let found: Vec<_> = diffs(&body).collect();
    assert_eq!(found, [Ok((9, &[1, 2, 3][..])), Ok((10, &[][..]))]);
    body.pop();
    let found: Vec<_> = diffs(&body).collect();
    assert_eq!(found, [Ok((9, &[1, 2, 3][..])), Err(BadMessage::Short)]);
}
