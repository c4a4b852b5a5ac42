//! The driver of a rank that has AF_XDP beside UDP.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use kumi_proto::Rank;

use crate::segment::attachment::{AttachError, Attachment, io_error};
use crate::segment::counters::Counter;
use crate::sys;
use crate::wire::driver::{Driver, PacketRun, SleepDescriptors};
use crate::wire::udp::UdpDriver;
use crate::wire::xdp::frame::{self, HEADERS, MOST_PACKET, Route};
use crate::wire::xdp::launch::XdpParts;
use crate::wire::xdp::rings::{FillRing, FrameMemory, Ring, RingBroken, RingKind};
use crate::wire::xdp::table::HopReader;
use crate::wire::xdp::{CHUNK, RECEIVE_CHUNKS, SEND_CHUNKS};

/// Shortest packet: an Ethernet frame is at least 60 bytes long.
const LEAST_PACKET: usize = 60 - HEADERS;
/// So many looks at the ring for one at the UDP socket, which costs a system call, as long as nothing comes there.
const LOOKS: u32 = 64;
/// So long after packets that only UDP takes, in microseconds, short ones to the same rank follow them by UDP: they would
/// overtake them, which looks like a loss.
const FOLLOWING: u64 = 1_000;
/// Most frames that one look passes over because they are bad.
const MOST_BAD: usize = 16;

/// The socket with its rings. The kernel has its own ends of them.
#[derive(Debug)]
struct Rings {
    socket: OwnedFd,
    memory: FrameMemory,
    fill: FillRing,
    completion: Ring<1>,
    receive: Ring<2>,
    send: Ring<2>,
    /// Chunks to send from that the kernel does not read.
    free: Vec<u32>,
    /// By chunk to send from: the kernel has it.
    sending: [bool; SEND_CHUNKS as usize],
}

/// See the module.
#[derive(Debug)]
pub(crate) struct XdpDriver {
    udp: UdpDriver,
    rings: Rings,
    hops: HopReader,
    own: SocketAddrV4,
    /// Longest packet for a frame.
    most: usize,
    /// The frame received last, and the length of its packet.
    buffer: Box<[u8; CHUNK]>,
    packet: usize,
    /// What was received last came by UDP.
    by_udp: bool,
    /// Looks at the ring before the next one at the UDP socket.
    looks: u32,
    /// The UDP socket is looked at first.
    turn: bool,
    /// Until when short packets to a rank go by UDP.
    following: BTreeMap<Rank, u64>,
    sent: u64,
    received: u64,
    dropped: u64,
}

fn broken(_: RingBroken) -> io::Error {
    io::Error::other(
        "the rings that this rank shares with the kernel for AF_XDP hold numbers that cannot be: look for stray writes in this process",
    )
}

