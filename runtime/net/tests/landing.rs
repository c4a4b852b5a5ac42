//! A wire of somebody else's that lays data where it belongs, before anybody has looked at a packet's header. It loses, doubles,
//! reorders and damages packets, and strangers send by it, too. What is received is what was sent.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};

use kumi_net::driver::{Driver, LandedPacket, LandedRun, Landing, PacketRun, SleepDescriptors};
use kumi_net::launch::{bind_socket, doorbell};
use kumi_net::{
    AnswerSender, Attachment, Channel, ChannelError, ChannelSettings, CopySource, Delivery,
    ExpectedData, Handler, SharedBytesMut, SpinMode, Wait, Wire,
};

#[allow(dead_code, reason = "other tests need more of it")]
mod two_ranks;
use two_ranks::{attach, segment};

/// Bytes of a frame before its data: its number.
const HEADER: usize = 8;
/// Bytes of data that are sent, and most of a frame.
const BYTES: usize = if cfg!(miri) { 12_000 } else { 600_000 };
const MOST: usize = 1_400;
/// A bad wire disturbs five packets of so many: a part of the few that there are under Miri.
const DISTURBED: usize = if cfg!(miri) { 40 } else { 150 };

/// Numbers that look random, the same in every run.
#[derive(Debug)]
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        (self.0 >> 33) as usize % bound
    }
}

/// Packets on their way to a rank, and what makes its end readable.
#[derive(Debug)]
struct Queue {
    packets: Mutex<VecDeque<Vec<u8>>>,
    bell: File,
}

/// How good the wire is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Quality {
    Good,
    Bad,
    /// It says that packets lie where none was to be laid.
    Wrong,
}

/// One end of the queues.
#[derive(Debug)]
struct LayingDriver {
    incoming: Arc<Queue>,
    outgoing: Arc<Queue>,
    quality: Quality,
    dice: Dice,
    received: Vec<u8>,
    heads: Vec<u8>,
    packets: Option<Vec<LandedPacket>>,
}

impl LayingDriver {
    fn next(&self) -> Option<Vec<u8>> {
        let mut packets = self.incoming.packets.lock().expect("packets");
        let packet = packets.pop_front()?;
        if packets.is_empty() {
            // Non-blocking: silent already is as good.
            let _ = (&self.incoming.bell).read(&mut [0; 8]);
        }
        Some(packet)
    }

    /// What a bad wire makes of a packet.
    fn disturbed(&mut self, mut packet: Vec<u8>, queue: &mut VecDeque<Vec<u8>>) {
        match self.dice.below(if self.quality == Quality::Good { 1 } else { DISTURBED }) {
            1 => return,
            2 => queue.push_back(packet.clone()),
            3 => {
                let at = self.dice.below(packet.len().min(128));
                packet[at] ^= 1 << self.dice.below(8);
            }
            4 => {
                let length = 1 + self.dice.below(MOST);
                queue.push_back((0..length).map(|_| self.dice.below(256) as u8).collect());
            }
            5 if !queue.is_empty() => {
                let at = self.dice.below(queue.len());
                return queue.insert(at, packet);
            }
            _ => {}
        }
        queue.push_back(packet);
    }
}

impl Driver for LayingDriver {
    fn receive(&mut self) -> io::Result<bool> {
        self.packets = None;
        let Some(packet) = self.next() else { return Ok(false) };
        self.received = packet;
        Ok(true)
    }

    fn lands(&self) -> bool {
        true
    }

