//! Files as arguments of routines.
#![forbid(unsafe_code)]

mod common;
#[path = "common/grid.rs"]
mod grid;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use common::{TestServer, config, library_of, served_text};
use kumi_call::server::Config;
use kumi_call::{Arg, CallError, Client, FileArgument};
use kumi_idl::Scalar;
use kumi_rpc::{CallHead, ClientHello, HeldArrays, Value, chunk_header};

const TEXT: &str = r#"
Define capitals(mode_in filename from, mode_out filename to, mode_out long length) Calls "C" capitals(from, to, length);
Define append(mode_inout filename path, mode_in int digit) Calls "Fortran" append(path, digit);
Define mischief(mode_in int what, mode_out filename to) Calls "C" mischief(what, to);
Define rests(mode_in int ms, mode_in filename from, mode_out filename to) Calls "C" rests(ms, from, to);
"#;

fn served(config: Config) -> TestServer {
    served_text(config, TEXT, library_of("callbacks.c"))
}

/// A server whose files are below this folder.
fn served_in(scratch: &Path) -> TestServer {
    let mut limited = config();
    limited.scratch = scratch.to_owned();
    limited.file_bytes = 32 << 20;
    served(limited)
}

/// The folders of calls that exist.
fn calls_in(scratch: &Path) -> usize {
    let folders = |path: &Path| -> Vec<PathBuf> {
        let entries = std::fs::read_dir(path).expect("a folder");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        paths.filter(|path| path.is_dir()).collect()
    };
    let owners = folders(scratch).into_iter().flat_map(|server| folders(&server));
    owners.map(|owner| folders(&owner).len()).sum()
}

/// Waits for an event, however slow the machine is.
fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is() {
        assert!(begin.elapsed() < Duration::from_secs(30), "{what} does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn capitals(client: &Client, from: &Path, to: &Path) -> Result<Option<Scalar>, CallError> {
    let args = vec![FileArgument::from(from).into(), FileArgument::to(to).into()];
    client.call("capitals", args).map(|outcome| {
        assert_eq!(outcome.values.len(), 1, "files are in no value");
        outcome.scalar(2)
    })
}

#[test]
fn files_go_there_and_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let scratch = folder.path().join("scratch");
    let server = served_in(&scratch);
    let client = server.client();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    // The last file travels in many chunks.
    for length in [0, 1, 70_000, 5 << 20] {
        let text: Vec<u8> = (0..length).map(|at| b'a' + (at % 23) as u8).collect();
        std::fs::write(&from, &text).expect("written");
        let count = capitals(&client, &from, &to).expect("it runs");
        assert_eq!(count, Some(Scalar::I64(length.into())));
        assert!(std::fs::read(&to).expect("it is there") == text.to_ascii_uppercase());
    }
    for digit in 0..3 {
        let file = FileArgument::both(&to, &to).into();
        std::fs::write(&to, if digit == 0 { b"" } else { &b"01"[..digit] }).expect("written");
        client.call("append", vec![file, (digit as i32).into()]).expect("it runs");
    }
    assert_eq!(std::fs::read(&to).expect("it is there"), b"012");
    eventually("the end of the folders", || calls_in(&scratch) == 0);
    // Only the earlier files, and the requested ones.
    assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 3);
    let mut server = server;
    server.stop();
    assert_eq!(std::fs::read_dir(&scratch).expect("a folder").count(), 0);
}

#[test]
fn many_calls_with_files_share_a_connection() {
    let folder = tempfile::tempdir().expect("a folder");
    let server = served_in(folder.path());
    let client = server.client();
    let files = tempfile::tempdir().expect("a folder");
    std::thread::scope(|scope| {
        for thread in 0..4_usize {
            let (client, files) = (&client, files.path());
            scope.spawn(move || {
                let (from, to) =
                    (files.join(format!("from{thread}")), files.join(format!("to{thread}")));
                for round in 0..5 {
                    let length = (thread * 131 + round * 7919) * 40;
                    let text = vec![b'a' + thread as u8; length];
                    std::fs::write(&from, &text).expect("written");
                    capitals(client, &from, &to).expect("it runs");
                    assert!(std::fs::read(&to).expect("there") == text.to_ascii_uppercase());
                }
            });
        }
    });
    eventually("the end of the folders", || calls_in(folder.path()) == 0);
}

