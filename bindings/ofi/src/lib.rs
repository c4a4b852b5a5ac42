//! `libkumi-fi.so`: a provider by which programs of libfabric, and so stock MPI, use channels.

pub mod completion_queue;
pub mod counter;
pub mod engine;
mod errno;
pub mod operation;
