//! The call of MPI in which a thread waits: what the verdict on its job has to know.
//!
//! MPI libraries wait by reading queues over and over, and a program that tests for a message does the same. The difference is
//! on the stack: a call that blocks reads until its message has come. So a thread that has read nothing for long looks at its
//! own stack, once for each wait, for calls of MPI that cannot return before.

use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::sync::atomic::{AtomicU32, Ordering};

use kumi_mem::{CallName, Description, WaitKind};
use kumi_messaging::Unfinished;
use kumi_messaging::matching::Pattern;

/// Frames that are looked at.
const FRAMES: usize = 64;

/// Calls that return only when what they are for has happened. All others may return at any time.
const BLOCKING: [&str; 43] = [
    "Allgather",
    "Allgatherv",
    "Allreduce",
    "Alltoall",
    "Alltoallv",
    "Alltoallw",
    "Barrier",
    "Bcast",
    "Comm_create",
    "Comm_create_group",
    "Comm_dup",
    "Comm_dup_with_info",
    "Comm_free",
    "Comm_split",
    "Comm_split_type",
    "Exscan",
    "Finalize",
    "Gather",
    "Gatherv",
    "Intercomm_create",
    "Intercomm_merge",
    "Mprobe",
    "Neighbor_allgather",
    "Neighbor_allgatherv",
    "Neighbor_alltoall",
    "Neighbor_alltoallv",
    "Probe",
    "Recv",
    "Reduce",
    "Reduce_scatter",
    "Reduce_scatter_block",
    "Rsend",
    "Scan",
    "Scatter",
    "Scatterv",
    "Send",
    "Sendrecv",
    "Sendrecv_replace",
    "Ssend",
    "Wait",
    "Waitall",
    "Waitany",
    "Waitsome",
];

/// The level of threads at which any thread may call MPI at any time.
const MULTIPLE: c_int = 3;
/// Not asked yet.
const UNKNOWN: u32 = u32::MAX;
static LEVEL: AtomicU32 = AtomicU32::new(UNKNOWN);

/// A call that blocks, and where the program goes on after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BlockingCall {
    name: CallName,
    address: u64,
}

thread_local! {
    /// The last wait in a call that blocks, by its number, and the call.
    static SEEN: Cell<Option<(u64, BlockingCall)>> = const { Cell::new(None) };
}

/// The name of a call of MPI in a symbol: `PMPI_Recv`, `mpi_recv_`. The first letter of the rest is a capital.
fn call_of(symbol: &str) -> Option<String> {
    // Open MPI's MPI_Finalize jumps there, and leaves no frame of its own.
    if symbol == "ompi_mpi_finalize" {
        return Some("Finalize".to_owned());
    }
    let rest = symbol.strip_prefix("PMPI_").or_else(|| symbol.strip_prefix("MPI_"));
    if let Some(rest) = rest {
        return Some(rest.trim_end_matches("_c").to_owned());
    }
    let rest = symbol.strip_prefix("pmpi_").or_else(|| symbol.strip_prefix("mpi_"))?;
    let rest = rest.trim_end_matches("__").trim_end_matches('_').trim_end_matches("_f08");
    let mut letters = rest.chars();
    let first = letters.next()?.to_ascii_uppercase();
    Some(core::iter::once(first).chain(letters).collect())
}

/// The outermost call of MPI among symbols, which begin with the innermost frame, and its place; none if there is none or one
/// of them may return at any time.
fn outermost<'s>(symbols: impl Iterator<Item = Option<&'s str>>) -> Option<(usize, String)> {
    let mut found = None;
    for (place, symbol) in symbols.enumerate() {
        let Some(call) = symbol.and_then(call_of) else { continue };
        if !BLOCKING.contains(&&*call) {
            return None;
        }
        found = Some((place, call));
    }
    found
}

/// The symbol of an exported function that has this address.
fn symbol(address: *mut c_void) -> Option<&'static str> {
    // SAFETY: an all-zero value is valid, and is filled in if the call says so.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: any address may be asked for.
    let found = unsafe { libc::dladdr(address, &raw mut info) };
    if found == 0 || info.dli_sname.is_null() {
        return None;
    }
    // SAFETY: a name that ends with 0, in an object that is on this thread's stack and so stays loaded.
    unsafe { CStr::from_ptr(info.dli_sname) }.to_str().ok()
}

