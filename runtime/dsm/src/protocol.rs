//! This rank's part of the coherence protocol, as a service of its channel: it takes messages also while the program computes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kumi_coherence::{Acquired, Coherence, Event, Events, Home, Message, Misuse, Ticket};
use kumi_mem::{Outbox, Service, ServiceHandle};

use crate::context::SharedContext;
use crate::error::Error;
use crate::node_copy::{Arrival, NodeCopy};
use crate::statistics::{Count, Statistics, count_of};
use crate::trace::MessageTrace;

/// The ticket of this thread: each thread waits for one thing at a time.
fn ticket() -> Ticket {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static TICKET: Ticket = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    TICKET.with(|ticket| *ticket)
}

/// The state machine and what its events have left to do.
struct RankService {
    coherence: Coherence,
    node: Arc<NodeCopy>,
    trace: MessageTrace,
    statistics: Arc<Statistics>,
    /// Waits that are over.
    resumed: HashMap<Ticket, Acquired>,
    /// A peer has broken the protocol, or its program differs: every call says so.
    failure: Option<Misuse>,
}

impl RankService {
    fn carry_out(&mut self, events: Events, outbox: &mut Outbox) {
        for event in events {
            match event {
                Event::Send { to, message } => self.send(to, &message, outbox),
                Event::Apply { from, diffs } => {
                    if let Err(error) = self.node.apply(&diffs) {
                        self.fail(from, &error.to_string());
                    }
                }
                Event::Update { from, diffs } => match self.node.apply_updates(&diffs) {
                    Ok(pages) => self.statistics.count(Count::Updates, pages),
                    Err(error) => self.fail(from, &error.to_string()),
                },
                Event::SendTwins { to, ticket, pages } => match self.node.twins(pages.clone()) {
                    Ok(bytes) => {
                        let message = Message::Subscribed { ticket, first: pages.start, bytes };
                        self.send(to, &message, outbox);
                    }
                    Err(error) => self.fail(to, &error.to_string()),
                },
                Event::Install { from, first, bytes } => {
                    let twins = vec![false; bytes.len() / self.node.page_bytes()];
                    let stamp = self.node.now();
                    if let Err(error) =
                        self.node.install(first, &bytes, &twins, stamp, Arrival::Updated)
                    {
                        self.fail(from, &error.to_string());
                    }
                }
                Event::Resume { ticket, acquired } => {
                    self.resumed.insert(ticket, acquired);
                }
            }
        }
    }

    fn send(&mut self, to: u32, message: &Message, outbox: &mut Outbox) {
        let bytes = message.encode();
        self.trace.sent(to, bytes.len());
        self.statistics.count(count_of(message), 1);
        if let Err(error) = outbox.send(to, bytes) {
            self.fail(to, &error.to_string());
        }
    }

    fn fail(&mut self, from: u32, what: &str) {
        self.failure.get_or_insert(Misuse::Peer { from, what: what.to_owned() });
    }

    fn check(&self) -> Result<(), Misuse> {
        self.failure.clone().map_or(Ok(()), Err)
    }

    /// Does something for this rank's program.
    fn start(
        &mut self,
        call: impl FnOnce(&mut Coherence) -> Result<Events, Misuse>,
        outbox: &mut Outbox,
    ) -> Result<(), Misuse> {
        self.check()?;
        let events = call(&mut self.coherence)?;
        self.carry_out(events, outbox);
        Ok(())
    }
}

impl Service for RankService {
    fn message(&mut self, from: u32, message: &[u8], outbox: &mut Outbox) {
        self.trace.received(from, message.len());
        let taken = match Message::decode(message) {
            Ok(message) => self.coherence.receive(from, message),
            Err(error) => Err(Misuse::Peer { from, what: error.to_string() }),
        };
        match taken {
            Ok(events) => self.carry_out(events, outbox),
            Err(error) => {
                self.failure.get_or_insert(error);
            }
        }
    }
}

/// Where a page has its home, and how many pages from it on are at the same rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Whereabouts {
    pub(crate) home: Home,
    /// The home is on this node.
    pub(crate) near: bool,
    /// Their copies are updated.
    pub(crate) updated: bool,
    pub(crate) pages: u32,
}

/// Calls of the program's threads.
pub(crate) struct Protocol {
    // Dropped before the context that it borrows.
    service: ServiceHandle<'static, RankService>,
    _context: SharedContext,
}

