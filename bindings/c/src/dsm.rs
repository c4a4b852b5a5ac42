//! Memory that all ranks of the job see.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Arc, PoisonError, RwLock};

use kumi_dsm::system_calls::{self, Use};
use kumi_dsm::{Config, Error, Misuse, Placement, SharedMemory, Sharing};

use crate::args::{check, rank, required, store};
use crate::code::{Code, Failure};
use crate::state::{State, with};

// Its functions are of no use here but to programs, which find them by their names.
use kumi_interpose as _;

/// The memory, if there is one. Calls keep it while they use it.
#[derive(Default)]
pub struct Shared(RwLock<Option<Arc<SharedMemory>>>);

impl Shared {
    fn start(&self, state: &State) -> Result<(), Failure> {
        // Held for so long that two threads do not both make it.
        let mut slot = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if slot.is_some() {
            return Err(Code::SharedAlready.into());
        }
        let config = Config::from_environment()?;
        *slot = Some(Arc::new(SharedMemory::new(state.context, config)?));
        Ok(())
    }

    fn get(&self) -> Result<Arc<SharedMemory>, Failure> {
        let slot = self.0.read().unwrap_or_else(PoisonError::into_inner);
        slot.clone().ok_or_else(|| Code::NotShared.into())
    }

    fn end(&self) -> Result<(), Failure> {
        let mut slot = self.0.write().unwrap_or_else(PoisonError::into_inner);
        match slot.as_ref().map(Arc::strong_count) {
            None => Err(Code::NotShared.into()),
            Some(1) => {
                drop(slot.take());
                Ok(())
            }
            Some(_) => Err(Code::Busy.into()),
        }
    }
}

fn shared(body: impl FnOnce(&SharedMemory) -> Result<(), Failure>) -> c_int {
    with(|state| body(&*state.shared.get()?))
}

/// The kinds of packets that a rank sends.
const PACKETS: [&str; 4] = ["data_out", "acks_out", "nacks_out", "probes_out"];

/// A counter of the memory by name, or of the packets that this rank has sent for whatever reason.
fn counter(memory: &SharedMemory, wanted: &[u8]) -> Option<u64> {
    if wanted == b"packets" {
        let all = memory.context().counters();
        let sent = all.iter().filter(|(name, _)| PACKETS.contains(name));
        return Some(sent.map(|(_, count)| count).sum());
    }
    let found = memory.statistics().all().find(|(name, _)| name.as_bytes() == wanted);
    found.map(|(_, count)| count)
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        let code = match error {
            Error::Channel(error) => return error.into(),
            Error::Misuse(misuse) => match misuse {
                Misuse::NotHeld { .. } => Code::NotHeld,
                Misuse::HeldAlready { .. } => Code::HeldAlready,
                Misuse::Busy | Misuse::InBarrier => Code::Busy,
                Misuse::Mismatch { .. } => Code::Mismatch,
                Misuse::Allocations { .. } => Code::Allocations,
                Misuse::Full { .. } => Code::Exhausted,
                Misuse::Allocation(_) => Code::Outside,
                Misuse::Peer { .. } => Code::Fault,
            },
            Error::Setting { .. } => Code::Setting,
            Error::Memory(_) | Error::View(_) | Error::Addresses { .. } => Code::Memory,
            Error::Outside { .. } => Code::Outside,
            Error::Elsewhere { .. } | Error::Offer { .. } => Code::Other,
        };
        Failure::new(code, text)
    }
}

/// `kumi_dsm_home` of `kumi_dsm.h`.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct KumiDsmHome {
    /// One of the `KUMI_DSM_` numbers.
    pub kind: c_int,
    /// Pages of a block, for round robin.
    pub block_pages: u32,
    /// The rank, or the first one.
    pub rank: c_int,
}

const BLOCKS: c_int = 0;
const ROUND_ROBIN: c_int = 1;
const AT: c_int = 2;
const FIRST_TOUCH: c_int = 3;
/// Beside one of these: copies are updated.
const UPDATED: c_int = 256;

impl KumiDsmHome {
    fn placement(self, ranks: u32) -> Result<Placement, Failure> {
        let there = || match rank(self.rank)? {
            rank if rank < ranks => Ok(rank),
            rank => Err(Failure::new(Code::Rank, format!("there is no rank {rank}"))),
        };
        match self.kind & !UPDATED {
            BLOCKS => Ok(Placement::Blocks),
            ROUND_ROBIN if self.block_pages == 0 => {
                Err(Failure::new(Code::Length, "a block has no pages; give at least 1"))
            }
            ROUND_ROBIN => Ok(Placement::RoundRobin { block: self.block_pages, first: there()? }),
            AT => Ok(Placement::At(there()?)),
            FIRST_TOUCH => Ok(Placement::FirstTouch),
            _ => {
                let text = format!("{} is not a kind of kumi_dsm_home", self.kind);
                Err(Failure::new(Code::Type, text))
            }
        }
    }

