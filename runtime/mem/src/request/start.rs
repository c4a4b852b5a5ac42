//! The beginnings of requests, of memory by its address.

use kumi_net::counters::Counter;
use kumi_net::{CopySource, Delivery, Guard, SharedBytes, SharedBytesMut};
use kumi_proto::Rank;

use crate::context::Context;
use crate::engine::Engine;
use crate::error::{Error, Refusal};
use crate::message::check_tag;
use crate::message::mailbox::{MatchPattern, ReceiveBuffer, Source, Tag};
use crate::request::outgoing::{Operation, Unsent};
use crate::request::progress::ANY_RANK;
use crate::request::table::{PendingRequest, ReportTo, Request, RequestEnd, Target};
use crate::request::{Atomic, PutEnd, PutOptions, Report, RequestHandle};
use crate::window::atomic::AtomicOperation;
use crate::window::completion::OnPlacement;
use crate::window::table::{Access, check};
use crate::window::{Window, check_notify};

impl Window<'_> {
    /// Begins a put and returns at once, also if there is no room on the way to its target now. Puts, gets, atomic
    /// operations and messages to one rank take effect in the order in which they were begun, by requests or by calls. But a
    /// get that is under way may find what was put after it.
    ///
    /// To a piece that this process has mapped the put is done when this returns, before frames that wait for their turn. With
    /// a notification it first waits until earlier puts by frames have arrived there.
    ///
    /// # Safety
    /// The data is what [`SharedBytes::new`] demands until the request is over: until its end has been told, it was
    /// released, or the context is gone.
    ///
    /// # Errors
    /// Those of [`Window::put_with`] that are known at once; [`Error::TooManyRequests`]. A refusal by frames is the
    /// request's end.
    pub unsafe fn start_put(
        &self,
        to: u32,
        offset: usize,
        data: SharedBytes<'_>,
        options: PutOptions<'_>,
    ) -> Result<RequestHandle, Error> {
        // SAFETY: the caller's promise.
        unsafe { self.put_request(to, offset, data, None, options) }
    }

    /// The same; the request keeps `owned`, in which the data lies.
    ///
    /// # Safety
    /// As [`Window::start_put`].
    pub(crate) unsafe fn put_request(
        &self,
        to: u32,
        offset: usize,
        data: SharedBytes<'_>,
        owned: Option<Vec<u8>>,
        PutOptions { notify, end, report }: PutOptions<'_>,
    ) -> Result<RequestHandle, Error> {
        if let Some(notify) = notify {
            check_notify(notify)?;
        }
        let context = self.context;
        let target = self.target(to, offset, data.len())?;
        let report = context.report_to(report)?;
        if let Some((local, mapped)) = self.mapped(to) {
            let mapped = mapped?;
            check(mapped.rights, mapped.size, target.offset, target.length, Access::Write)
                .map_err(|reason| self.refused(to, offset, data.len(), reason))?;
            mapped.writable().slice(offset, data.len()).copy_from(data);
            let after = OnPlacement { notify, completion: None };
            self.finish_mapped(mapped, (to, local), after)?;
            return context.ended(target, owned, report, RequestEnd::Done);
        }
        self.check_long(to, offset, data.len() as u64, data.len())?;
        context.puts_to(to);
        let pending = match end {
            PutEnd::Placed => PendingRequest::Placement,
            PutEnd::Sent => PendingRequest::Departure,
        };
        let request = Request::new(target, pending, report).on(data.as_ptr(), data.len());
        let request = Request { owned, ..request };
        let (window, offset) = (self.keys[to as usize], target.offset);
        let operation = |token| {
            let token = if end == PutEnd::Placed { token } else { 0 };
            Operation::Put { token, window, offset, notify }
        };
        // SAFETY: the caller's promise, or the request has it.
        let begun = unsafe { context.begin(request, operation, data) };
        if end == PutEnd::Sent {
            // Once more, as at the end of every put. (Of placed ones `begin` does it.)
            context.puts_to(to);
        }
        begun
    }

    /// Begins a get and returns at once; see [`Window::start_put`].
    ///
    /// # Safety
    /// The memory is what [`SharedBytesMut::new`] demands until the request is over, as for [`Window::start_put`].
    ///
    /// # Errors
    /// Those of [`Window::get`] that are known at once; [`Error::TooManyRequests`].
    pub unsafe fn start_get(
        &self,
        from: u32,
        offset: usize,
        into: SharedBytesMut<'_>,
        report: Report<'_>,
    ) -> Result<RequestHandle, Error> {
        // SAFETY: the caller's promise.
        unsafe { self.get_request(from, offset, into, None, report) }
    }

    /// The same; the request keeps `owned`, in which the memory lies.
    ///
    /// # Safety
    /// As [`Window::start_get`].
    pub(crate) unsafe fn get_request(
        &self,
        from: u32,
        offset: usize,
        into: SharedBytesMut<'_>,
        owned: Option<Vec<u8>>,
        report: Report<'_>,
    ) -> Result<RequestHandle, Error> {
        let target = self.target(from, offset, into.len())?;
        let report = self.context.report_to(report)?;
        if let Some((_, mapped)) = self.mapped(from) {
            let mapped = mapped?;
            check(mapped.rights, mapped.size, target.offset, target.length, Access::Read)
                .map_err(|reason| self.refused(from, offset, into.len(), reason))?;
            into.copy_from(mapped.bytes().slice(offset, into.len()));
            self.context.attachment().count(Counter::DirectGets, 1);
            return self.context.ended(target, owned, report, RequestEnd::Done);
        }
        // SAFETY: the caller's promise.
        let pending = PendingRequest::Bytes { into: unsafe { into.lend() }, received: 0 };
        let request = Request::new(target, pending, report).on(into.as_ptr(), into.len());
        let request = Request { owned, ..request };
        let Target { offset, length, .. } = target;
        let window = self.keys[from as usize];
        let operation = |token| Operation::Get { token, window, offset, length };
        // SAFETY: there is no data.
        unsafe { self.context.begin(request, operation, SharedBytes::default()) }
    }

    /// Begins an atomic operation and returns at once; see [`Window::start_put`]. The request ends with the value before.
    ///
    /// # Errors
    /// Those of [`Window::fetch_add`] that are known at once; [`Error::TooManyRequests`].
    pub fn start_atomic(
        &self,
        to: u32,
        offset: usize,
        atomic: Atomic,
        report: Report<'_>,
    ) -> Result<RequestHandle, Error> {
        let atomic = AtomicOperation::from(atomic);
        let bytes = atomic.width.bytes() as usize;
        let target = self.target(to, offset, bytes)?;
        let report = self.context.report_to(report)?;
        if let Some((_, mapped)) = self.mapped(to) {
            let mapped = mapped?;
            let refused = |reason| self.refused(to, offset, bytes, reason);
            check(mapped.rights, mapped.size, target.offset, target.length, Access::Atomic)
                .map_err(refused)?;
            self.context.attachment().count(Counter::DirectAtomics, 1);
            let before = atomic.apply(mapped.writable().slice(offset, bytes));
            let before = before.ok_or_else(|| refused(Refusal::Alignment))?;
            return self.context.ended(target, None, report, RequestEnd::Value(before));
        }
        let request = Request::new(target, PendingRequest::Value, report);
        let (window, offset) = (self.keys[to as usize], target.offset);
        let operation = |token| Operation::Atomic { token, window, offset, atomic };
        // SAFETY: there is no data.
        unsafe { self.context.begin(request, operation, SharedBytes::default()) }
    }

    fn target(&self, rank: u32, offset: usize, length: usize) -> Result<Target, Error> {
        let size = self.size_at(rank)?;
        Ok(Target { rank, offset: offset as u64, length: length as u64, size })
    }
}

