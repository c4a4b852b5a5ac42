//! Engine of a rank: applies the frames that reach it. The thread that drives the channel calls it.

pub(crate) mod interrupt;

use std::collections::{HashMap, VecDeque};

use kumi_net::{
    AnswerSender, Attachment, ChannelError, CopySource, Delivery, ExpectedData, Handler,
    SharedBytes, SharedBytesMut,
};
use kumi_proto::Rank;
use kumi_proto::frame::{
    Frame, GET_REPLY_BYTES, GetList, MulticastAppendDone, NO_WINDOW, PutFrame, PutList, WindowKey,
    decode_put,
};

use crate::error::Refusal;
use crate::fifo::table::{AppendOutcome, FifoTable, IncomingRecord};
use crate::message::mailbox::Mailbox;
use crate::multicast::{self, MulticastFrame, MulticastTable};
use crate::request::outgoing::Outgoing;
use crate::request::queue::CompletionQueues;
use crate::request::table::RequestTable;
use crate::service::table::ServiceTable;
use crate::window::atomic::AtomicOperation;
use crate::window::completion::CompletionTable;
use crate::window::key::RandomSource;
use crate::window::pieces::{ByteLayout, GetLayout, PieceList};
use crate::window::strided::Shape;
use crate::window::table::{Access, WindowTable};

/// A frame without data, or with data that is in no window.
pub(crate) type PlainFrame<'d> = Frame<'d, &'d [u8]>;

/// Most answers that wait to be sent; beyond, requests are refused for now and come again.
pub(crate) const MOST_ANSWERS: usize = 4096;

/// An answer that waits to be sent.
#[derive(Debug)]
pub(crate) enum QueuedAnswer {
    Bytes(GetRequest),
    Done { token: u64 },
    Value { token: u64, value: u64 },
    Refused { token: u64, reason: Refusal },
    Multicast { token: u64, refused: Option<(Rank, Refusal)> },
    Append { token: u64, again: bool },
    MulticastAppend { token: u64, refused: Option<(Rank, Refusal)>, full: Vec<Rank> },
}

/// Bytes of a window that a rank asked for.
#[derive(Debug)]
pub(crate) struct GetRequest {
    token: u64,
    window: WindowKey,
    blocks: GetLayout,
    length: u32,
    sent: u32,
}

/// A put of another rank, or a frame of one.
#[derive(Clone, Copy)]
struct IncomingPut<S> {
    /// 0: its sender does not want to know.
    token: u64,
    last: bool,
    window: WindowKey,
    notify: Option<u32>,
    data: S,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Engine {
    pub(crate) mailbox: Mailbox,
    pub(crate) windows: WindowTable,
    pub(crate) fifos: FifoTable,
    /// The own requests.
    pub(crate) requests: RequestTable,
    /// Place of the request whose answer comes in pieces, of which the last that came was one.
    pub(crate) arriving: Option<u32>,
    /// What of them has not left.
    pub(crate) outgoing: Outgoing,
    /// Schedules whose next round can begin.
    pub(crate) due_schedules: Vec<u32>,
    /// Ends of requests so far that a wait may look for.
    pub(crate) ends: u64,
    /// Where ends of requests are told in their order.
    pub(crate) completion_queues: CompletionQueues,
    /// Threads of the program that wait.
    pub(crate) waits: usize,
    /// This rank.
    pub(crate) me: Rank,
    /// Own fences that have not been answered: whom they were sent to, and their tokens.
    pub(crate) fences: Vec<(Rank, u64)>,
    /// Own puts that were refused, by target: how many and why the first.
    pub(crate) refused_puts: HashMap<u32, (u64, Refusal)>,
    /// Own puts that tell when they are in place.
    pub(crate) completions: CompletionTable,
    /// A peer broke the protocol.
    pub(crate) fault: Option<String>,
    /// The program gets ranks in step again after a collective that was interrupted.
    pub(crate) renews_collectives: bool,
    pub(crate) multicasts: MulticastTable,
    pub(crate) services: ServiceTable,
    pub(crate) answers: VecDeque<(Rank, QueuedAnswer)>,
    pub(crate) refused_here: u64,
    /// Bytes of the longest frame that all ways take.
    pub(crate) longest: usize,
    next_token: u64,
    /// Room for the list of the frame that is being taken.
    scratch: Vec<u8>,
}

impl Engine {
    pub(crate) fn new(bound: usize, arena_bytes: usize, random: RandomSource) -> Engine {
        Engine {
            mailbox: Mailbox::new(bound),
            windows: WindowTable::new(arena_bytes, random),
            fifos: FifoTable::default(),
            requests: RequestTable::default(),
            arriving: None,
            outgoing: Outgoing::default(),
            due_schedules: Vec::new(),
            ends: 0,
            completion_queues: CompletionQueues::default(),
            waits: 0,
            me: Rank::MAX,
            fences: Vec::new(),
            refused_puts: HashMap::new(),
            completions: CompletionTable::default(),
            fault: None,
            renews_collectives: false,
            multicasts: MulticastTable::default(),
            services: ServiceTable::default(),
            answers: VecDeque::new(),
            refused_here: 0,
            longest: usize::MAX,
            next_token: 1,
            scratch: Vec::new(),
        }
    }

