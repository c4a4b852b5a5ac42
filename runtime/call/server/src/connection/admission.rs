//! Admission of calls: checks, memory, and the stage in which arguments arrive.

use std::cell::RefCell;
use std::rc::Rc;

use kumi_call_wire::context::Span;
use kumi_rpc::{ArraySize, CallHead, Code, Failure, GrantedArray, Resources, Ticket};
use tokio::time::Instant;

use super::super::Shared;
use super::super::arenas::Block;
use super::super::gather::GatherPlan;
use super::super::held_results::RetainedResults;
use super::super::logs::{CallLogHandle, ComingCall};
use super::super::slots::ReadyCall;
use super::super::slots::output::CapturedOutput;
use super::super::tickets::TicketGuard;
use super::files::coming;
use super::{AnnouncedCall, CallStage, Connection, held, shared_memory};
use crate::layout::Layout;
use crate::values::GivenValues;

/// Takes the ticket of a call or an object with this number.
pub(super) fn admit(
    shared: &Shared,
    ticket: Ticket,
    id: u64,
    name: &str,
) -> Result<TicketGuard, Failure> {
    shared.tickets.admit(ticket, id).ok_or_else(|| ticket_refused(name))
}

/// The arrays and files that the client is still to send, out of the arrays that come from nowhere else.
fn awaited(
    mut sizes: Vec<ArraySize>,
    granted: &[GrantedArray],
    given: &GivenValues,
) -> Vec<ArraySize> {
    sizes.retain(|size| !shared_memory::is_sent(granted, size.argument));
    sizes.extend(coming(given));
    sizes
}

/// The failure of a call whose ticket was refused.
pub(super) fn ticket_refused(routine: &str) -> Failure {
    let text = format!("the metaserver has given up this attempt of `{routine}`");
    Failure::new(Code::NoTicket, 0, text)
}

impl Connection {
    /// Room for what a call prints, if its client wants that, and a span, if the client has said in which trace it is.
    fn announced(
        &mut self,
        stream: u32,
    ) -> Result<(Option<RefCell<CapturedOutput>>, Option<Span>), Failure> {
        let span = self.announced_span(stream)?;
        let AnnouncedCall { listens, .. } = std::mem::take(&mut self.announced);
        Ok(((listens == Some(stream)).then(RefCell::default), span))
    }

    /// A span for a call or an object, if the client has said in which trace it is.
    pub(super) fn announced_span(&self, stream: u32) -> Result<Option<Span>, Failure> {
        let traced = self.announced.traced.filter(|(of, _)| *of == stream);
        traced.map(|(_, context)| Span::new(context)).transpose().map_err(|error| {
            Failure::new(Code::Busy, 0, format!("there is no number for a span: {error}"))
        })
    }

    /// The log of a call or an object with this number and this name.
    pub(super) fn open_log(
        &self,
        (call, name): (u64, &str),
        is_object: bool,
        ticket: Option<Ticket>,
        span: Option<&Span>,
    ) -> CallLogHandle {
        let owner = self.caller.owner();
        self.shared.logs.open(&ComingCall { call, name, is_object, owner, ticket, span })
    }

    /// What the client has asked for this call or object.
    pub(super) fn asked_resources(&self, stream: u32) -> Option<Resources> {
        self.announced.resources.filter(|(of, _)| *of == stream).map(|(_, resources)| resources)
    }

    /// Room for the results that stay, and the call's memory, which is given back if there is none.
    fn retained(
        &self,
        layout: &Layout,
        block: Rc<Block>,
        head: &CallHead,
    ) -> Result<(Option<Box<RetainedResults>>, Rc<Block>), Failure> {
        let (shared, holder, owner) = (&self.shared, self.holder(), self.caller.owner());
        match RetainedResults::new(shared, layout, &block, &head.held.keep, holder, owner) {
            Ok(retained) => Ok((retained, block)),
            Err(failure) => {
                shared.give(block);
                Err(failure)
            }
        }
    }

    /// Admits a call or returns why not. Nothing is allocated before all limits are checked.
    pub(super) fn begin_call(&mut self, stream: u32, head: &CallHead) -> Result<(), Failure> {
        let (shown, asked) = (self.shown_for(stream), self.asked_resources(stream));
        let (printed, span) = self.announced(stream)?;
        let (shared, offered) = (Rc::clone(&self.shared), self.find_for(head)?);
        let object = self.object_of(head, &offered)?;
        let resources = self.resources_of(head, &offered, asked)?;
        // The owner of an object may call it.
        let own = || self.caller.may_call(&shared, &head.routine, shown);
        let ticket = if object.is_some() { None } else { own()? };
        let mut given = GivenValues::from_wire(&offered.interface, &head.values)?;
        let files = self.files_for(&offered.interface, &mut given)?;
        let layout = Layout::new(&offered.interface, &given, shared.config.call_bytes)?;
        crate::jobs::check(&layout.plan, &head.routine, &shared.config)?;
        held::check_survival(&offered.interface, &head.held.keep, object.is_some())?;
        let sources = GatherPlan::new(&shared, &layout, &head.held.from, self.holder())?;
        let requested_arrays = shared_memory::requested_arrays(&layout, &head.shared)?;
        let id = shared.pool.borrow_mut().number();
        let admitted =
            ticket.map(|ticket| admit(&shared, ticket, id, &head.routine)).transpose()?;
        let (block, foreign, granted) = self.memory_for(&layout, head, requested_arrays)?;
        let (retained, block) = self.retained(&layout, block, head)?;
        let sizes = awaited(sources.left(layout.sent()), &granted, &given);
        let lent = Rc::clone(&block);
        let time_limit = self.time_limit(head.timeout_ms);
        let log = self.open_log((id, &head.routine), false, ticket, span.as_ref());
        let job = ReadyCall {
            id,
            stream,
            offered,
            owner: Rc::clone(self.caller.owner()),
            layout,
            block,
            files,
            foreign,
            deadline: time_limit.and_then(|limit| Instant::now().checked_add(limit)),
            time_limit,
            ready: Instant::now(),
            retained,
            finished: self.finished.clone(),
            callback_requests: self.callback_requests.clone(),
            printed,
            ticket: admitted,
            object,
            span,
            log,
            resources,
            given_back: false,
            untaken: 0,
        };
        self.coming = self.coming.into_iter().chain(job.deadline).min();
        self.gather(&job, sources);
        self.calls.insert(stream, CallStage::Receiving(Box::new(job), given));
        match head.shared.is_empty() {
            true => self.rpc.accept(stream, &sizes),
            false => self.grant(stream, &sizes, lent, granted),
        }
        Ok(())
    }
}
