//! Several metaservers with their state in etcd, of which one leads: see [`kumi_etcd`].

mod store;
#[cfg(test)]
mod tests;

pub use kumi_etcd::{Candidate, Etcd, EtcdError, Leadership, Session};
pub use store::{EtcdStore, WriteWatch, Writer};
