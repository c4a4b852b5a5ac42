//! Memory that a server shares with a client on its machine: both ends in any order of events.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::sharing::{BOTH, ends, head, part, size, written};
use kumi_rpc::{
    Client, ClientEvent, Code, Failure, MemoryGrant, ResultHead, Server, ServerEvent, Step,
    chunk_header,
};
use proptest::prelude::*;

/// A connection whose ends do as they may, in any order: what has been sent and not come, and what each driver knows.
struct World {
    client: Client,
    server: Server,
    up: VecDeque<u8>,
    down: VecDeque<u8>,
    /// Descriptors that are on their way, by how many bytes of `down` come before them; and that have come.
    passing: VecDeque<(usize, u32)>,
    passed: VecDeque<u32>,
    inputs: (Vec<u8>, Vec<u8>),
    /// Memories: free ones, those that calls have, those that the client may touch.
    free: Vec<u32>,
    runs: BTreeMap<u32, Option<u32>>,
    ready: BTreeSet<u32>,
    lent: BTreeSet<u32>,
    mapped: BTreeSet<u32>,
    /// What the client has: by stream the memory; those that are filled.
    has: BTreeMap<u32, u32>,
    open: BTreeSet<u32>,
    over: usize,
    begun: usize,
    next: u32,
}

impl World {
    fn new() -> World {
        let (client, server) = ends(true);
        World {
            client,
            server,
            up: VecDeque::new(),
            down: VecDeque::new(),
            passing: VecDeque::new(),
            passed: VecDeque::new(),
            inputs: Default::default(),
            free: Vec::new(),
            runs: BTreeMap::new(),
            ready: BTreeSet::new(),
            lent: BTreeSet::new(),
            mapped: BTreeSet::new(),
            has: BTreeMap::new(),
            open: BTreeSet::new(),
            over: 0,
            begun: 0,
            next: 0,
        }
    }

    /// The client begins a call of one array in both directions.
    fn begin(&mut self) {
        let mut out = Vec::new();
        let stream = self.client.call(&head(vec![(1, BOTH)]), &[size(1, 8)], &mut out);
        self.open.insert(stream.expect("short"));
        self.begun += 1;
        self.up.extend(out);
    }

    /// The client gives a call up.
    fn leave(&mut self, which: usize) {
        let Some(stream) = self.open.iter().nth(which % self.open.len().max(1)).copied() else {
            return;
        };
        let mut out = Vec::new();
        self.client.abandon(stream);
        self.client.cancel(stream, &mut out);
        self.release(stream, &mut out);
        self.open.remove(&stream);
        self.over += 1;
        self.up.extend(out);
    }

    fn release(&mut self, stream: u32, out: &mut Vec<u8>) {
        if let Some(memory) = self.has.remove(&stream) {
            self.client.release(memory, out);
        }
    }

    /// Bytes arrive at the server.
    fn arrive_up(&mut self, count: usize) {
        let count = count.min(self.up.len());
        self.inputs.1.extend(self.up.drain(..count));
        loop {
            match self.server.step(&self.inputs.1).expect("the client keeps to the protocol") {
                Step::More(_) => break,
                Step::Event(count, event) => {
                    self.inputs.1.drain(..count);
                    if let Some(event) = event {
                        self.served(event);
                    }
                }
                Step::Data(_, length) => {
                    let here = length.min(self.inputs.1.len());
                    if here == 0 {
                        break;
                    }
                    self.inputs.1.drain(..here);
                    self.server.placed(here);
                }
            }
        }
    }

    fn served(&mut self, event: ServerEvent) {
        match event {
            ServerEvent::Call(stream, head) => {
                assert_eq!(head.shared, [(1, BOTH)]);
                // Now and then there is none.
                let none = stream % 5 == 0;
                let memory = (!none).then(|| {
                    self.free.pop().unwrap_or_else(|| {
                        self.next += 1;
                        self.next
                    })
                });
                let grant = memory.map_or_else(MemoryGrant::default, |memory| {
                    assert!(self.lent.insert(memory), "nobody else touches it");
                    let fresh = self.mapped.insert(memory);
                    MemoryGrant {
                        memory,
                        length: 64,
                        fresh,
                        parts: vec![part(1, BOTH, 8, 8)],
                        gone: vec![],
                    }
                });
                let sizes = if memory.is_some() { vec![] } else { vec![size(1, 8)] };
                self.runs.insert(stream, memory);
                self.server.accept_with(stream, &sizes, &grant);
            }
            ServerEvent::Ready(stream) => assert!(self.ready.insert(stream), "once"),
            ServerEvent::Cancel(stream) => self.end(stream, false),
            ServerEvent::Release(memory) => {
                assert!(self.lent.remove(&memory));
                if !self.runs.values().any(|used| *used == Some(memory)) {
                    self.free.push(memory);
                }
            }
            other => panic!("{other:?}"),
        }
    }

    /// A call of the server ends, or crashes.
    fn end(&mut self, stream: u32, well: bool) {
        let Some(memory) = self.runs.remove(&stream) else { return };
        if self.ready.remove(&stream) && well {
            let sizes = if memory.is_some() { vec![] } else { vec![size(1, 8)] };
            let head = ResultHead { waited_ns: 0, ran_ns: 0, values: vec![] };
            self.server.finish(stream, &head, &sizes);
        } else {
            self.server.fail(stream, &Failure::new(Code::Crashed, 0, "no"));
        }
        if let Some(memory) = memory.filter(|memory| !self.lent.contains(memory)) {
            self.free.push(memory);
        }
    }

