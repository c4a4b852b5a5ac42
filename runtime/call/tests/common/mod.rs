//! A server in this process, with a library compiled for it.
#![forbid(unsafe_code)]
#![allow(dead_code)] // Each test uses a part of it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kumi_call::server::{Config, Listener, Peers, Registry, ServeError, serve};
use kumi_call::{Arg, Client, Options};
use kumi_idl::{Dimension, Element, Expr, Interface, Language, Mode, Order, Param, Target, Type};
use tokio::sync::oneshot;

/// Reads as `read` does. A signal for this process (a child has ended) interrupts a read with a time limit: then it
/// tries again.
pub fn read_some(from: &mut impl std::io::Read, into: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match from.read(into) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// Compiles the routines once.
pub fn library() -> PathBuf {
    library_of("routines.c")
}

/// Compiles a file of this folder once.
pub fn library_of(source: &str) -> PathBuf {
    static MADE: Mutex<BTreeMap<String, PathBuf>> = Mutex::new(BTreeMap::new());
    let make = || {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/common").join(source);
        let name = format!("lib{source}-{}.so", std::process::id());
        let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        compile(&path, &library);
        library
    };
    let mut made = MADE.lock().expect("a compiler that works");
    made.entry(source.to_owned()).or_insert_with(make).clone()
}

fn compile(source: &Path, library: &Path) {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let status = Command::new(compiler)
        .args(["-O2", "-fPIC", "-shared", "-pthread", "-o"])
        .args([library, source])
        .status();
    assert!(status.expect("a C compiler").success(), "the routines do not compile");
}

/// A library of this C code in a folder.
pub fn compiled(folder: &Path, name: &str, code: &str) -> PathBuf {
    let (source, library) =
        (folder.join(format!("{name}.c")), folder.join(format!("lib{name}.so")));
    std::fs::write(&source, code).expect("written");
    compile(&source, &library);
    library
}

pub fn param(name: &str, mode: Mode, element: Element, dims: &[Expr]) -> Param {
    let dimension =
        |size: &Expr| Dimension { size: size.clone(), start: None, end: None, step: None };
    Param {
        name: name.to_owned(),
        mode,
        ty: Type::Number(element),
        dims: dims.iter().map(dimension).collect(),
        order: Order::Row,
        default: None,
        doc: String::new(),
    }
}

pub fn routine(name: &str, params: Vec<Param>) -> Interface {
    let count = u32::try_from(params.len()).expect("few");
    Interface {
        version: Interface::VERSION,
        name: name.to_owned(),
        class: String::new(),
        doc: String::new(),
        params,
        calc_order: None,
        idempotent: false,
        split: None,
        status: None,
        parallel: None,
        target: Target {
            symbol: name.to_owned(),
            arguments: (0..count).map(Expr::Param).collect(),
            ..Target::default()
        },
    }
}

/// The descriptions of the routines.
pub fn interfaces() -> Vec<Interface> {
    use Element::{F32, F64, I32, I64};
    use Mode::{In, InOut, Out};
    let n = || Expr::Param(0);
    let size = || param("n", In, I32, &[]);
    let matrix = |name: &str, mode| param(name, mode, F64, &[n(), n()]);
    let mut all = vec![
        routine("dmmul", vec![size(), matrix("A", In), matrix("B", In), matrix("C", Out)]),
        routine("noop", vec![]),
        routine("crash", vec![]),
        routine("deaf", vec![]),
        routine("brood", vec![param("leaves", In, I32, &[]), param("pid", Out, I32, &[])]),
        routine("keep", vec![size(), param("x", Out, F64, &[n()])]),
        routine("leave", vec![param("code", In, I32, &[])]),
        routine("nap", vec![param("ms", In, I32, &[]), param("pid", Out, I32, &[])]),
    ];
    let mut addcol = routine(
        "addcol",
        vec![
            size(),
            param("m", In, I32, &[]),
            Param { order: Order::Column, ..param("a", In, F64, &[n(), Expr::Param(1)]) },
            param("y", InOut, F64, &[n()]),
            param("info", Out, I32, &[]),
        ],
    );
    addcol.target.language = Language::Fortran;
    addcol.status = Some(4);
    all.push(addcol);
    let mut total = routine(
        "total",
        vec![
            size(),
            param("x", In, F32, &[n()]),
            Param { default: Some(Expr::Int(2)), ..param("scale", In, F32, &[]) },
            param("sum", Out, F64, &[]),
        ],
    );
    total.target.arguments.pop();
    total.target.result = Some(3);
    all.push(total);
    let mut negate = routine("negate", vec![size(), param("x", InOut, I32, &[n()])]);
    negate.params[1].dims[0].step = Some(Expr::Int(2));
    all.push(negate);
    let text = |name: &str, mode, dims: &[Expr]| Param {
        ty: Type::String,
        ..param(name, mode, I32, dims)
    };
    all.push(routine("gate", vec![text("path", In, &[])]));
    all.push(routine("shout", vec![text("text", In, &[]), text("answer", Out, &[Expr::Int(16)])]));
    let mut used =
        routine("use", vec![param("bytes", In, I64, &[]), param("failed", Out, I32, &[])]);
    used.target.arguments.pop();
    used.target.result = Some(1);
    all.push(used);
    all.push(routine("absent", vec![]));
    all.extend(of_arrays());
    all
}

/// Routines for held arrays.
fn of_arrays() -> [Interface; 3] {
    use Element::{F64, I32};
    use Mode::{In, InOut, Out};
    let n = || Expr::Param(0);
    let size = || param("n", In, I32, &[]);
    let ms = param("ms", In, I32, &[]);
    let x = param("x", In, F64, &[]);
    let mut fill = routine("fill", vec![size(), ms, x, param("y", Out, F64, &[n()])]);
    fill.idempotent = true;
    let path = Param { ty: Type::String, ..param("path", In, I32, &[]) };
    let x = param("x", In, F64, &[]);
    let mut flood = routine("flood", vec![size(), path, x, param("y", Out, F64, &[n()])]);
    flood.idempotent = true;
    let x = param("x", In, F64, &[n()]);
    let y = param("y", InOut, F64, &[n()]);
    let mut add = routine("add", vec![size(), x, y, param("info", Out, I32, &[])]);
    add.status = Some(3);
    [fill, flood, add]
}

/// A gate: calls of `gate` run until it is opened.
pub struct Gate(tempfile::TempDir);

impl Gate {
    /// A closed gate.
    pub fn new() -> Gate {
        Gate(tempfile::tempdir().expect("a folder"))
    }

    /// The file that exists when it is open.
    pub fn path(&self) -> String {
        self.0.path().join("open").to_str().expect("a path that is text").to_owned()
    }

    /// The arguments for `gate`.
    pub fn args(&self) -> Vec<Arg<'static>> {
        vec![Arg::Text(self.path().into())]
    }

    /// Number of calls that have begun.
    pub fn begun(&self) -> usize {
        std::fs::read(self.0.path().join("open.begun")).map_or(0, |bytes| bytes.len())
    }

    /// Lets all calls end.
    pub fn open(&self) {
        std::fs::write(self.path(), "").expect("it is opened");
    }
}

