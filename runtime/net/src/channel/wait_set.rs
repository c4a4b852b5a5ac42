//! The descriptors that wake the handler thread: system calls, and nothing that decides.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::channel::handover::{TICK, Timer};
use crate::segment::attachment::{AttachError, io_error};
use crate::sys;
use crate::wire::driver::SleepDescriptors;

const WIRE: u64 = 1;
const TIMER: u64 = 2;
const STOP: u64 = 3;
const BELL: u64 = 4;

/// Descriptors that wake the handler thread.
#[derive(Debug)]
pub(crate) struct HandlerWaitSet {
    epoll: OwnedFd,
    timer: OwnedFd,
    stop: OwnedFd,
    /// Those of the wire to other nodes.
    wire: SleepDescriptors,
    /// The rank's doorbell.
    bell: RawFd,
}

/// Owns a descriptor, or tells the error that the kernel left.
///
/// # Safety
/// The number comes from a system call of just now that makes descriptors, or is the -1 of its failure.
unsafe fn own(raw: RawFd, what: &'static str) -> Result<OwnedFd, AttachError> {
    if raw < 0 {
        return Err(io_error(what)(io::Error::last_os_error()));
    }
    // SAFETY: just made by the caller's promise, so nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

impl HandlerWaitSet {
    pub(crate) fn new(wire: SleepDescriptors, bell: RawFd) -> Result<HandlerWaitSet, AttachError> {
        // SAFETY: no pointers in either call, and each result is owned once.
        let (epoll, timer) = unsafe {
            let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
            (
                own(libc::epoll_create1(libc::EPOLL_CLOEXEC), "epoll_create1")?,
                own(libc::timerfd_create(libc::CLOCK_MONOTONIC, flags), "timerfd_create")?,
            )
        };
        let stop = sys::doorbell().map_err(io_error("eventfd"))?;
        let wait_set = HandlerWaitSet { epoll, timer, stop, wire, bell };
        let events = libc::EPOLLIN as u32;
        let add = libc::EPOLL_CTL_ADD;
        wait_set
            .control(add, wait_set.timer.as_raw_fd(), events, TIMER)
            .map_err(io_error("epoll"))?;
        wait_set
            .control(add, wait_set.stop.as_raw_fd(), events, STOP)
            .map_err(io_error("epoll"))?;
        Ok(wait_set)
    }

    fn control(&self, operation: i32, descriptor: RawFd, events: u32, mark: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: mark };
        // SAFETY: the event is ours.
        let done = unsafe {
            libc::epoll_ctl(self.epoll.as_raw_fd(), operation, descriptor, &raw mut event)
        };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Main is active: packets, and with `rings` the doorbell, do not wake the handler for now.
    #[cold]
    pub(crate) fn disarm(&self, rings: bool) {
        // Taken out of the set rather than masked: the kernel then has no callback to make for
        // every packet. Should it fail, the handler wakes once too often.
        for (descriptor, mark) in self.armed_for(rings) {
            let _ = self.control(libc::EPOLL_CTL_DEL, descriptor, 0, mark);
        }
        self.after(Some(TICK));
    }

    pub(crate) fn arm(&self, rings: bool) -> io::Result<()> {
        let events = (libc::EPOLLIN | libc::EPOLLONESHOT) as u32;
        for (descriptor, mark) in self.armed_for(rings) {
            match self.control(libc::EPOLL_CTL_ADD, descriptor, events, mark) {
                // Fired and not taken out since.
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {
                    self.control(libc::EPOLL_CTL_MOD, descriptor, events, mark)?;
                }
                done => done?,
            }
        }
        Ok(())
    }

    fn armed_for(&self, rings: bool) -> impl Iterator<Item = (RawFd, u64)> + use<> {
        let bell = rings.then_some((self.bell, BELL));
        let wire = self.wire.into_iter().filter(|descriptor| *descriptor >= 0);
        wire.map(|descriptor| (descriptor, WIRE)).chain(bell)
    }

    /// Wakes the handler to end.
    pub(crate) fn stop(&self) {
        let one = 1u64;
        // SAFETY: eight bytes are read from `one`.
        unsafe { libc::write(self.stop.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Takes what the rank's doorbell has counted. Only with the lock: the main thread does not sleep for it then.
    pub(crate) fn silence_bell(&self) {
        sys::silence(self.bell);
    }

    /// Sleeps until something calls.
    pub(crate) fn wait(&self) -> io::Result<()> {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: room for one event.
        while unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), &raw mut event, 1, -1) } < 0 {
            let error = io::Error::last_os_error();
            // The freezer interrupts it at every switch: nothing has called, main is to run.
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        if event.u64 == TIMER {
            let mut expired = 0u64;
            // SAFETY: a timer gives eight bytes; non-blocking.
            unsafe { libc::read(self.timer.as_raw_fd(), (&raw mut expired).cast(), 8) };
        }
        Ok(())
    }
}

impl Timer for HandlerWaitSet {
    fn after(&self, microseconds: Option<u64>) {
        // A time of 0 stops the timer.
        let spec = libc::itimerspec {
            it_interval: sys::timespec(0),
            it_value: sys::timespec(microseconds.unwrap_or(0)),
        };
        // SAFETY: the structure is ours; the descriptor is a timer, so it cannot fail.
        unsafe {
            libc::timerfd_settime(self.timer.as_raw_fd(), 0, &raw const spec, std::ptr::null_mut())
        };
    }
}
