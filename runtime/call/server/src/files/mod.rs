//! Files of calls: their folders, and the removal of these.

pub(super) mod folder_removal;
pub(super) mod scratch;
