//! The memory of calls: kept from call to call, so that its pages need not be made anew, and bounded.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use super::owner::Owner;
use crate::native::Arena;

/// An arena with the number by which slots know it.
#[derive(Debug)]
pub struct Block {
    /// The number; no other block of the server has had it.
    pub number: u32,
    /// The memory.
    pub arena: Arena,
    owner: Rc<Owner>,
    total: Rc<Cell<u64>>,
}

impl Drop for Block {
    fn drop(&mut self) {
        self.total.set(self.total.get() - self.arena.length() as u64);
    }
}

/// All arenas of a server.
#[derive(Debug)]
pub struct Arenas {
    idle: Vec<Rc<Block>>,
    total: Rc<Cell<u64>>,
    most: u64,
    next: u32,
    gave_up: bool,
}

/// Smallest arena in bytes.
const LEAST: usize = 64 << 10;
/// From here on sizes are multiples of this, below powers of two.
const STEP: usize = 64 << 20;

impl Arenas {
    /// None yet, and never more than so many bytes.
    pub fn new(most: u64) -> Arenas {
        Arenas { idle: Vec::new(), total: Rc::default(), most, next: 0, gave_up: false }
    }

    /// A number that no arena has had.
    pub fn number(&mut self) -> u32 {
        self.next = self.next.wrapping_add(1);
        self.next
    }

    /// Memory of at least so many bytes. What lay in it before is the same user's, whose processes may map it still:
    /// memory never goes from one user to another. `None`: there is too little left.
    ///
    /// # Errors
    /// What the system says.
    pub fn take(&mut self, owner: &Rc<Owner>, bytes: usize) -> io::Result<Option<Rc<Block>>> {
        let fits = |block: &Rc<Block>| {
            let length = block.arena.length();
            block.owner == *owner && length >= bytes && length / 4 <= bytes.max(LEAST)
        };
        let found = (0..self.idle.len()).filter(|index| fits(&self.idle[*index]));
        if let Some(index) = found.min_by_key(|index| self.idle[*index].arena.length()) {
            return Ok(Some(self.idle.swap_remove(index)));
        }
        let length = if bytes < STEP {
            bytes.max(LEAST).next_power_of_two()
        } else {
            bytes.checked_next_multiple_of(STEP).ok_or(io::ErrorKind::OutOfMemory)?
        };
        while self.total.get().saturating_add(length as u64) > self.most {
            if self.idle.is_empty() {
                return Ok(None);
            }
            self.idle.remove(0);
            self.gave_up = true;
        }
        let arena = Arena::new(length)?;
        self.total.set(self.total.get() + arena.length() as u64);
        let number = self.number();
        let (owner, total) = (Rc::clone(owner), Rc::clone(&self.total));
        Ok(Some(Rc::new(Block { number, arena, owner, total })))
    }

    /// Whether memory was given up since this was asked last: processes that map it are to let it go.
    pub fn gave_up(&mut self) -> bool {
        std::mem::take(&mut self.gave_up)
    }

    /// Takes memory back that nobody uses any more.
    pub fn give(&mut self, block: Rc<Block>) {
        self.idle.push(block);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_used_again() {
        let mut arenas = Arenas::new(1 << 20);
        let owner = Rc::default();
        let take = |arenas: &mut Arenas, bytes| arenas.take(&owner, bytes).expect("memory");
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
    }

    #[test]
    fn memory_of_one_user_is_never_anothers() {
        let mut arenas = Arenas::new(1 << 17);
        let owner = |name: &str| Rc::new(Owner { user: name.to_owned(), run_as: None });
        let (ada, bob) = (owner("ada"), owner("bob"));
        let hers = arenas.take(&ada, 10).expect("memory").expect("room");
        hers.arena.write(0, b"a secret");
        let number = hers.number;
        arenas.give(hers);
        let his = arenas.take(&bob, 10).expect("memory").expect("room");
        assert_ne!(his.number, number);
        assert_eq!(his.arena.read(0, 8), [0; 8]);
        let hers = arenas.take(&ada, 10).expect("memory").expect("hers");
        assert_eq!(hers.number, number);
        // What is idle makes room for another user, as new memory.
        arenas.give(his);
        let new = arenas.take(&ada, LEAST).expect("memory").expect("his made room");
        assert!(new.number > number + 1);
        assert!(arenas.take(&bob, 10).expect("memory").is_none(), "all is in use");
        drop(hers);
    }
}
