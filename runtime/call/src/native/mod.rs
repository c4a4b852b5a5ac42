//! Unsafe foundation of the crate: memory shared between processes, system calls on it, and calls of routines
//! that are known only by description. Everything else in this crate is safe code on top.

mod arena;
mod c_function;
mod closure;
mod copy;
mod descriptors;
mod end;
mod hosted;
mod library;
mod linked;
mod mailbox;
mod nontemporal;
mod output;
mod pid_namespace;
mod process;
mod sandbox;
mod socket;

pub use arena::Arena;
pub use c_function::CFunction;
pub(crate) use closure::{KEPT, passed};
pub use closure::{open_callback_channel, routine_runs};
pub(crate) use copy::{append, length_of, put, room_of};
pub(crate) use end::{Ended, end_as, reap, reap_ended};
pub use hosted::{CallbackResult, ClientFunction};
pub(crate) use library::check;
pub use library::{LoadError, Routine, run};
pub use linked::{Hosted, Linked, main, parallel_main};
pub(crate) use linked::{LinkedRoutine, Runner};
pub(crate) use mailbox::{Mailbox, SpinPolicy};
pub(crate) use output::{flush, print_by_lines};
pub(crate) use pid_namespace::enter_pid_namespace;
pub(crate) use process::{end_now, end_with_parent, exits_fail, leaves};
pub(crate) use sandbox::{drop_capabilities, mount_read_only, mount_writable, mounts_read_only};
#[cfg(test)]
pub(crate) use socket::open_process;
pub use socket::{Source, Target, receive_with_descriptor, send_with_descriptor};
pub(crate) use socket::{begins_with, peer_process, watch};

pub(crate) use socket::{read, read_with, write, write_with};
