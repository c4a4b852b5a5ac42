//! Memory that the ranks of a node share: rings of records, doorbells, idle flags.

pub(crate) mod doorbell;
pub(crate) mod idle_flag;
#[cfg_attr(miri, path = "../miri/mapping.rs")]
pub(crate) mod mapping;
pub(crate) mod ring;
pub(crate) mod wait_place;
