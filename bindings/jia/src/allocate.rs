//! Allocation: which host has which pages. Hosts are ranks.

use std::ffi::{c_int, c_ulong, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use kumi_dsm::{Placement, SharedMemory};

use crate::state::{Jia, fail, good, running};

/// A host's number, checked.
fn host(function: &str, jia: &Jia, number: c_int) -> u32 {
    let hosts = jia.context.ranks();
    match u32::try_from(number) {
        Ok(host) if host < hosts => host,
        _ => {
            fail(function, format_args!("there is no host {number}; hosts are 0 to {}", hosts - 1))
        }
    }
}

/// Pages that bytes need.
fn pages(memory: &SharedMemory, bytes: u64) -> u64 {
    bytes.div_ceil(memory.page_bytes().into())
}

fn allocate(function: &str, memory: &SharedMemory, bytes: u64, placement: Placement) -> c_ulong {
    good(function, memory.allocate(bytes, placement)).addr() as c_ulong
}

fn at(function: &str, jia: &Jia, bytes: c_ulong, number: c_int) -> c_ulong {
    let placement = Placement::At(host(function, jia, number));
    allocate(function, &jia.memory, bytes, placement)
}

/// See `jia.h`.
#[unsafe(no_mangle)]
pub extern "C" fn jia_alloc3(size: c_ulong, block: c_ulong, start: c_int) -> c_ulong {
    let jia = running("jia_alloc3");
    in_turn("jia_alloc3", &jia, size, block, start)
}

fn in_turn(function: &str, jia: &Jia, size: c_ulong, block: c_ulong, start: c_int) -> c_ulong {
    let first = host(function, jia, start);
    let block = u32::try_from(pages(&jia.memory, block)).unwrap_or(u32::MAX).max(1);
    allocate(function, &jia.memory, size, Placement::RoundRobin { block, first })
}

/// See `jia.h`.
///
/// # Safety
/// `blocks` points to `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jia_alloc4(
    size: c_ulong,
    blocks: *const c_int,
    count: c_int,
    start: c_int,
) -> c_ulong {
    let function = "jia_alloc4";
    let jia = running(function);
    // SAFETY: promised by the caller.
    let blocks = unsafe { block_list(function, blocks, count) };
    let (hosts, first) = (jia.context.ranks(), host(function, &jia, start));
    // Block i goes to every host, from the first on; the last one serves for what is left.
    let rounds = blocks.iter().chain(std::iter::repeat(&blocks[blocks.len() - 1]));
    let each =
        rounds.flat_map(|bytes| (0..hosts).map(move |turn| (*bytes, (first + turn) % hosts)));
    in_pieces(function, &jia.memory, size, each)
}

/// See `jia.h`.
///
/// # Safety
/// `blocks` points to `count` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jia_alloc_array(
    size: c_ulong,
    blocks: *const c_int,
    count: c_int,
) -> c_ulong {
    let function = "jia_alloc_array";
    let jia = running(function);
    // SAFETY: promised by the caller.
    let blocks = unsafe { block_list(function, blocks, count) };
    let hosts = jia.context.ranks();
    if blocks.len() > hosts as usize {
        fail(function, format_args!("{} parts are more than the {hosts} hosts", blocks.len()));
    }
    let last = blocks.len() - 1;
    let parts = blocks.iter().copied().zip(0..);
    // What is left goes to the last of them.
    let rest = std::iter::repeat((i32::MAX as u64, last as u32));
    in_pieces(function, &jia.memory, size, parts.chain(rest))
}

/// The caller's list of bytes.
///
/// # Safety
/// `blocks` points to `count` numbers.
unsafe fn block_list(function: &str, blocks: *const c_int, count: c_int) -> Vec<u64> {
    let counted = usize::try_from(count).unwrap_or(0);
    if blocks.is_null() || counted == 0 {
        fail(function, "the list of blocks is empty");
    }
    let read = |at| {
        // SAFETY: promised by the caller.
        let bytes = unsafe { blocks.add(at).read_unaligned() };
        match u64::try_from(bytes) {
            Ok(bytes) if bytes > 0 => bytes,
            _ => fail(function, format_args!("block {at} has {bytes} bytes; give at least 1")),
        }
    };
    (0..counted).map(read).collect()
}

/// One piece after the other, each rounded up to pages at its own host, until there are `size` bytes. Allocations follow each
/// other without gaps, so together they are one.
fn in_pieces(
    function: &str,
    memory: &SharedMemory,
    size: u64,
    pieces: impl Iterator<Item = (u64, u32)>,
) -> c_ulong {
    let page = u64::from(memory.page_bytes());
    let mut left = pages(memory, size) * page;
    let mut start = None;
    for (bytes, host) in pieces {
        if left == 0 {
            break;
        }
        let part = (pages(memory, bytes) * page).min(left);
        let address = allocate(function, memory, part, Placement::At(host));
        start.get_or_insert(address);
        left -= part;
    }
    start.unwrap_or_else(|| allocate(function, memory, 0, Placement::At(0)))
}

/// See `jia.h`.
#[unsafe(no_mangle)]
pub extern "C" fn jia_alloc2p(size: c_ulong, process: c_int) -> c_ulong {
    at("jia_alloc2p", &running("jia_alloc2p"), size, process)
}

/// See `jia.h`.
#[unsafe(no_mangle)]
pub extern "C" fn jia_alloc2(size: c_ulong, block: c_ulong) -> c_ulong {
    in_turn("jia_alloc2", &running("jia_alloc2"), size, block, 0)
}

/// See `jia.h`.
#[unsafe(no_mangle)]
pub extern "C" fn jia_alloc1(size: c_ulong) -> c_ulong {
    at("jia_alloc1", &running("jia_alloc1"), size, 0)
}

/// See `jia.h`.
#[unsafe(no_mangle)]
pub extern "C" fn jia_alloc(size: c_ulong) -> c_ulong {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    let jia = running("jia_alloc");
    let turn = CALLS.fetch_add(1, Ordering::Relaxed) % jia.context.ranks();
    allocate("jia_alloc", &jia.memory, size, Placement::At(turn))
}

/// See `jia.h`.
#[unsafe(no_mangle)]
pub extern "C" fn jia_alloc_random(size: c_ulong) -> c_ulong {
    static SEED: AtomicU32 = AtomicU32::new(1);
    let jia = running("jia_alloc_random");
    // All hosts draw the same numbers, since all allocate the same (Numerical Recipes' generator).
    let next = |seed: u32| seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    let seed = SEED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |seed| Some(next(seed)));
    let chosen = (next(seed.unwrap_or(1)) >> 8) % jia.context.ranks();
    allocate("jia_alloc_random", &jia.memory, size, Placement::At(chosen))
}

/// See `jia.h`.
#[unsafe(no_mangle)]
pub extern "C" fn jia_free(start: *mut c_void) {
    let jia = running("jia_free");
    if !start.is_null() && !jia.memory.contains(start.cast()) {
        fail("jia_free", "the address is not of shared memory");
    }
}
