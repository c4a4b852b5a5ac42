//! Registered servers and their routines.

pub(super) mod catalogue;
pub(super) mod members;
