//! The services of a rank, messages to them of which parts are still to come, and what they have sent or begun.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use kumi_net::{CopySource, Delivery};
use kumi_proto::Rank;
use kumi_proto::frame::ServiceMessage as FirstPart;

use crate::error::Error;
use crate::fifo::signal::HandlerFailures;
use crate::service::outbox::ServiceMessage;
use crate::service::unsent::UnsentMessages;
use crate::service::{RESERVED_FROM, ReservedService, SERVICE_MESSAGE_BYTES, Service};

/// Most bytes that are made room for because of what a message says about itself.
const TRUSTED: usize = 64 << 10;
/// Reserved numbers.
const RESERVED: usize = (u16::MAX - RESERVED_FROM) as usize + 1;

/// What a panic carries.
pub(crate) type Panic = Box<dyn Any + Send>;

/// A service of this rank.
struct Entry {
    /// Not here while it runs.
    service: Option<Box<dyn Service>>,
    /// How often something but a wait that goes on may have changed it.
    changes: u64,
    /// What it or a caller said in a panic: its state may be half of one, so nothing is given to it any more.
    failed: Option<String>,
}

/// A reserved number at this rank.
#[derive(Default)]
enum ReservedPlace {
    /// It will perhaps be served: messages wait with their senders.
    #[default]
    NotYet,
    Here(Entry),
    Gone,
}

/// A message of another rank of which parts are still to come.
#[derive(Debug)]
struct PartialMessage {
    service: u16,
    total: usize,
    data: Vec<u8>,
}

/// The end of a transfer that its service has not been told of.
#[derive(Debug)]
pub(crate) struct EndedTransfer {
    pub(crate) service: u16,
    pub(crate) token: u64,
    pub(crate) result: Result<(), Error>,
}

/// A frame of a service, as far as it can be acted on.
pub(crate) enum TakenPart<S> {
    /// A whole message, which came in one frame.
    Whole(S),
    /// The last part of a message to this service, which is here.
    Joined(u16, Vec<u8>),
    /// Nothing more is to be done.
    Done(Delivery),
}

/// See the module.
#[derive(Default)]
pub(crate) struct ServiceTable {
    /// By number. A service that is gone leaves its place empty, and no other gets its number.
    entries: Vec<Option<Entry>>,
    reserved: [ReservedPlace; RESERVED],
    /// This rank, and how many there are.
    pub(crate) me: Rank,
    pub(crate) ranks: u32,
    /// Messages of other ranks that are not here whole: one of a rank at most.
    partial: HashMap<Rank, PartialMessage>,
    pub(crate) unsent: UnsentMessages,
    /// Room for the messages of a service that runs.
    pub(super) sending: Vec<ServiceMessage>,
    /// Transfers that have ended, in the order of their ends.
    pub(crate) ended: VecDeque<EndedTransfer>,
    /// Room for a message that lies where others may write.
    pub(super) scratch: Vec<u8>,
    failures: Arc<HandlerFailures>,
}

impl Entry {
    fn new(service: Box<dyn Service>) -> Entry {
        Entry { service: Some(service), changes: 0, failed: None }
    }
}

impl ServiceTable {
    /// The rank whose services these are, and where their panics are told.
    pub(crate) fn join(&mut self, me: Rank, ranks: u32, failures: Arc<HandlerFailures>) {
        (self.me, self.ranks, self.failures) = (me, ranks, failures);
    }

    /// Adds a service; its number.
    ///
    /// # Errors
    /// [`Error::TooManyServices`].
    pub(crate) fn add(&mut self, service: Box<dyn Service>) -> Result<u16, Error> {
        let number = u16::try_from(self.entries.len()).ok();
        let number = number.filter(|number| *number < RESERVED_FROM);
        let number = number.ok_or(Error::TooManyServices)?;
        self.entries.push(Some(Entry::new(service)));
        Ok(number)
    }

    /// Serves a reserved number from here on.
    ///
    /// # Errors
    /// [`Error::ServiceTaken`] if it is served already.
    pub(crate) fn add_reserved(
        &mut self,
        number: ReservedService,
        service: Box<dyn Service>,
    ) -> Result<u16, Error> {
        let ReservedService(service_number) = number;
        let place = &mut self.reserved[usize::from(service_number - RESERVED_FROM)];
        if matches!(place, ReservedPlace::Here(_)) {
            return Err(Error::ServiceTaken { service: service_number });
        }
        *place = ReservedPlace::Here(Entry::new(service));
        Ok(service_number)
    }

    /// Takes a service away. What it has sent still leaves; what comes for it is dropped.
    pub(crate) fn remove(&mut self, number: u16) -> Option<Box<dyn Service>> {
        self.ended.retain(|transfer| transfer.service != number);
        let entry = match self.reserved_place(number) {
            Some(place) => match std::mem::replace(place, ReservedPlace::Gone) {
                ReservedPlace::Here(entry) => Some(entry),
                ReservedPlace::NotYet | ReservedPlace::Gone => None,
            },
            None => self.entries.get_mut(usize::from(number))?.take(),
        };
        entry?.service
    }

    /// Whether this rank has any service.
    pub(crate) fn any(&self) -> bool {
        let reserved = |place: &ReservedPlace| matches!(place, ReservedPlace::Here(_));
        self.entries.iter().any(Option::is_some) || self.reserved.iter().any(reserved)
    }

