//! The wire between ranks of one process: a queue of runs of packets for each address.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kumi_proto::Rank;

use crate::segment::attachment::Attachment;
use crate::wire::driver::{Driver, PacketRun, SleepDescriptors};

/// Packets end to end, and the length of each.
type Run = (Vec<u8>, usize);
type Queues = BTreeMap<SocketAddr, VecDeque<Run>>;

fn queues() -> MutexGuard<'static, Queues> {
    static QUEUES: Mutex<Queues> = Mutex::new(BTreeMap::new());
    QUEUES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A port that nobody has.
pub(crate) fn free_port(address: SocketAddr) -> u16 {
    let mut queues = queues();
    let taken = |port| queues.contains_key(&SocketAddr::new(address.ip(), port));
    let port = (1..u16::MAX).find(|port| !taken(*port)).expect("a free port");
    queues.insert(SocketAddr::new(address.ip(), port), VecDeque::new());
    port
}

pub(crate) fn forget_all() {
    queues().clear();
}

/// See the module. It loses what is sent to nobody.
#[derive(Debug)]
pub(crate) struct QueueDriver {
    own: SocketAddr,
    received: Run,
    room: Vec<u8>,
}

impl QueueDriver {
    pub(crate) fn new(own: SocketAddr) -> QueueDriver {
        QueueDriver { own, received: (Vec::new(), 1), room: Vec::new() }
    }
}

impl Driver for QueueDriver {
    fn receive(&mut self) -> io::Result<bool> {
        let Some(run) = queues().get_mut(&self.own).and_then(VecDeque::pop_front) else {
            return Ok(false);
        };
        self.received = run;
        Ok(true)
    }

    fn received(&self) -> PacketRun<'_> {
        PacketRun::contiguous(&self.received.0, self.received.1, false)
    }

    fn send(
        &mut self,
        attachment: &Attachment,
        to: Rank,
        packets: PacketRun<'_>,
    ) -> io::Result<bool> {
        let packets = packets.end_to_end(&mut self.room);
        let run = (packets.bytes().to_vec(), packets.segment());
        match queues().get_mut(&attachment.address(to)) {
            Some(queue) => queue.push_back(run),
            None => return Ok(false),
        }
        Ok(true)
    }

    fn refusal(&self) -> Option<i32> {
        None
    }

    fn too_long(&mut self) -> bool {
        false
    }

    fn longest(&self, _: &Attachment, _: Rank) -> Option<usize> {
        None
    }

    fn sleep_on(&self) -> SleepDescriptors {
        [-1, -1]
    }

    fn watch_for_gone(&self) -> io::Result<()> {
        Ok(())
    }

    fn gone(&self, _: &Attachment) -> Option<Rank> {
        None
    }
}
