//! Pieces of an array that no server holds, so that the client sends them.

use kumi_rpc::HeldArrayPart;

/// First byte and length of each piece that the client sends, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gaps {
    pieces: Vec<(u64, u64)>,
}

impl Gaps {
    /// The pieces of `bytes` bytes outside the parts, which are in order and do not overlap. `None`: a part
    /// ends behind the array.
    pub fn new(parts: &[HeldArrayPart], bytes: u64) -> Option<Gaps> {
        let mut pieces = Vec::new();
        let mut at = 0;
        for part in parts {
            if part.offset > at {
                pieces.push((at, part.offset - at));
            }
            at = part.offset.checked_add(part.length)?;
        }
        if at < bytes {
            pieces.push((at, bytes - at));
        }
        (at <= bytes).then_some(Gaps { pieces })
    }

    /// Total bytes of the pieces.
    pub fn bytes(&self) -> u64 {
        self.pieces.iter().map(|(_, length)| length).sum()
    }

    /// The pieces.
    pub fn pieces(&self) -> &[(u64, u64)] {
        &self.pieces
    }

    /// The place in the array of the client's bytes from `offset` on, and how many of `length` belong there
    /// in one piece.
    pub fn place(&self, offset: u64, length: usize) -> (u64, usize) {
        let mut before = 0;
        for (first, bytes) in &self.pieces {
            if offset < before + bytes {
                let into = offset - before;
                let room = usize::try_from(bytes - into).unwrap_or(usize::MAX);
                return (first + into, length.min(room));
            }
            before += bytes;
        }
        (before, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kumi_rpc::HeldArrayName;

    fn part(offset: u64, length: u64) -> HeldArrayPart {
        let name = HeldArrayName { secret: [0; 16], index: 0 };
        HeldArrayPart { offset, ..HeldArrayPart::whole(name, length, "") }
    }

    #[test]
    fn what_is_left_is_found_and_placed() {
        let gaps = Gaps::new(&[part(2, 3), part(7, 1)], 10).expect("inside");
        assert_eq!(gaps.pieces(), [(0, 2), (5, 2), (8, 2)]);
        assert_eq!(gaps.bytes(), 6);
        let mut at = 0;
        let mut places = Vec::new();
        while at < gaps.bytes() {
            let (place, room) = gaps.place(at, 3);
            assert!(room > 0);
            places.extend(place..place + room as u64);
            at += room as u64;
        }
        assert_eq!(places, [0, 1, 5, 6, 8, 9]);
        assert_eq!(Gaps::new(&[part(0, 10)], 10).expect("all of it").bytes(), 0);
        assert_eq!(Gaps::new(&[part(5, 6)], 10), None);
        assert_eq!(Gaps::new(&[], 4).expect("nothing").pieces(), [(0, 4)]);
    }
}
