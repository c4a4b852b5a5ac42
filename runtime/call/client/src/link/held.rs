//! Requests about arrays that servers hold.

use std::time::Instant;

use kumi_rpc::{FetchRequest, HeldArrayName, HoldRequest};

use super::{AnswerHandle, CallError, Link, PendingStream, State};
use crate::lent::{LentBytes, LentBytesMut};
use crate::native::Source;

impl Link {
    /// Asks for bytes of a held array.
    pub fn fetch<L: std::ops::Deref<Target = Link>>(
        link: L,
        head: &FetchRequest,
        to: LentBytesMut,
        deadline: Option<Instant>,
    ) -> Result<AnswerHandle<L>, CallError> {
        let mut out = Vec::new();
        let mut state = link.lock();
        let stream = state.rpc.fetch(head, &mut out);
        link.begin(
            state,
            stream,
            PendingStream { targets: vec![(0, to)], ..PendingStream::default() },
        );
        let ticket = AnswerHandle::of(link, stream);
        ticket.link.put(&[Source::Bytes(&out)], deadline, &|| false)?;
        Ok(ticket)
    }

    /// Sends an array in order that the server holds it.
    pub fn hold<L: std::ops::Deref<Target = Link>>(
        link: L,
        head: &HoldRequest,
        from: LentBytes,
        (deadline, interrupted): (Option<Instant>, &dyn Fn() -> bool),
    ) -> Result<AnswerHandle<L>, CallError> {
        let mut out = Vec::new();
        let mut state = link.lock();
        let stream = state.rpc.hold(head, &mut out);
        link.begin(state, stream, PendingStream::default());
        let ticket = AnswerHandle::of(link, stream);
        // An array without bytes has no chunks.
        let sends = if from.length() > 0 { vec![(0, from)] } else { Vec::new() };
        match ticket.link.send(stream, &out, &sends, deadline, interrupted) {
            // The server has answered and then closed the connection.
            Err(error) if !ticket.link.has_answer(stream) => Err(error),
            _ => Ok(ticket),
        }
    }

    /// Asks for a voucher for a held array.
    pub fn vouch<L: std::ops::Deref<Target = Link>>(
        link: L,
        name: HeldArrayName,
        lifetime_ms: u32,
        deadline: Option<Instant>,
    ) -> Result<AnswerHandle<L>, CallError> {
        let mut out = Vec::new();
        let mut state = link.lock();
        let stream = state.rpc.request_voucher(name, lifetime_ms, &mut out);
        link.begin(state, stream, PendingStream::default());
        let ticket = AnswerHandle::of(link, stream);
        ticket.link.put(&[Source::Bytes(&out)], deadline, &|| false)?;
        Ok(ticket)
    }

    /// Ends the connection.
    pub fn end(&self, why: &str) {
        let _lost = self.fail(why);
    }

    /// Tells the server to drop arrays, whose names are not used again. Waits for no other thread. In a process that was forked
    /// it does nothing: the arrays are those of the other process, a thread of which may have had the lock.
    pub fn let_go(&self, names: &[HeldArrayName]) -> Result<(), CallError> {
        if !self.is_ours() {
            return Ok(());
        }
        let mut state = self.lock();
        let State { rpc, soon, .. } = &mut *state;
        rpc.drop_held(names, soon);
        drop(state);
        self.flush()
    }
}
