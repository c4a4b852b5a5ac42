//! One rank's part of the protocol.

mod conditions;
mod updating;

use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;
use core::ops::Range;

use crate::barrier::{self, Barrier, BarrierKind, Call};
use crate::condition::Conditions;
use crate::error::Misuse;
use crate::event::{Acquired, Event, Events};
use crate::flush::Flushes;
use crate::homes::{Home, Homes, Migration, Placement, Sharing};
use crate::locks::{self, Locks};
use crate::message::{Message, Written};
use crate::notices::{Interval, Knowledge, NoticeLog, Protocol};
use crate::stale::Stale;
use crate::updates::Updates;
use crate::{PageSet, Rank, Ticket};

/// What all ranks are told alike, and which rank this is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Config {
    /// This rank.
    pub rank: Rank,
    /// The node of each rank: ranks of a node share its copy of the memory.
    pub node_of: Box<[u32]>,
    /// What a lock makes visible.
    pub protocol: Protocol,
    /// Whether pages move to the node that writes them.
    pub migration: Migration,
    /// Most pages that can be allocated.
    pub pages: u32,
    /// Bytes of a page.
    pub page_bytes: u32,
}

/// See the crate. Before each release (`unlock`, `barrier`, `set_condition`) the driver
///
/// 1. collects the pages that its rank has written,
/// 2. for each whose home is elsewhere, waits until no other rank of its node has a diff of it under way
///    ([`crate::PageState::begin_flush`]),
/// 3. sends the diffs to their homes ([`Coherence::flush`]) and waits until they are in place ([`Coherence::is_flushed`]), and
/// 4. tells which pages it collected ([`Coherence::close_interval`]).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Coherence {
    config: Config,
    notices: NoticeLog,
    locks: Locks,
    barrier: Barrier,
    conditions: Conditions,
    homes: Homes,
    flushes: Flushes,
    updates: Updates,
    /// Waits for the home of a page.
    locating: Vec<(u32, Ticket)>,
    /// Questions of ranks that have allocated more already than this one, which is the directory of these pages.
    early: Vec<(Rank, u32)>,
    /// Messages of this rank to itself that have not been taken.
    own: Vec<Message>,
    stale: Stale,
    /// Barriers with effect on memory that this rank has left.
    departed: u32,
    /// Messages of ranks that have left a barrier in which this one still waits, in their order.
    later: Vec<(Rank, Message)>,
}

impl Coherence {
    /// The part of a rank in a job that begins.
    ///
    /// # Panics
    /// If `rank` is none of `node_of`.
    #[must_use]
    pub fn new(config: Config) -> Coherence {
        let (rank, ranks) = (config.rank, config.node_of.len() as u32);
        assert!(rank < ranks, "rank {rank} of {ranks}");
        Coherence {
            notices: NoticeLog::new(config.protocol, rank, ranks),
            locks: Locks::default(),
            barrier: Barrier::new(rank, ranks),
            conditions: Conditions::default(),
            homes: Homes::new(ranks, config.pages),
            flushes: Flushes::default(),
            updates: Updates::default(),
            locating: Vec::new(),
            early: Vec::new(),
            own: Vec::new(),
            stale: Stale::default(),
            departed: 0,
            later: Vec::new(),
            config,
        }
    }

    fn ranks(&self) -> u32 {
        self.config.node_of.len() as u32
    }

    /// The node of this rank.
    #[must_use]
    pub fn node(&self) -> u32 {
        self.config.node_of[self.config.rank as usize]
    }

    /// Whether a rank is on the node of this one.
    #[must_use]
    pub fn is_near(&self, rank: Rank) -> bool {
        self.config.node_of.get(rank as usize) == Some(&self.node())
    }

    // Memory.