/// Waits for an event, however slow the machine is.
pub fn eventually(what: &str, mut is: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is() {
        assert!(begin.elapsed() < Duration::from_secs(30), "{what} does not come");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A server, ended when this is dropped.
pub struct TestServer {
    /// Meaningless for a Unix socket.
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    /// A folder that it needs, removed after it.
    kept: Option<tempfile::TempDir>,
}

pub fn config() -> Config {
    let mut config = Config::new(PathBuf::from(env!("CARGO_BIN_EXE_kumi-call-slot")));
    config.slots = 2;
    config.peers = Peers::Any;
    config
}

/// Starts a server with all routines.
pub fn served(config: Config) -> TestServer {
    served_by(config, registry())
}

/// Starts a server with all routines on this listener.
pub fn served_at(config: Config, listener: Listener) -> TestServer {
    served_on(config, registry(), listener)
}

fn registry() -> Registry {
    let mut registry = Registry::default();
    let libraries = [library()];
    for interface in interfaces() {
        registry.add(interface, &libraries).expect("a routine");
    }
    registry
}

/// Starts a server with the routines of a text, from this library.
pub fn served_text(config: Config, text: &str, library: PathBuf) -> TestServer {
    let parsed = kumi_idl::parse(text.as_bytes());
    let module = parsed.module.unwrap_or_else(|| panic!("{:?}", parsed.diagnostics));
    let mut registry = Registry::default();
    let libraries = [library];
    for interface in module.routines() {
        registry.add(interface.clone(), &libraries).expect("a routine");
    }
    served_by(config, registry)
}

/// Starts a server with these routines.
pub fn served_by(config: Config, registry: Registry) -> TestServer {
    served_on(config, registry, Listener::tcp(([127, 0, 0, 1], 0).into()).expect("a port"))
}

fn served_on(config: Config, registry: Registry, listener: Listener) -> TestServer {
    let address = listener.address().expect("its address");
    let address = address.unwrap_or_else(|| ([0, 0, 0, 0], 0).into());
    let (stop, stopped) = oneshot::channel::<()>();
    let thread = std::thread::spawn(move || {
        let stopped = async move {
            let _gone = stopped.await;
        };
        // Its routines are not `Send`, so they are made in its thread.
        serve(config, registry, listener, stopped).expect("it serves");
    });
    TestServer { address, stop: Some(stop), thread: Some(thread), kept: None }
}

/// Runs a server that its metaserver refuses, and that ends of it.
pub fn refused(config: Config) -> ServeError {
    let listener = Listener::tcp(([127, 0, 0, 1], 0).into()).expect("a port");
    let long_enough = async { tokio::time::sleep(Duration::from_secs(60)).await };
    serve(config, registry(), listener, long_enough).expect_err("it is refused")
}

impl TestServer {
    pub fn client(&self) -> Client {
        Client::connect(&self.address.to_string(), &Options::default()).expect("a connection")
    }

    /// Keeps a folder until the server has ended.
    pub fn keep(&mut self, folder: tempfile::TempDir) {
        self.kept = Some(folder);
    }

    /// Ends it.
    pub fn stop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the server ends well");
        }
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop();
        }
    }
}
