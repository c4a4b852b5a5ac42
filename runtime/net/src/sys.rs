//! Wrappers of system calls: sockets, doorbells, the clock.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::wire::address::{Family, RawAddress};

/// Bytes asked for as a socket's receive and send buffers; the kernel may grant less.
const SOCKET_BUFFER: libc::c_int = 8 << 20;

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Sets an integer option of a socket.
pub(crate) fn set_option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the pointer and length describe `value`.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as u32,
        )
    })
    .map(drop)
}

/// An integer option of a socket.
pub(crate) fn option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
) -> io::Result<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the pointers are to our own integers; the kernel writes at most `length` bytes.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw mut value).cast(),
            &raw mut length,
        )
    })?;
    Ok(value)
}

/// Bytes of the longest UDP payload that goes unfragmented from an address of this machine (its port does not count) to another.
/// The kernel knows it from the route, and from routers that reported packets as too long.
///
/// # Errors
/// The kernel's error, for example that there is no route.
pub fn longest_payload(mut from: SocketAddr, to: SocketAddr) -> io::Result<usize> {
    use std::os::fd::AsFd;
    from.set_port(0);
    // Connecting sends nothing; it looks the route up.
    let socket = std::net::UdpSocket::bind(from)?;
    socket.connect(to)?;
    let family = Family::of_socket(socket.as_fd())?;
    let mtu = option(socket.as_fd(), family.level, family.mtu)?;
    Ok(usize::try_from(mtu).unwrap_or(0).saturating_sub(family.header_bytes))
}

/// A non-blocking UDP socket at an address and port of this machine, with large buffers (beyond the system's limit where
/// permitted). Port 0 stands for a free one; the result has the number.
///
/// # Errors
/// The kernel's error, for example that the address is not one of this machine.
#[cfg(not(miri))]
pub fn bind_socket(address: impl Into<SocketAddr>) -> io::Result<(OwnedFd, u16)> {
    use std::os::fd::AsFd;
    let name = RawAddress::new(address.into());
    let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let raw = check(unsafe { libc::socket(name.family(), kind, 0) })?;
    // SAFETY: just made, and nobody else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(raw) };
    for (forced, plain) in
        [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
    {
        if set_option(socket.as_fd(), libc::SOL_SOCKET, forced, SOCKET_BUFFER).is_err() {
            // Without the privilege the kernel grants what its limit allows.
            set_option(socket.as_fd(), libc::SOL_SOCKET, plain, SOCKET_BUFFER)?;
        }
    }
    let (start, length) = name.as_raw();
    // SAFETY: pointer and length describe `name`.
    check(unsafe { libc::bind(socket.as_raw_fd(), start, length) })?;
    let mut bound = RawAddress::any();
    let (start, mut length) = bound.room();
    // SAFETY: the kernel writes at most `length` bytes to `bound`.
    check(unsafe { libc::getsockname(socket.as_raw_fd(), start, &raw mut length) })?;
    let port = bound.address().map(|address| address.port());
    port.map(|port| (socket, port)).ok_or_else(|| io::ErrorKind::Unsupported.into())
}

/// Under Miri: a place for packets in this process.
///
/// # Errors
/// None.
#[cfg(miri)]
pub fn bind_socket(address: impl Into<SocketAddr>) -> io::Result<(OwnedFd, u16)> {
    Ok((doorbell()?, crate::miri::wire::free_port(address.into())))
}

/// A non-blocking eventfd.
///
/// # Errors
/// The kernel's error: too many open files.
pub fn doorbell() -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let raw = check(unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) })?;
    // SAFETY: just made, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// Whether a descriptor of this number is open.
pub(crate) fn is_open(descriptor: RawFd) -> bool {
    // SAFETY: no pointers.
    unsafe { libc::fcntl(descriptor, libc::F_GETFD) >= 0 }
}

