//! Registered memory: pieces of a rank's own memory that others reach by a key, without a window that all ranks make together.

use kumi_net::SharedBytesMut;
use kumi_proto::frame::WindowKey;

use crate::context::Context;
use crate::error::Error;
use crate::window::key::{MOST_REGISTERED, registered_place};
use crate::window::table::{Rights, WindowMemory, WindowRefusal, WindowTable, check_lent};

/// Memory that other ranks reach by its key, as long as this value lives. The key is a number that any of them may be told, by a
/// message say. Frames that use it are applied by this rank's library, also while the program computes. Any number up to
/// 1,048,576 may be registered at a time; each costs the same, whatever its length.
#[derive(Debug)]
pub struct RegisteredMemory<'c> {
    context: &'c Context,
    key: WindowKey,
    /// The registration has ended.
    ended: bool,
}

impl Context {
    /// Registers memory, with these rights for whoever has the key. No other rank takes part.
    ///
    /// # Safety
    /// The memory is what [`SharedBytesMut::new`] demands until the registration has ended: the result was dropped, or, if it is
    /// forgotten, the context. If `rights` allow neither writing nor atomic operations nobody writes it by this key.
    ///
    /// # Errors
    /// [`Error::WindowRefused`] for more than 1,048,576 registrations, or for memory that does not begin at a multiple of 8 if
    /// `rights` allow atomic operations; [`Error::Attach`] if there can be no thread to serve it while the program computes;
    /// [`Error::Fault`].
    pub unsafe fn register(
        &self,
        memory: SharedBytesMut<'_>,
        rights: Rights,
    ) -> Result<RegisteredMemory<'_>, Error> {
        let key = {
            let mut guard = self.channel.lock()?;
            // SAFETY: the caller's promise.
            let key = unsafe { guard.handler().windows.register(memory, rights) };
            key.map_err(|refusal| refusal.at(self.rank()))?
        };
        // From here on it ends whatever happens.
        let registered = RegisteredMemory { context: self, key, ended: false };
        self.serve_same_node()?;
        Ok(registered)
    }
}

impl RegisteredMemory<'_> {
    /// Its key.
    #[must_use]
    pub fn key(&self) -> u64 {
        self.key
    }

    /// Ends the registration, as dropping it does: nobody accesses the memory by this key any more, and operations that do are
    /// refused.
    ///
    /// # Errors
    /// [`Error::Fault`] if the channel is broken; nobody accesses the memory then either.
    pub fn end(mut self) -> Result<(), Error> {
        self.deregister()
    }

    fn deregister(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.ended, true) {
            return Ok(());
        }
        // A thread that no longer needs to serve rings may do so: the next window or service that ends stops it.
        self.context.channel.lock()?.handler().windows.deregister(self.key);
        Ok(())
    }
}

impl Drop for RegisteredMemory<'_> {
    fn drop(&mut self) {
        // Without the lock the channel is broken or this process is a fork: nobody accesses the memory here.
        let _ = self.deregister();
    }
}

/// Registered memory by its place, which is in the key.
#[derive(Debug, Default)]
pub(crate) struct RegisteredTable {
    places: Vec<Option<WindowMemory>>,
    free: Vec<u32>,
}

impl RegisteredTable {
    /// Any memory is registered.
    pub(crate) fn any(&self) -> bool {
        self.free.len() < self.places.len()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &WindowMemory> {
        self.places.iter().flatten()
    }

    /// What is registered at a key's place, perhaps by another key.
    #[inline]
    pub(crate) fn at(&self, key: WindowKey) -> Option<&WindowMemory> {
        self.places.get(registered_place(key))?.as_ref()
    }
}

impl WindowTable {
    /// Registers memory; its key.
    ///
    /// # Safety
    /// Until the registration has ended the memory is what [`SharedBytesMut::new`] demands.
    pub(crate) unsafe fn register(
        &mut self,
        memory: SharedBytesMut<'_>,
        rights: Rights,
    ) -> Result<WindowKey, WindowRefusal> {
        let (base, length) = (memory.start(), memory.len());
        check_lent(base, length, rights)?;
        let table = &self.registered;
        let next = table.free.last().copied().unwrap_or(table.places.len() as u32);
        if next >= MOST_REGISTERED {
            return Err(WindowRefusal::Registrations);
        }
        let key = self.random.registered_key(next).map_err(|_| WindowRefusal::Random)?;
        let memory = Some(WindowMemory::own(base, length, rights, key));
        let table = &mut self.registered;
        match table.free.pop() {
            Some(place) => table.places[place as usize] = memory,
            None => table.places.push(memory),
        }
        Ok(key)
    }

