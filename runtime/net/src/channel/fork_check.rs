//! Detection of forks. A child made with `fork` has a copy of the channel. If it sent a packet, or
//! waited for a lock whose holder it lacks, it would ruin the rank's channel.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;

/// How often this process's line has forked since it was first watched, as a child counts.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Called by the system in the only thread of a fork's child.
extern "C" fn forked() {
    FORKS.fetch_add(1, Relaxed);
}

/// Tells the process that made it from its children.
#[derive(Debug, Clone, Copy)]
pub struct ForkCheck(u32);

impl ForkCheck {
    /// Starts telling children apart.
    ///
    /// # Errors
    /// There is no memory for that.
    pub fn watch() -> io::Result<ForkCheck> {
        static WATCHED: OnceLock<i32> = OnceLock::new();
        if cfg!(miri) {
            // There are no forks.
            return Ok(ForkCheck(0));
        }
        // SAFETY: the function lives as long as the process, because this library is linked into the
        // program or never unloaded. It only counts, which is allowed between a fork and an exec.
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
    #[must_use]
    pub fn is_child(self) -> bool {
        FORKS.load(Relaxed) != self.0
    }
}
