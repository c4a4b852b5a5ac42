//! Matching of messages and receives.
//!
//! Messages of a pair match in the order they were sent; a receive from anybody takes the one whose
//! start arrived first. A message that nobody waits for is kept, within a bound; one that somebody
//! waits for goes straight into the receiver's buffer, fragment by fragment. Finding the partner takes the same time however
//! many wait, unless a receive names no sender or no tag.

use std::collections::HashMap;

use kumi_net::{CopySource, Delivery, SharedBytesMut};

use crate::group::tag::other_call;
use crate::message::match_lists::{MatchKey, MatchLists};
use crate::message::own_receives::OwnReceives;

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
    /// The only sender that fits, if there is one.
    pub(crate) fn only_rank(&self) -> Option<u32> {
        match self.from {
            Source::Rank(rank) => Some(rank),
            Source::Any => None,
        }
    }

    /// The only sender and tag that fit, if it is so.
    fn key(&self) -> Option<MatchKey> {
        match (self.from, self.tag) {
            (Source::Rank(rank), Tag::Is(tag)) => Some((rank, tag)),
            _ => None,
        }
    }

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

/// A message that no receive has taken.
#[derive(Debug)]
struct UnexpectedMessage {
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

    fn status(&self) -> MessageStatus {
        let len = usize::try_from(self.total).unwrap_or(usize::MAX);
        MessageStatus { from: self.from, tag: self.tag, len }
    }
}

#[derive(Debug)]
struct PostedReceive {
    wanted: MatchPattern,
    buffer: ReceiveBuffer,
    /// The request whose receive it is.
    request: Option<u32>,
    matched: Option<MessageStatus>,
    /// The number of the message, which says when it began to arrive.
    arrived: u64,
    complete: bool,
    /// It is among the mailbox's `own_receives`.
    own: bool,
}

/// A rank whose message is of another collective, with the names of its collective and of the own one.
pub(crate) type OtherCall = (u32, &'static str, &'static str);

/// Names a message or a receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MailboxEntry {
    place: u32,
    /// No other has the same.
    number: u64,
}

/// Where the rest of a pair's current message goes.
#[derive(Debug, Clone, Copy)]
enum StreamTarget {
    Kept(MailboxEntry),
    Posted(MailboxEntry),
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
    /// All by sender and tag, and in their order.
    kept: MatchLists<UnexpectedMessage>,
    /// Those without a message: by sender and tag, or, if they name only one of them, in their order.
    posted: MatchLists<PostedReceive>,
    streams: HashMap<u32, MessageStream>,
    /// Receives of requests that wait for messages of collectives.
    own_receives: OwnReceives,
    /// Those of them that will get none: the request's place, the receive, and what [`Mailbox::other_call`] says.
    pub(crate) hopeless: Vec<(u32, MailboxEntry, OtherCall)>,
    unread: u64,
    /// Of these, messages with the library's own tags.
    own_unread: u64,
    cost: usize,
    bound: usize,
    next: u64,
    /// Receives of requests that have got their messages: the request's place, and the receive.
    pub(crate) ended: Vec<(u32, MailboxEntry)>,
    /// The rank that the program waits for. Messages of this rank are kept beyond the bound, since the
    /// awaited one may be behind them.
    pub(crate) awaited: Option<u32>,
    /// Others of whom the same is true at the same time.
    pub(crate) awaited_too: Vec<u32>,
    /// The program waits for what any rank may send to a service.
    pub(crate) awaits_anybody: bool,
    /// Several threads wait, and any rank may be one that they wait for.
    pub(crate) keeps_all: bool,
}

impl Mailbox {
    pub(crate) fn new(bound: usize) -> Mailbox {
        Mailbox {
            kept: MatchLists::default(),
            posted: MatchLists::default(),
            streams: HashMap::new(),
            own_receives: OwnReceives::default(),
            hopeless: Vec::new(),
            unread: 0,
            own_unread: 0,
            cost: 0,
            bound,
            next: 0,
            ended: Vec::new(),
            awaited: None,
            awaited_too: Vec::new(),
            awaits_anybody: false,
            keeps_all: false,
        }
    }

