//! `read`, `write` and their like for programs with shared memory. The kernel takes no page faults, so a buffer in shared memory
//! would give `EFAULT`, a short count, or a lost datagram.
//!
//! The functions have the names of the C library's. A program that is linked with a library that holds this crate finds these
//! first. Each calls the next definition, and brings the pages of shared buffers before. Without shared memory that is all:
//! [`kumi_dsm::system_calls::is_shared`] is one load then.
//!
//! | module | what it holds |
//! |---|---|
//! | `next` | the C library's own functions |
//! | `buffers` | pages come before a call, and again if another thread's lock took them away |
//! | `plain`, `messages`, `streams` | the functions: by descriptor, by message, of `FILE` |
//!
//! They are for any thread, in handlers of signals too: nothing here takes a lock or memory.

mod buffers;
mod messages;
mod next;
mod plain;
mod streams;

pub use messages::{recv, recvfrom, recvmsg, send, sendmsg, sendto};
pub use plain::{pread, pread64, pwrite, pwrite64, read, readv, write, writev};
pub use streams::{fread, fwrite};
