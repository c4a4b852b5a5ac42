//! Pool of shared-memory arenas for the arguments of calls, bounded in bytes. Reuse saves the page faults of
//! new memory.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use super::super::owner::Owner;
use super::budget::{Budget, Reservation};
use crate::native::Arena;

/// An arena with the number that slots know it by.
#[derive(Debug)]
pub struct Block {
    /// A number that no other block of the server has had.
    pub number: u32,
    /// The memory.
    pub arena: Arena,
    owner: Rc<Owner>,
    /// The connection whose call used it last.
    client: Cell<u64>,
    /// The client of that connection may map it, so no other connection's call gets it.
    shared: bool,
    _counted: Reservation,
    freed: Rc<Cell<u64>>,
}

impl Drop for Block {
    fn drop(&mut self) {
        // The client may keep its mapping longer than the pool counts it.
        if self.shared
            && let Err(error) = self.arena.discard()
        {
            tracing::debug!(%error, "memory that a client maps is not free yet");
        }
        self.freed.set(self.freed.get() + 1);
    }
}

/// All arenas of a server.
#[derive(Debug)]
pub struct Arenas {
    idle: Vec<Rc<Block>>,
    budget: Budget,
    next: u32,
    /// How many arenas were given up so far.
    freed: Rc<Cell<u64>>,
}

/// Smallest arena in bytes.
const LEAST: usize = 64 << 10;
/// Larger sizes are multiples of this; smaller ones are powers of two.
const STEP: usize = 64 << 20;

impl Arenas {
    /// An empty pool with this limit in bytes.
    pub fn new(most: u64) -> Arenas {
        Arenas { idle: Vec::new(), budget: Budget::new(most), next: 0, freed: Rc::default() }
    }

    /// A number that no arena has had.
    pub fn number(&mut self) -> u32 {
        self.next = self.next.wrapping_add(1);
        self.next
    }

    /// How many arenas were given up so far. Processes that map one must unmap it.
    pub fn freed(&self) -> u64 {
        self.freed.get()
    }

    /// Memory of at least this size for a call of a connection, and whether it holds another connection's
    /// data. It never held another user's data, because that user's processes may still map it. `None`: too
    /// little memory is left.
    ///
    /// # Errors
    /// An error of the system.
    pub fn take(
        &mut self,
        owner: &Rc<Owner>,
        client: u64,
        bytes: usize,
    ) -> io::Result<Option<(Rc<Block>, bool)>> {
        if let Some(block) =
            self.find(client, bytes, |block| !block.shared && block.owner == *owner)
        {
            let foreign = block.client.replace(client) != client;
            return Ok(Some((block, foreign)));
        }
        // The kernel zeroes new memory.
        Ok(self.make(owner, client, bytes, false)?.map(|block| (block, false)))
    }

    /// Memory of at least this size that the connection's client may map. No other connection's call has used
    /// it or will use it. `None`: too little memory is left.
    ///
    /// # Errors
    /// An error of the system.
    pub fn take_shared(
        &mut self,
        owner: &Rc<Owner>,
        client: u64,
        bytes: usize,
    ) -> io::Result<Option<Rc<Block>>> {
        let is_own =
            |block: &Block| block.shared && block.client.get() == client && block.owner == *owner;
        match self.find(client, bytes, is_own) {
            Some(block) => Ok(Some(block)),
            None => self.make(owner, client, bytes, true),
        }
    }

    /// The smallest idle memory of those that this size fits, best what the connection's calls used last.
    fn find(
        &mut self,
        client: u64,
        bytes: usize,
        is_own: impl Fn(&Block) -> bool,
    ) -> Option<Rc<Block>> {
        let all = self.idle.iter().enumerate().filter(|(_, block)| {
            let length = block.arena.length();
            is_own(block) && length >= bytes && length / 4 <= bytes.max(LEAST)
        });
        let rank = |block: &Block| (block.client.get() != client, block.arena.length());
        let (index, _) = all.min_by_key(|(_, block)| rank(block))?;
        Some(self.idle.swap_remove(index))
    }

    /// A connection has ended: drops the memory that its client may map.
    pub fn forget(&mut self, client: u64) {
        self.idle.retain(|block| !(block.shared && block.client.get() == client));
    }

    fn make(
        &mut self,
        owner: &Rc<Owner>,
        client: u64,
        bytes: usize,
        shared: bool,
    ) -> io::Result<Option<Rc<Block>>> {
        let length = if bytes < STEP {
            bytes.max(LEAST).next_power_of_two()
        } else {
            bytes.checked_next_multiple_of(STEP).ok_or(io::ErrorKind::OutOfMemory)?
        };
        let Some(counted) = self.reserve(length as u64) else { return Ok(None) };
        let arena = Arena::new(length)?;
        let number = self.number();
        let (owner, client, freed) = (Rc::clone(owner), Cell::new(client), Rc::clone(&self.freed));
        Ok(Some(Rc::new(Block { number, arena, owner, client, shared, _counted: counted, freed })))
    }

    /// Counts memory, for which idle memory is given up if need be. `None`: too little is left.
    pub fn reserve(&mut self, bytes: u64) -> Option<Reservation> {
        loop {
            let counted = self.budget.reserve(bytes);
            if counted.is_some() || self.idle.is_empty() {
                return counted;
            }
            self.idle.remove(0);
        }
    }