    fn sharing(self) -> Sharing {
        if self.kind & UPDATED == 0 { Sharing::Invalidate } else { Sharing::Update }
    }
}

/// See `kumi_dsm.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_dsm_blocks() -> KumiDsmHome {
    KumiDsmHome { kind: BLOCKS, block_pages: 0, rank: 0 }
}

/// See `kumi_dsm.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_dsm_round_robin(block_pages: u32, first_rank: c_int) -> KumiDsmHome {
    KumiDsmHome { kind: ROUND_ROBIN, block_pages, rank: first_rank }
}

/// See `kumi_dsm.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_dsm_at(rank: c_int) -> KumiDsmHome {
    KumiDsmHome { kind: AT, block_pages: 0, rank }
}

/// See `kumi_dsm.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_dsm_first_touch() -> KumiDsmHome {
    KumiDsmHome { kind: FIRST_TOUCH, block_pages: 0, rank: 0 }
}

/// See `kumi_dsm.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_dsm_updated(home: KumiDsmHome) -> KumiDsmHome {
    KumiDsmHome { kind: home.kind | UPDATED, ..home }
}

/// See `kumi_dsm.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_dsm_start() -> c_int {
    with(|state| state.shared.start(state))
}

/// See `kumi_dsm.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_dsm_end() -> c_int {
    with(|state| state.shared.end())
}

/// See `kumi_dsm.h`.
///
/// # Safety
/// `address` points to memory for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_dsm_allocate(
    bytes: usize,
    home: KumiDsmHome,
    address: *mut *mut c_void,
) -> c_int {
    shared(|memory| {
        required(address, "address")?;
        let placement = home.placement(memory.context().ranks())?;
        let name = || kumi_dsm::caller_of("kumi_dsm_allocate");
        let start = memory.allocate_shared(bytes as u64, placement, home.sharing(), name)?;
        // SAFETY: promised by the caller.
        unsafe { store(address, start.cast()) }
    })
}

/// See `kumi_dsm.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_dsm_lock(lock: u32) -> c_int {
    shared(|memory| Ok(memory.acquire_lock(lock)?))
}

/// See `kumi_dsm.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_dsm_unlock(lock: u32) -> c_int {
    shared(|memory| Ok(memory.unlock(lock)?))
}

/// See `kumi_dsm.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_dsm_barrier() -> c_int {
    shared(|memory| Ok(memory.barrier()?))
}

/// See `kumi_dsm.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_dsm_wait() -> c_int {
    shared(|memory| Ok(memory.wait()?))
}

/// See `kumi_dsm.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_dsm_set_condition(condition: u32) -> c_int {
    shared(|memory| Ok(memory.set_condition(condition)?))
}

/// See `kumi_dsm.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_dsm_reset_condition(condition: u32) -> c_int {
    shared(|memory| Ok(memory.reset_condition(condition)?))
}

/// See `kumi_dsm.h`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_dsm_wait_condition(condition: u32) -> c_int {
    shared(|memory| Ok(memory.wait_condition(condition)?))
}

/// See `kumi_dsm.h`.
///
/// # Safety
/// None needed: no byte is read or written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_dsm_bring(start: *const c_void, bytes: usize) -> c_int {
    shared(|memory| {
        check(start.cast::<u8>(), bytes, "start")?;
        let ends = [0, bytes.saturating_sub(1)].map(|at| start.cast::<u8>().wrapping_add(at));
        if bytes > 0 && !ends.iter().all(|end| memory.contains(*end)) {
            return Err(Code::Outside.into());
        }
        memory.bring(start.cast(), bytes)?;
        // Writable, too.
        let refused =
            |refusal: kumi_dsm::view::FaultRefusal| Failure::new(Code::Fault, refusal.to_string());
        system_calls::bring(start.cast(), bytes, Use::Writes).map(|_| ()).map_err(refused)
    })
}

/// See `kumi_dsm.h`.
///
/// # Safety
/// `name` points to a text that ends with a zero, `value` to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_dsm_statistics(name: *const c_char, value: *mut u64) -> c_int {
    shared(|memory| {
        required(value, "value")?;
        check(name, 1, "name")?;
        // SAFETY: not null; the caller promises the rest.
        let wanted = unsafe { CStr::from_ptr(name) };
        let Some(count) = counter(memory, wanted.to_bytes()) else {
            let text = format!("shared memory has no counter {wanted:?}");
            return Err(Failure::new(Code::Counter, text));
        };
        // SAFETY: promised by the caller.
        unsafe { store(value, count) }
    })
}