/// Sets or clears close-on-exec.
///
/// # Errors
/// The kernel's error: the descriptor is not open.
pub fn set_cloexec(descriptor: RawFd, on: bool) -> io::Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::fcntl(descriptor, libc::F_SETFD, if on { libc::FD_CLOEXEC } else { 0 }) })
        .map(drop)
}

/// Microseconds on the monotonic clock.
#[must_use]
pub fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills our structure in; the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let microseconds = time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1_000;
    #[cfg(miri)]
    return microseconds / crate::miri::CLOCK_RATIO;
    #[cfg(not(miri))]
    microseconds
}

/// Nanoseconds on the monotonic clock, which all processes of a machine share.
#[must_use]
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel fills our structure in; the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

pub(crate) fn timespec(microseconds: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (microseconds / 1_000_000) as libc::time_t,
        tv_nsec: (microseconds % 1_000_000) as libc::c_long * 1_000,
    }
}

/// Blocks until one of the descriptors is readable or a signal comes; which of them are. The first is
/// a doorbell, which is silenced. -1 stands for none. After so many microseconds it ends by itself.
pub(crate) fn wait_readable<const N: usize>(
    descriptors: [RawFd; N],
    most: Option<u64>,
) -> [bool; N] {
    #[cfg(miri)]
    {
        std::thread::sleep(most.map_or(crate::miri::NAP, |most| {
            crate::miri::NAP.min(std::time::Duration::from_micros(most))
        }));
        silence(descriptors[0]);
        return [false; N];
    }
    #[cfg(not(miri))]
    {
        let mut list = descriptors.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
        let most = most.map(timespec);
        let most = most.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: list and time are ours and outlive the call; no signals are masked. Every result means the same to the
        // caller: look again.
        unsafe { libc::ppoll(list.as_mut_ptr(), N as libc::nfds_t, most, std::ptr::null()) };
        let readable = list.map(|entry| entry.revents != 0);
        if readable[0] {
            silence(descriptors[0]);
        }
        readable
    }
}

/// Takes what an eventfd or a timer has counted.
pub(crate) fn silence(descriptor: RawFd) {
    let mut count = 0u64;
    // SAFETY: they give eight bytes; non-blocking.
    unsafe { libc::read(descriptor, (&raw mut count).cast(), 8) };
}

/// Bytes of memory that this machine has.
#[must_use]
pub fn memory() -> u64 {
    // SAFETY: no pointers; both values are always known.
    let [pages, size] = [libc::_SC_PHYS_PAGES, libc::_SC_PAGESIZE]
        .map(|name| u64::try_from(unsafe { libc::sysconf(name) }).unwrap_or(0));
    pages.saturating_mul(size)
}

/// A number that nobody can guess, from the system's generator.
///
/// # Errors
/// The kernel's error.
pub fn random() -> io::Result<u64> {
    let mut bytes = [0; 8];
    loop {
        // SAFETY: eight bytes are written to `bytes`.
        let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        match got {
            8 => return Ok(u64::from_ne_bytes(bytes)),
            -1 => {
                let error = io::Error::last_os_error();
                // Early after the machine's start it may wait, and a signal interrupts that.
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
            // So few bytes come whole or not at all.
            _ => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// This thread's number in the system.
#[must_use]
pub fn thread_number() -> u32 {
    // SAFETY: no arguments, and it cannot fail.
    unsafe { libc::gettid() as u32 }
}

/// Seconds on the monotonic clock, to the nanosecond.
#[must_use]
pub fn seconds() -> f64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: as in `now`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Sleeps while a word of shared memory has this value, until [`wake_sleeper`] or for no reason.
pub fn sleep_while(word: &std::sync::atomic::AtomicU32, value: u32) {
    let none: *const libc::timespec = std::ptr::null();
    // SAFETY: the word outlives the call. Every return is answered by looking again.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, none) };
}

/// Wakes a thread, of any process, that sleeps at a word of shared memory.
pub fn wake_sleeper(word: &std::sync::atomic::AtomicU32) {
    // SAFETY: the word outlives the call.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}
