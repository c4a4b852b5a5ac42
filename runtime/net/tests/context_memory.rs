//! Memory that a channel's context takes in the file of its rank: in a large job, little.
#![cfg(not(miri))] // Pages of files are the kernel's.

mod common;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use kumi_net::layout::Layout;
use kumi_net::segment::{Segment, SegmentSpec};
use kumi_net::{
    AnswerSender, Attachment, Channel, ChannelError, ChannelSettings, CopySource, Delivery,
    Handler, SpinMode,
};
use kumi_proto::ChannelKey;
use kumi_proto::wire::{Codec, HEADER_BYTES, Header, PacketKind};

const RANKS: u32 = 1_024;
const KEY: u64 = 77;
const DATAGRAM: u16 = 1_472;
const PAGE: usize = 4_096;

/// Counts frames.
struct Counting(Arc<AtomicU32>);

impl Handler for Counting {
    fn frame<S: CopySource>(&mut self, _: &Attachment, _: u32, _: S) -> Delivery {
        self.0.fetch_add(1, Ordering::Relaxed);
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
}

/// Bytes of memory behind the mapping of a memory file from a place in it on, as the kernel counts them.
fn resident(name: &str, offset: usize) -> usize {
    let text = std::fs::read_to_string("/proc/self/smaps").expect("smaps");
    let mut inside = false;
    for line in text.lines() {
        if let Some(kib) = line.strip_prefix("Rss:").filter(|_| inside) {
            return 1_024 * kib.trim().trim_end_matches(" kB").parse::<usize>().expect("a number");
        }
        let mut words = line.split_whitespace();
        if let (Some(range), Some(_), Some(place)) = (words.next(), words.next(), words.next())
            && range.contains('-')
        {
            inside = line.contains(name) && usize::from_str_radix(place, 16) == Ok(offset);
        }
    }
    panic!("no mapping of {name} from {offset:x} on");
}

/// A job of which every other rank is the socket.
struct Job {
    channel: Channel<Counting>,
    taken: Arc<AtomicU32>,
    peers: UdpSocket,
    own: SocketAddr,
    /// Bytes of the rank file before the context.
    front: usize,
}

fn job() -> Job {
    let (ring_bytes, arena_bytes) = (4_096, 8_192);
    let spec = SegmentSpec {
        channel_key: KEY,
        seal_key: None,
        ranks: RANKS,
        local_ranks: 0..1,
        ring_bytes,
        arena_bytes,
    };
    let layout = Layout::new(RANKS, 0, 1, ring_bytes as u64, arena_bytes).expect("layout");
    let peers = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("socket");
    let port = peers.local_addr().expect("address").port();
    let (mut segment, files) = Segment::create(&spec).expect("segment");
    let all = vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port)); RANKS as usize];
    segment.publish_peers(&all, DATAGRAM).expect("peers");
    let (attachment, socket, port) = common::attach(&files, (0, RANKS), (0, 1)).expect("attach");
    let settings = ChannelSettings { spin: SpinMode::Blind, handler: None };
    let taken = Arc::<AtomicU32>::default();
    let handler = Counting(Arc::clone(&taken));
    let channel = Channel::start(attachment, Some(socket), settings, handler).expect("start");
    let own = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    Job { channel, taken, peers, own, front: layout.rank_front }
}

impl Job {
    fn resident(&self) -> usize {
        resident("memfd:kumi-segment-rank", self.front)
    }

    /// The first packet of another rank arrives.
    fn hear_from(&self, rank: u32) {
        let header =
            Header { kind: PacketKind::Data, flags: 0, from: rank, to: 0, sequence: 0, ack: 0 };
        let mut packet = vec![1; HEADER_BYTES + 8];
        Codec::new(ChannelKey(KEY), DATAGRAM.into()).seal(&header, &mut packet);
        self.peers.send_to(&packet, self.own).expect("send");
        let start = Instant::now();
        while self.taken.load(Ordering::Relaxed) < rank {
            self.channel.lock().expect("lock").progress().expect("progress");
            assert!(start.elapsed() < Duration::from_secs(60), "rank {rank} is not heard");
        }
    }
}

#[test]
fn an_idle_channel_of_a_large_job_is_small() {
    let job = job();
    let new = job.resident();
    assert!(new <= 3 * PAGE, "a channel that was never used has {new} bytes");
    for rank in 1..RANKS {
        job.hear_from(rank);
    }
    let heard = job.resident();
    let most = new + (RANKS as usize - 1) * 256 + PAGE;
    assert!(heard <= most, "{heard} bytes, at most {most}");
    assert!(heard <= 1 << 20, "{heard} bytes for {RANKS} ranks");

    // A small frame takes a page for the slots of the ring to that rank, and one for its own bytes.
    let mut guard = job.channel.lock().expect("lock");
    assert!(guard.send(5, &[b"frame"]).expect("sent"));
    guard.transmit().expect("a loss at most");
    drop(guard);
    let sent = job.resident();
    assert!(sent > heard && sent <= heard + 3 * PAGE, "{heard} bytes, then {sent}");
}
