//! A scripted server: it greets, describes one routine, and answers calls as a test wants.
#![allow(dead_code)] // Each test uses a part of it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread::JoinHandle;
use std::time::Duration;

use kumi_idl::Interface;
use kumi_rpc::{HEADER, Role, ServerHello};

/// Kinds of frames.
pub const INTERFACE: u8 = 1;
pub const CALL: u8 = 3;
pub const CANCEL: u8 = 5;
const DESCRIPTION: u8 = 8;
pub const RESULT: u8 = 10;

/// Its connection to one client.
pub struct ScriptedServer {
    socket: TcpStream,
    /// The limit of a call's bytes in its hello.
    bytes: u64,
    role: Role,
    /// What it says of sending calls to the server of their arrays.
    binds_calls: bool,
    json: String,
}

/// A received frame: stream, kind, body.
pub type Frame = (u32, u8, Vec<u8>);

impl ScriptedServer {
    /// Accepts one client and serves it in a thread. Returns the address.
    pub fn attends<T: Send + 'static>(
        interface: &Interface,
        bytes: u64,
        attend: impl FnOnce(&mut ScriptedServer) -> T + Send + 'static,
    ) -> (String, JoinHandle<T>) {
        ScriptedServer::attends_as(Role::Server, interface, bytes, attend)
    }

    /// [`ScriptedServer::attends`], with what it says that it is.
    pub fn attends_as<T: Send + 'static>(
        role: Role,
        interface: &Interface,
        bytes: u64,
        attend: impl FnOnce(&mut ScriptedServer) -> T + Send + 'static,
    ) -> (String, JoinHandle<T>) {
        ScriptedServer::attends_saying((role, false), interface, bytes, attend)
    }

    /// A metaserver that sends calls to the server of their arrays.
    pub fn binds<T: Send + 'static>(
        interface: &Interface,
        attend: impl FnOnce(&mut ScriptedServer) -> T + Send + 'static,
    ) -> (String, JoinHandle<T>) {
        ScriptedServer::attends_saying((Role::Metaserver, true), interface, 1 << 20, attend)
    }

    fn attends_saying<T: Send + 'static>(
        (role, binds_calls): (Role, bool),
        interface: &Interface,
        bytes: u64,
        attend: impl FnOnce(&mut ScriptedServer) -> T + Send + 'static,
    ) -> (String, JoinHandle<T>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("its address").to_string();
        let json = interface.to_json().expect("its text");
        let thread = std::thread::spawn(move || {
            let (socket, _) = listener.accept().expect("a client");
            socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a limit");
            let mut scripted_server = ScriptedServer { socket, bytes, role, binds_calls, json };
            scripted_server.greet();
            attend(&mut scripted_server)
        });
        (address, thread)
    }

    fn greet(&mut self) {
        let mut head = [0; 16];
        self.socket.read_exact(&mut head).expect("a hello");
        let fields = u32::from_le_bytes([head[12], head[13], head[14], head[15]]);
        self.socket.read_exact(&mut vec![0; fields as usize]).expect("its fields");
        let hello = ServerHello {
            name: "by hand".into(),
            streams: 16,
            bytes: self.bytes,
            role: self.role,
            binds_calls: self.binds_calls,
            ..ServerHello::new(Ok(1), 1)
        };
        self.socket.write_all(&hello.encode()).expect("it is sent");
    }

    /// The next frame; requests for the description are answered on the way. `None`: the client has left.
    pub fn next(&mut self) -> Option<Frame> {
        loop {
            let mut header = [0; HEADER];
            match self.socket.read(&mut header[..1]) {
                Ok(0) => return None,
                // A signal for this process interrupts a read with a time limit.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Ok(_) => self.socket.read_exact(&mut header[1..]).expect("a header"),
                Err(error) => panic!("no client that says something: {error}"),
            }
            let number = |at: usize| {
                u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
            };
            let (length, stream, kind) = (number(0), number(4), header[8]);
            let mut body = vec![0; length as usize];
            self.socket.read_exact(&mut body).expect("a body");
            if kind != INTERFACE {
                return Some((stream, kind, body));
            }
            let hash = twox_hash::XxHash3_64::oneshot(self.json.as_bytes());
            let answer = [&hash.to_le_bytes()[..], self.json.as_bytes()].concat();
            self.say(stream, DESCRIPTION, 0, &answer);
        }
    }

    /// Sends a frame, if the client still reads.
    pub fn say(&mut self, stream: u32, kind: u8, argument: u16, body: &[u8]) {
        let length = u32::try_from(body.len()).expect("short");
        let mut frame = Vec::new();
        frame.extend(length.to_le_bytes());
        frame.extend(stream.to_le_bytes());
        frame.extend([kind, 0]);
        frame.extend(argument.to_le_bytes());
        frame.extend(body);
        self.socket.write_all(&frame).expect("it is sent");
    }

    /// Sends the head of a result with files of these lengths, by parameter.
    pub fn announce_files(&mut self, stream: u32, files: &[(u16, u64)]) {
        let mut body = vec![0; 16];
        body.extend(u16::try_from(files.len()).expect("few").to_le_bytes());
        for (parameter, bytes) in files {
            body.extend(parameter.to_le_bytes());
            body.push(6);
            body.extend(bytes.to_le_bytes());
        }
        self.say(stream, RESULT, 0, &body);
    }
}
