use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

/// One list, looked through from its beginning.
#[derive(Debug, Default)]
struct Model {
    posted: Vec<(Pattern, u32)>,
    messages: Vec<(Address, u64, u32)>,
}

#[derive(Debug, Clone)]
enum Step {
    Post(Pattern),
    Arrive(Address, u64),
    PutBack(Address, u64),
    Peek(Pattern),
    Cancel(u32),
}

fn address() -> impl Strategy<Value = Address> {
    (0..3_u32, 0..2_u16).prop_map(|(rank, endpoint)| Address { rank, endpoint })
}

fn tag() -> impl Strategy<Value = u64> {
    prop_oneof![0..4_u64, Just(1 << 63), Just((1 << 63) | 1)]
}

fn pattern() -> impl Strategy<Value = Pattern> {
    let ignore = prop_oneof![4 => Just(0), 1 => Just(1), 1 => Just(3), 1 => Just(1 << 63), 1 => Just(2), 1 => Just(5), 1 => Just(u64::MAX)];
    (prop::option::of(address()), tag(), ignore).prop_map(|(source, tag, ignore)| Pattern {
        source,
        tag,
        ignore,
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => pattern().prop_map(Step::Post),
        4 => (address(), tag()).prop_map(|(source, tag)| Step::Arrive(source, tag)),
        1 => (address(), tag()).prop_map(|(source, tag)| Step::PutBack(source, tag)),
        1 => pattern().prop_map(Step::Peek),
        1 => (0..40_u32).prop_map(Step::Cancel),
    ]
}

proptest! {
    #[test]
    fn finds_what_a_list_finds(steps in prop::collection::vec(step(), 0..80)) {
        let (mut posted, mut unexpected, mut model) = (PostedReceives::default(), UnexpectedMessages::default(), Model::default());
        for (number, step) in (0..).zip(steps) {
            match step {
                Step::Post(pattern) => {
                    let place = model.messages.iter().position(|(source, tag, _)| pattern.takes(*source, *tag));
                    let expected = place.map(|place| model.messages.remove(place));
                    let found = unexpected.take(pattern);
                    prop_assert_eq!(found, expected);
                    if found.is_none() {
                        posted.post(pattern, (number, pattern));
                        model.posted.push((pattern, number));
                    }
                }
                Step::Arrive(source, tag) => {
                    let place = model.posted.iter().position(|(pattern, _)| pattern.takes(source, tag));
                    let expected = place.map(|place| model.posted.remove(place).1);
                    let found = posted.find(source, tag).map(|found| found.receive.0);
                    prop_assert_eq!(found, expected);
                    if found.is_none() {
                        unexpected.push(source, tag, number);
                        model.messages.push((source, tag, number));
                    }
                }
                Step::PutBack(source, tag) => if let Some(found) = posted.find(source, tag) {
                    posted.put_back(found.receive.1, found);
                },
                Step::Peek(pattern) => {
                    let expected = model.messages.iter().find(|(source, tag, _)| pattern.takes(*source, *tag)).copied();
                    prop_assert_eq!(unexpected.peek(pattern).map(|(source, tag, number)| (source, tag, *number)), expected);
                }
                Step::Cancel(from) => {
                    let place = model.posted.iter().position(|(_, number)| *number >= from);
                    let expected = place.map(|place| model.posted.remove(place).1);
                    prop_assert_eq!(posted.remove(|receive| receive.0 >= from).map(|receive| receive.0), expected);
                }
            }
            prop_assert_eq!((posted.len(), unexpected.len()), (model.posted.len(), model.messages.len()));
        }
        let left: Vec<_> = posted.drain().into_iter().map(|receive| receive.0).collect();
        prop_assert_eq!(left, model.posted.iter().map(|(_, number)| *number).collect::<Vec<_>>());
        prop_assert_eq!(unexpected.drain().collect::<Vec<_>>(), model.messages);
        prop_assert!(posted.is_empty() && unexpected.is_empty());
    }
}

#[test]
fn many_receives_with_their_own_tags_are_found_at_once() {
    let source = Address { rank: 1, endpoint: 0 };
    let mut posted = PostedReceives::default();
    let tags = 0..200_000_u64;
    for tag in tags.clone() {
        posted.post(Pattern { source: Some(source), tag, ignore: 0 }, tag);
    }
    // In the other order: a search would look at 20,000,000,000 receives.
    for tag in tags.rev() {
        assert_eq!(posted.find(source, tag).map(|found| found.receive), Some(tag));
    }
    assert!(posted.is_empty());
}

#[test]
fn many_messages_with_their_own_tags_are_found_at_once() {
    let source = Address { rank: 1, endpoint: 0 };
    let mut unexpected = UnexpectedMessages::default();
    for tag in 0..200_000_u64 {
        unexpected.push(source, tag, tag);
    }
    for tag in (0..200_000_u64).rev() {
        let pattern = Pattern { source: Some(source), tag, ignore: 0 };
        assert_eq!(unexpected.take(pattern), Some((source, tag, tag)));
    }
    assert!(unexpected.is_empty());
}
