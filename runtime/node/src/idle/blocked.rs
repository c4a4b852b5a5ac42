//! Verdict on a thread that uses no processor: does it wait for others, or does something work for it?
//!
//! Pure: what the system says of the thread goes in. Whatever is not known to be a wait counts as work.

use nix::libc;

use crate::process_table::SystemCall;

/// What a descriptor is, as far as a wait on it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileKind {
    /// A terminal, pipe, event, timer or the like: others, users or time decide when there is something.
    Passive,
    /// The same, but what is sent may be on its way through a network.
    Socket,
    /// A device or a file: it works while the thread sleeps.
    Active,
}

/// Files of a thread's process.
pub(super) trait Files {
    /// What a descriptor is; `None` if that cannot be said.
    fn kind(&mut self, fd: i32) -> Option<FileKind>;

    /// The descriptors of an array of `pollfd` in its memory, as far as it can be read.
    fn polled(&mut self, address: u64, count: u64) -> Option<Vec<i32>>;

    /// The members of sets of descriptors below `limit` in its memory.
    fn selected(&mut self, sets: [u64; 3], limit: u64) -> Option<Vec<i32>>;

    /// The descriptors that an epoll instance watches.
    fn watched(&mut self, epoll: i32) -> Option<Vec<i32>>;
}

/// For what a call waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WaitsFor {
    /// Other processes, users or time.
    Others,
    /// The file of its first argument to give something.
    Input,
    /// The file of its first argument to take something.
    Output,
    /// One of the files of an array.
    Poll,
    /// One of the files of sets.
    Select,
    /// One of the files of an epoll instance.
    Epoll,
    /// Something that works.
    Work,
}

/// Whether a thread in this state and call has something that works for it, or works itself.
pub(super) fn works(state: char, call: SystemCall, files: &mut impl Files) -> bool {
    match state {
        'S' => {}
        // Stopped by job control or a debugger; has ended.
        'T' | 't' | 'Z' | 'X' | 'x' => return false,
        // Runs, would run, waits for a disk; and what nobody knows.
        _ => return true,
    }
    let (number, arguments) = match call {
        SystemCall::None => return true,
        SystemCall::Hidden => return false,
        SystemCall::In(number, arguments) => (number, arguments),
    };
    let active = |kind: Option<FileKind>| kind == Some(FileKind::Active);
    let fd = descriptor(arguments[0]);
    let fds = match waits_for(number) {
        WaitsFor::Others => return false,
        WaitsFor::Work => return true,
        WaitsFor::Input => return active(files.kind(fd)),
        WaitsFor::Output => {
            return matches!(files.kind(fd), Some(FileKind::Active | FileKind::Socket));
        }
        WaitsFor::Poll => files.polled(arguments[0], arguments[1]),
        WaitsFor::Select => {
            files.selected([arguments[1], arguments[2], arguments[3]], arguments[0])
        }
        WaitsFor::Epoll => files.watched(fd),
    };
    fds.is_some_and(|fds| fds.into_iter().any(|fd| active(files.kind(fd))))
}

/// A descriptor as it was given: the upper half of a register says nothing.
fn descriptor(argument: u64) -> i32 {
    let low = argument.to_le_bytes();
    i32::from_le_bytes([low[0], low[1], low[2], low[3]])
}

/// `futex_waitv`, which is newer than some headers; the number is the same everywhere.
const FUTEX_WAITV: i64 = 449;
/// `io_uring_enter`, likewise.
const IO_URING_ENTER: i64 = 426;
/// `epoll_pwait2`, likewise.
const EPOLL_PWAIT2: i64 = 441;

fn waits_for(number: i64) -> WaitsFor {
    match number {
        libc::SYS_futex
        | FUTEX_WAITV
        | libc::SYS_nanosleep
        | libc::SYS_clock_nanosleep
        | libc::SYS_wait4
        | libc::SYS_waitid
        | libc::SYS_rt_sigsuspend
        | libc::SYS_rt_sigtimedwait
        | libc::SYS_restart_syscall
        | libc::SYS_msgrcv
        | libc::SYS_msgsnd
        | libc::SYS_semop
        | libc::SYS_semtimedop
        | libc::SYS_mq_timedreceive
        | libc::SYS_mq_timedsend
        | libc::SYS_flock
        | libc::SYS_fcntl
        | libc::SYS_openat
        | libc::SYS_accept
        | libc::SYS_accept4
        | libc::SYS_recvfrom
        | libc::SYS_recvmsg
        | libc::SYS_recvmmsg => WaitsFor::Others,
        libc::SYS_read
        | libc::SYS_readv
        | libc::SYS_pread64
        | libc::SYS_preadv
        | libc::SYS_preadv2
        | libc::SYS_ioctl
        | libc::SYS_splice
        | libc::SYS_tee => WaitsFor::Input,
        libc::SYS_write
        | libc::SYS_writev
        | libc::SYS_pwrite64
        | libc::SYS_pwritev
        | libc::SYS_pwritev2
        | libc::SYS_vmsplice
        | libc::SYS_sendto
        | libc::SYS_sendmsg
        | libc::SYS_sendmmsg => WaitsFor::Output,
        libc::SYS_ppoll => WaitsFor::Poll,
        libc::SYS_pselect6 => WaitsFor::Select,
        libc::SYS_epoll_pwait | EPOLL_PWAIT2 => WaitsFor::Epoll,
        libc::SYS_io_getevents | IO_URING_ENTER => WaitsFor::Work,
        other => of_older(other),
    }
}

