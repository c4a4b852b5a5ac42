//! Queue of outgoing data: control frames first, then arrays in chunks, one of each stream in turn.

use crate::CHUNK;
use crate::frame::{HEADER, chunk_header};
use crate::frame_reader::ArrayPosition;
use crate::incoming_arrays::ArraySize;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Bytes of arrays that are queued ahead of the socket.
const AHEAD: usize = 2 * CHUNK;

/// A piece of output.
#[derive(Debug, PartialEq, Eq)]
pub enum SendPiece<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// This many bytes of an array, from this position.
    Data(ArrayPosition, usize),
}

#[derive(Debug)]
enum QueuedPiece {
    /// Frames, the number of their bytes that are written, and the memory whose descriptor goes with the first byte.
    Bytes(Vec<u8>, usize, Option<u32>),
    Data(ArrayPosition, usize),
}

#[derive(Debug)]
struct OutgoingArrays {
    stream: u32,
    /// Arrays that are not queued yet; the first from `offset` on.
    sizes: VecDeque<ArraySize>,
    offset: u64,
}

/// The output queue of one end of a connection.
#[derive(Debug, Default)]
pub struct SendQueue {
    queue: VecDeque<QueuedPiece>,
    /// Bytes of arrays in the queue.
    queued_data: usize,
    /// Unwritten bytes of frames in the queue.
    queued_bytes: usize,
    sending: VecDeque<OutgoingArrays>,
    written: VecDeque<u32>,
}

impl SendQueue {
    /// Appends a frame, which `write` appends to the given bytes.
    pub(crate) fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        // A piece is freed with its last byte, so nothing is appended to a partly written one.
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

    /// Appends a frame as [`SendQueue::append`] does. The descriptor of a memory goes with its first byte.
    pub(crate) fn append_with(&mut self, memory: u32, write: impl FnOnce(&mut Vec<u8>)) {
        self.queue.push_back(QueuedPiece::Bytes(Vec::new(), 0, Some(memory)));
        self.append(write);
    }

    /// The memory whose descriptor has to go with the next [`SendQueue::pieces`].
    #[must_use]
    pub fn descriptor(&self) -> Option<u32> {
        match self.queue.front() {
            Some(QueuedPiece::Bytes(_, 0, memory)) => *memory,
            _ => None,
        }
    }

    /// Unwritten bytes of frames, without arrays.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.queued_bytes
    }

    /// Sends arrays of a stream after the queued data. [`SendQueue::written`] reports the stream after the last byte.
    pub(crate) fn send(&mut self, stream: u32, sizes: &[ArraySize]) {
        let sizes: VecDeque<ArraySize> =
            sizes.iter().copied().filter(|size| size.bytes > 0).collect();
        if sizes.is_empty() {
            self.written.push_back(stream);
        } else {
            self.sending.push_back(OutgoingArrays { stream, sizes, offset: 0 });
        }
    }

    /// Sends no more of a stream than what is queued. False: nothing of it is queued. True: [`SendQueue::written`] reports
    /// the stream after the queued data.
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

    /// Whether unwritten array data of a stream is queued.
    #[must_use]
    pub fn refers(&self, stream: u32) -> bool {
        self.queue
            .iter()
            .any(|queued| matches!(queued, QueuedPiece::Data(place, _) if place.stream == stream))
    }

    /// Queues chunks up to the limit, one of each stream in turn.
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

    /// The next output in its order, up to the next frame with a descriptor. Without a piece all is written.
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

    /// Notes that this many bytes of the pieces are written.
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

    /// Ends streams whose last chunk is written.
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

    /// Takes a stream whose arrays are all written, or stopped and no longer queued. Each stream is reported once.
    pub fn written(&mut self) -> Option<u32> {
        self.written.pop_front()
    }
}

const _: () = assert!(CHUNK <= u32::MAX as usize && HEADER < CHUNK);

#[cfg(test)]
mod tests {
    use super::*;

    /// No more than the limit, so that a cancel or a small call need not wait for many chunks.
    #[test]
    fn so_many_bytes_of_arrays_are_queued_ahead() {
        let mut queue = SendQueue::default();
        queue.send(1, &[ArraySize { argument: 0, bytes: 5 * AHEAD as u64 }]);
        queue.decide();
        assert_eq!(queue.queued_data, AHEAD);
    }
}