#[test]
fn links_stay_and_what_is_no_file_is_left_alone() {
    use std::os::unix::fs::symlink;
    let folder = tempfile::tempdir().expect("a folder");
    let files = tempfile::tempdir().expect("a folder");
    let server = served_in(folder.path());
    let client = server.client();
    let at = |name: &str| files.path().join(name);
    std::fs::create_dir(at("kept")).expect("made");
    for (name, text) in [("from", "abc"), ("kept/file", "before")] {
        std::fs::write(at(name), text).expect("written");
    }
    symlink("kept/file", at("link")).expect("a link");
    symlink("link", at("far")).expect("a link");
    capitals(&client, &at("from"), &at("far")).expect("it runs");
    assert_eq!(std::fs::read(at("kept/file")).expect("it is there"), b"ABC");
    for link in ["link", "far"] {
        assert!(at(link).is_symlink(), "{link}");
    }
    // Nothing is sent: devices and folders are not replaced, and nothing is created at the end of a broken
    // link.
    symlink("missing", at("nowhere")).expect("a link");
    symlink("/dev/null", at("device")).expect("a link");
    for (name, why) in
        [("nowhere", "leads nowhere"), ("device", "is no file"), ("kept", "is no file")]
    {
        let error = capitals(&client, &at("from"), &at(name)).expect_err("it is no file");
        assert!(matches!(&error, CallError::File(text) if text.contains(why)), "{name}: {error}");
    }
    assert_eq!(std::fs::read_dir(files.path()).expect("a folder").count(), 6);
    assert!(at("nowhere").is_symlink() && !at("missing").exists());
}

#[test]
fn what_is_no_file_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = tempfile::tempdir().expect("a folder");
    let mut limited = config();
    limited.scratch = folder.path().to_owned();
    limited.file_bytes = 1 << 20;
    let server = served(limited);
    let client = server.client();
    let to = files.path().join("to");
    std::fs::write(&to, "before").expect("written");
    let mischief =
        |what: i32| client.call("mischief", vec![what.into(), FileArgument::to(&to).into()]);
    for what in 0..4 {
        let error = mischief(what).expect_err("it is no file");
        assert!(matches!(&error, CallError::File(_)), "{what}: {error}");
        assert!(!error.has_not_run(), "{error}");
    }
    let error = mischief(4).expect_err("it crashes");
    assert!(matches!(error, CallError::Crashed { detail: 6, .. }), "{error}");
    assert_eq!(std::fs::read(&to).expect("it is there"), b"before", "what was there stays");
    assert_eq!(std::fs::read_dir(files.path()).expect("a folder").count(), 1);
    mischief(5).expect("it runs");
    assert_eq!(std::fs::read(&to).expect("it is there"), b"", "it wrote nothing");
    // Files that are too long, missing, or folders; or arguments that are not files.
    let from = files.path().join("from");
    std::fs::write(&from, vec![0; (1 << 20) + 1]).expect("written");
    let error = capitals(&client, &from, &to).expect_err("too long");
    assert!(matches!(&error, CallError::TooLarge(_)), "{error}");
    for missing in [&files.path().join("missing"), files.path()] {
        let error = capitals(&client, missing, &to).expect_err("no file");
        assert!(matches!(&error, CallError::File(_)), "{error}");
    }
    let args = vec![Arg::Default, FileArgument::to(&to).into()];
    let error = client.call("capitals", args).expect_err("no file");
    assert!(error.to_string().contains("`from` is a file"), "{error}");
    let args = vec![FileArgument::to(&to).into(), FileArgument::to(&to).into()];
    let error = client.call("capitals", args).expect_err("it is sent");
    assert!(matches!(error, CallError::Argument { .. }), "{error}");
    eventually("the end of the folders", || calls_in(folder.path()) == 0);
}

/// The hello of an anonymous client.
fn hello() -> Vec<u8> {
    let nothing = String::new;
    ClientHello {
        versions: 1..=1,
        token: nothing(),
        program: nothing(),
        site: nothing(),
        maps_memory: false,
    }
    .encode()
}

