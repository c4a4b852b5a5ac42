//! Copies between shared memory and buffers for encryption.

use super::{Source, Target};

/// The length of a piece.
pub fn length_of(piece: Source<'_>) -> usize {
    match piece {
        Source::Bytes(bytes) => bytes.len(),
        Source::Arena(_, _, length) | Source::Lent(_, _, length) => length,
    }
}

/// The length of a target.
pub fn room_of(target: Target<'_>) -> usize {
    match target {
        Target::None => 0,
        Target::Arena(_, _, length) | Target::Lent(_, _, length) => length,
    }
}

/// Appends `count` bytes of a piece from `offset` on. Panics if the piece is shorter.
pub fn append(piece: Source<'_>, offset: usize, count: usize, out: &mut Vec<u8>) {
    let from = match piece {
        Source::Bytes(bytes) => return out.extend_from_slice(&bytes[offset..offset + count]),
        Source::Arena(arena, begin, length) => arena.at(begin, length).cast_const(),
        Source::Lent(lent, begin, length) => lent.at(begin, length),
    };
    assert!(
        offset.checked_add(count).is_some_and(|end| end <= length_of(piece)),
        "inside of the piece"
    );
    let at = out.len();
    out.resize(at + count, 0);
    // SAFETY: the piece has that many bytes from there on, which are borrowed for the length of the call, and so has the vector.
    unsafe { std::ptr::copy_nonoverlapping(from.add(offset), out[at..].as_mut_ptr(), count) };
}

/// Copies bytes into a target at `offset`. Panics if they do not fit.
pub fn put(target: Target<'_>, offset: usize, bytes: &[u8]) {
    let to = match target {
        Target::None => std::ptr::null_mut(),
        Target::Arena(arena, begin, length) => arena.at(begin, length),
        Target::Lent(lent, begin, length) => lent.at(begin, length),
    };
    let end = offset.checked_add(bytes.len());
    assert!(end.is_some_and(|end| end <= room_of(target)), "inside of the target");
    if !bytes.is_empty() {
        // SAFETY: the target has room for that many bytes from there on, and may be written for the length of the call.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to.add(offset), bytes.len()) };
    }
}
