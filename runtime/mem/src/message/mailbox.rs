//! Matching of messages and receives.
//!
//! Messages of a pair match in the order they were sent; a receive from anybody takes the one whose
//! start arrived first. A message that nobody waits for is kept, within a bound; one that somebody
//! waits for goes straight into the receiver's buffer, fragment by fragment.

use std::collections::{HashMap, VecDeque};

use kumi_net::{CopySource, Delivery, SharedBytesMut};

use crate::group::tag::other_call;

/// Cost of a kept message beside its bytes, so that empty messages are bounded too.
const OVERHEAD: usize = 64;
/// Longest message: no memory has more, and sums of these do not overflow.
const LONGEST: u64 = 1 << 48;
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

/// Sender, tag and length of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageStatus {
    /// The sender.
    pub from: u32,
    /// Its tag.
    pub tag: i32,
    /// Bytes of the message.
    pub len: usize,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct MatchPattern {
    pub(crate) from: Source,
    pub(crate) tag: Tag,
}

impl MatchPattern {
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
pub(crate) enum ReceiveBuffer {
    /// Memory of a receiver that waits until the message is complete or withdraws its receive.
    Lent(SharedBytesMut<'static>),
    /// A vector that grows.
    Grown(Vec<u8>),
}

impl ReceiveBuffer {
    /// Copies as much as fits.
    fn append(&mut self, at: u64, data: impl CopySource) {
        match self {
            ReceiveBuffer::Grown(vector) => data.append_to(vector),
            ReceiveBuffer::Lent(memory) => {
                let Ok(at) = usize::try_from(at) else { return };
                let fits = data.len().min(memory.len().saturating_sub(at));
                if fits > 0 {
                    memory.slice(at, fits).copy_from(data.slice(0, fits));
                }
            }
        }
    }

    /// The first `came` bytes of a message; `None` if it is too long for memory.
    fn into_bytes(self, total: u64, came: u64) -> Option<Vec<u8>> {
        match self {
            ReceiveBuffer::Grown(vector) => Some(vector),
            // No more have come than there are in all.
            ReceiveBuffer::Lent(memory) if total <= memory.len() as u64 => {
                Some(memory.slice(0, came as usize).shared().to_vec())
            }
            ReceiveBuffer::Lent(_) => None,
        }
    }
}

#[derive(Debug)]
struct UnexpectedMessage {
    number: u64,
    from: u32,
    tag: i32,
    total: u64,
    data: Vec<u8>,
}

impl UnexpectedMessage {
    fn cost(&self) -> usize {
        usize::try_from(self.total).map_or(usize::MAX, |total| total.saturating_add(OVERHEAD))
    }

    fn complete(&self) -> bool {
        self.data.len() as u64 == self.total
    }
}

#[derive(Debug)]
struct PostedReceive {
    number: u64,
    wanted: MatchPattern,
    buffer: ReceiveBuffer,
    matched: Option<MessageStatus>,
    /// The number of the message, which says when it began to arrive.
    arrived: u64,
    complete: bool,
}

/// Where the rest of a pair's current message goes.
#[derive(Debug, Clone, Copy)]
enum StreamTarget {
    Kept(u64),
    Posted(u64),
    Nowhere,
}

#[derive(Debug)]
struct MessageStream {
    target: StreamTarget,
    total: u64,
    received: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Mailbox {
    kept: VecDeque<UnexpectedMessage>,
    posted: Vec<PostedReceive>,
    streams: HashMap<u32, MessageStream>,
    cost: usize,
    bound: usize,
    next: u64,
    /// The rank that the program waits for. Messages of this rank are kept beyond the bound, since the
    /// awaited one may be behind them.
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
        data: impl CopySource,
    ) -> Result<Delivery, &'static str> {
        if self.streams.contains_key(&from) {
            return Err("a message began inside of another one");
        }
        if data.len() as u64 > total {
            return Err("a message is longer than it says");
        }
        if total > LONGEST {
            return Err("a message is longer than any memory");
        }
        let Some(target) = self.place_for(from, tag, total) else { return Ok(Delivery::Full) };
        let stream = MessageStream { target, total, received: 0 };
        self.advance(from, stream, data)?;
        Ok(Delivery::Taken)
    }

    /// Next fragment of the pair's message.
    pub(crate) fn part(&mut self, from: u32, data: impl CopySource) -> Result<(), &'static str> {
        let stream = self.streams.remove(&from).ok_or("a fragment belongs to no message")?;
        self.advance(from, stream, data)
    }

    /// Decides where a message goes; `None` if it cannot be kept now.
    fn place_for(&mut self, from: u32, tag: i32, total: u64) -> Option<StreamTarget> {
        let waiting =
            |posted: &&mut PostedReceive| posted.matched.is_none() && posted.wanted.fits(from, tag);
        if let Some(posted) = self.posted.iter_mut().find(waiting) {
            let len = usize::try_from(total).unwrap_or(usize::MAX);
            posted.matched = Some(MessageStatus { from, tag, len });
            posted.arrived = self.next;
            self.next += 1;
            if let ReceiveBuffer::Grown(vector) = &mut posted.buffer {
                vector.reserve(total.min(TRUSTED) as usize);
            }
            return Some(StreamTarget::Posted(posted.number));
        }
        let mut kept = UnexpectedMessage { number: self.next, from, tag, total, data: Vec::new() };
        let cost = self.cost.saturating_add(kept.cost());
        let awaited = self.awaited == Some(from) || self.awaited_too.contains(&from);
        if cost > self.bound && !awaited {
            return None;
        }
        kept.data.reserve(total.min(TRUSTED) as usize);
        self.next += 1;
        self.cost = cost;
        let target = StreamTarget::Kept(kept.number);
        self.kept.push_back(kept);
        Some(target)
    }

