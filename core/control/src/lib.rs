//! Membership, job life and the control tree as pure state machines.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod message;
