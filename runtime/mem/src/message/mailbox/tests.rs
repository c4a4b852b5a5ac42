//! Tests of matching, and of messages whose receives are withdrawn.

use std::ops::Range;

use std::collections::VecDeque;

use super::*;
use proptest::prelude::*;

fn wanted(from: Source, tag: Tag) -> MatchPattern {
    MatchPattern { from, tag }
}

fn vector(mailbox: &mut Mailbox, number: MailboxEntry) -> Option<(MessageStatus, Vec<u8>)> {
    match mailbox.take(number)? {
        (received, ReceiveBuffer::Grown(vector)) => Some((received, vector)),
        (_, ReceiveBuffer::Lent(_)) => None,
    }
}

/// The test looks at the memory only when the mailbox is done with it.
fn lent(memory: &mut [u8]) -> ReceiveBuffer {
    // SAFETY: as said; the tests keep the memory longer than the mailbox.
    ReceiveBuffer::Lent(unsafe { SharedBytesMut::from(memory).lend() })
}

fn grown() -> ReceiveBuffer {
    ReceiveBuffer::Grown(Vec::new())
}

#[test]
fn messages_of_a_pair_match_in_order_and_tags_select() {
    let mut mailbox = Mailbox::new(1 << 20);
    for (tag, byte) in [(1, b'a'), (2, b'b'), (1, b'c')] {
        assert_eq!(mailbox.first(5, tag, 1, &[byte][..]), Ok(Delivery::Taken));
    }
    let take = |mailbox: &mut Mailbox, tag| {
        let number = mailbox.post(wanted(Source::Any, tag), grown());
        vector(mailbox, number).map(|(_, data)| data)
    };
    assert_eq!(take(&mut mailbox, Tag::Is(2)), Some(b"b".to_vec()));
    assert_eq!(take(&mut mailbox, Tag::Any), Some(b"a".to_vec()));
    assert_eq!(take(&mut mailbox, Tag::Any), Some(b"c".to_vec()));
    assert_eq!(take(&mut mailbox, Tag::Any), None, "and then it waits");
    assert_eq!(mailbox.unread(), 0);
}

#[test]
fn any_tag_never_takes_the_librarys_own() {
    let mut mailbox = Mailbox::new(1 << 20);
    assert_eq!(mailbox.first(0, -4, 0, &[][..]), Ok(Delivery::Taken));
    assert!(mailbox.probe(wanted(Source::Any, Tag::Any)).is_none());
    assert!(mailbox.probe(wanted(Source::Any, Tag::Is(-4))).is_some());
}

#[test]
fn fragments_go_to_the_buffer_even_when_the_receive_comes_in_the_middle() {
    let mut mailbox = Mailbox::new(1 << 20);
    assert_eq!(mailbox.first(1, 0, 6, &b"ab"[..]), Ok(Delivery::Taken));
    let mut memory = [0u8; 6];
    let buffer = lent(&mut memory[..]);
    let number = mailbox.post(wanted(Source::Rank(1), Tag::Is(0)), buffer);
    assert!(mailbox.take(number).is_none());
    mailbox.part(1, &b"cd"[..]).expect("part");
    mailbox.part(1, &b"ef"[..]).expect("part");
    assert!(mailbox.take(number).is_some_and(|(received, _)| received.len == 6));
    assert_eq!(&memory, b"abcdef");
    assert_eq!(mailbox.cost, 0);
}

#[test]
fn a_buffer_too_small_gets_the_start() {
    let mut mailbox = Mailbox::new(1 << 20);
    let mut memory = [9u8; 4];
    let buffer = lent(&mut memory[..3]);
    let number = mailbox.post(wanted(Source::Any, Tag::Any), buffer);
    assert_eq!(mailbox.first(1, 0, 6, &b"abcd"[..]), Ok(Delivery::Taken));
    mailbox.part(1, &b"ef"[..]).expect("part");
    assert!(mailbox.take(number).is_some_and(|(received, _)| received.len == 6));
    assert_eq!(&memory, b"abc\x09");
}

#[test]
fn the_bound_holds_except_for_whom_is_awaited() {
    let mut mailbox = Mailbox::new(1000);
    assert_eq!(mailbox.first(1, 0, 900, &[0; 900][..]), Ok(Delivery::Taken));
    assert_eq!(mailbox.first(2, 0, 100, &[0; 100][..]), Ok(Delivery::Full));
    mailbox.awaited = Some(2);
    assert_eq!(mailbox.first(3, 0, 100, &[0; 100][..]), Ok(Delivery::Full));
    assert_eq!(mailbox.first(2, 0, 100, &[0; 100][..]), Ok(Delivery::Taken));
    (mailbox.awaited, mailbox.awaited_too) = (None, vec![3, 4]);
    assert_eq!(mailbox.first(2, 0, 100, &[0; 100][..]), Ok(Delivery::Full));
    assert_eq!(mailbox.first(4, 0, 100, &[0; 100][..]), Ok(Delivery::Taken));
    mailbox.awaited_too.clear();
    let number = mailbox.post(wanted(Source::Rank(3), Tag::Any), grown());
    assert_eq!(mailbox.first(3, 0, 5000, &[1; 5000][..]), Ok(Delivery::Taken), "posted");
    assert!(vector(&mut mailbox, number).is_some_and(|(_, data)| data.len() == 5000));
}

