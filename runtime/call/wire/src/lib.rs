//! What all ends of a call share: connections and TLS, memory that processes share or lend, and values in both forms.
//!
//! `kumi-rpc` defines the protocol, and `kumi-idl` the descriptions of routines. This crate has sockets and memory. It
//! is made for the other crates of calls; programs use `kumi-call-client`.
//!
//! - Feature `tls`: sessions of TLS, with rustls.
//! - Feature `server`: sockets under a runtime, and hashes of descriptions; what servers and metaservers need.
#![deny(unsafe_code)]

pub mod address;
pub mod callback;
pub mod context;
#[cfg(feature = "server")]
pub mod description;
pub mod gaps;
pub mod layout;
#[allow(unsafe_code)]
pub mod lent;
pub mod logs;
#[allow(unsafe_code)]
pub mod native;
pub mod nearby;
pub mod random;
#[cfg(feature = "server")]
pub mod socket;
pub mod state;
pub mod tcp;
pub mod tls;
pub mod values;
