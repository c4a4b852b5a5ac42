//! Matching of messages and receives.
//!
//! Messages of a pair match in the order they were sent; a receive from anybody takes the one whose
//! start arrived first. A message that nobody waits for is kept, within a bound; one that somebody
//! waits for goes straight into the receiver's buffer, fragment by fragment.

use std::collections::{HashMap, VecDeque};

use kumi_proto::Delivery;

/// What one kept message costs beside its bytes, so that empty ones are bounded too.
const OVERHEAD: usize = 64;
/// Most bytes reserved for a message on the word of its first fragment.
const TRUSTED: u64 = 64 << 20;

/// From whom to receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// From any rank.
    Any,
    /// From this one.
    Rank(u32),
}

/// Which tag to receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tag {
    /// Any tag of the program's own (0 or more).
    Any,
    /// This one.
    Is(i32),
}

/// What was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// The sender.
    pub from: u32,
    /// Its tag.
    pub tag: i32,
    /// Bytes of the message.
    pub len: usize,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) from: Source,
    pub(crate) tag: Tag,
}

impl Wanted {
    fn fits(&self, from: u32, tag: i32) -> bool {
        let source = match self.from {
            Source::Any => true,
            Source::Rank(rank) => rank == from,
        };
        source
            && match self.tag {
                Tag::Any => tag >= 0,
                Tag::Is(wanted) => wanted == tag,
            }
    }
}

/// Where the bytes of a message go.
#[derive(Debug)]
pub(crate) enum Buffer {
    /// Memory of a receiver that waits until the message is complete or withdraws its receive.
    Raw(*mut u8, usize),
    /// A vector that grows.
    Grown(Vec<u8>),
}

// SAFETY: the memory behind a raw buffer is lent to the mailbox by a caller that does not touch it
// meanwhile; which thread writes it does not matter.
unsafe impl Send for Buffer {}

impl Buffer {
    /// Copies as much as fits.
    fn append(&mut self, at: u64, data: &[u8]) {
        match self {
            Buffer::Grown(vector) => vector.extend_from_slice(data),
            Buffer::Raw(start, capacity) => {
                let Ok(at) = usize::try_from(at) else { return };
                let fits = data.len().min(capacity.saturating_sub(at));
                if fits > 0 {
                    // SAFETY: `at + fits <= capacity`, and the memory is lent to us.
                    unsafe { start.add(at).copy_from_nonoverlapping(data.as_ptr(), fits) };
                }
            }
        }
    }

    /// The first bytes of a message, so many of which came; `None` if it is too long to be here.
    fn into_bytes(self, total: u64, came: u64) -> Option<Vec<u8>> {
        match self {
            Buffer::Grown(vector) => Some(vector),
            Buffer::Raw(start, capacity) if total <= capacity as u64 => {
                // SAFETY: `came <= total <= capacity`, and the memory is lent to us.
                Some(unsafe { std::slice::from_raw_parts(start, came as usize) }.to_vec())
            }
            Buffer::Raw(..) => None,
        }
    }
}

#[derive(Debug)]
struct Kept {
    number: u64,
    from: u32,
    tag: i32,
    total: u64,
    data: Vec<u8>,
}

impl Kept {
    fn cost(&self) -> usize {
        OVERHEAD + usize::try_from(self.total).unwrap_or(usize::MAX - OVERHEAD)
    }

    fn complete(&self) -> bool {
        self.data.len() as u64 == self.total
    }
}

#[derive(Debug)]
struct Posted {
    number: u64,
    wanted: Wanted,
    buffer: Buffer,
    matched: Option<Received>,
    /// The number of the message, which says when it began to arrive.
    arrived: u64,
    complete: bool,
}

/// Where the rest of a pair's current message goes.
#[derive(Debug, Clone, Copy)]
enum Target {
    Kept(u64),
    Posted(u64),
    Nowhere,
}

