//! A service that keeps what comes, and memory for it.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::collections::VecDeque;
use std::ptr::NonNull;

use kumi_mem::{
    ArrivedMessage, Context, Error, Outbox, ReservedService, Service, ServiceHandle, SharedBytes,
    SharedBytesMut,
};

/// The number of services of tests.
pub const NUMBER: ReservedService = ReservedService::TEST;

/// Memory that ranks share, by its address.
pub struct Memory(Vec<u64>);

impl Memory {
    pub fn new(bytes: usize) -> Memory {
        Memory(vec![0; bytes.div_ceil(8)])
    }

    pub fn shared(&mut self) -> SharedBytesMut<'static> {
        let start = NonNull::from(&mut self.0[..]).cast();
        // SAFETY: the vector stays where it is as long as the test uses this, and is looked at through this only.
        unsafe { SharedBytesMut::new(start, 8 * self.0.len()) }
    }
}

/// Private bytes, which nobody writes.
pub fn private(bytes: &[u8]) -> SharedBytes<'_> {
    // SAFETY: borrowed for the result's life, by a shared reference.
    unsafe { SharedBytes::new(NonNull::from(bytes).cast(), bytes.len()) }
}

/// Keeps what comes. Of a message in one frame it takes 16 bytes into private memory and the rest to where it belongs.
#[derive(Default)]
pub struct Endpoint {
    pub heads: VecDeque<(u32, Vec<u8>)>,
    pub place: Option<SharedBytesMut<'static>>,
    /// Messages in one frame, and in several.
    pub counts: [u64; 2],
    pub ended: Vec<(u64, Result<(), Error>)>,
}

impl Service for Endpoint {
    fn message(&mut self, from: u32, message: &[u8], _: &mut Outbox<'_>) {
        self.counts[1] += 1;
        self.heads.push_back((from, message.to_vec()));
    }

    fn arrived(&mut self, from: u32, message: &ArrivedMessage<'_>, _: &mut Outbox<'_>) -> bool {
        let mut head = [0; 16];
        let length = message.copy_prefix(&mut head);
        if head[0] == b'!' {
            return false;
        }
        if let Some(place) = self.place.filter(|_| message.len() > 16) {
            message.copy_to(16, place.slice(0, message.len() - 16));
        }
        self.counts[0] += 1;
        self.heads.push_back((from, head[..length].to_vec()));
        true
    }

    fn transferred(&mut self, token: u64, result: Result<(), Error>, _: &mut Outbox<'_>) {
        self.ended.push((token, result));
    }
}

pub type Handle<'c> = ServiceHandle<'c, Endpoint>;

pub fn serve(context: &Context) -> Handle<'_> {
    context.serve_locally(NUMBER, Endpoint::default()).expect("service")
}

pub fn receive(service: &Handle<'_>) -> (u32, Vec<u8>) {
    service.wait(&[], |endpoint, _| endpoint.heads.pop_front()).expect("a message")
}

/// Polls until a message is there.
pub fn poll(service: &Handle<'_>) -> (u32, Vec<u8>) {
    loop {
        let taken = service.poll_then(|endpoint, _| endpoint.heads.pop_front());
        if let Some(message) = taken.expect("service") {
            return message;
        }
    }
}

pub fn send(service: &Handle<'_>, to: u32, header: &[u8], payload: &[u8]) {
    while !service.try_send(to, header, private(payload)).expect("a service") {
        service.poll().expect("service");
    }
}

pub fn ends(service: &Handle<'_>, count: usize) -> Vec<(u64, Result<(), Error>)> {
    let ready = |endpoint: &mut Endpoint, _: &mut Outbox<'_>| {
        (endpoint.ended.len() >= count).then(|| std::mem::take(&mut endpoint.ended))
    };
    service.wait(&[], ready).expect("ends")
}
