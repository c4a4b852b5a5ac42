//! Stored state of a metaserver: in a file, or in etcd with several metaservers. Without the features `sqlite` and `etcd` there is none.
#![cfg_attr(
    not(any(feature = "sqlite", feature = "etcd")),
    expect(dead_code, reason = "there is no store")
)]

#[cfg(feature = "etcd")]
pub(super) mod etcd;
#[cfg(not(feature = "etcd"))]
#[path = "without_etcd.rs"]
pub(super) mod etcd;
pub(super) mod persistence;
pub(super) mod store;
#[cfg(feature = "etcd")]
pub(super) mod term;
