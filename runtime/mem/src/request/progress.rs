//! The engine's part in requests: answers to them, their ends, and the queues of what has not left.

use kumi_net::{AnswerSender, ChannelError, CopySource, Delivery, SharedBytes, SharedBytesMut};
use kumi_proto::Rank;
use kumi_proto::frame::Frame;

use crate::engine::Engine;
use crate::error::{Error, Refusal};
use crate::message::mailbox::{MailboxEntry, MatchPattern, ReceiveBuffer};
use crate::request::Outcome;
use crate::request::outgoing::Unsent;
use crate::request::queue::CompletionEntry;
use crate::request::table::{PendingRequest, ReportTo, Request, RequestEnd};
use crate::window::GET_PIECE;

impl Engine {
    /// An answer that is a number has come.
    pub(crate) fn value_arrived(
        &mut self,
        from: Rank,
        token: u64,
        value: u64,
    ) -> Result<Delivery, String> {
        let place = self.requests.answered_by(from, token);
        let request = place.and_then(|place| self.requests.get_mut(place));
        match (place, request.map(|request| &request.pending)) {
            (Some(place), Some(PendingRequest::Value | PendingRequest::Dropped)) => {
                self.end_request(place, RequestEnd::Value(value));
                Ok(Delivery::Taken)
            }
            _ => Err("an answer to no request".into()),
        }
    }

    /// Bytes of a window have come that were asked for: `data`, and so many behind it that lie in their place already.
    pub(crate) fn bytes_arrived(
        &mut self,
        from: Rank,
        token: u64,
        at: u32,
        data: impl CopySource,
        landed: usize,
    ) -> Result<(), String> {
        let Some(place) = self.requests.answered_by(from, token) else {
            return Err("an answer to no request".into());
        };
        let Some(request) = self.requests.get_mut(place) else { return Ok(()) };
        let unwanted = || Err("bytes that were not asked for".into());
        // In order, so each piece begins where the last one ended.
        let all = match &mut request.pending {
            PendingRequest::Bytes { into, received } => {
                let (start, length) = (*received as usize, data.len() + landed);
                // Of a long get each request counts anew.
                let expected = start % GET_PIECE;
                if at as usize != expected || length > into.len() - start {
                    return unwanted();
                }
                into.slice(start, data.len()).copy_from(data);
                *received += length as u64;
                *received == into.len() as u64
            }
            // Nothing lands for other requests.
            _ if landed > 0 => return unwanted(),
            PendingRequest::Pieces { into, length, received } => {
                if at != *received || data.len() > (*length - at) as usize {
                    return unwanted();
                }
                into.write(data);
                *received += data.len() as u32;
                received == length
            }
            PendingRequest::Dropped => {
                request.target.length = request.target.length.saturating_sub(data.len() as u64);
                request.target.length == 0
            }
            _ => return Err("bytes in answer to a request for something else".into()),
        };
        request.begun = true;
        self.arriving = (!all).then_some(place);
        if all {
            self.end_request(place, RequestEnd::Done);
        }
        Ok(())
    }

