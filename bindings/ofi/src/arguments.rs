//! Memory that programs name in their calls. It becomes addresses and lengths, and is never read here.

use std::ffi::c_void;

use crate::abi::{fi_ioc, fi_rma_ioc, fi_rma_iov, iovec};
use crate::engine::Remote;
use crate::errors::{Answer, FI_EINVAL, FI_EMSGSIZE, ensure};
use crate::info::MOST_BYTES;
use crate::operation::{MOST_PIECES, Piece, Pieces};

/// One buffer of a message.
pub fn buffer(address: *const c_void, length: usize) -> Answer<Pieces> {
    ensure(length <= MOST_BYTES, FI_EMSGSIZE)?;
    ensure(length == 0 || !address.is_null(), FI_EINVAL)?;
    Ok(Pieces::one(address as usize, length))
}

/// Copies the entries of a program's array, at most [`MOST_PIECES`].
///
/// # Safety
/// `array` is NULL or has `count` entries.
unsafe fn entries<T: Copy>(array: *const T, count: usize) -> Answer<impl Iterator<Item = T>> {
    ensure(count <= MOST_PIECES && (count == 0 || !array.is_null()), FI_EINVAL)?;
    // SAFETY: the array has so many entries, which are copied one by one before the caller's call returns.
    Ok((0..count).map(move |at| unsafe { array.add(at).read_unaligned() }))
}

fn checked(pieces: Option<Pieces>) -> Answer<Pieces> {
    let pieces = pieces.ok_or(FI_EINVAL)?;
    ensure(pieces.as_slice().iter().all(|piece| piece.address != 0), FI_EINVAL)?;
    ensure(pieces.length() <= MOST_BYTES, FI_EMSGSIZE)?;
    Ok(pieces)
}

/// Several buffers of a message.
///
/// # Safety
/// `array` is NULL or has `count` entries.
pub unsafe fn buffers(array: *const iovec, count: usize) -> Answer<Pieces> {
    // SAFETY: as promised.
    let entries = unsafe { entries(array, count) }?;
    checked(Pieces::from_pieces(
        entries.map(|entry| Piece { address: entry.iov_base as usize, length: entry.iov_len }),
    ))
}

/// Several buffers of elements that have `size` bytes each.
///
/// # Safety
/// `array` is NULL or has `count` entries.
pub unsafe fn elements(array: *const fi_ioc, count: usize, size: usize) -> Answer<Pieces> {
    // SAFETY: as promised.
    let entries = unsafe { entries(array, count) }?;
    let mut pieces = [Piece::default(); MOST_PIECES];
    for (piece, entry) in pieces.iter_mut().zip(entries) {
        let length = entry.count.checked_mul(size).ok_or(FI_EINVAL)?;
        *piece = Piece { address: entry.addr as usize, length };
    }
    checked(Pieces::from_pieces(pieces))
}

/// Memory of a peer.
///
/// # Safety
/// `array` is NULL or has `count` entries.
pub unsafe fn remote(array: *const fi_rma_iov, count: usize) -> Answer<Vec<Remote>> {
    // SAFETY: as promised.
    let entries = unsafe { entries(array, count) }?;
    Ok(entries
        .map(|entry| Remote { address: entry.addr, length: entry.len as u64, key: entry.key })
        .collect())
}

/// Elements at a peer that have `size` bytes each.
///
/// # Safety
/// `array` is NULL or has `count` entries.
pub unsafe fn remote_elements(
    array: *const fi_rma_ioc,
    count: usize,
    size: usize,
) -> Answer<Vec<Remote>> {
    // SAFETY: as promised.
    let entries = unsafe { entries(array, count) }?;
    entries
        .map(|entry| {
            let length = entry.count.checked_mul(size).ok_or(FI_EINVAL)? as u64;
            Ok(Remote { address: entry.addr, length, key: entry.key })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn iov(address: usize, length: usize) -> iovec {
        iovec { iov_base: address as *mut c_void, iov_len: length }
    }

    #[test]
    fn arrays_become_pieces_and_wrong_ones_are_refused() {
        let all = [iov(16, 1), iov(32, 2), iov(0, 0), iov(64, 4), iov(128, 8)];
        // SAFETY: each call names entries of the array, or none.
        unsafe {
            let pieces = buffers(all.as_ptr(), 4).unwrap();
            assert_eq!((pieces.as_slice().len(), pieces.length()), (3, 7));
            assert_eq!(buffers(all.as_ptr(), 5), Err(FI_EINVAL));
            assert_eq!(buffers(std::ptr::null(), 1), Err(FI_EINVAL));
            assert_eq!(buffers(std::ptr::null(), 0), Ok(Pieces::default()));
            assert_eq!(buffers([iov(0, 4)].as_ptr(), 1), Err(FI_EINVAL));
            assert_eq!(buffers([iov(8, usize::MAX), iov(8, 2)].as_ptr(), 2), Err(FI_EINVAL));
            assert_eq!(buffers([iov(8, MOST_BYTES + 1)].as_ptr(), 1), Err(FI_EMSGSIZE));
        }
        assert_eq!(buffer(std::ptr::null(), 4), Err(FI_EINVAL));
        assert_eq!(buffer(std::ptr::null(), 0), Ok(Pieces::default()));
    }

    #[test]
    fn elements_are_counted_in_bytes() {
        let ioc = |count| fi_ioc { addr: 64 as *mut c_void, count };
        // SAFETY: each call names one entry.
        unsafe {
            assert_eq!(elements([ioc(3)].as_ptr(), 1, 8).unwrap().length(), 24);
            assert_eq!(elements([ioc(usize::MAX)].as_ptr(), 1, 8), Err(FI_EINVAL));
            let far = [fi_rma_ioc { addr: 5, count: 2, key: 9 }];
            assert_eq!(
                remote_elements(far.as_ptr(), 1, 4),
                Ok(vec![Remote { address: 5, length: 8, key: 9 }])
            );
        }
    }
}
