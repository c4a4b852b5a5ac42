//! What stands for etcd in a metaserver without it, which is the only one.

use kumi_call_wire::state::LeaderState;

/// Leadership among several metaservers. There is none.
#[derive(Debug)]
pub enum Leadership {}

impl Leadership {
    /// As with etcd.
    pub fn leads(&self) -> bool {
        match *self {}
    }

    /// As with etcd.
    pub fn leader(&self) -> String {
        match *self {}
    }
}

/// As with etcd.
pub fn leader_state(leadership: &Leadership, _: usize) -> LeaderState {
    match *leadership {}
}
