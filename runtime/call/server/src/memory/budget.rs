//! Limits of bytes that many share.

use std::cell::Cell;
use std::rc::Rc;

/// A limit of bytes, and how many of them are in use.
#[derive(Debug)]
pub struct Budget {
    most: u64,
    used: Rc<Cell<u64>>,
}

/// Bytes of a budget that are in use until this is dropped.
#[derive(Debug)]
pub struct Reservation {
    bytes: u64,
    used: Rc<Cell<u64>>,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.used.set(self.used.get() - self.bytes);
    }
}

impl Budget {
    /// A budget of which nothing is in use.
    pub fn new(most: u64) -> Budget {
        Budget { most, used: Rc::default() }
    }

    /// The limit.
    pub fn most(&self) -> u64 {
        self.most
    }

    /// Bytes in use.
    #[cfg(test)]
    pub fn used(&self) -> u64 {
        self.used.get()
    }

    /// Reserves bytes. `None`: too few are left.
    pub fn reserve(&self, bytes: u64) -> Option<Reservation> {
        let used = self.used.get().checked_add(bytes).filter(|used| *used <= self.most)?;
        self.used.set(used);
        Some(Reservation { bytes, used: Rc::clone(&self.used) })
    }
}
