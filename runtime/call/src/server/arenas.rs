//! The memory of calls: kept from call to call, so that its pages need not be made anew, and bounded.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use crate::native::Arena;

/// An arena with the number by which slots know it.
#[derive(Debug)]
pub struct Block {
    /// The number; no other block of the server has had it.
    pub number: u32,
    /// The memory.
    pub arena: Arena,
    total: Rc<Cell<u64>>,
}

impl Drop for Block {
    fn drop(&mut self) {
        self.total.set(self.total.get() - self.arena.length() as u64);
    }
}

/// Memory that a process of a slot has made, as long as it is in use.
#[derive(Debug)]
pub struct Reserved {
    bytes: u64,
    total: Rc<Cell<u64>>,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.total.set(self.total.get() - self.bytes);
    }
}

/// All arenas of a server.
#[derive(Debug)]
pub struct Arenas {
    idle: Vec<Rc<Block>>,
    total: Rc<Cell<u64>>,
    most: u64,
    next: u32,
}

/// Smallest arena in bytes.
const LEAST: usize = 64 << 10;
/// From here on sizes are multiples of this, below powers of two.
const STEP: usize = 64 << 20;

impl Arenas {
    /// None yet, and never more than so many bytes.
    pub fn new(most: u64) -> Arenas {
        Arenas { idle: Vec::new(), total: Rc::default(), most, next: 0 }
    }

    /// A number that no arena has had.
    pub fn number(&mut self) -> u32 {
        self.next = self.next.wrapping_add(1);
        self.next
    }

    /// Memory of at least so many bytes. What lay in it before is the same server's. `None`: there is too little left.
    ///
    /// # Errors
    /// What the system says.
    pub fn take(&mut self, bytes: usize) -> io::Result<Option<Rc<Block>>> {
        let fits = |block: &Rc<Block>| {
            let length = block.arena.length();
            length >= bytes && length / 4 <= bytes.max(LEAST)
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
        if !self.make_room(length as u64) {
            return Ok(None);
        }
        let arena = Arena::new(length)?;
        self.total.set(self.total.get() + arena.length() as u64);
        let number = self.number();
        Ok(Some(Rc::new(Block { number, arena, total: Rc::clone(&self.total) })))
    }

    /// Gives up idle memory until so many bytes more may be in use; whether they may.
    fn make_room(&mut self, bytes: u64) -> bool {
        while self.total.get().saturating_add(bytes) > self.most {
            if self.idle.is_empty() {
                return false;
            }
            self.idle.remove(0);
        }
        true
    }

    /// Counts so many bytes that a process of a slot has made. `None`: there is too little left.
    pub fn reserve(&mut self, bytes: u64) -> Option<Reserved> {
        self.make_room(bytes).then(|| {
            self.total.set(self.total.get() + bytes);
            Reserved { bytes, total: Rc::clone(&self.total) }
        })
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
        let take = |arenas: &mut Arenas, bytes| arenas.take(bytes).expect("memory");
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
}