    /// Something waits to be sent or told.
    #[inline]
    pub(crate) fn owes(&self) -> bool {
        self.unsent.any() || !self.ended.is_empty()
    }

    #[inline]
    fn reserved_place(&mut self, number: u16) -> Option<&mut ReservedPlace> {
        let place = number.checked_sub(RESERVED_FROM)?;
        Some(&mut self.reserved[usize::from(place)])
    }

    #[inline]
    fn entry(&mut self, number: u16) -> Option<&mut Entry> {
        if number < RESERVED_FROM {
            return self.entries.get_mut(usize::from(number))?.as_mut();
        }
        match self.reserved_place(number)? {
            ReservedPlace::Here(entry) => Some(entry),
            ReservedPlace::NotYet | ReservedPlace::Gone => None,
        }
    }

    /// Takes the first part of a message, unless it is whole. An error is the sender's fault.
    #[inline]
    pub(crate) fn first<S: CopySource>(
        &mut self,
        from: Rank,
        FirstPart { service, total, data }: FirstPart<S>,
    ) -> Result<TakenPart<S>, String> {
        let total = total as usize;
        if !self.partial.is_empty() && self.partial.contains_key(&from) {
            return Err("a message to a service began inside of another one".into());
        }
        if total > SERVICE_MESSAGE_BYTES {
            return Err(format!("a message of {total} bytes to a service"));
        }
        match self.reserved_place(service) {
            Some(ReservedPlace::NotYet) => return Ok(TakenPart::Done(Delivery::Full)),
            Some(ReservedPlace::Here(_) | ReservedPlace::Gone) => {}
            None => self.check_number(service)?,
        }
        if data.len() >= total {
            return Ok(TakenPart::Whole(data));
        }
        let mut kept = Vec::with_capacity(total.min(TRUSTED));
        data.append_to(&mut kept);
        self.partial.insert(from, PartialMessage { service, total, data: kept });
        Ok(TakenPart::Done(Delivery::Taken))
    }

    fn check_number(&self, service: u16) -> Result<(), String> {
        if usize::from(service) < self.entries.len() {
            return Ok(());
        }
        Err(format!("a message to service {service}, which there is not"))
    }

    /// Next part of the pair's message. An error is the sender's fault.
    pub(crate) fn part<S: CopySource>(
        &mut self,
        from: Rank,
        data: S,
    ) -> Result<TakenPart<S>, String> {
        let Some(partial) = self.partial.get_mut(&from) else {
            return Err("a part of no message to a service".into());
        };
        if data.len() > partial.total - partial.data.len() {
            return Err("a message to a service is longer than it says".into());
        }
        data.append_to(&mut partial.data);
        if partial.data.len() == partial.total
            && let Some(whole) = self.partial.remove(&from)
        {
            return Ok(TakenPart::Joined(whole.service, whole.data));
        }
        Ok(TakenPart::Done(Delivery::Taken))
    }

    /// Takes a service out to run it. Give it back by [`ServiceTable::ran`].
    ///
    /// # Errors
    /// [`Error::ServicePanicked`] if it is of no use; [`Error::Fault`] if it is not here.
    #[inline]
    pub(super) fn run(&mut self, number: u16) -> Result<Box<dyn Service>, Error> {
        let Some(entry) = self.entry(number) else { return Err(no_service()) };
        if let Some(text) = &entry.failed {
            return Err(Error::ServicePanicked { service: number, text: text.clone() });
        }
        entry.service.take().ok_or_else(no_service)
    }

    /// A service has run; what it said in a panic.
    #[inline]
    pub(super) fn ran(&mut self, number: u16, service: Box<dyn Service>, failed: Option<String>) {
        if let Some(entry) = self.entry(number) {
            entry.service = Some(service);
            entry.changes += u64::from(failed.is_some());
            entry.failed = failed;
        }
    }

    /// # Errors
    /// As [`ServiceTable::run`].
    pub(super) fn check(&mut self, number: u16) -> Result<(), Error> {
        match self.entry(number).map(|entry| entry.failed.as_ref()) {
            Some(None) => Ok(()),
            Some(Some(text)) => Err(Error::ServicePanicked { service: number, text: text.clone() }),
            None => Err(no_service()),
        }
    }

    /// Whoever waits for the service is to look again.
    #[inline]
    pub(super) fn changed(&mut self, number: u16) {
        if let Some(entry) = self.entry(number) {
            entry.changes += 1;
        }
    }

    /// The program's next call that reports panics of signal handlers tells of this one.
    pub(super) fn tell_panic(&self, number: u16, text: &str) {
        self.failures.add_service(number, text);
    }

    /// How often the service may have changed.
    pub(crate) fn changes(&mut self, number: u16) -> u64 {
        self.entry(number).map_or(0, |entry| entry.changes)
    }
}

/// A handle keeps its service, of its type, until it is dropped.
pub(super) fn no_service() -> Error {
    Error::Fault("a service is gone before its handle: this is a mistake in kumi-mem".into())
}

impl fmt::Debug for ServiceTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceTable")
            .field("services", &self.entries.len())
            .field("partial", &self.partial)
            .field("unsent", &self.unsent)
            .field("ended", &self.ended)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
