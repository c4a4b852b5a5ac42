//! Unsafe foundation of the crate: the mailbox, system calls of processes, and calls of routines that are known only by
//! description. Everything else in this crate is safe code on top.

mod closure;
mod context;
mod end;
mod hosted;
mod library;
mod linked;
mod mailbox;
mod output;
mod pid_namespace;
mod process;
mod sandbox;

pub use closure::KEPT;
pub(crate) use closure::{open_callback_channel, routine_runs};
pub use context::show_context;
pub(crate) use end::{Ended, end_as, reap_ended};
pub use hosted::{CallbackResult, ClientFunction};
pub(crate) use library::Routine;
pub use library::{LoadError, check, run};
pub(crate) use linked::Runner;
pub use linked::{Hosted, Linked, LinkedRoutine, ended, main, main_with_jobs, table};
pub use mailbox::{Mailbox, SpinPolicy};
pub(crate) use output::{flush, print_by_lines};
pub(crate) use pid_namespace::{enter_pid_namespace, one_thread};
pub use process::{end_now, end_with_parent, exits_fail, leaves};
pub(crate) use process::{join_before_start, signal_if, start_unblocked};
pub(crate) use sandbox::{drop_capabilities, mount_read_only, mount_writable, mounts_read_only};

use kumi_call_wire::native::{Arena, receive_with_descriptor, send_with_descriptor};