    /// Allocates so many bytes, rounded up to whole pages. All ranks call this with the same arguments in the same order; barriers check that.
    ///
    /// # Errors
    /// [`Misuse::Full`], [`Misuse::Allocation`].
    pub fn allocate(
        &mut self,
        bytes: u64,
        placement: Placement,
        sharing: Sharing,
    ) -> Result<(Range<u32>, Events), Misuse> {
        let page = u64::from(self.config.page_bytes);
        let pages = self.homes.allocate(bytes.div_ceil(page), page, placement, sharing)?;
        let mut events = Events::new();
        for (from, page) in core::mem::take(&mut self.early) {
            self.locate_for(from, page, &mut events);
        }
        Ok((pages, self.take_own(events)?))
    }

    /// Pages allocated so far.
    #[must_use]
    pub fn allocated(&self) -> u32 {
        self.homes.allocated()
    }

    /// The home of a page, as far as this rank knows.
    #[must_use]
    pub fn home(&self, page: u32) -> Home {
        self.homes.home(page)
    }

    /// Whether a page was allocated with [`Sharing::Update`].
    #[must_use]
    pub fn is_updated(&self, page: u32) -> bool {
        self.homes.updated().contains(page)
    }

    /// Asks for the home of a page that is [`Home::Unknown`]. The wait ends when it is known.
    ///
    /// # Errors
    /// None, as long as this rank keeps to the protocol with itself.
    pub fn locate(&mut self, page: u32, ticket: Ticket) -> Result<Events, Misuse> {
        let mut events = Events::new();
        let first = self.locating.iter().all(|(other, _)| *other != page);
        self.locating.push((page, ticket));
        if first {
            self.send(page % self.ranks(), Message::Locate { page }, &mut events);
        }
        self.take_own(events)
    }

    // Releases.

    /// Sends diffs (made with [`crate::message::push_diff`]) to the home of their pages. These are all `updated`, and the home is any rank,
    /// or none of them is, and it is a rank of another node.
    ///
    /// # Errors
    /// None, as long as this rank keeps to the protocol with itself.
    pub fn flush(
        &mut self,
        home: Rank,
        diffs: Vec<u8>,
        updated: bool,
        ticket: Ticket,
    ) -> Result<Events, Misuse> {
        let mut events = Events::new();
        let batch = self.flushes.begin(home, ticket);
        let message = match updated {
            true => Message::UpdateDiffs { batch, diffs },
            false => Message::Diffs { batch, diffs },
        };
        self.send(home, message, &mut events);
        self.take_own(events)
    }

    /// Whether all diffs that this wait sent are in place.
    #[must_use]
    pub fn is_flushed(&self, ticket: Ticket) -> bool {
        self.flushes.are_done(ticket)
    }

    /// The homes that have not answered this wait yet.
    pub fn flushing_to(&self, ticket: Ticket) -> impl Iterator<Item = Rank> {
        self.flushes.homes(ticket)
    }

    /// Whether this rank may release that it has written these pages: ask before the diffs are sent.
    ///
    /// # Errors
    /// [`Misuse::InBarrier`].
    pub fn check_release(&self, pages: &PageSet) -> Result<(), Misuse> {
        let moves = self.config.migration == Migration::SingleWriter;
        match moves && self.barrier.changes_memory() && !pages.is_empty() {
            true => Err(Misuse::InBarrier),
            false => Ok(()),
        }
    }

    /// This rank has written these pages, and all diffs of them are in place.
    pub fn close_interval(&mut self, mut pages: PageSet) {
        // Nobody has to drop what is updated.
        if !self.homes.updated().is_empty() {
            pages.subtract(self.homes.updated());
        }
        self.notices.close(pages);
    }

    // Locks.

    /// Takes a lock. The wait ends when it is held.
    ///
    /// # Errors
    /// [`Misuse::HeldAlready`].
    pub fn lock(&mut self, lock: u32, ticket: Ticket) -> Result<Events, Misuse> {
        let mut events = Events::new();
        let step = self.locks.acquire(lock, ticket)?;
        self.lock_step(lock, step, &mut events);
        self.take_own(events)
    }

    /// Takes a wait for a lock back; whether it had not ended. If it had, the thread holds the lock and has to give it back.
    pub fn withdraw(&mut self, lock: u32, ticket: Ticket) -> bool {
        self.locks.withdraw(lock, ticket)
    }

