//! Connections of library calls with a hostile or broken peer: the input decides its frames, and the driver's actions
//! meanwhile. `core/rpc/tests/fuzzed.rs` runs the same with inputs from a seed, so it needs no fuzzer.

#![allow(dead_code)] // Each fuzz target uses one of them.

use std::collections::BTreeMap;

use kumi_rpc::{
    ArraySize, AttemptReport, AttemptState, CallHead, CallbackHead, CallbackReturn, Client,
    ClientEvent, ClientHello, Code, Failure, FetchRequest, FrameStep, GrantedArray, HEADER,
    HeldArrayName, HeldArrayPart, HeldArrays, LoadReport, MOST_ANSWER, MOST_REQUEST, MemoryGrant,
    Metaserver, MetaserverEvent, PlacementRequest, RegisteredServer, RegisteredServerEvent,
    ResultHead, Role, SendPiece, Server, ServerEvent, ServerHello, ServerRegistration,
    SharedDirections, Step, Value,
};

#[path = "input.rs"]
pub mod input;

use super::samples::{TICKET, context, over, placed, placing, register};
use input::Bytes;

const STREAMS: usize = 4;
/// The greatest length of a hello is far below this.
const MOST_WISH: usize = MOST_ANSWER + HEADER;
const NAME: HeldArrayName = HeldArrayName { secret: [1; 16], index: 2 };
/// Kinds of frames that a server of routines accepts, one that does not exist, and one that is an extension.
const TO_SERVER: &[u8] =
    &[1, 2, 3, 3, 3, 3, 3, 4, 4, 4, 5, 6, 7, 13, 14, 15, 16, 18, 18, 21, 23, 24, 46, 99, 200, 216];
/// The same for its clients, including answers of metaservers.
const TO_CLIENT: &[u8] =
    &[4, 4, 4, 6, 7, 8, 9, 10, 10, 11, 12, 12, 17, 20, 20, 25, 33, 35, 45, 99, 200];
/// The same for metaservers.
const TO_METASERVER: &[u8] =
    &[1, 2, 4, 5, 6, 7, 32, 32, 34, 36, 37, 38, 40, 41, 43, 44, 99, 200, 216];
/// The same for a server of routines, from its metaserver.
const TO_MEMBER: &[u8] = &[4, 6, 7, 11, 39, 42, 47, 99, 200];

impl Bytes<'_> {
    /// Arrays of the parameters from 1 on.
    fn sizes(&mut self) -> Vec<ArraySize> {
        let count = u16::from(self.next() % 3);
        (1..=count)
            .map(|argument| ArraySize { argument, bytes: (self.next() % 16).into() })
            .collect()
    }

    /// Appends a frame of one of these kinds, with any body or a nearly valid one.
    fn frame(&mut self, kinds: &[u8], out: &mut Vec<u8>) {
        let (kind, at) = (kinds[usize::from(self.next()) % kinds.len()], self.next());
        let length = self.next();
        let mut body = Vec::new();
        if length < 16 {
            body.extend((0..length).map(|_| self.next()));
        } else {
            good(kind, at, &mut body);
        }
        if (16..48).contains(&length) && !body.is_empty() {
            let at = usize::from(self.next()) % body.len();
            body[at] = self.next();
        }
        let of_connection = matches!(kind, 6 | 7 | 15 | 23 | 36..=43 | 47);
        let stream = match kind {
            _ if of_connection => 0,
            8 | 9 | 17 | 25 | 33 | 35 | 45 if at < 224 => asked(kind),
            _ => u32::from(at % 9),
        };
        let argument = if kind == 4 { at / 8 % 4 } else { 0 };
        out.extend_from_slice(&u32::try_from(body.len()).expect("short").to_le_bytes());
        out.extend_from_slice(&stream.to_le_bytes());
        out.extend_from_slice(&[kind, 0, argument, 0]);
        out.extend_from_slice(&body);
    }

    /// Mostly a valid hello.
    fn hello(&mut self, mut hello: Vec<u8>) -> Vec<u8> {
        if self.next() == 255 {
            let at = usize::from(self.next()) % hello.len();
            hello[at] ^= self.next();
        }
        hello
    }
}

