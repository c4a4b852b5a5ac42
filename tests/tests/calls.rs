//! `kumi call`: a server by its command, and what is said when it cannot be.
#![forbid(unsafe_code)]

use kumi_tests::binaries;
use kumi_tests::command::{FinishedCommand, RunningCommand, run};
use std::path::{Path, PathBuf};
use std::process::Command;

const DMMUL: &str = r#"{"version":1,"name":"dmmul","doc":"dense matrix product","params":[
{"name":"n","mode":"in","type":{"number":"i32"}},
{"name":"A","mode":"in","type":{"number":"f64"},"dims":[{"size":{"param":0}},{"size":{"param":0}}]},
{"name":"B","mode":"in","type":{"number":"f64"},"dims":[{"size":{"param":0}},{"size":{"param":0}}]},
{"name":"C","mode":"out","type":{"number":"f64"},"dims":[{"size":{"param":0}},{"size":{"param":0}}]}],
"target":{"language":"c","symbol":"dmmul","arguments":[{"param":0},{"param":1},{"param":2},{"param":3}]}}"#;

const SOURCE: &str = "void dmmul(int n, const double *a, const double *b, double *c)
{ for (int i = 0; i < n * n; i++) { c[i] = 0; for (int k = 0; k < n; k++) c[i] += a[i / n * n + k] * b[k * n + i % n]; } }";

/// A folder with the description and the library.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        std::fs::write(folder.path().join(name), text).expect("a file");
    };
    write("dmmul.json", DMMUL);
    write("dmmul.c", SOURCE);
    let compiled = Command::new(std::env::var("CC").unwrap_or_else(|_| "cc".to_owned()))
        .current_dir(folder.path())
        .args(["-O2", "-fPIC", "-shared", "-o", "libdmmul.so", "dmmul.c"])
        .status();
    assert!(compiled.expect("a C compiler").success());
    folder
}

/// Runs `kumi` there.
#[track_caller]
fn kumi(arguments: &[&str], folder: &Path) -> FinishedCommand {
    run(command(arguments, folder))
}

fn command(arguments: &[&str], folder: &Path) -> Command {
    let mut command = Command::new(binaries::path("kumi"));
    command.current_dir(folder).args(arguments).env_remove("KUMI_CALL_SERVER");
    command
}

/// A server, which does not outlive a test that fails.
struct Server {
    running: RunningCommand,
    address: String,
}

impl Server {
    fn start(folder: &Path, listen: &str) -> Server {
        let serve = ["call", "serve", "--listen", listen, "--library", "libdmmul.so", "dmmul.json"];
        let running = RunningCommand::start(command(&serve, folder));
        Server::of(running, "serves 1 routine at ")
    }

    /// One that says so.
    fn of(running: RunningCommand, what: &str) -> Server {
        let said = running.error_line();
        let address = said.trim().rsplit(' ').next().expect("an address").to_owned();
        assert!(said.contains(what), "{said}");
        Server { running, address }
    }

    #[track_caller]
    fn end(self) {
        let pid = nix::unistd::Pid::from_raw(self.running.pid().try_into().expect("a pid"));
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("it is there");
        self.running.finish().ok();
    }
}

