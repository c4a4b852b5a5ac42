//! The parts of a segment that the models use, under their names in `kumi-net`.

use crate::sync::{AtomicU32, AtomicU64};

#[derive(Debug, Default)]
pub(crate) struct RingPosition(pub(crate) AtomicU64);

#[derive(Debug, Default)]
pub(crate) struct Sleep {
    pub(crate) sleeping: AtomicU32,
    pub(crate) wants_room: AtomicU32,
}

pub(crate) const WAIT_WORDS: usize = 2;

#[derive(Debug, Default)]
pub(crate) struct WaitPlace {
    pub(crate) changes: AtomicU64,
    pub(crate) words: [AtomicU64; WAIT_WORDS],
}

#[derive(Debug, Default)]
pub(crate) struct Wake {
    pub(crate) pending: [AtomicU64; 1],
}