fn values() -> Vec<(u16, Value)> {
    vec![(0, Value::I64(3)), (4, Value::Complex(1.0, 2.0)), (9, Value::Text("é".into()))]
}

/// A held array at another server, with its voucher.
fn held() -> HeldArrays {
    let (server, voucher) = ("h:1".into(), "voucher_0".into());
    let part = HeldArrayPart { offset: 1, length: 2, name: NAME, from: 3, server, voucher };
    HeldArrays { from: vec![(1, vec![part])], keep: Vec::new() }
}

const SHARE: SharedDirections = SharedDirections { sent: true, returned: true };

fn call(shared: bool) -> CallHead {
    CallHead {
        hash: 1,
        timeout_ms: 2,
        routine: "f".into(),
        values: values(),
        held: if shared { HeldArrays::default() } else { held() },
        shared: if shared { vec![(1, SHARE)] } else { Vec::new() },
        ..CallHead::default()
    }
}

fn grant(memory: u32) -> MemoryGrant {
    let part = GrantedArray { argument: 1, share: SHARE, offset: 8, length: 8 };
    MemoryGrant { memory, length: 64, fresh: true, parts: vec![part], gone: vec![7] }
}

/// Appends a valid body, if frames of this kind have one.
fn good(kind: u8, at: u8, out: &mut Vec<u8>) {
    let failed = at >= 128;
    match kind {
        1 | 2 | 16 | 25 => out.push(b'f'),
        18 => {
            out.extend_from_slice(&[at % 8, 0, 0, 0]);
            call(false).encode(out);
        }
        3 => call(failed).encode(out),
        4 => out.extend(std::iter::repeat_n(at, 1 + usize::from(at / 32))),
        6 | 7 => out.extend_from_slice(&[at; 8]),
        8 | 37 => out.extend_from_slice(b"\x01\0\0\0\0\0\0\0{}"),
        9 => out.extend_from_slice(b"\x01\0f"),
        10 => ResultHead { waited_ns: 1, ran_ns: 2, values: values() }.encode(out),
        11 => Failure::new(Code::Crashed, 1, "it ended").encode(out),
        12 => CallbackHead { parameter: at.into(), values: values() }.encode(out),
        13 if failed => CallbackReturn::Failed("no".into()).encode(out),
        13 => CallbackReturn::Done(values()).encode(out),
        20 => grant(1 + u32::from(at % 4)).encode(out),
        23 => out.extend_from_slice(&[at % 4, 0, 0, 0]),
        14 => FetchRequest { name: NAME, offset: 1, length: 2 }.encode(out),
        15 | 24 => {
            NAME.encode(out);
            out.extend((15..kind).take(4));
        }
        32 => placing().encode(out),
        33 => placed("").encode(out),
        34 => over().encode(out),
        36 => register().encode(out),
        39 => out.extend_from_slice(&[1, 2, 0, 0]),
        40 => LoadReport { load: 0.5, running: 1, waiting: 2, elsewhere: 3 }.encode(out),
        38 | 42 | 46 | 47 => TICKET.encode(out),
        41 => {
            let mut member = RegisteredServer::new();
            member.report_attempt(TICKET, AttemptState::Completed(5));
            out.extend_from_slice(&member.out()[HEADER..]);
        }
        45 => out.extend_from_slice(b"{}"),
        216 => out.extend_from_slice(&[&[2, at][..], &[0; 15]].concat()),
        _ => {}
    }
}

fn client_hello(maps: bool) -> ClientHello {
    ClientHello { versions: 1..=3, token: "t".into(), maps_memory: maps, ..ClientHello::default() }
}

fn server_hello(role: Role) -> ServerHello {
    ServerHello {
        version: Ok(1),
        highest: 1,
        name: "s".into(),
        streams: 9,
        bytes: 9,
        role,
        shares_memory: role == Role::Server,
        local: None,
        vouchers: kumi_rpc::VoucherSupport::Unknown,
        gives_resources: false,
        binds_calls: false,
        holds_arrays: false,
        shows_logs: false,
    }
}

