//! What libfabric's headers declare, at version 1.17.

#![allow(non_camel_case_types, non_upper_case_globals, non_snake_case, missing_docs)]
#![allow(clippy::all, clippy::pedantic, clippy::undocumented_unsafe_blocks, unsafe_op_in_unsafe_fn)]

include!(concat!(env!("OUT_DIR"), "/libfabric.rs"));

/// `FI_ADDR_UNSPEC` and `FI_ADDR_NOTAVAIL`, which are casts in the header.
pub const NO_ADDRESS: u64 = u64::MAX;
/// `FI_KEY_NOTAVAIL`.
pub const NO_KEY: u64 = u64::MAX;

/// `FI_VERSION(major, minor)`.
#[must_use]
pub const fn version(major: u32, minor: u32) -> u32 {
    major << 16 | minor
}
