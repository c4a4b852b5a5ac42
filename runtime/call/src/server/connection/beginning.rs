//! Calls that begin.

use std::rc::Rc;

use kumi_rpc::{CallHead, Code, Failure, Ticket};
use tokio::time::Instant;

use super::super::Shared;
use super::super::gather::Sources;
use super::super::holding::Keeping;
use super::super::slots::Job;
use super::super::tickets::Held;
use super::files::coming;
use super::{Call, Connection, held, shared};
use crate::layout::Layout;
use crate::values::Given;

/// Takes the ticket of a call or an object of this number.
pub(super) fn admit(shared: &Shared, ticket: Ticket, id: u64, name: &str) -> Result<Held, Failure> {
    shared.tickets.admit(ticket, id).ok_or_else(|| spent(name))
}

/// What is said of a call whose ticket is not taken.
pub(super) fn spent(routine: &str) -> Failure {
    let text = format!("the metaserver has given up this attempt of `{routine}`");
    Failure::new(Code::NoTicket, 0, text)
}

impl Connection {
    /// Takes a call, or says why not; nothing is allocated before it is known to be within the limits.
    pub(super) fn begin_call(&mut self, stream: u32, head: &CallHead) -> Result<(), Failure> {
        let shown = self.shown_for(stream);
        let shared = Rc::clone(&self.shared);
        let offered = self.find_for(head)?;
        let object = self.object_of(head, &offered)?;
        // Who has the object may call it.
        let own = || self.caller.may_call(&shared, &head.routine, shown);
        let ticket = if object.is_some() { None } else { own()? };
        let mut given = Given::from_wire(&offered.interface, &head.values)?;
        let files = self.files_for(&offered.interface, &mut given)?;
        let layout = Layout::new(&offered.interface, &given, shared.config.call_bytes)?;
        crate::cluster::check(&layout.plan, &head.routine, &shared.config)?;
        held::may_survive(&offered.interface, &head.held.keep, object.is_some())?;
        let sources = Sources::new(&shared, &layout, &head.held.from, self.holder())?;
        let wishes = shared::wishes(&layout, &head.shared)?;
        let id = shared.pool.borrow_mut().number();
        let ticket = ticket.map(|ticket| admit(&shared, ticket, id, &head.routine)).transpose()?;
        let (block, foreign, granted) = self.memory_for(&layout, head, wishes)?;
        let (holder, owner) = (self.holder(), self.caller.owner());
        let keeping = match Keeping::new(&shared, &layout, &block, &head.held.keep, holder, owner) {
            Ok(keeping) => keeping,
            Err(failure) => {
                shared.give(block);
                return Err(failure);
            }
        };
        let mut sizes = sources.left(layout.sent());
        sizes.retain(|size| !shared::is_sent(&granted, size.argument));
        sizes.extend(coming(&given));
        let lent = Rc::clone(&block);
        let job = Job {
            id,
            stream,
            offered,
            owner: Rc::clone(self.caller.owner()),
            layout,
            block,
            files,
            foreign,
            deadline: self.deadline(head.timeout_ms),
            ready: Instant::now(),
            keeping,
            told: self.told.clone(),
            asks: self.asks.clone(),
            ticket,
            object,
            given_back: false,
            untaken: 0,
        };
        self.coming = self.coming.into_iter().chain(job.deadline).min();
        self.gather(&job, sources);
        self.calls.insert(stream, Call::Coming(Box::new(job), given));
        match head.shared.is_empty() {
            true => self.rpc.accept(stream, &sizes),
            false => self.grant(stream, &sizes, lent, granted),
        }
        Ok(())
    }
}
