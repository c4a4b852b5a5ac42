//! Sites and the measured paths between them.

pub(super) mod names;
pub(super) mod paths;
pub(super) mod sites;
