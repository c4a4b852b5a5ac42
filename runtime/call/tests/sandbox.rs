//! What a routine in a sandbox cannot do to its server, the server's user and the machine.
#![forbid(unsafe_code)]

mod common;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use common::{TestServer, compiled, config, eventually, served_text};
use kumi_call::server::Config;
use kumi_call::{Arg, CallError, Client};
use kumi_idl::Scalar;

const ROUTINES: &str = "
Define stab(mode_in int pid, mode_out int no) Calls \"C\" no = stab(pid);
Define leads_its_session(mode_out int so) Calls \"C\" so = leads_its_session();
Define is_set(mode_in string name, mode_out int so) Calls \"C\" so = is_set(name);
Define is_there(mode_in string path, mode_out int so) Calls \"C\" so = is_there(path);
Define room(mode_in string path, mode_out long mib) Calls \"C\" mib = room(path);
Define leave_a_child(mode_in string path, mode_out int no) Calls \"C\" no = leave_a_child(path);
Define give_up(mode_out int so) Calls \"C\" so = give_up();
";

/// A server with a sandbox. `None`: this machine permits none, and the test is skipped.
fn sandbox(test: &str, change: impl FnOnce(&mut Config)) -> Option<(TestServer, Client)> {
    // Others than its user see the folder.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).expect("it is ours");
    let library = compiled(folder.path(), "sandbox", include_str!("common/sandbox.c"));
    let mut config = Config { sandbox: true, ..config() };
    change(&mut config);
    let mut server = served_text(config, ROUTINES, library);
    server.keep(folder);
    let client = server.client();
    match client.call("leads_its_session", vec![]) {
        Ok(_) => Some((server, client)),
        Err(CallError::NotRunnable(text)) if text.contains("there can be no sandbox") => {
            kumi_skip::skip(test, &text);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

fn ask(client: &Client, routine: &str, argument: Option<Arg<'_>>) -> i64 {
    let result = usize::from(argument.is_some());
    let outcome = client.call(routine, argument.into_iter().collect());
    match outcome.expect("it runs").scalar(result) {
        Some(Scalar::I64(number)) => number,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_routine_sees_and_ends_no_process_outside() {
    let test = "a_routine_sees_and_ends_no_process_outside";
    let Some((_server, client)) = sandbox(test, |_| {}) else { return };
    let mut child = std::process::Command::new("sleep").arg("600").spawn().expect("a process");
    let pid = child.id();
    let own = std::process::id();
    let number = |pid: u32| Some(Arg::from(i32::try_from(pid).expect("a number")));
    assert_eq!(ask(&client, "stab", number(pid)), i64::from(nix::libc::ESRCH));
    assert_eq!(ask(&client, "stab", number(own)), i64::from(nix::libc::ESRCH));
    for path in [format!("/proc/{pid}"), format!("/proc/{own}")] {
        assert_eq!(ask(&client, "is_there", Some(path.as_str().into())), 0, "{path}");
    }
    assert_eq!(ask(&client, "is_there", Some("/proc/self".into())), 1, "its own are there");
    assert!(child.try_wait().expect("its state").is_none(), "it lives");
    child.kill().expect("it is ours");
    child.wait().expect("it ends");
}

#[test]
fn a_routine_has_no_terminal_and_knows_no_variable_of_its_server() {
    let test = "a_routine_has_no_terminal_and_knows_no_variable_of_its_server";
    let Some((_server, client)) = sandbox(test, |_| {}) else { return };
    assert_eq!(ask(&client, "leads_its_session", None), 1);
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some(), "cargo sets it");
    assert_eq!(ask(&client, "is_set", Some("CARGO_MANIFEST_DIR".into())), 0);
    for name in ["PATH", "HOME", "OMP_NUM_THREADS"] {
        assert_eq!(ask(&client, "is_set", Some(name.into())), 1, "{name}");
    }
}

#[test]
fn temporary_folders_are_within_the_limit_of_memory() {
    let test = "temporary_folders_are_within_the_limit_of_memory";
    let limit = 4 << 10;
    let change = |config: &mut Config| config.process_bytes = limit << 20;
    let Some((_server, client)) = sandbox(test, change) else { return };
    let folders =
        ["/tmp", "/var/tmp", "/dev/shm"].into_iter().filter(|path| Path::new(path).is_dir());
    let rooms: Vec<i64> = folders.map(|path| ask(&client, "room", Some(path.into()))).collect();
    let total: i64 = rooms.iter().sum();
    assert!(rooms.iter().all(|room| *room > 0) && total <= limit as i64, "{rooms:?}");
}

/// A child that has left session and process group ends with the routine's process all the same.
#[test]
fn children_in_sessions_of_their_own_end_with_their_process() {
    let test = "children_in_sessions_of_their_own_end_with_their_process";
    let Some((server, client)) = sandbox(test, |_| {}) else { return };
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let open = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), open).expect("it is ours");
    let path = folder.path().join("lock");
    let lock = std::fs::File::create(&path).expect("a file");
    let name = path.to_str().expect("a name");
    assert_eq!(ask(&client, "leave_a_child", Some(name.into())), 0);
    assert!(lock.try_lock().is_err(), "the child is there");
    // It ends as without a sandbox: by the signal of the routine's process.
    let outcome = client.call("give_up", vec![]);
    assert!(matches!(outcome, Err(CallError::Crashed { detail: 6, .. })), "{outcome:?}");
    drop((client, server));
    eventually("the child's end", || lock.try_lock().is_ok());
}
