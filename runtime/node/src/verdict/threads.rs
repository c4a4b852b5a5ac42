//! Threads of a job's processes beside those that wait in the library: whether one of them could act.

use std::collections::BTreeSet;

use kumi_verdict::RankReading;
use nix::libc;

use crate::process_table::{MOST_THREADS, SystemCall, stat, system_call, threads_of};

/// Threads of the library, and of its server of MPI programs: they act only for those that wait, or let them look for signals.
const LIBRARY: [&str; 3] = ["kumi-handler", "kumi-pmi-server", "kumi-ask"];

/// Whether a thread of these processes does something that could end a wait, would do it, or cannot be seen. The processes run.
pub(super) fn act_outside(processes: &BTreeSet<i32>, ranks: &[RankReading]) -> bool {
    let waits = ranks.iter().filter(|rank| !rank.over).flat_map(|rank| &rank.waits);
    let waiting: BTreeSet<u32> = waits.clone().map(|wait| wait.thread).collect();
    let alone: BTreeSet<u32> = waits.filter(|wait| wait.alone).map(|wait| wait.thread).collect();
    let mut seen = BTreeSet::new();
    let mut threads = 0;
    for process in processes {
        let all = threads_of(*process);
        threads += all.len();
        if threads > MOST_THREADS {
            return true;
        }
        let has = |thread: &i32, of: &BTreeSet<u32>| {
            u32::try_from(*thread).is_ok_and(|thread| of.contains(&thread))
        };
        let alone = all.iter().any(|thread| has(thread, &alone));
        for thread in all {
            let waits = has(&thread, &waiting);
            let Some(stat) = stat(*process, thread) else { return true };
            if waits {
                seen.insert(thread);
            }
            let harmless = waits || alone || LIBRARY.contains(&&*stat.name);
            let acts = match stat.state {
                // A signal has stopped it, or a debugger. Nobody knows when it goes on.
                'T' | 't' => true,
                'Z' | 'X' => false,
                _ if harmless => false,
                'S' => !waits_inside(system_call(*process, thread)),
                _ => true,
            };
            if acts {
                return true;
            }
        }
    }
    // Threads by other numbers than the system's here, or none.
    seen.len() < waiting.len()
}

/// Whether a call ends only by another thread or a child of the same job: a futex without a time, or a wait for a child.
fn waits_inside(call: SystemCall) -> bool {
    let SystemCall::In(number, [_, operation, _, timeout, ..]) = call else { return false };
    match number {
        libc::SYS_futex => {
            let waits = [libc::FUTEX_WAIT, libc::FUTEX_WAIT_BITSET].map(|wait| wait as u64);
            timeout == 0 && waits.contains(&(operation & 0x7f))
        }
        libc::SYS_wait4 | libc::SYS_waitid => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process_table::test::{Process, until};
    use kumi_verdict::Wait;

    #[test]
    fn only_waits_for_the_same_job_are_inside() {
        let futex = |operation: i32, timeout: u64| {
            let arguments = [0x7f00, u64::from(operation.cast_unsigned()), 2, timeout, 0, 0];
            SystemCall::In(libc::SYS_futex, arguments)
        };
        let private = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        assert!(waits_inside(futex(private, 0)));
        assert!(waits_inside(futex(libc::FUTEX_WAIT_BITSET | 0x180, 0)));
        assert!(!waits_inside(futex(private, 0x7ffe)), "it has a time");
        assert!(!waits_inside(futex(libc::FUTEX_WAKE, 0)));
        assert!(waits_inside(SystemCall::In(libc::SYS_wait4, [0xffff_ffff, 0x7ffe, 0, 0, 0, 0])));
        let reads = SystemCall::In(libc::SYS_read, [0, 0x7f, 0x400, 0, 0, 0]);
        for other in [SystemCall::None, SystemCall::Hidden, reads] {
            assert!(!waits_inside(other), "{other:?}");
        }
    }

    fn waits(thread: i32, alone: bool) -> RankReading {
        let wait = Wait { thread: thread as u32, alone, ..Wait::default() };
        RankReading { idle: true, waits: vec![wait], ..RankReading::default() }
    }

    #[test]
    fn whoever_reads_computes_or_is_stopped_could_act() {
        let (reads, computes) = (Process::shell("read x"), Process::shell("while :; do :; done"));
        let of = Process::set;
        for process in [&reads, &computes] {
            until(true, || act_outside(&of(process), &[]));
            until(false, || act_outside(&of(process), &[waits(process.id(), false)]));
        }
        assert!(act_outside(&of(&reads), &[waits(computes.id(), false)]), "that wait is not there");
        let signal = |signal| {
            let pid = nix::unistd::Pid::from_raw(reads.id());
            nix::sys::signal::kill(pid, signal).expect("signalled");
        };
        signal(nix::sys::signal::Signal::SIGSTOP);
        until(true, || act_outside(&of(&reads), &[waits(reads.id(), true)]));
        signal(nix::sys::signal::Signal::SIGCONT);
        until(false, || act_outside(&of(&reads), &[waits(reads.id(), true)]));
    }

    #[test]
    fn a_parent_that_waits_for_its_child_does_not_act() {
        let parent = Process::shell("sleep 600; echo");
        let of = parent.set();
        // The system may not let us look.
        if system_call(parent.id(), parent.id()) == SystemCall::Hidden {
            let reason = "/proc/PID/syscall cannot be read";
            return kumi_skip::skip("a_parent_that_waits_for_its_child_does_not_act", reason);
        }
        until(false, || act_outside(&of, &[]));
    }
}
