//! Files that threads in system calls wait for, as `/proc` shows them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{IoSliceMut, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use nix::sys::stat::{major, minor};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use super::blocked::{self, FileKind, Files};
use crate::process_table::{MOST_THREADS, SystemCall, stat, system_call, threads_of};

/// Most descriptors that are looked at of one call. A call with more of them counts as one that may not be looked at.
const MOST_DESCRIPTORS: u64 = 1024;

/// Whether one of the threads of these processes, those in `exempt` aside, works, or something works for it.
pub(super) fn some_works(processes: &BTreeSet<i32>, exempt: &BTreeSet<i32>) -> bool {
    let mut looked_at = 0;
    for &process in processes {
        let mut files = ProcessFiles::of(process);
        for thread in threads_of(process).into_iter().filter(|thread| !exempt.contains(thread)) {
            looked_at += 1;
            // One that has ended meanwhile does nothing.
            let Some(stat) = stat(process, thread) else { continue };
            let call = match stat.state {
                'S' => system_call(process, thread),
                _ => SystemCall::Hidden,
            };
            if looked_at > MOST_THREADS || blocked::works(stat.state, call, &mut files) {
                return true;
            }
        }
    }
    false
}

/// Files of a process, each looked at once.
struct ProcessFiles {
    process: i32,
    kinds: BTreeMap<i32, Option<FileKind>>,
    /// What epoll instances watch: many threads may wait for one of them.
    watched: BTreeMap<i32, Option<Vec<i32>>>,
}

impl ProcessFiles {
    fn of(process: i32) -> Self {
        Self { process, kinds: BTreeMap::new(), watched: BTreeMap::new() }
    }

    /// Copies memory of the process. It may change meanwhile: what it says is only looked at.
    fn memory(&self, address: u64, length: u64) -> Option<Vec<u8>> {
        let (base, len) = (usize::try_from(address).ok()?, usize::try_from(length).ok()?);
        let mut bytes = vec![0; len];
        let pid = Pid::from_raw(self.process);
        let mut local = [IoSliceMut::new(&mut bytes)];
        let count = process_vm_readv(pid, &mut local, &[RemoteIoVec { base, len }]).ok()?;
        (count == len).then_some(bytes)
    }
}

/// Size of a `pollfd`, which begins with the descriptor.
const POLLFD: u64 = 8;

impl Files for ProcessFiles {
    fn kind(&mut self, fd: i32) -> Option<FileKind> {
        let process = self.process;
        *self.kinds.entry(fd).or_insert_with(|| kind_of(process, fd))
    }

    fn polled(&mut self, address: u64, count: u64) -> Option<Vec<i32>> {
        if count > MOST_DESCRIPTORS {
            return None;
        }
        let bytes = self.memory(address, count * POLLFD)?;
        let fds =
            bytes.chunks_exact(8).map(|one| i32::from_le_bytes([one[0], one[1], one[2], one[3]]));
        Some(fds.filter(|&fd| fd >= 0).collect())
    }

    fn selected(&mut self, sets: [u64; 3], limit: u64) -> Option<Vec<i32>> {
        if limit > MOST_DESCRIPTORS {
            return None;
        }
        let mut fds = BTreeSet::new();
        for set in sets.into_iter().filter(|&set| set != 0) {
            let bytes = self.memory(set, limit.div_ceil(8))?;
            let bits = (0..).zip(bytes).flat_map(|(at, byte)| {
                (0..8).filter(move |bit| byte & 1 << bit != 0).map(move |bit| at * 8 + bit)
            });
            fds.extend(bits);
        }
        Some(fds.into_iter().collect())
    }

    fn watched(&mut self, epoll: i32) -> Option<Vec<i32>> {
        let process = self.process;
        let look =
            || parse_watched(fs::File::open(format!("/proc/{process}/fdinfo/{epoll}")).ok()?);
        self.watched.entry(epoll).or_insert_with(look).clone()
    }
}

/// Most bytes of what is read of an epoll instance: lines of about 100 bytes.
const MOST_INFO: u64 = 200 * MOST_DESCRIPTORS;

/// The descriptors that an epoll instance watches, by its page in `fdinfo`; none if there are too many.
fn parse_watched(page: impl Read) -> Option<Vec<i32>> {
    let mut text = String::new();
    page.take(MOST_INFO).read_to_string(&mut text).ok()?;
    let lines = text.lines().filter_map(|line| line.strip_prefix("tfd:"));
    let fds: Vec<i32> =
        lines.filter_map(|line| line.split_whitespace().next()?.parse().ok()).collect();
    let few = text.len() < MOST_INFO as usize && fds.len() <= MOST_DESCRIPTORS as usize;
    few.then_some(fds)
}

/// Kinds of files that have no place in a file system and only tell of something.
const EVENTS: [&str; 8] = [
    "[eventfd]",
    "[eventpoll]",
    "[timerfd]",
    "[signalfd]",
    "inotify",
    "[fanotify]",
    "[pidfd]",
    "[userfaultfd]",
];

