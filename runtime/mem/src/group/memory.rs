//! Memory that the members of a group share on their node, for much data.

use kumi_net::{Attachment, SharedBytes, SharedBytesMut};
use kumi_proto::frame::{NO_WINDOW, WindowKey};

use crate::collective::schedule::{SHARED_BYTES, share_words};
use crate::context::Context;
use crate::error::Error;
use crate::group::{Group, tag::Collective};
use crate::window::mapped_piece::MappedPiece;
use crate::window::table::{Rights, WindowMemory};

/// Others only read a member's piece: the kernel keeps them from more.
const READERS: Rights = Rights { read: true, write: false, atomic: false };

/// A piece for each member of this node, in their arenas.
#[derive(Debug)]
pub(crate) struct NodeMemory {
    own: WindowMemory,
    me: u32,
    /// By member.
    pieces: Vec<(u32, MappedPiece)>,
}

// SAFETY: addresses in the segment, which stays mapped as long as the context. The memory is shared by design and reached
// as shared bytes only.
unsafe impl Send for NodeMemory {}
// SAFETY: as above.
unsafe impl Sync for NodeMemory {}

impl NodeMemory {
    /// The piece of a member of this node, to be read.
    pub(crate) fn read(&self, member: u32) -> Option<SharedBytes<'_>> {
        let at = self.pieces.binary_search_by_key(&member, |(of, _)| *of).ok()?;
        Some(self.pieces[at].1.bytes())
    }

    /// The own piece, to be written; none for another member.
    pub(crate) fn write(&self, member: u32) -> Option<SharedBytesMut<'_>> {
        (member == self.me).then(|| self.own.bytes())
    }

    /// Gives the own piece back. No other member reads it: collectives end when nobody does.
    pub(crate) fn free(&self, context: &Context) -> Result<(), Error> {
        context.remove_window(&self.own)
    }
}

impl Group<'_> {
    /// Whether the members of this node share memory. They make it at the first call, together: if one of them has no
    /// room, none has it.
    pub(crate) fn shares_memory(&self) -> Result<bool, Error> {
        if let Some(made) = self.state().memory.get() {
            return Ok(made.is_some());
        }
        let made = self.make_memory()?;
        Ok(self.state().memory.get_or_init(|| made).is_some())
    }

    fn make_memory(&self) -> Result<Option<NodeMemory>, Error> {
        let (context, topology) = (self.context(), self.topology()?);
        let attachment = context.attachment();
        let beside = topology.beside(self.member());
        if beside.len() == 1 {
            return Ok(None);
        }
        let made = {
            let mut guard = context.channel.lock()?;
            guard.handler().windows.create(attachment, SHARED_BYTES, READERS).ok()
        };
        // Taken back if this fails, or another member has none.
        let own = made.map(|memory| Unshared(context, memory));
        let mine = [made.map_or(NO_WINDOW, |memory| memory.key)];
        let mut keys = vec![0u64; beside.len()];
        let schedule = share_words(topology, self.member());
        self.carry_out(&schedule, self.tag(Collective::Share, 0), &mine, &mut keys)?;
        let find = |(member, key): (&u32, &u64)| {
            // 0 is no key, but what an empty place in the table has.
            let rank = self.rank_of(*member).ok().filter(|_| *key != NO_WINDOW)?;
            let local = attachment.local_of(rank)?;
            Some((*member, find_whole(attachment, local, *key)?))
        };
        let pieces: Option<Vec<_>> = beside.iter().zip(&keys).map(find).collect();
        // All see the same keys and lengths, so a piece is found by all or by none.
        Ok(pieces.zip(own).map(|(pieces, own)| NodeMemory {
            own: own.keep(),
            me: self.member(),
            pieces,
        }))
    }
}

/// The piece of a member of this node. Its owner says how long it is, and collectives trust in all of it.
fn find_whole(attachment: &Attachment, local: usize, key: WindowKey) -> Option<MappedPiece> {
    MappedPiece::find(attachment, local, key).filter(|piece| piece.size >= SHARED_BYTES as u64)
}

/// Takes a piece back that not all know.
struct Unshared<'c>(&'c Context, WindowMemory);

impl Unshared<'_> {
    fn keep(self) -> WindowMemory {
        let memory = self.1;
        std::mem::forget(self);
        memory
    }
}

impl Drop for Unshared<'_> {
    fn drop(&mut self) {
        // Without the lock the handler thread is dead and writes nowhere.
        let _ = self.0.remove_window(&self.1);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::SeqCst;

    use super::*;
    use crate::window::key::{RandomSource, slot};
    use crate::window::table::WindowTable;

    #[test]
    fn a_piece_that_is_too_short_is_none() {
        let attachment = Attachment::singleton(4 << 20).expect("attachment");
        let mut windows = WindowTable::new(attachment.arena_bytes(), RandomSource::Seeded(3));
        let memory = windows.create(&attachment, SHARED_BYTES, READERS).expect("window");
        let find = || find_whole(&attachment, 0, memory.key);
        assert_eq!(find().expect("there").bytes().len(), SHARED_BYTES);
        // As a peer says that does not keep to the rules.
        let length = &attachment.own().windows[slot(memory.key)].length;
        for short in [0, 8, SHARED_BYTES as u64 - 1] {
            length.store(short, SeqCst);
            assert!(find().is_none(), "{short}");
        }
        length.store(SHARED_BYTES as u64 + 8, SeqCst);
        assert!(find().is_some(), "longer does no harm");
    }
}
