//! Requests of a connection about held arrays.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use kumi_idl::{Interface, Param, Type};
use kumi_rpc::{
    ArrayPosition, ArraySize, Code, Failure, FetchRequest, HeldArrayName, HeldResult, HoldRequest,
    ResultHead,
};
use tokio::time::Instant;

use super::super::Shared;
use super::super::arenas::Block;
use super::super::gather::GatherPlan;
use super::super::held_results::{StoredArray, full, memory};
use super::super::slots::{ReadyCall, submit};
use super::{CallStage, Connection, GatherResult, IncomingArguments, coming};
use crate::budget::Reservation;
use crate::held::{Gaps, Holder};
use crate::native::Arena;
use crate::values;

/// Checks that a call which may outlive its client does not need the client.
pub(super) fn check_survival(
    interface: &Interface,
    keep: &[(u16, HeldResult)],
    on_object: bool,
) -> Result<(), Failure> {
    if on_object && keep.iter().any(|(_, keep)| keep.survives) {
        let text = format!(
            "`{}` runs on an object, which ends with its client: its results cannot survive that",
            interface.name
        );
        return Err(values::bad(-1, text));
    }
    let calls_back = |param: &&Param| matches!(param.ty, Type::Callback(_));
    match interface.params.iter().find(calls_back) {
        Some(param) if keep.iter().any(|(_, keep)| keep.survives) => {
            let text = format!(
                "`{}` calls functions of its client (`{}`): its results cannot survive that",
                interface.name, param.name
            );
            Err(values::bad(-1, text))
        }
        _ => Ok(()),
    }
}

/// An array that is arriving from its client, in order that the server holds it.
pub struct IncomingHeldArray {
    name: HeldArrayName,
    charge: Rc<Reservation>,
    block: Rc<Block>,
    bytes: usize,
    /// When it has to be complete.
    pub deadline: Option<Instant>,
}

impl IncomingHeldArray {
    /// Its memory, of which it has the first bytes.
    pub fn arena(&self) -> &Arena {
        &self.block.arena
    }

    /// Gives up the name and the memory.
    pub fn release(self, shared: &Shared) {
        shared.held.borrow_mut().abandon(self.name, &self.charge);
        shared.give(self.block);
    }
}

/// The place of array bytes from the client in the call's arena, and how many belong there in one piece.
pub(super) fn place_in_arena(
    incoming: &HashMap<u32, IncomingArguments>,
    job: &ReadyCall,
    place: ArrayPosition,
    length: usize,
) -> (usize, usize) {
    let gaps = incoming.get(&place.stream).and_then(|incoming| incoming.gaps.get(&place.argument));
    let (offset, length) = match gaps {
        Some(gaps) => gaps.place(place.offset, length),
        None => (place.offset, length),
    };
    job.layout.range(place.argument, offset, length)
}

