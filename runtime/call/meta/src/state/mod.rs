//! Stored state of a metaserver: in a file, or in etcd with several metaservers.

pub(super) mod etcd;
pub(super) mod persistence;
pub(super) mod store;
pub(super) mod term;