#[test]
fn senders_faults_are_noticed() {
    let mut mailbox = Mailbox::new(1000);
    assert!(mailbox.part(1, &b"x"[..]).is_err());
    assert!(mailbox.first(1, 0, 1, &b"xy"[..]).is_err());
    for total in [u64::MAX, u64::MAX - 63, LONGEST + 1] {
        assert!(mailbox.first(1, 0, total, &b"x"[..]).is_err());
    }
    assert_eq!(mailbox.first(1, 0, LONGEST, &b"x"[..]), Ok(Delivery::Full));
    assert_eq!((mailbox.unread(), mailbox.cost), (0, 0));
    assert_eq!(mailbox.first(1, 0, 4, &b"xy"[..]), Ok(Delivery::Taken));
    assert!(mailbox.first(1, 0, 4, &b"xy"[..]).is_err());
    assert!(mailbox.part(1, &b"xyz"[..]).is_err());
}

#[test]
fn a_withdrawn_receive_is_not_written_to() {
    let mut mailbox = Mailbox::new(1000);
    let mut memory = [0u8; 8];
    let number = {
        let buffer = lent(&mut memory[..]);
        mailbox.post(wanted(Source::Any, Tag::Any), buffer)
    };
    assert_eq!(mailbox.first(1, 0, 4, &b"xy"[..]), Ok(Delivery::Taken));
    mailbox.withdraw(number);
    mailbox.part(1, &b"zz"[..]).expect("kept");
    assert_eq!(&memory[..4], b"xy\0\0");
    assert_eq!(mailbox.first(1, 0, 1, &b"n"[..]), Ok(Delivery::Taken), "the pair goes on");
    for data in ["xyzz", "n"] {
        let number = mailbox.post(wanted(Source::Any, Tag::Any), grown());
        assert!(vector(&mut mailbox, number).is_some_and(|(_, got)| got == data.as_bytes()));
    }
    assert_eq!(mailbox.cost, 0);
}

#[test]
fn a_withdrawn_receive_of_too_little_drops_the_message() {
    for rest in [false, true] {
        let mut mailbox = Mailbox::new(1000);
        let mut memory = [0u8; 3];
        let buffer = lent(&mut memory[..]);
        let number = mailbox.post(wanted(Source::Any, Tag::Any), buffer);
        assert_eq!(mailbox.first(1, 0, 4, &b"xy"[..]), Ok(Delivery::Taken));
        if rest {
            mailbox.part(1, &b"zz"[..]).expect("taken");
        }
        mailbox.withdraw(number);
        if !rest {
            mailbox.part(1, &b"zz"[..]).expect("dropped");
        }
        assert_eq!((mailbox.unread(), mailbox.cost), (0, 0));
        assert_eq!(mailbox.first(1, 0, 1, &b"n"[..]), Ok(Delivery::Taken), "the pair goes on");
    }
}

/// A message that began to come: whose, which tag, how long, and how much of it came.
type Sent = (u32, i32, usize, usize);

fn text(len: usize, part: Range<usize>) -> Vec<u8> {
    part.map(|at| (len * 31 + at) as u8).collect()
}