#[derive(Debug)]
struct Stream {
    target: Target,
    total: u64,
    received: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Mailbox {
    kept: VecDeque<Kept>,
    posted: Vec<Posted>,
    streams: HashMap<u32, Stream>,
    cost: usize,
    bound: usize,
    next: u64,
    /// Whom the program waits for. What this rank sends is kept beyond the bound: what is waited
    /// for may be behind it.
    pub(crate) awaited: Option<u32>,
    /// Others of whom the same is true at the same time.
    pub(crate) awaited_too: Vec<u32>,
}

impl Mailbox {
    pub(crate) fn new(bound: usize) -> Mailbox {
        Mailbox {
            kept: VecDeque::new(),
            posted: Vec::new(),
            streams: HashMap::new(),
            cost: 0,
            bound,
            next: 0,
            awaited: None,
            awaited_too: Vec::new(),
        }
    }

    /// Messages kept.
    pub(crate) fn unread(&self) -> u64 {
        self.kept.len() as u64
    }

    /// First fragment of a message. An error is a sender's fault.
    pub(crate) fn first(
        &mut self,
        from: u32,
        tag: i32,
        total: u64,
        data: &[u8],
    ) -> Result<Delivery, &'static str> {
        if self.streams.contains_key(&from) {
            return Err("a message began inside of another one");
        }
        if data.len() as u64 > total {
            return Err("a message is longer than it says");
        }
        let Some(target) = self.place_for(from, tag, total) else { return Ok(Delivery::Full) };
        let stream = Stream { target, total, received: 0 };
        self.advance(from, stream, data)?;
        Ok(Delivery::Taken)
    }

