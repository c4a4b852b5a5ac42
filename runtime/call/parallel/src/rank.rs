//! Rank of a parallel routine's job: rank 0 gets orders from the proxy, and all ranks carry them out.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kumi_idl::Interface;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{MsgFlags, recv};

use super::rank_connection::{Key, RankConnection, pieces};
use super::{ArgumentPart, RankLibrary, Setup, VARIABLE, places};
use crate::layout::Slot;
use crate::native::{Linked, LinkedRoutine, end_now, show_context};
use crate::slot_protocol::{CallContext, MOST, Order, Reply};
use kumi_call_wire::context::monotonic_ns;
use kumi_call_wire::native::Arena;

/// Milliseconds between checks of the connection to the proxy.
const LOOK: u16 = 200;

/// Serves calls until the proxy closes the connection.
///
/// # Errors
/// An error message. The process must end then, and with it the job.
pub(crate) fn run(routines: &[Linked], ranks: &dyn RankLibrary) -> Result<(), String> {
    // Before there are other threads.
    show(&CallContext::default())?;
    let rank = ranks.join()?;
    let busy = Arc::new(AtomicBool::new(true));
    let (mut link, mut first) = (None, Vec::new());
    if rank == 0 {
        let (connected, message) = connect()?;
        first = message;
        let stream = connected.stream().map_err(lost)?;
        let busy = Arc::clone(&busy);
        std::thread::spawn(move || watch(&stream, &busy));
        link = Some(connected);
    }
    let setup = shared(ranks, first)?;
    if setup.is_empty() {
        return ranks.leave();
    }
    let setup: Setup = serde_json::from_slice(&setup).map_err(|error| error.to_string())?;
    let interface =
        Interface::from_json(setup.interface.as_bytes()).map_err(|error| error.to_string())?;
    let described = setup.interface.as_bytes();
    let routine = routines.iter().find(|routine| routine.description() == described);
    let routine = routine.ok_or("the job runs another executable than its server")?;
    let routine = LinkedRoutine::new(routine, &interface)?;
    limit(&setup)?;
    loop {
        busy.store(false, Ordering::SeqCst);
        let order = next(&mut link, MOST)?;
        busy.store(!order.is_empty(), Ordering::SeqCst);
        let order = shared(ranks, order)?;
        if order.is_empty() {
            return ranks.leave();
        }
        let decoded = decode(&order).filter(|(_, slots, _)| slots.len() >= interface.params.len());
        let (bytes, slots, context) = decoded.ok_or("an order of another version")?;
        show(&of_this_machine(context)?)?;
        let arena = Arena::new(bytes).map_err(|error| format!("no memory: {error}"))?;
        arguments(&interface, &slots, &arena, ranks, &mut link)?;
        let begin = Instant::now();
        routine.call(&arena, &slots);
        ranks.barrier()?;
        show(&CallContext::default())?;
        if let Some(link) = &mut link {
            let took = u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX);
            link.send(&Reply::Done(took).encode()).map_err(lost)?;
            for slot in places(&interface, &slots, ArgumentPart::Results) {
                link.give(&arena, slot).map_err(lost)?;
            }
        }
    }
}

#[allow(clippy::needless_pass_by_value)] // What `map_err` gives.
fn lost(error: io::Error) -> String {
    format!("the connection to the server is lost: {error}")
}

/// Connects to the proxy, whose first message proves that it knows the key.
fn connect() -> Result<(RankConnection, Vec<u8>), String> {
    let said = std::env::var(VARIABLE).unwrap_or_default();
    let parsed = said.split_once(' ').and_then(|(address, digits)| {
        Some((address, Key::from(blake3::Hash::from_hex(digits).ok()?)))
    });
    let (address, key) = parsed.ok_or("its environment does not say where the server is")?;
    RankConnection::connect(address, &key).map_err(|error| {
        format!("the server cannot be reached from this node at {address}: {error}")
    })
}