    /// A token that no request has had.
    pub(crate) fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token - 1
    }

    fn take<S: CopySource>(
        &mut self,
        attachment: &Attachment,
        from: Rank,
        frame: S,
        scratch: &mut Vec<u8>,
    ) -> Result<Delivery, String> {
        match Frame::decode_from(frame, scratch).map_err(|error| error.to_string())? {
            Frame::Message { tag, total, data } => {
                let taken = self.mailbox.first(from, tag.cast_signed(), total, data)?;
                self.receives_ended();
                Ok(taken)
            }
            Frame::MessagePart { data } => {
                self.mailbox.part(from, data)?;
                self.receives_ended();
                Ok(Delivery::Taken)
            }
            Frame::GetReply { token, offset_in_request, data } => {
                if let Some(at) = self.fences.iter().position(|fence| *fence == (from, token)) {
                    self.fences.swap_remove(at);
                    return Ok(Delivery::Taken);
                }
                self.bytes_arrived(from, token, offset_in_request, data, 0)
                    .map(|()| Delivery::Taken)
            }
            Frame::AtomicReply { token, value } => self.value_arrived(from, token, value),
            Frame::AppendReply { token, again } => {
                match self.direct_answered(from, token, Ok(again)) {
                    true => Ok(Delivery::Taken),
                    false => self.value_arrived(from, token, u64::from(again)),
                }
            }
            Frame::PutDone { token } => self.put_done(from, token),
            Frame::Refused { token, code } => {
                self.refusal_arrived(from, token, Refusal::from_code(code));
                Ok(Delivery::Taken)
            }
            Frame::Multicast { token, window, offset, notify, members, data } => {
                let cast = MulticastFrame { token, window, offset, notify, members, data };
                self.multicast(attachment, from, &cast)
            }
            Frame::MulticastDone { token, refused } => {
                self.multicast_done(from, token, refused);
                Ok(Delivery::Taken)
            }
            Frame::MulticastAppend(cast) => self.multicast_append(attachment, from, &cast),
            Frame::MulticastAppendDone(done) => {
                self.multicast_append_done(attachment, from, &done).map(|()| Delivery::Taken)
            }
            Frame::Service(first) => self.service_first(from, first),
            Frame::ServicePart { data } => self.service_part(from, data),
            request => Ok(self.serve(attachment, from, &request)),
        }
    }

    fn put_done(&mut self, from: Rank, token: u64) -> Result<Delivery, String> {
        if !self.completions.done(from, token) {
            return Err("an answer to no put".into());
        }
        self.puts_placed();
        Ok(Delivery::Taken)
    }

    fn refusal_arrived(&mut self, from: Rank, token: u64, reason: Refusal) {
        if token == 0 {
            self.refused_puts.entry(from).or_insert((0, reason)).0 += 1;
        } else if !self.request_refused(from, token, reason)
            && !self.direct_answered(from, token, Err(reason))
        {
            self.completions.refused(from, token, reason);
        }
    }

