//! Routines that a server offers, the programs that run them, and the check whether they can be loaded.

pub(super) mod jobs;
pub(super) mod loadable;
pub(super) mod program;
pub(super) mod registry;
