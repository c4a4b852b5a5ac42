//! The engine's part in services: messages that come are put together and given to their service, and what services send waits
//! here until it has left.

use std::any::Any;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kumi_net::{AnswerSender, ChannelError, CopySource, Delivery, SharedBytes};
use kumi_proto::Rank;
use kumi_proto::frame::{
    FrameHeader, SERVICE_BYTES, SERVICE_PART_BYTES, ServiceMessage as FirstPart,
};

use crate::engine::PlainFrame;
use crate::error::{Error, panic_text};
use crate::fifo::signal::HandlerFailures;
use crate::service::{Outbox, SERVICE_MESSAGE_BYTES, Service, ServiceMessage};

/// Most bytes that are made room for because of what a message says about itself.
const TRUSTED: usize = 64 << 10;

/// What a panic carries.
pub(crate) type Panic = Box<dyn Any + Send>;

/// A service of this rank.
struct Entry {
    service: Box<dyn Service>,
    /// How often something but a wait that goes on may have changed it.
    changes: u64,
    /// What it or a caller said in a panic: its state may be half of one, so nothing is given to it any more.
    failed: Option<String>,
}

/// A message of another rank of which parts are still to come.
#[derive(Debug)]
struct PartialMessage {
    service: u16,
    total: usize,
    data: Vec<u8>,
}

/// A message that has not left, or not all of it.
#[derive(Debug)]
struct UnsentMessage {
    service: u16,
    data: Vec<u8>,
    sent: usize,
    /// Its first part has left.
    begun: bool,
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
        // No message is longer than [`SERVICE_MESSAGE_BYTES`].
        let (service, total) = (self.service, self.data.len() as u32);
        let first = PlainFrame::Service(FirstPart { service, total, data: &[] });
        (first.header(), rest.min(most - SERVICE_BYTES))
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
#[derive(Default)]
pub(crate) struct ServiceTable {
    /// By number. A service that is gone leaves its place empty, and no other gets its number.
    entries: Vec<Option<Entry>>,
    /// This rank, and how many there are.
    me: Rank,
    ranks: u32,
    /// Messages of other ranks that are not here whole: one of a rank at most.
    partial: HashMap<Rank, PartialMessage>,
    /// By target, in their order. No queue is empty.
    unsent: BTreeMap<Rank, VecDeque<UnsentMessage>>,
    /// Room for a message that lies where others may write.
    scratch: Vec<u8>,
    failures: Arc<HandlerFailures>,
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
        let number = u16::try_from(self.entries.len()).map_err(|_| Error::TooManyServices)?;
        self.entries.push(Some(Entry { service, changes: 0, failed: None }));
        Ok(number)
    }

    /// Takes a service away. What it has sent still leaves; what comes for it is dropped.
    pub(crate) fn remove(&mut self, number: u16) -> Option<Box<dyn Service>> {
        self.entries.get_mut(usize::from(number))?.take().map(|entry| entry.service)
    }

    /// Whether this rank has any service.
    pub(crate) fn any(&self) -> bool {
        self.entries.iter().any(Option::is_some)
    }

