//! Shared memory of calls, at the client.

use super::{Call, Client, ClientEvent, Stream};
use crate::ProtocolError;
use crate::frame::{self, FrameError, FrameKind};
use crate::incoming_arrays::{ArraySize, IncomingArrays};
use crate::message::CallHead;
use crate::shared_memory::MemoryGrant;
use alloc::vec::Vec;

impl Client {
    /// A call with this head and result arrays of these sizes. They arrive as chunks, except for those that the call requests in
    /// shared memory.
    pub(super) fn new_call(&mut self, head: &CallHead, results: &[ArraySize]) -> Call {
        let is_asked = |size: &ArraySize| {
            head.shared.iter().any(|(other, share)| *other == size.argument && share.returned)
        };
        let (shared, chunks): (Vec<ArraySize>, Vec<ArraySize>) =
            results.iter().partition(|size| is_asked(size));
        let asked = (!head.shared.is_empty()).then(|| head.shared.clone());
        self.pending_grants += usize::from(asked.is_some());
        Call { parts: IncomingArrays::new(&chunks), runs: true, asked, shared, ..Call::default() }
    }

    /// Number of calls whose request for shared memory is not answered. At most this many descriptors may have arrived.
    #[must_use]
    pub fn pending_grants(&self) -> usize {
        self.pending_grants
    }

    /// Handles the answer to a request for shared memory. Arrays that are not granted use chunks.
    pub(super) fn granted(
        &mut self,
        stream: u32,
        grant: MemoryGrant,
    ) -> Result<ClientEvent, FrameError> {
        let Some((Stream::Call(call), _)) = self.streams.get_mut(&stream) else {
            return Err(FrameError::Unasked);
        };
        let asked = call.asked.take().ok_or(FrameError::Unasked)?;
        self.pending_grants -= 1;
        for part in &grant.parts {
            let fits = |(argument, share): &(u16, _)| {
                *argument == part.argument && part.share.is_part_of(*share)
            };
            if !asked.iter().any(fits) {
                return Err(FrameError::Unasked);
            }
        }
        for size in core::mem::take(&mut call.shared) {
            let part = grant.parts.iter().find(|part| part.argument == size.argument);
            match part.filter(|part| part.share.returned) {
                Some(part) if part.length != size.bytes => {
                    let argument = size.argument;
                    return Err(ProtocolError::Excess { stream, argument }.into());
                }
                Some(_) => {}
                None => call.parts.push(size),
            }
        }
        Ok(ClientEvent::Granted(stream, grant))
    }

    /// Appends FILLED: all inputs are in the call's shared memory.
    pub fn filled(&mut self, stream: u32, out: &mut Vec<u8>) {
        if self.streams.contains_key(&stream) {
            frame::put(out, FrameKind::Filled, stream, ());
        }
    }

    /// Appends RELEASE: the client no longer uses a memory, until its next grant.
    pub fn release(&mut self, memory: u32, out: &mut Vec<u8>) {
        frame::put(out, FrameKind::Release, 0, memory);
    }
}
