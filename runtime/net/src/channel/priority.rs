//! Scheduling priority of the handler thread beside the program's main thread. It decides how long a
//! request waits while the program computes (Nakada et al., "thread scheduling in a distributed shared
//! memory system", §3).

use std::io;

use crate::segment::attachment::{AttachError, io_error};

/// Real-time priority of the main thread; the handler's is above, equal or below. Well below the
/// priority of the node's switching thread.
const MAIN: libc::c_int = 10;
/// Steps of `nice` between the two threads under the ordinary policy.
const NICE: libc::c_int = 10;

/// Steps of `nice` by which a daemon's thread goes before others, where that is permitted. It is run soon, and takes no
/// more than a share if it has much to do: with real-time priority it would take all.
const PREFERRED: libc::c_int = 15;
/// The kernel's scheduling policy for both threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// The ordinary time-sharing policy; the priority is a difference of `nice`.
    Other,
    /// Real-time, round robin among equals.
    RoundRobin,
    /// Real-time, first in first out among equals.
    Fifo,
}

/// The handler's priority in relation to the main thread's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// The handler waits until the main thread does not run.
    Low,
    /// Both are equal.
    Even,
    /// The handler preempts the main thread.
    High,
}

/// The setting `KUMI_HANDLER`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HandlerSetting {
    /// Policy of both threads.
    pub policy: Policy,
    /// Which goes first.
    pub priority: Priority,
}

/// Limits without which a process that is not root's cannot have a setting, as `setrlimit` counts them; 0 if it needs none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HandlerNeeds {
    /// Of real-time priority.
    pub rtprio: u64,
    /// Of nice, where the process begins with 0.
    pub nice: u64,
}

/// The two threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Thread {
    Main,
    Handler,
}

impl HandlerSetting {
    /// Reads `KUMI_HANDLER`; `None` if it is not set: the threads then keep what they inherit.
    ///
    /// # Errors
    /// [`AttachError::BadSetting`].
    pub fn from_env() -> Result<Option<HandlerSetting>, AttachError> {
        match std::env::var("KUMI_HANDLER") {
            Ok(text) if !text.is_empty() => HandlerSetting::parse(&text).map(Some),
            Err(std::env::VarError::NotUnicode(text)) => Err(bad(&text.to_string_lossy())),
            _ => Ok(None),
        }
    }

    /// Reads the text of a setting.
    ///
    /// # Errors
    /// [`AttachError::BadSetting`].
    pub fn parse(text: &str) -> Result<HandlerSetting, AttachError> {
        let (policy, priority) = text.split_once(':').unwrap_or((text, "even"));
        let policy = match policy {
            "other" => Policy::Other,
            "rr" => Policy::RoundRobin,
            "fifo" => Policy::Fifo,
            _ => return Err(bad(text)),
        };
        let priority = match priority {
            "low" => Priority::Low,
            "even" => Priority::Even,
            "high" => Priority::High,
            _ => return Err(bad(text)),
        };
        Ok(HandlerSetting { policy, priority })
    }

    /// What a process needs for it.
    pub fn needs(self) -> HandlerNeeds {
        let high = self.priority == Priority::High;
        match self.policy {
            Policy::Other if high => {
                HandlerNeeds { rtprio: 0, nice: (20 + NICE).unsigned_abs().into() }
            }
            Policy::Other => HandlerNeeds::default(),
            Policy::RoundRobin | Policy::Fifo => {
                HandlerNeeds { rtprio: (MAIN + i32::from(high)).unsigned_abs().into(), nice: 0 }
            }
        }
    }

    /// Applies it to the calling thread, which is one of the two.
    ///
    /// # Errors
    /// [`AttachError::Io`]: not permitted. Real-time priorities need root or a limit
    /// (`ulimit -r`), an ordinary handler above main needs root or `ulimit -e`.
    pub(crate) fn apply(self, thread: Thread) -> Result<(), AttachError> {
        let above = match (thread, self.priority) {
            (Thread::Main, _) | (_, Priority::Even) => 0,
            (Thread::Handler, Priority::Low) => -1,
            (Thread::Handler, Priority::High) => 1,
        };
        let done = match self.policy {
            Policy::Other => raise_nice(-NICE * above),
            Policy::RoundRobin => policy(libc::SCHED_RR, MAIN + above),
            Policy::Fifo => policy(libc::SCHED_FIFO, MAIN + above),
        };
        let what = "setting the scheduling that KUMI_HANDLER asks for; run as root, raise the limits \
                    of real-time priority and nice, or leave it out";
        done.map_err(io_error(what))
    }
}

#[cold]
fn bad(text: &str) -> AttachError {
    AttachError::BadSetting {
        name: "KUMI_HANDLER",
        found: text.to_string(),
        expected: "other, rr or fifo, with :low, :even or :high behind it for the handler's priority",
    }
}

/// Lets the calling thread run before the machine's ordinary ones, if that is permitted. Threads and
/// processes that it starts are ordinary. A thread that already has another policy keeps it.
///
/// # Errors
/// Neither root, nor allowed to by the limit of `nice` (`ulimit -e`): its `nice` has not changed then.
pub fn prefer_this_thread() -> io::Result<()> {
    // SAFETY: no pointers.
    if unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK != libc::SCHED_OTHER {
        return Ok(());
    }
    policy(libc::SCHED_OTHER, 0)?;
    set_nice(nice()? - PREFERRED)
}

