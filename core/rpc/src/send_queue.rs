//! What is to be written: control frames first, arrays in chunks, those of several streams in turn.

use crate::CHUNK;
use crate::frame::{HEADER, chunk_header};
use crate::frame_reader::ArrayPosition;
use crate::incoming_arrays::ArraySize;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Bytes that are decided on before they are written.
const AHEAD: usize = 2 * CHUNK;

/// A piece of what is to be written next.
#[derive(Debug, PartialEq, Eq)]
pub enum SendPiece<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// So many bytes of an array, from this place.
    Data(ArrayPosition, usize),
}

#[derive(Debug)]
enum QueuedPiece {
    /// Frames, how many of their bytes are written, and the memory whose descriptor goes with the first.
    Bytes(Vec<u8>, usize, Option<u32>),
    Data(ArrayPosition, usize),
}

#[derive(Debug)]
struct OutgoingArrays {
    stream: u32,
    /// What is not decided on yet; of the first from `offset` on.
    sizes: VecDeque<ArraySize>,
    offset: u64,
}

/// What one end has to write.
#[derive(Debug, Default)]
pub struct SendQueue {
    queue: VecDeque<QueuedPiece>,
    /// Bytes of arrays in the queue.
    queued_data: usize,
    /// Bytes of frames in the queue that are not written.
    queued_bytes: usize,
    sending: VecDeque<OutgoingArrays>,
    written: VecDeque<u32>,
}

