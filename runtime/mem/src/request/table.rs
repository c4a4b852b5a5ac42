//! Table of a rank's requests: those under way and those whose end nobody has asked for yet.

use std::sync::atomic::AtomicU8;
use std::sync::atomic::Ordering::Relaxed;

use kumi_net::SharedBytesMut;
use kumi_proto::Rank;

use crate::error::{Error, Refusal};
use crate::message::mailbox::{MailboxEntry, MessageStatus};
use crate::request::schedule::RunningSchedule;
use crate::request::{Outcome, RequestHandle};
use crate::window::overlap::any_overlap;
use crate::window::pieces::LentBuffers;
use crate::window::place_refused;

/// Most requests at a time.
pub(crate) const MOST_REQUESTS: u32 = 1 << 24;
/// Tokens of requests have this bit, so no other token is one.
const REQUEST_TOKEN: u64 = 1 << 63;

/// What a request waits for.
#[derive(Debug)]
pub(crate) enum PendingRequest {
    /// Bytes of a remote window, into memory that stays until the request is over.
    Bytes { into: SharedBytesMut<'static>, received: u64 },
    /// As `Bytes`, into several buffers.
    Pieces { into: LentBuffers, length: u32, received: u32 },
    /// The value before an atomic operation, or another answer that is a number.
    Value,
    /// The answer that says that a put is in place.
    Placement,
    /// That its frames have left.
    Departure,
    /// The message of a receive.
    Message(MailboxEntry),
    /// The rounds of a schedule.
    Rounds(Box<RunningSchedule>),
    /// An answer that is dropped: its memory has gone.
    Dropped,
    /// Nothing: it ended when it was started.
    Nothing,
}

/// How a request ended.
#[derive(Debug)]
pub(crate) enum RequestEnd {
    Done,
    Value(u64),
    Received(MessageStatus),
    Cancelled,
    Refused(Refusal),
    Failed(Error),
}

/// Who is told of the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReportTo {
    /// The holder of the handle.
    Handle,
    /// Nobody any more.
    Nobody,
    /// The counter with this number.
    Counter(u64),
    /// The queue with this number, with the program's word.
    Queue(u64, u64),
    /// The schedule at this place of the table, whose step it is; with its order among the round's receives.
    Schedule(u32, u32),
    /// The service with this number, whose transfer it is; with the service's word.
    Service(u16, u64),
}

/// The bytes of a window that an operation names, for its errors.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Target {
    pub(crate) rank: Rank,
    pub(crate) offset: u64,
    pub(crate) length: u64,
    /// Bytes of the window there.
    pub(crate) size: u64,
}

/// A request.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) pending: PendingRequest,
    pub(crate) target: Target,
    pub(crate) report: ReportTo,
    /// An answer, or its first piece, has come (an answer can be empty).
    pub(crate) begun: bool,
    /// Frames of it are in a queue, and with them its data.
    pub(crate) unsent: bool,
    /// Where the program's memory that it uses begins, and how many bytes there are.
    pub(crate) lent: [(usize, usize); 2],
    /// Memory that the library has for it. Nobody touches it but by its address until the request is over.
    pub(crate) owned: Option<Vec<u8>>,
    /// How it ended; it is over when nothing of it is unsent, too.
    pub(crate) end: Option<RequestEnd>,
}

impl Request {
    pub(crate) fn new(target: Target, pending: PendingRequest, report: ReportTo) -> Request {
        let (begun, unsent, lent, owned, end) = (false, false, [(0, 0); 2], None, None);
        Request { pending, target, report, begun, unsent, lent, owned, end }
    }

    /// The same, of memory that it uses until it is over.
    pub(crate) fn on(self, base: *const u8, length: usize) -> Request {
        Request { lent: [(base.addr(), length), (0, 0)], ..self }
    }

    /// Whether it may still use bytes of this memory.
    fn uses(&self, base: usize, length: usize) -> bool {
        // One that was released has given its memory back.
        let uses = !self.is_over() && self.report != ReportTo::Nobody;
        uses && self.lent.iter().any(|lent| any_overlap(&mut [(base, length), *lent]))
    }

    /// One to a rank, whose refusal the caller itself turns into an error.
    pub(crate) fn to(rank: Rank, pending: PendingRequest) -> Request {
        let target = Target { rank, ..Target::default() };
        Request::new(target, pending, ReportTo::Handle)
    }

    /// Nothing of it is under way, and its memory is the program's again.
    pub(crate) fn is_over(&self) -> bool {
        self.end.is_some() && !self.unsent
    }
}

