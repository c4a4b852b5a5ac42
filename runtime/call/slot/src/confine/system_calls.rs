//! Filters of system calls (seccomp) for the processes of slots.
//!
//! - Every slot: what reaches into other processes of the same user, into a terminal, or changes the machine.
//! - A sandbox besides: namespaces and mounts, keys, `io_uring`, sockets but those of the Internet, and system calls that are
//!   newer than this list. Without sockets of other families, no socket with a path can be reached, wherever it lies.
//!
//! The list is of what no routine needs, not of what routines need: libraries differ too much in the latter. A denied
//! call fails with `EPERM`; one that is not there for routines fails with `ENOSYS`, and libraries use an older one.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
    SeccompFilter, SeccompRule, TargetArch, apply_filter_all_threads, sock_filter,
};

use super::Level;

/// Reach into processes, or change the machine.
const DENIED_TO_ALL: &[c_long] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_perf_event_open,
    libc::SYS_bpf,
    libc::SYS_kexec_load,
    libc::SYS_kexec_file_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_reboot,
];

/// `open_tree_attr`, which the `libc` crate does not have.
const OPEN_TREE_ATTR: c_long = 467;

/// From and to these numbers, x86-64 has calls with pointers of 32 bits that older kernels run without
/// [`X32_SYSCALL_BIT`], too. They lie beyond the list's.
const X32_LEGACY_RANGE: [u32; 2] = [512, 547];

/// What a sandbox denies besides.
const DENIED_IN_SANDBOX: &[c_long] = &[
    // Its files and namespaces are to stay as they are.
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    OPEN_TREE_ATTR,
    libc::SYS_move_mount,
    libc::SYS_mount_setattr,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    // Keys are those of the user, whatever the namespace.
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    // Parts of the kernel where errors were many; the first also goes around this filter.
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_userfaultfd,
    libc::SYS_fanotify_init,
    // The machine's settings.
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
];

/// Those of one architecture.
#[cfg(target_arch = "x86_64")]
const DENIED_HERE: &[c_long] = &[libc::SYS_iopl, libc::SYS_ioperm, libc::SYS_modify_ldt];
#[cfg(not(target_arch = "x86_64"))]
const DENIED_HERE: &[c_long] = &[];

/// The number of the newest system call that was looked at (Linux 6.17).
const NEWEST: u32 = 469;

/// From this number on, x86-64 has its calls with pointers of 32 bits, under other numbers than the list's.
const X32_SYSCALL_BIT: u32 = 0x4000_0000;

/// `SOCK_PACKET`, which the `libc` crate deprecates.
const SOCK_PACKET: u64 = 10;

/// Commands of `ioctl` that type into a terminal, or paste what is selected.
const TYPING: [u64; 2] = [libc::TIOCSTI, 0x541c];

/// Flags with which `clone` makes namespaces.
const NAMESPACES: [libc::c_int; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

type Rules = BTreeMap<c_long, Vec<SeccompRule>>;

/// A condition of 32 bits on an argument; the kernel looks at no more of these arguments.
fn condition(
    argument: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
}

/// The rule in which an argument equals a number.
fn equals(argument: u8, value: u64) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![condition(argument, SeccompCmpOp::Eq, value)?])
}

/// The rule in which these bits of an argument are as those of a number.
fn has(argument: u8, bits: u64, value: u64) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(vec![condition(argument, SeccompCmpOp::MaskedEq(bits), value)?])
}

