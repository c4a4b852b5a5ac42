//! Children that a rank's process makes with `fork` have copies of its channel: with one of its packets sent there too, or its lock
//! held by a thread that is not there, nothing would be right any more.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// How often this process's line has forked since it was first watched, as a child counts.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// What the system calls in the child of a fork, in its only thread.
extern "C" fn forked() {
    FORKS.fetch_add(1, Relaxed);
}

/// Tells the process that made it from its children.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ForkCheck(u32);

impl ForkCheck {
    /// From now on children are told apart.
    ///
    /// # Errors
    /// There is no memory for that.
    pub(crate) fn watch() -> io::Result<ForkCheck> {
        static WATCHED: OnceLock<i32> = OnceLock::new();
        // SAFETY: the function lives as long as the process (a library with such handlers must not be unloaded, and this one is
        // linked into the program or stays). It does what is allowed between a fork and what follows it: it counts.
        let code =
            *WATCHED.get_or_init(|| unsafe { libc::pthread_atfork(None, None, Some(forked)) });
        if code == 0 {
            Ok(ForkCheck(FORKS.load(Relaxed)))
        } else {
            Err(io::Error::from_raw_os_error(code))
        }
    }

    /// This process is a child of the one that made it. (Children by a bare system call that do not go on to another
    /// program are not seen.)
    #[inline]
    pub(crate) fn is_child(self) -> bool {
        FORKS.load(Relaxed) != self.0
    }
}
