//! Limits of processes on this machine: those of this process and of clients, as the kernel has them, and how a shim takes over
//! those of its job.
//!
//! A client says what its limits are. The daemon that accepts it does not take its word: it lowers them to what the kernel says
//! of the process at the other end of the socket.

use std::fs;
use std::io;

use kumi_control::message::{Limit, ProcessLimits, Resource, UNLIMITED};
use nix::errno::Errno;
use nix::sys::resource::{Resource as SystemResource, getrlimit, setrlimit};
use nix::sys::stat::{Mode, umask};

/// The capability to raise limits, as `/proc/PID/status` counts bits.
const CAP_SYS_RESOURCE: u32 = 24;

/// What the system and the configuration call a resource.
struct Names {
    /// As `/proc/PID/limits` has it.
    proc: &'static str,
    /// As `limits.conf` and `cluster.toml` have it.
    key: &'static str,
    system: SystemResource,
}

fn names(resource: Resource) -> Names {
    use SystemResource as S;
    let (proc, key, system) = match resource {
        Resource::Cpu => ("Max cpu time", "cpu", S::RLIMIT_CPU),
        Resource::Fsize => ("Max file size", "fsize", S::RLIMIT_FSIZE),
        Resource::Data => ("Max data size", "data", S::RLIMIT_DATA),
        Resource::Stack => ("Max stack size", "stack", S::RLIMIT_STACK),
        Resource::Core => ("Max core file size", "core", S::RLIMIT_CORE),
        Resource::Rss => ("Max resident set", "rss", S::RLIMIT_RSS),
        Resource::Nproc => ("Max processes", "nproc", S::RLIMIT_NPROC),
        Resource::Nofile => ("Max open files", "nofile", S::RLIMIT_NOFILE),
        Resource::Memlock => ("Max locked memory", "memlock", S::RLIMIT_MEMLOCK),
        Resource::AddressSpace => ("Max address space", "as", S::RLIMIT_AS),
        Resource::Locks => ("Max file locks", "locks", S::RLIMIT_LOCKS),
        Resource::Sigpending => ("Max pending signals", "sigpending", S::RLIMIT_SIGPENDING),
        Resource::Msgqueue => ("Max msgqueue size", "msgqueue", S::RLIMIT_MSGQUEUE),
        Resource::Nice => ("Max nice priority", "nice", S::RLIMIT_NICE),
        Resource::Rtprio => ("Max realtime priority", "rtprio", S::RLIMIT_RTPRIO),
        Resource::Rttime => ("Max realtime timeout", "rttime", S::RLIMIT_RTTIME),
    };
    Names { proc, key, system }
}

/// What configuration and messages call a resource, as `limits.conf` does.
#[must_use]
pub fn key(resource: Resource) -> &'static str {
    names(resource).key
}

/// A limit in words.
#[must_use]
pub fn words(value: u64) -> String {
    if value == UNLIMITED { "unlimited".to_owned() } else { value.to_string() }
}

/// Limits and mask of this process; `None` where `/proc` does not tell.
#[must_use]
pub fn own() -> Option<ProcessLimits> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let mut limits = parse(&limits)?;
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let mask = field(&status, "Umask:").and_then(|mask| u16::from_str_radix(mask, 8).ok());
    limits.umask = mask.unwrap_or(limits.umask) & 0o777;
    Some(limits)
}

/// Limits that the kernel has of process `pid`, which is a client of user `uid`; `None` if it is not there (any more), or
/// another user's.
#[must_use]
pub fn of_client(pid: Option<i32>, uid: u32) -> Option<ProcessLimits> {
    let pid = pid.filter(|&pid| pid > 0)?;
    let limits = parse(&fs::read_to_string(format!("/proc/{pid}/limits")).ok()?)?;
    // Looked at afterwards: a number that has become another user's process is noticed.
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let effective = status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace();
    (effective.clone().nth(1)?.parse() == Ok(uid)).then_some(limits)
}

/// The limits in a text as `/proc/PID/limits`; the mask is the usual one.
fn parse(text: &str) -> Option<ProcessLimits> {
    let mut limits = ProcessLimits::default();
    for resource in Resource::ALL {
        let name = names(resource).proc;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        let mut numbers = line.split_whitespace().map(|word| match word {
            "unlimited" => Some(UNLIMITED),
            number => number.parse().ok(),
        });
        let (soft, hard) = (numbers.next()??, numbers.next()??);
        limits.set(resource, Limit::new(soft, hard));
    }
    Some(limits)
}

fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// What a job may have of what its client says, `known` being what the kernel says of the client. A client of which the kernel
/// says nothing gets no more priority and no more locked memory than every process has.
#[must_use]
pub fn believed(told: Option<ProcessLimits>, known: Option<&ProcessLimits>) -> ProcessLimits {
    let mut limits = told.or_else(|| known.copied()).unwrap_or_default();
    limits.umask &= 0o777;
    for resource in Resource::ALL {
        let Limit { soft, hard } = limits.get(resource);
        limits.set(resource, Limit::new(soft, hard));
    }
    if let Some(known) = known {
        return limits.capped(known);
    }
    let usual = ProcessLimits::default();
    for resource in [Resource::Rtprio, Resource::Nice, Resource::Memlock] {
        limits.set(resource, limits.get(resource).capped(usual.get(resource).hard));
    }
    limits
}

