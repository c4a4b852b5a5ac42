//! What a routine cannot do to its server, to other processes of its user and to the machine, in a sandbox and without.
#![forbid(unsafe_code)]

mod common;

use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::{TestServer, compiled, config, eventually, served_text};
use kumi_call::server::Config;
use kumi_call::{Arg, CallError, Client, Outcome};
use kumi_idl::Scalar;
use nix::libc;

const ROUTINES: &str = "
Define stab(mode_in int pid, mode_out int no) Calls \"C\" no = stab(pid);
Define pry(mode_in int pid, mode_out int no) Calls \"C\" no = pry(pid);
Define reach(mode_in string path, mode_out int no) Calls \"C\" no = reach(path);
Define post(mode_in string path, mode_out int no) Calls \"C\" no = post(path);
Define pipe_into(mode_in string path, mode_out int no) Calls \"C\" no = pipe_into(path);
Define is_there(mode_in string path, mode_out int so) Calls \"C\" so = is_there(path);
Define leave_a_daemon(mode_in string path, mode_in string then, mode_out int no)
Calls \"C\" no = leave_a_daemon(path, then);
Define multiply(mode_in string path, mode_out int no) Calls \"C\" no = multiply(path);
Define blocked(mode_in int in_a_child, mode_out long set) Calls \"C\" set = blocked(in_a_child);
Define end_by(mode_in int number, mode_out int no) Calls \"C\" no = end_by(number);
Define attempt(mode_in string name, mode_out int no) Calls \"C\" no = attempt(name);
";

/// A folder in which others than its user may do everything.
fn open_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    open(folder.path(), 0o777);
    folder
}

fn open(path: &Path, mode: u32) {
    let mode = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, mode).expect("it is ours");
}

fn server(sandbox: bool) -> (TestServer, Client) {
    let folder = open_folder();
    let library = compiled(folder.path(), "confinement", include_str!("common/confinement.c"));
    let mut server = served_text(Config { sandbox, ..config() }, ROUTINES, library);
    server.keep(folder);
    let client = server.client();
    (server, client)
}