/// Ends this process after the proxy has gone: at once during a call, otherwise after a time to end by
/// itself.
fn watch(stream: &std::net::TcpStream, busy: &AtomicBool) {
    // With a time limit: a routine may close this descriptor, and the connection closes only if no thread
    // waits on it.
    while is_open(stream) {}
    for _ in 0..50 {
        if busy.load(Ordering::SeqCst) {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    end_now();
}

/// Waits a little. Returns whether the connection is still open.
fn is_open(stream: &std::net::TcpStream) -> bool {
    let mut watched = [PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
    if !matches!(poll(&mut watched, LOOK), Ok(_) | Err(Errno::EINTR)) {
        return false;
    }
    let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
    match recv(stream.as_raw_fd(), &mut [0], flags) {
        // The other thread reads the input.
        Ok(1..) => {
            std::thread::sleep(Duration::from_millis(20));
            true
        }
        // A signal of the routine, or no event.
        Err(Errno::EINTR | Errno::EAGAIN) => true,
        Ok(0) | Err(_) => false,
    }
}

/// The proxy's next message, at rank 0. Empty at the end.
fn next(link: &mut Option<RankConnection>, most: usize) -> Result<Vec<u8>, String> {
    match link {
        Some(link) => Ok(link.receive(most).map_err(lost)?.unwrap_or_default()),
        None => Ok(Vec::new()),
    }
}

/// Copies bytes of rank 0 to all ranks.
fn shared(ranks: &dyn RankLibrary, mut bytes: Vec<u8>) -> Result<Vec<u8>, String> {
    let mut length = (bytes.len() as u64).to_le_bytes();
    ranks.broadcast(&mut length)?;
    let length = usize::try_from(u64::from_le_bytes(length)).map_err(|error| error.to_string())?;
    bytes.resize(length, 0);
    if length > 0 {
        ranks.broadcast(&mut bytes)?;
    }
    Ok(bytes)
}

/// Shows the context of a call to the routine.
fn show(context: &CallContext) -> Result<(), String> {
    show_context(context).map_err(|error| format!("the call's context cannot be shown: {error}"))
}

/// The context, in which the order says how much time is left, by the clock of this machine.
fn of_this_machine(context: CallContext) -> Result<CallContext, String> {
    let now = monotonic_ns().map_err(|error| error.to_string())?;
    let deadline_ns = context.deadline_ns.map(|left| now.saturating_add(left));
    Ok(CallContext { deadline_ns, ..context })
}

/// Decodes an order to run: the bytes of memory, the places inside it, and the call's context.
fn decode(order: &[u8]) -> Option<(usize, Vec<Slot>, CallContext)> {
    let (bytes, order) = order.split_first_chunk()?;
    let bytes = usize::try_from(u64::from_le_bytes(*bytes)).ok()?;
    let Order::RunWithin(_, _, slots, context) = Order::decode(order)? else { return None };
    let inside = |slot: &Slot| slot.offset.checked_add(slot.bytes).is_some_and(|end| end <= bytes);
    slots.iter().all(inside).then_some((bytes, slots, context))
}

/// Copies the arguments to their places: small ones at all ranks, arrays as the description says.
fn arguments(
    interface: &Interface,
    slots: &[Slot],
    arena: &Arena,
    ranks: &dyn RankLibrary,
    link: &mut Option<RankConnection>,
) -> Result<(), String> {
    for part in [ArgumentPart::Small, ArgumentPart::Arrays] {
        for slot in places(interface, slots, part) {
            if let Some(link) = link {
                link.take(arena, slot).map_err(lost)?;
            }
        }
    }
    for part in [ArgumentPart::Small, ArgumentPart::Broadcast] {
        for slot in places(interface, slots, part) {
            for (offset, length) in pieces(slot) {
                let mut bytes = arena.read(offset, length);
                ranks.broadcast(&mut bytes)?;
                arena.write(offset, &bytes);
            }
        }
    }
    Ok(())
}

/// Sets the server's limits. The memory that the ranks' library has mapped does not count.
fn limit(setup: &Setup) -> Result<(), String> {
    let failed = |what: &str, why: String| format!("the limit of {what} cannot be set: {why}");
    // A core file would contain the caller's data.
    setrlimit(Resource::RLIMIT_CORE, 0, 0).map_err(|errno| failed("cores", errno.to_string()))?;
    let files = getrlimit(Resource::RLIMIT_NOFILE)
        .and_then(|(soft, hard)| setrlimit(Resource::RLIMIT_NOFILE, setup.files.min(soft), hard));
    files.map_err(|errno| failed("open files", errno.to_string()))?;
    if setup.memory == 0 {
        return Ok(());
    }
    let said = std::fs::read_to_string("/proc/self/statm")
        .map_err(|error| failed("memory", error.to_string()))?;
    let pages: Option<u64> = said.split(' ').next().and_then(|pages| pages.parse().ok());
    let pages = pages.ok_or_else(|| failed("memory", "the mapped memory is unknown".to_owned()))?;
    let most = setup.memory.saturating_add(pages.saturating_mul(4096));
    setrlimit(Resource::RLIMIT_AS, most, most).map_err(|errno| failed("memory", errno.to_string()))
}