fn kind_of(process: i32, fd: i32) -> Option<FileKind> {
    let path = format!("/proc/{process}/fd/{fd}");
    let file = fs::metadata(&path).ok()?;
    let kind = file.file_type();
    if kind.is_fifo() {
        return Some(FileKind::Passive);
    }
    if kind.is_socket() {
        return Some(FileKind::Socket);
    }
    if kind.is_char_device() {
        return Some(kind_of_device(major(file.rdev()), minor(file.rdev())));
    }
    if kind.is_file() || kind.is_dir() || kind.is_block_device() {
        return Some(FileKind::Active);
    }
    let name = fs::read_link(&path).ok()?;
    let name = name.to_str()?.strip_prefix("anon_inode:")?.to_owned();
    // Newer kernels put the name in brackets, too.
    let is = |event: &str| {
        name == event || name.trim_matches(['[', ']']) == event.trim_matches(['[', ']'])
    };
    Some(if EVENTS.iter().any(|event| is(event)) { FileKind::Passive } else { FileKind::Active })
}

/// Character devices: `null`, `random` and the like; terminals and consoles, but not serial lines, at which there may be
/// instruments. The numbers are the kernel's, in `Documentation/admin-guide/devices.txt`.
fn kind_of_device(major: u64, minor: u64) -> FileKind {
    match (major, minor) {
        (1 | 5 | 136..=143, _) | (4, 0..64) => FileKind::Passive,
        _ => FileKind::Active,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_table::test::{Process, until};
    use std::process::Command;

    #[test]
    fn serial_lines_are_devices_and_terminals_are_not() {
        for (device, kind) in [
            ((1, 3), FileKind::Passive),
            ((136, 7), FileKind::Passive),
            ((5, 2), FileKind::Passive),
            ((4, 1), FileKind::Passive),
            ((4, 64), FileKind::Active),
            ((195, 0), FileKind::Active),
        ] {
            assert_eq!(kind_of_device(device.0, device.1), kind, "{device:?}");
        }
    }

    /// Looks until a process is seen so.
    fn is_seen(works: bool, process: &Process) {
        until(works, || some_works(&process.set(), &BTreeSet::new()));
    }

    #[test]
    fn real_processes_wait_or_work() {
        for (program, args) in [
            ("cat", &[][..]),
            ("sleep", &["600"]),
            ("sh", &["-c", "sleep 600 & wait"]),
            ("python3", &["-c", "import select,sys; select.select([sys.stdin],[],[])"]),
            ("python3", &["-c", "import select; p=select.epoll(); p.register(0); p.poll()"]),
            ("python3", &["-c", "import select; p=select.poll(); p.register(0); p.poll()"]),
        ] {
            if Command::new(program).arg("--version").output().is_err() {
                kumi_skip::skip(
                    "real_processes_wait_or_work",
                    &format!("{program} is not installed"),
                );
                continue;
            }
            let process = Process::start(program, args);
            is_seen(false, &process);
        }
        let computes = Process::start("sh", &["-c", "while :; do :; done"]);
        is_seen(true, &computes);
        assert!(!some_works(&computes.set(), &computes.set()), "it is exempt");
    }

    /// A thread in a process that otherwise only waits.
    #[test]
    fn a_thread_that_computes_is_seen() {
        if Command::new("python3").arg("--version").output().is_err() {
            return kumi_skip::skip("a_thread_that_computes_is_seen", "python3 is not installed");
        }
        let script = "import threading,sys
def spin():
    while True: pass
threading.Thread(target=spin,daemon=True).start()
sys.stdin.read()";
        is_seen(true, &Process::start("python3", &["-c", script]));
    }

    #[test]
    fn an_epoll_instance_with_too_many_files_is_not_looked_at() {
        let page = |count: u64| {
            let line =
                |fd| format!("tfd: {fd:8} events:       19 data: {fd:16x}  pos:0 ino:4 sdev:e\n");
            let lines: String = (0..count).map(line).collect();
            format!("pos:\t0\nflags:\t02\nmnt_id:\t15\nino:\t1058\n{lines}")
        };
        assert_eq!(parse_watched(page(3).as_bytes()), Some(vec![0, 1, 2]));
        let most = parse_watched(page(MOST_DESCRIPTORS).as_bytes());
        assert_eq!(most.map(|fds| fds.len() as u64), Some(MOST_DESCRIPTORS));
        for count in [MOST_DESCRIPTORS + 1, 100_000] {
            assert_eq!(parse_watched(page(count).as_bytes()), None, "{count}");
        }
        assert_eq!(parse_watched(&b"tfd: x\ntfd:\n"[..]), Some(vec![]));
    }

    #[test]
    fn kinds_of_open_files() {
        let own = i32::try_from(std::process::id()).unwrap();
        use std::os::fd::AsRawFd;
        let (reader, _writer) = std::io::pipe().unwrap();
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        let null = fs::File::open("/dev/null").unwrap();
        let event = nix::sys::eventfd::EventFd::new().unwrap();
        for (fd, kind) in [
            (reader.as_raw_fd(), FileKind::Passive),
            (socket.as_raw_fd(), FileKind::Socket),
            (file.as_raw_fd(), FileKind::Active),
            (null.as_raw_fd(), FileKind::Passive),
            (std::os::fd::AsFd::as_fd(&event).as_raw_fd(), FileKind::Passive),
        ] {
            assert_eq!(kind_of(own, fd), Some(kind), "{fd}");
        }
        assert_eq!(kind_of(own, 9_999), None);
    }
}
