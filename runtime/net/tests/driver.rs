//! Another kind of wire, as somebody else would write it: queues in this process. What a driver is promised, it gets.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kumi_net::driver::{Driver, PacketRun, SleepDescriptors};
use kumi_net::launch::{bind_socket, doorbell};
use kumi_net::{Attachment, Channel, ChannelSettings, SpinMode, Wire};

mod two_ranks;
use two_ranks::{Frames, Keep, attach, segment, wait_for};

/// What the wire was told, by rank.
#[derive(Debug, Default)]
struct Told {
    registered: Vec<Range<usize>>,
    finished: Vec<Range<usize>>,
}

/// Packets on their way to a rank, and what makes its end readable.
#[derive(Debug)]
struct Queue {
    packets: Mutex<VecDeque<Vec<u8>>>,
    bell: File,
}

impl Queue {
    fn new() -> Arc<Queue> {
        let bell = File::from(doorbell().expect("doorbell"));
        Arc::new(Queue { packets: Mutex::default(), bell })
    }
}

/// One end of the queues.
#[derive(Debug)]
struct QueueDriver {
    incoming: Arc<Queue>,
    outgoing: Arc<Queue>,
    received: Vec<u8>,
    told: Arc<Mutex<Told>>,
}

impl Driver for QueueDriver {
    fn register(&mut self, memory: Range<*const u8>) -> io::Result<()> {
        let memory = memory.start.addr()..memory.end.addr();
        self.told.lock().expect("told").registered.push(memory);
        Ok(())
    }

    fn receive(&mut self) -> io::Result<bool> {
        let mut packets = self.incoming.packets.lock().expect("packets");
        let Some(packet) = packets.pop_front() else { return Ok(false) };
        if packets.is_empty() {
            // Non-blocking: silent already is as good.
            let _ = (&self.incoming.bell).read(&mut [0; 8]);
        }
        self.received = packet;
        Ok(true)
    }

    fn received(&self) -> PacketRun<'_> {
        PacketRun::contiguous(&self.received, self.received.len().max(1), false)
    }

    fn send(&mut self, _: &Attachment, _: u32, packets: PacketRun<'_>) -> io::Result<bool> {
        let mut room = Vec::new();
        let mut queue = self.outgoing.packets.lock().expect("packets");
        queue.extend(packets.end_to_end(&mut room).each().map(<[u8]>::to_vec));
        (&self.outgoing.bell).write_all(&1u64.to_ne_bytes())?;
        Ok(true)
    }

    fn finish(&mut self, memory: &Range<*const u8>) {
        let memory = memory.start.addr()..memory.end.addr();
        self.told.lock().expect("told").finished.push(memory);
    }

    fn refusal(&self) -> Option<i32> {
        None
    }

    fn too_long(&mut self) -> bool {
        false
    }

    fn longest(&self, _: &Attachment, _: u32) -> Option<usize> {
        None
    }

    /// The second place, so that the first one may be empty.
    fn sleep_on(&self) -> SleepDescriptors {
        [-1, self.incoming.bell.as_raw_fd()]
    }

    fn watch_for_gone(&self) -> io::Result<()> {
        Ok(())
    }

    fn gone(&self, _: &Attachment) -> Option<u32> {
        None
    }
}

/// A rank's channel over queues, what its wire was told, and the frames that came.
struct Rank {
    channel: Channel<Keep>,
    told: Arc<Mutex<Told>>,
    frames: Frames,
}

fn rank(rank: u32, incoming: &Arc<Queue>, outgoing: &Arc<Queue>) -> Rank {
    let (told, frames) = (Arc::default(), Arc::default());
    let driver = QueueDriver {
        incoming: Arc::clone(incoming),
        outgoing: Arc::clone(outgoing),
        received: Vec::new(),
        told: Arc::clone(&told),
    };
    // Not a spin: what comes has to wake the sleeping rank.
    let settings = ChannelSettings { spin: SpinMode::Fixed(0), handler: None };
    let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let socket = bind_socket((Ipv4Addr::LOCALHOST, 0)).expect("socket").0;
    let (_segment, files) = segment(rank, [nobody; 2], 1472);
    let (attachment, _unused) = attach(&files, rank, socket);
    let wire = Some(Wire::Own(Box::new(driver)));
    let handler = Keep(Arc::clone(&frames));
    let channel = Channel::start_on(attachment, wire, settings, handler).expect("start");
    Rank { channel, told, frames }
}

fn pair() -> [Rank; 2] {
    let (one, other) = (Queue::new(), Queue::new());
    [rank(0, &one, &other), rank(1, &other, &one)]
}

#[test]
fn frames_go_over_a_wire_of_ones_own_and_wake_who_sleeps() {
    let [one, other] = pair();
    let sender = std::thread::spawn(move || {
        let mut guard = one.channel.lock().expect("lock");
        for number in 0..20u8 {
            assert!(guard.send(1, &[&[number; 500]]).expect("room"));
        }
        guard.transmit().expect("sent");
    });
    wait_for(&other.channel, &other.frames, 20);
    sender.join().expect("sent");
    let frames = other.frames.lock().expect("frames");
    assert!(frames.iter().zip(0..).all(|(frame, number)| frame == &[number; 500]));
}

/// Nobody acks. The clock by which that is noticed is not only read when the channel is taken.
#[test]
fn who_keeps_the_channel_still_sends_again_what_is_lost() {
    let (incoming, lost) = (Queue::new(), Queue::new());
    let rank = rank(0, &incoming, &lost);
    let mut guard = rank.channel.lock().expect("lock");
    assert!(guard.send(1, &[b"lost"]).expect("room"));
    guard.transmit().expect("sent");
    let end = Instant::now() + Duration::from_secs(60);
    while lost.packets.lock().expect("packets").len() < 2 {
        assert!(Instant::now() < end, "it was sent once");
        guard.progress().expect("progress");
    }
}

#[test]
fn the_wire_learns_of_the_windows_memory_and_of_the_end_of_loans() {
    let [one, other] = pair();
    let attachment = one.channel.attachment();
    let arenas = [attachment.open_arena(0), attachment.readable_arena(0)].map(|arena| {
        let start = arena.as_ptr().addr();
        start..start + attachment.arena_bytes()
    });
    let only = |ranges: &[Range<usize>], expected: Range<usize>| {
        assert!(ranges.len() == 1 && ranges[0] == expected, "{ranges:?}, not {expected:?}");
    };
    assert_eq!(one.told.lock().expect("told").registered, arenas);
    let data = vec![7u8; 1000];
    let places = data.as_ptr_range();
    let mut guard = one.channel.lock().expect("lock");
    // SAFETY: `data` lives until it has been taken back.
    assert!(unsafe { guard.send_lent(1, b"head", &data[..]) }.expect("room"));
    guard.transmit().expect("sent");
    drop(guard);
    assert!(one.told.lock().expect("told").finished.is_empty(), "it is still lent");
    one.channel.take_back(Some(1), places.clone());
    only(&one.told.lock().expect("told").finished, places.start.addr()..places.end.addr());
    drop(data);
    wait_for(&other.channel, &other.frames, 1);
    let frame = other.frames.lock().expect("frames")[0].clone();
    assert_eq!((&frame[..4], &frame[4..]), (&b"head"[..], &[7; 1000][..]));
}