/// The calling thread's `nice`.
///
/// # Errors
/// The system's error.
pub fn nice() -> io::Result<i32> {
    // On Linux a number of 0 means the calling thread alone.
    // SAFETY: no pointers. -1 can be a value as well as an error, hence errno.
    let now = unsafe {
        *libc::__errno_location() = 0;
        libc::getpriority(libc::PRIO_PROCESS, 0)
    };
    let error = io::Error::last_os_error();
    if now == -1 && error.raw_os_error() != Some(0) { Err(error) } else { Ok(now) }
}

/// Sets the calling thread's `nice`, which what it starts afterwards inherits; within the system's bounds.
///
/// # Errors
/// Less than now is permitted to root and within a limit only.
pub fn set_nice(nice: i32) -> io::Result<()> {
    // SAFETY: no pointers.
    if unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) } == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

/// Adds to the calling thread's `nice`.
fn raise_nice(by: libc::c_int) -> io::Result<()> {
    if by == 0 { Ok(()) } else { set_nice(nice()? + by) }
}

/// Gives the calling thread a policy. Its children do not inherit it if it is a real-time one, nor that it is preferred.
fn policy(policy: libc::c_int, priority: libc::c_int) -> io::Result<()> {
    // SAFETY: an all-zero structure is valid.
    let mut parameter: libc::sched_param = unsafe { std::mem::zeroed() };
    parameter.sched_priority = priority;
    let policy = policy | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the pointer is to a structure of our own; 0 is the calling thread.
    if unsafe { libc::sched_setscheduler(0, policy, &raw const parameter) } == 0 {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_is_read() {
        let parse = |text| HandlerSetting::parse(text).ok();
        let setting = |policy, priority| Some(HandlerSetting { policy, priority });
        assert_eq!(parse("other"), setting(Policy::Other, Priority::Even));
        assert_eq!(parse("rr:low"), setting(Policy::RoundRobin, Priority::Low));
        assert_eq!(parse("fifo:high"), setting(Policy::Fifo, Priority::High));
        for wrong in ["", "fifo:", "batch", "fifo:highest", "rr high"] {
            assert!(matches!(
                HandlerSetting::parse(wrong),
                Err(AttachError::BadSetting { name: "KUMI_HANDLER", .. })
            ));
        }
    }

    /// In threads of their own, which end with what was set.
    #[test]
    #[cfg_attr(miri, ignore = "threads have no priorities there")]
    fn threads_get_what_they_are_told_or_say_why_not() {
        for text in ["other:low", "rr:even", "fifo:high", "fifo:low"] {
            let setting = HandlerSetting::parse(text).expect("right");
            for thread in [Thread::Main, Thread::Handler] {
                std::thread::spawn(move || check(setting, thread)).join().expect("as it should be");
            }
        }
    }

    /// In a thread of its own: preferred, which threads that it starts are not; or told why not.
    #[test]
    #[cfg_attr(miri, ignore = "threads have no priorities there")]
    fn a_daemon_is_preferred_and_its_children_are_not() {
        let nice = || nice().expect("there is one");
        let body = move || {
            let before = nice();
            if let Err(error) = prefer_this_thread() {
                assert!(matches!(error.raw_os_error(), Some(libc::EPERM | libc::EACCES)));
                assert_eq!(nice(), before);
                return;
            }
            assert_eq!(nice(), (before - PREFERRED).max(-20));
            let child = std::thread::spawn(nice).join().expect("as it should be");
            assert_eq!(child, (before - PREFERRED).max(0));
        };
        std::thread::spawn(body).join().expect("as it should be");
    }

    fn check(setting: HandlerSetting, thread: Thread) {
        // SAFETY: no pointers, or one to a structure of our own.
        let nice = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        let before = nice();
        match setting.apply(thread) {
            // Without the right to: said, not passed over.
            Err(AttachError::Io { source, .. }) => {
                let code = source.raw_os_error();
                assert!(matches!(code, Some(libc::EPERM | libc::EACCES)), "{source}");
                return;
            }
            done => done.expect("set"),
        }
        // SAFETY: as above.
        let policy = unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK;
        // SAFETY: an all-zero structure is valid.
        let mut parameter: libc::sched_param = unsafe { std::mem::zeroed() };
        // SAFETY: the structure is ours.
        unsafe { libc::sched_getparam(0, &raw mut parameter) };
        match setting.policy {
            Policy::Other => {
                let expected =
                    if thread == Thread::Main { before } else { (before + NICE).min(19) };
                assert_eq!((policy, nice()), (libc::SCHED_OTHER, expected));
            }
            Policy::RoundRobin => {
                assert_eq!((policy, parameter.sched_priority), (libc::SCHED_RR, 10));
            }
            Policy::Fifo => {
                assert_eq!(policy, libc::SCHED_FIFO);
                let above = match (thread, setting.priority) {
                    (Thread::Handler, Priority::High) => 1,
                    (Thread::Handler, Priority::Low) => -1,
                    _ => 0,
                };
                assert_eq!(parameter.sched_priority, MAIN + above);
            }
        }
    }
}