/// What `EPERM` answers.
fn denied(level: Level) -> Result<Rules, BackendError> {
    // Without conditions a call is denied whatever its arguments.
    let always = |calls: &[c_long]| calls.iter().map(|call| (*call, Vec::new())).collect();
    let mut rules: Rules = always(DENIED_TO_ALL);
    let typing: Result<_, _> = TYPING.iter().map(|command| equals(1, *command)).collect();
    rules.insert(libc::SYS_ioctl, typing?);
    // A process sets its own limits. A limit of time would end another one.
    let another = condition(0, SeccompCmpOp::Ne, 0)?;
    rules.insert(libc::SYS_prlimit64, vec![SeccompRule::new(vec![another])?]);
    if level != Level::Sandbox {
        return Ok(rules);
    }
    rules.extend::<Rules>(always(DENIED_IN_SANDBOX));
    rules.extend::<Rules>(always(DENIED_HERE));
    let flags = NAMESPACES.map(|flag| u64::from(flag.cast_unsigned()));
    let namespaces: Result<_, _> = flags.iter().map(|flag| has(0, *flag, *flag)).collect();
    rules.insert(libc::SYS_clone, namespaces?);
    let number = |value: libc::c_int| u64::from(value.cast_unsigned());
    let families = [libc::AF_INET, libc::AF_INET6];
    let others: Result<_, _> =
        families.iter().map(|family| condition(0, SeccompCmpOp::Ne, number(*family))).collect();
    // An Internet socket of this kind becomes one of packets.
    let packets = has(1, 0xf, SOCK_PACKET)?;
    rules.insert(libc::SYS_socket, vec![SeccompRule::new(others?)?, packets]);
    // A pair of datagram sockets would send to any path; a stream is tied to its other end.
    let kinds = [libc::SOCK_DGRAM, libc::SOCK_RAW];
    let loose: Result<Vec<_>, _> = kinds.iter().map(|kind| has(1, 0xf, number(*kind))).collect();
    let mut pairs = loose?;
    let another = condition(0, SeccompCmpOp::Ne, number(libc::AF_UNIX))?;
    pairs.push(SeccompRule::new(vec![another])?);
    rules.insert(libc::SYS_socketpair, pairs);
    Ok(rules)
}

/// The program that denies.
fn denying(level: Level) -> Result<BpfProgram, BackendError> {
    let (otherwise, denies) = (SeccompAction::Allow, SeccompAction::Errno(libc::EPERM as u32));
    let architecture = TargetArch::try_from(std::env::consts::ARCH)?;
    SeccompFilter::new(denied(level)?, otherwise, denies, architecture)?.try_into()
}

/// The program by which calls are not there: other numbers for known calls, and in a sandbox newer calls and `clone3`,
/// whose flags no filter sees.
fn hiding(level: Level) -> BpfProgram {
    let first = match level {
        Level::Proxy | Level::Plain => X32_SYSCALL_BIT,
        Level::Sandbox => NEWEST + 1,
    };
    // With this number nothing is hidden that the first comparison leaves.
    let one = match level {
        Level::Proxy | Level::Plain => X32_SYSCALL_BIT,
        Level::Sandbox => libc::SYS_clone3 as u32,
    };
    let step = |code: u32, jt: u8, jf: u8, k: u32| sock_filter { code: code as u16, jt, jf, k };
    let [below, last] = X32_LEGACY_RANGE;
    vec![
        // The number is the first field.
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 4, 0, first),
        step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 3, 0, one),
        step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 0, 1, below),
        step(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, 0, 1, last),
        step(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_ALLOW),
        step(libc::BPF_RET, 0, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32),
    ]
}