    /// Serves a request of another rank.
    fn serve<S: CopySource>(
        &mut self,
        attachment: &Attachment,
        from: Rank,
        request: &Frame<'_, S>,
    ) -> Delivery {
        if self.answers.len() >= MOST_ANSWERS {
            return Delivery::Full;
        }
        if let Some(answer) = self.answer_to(attachment, from, request) {
            // A full FIFO is no mistake.
            let refused =
                matches!(answer, QueuedAnswer::Refused { reason, .. } if reason != Refusal::Full);
            self.refused_here += u64::from(refused);
            self.answers.push_back((from, answer));
        }
        Delivery::Taken
    }

    fn answer_to<S: CopySource>(
        &mut self,
        attachment: &Attachment,
        from: Rank,
        request: &Frame<'_, S>,
    ) -> Option<QueuedAnswer> {
        Some(match *request {
            Frame::Put { window, offset, notify, data } => {
                let put = IncomingPut { token: 0, last: false, window, notify, data };
                return self.put(attachment, from, put, &Shape::whole(offset, data.len() as u64));
            }
            Frame::PutCounted { token, last, window, offset, notify, data } => {
                let put = IncomingPut { token, last, window, notify, data };
                return self.put(attachment, from, put, &Shape::whole(offset, data.len() as u64));
            }
            Frame::PutStrided { token, last, window, offset, stride, block, notify, data } => {
                let put = IncomingPut { token, last, window, notify, data };
                let block = u64::from(block);
                let shape = Shape { offset, stride, block, count: data.len() as u64 / block };
                return self.put(attachment, from, put, &shape);
            }
            Frame::GetRequest { token, window, offset, len } => {
                let shape = Shape::whole(offset, len.into());
                self.bytes_asked(token, window, GetLayout::Even(shape), len)
            }
            Frame::GetStrided { token, window, offset, stride, block, count } => {
                let shape = Shape { offset, stride, block: block.into(), count: count.into() };
                self.bytes_asked(token, window, GetLayout::Even(shape), block * count)
            }
            Frame::AtomicRequest { token, window, offset, operation, width, operand, operand2 } => {
                let word = self.windows.access(window, offset, width.bytes(), Access::Atomic);
                let atomic = AtomicOperation { operation, width, operand, operand2 };
                match word.and_then(|word| atomic.apply(word).ok_or(Refusal::Alignment)) {
                    Ok(value) => QueuedAnswer::Value { token, value },
                    Err(reason) => QueuedAnswer::Refused { token, reason },
                }
            }
            Frame::Append { token, window, offset, wait, signal, data } => {
                if let Err(reason) = self.windows.find(window) {
                    return Some(QueuedAnswer::Refused { token, reason });
                }
                let record = IncomingRecord { from, token, wait, signal, data };
                match self.fifos.append(attachment, (window, offset), record) {
                    AppendOutcome::Taken => QueuedAnswer::Append { token, again: false },
                    AppendOutcome::Waiting => return None,
                    AppendOutcome::Refused(reason) => QueuedAnswer::Refused { token, reason },
                }
            }
            Frame::PutList(ref list) => return self.put_list(attachment, from, list),
            Frame::GetList(GetList { token, window, offset, pieces }) => {
                let list = PieceList::new(offset, pieces.to_vec());
                // The decoder has checked that it is less than 2^32.
                let length = list.bytes() as u32;
                self.bytes_asked(token, window, GetLayout::List(list), length)
            }
            _ => return None,
        })
    }

    fn put_list(
        &mut self,
        attachment: &Attachment,
        from: Rank,
        list: &PutList<'_, impl CopySource>,
    ) -> Option<QueuedAnswer> {
        let PutList { token, last, window, offset, notify, pieces, data } = *list;
        let put = IncomingPut { token, last, window, notify, data };
        self.put(attachment, from, put, &PieceList::new(offset, pieces))
    }