/// How many bytes of an array may come, at most as many as its stream announced.
fn fits(told: &BTreeMap<u32, Vec<ArraySize>>, stream: u32, argument: u16, end: u64) -> bool {
    let sizes = told.get(&stream).into_iter().flatten();
    sizes.clone().any(|size| size.argument == argument && end <= size.bytes)
}

/// A server of routines that grants memory, and its driver's records.
struct Serving {
    server: Server,
    /// Arrays that are to come, and arrays that are sent.
    coming: BTreeMap<u32, Vec<ArraySize>>,
    going: BTreeMap<u32, Vec<ArraySize>>,
    running: Vec<u32>,
    granted: u32,
    taken: usize,
}

impl Serving {
    fn event(&mut self, event: ServerEvent, input: &mut Bytes<'_>) {
        let no = Failure::new(Code::Busy, 0, "no");
        match event {
            ServerEvent::Hello(hello) => {
                assert!(self.server.welcome(&hello, "s", 1) || hello.versions != (1..=3));
            }
            ServerEvent::Interface(stream, name) => {
                assert!(!name.is_empty());
                self.server.describe(stream, 1, "{}");
            }
            ServerEvent::List(stream, _) => self.server.names(stream, ["f", "g"]),
            ServerEvent::Fetch(stream, _) | ServerEvent::Hold(stream, _) => {
                self.server.fail(stream, &no);
            }
            ServerEvent::Vouch(stream, ..) => self.server.send_voucher(stream, "v"),
            ServerEvent::Logs(stream, _) => self.server.logs(stream, "{}"),
            ServerEvent::Call(stream, head) => self.begin(stream, &head, input),
            ServerEvent::Ready(stream) => {
                assert!(self.coming.contains_key(&stream), "{stream} was never taken");
                assert!(!self.running.contains(&stream), "{stream} is ready twice");
                self.running.push(stream);
            }
            ServerEvent::Cancel(stream) => self.fail(stream, &no),
            ServerEvent::Returned(stream, CallbackReturn::Done(_)) => {
                let sizes = input.sizes();
                self.server.accept_return(stream, &sizes);
                self.coming.insert(stream, sizes);
            }
            ServerEvent::Returned(stream, CallbackReturn::Failed(_)) => self.fail(stream, &no),
            ServerEvent::ReturnReady(stream) => {
                assert!(self.coming.contains_key(&stream) && !self.running.contains(&stream));
                self.running.push(stream);
            }
            ServerEvent::Create(stream, class) => {
                assert!(!class.is_empty());
                if input.next().is_multiple_of(4) {
                    self.server.fail(stream, &no);
                } else {
                    self.server.created(stream);
                }
            }
            ServerEvent::Release(memory) => assert!(memory > 0 && memory <= self.granted),
            ServerEvent::Ticket(..)
            | ServerEvent::Drop(_)
            | ServerEvent::Listen(_)
            | ServerEvent::Trace(..)
            | ServerEvent::Resources(..) => {}
        }
    }

    fn begin(&mut self, stream: u32, head: &CallHead, input: &mut Bytes<'_>) {
        self.taken += 1;
        let mut sizes = input.sizes();
        if sizes.len() == 2 && input.next() == 0 {
            return self.server.fail(stream, &Failure::new(Code::TooLarge, 0, "no"));
        }
        if head.shared.is_empty() {
            self.server.accept(stream, &sizes);
        } else {
            sizes.retain(|size| size.argument != 1);
            self.granted += 1;
            self.server.accept_with(stream, &sizes, &grant(self.granted));
        }
        self.coming.insert(stream, sizes);
    }

    fn fail(&mut self, stream: u32, failure: &Failure) {
        self.server.fail(stream, failure);
        self.running.retain(|other| *other != stream);
        self.coming.remove(&stream);
    }