impl Rings {
    fn map(parts: &XdpParts) -> io::Result<Rings> {
        let socket = parts.socket.as_fd();
        // SAFETY: all zeros are valid; the kernel fills it in.
        let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
        let mut length = size_of_val(&offsets) as libc::socklen_t;
        // SAFETY: pointers to our own structure and its length.
        let done = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_XDP,
                libc::XDP_MMAP_OFFSETS,
                (&raw mut offsets).cast(),
                &raw mut length,
            )
        };
        if done != 0 {
            return Err(io::Error::last_os_error());
        }
        let (many, few) = (RECEIVE_CHUNKS, SEND_CHUNKS);
        let mut rings = Rings {
            memory: FrameMemory::map(parts.memory.as_fd())?,
            fill: FillRing::new(Ring::map(socket, RingKind::Fill, many, &offsets.fr)?),
            completion: Ring::map(socket, RingKind::Completion, few, &offsets.cr)?,
            receive: Ring::map(socket, RingKind::Receive, many, &offsets.rx)?,
            send: Ring::map(socket, RingKind::Send, few, &offsets.tx)?,
            socket: socket.try_clone_to_owned()?,
            free: (0..SEND_CHUNKS).collect(),
            sending: [false; SEND_CHUNKS as usize],
        };
        let damaged = |RingBroken| io::Error::from(io::ErrorKind::InvalidData);
        (0..RECEIVE_CHUNKS).try_for_each(|chunk| rings.fill.give(chunk)).map_err(damaged)?;
        Ok(rings)
    }

    /// Copies the next frame out and gives its chunk back to the kernel. The frame's length, if there is one.
    #[inline]
    fn next(&mut self, into: &mut [u8; CHUNK]) -> Result<Option<usize>, RingBroken> {
        if self.receive.filled()? == 0 {
            return Ok(None);
        }
        let frame = FrameMemory::received(self.receive.take())?;
        self.memory.frame(frame).copy_to(&mut into[..frame.length]);
        self.receive.release();
        self.fill.give(frame.chunk)?;
        Ok(Some(frame.length))
    }

    /// Takes back the chunks that the kernel has sent.
    fn collect(&mut self) -> Result<(), RingBroken> {
        let count = self.completion.filled()?;
        for _ in 0..count {
            let [entry] = self.completion.take();
            let number = FrameMemory::completed(entry)?;
            if !std::mem::take(&mut self.sending[number as usize]) {
                return Err(RingBroken);
            }
            self.free.push(number);
        }
        if count > 0 {
            self.completion.release();
        }
        Ok(())
    }

    /// Hands the kernel a frame. False if there is no room for it now.
    fn put(&mut self, headers: &[u8], packet: &[u8]) -> Result<bool, RingBroken> {
        self.collect()?;
        if self.send.room()? == 0 {
            return Ok(false);
        }
        let Some(number) = self.free.pop() else { return Ok(false) };
        self.sending[number as usize] = true;
        let (head, rest) = self.memory.send_chunk(number).split_at(headers.len());
        head.copy_from(headers);
        rest.slice(0, packet.len()).copy_from(packet);
        self.send.put(FrameMemory::send_entry(number, headers.len() + packet.len()));
        self.send.publish();
        Ok(true)
    }

    /// Has the kernel send what it was handed. False if it did not: the frame stays in the ring and leaves with a later one.
    fn kick(&self) -> bool {
        let none = std::ptr::null::<libc::c_void>();
        // SAFETY: no memory is described.
        let done = unsafe {
            let flags = libc::MSG_DONTWAIT;
            libc::syscall(libc::SYS_sendto, self.socket.as_raw_fd(), none, 0, flags, none, 0)
        };
        done >= 0
    }
}

impl XdpDriver {
    /// Maps what the daemon has given, and tells it so. Until the daemon has bound the socket everything goes by UDP.
    pub(crate) fn new(
        udp: UdpDriver,
        parts: &XdpParts,
        attachment: &Attachment,
    ) -> Result<XdpDriver, AttachError> {
        let SocketAddr::V4(own) = attachment.address(attachment.rank()) else {
            return Err(AttachError::BadPages("AF_XDP is for addresses of IPv4"));
        };
        let hops = HopReader::open(&parts.hops, attachment.ranks())?;
        let rings = Rings::map(parts).map_err(io_error("mapping the rings of AF_XDP"))?;
        // SAFETY: one byte of a constant. A daemon that does not listen any more has ended, and this rank ends with it.
        unsafe { libc::write(parts.ready.as_raw_fd(), c"!".as_ptr().cast(), 1) };
        Ok(XdpDriver {
            udp,
            rings,
            hops,
            own,
            most: attachment.max_datagram().min(MOST_PACKET),
            buffer: Box::new([0; CHUNK]),
            packet: 0,
            by_udp: false,
            looks: LOOKS,
            turn: false,
            following: BTreeMap::new(),
            sent: 0,
            received: 0,
            dropped: 0,
        })
    }

    /// Takes a frame from the ring, if there is a good one.
    #[inline]
    fn receive_frame(&mut self) -> io::Result<bool> {
        for _ in 0..MOST_BAD {
            let Some(length) = self.rings.next(&mut self.buffer).map_err(broken)? else {
                return Ok(false);
            };
            match frame::packet(&self.buffer[..length], self.own) {
                Ok(packet) if !packet.is_empty() => {
                    self.packet = packet.len();
                    self.received += 1;
                    self.by_udp = false;
                    return Ok(true);
                }
                _ => self.dropped += 1,
            }
        }
        Ok(false)
    }

