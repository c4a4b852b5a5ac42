//! The most frequent frame, decoded by itself: no field is written to memory and read back in other pieces, for which
//! processors wait.

use super::{PUT, PUT_BYTES, Payload, WindowKey};

/// The fields of a [`super::Frame::Put`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutFrame<D> {
    /// The window's name at the rank addressed.
    pub window: WindowKey,
    /// Where in the window, in bytes.
    pub offset: u64,
    /// The notify counter to raise by one afterwards.
    pub notify: Option<u32>,
    /// The bytes to write.
    pub data: D,
}

/// The put that these bytes are. `None` if they are anything else, or no frame: then [`super::Frame::decode_from`] tells.
#[inline]
pub fn decode_put<D: Payload>(bytes: D) -> Option<PutFrame<D>> {
    if bytes.len() < PUT_BYTES {
        return None;
    }
    let (header, rest) = bytes.split_at(PUT_BYTES);
    let mut room = [0; PUT_BYTES];
    let header: &[u8; PUT_BYTES] = header.private(&mut room).first_chunk()?;
    let u32_at = |at: usize| header[at..].first_chunk().map(|field| u32::from_le_bytes(*field));
    let u64_at = |at: usize| header[at..].first_chunk().map(|field| u64::from_le_bytes(*field));
    let padding = usize::from(u16::from_le_bytes([header[2], header[3]]));
    let notify = match (header[0], header[1], u32_at(20)?) {
        (PUT, 1, notify) => Some(notify),
        (PUT, 0, 0) => None,
        _ => return None,
    };
    let data = rest.split_at(rest.len().checked_sub(padding)?).0;
    Some(PutFrame { window: u64_at(4)?, offset: u64_at(12)?, notify, data })
}