/// The call of MPI that this thread is in, if it cannot return before what it waits for has happened.
fn look() -> Option<BlockingCall> {
    let mut frames = [std::ptr::null_mut(); FRAMES];
    // SAFETY: it writes at most so many addresses.
    let count = unsafe { libc::backtrace(frames.as_mut_ptr(), FRAMES as c_int) };
    let frames = frames.get(..usize::try_from(count).ok()?)?;
    let (place, call) = outermost(frames.iter().map(|frame| symbol(*frame)))?;
    let address = frames.get(place + 1).map_or(0, |frame| frame.addr() as u64);
    Some(BlockingCall { name: CallName::new(&format!("MPI_{call}")), address })
}

/// Whether this thread is in a call that blocks.
#[must_use]
pub fn blocks() -> bool {
    look().is_some()
}

/// Whether other threads of the program may call MPI meanwhile. It is asked in calls that block, so MPI is initialised.
fn others_may_call(call: &str) -> bool {
    // All others have made their last call then, says MPI's standard. It also takes no questions any more.
    if call == "MPI_Finalize" {
        return false;
    }
    let known = LEVEL.load(Ordering::Relaxed);
    if known != UNKNOWN {
        return known >= MULTIPLE as u32;
    }
    // SAFETY: a name that ends with 0.
    let place = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"MPI_Query_thread".as_ptr()) };
    if place.is_null() {
        return true;
    }
    // SAFETY: MPI's standard says what this function is.
    let ask: unsafe extern "C" fn(*mut c_int) -> c_int = unsafe { std::mem::transmute(place) };
    let mut level = MULTIPLE;
    // SAFETY: MPI is initialised and not at its end, and any thread may ask at any time between.
    let failed = unsafe { ask(&raw mut level) } != 0;
    let level = u32::try_from(level).ok().filter(|_| !failed).unwrap_or(MULTIPLE as u32);
    LEVEL.store(level, Ordering::Relaxed);
    level >= MULTIPLE as u32
}

/// Bits of a tag: Open MPI and MPICH keep the program's own in the lowest 31, and the communicator's above.
const TAG_BITS: u32 = 31;

/// Describes the wait of this thread, which has read nothing for long, if it is in a call that blocks. `events`: how often
/// something has ended for the process.
pub fn describe(events: u64, unfinished: Unfinished) -> Option<Description> {
    // Whatever ends a wait or follows it changes one of them.
    let number = events.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ unfinished.posted;
    let seen = SEEN.get().filter(|(seen, _)| *seen == number);
    let call = seen.map(|(_, call)| call).or_else(look);
    SEEN.set(call.map(|call| (number, call)));
    let BlockingCall { name, address } = call?;
    let alone = !others_may_call(name.as_str());
    let plain =
        Description { call: name, address, alone, number: Some(number), ..Description::default() };
    Some(match awaited(name.as_str(), &unfinished) {
        Awaited::Receive(pattern) => {
            let mask = (1 << TAG_BITS) - 1;
            Description {
                kind: WaitKind::MpiReceive,
                peer: pattern.source.map(|source| source.rank),
                what: (pattern.ignore & mask == 0).then_some(pattern.tag & mask),
                ..plain
            }
        }
        Awaited::Send(peer) => Description { kind: WaitKind::MpiSend, peer: Some(peer), ..plain },
        Awaited::End => Description { kind: WaitKind::MpiFinalize, ..plain },
        Awaited::Unknown => Description { kind: WaitKind::Mpi, ..plain },
    })
}

/// What a call waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Awaited {
    /// A message that this takes.
    Receive(Pattern),
    /// That this rank receives a message.
    Send(u32),
    /// The end of all ranks.
    End,
    Unknown,
}

