//! Ranks that stop, and go on elsewhere with nothing but copies of their contexts.

use super::{Event, Net, Node};
use kumi_proto::{ChannelEnd, ChannelKey, ContextMemory, Endpoint, HeapMemory, SealKey};

/// What becomes of packets that are on the wire, in sockets or in hand when all ranks move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Old {
    /// They are lost.
    Lost,
    /// Those on the wire arrive late, at the new addresses.
    Late,
    /// The same, but the new endpoints have another key.
    LateWithOldKey,
}

impl Net {
    /// Stops all ranks wherever they are, copies their contexts, ends them and continues the copies elsewhere.
    pub fn move_all(&mut self, old: Old) {
        for rank in 0..self.nodes.len() {
            self.stop(rank);
        }
        let copies: Vec<_> = self.nodes.iter().map(copy).collect();
        if old == Old::Lost {
            for body in &mut self.bodies {
                body.take_if(|event| matches!(event, Event::Arrive { .. }));
            }
            let bodies = &self.bodies;
            self.events.retain(|event| bodies[event.0.2].is_some());
            self.free = (0..self.bodies.len()).filter(|&at| self.bodies[at].is_none()).collect();
        }
        if old == Old::LateWithOldKey {
            self.key = ChannelKey(self.key.0.wrapping_add(1));
        }
        for (rank, copy) in copies.into_iter().enumerate() {
            self.go_on(rank, copy);
        }
    }

    /// Rank `rank` alone moves; nothing that was on its way to the old address arrives.
    pub fn move_one(&mut self, rank: usize) {
        self.stop(rank);
        let copy = copy(&self.nodes[rank]);
        self.go_on(rank, copy);
    }

    fn go_on(&mut self, rank: usize, copy: HeapMemory) {
        let ranks = u32::try_from(self.nodes.len()).unwrap();
        let seal = self.encrypted.then_some(SealKey([9; 16]));
        let end = ChannelEnd { me: rank as u32, ranks, key: self.key, seal: seal.as_ref() };
        let ahead = self.random.next() >> 16;
        let now = self.now.wrapping_add(ahead);
        let node = &mut self.nodes[rank];
        let lender = &node.lender;
        let lent = |_, place, room: &mut [u8]| {
            lender.as_ref().is_some_and(|lender| lender.copy(place, room))
        };
        let config = node.endpoint.config().clone();
        let resumed = Endpoint::resume(copy, config, &end, now, lent);
        node.endpoint = resumed.expect("a context that an endpoint wrote");
        assert_eq!(node.endpoint.lent(), 0);
        node.ahead = ahead;
        node.socket.clear();
        node.in_hand.clear();
        self.resume(rank);
    }
}

fn copy(node: &Node) -> HeapMemory {
    HeapMemory::copy_of(node.endpoint.memory_of_context().bytes())
}
