//! Blocking wait of the main thread while packets may come, with its timer.
//!
//! The protocol's next deadline moves with almost every packet, and a sleep is often over within
//! microseconds. Setting and clearing a timer each time would cost more than the rest of the sleep: the
//! clock device is programmed twice, in a virtual machine by leaving it. So the timer stays set from
//! sleep to sleep, and is set anew only when it is too late. When it expires too early, the thread
//! finds nothing to do and sleeps on.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::sys;
use crate::wire::driver::SleepDescriptors;

/// See the module.
#[derive(Debug)]
pub(crate) struct BlockingWait {
    timer: OwnedFd,
    /// When it goes off, microseconds; in the past if it is not set.
    set: u64,
}

impl BlockingWait {
    pub(crate) fn new() -> io::Result<BlockingWait> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: no pointers.
        let raw = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, and nobody else owns it.
        Ok(BlockingWait { timer: unsafe { OwnedFd::from_raw_fd(raw) }, set: 0 })
    }

    /// Blocks until the doorbell rings, the wire has something, a signal comes, or `until` is over;
    /// perhaps shorter. Then silences the doorbell.
    pub(crate) fn sleep(&mut self, bell: RawFd, wire: SleepDescriptors, until: Option<u64>) {
        if let Some(until) = until {
            let now = sys::now();
            if until <= now {
                return;
            }
            if self.set <= now || until < self.set {
                self.set(until - now);
                self.set = until;
            }
        }
        let [one, other] = wire;
        if sys::wait_readable([bell, self.timer.as_raw_fd(), one, other], None)[1] {
            sys::silence(self.timer.as_raw_fd());
        }
    }

    fn set(&self, microseconds: u64) {
        let spec = libc::itimerspec {
            it_interval: libc::timespec { tv_sec: 0, tv_nsec: 0 },
            it_value: sys::timespec(microseconds),
        };
        // SAFETY: the structure is ours; the descriptor is a timer, so it cannot fail.
        unsafe {
            libc::timerfd_settime(self.timer.as_raw_fd(), 0, &raw const spec, std::ptr::null_mut())
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bells() -> [OwnedFd; 2] {
        [(); 2].map(|()| sys::doorbell().expect("eventfd"))
    }

    #[test]
    fn a_sleep_ends_at_its_deadline_and_the_timer_serves_the_next_one() {
        let [bell, socket] = bells();
        let (bell, wire) = (bell.as_raw_fd(), [socket.as_raw_fd(), -1]);
        let mut blocking_wait = BlockingWait::new().expect("timer");
        let first = sys::now() + 2_000;
        // A later deadline leaves the timer as it is: this sleep ends too early.
        blocking_wait.set(2_000);
        blocking_wait.set = first;
        blocking_wait.sleep(bell, wire, Some(first + 60_000_000));
        assert!((first..first + 60_000_000).contains(&sys::now()));
        // The timer is silent again, so the next one sleeps until its own deadline.
        let second = sys::now() + 2_000;
        while sys::now() < second {
            blocking_wait.sleep(bell, wire, Some(second));
        }
        assert_eq!(blocking_wait.set, second);
        blocking_wait.sleep(bell, wire, Some(0));
        assert_eq!(blocking_wait.set, second, "a deadline that is over needs no timer");
    }

    #[test]
    fn an_earlier_deadline_sets_the_timer_anew_and_a_doorbell_ends_a_sleep() {
        let [bell, socket] = bells();
        let mut blocking_wait = BlockingWait::new().expect("timer");
        let late = sys::now() + 60_000_000;
        let wire = [socket.as_raw_fd(), -1];
        let one = 1u64;
        // SAFETY: eight bytes are read from `one`.
        unsafe { libc::write(bell.as_raw_fd(), (&raw const one).cast(), 8) };
        blocking_wait.sleep(bell.as_raw_fd(), wire, Some(late));
        assert_eq!(blocking_wait.set, late);
        let soon = sys::now() + 2_000;
        // Rung once, silenced: this ends by the timer, long before the first deadline.
        blocking_wait.sleep(bell.as_raw_fd(), wire, Some(soon));
        assert!((soon..late).contains(&sys::now()));
    }
}
