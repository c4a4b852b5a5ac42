//! Transfers that a service begins, whose ends it is told, and memory that it registers for those of others.

use kumi_net::{SharedBytes, SharedBytesMut};
use kumi_proto::Rank;

use crate::engine::Engine;
use crate::error::{Error, Refusal};
use crate::request::PutEnd;
use crate::request::outgoing::{Operation, Unsent};
use crate::request::start::{queue, send_or_queue};
use crate::request::table::{PendingRequest, ReportTo, Request, RequestEnd, Target};
use crate::service::outbox::{Outbox, Way};
use crate::window::table::{Access, Rights};

impl Outbox<'_> {
    /// Begins to read from memory that a rank has [registered](crate::RegisteredMemory): the bytes from `offset` on, as many as
    /// `into` has, up to 2^40. The service is told of the end by [`Service::transferred`](crate::Service::transferred), with
    /// `token`, in whatever thread drives the channel, and never before this call of the service is over. Its owner checks key,
    /// range and right.
    ///
    /// Transfers and messages to one rank may overtake each other where one of them has to wait for room.
    ///
    /// # Safety
    /// The memory is what [`SharedBytesMut::new`] demands until the service has been told of the end, or its handle has been
    /// dropped.
    ///
    /// # Errors
    /// [`Error::BadRank`], [`Error::TooManyRequests`]; [`Error::Fault`], [`Error::Io`]. Nothing is begun then.
    pub unsafe fn get(
        &mut self,
        from: u32,
        key: u64,
        offset: u64,
        into: SharedBytesMut<'_>,
        token: u64,
    ) -> Result<(), Error> {
        let length = into.len() as u64;
        let target = self.target(from, offset, length)?;
        if from == self.engine().me {
            let read = self.engine().windows.access(key, offset, length, Access::Read);
            let done = read.map(|bytes| into.copy_from(bytes.shared()));
            return self.ended_here(token, target, done);
        }
        // SAFETY: the caller's promise.
        let pending = PendingRequest::Bytes { into: unsafe { into.lend() }, received: 0 };
        let report = ReportTo::Service(self.number, token);
        let request = Request::new(target, pending, report).on(into.as_ptr(), into.len());
        let operation = |token| Operation::Get { token, window: key, offset, length };
        // SAFETY: there is no data.
        unsafe { self.begin(request, operation, SharedBytes::default()) }
    }

    /// Begins to write into memory that a rank has registered; see [`Outbox::get`]. `end` says what the service is told of: that
    /// the data may change, or that it is in place. With [`PutEnd::Sent`] a refusal is told the program, by
    /// [`crate::Context::flush`].
    ///
    /// # Safety
    /// The data is what [`SharedBytes::new`] demands, for as long as the memory of [`Outbox::get`].
    ///
    /// # Errors
    /// As [`Outbox::get`].
    pub unsafe fn put(
        &mut self,
        to: u32,
        key: u64,
        offset: u64,
        data: SharedBytes<'_>,
        token: u64,
        end: PutEnd,
    ) -> Result<(), Error> {
        let length = data.len() as u64;
        let target = self.target(to, offset, length)?;
        if to == self.engine().me {
            let write = self.engine().windows.access(key, offset, length, Access::Write);
            let done = write.map(|bytes| bytes.copy_from(data));
            return self.ended_here(token, target, done);
        }
        let pending = match end {
            PutEnd::Placed => PendingRequest::Placement,
            PutEnd::Sent => PendingRequest::Departure,
        };
        let report = ReportTo::Service(self.number, token);
        let request = Request::new(target, pending, report).on(data.as_ptr(), data.len());
        let operation = |token| {
            let token = if end == PutEnd::Placed { token } else { 0 };
            Operation::Put { token, window: key, offset, notify: None }
        };
        // SAFETY: the caller's promise.
        unsafe { self.begin(request, operation, data) }
    }

    /// As [`crate::Context::register`], inside of a service; the key. The registration ends with [`Outbox::deregister`], or with
    /// the context.
    ///
    /// # Safety
    /// The memory is what [`SharedBytesMut::new`] demands until the registration has ended. If `rights` allow neither writing
    /// nor atomic operations nobody writes it by this key.
    ///
    /// # Errors
    /// [`Error::WindowRefused`].
    pub unsafe fn register(
        &mut self,
        memory: SharedBytesMut<'_>,
        rights: Rights,
    ) -> Result<u64, Error> {
        let rank = self.engine().me;
        // SAFETY: the caller's promise.
        unsafe { self.engine().windows.register(memory, rights) }
            .map_err(|refusal| refusal.at(rank))
    }

    /// Ends a registration: nobody accesses its memory by this key any more. False if there is none of this key.
    pub fn deregister(&mut self, key: u64) -> bool {
        self.engine().windows.deregister(key)
    }

    /// Ends this service's transfers with this token: their memory is its owner's again, and no end of them is told. For memory that goes
    /// before its transfers are over.
    pub fn release(&mut self, token: u64) {
        let number = self.number;
        self.engine()
            .services
            .ended
            .retain(|ended| (ended.service, ended.token) != (number, token));
        self.engine().release_transfers(number, |found| found == token);
    }

    fn target(&mut self, rank: Rank, offset: u64, length: u64) -> Result<Target, Error> {
        let ranks = self.engine().services.ranks;
        if rank >= ranks {
            return Err(Error::BadRank { rank, ranks });
        }
        Ok(Target { rank, offset, length, size: 0 })
    }

    /// A transfer in the own memory has ended.
    fn ended_here(
        &mut self,
        token: u64,
        target: Target,
        done: Result<(), Refusal>,
    ) -> Result<(), Error> {
        let end = done.map_or_else(RequestEnd::Refused, |()| RequestEnd::Done);
        let number = self.number;
        self.engine().transfer_ended((number, token), target, end);
        Ok(())
    }

    /// Begins a transfer by frames: sends what there is room for, if this outbox reaches the channel, and queues the rest.
    ///
    /// # Safety
    /// As [`Unsent::new`], until the request is over.
    unsafe fn begin(
        &mut self,
        request: Request,
        operation: impl FnOnce(u64) -> Operation,
        data: SharedBytes<'_>,
    ) -> Result<(), Error> {
        let to = request.target.rank;
        let placed = matches!(request.pending, PendingRequest::Placement);
        let engine = self.engine();
        let place = engine.add_request(request)?;
        let token = engine.requests.token(place);
        if placed {
            engine.completions.begin_request(place, to, token);
        }
        // SAFETY: the caller's promise.
        let unsent = unsafe { Unsent::new(place, operation(token), data) };
        match &mut self.way {
            Way::Engine(engine) => queue(engine, to, unsent),
            Way::Channel(guard) => {
                if let Err(error) = send_or_queue(guard, to, unsent) {
                    // The caller takes its memory back.
                    guard.handler().release(place);
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

impl Engine {
    /// Ends transfers of a service with such tokens: their memory is its owners' again, and nobody is told.
    pub(crate) fn release_transfers(&mut self, service: u16, meant: impl Fn(u64) -> bool) {
        let of_service = |place: &u32| {
            let report = self.requests.get(*place).map(|request| request.report);
            matches!(report, Some(ReportTo::Service(number, token)) if number == service && meant(token))
        };
        let places: Vec<u32> = self.requests.places().filter(of_service).collect();
        for place in places {
            self.release(place);
        }
    }
}
