//! Scheduling policies of threads of other processes, for daemons that keep jobs from the processors.

use std::io;

/// How the system schedules a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadPolicy {
    /// Its share, by its `nice`.
    Other,
    /// The same, taken for one that computes only.
    Batch,
    /// What all others leave.
    Idle,
    /// Before all others: real-time, or by deadlines.
    RealTime,
}

impl ThreadPolicy {
    /// The policy of the thread with this number; 0 is the calling one.
    ///
    /// # Errors
    /// As the system says; `ESRCH` if it has ended.
    pub fn of(thread: i32) -> io::Result<ThreadPolicy> {
        // SAFETY: no pointers.
        let policy = unsafe { libc::sched_getscheduler(thread) };
        if policy < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(match policy & !libc::SCHED_RESET_ON_FORK {
            libc::SCHED_OTHER => ThreadPolicy::Other,
            libc::SCHED_BATCH => ThreadPolicy::Batch,
            libc::SCHED_IDLE => ThreadPolicy::Idle,
            _ => ThreadPolicy::RealTime,
        })
    }

    /// Gives a thread this policy; its `nice` stays. A thread that starts others passes it on to them.
    ///
    /// # Errors
    /// As the system says. Real-time policies need a priority and are not given here (`EINVAL`).
    pub fn give(self, thread: i32) -> io::Result<()> {
        let policy = match self {
            ThreadPolicy::Other => libc::SCHED_OTHER,
            ThreadPolicy::Batch => libc::SCHED_BATCH,
            ThreadPolicy::Idle => libc::SCHED_IDLE,
            ThreadPolicy::RealTime => return Err(io::Error::from_raw_os_error(libc::EINVAL)),
        };
        // SAFETY: an all-zero structure is valid.
        let parameter: libc::sched_param = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a structure of our own.
        if unsafe { libc::sched_setscheduler(thread, policy, &raw const parameter) } == 0 {
            return Ok(());
        }
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In a thread of its own, which ends with what was set.
    #[test]
    #[cfg_attr(miri, ignore = "policies are the kernel's")]
    fn a_thread_becomes_idle_and_comes_back_where_that_is_permitted() {
        let body = || {
            assert_eq!(ThreadPolicy::of(0).expect("there is one"), ThreadPolicy::Other);
            ThreadPolicy::Idle.give(0).expect("everybody may");
            assert_eq!(ThreadPolicy::of(0).expect("there is one"), ThreadPolicy::Idle);
            match ThreadPolicy::Other.give(0) {
                Ok(()) => {
                    assert_eq!(ThreadPolicy::of(0).expect("there is one"), ThreadPolicy::Other);
                }
                Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EPERM)),
            }
            assert!(ThreadPolicy::RealTime.give(0).is_err());
            assert!(ThreadPolicy::of(i32::MAX).is_err());
        };
        std::thread::spawn(body).join().expect("as it should be");
    }
}
