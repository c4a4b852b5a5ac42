//! Routines that a server offers, and the programs that run them.

pub(super) mod program;
pub(super) mod registry;
