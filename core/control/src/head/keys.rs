//! Keys of jobs, derived from the random seed of the head.

use kumi_sched::JobId;

use crate::message::SealKey;

/// Derives the keys of jobs.
pub(super) struct KeyGenerator {
    seed: [u8; 32],
}

impl KeyGenerator {
    pub(super) fn new(seed: [u8; 32]) -> Self {
        Self { seed }
    }

    /// A job's channel key, and the key with which its packets are encrypted if they are. They
    /// differ for every job, and neither can be computed from the other or from those of other jobs.
    pub(super) fn derive(&self, id: JobId, token: u128, wall_ms: u64) -> (u64, SealKey) {
        let mut hasher = blake3::Hasher::new_keyed(&self.seed);
        hasher.update(&id.0.to_le_bytes());
        hasher.update(&token.to_le_bytes());
        hasher.update(&wall_ms.to_le_bytes());
        let hash = hasher.finalize();
        let (mut channel, mut seal) = ([0; 8], [0; 16]);
        channel.copy_from_slice(&hash.as_bytes()[..8]);
        seal.copy_from_slice(&hash.as_bytes()[16..]);
        (u64::from_le_bytes(channel), SealKey(seal))
    }

    /// A number by which this head differs from all before it. It says nothing of the keys.
    pub(super) fn head_number(&self) -> u32 {
        let hash = blake3::Hasher::new_keyed(&self.seed).update(b"head").finalize();
        let mut number = [0; 4];
        number.copy_from_slice(&hash.as_bytes()[..4]);
        u32::from_le_bytes(number)
    }
}