    /// Next fragment of the pair's message.
    pub(crate) fn part(&mut self, from: u32, data: &[u8]) -> Result<(), &'static str> {
        let stream = self.streams.remove(&from).ok_or("a fragment belongs to no message")?;
        self.advance(from, stream, data)
    }

    /// Decides where a message goes; `None` if it cannot be kept now.
    fn place_for(&mut self, from: u32, tag: i32, total: u64) -> Option<Target> {
        let waiting =
            |posted: &&mut Posted| posted.matched.is_none() && posted.wanted.fits(from, tag);
        if let Some(posted) = self.posted.iter_mut().find(waiting) {
            let len = usize::try_from(total).unwrap_or(usize::MAX);
            posted.matched = Some(Received { from, tag, len });
            posted.arrived = self.next;
            self.next += 1;
            if let Buffer::Grown(vector) = &mut posted.buffer {
                vector.reserve(total.min(TRUSTED) as usize);
            }
            return Some(Target::Posted(posted.number));
        }
        let mut kept = Kept { number: self.next, from, tag, total, data: Vec::new() };
        let cost = self.cost.saturating_add(kept.cost());
        let awaited = self.awaited == Some(from) || self.awaited_too.contains(&from);
        if cost > self.bound && !awaited {
            return None;
        }
        kept.data.reserve(total.min(TRUSTED) as usize);
        self.next += 1;
        self.cost = cost;
        let target = Target::Kept(kept.number);
        self.kept.push_back(kept);
        Some(target)
    }

    fn advance(&mut self, from: u32, mut stream: Stream, data: &[u8]) -> Result<(), &'static str> {
        if data.len() as u64 > stream.total - stream.received {
            return Err("a message is longer than it says");
        }
        match stream.target {
            Target::Nowhere => {}
            Target::Kept(number) => {
                if let Some(kept) = self.kept.iter_mut().find(|kept| kept.number == number) {
                    kept.data.extend_from_slice(data);
                }
            }
            Target::Posted(number) => {
                let found = self.posted.iter_mut().find(|posted| posted.number == number);
                if let Some(posted) = found {
                    posted.buffer.append(stream.received, data);
                    posted.complete = stream.received + data.len() as u64 == stream.total;
                }
            }
        }
        stream.received += data.len() as u64;
        if stream.received < stream.total {
            self.streams.insert(from, stream);
        }
        Ok(())
    }

    /// Posts a receive; its number is for [`Mailbox::take`] and [`Mailbox::withdraw`].
    pub(crate) fn post(&mut self, wanted: Wanted, buffer: Buffer) -> u64 {
        let number = self.next;
        self.next += 1;
        let (matched, arrived, complete) = (None, 0, false);
        let mut posted = Posted { number, wanted, buffer, matched, arrived, complete };
        if let Some(at) = self.kept.iter().position(|kept| wanted.fits(kept.from, kept.tag)) {
            self.claim(at, &mut posted);
        }
        self.posted.push(posted);
        number
    }

    /// Gives a kept message to a receive.
    fn claim(&mut self, at: usize, posted: &mut Posted) {
        let Some(kept) = self.kept.remove(at) else { return };
        self.cost = self.cost.saturating_sub(kept.cost());
        let len = usize::try_from(kept.total).unwrap_or(usize::MAX);
        posted.matched = Some(Received { from: kept.from, tag: kept.tag, len });
        posted.arrived = kept.number;
        posted.complete = kept.complete();
        if !posted.complete
            && let Some(stream) = self.streams.get_mut(&kept.from)
        {
            stream.target = Target::Posted(posted.number);
        }
        match &mut posted.buffer {
            Buffer::Grown(vector) => *vector = kept.data,
            raw @ Buffer::Raw(..) => raw.append(0, &kept.data),
        }
    }

    /// A finished receive and its buffer.
    pub(crate) fn take(&mut self, number: u64) -> Option<(Received, Buffer)> {
        let at =
            self.posted.iter().position(|posted| posted.number == number && posted.complete)?;
        let posted = self.posted.swap_remove(at);
        posted.matched.map(|received| (received, posted.buffer))
    }

    /// Forgets a receive. A message that came for it, or began to, is kept again where it was in the
    /// order, even beyond the bound; one that is longer than the buffer is dropped. (The program waits
    /// for one receive at a time, so no other one waits for this message.)
    pub(crate) fn withdraw(&mut self, number: u64) {
        let Some(at) = self.posted.iter().position(|posted| posted.number == number) else {
            return;
        };
        let Posted { buffer, matched, arrived, complete, .. } = self.posted.remove(at);
        let Some(Received { from, tag, len }) = matched else { return };
        let stream = self.streams.get_mut(&from);
        let stream = stream.filter(|it| matches!(it.target, Target::Posted(to) if to == number));
        let (total, came) = match &stream {
            Some(stream) => (stream.total, stream.received),
            None if complete => (len as u64, len as u64),
            // Its sender broke the protocol in the middle.
            None => return,
        };
        let data = buffer.into_bytes(total, came);
        if let Some(stream) = stream {
            stream.target = data.as_ref().map_or(Target::Nowhere, |_| Target::Kept(arrived));
        }
        let Some(data) = data else { return };
        let kept = Kept { number: arrived, from, tag, total, data };
        self.cost = self.cost.saturating_add(kept.cost());
        let at = self.kept.partition_point(|kept| kept.number < arrived);
        self.kept.insert(at, kept);
    }

    /// The first message that fits and that no receive has taken.
    pub(crate) fn probe(&self, wanted: Wanted) -> Option<Received> {
        let kept = self.kept.iter().find(|kept| wanted.fits(kept.from, kept.tag))?;
        let len = usize::try_from(kept.total).unwrap_or(usize::MAX);
        Some(Received { from: kept.from, tag: kept.tag, len })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wanted(from: Source, tag: Tag) -> Wanted {
        Wanted { from, tag }
    }

    fn vector(mailbox: &mut Mailbox, number: u64) -> Option<(Received, Vec<u8>)> {
        match mailbox.take(number)? {
            (received, Buffer::Grown(vector)) => Some((received, vector)),
            (_, Buffer::Raw(..)) => None,
        }
    }

    fn grown() -> Buffer {
        Buffer::Grown(Vec::new())
    }

    #[test]
    fn messages_of_a_pair_match_in_order_and_tags_select() {
        let mut mailbox = Mailbox::new(1 << 20);
        for (tag, byte) in [(1, b'a'), (2, b'b'), (1, b'c')] {
            assert_eq!(mailbox.first(5, tag, 1, &[byte]), Ok(Delivery::Taken));
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
        assert_eq!(mailbox.first(0, -4, 0, &[]), Ok(Delivery::Taken));
        assert!(mailbox.probe(wanted(Source::Any, Tag::Any)).is_none());
        assert!(mailbox.probe(wanted(Source::Any, Tag::Is(-4))).is_some());
    }

    #[test]
    fn fragments_go_to_the_buffer_even_when_the_receive_comes_in_the_middle() {
        let mut mailbox = Mailbox::new(1 << 20);
        assert_eq!(mailbox.first(1, 0, 6, b"ab"), Ok(Delivery::Taken));
        let mut memory = [0u8; 6];
        let buffer = Buffer::Raw(memory.as_mut_ptr(), memory.len());
        let number = mailbox.post(wanted(Source::Rank(1), Tag::Is(0)), buffer);
        assert!(mailbox.take(number).is_none());
        mailbox.part(1, b"cd").expect("part");
        mailbox.part(1, b"ef").expect("part");
        assert!(mailbox.take(number).is_some_and(|(received, _)| received.len == 6));
        assert_eq!(&memory, b"abcdef");
        assert_eq!(mailbox.cost, 0);
    }

    #[test]
    fn a_buffer_too_small_gets_the_start() {
        let mut mailbox = Mailbox::new(1 << 20);
        let mut memory = [9u8; 4];
        let buffer = Buffer::Raw(memory.as_mut_ptr(), 3);
        let number = mailbox.post(wanted(Source::Any, Tag::Any), buffer);
        assert_eq!(mailbox.first(1, 0, 6, b"abcd"), Ok(Delivery::Taken));
        mailbox.part(1, b"ef").expect("part");
        assert!(mailbox.take(number).is_some_and(|(received, _)| received.len == 6));
        assert_eq!(&memory, b"abc\x09");
    }

    #[test]
    fn the_bound_holds_except_for_whom_is_awaited() {
        let mut mailbox = Mailbox::new(1000);
        assert_eq!(mailbox.first(1, 0, 900, &[0; 900]), Ok(Delivery::Taken));
        assert_eq!(mailbox.first(2, 0, 100, &[0; 100]), Ok(Delivery::Full));
        mailbox.awaited = Some(2);
        assert_eq!(mailbox.first(3, 0, 100, &[0; 100]), Ok(Delivery::Full));
        assert_eq!(mailbox.first(2, 0, 100, &[0; 100]), Ok(Delivery::Taken));
        (mailbox.awaited, mailbox.awaited_too) = (None, vec![3, 4]);
        assert_eq!(mailbox.first(2, 0, 100, &[0; 100]), Ok(Delivery::Full));
        assert_eq!(mailbox.first(4, 0, 100, &[0; 100]), Ok(Delivery::Taken));
        mailbox.awaited_too.clear();
        let number = mailbox.post(wanted(Source::Rank(3), Tag::Any), grown());
        assert_eq!(mailbox.first(3, 0, 5000, &[1; 5000]), Ok(Delivery::Taken), "posted");
        assert!(vector(&mut mailbox, number).is_some_and(|(_, data)| data.len() == 5000));
    }

    #[test]
    fn senders_faults_are_noticed() {
        let mut mailbox = Mailbox::new(1000);
        assert!(mailbox.part(1, b"x").is_err());
        assert!(mailbox.first(1, 0, 1, b"xy").is_err());
        assert_eq!(mailbox.first(1, 0, 4, b"xy"), Ok(Delivery::Taken));
        assert!(mailbox.first(1, 0, 4, b"xy").is_err());
        assert!(mailbox.part(1, b"xyz").is_err());
    }

    #[test]
    fn a_withdrawn_receive_is_not_written_to() {
        let mut mailbox = Mailbox::new(1000);
        let mut memory = [0u8; 8];
        let number = {
            let buffer = Buffer::Raw(memory.as_mut_ptr(), memory.len());
            mailbox.post(wanted(Source::Any, Tag::Any), buffer)
        };
        assert_eq!(mailbox.first(1, 0, 4, b"xy"), Ok(Delivery::Taken));
        mailbox.withdraw(number);
        mailbox.part(1, b"zz").expect("kept");
        assert_eq!(&memory[..4], b"xy\0\0");
        assert_eq!(mailbox.first(1, 0, 1, b"n"), Ok(Delivery::Taken), "the pair goes on");
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
            let buffer = Buffer::Raw(memory.as_mut_ptr(), memory.len());
            let number = mailbox.post(wanted(Source::Any, Tag::Any), buffer);
            assert_eq!(mailbox.first(1, 0, 4, b"xy"), Ok(Delivery::Taken));
            if rest {
                mailbox.part(1, b"zz").expect("taken");
            }
            mailbox.withdraw(number);
            if !rest {
                mailbox.part(1, b"zz").expect("dropped");
            }
            assert_eq!((mailbox.unread(), mailbox.cost), (0, 0));
            assert_eq!(mailbox.first(1, 0, 1, b"n"), Ok(Delivery::Taken), "the pair goes on");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        /// Whatever the order of fragments of several senders and of receives, each receive gets
        /// what a reference that keeps whole messages gives it.
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
            let mut open: Vec<(u64, u32, i32)> = Vec::new();
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
                        prop_assert_eq!(mailbox.first(from as u32, *tag, total, &bytes), Ok(Delivery::Taken));
                    } else {
                        mailbox.part(from as u32, &bytes).expect("part");
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

        /// A receive that is withdrawn, whenever that is, has done nothing: one that ends always gets
        /// the message that began first of those that fit and that no other has got.
        #[test]
        fn a_withdrawn_receive_has_done_nothing(choices in prop::collection::vec(any::<u8>(), 300)) {
            let mut mailbox = Mailbox::new(1 << 20);
            // Whose, which tag, how long, and how much of it came.
            let mut messages: Vec<(u32, i32, usize, usize)> = Vec::new();
            let mut memory = [0u8; 8];
            let mut open: Option<(u64, Wanted, bool)> = None;
            for (index, choice) in choices.iter().copied().enumerate() {
                let (from, tag, some) = (u32::from(choice) % 2, i32::from(choice / 2 % 2), usize::from(choice / 16));
                match (choice / 4 % 4, open) {
                    (0, None) => {
                        let source = if some % 2 == 0 { Source::Any } else { Source::Rank(from) };
                        let tag = if some % 3 == 0 { Tag::Any } else { Tag::Is(tag) };
                        let raw = Buffer::Raw(memory.as_mut_ptr(), memory.len());
                        let buffer = if some > 8 { grown() } else { raw };
                        let wanted = wanted(source, tag);
                        open = Some((mailbox.post(wanted, buffer), wanted, some > 8));
                    }
                    (0, Some((number, ..))) => {
                        mailbox.withdraw(number);
                        open = None;
                    }
                    (1, Some((number, wanted, grown))) => {
                        let first = messages.iter().position(|(from, tag, ..)| wanted.fits(*from, *tag));
                        let first = first.filter(|at| messages[*at].2 == messages[*at].3);
                        let Some((received, buffer)) = mailbox.take(number) else {
                            prop_assert!(first.is_none());
                            continue;
                        };
                        let (from, tag, len, _) = messages.remove(first.expect("complete"));
                        prop_assert_eq!(received, Received { from, tag, len });
                        let right: Vec<u8> = (0..len).map(|at| (len * 31 + at) as u8).collect();
                        match buffer {
                            Buffer::Grown(data) => prop_assert_eq!((data, true), (right, grown)),
                            Buffer::Raw(..) => prop_assert_eq!(&memory[..len], &right[..]),
                        }
                        open = None;
                    }
                    _ => {
                        let last = messages.iter_mut().rfind(|message| message.0 == from && message.2 != message.3);
                        let fresh = last.is_none();
                        let mut message = (from, tag, (index + some) % 9, 0);
                        let (.., len, came) = *last.as_deref().unwrap_or(&message);
                        let to = (came + some % 5).min(len);
                        let bytes: Vec<u8> = (came..to).map(|at| (len * 31 + at) as u8).collect();
                        if let Some(message) = last {
                            message.3 = to;
                        }
                        if fresh {
                            message.3 = to;
                            messages.push(message);
                            let taken = mailbox.first(from, tag, len as u64, &bytes);
                            prop_assert_eq!(taken, Ok(Delivery::Taken));
                        } else {
                            mailbox.part(from, &bytes).expect("part");
                        }
                    }
                }
            }
            if let Some((number, ..)) = open {
                mailbox.withdraw(number);
            }
            prop_assert_eq!(mailbox.unread(), messages.len() as u64);
            prop_assert_eq!(mailbox.cost, messages.iter().map(|message| OVERHEAD + message.2).sum::<usize>());
        }
    }
}
