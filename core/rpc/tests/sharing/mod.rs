//! Both ends of a connection on which memory may be granted.
#![allow(dead_code)] // Each test uses a part of it.

use kumi_rpc::{
    ArraySize, CallHead, Client, ClientEvent, ClientHello, GrantedArray, ProtocolError, SendPiece,
    Server, ServerEvent, SharedDirections, Step,
};

pub const BOTH: SharedDirections = SharedDirections { sent: true, returned: true };

pub fn head(shared: Vec<(u16, SharedDirections)>) -> CallHead {
    CallHead { routine: "f".into(), shared, ..CallHead::default() }
}

pub fn size(argument: u16, bytes: u64) -> ArraySize {
    ArraySize { argument, bytes }
}

pub fn part(argument: u16, share: SharedDirections, offset: u64, length: u64) -> GrantedArray {
    GrantedArray { argument, share, offset, length }
}

/// What is to be written, and the memories whose descriptors go with it, each with the place of its byte.
pub fn written(server: &mut Server) -> (Vec<u8>, Vec<(usize, u32)>) {
    let (mut bytes, mut with) = (Vec::new(), Vec::new());
    while !server.send_queue().is_empty() {
        with.extend(server.send_queue().descriptor().map(|memory| (bytes.len(), memory)));
        let mut some: Vec<u8> = Vec::new();
        for piece in server.send_queue().pieces() {
            match piece {
                SendPiece::Bytes(piece) => some.extend_from_slice(piece),
                SendPiece::Data(_, length) => some.extend(std::iter::repeat_n(7, length)),
            }
        }
        server.send_queue().wrote(some.len());
        bytes.extend_from_slice(&some);
    }
    (bytes, with)
}

/// Both ends of a connection behind their hellos.
pub fn ends(gives: bool) -> (Client, Server) {
    let (mut client, mut server) = (Client::new(), Server::new(8));
    let hello = ClientHello { maps_memory: true, ..ClientHello::default() };
    assert!(events(&mut server, &hello.encode()).is_ok());
    server.offer(gives, None);
    assert!(server.welcome(&hello, "s", 1));
    let (bytes, _) = written(&mut server);
    let step = client.step(&bytes).expect("well-formed");
    assert!(
        matches!(step, Step::Event(_, Some(ClientEvent::Hello(hello))) if hello.shares_memory == gives)
    );
    (client, server)
}

pub fn events(server: &mut Server, bytes: &[u8]) -> Result<Vec<ServerEvent>, ProtocolError> {
    let (mut at, mut events) = (0, Vec::new());
    loop {
        match server.step(&bytes[at..])? {
            Step::More(_) => return Ok(events),
            Step::Event(count, event) => {
                at += count;
                events.extend(event);
            }
            Step::Data(_, length) => {
                let here = length.min(bytes.len() - at);
                if here == 0 {
                    return Ok(events);
                }
                server.placed(here);
                at += here;
            }
        }
    }
}

pub fn heard(client: &mut Client, bytes: &[u8]) -> Result<Vec<ClientEvent>, ProtocolError> {
    let (mut at, mut events) = (0, Vec::new());
    loop {
        match client.step(&bytes[at..])? {
            Step::More(_) => return Ok(events),
            Step::Event(count, event) => {
                at += count;
                events.extend(event);
            }
            Step::Data(_, length) => {
                let here = length.min(bytes.len() - at);
                if here == 0 {
                    return Ok(events);
                }
                client.placed(here);
                at += here;
            }
        }
    }
}