    /// Applies a put, or one frame of it; returns the answer, if one is due.
    fn put(
        &mut self,
        attachment: &Attachment,
        from: Rank,
        put: IncomingPut<impl CopySource>,
        shape: &impl ByteLayout,
    ) -> Option<QueuedAnswer> {
        let IncomingPut { token, last, window, notify, data } = put;
        if let Err(reason) = self.windows.put(attachment.own_lines(), window, shape, notify, data) {
            return Some(QueuedAnswer::Refused { token, reason });
        }
        if !last {
            return None;
        }
        // Answers of a pair are in order, so the last says it for all that come one after another.
        if let Some((to, QueuedAnswer::Done { token: owed })) = self.answers.back_mut()
            && *to == from
        {
            *owed = token;
            return None;
        }
        Some(QueuedAnswer::Done { token })
    }

    fn bytes_asked(
        &self,
        token: u64,
        window: WindowKey,
        blocks: GetLayout,
        length: u32,
    ) -> QueuedAnswer {
        match self.readable(window, &blocks) {
            Ok(_) => QueuedAnswer::Bytes(GetRequest { token, window, blocks, length, sent: 0 }),
            Err(reason) => QueuedAnswer::Refused { token, reason },
        }
    }

    fn readable(&self, window: WindowKey, blocks: &GetLayout) -> Result<SharedBytes<'_>, Refusal> {
        let (start, span) = blocks.range();
        // A fence: every rank answers. Frames of a pair are in order, so its answer says that everything before it has
        // been done.
        if window == NO_WINDOW && (start, span) == (0, 0) {
            return Ok(SharedBytes::default());
        }
        self.windows.access(window, start, span, Access::Read).map(SharedBytesMut::shared)
    }

    /// Sends an answer or a part of it; true when it is all sent.
    fn send_answer(
        &self,
        to: Rank,
        answer: &mut QueuedAnswer,
        most: usize,
        send: &mut AnswerSender<'_>,
    ) -> Result<bool, ChannelError> {
        let none = SharedBytes::default();
        let frame: PlainFrame<'_> = match answer {
            QueuedAnswer::Bytes(asked) => return self.send_bytes(to, asked, most, send),
            QueuedAnswer::Done { token } => Frame::PutDone { token: *token },
            QueuedAnswer::Value { token, value } => {
                Frame::AtomicReply { token: *token, value: *value }
            }
            QueuedAnswer::Refused { token, reason } => {
                Frame::Refused { token: *token, code: reason.code() }
            }
            QueuedAnswer::Append { token, again } => {
                Frame::AppendReply { token: *token, again: *again }
            }
            QueuedAnswer::Multicast { token, refused } => {
                let refused = refused.map(|(rank, reason)| (rank, reason.code()));
                Frame::MulticastDone { token: *token, refused }
            }
            QueuedAnswer::MulticastAppend { token, refused, full } => {
                let (token, list) = (*token, multicast::list(full));
                let refused = refused.map(|(rank, reason)| (rank, reason.code()));
                let done = MulticastAppendDone { token, refused, full: &list };
                let header = PlainFrame::MulticastAppendDone(done).header();
                return send(to, &[&header, &list], none);
            }
        };
        send(to, &[&frame.header()], none)
    }

    fn send_bytes(
        &self,
        to: Rank,
        asked: &mut GetRequest,
        most: usize,
        send: &mut AnswerSender<'_>,
    ) -> Result<bool, ChannelError> {
        let GetRequest { token, window, ref blocks, length, ref mut sent } = *asked;
        let mut gathered = Vec::new();
        loop {
            // Anew for every piece: the window may be gone by now.
            let memory = match self.readable(window, blocks) {
                Ok(memory) => memory,
                Err(reason) => {
                    let frame = PlainFrame::Refused { token, code: reason.code() };
                    return send(to, &[&frame.header()], SharedBytes::default());
                }
            };
            let piece = ((length - *sent) as usize).min(most - GET_REPLY_BYTES);
            let at = *sent as usize;
            let header =
                PlainFrame::GetReply { token, offset_in_request: *sent, data: &[] }.header();
            let taken = if blocks.is_whole() {
                send(to, &[&header], memory.slice(at, piece))?
            } else {
                gathered.resize(piece, 0);
                blocks.gather(memory, at, (&mut gathered[..]).into());
                send(to, &[&header, &gathered], SharedBytes::default())?
            };
            if !taken {
                return Ok(false);
            }
            *sent += piece as u32;
            if *sent == length {
                return Ok(true);
            }
        }
    }
}

