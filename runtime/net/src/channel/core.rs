//! Core of a channel, driven by the holder of its lock: rings to and from the ranks of this node, and
//! the protocol's endpoint with its socket for all others.

mod create;

pub(crate) use create::Origin;

use std::sync::atomic::Ordering::Relaxed;

use kumi_proto::{AckMode, Delivery, Endpoint, Rank, SendError, Sink};

use crate::channel::landing::{ExpectedData, Offered};
use crate::channel::protocol::HoldBack;
use crate::channel::turns::WaitState;
use crate::segment::attachment::Attachment;
use crate::segment::channel_region::ChannelRegion;
use crate::segment::counters::Counter;
use crate::shared_bytes::{CopySource, SharedBytes};
use crate::shm::idle_flag::tell_delivered;
use crate::shm::ring::{Consumer, Producer};
use crate::wait::blocking_wait::BlockingWait;
use crate::wire::driver::{Driver, PacketRun};
use crate::wire::path_mtu::PathMtuChecks;
use crate::wire::unreachable::UnreachablePeers;
use crate::{ChannelError, sys, tracepoints};

/// The layer above, which takes frames. The thread that drives the channel calls it, never two at once.
pub trait Handler: Send + 'static {
    /// A frame from a rank, in order. After [`Delivery::Full`] the same frame comes again later. One that came through the
    /// wire is private; one in a ring may change as long as it is looked at.
    fn frame<S: CopySource>(&mut self, attachment: &Attachment, from: Rank, frame: S) -> Delivery;
    /// Hands out answers of at most `most` bytes, as long as `send` takes them (it says false when
    /// that rank's ring is full).
    ///
    /// # Errors
    /// Those of `send`.
    fn answer(&mut self, most: usize, send: &mut AnswerSender<'_>) -> Result<(), ChannelError>;
    /// There are answers that have not been handed out.
    fn owes_answers(&self) -> bool;
    /// Messages that nobody has received yet.
    fn unread(&self) -> u64;
    /// Operations refused so far.
    fn refused(&self) -> u64;
    /// The rank for which the main thread waits, if it is one and known.
    fn awaits(&self) -> Option<Rank> {
        None
    }
    /// Memory for the data of frames that come next, if it is known. A wire may lay such data there before it is known
    /// whether a packet is right, so all of it has to be memory that right frames still write, and that nobody reads before.
    fn expected(&self) -> Option<ExpectedData<'_>> {
        None
    }
    /// Whether this frame, of which only the beginning `head` is here and `rest` bytes more belong to it, brings the data
    /// for the first bytes of [`Handler::expected`].
    fn is_expected(&self, from: Rank, head: &[u8], rest: usize) -> bool {
        let _ = (from, head, rest);
        false
    }
    /// As [`Handler::frame`], of a frame that [`Handler::is_expected`]. The bytes behind `head` are in their place.
    fn landed(
        &mut self,
        attachment: &Attachment,
        from: Rank,
        head: &[u8],
        rest: usize,
    ) -> Delivery {
        let _ = (attachment, from, head, rest);
        Delivery::Full
    }
}

/// Takes the parts of an answer to a rank: some that are private, and then bytes of a window. False if its ring is full.
pub type AnswerSender<'a> =
    dyn FnMut(Rank, &[&[u8]], SharedBytes<'_>) -> Result<bool, ChannelError> + 'a;

pub(crate) struct HandlerSink<'h, H>(pub(crate) &'h mut H, pub(crate) &'h Attachment);

impl<H: Handler> Sink for HandlerSink<'_, H> {
    fn deliver(&mut self, from: Rank, frame: &[u8]) -> Delivery {
        let delivery = self.0.frame(self.1, from, frame);
        tracepoints::deliver(from, frame.len(), delivery == Delivery::Taken);
        delivery
    }
}

/// The ranks of other nodes.
pub(crate) struct RemoteRanks {
    /// Its state lies at the end of the rank file.
    pub(crate) endpoint: Endpoint<ChannelRegion>,
    pub(crate) wire: Box<dyn Driver>,
    /// The main thread's sleep.
    pub(crate) blocking_wait: BlockingWait,
    /// The time, read when the lock was taken and whenever something happened since.
    pub(crate) now: u64,
    /// When everything was last published.
    pub(crate) published: u64,
    /// Frames are queued that wait for company.
    pub(crate) held: bool,
    /// Bytes of frames ever queued when everything was last sent.
    left: u64,
    /// Packets of the longest run of full ones.
    pub(crate) run: usize,
    /// The wire wants to know where data belongs: see [`Driver::lands`].
    pub(crate) lands: bool,
    pub(crate) offered: Offered,
    /// Where packets are made whole that have landed in the wrong place.
    pub(crate) whole: Vec<u8>,
    paths: PathMtuChecks,
    pub(crate) unreachable: UnreachablePeers,
}

