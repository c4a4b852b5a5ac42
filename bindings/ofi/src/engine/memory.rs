//! The program's memory: where it is copied.
//!
//! The program promises by its calls that memory of an operation stays until the operation is over, and memory of a registration
//! until that is closed. All access is by `SharedBytes`, since program and peers may write at any time.

use std::ptr::NonNull;

use kumi_mem::{ArrivedMessage, SharedBytes, SharedBytesMut};
use kumi_messaging::{Arrived, Memory};

use crate::operation::{Piece, Pieces};

/// A piece as bytes that may be read and written.
pub(super) fn bytes(piece: Piece) -> SharedBytesMut<'static> {
    let start = NonNull::new(std::ptr::with_exposed_provenance_mut(piece.address))
        .unwrap_or(NonNull::dangling());
    // SAFETY: the program has given this memory to an operation or a registration that is not over (the module's first lines); no
    // Rust reference to it is made in this library. A piece without an address has no bytes (`arguments.rs` refuses others).
    unsafe { SharedBytesMut::new(start, if piece.address == 0 { 0 } else { piece.length }) }
}

/// Pieces of which the first is everything, if there is at most one.
pub(super) fn single(pieces: &Pieces) -> Option<SharedBytes<'static>> {
    match pieces.as_slice() {
        [] => Some(SharedBytes::default()),
        [one] => Some(bytes(*one).shared()),
        _ => None,
    }
}

/// A copy of all pieces.
pub(super) fn copy_out(pieces: &Pieces) -> Vec<u8> {
    let mut copy = vec![0; pieces.length()];
    let mut rest = &mut copy[..];
    for piece in pieces.as_slice() {
        let (now, later) = rest.split_at_mut(piece.length);
        bytes(*piece).shared().copy_to(now);
        rest = later;
    }
    copy
}

/// Copies as many bytes as both have.
pub(super) fn copy_in(data: &[u8], into: &Pieces) {
    let mut rest = data;
    for piece in into.as_slice() {
        let length = piece.length.min(rest.len());
        let (now, later) = rest.split_at(length);
        bytes(Piece { length, ..*piece }).copy_from(now);
        rest = later;
    }
}

impl Memory for Pieces {
    #[inline]
    fn length(&self) -> u64 {
        Pieces::length(self) as u64
    }

    #[inline]
    fn part(&self, from: u64, length: u64) -> Pieces {
        let whole = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
        Pieces::part(self, whole(from), whole(length))
    }
}

/// A message that is where it came.
pub(super) struct InPlace<'m, 'a>(pub(super) &'a ArrivedMessage<'m>);

impl Arrived<Pieces> for InPlace<'_, '_> {
    #[inline]
    fn length(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn copy_prefix(&self, into: &mut [u8]) {
        self.0.copy_prefix(into);
    }

    #[inline]
    fn copy_to(&self, offset: usize, into: &Pieces) {
        let mut from = offset;
        for piece in into.as_slice() {
            let length = piece.length.min(self.0.len() - from);
            self.0.copy_to(from, bytes(Piece { length, ..*piece }));
            from += length;
        }
    }

    fn to_vec(&self, offset: usize) -> Vec<u8> {
        let mut copy = vec![0; self.0.len() - offset];
        self.0.copy_to(offset, SharedBytesMut::from(&mut copy[..]));
        copy
    }
}

/// A message that was put together.
pub(super) struct Private<'a>(pub(super) &'a [u8]);

impl Arrived<Pieces> for Private<'_> {
    fn length(&self) -> usize {
        self.0.len()
    }

    fn copy_prefix(&self, into: &mut [u8]) {
        into.copy_from_slice(&self.0[..into.len()]);
    }

    fn copy_to(&self, offset: usize, into: &Pieces) {
        copy_in(&self.0[offset..], into);
    }

    fn to_vec(&self, offset: usize) -> Vec<u8> {
        self.0[offset..].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(memory: &mut [u8], parts: &[(usize, usize)]) -> Pieces {
        let start = memory.as_mut_ptr().expose_provenance();
        let piece =
            |(from, length): &(usize, usize)| Piece { address: start + from, length: *length };
        Pieces::from_pieces(parts.iter().map(piece)).unwrap()
    }

    #[test]
    fn bytes_go_to_their_pieces_and_nowhere_else() {
        let mut memory = [0; 20];
        let target = pieces(&mut memory, &[(2, 3), (8, 0), (10, 4)]);
        assert_eq!(Memory::length(&target), 7);
        let message: Vec<u8> = (1..=10).collect();
        let expected = [0, 0, 3, 4, 5, 0, 0, 0, 0, 0, 6, 7, 8, 9, 0, 0, 0, 0, 0, 0];
        Private(&message).copy_to(2, &target);
        assert_eq!(copy_out(&target), [3, 4, 5, 6, 7, 8, 9]);
        assert_eq!(memory, expected);
        let mut memory = [0; 20];
        let target = pieces(&mut memory, &[(2, 3), (10, 4)]);
        copy_in(&message[2..9], &target);
        assert_eq!(memory, expected);
        assert_eq!(Private(&message).to_vec(8), [9, 10]);
    }

    #[test]
    fn a_short_message_ends_in_the_middle_of_a_piece() {
        let mut memory = [0; 10];
        let target = pieces(&mut memory, &[(0, 3), (5, 5)]);
        copy_in(&[1, 2, 3, 4], &target);
        assert_eq!(memory, [1, 2, 3, 0, 0, 4, 0, 0, 0, 0]);
        assert!(single(&target).is_none() && single(&target.part(0, 3)).is_some());
        assert_eq!(target.part(2, 2).as_slice().len(), 2);
        assert_eq!(single(&Pieces::default()).map(SharedBytes::len), Some(0));
    }
}
