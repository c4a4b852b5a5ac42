//! Unsafe foundation of calls: memory shared between processes, and system calls on it. What is built on it is safe code,
//! up to the calls of routines in a slot.

mod arena;
mod copy;
mod descriptors;
mod nontemporal;
mod socket;

pub use arena::Arena;
pub use copy::{append, length_of, put, room_of};
#[cfg(feature = "server")]
pub use socket::watch;
pub use socket::{
    Source, Target, begins_with, open_process, peer_process, read, read_with,
    receive_with_descriptor, send_with_descriptor, write, write_with,
};