impl Context {
    /// Begins to send a message and returns at once, also if there is no room on its way now. The request is over when
    /// the message is in the channel.
    ///
    /// # Safety
    /// The data is what [`SharedBytes::new`] demands until the request is over, as for [`Window::start_put`].
    ///
    /// # Errors
    /// [`Error::BadRank`], [`Error::BadTag`], [`Error::TooManyRequests`], [`Error::Unread`] for a message to the own rank
    /// that is too large to keep.
    pub unsafe fn start_send(
        &self,
        to: u32,
        tag: i32,
        data: SharedBytes<'_>,
        report: Report<'_>,
    ) -> Result<RequestHandle, Error> {
        check_tag(tag)?;
        // SAFETY: the caller's promise.
        unsafe { self.send_request(to, tag, data, None, report) }
    }

    /// The same with the library's own tags too; the request keeps `owned`, in which the data lies.
    ///
    /// # Safety
    /// As [`Context::start_send`].
    pub(crate) unsafe fn send_request(
        &self,
        to: u32,
        tag: i32,
        data: SharedBytes<'_>,
        owned: Option<Vec<u8>>,
        report: Report<'_>,
    ) -> Result<RequestHandle, Error> {
        self.check_rank(to)?;
        let report = self.report_to(report)?;
        let target = Target { rank: to, ..Target::default() };
        if to == self.rank() {
            self.send_to_self(tag, data)?;
            return self.ended(target, owned, report, RequestEnd::Done);
        }
        if !self.same_node(to) {
            self.puts_to(to);
        }
        let request = Request::new(target, PendingRequest::Departure, report);
        let request = Request { owned, ..request.on(data.as_ptr(), data.len()) };
        let (tag, total) = (tag.cast_unsigned(), data.len() as u64);
        // SAFETY: the caller's promise, or the request has it.
        unsafe { self.begin(request, |_| Operation::Message { tag, total }, data) }
    }

