//! Memory that a server on this machine grants to a call. Arrays are copied to it and from it without the
//! lock.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use kumi_rpc::{CallHead, GrantedArray, MemoryGrant};

use super::super::wire::Wire;
use super::{Link, PendingStream, State};
use crate::lent::{LentBytes, LentBytesMut};
use crate::native::Arena;
use crate::{CallError, locked};

/// Most memories that this process maps for one connection.
const MOST: usize = 1024;

/// Memories that are no longer in use, to be reported to the server.
type ReturnedMemories = Mutex<Vec<u32>>;

/// The mapped memories of a connection.
#[derive(Debug, Default)]
pub(super) struct MappedMemories {
    mapped: HashMap<u32, Arc<Arena>>,
    returned: Arc<ReturnedMemories>,
}

/// The memory granted to a call. After this is dropped, nobody touches the memory, and the server may be
/// told.
#[derive(Debug)]
pub struct GrantedMemory {
    /// `None`: the server granted none.
    memory: Option<(u32, Arc<Arena>)>,
    parts: Vec<GrantedArray>,
    returned: Arc<ReturnedMemories>,
}

impl Drop for GrantedMemory {
    fn drop(&mut self) {
        if let Some((number, _)) = &self.memory {
            locked(&self.returned).push(*number);
        }
    }
}

/// Whether a call asks for shared memory for this array.
pub(super) fn is_asked(head: &CallHead, argument: u16) -> bool {
    head.shared.iter().any(|(other, share)| *other == argument && share.sent)
}

impl GrantedMemory {
    /// Copies the granted arrays into the memory and returns the others. `None`: a length differs from the
    /// server's.
    fn put(&self, sends: &[(u16, LentBytes)]) -> Option<Vec<(u16, LentBytes)>> {
        let mut left = Vec::new();
        for (argument, lent) in sends {
            let part = self.parts.iter().find(|part| part.argument == *argument && part.share.sent);
            let (Some(part), Some((_, arena))) = (part, &self.memory) else {
                left.push((*argument, *lent));
                continue;
            };
            if part.length != lent.length() as u64 {
                return None;
            }
            // Inside the memory: the grant was checked when it arrived.
            arena.put(part.offset as usize, lent);
        }
        Some(left)
    }

    /// Copies results out of the memory.
    pub fn get(&self, targets: &[(u16, LentBytesMut)]) {
        for (argument, target) in targets {
            let is = |part: &&GrantedArray| part.argument == *argument && part.share.returned;
            if let (Some(part), Some((_, arena))) = (self.parts.iter().find(is), &self.memory) {
                // As long as the target, and inside the memory: the grant was checked when it arrived.
                arena.get(part.offset as usize, target);
            }
        }
    }

    /// Whether any result comes back in the memory.
    fn returns(&self) -> bool {
        self.parts.iter().any(|part| part.share.returned)
    }
}

impl State {
    /// The server answers a request for memory.
    pub(super) fn granted(&mut self, wire: &Wire, stream: u32, grant: MemoryGrant) {
        for number in &grant.gone {
            self.memories.mapped.remove(number);
        }
        let memory = match self.memories.find(wire, &grant) {
            Ok(memory) => memory,
            Err(why) => return self.lose(&why),
        };
        let returned = Arc::clone(&self.memories.returned);
        let granted = Arc::new(GrantedMemory { memory, parts: grant.parts, returned });
        // Nobody waits for the call, so the memory goes back at once.
        if let Some(pending) = self.pending.get_mut(&stream) {
            pending.granted = Some(granted);
        }
    }

    /// Queues the report of memories that are no longer in use.
    pub(super) fn give_back(&mut self) {
        let returned = std::mem::take(&mut *locked(&self.memories.returned));
        for number in returned {
            self.rpc.release(number, &mut self.soon);
        }
    }
}

impl MappedMemories {
    /// The memory of a grant, mapped if it is new.
    fn find(
        &mut self,
        wire: &Wire,
        grant: &MemoryGrant,
    ) -> Result<Option<(u32, Arc<Arena>)>, String> {
        if grant.memory == 0 {
            return Ok(None);
        }
        let length = usize::try_from(grant.length).map_err(|error| error.to_string())?;
        if grant.fresh {
            let file = wire.descriptor().ok_or("the server sent no descriptor of a new memory")?;
            if self.mapped.len() >= MOST {
                return Err(format!("the server had more than {MOST} memories mapped"));
            }
            let arena = Arena::of(file, length).map_err(|error| {
                format!(
                    "memory of {length} bytes that the server gave cannot be mapped ({error}); \
                     KUMI_CALL_SHARED=no does without"
                )
            })?;
            self.mapped.insert(grant.memory, Arc::new(arena));
        }
        let arena = self.mapped.get(&grant.memory).filter(|arena| arena.length() == length);
        let arena = arena.ok_or("the server granted a memory that it has not given")?;
        Ok(Some((grant.memory, Arc::clone(arena))))
    }
}

impl Link {
    /// Waits for the grant of a call and copies its arrays into the memory. The others are sent.
    pub(super) fn fill(
        &self,
        stream: u32,
        sends: &[(u16, LentBytes)],
        deadline: Option<Instant>,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<(), CallError> {
        let take = |state: &mut State| match state.pending.get(&stream) {
            Some(pending) if !pending.is_over() => pending.granted.clone().map(Some),
            _ => Some(None),
        };
        let granted = self.wait_until(take, deadline, interrupted)?;
        // Otherwise the call is over already.
        let Some(granted) = granted else { return Ok(()) };
        let Some(left) = granted.put(sends) else {
            return Err(self.fail("the server granted memory for arrays of other lengths"));
        };
        let fills = left.len() < sends.len();
        let mut state = self.lock();
        if !granted.returns()
            && let Some(PendingStream { granted, .. }) = state.pending.get_mut(&stream)
        {
            *granted = None;
        }
        drop(granted);
        let mut out = Vec::new();
        if fills {
            state.rpc.filled(stream, &mut out);
        }
        let returned = std::mem::take(&mut *locked(&state.memories.returned));
        for number in returned {
            state.rpc.release(number, &mut out);
        }
        drop(state);
        if !(out.is_empty() && left.is_empty()) {
            self.send(stream, &out, &left, deadline, interrupted)?;
        }
        Ok(())
    }
}
