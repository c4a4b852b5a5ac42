//! Puts and gets of lists of pieces.

use std::ffi::{c_int, c_void};

use kumi_mem::{Piece, any_overlap};

use crate::args::{input, list, output, rank};
use crate::code::{Code, Failure};
use crate::state::with;
use crate::transfer::{KumiCompletion, after};
use crate::window::{KumiWindow, find};

/// `kumi_piece` of `kumi.h`.
pub type KumiPiece = Piece;

/// `kumi_buffer` of `kumi.h`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct KumiBuffer {
    /// Where it begins.
    pub data: *mut c_void,
    /// Its bytes.
    pub length: usize,
}

/// Bytes of all pieces.
fn bytes(pieces: &[Piece]) -> Result<usize, Failure> {
    let sum = |sum: usize, piece: &Piece| sum.checked_add(piece.length);
    pieces.iter().try_fold(0, sum).ok_or_else(|| {
        Failure::new(Code::Length, "the pieces have more bytes than memory can hold")
    })
}

/// Buffers that are written to must not have bytes in common.
fn check_apart(buffers: &[KumiBuffer]) -> Result<(), Failure> {
    let range = |buffer: &KumiBuffer| (buffer.data.addr(), buffer.length);
    if any_overlap(&mut buffers.iter().map(range).collect::<Vec<_>>()) {
        return Err(Failure::new(Code::Length, "two of the buffers to be written to overlap"));
    }
    Ok(())
}

/// See `kumi.h`.
///
/// # Safety
/// `pieces` points to `count` pieces, `data` to as many bytes as they have together.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_window_put_list(
    window: *mut KumiWindow,
    to: c_int,
    pieces: *const KumiPiece,
    count: usize,
    data: *const c_void,
    notify: c_int,
    completion: *mut KumiCompletion,
) -> c_int {
    with(|state| {
        let window = find(state, window)?;
        let after = after(state, notify, completion)?;
        // SAFETY: promised by the caller.
        let pieces = unsafe { list(pieces, count, "pieces") }?;
        // SAFETY: promised by the caller.
        let data = unsafe { input(data, bytes(&pieces)?, "data") }?;
        Ok(window.put_lists_shared(rank(to)?, &pieces, &[data], after)?)
    })
}

/// See `kumi.h`.
///
/// # Safety
/// `pieces` points to `count` pieces, `buffers` to `buffer_count` buffers, which have so many bytes
/// as they say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_window_put_lists(
    window: *mut KumiWindow,
    to: c_int,
    pieces: *const KumiPiece,
    count: usize,
    buffers: *const KumiBuffer,
    buffer_count: usize,
    notify: c_int,
    completion: *mut KumiCompletion,
) -> c_int {
    with(|state| {
        let window = find(state, window)?;
        let after = after(state, notify, completion)?;
        // SAFETY: promised by the caller.
        let pieces = unsafe { list(pieces, count, "pieces") }?;
        // SAFETY: promised by the caller.
        let buffers = unsafe { list(buffers, buffer_count, "buffers") }?;
        let one = |buffer: &KumiBuffer| {
            // SAFETY: promised by the caller.
            unsafe { input(buffer.data, buffer.length, "a buffer") }
        };
        let data = buffers.iter().map(one).collect::<Result<Vec<_>, _>>()?;
        Ok(window.put_lists_shared(rank(to)?, &pieces, &data, after)?)
    })
}

/// See `kumi.h`.
///
/// # Safety
/// `pieces` points to `count` pieces, `buffer` to as many bytes as they have together.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_window_get_list(
    window: *mut KumiWindow,
    from: c_int,
    pieces: *const KumiPiece,
    count: usize,
    buffer: *mut c_void,
) -> c_int {
    with(|state| {
        let window = find(state, window)?;
        // SAFETY: promised by the caller.
        let pieces = unsafe { list(pieces, count, "pieces") }?;
        // SAFETY: promised by the caller.
        let buffer = unsafe { output(buffer, bytes(&pieces)?, "buffer") }?;
        Ok(window.get_lists_shared(rank(from)?, &pieces, &[buffer])?)
    })
}

/// See `kumi.h`.
///
/// # Safety
/// `pieces` points to `count` pieces, `buffers` to `buffer_count` buffers, which have so many bytes
/// as they say.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_window_get_lists(
    window: *mut KumiWindow,
    from: c_int,
    pieces: *const KumiPiece,
    count: usize,
    buffers: *const KumiBuffer,
    buffer_count: usize,
) -> c_int {
    with(|state| {
        let window = find(state, window)?;
        // SAFETY: promised by the caller.
        let pieces = unsafe { list(pieces, count, "pieces") }?;
        // SAFETY: promised by the caller.
        let buffers = unsafe { list(buffers, buffer_count, "buffers") }?;
        check_apart(&buffers)?;
        let one = |buffer: &KumiBuffer| {
            // SAFETY: promised by the caller, and just found to be apart from the others.
            unsafe { output(buffer.data, buffer.length, "a buffer") }
        };
        let into = buffers.iter().map(one).collect::<Result<Vec<_>, _>>()?;
        Ok(window.get_lists_shared(rank(from)?, &pieces, &into)?)
    })
}
