//! Clients and servers that share memory, and vanish or break the rules.
#![forbid(unsafe_code)]

mod common;

use std::io::{IoSlice, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::{TestServer, config, eventually, interfaces, read_some, served_at};
use kumi_call::server::{Config, Listener};
use kumi_call::{CallError, Client, Options};
use kumi_rpc::{
    ArraySize, CallHead, ClientEvent, ClientHello, Code, GrantedArray, HEADER, HeldArrayName,
    HeldArrays, HeldResult, MemoryGrant, ServerHello, SharedDirections, Step, Value,
};
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{ControlMessage, MsgFlags, UnixAddr, sendmsg};
use nix::unistd::ftruncate;

const MANY: i32 = 50_000;
const BYTES: u64 = 8 * MANY as u64;
const SENT: SharedDirections = SharedDirections { sent: true, returned: false };
const BOTH: SharedDirections = SharedDirections { sent: true, returned: true };

fn hash() -> (u64, String) {
    let add = interfaces().into_iter().find(|routine| routine.name == "add").expect("it is there");
    let json = add.to_json().expect("its text");
    (twox_hash::XxHash3_64::oneshot(json.as_bytes()), json)
}

fn head(shared: Vec<(u16, SharedDirections)>, timeout_ms: u32) -> CallHead {
    let values = vec![(0, Value::I64(MANY.into()))];
    let routine = "add".to_owned();
    CallHead { hash: hash().0, timeout_ms, routine, values, shared, ..CallHead::default() }
}

/// A server on a Unix socket in a folder.
fn server(change: impl FnOnce(&mut Config)) -> (TestServer, PathBuf) {
    let mut config = config();
    change(&mut config);
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let mut served = served_at(config, Listener::unix(&path).expect("a socket"));
    served.keep(folder);
    (served, path)
}

fn client(path: &Path) -> Client {
    let address = format!("unix:{}", path.display());
    Client::connect(&address, &Options::default()).expect("a connection")
}

fn add(client: &Client) -> Result<f64, CallError> {
    let (x, mut y) = (vec![1.0; MANY as usize], vec![2.0; MANY as usize]);
    let called = client.call("add", vec![MANY.into(), (&x).into(), (&mut y).into()]);
    called.map(|_| y.iter().sum())
}

/// The correct content.
const SUM: f64 = 3.0 * MANY as f64;

/// A raw client that maps nothing.
struct Raw {
    socket: UnixStream,
    rpc: kumi_rpc::Client,
    input: Vec<u8>,
}

impl Raw {
    fn new(path: &Path) -> Raw {
        let socket = UnixStream::connect(path).expect("a connection");
        socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
        let mut raw = Raw { socket, rpc: kumi_rpc::Client::new(), input: Vec::new() };
        raw.say(&ClientHello { maps_memory: true, ..ClientHello::default() }.encode());
        let hello = raw.next();
        assert!(matches!(hello, Some(ClientEvent::Hello(hello)) if hello.shares_memory));
        raw
    }

    fn say(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).expect("it is sent");
    }

    fn call(&mut self, head: &CallHead, results: &[ArraySize]) -> u32 {
        let mut out = Vec::new();
        let stream = self.rpc.call(head, results, &mut out).expect("short");
        self.say(&out);
        stream
    }

    /// The next event from the server. `None`: the connection is closed.
    fn next(&mut self) -> Option<ClientEvent> {
        loop {
            match self.rpc.step(&self.input).expect("the server keeps to the protocol") {
                Step::Event(count, event) => {
                    self.input.drain(..count);
                    if event.is_some() {
                        return event;
                    }
                }
                Step::Data(_, length) if !self.input.is_empty() => {
                    let here = length.min(self.input.len());
                    self.input.drain(..here);
                    self.rpc.placed(here);
                }
                Step::More(_) | Step::Data(..) => {
                    let mut buffer = [0; 4096];
                    match read_some(&mut self.socket, &mut buffer) {
                        Ok(0) => return None,
                        Ok(count) => self.input.extend_from_slice(&buffer[..count]),
                        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                            return None;
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        }
    }

    /// The memory granted to a call.
    fn granted(&mut self) -> MemoryGrant {
        match self.next() {
            Some(ClientEvent::Granted(_, grant)) => grant,
            other => panic!("{other:?}"),
        }
    }

    fn fill(&mut self, stream: u32) {
        let mut out = Vec::new();
        self.rpc.filled(stream, &mut out);
        self.say(&out);
    }

    fn release(&mut self, memory: u32) {
        let mut out = Vec::new();
        self.rpc.release(memory, &mut out);
        self.say(&out);
    }

    /// Whether the connection still works.
    fn answers(&mut self) -> bool {
        let mut out = Vec::new();
        self.rpc.ping(&mut out);
        self.say(&out);
        matches!(self.next(), Some(ClientEvent::Pong))
    }
}

fn results() -> [ArraySize; 1] {
    [ArraySize { argument: 2, bytes: BYTES }]
}

#[test]
fn a_client_that_does_not_fill_is_ended_by_the_time_of_its_call() {
    // Room for one call.
    let (_server, path) = server(|config| config.bytes = 1 << 20);
    let mut raw = Raw::new(&path);
    let stream = raw.call(&head(vec![(1, SENT), (2, BOTH)], 100), &results());
    let grant = raw.granted();
    assert!(grant.fresh && grant.length == 1 << 20);
    let lengths: Vec<(u16, u64)> = grant.parts.iter().map(|it| (it.argument, it.length)).collect();
    assert_eq!(lengths, [(1, BYTES), (2, BYTES)]);
    let ended = raw.next();
    assert!(matches!(ended, Some(ClientEvent::Failed(_, it)) if it.code == Code::TimedOut));
    // A late frame does no harm.
    raw.fill(stream);
    assert!(raw.answers());
    // It may still touch the memory: no other client and no other call gets it.
    let busy = add(&client(&path));
    assert!(matches!(busy, Err(CallError::Busy(_))), "{busy:?}");
    raw.release(grant.memory);
    let stream = raw.call(&head(vec![(1, SENT), (2, BOTH)], 0), &results());
    let again = raw.granted();
    assert!(again.memory == grant.memory && !again.fresh && again.gone.is_empty());
    raw.fill(stream);
    assert!(matches!(raw.next(), Some(ClientEvent::Result(..))));
    assert!(matches!(raw.next(), Some(ClientEvent::Done(_))));
    // Unused memory makes room for others, and its client is told.
    raw.release(grant.memory);
    assert!(raw.answers());
    assert_eq!(add(&client(&path)).expect("there is room"), SUM);
    eventually("room", || {
        raw.call(&head(vec![(1, SENT)], 0), &results());
        match raw.next() {
            Some(ClientEvent::Granted(_, grant)) => grant.gone == [again.memory] && grant.fresh,
            Some(ClientEvent::Failed(..)) => false,
            other => panic!("{other:?}"),
        }
    });
}

#[test]
fn a_client_that_vanishes_leaves_its_memory() {
    let (_server, path) = server(|config| config.bytes = 1 << 20);
    let other = client(&path);
    for filled in [false, true] {
        let mut raw = Raw::new(&path);
        let stream = eventually_granted(&mut raw);
        if filled {
            raw.fill(stream);
            assert!(matches!(raw.next(), Some(ClientEvent::Result(..))));
        }
        let busy = add(&other);
        assert!(matches!(busy, Err(CallError::Busy(_))), "{busy:?}");
        drop(raw);
        eventually("room", || add(&other).is_ok_and(|sum| sum == SUM));
    }
}

/// The stream of a call that gets memory, as soon as some is free.
fn eventually_granted(raw: &mut Raw) -> u32 {
    let mut stream = 0;
    eventually("a memory", || {
        stream = raw.call(&head(vec![(1, SENT), (2, BOTH)], 0), &results());
        match raw.next() {
            Some(ClientEvent::Granted(..)) => true,
            Some(ClientEvent::Failed(..)) => false,
            other => panic!("{other:?}"),
        }
    });
    stream
}

#[test]
fn who_says_what_cannot_be_is_disconnected() {
    let (_server, path) = server(|_| {});
    let wrongs: [fn(&mut Raw); 3] = [
        |raw| raw.release(7),
        |raw| {
            let stream = raw.call(&head(vec![(1, SENT)], 0), &results());
            let memory = raw.granted().memory;
            raw.release(memory);
            let _ = stream;
            raw.release(memory);
        },
        |raw| {
            let stream = raw.call(&head(vec![(1, SENT), (2, SENT)], 0), &results());
            raw.granted();
            let chunk = kumi_rpc::chunk_header(stream, 2, 8);
            raw.say(&[&chunk[..], &[0; 8]].concat());
        },
    ];
    for wrong in wrongs {
        let mut raw = Raw::new(&path);
        wrong(&mut raw);
        let said = raw.next();
        assert!(matches!(said, Some(ClientEvent::Ended(it)) if it.code == Code::Protocol));
        assert!(raw.next().is_none(), "it is closed");
    }
    assert_eq!(add(&client(&path)).expect("others go on"), SUM);
}

#[test]
fn who_was_not_offered_memory_does_not_get_it() {
    let (_server, path) = server(|config| config.share_memory = false);
    let socket = UnixStream::connect(&path).expect("a connection");
    let mut raw = Raw { socket, rpc: kumi_rpc::Client::new(), input: Vec::new() };
    raw.say(&ClientHello { maps_memory: true, ..ClientHello::default() }.encode());
    assert!(matches!(raw.next(), Some(ClientEvent::Hello(hello)) if !hello.shares_memory));
    raw.call(&head(vec![(1, SENT)], 0), &results());
    assert!(matches!(raw.next(), Some(ClientEvent::Ended(it)) if it.code == Code::Protocol));
    assert!(raw.next().is_none());
}

#[test]
fn wishes_that_do_not_fit_are_refused_and_others_not_granted() {
    let (_server, path) = server(|_| {});
    let mut raw = Raw::new(&path);
    // A scalar result, an argument that does not come back, an unknown parameter.
    for shared in [vec![(3, SENT)], vec![(1, BOTH)], vec![(99, SENT)]] {
        raw.call(&head(shared, 0), &results());
        let said = raw.next();
        assert!(matches!(said, Some(ClientEvent::Failed(_, it)) if it.code == Code::BadArguments));
    }
    // A held array is for others to read, so its client may not write to it.
    let name = HeldArrayName { secret: [3; 16], index: 1 };
    let keep = HeldResult { name, lifetime_ms: 60_000, sent: true, survives: false };
    let held = HeldArrays { from: vec![], keep: vec![(2, keep)] };
    raw.call(&CallHead { held, ..head(vec![(1, SENT)], 0) }, &results());
    assert_eq!(raw.granted(), MemoryGrant::default());
    assert!(raw.answers());
}

/// Result of a call to a scripted server that answers with these bytes and descriptors.
fn told(hello_with: &[RawFd], grant: &MemoryGrant, descriptors: &[OwnedFd]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("socket");
    let listener = UnixListener::bind(&path).expect("a socket");
    let called = std::thread::spawn(move || {
        let address = format!("unix:{}", path.display());
        let client = match Client::connect(&address, &Options::default()) {
            Ok(client) => client,
            Err(error) => return error,
        };
        add(&client).expect_err("it does not go well")
    });
    let (mut socket, _) = listener.accept().expect("a client");
    let mut read = |length: usize| {
        let mut bytes = vec![0; length];
        // A client that has closed the connection is gone.
        socket.read_exact(&mut bytes).map(|()| bytes)
    };
    let hello = read(16).expect("a hello");
    read(usize::from(hello[12]) + 256 * usize::from(hello[13])).expect("its fields");
    let socket = socket.try_clone().expect("the socket");
    say(&socket, &greeting().encode(), hello_with);
    let raw: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
    let mut reads = socket.try_clone().expect("the socket");
    loop {
        let mut header = [0; HEADER];
        if reads.read_exact(&mut header).is_err() {
            break;
        }
        let mut body =
            vec![0; u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize];
        if reads.read_exact(&mut body).is_err() {
            break;
        }
        let mut answer = Vec::new();
        match header[8] {
            1 => {
                let (hash, json) = hash();
                answer.extend_from_slice(&hash.to_le_bytes());
                answer.extend_from_slice(json.as_bytes());
                say(&socket, &frame(&header, 8, &answer), &[]);
            }
            3 => {
                grant.encode(&mut answer);
                say(&socket, &frame(&header, 20, &answer), &raw);
            }
            _ => {}
        }
    }
    called.join().expect("it ends").to_string()
}

fn greeting() -> ServerHello {
    ServerHello {
        version: Ok(1),
        highest: 1,
        name: "s".into(),
        streams: 9,
        bytes: 1 << 30,
        role: kumi_rpc::Role::Server,
        shares_memory: true,
        local: None,
        vouchers: kumi_rpc::VoucherSupport::Unknown,
        gives_resources: false,
        binds_calls: false,
        holds_arrays: false,
        shows_logs: false,
    }
}

fn frame(asked: &[u8; HEADER], kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("short").to_le_bytes();
    [&length[..], &asked[4..8], &[kind, 0, 0, 0], body].concat()
}

fn say(socket: &UnixStream, bytes: &[u8], descriptors: &[RawFd]) {
    let with = [ControlMessage::ScmRights(descriptors)];
    let with = if descriptors.is_empty() { &[][..] } else { &with };
    // A client that has closed the connection is gone.
    let _gone = sendmsg::<UnixAddr>(
        socket.as_raw_fd(),
        &[IoSlice::new(bytes)],
        with,
        MsgFlags::MSG_NOSIGNAL,
        None,
    );
}

/// Memory of this length, with or without seals.
fn memory(length: u64, sealed: bool) -> OwnedFd {
    let file =
        memfd_create("test", MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING).expect("memory");
    ftruncate(&file, i64::try_from(length).expect("short")).expect("its length");
    if sealed {
        let seals = SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals)).expect("seals");
    }
    file
}

#[test]
fn a_server_that_gives_what_it_may_not_is_left() {
    let length = 1 << 20;
    let part = |argument, length| GrantedArray { argument, share: SENT, offset: 0, length };
    let grant = |parts| MemoryGrant { memory: 1, length, fresh: true, parts, gone: vec![] };
    let good = grant(vec![part(1, BYTES)]);
    let says = |grant: &MemoryGrant, descriptors: &[OwnedFd], what: &str| {
        let why = told(&[], grant, descriptors);
        assert!(why.contains(what), "{why} is not about {what}");
    };
    says(&good, &[memory(length, false)], "cannot be mapped");
    says(&good, &[memory(length / 2, true)], "cannot be mapped");
    says(&good, &[], "no descriptor");
    says(&good, &[memory(length, true), memory(length, true)], "unexpected file descriptors");
    says(&MemoryGrant::default(), &[memory(length, true)], "unexpected file descriptors");
    says(&MemoryGrant { fresh: false, ..good.clone() }, &[], "it has not given");
    says(&grant(vec![part(1, BYTES - 8)]), &[memory(length, true)], "other lengths");
    says(&grant(vec![part(0, 8)]), &[memory(length, true)], "answers nothing");
    let many: Vec<OwnedFd> = (0..17).map(|_| memory(length, true)).collect();
    says(&good, &many, "too many");
    let early = memory(length, true);
    let why = told(&[early.as_raw_fd()], &good, &[]);
    assert!(why.contains("unexpected file descriptors"), "{why}");
}