#[test]
fn cancelled_calls_and_lost_clients_leave_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let files = tempfile::tempdir().expect("a folder");
    let server = served_in(folder.path());
    let client = server.client();
    let (from, to) = (files.path().join("from"), files.path().join("to"));
    std::fs::write(&from, "text").expect("written");
    let args =
        || vec![600_000.into(), FileArgument::from(&from).into(), FileArgument::to(&to).into()];
    let mut call = client.call_async("rests", args(), None).expect("it is sent");
    eventually("the folder", || calls_in(folder.path()) == 1);
    call.cancel().expect("it is sent");
    assert!(matches!(call.wait(&|| false), Err(CallError::Cancelled(_))));
    drop(call);
    eventually("the end of the folder", || calls_in(folder.path()) == 0);
    assert!(!to.exists());
    // A raw client that sends a part of its file and leaves.
    let known = client.interface("capitals").expect("a description");
    let json = known.to_json().expect("its text");
    let mut bytes = hello();
    let head = |length| CallHead {
        hash: twox_hash::XxHash3_64::oneshot(json.as_bytes()),
        timeout_ms: 0,
        routine: "capitals".to_owned(),
        values: vec![(0, Value::FileLength(length))],
        held: HeldArrays::default(),
        shared: Vec::new(),
        object: 0,
    };
    let mut rpc = kumi_rpc::Client::new();
    rpc.call(&head(1000), &[], &mut bytes).expect("short");
    bytes.extend(chunk_header(1, 0, 5));
    bytes.extend(b"hello");
    let mut raw_client = TcpStream::connect(server.address).expect("a connection");
    raw_client.write_all(&bytes).expect("it is sent");
    eventually("the folder", || calls_in(folder.path()) == 1);
    drop(raw_client);
    eventually("the end of the folder", || calls_in(folder.path()) == 0);
    // Clients that announce more than allowed, or send more than announced.
    for (length, sent) in [(u64::MAX, 0), (3, 4)] {
        let mut bytes = hello();
        kumi_rpc::Client::new().call(&head(length), &[], &mut bytes).expect("short");
        if sent > 0 {
            bytes.extend(chunk_header(1, 0, sent));
            bytes.extend(vec![0; sent as usize]);
        }
        let mut raw_client = TcpStream::connect(server.address).expect("a connection");
        raw_client.write_all(&bytes).expect("it is sent");
        raw_client.shutdown(std::net::Shutdown::Write).expect("it is told");
        let mut said = Vec::new();
        let _end = raw_client.read_to_end(&mut said);
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains("more"), "{said}");
    }
    eventually("the end of the folder", || calls_in(folder.path()) == 0);
    capitals(&client, &from, &to).expect("it runs");
}

const SMALL: &str = "KUMI_TEST_SMALL_DISK";

#[test]
fn a_full_disk_is_told() {
    let may = Command::new("unshare").args(["-rm", "true"]).status();
    if !may.is_ok_and(|status| status.success()) {
        return kumi_skip::skip("a_full_disk_is_told", "no mount namespace can be made here");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let script = format!(
        "mount -t tmpfs -o size=1m none \"${SMALL}\" && exec \"$0\" --exact on_a_small_disk --ignored --nocapture"
    );
    let status = Command::new("unshare")
        .args(["-rm", "sh", "-c", &script])
        .arg(std::env::current_exe().expect("this program"))
        .env(SMALL, folder.path())
        .status();
    assert!(status.expect("it runs").success());
}

#[test]
#[ignore = "a_full_disk_is_told runs it with a small disk"]
fn on_a_small_disk() {
    let scratch = PathBuf::from(std::env::var_os(SMALL).expect("a small disk"));
    let server = served_in(&scratch);
    let client = server.client();
    let files = tempfile::tempdir().expect("a folder");
    let (from, to) = (files.path().join("from"), files.path().join("to"));
    for _ in 0..3 {
        std::fs::write(&from, vec![b'a'; 4 << 20]).expect("written");
        let error = capitals(&client, &from, &to).expect_err("the disk is full");
        assert!(matches!(&error, CallError::Busy(text) if text.contains("No space")), "{error}");
        eventually("the end of the folder", || calls_in(&scratch) == 0);
        std::fs::write(&from, vec![b'a'; 100_000]).expect("written");
        capitals(&client, &from, &to).expect("there is room again");
    }
    assert_eq!(std::fs::read(&to).expect("it is there"), vec![b'A'; 100_000]);
    on_another_disk(&scratch, files.path());
}

/// Files without room on one server go to another.
fn on_another_disk(small: &Path, large: &Path) {
    let meta = grid::meta(grid::config("round-robin"));
    let server = |name, scratch: &Path| {
        served(Config { scratch: scratch.to_owned(), ..meta.member(name, 1) })
    };
    let _servers = [server("small", small), server("large", large)];
    meta.until_servers(2);
    let (from, to) = (large.join("more"), large.join("back"));
    std::fs::write(&from, vec![b'b'; 4 << 20]).expect("written");
    for _ in 0..2 {
        let args = vec![FileArgument::from(&from).into(), FileArgument::to(&to).into()];
        meta.grid().call("capitals", args).expect("it runs where there is room");
    }
    let state = meta.until("both", |state| state.counters.done == 2);
    let done = |name| state.servers.iter().find(|it| it.name == name).map(|it| it.done);
    assert_eq!((done("small"), done("large")), (Some(0), Some(2)));
    assert!(state.counters.retried >= 1, "{state:?}");
}
