//! Layout of the file of history: a header, then a ring of slots for each resolution. A row's time gives its slot, so nothing
//! has to be remembered of where the ring ends, and a restarted head goes on as if it had always run.

use alloc::vec::Vec;

use crate::slot::NODE;

/// The resolutions: seconds of a slot, and slots. 10 minutes, 2 hours and 24 hours.
pub const LEVELS: [Level; 3] = [
    Level { seconds: 1, slots: 600 },
    Level { seconds: 10, slots: 720 },
    Level { seconds: 60, slots: 1440 },
];

/// Bytes of the header.
pub const HEADER: usize = 32;
/// First bytes of the file.
const MAGIC: [u8; 8] = *b"kumihist";
/// Version of the layout and of the slots.
const VERSION: u32 = 1;
/// Most nodes of a cluster.
const MOST_NODES: u32 = 4096;
/// Bytes of a slot beside those for nodes.
const SLOT: usize = 4096;

/// One resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Seconds that a slot stands for.
    pub seconds: u64,
    /// How many there are.
    pub slots: u64,
}

impl Level {
    /// Seconds that it remembers.
    #[must_use]
    pub fn reach(self) -> u64 {
        self.seconds * self.slots
    }

    /// When the slot begins that has this second.
    #[must_use]
    pub fn begin(self, at_s: u64) -> u64 {
        at_s - at_s % self.seconds
    }
}

/// Why a file is not the history of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RingError {
    /// Another kind of file, or another version.
    #[error("its header is not that of a history of this version")]
    Header,
    /// A cluster with another number of nodes, or one that was cut off.
    #[error("its size is another than that of the history of this cluster")]
    Size,
}

/// Places of a cluster's slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingLayout {
    slot: usize,
}

impl RingLayout {
    /// For a cluster with so many nodes.
    #[must_use]
    pub fn new(nodes: u32) -> Self {
        let nodes = usize::try_from(nodes).unwrap_or(usize::MAX);
        Self { slot: SLOT.saturating_add(nodes.saturating_mul(NODE)) }
    }

    /// What a header says: the layout of a cluster with another number of nodes, too. `None` if it is no header of this version,
    /// or of more nodes than a cluster has.
    #[must_use]
    pub fn of_header(header: &[u8]) -> Option<Self> {
        let at = MAGIC.len() + 4;
        let slot = header.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)?;
        let layout = Self { slot: usize::try_from(slot).ok()? };
        let fits = (SLOT..=Self::new(MOST_NODES).slot).contains(&layout.slot);
        (fits && layout.header() == header).then_some(layout)
    }

    /// Bytes of a slot.
    #[must_use]
    pub fn slot_bytes(self) -> usize {
        self.slot
    }

    /// Bytes of the file.
    #[must_use]
    pub fn bytes(self) -> u64 {
        let slots: u64 = LEVELS.iter().map(|level| level.slots).sum();
        HEADER as u64 + slots * self.slot as u64
    }

    /// Where the slot begins that a resolution has for this second.
    #[must_use]
    pub fn offset(self, level: usize, at_s: u64) -> u64 {
        let before: u64 = LEVELS.iter().take(level).map(|level| level.slots).sum();
        let within = LEVELS.get(level).map_or(0, |level| at_s / level.seconds % level.slots);
        HEADER as u64 + (before + within) * self.slot as u64
    }

    /// The header.
    #[must_use]
    pub fn header(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER);
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&u32::try_from(self.slot).unwrap_or(u32::MAX).to_le_bytes());
        let sum = blake3::hash(&bytes);
        bytes.extend_from_slice(&sum.as_bytes()[..HEADER - bytes.len()]);
        bytes
    }

    /// Checks the header and the size of a file.
    ///
    /// # Errors
    /// It is not the history of a cluster of this size.
    pub fn check(self, header: &[u8], bytes: u64) -> Result<(), RingError> {
        if header.get(..MAGIC.len() + 4) != self.header().get(..MAGIC.len() + 4) {
            return Err(RingError::Header);
        }
        if bytes != self.bytes() || header != self.header() {
            return Err(RingError::Size);
        }
        Ok(())
    }
}
