//! Messages of services that wait for room on their way: a queue for each rank, and the memory of messages that have left, for
//! the next ones.

use std::collections::VecDeque;

use kumi_net::{AnswerSender, ChannelError, SharedBytes};
use kumi_proto::Rank;
use kumi_proto::frame::{
    FrameHeader, SERVICE_BYTES, SERVICE_PART_BYTES, ServiceMessage as FirstPart,
};

use crate::engine::PlainFrame;

/// Buffers that are kept for the next messages, and bytes of the longest.
const SPARE: usize = 64;
const SPARE_BYTES: usize = 16 << 10;

/// A message that has not left, or not all of it.
#[derive(Debug)]
struct UnsentMessage {
    service: u16,
    data: Vec<u8>,
    sent: usize,
    /// Its first part has left.
    begun: bool,
}

/// The header of the first frame of a message of at most [`SERVICE_MESSAGE_BYTES`](crate::SERVICE_MESSAGE_BYTES) bytes.
#[inline]
pub(crate) fn first_header(service: u16, total: usize) -> FrameHeader {
    PlainFrame::Service(FirstPart { service, total: total as u32, data: &[] }).header()
}

impl UnsentMessage {
    /// The header of the next frame of at most `most` bytes, and how many bytes of data it has.
    fn next_frame(&self, most: usize) -> (FrameHeader, usize) {
        let rest = self.data.len() - self.sent;
        if self.begun {
            return (
                PlainFrame::ServicePart { data: &[] }.header(),
                rest.min(most - SERVICE_PART_BYTES),
            );
        }
        (first_header(self.service, self.data.len()), rest.min(most - SERVICE_BYTES))
    }

    /// Sends as many frames as there is room for; true when all have left.
    fn send(
        &mut self,
        to: Rank,
        most: usize,
        send: &mut AnswerSender<'_>,
    ) -> Result<bool, ChannelError> {
        loop {
            let (header, length) = self.next_frame(most);
            let part = &self.data[self.sent..self.sent + length];
            if !send(to, &[&header, part], SharedBytes::default())? {
                return Ok(false);
            }
            (self.sent, self.begun) = (self.sent + length, true);
            if self.sent == self.data.len() {
                return Ok(true);
            }
        }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct UnsentMessages {
    /// By target, in their order. There are places up to the highest rank that ever had one.
    queues: Vec<VecDeque<UnsentMessage>>,
    /// Ranks whose queues are not empty, each once.
    waiting: Vec<Rank>,
    /// Memory of messages that have left, empty.
    spare: Vec<Vec<u8>>,
}

impl UnsentMessages {
    /// Bytes of messages that wait for room on their way to a rank.
    pub(crate) fn bytes(&self, to: Rank) -> usize {
        let queue = self.queues.get(to as usize).into_iter().flatten();
        queue.map(|message| message.data.len() - message.sent).sum()
    }

    /// Something waits to be sent.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Nothing waits for its way to a rank.
    #[inline]
    pub(crate) fn is_free(&self, to: Rank) -> bool {
        self.waiting.is_empty() || self.queues.get(to as usize).is_none_or(VecDeque::is_empty)
    }

    /// Puts a message behind all others to its target.
    pub(crate) fn add(&mut self, service: u16, to: Rank, data: Vec<u8>) {
        let place = to as usize;
        if self.queues.len() <= place {
            self.queues.resize_with(place + 1, VecDeque::new);
        }
        let queue = &mut self.queues[place];
        if queue.is_empty() {
            self.waiting.push(to);
        }
        queue.push_back(UnsentMessage { service, data, sent: 0, begun: false });
    }

    /// An empty buffer.
    pub(crate) fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Keeps the memory of a message for a later one.
    pub(crate) fn give_back(&mut self, mut data: Vec<u8>) {
        if self.spare.len() < SPARE && (1..=SPARE_BYTES).contains(&data.capacity()) {
            data.clear();
            self.spare.push(data);
        }
    }

    /// Sends what there is room for, but not to ranks in `full`, to which those come that have no more room.
    pub(crate) fn hand_out(
        &mut self,
        most: usize,
        full: &mut Vec<Rank>,
        send: &mut AnswerSender<'_>,
    ) -> Result<(), ChannelError> {
        let mut at = 0;
        while let Some(to) = self.waiting.get(at).copied() {
            while !full.contains(&to)
                && let Some(message) = self.queues[to as usize].front_mut()
            {
                if !message.send(to, most, send)? {
                    full.push(to);
                } else if let Some(sent) = self.queues[to as usize].pop_front() {
                    self.give_back(sent.data);
                }
            }
            if self.queues[to as usize].is_empty() {
                self.waiting.swap_remove(at);
            } else {
                at += 1;
            }
        }
        Ok(())
    }
}
