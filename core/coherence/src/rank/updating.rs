//! Pages that are updated: a rank's part as their home and as one that has copies.

use alloc::vec::Vec;
use core::ops::Range;

use super::Coherence;
use crate::error::Misuse;
use crate::event::{Acquired, Event, Events};
use crate::message::{self, Message};
use crate::read_ahead::MOST_PAGES;
use crate::{Rank, Ticket};

impl Coherence {
    /// Asks the home of pages that are updated for copies, whose fetch has begun. The wait ends when they are there.
    ///
    /// # Errors
    /// None, as long as this rank keeps to the protocol with itself.
    pub fn subscribe(
        &mut self,
        home: Rank,
        pages: Range<u32>,
        ticket: Ticket,
    ) -> Result<Events, Misuse> {
        let mut events = Events::new();
        self.updates.ask(home, ticket, pages.clone());
        self.send(home, Message::Subscribe { ticket, pages }, &mut events);
        self.take_own(events)
    }

    /// As the home of pages: they are written, and all copies are brought up to date. The sender knows that they are updated, also if
    /// this rank has not come to their allocation yet.
    fn diffs_came(
        &mut self,
        from: Rank,
        batch: u64,
        diffs: Vec<u8>,
        events: &mut Events,
    ) -> Result<(), &'static str> {
        let by_rank = self.updates.by_rank(from, &diffs, &self.config.node_of);
        let by_rank = by_rank.map_err(|_| "diffs that end too early")?;
        // A writer of this node has written its copy.
        if !self.is_near(from) {
            events.push(Event::Update { from, diffs });
        }
        if by_rank.is_empty() {
            self.send(from, Message::DiffsDone { batch }, events);
            return Ok(());
        }
        let batch = self.updates.begin(from, batch, by_rank.keys().copied());
        for (rank, diffs) in by_rank {
            self.send(rank, Message::Update { batch, diffs }, events);
        }
        Ok(())
    }

    pub(super) fn take_update(
        &mut self,
        from: Rank,
        message: Message,
        events: &mut Events,
    ) -> Result<(), &'static str> {
        match message {
            Message::Subscribe { ticket, pages } => {
                // So many come by one request.
                let few = pages.start <= pages.end && pages.len() <= MOST_PAGES as usize;
                if self.is_near(from) || !few || pages.end > self.config.pages {
                    return Err("pages are named of which it has no copies");
                }
                self.updates.subscribe(from, pages.clone(), &self.config.node_of);
                events.push(Event::SendTwins { to: from, ticket, pages });
            }
            Message::Subscribed { ticket, first, bytes } => {
                let count = bytes.len() as u64 / u64::from(self.config.page_bytes);
                let end = u32::try_from(count).ok().and_then(|count| first.checked_add(count));
                let whole = bytes.len().is_multiple_of(self.config.page_bytes as usize);
                let end = end.filter(|_| whole).ok_or("pages came that are no pages")?;
                self.updates.subscribed(from, ticket, &(first..end))?;
                events.push(Event::Install { from, first, bytes });
                events.push(Event::Resume { ticket, acquired: Acquired::default() });
            }
            Message::UpdateDiffs { batch, diffs } => {
                self.diffs_came(from, batch, diffs, events)?;
            }
            Message::Update { batch, diffs } => {
                let all = message::diffs(&diffs);
                let known = |found: Result<(u32, &[u8]), _>| {
                    found.is_ok_and(|(page, _)| self.homes.updated().contains(page))
                };
                if !all.into_iter().all(known) {
                    return Err("an update of pages that are not updated");
                }
                events.push(Event::Update { from, diffs });
                self.send(from, Message::UpdateDone { batch }, events);
            }
            Message::UpdateDone { batch } => {
                if let Some((writer, batch)) = self.updates.done(from, batch)? {
                    self.send(writer, Message::DiffsDone { batch }, events);
                }
            }
            _ => return Err("no message of updates"),
        }
        Ok(())
    }
}
