//! Data that the wire lays where it belongs: what is offered before a receive, and what is made of it.
//!
//! Such bytes land before their packet's header was looked at. So only memory is offered that will be written again in any
//! case, and nothing is counted before the header has been checked. No address is kept between the two steps. The layer
//! above is asked again, and a run is dropped that landed in memory which is not on offer any more.

use kumi_proto::frame::Payload;
use kumi_proto::wire::{COVERED_BYTES, HEADER_BYTES};
use kumi_proto::{Checksum, Delivery, LandedSink, Rank, Sink};

use crate::channel::core::{ChannelCore, Handler, HandlerSink, RemoteRanks};
use crate::segment::attachment::Attachment;
use crate::segment::counters::Counter;
use crate::shared_bytes::SharedBytesMut;
use crate::wire::driver::{LandedPacket, LandedRun, Landing};
use crate::{ChannelError, tracepoints};

/// Where data that is expected belongs: what [`Handler::expected`] says.
#[derive(Debug, Clone, Copy)]
pub struct ExpectedData<'m> {
    /// Bytes of a frame before its data.
    pub header: usize,
    /// For the data of the next frames, one behind the other.
    pub memory: SharedBytesMut<'m>,
}

impl<'m> ExpectedData<'m> {
    /// The same for a wire, if there is enough to be worth it.
    fn landing(self) -> Option<Landing<'m>> {
        let gap = COVERED_BYTES.checked_sub(HEADER_BYTES + self.header)?;
        let worth = self.memory.len() > gap;
        worth.then_some(Landing { head: COVERED_BYTES, gap, memory: self.memory })
    }
}

/// What was offered before the last receive: where it began, and how many bytes. A number, no memory.
pub(crate) type Offered = Option<(usize, usize)>;

fn offer(memory: SharedBytesMut<'_>) -> (usize, usize) {
    (memory.as_ptr().addr(), memory.len())
}

/// The bytes of a packet that landed at `start`, in memory that is on offer now.
fn landed_in<'m>(
    memory: SharedBytesMut<'m>,
    start: usize,
    packet: &LandedPacket,
) -> Option<SharedBytesMut<'m>> {
    let at = start.checked_add(packet.at)?.checked_sub(memory.as_ptr().addr())?;
    memory.get(at, packet.rest)
}

impl RemoteRanks {
    /// Receives, with the offer of memory for what is expected if the wire wants one.
    fn receive_expected<H: Handler>(&mut self, handler: &H) -> Result<bool, ChannelError> {
        self.offered = None;
        let landing = handler.expected().and_then(ExpectedData::landing);
        let covers = self.endpoint.config().checksum == Checksum::Headers;
        match landing.filter(|_| covers) {
            Some(landing) => {
                self.offered = Some(offer(landing.memory));
                Ok(self.wire.receive_into(landing)?)
            }
            None => Ok(self.wire.receive()?),
        }
    }
}

impl<H: Handler> ChannelCore<H> {
    /// Receives once from the socket, without looking into it; true if something came.
    #[inline]
    pub(crate) fn receive(&mut self) -> Result<bool, ChannelError> {
        match &mut self.remote {
            Some(remote) if remote.lands => remote.receive_expected(&self.handler),
            Some(remote) => Ok(remote.wire.receive()?),
            None => Ok(false),
        }
    }

    /// As [`ChannelCore::receive`], for who looks again at once.
    #[inline]
    pub(crate) fn poll(&mut self) -> Result<bool, ChannelError> {
        match &mut self.remote {
            Some(remote) if remote.lands => remote.receive_expected(&self.handler),
            Some(remote) => Ok(remote.wire.poll()?),
            None => Ok(false),
        }
    }

    /// Handles a run that has landed, if the last one did.
    pub(crate) fn take_landed(&mut self, attachment: &Attachment) -> bool {
        let ChannelCore { handler, remote, .. } = self;
        let Some(RemoteRanks { endpoint, wire, now, offered, whole, .. }) = remote else {
            return false;
        };
        let Some(LandedRun { mut heads, mut packets }) = wire.landed() else { return false };
        let same = handler.expected().is_some_and(|now| *offered == Some(offer(now.memory)));
        let Some((start, _)) = offered.take().filter(|_| same) else {
            // Its bytes are nowhere now: lost.
            return true;
        };
        while let Some((packet, behind)) = packets.split_first() {
            let Some((head, others)) = heads.split_at_checked(packet.head) else { return true };
            let mut sink = LandingSink { sink: HandlerSink(handler, attachment), packet, start };
            if packet.rest == 0 || !endpoint.handle_landed(*now, (head, packet.rest), &mut sink) {
                break;
            }
            attachment.count(Counter::Landed, 1);
            (heads, packets) = (others, behind);
        }
        // What is not where it belongs is made whole before anything else is written, perhaps over it.
        let memory = handler.expected().map_or_else(SharedBytesMut::default, |now| now.memory);
        if gather((heads, packets), memory, start, whole) {
            let mut sink = HandlerSink(handler, attachment);
            let mut bytes = &whole[..];
            for packet in packets {
                let (datagram, behind) = bytes.split_at(packet.head + packet.rest);
                endpoint.handle_datagram(*now, datagram, &mut sink);
                bytes = behind;
            }
        }
        true
    }
}

/// Lays packets end to end in `whole`. False if they lie outside of what is on offer: they are lost.
fn gather(
    (mut heads, packets): (&[u8], &[LandedPacket]),
    memory: SharedBytesMut<'_>,
    start: usize,
    whole: &mut Vec<u8>,
) -> bool {
    whole.clear();
    for packet in packets {
        let Some((head, behind)) = heads.split_at_checked(packet.head) else { return false };
        whole.extend_from_slice(head);
        if packet.rest > 0 {
            let Some(landed) = landed_in(memory, start, packet) else { return false };
            landed.shared().append_to(whole);
        }
        heads = behind;
    }
    true
}

/// Delivers frames that have landed, in memory that began at `start`.
struct LandingSink<'h, 'p, H> {
    sink: HandlerSink<'h, H>,
    packet: &'p LandedPacket,
    start: usize,
}

impl<H: Handler> Sink for LandingSink<'_, '_, H> {
    fn deliver(&mut self, from: Rank, frame: &[u8]) -> Delivery {
        self.sink.deliver(from, frame)
    }
}

impl<H: Handler> LandedSink for LandingSink<'_, '_, H> {
    fn is_in_place(&mut self, from: Rank, head: &[u8], rest: usize) -> bool {
        let handler = &self.sink.0;
        let Some(expected) = handler.expected() else { return false };
        // Where the first byte that landed belongs, if the frame's data is the next that is expected.
        let at = head.len().checked_sub(expected.header);
        let place = at.and_then(|at| expected.memory.get(at, rest));
        let landed = landed_in(expected.memory, self.start, self.packet);
        let same = place.zip(landed).is_some_and(|(place, landed)| place.start() == landed.start());
        same && handler.is_expected(from, head, rest)
    }

    fn deliver_landed(&mut self, from: Rank, head: &[u8], rest: usize) -> Delivery {
        let HandlerSink(handler, attachment) = &mut self.sink;
        let delivery = handler.landed(attachment, from, head, rest);
        tracepoints::deliver(from, head.len() + rest, delivery == Delivery::Taken);
        delivery
    }
}
