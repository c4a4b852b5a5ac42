//! The monitor's arithmetic: from counts of looks to loads, from loads to rows of history, and from rows to bytes.
//!
//! A node's daemon looks at the idle flag of each rank and counts ([`tracker`] has the differences of two counts). The head
//! makes a [`Row`] of the loads each second, means of rows ([`fold`]) for longer times, and keeps all of them in a file of
//! fixed size ([`ring`]). Nothing here knows a socket, a clock or a file.
#![no_std]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod fold;
pub mod ring;
mod row;
pub mod slot;
pub mod tracker;

pub use row::{JobRow, NodeCell, Row, UNKNOWN};
