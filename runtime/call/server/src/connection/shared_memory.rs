//! Memory of calls that the client maps, so that arrays need not be sent.

use std::collections::HashMap;
use std::os::fd::BorrowedFd;
use std::rc::{Rc, Weak};

use kumi_rpc::{ArraySize, CallHead, Code, Failure, GrantedArray, MemoryGrant, SharedDirections};

use super::Connection;
use crate::arenas::Block;
use crate::layout::Layout;
use crate::local_peer::LocalPeer;
use crate::values;

/// Shared-memory state of a connection.
#[derive(Default)]
pub struct SharedMemory {
    local_peer: Option<LocalPeer>,
    nearby: bool,
    /// The user of the routines when the client was last permitted to map. `None`: it may not.
    run_as: Option<Option<String>>,
    /// Memory that the client may touch until it releases it.
    lent: HashMap<u32, Rc<Block>>,
    /// Memory that the client maps, as long as it exists.
    mapped: HashMap<u32, Weak<Block>>,
    /// Results that the client takes from memory itself, by stream.
    taken: HashMap<u32, Vec<u16>>,
}

impl SharedMemory {
    /// The state of a new connection: the process at its other end, and whether it connected over TCP before.
    pub fn of((local_peer, nearby): (Option<LocalPeer>, bool)) -> SharedMemory {
        SharedMemory { local_peer, nearby, ..SharedMemory::default() }
    }

    /// Whether the client connects again, and so ends its first connection.
    pub fn is_nearby(&self) -> bool {
        self.nearby
    }

    /// Removes from the sizes the arrays that the client takes itself. Returns their bytes.
    pub fn taken(&mut self, stream: u32, sizes: &mut Vec<ArraySize>) -> u64 {
        let Some(taken) = self.taken.remove(&stream) else { return 0 };
        let is_taken = |size: &ArraySize| taken.contains(&size.argument);
        let bytes = sizes.iter().filter(|size| is_taken(size)).map(|size| size.bytes).sum();
        sizes.retain(|size| !is_taken(size));
        bytes
    }

    /// A call has ended before it ran.
    pub fn forget(&mut self, stream: u32) {
        self.taken.remove(&stream);
    }

    /// The descriptor of a memory that is granted to the client.
    pub fn descriptor(&self, number: u32) -> Option<BorrowedFd<'_>> {
        self.lent.get(&number).map(|block| block.arena.file())
    }

    /// The connection has ended.
    pub fn end(&mut self) {
        self.lent.clear();
    }
}

/// The arrays of a call that its client wants to share, with their places.
pub fn requested_arrays(
    layout: &Layout,
    shares: &[(u16, SharedDirections)],
) -> Result<Vec<GrantedArray>, Failure> {
    let requested = |(argument, share): &(u16, SharedDirections)| {
        let wrong = |why: &str| {
            let text = format!("argument {argument} cannot go through memory: {why}");
            values::bad(i64::from(*argument), text)
        };
        let array = layout.array(*argument).ok_or_else(|| wrong("it is not an array"))?;
        if share.sent && array.sent == 0 || share.returned && array.returned == 0 {
            return Err(wrong("nothing of it goes this way"));
        }
        let bytes = array.sent.max(array.returned);
        // Within the limit of one call.
        let (offset, length) = layout.range(*argument, 0, bytes as usize);
        let (offset, length) = (offset as u64, length as u64);
        Ok(GrantedArray { argument: *argument, share: *share, offset, length })
    };
    shares.iter().map(requested).collect()
}

/// Whether the client puts this array into memory.
pub fn is_sent(granted: &[GrantedArray], argument: u16) -> bool {
    granted.iter().any(|part| part.argument == argument && part.share.sent)
}

impl Connection {
    /// Whether the client may map the memory of its calls.
    pub(super) fn may_map(&mut self) -> bool {
        let config = &self.shared.config;
        let owner = self.caller.owner();
        let local_peer = self.sharing.local_peer.filter(|_| config.share_memory);
        let may = self.secured.is_none()
            && local_peer.is_some_and(|local_peer| local_peer.may_trace(owner, config.sandbox));
        self.sharing.run_as = may.then(|| owner.run_as.clone());
        may
    }

    /// Memory for a call, whether it holds another connection's data, and the granted arrays.
    pub(super) fn memory_for(
        &self,
        layout: &Layout,
        head: &CallHead,
        requested_arrays: Vec<GrantedArray>,
    ) -> Result<(Rc<Block>, bool, Vec<GrantedArray>), Failure> {
        let (owner, bytes) = (self.caller.owner(), layout.bytes);
        let mut pool = self.shared.pool.borrow_mut();
        // Held arrays must stay unchanged for their other readers, and the user's processes may meanwhile run
        // as another user.
        let is_own = head.held.is_empty() && self.sharing.run_as.as_ref() == Some(&owner.run_as);
        // Without memory to map, other memory may be idle.
        if is_own
            && !requested_arrays.is_empty()
            && let Some(block) = pool.shared_memory(owner, self.number, bytes)
        {
            return Ok((block, false, requested_arrays));
        }
        let taken = pool.memory(owner, self.number, bytes, "a call");
        let (block, foreign) = taken.ok_or_else(|| {
            let text = "the server has no memory left for the call's arguments; try again later";
            Failure::new(Code::Busy, i64::try_from(bytes).unwrap_or(i64::MAX), text)
        })?;
        Ok((block, foreign, Vec::new()))
    }

    /// Admits a call that asked for memory, and tells the client the grant.
    pub(super) fn grant(
        &mut self,
        stream: u32,
        sizes: &[ArraySize],
        block: Rc<Block>,
        parts: Vec<GrantedArray>,
    ) {
        let sharing = &mut self.sharing;
        let is_gone = |(_, block): &(&u32, &Weak<Block>)| block.strong_count() == 0;
        let gone: Vec<u32> =
            sharing.mapped.iter().filter(is_gone).map(|(number, _)| *number).collect();
        let gone: Vec<u32> = gone.into_iter().take(MemoryGrant::MOST_GONE).collect();
        gone.iter().for_each(|number| drop(sharing.mapped.remove(number)));
        let mut grant = MemoryGrant { parts, gone, ..MemoryGrant::default() };
        if !grant.parts.is_empty() {
            (grant.memory, grant.length) = (block.number, block.arena.length() as u64);
            grant.fresh = sharing.mapped.insert(block.number, Rc::downgrade(&block)).is_none();
            let taken = grant.parts.iter().filter(|part| part.share.returned);
            sharing.taken.insert(stream, taken.map(|part| part.argument).collect());
            sharing.lent.insert(block.number, block);
        }
        let filled =
            grant.parts.iter().filter(|part| part.share.sent).map(|part| part.length).sum();
        self.shared.count(|traffic| &traffic.in_memory, filled);
        self.rpc.accept_with(stream, sizes, &grant);
    }

    /// The client has released a memory, so other calls of the connection may use it.
    pub(super) fn released(&mut self, number: u32) {
        if let Some(block) = self.sharing.lent.remove(&number) {
            self.shared.give(block);
        }
    }
}