    /// An action of the driver: a routine ends, or calls a callback.
    fn act(&mut self, input: &mut Bytes<'_>) {
        let Some(&stream) = self.running.get(usize::from(input.next() % 4)) else { return };
        let sizes = input.sizes();
        self.running.retain(|other| *other != stream);
        if input.next().is_multiple_of(2) {
            self.coming.remove(&stream);
            let head = ResultHead { waited_ns: 0, ran_ns: 0, values: values() };
            self.server.finish(stream, &head, &sizes);
        } else {
            let head = CallbackHead { parameter: 0, values: values() };
            assert!(self.server.callback(stream, &head, &sizes), "the routine runs");
        }
        self.going.insert(stream, sizes);
    }

    /// Writes up to this many bytes; arrays only while they are sent.
    fn write(&mut self, room: usize) {
        let (mut left, mut count) = (room, 0);
        for piece in self.server.send_queue().pieces() {
            let length = match piece {
                SendPiece::Bytes(bytes) => bytes.len(),
                SendPiece::Data(place, length) => {
                    let end = place.offset + length as u64;
                    assert!(fits(&self.going, place.stream, place.argument, end));
                    length
                }
            };
            let length = length.min(left);
            (left, count) = (left - length, count + length);
        }
        self.server.send_queue().wrote(count);
        while let Some(stream) = self.server.send_queue().written() {
            self.server.ended(stream);
        }
    }
}

/// A client's frames to a server of routines. Returns how many calls it accepted.
pub fn server(input: &[u8]) -> usize {
    let mut input = Bytes(input);
    let mut server = Server::new(STREAMS);
    server.offer(true, None);
    let (coming, going, running) = Default::default();
    let mut serving = Serving { server, coming, going, running, granted: 0, taken: 0 };
    let mut bytes = input.hello(client_hello(true).encode());
    loop {
        match serving.server.step(&bytes) {
            Err(_) => {
                assert!(!serving.server.send_queue().is_empty(), "the client is told why");
                serving.write(usize::MAX);
                return serving.taken;
            }
            Ok(Step::More(needed)) => {
                assert!(needed > bytes.len() && needed <= MOST_REQUEST + HEADER);
                if input.0.is_empty() {
                    return serving.taken;
                }
                match input.next() {
                    0..=31 => serving.act(&mut input),
                    32..=63 => serving.write(input.next().into()),
                    _ => input.frame(TO_SERVER, &mut bytes),
                }
            }
            Ok(Step::Event(count, event)) => {
                bytes.drain(..count);
                if let Some(event) = event {
                    serving.event(event, &mut input);
                }
            }
            Ok(Step::Data(place, length)) => {
                if let Some(place) = place {
                    let end = place.offset + length as u64;
                    assert!(fits(&serving.coming, place.stream, place.argument, end));
                }
                let Some(count) = here(&mut bytes, length, &mut input, TO_SERVER) else {
                    return serving.taken;
                };
                serving.server.placed(count);
            }
        }
    }
}

/// Receives the next part of a chunk; `None`: nothing more comes.
fn here(bytes: &mut Vec<u8>, length: usize, input: &mut Bytes<'_>, kinds: &[u8]) -> Option<usize> {
    if bytes.is_empty() {
        if input.0.is_empty() {
            return None;
        }
        input.frame(kinds, bytes);
    }
    let count = length.min(bytes.len());
    bytes.drain(..count);
    Some(count)
}

/// The stream of [`Asking`] that an answer of this kind ends, or the stream of the placement.
fn asked(kind: u8) -> u32 {
    match kind {
        8 => 1,
        9 => 2,
        45 => 7,
        17 => 8,
        25 => 9,
        _ => 6,
    }
}

/// A client with a request of every kind, and its driver's records.
struct Asking {
    client: Client,
    out: Vec<u8>,
    /// Arrays of results and of callbacks.
    results: BTreeMap<u32, Vec<ArraySize>>,
    called: BTreeMap<u32, Vec<ArraySize>>,
    over: Vec<u32>,
}