impl RequestEnd {
    /// As the program gets it.
    pub(crate) fn told(self, target: Target) -> Result<Outcome, Error> {
        match self {
            RequestEnd::Done => Ok(Outcome::Done),
            RequestEnd::Value(value) => Ok(Outcome::Value(value)),
            RequestEnd::Received(status) => Ok(Outcome::Received(status)),
            RequestEnd::Cancelled => Ok(Outcome::Cancelled),
            RequestEnd::Refused(reason) => Err(place_refused(target, reason)),
            RequestEnd::Failed(error) => Err(error),
        }
    }
}

/// A place of the table.
#[derive(Debug, Default)]
struct Slot {
    /// Rises when a request leaves the place, so that its handle is known as stale.
    generation: u32,
    request: Option<Request>,
    /// The last call that has listed it.
    listed: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct RequestTable {
    context: u8,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Calls that have listed requests.
    calls: u64,
}

impl Default for RequestTable {
    fn default() -> RequestTable {
        static CONTEXTS: AtomicU8 = AtomicU8::new(0);
        // 0 is no context's. A process has one but in tests, so numbers that come again do no harm.
        let context = CONTEXTS.fetch_add(1, Relaxed) % u8::MAX + 1;
        RequestTable { context, slots: Vec::new(), free: Vec::new(), calls: 0 }
    }
}

impl RequestTable {
    /// Takes a request in; its place.
    pub(crate) fn add(&mut self, request: Request) -> Result<u32, Error> {
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.slots.len() < MOST_REQUESTS as usize => {
                self.slots.push(Slot::default());
                self.slots.len() as u32 - 1
            }
            None => return Err(Error::TooManyRequests { most: MOST_REQUESTS }),
        };
        self.slots[place as usize].request = Some(request);
        Ok(place)
    }

    /// The request at a place.
    pub(crate) fn get_mut(&mut self, place: u32) -> Option<&mut Request> {
        self.slots.get_mut(place as usize)?.request.as_mut()
    }

    /// The request at a place, to look at.
    pub(crate) fn get(&self, place: u32) -> Option<&Request> {
        self.slots.get(place as usize)?.request.as_ref()
    }

    /// Takes a request out.
    pub(crate) fn remove(&mut self, place: u32) -> Option<Request> {
        let slot = self.slots.get_mut(place as usize)?;
        let request = slot.request.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(place);
        Some(request)
    }

    /// Requests in the table.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The handle of the request at a place.
    pub(crate) fn handle(&self, place: u32) -> RequestHandle {
        RequestHandle::new(self.context, self.slots[place as usize].generation, place)
    }

    /// The token by which its answer comes.
    pub(crate) fn token(&self, place: u32) -> u64 {
        let (_, generation, place) = self.handle(place).parts();
        REQUEST_TOKEN | u64::from(generation) << 24 | u64::from(place)
    }

    /// The place of a request that a rank answers.
    pub(crate) fn answered_by(&self, from: Rank, token: u64) -> Option<u32> {
        let place = (token & u64::from(MOST_REQUESTS - 1)) as u32;
        let request = self.get(place)?;
        (request.target.rank == from && self.token(place) == token).then_some(place)
    }

    /// The place of a handle's request.
    pub(crate) fn find(&self, handle: RequestHandle) -> Result<u32, Error> {
        let (context, generation, place) = handle.parts();
        if context != self.context {
            return Err(Error::ForeignRequest { handle: handle.to_bits() });
        }
        let slot = self.slots.get(place as usize).filter(|slot| slot.generation == generation);
        match slot.and_then(|slot| slot.request.as_ref()) {
            Some(request) if request.report != ReportTo::Nobody => Ok(place),
            _ => Err(Error::StaleRequest { handle: handle.to_bits() }),
        }
    }

    /// Whether the request of a handle is over. Its place may be another's by now, if its end was told elsewhere: over, too.
    pub(crate) fn is_over(&self, handle: RequestHandle) -> bool {
        let place = self.find(handle).ok();
        place.and_then(|place| self.get(place)).is_none_or(Request::is_over)
    }

    /// Checks that several handles are good, and that each is listed once.
    pub(crate) fn find_all(&mut self, handles: &[RequestHandle]) -> Result<(), Error> {
        self.calls += 1;
        for handle in handles {
            let place = self.find(*handle)?;
            let slot = &mut self.slots[place as usize];
            if slot.listed == self.calls {
                return Err(Error::RequestListed { handle: handle.to_bits() });
            }
            slot.listed = self.calls;
        }
        Ok(())
    }

    /// Whether a request that is not over uses bytes of this memory.
    pub(crate) fn use_any_of(&self, base: usize, length: usize) -> bool {
        let mut requests = self.slots.iter().filter_map(|slot| slot.request.as_ref());
        requests.any(|request| request.uses(base, length))
    }

    /// All places with a request.
    pub(crate) fn places(&self) -> impl Iterator<Item = u32> {
        (0..).zip(&self.slots).filter(|(_, slot)| slot.request.is_some()).map(|(place, _)| place)
    }
}
