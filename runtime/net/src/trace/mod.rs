//! What a rank records of itself while its job is traced: page requests, locks, barriers and messages.
//!
//! Each rank writes events of 32 bytes into a ring of its own, in a memory file that its daemon made. The file outlives the
//! rank, however that ends. The daemon reads it as it reads all that ranks write: anything can be in it. Without a trace
//! there is no file, and recording is a question for a null pointer. `docs/reference/trace.md` has the bytes.

mod descriptor;
mod layout;
mod reader;
mod recorder;

#[cfg(test)]
mod tests;

pub use descriptor::{RING, TraceDescriptor};
pub use layout::{FEWEST_EVENTS, MOST_ALLOCATIONS, MOST_EVENTS, NAME_BYTES, ring_bytes};
pub use reader::{RingReading, TraceRing, TracedAllocation};
pub use recorder::{Span, Tracer};

/// Stands for no rank in [`Event::peer`].
pub const NO_PEER: u32 = u32::MAX;

/// Kinds with their numbers in the ring.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $number:literal,)*) => {
        /// What happened.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum EventKind {
            $($(#[$doc])* $kind = $number,)*
        }

        impl EventKind {
            /// The kind with this number, if there is one.
            #[must_use]
            pub fn from_number(number: u8) -> Option<EventKind> {
                match number {
                    $($number => Some(EventKind::$kind),)*
                    _ => None,
                }
            }
        }
    };
}

kinds! {
    /// Pages came from another node: the first one, how many, the rank that is their home, and how long it took.
    Fetch = 1,
    /// A page was touched of which the node had a new enough copy.
    Found = 2,
    /// Pages that this rank has written since it last released something: the first one and how many.
    Written = 3,
    /// Changes of a page were sent home: the page, bytes of changes, the home.
    Diff = 4,
    /// The rank waited until its diffs were in place: how many, how long.
    Flush = 5,
    /// A lock was taken: its number, how long the rank waited.
    Lock = 6,
    /// A lock was given back: its number.
    Unlock = 7,
    /// A barrier with effect on memory: its number at this rank, how long the rank waited.
    Barrier = 8,
    /// A barrier without effect on memory: the same.
    Wait = 9,
    /// A condition was set: its number.
    SetCondition = 10,
    /// A condition was waited for: its number, how long.
    WaitCondition = 11,
    /// Pages became stale at an acquire: how many.
    Stale = 12,
    /// A message of shared memory left: the rank it goes to, its number among those to that rank, its bytes.
    Send = 13,
    /// A message of shared memory came: the rank it is from, its number among those from that rank, its bytes.
    Receive = 14,
    /// The program sent a message: the rank it goes to, its bytes, how long the call took.
    ProgramSend = 15,
    /// The program received a message: the rank it is from, its bytes, how long the call took.
    ProgramReceive = 16,
}

/// An event of a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// When it began: nanoseconds on the machine's monotonic clock.
    pub time: u64,
    /// How long it took, in nanoseconds.
    pub duration: u64,
    /// What it is.
    pub kind: EventKind,
    /// The thread, by the order in which the threads of the process recorded their first event, modulo 256.
    pub thread: u8,
    /// The other rank, or [`NO_PEER`].
    pub peer: u32,
    /// Number of the page, lock, condition, barrier or message.
    pub object: u32,
    /// Pages, bytes or diffs, as the kind says.
    pub amount: u32,
}
