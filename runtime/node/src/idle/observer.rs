//! Looks at other processes that may take for ever, in threads of their own.
//!
//! What a look reads can depend on a process of the job: memory whose pages a file system or a handler of faults of its user
//! supplies, a file on a server that is gone, a lock of an epoll instance. So no look is waited for long. A thread that hangs is
//! left with its job, and goes on when the job's process lets it or ends.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::time::Duration;

use kumi_sched::JobId;

/// How long the caller waits for a look. What comes later counts at the job's next look.
const PATIENCE: Duration = Duration::from_millis(50);
/// Most looks that are not over. Beyond that nobody is looked at, as where the system forbids it.
const MOST_HANGING: usize = 8;

/// Processes to look at, and threads of them that do not count.
type Request = (BTreeSet<i32>, BTreeSet<i32>);

/// A thread that looks.
#[derive(Debug)]
struct Looker {
    requests: Sender<Request>,
    answers: Receiver<bool>,
}

impl Looker {
    fn start(look: fn(&BTreeSet<i32>, &BTreeSet<i32>) -> bool) -> io::Result<Self> {
        let (requests, inbox) = mpsc::channel::<Request>();
        let (outbox, answers) = mpsc::channel();
        std::thread::Builder::new().name("kumi-look".to_owned()).spawn(move || {
            while let Ok((processes, exempt)) = inbox.recv() {
                if outbox.send(look(&processes, &exempt)).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { requests, answers })
    }
}

/// The threads that look.
#[derive(Debug)]
pub(super) struct Observer {
    look: fn(&BTreeSet<i32>, &BTreeSet<i32>) -> bool,
    free: Option<Looker>,
    /// Looks that are not over, or whose answers nobody has taken.
    late: BTreeMap<JobId, Looker>,
}

impl Observer {
    /// Looks by this function.
    pub(super) fn new(look: fn(&BTreeSet<i32>, &BTreeSet<i32>) -> bool) -> Self {
        Self { look, free: None, late: BTreeMap::new() }
    }

    /// Whether the look at a job finds that something works. One that is not over counts as work: nothing is known. If too many
    /// are not over, or there is no thread, nobody is looked at and nothing found.
    pub(super) fn some_works(
        &mut self,
        job: JobId,
        processes: BTreeSet<i32>,
        exempt: &BTreeSet<i32>,
    ) -> bool {
        if let Some(looker) = self.late.remove(&job) {
            match looker.answers.try_recv() {
                Ok(works) => {
                    self.free = Some(looker);
                    return works;
                }
                Err(TryRecvError::Empty) => {
                    self.late.insert(job, looker);
                    return true;
                }
                Err(TryRecvError::Disconnected) => {}
            }
        }
        let Some(looker) = self.looker() else { return false };
        if looker.requests.send((processes, exempt.clone())).is_err() {
            return false;
        }
        match looker.answers.recv_timeout(PATIENCE) {
            Ok(works) => {
                self.free = Some(looker);
                works
            }
            Err(RecvTimeoutError::Timeout) => {
                self.late.insert(job, looker);
                true
            }
            // It has panicked, which the log has.
            Err(RecvTimeoutError::Disconnected) => false,
        }
    }

    fn looker(&mut self) -> Option<Looker> {
        if let Some(looker) = self.free.take() {
            return Some(looker);
        }
        if self.late.len() >= MOST_HANGING {
            // Of jobs that have gone meanwhile.
            self.late.retain(|_, looker| looker.answers.try_recv() == Err(TryRecvError::Empty));
        }
        if self.late.len() >= MOST_HANGING {
            return None;
        }
        Looker::start(self.look)
            .inspect_err(|error| tracing::warn!(%error, "no thread looks at idle jobs"))
            .ok()
    }
}

#[cfg(test)]
mod tests {
    use super::super::syscalls;
    use super::*;
    use crate::process_table::test::{Process, until};
    use std::process::Command;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    fn ask(observer: &mut Observer, job: u64, process: i32) -> bool {
        observer.some_works(JobId(job), BTreeSet::from([process]), &BTreeSet::new())
    }

    /// Process 1 is never done, others wait.
    fn hangs(processes: &BTreeSet<i32>, _: &BTreeSet<i32>) -> bool {
        while processes.contains(&1) {
            std::thread::park();
        }
        false
    }

    #[test]
    fn looks_that_hang_hold_up_nobody_and_are_few() {
        let mut observer = Observer::new(hangs);
        for job in 0..MOST_HANGING as u64 {
            assert!(ask(&mut observer, job, 1), "nothing is known");
            assert!(ask(&mut observer, job, 1), "and there is no second look");
            assert_eq!(observer.late.len(), job as usize + 1);
        }
        assert!(!ask(&mut observer, 100, 1), "too many hang: it is not looked at");
        assert_eq!(observer.late.len(), MOST_HANGING);
    }

    #[test]
    fn a_late_answer_counts_at_the_next_look() {
        static DONE: AtomicBool = AtomicBool::new(false);
        fn slow(_: &BTreeSet<i32>, _: &BTreeSet<i32>) -> bool {
            while !DONE.load(Relaxed) {
                std::thread::yield_now();
            }
            false
        }
        let mut observer = Observer::new(slow);
        assert!(ask(&mut observer, 1, 7));
        DONE.store(true, Relaxed);
        until(false, || ask(&mut observer, 1, 7));
        assert!(observer.late.is_empty() && observer.free.is_some());
    }

    /// Sleeps in `poll`, whose array then comes from a handler of faults that does not answer.
    const HOSTILE: &str = "
import ctypes, fcntl, mmap, os, struct, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
page = mmap.PAGESIZE
libc.mmap.restype = ctypes.c_void_p
memory = libc.mmap(None, ctypes.c_size_t(page), 3, 0x22, -1, ctypes.c_long(0))
read, write = os.pipe()
ctypes.memmove(memory, struct.pack('<ihh', read, 1, 0), 8)
number = {'x86_64': 323, 'aarch64': 282}[os.uname().machine]
faults = libc.syscall(number, os.O_CLOEXEC | os.O_NONBLOCK)
if faults < 0: sys.exit(1)
fcntl.ioctl(faults, 0xc018aa3f, struct.pack('<QQQ', 0xaa, 0, 0))
main = f'/proc/self/task/{os.getpid()}/syscall'
def change():
    # poll or ppoll; a number is shown only of a thread that sleeps.
    while open(main).read().split()[0] not in ('7', '73'): time.sleep(0.01)
    fcntl.ioctl(faults, 0xc020aa00, struct.pack('<QQQQ', memory, page, 1, 0))
    libc.madvise(ctypes.c_void_p(memory), ctypes.c_size_t(page), 4)
    print('ready', flush=True)
threading.Thread(target=change, daemon=True).start()
libc.poll(ctypes.c_void_p(memory), 1, -1)
";

    #[test]
    fn memory_that_does_not_come_does_not_stop_the_daemon() {
        let name = "memory_that_does_not_come_does_not_stop_the_daemon";
        if Command::new("python3").arg("--version").output().is_err() {
            return kumi_skip::skip(name, "python3 is not installed");
        }
        let (process, said) = Process::heard("python3", &["-c", HOSTILE]);
        if said != "ready\n" {
            return kumi_skip::skip(name, "userfaultfd is not permitted");
        }
        let mut observer = Observer::new(syscalls::some_works);
        let (told, hears) = mpsc::channel();
        let id = process.id();
        std::thread::spawn(move || {
            let found = (ask(&mut observer, 1, id), observer.late.len());
            told.send((found, observer)).expect("the test waits");
        });
        let patience = Duration::from_secs(60);
        let (found, mut observer) = hears.recv_timeout(patience).expect("the look hangs");
        assert_eq!(found, (true, 1), "it was not to be read");
        let other = Process::shell("read x");
        until(false, || ask(&mut observer, 2, other.id()));
        drop(process);
        until(false, || ask(&mut observer, 1, id));
        assert!(observer.late.is_empty(), "its end sets the thread free");
    }
}