    /// Takes memory back. The last owner frees it.
    pub fn give(&mut self, block: Rc<Block>) {
        if Rc::strong_count(&block) == 1 {
            self.idle.push(block);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_used_again() {
        let mut arenas = Arenas::new(1 << 20);
        let owner = Rc::default();
        let take = |arenas: &mut Arenas, bytes| {
            arenas.take(&owner, 1, bytes).expect("memory").map(|(block, foreign)| {
                assert!(!foreign);
                block
            })
        };
        let first = take(&mut arenas, 1).expect("there is room");
        assert_eq!(first.arena.length(), LEAST);
        assert!(take(&mut arenas, 1 << 20).is_none(), "with the first it would be too much");
        let number = first.number;
        arenas.give(first);
        let again = take(&mut arenas, 100).expect("the idle one");
        assert_eq!(again.number, number);
        arenas.give(again);
        let whole = take(&mut arenas, 1 << 20).expect("the idle one makes room");
        assert_ne!(whole.number, number);
        drop(whole);
        assert!(take(&mut arenas, 1 << 20).is_some(), "what is dropped is free");
        assert_eq!(arenas.freed(), 3, "the idle one, the whole, and what was taken last");
    }

    #[test]
    fn what_a_client_maps_is_its_own() {
        let mut arenas = Arenas::new(4 * LEAST as u64);
        let owner = Rc::default();
        let (plain, _) = arenas.take(&owner, 1, 10).expect("memory").expect("room");
        plain.arena.write(0, b"another's");
        arenas.give(plain);
        let mine = arenas.take_shared(&owner, 1, 10).expect("memory").expect("room");
        assert_eq!(mine.arena.read(0, 9), [0; 9], "nobody has used it");
        let (number, held) = (mine.number, Rc::clone(&mine));
        arenas.give(mine);
        let other = arenas.take_shared(&owner, 1, 10).expect("memory").expect("room");
        assert_ne!(other.number, number, "somebody has it still");
        arenas.give(held);
        arenas.give(other);
        let theirs = arenas.take_shared(&owner, 2, 10).expect("memory").expect("room");
        let (plain, _) = arenas.take(&owner, 1, 10).expect("memory").expect("room");
        assert!(!plain.shared && theirs.client.get() == 2);
        let again = arenas.take_shared(&owner, 1, 10).expect("memory").expect("its own");
        arenas.give(again);
        arenas.forget(2);
        assert_eq!(arenas.idle.len(), 2);
        arenas.forget(1);
        assert_eq!(arenas.idle.len(), 0);
    }

    #[test]
    fn memory_that_is_given_up_is_free_though_it_is_mapped() {
        let mut arenas = Arenas::new(1 << 20);
        let block = arenas.take_shared(&Rc::default(), 1, 10).expect("memory").expect("room");
        let file = block.arena.file().try_clone_to_owned().expect("its descriptor");
        let theirs = Arena::of(file, block.arena.length()).expect("a client's");
        theirs.write(0, b"theirs");
        drop(block);
        let pages = nix::sys::stat::fstat(theirs.file()).expect("its state").st_blocks;
        assert_eq!((theirs.read(0, 6), pages), (vec![0; 6], 0));
    }

    #[test]
    fn who_has_used_memory_before_gets_it_again() {
        let mut arenas = Arenas::new(1 << 20);
        let owner = Rc::default();
        let mut take = |client| arenas.take(&owner, client, 1).expect("memory").expect("room");
        let (one, two) = (take(1).0, take(2).0);
        let numbers = (one.number, two.number);
        arenas.give(one);
        arenas.give(two);
        let mut take = |client| arenas.take(&owner, client, 1).expect("memory").expect("room");
        let (second, foreign) = take(2);
        assert_eq!((second.number, foreign), (numbers.1, false));
        let (first, foreign) = take(2);
        assert_eq!((first.number, foreign), (numbers.0, true), "it must be cleared");
    }

    #[test]
    fn memory_of_one_user_is_never_anothers() {
        let mut arenas = Arenas::new(1 << 17);
        let owner = |name: &str| Rc::new(Owner { user: name.to_owned(), run_as: None });
        let (ada, bob) = (owner("ada"), owner("bob"));
        let (hers, _) = arenas.take(&ada, 1, 10).expect("memory").expect("room");
        hers.arena.write(0, b"a secret");
        let number = hers.number;
        arenas.give(hers);
        let (his, foreign) = arenas.take(&bob, 1, 10).expect("memory").expect("room");
        assert!(his.number != number && !foreign);
        assert_eq!(his.arena.read(0, 8), [0; 8]);
        let (hers, _) = arenas.take(&ada, 1, 10).expect("memory").expect("hers");
        assert_eq!(hers.number, number);
        // Idle memory makes room for another user's new memory.
        arenas.give(his);
        let (new, _) = arenas.take(&ada, 1, LEAST).expect("memory").expect("his made room");
        assert!(new.number > number + 1);
        assert!(arenas.take(&bob, 1, 10).expect("memory").is_none(), "all is in use");
        drop(hers);
    }
}
