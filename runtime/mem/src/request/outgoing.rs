//! Queues of what has found no room on its way, one for each target, in the order in which it was started.
//!
//! Whoever drives the channel sends from all queues whose way has room, so a slow rank holds up only what is for
//! it. A call that sends by itself (a blocking put, say) has a place in the queue, too: what was started later stays
//! behind it, and the fragments of two messages do not mix.

use std::collections::{HashMap, VecDeque};
use std::ptr::NonNull;

use kumi_net::{ChannelError, SharedBytes};
use kumi_proto::Rank;
use kumi_proto::frame::{
    Frame, FrameHeader, MESSAGE_BYTES, MESSAGE_PART_BYTES, PUT_BYTES, PUT_COUNTED_BYTES, WindowKey,
};

use crate::engine::PlainFrame;
use crate::window::GET_PIECE;
use crate::window::atomic::AtomicOperation;

/// Takes the parts of a frame to a rank, private ones first; false if there is no room.
type SendFrame<'s> = dyn FnMut(Rank, &[&[u8]], SharedBytes<'_>) -> Result<bool, ChannelError> + 's;

/// What the frames of an operation say beside its data.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Operation {
    /// Token 0: its sender does not want to know.
    Put {
        token: u64,
        window: WindowKey,
        offset: u64,
        notify: Option<u32>,
    },
    /// Bytes from `done` on are not asked for yet.
    Get {
        token: u64,
        window: WindowKey,
        offset: u64,
        length: u64,
    },
    Atomic {
        token: u64,
        window: WindowKey,
        offset: u64,
        atomic: AtomicOperation,
    },
    Message {
        tag: u32,
        total: u64,
    },
}

/// An operation whose frames have not all left.
#[derive(Debug)]
pub(crate) struct Unsent {
    /// Its request's place.
    pub(crate) request: u32,
    pub(crate) operation: Operation,
    /// The data that has not left.
    pub(crate) data: SharedBytes<'static>,
    /// Bytes that have left, or have been asked for.
    pub(crate) done: u64,
    /// A frame has left.
    pub(crate) begun: bool,
}

impl Unsent {
    /// # Safety
    /// The data stays as [`SharedBytes::new`] demands until all has left, or the value is dropped.
    pub(crate) unsafe fn new(request: u32, operation: Operation, data: SharedBytes<'_>) -> Unsent {
        let start = NonNull::new(data.as_ptr().cast_mut()).unwrap_or(NonNull::dangling());
        // SAFETY: the caller's promise.
        let data = unsafe { SharedBytes::new(start, data.len()) };
        Unsent { request, operation, data, done: 0, begun: false }
    }

    /// Sends frames of at most `most` bytes as long as there is room; true when all have left.
    pub(crate) fn send(
        &mut self,
        to: Rank,
        most: usize,
        send: &mut SendFrame<'_>,
    ) -> Result<bool, ChannelError> {
        loop {
            let (header, piece) = self.next_frame(most);
            let data = self.data.slice(0, piece.min(self.data.len()));
            if !send(to, &[&header], data)? {
                return Ok(false);
            }
            self.data = self.data.split_at(data.len()).1;
            (self.done, self.begun) = (self.done + piece as u64, true);
            if self.done >= self.length() {
                return Ok(true);
            }
        }
    }

    /// Bytes of the whole.
    fn length(&self) -> u64 {
        match self.operation {
            Operation::Put { .. } => self.done + self.data.len() as u64,
            Operation::Get { length, .. } => length,
            Operation::Atomic { .. } => 0,
            Operation::Message { total, .. } => total,
        }
    }

    /// The header of the next frame, and how many bytes it carries or asks for.
    fn next_frame(&self, most: usize) -> (FrameHeader, usize) {
        let rest = self.length() - self.done;
        let fit = |header: usize| rest.min((most - header) as u64) as usize;
        let (frame, piece): (PlainFrame<'_>, usize) = match self.operation {
            Operation::Put { token, window, offset, notify } => {
                let piece = fit(if token == 0 { PUT_BYTES } else { PUT_COUNTED_BYTES });
                let last = piece as u64 == rest;
                let (notify, offset) = (notify.filter(|_| last), offset.wrapping_add(self.done));
                let data = &[][..];
                let frame = match token {
                    0 => Frame::Put { window, offset, notify, data },
                    token => Frame::PutCounted { token, last, window, offset, notify, data },
                };
                (frame, piece)
            }
            Operation::Get { token, window, offset, .. } => {
                let piece = rest.min(GET_PIECE as u64) as usize;
                let (offset, len) = (offset.wrapping_add(self.done), piece as u32);
                (Frame::GetRequest { token, window, offset, len }, piece)
            }
            Operation::Atomic { token, window, offset, atomic } => {
                let AtomicOperation { operation, width, operand, operand2 } = atomic;
                let frame = Frame::AtomicRequest {
                    token,
                    window,
                    offset,
                    operation,
                    width,
                    operand,
                    operand2,
                };
                (frame, 0)
            }
            Operation::Message { .. } if self.begun => {
                (Frame::MessagePart { data: &[] }, fit(MESSAGE_PART_BYTES))
            }
            Operation::Message { tag, total } => {
                (Frame::Message { tag, total, data: &[] }, fit(MESSAGE_BYTES))
            }
        };
        (frame.header(), piece)
    }
}

