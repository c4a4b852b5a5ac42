//! Short requests, each with a stream for its answer.

use std::ops::Deref;
use std::time::Instant;

use kumi_rpc::{Client, FetchRequest, HeldArrayName, HoldRequest, MOST_NAME};

use super::{AnswerHandle, Link, PendingStream, State};
use crate::CallError;
use crate::lent::{LentBytes, LentBytesMut};
use crate::native::Source;

/// The error for a name that no routine can have.
pub fn no_name(name: &str) -> CallError {
    let name: String = name.chars().take(64).flat_map(char::escape_debug).collect();
    let text = format!(
        "no routine can have the name `{name}`: names have 1 to {MOST_NAME} bytes and no control characters"
    );
    CallError::RoutineNotFound(text)
}

impl Link {
    /// Begins a stream, and returns what is to be sent for it. The handle takes result buffers back, however this ends.
    pub(super) fn begin<L: Deref<Target = Link>>(
        link: L,
        pending: PendingStream,
        encode: impl FnOnce(&mut Client, &mut Vec<u8>) -> Result<u32, CallError>,
    ) -> Result<(AnswerHandle<L>, Vec<u8>), CallError> {
        let mut out = Vec::with_capacity(256);
        let mut state = link.lock();
        let stream = encode(&mut state.rpc, &mut out)?;
        state.pending.insert(stream, pending);
        drop(state);
        Ok((AnswerHandle::of(link, stream), out))
    }

    /// Sends the request that `encode` writes.
    pub fn ask<L: Deref<Target = Link>>(
        link: L,
        (deadline, interrupted): (Option<Instant>, &dyn Fn() -> bool),
        encode: impl FnOnce(&mut Client, &mut Vec<u8>) -> Result<u32, CallError>,
    ) -> Result<AnswerHandle<L>, CallError> {
        let (ticket, out) = Link::begin(link, PendingStream::default(), encode)?;
        ticket.link.put(&[Source::Bytes(&out)], deadline, interrupted)?;
        Ok(ticket)
    }

    /// Asks for bytes of a held array.
    pub fn fetch(
        &self,
        head: &FetchRequest,
        to: LentBytesMut,
        deadline: Option<Instant>,
    ) -> Result<AnswerHandle<&Link>, CallError> {
        let pending = PendingStream { targets: vec![(0, to)], ..PendingStream::default() };
        let (ticket, out) = Link::begin(self, pending, |rpc, out| Ok(rpc.fetch(head, out)))?;
        self.put(&[Source::Bytes(&out)], deadline, &|| false)?;
        Ok(ticket)
    }

    /// Sends an array in order that the server holds it.
    pub fn hold(
        &self,
        head: &HoldRequest,
        from: LentBytes,
        (deadline, interrupted): (Option<Instant>, &dyn Fn() -> bool),
    ) -> Result<AnswerHandle<&Link>, CallError> {
        let pending = PendingStream::default();
        let (ticket, out) = Link::begin(self, pending, |rpc, out| Ok(rpc.hold(head, out)))?;
        match self.send(ticket.stream, &out, &[(0, from)], deadline, interrupted) {
            // The server has answered and then closed the connection.
            Err(error) if !self.has_answer(ticket.stream) => Err(error),
            _ => Ok(ticket),
        }
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