    /// Messages kept.
    pub(crate) fn unread(&self) -> u64 {
        self.unread
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
        let kept = UnexpectedMessage { from, tag, total, data: Vec::new() };
        if let Some(place) = self.receive_for(from, tag)
            && let Some(posted) = self.posted.get_mut(place)
        {
            posted.matched = Some(kept.status());
            posted.arrived = self.next;
            self.next += 1;
            if let ReceiveBuffer::Grown(vector) = &mut posted.buffer {
                vector.reserve(total.min(TRUSTED) as usize);
            }
            self.posted.unlink(place);
            self.waits_no_more(place);
            return self.receive_at(place).map(StreamTarget::Posted);
        }
        let cost = self.cost.saturating_add(kept.cost());
        let awaited = self.keeps_all
            || self.awaits_anybody
            || self.awaited == Some(from)
            || self.awaited_too.contains(&from);
        if cost > self.bound && !awaited {
            return None;
        }
        let number = self.next;
        self.next += 1;
        let place = self.keep(number, kept);
        if let Some(kept) = self.kept.get_mut(place) {
            kept.data.reserve(total.min(TRUSTED) as usize);
        }
        if let Some((key, theirs, ours)) = self.own_receives.other((from, tag)) {
            let first = self.posted.first_by(key);
            first.into_iter().for_each(|receive| self.give_up(receive, (from, theirs, ours)));
        }
        Some(StreamTarget::Kept(MailboxEntry { place, number }))
    }

    /// The receive that gets the next message with this tag: of those that fit, the one posted first.
    fn receive_for(&self, from: u32, tag: i32) -> Option<u32> {
        let exact = self.posted.first_by((from, tag));
        let by_pattern = self.posted.all().find(|(_, posted)| posted.wanted.fits(from, tag));
        let by_pattern = by_pattern.map(|(place, _)| place);
        let number = |place: &u32| self.posted.number(*place);
        exact.into_iter().chain(by_pattern).min_by_key(number)
    }

    /// Keeps a message at its place in the order.
    fn keep(&mut self, number: u64, kept: UnexpectedMessage) -> u32 {
        self.cost = self.cost.saturating_add(kept.cost());
        self.unread += 1;
        self.own_unread += u64::from(kept.tag < 0);
        let key = (kept.from, kept.tag);
        let place = self.kept.add(number, kept);
        self.kept.link(place);
        self.kept.link_by(key, place);
        place
    }

    fn receive_at(&self, place: u32) -> Option<MailboxEntry> {
        self.posted.number(place).map(|number| MailboxEntry { place, number })
    }

