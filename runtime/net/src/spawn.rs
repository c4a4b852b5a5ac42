//! Process creation inside of a control group.
//!
//! If a process is moved into a control group later, the kernel waits for all processors to pass a
//! quiet point: 5 to 12 milliseconds. Creating it there (`CLONE_INTO_CGROUP`) costs nothing extra, and
//! the standard library cannot do it.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Specification of a process to start. Descriptors are named by their numbers: the thread that starts processes has only these.
/// Who asks for the process keeps them open meanwhile.
#[derive(Debug)]
pub struct ProcessSpec<'a> {
    /// The file.
    pub program: &'a CStr,
    /// Its arguments, the name first.
    pub arguments: &'a [&'a CStr],
    /// Standard input, output and errors.
    pub streams: [RawFd; 3],
    /// Other descriptors to be inherited, under their numbers. None may be 0, 1 or 2.
    pub inherited: &'a [RawFd],
    /// It leads a session of its own, not only a process group.
    pub session: bool,
    /// The folder of the control group (version 2).
    pub group: RawFd,
}

/// A started process: leader of a process group of its own, or of a session, with an empty environment.
#[derive(Debug)]
pub struct SpawnedProcess {
    /// Its number.
    pub pid: i32,
    /// For waiting; closed on exec.
    pub pidfd: OwnedFd,
}

/// Starts a process. If the program then cannot be executed it exits with 127.
///
/// # Errors
/// The kernel's error: `ENOSYS` on kernels before 5.7, `EPERM` where a filter forbids it, `EBUSY` or
/// `EACCES` where the group does not take processes.
pub fn spawn(birth: &ProcessSpec<'_>) -> io::Result<SpawnedProcess> {
    // Everything that allocates comes before the new process, which must not.
    let mut arguments: Vec<*const libc::c_char> =
        birth.arguments.iter().map(|argument| argument.as_ptr()).collect();
    arguments.push(ptr::null());
    let environment = [ptr::null::<libc::c_char>()];
    refuse_low(&birth.streams, birth.inherited)?;
    let mut pidfd: libc::c_int = -1;
    // SAFETY: all zeroes is a valid value of this plain structure, and means "not used".
    let mut clone: libc::clone_args = unsafe { std::mem::zeroed() };
    clone.flags = (libc::CLONE_PIDFD as u64) | CLONE_INTO_CGROUP;
    clone.pidfd = (&raw mut pidfd) as u64;
    clone.exit_signal = libc::SIGCHLD as u64;
    clone.cgroup = birth.group as u64;
    // SAFETY: without CLONE_VM this is a fork: the child has its own copy of memory and goes on
    // here. It may only do what is safe after a fork of a process with threads, see `child`.
    let pid =
        unsafe { libc::syscall(libc::SYS_clone3, &raw const clone, size_of::<libc::clone_args>()) };
    match pid {
        0 => child(birth, &arguments, &environment),
        -1 => Err(io::Error::last_os_error()),
        pid => Ok(SpawnedProcess {
            pid: pid as i32,
            // SAFETY: the kernel has just made this descriptor for us.
            pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) },
        }),
    }
}

/// Refuses descriptors 0 to 2: those become the new process's own streams, one after the other.
fn refuse_low(streams: &[RawFd], inherited: &[RawFd]) -> io::Result<()> {
    match streams.iter().chain(inherited).any(|fd| *fd <= 2) {
        true => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        false => Ok(()),
    }
}

/// `CLONE_INTO_CGROUP` of `linux/sched.h`, which does not fit the type of the other flags.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// The rest of the new process's life under this program. System calls only: another thread may
/// have held any lock, the allocator's included, at the moment of the fork.
fn child(
    birth: &ProcessSpec<'_>,
    arguments: &[*const libc::c_char],
    environment: &[*const libc::c_char],
) -> ! {
    // SAFETY: async-signal-safe system calls on descriptors and arrays that the parent prepared. The
    // arrays end with a null pointer, and their strings live in this copy of its memory.
    unsafe {
        let mut ok = if birth.session { libc::setsid() >= 0 } else { libc::setpgid(0, 0) == 0 };
        for (number, stream) in (0..).zip(&birth.streams) {
            ok &= libc::dup2(*stream, number) >= 0;
        }
        for &fd in birth.inherited {
            ok &= libc::fcntl(fd, libc::F_SETFD, 0) == 0;
        }
        if ok {
            libc::execve(birth.program.as_ptr(), arguments.as_ptr(), environment.as_ptr());
        }
        libc::_exit(127)
    }
}

/// Has the process of a command get these descriptors: standard input, output and errors, and others under their numbers. They
/// are given in the new process. So no other process that this one starts at that moment gets them.
///
/// # Errors
/// `EINVAL`: one of them is 0, 1 or 2.
pub fn give(command: &mut Command, streams: [RawFd; 3], inherited: Vec<RawFd>) -> io::Result<()> {
    refuse_low(&streams, &inherited)?;
    let done = |result: libc::c_int| match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    };
    let take = move || {
        for (number, &stream) in (0..).zip(&streams) {
            // SAFETY: a plain system call on numbers, in a process that has one thread.
            done(unsafe { libc::dup2(stream, number) })?;
        }
        for &fd in &inherited {
            // SAFETY: as above.
            done(unsafe { libc::fcntl(fd, libc::F_SETFD, 0) })?;
        }
        Ok(())
    };
    // SAFETY: after the fork it makes system calls only, and allocates nothing.
    unsafe { command.pre_exec(take) };
    Ok(())
}