    /// Where the rest of the answer lies of which the last bytes were. It is the request's until all has come, so nobody reads
    /// there before, and each byte is still written. Before the first bytes it is not known that the request is granted.
    pub(crate) fn rest_of_answer(&self) -> Option<SharedBytesMut<'_>> {
        let request = self.requests.get(self.arriving?)?;
        match &request.pending {
            PendingRequest::Bytes { into, received } if request.begun && request.end.is_none() => {
                let start = *received as usize;
                // Of a long get each request counts anew, and may be refused.
                let length = (into.len() - start).min(GET_PIECE - start % GET_PIECE);
                (!start.is_multiple_of(GET_PIECE)).then(|| into.slice(start, length))
            }
            _ => None,
        }
    }

    /// Whether this is the beginning of a frame that brings the first bytes of [`Engine::rest_of_answer`], with so many behind.
    pub(crate) fn is_rest_of_answer(&self, from: Rank, head: &[u8], rest: usize) -> bool {
        let Some(place) = self.arriving else { return false };
        let Ok(Frame::GetReply { token, offset_in_request, data }) =
            Frame::decode_from(head, &mut Vec::new())
        else {
            return false;
        };
        let next = match self.requests.get(place).map(|request| &request.pending) {
            Some(PendingRequest::Bytes { received, .. }) => *received as usize % GET_PIECE,
            _ => return false,
        };
        let fits = self.rest_of_answer().is_some_and(|memory| data.len() + rest <= memory.len());
        let asked = self.requests.answered_by(from, token) == Some(place);
        asked && fits && offset_in_request as usize == next
    }

    /// A rank refuses a request; false if the token is of none to it.
    pub(crate) fn request_refused(&mut self, from: Rank, token: u64, reason: Refusal) -> bool {
        let Some(place) = self.requests.answered_by(from, token) else { return false };
        // What no rank answers, no rank ends: the mailbox may still have the memory of a receive.
        let asked = match self.requests.get(place).map(|request| &request.pending) {
            Some(
                PendingRequest::Bytes { .. }
                | PendingRequest::Pieces { .. }
                | PendingRequest::Value
                | PendingRequest::Placement
                | PendingRequest::Dropped,
            ) => true,
            Some(_) | None => false,
        };
        if !asked {
            return false;
        }
        self.completions.forget(from, token);
        self.end_request(place, RequestEnd::Refused(reason));
        true
    }

    /// A request has ended, but for what of it has not left. The first end counts.
    pub(crate) fn end_request(&mut self, place: u32, end: RequestEnd) {
        let Some(request) = self.requests.get_mut(place) else { return };
        request.end.get_or_insert(end);
        if !request.unsent {
            self.report(place);
        }
    }

    /// A request is over: tells it. No other request's end is told from here, but a schedule's step may make it due.
    fn report(&mut self, place: u32) {
        let Some(Request { report, .. }) = self.requests.get_mut(place) else { return };
        let report = *report;
        self.ends += 1;
        if report == ReportTo::Handle {
            return;
        }
        if report == ReportTo::Nobody {
            self.requests.remove(place);
            return;
        }
        let Some(request) = self.remove_over(place) else { return };
        let end = request.end.unwrap_or(RequestEnd::Done);
        match report {
            ReportTo::Counter(number) => {
                self.completions.request_ended(number, end.told(request.target));
            }
            ReportTo::Queue(number, word) => {
                let entry = CompletionEntry { word, result: end.told(request.target) };
                self.completion_queues.request_ended(number, Some(entry));
            }
            ReportTo::Schedule(schedule, order) => self.step_ended((schedule, order), place, end),
            ReportTo::Service(number, word) => {
                self.transfer_ended((number, word), request.target, end);
            }
            ReportTo::Handle | ReportTo::Nobody => {}
        }
    }

    /// The answers to counted puts that are requests.
    pub(crate) fn puts_placed(&mut self) {
        while let Some(place) = self.completions.placed.pop() {
            self.end_request(place, RequestEnd::Done);
        }
    }

    /// Receives whose messages are complete. The mailbox keeps them until their ends are told, so that a receive that is
    /// released leaves its message to the next one. Receives of collectives whose messages will not come end, too, since their
    /// senders are in other collectives.
    pub(crate) fn receives_ended(&mut self) {
        while let Some((place, entry, (rank, theirs, ours))) = self.mailbox.hopeless.pop() {
            // It is gone if its collective ended for the sake of another one.
            if self.mailbox.cancel(entry) {
                let error = Error::GroupDisagrees { rank, theirs, ours };
                self.end_request(place, RequestEnd::Failed(error));
            }
        }
        while let Some((place, entry)) = self.mailbox.ended.pop() {
            let Some((status, fits)) = self.mailbox.matched(entry) else { continue };
            let end = match fits {
                true => RequestEnd::Received(status),
                false => RequestEnd::Failed(Error::Truncated { needed: status.len }),
            };
            self.end_request(place, end);
        }
    }

    /// Forgets a receive. Its message may be another one's, which is over then.
    pub(crate) fn withdraw(&mut self, receive: MailboxEntry) {
        self.mailbox.withdraw(receive);
        self.receives_ended();
    }

    /// Takes a request that is over out of the table, to tell its end. A receive's message leaves the mailbox.
    fn remove_over(&mut self, place: u32) -> Option<Request> {
        let mut request = self.requests.remove(place)?;
        if let PendingRequest::Message(entry) = request.pending
            && let Some((_, ReceiveBuffer::Grown(vector))) = self.mailbox.take(entry)
        {
            request.owned = Some(vector);
        }
        Some(request)
    }

    /// Posts the receive of a request.
    pub(crate) fn post_receive(&mut self, place: u32, wanted: MatchPattern, buffer: ReceiveBuffer) {
        let number = self.mailbox.post_for(wanted, buffer, Some(place));
        if let Some(request) = self.requests.get_mut(place) {
            request.pending = PendingRequest::Message(number);
        }
        self.receives_ended();
    }

    /// Something can be done that needs no news: schedules go on, and what has not left may.
    pub(crate) fn owes_requests(&self) -> bool {
        self.outgoing.owes() || self.schedules_are_due()
    }

    /// Sends what has not left to ranks that are not `full`, and goes on with schedules.
    pub(crate) fn send_queued(
        &mut self,
        most: usize,
        full: &[Rank],
        send: &mut AnswerSender<'_>,
    ) -> Result<(), ChannelError> {
        loop {
            self.run_schedules();
            if self.outgoing.is_empty() {
                return Ok(());
            }
            for place in self.outgoing.send(most, full, send)? {
                self.departed(place);
            }
            if !self.schedules_are_due() {
                return Ok(());
            }
        }
    }

    /// All frames of a request have left.
    pub(crate) fn departed(&mut self, place: u32) {
        let Some(request) = self.requests.get_mut(place) else { return };
        request.unsent = false;
        if matches!(request.pending, PendingRequest::Departure) {
            request.end.get_or_insert(RequestEnd::Done);
        }
        if request.end.is_some() {
            self.report(place);
        }
    }

    /// Takes a request that is over out of the table: how it ended. None if it is under way.
    pub(crate) fn take_over(&mut self, place: u32) -> Option<Request> {
        let over = self.requests.get(place).is_some_and(Request::is_over);
        if over { self.remove_over(place) } else { None }
    }

    /// Gives the memory of a request back at once, and tells nobody of its end. What has not left is copied; answers to
    /// come are dropped; a receive is withdrawn.
    pub(crate) fn release(&mut self, place: u32) {
        let Some(request) = self.requests.get_mut(place) else { return };
        // For another thread that waits for it: its handle is stale.
        self.ends += 1;
        match std::mem::replace(&mut request.report, ReportTo::Nobody) {
            ReportTo::Counter(number) => {
                self.completions.request_ended(number, Ok(Outcome::Cancelled));
            }
            ReportTo::Queue(number, _) => self.completion_queues.request_ended(number, None),
            ReportTo::Handle
            | ReportTo::Nobody
            | ReportTo::Schedule(..)
            | ReportTo::Service(..) => {}
        }
        let (to, unsent) = (request.target.rank, request.unsent);
        match std::mem::replace(&mut request.pending, PendingRequest::Dropped) {
            PendingRequest::Bytes { into, received } => {
                request.target.length = (into.len() as u64).saturating_sub(received);
            }
            PendingRequest::Pieces { length, received, .. } => {
                request.target.length = (length - received).into();
            }
            PendingRequest::Message(number) => {
                request.end.get_or_insert(RequestEnd::Cancelled);
                self.withdraw(number);
            }
            PendingRequest::Rounds(mut schedule) => {
                request.end.get_or_insert(RequestEnd::Cancelled);
                // Its own memory goes last: steps under way use it until they are released.
                let steps = schedule.take_steps();
                self.release_all(steps);
                drop(schedule);
            }
            PendingRequest::Departure => request.pending = PendingRequest::Departure,
            PendingRequest::Placement => request.pending = PendingRequest::Placement,
            PendingRequest::Value | PendingRequest::Dropped | PendingRequest::Nothing => {}
        }
        if unsent && let Some(unsent) = self.outgoing.find(to, place) {
            keep_private(unsent, self.requests.get_mut(place));
        }
        if self.requests.get(place).is_some_and(Request::is_over) {
            self.requests.remove(place);
        }
    }

    /// Cancels a request of which nothing has happened yet: true, and it ends as cancelled.
    pub(crate) fn cancel(&mut self, place: u32) -> bool {
        let Some(request) = self.requests.get_mut(place) else { return false };
        if request.end.is_some() {
            return false;
        }
        let to = request.target.rank;
        match request.pending {
            PendingRequest::Message(number) => {
                if !self.mailbox.cancel(number) {
                    return false;
                }
            }
            PendingRequest::Rounds(_) => return false,
            _ if request.unsent => {
                if self.outgoing.find(to, place).is_none_or(|unsent| unsent.begun) {
                    return false;
                }
                request.unsent = false;
                self.outgoing.remove(to, place);
                let token = self.requests.token(place);
                self.completions.forget(to, token);
            }
            _ => return false,
        }
        self.end_request(place, RequestEnd::Cancelled);
        true
    }

    /// A rank that the end of a request depends on, if it is one.
    pub(crate) fn awaited_by(&self, place: u32) -> Option<Rank> {
        let request = self.requests.get(place)?;
        match request.pending {
            PendingRequest::Rounds(_) | PendingRequest::Nothing => None,
            _ => Some(request.target.rank).filter(|rank| *rank != ANY_RANK),
        }
    }
}

/// The target of a receive from anybody.
pub(crate) const ANY_RANK: Rank = Rank::MAX;

/// Copies what has not left to memory of the request's own.
fn keep_private(unsent: &mut Unsent, request: Option<&mut Request>) {
    let Some(request) = request.filter(|request| request.owned.is_none()) else { return };
    let mut copy = unsent.data.to_vec();
    // SAFETY: the request keeps the vector, which does not change, until all has left.
    unsent.data = unsafe { SharedBytesMut::from(&mut copy[..]).lend() }.shared();
    request.owned = Some(copy);
}

/// Bytes of a vector that the table is about to keep.
///
/// # Safety
/// The vector is not looked at, changed or dropped as long as the result is used.
pub(crate) unsafe fn kept(vector: &mut [u8]) -> SharedBytes<'static> {
    // SAFETY: the caller's promise; the bytes do not move with the vector.
    unsafe { SharedBytesMut::from(vector).lend() }.shared()
}