    #[inline]
    fn receive_by_udp(&mut self) -> io::Result<bool> {
        self.looks = LOOKS;
        let got = self.udp.receive()?;
        if got {
            // Where something comes, more may come; but the ring has its turn in between.
            self.looks = 2;
        }
        self.by_udp |= got;
        Ok(got)
    }

    /// Sends a single short packet as a frame, if it may go that way now. False: it may not.
    fn send_frame(
        &mut self,
        attachment: &Attachment,
        to: Rank,
        packets: PacketRun<'_>,
    ) -> io::Result<bool> {
        let packet = packets.bytes;
        let single = packets.pieces.is_empty() && !packets.is_run() && !packets.fragment;
        if !single || packet.len() > self.most {
            self.following.insert(to, sys::now() + FOLLOWING);
            return Ok(false);
        }
        if packet.len() < LEAST_PACKET || self.follows(to) {
            return Ok(false);
        }
        let (Some(to_mac), SocketAddr::V4(to)) = (self.hops.to(to), attachment.address(to)) else {
            return Ok(false);
        };
        let (source, source_mac) = (self.own, self.hops.own());
        let route = Route { source, source_mac, to, to_mac };
        let headers = frame::headers(&route, packet);
        if !self.rings.put(&headers, packet).map_err(broken)? {
            return Ok(false);
        }
        if !self.rings.kick() && !self.rings.kick() {
            // The interface may be down; what is in the ring leaves later, if ever. A second packet by UDP is harmless.
            return Ok(false);
        }
        self.sent += 1;
        Ok(true)
    }

    /// Packets to this rank follow longer ones that went by UDP.
    fn follows(&mut self, to: Rank) -> bool {
        if self.following.is_empty() {
            return false;
        }
        match self.following.get(&to) {
            Some(until) if *until > sys::now() => true,
            Some(_) => {
                self.following.remove(&to);
                false
            }
            None => false,
        }
    }
}

impl Driver for XdpDriver {
    /// The one and the other first in turn, so that a flood at one leaves the other alone.
    fn receive(&mut self) -> io::Result<bool> {
        self.turn = !self.turn;
        if self.turn {
            return Ok(self.receive_by_udp()? || self.receive_frame()?);
        }
        Ok(self.receive_frame()? || self.receive_by_udp()?)
    }

    #[inline]
    fn poll(&mut self) -> io::Result<bool> {
        self.looks -= 1;
        if self.looks == 0 {
            return Ok(self.receive_by_udp()? || self.receive_frame()?);
        }
        self.receive_frame()
    }

    fn received(&self) -> PacketRun<'_> {
        if self.by_udp {
            return self.udp.received();
        }
        PacketRun::contiguous(&self.buffer[HEADERS..HEADERS + self.packet], self.packet, false)
    }

    fn send(
        &mut self,
        attachment: &Attachment,
        to: Rank,
        packets: PacketRun<'_>,
    ) -> io::Result<bool> {
        if self.send_frame(attachment, to, packets)? {
            self.udp.forget_refusal();
            return Ok(true);
        }
        self.udp.send(attachment, to, packets)
    }

    fn refusal(&self) -> Option<i32> {
        self.udp.refusal()
    }

    fn too_long(&mut self) -> bool {
        self.udp.too_long()
    }

    fn longest(&self, attachment: &Attachment, to: Rank) -> Option<usize> {
        self.udp.longest(attachment, to)
    }

    fn sleep_on(&self) -> SleepDescriptors {
        [self.udp.sleep_on()[0], self.rings.socket.as_raw_fd()]
    }

    fn watch_for_gone(&self) -> io::Result<()> {
        self.udp.watch_for_gone()
    }

    fn gone(&self, attachment: &Attachment) -> Option<Rank> {
        self.udp.gone(attachment)
    }

    fn publish(&self, attachment: &Attachment) {
        attachment.set(Counter::XdpOut, self.sent);
        attachment.set(Counter::XdpIn, self.received);
        attachment.set(Counter::XdpDropped, self.dropped);
    }
}