/// Takes over all descriptors above 2 that this process was born with, by number, to be closed on exec from now on. The
/// second call gets none.
///
/// # Errors
/// The kernel's error.
pub fn take_inherited() -> io::Result<BTreeMap<RawFd, OwnedFd>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fd")? {
        found.extend(entry?.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok()));
    }
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(BTreeMap::new());
    }
    let mut inherited = BTreeMap::new();
    for fd in found.into_iter().filter(|&fd| fd > 2) {
        // SAFETY: a plain system call. The folder that was read is among them, and closed by now.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
        // What this program has opened itself is closed on exec; what it was born with is not.
        if flags < 0 || flags & libc::FD_CLOEXEC != 0 {
            continue;
        }
        // SAFETY: as above.
        if unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was there when the program began, is open, and nobody of this program has it: whoever opens something
        // here has it closed on exec, and this is done once.
        inherited.insert(fd, unsafe { OwnedFd::from_raw_fd(fd) });
    }
    Ok(inherited)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsRawFd;

    fn wait(born: &SpawnedProcess) -> i32 {
        let mut status = 0;
        // SAFETY: the pointer is to a local of the right type.
        assert_eq!(unsafe { libc::waitpid(born.pid, &raw mut status, 0) }, born.pid);
        libc::WEXITSTATUS(status)
    }

    /// The group this process is in, if the kernel lets us start processes there.
    fn group() -> Option<File> {
        let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?.to_owned();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
        let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
        File::open(format!("{}/{path}", mount.split(' ').nth(4)?)).ok()
    }

    #[test]
    #[cfg_attr(miri, ignore = "there is one process")]
    fn a_process_is_born_with_what_it_was_given_and_no_more() {
        let Some(group) = group() else { return kumi_skip::skip("spawn", "no cgroup v2") };
        let (mut reader, writer) = io::pipe().unwrap();
        let null = File::open("/dev/null").unwrap();
        let kept = File::open("/dev/zero").unwrap();
        let closed = File::open("/dev/full").unwrap();
        let numbers = format!(
            "test -e /proc/self/fd/{} && ! test -e /proc/self/fd/{} && echo $$ $PPID; env | grep -c KUMI",
            kept.as_raw_fd(),
            closed.as_raw_fd()
        );
        let script = std::ffi::CString::new(numbers).unwrap();
        let birth = ProcessSpec {
            program: c"/bin/sh",
            arguments: &[c"sh", c"-c", &script],
            streams: [null.as_raw_fd(), writer.as_raw_fd(), writer.as_raw_fd()],
            inherited: &[kept.as_raw_fd()],
            session: false,
            group: group.as_raw_fd(),
        };
        let born = match spawn(&birth) {
            Ok(born) => born,
            Err(error) => return kumi_skip::skip("spawn", &error.to_string()),
        };
        drop(writer);
        let mut said = String::new();
        reader.read_to_string(&mut said).unwrap();
        assert_eq!(said, format!("{} {}\n0\n", born.pid, std::process::id()));
        assert_eq!(wait(&born), 1);
        let missing = ProcessSpec {
            program: c"/no/such/file",
            arguments: &[c"sh"],
            streams: [null.as_raw_fd(); 3],
            inherited: &[],
            session: false,
            group: group.as_raw_fd(),
        };
        assert_eq!(wait(&spawn(&missing).unwrap()), 127);
        let leader = ProcessSpec {
            program: c"/bin/sh",
            arguments: &[c"sh", c"-c", c"test $(cut -d' ' -f6 /proc/$$/stat) = $$"],
            session: true,
            ..missing
        };
        assert_eq!(wait(&spawn(&leader).unwrap()), 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "there is one process")]
    fn a_command_gets_what_it_is_given_and_this_process_gives_it_to_nobody_else() {
        let (mut reader, writer) = io::pipe().unwrap();
        let (null, given) = (File::open("/dev/null").unwrap(), File::open("/dev/zero").unwrap());
        let numbers = (given.as_raw_fd(), writer.as_raw_fd());
        let look =
            format!("test -e /proc/$$/fd/{} && ! test -e /proc/$$/fd/{}", numbers.0, numbers.1);
        let mut command = Command::new("/bin/sh");
        command.args(["-c", &format!("{look} && echo well")]);
        let streams = [null.as_raw_fd(), writer.as_raw_fd(), null.as_raw_fd()];
        give(&mut command, streams, vec![numbers.0]).unwrap();
        // SAFETY: a plain system call.
        let flags = |fd| unsafe { libc::fcntl(fd, libc::F_GETFD) };
        assert!(command.status().unwrap().success());
        assert_eq!(flags(numbers.0), libc::FD_CLOEXEC);
        drop((writer, command));
        let mut said = String::new();
        reader.read_to_string(&mut said).unwrap();
        assert_eq!(said, "well\n");
        let mut nothing = Command::new("/bin/true");
        give(&mut nothing, streams, vec![1_000_000]).unwrap();
        assert!(nothing.status().is_err(), "a descriptor that is not there");
        for (stream, inherited) in [(2, numbers.0), (streams[1], 2)] {
            let given = give(&mut nothing, [streams[0], stream, streams[2]], vec![inherited]);
            assert_eq!(given.unwrap_err().raw_os_error(), Some(libc::EINVAL));
        }
    }
}