/// See the module.
pub(crate) struct ChannelCore<H> {
    pub(crate) handler: H,
    pub(crate) remote: Option<RemoteRanks>,
    outgoing: Vec<Option<Producer>>,
    pub(crate) incoming: Vec<Option<Consumer>>,
    /// The ring that had frames last.
    pub(crate) hot: Option<usize>,
    /// Rings whose next record the handler had no room for.
    pub(crate) stalled: Vec<usize>,
    /// Rings that were left before they were empty, to look first whether the wait is over.
    pub(crate) unfinished: Vec<usize>,
    ring_sent: u64,
    ring_delivered: u64,
    /// An answer to a rank of this node waits for room in its ring.
    pub(crate) blocked: bool,
    /// The handler thread has the socket in its set.
    pub(crate) armed: bool,
    /// Spins between two looks at the socket.
    pub(crate) interval: u32,
    pub(crate) waits: WaitState,
}

/// Bytes taken from a ring before the waiting program is asked whether its wait is over. Later frames
/// may be for a receive that it posts next, and need not be kept until then.
pub(crate) const ENOUGH: usize = 16 * 1024;

/// Most spins between two looks at the socket.
const MOST_INTERVAL: u32 = 1024;

impl<H: Handler> ChannelCore<H> {
    /// Queues one frame, made of the parts of `head` and then those of `data`; false if there is no room now. A frame to
    /// another node leaves with the next [`ChannelCore::transmit`].
    pub(crate) fn send<S: CopySource>(
        &mut self,
        attachment: &Attachment,
        to: Rank,
        head: &[&[u8]],
        data: &[S],
    ) -> Result<bool, ChannelError> {
        let length = parts_length(head, data);
        if let Some(local) = attachment.local_of(to) {
            let ChannelCore { remote, outgoing, ring_sent, .. } = self;
            let ring = &mut outgoing[local];
            let sent = push(attachment, local, ring, ring_sent, remote.as_ref(), (head, data))?;
            if sent {
                tracepoints::send(to, length);
            }
            return Ok(sent);
        }
        let ranks = attachment.ranks();
        let Some(remote) = &mut self.remote else { return Err(ChannelError::NoRank { to, ranks }) };
        self.interval = 1;
        let sent = send_remote(remote, to, (head, data), ranks)?;
        if sent {
            tracepoints::send(to, length);
        }
        Ok(sent)
    }

