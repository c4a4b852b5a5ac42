//! Addresses that stand for things of the library, and never for memory.
//!
//! A program holds such an address like that of a structure, and may pass it where memory is wanted, also after it has freed
//! the thing. So nothing is ever at these addresses, and none is given out twice: whether a program gives one is known from its
//! range alone, in every process that has inherited it and after each `grpc_finalize`.

use std::ops::Range;
use std::sync::Mutex;

use crate::code::{Code, Failure};
use crate::runtime::lock;

/// Bytes of one reservation. It takes addresses and no memory, and is never given back.
const BLOCK: usize = 16 << 20;

/// Bytes between two addresses; a multiple of every alignment that programs expect of addresses.
const STEP: usize = 16;

static RESERVED: Mutex<Reserved> = Mutex::new(Reserved { blocks: Vec::new(), free: 0..0 });

/// What is reserved: 8 bytes of memory for each million addresses that were given out.
struct Reserved {
    /// Where each block begins, in ascending order.
    blocks: Vec<usize>,
    /// The rest of the block that was reserved last.
    free: Range<usize>,
}

impl Reserved {
    fn fresh(&mut self) -> Result<usize, Failure> {
        if self.free.is_empty() {
            let begin = reserve()?;
            let at = self.blocks.partition_point(|block| *block < begin);
            self.blocks.insert(at, begin);
            self.free = begin..begin + BLOCK;
        }
        let address = self.free.start;
        self.free.start += STEP;
        Ok(address)
    }

    fn contains(&self, address: usize) -> bool {
        let behind = self.blocks.partition_point(|block| *block <= address);
        behind.checked_sub(1).is_some_and(|at| address - self.blocks[at] < BLOCK)
    }
}

/// Reserves a block, in which every access faults.
fn reserve() -> Result<usize, Failure> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the kernel chooses a range that nothing has, so no memory changes.
    let begin = unsafe { libc::mmap(std::ptr::null_mut(), BLOCK, libc::PROT_NONE, flags, -1, 0) };
    if begin == libc::MAP_FAILED {
        let why = std::io::Error::last_os_error();
        let text = format!("there is no range of {BLOCK} addresses left (see `ulimit -v`): {why}");
        return Err(Failure::new(Code::OtherErrorCode, text));
    }
    Ok(begin.addr())
}

/// An address that was never given out.
///
/// # Errors
/// The process has no addresses left.
pub fn fresh() -> Result<usize, Failure> {
    lock(&RESERVED).fresh()
}

/// Whether an address is one of these, or lies between them: there is no memory.
pub fn is_reserved<T>(address: *const T) -> bool {
    lock(&RESERVED).contains(address.addr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_is_given_out_twice() {
        let mut reserved = Reserved { blocks: Vec::new(), free: 0..0 };
        let first = reserved.fresh().expect("an address");
        let mut before = first;
        for _ in 1..BLOCK / STEP {
            let next = reserved.fresh().expect("an address");
            assert_eq!(next, before + STEP);
            before = next;
        }
        assert_eq!((reserved.blocks.len(), before), (1, first + BLOCK - STEP));
        let other = reserved.fresh().expect("an address of another block");
        assert!(!(first..first + BLOCK).contains(&other) && reserved.blocks.len() == 2);
        assert!(reserved.blocks.is_sorted(), "{:?}", reserved.blocks);
    }

    #[test]
    fn known_by_their_range() {
        let mut reserved = Reserved { blocks: Vec::new(), free: 0..0 };
        assert!(!reserved.contains(0) && !reserved.contains(usize::MAX));
        reserved.blocks = vec![BLOCK, 4 * BLOCK];
        for (address, is_in) in [
            (0, false),
            (BLOCK - 1, false),
            (BLOCK, true),
            (2 * BLOCK - 1, true),
            (2 * BLOCK, false),
            (4 * BLOCK - 1, false),
            (4 * BLOCK, true),
            (5 * BLOCK, false),
            (usize::MAX, false),
        ] {
            assert_eq!(reserved.contains(address), is_in, "{address:#x}");
        }
        let memory = Box::new(1_u8);
        assert!(!is_reserved(&raw const *memory));
    }
}