impl Engine {
    /// Takes a frame of any kind.
    fn any_frame<S: CopySource>(
        &mut self,
        attachment: &Attachment,
        from: Rank,
        frame: S,
    ) -> Delivery {
        let mut scratch = std::mem::take(&mut self.scratch);
        let taken = self.take(attachment, from, frame, &mut scratch);
        self.scratch = scratch;
        self.taken_or_fault(from, taken)
    }

    /// What of a frame that cannot be is left is the fault.
    fn taken_or_fault(&mut self, from: Rank, taken: Result<Delivery, String>) -> Delivery {
        taken.unwrap_or_else(|what| {
            let text = || format!("rank {from} sent what no rank sends ({what}); end the job");
            self.fault.get_or_insert_with(text);
            Delivery::Taken
        })
    }

    /// Applies a put whose sender does not ask what became of it.
    fn plain_put(
        &mut self,
        attachment: &Attachment,
        from: Rank,
        put: PutFrame<impl CopySource>,
    ) -> Delivery {
        let PutFrame { window, offset, notify, data } = put;
        let shape = Shape::whole(offset, data.len() as u64);
        if let Err(reason) = self.windows.put(attachment.own_lines(), window, &shape, notify, data)
        {
            self.refused_here += 1;
            self.answers.push_back((from, QueuedAnswer::Refused { token: 0, reason }));
        }
        Delivery::Taken
    }
}

impl Handler for Engine {
    #[inline]
    fn frame<S: CopySource>(&mut self, attachment: &Attachment, from: Rank, frame: S) -> Delivery {
        match decode_put(frame) {
            Some(put) if self.answers.len() < MOST_ANSWERS => self.plain_put(attachment, from, put),
            _ => self.any_frame(attachment, from, frame),
        }
    }

    fn answer(&mut self, most: usize, send: &mut AnswerSender<'_>) -> Result<(), ChannelError> {
        for (to, token, refusal) in self.fifos.grants() {
            self.answers.push_back(match refusal {
                None => (to, QueuedAnswer::Append { token, again: true }),
                Some(reason) => (to, QueuedAnswer::Refused { token, reason }),
            });
        }
        if !self.owes_answers() {
            return Ok(());
        }
        let mut full: Vec<Rank> = Vec::new();
        for _ in 0..self.answers.len() {
            let Some((to, mut answer)) = self.answers.pop_front() else { break };
            // The order of answers to one rank is kept.
            if full.contains(&to) || !self.send_answer(to, &mut answer, most, send)? {
                if !full.contains(&to) {
                    full.push(to);
                }
                self.answers.push_back((to, answer));
            }
        }
        self.multicasts.hand_out(&mut full, send)?;
        self.hand_out_queued(most, &mut full, send)
    }

    fn owes_answers(&self) -> bool {
        !self.answers.is_empty()
            || self.fifos.owes_answers()
            || self.multicasts.owes()
            || self.services.owes()
            || self.owes_requests()
    }

    fn unread(&self) -> u64 {
        self.mailbox.unread()
    }

    fn refused(&self) -> u64 {
        self.refused_here
    }

    fn awaits(&self) -> Option<Rank> {
        self.mailbox.awaited
    }

    fn expected(&self) -> Option<ExpectedData<'_>> {
        let memory = self.rest_of_answer()?;
        Some(ExpectedData { header: GET_REPLY_BYTES, memory })
    }

    fn is_expected(&self, from: Rank, head: &[u8], rest: usize) -> bool {
        self.is_rest_of_answer(from, head, rest)
    }

    fn landed(&mut self, _: &Attachment, from: Rank, head: &[u8], rest: usize) -> Delivery {
        let mut scratch = Vec::new();
        let taken = match Frame::decode_from(head, &mut scratch) {
            Ok(Frame::GetReply { token, offset_in_request, data }) => {
                self.bytes_arrived(from, token, offset_in_request, data, rest)
            }
            _ => Err("bytes in the place of others".to_owned()),
        };
        self.taken_or_fault(from, taken.map(|()| Delivery::Taken))
    }
}

#[cfg(test)]
mod tests;
