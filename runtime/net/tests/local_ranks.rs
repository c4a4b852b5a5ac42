//! Frames between ranks of a node: what a rank gets that others do not treat well, and what its threads get of it.

mod common;

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::FileExt;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kumi_net::layout::{Layout, SegmentPart};
use kumi_net::segment::{Segment, SegmentCopy, SegmentFiles, SegmentSpec};
use kumi_net::{
    AnswerSender, Attachment, Channel, ChannelError, ChannelSettings, CopySource, Delivery,
    Handler, SpinMode, Wait,
};
use kumi_proto::SendError;

const RANKS: u32 = 3;
const RING_BYTES: usize = 4096;
const ARENA_BYTES: u64 = 8192;

type Frames = Arc<Mutex<Vec<Vec<u8>>>>;

/// Keeps the frames that come.
struct Keep(Frames);

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

fn segment() -> (Segment, SegmentFiles) {
    let spec = SegmentSpec {
        channel_key: 9,
        seal_key: None,
        ranks: RANKS,
        local_ranks: 0..RANKS,
        ring_bytes: RING_BYTES,
        arena_bytes: ARENA_BYTES,
    };
    let (mut segment, files) = Segment::create(&spec).expect("segment");
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    segment.publish_peers(&[nowhere; RANKS as usize], 1_472).expect("peers");
    (segment, files)
}

fn start(files: &SegmentFiles, rank: u32) -> (Channel<Keep>, Frames) {
    let place = (rank as usize, RANKS as usize);
    let (attachment, ..) = common::attach(files, (rank, RANKS), place).expect("attach");
    let settings = ChannelSettings { spin: SpinMode::Blind, handler: None };
    let frames = Frames::default();
    let handler = Keep(Arc::clone(&frames));
    (Channel::start(attachment, None, settings, handler).expect("start"), frames)
}

fn progress(channel: &Channel<Keep>) -> Result<(), ChannelError> {
    channel.lock()?.progress()
}

/// Puts the end of the ring from a rank that nobody is to rank 0 anywhere, and says that something lies there.
fn end_ring_at(files: &SegmentFiles, from: usize, taker: &Channel<Keep>, tail: u64) {
    let layout = Layout::new(RANKS, 0, RANKS, RING_BYTES as u64, ARENA_BYTES).expect("layout");
    let (part, at) = layout.locate(layout.tail(from, 0), 0);
    assert_eq!(part, SegmentPart::Rank(from));
    let file = files.for_rank(from).ranks[from][0].try_clone_to_owned().expect("dup");
    File::from(file).write_all_at(&tail.to_ne_bytes(), at as u64).expect("written");
    taker.attachment().own_lines().wake.pending[0].fetch_or(1 << from, SeqCst);
}

#[test]
#[cfg_attr(miri, ignore = "files cannot be written there")]
fn damage_of_one_ring_keeps_nothing_back_and_is_told_to_each_thread_that_looks() {
    let (_segment, files) = segment();
    let (taker, taken) = start(&files, 0);
    let (sender, _) = start(&files, 2);
    end_ring_at(&files, 1, &taker, 13);
    assert!(sender.lock().expect("lock").send(0, &[b"one"]).expect("sent"));
    let damaged = |result: Result<(), ChannelError>| {
        assert!(matches!(result, Err(ChannelError::Ring { from: 1, .. })), "{result:?}");
    };
    damaged(progress(&taker));
    assert_eq!(*taken.lock().expect("frames"), [b"one"]);
    assert!(sender.lock().expect("lock").send(0, &[b"two"]).expect("sent"));
    // Nobody marks the ring again.
    damaged(progress(&taker));
    assert_eq!(*taken.lock().expect("frames"), [b"one", b"two"]);
    damaged(taker.wait(Wait::Frames, |_| Ok(None)));
    end_ring_at(&files, 1, &taker, 0);
    progress(&taker).expect("nothing is wrong any more");
}

#[test]
fn a_thread_gets_the_channel_while_marks_of_rings_come_without_end() {
    let (_segment, files) = segment();
    let (channel, _) = start(&files, 0);
    let (driving, had) = (AtomicBool::new(false), AtomicBool::new(false));
    let in_time = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !driving.load(SeqCst) {
                std::thread::yield_now();
            }
            drop(channel.lock().expect("lock"));
            had.store(true, SeqCst);
        });
        let (mut looks, patience) = (0, Instant::now() + Duration::from_secs(20));
        let result = channel.wait(Wait::Frames, |_| {
            // A peer that does so all the time.
            channel.attachment().own_lines().wake.pending[0].fetch_or(1 << 1, SeqCst);
            looks += 1;
            // Before the second look, others could still have come first.
            driving.store(looks > 1, SeqCst);
            let over = had.load(SeqCst) || Instant::now() > patience;
            Ok::<_, ChannelError>(over.then(|| had.load(SeqCst)))
        });
        result.expect("no errors")
    });
    assert!(in_time, "it waited for the end of the wait");
}

#[test]
fn a_frame_that_no_ring_takes_is_refused_and_leaves_the_rank_as_it_was() {
    let (segment, files) = segment();
    let (channel, taken) = start(&files, 0);
    let mut guard = channel.lock().expect("lock");
    let long = vec![7; RING_BYTES];
    let refused = guard.send(0, &[&long]);
    let Err(ChannelError::Protocol(SendError::TooLong { length, most })) = refused else {
        panic!("{refused:?}");
    };
    assert_eq!(length, RING_BYTES);
    // Under Miri files cannot be read.
    let copied = cfg!(miri) || SegmentCopy::take(&segment, &files, 64 << 20).is_ok();
    assert!(copied, "no change is open");
    assert!(guard.send(0, &[&long[..most]]).expect("sent"));
    guard.progress().expect("progress");
    assert_eq!(*taken.lock().expect("frames"), [&long[..most]]);
    assert_eq!(segment.sample(0).counters[0], ("sent", 1));
}