/// What this call waits for, of all that is not over. A call that waits for one of several says no rank: it may be another one's.
fn awaited(call: &str, unfinished: &Unfinished) -> Awaited {
    let Unfinished { first_receive, last_receive, searched, send, count, .. } = *unfinished;
    let receive = match call {
        "MPI_Finalize" => return Awaited::End,
        "MPI_Probe" | "MPI_Mprobe" => searched,
        "MPI_Send" | "MPI_Ssend" | "MPI_Rsend" => None,
        "MPI_Recv" | "MPI_Sendrecv" | "MPI_Sendrecv_replace" => last_receive,
        wait if wait.starts_with("MPI_Wait") => {
            if count > 1 {
                return Awaited::Unknown;
            }
            first_receive
        }
        // Collective calls post their own receives, after those of the program.
        _ => last_receive,
    };
    let send = send.filter(|_| !matches!(call, "MPI_Recv" | "MPI_Probe" | "MPI_Mprobe"));
    let receive = receive.map(Awaited::Receive);
    receive.or(send.map(Awaited::Send)).unwrap_or(Awaited::Unknown)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_messaging::Address;

    #[test]
    fn calls_are_known_by_all_their_symbols() {
        for symbol in
            ["MPI_Recv", "PMPI_Recv", "mpi_recv_", "pmpi_recv__", "mpi_recv", "MPI_Recv_c"]
        {
            assert_eq!(call_of(symbol).as_deref(), Some("Recv"), "{symbol}");
        }
        assert_eq!(call_of("mpi_sendrecv_replace_").as_deref(), Some("Sendrecv_replace"));
        assert_eq!(call_of("ompi_mpi_finalize").as_deref(), Some("Finalize"));
        for symbol in ["main", "opal_progress", "ompi_mtl_ofi_progress", "MPIDI_progress_test"] {
            assert_eq!(call_of(symbol), None, "{symbol}");
        }
    }

    #[test]
    fn only_calls_that_block_count() {
        let stack = |symbols: &[&'static str]| {
            outermost(symbols.iter().map(|symbol| (!symbol.is_empty()).then_some(*symbol)))
        };
        let found = stack(&["fi_cq_read", "opal_progress", "", "PMPI_Recv", "main"]);
        assert_eq!(found, Some((3, "Recv".to_owned())));
        let nested = stack(&["opal_progress", "MPI_Recv", "MPI_Bcast", "main"]);
        assert_eq!(nested, Some((2, "Bcast".to_owned())));
        assert_eq!(stack(&["opal_progress", "MPI_Test", "main"]), None);
        assert_eq!(stack(&["opal_progress", "MPI_Wait", "MPI_Test", "main"]), None);
        assert_eq!(stack(&["opal_progress", "main"]), None);
    }

    #[test]
    fn calls_wait_for_what_they_have_begun() {
        let from =
            |rank| Pattern { source: Some(Address { rank, endpoint: 0 }), tag: 5, ignore: 0 };
        let all = Unfinished {
            first_receive: Some(from(1)),
            last_receive: Some(from(2)),
            searched: Some(from(3)),
            send: Some(4),
            count: 3,
            posted: 9,
        };
        let of = |call: &str| awaited(call, &all);
        assert_eq!(of("MPI_Waitall"), Awaited::Unknown, "of three");
        assert_eq!(of("MPI_Barrier"), Awaited::Receive(from(2)), "its own, not an earlier one");
        assert_eq!(of("MPI_Recv"), Awaited::Receive(from(2)));
        assert_eq!(of("MPI_Probe"), Awaited::Receive(from(3)));
        assert_eq!(of("MPI_Send"), Awaited::Send(4));
        assert_eq!(of("MPI_Wait"), Awaited::Unknown, "for one of three");
        assert_eq!(of("MPI_Finalize"), Awaited::End);
        let sends = Unfinished { send: Some(4), count: 1, ..Unfinished::default() };
        assert_eq!(awaited("MPI_Wait", &sends), Awaited::Send(4));
        assert_eq!(awaited("MPI_Recv", &sends), Awaited::Unknown);
    }

    #[test]
    fn this_thread_is_in_no_call_of_mpi() {
        assert_eq!(look(), None);
        assert!(describe(1, Unfinished::default()).is_none());
    }
}
