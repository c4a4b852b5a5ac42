//! Messages. All bytes go through memory of this library: the program's may be shared, and the channel must not wait for a page.

use std::ffi::{c_char, c_int};

use kumi_mem::{Op, Scalar, Source, Tag};

use crate::load::waiting;
use crate::state::{Jia, fail, good, running};

fn length(function: &str, bytes: c_int, place: *const c_char) -> usize {
    match usize::try_from(bytes) {
        Ok(0) => 0,
        Ok(bytes) if !place.is_null() => bytes,
        _ => fail(function, format_args!("{bytes} bytes at {place:p} are no buffer")),
    }
}

/// A copy of the program's elements.
///
/// # Safety
/// There are so many. Any bytes are a `T`.
unsafe fn copied<T: Scalar + Default>(place: *const c_char, count: usize) -> Vec<T> {
    let mut copy = vec![T::default(); count];
    if count > 0 {
        // SAFETY: promised by the caller; the copy is new. Bytes of a program without data races do not change meanwhile.
        unsafe {
            place.copy_to_nonoverlapping(copy.as_mut_ptr().cast(), count * size_of::<T>());
        }
    }
    copy
}

/// # Safety
/// There is room.
unsafe fn store<T: Scalar>(place: *mut c_char, elements: &[T]) {
    if !elements.is_empty() {
        // SAFETY: promised by the caller; `elements` are this library's own.
        unsafe {
            place.copy_from_nonoverlapping(elements.as_ptr().cast(), size_of_val(elements));
        }
    }
}

fn host(function: &str, jia: &Jia, number: c_int) -> u32 {
    match u32::try_from(number) {
        Ok(host) if host < jia.context.ranks() => host,
        _ => fail(function, format_args!("there is no host {number}")),
    }
}

/// See `jia.h`.
///
/// # Safety
/// `buffer` points to `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jia_send(buffer: *mut c_char, bytes: c_int, to: c_int, tag: c_int) {
    let jia = running("jia_send");
    let count = length("jia_send", bytes, buffer);
    // SAFETY: promised by the caller.
    let copy = unsafe { copied::<u8>(buffer, count) };
    let to = host("jia_send", &jia, to);
    good("jia_send", waiting(|| jia.context.send(to, tag, &copy)));
}

/// See `jia.h`.
///
/// # Safety
/// `buffer` points to `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jia_recv(
    buffer: *mut c_char,
    bytes: c_int,
    from: c_int,
    tag: c_int,
) -> c_int {
    let jia = running("jia_recv");
    let mut copy = vec![0; length("jia_recv", bytes, buffer)];
    let from = match from {
        -1 => Source::Any,
        _ => Source::Rank(host("jia_recv", &jia, from)),
    };
    let tag = if tag == -1 { Tag::Any } else { Tag::Is(tag) };
    let got = good("jia_recv", waiting(|| jia.context.recv(from, tag, &mut copy)));
    let received = got.len.min(copy.len());
    // SAFETY: promised by the caller.
    unsafe { store(buffer, &copy[..received]) };
    c_int::try_from(received).unwrap_or(c_int::MAX)
}

/// See `jia.h`.
///
/// # Safety
/// `buffer` points to `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jia_bcast(buffer: *mut c_char, bytes: c_int, root: c_int) {
    let jia = running("jia_bcast");
    let root = host("jia_bcast", &jia, root);
    let count = length("jia_bcast", bytes, buffer);
    let here = jia.context.rank() == root;
    // SAFETY: promised by the caller.
    let mut copy = if here { unsafe { copied::<u8>(buffer, count) } } else { vec![0; count] };
    good("jia_bcast", waiting(|| jia.context.broadcast(root, &mut copy)));
    if !here {
        // SAFETY: promised by the caller.
        unsafe { store(buffer, &copy) };
    }
}

/// See `jia.h`.
///
/// # Safety
/// `send` points to `count` elements of the operation's type, and so does `receive` at the root.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn jia_reduce(
    send: *mut c_char,
    receive: *mut c_char,
    count: c_int,
    operation: c_int,
    root: c_int,
) {
    let jia = running("jia_reduce");
    let root = host("jia_reduce", &jia, root);
    let op = match operation % 10 {
        0 => Op::Sum,
        1 => Op::Max,
        2 => Op::Min,
        _ => unknown(operation),
    };
    let arrays = Arrays { send, receive, count: length("jia_reduce", count, send), root };
    // SAFETY: the caller's promises, for the type of the operation.
    unsafe {
        match operation / 10 {
            0 if operation >= 0 => reduce::<i32>(&jia, &arrays, op),
            1 => reduce::<f32>(&jia, &arrays, op),
            2 => reduce::<f64>(&jia, &arrays, op),
            _ => unknown(operation),
        }
    }
}

fn unknown(operation: c_int) -> ! {
    fail("jia_reduce", format_args!("{operation} is no JIA_ operation"))
}

struct Arrays {
    send: *const c_char,
    receive: *mut c_char,
    count: usize,
    root: u32,
}

/// # Safety
/// As of `jia_reduce`.
unsafe fn reduce<T: Scalar + Default>(jia: &Jia, arrays: &Arrays, op: Op) {
    // SAFETY: promised by the caller.
    let mut copy = unsafe { copied::<T>(arrays.send, arrays.count) };
    good("jia_reduce", waiting(|| jia.context.reduce(arrays.root, op, &mut copy)));
    if jia.context.rank() == arrays.root {
        let bytes = c_int::from(arrays.count > 0);
        length("jia_reduce", bytes, arrays.receive);
        // SAFETY: promised by the caller.
        unsafe { store(arrays.receive, &copy) };
    }
}