impl Protocol {
    /// All ranks call this in the same order.
    pub(crate) fn new(
        context: &SharedContext,
        coherence: Coherence,
        node: Arc<NodeCopy>,
        statistics: Arc<Statistics>,
    ) -> Result<Protocol, Error> {
        let (resumed, failure) = (HashMap::new(), None);
        let trace = MessageTrace::new(context);
        let service = RankService { coherence, node, trace, statistics, resumed, failure };
        // SAFETY: the handle is kept beside a clone of the context, which is dropped after it.
        let service = unsafe { context.extended() }.serve_with(service)?;
        Ok(Protocol { service, _context: context.clone() })
    }

    /// Asks something of the state.
    pub(crate) fn ask<T>(&self, question: impl FnOnce(&mut Coherence) -> T) -> Result<T, Error> {
        let asked = self.service.call(|service, _| {
            service.check()?;
            Ok(question(&mut service.coherence))
        })?;
        asked.map_err(Error::Misuse)
    }

    /// As [`Protocol::ask`] whether the program may do something. If not, the memory can only end.
    pub(crate) fn check(
        &self,
        question: impl FnOnce(&Coherence) -> Result<(), Misuse>,
    ) -> Result<(), Error> {
        let checked = self.service.call(|service, _| {
            service.check()?;
            question(&service.coherence)
                .inspect_err(|misuse| service.failure = Some(misuse.clone()))
        })?;
        checked.map_err(Error::Misuse)
    }

    /// Does something that nobody waits for.
    pub(crate) fn tell(
        &self,
        call: impl FnOnce(&mut Coherence, Ticket) -> Result<Events, Misuse>,
    ) -> Result<(), Error> {
        let ticket = ticket();
        self.tell_with(|coherence| Ok(((), call(coherence, ticket)?)))
    }

    /// As [`Protocol::tell`], with a result.
    pub(crate) fn tell_with<T>(
        &self,
        call: impl FnOnce(&mut Coherence) -> Result<(T, Events), Misuse>,
    ) -> Result<T, Error> {
        let told = self.service.call(|service, outbox| {
            service.check()?;
            let (result, events) = call(&mut service.coherence)?;
            service.carry_out(events, outbox);
            Ok(result)
        })?;
        told.map_err(Error::Misuse)
    }

    /// Begins something and waits until the state machine resumes this thread.
    pub(crate) fn wait(
        &self,
        call: impl FnOnce(&mut Coherence, Ticket) -> Result<Events, Misuse>,
    ) -> Result<Acquired, Error> {
        let ticket = ticket();
        let mut call = Some(call);
        let waited = self.service.wait(&[], |service, outbox| {
            if let Some(call) = call.take() {
                let started = service.start(|coherence| call(coherence, ticket), outbox);
                if let Err(error) = started {
                    return Some(Err(error));
                }
            }
            if let Err(error) = service.check() {
                return Some(Err(error));
            }
            service.resumed.remove(&ticket).map(Ok)
        })?;
        waited.map_err(Error::Misuse)
    }

    /// Takes this thread's wait for a lock back. If the lock has come already, the thread holds it: what it makes visible.
    pub(crate) fn withdraw(&self, lock: u32) -> Result<Option<Acquired>, Error> {
        let ticket = ticket();
        Ok(self.service.call(|service, _| {
            let waited = service.coherence.withdraw(lock, ticket);
            if waited { None } else { service.resumed.remove(&ticket) }
        })?)
    }

    /// Waits until the diffs that this thread has sent are in place.
    pub(crate) fn wait_for_diffs(&self) -> Result<(), Error> {
        let ticket = ticket();
        let waited = self.service.wait(&[], |service, _| match service.check() {
            Err(error) => Some(Err(error)),
            Ok(()) => service.coherence.is_flushed(ticket).then_some(Ok(())),
        })?;
        waited.map_err(Error::Misuse)
    }

    /// Where a page is, with at most `most` pages from it on.
    pub(crate) fn locate(&self, page: u32, most: u32) -> Result<Whereabouts, Error> {
        self.ask(|coherence| {
            let home = coherence.home(page);
            let near = |home| matches!(home, Home::At(rank) if coherence.is_near(rank));
            let here = near(home);
            // Pages of this node need no fetch, whichever of its ranks they are at.
            let same = |other| if here { near(other) } else { other == home };
            let updated = coherence.is_updated(page);
            let end = page.saturating_add(most).min(coherence.allocated());
            let alike =
                |page: &u32| same(coherence.home(*page)) && coherence.is_updated(*page) == updated;
            let pages = (page..end).take_while(alike).count();
            Whereabouts { home, near: here, updated, pages: (pages as u32).max(1) }
        })
    }
}
