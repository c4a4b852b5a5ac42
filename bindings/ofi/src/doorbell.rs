//! The descriptor of a wait object: readable while something has come that nobody was told.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use crate::engine::Errno;

/// An eventfd that is written once, until it is cleared.
#[derive(Debug)]
pub struct Doorbell {
    descriptor: OwnedFd,
    rung: AtomicBool,
}

impl Doorbell {
    /// # Errors
    /// The system's error if there are too many descriptors.
    pub fn new() -> Result<Doorbell, Errno> {
        // SAFETY: no memory is given.
        let descriptor = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if descriptor < 0 {
            return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EMFILE));
        }
        // SAFETY: the kernel has just made it, and nobody else has it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(Doorbell { descriptor, rung: AtomicBool::new(false) })
    }

    /// What programs poll.
    #[must_use]
    pub fn descriptor(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }

    /// Makes the descriptor readable.
    pub fn ring(&self) {
        if self.rung.swap(true, Ordering::AcqRel) {
            return;
        }
        let one = 1_u64;
        // SAFETY: eight bytes of our own are read. It cannot fail: the count in the descriptor never is more than 2.
        unsafe { libc::write(self.descriptor(), (&raw const one).cast(), size_of::<u64>()) };
    }

    /// Makes it unreadable; whether it was rung.
    pub fn clear(&self) -> bool {
        let mut count = 0_u64;
        // SAFETY: eight bytes of our own are written. That nothing is there is no failure.
        unsafe { libc::read(self.descriptor(), (&raw mut count).cast(), size_of::<u64>()) };
        self.rung.swap(false, Ordering::AcqRel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readable(doorbell: &Doorbell) -> bool {
        let mut poll = libc::pollfd { fd: doorbell.descriptor(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry of our own.
        unsafe { libc::poll(&raw mut poll, 1, 0) == 1 }
    }

    #[test]
    fn it_is_readable_from_the_first_ring_until_it_is_cleared() {
        let doorbell = Doorbell::new().unwrap();
        assert!(!readable(&doorbell));
        doorbell.ring();
        doorbell.ring();
        assert!(readable(&doorbell));
        assert!(doorbell.clear());
        assert!(!readable(&doorbell));
        assert!(!doorbell.clear());
        doorbell.ring();
        assert!(readable(&doorbell));
    }
}
