//! Remote calls of routines: the server with its call slots, the metaserver, and clients.
//!
//! `kumi-rpc` defines the protocol, and `kumi-idl` the descriptions of routines. This crate has sockets, processes and memory.
//! See docs/guide/calling.md.
#![deny(unsafe_code)]

mod address;
mod callback;
mod cluster;
mod confine;
mod held;
mod layout;
#[allow(unsafe_code)]
mod lent;
#[allow(unsafe_code)]
mod native;
mod nearby;
mod pass;
mod random;
mod server_channel;
mod signed;
mod slot_protocol;
#[cfg(test)]
mod small_disk;
mod socket;
mod tcp;
mod tls;
mod values;
mod voucher;

pub mod client;
pub mod generator;
pub mod meta;
pub mod server;
pub mod shipped;
pub mod slot;
pub mod transaction;
pub mod users;

pub use client::{
    Arg, Array, ArrayMut, Call, CallError, CallWatch, Callback, CallbackArgs, Canceller, Client,
    FileArgument, Grid, GridCall, GridCanceller, KnownRoutine, Object, Options, Outcome, Remote,
    RemoteArray, RemoteCall, RemoteCanceller, Shape, WakeEvent, WakeEvents, is_given, wait_any,
};
pub use held::{HeldNames, Traffic};
pub use kumi_rpc::Value;
pub use lent::{LentBytes, LentBytesMut, Number};
pub use native::{CFunction, LoadError};
pub use tls::{Authorities, Tls, TlsError};
pub use values::GivenValues;