    /// Queues a frame for a rank of another node that `write` makes directly in the send ring. `write`
    /// gets room for the longest frame and returns the length of its own. False if there is no room
    /// now.
    #[inline]
    pub(crate) fn send_remote_with(
        &mut self,
        attachment: &Attachment,
        to: Rank,
        write: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<bool, ChannelError> {
        let ranks = attachment.ranks();
        let Some(remote) = &mut self.remote else { return Err(ChannelError::NoRank { to, ranks }) };
        self.interval = 1;
        let mut length = 0;
        let counted = |room: &mut [u8]| {
            length = write(room);
            length
        };
        let sent = take_full(remote.endpoint.send_with(remote.now, to, counted), ranks)?;
        if sent {
            tracepoints::send(to, length);
        }
        Ok(sent)
    }

    /// As [`ChannelCore::send_remote_with`], of up to `count` frames: until `write` gives no more or the ring is full. How
    /// many were queued.
    #[inline]
    pub(crate) fn send_remote_run(
        &mut self,
        attachment: &Attachment,
        to: Rank,
        count: usize,
        mut write: impl FnMut(&mut [u8]) -> Option<usize>,
    ) -> Result<usize, ChannelError> {
        let ranks = attachment.ranks();
        let Some(remote) = &mut self.remote else { return Err(ChannelError::NoRank { to, ranks }) };
        self.interval = 1;
        let traced = |room: &mut [u8]| {
            let length = write(room)?;
            tracepoints::send(to, length);
            Some(length)
        };
        let mut queued = 0;
        let sent = remote.endpoint.send_run(remote.now, to, count, traced);
        take_full(sent.map(|frames| queued = frames), ranks)?;
        Ok(queued)
    }

    /// See [`crate::Guard::expect_send`].
    #[inline]
    pub(crate) fn expect_send(&self, attachment: &Attachment, to: Rank) {
        if let Some(local) = attachment.local_of(to)
            && let Some(ring) = &self.outgoing[local]
        {
            ring.expect_push();
        }
    }

    /// Everything sent to this rank of this node has been taken.
    pub(crate) fn drained(&self, local: usize) -> bool {
        self.outgoing[local].as_ref().is_none_or(Producer::drained)
    }

    /// Something may lie in a ring towards this rank.
    #[inline]
    pub(crate) fn ring_hint(&self, attachment: &Attachment) -> bool {
        let words = attachment.local_count().div_ceil(64);
        !self.unfinished.is_empty() || attachment.own_lines().wake.any(words)
    }

    /// Takes what lies in the rings; of each, not much more than [`ENOUGH`] bytes at once. Damage of one keeps nothing back
    /// of the others. Each later call finds it again: all threads are to know of it.
    pub(crate) fn drain_rings(&mut self, attachment: &Attachment) -> Result<(), ChannelError> {
        let mut result = Ok(());
        for local in std::mem::take(&mut self.unfinished) {
            result = result.and(self.drain_ring(attachment, local));
        }
        for local in std::mem::take(&mut self.stalled) {
            result = result.and(self.drain_ring(attachment, local));
        }
        let words = attachment.local_count().div_ceil(64);
        for index in 0..words {
            let mut bits = attachment.own_lines().wake.take(index);
            while bits != 0 {
                let local = index * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                if local < attachment.local_count() {
                    result = result.and(self.drain_ring(attachment, local));
                }
            }
        }
        result
    }

    pub(crate) fn drain_ring(
        &mut self,
        attachment: &Attachment,
        local: usize,
    ) -> Result<(), ChannelError> {
        let me = attachment.local();
        let from = attachment.rank() - me as u32 + local as u32;
        let ring = self.incoming[local].get_or_insert_with(|| {
            // SAFETY: as for the producer; only this rank consumes from it, and its own file has the head.
            unsafe { Consumer::new(attachment.ring(local, me)) }
        });
        let mut result = Ok(());
        let mut taken = 0;
        loop {
            if taken >= ENOUGH {
                add(&mut self.unfinished, local);
                break;
            }
            let frame = match ring.peek() {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(damage) => {
                    add(&mut self.unfinished, local);
                    result = Err(ChannelError::Ring { from, damage });
                    break;
                }
            };
            let change = attachment.change();
            let delivery = self.handler.frame(attachment, from, frame);
            tracepoints::deliver(from, frame.len(), delivery == Delivery::Taken);
            if delivery == Delivery::Full {
                change.end();
                add(&mut self.stalled, local);
                break;
            }
            taken += frame.len() + 8;
            ring.consume();
            self.ring_delivered += 1;
            attachment.own().state.ring_delivered.store(self.ring_delivered, Relaxed);
            change.end();
        }
        if taken > 0 {
            self.hot = Some(local);
            self.publish(attachment);
            attachment.wake_for_room(local);
        }
        result
    }

    /// Nothing was at the socket: look less often, if something else may come meanwhile.
    #[inline]
    pub(crate) fn poll_less_often(&mut self, attachment: &Attachment) {
        if attachment.local_count() > 1 {
            self.interval = (self.interval * 2).min(MOST_INTERVAL);
        }
    }

    /// Handles what [`ChannelCore::receive`] got.
    pub(crate) fn take_datagrams(&mut self, attachment: &Attachment) {
        let Some(RemoteRanks { now, lands, .. }) = &mut self.remote else { return };
        *now = sys::now();
        self.interval = 1;
        if *lands && self.take_landed(attachment) {
            return;
        }
        let Some(RemoteRanks { endpoint, wire, now, .. }) = &mut self.remote else { return };
        let PacketRun { bytes, segment, .. } = wire.received();
        let mut sink = HandlerSink(&mut self.handler, attachment);
        endpoint.handle_run(*now, bytes, segment, &mut sink);
    }

    /// Whether the datagrams received last should be handled at once: answers are owed, much came at
    /// once and the sender may wait for acks, or acks are never delayed.
    pub(crate) fn is_pressed(&self) -> bool {
        let pressed = |remote: &RemoteRanks| {
            remote.wire.received().is_run() || remote.endpoint.config().ack == AckMode::PerMessage
        };
        self.handler.owes_answers() || self.remote.as_ref().is_some_and(pressed)
    }

    /// Hands out answers, acts on deadlines, sends what is to be sent, and publishes the counters.
    pub(crate) fn service(&mut self, attachment: &Attachment) -> Result<(), ChannelError> {
        self.read_before_deadlines(attachment)?;
        if let Some(remote) = &mut self.remote {
            remote.endpoint.handle_timeout(remote.now);
        }
        if self.handler.owes_answers() {
            self.answer(attachment)?;
        } else {
            self.blocked = false;
        }
        if self.remote.is_some() {
            self.publish(attachment);
            self.transmit(attachment)?;
            self.publish_sometimes(attachment);
        }
        Ok(())
    }

    /// Sends what is to be sent, unless frames to `to` had better wait for company: see
    /// [`crate::Guard::transmit_soon`].
    #[inline]
    pub(crate) fn transmit_soon(
        &mut self,
        attachment: &Attachment,
        to: Rank,
    ) -> Result<(), ChannelError> {
        if let Some(remote) = &mut self.remote {
            let bytes = remote.endpoint.counters().sent_bytes - remote.left;
            if HoldBack::of(&remote.endpoint, to, remote.run).holds(bytes) {
                remote.held = true;
                publish_sent(attachment, self.ring_sent, self.remote.as_ref());
                return Ok(());
            }
        }
        self.publish(attachment);
        self.transmit(attachment)
    }

    /// Frames wait for company that nobody may send for a while.
    #[inline]
    pub(crate) fn holds_back(&self) -> bool {
        self.remote.as_ref().is_some_and(|remote| remote.held)
    }

    /// Hands out answers.
    pub(crate) fn answer(&mut self, attachment: &Attachment) -> Result<(), ChannelError> {
        let ChannelCore {
            handler, remote, outgoing, ring_sent, blocked, stalled, unfinished, ..
        } = self;
        let (ranks, near) = (attachment.ranks(), attachment.max_local_frame());
        let far = remote.as_ref().map(|remote| remote.endpoint.min_unfragmented_frame());
        let most = far.map_or(near, |far| far.min(near));
        *blocked = false;
        let mut answered = false;
        let mut send = |to, head: &[&[u8]], data: SharedBytes<'_>| {
            let parts = (head, &[data][..]);
            match (attachment.local_of(to), remote.as_mut()) {
                (Some(local), remote) => {
                    let ring = &mut outgoing[local];
                    let sent = push(attachment, local, ring, ring_sent, remote.as_deref(), parts)?;
                    *blocked |= !sent;
                    answered |= sent;
                    Ok(sent)
                }
                (None, Some(remote)) => {
                    let sent = send_remote(remote, to, parts, ranks)?;
                    answered |= sent;
                    Ok(sent)
                }
                (None, None) => Err(ChannelError::NoRank { to, ranks }),
            }
        };
        handler.answer(most, &mut send)?;
        if answered {
            // Frames refused because too many answers were owed may be taken now.
            unfinished.append(stalled);
        }
        Ok(())
    }