impl SendQueue {
    /// Appends a frame, which `write` puts behind the bytes that it is given.
    pub(crate) fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        // What is written of a piece is freed with its last byte: nothing is appended to one that is partly written.
        let (mut bytes, before) = match self.queue.back_mut() {
            Some(QueuedPiece::Bytes(bytes, 0, _)) => {
                let before = bytes.len();
                (core::mem::take(bytes), before)
            }
            _ => {
                self.queue.push_back(QueuedPiece::Bytes(Vec::new(), 0, None));
                (Vec::new(), 0)
            }
        };
        write(&mut bytes);
        self.queued_bytes += bytes.len() - before;
        if let Some(QueuedPiece::Bytes(last, ..)) = self.queue.back_mut() {
            *last = bytes;
        }
    }

    /// [`SendQueue::append`], of a frame with whose first byte the descriptor of a memory goes.
    pub(crate) fn append_with(&mut self, memory: u32, write: impl FnOnce(&mut Vec<u8>)) {
        self.queue.push_back(QueuedPiece::Bytes(Vec::new(), 0, Some(memory)));
        self.append(write);
    }

    /// The memory whose descriptor is to go with what [`SendQueue::pieces`] gives.
    #[must_use]
    pub fn descriptor(&self) -> Option<u32> {
        match self.queue.front() {
            Some(QueuedPiece::Bytes(_, 0, memory)) => *memory,
            _ => None,
        }
    }

    /// Bytes of frames that wait to be written, without those of arrays.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queued_bytes
    }

    /// Sends arrays of a stream, after what is queued. When their last byte is written [`SendQueue::written`] tells.
    pub(crate) fn send(&mut self, stream: u32, sizes: &[ArraySize]) {
        let sizes: VecDeque<ArraySize> =
            sizes.iter().copied().filter(|size| size.bytes > 0).collect();
        if sizes.is_empty() {
            self.written.push_back(stream);
        } else {
            self.sending.push_back(OutgoingArrays { stream, sizes, offset: 0 });
        }
    }

    /// Sends no more of a stream than what is decided on. False: nothing of that is left; true: [`SendQueue::written`]
    /// tells when it is written.
    pub(crate) fn stop(&mut self, stream: u32) -> bool {
        let left = self.refers(stream);
        for sending in self.sending.iter_mut().filter(|sending| sending.stream == stream) {
            sending.sizes.clear();
        }
        if !left {
            self.sending.retain(|sending| sending.stream != stream);
            self.written.retain(|written| *written != stream);
        }
        left
    }

    /// Whether arrays of a stream are decided on and not written.
    #[must_use]
    pub fn refers(&self, stream: u32) -> bool {
        self.queue
            .iter()
            .any(|queued| matches!(queued, QueuedPiece::Data(place, _) if place.stream == stream))
    }

    /// Decides what is written next, as far as that is not decided: one chunk of each stream in turn.
    fn decide(&mut self) {
        while self.queued_data < AHEAD {
            let next = self.sending.iter().position(|sending| !sending.sizes.is_empty());
            let Some(mut sending) = next.and_then(|index| self.sending.remove(index)) else {
                break;
            };
            let place = self.chunk_of(&mut sending);
            self.sending.push_back(sending);
            if place.is_none() {
                break;
            }
        }
    }

    /// Queues the next chunk of a stream.
    fn chunk_of(&mut self, sending: &mut OutgoingArrays) -> Option<ArrayPosition> {
        let size = sending.sizes.front().copied()?;
        let length = (size.bytes - sending.offset).min(CHUNK as u64) as usize;
        let place = ArrayPosition {
            stream: sending.stream,
            argument: size.argument,
            offset: sending.offset,
        };
        let header = chunk_header(sending.stream, size.argument, length as u32);
        self.append(|out| out.extend_from_slice(&header));
        self.queue.push_back(QueuedPiece::Data(place, length));
        self.queued_data += length;
        sending.offset += length as u64;
        if sending.offset == size.bytes {
            sending.sizes.pop_front();
            sending.offset = 0;
        }
        Some(place)
    }

    /// What is to be written next, in this order, up to the next frame that goes with a descriptor; nothing: all is
    /// written.
    pub fn pieces(&mut self) -> impl Iterator<Item = SendPiece<'_>> {
        self.decide();
        let others = |(index, queued): &(usize, &QueuedPiece)| {
            *index == 0 || !matches!(queued, QueuedPiece::Bytes(_, _, Some(_)))
        };
        let ready = self.queue.iter().enumerate().take_while(others);
        ready.map(|(_, queued)| match queued {
            QueuedPiece::Bytes(bytes, written, _) => SendPiece::Bytes(&bytes[*written..]),
            QueuedPiece::Data(place, length) => SendPiece::Data(*place, *length),
        })
    }

    /// Whether there is anything to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.sending.is_empty()
    }

    /// Notes that so many bytes of the pieces have been written.
    pub fn wrote(&mut self, mut count: usize) {
        while let Some(first) = self.queue.front_mut() {
            let (left, data) = match first {
                QueuedPiece::Bytes(bytes, written, _) => (bytes.len() - *written, false),
                QueuedPiece::Data(_, length) => (*length, true),
            };
            let taken = count.min(left);
            count -= taken;
            if data {
                self.queued_data -= taken;
            } else {
                self.queued_bytes -= taken;
            }
            if taken < left {
                match first {
                    QueuedPiece::Bytes(_, written, _) => *written += taken,
                    QueuedPiece::Data(place, length) => {
                        place.offset += taken as u64;
                        *length -= taken;
                    }
                }
                break;
            }
            self.queue.pop_front();
        }
        self.end_streams();
    }

    /// Streams whose last chunk is written.
    fn end_streams(&mut self) {
        let mut index = 0;
        while let Some(sending) = self.sending.get(index) {
            if sending.sizes.is_empty() && !self.refers(sending.stream) {
                self.written.push_back(sending.stream);
                self.sending.remove(index);
            } else {
                index += 1;
            }
        }
    }

    /// A stream of which all arrays are written, or given up and no longer referred to. Each is told once.
    pub fn written(&mut self) -> Option<u32> {
        self.written.pop_front()
    }
}

const _: () = assert!(CHUNK <= u32::MAX as usize && HEADER < CHUNK);