impl Asking {
    fn new() -> Asking {
        let (mut client, mut out) = (Client::new(), Vec::new());
        client.interface("f", &mut out).expect("a name");
        client.list("", &mut out).expect("short");
        let sizes = [9, 20].map(|bytes| ArraySize { argument: 1 + u16::from(bytes == 20), bytes });
        let mut results = BTreeMap::new();
        for shared in [false, true, false] {
            let before = out.len();
            let stream = client.call(&call(shared), &sizes, &mut out).expect("short");
            let mut this = out.split_off(before);
            client.listen(stream, &mut this);
            Client::trace(stream, &context(), 0, &mut this);
            out.extend_from_slice(&this);
            results.insert(stream, sizes.to_vec());
        }
        let before = out.len();
        let stream = client.request_placement(&placing(), &mut out).expect("a name");
        Client::trace(stream, &context(), before, &mut out);
        client.status(&mut out);
        client.create("c", &mut out).expect("a name");
        client.request_voucher(NAME, 1, &mut out);
        Asking { client, out, results, called: BTreeMap::new(), over: Vec::new() }
    }

    fn event(&mut self, event: ClientEvent, input: &mut Bytes<'_>) {
        match event {
            ClientEvent::Callback(stream, _) if input.next().is_multiple_of(4) => {
                self.client.refuse_callback(stream);
                let back = CallbackReturn::Failed("no".into());
                assert_eq!(self.client.callback_return(stream, &back, &mut self.out), Ok(true));
            }
            ClientEvent::Callback(stream, _) => {
                let sizes = input.sizes();
                self.client.accept_callback(stream, &sizes);
                self.called.insert(stream, sizes);
            }
            ClientEvent::CallbackReady(stream) => {
                assert!(self.called.remove(&stream).is_some(), "{stream} was never accepted");
                let back = CallbackReturn::Done(values());
                self.client.callback_return(stream, &back, &mut self.out).expect("short");
            }
            ClientEvent::Granted(stream, grant) => {
                let inside = |part: &GrantedArray| part.offset + part.length <= grant.length;
                assert!(stream > 0 && grant.parts.iter().all(inside));
            }
            ClientEvent::Description(stream, ..)
            | ClientEvent::Names(stream, _)
            | ClientEvent::Done(stream)
            | ClientEvent::Failed(stream, _)
            | ClientEvent::Closed(stream)
            | ClientEvent::Voucher(stream, _)
            | ClientEvent::State(stream, _) => {
                assert!(!self.over.contains(&stream), "{stream} ends twice");
                self.over.push(stream);
            }
            ClientEvent::Output(stream, bytes, _) => {
                assert!(!self.over.contains(&stream) && bytes.len() <= 64 << 10);
            }
            ClientEvent::Hello(_)
            | ClientEvent::Result(..)
            | ClientEvent::Placed(..)
            | ClientEvent::Created(_)
            | ClientEvent::Ended(_)
            | ClientEvent::Pong => {}
        }
    }
}

/// A server's or metaserver's frames to a client. Returns how many streams ended.
pub fn client(input: &[u8]) -> usize {
    let mut input = Bytes(input);
    let mut asking = Asking::new();
    let mut bytes = input.hello(server_hello(Role::Server).encode());
    loop {
        match asking.client.step(&bytes) {
            Err(_) => return asking.over.len(),
            Ok(Step::More(needed)) => {
                assert!(needed > bytes.len() && needed <= MOST_WISH);
                if input.0.is_empty() {
                    return asking.over.len();
                }
                match input.next() {
                    0..=7 => asking.client.abandon((input.next() % 9).into()),
                    8..=15 => asking.client.cancel((input.next() % 9).into(), &mut asking.out),
                    16..=23 => asking.client.answer_pings(&mut asking.out),
                    _ => input.frame(TO_CLIENT, &mut bytes),
                }
                asking.out.clear();
            }
            Ok(Step::Event(count, event)) => {
                bytes.drain(..count);
                if let Some(event) = event {
                    asking.event(event, &mut input);
                }
            }
            Ok(Step::Data(place, length)) => {
                if let Some(place) = place {
                    let end = place.offset + length as u64;
                    let fits = |told| fits(told, place.stream, place.argument, end);
                    assert!(fits(&asking.results) || fits(&asking.called), "{place:?} {length}");
                }
                let Some(count) = here(&mut bytes, length, &mut input, TO_CLIENT) else {
                    return asking.over.len();
                };
                asking.client.placed(count);
            }
        }
    }
}