    /// Has the ranks of this node ring the doorbell when they bring something, or make room for an
    /// answer that waits; false if there is something already.
    pub(crate) fn listen(&mut self, attachment: &Attachment) -> Result<bool, ChannelError> {
        attachment.own_lines().sleep.announce_sleep(self.blocked);
        if self.blocked {
            self.service(attachment)?;
        }
        Ok(!self.ring_hint(attachment))
    }

    /// Sends what is to be sent.
    pub(crate) fn transmit(&mut self, attachment: &Attachment) -> Result<(), ChannelError> {
        let Some(RemoteRanks { endpoint, wire, now, held, left, paths, unreachable, .. }) =
            &mut self.remote
        else {
            return Ok(());
        };
        (*held, *left) = (false, endpoint.counters().sent_bytes);
        while let Some(run) = endpoint.poll_transmit(*now) {
            tracepoints::transmit(run.to, run.length(), run.segment);
            let (to, segment, fragment) = (run.to, run.segment, run.fragment);
            let packets = PacketRun { bytes: run.bytes, pieces: run.pieces, segment, fragment };
            if wire.send(attachment, to, packets)? {
                unreachable.left(to);
            } else {
                attachment.count(Counter::SendFailures, 1);
                if let Some(code) = wire.refusal() {
                    unreachable.refused(*now, to, code);
                }
            }
            let sent = (to, segment, run.resent);
            if let Some(longest) = paths.left(&mut **wire, attachment, sent) {
                endpoint.set_path_mtu(to, longest);
            }
        }
        Ok(())
    }

