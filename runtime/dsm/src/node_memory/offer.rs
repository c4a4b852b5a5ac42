//! What a rank tells the others of its node so that they open its memory.

/// First bytes of an encoded offer: other bytes are none, or of another version.
const MAGIC: [u8; 4] = *b"kdm1";

/// Where the files of a node's memory are: numbers of descriptors in a process. Made by [`super::NodeMemory::offer`]; the
/// caller brings it to the other ranks of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Offer {
    /// Process that has them open.
    pub pid: u32,
    /// Descriptors of copy, twin and table there.
    pub fds: [i32; 3],
    /// Bytes of the shared memory.
    pub bytes: u64,
    /// Bytes of a unit.
    pub unit: u32,
}

/// Bytes that are no offer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "{length} bytes are no offer of a node's memory; all ranks of a job need the same version of the library"
)]
pub struct OfferError {
    /// How many bytes there were.
    pub length: usize,
}

impl Offer {
    /// Bytes of an encoded offer.
    pub const BYTES: usize = 32;

    /// The offer as bytes: `kdm1`, then process, the three descriptors, unit (32 bits each) and bytes (64 bits), all little-endian.
    #[must_use]
    pub fn encode(&self) -> [u8; Offer::BYTES] {
        let mut bytes = [0; Offer::BYTES];
        let [copy, twin, table] = self.fds.map(i32::to_le_bytes);
        let words = [MAGIC, self.pid.to_le_bytes(), copy, twin, table, self.unit.to_le_bytes()];
        let (head, size) = bytes.split_at_mut(24);
        head.copy_from_slice(words.as_flattened());
        size.copy_from_slice(&self.bytes.to_le_bytes());
        bytes
    }

    /// Reads an offer. Whether what it says is true is found by [`super::NodeMemory::accept`].
    ///
    /// # Errors
    /// The bytes are no offer.
    pub fn decode(bytes: &[u8]) -> Result<Offer, OfferError> {
        let wrong = OfferError { length: bytes.len() };
        let bytes = <&[u8; Offer::BYTES]>::try_from(bytes).map_err(|_| wrong)?;
        let (words, _) = bytes.as_chunks::<4>();
        if words[0] != MAGIC {
            return Err(wrong);
        }
        let fds = [words[2], words[3], words[4]].map(i32::from_le_bytes);
        let (low, high) = (u32::from_le_bytes(words[6]), u32::from_le_bytes(words[7]));
        let (pid, unit) = (u32::from_le_bytes(words[1]), u32::from_le_bytes(words[5]));
        Ok(Offer { pid, fds, bytes: u64::from(high) << 32 | u64::from(low), unit })
    }
}
