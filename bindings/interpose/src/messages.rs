//! By message.

use std::ffi::{c_int, c_void};

use kumi_dsm::system_calls::Use;
use libc::{msghdr, sockaddr, socklen_t};

use crate::buffers::{Buffer, reads, with_pages, writes};
use crate::next::next;
use crate::plain::of_vector;

type Recv = unsafe extern "C" fn(c_int, *mut c_void, usize, c_int) -> isize;
type RecvFrom =
    unsafe extern "C" fn(c_int, *mut c_void, usize, c_int, *mut sockaddr, *mut socklen_t) -> isize;
type RecvMsg = unsafe extern "C" fn(c_int, *mut msghdr, c_int) -> isize;
type Send = unsafe extern "C" fn(c_int, *const c_void, usize, c_int) -> isize;
type SendTo =
    unsafe extern "C" fn(c_int, *const c_void, usize, c_int, *const sockaddr, socklen_t) -> isize;
type SendMsg = unsafe extern "C" fn(c_int, *const msghdr, c_int) -> isize;

/// See `recv(2)`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recv(
    socket: c_int,
    buffer: *mut c_void,
    bytes: usize,
    flags: c_int,
) -> isize {
    let next = next!(c"recv": Recv);
    // SAFETY: the caller's arguments.
    let call = || unsafe { next(socket, buffer, bytes, flags) };
    with_pages(|| std::iter::once(writes(buffer, bytes)), call)
}

/// See `recvfrom(2)`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvfrom(
    socket: c_int,
    buffer: *mut c_void,
    bytes: usize,
    flags: c_int,
    from: *mut sockaddr,
    from_length: *mut socklen_t,
) -> isize {
    let next = next!(c"recvfrom": RecvFrom);
    let name = if from_length.is_null() {
        0
    } else {
        // SAFETY: the caller promises a length there.
        unsafe { from_length.read_unaligned() }
    };
    let address = [
        writes(from.cast(), name as usize),
        writes(from_length.cast(), if from_length.is_null() { 0 } else { size_of::<socklen_t>() }),
    ];
    let buffers = || address.into_iter().chain([writes(buffer, bytes)]);
    // SAFETY: the caller's arguments.
    with_pages(buffers, || unsafe { next(socket, buffer, bytes, flags, from, from_length) })
}

/// See `send(2)`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn send(
    socket: c_int,
    buffer: *const c_void,
    bytes: usize,
    flags: c_int,
) -> isize {
    let next = next!(c"send": Send);
    // SAFETY: the caller's arguments.
    let call = || unsafe { next(socket, buffer, bytes, flags) };
    with_pages(|| std::iter::once(reads(buffer, bytes)), call)
}

/// See `sendto(2)`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendto(
    socket: c_int,
    buffer: *const c_void,
    bytes: usize,
    flags: c_int,
    to: *const sockaddr,
    to_length: socklen_t,
) -> isize {
    let next = next!(c"sendto": SendTo);
    let buffers = || [reads(buffer, bytes), reads(to.cast(), to_length as usize)].into_iter();
    // SAFETY: the caller's arguments.
    with_pages(buffers, || unsafe { next(socket, buffer, bytes, flags, to, to_length) })
}

/// All that a message header points to, and itself.
///
/// # Safety
/// It is null or points to a header whose vector has as many elements as it says.
unsafe fn of_header(header: *const msghdr, usage: Use) -> impl Iterator<Item = Buffer> {
    let there = (!header.is_null()).then(|| {
        // SAFETY: promised by the caller.
        let own = unsafe { header.read_unaligned() };
        let piece = |start: *const c_void, bytes| Buffer { start, bytes, usage };
        let fixed = [
            piece(header.cast(), size_of::<msghdr>()),
            piece(own.msg_name, own.msg_namelen as usize),
            piece(own.msg_control, own.msg_controllen),
            reads(own.msg_iov.cast(), own.msg_iovlen * size_of::<libc::iovec>()),
        ];
        // SAFETY: promised by the caller.
        let parts = unsafe { of_vector(own.msg_iov, own.msg_iovlen, usage) };
        fixed.into_iter().chain(parts)
    });
    there.into_iter().flatten()
}

/// See `recvmsg(2)`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn recvmsg(socket: c_int, header: *mut msghdr, flags: c_int) -> isize {
    let next = next!(c"recvmsg": RecvMsg);
    // SAFETY: the caller's promises.
    let buffers = || unsafe { of_header(header, Use::Writes) };
    // SAFETY: the caller's arguments.
    with_pages(buffers, || unsafe { next(socket, header, flags) })
}

/// See `sendmsg(2)`.
///
/// # Safety
/// As there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendmsg(socket: c_int, header: *const msghdr, flags: c_int) -> isize {
    let next = next!(c"sendmsg": SendMsg);
    // SAFETY: the caller's promises.
    let buffers = || unsafe { of_header(header, Use::Reads) };
    // SAFETY: the caller's arguments.
    with_pages(buffers, || unsafe { next(socket, header, flags) })
}
