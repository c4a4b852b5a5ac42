//! Processes of the cluster on this machine, found by their command lines.

use nix::sys::signal::{Signal, kill as send};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Between two looks at the processes.
const PAUSE: Duration = Duration::from_millis(5);
/// Looks until killed processes must be gone: five seconds at least, and longer on a machine that is slow.
const DYING: u32 = 1000;
/// Looks in a row by which a process must have begun its program: until then nothing tells what it is.
const BEGINNING: u32 = 200;
/// The flag of the kernel's own threads in `/proc/N/stat`.
const KERNEL_THREAD: u64 = 0x20_0000;

/// The processes of the cluster in `dir`: daemons have `--cluster-dir DIR` among their arguments,
/// watchers the cluster's control group, and ranks have the directory in their environment.
pub fn existing(dir: &Path) -> Vec<i32> {
    look(dir).0
}

/// Whether a process is the cluster's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Membership {
    Member,
    Stranger,
    /// It is about to begin a program, and has neither arguments nor environment at this moment. A daemon is in this state, too,
    /// when whoever starts it is killed.
    Beginning,
}

/// [`existing`], and the processes of which it is not known yet.
fn look(dir: &Path) -> (Vec<i32>, Vec<i32>) {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let (mut found, mut beginning) = (Vec::new(), Vec::new());
    for number in numbers.filter(|&number| number != own) {
        match membership(number, dir) {
            Membership::Member => found.push(number),
            Membership::Beginning => beginning.push(number),
            Membership::Stranger => {}
        }
    }
    (found, beginning)
}

fn membership(number: i32, dir: &Path) -> Membership {
    // One that cannot be read is gone, or nobody's whom this user could end.
    let Ok(cmdline) = read_at_once(&format!("/proc/{number}/cmdline")) else {
        return Membership::Stranger;
    };
    let environ = read_at_once(&format!("/proc/{number}/environ")).ok();
    let known = daemon_arguments(&cmdline, dir)
        || watcher_arguments(&cmdline, dir)
        || environ.as_ref().is_some_and(|environ| rank_environment(environ, dir));
    if known {
        return Membership::Member;
    }
    let (no_arguments, no_environment) =
        (cmdline.is_empty(), environ.is_some_and(|e| e.is_empty()));
    let stat = fs::read_to_string(format!("/proc/{number}/stat")).unwrap_or_default();
    match ProcessStat::parse(&stat) {
        Some(stat) if stat.may_begin(no_arguments, no_environment) => Membership::Beginning,
        _ => Membership::Stranger,
    }
}

/// Content of a file below `/proc`, read by one system call. A process that begins another program between two calls would
/// have its arguments cut off.
fn read_at_once(path: &str) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 16 << 10];
    loop {
        // Opened anew, since an open file shows the environment of one program only.
        let length = File::open(path)?.read_at(&mut bytes, 0)?;
        if length < bytes.len() {
            bytes.truncate(length);
            return Ok(bytes);
        }
        bytes.resize(2 * length, 0);
    }
}

/// `kumid watch …/kumi-NAME/node-…`; the cluster's name is that of its directory. Or `kumid watch … DIR/node-I.life`.
fn watcher_arguments(cmdline: &[u8], dir: &Path) -> bool {
    let words: Vec<&[u8]> = cmdline.split(|&byte| byte == 0).collect();
    let Some(name) = dir.file_name().and_then(|name| name.to_str()) else { return false };
    let part = format!("/kumi-{name}/node-");
    words.len() > 2
        && words[0].ends_with(b"kumid")
        && words[1] == b"watch"
        && (words[2].windows(part.len()).any(|window| window == part.as_bytes())
            || words.iter().any(|word| Path::new(OsStr::from_bytes(word)).parent() == Some(dir)))
}

fn daemon_arguments(cmdline: &[u8], dir: &Path) -> bool {
    cluster_dir(cmdline) == Some(dir)
}

/// DIR of `… --cluster-dir DIR …`.
fn cluster_dir(cmdline: &[u8]) -> Option<&Path> {
    let mut words = cmdline.split(|&byte| byte == 0);
    words.find(|word| *word == b"--cluster-dir")?;
    Some(Path::new(OsStr::from_bytes(words.next()?)))
}

/// Where else a cluster of the same name is run by the same user. The names of network namespaces
/// and control groups are made of the cluster's name, so they are that cluster's then.
pub fn namesake(dir: &Path) -> Option<PathBuf> {
    let user = nix::unistd::geteuid().as_raw();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let own = entries.filter(|entry| entry.metadata().is_ok_and(|data| data.uid() == user));
    let mut lines = own.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.find_map(|line| namesake_in(&line, dir).map(Path::to_owned))
}

fn namesake_in<'l>(cmdline: &'l [u8], dir: &Path) -> Option<&'l Path> {
    cluster_dir(cmdline).filter(|other| *other != dir && other.file_name() == dir.file_name())
}

