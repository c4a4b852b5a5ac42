//! Calling routines over the network: the server with its call slots, and clients.
//!
//! What goes over the connection is `kumi-rpc`'s, what a routine takes and gives `kumi-idl`'s; here are sockets,
//! processes and memory. See docs/calls.md.
#![deny(unsafe_code)]

mod callback;
mod layout;
#[allow(unsafe_code)]
mod lent;
#[allow(unsafe_code)]
mod native;
mod protocol;
mod values;

pub mod client;
pub mod server;
pub mod slot;

pub use client::{
    Arg, Array, ArrayMut, Call, CallError, Callback, CallbackArgs, Client, Files, Known, Options,
    Outcome, Shape, is_given, wait_any,
};
pub use lent::{Lent, LentMut, Number};
pub use native::LoadError;
pub use values::Given;