/// The same of calls that newer architectures lack.
#[cfg(target_arch = "x86_64")]
fn of_older(number: i64) -> WaitsFor {
    match number {
        libc::SYS_pause | libc::SYS_open => WaitsFor::Others,
        libc::SYS_poll => WaitsFor::Poll,
        libc::SYS_select => WaitsFor::Select,
        libc::SYS_epoll_wait => WaitsFor::Epoll,
        _ => WaitsFor::Work,
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn of_older(_number: i64) -> WaitsFor {
    WaitsFor::Work
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Descriptors 0 to 9 are passive, 10 to 19 sockets, 20 to 29 devices; others are unknown.
    struct Known {
        fds: Option<Vec<i32>>,
        asked: Option<i32>,
    }

    impl Files for Known {
        fn kind(&mut self, fd: i32) -> Option<FileKind> {
            match fd {
                0..=9 => Some(FileKind::Passive),
                10..=19 => Some(FileKind::Socket),
                20..=29 => Some(FileKind::Active),
                _ => None,
            }
        }

        fn polled(&mut self, _: u64, _: u64) -> Option<Vec<i32>> {
            self.fds.clone()
        }

        fn selected(&mut self, _: [u64; 3], _: u64) -> Option<Vec<i32>> {
            self.fds.clone()
        }

        fn watched(&mut self, epoll: i32) -> Option<Vec<i32>> {
            self.asked = Some(epoll);
            self.fds.clone()
        }
    }

    fn known(fds: &[i32]) -> Known {
        Known { fds: Some(fds.to_vec()), asked: None }
    }

    fn sleeps_in(number: i64, first: u64, fds: &[i32]) -> bool {
        works('S', SystemCall::In(number, [first, 0, 0, 0, 0, 0]), &mut known(fds))
    }

    #[test]
    fn a_shell_at_its_prompt_and_a_kernel_between_cells_wait() {
        assert!(!sleeps_in(libc::SYS_read, 0, &[]), "a terminal");
        assert!(!sleeps_in(libc::SYS_pselect6, 1, &[0]));
        assert!(!sleeps_in(libc::SYS_ppoll, 0x7ffe_0000, &[3, 11]));
        assert!(!sleeps_in(libc::SYS_epoll_pwait, 5, &[3, 11, 12]));
        for call in [libc::SYS_futex, libc::SYS_wait4, libc::SYS_nanosleep, libc::SYS_recvmsg] {
            assert!(!sleeps_in(call, 20, &[]), "{call}");
        }
        assert!(!works('T', SystemCall::None, &mut known(&[])), "Ctrl-Z");
    }

    #[test]
    fn who_waits_for_a_device_works() {
        assert!(sleeps_in(libc::SYS_read, 20, &[]));
        assert!(sleeps_in(libc::SYS_ioctl, 20, &[]));
        assert!(sleeps_in(libc::SYS_ppoll, 0, &[3, 25]));
        assert!(sleeps_in(libc::SYS_epoll_pwait, 5, &[25]));
        assert!(sleeps_in(IO_URING_ENTER, 5, &[]) && sleeps_in(libc::SYS_io_getevents, 5, &[]));
        assert!(sleeps_in(libc::SYS_sendto, 11, &[]), "it is sent");
        assert!(!sleeps_in(libc::SYS_write, 1, &[]), "a pipe or terminal is read by somebody");
        assert!(!sleeps_in(libc::SYS_read, 11, &[]));
        assert!(works('D', SystemCall::Hidden, &mut known(&[])));
        assert!(works('S', SystemCall::None, &mut known(&[])), "a page comes from elsewhere");
        assert!(sleeps_in(-5, 0, &[]) && sleeps_in(100_000, 0, &[]), "what nobody knows");
    }

    #[test]
    fn only_the_lower_half_of_a_register_is_a_descriptor() {
        assert!(sleeps_in(libc::SYS_read, 0xffff_ffff_0000_0014, &[]));
        let mut files = known(&[]);
        let call = SystemCall::In(libc::SYS_epoll_pwait, [7 | 1 << 40, 0, 0, 0, 0, 0]);
        assert!(!works('S', call, &mut files));
        assert_eq!(files.asked, Some(7));
    }

    #[test]
    fn what_may_not_be_read_does_not_keep_a_job_in_its_turns() {
        let mut hidden = Known { fds: None, asked: None };
        let call = SystemCall::In(libc::SYS_ppoll, [0; 6]);
        assert!(!works('S', call, &mut hidden));
        assert!(!works('S', SystemCall::Hidden, &mut hidden));
        assert!(!sleeps_in(libc::SYS_read, 77, &[]));
    }

    fn any_call() -> impl Strategy<Value = SystemCall> {
        let arguments = proptest::array::uniform6(any::<u64>());
        prop_oneof![
            Just(SystemCall::None),
            Just(SystemCall::Hidden),
            (-2i64..500, arguments)
                .prop_map(|(number, arguments)| SystemCall::In(number, arguments)),
        ]
    }

    proptest! {
        /// Whatever call it is said to be in.
        #[test]
        fn who_runs_or_waits_for_a_disk_works(call in any_call(), fds in proptest::collection::vec(-1..40, 0..5)) {
            prop_assert!(works('R', call, &mut known(&fds)));
            prop_assert!(works('D', call, &mut known(&fds)));
        }

        /// More devices never turn work into a wait.
        #[test]
        fn one_device_among_the_files_is_enough(
            call in any_call(),
            fds in proptest::collection::vec(0..20, 0..5),
            device in 20..30,
        ) {
            let without = works('S', call, &mut known(&fds));
            let with = works('S', call, &mut known(&[&fds[..], &[device]].concat()));
            prop_assert!(with || !without);
            let polls = matches!(call, SystemCall::In(number, _) if matches!(
                waits_for(number),
                WaitsFor::Poll | WaitsFor::Select | WaitsFor::Epoll
            ));
            prop_assert!(!polls || with);
        }
    }
}