/// More than the answers to all frames of an input, each of which takes at least three of its bytes. The answers are a pong
/// to each ping, a sentence to each excess stream, and an answer to an event.
fn most_answered(input: &[u8]) -> usize {
    (input.len() / 3 + 1) * (HEADER + 128) + 4096
}

/// Frames of clients and servers to a metaserver. Returns how many raised an event.
pub fn metaserver(input: &[u8]) -> usize {
    let most = most_answered(input);
    let mut input = Bytes(input);
    let mut desk = Metaserver::new(STREAMS);
    let mut bytes = input.hello(client_hello(false).encode());
    let mut events = 0;
    while let Some(event) = look(&mut input, &mut bytes, TO_METASERVER, |bytes| desk.step(bytes)) {
        assert!(desk.open() <= STREAMS);
        events += 1;
        let failure = Failure::new(Code::NoServer, 0, "no");
        match event {
            MetaserverEvent::Hello(hello) => drop(desk.welcome(&hello, "m")),
            MetaserverEvent::Interface(stream, _) => desk.describe(stream, 1, "{}"),
            MetaserverEvent::List(stream, _) => desk.names(stream, ["f"]),
            MetaserverEvent::Status(stream) | MetaserverEvent::Logs(stream, _) => {
                desk.state(stream, "{}");
            }
            MetaserverEvent::Place(stream, placing) => {
                same(&placing, PlacementRequest::encode, PlacementRequest::decode);
                desk.placed(stream, &placed(""));
            }
            MetaserverEvent::Cancel(stream) => desk.fail(stream, &failure),
            MetaserverEvent::AttemptReport(stream, over) => {
                same(&over, AttemptReport::encode, AttemptReport::decode);
                desk.close(stream);
            }
            MetaserverEvent::Register(register) => {
                same(&register, ServerRegistration::encode, ServerRegistration::decode);
            }
            MetaserverEvent::Report(report) => {
                same(&report, LoadReport::encode, LoadReport::decode);
            }
            _ => {}
        }
        assert!(desk.out().len() <= most, "{} bytes", desk.out().len());
        desk.out().clear();
    }
    events
}

/// Frames of a metaserver to a server of routines. Returns how many raised an event.
pub fn member(input: &[u8]) -> usize {
    let most = most_answered(input);
    let mut input = Bytes(input);
    let mut member = RegisteredServer::new();
    let mut bytes = input.hello(server_hello(Role::Metaserver).encode());
    let mut events = 0;
    while let Some(event) = look(&mut input, &mut bytes, TO_MEMBER, |bytes| member.step(bytes)) {
        events += usize::from(!matches!(event, RegisteredServerEvent::Hello(_)));
        assert!(member.out().len() <= most, "{} bytes", member.out().len());
        member.out().clear();
    }
    events
}

/// Encodes a decoded value and decodes it again. NaN values do not compare equal, so the bytes are compared.
fn same<T, E: std::fmt::Debug>(
    value: &T,
    encode: impl Fn(&T, &mut Vec<u8>),
    decode: impl Fn(&[u8]) -> Result<T, E>,
) {
    let (mut once, mut twice) = (Vec::new(), Vec::new());
    encode(value, &mut once);
    encode(&decode(&once).expect("what was encoded decodes"), &mut twice);
    assert_eq!(once, twice);
}

/// The next event of a connection whose peer sends frames of these kinds; `None`: it has ended.
fn look<E, P>(
    input: &mut Bytes<'_>,
    bytes: &mut Vec<u8>,
    kinds: &[u8],
    mut step: impl FnMut(&[u8]) -> Result<FrameStep<E>, P>,
) -> Option<E> {
    loop {
        match step(bytes).ok()? {
            FrameStep::More(needed) => {
                assert!(needed > bytes.len() && needed <= MOST_WISH);
                if input.0.is_empty() {
                    return None;
                }
                input.frame(kinds, bytes);
            }
            FrameStep::Event(count, event) => {
                assert!(count > 0, "it goes on");
                bytes.drain(..count);
                if event.is_some() {
                    return event;
                }
            }
        }
    }
}