/// `KUMI_CLUSTER_DIR=DIR`, which `kumi run` gives to ranks, and `KUMI_JOB`, which their daemon does.
fn rank_environment(environ: &[u8], dir: &Path) -> bool {
    let dir = dir.as_os_str().as_bytes();
    let settings: Vec<&[u8]> = environ.split(|&byte| byte == 0).collect();
    settings.iter().any(|setting| setting.strip_prefix(b"KUMI_CLUSTER_DIR=") == Some(dir))
        && settings.iter().any(|setting| setting.starts_with(b"KUMI_JOB="))
}

/// Kills one process; one that is gone already is no failure.
pub fn kill(number: i32) {
    let _gone = send(Pid::from_raw(number), Signal::SIGKILL);
}

/// Waits until no process of the cluster is left; the ones that are when the time is over.
pub fn wait_gone(dir: &Path, patience: Duration) -> Vec<i32> {
    let deadline = Instant::now() + patience;
    loop {
        let left: Vec<i32> = existing(dir).into_iter().filter(|&n| !is_dead(n)).collect();
        if left.is_empty() || Instant::now() >= deadline {
            return left;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Kills every process of the cluster; those that do not go are returned.
pub fn kill_all(dir: &Path) -> Vec<i32> {
    // Looks in a row at which a process was about to begin a program.
    let mut beginning: BTreeMap<i32, u32> = BTreeMap::new();
    let mut looks = 0;
    loop {
        // One look for both: a process cannot be unknown to the one and a daemon to the other.
        let (found, unknown) = look(dir);
        let seen = |number| beginning.get(&number).map_or(1, |looks| looks + 1);
        beginning = unknown.into_iter().map(|number| (number, seen(number))).collect();
        looks += 1;
        let left: Vec<i32> = found.into_iter().filter(|&n| !is_dead(n)).collect();
        let clear = left.is_empty() && beginning.values().all(|&looks| looks >= BEGINNING);
        if clear || looks >= DYING {
            return left;
        }
        left.into_iter().for_each(kill);
        std::thread::sleep(PAUSE);
    }
}

/// Whether a process is gone or only waits to be collected by its parent.
pub fn is_dead(number: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{number}/stat"));
    stat.map_or(true, |stat| ProcessStat::parse(&stat).is_none_or(|stat| stat.ended()))
}

/// What `/proc/N/stat` tells of a process, see proc_pid_stat(5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProcessStat {
    state: char,
    flags: u64,
    /// Where its program begins: 0 until the system has put the program's arguments and environment into place, and 1 for
    /// processes that this user may not trace.
    start_code: u64,
    /// Whether it has arguments and an environment, if this user may trace it.
    has_arguments: bool,
    has_environment: bool,
}

impl ProcessStat {
    fn parse(stat: &str) -> Option<Self> {
        let (_, rest) = stat.rsplit_once(") ")?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let numbers: Vec<u64> = fields.map(|field| field.parse().unwrap_or(0)).collect();
        // Fields of the line count from 1, and numbers begin behind the third.
        let field = |number: usize| numbers.get(number - 4).copied();
        Some(Self {
            state,
            flags: field(9)?,
            start_code: field(26)?,
            has_arguments: field(48)? != field(49)?,
            has_environment: field(50)? != field(51)?,
        })
    }

    fn ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// Whether a process that had no arguments or no environment a moment ago may be about to have them, or may have them by now.
    fn may_begin(&self, no_arguments: bool, no_environment: bool) -> bool {
        let lacks_nothing = self.start_code != 0
            && (!no_arguments || !self.has_arguments)
            && (!no_environment || !self.has_environment);
        let lacked = no_arguments || no_environment;
        lacked && !lacks_nothing && !self.ended() && self.flags & KERNEL_THREAD == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemons_are_known_by_their_directory() {
        let dir = Path::new("/var/lib/kumi/lab");
        assert!(daemon_arguments(
            b"kumid\0node\0--cluster-dir\0/var/lib/kumi/lab\0--node\x003\0",
            dir
        ));
        assert!(!daemon_arguments(b"kumid\0head\0--cluster-dir\0/var/lib/kumi/lab2\0", dir));
        assert!(!daemon_arguments(b"vi\0/var/lib/kumi/lab\0", dir));
        assert!(!daemon_arguments(b"", dir));
        assert!(rank_environment(b"KUMI_JOB=3\0KUMI_CLUSTER_DIR=/var/lib/kumi/lab\0", dir));
        assert!(!rank_environment(b"KUMI_CLUSTER_DIR=/var/lib/kumi/lab\0", dir));
        assert!(!rank_environment(b"KUMI_JOB=3\0KUMI_CLUSTER_DIR=/var/lib/kumi/lab2\0", dir));
        let watch = |group: &str| format!("/usr/bin/kumid\0watch\0{group}\0").into_bytes();
        assert!(watcher_arguments(&watch("/sys/fs/cgroup/kumi-lab/node-1"), dir));
        assert!(!watcher_arguments(&watch("/sys/fs/cgroup/kumi-lab2/node-1"), dir));
    }

    #[test]
    fn clusters_of_the_same_name_in_another_place_are_noticed() {
        let dir = Path::new("/var/lib/kumi/lab");
        let line = |dir: &str| format!("kumid\0head\0--cluster-dir\0{dir}\0").into_bytes();
        assert_eq!(namesake_in(&line("/tmp/lab"), dir), Some(Path::new("/tmp/lab")));
        assert_eq!(namesake_in(&line("/var/lib/kumi/lab"), dir), None);
        assert_eq!(namesake_in(&line("/tmp/lab2"), dir), None);
        assert_eq!(namesake_in(b"kumid\0--cluster-dir", dir), None);
    }

    /// A process that begins its own program again and again, and is known by `word` and `settings`.
    struct Restless(std::process::Child);

    impl Restless {
        fn start(dir: &Path, words: &[&str], settings: &[(&str, &str)]) -> Self {
            let program = dir.join("program");
            fs::write(&program, "exec /bin/sh \"$0\" \"$@\"\n").unwrap();
            let mut command = std::process::Command::new("/bin/sh");
            command.arg(&program).args(words).envs(settings.iter().copied());
            Self(command.spawn().unwrap())
        }

        fn number(&self) -> i32 {
            i32::try_from(self.0.id()).unwrap()
        }
    }

    impl Drop for Restless {
        fn drop(&mut self) {
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    #[test]
    fn a_process_that_begins_one_program_after_the_other_is_killed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        for _ in 0..50 {
            let process = Restless::start(dir.path(), &["--cluster-dir", path], &[]);
            assert_eq!(kill_all(dir.path()), [0; 0]);
            assert!(is_dead(process.number()), "it was not seen");
        }
    }

    #[test]
    fn a_process_that_begins_one_program_after_the_other_is_no_stranger() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        let rank = [("KUMI_CLUSTER_DIR", path), ("KUMI_JOB", "7")];
        for (words, settings) in [(&["--cluster-dir", path][..], &[][..]), (&[], &rank)] {
            let process = Restless::start(dir.path(), words, settings);
            for look in 0..5000 {
                let seen = membership(process.number(), dir.path());
                assert_ne!(seen, Membership::Stranger, "look {look}, {words:?}");
            }
        }
    }

    #[test]
    fn a_process_with_long_arguments_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        let long = "x".repeat(100_000);
        let process = Restless::start(dir.path(), &[&long, "--cluster-dir", path], &[]);
        assert!((0..5000).any(|_| membership(process.number(), dir.path()) == Membership::Member));
    }

    #[test]
    fn who_has_no_arguments_yet_is_neither_the_kernels_nor_dead() {
        let line = |state: char, flags: u64, code: u64, bounds: [u64; 4]| {
            let zeros = |count| "0 ".repeat(count);
            let bounds = bounds.map(|bound| bound.to_string()).join(" ");
            let (upto_flags, upto_code, upto_bounds) = (zeros(5), zeros(16), zeros(21));
            let line = format!(
                "7 (a) b) {state} {upto_flags}{flags} {upto_code}{code} {upto_bounds}{bounds} 0"
            );
            ProcessStat::parse(&line).unwrap()
        };
        let begins = |stat: ProcessStat| stat.may_begin(true, true);
        let user = 0x40_0100;
        assert!(begins(line('S', user, 0, [0; 4])));
        assert!(begins(line('R', user, 5, [1, 2, 2, 3])), "it has begun since");
        assert!(begins(line('R', user, 5, [1, 1, 2, 3])), "the environment came since");
        assert!(!begins(line('S', user, 5, [1, 1, 2, 2])), "it has none for good");
        assert!(!begins(line('S', user, 1, [0; 4])), "it is another user's");
        assert!(!begins(line('Z', user, 0, [0; 4])));
        assert!(!begins(line('I', 0x420_8060, 0, [0; 4])));
        assert!(!line('S', user, 5, [1, 2, 2, 2]).may_begin(false, true));
        assert!(!line('R', user, 0, [0; 4]).may_begin(false, false));
        assert_eq!(ProcessStat::parse("7 (a) R"), None);
        assert_eq!(ProcessStat::parse(""), None);
        let stat = fs::read_to_string("/proc/self/stat").unwrap();
        let own = ProcessStat::parse(&stat).unwrap();
        assert!(own.start_code > 1 && own.has_arguments && own.has_environment && !own.ended());
    }

    #[test]
    fn a_process_that_never_was_is_dead() {
        assert!(is_dead(i32::MAX));
        assert!(!is_dead(i32::try_from(std::process::id()).unwrap()));
    }
}