/// A place in a queue.
#[derive(Debug)]
enum Place {
    Operation(Unsent),
    /// A call that sends by itself.
    Call(u64),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Outgoing {
    /// Queues that are not empty.
    queues: HashMap<Rank, VecDeque<Place>>,
    calls: u64,
}

impl Outgoing {
    /// Nothing waits for its way to a rank.
    #[inline]
    pub(crate) fn is_free(&self, to: Rank) -> bool {
        self.queues.is_empty() || !self.queues.contains_key(&to)
    }

    /// Nothing waits for any way.
    pub(crate) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Something waits that can leave when there is room.
    #[inline]
    pub(crate) fn owes(&self) -> bool {
        let operation = |queue: &VecDeque<Place>| matches!(queue[0], Place::Operation(_));
        !self.queues.is_empty() && self.queues.values().any(operation)
    }

    /// Puts an operation behind all others to its target.
    pub(crate) fn add(&mut self, to: Rank, unsent: Unsent) {
        self.queues.entry(to).or_default().push_back(Place::Operation(unsent));
    }

    /// Sends what there is room for, but not to ranks in `full`. The requests whose last frame has left.
    pub(crate) fn send(
        &mut self,
        most: usize,
        full: &[Rank],
        send: &mut SendFrame<'_>,
    ) -> Result<Vec<u32>, ChannelError> {
        let mut left = Vec::new();
        let mut result = Ok(());
        self.queues.retain(|to, queue| {
            while result.is_ok()
                && !full.contains(to)
                && let Some(Place::Operation(unsent)) = queue.front_mut()
            {
                match unsent.send(*to, most, send) {
                    Ok(true) => left.push(unsent.request),
                    Ok(false) => break,
                    Err(error) => {
                        result = Err(error);
                        break;
                    }
                }
                queue.pop_front();
            }
            !queue.is_empty()
        });
        result.map(|()| left)
    }

    /// What has not left of a request.
    pub(crate) fn find(&mut self, to: Rank, request: u32) -> Option<&mut Unsent> {
        self.queues.get_mut(&to)?.iter_mut().find_map(|place| match place {
            Place::Operation(unsent) if unsent.request == request => Some(unsent),
            _ => None,
        })
    }

    /// Takes a request's operation out of its queue.
    pub(crate) fn remove(&mut self, to: Rank, request: u32) {
        let stays = |place: &Place| !matches!(place, Place::Operation(it) if it.request == request);
        self.retain(to, stays);
    }

    /// A place for a call that sends by itself; its number. `first`: before all others, since it has begun to send.
    fn add_call(&mut self, to: Rank, first: bool) -> u64 {
        self.calls += 1;
        let queue = self.queues.entry(to).or_default();
        if first {
            queue.push_front(Place::Call(self.calls));
        } else {
            queue.push_back(Place::Call(self.calls));
        }
        self.calls
    }

    fn call_is_first(&self, to: Rank, call: u64) -> bool {
        let first = self.queues.get(&to).and_then(VecDeque::front);
        matches!(first, Some(Place::Call(number)) if *number == call)
    }

    fn remove_call(&mut self, to: Rank, call: u64) {
        self.retain(to, |place| !matches!(place, Place::Call(number) if *number == call));
    }

    fn retain(&mut self, to: Rank, stays: impl FnMut(&Place) -> bool) {
        let Some(queue) = self.queues.get_mut(&to) else { return };
        queue.retain(stays);
        if queue.is_empty() {
            self.queues.remove(&to);
        }
    }
}

/// The turn of a call that sends by itself to a rank. Give it back by [`SendTurn::over`].
#[derive(Debug)]
pub(crate) struct SendTurn {
    to: Rank,
    call: Option<u64>,
}

impl SendTurn {
    pub(crate) fn new(to: Rank) -> SendTurn {
        SendTurn { to, call: None }
    }

    /// Whether the call may send now: nothing that was started before waits any more. Otherwise it has a place now.
    #[inline]
    pub(crate) fn has_come(&mut self, outgoing: &mut Outgoing) -> bool {
        match self.call {
            None if outgoing.is_free(self.to) => true,
            None => {
                self.call = Some(outgoing.add_call(self.to, false));
                false
            }
            Some(call) => outgoing.call_is_first(self.to, call),
        }
    }

    /// The call has sent a part, or will: nothing else goes before the rest.
    pub(crate) fn hold(&mut self, outgoing: &mut Outgoing) {
        if self.call.is_none() {
            self.call = Some(outgoing.add_call(self.to, true));
        }
    }

    /// The call has sent all, or will not.
    #[inline]
    pub(crate) fn over(&mut self, outgoing: &mut Outgoing) {
        if let Some(call) = self.call.take() {
            outgoing.remove_call(self.to, call);
        }
    }

    /// Whether it has a place that has to be given back.
    pub(crate) fn is_held(&self) -> bool {
        self.call.is_some()
    }
}