    /// Whether [`Coherence::unlock`] would be right now: ask before the diffs are sent.
    ///
    /// # Errors
    /// [`Misuse::NotHeld`].
    pub fn check_held(&self, lock: u32, ticket: Ticket) -> Result<(), Misuse> {
        self.locks.check_held(lock, ticket)
    }

    /// Gives a lock back, after the interval has been closed.
    ///
    /// # Errors
    /// [`Misuse::NotHeld`].
    pub fn unlock(&mut self, lock: u32, ticket: Ticket) -> Result<Events, Misuse> {
        self.locks.check_held(lock, ticket)?;
        self.notices.release(lock);
        let mut events = Events::new();
        let step = self.locks.release(lock);
        self.lock_step(lock, step, &mut events);
        self.take_own(events)
    }

    fn lock_step(&mut self, lock: u32, step: locks::Step, events: &mut Events) {
        match step {
            locks::Step::None => {}
            locks::Step::Request => self.request(lock, events),
            locks::Step::Held(ticket) => {
                self.notices.acquire(lock);
                events.push(Event::Resume { ticket, acquired: self.stale.acquire() });
            }
            locks::Step::HandOver { to, known, again } => {
                let (last, intervals) = self.notices.unknown_to(lock, &known);
                let departed = self.departed;
                self.send(to, Message::LockGrant { lock, departed, last, intervals }, events);
                if again {
                    self.request(lock, events);
                }
            }
        }
    }

    fn request(&mut self, lock: u32, events: &mut Events) {
        let known = self.notices.knowledge(lock);
        self.send(lock % self.ranks(), Message::LockRequest { lock, known }, events);
    }

    // Barriers.

    /// Arrives at a barrier, after the interval has been closed if it is one with effect on memory. The wait ends when all have arrived.
    ///
    /// # Errors
    /// [`Misuse::Mismatch`], [`Misuse::Allocations`], [`Misuse::Busy`].
    pub fn barrier(&mut self, kind: BarrierKind, ticket: Ticket) -> Result<Events, Misuse> {
        if self.barrier.is_entered() {
            return Err(Misuse::Busy);
        }
        let mut events = Events::new();
        let call = Call { kind, allocations: self.homes.hash() };
        let mut written = Written::new();
        if kind == BarrierKind::Memory {
            let pages = self.notices.arrive();
            if !pages.is_empty() {
                written.push((self.config.rank, pages));
            }
        }
        let step = self.barrier.arrive(ticket, call, written)?;
        self.barrier_step(step, &mut events)?;
        self.take_own(events)
    }

    fn barrier_step(&mut self, step: barrier::Step, events: &mut Events) -> Result<(), Misuse> {
        match step {
            barrier::Step::None => Ok(()),
            barrier::Step::Up { parent, number, call, written } => {
                let Call { kind, allocations } = call;
                let message = Message::Arrive { number, kind, allocations, written };
                self.send(parent, message, events);
                Ok(())
            }
            barrier::Step::Down { number, written } => {
                self.depart(self.config.rank, number, &written, events)
            }
        }
    }

    fn depart(
        &mut self,
        from: Rank,
        number: u64,
        written: &Written,
        events: &mut Events,
    ) -> Result<(), Misuse> {
        let (ticket, kind) = self.barrier.depart(from, number)?;
        for child in self.barrier.children() {
            let message = Message::Depart { number, written: written.clone() };
            self.send(child, message, events);
        }
        let mut acquired = Acquired::default();
        if kind == BarrierKind::Memory {
            self.notices.depart();
            self.conditions.depart(self.notices.epoch());
            let mut homed = PageSet::new();
            if self.config.migration == Migration::SingleWriter {
                let node = self.node();
                homed = self.homes.migrate(written, &self.config.node_of, node);
            }
            let mut stale = PageSet::new();
            for (rank, pages) in written {
                self.add_stale(*rank, pages, &mut stale);
            }
            self.stale.add(&stale);
            let epoch = Some(self.notices.epoch());
            acquired = Acquired { homed, epoch, ..self.stale.acquire() };
            self.departed += 1;
        }
        events.push(Event::Resume { ticket, acquired });
        let later = core::mem::take(&mut self.later);
        later.into_iter().try_for_each(|(from, message)| self.take(from, message, events))
    }