/// A server with a sandbox. `None`: this machine permits none, and the test is skipped.
fn sandbox(test: &str) -> Option<(TestServer, Client)> {
    let (server, client) = server(true);
    match client.call("attempt", vec!["fork".into()]) {
        Ok(_) => Some((server, client)),
        Err(CallError::NotRunnable(text)) if text.contains("there can be no sandbox") => {
            kumi_skip::skip(test, &text);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn ask<'a>(client: &Client, routine: &str, argument: impl Into<Arg<'a>>) -> i32 {
    let outcome = client.call(routine, vec![argument.into()]).expect("it runs");
    match outcome.scalar(1) {
        Some(Scalar::I64(number)) => i32::try_from(number).expect("small"),
        other => panic!("{other:?}"),
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a name")
}

fn number(pid: u32) -> i32 {
    i32::try_from(pid).expect("a number")
}

/// A process of the server's user, ended when this is dropped.
struct Bystander(std::process::Child);

impl Bystander {
    fn new() -> Bystander {
        Bystander(std::process::Command::new("sleep").arg("600").spawn().expect("a process"))
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        self.0.kill().expect("it is ours");
        self.0.wait().expect("it ends");
    }
}

/// Needs the scopes of Landlock: Linux 6.12. `false`: the test is skipped.
fn has_domains(test: &str) -> bool {
    use landlock::{CompatLevel, Compatible, Ruleset, RulesetAttr, Scope};
    let rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    let made = rules.scope(Scope::Signal).and_then(Ruleset::create);
    if let Err(error) = &made {
        kumi_skip::skip(test, &format!("the kernel has no scopes of Landlock: {error}"));
    }
    made.is_ok()
}

/// Without a sandbox: the server's and the routine's users are the same, here root.
#[test]
fn a_routine_without_a_sandbox_signals_no_other_process_of_its_user() {
    if !has_domains("a_routine_without_a_sandbox_signals_no_other_process_of_its_user") {
        return;
    }
    let (_server, client) = server(false);
    let mut bystander = Bystander::new();
    for pid in [bystander.0.id(), std::process::id()] {
        assert_eq!(ask(&client, "stab", number(pid)), libc::EPERM);
    }
    assert!(bystander.0.try_wait().expect("its state").is_none(), "it lives");
    assert_eq!(ask(&client, "attempt", "fork"), 0, "it may have children");
}

#[test]
fn a_routine_without_a_sandbox_opens_no_other_process_s_memory() {
    if !has_domains("a_routine_without_a_sandbox_opens_no_other_process_s_memory") {
        return;
    }
    let (_server, client) = server(false);
    let bystander = Bystander::new();
    for pid in [bystander.0.id(), std::process::id()] {
        assert_eq!(ask(&client, "pry", number(pid)), libc::EACCES);
    }
}

/// None of these would fail with this error by itself.
#[test]
fn a_routine_without_a_sandbox_traces_nothing_and_types_nothing() {
    let (_server, client) = server(false);
    for what in ["ptrace", "process_vm_readv", "kcmp", "pidfd_getfd", "TIOCSTI", "prlimit"] {
        assert_eq!(ask(&client, "attempt", what), libc::EPERM, "{what}");
    }
    assert_eq!(ask(&client, "attempt", "pair"), 0);
}

/// None of these would fail with this error by itself.
#[test]
fn a_sandbox_denies_what_no_routine_needs() {
    let Some((_server, client)) = sandbox("a_sandbox_denies_what_no_routine_needs") else { return };
    let calls = ["ptrace", "process_vm_readv", "kcmp", "pidfd_getfd", "TIOCSTI", "prlimit"];
    let more = ["unshare", "clone", "io_uring", "userfaultfd", "keyctl"];
    for what in calls.into_iter().chain(more).chain([
        "packets",
        "old_packets",
        "vsock",
        "netlink",
        "inet_pair",
    ]) {
        assert_eq!(ask(&client, "attempt", what), libc::EPERM, "{what}");
    }
    assert_eq!(ask(&client, "attempt", "clone3"), libc::ENOSYS);
    for what in ["pair", "fork"] {
        assert_eq!(ask(&client, "attempt", what), 0, "{what}");
    }
}

/// Sockets that everybody may connect to: by path, as a session's bus, an agent or a container service has them, for streams
/// and for packets, and abstract.
struct Sockets {
    _streams: UnixListener,
    _packets: UnixDatagram,
    _abstract: UnixListener,
    _folder: tempfile::TempDir,
    stream: PathBuf,
    packet: PathBuf,
    name: String,
}

impl Sockets {
    fn new() -> Sockets {
        let folder = open_folder();
        let [stream, packet] = ["stream", "packet"].map(|name| folder.path().join(name));
        let streams = UnixListener::bind(&stream).expect("a socket");
        let packets = UnixDatagram::bind(&packet).expect("a socket");
        [&stream, &packet].into_iter().for_each(|path| open(path, 0o777));
        // As unique as the folder.
        let name = format!("kumi-confinement-{}", text(&stream).replace('/', "-"));
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let listener = UnixListener::bind_addr(&address).expect("a socket");
        Sockets {
            _streams: streams,
            _packets: packets,
            _abstract: listener,
            _folder: folder,
            stream,
            packet,
            name: format!("@{name}"),
        }
    }
}

#[test]
fn a_sandbox_reaches_no_unix_socket() {
    let Some((_server, client)) = sandbox("a_sandbox_reaches_no_unix_socket") else { return };
    let sockets = Sockets::new();
    assert_eq!(ask(&client, "is_there", text(&sockets.stream)), 1, "it lies in the open");
    assert_eq!(ask(&client, "reach", text(&sockets.stream)), libc::EPERM);
    assert_eq!(ask(&client, "post", text(&sockets.packet)), libc::EPERM);
    assert_eq!(ask(&client, "reach", sockets.name.as_str()), libc::EPERM);
    drop(sockets);
    // These sockets can be reached: a routine outside of a sandbox does.
    let (_server, client) = server(false);
    let sockets = Sockets::new();
    assert_eq!(ask(&client, "reach", text(&sockets.stream)), 0);
    assert_eq!(ask(&client, "post", text(&sockets.packet)), 0);
    assert_eq!(ask(&client, "reach", sockets.name.as_str()), 0);
}

#[test]
fn a_sandbox_writes_into_no_named_pipe() {
    let test = "a_sandbox_writes_into_no_named_pipe";
    let Some((_server, client)) = sandbox(test) else { return };
    if !has_domains(test) {
        return;
    }
    let folder = open_folder();
    let path = folder.path().join("pipe");
    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::empty()).expect("a pipe");
    open(&path, 0o666);
    let mut options = std::fs::OpenOptions::new();
    let flags = nix::fcntl::OFlag::O_NONBLOCK.bits();
    let _reader = options.read(true).custom_flags(flags).open(&path).expect("its end");
    assert_eq!(ask(&client, "pipe_into", text(&path)), libc::EACCES);
    let (_server, client) = server(false);
    assert_eq!(ask(&client, "pipe_into", text(&path)), 0, "others can");
}

#[test]
fn a_sandbox_sees_no_terminal_and_no_service() {
    let Some((_server, client)) = sandbox("a_sandbox_sees_no_terminal_and_no_service") else {
        return;
    };
    let mut looked = 0;
    for folder in ["/run", "/dev/pts"] {
        for entry in std::fs::read_dir(folder).expect("it is there").flatten() {
            assert_eq!(ask(&client, "is_there", text(&entry.path())), 0, "{:?}", entry.path());
            looked += 1;
        }
    }
    assert!(looked > 0, "there is something to hide");
    assert_eq!(ask(&client, "is_there", "/dev/null"), 1);
}

/// A file on which a daemon of a routine has a lock as long as it lives.
struct Lock {
    file: std::fs::File,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

impl Lock {
    fn new() -> Lock {
        let folder = open_folder();
        let path = folder.path().join("lock");
        let file = std::fs::File::create(&path).expect("a file");
        open(&path, 0o666);
        Lock { file, path, _folder: folder }
    }

    /// Lets a routine leave a daemon, and then return, crash or stay until its time, if it has one, is over.
    fn give(
        &self,
        client: &Client,
        then: &str,
        time: Option<Duration>,
    ) -> Result<Outcome, CallError> {
        client.call_within("leave_a_daemon", vec![text(&self.path).into(), then.into()], time)
    }

    /// Whether a routine that stays has left a daemon.
    fn was_given(&self) -> bool {
        self.file.metadata().expect("it is ours").permissions().mode() & 0o777 == 0o600
    }

    /// Whether no daemon has it.
    fn is_free(&self) -> bool {
        let is_free = self.file.try_lock().is_ok();
        if is_free {
            self.file.unlock().expect("it is ours");
        }
        is_free
    }
}

#[test]
fn a_daemon_of_a_routine_is_gone_when_the_caller_hears_of_a_crash() {
    let (_server, client) = server(false);
    let lock = Lock::new();
    let outcome = lock.give(&client, "crash", None);
    assert!(matches!(outcome, Err(CallError::Crashed { detail: 6, .. })), "{outcome:?}");
    assert!(lock.is_free(), "the daemon is over");
}

#[test]
fn a_daemon_of_a_routine_is_gone_when_the_caller_hears_that_time_is_over() {
    let (_server, client) = server(false);
    let lock = Lock::new();
    let mut time = Duration::from_millis(250);
    while !lock.was_given() {
        // On a slow machine the daemon comes later.
        time *= 2;
        let outcome = lock.give(&client, "stay", Some(time));
        assert!(matches!(outcome, Err(CallError::TimedOut(_))), "{outcome:?}");
        assert!(lock.is_free(), "the daemon is over");
    }
}

#[test]
fn a_daemon_of_a_routine_ends_with_the_server() {
    let (mut server, client) = server(false);
    let lock = Lock::new();
    lock.give(&client, "return", None).expect("it returns");
    assert!(!lock.is_free(), "the daemon is there");
    drop(client);
    server.stop();
    eventually("the daemon's end", || lock.is_free());
}

#[test]
fn processes_that_start_others_without_end_are_gone_when_the_caller_hears_of_a_crash() {
    let (_server, client) = server(false);
    let lock = Lock::new();
    let outcome = client.call("multiply", vec![text(&lock.path).into()]);
    assert!(matches!(outcome, Err(CallError::Crashed { detail: 6, .. })), "{outcome:?}");
    assert!(lock.is_free(), "all of them are over");
}

/// The guard of a process outside of a sandbox blocks two for itself.
#[test]
fn no_signal_is_blocked_in_a_routine_and_its_children() {
    let test = "no_signal_is_blocked_in_a_routine_and_its_children";
    let (_server, plain) = server(false);
    let sandbox = sandbox(test);
    for client in [Some(&plain), sandbox.as_ref().map(|(_, client)| client)].into_iter().flatten() {
        for in_a_child in [0, 1] {
            assert_eq!(ask(client, "blocked", in_a_child), 0, "{in_a_child}");
        }
    }
}

#[test]
fn an_end_by_a_real_time_signal_is_a_crash_with_its_number() {
    let test = "an_end_by_a_real_time_signal_is_a_crash_with_its_number";
    let (_server, plain) = server(false);
    let sandbox = sandbox(test);
    for client in [Some(&plain), sandbox.as_ref().map(|(_, client)| client)].into_iter().flatten() {
        let outcome = client.call("end_by", vec![3.into()]);
        let number = i64::from(libc::SIGRTMIN() + 3);
        let is_it = matches!(outcome, Err(CallError::Crashed { detail, .. }) if detail == number);
        assert!(is_it, "{outcome:?}");
    }
}

/// Ends the process that opens it unless that is confined as a routine's is.
const SUSPICIOUS: &str = r#"
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void look(void) {
    char line[256];
    int mode = 0;
    FILE *status = fopen("/proc/self/status", "re");
    while (status && fgets(line, sizeof line, status)) sscanf(line, "Seccomp: %d", &mode);
    if (mode != 2 || (WITHOUT && getenv("CARGO_MANIFEST_DIR"))) abort();
}
void nothing(int n) { (void)n; }
"#;

/// Whether a server's check at its start opens a library in a process confined as routines are.
fn is_checked(sandbox: bool) -> std::io::Result<Vec<kumi_call::server::Unloadable>> {
    let folder = open_folder();
    let source = SUSPICIOUS.replace("WITHOUT", if sandbox { "1" } else { "0" });
    let library = compiled(folder.path(), "suspicious", &source);
    let parsed = kumi_idl::parse(b"Define nothing(mode_in int n) Calls \"C\" nothing(n);");
    let mut registry = kumi_call::server::Registry::default();
    for interface in parsed.module.expect("a module").routines() {
        registry.add(interface.clone(), std::slice::from_ref(&library)).expect("a routine");
    }
    registry.library_check().run(&Config { sandbox, ..config() })
}

#[test]
fn libraries_are_opened_at_the_start_as_confined_as_for_calls() {
    let test = "libraries_are_opened_at_the_start_as_confined_as_for_calls";
    assert_eq!(is_checked(false).expect("it is not ended"), []);
    if sandbox(test).is_some() {
        assert_eq!(is_checked(true).expect("it is not ended"), []);
    }
}