/// What this process cannot give to ranks of these limits, because it may not raise its own: sentences for the log.
#[must_use]
pub fn out_of_reach(limits: &ProcessLimits) -> Vec<String> {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let capabilities =
        field(&status, "CapEff:").and_then(|bits| u64::from_str_radix(bits, 16).ok());
    if capabilities.is_some_and(|bits| bits & 1 << CAP_SYS_RESOURCE != 0) {
        return Vec::new();
    }
    let short = |resource: Resource| {
        let (_, most) = getrlimit(names(resource).system).ok()?;
        let wanted = limits.get(resource).soft;
        (wanted > most)
            .then(|| format!("{} {} instead of {}", key(resource), words(most), words(wanted)))
    };
    Resource::ALL.into_iter().filter_map(short).collect()
}

/// Gives up what protects this process from the kernel's OOM killer, as the unit protects the daemon.
///
/// # Errors
/// The system's error.
pub fn be_ordinary_for_oom() -> io::Result<()> {
    const SCORE: &str = "/proc/self/oom_score_adj";
    // Some containers have no such file: then nothing is protected either.
    let Ok(score) = fs::read_to_string(SCORE) else { return Ok(()) };
    if score.trim_start().starts_with('-') { fs::write(SCORE, "0") } else { Ok(()) }
}

/// Limits that could stop a shim before it becomes the program. It takes them over at the last moment.
const LATE: [Resource; 7] = [
    Resource::Cpu,
    Resource::Fsize,
    Resource::Data,
    Resource::Stack,
    Resource::AddressSpace,
    Resource::Rss,
    Resource::Nofile,
];

/// Takes over mask and limits, before the process gives up its rights. Some may only be raised here, for [`settle`].
///
/// # Errors
/// The system's error.
pub fn begin(limits: &ProcessLimits) -> io::Result<()> {
    umask(Mode::from_bits_truncate(limits.umask.into()));
    for resource in Resource::ALL {
        let limit = limits.get(resource);
        if LATE.contains(&resource) {
            let (soft, hard) = getrlimit(names(resource).system)?;
            if limit.hard > hard {
                set(resource, Limit::new(soft, limit.hard))?;
            }
        } else {
            set(resource, limit)?;
        }
    }
    Ok(())
}

/// Takes over the other limits, just before the program.
///
/// # Errors
/// The system's error.
pub fn settle(limits: &ProcessLimits) -> io::Result<()> {
    LATE.into_iter().try_for_each(|resource| set(resource, limits.get(resource)))
}

/// Sets a limit; without the right to raise it, as far as it goes.
fn set(resource: Resource, limit: Limit) -> io::Result<()> {
    let system = names(resource).system;
    match setrlimit(system, limit.soft, limit.hard) {
        Err(Errno::EPERM) => {
            let (_, most) = getrlimit(system)?;
            let limit = limit.capped(most);
            setrlimit(system, limit.soft, limit.hard).map_err(io::Error::from)
        }
        other => other.map_err(io::Error::from),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_text_is_read() {
        let limits = own().expect("this machine has /proc");
        for resource in Resource::ALL {
            let (soft, hard) = getrlimit(names(resource).system).expect("a limit");
            assert_eq!(limits.get(resource), Limit { soft, hard }, "{}", key(resource));
        }
        assert!(parse("Max cpu time  unlimited  unlimited  seconds\n").is_none());
    }

    #[test]
    fn only_the_clients_own_process_counts() {
        let (pid, uid) = (nix::unistd::getpid().as_raw(), nix::unistd::geteuid().as_raw());
        let known = of_client(Some(pid), uid).expect("this process");
        assert_eq!(known.get(Resource::Stack), own().expect("limits").get(Resource::Stack));
        assert_eq!(of_client(Some(pid), uid + 1), None);
        assert_eq!(of_client(None, uid), None);
        assert_eq!(of_client(Some(0), uid), None);
    }

    fn with(values: &[(Resource, u64, u64)]) -> ProcessLimits {
        let mut limits = ProcessLimits::default();
        for &(resource, soft, hard) in values {
            limits.set(resource, Limit { soft, hard });
        }
        limits
    }

    #[test]
    fn a_client_gets_no_more_than_the_kernel_knows() {
        let told = with(&[
            (Resource::Rtprio, 99, 99),
            (Resource::Nofile, 512, 600),
            (Resource::Stack, 9, 4),
        ]);
        let known = with(&[(Resource::Rtprio, 5, 20), (Resource::Nofile, 1_024, 4_096)]);
        let got = believed(Some(told), Some(&known));
        assert_eq!(got.get(Resource::Rtprio), Limit { soft: 20, hard: 20 });
        assert_eq!(got.get(Resource::Nofile), Limit { soft: 512, hard: 600 });
        assert_eq!(got.get(Resource::Stack), Limit { soft: 4, hard: 4 });
        // One that says nothing has what the kernel knows.
        assert_eq!(believed(None, Some(&known)).get(Resource::Rtprio), Limit { soft: 5, hard: 20 });
        // Of one that the kernel does not know only what harms nobody is believed.
        let more = with(&[
            (Resource::Rtprio, 99, 99),
            (Resource::Nice, 40, 40),
            (Resource::Memlock, UNLIMITED, UNLIMITED),
            (Resource::Nofile, 512, 600),
        ]);
        let got = believed(Some(more), None);
        let usual = ProcessLimits::default();
        for resource in [Resource::Rtprio, Resource::Nice, Resource::Memlock] {
            assert_eq!(got.get(resource), usual.get(resource));
        }
        assert_eq!(got.get(Resource::Nofile).soft, 512);
    }
}