/// Filters the system calls of this process and its children for good. It can gain no privileges from now on.
///
/// # Errors
/// An error message.
pub(super) fn filter(level: Level) -> Result<(), String> {
    let failed = |error: &dyn std::fmt::Display| {
        format!("system calls cannot be filtered: {error}; the kernel needs seccomp with filters")
    };
    let denying = denying(level).map_err(|error| failed(&error))?;
    // Threads of libraries that an executable is linked with may be there already.
    for program in [hiding(level), denying] {
        apply_filter_all_threads(&program).map_err(|error| failed(&error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program on a system call, as the kernel does.
    fn run(program: &BpfProgram, number: u32, arguments: [u64; 6]) -> u32 {
        let mut data = [0_u8; 64];
        data[..4].copy_from_slice(&number.to_le_bytes());
        let machine: u32 = if cfg!(target_arch = "x86_64") { 0xc000_003e } else { 0xc000_00b7 };
        data[4..8].copy_from_slice(&machine.to_le_bytes());
        for (at, argument) in (16..).step_by(8).zip(arguments) {
            data[at..at + 8].copy_from_slice(&argument.to_le_bytes());
        }
        let (mut at, mut a) = (0, 0_u32);
        loop {
            let sock_filter { code, jt, jf, k } = program[at].clone();
            let jump = |is: bool| usize::from(if is { jt } else { jf });
            at += 1;
            match u32::from(code) {
                code if code == libc::BPF_LD | libc::BPF_W | libc::BPF_ABS => {
                    let from = k as usize;
                    a = u32::from_le_bytes(data[from..from + 4].try_into().expect("four"));
                }
                code if code == libc::BPF_ALU | libc::BPF_AND | libc::BPF_K => a &= k,
                code if code == libc::BPF_JMP | libc::BPF_JA => at += k as usize,
                code if code == libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K => at += jump(a == k),
                code if code == libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K => at += jump(a >= k),
                code if code == libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K => at += jump(a > k),
                code if code == libc::BPF_RET => return k,
                other => panic!("{other:#x}"),
            }
        }
    }

    /// The error with which a call fails at a level; 0: it goes to the kernel.
    fn errno(level: Level, number: c_long, arguments: [u64; 6]) -> i32 {
        let number = u32::try_from(number).expect("a number");
        let denying = denying(level).expect("a program");
        let said = [hiding(level), denying].map(|program| run(&program, number, arguments));
        let errno = |said: u32| match said {
            libc::SECCOMP_RET_ALLOW => 0,
            said if said & libc::SECCOMP_RET_ACTION_FULL == libc::SECCOMP_RET_ERRNO => {
                i32::try_from(said & libc::SECCOMP_RET_DATA).expect("small")
            }
            said => panic!("{said:#x}"),
        };
        said.map(errno).into_iter().max().unwrap_or(0)
    }

    fn first(value: libc::c_int) -> [u64; 6] {
        [u64::from(value.cast_unsigned()), 0, 0, 0, 0, 0]
    }

    fn second(value: u64) -> [u64; 6] {
        [libc::AF_UNIX as u64, value, 0, 0, 0, 0]
    }

    #[test]
    fn what_no_routine_needs_is_denied() {
        for call in DENIED_TO_ALL {
            assert_eq!(errno(Level::Plain, *call, [0; 6]), libc::EPERM, "{call}");
            assert_eq!(errno(Level::Sandbox, *call, [0; 6]), libc::EPERM, "{call}");
        }
        for call in DENIED_IN_SANDBOX.iter().chain(DENIED_HERE) {
            assert_eq!(errno(Level::Plain, *call, [0; 6]), 0, "{call}");
            assert_eq!(errno(Level::Sandbox, *call, [0; 6]), libc::EPERM, "{call}");
        }
    }

    #[test]
    fn usual_calls_go_to_the_kernel() {
        let usual = [
            libc::SYS_read,
            libc::SYS_openat,
            libc::SYS_mmap,
            libc::SYS_futex,
            libc::SYS_execve,
            libc::SYS_clone,
            libc::SYS_kill,
            libc::SYS_ioctl,
            libc::SYS_memfd_create,
            libc::SYS_sched_setaffinity,
            libc::SYS_prlimit64,
        ];
        for level in [Level::Plain, Level::Sandbox] {
            for call in usual {
                assert_eq!(errno(level, call, [0; 6]), 0, "{call}");
            }
        }
    }

    /// Also with other bits above the 32 at which the kernel looks.
    #[test]
    fn nothing_is_typed_into_terminals() {
        for level in [Level::Plain, Level::Sandbox] {
            for command in TYPING {
                for above in [0, 1 << 32, 1 << 63] {
                    let said = errno(level, libc::SYS_ioctl, second(command | above));
                    assert_eq!(said, libc::EPERM, "{command:#x}");
                }
            }
            assert_eq!(errno(level, libc::SYS_ioctl, second(libc::TIOCGWINSZ)), 0);
        }
    }

    #[test]
    fn a_sandbox_has_sockets_of_the_internet_and_pairs_tied_to_each_other() {
        let in_sandbox = |call, arguments| errno(Level::Sandbox, call, arguments);
        for family in 0..50 {
            let is_internet = [libc::AF_INET, libc::AF_INET6].contains(&family);
            let wanted = if is_internet { 0 } else { libc::EPERM };
            assert_eq!(in_sandbox(libc::SYS_socket, first(family)), wanted, "{family}");
        }
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        for (kind, wanted) in [
            (libc::SOCK_STREAM, 0),
            (libc::SOCK_SEQPACKET, 0),
            (libc::SOCK_DGRAM, libc::EPERM),
            (libc::SOCK_RAW, libc::EPERM),
        ] {
            for kind in [kind, kind | flags] {
                let said = in_sandbox(libc::SYS_socketpair, second(kind as u64));
                assert_eq!(said, wanted, "{kind}");
            }
        }
        assert_eq!(errno(Level::Plain, libc::SYS_socket, first(libc::AF_UNIX)), 0);
        for kind in [SOCK_PACKET, SOCK_PACKET | libc::SOCK_CLOEXEC as u64] {
            let packets = [libc::AF_INET as u64, kind, 0, 0, 0, 0];
            assert_eq!(in_sandbox(libc::SYS_socket, packets), libc::EPERM);
        }
        for family in (0..50).filter(|family| *family != libc::AF_UNIX as u64) {
            let pair = [family, libc::SOCK_STREAM as u64, 0, 0, 0, 0];
            assert_eq!(in_sandbox(libc::SYS_socketpair, pair), libc::EPERM, "{family}");
        }
    }

    #[test]
    fn a_routine_limits_no_other_process() {
        for level in [Level::Plain, Level::Sandbox] {
            assert_eq!(errno(level, libc::SYS_prlimit64, first(0)), 0);
            for pid in [1, 4711, -1] {
                assert_eq!(errno(level, libc::SYS_prlimit64, first(pid)), libc::EPERM, "{pid}");
            }
        }
    }

    #[test]
    fn a_sandbox_makes_no_namespaces() {
        for flag in NAMESPACES {
            let flags = first(flag | libc::SIGCHLD);
            assert_eq!(errno(Level::Sandbox, libc::SYS_clone, flags), libc::EPERM, "{flag:#x}");
            assert_eq!(errno(Level::Plain, libc::SYS_clone, flags), 0, "{flag:#x}");
        }
        let thread = libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_THREAD | libc::CLONE_SIGHAND;
        assert_eq!(errno(Level::Sandbox, libc::SYS_clone, first(thread)), 0);
        assert_eq!(errno(Level::Sandbox, libc::SYS_clone3, [0; 6]), libc::ENOSYS);
        assert_eq!(errno(Level::Plain, libc::SYS_clone3, [0; 6]), 0);
    }

    #[test]
    fn calls_that_the_list_does_not_know_are_not_there() {
        let ptrace = libc::SYS_ptrace + c_long::from(X32_SYSCALL_BIT);
        for level in [Level::Plain, Level::Sandbox] {
            assert_eq!(errno(level, ptrace, [0; 6]), libc::ENOSYS);
        }
        for level in [Level::Plain, Level::Sandbox] {
            for number in [512, 520, 547] {
                assert_eq!(errno(level, number, [0; 6]), libc::ENOSYS, "{number}");
            }
        }
        assert_eq!(errno(Level::Plain, 511, [0; 6]), 0);
        assert_eq!(errno(Level::Plain, 548, [0; 6]), 0);
        let newer = c_long::from(NEWEST) + 1;
        assert_eq!(errno(Level::Sandbox, newer, [0; 6]), libc::ENOSYS);
        assert_eq!(errno(Level::Sandbox, newer - 1, [0; 6]), 0);
        assert_eq!(errno(Level::Plain, newer, [0; 6]), 0);
    }
}
