//! Several metaservers with their state in etcd, of which one leads: see [`kumi_etcd`].

mod store;
#[cfg(test)]
mod tests;

use kumi_call_wire::state::LeaderState;
pub use kumi_etcd::{Candidate, Etcd, EtcdError, Leadership, Session};
pub use store::{EtcdStore, WriteWatch, Writer};

/// What readers see of leadership, while so many grants wait for their write.
pub fn leader_state(leadership: &Leadership, unkept: usize) -> LeaderState {
    let figures = &leadership.figures;
    LeaderState {
        leading: leadership.leads(),
        address: leadership.leader(),
        requests: figures.requests.get(),
        errors: figures.errors.get(),
        mean: figures.time.get().as_secs_f64() / figures.answers.get().max(1) as f64,
        longest: figures.longest.get().as_secs_f64(),
        unkept,
        trouble: figures.trouble().unwrap_or_default(),
    }
}