/// So many more bytes of the message that is coming from a rank, or the first of this one.
fn come(mailbox: &mut Mailbox, messages: &mut Vec<Sent>, fresh: (u32, i32, usize), more: usize) {
    let (from, tag, len) = fresh;
    if let Some(sent) = messages.iter_mut().find(|sent| sent.0 == from && sent.2 != sent.3) {
        let to = (sent.3 + more).min(sent.2);
        mailbox.part(from, &text(sent.2, sent.3..to)[..]).expect("part");
        sent.3 = to;
        return;
    }
    let to = more.min(len);
    let taken = mailbox.first(from, tag, len as u64, &text(len, 0..to)[..]);
    assert_eq!(taken, Ok(Delivery::Taken));
    messages.push((from, tag, len, to));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// With any order of fragments and receives, each receive gets the message that a reference
    /// implementation gives it, which keeps whole messages.
    #[test]
    fn every_interleaving_keeps_the_order_of_a_pair(
        lengths in prop::collection::vec((0u32..3, 0i32..2, 0usize..20), 1..20),
        choices in prop::collection::vec(any::<u8>(), 200),
    ) {
        let mut mailbox = Mailbox::new(1 << 20);
        let message = |index: usize, length: usize| vec![index as u8; length];
        let mut queues: Vec<VecDeque<(i32, Vec<u8>, usize)>> = vec![VecDeque::new(); 3];
        let mut expected: HashMap<(u32, i32), VecDeque<Vec<u8>>> = HashMap::new();
        for (index, (from, tag, length)) in lengths.iter().enumerate() {
            let data = message(index, *length);
            queues[*from as usize].push_back((*tag, data.clone(), 0));
            expected.entry((*from, *tag)).or_default().push_back(data);
        }
        let mut open: Vec<(MailboxEntry, u32, i32)> = Vec::new();
        let mut wanted_counts: Vec<(u32, i32)> =
            lengths.iter().map(|(from, tag, _)| (*from, *tag)).collect();
        for choice in choices.iter().copied().chain(std::iter::repeat_n(1, 400)) {
            if choice % 4 == 0 && !wanted_counts.is_empty() {
                let (from, tag) = wanted_counts.swap_remove(choice as usize / 4 % wanted_counts.len());
                let number = mailbox.post(wanted(Source::Rank(from), Tag::Is(tag)), grown());
                open.push((number, from, tag));
            } else {
                let from = choice as usize % 3;
                let from = (from..from + 3).map(|i| i % 3).find(|i| !queues[*i].is_empty());
                let Some(from) = from else { continue };
                let (tag, data, sent) = &mut queues[from][0];
                let piece = (choice as usize / 8).clamp(1, 7).min(data.len() - *sent);
                let bytes = data[*sent..*sent + piece].to_vec();
                if *sent == 0 {
                    let total = data.len() as u64;
                    prop_assert_eq!(mailbox.first(from as u32, *tag, total, &bytes[..]), Ok(Delivery::Taken));
                } else {
                    mailbox.part(from as u32, &bytes[..]).expect("part");
                }
                *sent += piece;
                if *sent == data.len() {
                    queues[from].pop_front();
                }
            }
        }
        while let Some((from, tag)) = wanted_counts.pop() {
            open.push((mailbox.post(wanted(Source::Rank(from), Tag::Is(tag)), grown()), from, tag));
        }
        for (number, from, tag) in open {
            let (received, data) = vector(&mut mailbox, number).expect("complete");
            let right = expected.get_mut(&(from, tag)).and_then(VecDeque::pop_front).expect("known");
            prop_assert_eq!((received.from, received.tag), (from, tag));
            prop_assert_eq!(data, right);
        }
        prop_assert_eq!((mailbox.unread(), mailbox.cost), (0, 0));
    }

    /// A withdrawn receive has done nothing. A later receive always gets the message that began first
    /// among the matching ones that no other has got.
    #[test]
    fn a_withdrawn_receive_has_done_nothing(choices in prop::collection::vec(any::<u8>(), 300)) {
        let mut mailbox = Mailbox::new(1 << 20);
        let mut messages: Vec<Sent> = Vec::new();
        let mut memory = [0u8; 8];
        let mut open: Option<(MailboxEntry, MatchPattern, bool)> = None;
        for (index, choice) in choices.iter().copied().enumerate() {
            let (from, tag) = (u32::from(choice) % 2, i32::from(choice / 2 % 2));
            let some = usize::from(choice / 16);
            match (choice / 4 % 4, open) {
                (0, None) => {
                    let source = if some % 2 == 0 { Source::Any } else { Source::Rank(from) };
                    let tag = if some % 3 == 0 { Tag::Any } else { Tag::Is(tag) };
                    let raw = lent(&mut memory[..]);
                    let buffer = if some > 8 { grown() } else { raw };
                    let wanted = wanted(source, tag);
                    open = Some((mailbox.post(wanted, buffer), wanted, some > 8));
                }
                (0, Some((number, ..))) => {
                    mailbox.withdraw(number);
                    open = None;
                }
                (1, Some((number, wanted, grown))) => {
                    let first = messages.iter().position(|sent| wanted.fits(sent.0, sent.1));
                    let first = first.filter(|at| messages[*at].2 == messages[*at].3);
                    let Some((received, buffer)) = mailbox.take(number) else {
                        prop_assert!(first.is_none());
                        continue;
                    };
                    let (from, tag, len, _) = messages.remove(first.expect("complete"));
                    prop_assert_eq!(received, MessageStatus { from, tag, len });
                    let right = text(len, 0..len);
                    match buffer {
                        ReceiveBuffer::Grown(data) => prop_assert_eq!((data, true), (right, grown)),
                        ReceiveBuffer::Lent(_) => prop_assert_eq!(&memory[..len], &right[..]),
                    }
                    open = None;
                }
                _ => come(&mut mailbox, &mut messages, (from, tag, (index + some) % 9), some % 5),
            }
        }
        if let Some((number, ..)) = open {
            mailbox.withdraw(number);
        }
        prop_assert_eq!(mailbox.unread(), messages.len() as u64);
        let cost: usize = messages.iter().map(|sent| OVERHEAD + sent.2).sum();
        prop_assert_eq!(mailbox.cost, cost);
    }
}
