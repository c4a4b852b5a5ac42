//! Declarations of libfabric from its headers.
fn main() {}
