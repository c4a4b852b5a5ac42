//! `kumi call token` and a server that knows its users, encrypted with the authority of a cluster.
#![forbid(unsafe_code)]

use kumi_tests::binaries;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

const ROUTINES: &str =
    "Define nothing() Calls \"C\" getpid(); Define other() Calls \"C\" getppid();
Define where_is(mode_in string name, mode_out long address) Calls \"C\" address = getenv(name);";

fn command(folder: &Path) -> Command {
    let mut command = Command::new(binaries::path("kumi"));
    command.current_dir(folder).env("KUMI_DIR", folder);
    for name in
        ["KUMI_CALL_SERVER", "KUMI_CALL_TOKEN", "KUMI_CALL_CA", "KUMI_CALL_TOKENS", "KUMI_CLUSTER"]
    {
        command.env_remove(name);
    }
    command
}

fn kumi(folder: &Path, arguments: &[&str]) -> Output {
    command(folder).args(arguments).output().expect("kumi runs")
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("text")
}

fn refused(output: &Output, code: i32) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(code), "{said}");
    said
}

/// A server, which is killed when this goes.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(folder: &Path, arguments: &[&str]) -> Server {
        Server::start_by(command(folder), arguments)
    }

    fn start_by(mut kumi: Command, arguments: &[&str]) -> Server {
        let mut child = kumi
            .args(["call", "serve", "--library", "libc.so.6", "routines.idl"])
            .args(arguments)
            .stderr(Stdio::piped())
            .spawn()
            .expect("kumi starts");
        let mut said = String::new();
        let stderr = child.stderr.take().expect("its messages");
        BufReader::new(stderr).read_line(&mut said).expect("a line");
        assert!(said.contains("serves 3 routines at "), "{said}");
        let address = said.trim().rsplit(' ').next().expect("an address").to_owned();
        Server { child, address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.child.kill().expect("it is there");
        self.child.wait().expect("it ends");
    }
}

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("routines.idl"), ROUTINES).expect("written");
    folder
}

#[test]
fn tokens_are_made_listed_and_revoked() {
    let folder = folder();
    let token = |arguments: &[&str]| {
        kumi(folder.path(), &[&["call", "token"], arguments, &["--file", "users"]].concat())
    };
    let ada = text(&token(&["add", "ada", "--routines", "n*,x", "--expires", "30d"]));
    let bob = text(&token(&["add", "bob"]));
    assert!(ada.trim().len() == 69 && ada != bob);
    let file = folder.path().join("users");
    assert_eq!(std::fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o600);
    let list = text(&token(&["list"]));
    let lines: Vec<Vec<&str>> =
        list.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines.len(), 3, "{list}");
    assert_eq!((lines[1][0], lines[1][3]), ("ada", "n*,x"));
    assert!(lines[1][2].ends_with('Z') && lines[2][2..] == ["never", "*"], "{list}");
    assert!(text(&token(&["revoke", "ada", "--id", lines[1][1]])).starts_with("1 token of ada"));
    assert!(refused(&token(&["revoke", "ada", "--id", lines[1][1]]), 64).contains("no token"));
    assert!(refused(&token(&["revoke", "eve"]), 64).contains("no user `eve`"));
    assert!(refused(&token(&["add", "a b"]), 64).contains("no user's name"));
    std::fs::write(&file, "[[user]]\nnaem = 'x'\n").expect("written");
    assert!(refused(&token(&["list"]), 65).contains("naem"));
    let missing = kumi(folder.path(), &["call", "token", "list", "--file", "nowhere"]);
    assert!(refused(&missing, 66).contains("nowhere"));
}

#[test]
fn a_server_that_other_machines_may_reach() {
    let folder = folder();
    let run = |arguments: &[&str]| kumi(folder.path(), arguments);
    text(&run(&["cluster", "init", "--local", "1"]));
    let ada = text(&run(&["call", "token", "add", "ada", "--file", "users", "--routines", "n*"]));
    let serve =
        ["call", "serve", "--library", "libc.so.6", "routines.idl", "--listen", "0.0.0.0:0"];
    let alone = run(&[&serve[..], &["--tokens", "users"]].concat());
    assert!(refused(&alone, 64).contains("can be read on the way"));
    let alone = run(&[&serve[..], &["--tls-cluster"]].concat());
    assert!(refused(&alone, 64).contains("nobody knows who calls"));
    let half = run(&[&serve[..], &["--tls-cert", "x"]].concat());
    refused(&half, 64);
    let arguments = ["--listen", "0.0.0.0:0", "--tokens", "users", "--tls-cluster"];
    let server = Server::start(folder.path(), &arguments);
    let port = server.address.strip_prefix("tls://0.0.0.0:").expect("it encrypts").to_owned();
    let (named, open) = (format!("tls://localhost:{port}"), format!("127.0.0.1:{port}"));
    std::fs::write(folder.path().join("token"), &ada).expect("written");
    let ca = ["--ca", "default/tls/ca.pem"];
    let list = |more: &[&str]| run(&[&["call", "list"], more].concat());
    let token = ["--token-file", "token"];
    assert_eq!(text(&list(&[&["--server", &named], &ca[..], &token].concat())), "nothing\n");
    let by_env = command(folder.path())
        .args(["call", "info", "nothing"])
        .env("KUMI_CALL_SERVER", &named)
        .env("KUMI_CALL_CA", "default/tls/ca.pem")
        .env("KUMI_CALL_TOKEN", ada.trim())
        .output();
    assert!(text(&by_env.expect("kumi runs")).starts_with("nothing"));
    let other = run(&[&["call", "info", "other", "--server", &named], &ca[..], &token].concat());
    assert!(refused(&other, 77).contains("`ada` may not call `other`"));
    let nobody = list(&[&["--server", &named], &ca[..]].concat());
    assert!(refused(&nobody, 77).contains("--token-file"));
    let stranger = list(&[&["--server", &named], &token[..]].concat());
    assert!(refused(&stranger, 69).contains("--ca"));
    assert!(refused(&list(&[&["--server", &open], &token[..]].concat()), 69).contains("tls://"));
    let brief = ["call", "token", "add", "ada", "--file", "users", "--expires", "1ns"];
    std::fs::write(folder.path().join("token"), text(&run(&brief))).expect("written");
    let late = list(&[&["--server", &named], &ca[..], &token].concat());
    assert!(refused(&late, 77).contains("expired"));
}

/// What a server needs for its metaserver is no routine's business that is confined.
#[test]
fn a_sandbox_does_not_know_its_servers_token() {
    let folder = folder();
    let served = |arguments: &[&str]| {
        let mut kumi = command(folder.path());
        kumi.env("KUMI_CALL_TOKEN", "the server's");
        Server::start_by(kumi, arguments)
    };
    let found = |server: &Server, name: &str| {
        kumi(folder.path(), &["call", "run", "--server", &server.address, "where_is", name])
    };
    let at = ["--listen", "127.0.0.1:0"];
    let (inside, outside) = (served(&[&at[..], &["--sandbox"]].concat()), served(&at));
    assert_ne!(text(&found(&outside, "KUMI_CALL_TOKEN")).trim(), "address = 0", "the same user");
    let path = found(&inside, "PATH");
    if !path.status.success() {
        // Here it is not permitted, and says so.
        let said = refused(&path, 70);
        assert!(said.contains("there can be no sandbox"), "{said}");
        return kumi_skip::skip("a_sandbox_does_not_know_its_servers_token", said.trim());
    }
    assert_ne!(text(&path).trim(), "address = 0");
    assert_eq!(text(&found(&inside, "KUMI_CALL_TOKEN")).trim(), "address = 0");
}
