//! `kumi call`: a server by its command, and what is said when it cannot be.
#![forbid(unsafe_code)]

use kumi_tests::binaries;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

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

fn kumi(arguments: &[&str], folder: &Path) -> Output {
    let mut command = Command::new(binaries::path("kumi"));
    command.current_dir(folder).args(arguments).env_remove("KUMI_CALL_SERVER");
    command.output().expect("kumi runs")
}

/// What it said, and its exit code.
fn refused(arguments: &[&str], folder: &Path) -> (String, Option<i32>) {
    let output = kumi(arguments, folder);
    (String::from_utf8_lossy(&output.stderr).into_owned(), output.status.code())
}

struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(folder: &Path, listen: &str) -> Server {
        let mut child = Command::new(binaries::path("kumi"))
            .current_dir(folder)
            .args(["call", "serve", "--listen", listen, "--library", "libdmmul.so", "dmmul.json"])
            .stderr(Stdio::piped())
            .spawn()
            .expect("kumi starts");
        let mut said = String::new();
        let stderr = child.stderr.take().expect("its messages");
        BufReader::new(stderr).read_line(&mut said).expect("a line");
        let address = said.trim().rsplit(' ').next().expect("an address").to_owned();
        assert!(said.contains("serves 1 routine at "), "{said}");
        Server { child, address }
    }

    fn end(mut self) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().try_into().expect("a pid"));
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("it is there");
        assert!(self.child.wait().expect("it ends").success());
    }
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).expect("text")
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
        assert_eq!(text(&ask(&["call", "list"])), "dmmul\n");
        assert_eq!(text(&ask(&["call", "list", "fft"])), "");
        let said = text(&ask(&["call", "info", "dmmul"]));
        assert!(said.starts_with("dmmul\n  dense matrix product\n  in    int"), "{said}");
        let json = text(&ask(&["call", "info", "--json", "dmmul"]));
        let (json, written): (serde_json::Value, serde_json::Value) = (
            serde_json::from_str(&json).expect("JSON"),
            serde_json::from_str(DMMUL).expect("JSON"),
        );
        assert_eq!(json["params"], written["params"]);
        let output = ask(&["call", "info", "dmul"]);
        assert_eq!(output.status.code(), Some(66));
        assert!(String::from_utf8_lossy(&output.stderr).contains("did you mean dmmul"));
        server.end();
    }
    let (said, code) = refused(&["call", "list", "--server", &unix], folder.path());
    assert_eq!(code, Some(69), "{said}");
}

#[test]
fn what_cannot_be_served_is_said() {
    let folder = folder();
    let serve =
        |arguments: &[&str]| refused(&[&["call", "serve"], arguments].concat(), folder.path());
    let (said, code) = serve(&["--listen", "0.0.0.0:0", "dmmul.json"]);
    assert_eq!(code, Some(64), "{said}");
    assert!(said.contains("--insecure-listen"), "{said}");
    let (said, code) = serve(&["--listen", "127.0.0.1:0", "nowhere.json"]);
    assert_eq!(code, Some(66), "{said}");
    let (said, code) = serve(&["--listen", "127.0.0.1:0", "dmmul.c"]);
    assert_eq!(code, Some(65), "{said}");
    let (said, code) = serve(&["--listen", "127.0.0.1:0", "dmmul.json", "dmmul.json"]);
    assert_eq!(code, Some(65), "{said}");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = taken.local_addr().expect("its address").to_string();
    let (said, code) = serve(&["--listen", &at, "dmmul.json"]);
    assert_eq!(code, Some(73), "{said}");
    let (said, code) = refused(&["call", "list", "--server", "here"], folder.path());
    assert_eq!(code, Some(64), "{said}");
}