    /// The receive of this name, if it is there.
    fn receive(&mut self, name: MailboxEntry) -> Option<&mut PostedReceive> {
        let same = self.posted.number(name.place) == Some(name.number);
        if same { self.posted.get_mut(name.place) } else { None }
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
            StreamTarget::Kept(name) => {
                if let Some(kept) = self.kept.get_mut(name.place) {
                    data.append_to(&mut kept.data);
                }
            }
            StreamTarget::Posted(name) => {
                let complete = stream.received + data.len() as u64 == stream.total;
                if let Some(posted) = self.receive(name) {
                    posted.buffer.append(stream.received, data);
                    posted.complete = complete;
                    let ended = posted.request.filter(|_| complete);
                    self.ended.extend(ended.map(|request| (request, name)));
                }
            }
        }
        stream.received += data.len() as u64;
        if stream.received < stream.total {
            self.streams.insert(from, stream);
        }
        Ok(())
    }

    /// Posts a receive; its name is for [`Mailbox::take`] and [`Mailbox::withdraw`].
    pub(crate) fn post(&mut self, wanted: MatchPattern, buffer: ReceiveBuffer) -> MailboxEntry {
        self.post_for(wanted, buffer, None)
    }

    /// As [`Mailbox::post`], for a request, which is noted in `ended` when the message is complete.
    pub(crate) fn post_for(
        &mut self,
        wanted: MatchPattern,
        buffer: ReceiveBuffer,
        request: Option<u32>,
    ) -> MailboxEntry {
        let number = self.next;
        self.next += 1;
        let (matched, arrived, complete, own) = (None, 0, false, false);
        let posted = PostedReceive { wanted, buffer, request, matched, arrived, complete, own };
        let place = self.posted.add(number, posted);
        match (self.message_for(wanted), wanted.key()) {
            (Some(kept), _) => self.claim(kept, place),
            (None, Some(key)) => {
                self.posted.link_by(key, place);
                self.waits_for_own(key, place);
            }
            (None, None) => self.posted.link(place),
        }
        MailboxEntry { place, number }
    }

    /// A receive waits for a message. If it is a request's for one of a collective, a message of another collective is
    /// looked for, now and from now on.
    fn waits_for_own(&mut self, key: MatchKey, place: u32) {
        let posted = self.posted.get_mut(place);
        let Some(posted) = posted.filter(|posted| key.1 < 0 && posted.request.is_some()) else {
            return;
        };
        posted.own = true;
        let wanted = posted.wanted;
        self.own_receives.add(key);
        if let Some(other) = self.other_call(wanted) {
            self.give_up(place, other);
        }
    }

    /// A receive has got its message, or is about to be forgotten.
    fn waits_no_more(&mut self, place: u32) {
        if let Some(posted) = self.posted.get_mut(place)
            && std::mem::take(&mut posted.own)
            && let Some(key) = posted.wanted.key()
        {
            self.own_receives.remove(key);
        }
    }

    /// Notes that the message of a request's receive will not come.
    fn give_up(&mut self, place: u32, other: OtherCall) {
        let request = self.posted.get(place).and_then(|posted| posted.request);
        if let (Some(request), Some(name)) = (request, self.receive_at(place)) {
            self.hopeless.push((request, name, other));
        }
    }

    /// A receive of the first message that fits, if there is one: nobody else gets it.
    pub(crate) fn claim_kept(&mut self, wanted: MatchPattern) -> Option<MailboxEntry> {
        self.message_for(wanted)?;
        Some(self.post(wanted, ReceiveBuffer::Grown(Vec::new())))
    }

    /// The first message that fits and that no receive has taken.
    fn message_for(&self, wanted: MatchPattern) -> Option<u32> {
        if self.unread == 0 {
            return None;
        }
        if let Some(key) = wanted.key() {
            return self.kept.first_by(key);
        }
        let fitting = self.kept.all().find(|(_, kept)| wanted.fits(kept.from, kept.tag));
        fitting.map(|(place, _)| place)
    }

    /// Gives a kept message to a receive.
    fn claim(&mut self, kept: u32, receive: u32) {
        let Some(number) = self.kept.number(kept) else { return };
        let Some(kept) = self.kept.remove(kept) else { return };
        self.posted.unlink(receive);
        self.unread -= 1;
        self.own_unread -= u64::from(kept.tag < 0);
        self.waits_no_more(receive);
        self.cost = self.cost.saturating_sub(kept.cost());
        let Some(name) = self.receive_at(receive) else { return };
        if !kept.complete()
            && let Some(stream) = self.streams.get_mut(&kept.from)
        {
            stream.target = StreamTarget::Posted(name);
        }
        let Some(posted) = self.posted.get_mut(receive) else { return };
        posted.matched = Some(kept.status());
        posted.arrived = number;
        posted.complete = kept.complete();
        let ended = posted.request.filter(|_| posted.complete);
        self.ended.extend(ended.map(|request| (request, name)));
        match &mut posted.buffer {
            ReceiveBuffer::Grown(vector) => *vector = kept.data,
            lent @ ReceiveBuffer::Lent(_) => lent.append(0, &kept.data[..]),
        }
    }

    /// A finished receive and its buffer.
    pub(crate) fn take(&mut self, name: MailboxEntry) -> Option<(MessageStatus, ReceiveBuffer)> {
        if !self.receive(name)?.complete {
            return None;
        }
        let posted = self.posted.remove(name.place)?;
        posted.matched.map(|received| (received, posted.buffer))
    }

    /// Sender, tag and length of the message of a receive, once it has one; and whether it fits the buffer.
    pub(crate) fn matched(&mut self, name: MailboxEntry) -> Option<(MessageStatus, bool)> {
        let posted = self.receive(name)?;
        let status = posted.matched?;
        let fits = match &posted.buffer {
            ReceiveBuffer::Lent(memory) => status.len <= memory.len(),
            ReceiveBuffer::Grown(_) => true,
        };
        Some((status, fits))
    }

    /// Takes back a receive that has no message; false if it has one.
    pub(crate) fn cancel(&mut self, name: MailboxEntry) -> bool {
        let waits = self.receive(name).is_some_and(|posted| posted.matched.is_none());
        if waits {
            self.waits_no_more(name.place);
            self.posted.remove(name.place);
        }
        waits
    }

    /// Forgets a receive. A message that came for it, or began to, is kept again at its place in the
    /// order, even beyond the bound, or goes to another receive that waits for it. One longer than the buffer is dropped.
    pub(crate) fn withdraw(&mut self, name: MailboxEntry) {
        if self.receive(name).is_none() {
            return;
        }
        self.ended.retain(|ended| ended.1 != name);
        self.waits_no_more(name.place);
        let Some(posted) = self.posted.remove(name.place) else { return };
        let PostedReceive { buffer, matched, arrived, complete, .. } = posted;
        let Some(MessageStatus { from, tag, len }) = matched else { return };
        let stream = self.streams.get(&from);
        let stream =
            stream.filter(|it| matches!(it.target, StreamTarget::Posted(to) if to == name));
        let (total, came) = match stream {
            Some(stream) => (stream.total, stream.received),
            None if complete => (len as u64, len as u64),
            // Its sender broke the protocol in the middle.
            None => return,
        };
        let streams = stream.is_some();
        let data = buffer.into_bytes(total, came);
        let target = match data {
            Some(data) => {
                let place = self.keep(arrived, UnexpectedMessage { from, tag, total, data });
                StreamTarget::Kept(MailboxEntry { place, number: arrived })
            }
            None => StreamTarget::Nowhere,
        };
        if streams && let Some(stream) = self.streams.get_mut(&from) {
            stream.target = target;
        }
        if let StreamTarget::Kept(kept) = target
            && let Some(receive) = self.receive_for(from, tag)
        {
            self.claim(kept.place, receive);
        }
    }

    /// Drops whole messages of collectives that nobody has received; how many there were.
    pub(crate) fn drop_own(&mut self) -> usize {
        let own = self.kept.all().filter(|(_, kept)| kept.tag < 0 && kept.complete());
        let places: Vec<u32> = own.map(|(place, _)| place).collect();
        for place in &places {
            let Some(kept) = self.kept.remove(*place) else { continue };
            self.unread -= 1;
            self.own_unread -= 1;
            self.cost = self.cost.saturating_sub(kept.cost());
        }
        places.len()
    }

    /// For a receive of a message of a collective: the rank that has sent one of another collective in its place, with the
    /// names of both. The messages of a pair come in their order, so the one that is waited for will not come.
    pub(crate) fn other_call(&self, wanted: MatchPattern) -> Option<OtherCall> {
        let MatchPattern { from: Source::Rank(rank), tag: Tag::Is(tag) } = wanted else {
            return None;
        };
        if self.own_unread == 0 {
            return None;
        }
        let of_rank = self.kept.all().map(|(_, kept)| kept).filter(|kept| kept.from == rank);
        let mut others = of_rank.filter_map(|kept| other_call(tag, kept.tag));
        others.next().map(|(ours, theirs)| (rank, theirs, ours))
    }

    /// The first message that fits and that no receive has taken.
    pub(crate) fn probe(&self, wanted: MatchPattern) -> Option<MessageStatus> {
        let place = self.message_for(wanted)?;
        self.kept.get(place).map(UnexpectedMessage::status)
    }
}

#[cfg(test)]
mod tests;