    /// Something waits to be sent.
    #[inline]
    pub(crate) fn owes(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// First part of a message. An error is the sender's fault.
    pub(crate) fn first(
        &mut self,
        from: Rank,
        FirstPart { service, total, data }: FirstPart<impl CopySource>,
    ) -> Result<Delivery, String> {
        let total = total as usize;
        if self.partial.contains_key(&from) {
            return Err("a message to a service began inside of another one".into());
        }
        if total > SERVICE_MESSAGE_BYTES {
            return Err(format!("a message of {total} bytes to a service"));
        }
        if usize::from(service) >= self.entries.len() {
            return Err(format!("a message to service {service}, which there is not"));
        }
        if data.len() < total {
            let mut kept = Vec::with_capacity(total.min(TRUSTED));
            data.append_to(&mut kept);
            self.partial.insert(from, PartialMessage { service, total, data: kept });
            return Ok(Delivery::Taken);
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        if scratch.len() < total {
            scratch.resize(total, 0);
        }
        self.deliver(service, from, data.private(&mut scratch[..total]));
        self.scratch = scratch;
        Ok(Delivery::Taken)
    }

    /// Next part of the pair's message. An error is the sender's fault.
    pub(crate) fn part(&mut self, from: Rank, data: impl CopySource) -> Result<Delivery, String> {
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
            self.deliver(whole.service, from, &whole.data);
        }
        Ok(Delivery::Taken)
    }

    /// Gives a service a message, and those that it sends to this rank.
    fn deliver(&mut self, number: u16, from: Rank, message: &[u8]) {
        let sent = self.run(number, from, message);
        self.send(number, sent);
    }

    /// Runs a service for one message: what it sends. A panic ends the service and is told by the program's next call.
    fn run(&mut self, number: u16, from: Rank, message: &[u8]) -> Vec<ServiceMessage> {
        let entry = self.entries.get_mut(usize::from(number)).and_then(Option::as_mut);
        let Some(entry) = entry.filter(|entry| entry.failed.is_none()) else { return Vec::new() };
        let mut outbox = Outbox::new(self.ranks);
        let service = &mut entry.service;
        let told = || service.message(from, message, &mut outbox);
        entry.changes += 1;
        match catch_unwind(AssertUnwindSafe(told)) {
            Ok(()) => outbox.messages,
            Err(panic) => {
                let text = panic_text(&*panic);
                self.failures.add_service(number, &text);
                entry.failed = Some(text);
                // A part of what it was about to say is not to be acted on.
                Vec::new()
            }
        }
    }

    /// Takes what a service sends: to others it waits for its way, and to this rank it is there at once.
    fn send(&mut self, number: u16, messages: Vec<ServiceMessage>) {
        let mut left = VecDeque::from(messages);
        while let Some(ServiceMessage { to, data }) = left.pop_front() {
            if to == self.me {
                left.extend(self.run(number, to, &data));
                continue;
            }
            let unsent = UnsentMessage { service: number, data, sent: 0, begun: false };
            self.unsent.entry(to).or_default().push_back(unsent);
        }
    }

    /// How often the service may have changed.
    pub(crate) fn changes(&self, number: u16) -> u64 {
        let entry = self.entries.get(usize::from(number)).and_then(Option::as_ref);
        entry.map_or(0, |entry| entry.changes)
    }

    /// Calls the program with a service. `changed` says by the result whether others that wait are to look again. After a
    /// panic, which the caller lets go on, the service is of no use any more.
    ///
    /// # Errors
    /// [`Error::ServicePanicked`] if it is of no use.
    pub(crate) fn call<S: Service, T>(
        &mut self,
        number: u16,
        call: impl FnOnce(&mut S, &mut Outbox) -> T,
        changed: impl FnOnce(&T) -> bool,
    ) -> Result<Result<T, Panic>, Error> {
        let entry = self.entries.get_mut(usize::from(number)).and_then(Option::as_mut);
        let Some(entry) = entry else { return Err(no_service()) };
        if let Some(text) = &entry.failed {
            return Err(Error::ServicePanicked { service: number, text: text.clone() });
        }
        let service: &mut dyn Any = &mut *entry.service;
        let Some(service) = service.downcast_mut::<S>() else { return Err(no_service()) };
        let mut outbox = Outbox::new(self.ranks);
        match catch_unwind(AssertUnwindSafe(|| call(service, &mut outbox))) {
            Ok(result) => {
                entry.changes += u64::from(changed(&result));
                self.send(number, outbox.messages);
                Ok(Ok(result))
            }
            Err(panic) => {
                entry.changes += 1;
                entry.failed = Some(panic_text(&*panic));
                Ok(Err(panic))
            }
        }
    }

    /// Sends what there is room for, but not to ranks in `full`, to which those come that have no more room.
    pub(crate) fn hand_out(
        &mut self,
        most: usize,
        full: &mut Vec<Rank>,
        send: &mut AnswerSender<'_>,
    ) -> Result<(), ChannelError> {
        let mut result = Ok(());
        self.unsent.retain(|to, queue| {
            while result.is_ok()
                && !full.contains(to)
                && let Some(message) = queue.front_mut()
            {
                match message.send(*to, most, send) {
                    Ok(true) => drop(queue.pop_front()),
                    Ok(false) => full.push(*to),
                    Err(error) => result = Err(error),
                }
            }
            !queue.is_empty()
        });
        result
    }
}

/// A handle keeps its service, of its type, until it is dropped.
fn no_service() -> Error {
    Error::Fault("a service is gone before its handle: this is a mistake in kumi-mem".into())
}

impl fmt::Debug for ServiceTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceTable")
            .field("services", &self.entries.len())
            .field("partial", &self.partial)
            .field("unsent", &self.unsent)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