    // Messages.

    fn send(&mut self, to: Rank, message: Message, events: &mut Events) {
        if to == self.config.rank {
            self.own.push(message);
        } else {
            events.push(Event::Send { to, message });
        }
    }

    /// Takes what this rank sent to itself.
    fn take_own(&mut self, mut events: Events) -> Result<Events, Misuse> {
        while !self.own.is_empty() {
            for message in core::mem::take(&mut self.own) {
                self.take(self.config.rank, message, &mut events)?;
            }
        }
        Ok(events)
    }

    /// Takes a message of another rank.
    ///
    /// # Errors
    /// [`Misuse::Peer`] if no rank sends this now, [`Misuse::Mismatch`] and [`Misuse::Allocations`] if its program differs.
    pub fn receive(&mut self, from: Rank, message: Message) -> Result<Events, Misuse> {
        let mut events = Events::new();
        self.take(from, message, &mut events)?;
        self.take_own(events)
    }

    fn take(&mut self, from: Rank, message: Message, events: &mut Events) -> Result<(), Misuse> {
        let peer = |what: &str| Misuse::Peer { from, what: what.to_string() };
        if self.comes_early(from, &message).map_err(peer)? {
            self.later.push((from, message));
            return Ok(());
        }
        match message {
            Message::LockRequest { lock, known } => {
                self.lock_requested(lock, from, known, events).map_err(peer)?;
            }
            Message::LockForward { lock, requester, known } => {
                self.check_rank(requester).map_err(peer)?;
                let step = self.locks.forwarded(lock, requester, known).map_err(peer)?;
                self.lock_step(lock, step, events);
            }
            Message::LockGrant { lock, last, intervals, .. } => {
                self.lock_granted(lock, (last, intervals), events).map_err(peer)?;
            }
            Message::Arrive { number, kind, allocations, written } => {
                self.check_written(&written).map_err(peer)?;
                let call = Call { kind, allocations };
                let step = self.barrier.child_arrived(from, number, call, written)?;
                self.barrier_step(step, events)?;
            }
            Message::Depart { number, written } => {
                self.check_written(&written).map_err(peer)?;
                self.depart(from, number, &written, events)?;
            }
            Message::Diffs { batch, diffs } => {
                events.push(Event::Apply { from, diffs });
                self.send(from, Message::DiffsDone { batch }, events);
            }
            Message::DiffsDone { batch } => self.flushes.done(from, batch).map_err(peer)?,
            Message::Subscribe { .. }
            | Message::Subscribed { .. }
            | Message::Update { .. }
            | Message::UpdateDiffs { .. }
            | Message::UpdateDone { .. } => {
                self.take_update(from, message, events).map_err(peer)?;
            }
            Message::Locate { page } if page < self.config.pages => {
                self.locate_for(from, page, events);
            }
            Message::Locate { .. } => return Err(peer("a page that cannot exist is named")),
            Message::Located { page, home } => {
                self.check_rank(home).map_err(peer)?;
                self.located(page, home, events);
            }
            Message::ConditionSet { .. }
            | Message::ConditionReset { .. }
            | Message::ConditionWait { .. }
            | Message::ConditionGrant { .. } => {
                self.take_condition(from, message, events).map_err(peer)?;
            }
        }
        Ok(())
    }