    fn receive_into(&mut self, landing: Landing<'_>) -> io::Result<bool> {
        if self.dice.below(10) == 0 {
            return self.receive();
        }
        self.heads.clear();
        // It may also lay packets elsewhere than it was asked to, if it says so.
        let aside = if self.dice.below(8) == 0 { 24 } else { 0 };
        let (mut packets, mut at) = (Vec::new(), landing.gap + aside);
        for _ in 0..1 + self.dice.below(6) {
            let Some(packet) = self.next() else { break };
            let (head, rest) = packet.split_at(packet.len().min(landing.head));
            let place = landing.memory.get(at, rest.len()).filter(|_| !rest.is_empty());
            if let Some(place) = place {
                place.copy_from(rest);
                self.heads.extend_from_slice(head);
                packets.push(LandedPacket { head: head.len(), at, rest: rest.len() });
                at += rest.len() + landing.gap;
            } else {
                self.heads.extend_from_slice(&packet);
                packets.push(LandedPacket { head: packet.len(), at: 0, rest: 0 });
            }
        }
        if self.quality == Quality::Wrong && self.dice.below(4) == 0 {
            let outside = [(usize::MAX, 1), (BYTES, 1_000), (0, usize::MAX), (BYTES - 1, BYTES)];
            let (at, rest) = outside[self.dice.below(outside.len())];
            packets.iter_mut().for_each(|packet| (packet.at, packet.rest) = (at, rest));
        }
        let got = !packets.is_empty();
        self.packets = Some(packets);
        Ok(got)
    }

    fn landed(&self) -> Option<LandedRun<'_>> {
        let packets = self.packets.as_deref()?;
        Some(LandedRun { heads: &self.heads, packets })
    }

    fn received(&self) -> PacketRun<'_> {
        PacketRun::contiguous(&self.received, self.received.len().max(1), false)
    }

    fn send(&mut self, _: &Attachment, _: u32, packets: PacketRun<'_>) -> io::Result<bool> {
        let mut room = Vec::new();
        let outgoing = Arc::clone(&self.outgoing);
        let mut queue = outgoing.packets.lock().expect("packets");
        for packet in packets.end_to_end(&mut room).each() {
            self.disturbed(packet.to_vec(), &mut queue);
        }
        (&self.outgoing.bell).write_all(&1u64.to_ne_bytes())?;
        Ok(true)
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

    fn sleep_on(&self) -> SleepDescriptors {
        [self.incoming.bell.as_raw_fd(), -1]
    }

    fn watch_for_gone(&self) -> io::Result<()> {
        Ok(())
    }

    fn gone(&self, _: &Attachment) -> Option<u32> {
        None
    }
}

/// Lays the data of frames one behind the other.
struct Collector {
    memory: SharedBytesMut<'static>,
    next: u64,
    received: usize,
    landed: u64,
}

impl Collector {
    fn new() -> Collector {
        let memory: &'static mut [u8] = Box::leak(vec![0xee; BYTES].into());
        // SAFETY: leaked, and from here on used through this value only.
        let memory = unsafe { SharedBytesMut::new(NonNull::from(memory).cast(), BYTES) };
        Collector { memory, next: 0, received: 0, landed: 0 }
    }
}

impl Handler for Collector {
    fn frame<S: CopySource>(&mut self, _: &Attachment, _: u32, frame: S) -> Delivery {
        let (header, data) = frame.split_at(HEADER);
        let mut number = [0; HEADER];
        header.copy_to(&mut number);
        assert_eq!(u64::from_le_bytes(number), self.next, "in order");
        self.memory.slice(self.received, data.len()).copy_from(data);
        self.next += 1;
        self.received += data.len();
        Delivery::Taken
    }
    fn answer(&mut self, _: usize, _: &mut AnswerSender<'_>) -> Result<(), ChannelError> {
        Ok(())
    }
    fn owes_answers(&self) -> bool {
        false
    }
    fn unread(&self) -> u64 {
        0
    }
    fn refused(&self) -> u64 {
        0
    }
    fn expected(&self) -> Option<ExpectedData<'_>> {
        let memory = self.memory.slice(self.received, BYTES - self.received);
        Some(ExpectedData { header: HEADER, memory })
    }
    fn is_expected(&self, from: u32, head: &[u8], _: usize) -> bool {
        from == 0 && head.first_chunk() == Some(&self.next.to_le_bytes())
    }
    fn landed(&mut self, _: &Attachment, _: u32, head: &[u8], rest: usize) -> Delivery {
        let data = &head[HEADER..];
        self.memory.slice(self.received, data.len()).copy_from(data);
        self.next += 1;
        self.received += data.len() + rest;
        self.landed += 1;
        Delivery::Taken
    }
}