    /// Writes the counters by which a cut is judged, and what is as cheap, into the context.
    pub(crate) fn publish(&self, attachment: &Attachment) {
        let delivered = self.delivered();
        publish_sent(attachment, self.ring_sent, self.remote.as_ref());
        attachment.set(Counter::Unread, self.handler.unread());
        attachment.set(Counter::Refused, self.handler.refused());
        tell_delivered(&attachment.own().counters[Counter::Delivered as usize], delivered);
    }

    /// Frames taken so far.
    pub(crate) fn delivered(&self) -> u64 {
        let remote = self.remote.as_ref().map_or(0, |remote| remote.endpoint.counters().delivered);
        self.ring_delivered + remote
    }

    /// Reads the clock.
    #[inline]
    pub(crate) fn update_clock(&mut self) -> u64 {
        let now = sys::now();
        if let Some(remote) = &mut self.remote {
            remote.now = now;
        }
        now
    }

    /// The next deadline of the protocol.
    pub(crate) fn deadline(&mut self) -> Option<u64> {
        self.remote.as_mut().and_then(|remote| remote.endpoint.next_timeout())
    }
}

/// Adds a ring to a list, once.
fn add(rings: &mut Vec<usize>, local: usize) {
    if !rings.contains(&local) {
        rings.push(local);
    }
}

/// Bytes of a frame that is made of these parts.
fn parts_length<S: CopySource>(head: &[&[u8]], data: &[S]) -> usize {
    let private: usize = head.iter().map(|part| part.len()).sum();
    private + data.iter().map(|part| part.len()).sum::<usize>()
}

fn check_length(length: usize, most: usize) -> Result<(), ChannelError> {
    if length <= most {
        return Ok(());
    }
    Err(ChannelError::Protocol(SendError::TooLong { length, most }))
}

/// Queues a frame for a rank of another node; false if there is no room now.
fn send_remote<S: CopySource>(
    RemoteRanks { endpoint, now, .. }: &mut RemoteRanks,
    to: Rank,
    (head, data): (&[&[u8]], &[S]),
    ranks: u32,
) -> Result<bool, ChannelError> {
    check_length(parts_length(head, data), endpoint.max_frame())?;
    let write = |room: &mut [u8]| {
        let mut at = 0;
        for part in head {
            room[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        for part in data {
            part.copy_to(&mut room[at..at + part.len()]);
            at += part.len();
        }
        at
    };
    take_full(endpoint.send_with(*now, to, write), ranks)
}

/// Appends a frame to the ring to a rank of this node; false if there is no room now.
fn push<S: CopySource>(
    attachment: &Attachment,
    local: usize,
    ring: &mut Option<Producer>,
    ring_sent: &mut u64,
    remote: Option<&RemoteRanks>,
    (head, data): (&[&[u8]], &[S]),
) -> Result<bool, ChannelError> {
    // Before anything is changed: a change that begins also ends.
    check_length(parts_length(head, data), attachment.max_local_frame())?;
    let me = attachment.local();
    let ring = ring.get_or_insert_with(|| {
        // SAFETY: the ring lies in the mapping, which outlives the core (`Shared` owns both, the place last). Only this
        // rank produces into it, and its own file has tail and records.
        unsafe { Producer::new(attachment.ring(me, local)) }
    });
    let change = attachment.change();
    // Counted before it can be seen: an observer that stops all ranks here sees it in flight.
    *ring_sent += 1;
    publish_sent(attachment, *ring_sent, remote);
    let pushed = ring.push(head, data);
    if !pushed {
        *ring_sent -= 1;
        publish_sent(attachment, *ring_sent, remote);
    }
    attachment.own().state.ring_sent.store(*ring_sent, Relaxed);
    change.end();
    if !pushed {
        return Ok(false);
    }
    ring.left_marked = attachment.lines(local).wake.mark(me, ring.left_marked);
    if local != me {
        attachment.wake(local);
    }
    Ok(true)
}

fn publish_sent(attachment: &Attachment, ring_sent: u64, remote: Option<&RemoteRanks>) {
    let remote = remote.map_or(0, |remote| remote.endpoint.counters().sent);
    attachment.set(Counter::Sent, ring_sent + remote);
}

/// Turns "full" into false.
pub(crate) fn take_full(result: Result<(), SendError>, ranks: u32) -> Result<bool, ChannelError> {
    match result {
        Ok(()) => Ok(true),
        // Closed: while the channel is being settled.
        Err(SendError::Full | SendError::Closed) => Ok(false),
        Err(SendError::NoSuchRank { to, .. }) => Err(ChannelError::NoRank { to, ranks }),
        Err(other) => Err(ChannelError::Protocol(other)),
    }
}