    /// Whether a rank that sends this has left a barrier in which this one still waits. What was written before that barrier is told
    /// by its end, and the message makes it visible. What the rank sends after it waits, too, so that its order stays.
    fn comes_early(&self, from: Rank, message: &Message) -> Result<bool, &'static str> {
        let ahead = message.departed().saturating_sub(self.departed);
        if ahead > 1 || (ahead == 1 && !self.barrier.is_entered()) {
            return Err("it has left a barrier where not all have arrived");
        }
        Ok(ahead == 1 || self.later.iter().any(|(earlier, _)| *earlier == from))
    }

    fn lock_requested(
        &mut self,
        lock: u32,
        from: Rank,
        known: Knowledge,
        events: &mut Events,
    ) -> Result<(), &'static str> {
        match self.locks.requested(lock, from) {
            // Nobody has had it.
            None => {
                let (departed, intervals) = (self.departed, Vec::new());
                let message = Message::LockGrant { lock, departed, last: 0, intervals };
                self.send(from, message, events);
            }
            Some(tail) if tail == from => return Err("a lock is asked for twice"),
            Some(tail) => {
                let message = Message::LockForward { lock, requester: from, known };
                self.send(tail, message, events);
            }
        }
        Ok(())
    }

    fn lock_granted(
        &mut self,
        lock: u32,
        (last, intervals): (u64, Vec<Interval>),
        events: &mut Events,
    ) -> Result<(), &'static str> {
        self.check_intervals(&intervals)?;
        let step = self.locks.granted(lock)?;
        let new = self.notices.learn_lock(lock, last, intervals);
        self.written_by_others(&new);
        self.lock_step(lock, step, events);
        Ok(())
    }

    /// As the directory of a page: where is it?
    fn locate_for(&mut self, from: Rank, page: u32, events: &mut Events) {
        let home = match self.homes.home(page) {
            Home::At(home) => home,
            Home::Unknown => {
                self.homes.assign(page, from);
                from
            }
            // The other rank has allocated more already. If this one does not follow, the next barrier says so.
            Home::Unallocated => return self.early.push((from, page)),
        };
        self.send(from, Message::Located { page, home }, events);
    }

    fn located(&mut self, page: u32, home: Rank, events: &mut Events) {
        // A barrier may have moved it meanwhile.
        if self.homes.home(page) == Home::Unknown {
            self.homes.assign(page, home);
        }
        let (over, left) = self.locating.drain(..).partition::<Vec<_>, _>(|(at, _)| *at == page);
        self.locating = left;
        for (_, ticket) in over {
            events.push(Event::Resume { ticket, acquired: Acquired::default() });
        }
    }

    // What others wrote.

    /// What an acquire made visible is out of the program's sight: the driver tells this of each that had stale pages. Until then,
    /// every other acquire of this rank's threads is told of the same pages.
    pub fn forgotten(&mut self, acquired: &Acquired) {
        self.stale.forgotten(acquired.number);
    }

    fn written_by_others(&mut self, intervals: &[Interval]) {
        let mut stale = PageSet::new();
        for interval in intervals {
            self.add_stale(interval.writer, &interval.pages, &mut stale);
        }
        self.stale.add(&stale);
    }

    /// Adds what a rank wrote, unless it did so in the memory of this node.
    fn add_stale(&self, writer: Rank, pages: &PageSet, stale: &mut PageSet) {
        if self.is_near(writer) {
            return;
        }
        for range in pages.ranges() {
            let mut start = range.start;
            for page in range.clone() {
                if let Home::At(home) = self.homes.home(page)
                    && self.is_near(home)
                {
                    stale.insert(start..page);
                    start = page + 1;
                }
            }
            stale.insert(start..range.end);
        }
    }

    fn check_rank(&self, rank: Rank) -> Result<(), &'static str> {
        if rank < self.ranks() { Ok(()) } else { Err("a rank that does not exist is named") }
    }

    fn check_pages(&self, pages: &PageSet) -> Result<(), &'static str> {
        let end = pages.ranges().last().map_or(0, |last| last.end);
        if end <= self.config.pages { Ok(()) } else { Err("a page that cannot exist is named") }
    }

    fn check_written(&self, written: &Written) -> Result<(), &'static str> {
        written.iter().try_for_each(|(rank, pages)| {
            self.check_rank(*rank)?;
            self.check_pages(pages)
        })
    }

    fn check_intervals(&self, intervals: &[Interval]) -> Result<(), &'static str> {
        intervals.iter().try_for_each(|interval| {
            self.check_rank(interval.writer)?;
            self.check_pages(&interval.pages)
        })
    }
}