    fn advance(
        &mut self,
        from: u32,
        mut stream: MessageStream,
        data: impl CopySource,
    ) -> Result<(), &'static str> {
        if data.len() as u64 > stream.total - stream.received {
            return Err("a message is longer than it says");
        }
        match stream.target {
            StreamTarget::Nowhere => {}
            StreamTarget::Kept(number) => {
                if let Some(kept) = self.kept.iter_mut().find(|kept| kept.number == number) {
                    data.append_to(&mut kept.data);
                }
            }
            StreamTarget::Posted(number) => {
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
    pub(crate) fn post(&mut self, wanted: MatchPattern, buffer: ReceiveBuffer) -> u64 {
        let number = self.next;
        self.next += 1;
        let (matched, arrived, complete) = (None, 0, false);
        let mut posted = PostedReceive { number, wanted, buffer, matched, arrived, complete };
        if let Some(at) = self.kept.iter().position(|kept| wanted.fits(kept.from, kept.tag)) {
            self.claim(at, &mut posted);
        }
        self.posted.push(posted);
        number
    }

    /// Gives a kept message to a receive.
    fn claim(&mut self, at: usize, posted: &mut PostedReceive) {
        let Some(kept) = self.kept.remove(at) else { return };
        self.cost = self.cost.saturating_sub(kept.cost());
        let len = usize::try_from(kept.total).unwrap_or(usize::MAX);
        posted.matched = Some(MessageStatus { from: kept.from, tag: kept.tag, len });
        posted.arrived = kept.number;
        posted.complete = kept.complete();
        if !posted.complete
            && let Some(stream) = self.streams.get_mut(&kept.from)
        {
            stream.target = StreamTarget::Posted(posted.number);
        }
        match &mut posted.buffer {
            ReceiveBuffer::Grown(vector) => *vector = kept.data,
            lent @ ReceiveBuffer::Lent(_) => lent.append(0, &kept.data[..]),
        }
    }

    /// A finished receive and its buffer.
    pub(crate) fn take(&mut self, number: u64) -> Option<(MessageStatus, ReceiveBuffer)> {
        let at =
            self.posted.iter().position(|posted| posted.number == number && posted.complete)?;
        let posted = self.posted.swap_remove(at);
        posted.matched.map(|received| (received, posted.buffer))
    }

    /// Forgets a receive. A message that came for it, or began to, is kept again at its place in the
    /// order, even beyond the bound. One longer than the buffer is dropped. (The program waits for one
    /// receive at a time, so no other one waits for this message.)
    pub(crate) fn withdraw(&mut self, number: u64) {
        let Some(at) = self.posted.iter().position(|posted| posted.number == number) else {
            return;
        };
        let PostedReceive { buffer, matched, arrived, complete, .. } = self.posted.remove(at);
        let Some(MessageStatus { from, tag, len }) = matched else { return };
        let stream = self.streams.get_mut(&from);
        let stream =
            stream.filter(|it| matches!(it.target, StreamTarget::Posted(to) if to == number));
        let (total, came) = match &stream {
            Some(stream) => (stream.total, stream.received),
            None if complete => (len as u64, len as u64),
            // Its sender broke the protocol in the middle.
            None => return,
        };
        let data = buffer.into_bytes(total, came);
        if let Some(stream) = stream {
            stream.target =
                data.as_ref().map_or(StreamTarget::Nowhere, |_| StreamTarget::Kept(arrived));
        }
        let Some(data) = data else { return };
        let kept = UnexpectedMessage { number: arrived, from, tag, total, data };
        self.cost = self.cost.saturating_add(kept.cost());
        let at = self.kept.partition_point(|kept| kept.number < arrived);
        self.kept.insert(at, kept);
    }

    /// For a receive of a message of a collective: the rank that has sent one of another collective in its place, with the
    /// names of both. The messages of a pair come in their order, so the one that is waited for will not come.
    pub(crate) fn other_call(
        &self,
        wanted: MatchPattern,
    ) -> Option<(u32, &'static str, &'static str)> {
        let MatchPattern { from: Source::Rank(rank), tag: Tag::Is(tag) } = wanted else {
            return None;
        };
        let of_rank = self.kept.iter().filter(|kept| kept.from == rank);
        let mut others = of_rank.filter_map(|kept| other_call(tag, kept.tag));
        others.next().map(|(ours, theirs)| (rank, theirs, ours))
    }

    /// The first message that fits and that no receive has taken.
    pub(crate) fn probe(&self, wanted: MatchPattern) -> Option<MessageStatus> {
        let kept = self.kept.iter().find(|kept| wanted.fits(kept.from, kept.tag))?;
        let len = usize::try_from(kept.total).unwrap_or(usize::MAX);
        Some(MessageStatus { from: kept.from, tag: kept.tag, len })
    }
}

#[cfg(test)]
mod tests;
