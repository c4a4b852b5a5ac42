//! Two ranks on nodes of their own, in one process.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use kumi_net::launch::{LaunchDescriptors, doorbell};
use kumi_net::segment::{Segment, SegmentFiles, SegmentSpec};
use kumi_net::{
    AnswerSender, Attachment, Channel, ChannelError, CopySource, Delivery, Handler, Wait,
};

/// Frames as they came.
pub type Frames = Arc<Mutex<Vec<Vec<u8>>>>;

/// Keeps the frames that come.
pub struct Keep(pub Frames);

impl Handler for Keep {
    fn frame<S: CopySource>(&mut self, _: &Attachment, _: u32, frame: S) -> Delivery {
        let mut bytes = vec![0; frame.len()];
        frame.copy_to(&mut bytes);
        self.0.lock().expect("frames").push(bytes);
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

/// The segment of the node of rank 0 or 1, and what its rank inherits of it.
pub fn segment(rank: u32, peers: [SocketAddr; 2], max_datagram: u16) -> (Segment, SegmentFiles) {
    let spec = SegmentSpec {
        channel_key: 9,
        seal_key: None,
        ranks: 2,
        local_ranks: rank..rank + 1,
        ring_bytes: 4096,
        arena_bytes: 8192,
    };
    let (mut segment, files) = Segment::create(&spec).expect("segment");
    segment.publish_peers(&peers, max_datagram).expect("peers");
    (segment, files)
}

/// Attaches a rank with this socket to its segment.
pub fn attach(files: &SegmentFiles, rank: u32, socket: OwnedFd) -> (Attachment, OwnedFd) {
    let bells = vec![doorbell().expect("doorbell")];
    let own = LaunchDescriptors::of(&files.for_rank(0), socket, bells).expect("dup");
    let block = own.block(5, rank, 2, rank);
    Attachment::attach(&block, own).expect("attach")
}

/// Waits until so many frames have come.
pub fn wait_for(channel: &Channel<Keep>, frames: &Frames, count: usize) {
    channel
        .wait(Wait::Frames, |_| {
            let there = frames.lock().expect("frames").len() >= count;
            Ok::<_, ChannelError>(there.then_some(()))
        })
        .expect("frames");
}