    fn end_some(&mut self, which: usize, well: bool) {
        let calls = if well { self.ready.clone() } else { self.runs.keys().copied().collect() };
        if let Some(stream) = calls.iter().nth(which % calls.len().max(1)) {
            self.end(*stream, well);
        }
    }

    /// The server writes.
    fn write(&mut self) {
        let before = self.down.len();
        let (bytes, with) = written(&mut self.server);
        self.passing.extend(with.into_iter().map(|(at, memory)| (before + at, memory)));
        self.down.extend(bytes);
        while let Some(stream) = self.server.send_queue().written() {
            self.server.ended(stream);
        }
    }

    /// Bytes arrive at the client, and with them descriptors.
    fn arrive_down(&mut self, count: usize) {
        let count = count.min(self.down.len());
        self.inputs.0.extend(self.down.drain(..count));
        while self.passing.front().is_some_and(|(at, _)| *at < count) {
            self.passed.extend(self.passing.pop_front().map(|(_, memory)| memory));
        }
        self.passing.iter_mut().for_each(|(at, _)| *at -= count);
        assert!(self.passed.len() <= self.client.pending_grants(), "none that was not asked for");
        loop {
            match self.client.step(&self.inputs.0).expect("the server keeps to the protocol") {
                Step::More(_) => break,
                Step::Event(count, event) => {
                    self.inputs.0.drain(..count);
                    if let Some(event) = event {
                        self.told(event);
                    }
                }
                Step::Data(_, length) => {
                    let here = length.min(self.inputs.0.len());
                    if here == 0 {
                        break;
                    }
                    self.inputs.0.drain(..here);
                    self.client.placed(here);
                }
            }
        }
        assert!(self.passed.len() <= self.client.pending_grants());
    }

    fn told(&mut self, event: ClientEvent) {
        let mut out = Vec::new();
        match event {
            ClientEvent::Granted(stream, grant) => {
                if grant.fresh {
                    assert_eq!(
                        self.passed.pop_front(),
                        Some(grant.memory),
                        "its descriptor is there"
                    );
                }
                let wanted = self.open.contains(&stream);
                match grant.memory {
                    0 if wanted => {
                        out.extend_from_slice(&chunk_header(stream, 1, 8));
                        out.extend_from_slice(&[0; 8]);
                    }
                    0 => {}
                    memory if wanted => {
                        assert!(
                            !self.has.values().any(|other| *other == memory),
                            "it is one call's"
                        );
                        self.has.insert(stream, memory);
                        self.client.filled(stream, &mut out);
                    }
                    memory => self.client.release(memory, &mut out),
                }
            }
            ClientEvent::Result(..) => {}
            ClientEvent::Done(stream) | ClientEvent::Failed(stream, _) => {
                assert!(self.open.remove(&stream), "once, and not of one that was given up");
                self.over += 1;
                self.release(stream, &mut out);
            }
            other => panic!("{other:?}"),
        }
        self.up.extend(out);
    }

    /// Everything that is under way comes to its end.
    fn settle(&mut self) {
        loop {
            self.arrive_up(usize::MAX);
            self.ready.clone().into_iter().for_each(|stream| self.end(stream, true));
            self.write();
            self.arrive_down(usize::MAX);
            if self.up.is_empty() && self.runs.is_empty() && self.server.send_queue().is_empty() {
                return;
            }
        }
    }
}

proptest! {
    /// However calls, their ends, cancellations and what travels interleave: a memory is one call's at a time, is used
    /// again only when both ends have done with it, and all of them are free in the end.
    #[test]
    fn any_interleaving(steps in prop::collection::vec((0..7_u8, 0..40_usize), 0..120)) {
        let mut world = World::new();
        for (what, much) in steps {
            match what {
                0 if world.open.len() < 6 => world.begin(),
                1 => world.leave(much),
                2 => world.arrive_up(much),
                3 => world.write(),
                4 => world.arrive_down(much),
                5 => world.end_some(much, true),
                6 if much < 8 => world.end_some(much, false),
                _ => {}
            }
        }
        world.settle();
        prop_assert_eq!(world.over, world.begun);
        prop_assert!(world.lent.is_empty() && world.has.is_empty() && world.passed.is_empty());
        prop_assert_eq!(world.client.pending_grants(), 0);
        let all: BTreeSet<u32> = world.free.iter().copied().collect();
        prop_assert_eq!((all.len(), world.free.len()), (world.next as usize, world.next as usize));
    }

    /// Whatever a grant's bytes are, it is read again as it was, or not at all.
    #[test]
    fn any_grant(bytes in prop::collection::vec(prop::sample::select(vec![0_u8, 1, 2, 3, 8, 255]), 0..64)) {
        if let Ok(grant) = MemoryGrant::decode(&bytes) {
            let mut out = Vec::new();
            grant.encode(&mut out);
            prop_assert_eq!(out, bytes);
        }
    }
}