fn rank(
    rank: u32,
    (incoming, outgoing): (&Arc<Queue>, &Arc<Queue>),
    quality: Quality,
) -> Channel<Collector> {
    let driver = LayingDriver {
        incoming: Arc::clone(incoming),
        outgoing: Arc::clone(outgoing),
        quality,
        dice: Dice(u64::from(rank) + 5),
        received: Vec::new(),
        heads: Vec::new(),
        packets: None,
    };
    let settings = ChannelSettings { spin: SpinMode::Fixed(20), handler: None };
    let nobody = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
    let socket = bind_socket((Ipv4Addr::LOCALHOST, 0)).expect("socket").0;
    let (_segment, files) = segment(rank, [nobody; 2], 1472);
    let (attachment, _unused) = attach(&files, rank, socket);
    let wire = Some(Wire::Own(Box::new(driver)));
    Channel::start_on(attachment, wire, settings, Collector::new()).expect("start")
}

fn content(at: usize) -> u8 {
    (at as u32).wrapping_mul(0x9e37_79b9).to_be_bytes()[0]
}

/// Sends all data in frames of different lengths. How many of them landed.
fn received(quality: Quality) -> u64 {
    let queue = || {
        let bell = File::from(doorbell().expect("doorbell"));
        Arc::new(Queue { packets: Mutex::default(), bell })
    };
    let (one, other) = (queue(), queue());
    let sender = rank(0, (&one, &other), quality);
    let receiver = rank(1, (&other, &one), quality);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            alone(|| {
                let (mut dice, mut at, mut number) = (Dice(9), 0, 0u64);
                while at < BYTES {
                    // Most are full, as those of long data are.
                    let length = if dice.below(8) == 0 { dice.below(MOST) } else { MOST };
                    let data: Vec<u8> = (at..BYTES.min(at + length)).map(content).collect();
                    let header = number.to_le_bytes();
                    let sent = sender.wait(Wait::Room, |guard| {
                        let sent = guard.send(1, &[&header, &data])?;
                        guard.transmit()?;
                        Ok::<_, ChannelError>(sent.then_some(()))
                    });
                    sent.expect("sent");
                    (at, number) = (at + data.len(), number + 1);
                }
                let acked = sender.wait(Wait::Frames, |guard| {
                    Ok::<_, ChannelError>(guard.flushed(1).then_some(()))
                });
                acked.expect("acked");
            });
        });
        alone(|| {
            let all = receiver.wait(Wait::Frames, |guard| {
                let all = guard.handler().received == BYTES;
                Ok::<_, ChannelError>(all.then_some(()))
            });
            all.expect("received");
        });
    });
    let mut guard = receiver.lock().expect("lock");
    let collector = guard.handler();
    let mut bytes = vec![0; BYTES];
    collector.memory.shared().copy_to(&mut bytes);
    assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == content(at)), "as it was sent");
    collector.landed
}

/// Ends the process when a rank has panicked: the other one would wait for ever.
fn alone<R>(body: impl FnOnce() -> R) -> R {
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
    ended.unwrap_or_else(|_| std::process::abort())
}

#[test]
fn data_lands_where_it_belongs() {
    let landed = received(Quality::Good);
    assert!(landed as usize > BYTES / MOST / 4, "{landed} frames landed");
}

#[test]
fn what_a_bad_wire_lays_there_is_checked_and_written_again() {
    let landed = received(Quality::Bad);
    assert!(landed as usize > BYTES / MOST / 40, "{landed} frames landed");
}

#[test]
fn what_a_wrong_driver_says_of_places_is_a_loss() {
    received(Quality::Wrong);
}
