//! What the compiler cannot check: memory that two processes map, system calls on it, and calls of routines that are
//! known by their description only. Everything else of this crate is safe code on top of it.

mod arena;
mod closure;
mod library;
mod socket;

pub use arena::Arena;
pub use closure::{open_line, routine_runs};
pub(crate) use library::check;
pub use library::{LoadError, Routine};
pub(crate) use socket::watch;
pub use socket::{Source, Target, receive_with_descriptor, send_with_descriptor};

pub(crate) use socket::{read, write};