    /// Begins to receive a message into memory and returns at once. Receives get messages in the order in which they were
    /// begun. A message longer than the memory is consumed and cut, and the request ends with [`Error::Truncated`].
    ///
    /// # Safety
    /// The memory is what [`SharedBytesMut::new`] demands until the request is over, as for [`Window::start_put`].
    ///
    /// # Errors
    /// [`Error::BadRank`], [`Error::BadTag`], [`Error::TooManyRequests`].
    pub unsafe fn start_receive(
        &self,
        from: Source,
        tag: Tag,
        into: SharedBytesMut<'_>,
        report: Report<'_>,
    ) -> Result<RequestHandle, Error> {
        let wanted = self.wanted(from, tag)?;
        // SAFETY: the caller's promise.
        let buffer = ReceiveBuffer::Lent(unsafe { into.lend() });
        self.receive_request(wanted, buffer, report)
    }

    /// Begins to receive what is wanted.
    pub(crate) fn receive_request(
        &self,
        wanted: MatchPattern,
        buffer: ReceiveBuffer,
        report: Report<'_>,
    ) -> Result<RequestHandle, Error> {
        let report = self.report_to(report)?;
        let rank = match wanted.from {
            Source::Rank(rank) => rank,
            Source::Any => ANY_RANK,
        };
        let target = Target { rank, ..Target::default() };
        let mut guard = self.channel.lock()?;
        let engine = guard.handler();
        engine.check_fault()?;
        let request = Request::new(target, PendingRequest::Nothing, report);
        let place = engine.add_request(match &buffer {
            ReceiveBuffer::Lent(memory) => request.on(memory.as_ptr(), memory.len()),
            ReceiveBuffer::Grown(_) => request,
        })?;
        let handle = engine.requests.handle(place);
        engine.post_receive(place, wanted, buffer);
        Ok(handle)
    }

    /// A message to the own rank goes straight to where it would end.
    pub(crate) fn send_to_self(&self, tag: i32, data: impl CopySource) -> Result<(), Error> {
        let me = self.rank();
        let mut guard = self.channel.lock()?;
        let engine = guard.handler();
        let taken = engine.mailbox.first(me, tag, data.len() as u64, data);
        engine.receives_ended();
        match taken {
            Ok(Delivery::Taken) => Ok(()),
            Ok(Delivery::Full) => Err(Error::Unread { bytes: data.len() }),
            Err(what) => Err(Error::Fault(what.to_string())),
        }
    }