#[test]
fn a_server_is_asked_for_its_routines() {
    let folder = folder();
    let socket: PathBuf = folder.path().join("socket");
    let unix = format!("unix:{}", socket.display());
    for listen in ["127.0.0.1:0", &unix] {
        let server = Server::start(folder.path(), listen);
        let ask =
            |what: &[&str]| kumi(&[what, &["--server", &server.address]].concat(), folder.path());
        let said = |what: &[&str]| ask(what).ok().out;
        assert_eq!(said(&["call", "list"]), "dmmul\n");
        assert_eq!(said(&["call", "list", "fft"]), "");
        let info = said(&["call", "info", "dmmul"]);
        assert!(info.starts_with("dmmul\n  dense matrix product\n  in    int"), "{info}");
        assert!(info.contains("  in    double[n][n]  A\n"), "{info}");
        assert!(info.contains("\nC       grpc_call(&handle, n, A, B, C);\n"), "{info}");
        assert!(info.ends_with("\nPython  C = server.call(\"dmmul\", A, B)\n"), "{info}");
        let json = said(&["call", "info", "--json", "dmmul"]);
        let (json, written): (serde_json::Value, serde_json::Value) = (
            serde_json::from_str(&json).expect("JSON"),
            serde_json::from_str(DMMUL).expect("JSON"),
        );
        assert_eq!(json["params"], written["params"]);
        ask(&["call", "info", "dmul"]).fails(66, &["did you mean dmmul"]);
        let first = ["call", "run", "--priority", "1", "dmmul", "1", "1", "1"];
        ask(&first).fails(64, &["through a metaserver"]);
        server.end();
    }
    assert!(!socket.exists(), "a server takes its socket away");
    let nobody = kumi(&["call", "list", "--server", &unix], folder.path());
    nobody.fails(69, &["cannot be reached", &unix]);
}

/// Descriptions are known by name; the library is looked for when a routine is called.
#[test]
fn what_comes_with_kumi_is_served_by_name() {
    let folder = folder();
    let serve = ["call", "serve", "--listen", "127.0.0.1:0", "--shipped", "blas,lapack"];
    let server = Server::of(
        RunningCommand::start(command(&serve, folder.path())),
        "serves 140 routines at ",
    );
    let ask = ["call", "list", "gesv", "--server", &server.address];
    let said = kumi(&ask, folder.path()).ok().out;
    assert_eq!(said, "cgesv\ncgesvd\ndgesv\ndgesvd\nsgesv\nsgesvd\nzgesv\nzgesvd\n");
    server.end();
    let wrong = ["call", "serve", "--shipped", "lapak"];
    kumi(&wrong, folder.path()).fails(64, &["lapak", "blas, lapack, fftw, demo"]);
    let bodies = ["call", "serve", "--shipped", "fftw"];
    kumi(&bodies, folder.path()).fails(65, &["fft3_backward", "kumi call build"]);
    let listed = kumi(&["call", "check", "--shipped", "lapack"], folder.path()).ok().out;
    assert!(listed.contains("dgesv(n, nrhs, A, lda, ipiv, B, ldb, info)"), "{listed}");
}

#[test]
fn what_cannot_be_served_is_said() {
    let folder = folder();
    let serve = |arguments: &[&str]| kumi(&[&["call", "serve"], arguments].concat(), folder.path());
    serve(&["--listen", "0.0.0.0:0", "dmmul.json"]).fails(64, &["--insecure-listen", "127.0.0.1"]);
    let local = ["--listen", "127.0.0.1:0"];
    serve(&[&local[..], &["nowhere.json"]].concat()).fails(66, &["nowhere.json"]);
    serve(&[&local[..], &["dmmul.c"]].concat()).fails(65, &["dmmul.c"]);
    serve(&[&local[..], &["dmmul.json", "dmmul.json"]].concat()).fails(65, &["dmmul"]);
    let meta = ["--meta", "192.0.2.1:7071", "dmmul.json"];
    serve(&[&local[..], &meta].concat()).fails(64, &["tls://HOST:PORT", "--insecure"]);
    let asked = ["call", "token", "add", "ada", "--file", "users"];
    kumi(&asked, folder.path()).ok();
    let users = ["--tokens", "users", "--meta", "127.0.0.1:1", "dmmul.json"];
    serve(&[&local[..], &users].concat()).fails(64, &["--trust-meta", "--meta-only"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = taken.local_addr().expect("its address").to_string();
    serve(&["--listen", &at, "dmmul.json"]).fails(73, &["cannot listen at", &at]);
    kumi(&["call", "list", "--server", "here"], folder.path()).fails(64, &["HOST:PORT"]);
}
