//! Padding: bytes behind a frame's data that are no data. A frame that is lengthened so fills its packet, and the next
//! packets can leave in the same run.

use super::{MESSAGE, MESSAGE_PART, PUT, PUT_COUNTED, PUT_STRIDED};

/// Where a frame tells how many bytes of it are padding.
const PADDING: core::ops::Range<usize> = 2..4;

/// Frames of this kind may have padding.
pub(super) fn may_have(kind: u8) -> bool {
    matches!(kind, MESSAGE | MESSAGE_PART | PUT | PUT_COUNTED | PUT_STRIDED)
}

/// Lengthens the frame that is the first `length` bytes of `room` to all of `room`; false if its kind has no padding, or
/// it has some already.
pub fn pad(room: &mut [u8], length: usize) -> bool {
    let Ok(padding) = u16::try_from(room.len().saturating_sub(length)) else { return false };
    let (frame, behind) = room.split_at_mut(length);
    let unpadded = frame.get(PADDING) == Some(&[0; 2]);
    if !unpadded || !may_have(frame[0]) {
        return false;
    }
    frame[PADDING].copy_from_slice(&padding.to_le_bytes());
    // What a slot held before is nobody's business.
    behind.fill(0);
    true
}
