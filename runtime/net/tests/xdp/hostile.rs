//! A hostile rank: it has an AF_XDP socket, and writes what it likes into the socket's rings and the memory of its frames.
//! Node 0 has it, beside an honest rank without AF_XDP. Node 1 has an honest rank with AF_XDP.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64};
use std::time::{Duration, Instant};

use kumi_net::xdp::{Steering, XdpSocket};

use crate::Stranger;
use crate::nodes::{DEVICE, MARK, Node, Rank, address, mac, with_nodes};

/// Chunks of the memory of frames, as `docs/reference/channel-protocol.md` says: to receive into, and to send from.
const CHUNK: usize = 2048;
const RECEIVE_CHUNKS: usize = 256;
const SEND_CHUNKS: usize = 64;
const MEMORY: usize = (RECEIVE_CHUNKS + SEND_CHUNKS) * CHUNK;
/// The UDP port whose marked frames go to the hostile rank.
const PORT: u16 = 4_242;
/// Bytes of the three headers.
const HEADERS: usize = 42;

/// Memory that it shares with the kernel.
struct Region {
    base: *mut u8,
    length: usize,
}

impl Region {
    fn map(file: BorrowedFd<'_>, length: usize, offset: libc::off_t) -> Region {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let none = std::ptr::null_mut();
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no memory of this process.
        let base = unsafe {
            libc::mmap(none, length, protection, libc::MAP_SHARED, file.as_raw_fd(), offset)
        };
        assert_ne!(base, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Region { base: base.cast(), length }
    }

    fn place(&self, at: usize, bytes: usize) -> *mut u8 {
        assert!(at + bytes <= self.length && at.is_multiple_of(bytes));
        // SAFETY: just checked to be inside of the mapping.
        unsafe { self.base.add(at) }
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: inside of the mapping, which lives as long as `self`, and aligned; all accesses are atomic.
        unsafe { AtomicU32::from_ptr(self.place(at, 4).cast()) }
    }

    fn long(&self, at: usize) -> &AtomicU64 {
        // SAFETY: as for `word`.
        unsafe { AtomicU64::from_ptr(self.place(at, 8).cast()) }
    }

    fn write(&self, at: usize, bytes: &[u8]) {
        for (at, byte) in (at..).zip(bytes) {
            // SAFETY: as for `word`.
            unsafe { AtomicU8::from_ptr(self.place(at, 1)) }.store(*byte, SeqCst);
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `map`; nothing borrowed from it outlives `self`.
        unsafe { libc::munmap(self.base.cast(), self.length) };
    }
}

/// A ring with entries of `words` words.
struct RawRing {
    region: Region,
    offsets: libc::xdp_ring_offset,
    size: u32,
    words: usize,
}

impl RawRing {
    fn map(
        socket: BorrowedFd<'_>,
        (offset, size, words): (libc::off_t, usize, usize),
        offsets: libc::xdp_ring_offset,
    ) -> RawRing {
        let region = Region::map(socket, offsets.desc as usize + size * words * 8, offset);
        RawRing { region, offsets, size: size as u32, words }
    }

    fn producer(&self) -> &AtomicU32 {
        self.region.word(self.offsets.producer as usize)
    }

    fn consumer(&self) -> &AtomicU32 {
        self.region.word(self.offsets.consumer as usize)
    }

    fn set(&self, index: u32, entry: [u64; 2]) {
        let at = self.offsets.desc as usize + (index % self.size) as usize * self.words * 8;
        for (word, value) in entry.into_iter().take(self.words).enumerate() {
            self.region.long(at + word * 8).store(value, SeqCst);
        }
    }

    /// Shows the kernel one more entry.
    fn push(&self, entry: [u64; 2]) {
        self.set(self.producer().load(SeqCst), entry);
        self.producer().fetch_add(1, SeqCst);
    }
}

/// See the module.
struct Hostile {
    socket: XdpSocket,
    memory: Region,
    fill: RawRing,
    completion: RawRing,
    receive: RawRing,
    send: RawRing,
    steering: Steering,
}

impl Hostile {
    fn start(node: &Node) -> Hostile {
        let steering = Steering::attach(node.index, address(node.number)).expect("steering");
        let socket = XdpSocket::create(DEVICE).expect("AF_XDP socket");
        // SAFETY: all zeros are valid.
        let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
        option(&socket, libc::XDP_MMAP_OFFSETS, &mut offsets);
        let (fd, many, few) = (socket.socket(), RECEIVE_CHUNKS, SEND_CHUNKS);
        let fill = libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t;
        let completion = libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t;
        let hostile = Hostile {
            memory: Region::map(socket.memory(), MEMORY, 0),
            fill: RawRing::map(fd, (fill, many, 1), offsets.fr),
            completion: RawRing::map(fd, (completion, few, 1), offsets.cr),
            receive: RawRing::map(fd, (libc::XDP_PGOFF_RX_RING, many, 2), offsets.rx),
            send: RawRing::map(fd, (libc::XDP_PGOFF_TX_RING, few, 2), offsets.tx),
            socket,
            steering,
        };
        hostile.socket.bind(node.index, 0).expect("bind");
        hostile.steering.steer(PORT, hostile.socket.socket()).expect("steer");
        hostile
    }

    /// Has the kernel look at the send ring.
    fn kick(&self) {
        let (raw, none) = (self.socket.socket().as_raw_fd(), std::ptr::null());
        // SAFETY: no memory is described.
        unsafe { libc::send(raw, none, 0, libc::MSG_DONTWAIT) };
    }

    /// Sends a whole frame, and waits until the kernel has taken it.
    fn send(&self, frame: &[u8]) {
        let first = RECEIVE_CHUNKS * CHUNK;
        self.memory.write(first, frame);
        self.hand_over(&[[first as u64, frame.len() as u64]]);
        let done = self.completion.producer().load(SeqCst);
        self.completion.consumer().store(done, SeqCst);
    }

    /// Shows the kernel these entries of the send ring until it has taken each.
    fn hand_over(&self, entries: &[[u64; 2]]) {
        let (end, start) = (self.send.producer().load(SeqCst), Instant::now());
        let end = end.wrapping_add(entries.len() as u32);
        entries.iter().for_each(|entry| self.send.push(*entry));
        while self.send.consumer().load(SeqCst) != end {
            assert!(start.elapsed() < Duration::from_secs(20), "the kernel leaves entries alone");
            self.kick();
        }
    }

    fn statistics(&self) -> libc::xdp_statistics {
        // SAFETY: all zeros are valid.
        let mut found = unsafe { std::mem::zeroed() };
        option(&self.socket, libc::XDP_STATISTICS, &mut found);
        found
    }
}

/// Reads an option that is a structure of the kernel's.
fn option<T>(socket: &XdpSocket, option: libc::c_int, into: &mut T) {
    let mut length = size_of::<T>() as libc::socklen_t;
    let (raw, into) = (socket.socket().as_raw_fd(), (&raw mut *into).cast());
    // SAFETY: pointers to the structure and its length, which is plain numbers.
    let done = unsafe { libc::getsockopt(raw, libc::SOL_XDP, option, into, &raw mut length) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// The sum of 16-bit words by which IPv4 and UDP check.
fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let word = |word: &[u8]| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
    let sum: u32 = words.map(word).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    !((folded & 0xffff) + (folded >> 16)) as u16
}

/// A marked frame with right checksums.
fn frame(from: SocketAddrV4, to: SocketAddrV4, body: &[u8]) -> Vec<u8> {
    let length = 8 + body.len() as u16;
    let mut frame = [&mac(1)[..], &mac(0), &[8, 0, 0x45, 0]].concat();
    frame.extend((20 + length).to_be_bytes());
    frame.extend([MARK[0], MARK[1], 0x40, 0, 64, 17, 0, 0]);
    frame.extend([from.ip().octets(), to.ip().octets()].concat());
    let sum = checksum(&[&frame[14..34]]);
    frame[24..26].copy_from_slice(&sum.to_be_bytes());
    frame.extend([from.port().to_be_bytes(), to.port().to_be_bytes()].concat());
    frame.extend([length.to_be_bytes(), [0; 2]].concat());
    let pseudo = [0, 17, (length >> 8) as u8, length as u8];
    // Zero would say that there is no checksum (RFC 768).
    let sum = match checksum(&[&frame[26..34], &pseudo, &frame[34..42], body]) {
        0 => 0xffff,
        sum => sum,
    };
    frame[40..42].copy_from_slice(&sum.to_be_bytes());
    frame.extend(body);
    frame
}

/// Numbers that look random, the same in every run.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        self.0 ^ self.0 >> 29
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

/// An honest rank on each node, and the hostile one beside that of node 0.
fn with_a_hostile_rank(
    name: &str,
    attack: impl Fn(&Hostile, &Rank) + Copy + Send + 'static,
    suffer: impl Fn(&Rank) + Copy + Send + 'static,
) {
    with_nodes(name, move |node, duplex| {
        let hostile = (node.number == 0).then(|| Hostile::start(&node));
        let rank = Rank::start(&node, &duplex, node.number == 1);
        rank.ping_pong(10);
        match &hostile {
            Some(hostile) => attack(hostile, &rank),
            None => suffer(&rank),
        }
        duplex.meet();
        rank.ping_pong(50);
        assert_eq!(rank.frames.lock().expect("frames").len(), rank.seen.get(), "no frame more");
        duplex.meet();
        drop(hostile);
        // The queue is as good as new.
        if node.number == 0 {
            let socket = XdpSocket::create(DEVICE).expect("AF_XDP socket");
            let start = Instant::now();
            while let Err(error) = socket.bind(node.index, 0) {
                // The kernel lets go of it some milliseconds after the socket was closed.
                assert!(start.elapsed() < Duration::from_secs(20), "{error}");
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        duplex.meet();
    });
}

/// Frames whose headers contradict each other are dropped where they are looked at. Those with right checksums are the
/// protocol's to judge. Those for others do not come.
#[test]
fn forged_frames_are_counted_and_change_nothing() {
    const DROPPED: u64 = 6;
    const INVALID: u64 = 3;
    const TIMES: u64 = 50;
    let attack = |hostile: &Hostile, rank: &Rank| {
        let mut noise = Noise(1);
        let own = SocketAddrV4::new(address(0), rank.port);
        let stranger = SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, 9), 9);
        let changed = |at: usize, noise: &mut Noise| {
            let mut frame = frame(own, rank.peer, &noise.bytes(100));
            frame[at] ^= 1 << (noise.next() % 7);
            frame
        };
        for _ in 0..TIMES {
            // Checksum of IPv4, total length, length and checksum of UDP, an address and a byte of the body.
            for at in [25, 17, 39, 41, 29, HEADERS + 50] {
                hostile.send(&changed(at, &mut noise));
            }
            // As if from the peer, from the victim itself, and from somebody who does not exist.
            for from in [own, rank.peer, stranger] {
                let length = 18 + noise.next() as usize % 1_400;
                hostile.send(&frame(from, rank.peer, &noise.bytes(length)));
            }
            // To a port that nobody has, to another machine, and what is no frame at all.
            let port = SocketAddrV4::new(*rank.peer.ip(), rank.peer.port() ^ 1);
            for to in [port, stranger] {
                hostile.send(&frame(own, to, &noise.bytes(100)));
            }
            hostile.send(&noise.bytes(60));
            // The receiver has taken these before more come: the kernel drops what finds no room.
            rank.ping_pong(1);
        }
    };
    with_a_hostile_rank("forged frames", attack, |rank| {
        (0..TIMES).for_each(|_| rank.ping_pong(1));
        rank.until("xdp_dropped", DROPPED * TIMES);
        rank.until("invalid", INVALID * TIMES);
        let found = ["xdp_dropped", "invalid"].map(|name| rank.counter(name));
        assert_eq!(found, [DROPPED * TIMES, INVALID * TIMES]);
    });
}

/// What lies outside of the memory of frames, or across the end of a chunk. The kernel refuses each and counts it.
#[test]
fn entries_outside_of_the_memory_of_frames_are_refused_by_the_kernel() {
    const CHUNK: u64 = self::CHUNK as u64;
    const MEMORY: u64 = self::MEMORY as u64;
    const OUTSIDE: [u64; 5] = [MEMORY, MEMORY + CHUNK, 1 << 32, 1 << 63, u64::MAX];
    let attack = |hostile: &Hostile, rank: &Rank| {
        let before = hostile.statistics();
        let mut entries = OUTSIDE.map(|at| [at, 60]).to_vec();
        entries.extend([[CHUNK - 1, 2], [MEMORY - 1, 2], [0, CHUNK + 1], [0, u64::from(u32::MAX)]]);
        hostile.hand_over(&entries);
        let refused = hostile.statistics().tx_invalid_descs - before.tx_invalid_descs;
        assert_eq!(refused, entries.len() as u64, "of the send ring");
        rank.ping_pong(50);
        // Where to lay what comes: node 1 sends marked frames to the port.
        OUTSIDE.iter().for_each(|at| hostile.fill.push([*at, 0]));
        let (end, start) = (hostile.fill.producer().load(SeqCst), Instant::now());
        while hostile.fill.consumer().load(SeqCst) != end || hostile.statistics().rx_dropped == 0 {
            assert!(start.elapsed() < Duration::from_secs(20), "the fill ring is not looked at");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(hostile.receive.producer().load(SeqCst), 0, "no frame was laid anywhere");
    };
    with_a_hostile_rank("entries outside of the memory of frames", attack, |rank| {
        rank.ping_pong(50);
        let port = SocketAddrV4::new(address(0), PORT);
        let stranger = Stranger::new();
        for _ in 0..200 {
            stranger.send(port, [0x40, 0], 48, 0x1234, &[0xee; 40]);
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

/// Noise in every index, entry and frame, while the kernel uses them. It may send any bytes of the hostile rank's own frames.
#[test]
fn noise_in_rings_and_frames_reaches_nobody_else() {
    const ROUNDS: usize = 300;
    let attack = |hostile: &Hostile, rank: &Rank| {
        let mut noise = Noise(2);
        for _ in 0..ROUNDS {
            hostile.memory.write((noise.next() as usize % 600) * 1_024, &noise.bytes(4_096));
            for ring in [&hostile.fill, &hostile.completion, &hostile.receive, &hostile.send] {
                for _ in 0..20 {
                    let within = noise.next() % MEMORY as u64;
                    let at = if noise.next().is_multiple_of(2) { within } else { noise.next() };
                    ring.set(noise.next() as u32, [at, noise.next() % 2_200]);
                }
                // Near enough that the kernel comes to an end with what lies between.
                let index =
                    if noise.next().is_multiple_of(2) { ring.producer() } else { ring.consumer() };
                index.fetch_add((noise.next() % 5_000) as u32, SeqCst);
            }
            hostile.kick();
            rank.ping_pong(1);
        }
    };
    with_a_hostile_rank("noise in rings and frames", attack, |rank| {
        let port = SocketAddrV4::new(address(0), PORT);
        let stranger = Stranger::new();
        for _ in 0..ROUNDS {
            stranger.send(port, [0x40, 0], 48, 0x1234, &[0xee; 40]);
            rank.ping_pong(1);
        }
    });
}