    /// Ends a registration: nobody uses its memory any more. False if there is none of this key.
    pub(crate) fn deregister(&mut self, key: WindowKey) -> bool {
        if !crate::window::key::is_registered(key) || self.find(key).is_err() {
            return false;
        }
        let place = registered_place(key);
        self.registered.places[place] = None;
        self.registered.free.push(place as u32);
        true
    }
}

#[cfg(test)]
mod tests {
    use kumi_net::Attachment;
    use kumi_net::layout::WINDOWS;

    use super::*;
    use crate::error::Refusal;
    use crate::window::key::RandomSource;
    use crate::window::strided::Shape;
    use crate::window::table::Access;

    const READ: Rights = Rights { write: false, read: true, atomic: false };

    fn table() -> WindowTable {
        WindowTable::new(1 << 20, RandomSource::Seeded(9))
    }

    #[test]
    fn thousands_are_found_each_by_its_whole_key_until_it_ends() {
        let (mut windows, many) = (table(), if cfg!(miri) { 300 } else { 50_000 });
        let mut memory = vec![0; many + 8];
        let base = SharedBytesMut::from(&mut memory[..]);
        // SAFETY: the bytes are there until the end, and used by these values only.
        let mut register = |at| unsafe { windows.register(base.slice(at, 8), READ) }.expect("key");
        let keys: Vec<u64> = (0..many).map(&mut register).collect();
        for (at, key) in keys.iter().enumerate() {
            let found = windows.access(*key, 0, 8, Access::Read).expect("registered");
            assert_eq!(found.start(), base.slice(at, 8).start());
        }
        for bit in 0..64 {
            let wrong = windows.access(keys[7] ^ 1 << bit, 0, 8, Access::Read);
            assert_eq!(wrong.err(), Some(Refusal::Window), "bit {bit}");
        }
        assert_eq!(windows.access(keys[0], 0, 9, Access::Read).err(), Some(Refusal::Bounds));
        assert_eq!(windows.access(keys[0], 0, 8, Access::Write).err(), Some(Refusal::Right));
        assert!(windows.deregister(keys[3]) && !windows.deregister(keys[3]));
        assert_eq!(windows.access(keys[3], 0, 8, Access::Read).err(), Some(Refusal::Window));
        // SAFETY: as above.
        let again = unsafe { windows.register(base.slice(3, 8), READ) }.expect("key");
        assert_eq!(registered_place(again), registered_place(keys[3]));
        assert_eq!(windows.access(keys[3], 0, 8, Access::Read).err(), Some(Refusal::Window));
        keys.iter()
            .filter(|key| **key != keys[3])
            .for_each(|key| assert!(windows.deregister(*key)));
        assert!(windows.registered.any() && windows.deregister(again));
        assert!(!windows.registered.any());
    }

    #[test]
    fn registered_memory_is_no_window() {
        let attachment = Attachment::singleton(1 << 20).expect("attachment");
        let mut windows = table();
        let mut memory = [0u64; 4];
        let start = std::ptr::NonNull::from(&mut memory).cast();
        // SAFETY: four words, used by this value only.
        let all = unsafe { SharedBytesMut::new(start, 32) };
        // SAFETY: the words stay until the end.
        let key = unsafe { windows.register(all, Rights::ALL) }.expect("key");
        windows.remove(&attachment, key).expect("nothing");
        let word = windows.access(key, 8, 8, Access::Atomic).expect("still there");
        assert_eq!(word.start(), all.slice(8, 8).start());
        let shape = Shape::whole(0, 8);
        let lines = attachment.own_lines();
        for (notify, result) in [(None, Ok(())), (Some(0), Err(Refusal::Notify))] {
            assert_eq!(windows.put(lines, key, &shape, notify, &[1; 8][..]), result);
        }
        let raised =
            |index: usize| lines.notifies.0[index].count.load(std::sync::atomic::Ordering::Relaxed);
        assert!((0..WINDOWS).all(|slot| raised(slot * kumi_net::layout::NOTIFIES) == 0));
        assert!(windows.any_by_frames_on_node(&attachment), "ranks of the node reach it by frames");
        let misaligned = all.slice(4, 8);
        // SAFETY: as above.
        let refused = unsafe { windows.register(misaligned, Rights::ALL) };
        assert_eq!(refused, Err(WindowRefusal::Alignment));
    }
}