    /// Begins a request by frames: sends what there is room for, and queues the rest.
    ///
    /// # Safety
    /// As [`Unsent::new`], until the request is over.
    unsafe fn begin(
        &self,
        request: Request,
        operation: impl FnOnce(u64) -> Operation,
        data: SharedBytes<'_>,
    ) -> Result<RequestHandle, Error> {
        let to = request.target.rank;
        let placed = matches!(request.pending, PendingRequest::Placement);
        let mut guard = self.channel.lock()?;
        let engine = guard.handler();
        engine.check_fault()?;
        let place = engine.add_request(request)?;
        let (handle, token) = (engine.requests.handle(place), engine.requests.token(place));
        if placed {
            engine.completions.begin_request(place, to, token);
        }
        // SAFETY: the caller's promise.
        let unsent = unsafe { Unsent::new(place, operation(token), data) };
        let sent = send_or_queue(&mut guard, to, unsent);
        if placed || !self.same_node(to) {
            // Once more, as at the end of every put.
            self.puts_to(to);
        }
        if let Err(error) = sent {
            // The caller takes its memory back.
            guard.handler().release(place);
            return Err(error);
        }
        Ok(handle)
    }

    /// A request that has ended at once.
    fn ended(
        &self,
        target: Target,
        owned: Option<Vec<u8>>,
        report: ReportTo,
        end: RequestEnd,
    ) -> Result<RequestHandle, Error> {
        let mut guard = self.channel.lock()?;
        let engine = guard.handler();
        let request = Request::new(target, PendingRequest::Nothing, report);
        let place = engine.add_request(Request { owned, ..request })?;
        let handle = engine.requests.handle(place);
        engine.end_request(place, end);
        Ok(handle)
    }

    /// Whom the engine tells.
    pub(crate) fn report_to(&self, report: Report<'_>) -> Result<ReportTo, Error> {
        self.check_handlers()?;
        match report {
            Report::Handle => Ok(ReportTo::Handle),
            Report::Counter(completion) => {
                completion.check(self)?;
                Ok(ReportTo::Counter(completion.number()))
            }
            Report::Queue(queue, word) => {
                queue.check(self)?;
                Ok(ReportTo::Queue(queue.number(), word))
            }
        }
    }
}

/// Sends what there is room for, and queues the rest.
pub(crate) fn send_or_queue(
    guard: &mut Guard<'_, Engine>,
    to: Rank,
    mut unsent: Unsent,
) -> Result<(), Error> {
    let (place, most) = (unsent.request, guard.max_frame(to));
    let sent = guard.handler().outgoing.is_free(to)
        && unsent.send(to, most, &mut |to, head, data| guard.send_parts(to, head, &[data]))?;
    let engine = guard.handler();
    if sent {
        engine.departed(place);
        return Ok(guard.transmit_soon(to)?);
    }
    queue(engine, to, unsent);
    Ok(guard.transmit()?)
}

/// Queues what has not left of a request.
pub(crate) fn queue(engine: &mut Engine, to: Rank, unsent: Unsent) {
    if let Some(request) = engine.requests.get_mut(unsent.request) {
        request.unsent = true;
    }
    engine.outgoing.add(to, unsent);
}

impl Engine {
    /// Takes a request in that is to be told of.
    pub(crate) fn add_request(&mut self, request: Request) -> Result<u32, Error> {
        let report = request.report;
        let place = self.requests.add(request)?;
        match report {
            ReportTo::Counter(number) => self.completions.request_begun(number),
            ReportTo::Queue(number, _) => self.completion_queues.request_begun(number),
            ReportTo::Handle
            | ReportTo::Nobody
            | ReportTo::Schedule(..)
            | ReportTo::Service(..) => {}
        }
        Ok(place)
    }

    /// # Errors
    /// [`Error::Fault`] if a peer broke the protocol.
    pub(crate) fn check_fault(&self) -> Result<(), Error> {
        self.fault.as_ref().map_or(Ok(()), |fault| Err(Error::Fault(fault.clone())))
    }
}