impl Connection {
    /// The holder of the results of this connection's calls.
    pub(super) fn holder(&self) -> Holder<'_> {
        let (connection, user) = (self.number, &*self.caller.owner().user);
        Holder { connection, user, adopts: !self.caller.is_bearer() }
    }

    /// Begins to gather the arrays of a call that servers hold.
    pub(super) fn gather(&mut self, job: &ReadyCall, mut sources: GatherPlan) {
        let gaps = std::mem::take(&mut sources.gaps);
        if gaps.is_empty() {
            return;
        }
        let mut incoming = IncomingArguments { gaps, gathering: None, ready: false };
        if !sources.is_empty() {
            let (stream, id) = (job.stream, job.id);
            let told = self.gathered.clone();
            let gathering = sources.gather(
                Rc::clone(&self.shared),
                Rc::clone(&self.fetches),
                Rc::clone(&job.block),
                job.deadline,
            );
            let task = tokio::task::spawn_local(async move {
                let result = gathering.await;
                // A connection that has ended needs no answer.
                let _gone = told.send((stream, id, result));
            });
            incoming.gathering = Some(task.abort_handle());
        }
        self.incoming.insert(job.stream, incoming);
    }

    /// The held arrays of a call have arrived, or never will.
    pub(super) fn arrived(&mut self, (stream, id, result): GatherResult) {
        let Some(CallStage::Receiving(job, _)) = self.calls.get(&stream) else { return };
        let Some(incoming) = self.incoming.get_mut(&stream).filter(|_| job.id == id) else {
            return;
        };
        incoming.gathering = None;
        match result {
            Ok(()) if incoming.ready => self.submit(stream),
            Ok(()) => {}
            Err(failure) => self.give_up(stream, &failure),
        }
    }

    /// All arguments of a call are in place, so it may run.
    pub(super) fn submit(&mut self, stream: u32) {
        let incoming = self.incoming.remove(&stream);
        let Some(CallStage::Receiving(mut job, given)) = self.calls.remove(&stream) else { return };
        let gaps = incoming.map(|incoming| incoming.gaps).unwrap_or_default();
        let bytes = |size: ArraySize| gaps.get(&size.argument).map_or(size.bytes, Gaps::bytes);
        let files: u64 = coming(&given).map(|size| size.bytes).sum();
        let arrays: u64 = job.layout.sent().into_iter().map(bytes).sum();
        let bytes = arrays + files;
        self.shared.count(|traffic| &traffic.from_clients, bytes);
        if job.ticket.as_ref().is_some_and(|ticket| !ticket.runs()) {
            let failure = super::admission::ticket_refused(&job.offered.interface.name);
            job.log.end(Err(&failure));
            self.rpc.fail(stream, &failure);
            self.forget(*job);
            return;
        }
        if let Some(files) = &mut job.files {
            files.complete();
        }
        let ReadyCall { offered, layout, block, foreign, .. } = &*job;
        layout.arrange(&offered.interface, &given, &block.arena, *foreign);
        job.ready = Instant::now();
        if job.retained.as_ref().is_some_and(|retained| retained.survives()) {
            self.surviving.insert(stream);
        }
        self.calls.insert(stream, CallStage::Running(job.id));
        submit(&self.shared, job);
    }

    /// Gives up a call whose arguments were arriving.
    pub(super) fn forget(&mut self, job: ReadyCall) {
        self.sharing.forget(job.stream);
        let incoming = self.incoming.remove(&job.stream);
        if let Some(gathering) = incoming.and_then(|incoming| incoming.gathering) {
            gathering.abort();
        }
        if let Some(retained) = job.retained {
            retained.release(&self.shared);
        }
        self.shared.give(job.block);
    }

    /// Gives a voucher for an array of the user, so that another server may fetch it.
    pub(super) fn vouch(
        &mut self,
        stream: u32,
        name: HeldArrayName,
        lifetime_ms: u32,
    ) -> Result<(), Failure> {
        self.caller.check(&self.shared)?;
        self.shared.find(name, self.holder(), 0)?;
        let lifetime = Duration::from_millis(lifetime_ms.into());
        // Limited to the longest lifetime of an array.
        let lifetime = lifetime.min(self.shared.config.held_time);
        let user = (&*self.caller.owner().user, self.caller.token());
        let now = std::time::Instant::now();
        let voucher = self.shared.vouchers.give(name, user, lifetime, now);
        self.rpc.send_voucher(stream, &voucher);
        Ok(())
    }

    /// Takes an array that the client sends in order that the server holds it. Its memory counts as that of results that stay.
    pub(super) fn hold(&mut self, stream: u32, head: &HoldRequest) -> Result<(), Failure> {
        self.caller.check(&self.shared)?;
        self.caller.may_hold()?;
        let shared = Rc::clone(&self.shared);
        let (HoldRequest { name, bytes, lifetime_ms }, most) = (*head, shared.config.call_bytes);
        if bytes > most {
            let text =
                format!("an array of {bytes} bytes is larger than the {most} that one may have");
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            return Err(Failure::new(Code::TooLarge, bytes, text));
        }
        let (holder, owner) = (self.holder(), self.caller.owner());
        let block = memory(&shared, owner, holder, bytes)?;
        // The whole memory stays occupied, however little of it the array needs.
        let charged = block.arena.length() as u64;
        let keep = HeldResult { name, lifetime_ms, sent: false, survives: false };
        let charge = shared.held.borrow_mut().reserve([keep].iter(), charged, holder);
        let charge = match charge {
            Ok(charge) => charge,
            Err(why) => {
                shared.give(block);
                return Err(full(why, charged));
            }
        };
        // What is begun occupies memory of all users, so it has no more time than what is held.
        let limit = self.time_limit(0).into_iter().chain([shared.config.held_time]).min();
        let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
        self.coming = self.coming.into_iter().chain(deadline).min();
        // Checked to fit the memory.
        let array = IncomingHeldArray { name, charge, block, bytes: bytes as usize, deadline };
        self.calls.insert(stream, CallStage::Holding(Box::new(array)));
        self.rpc.accept(stream, &[ArraySize { argument: 0, bytes }]);
        Ok(())
    }

    /// An array that is to be held has arrived.
    pub(super) fn held(&mut self, stream: u32) {
        let Some(CallStage::Holding(array)) = self.calls.remove(&stream) else { return };
        let IncomingHeldArray { name, charge, block, bytes, .. } = *array;
        let kept = StoredArray { block, offset: 0, length: bytes };
        let now = std::time::Instant::now();
        let back = self.shared.held.borrow_mut().settle(name, &charge, kept, now);
        // The client dropped it while it arrived.
        back.into_iter().for_each(|kept| self.shared.give(kept.block));
        self.shared.held_changed.notify_one();
        self.shared.count(|traffic| &traffic.from_clients, bytes as u64);
        let result = ResultHead { waited_ns: 0, ran_ns: 0, values: Vec::new() };
        self.rpc.finish(stream, &result, &[]);
        self.written();
    }

    /// Sends bytes of a held array.
    pub(super) fn fetch(&mut self, stream: u32, head: &FetchRequest) -> Result<(), Failure> {
        self.caller.may_fetch(&self.shared, head.name)?;
        let kept = self.shared.find(head.name, self.holder(), 0)?;
        let (begin, _) = kept.range(head.offset, head.length).ok_or_else(|| {
            let (length, end) = (kept.length, head.offset.saturating_add(head.length));
            let text = format!("the array has {length} bytes; bytes up to {end} were asked for");
            values::bad(0, text)
        })?;
        let result = ResultHead { waited_ns: 0, ran_ns: 0, values: Vec::new() };
        self.rpc.finish(stream, &result, &[ArraySize { argument: 0, bytes: head.length }]);
        self.calls.insert(stream, CallStage::SendingHeld(kept.block, begin, head.length));
        Ok(())
    }
}
