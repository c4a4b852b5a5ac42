//! Copies of ranks' files: when they are refused, and what a channel that goes on with one has.
#![cfg(not(miri))] // Files and their lengths are the kernel's.

mod common;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use kumi_net::segment::{ContextReader, ContextReading, CopyError, Segment, SegmentCopy};
use kumi_net::segment::{SegmentError, SegmentFiles, SegmentSpec};
use kumi_net::{
    AnswerSender, AttachError, Attachment, Channel, ChannelError, ChannelSettings, CopySource,
    Delivery, Handler, SpinMode, Wait,
};

/// Ranks of the job; the last one is on another node.
const RANKS: u32 = 3;

/// Most bytes of a copy.
const MOST: usize = 64 << 20;

/// Keeps frames, or refuses them; looks at something whenever one comes.
struct Keeping {
    refuses: bool,
    frames: Arc<Mutex<Vec<Vec<u8>>>>,
    look: Box<dyn FnMut() + Send>,
}

impl Handler for Keeping {
    fn frame<S: CopySource>(&mut self, _: &Attachment, _: u32, frame: S) -> Delivery {
        (self.look)();
        if self.refuses {
            return Delivery::Full;
        }
        let mut bytes = vec![0; frame.len()];
        frame.copy_to(&mut bytes);
        self.frames.lock().expect("frames").push(bytes);
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

type Frames = Arc<Mutex<Vec<Vec<u8>>>>;

fn keeping(refuses: bool) -> (Keeping, Frames) {
    let frames = Frames::default();
    (Keeping { refuses, frames: Arc::clone(&frames), look: Box::new(|| {}) }, frames)
}

fn spec() -> SegmentSpec {
    SegmentSpec {
        channel_key: 9,
        seal_key: None,
        ranks: RANKS,
        local_ranks: 0..2,
        ring_bytes: 4096,
        arena_bytes: 8192,
    }
}

fn publish(made: Result<(Segment, SegmentFiles), SegmentError>) -> (Segment, SegmentFiles) {
    let (mut segment, files) = made.expect("segment");
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    segment.publish_peers(&[nowhere; RANKS as usize], 1_472).expect("peers");
    (segment, files)
}

fn attach(files: &SegmentFiles, rank: u32) -> Result<Attachment, AttachError> {
    let attached = common::attach(files, (rank, RANKS), (rank as usize, 2));
    attached.map(|(attachment, ..)| attachment)
}

const SETTINGS: ChannelSettings = ChannelSettings { spin: SpinMode::Blind, handler: None };

/// Starts a rank without a thread that would serve it beside the test.
fn start(files: &SegmentFiles, rank: u32, handler: Keeping) -> Channel<Keeping> {
    let attachment = attach(files, rank).expect("attach");
    Channel::start(attachment, None, SETTINGS, handler).expect("start")
}

fn resume(files: &SegmentFiles, rank: u32, handler: Keeping) -> Channel<Keeping> {
    let attachment = attach(files, rank).expect("attach");
    Channel::resume(attachment, None, SETTINGS, handler, |_, _, _| false).expect("resume")
}

fn progress(channel: &Channel<Keeping>) {
    channel.lock().and_then(|mut guard| guard.progress()).expect("progress");
}

#[test]
fn frames_in_rings_are_taken_once_whatever_their_taker_knew_of_them() {
    let (segment, files) = publish(Segment::create(&spec()));
    let sender = start(&files, 0, keeping(false).0);
    let (taker, taken) = keeping(false);
    let taker = start(&files, 1, taker);
    let send = |channel: &Channel<Keeping>, frame: &[u8]| {
        assert!(channel.lock().expect("lock").send(1, &[frame]).expect("sent"));
    };
    send(&sender, b"one");
    progress(&taker);
    assert_eq!(*taken.lock().expect("frames"), [b"one"]);
    // The mark of the ring is gone with the refusal, which only the old process knows of.
    taker.lock().expect("lock").handler().refuses = true;
    send(&sender, b"two");
    progress(&taker);
    send(&sender, b"three");
    progress(&taker);
    let copy = SegmentCopy::take(&segment, &files, MOST).expect("nothing is under way");
    assert!(copy.bytes() > 0);

    let (segment, files) = publish(Segment::go_on(&spec(), &copy));
    let (handler, taken) = keeping(false);
    let taker = resume(&files, 1, handler);
    progress(&taker);
    assert_eq!(*taken.lock().expect("frames"), [&b"two"[..], b"three"]);
    let sender = resume(&files, 0, keeping(false).0);
    send(&sender, b"four");
    progress(&taker);
    assert_eq!(taken.lock().expect("frames").last().expect("frames"), b"four");
    // Counts go on, so that a cut over both is right.
    sender.publish();
    let counter = |local: usize, name| {
        let counters = segment.sample(local).counters;
        counters.into_iter().find(|(found, _)| *found == name).expect("a counter").1
    };
    assert_eq!((counter(0, "sent"), counter(1, "delivered")), (4, 4));
}

#[test]
fn a_rank_that_was_stopped_in_a_wait_computes_when_it_goes_on() {
    let (segment, files) = publish(Segment::create(&spec()));
    // Rings have room, so a wait for it looks again and again.
    let waiting = start(&files, 0, keeping(false).0);
    let copied = waiting.wait(Wait::Room, |_| {
        if !segment.sample(0).idle {
            return Ok::<_, ChannelError>(None);
        }
        // As if it waited for a counter.
        waiting.attachment().own().state.wait_counter.store(8, Relaxed);
        Ok(Some(SegmentCopy::take(&segment, &files, MOST).expect("nothing is under way")))
    });
    let copy = copied.expect("idle at last");
    drop(waiting);

    let (segment, files) = publish(Segment::go_on(&spec(), &copy));
    let attachment = attach(&files, 0).expect("attach");
    let calm = |segment: &Segment| !segment.sample(0).idle && !segment.rank_activity(0).waits;
    assert!(calm(&segment), "it has joined and computes");
    let (handler, _) = keeping(false);
    let resumed = Channel::resume(attachment, None, SETTINGS, handler, |_, _, _| false);
    let resumed = resumed.expect("resume");
    assert!(calm(&segment), "it goes on and computes");
    assert_eq!(resumed.attachment().own().state.wait_counter.load(Relaxed), 0);
}

#[test]
fn a_rank_in_the_middle_of_a_change_is_not_copied() {
    let (segment, files) = publish(Segment::create(&spec()));
    let (segment, files) = (Arc::new(segment), Arc::new(files));
    let sender = start(&files, 0, keeping(false).0);
    let (mut handler, _) = keeping(false);
    let seen = Arc::<Mutex<Vec<_>>>::default();
    let (segment_there, files_there) = (Arc::clone(&segment), Arc::clone(&files));
    let seen_there = Arc::clone(&seen);
    handler.look = Box::new(move || {
        let copy = SegmentCopy::take(&segment_there, &files_there, MOST).map(|_| ());
        seen_there.lock().expect("seen").push(copy);
    });
    let taker = start(&files, 1, handler);
    let mut guard = sender.lock().expect("lock");
    let inside = guard.undivided(|guard| {
        assert!(guard.send(1, &[b"frame"]).expect("sent"));
        SegmentCopy::take(&segment, &files, MOST).map(|_| ())
    });
    assert!(matches!(inside, Err(CopyError::Busy { rank: 0 })), "{inside:?}");
    assert!(SegmentCopy::take(&segment, &files, MOST).is_ok(), "it is over");
    drop(guard);
    progress(&taker);
    let seen = std::mem::take(&mut *seen.lock().expect("seen"));
    assert!(matches!(seen[..], [Err(CopyError::Busy { rank: 1 })]), "{seen:?}");
    assert!(SegmentCopy::take(&segment, &files, MOST).is_ok(), "it is over");
}

#[test]
fn a_copy_has_no_more_than_it_may_and_nothing_of_what_was_only_touched() {
    let (segment, files) = publish(Segment::create(&spec()));
    let (writer, _other) = (start(&files, 0, keeping(false).0), start(&files, 1, keeping(false).0));
    let bytes = || SegmentCopy::take(&segment, &files, MOST).expect("at rest").bytes();
    let before = bytes();
    let arena = writer.attachment().readable_arena(0);
    let write = |byte: u8| {
        // SAFETY: the own arena, which nobody else uses now.
        unsafe { arena.as_ptr().write_volatile(byte) };
    };
    write(0);
    assert_eq!(bytes(), before, "touched");
    write(1);
    let after = bytes();
    assert!(after > before, "{after} bytes, {before} before");
    assert!(SegmentCopy::take(&segment, &files, after).is_ok());
    let refused = SegmentCopy::take(&segment, &files, after - 1).map(|_| ());
    assert!(
        matches!(refused, Err(CopyError::TooLarge { most }) if most == after - 1),
        "{refused:?}"
    );
}

#[test]
fn what_cannot_go_on_is_refused() {
    let (segment, files) = publish(Segment::create(&spec()));
    let none = attach(&files, 0).expect("attach");
    let result = Channel::resume(none, None, SETTINGS, keeping(false).0, |_, _, _| false);
    assert!(matches!(result, Err(AttachError::NoCopy(0))), "{result:?}");
    let _other = start(&files, 1, keeping(false).0);
    let copy = SegmentCopy::take(&segment, &files, MOST).expect("copy");

    for other in [
        SegmentSpec { ring_bytes: 8192, ..spec() },
        SegmentSpec { arena_bytes: 4096, ..spec() },
        SegmentSpec { ranks: 4, ..spec() },
        SegmentSpec { local_ranks: 1..3, ..spec() },
    ] {
        let result = Segment::go_on(&other, &copy).map(|_| ());
        assert!(matches!(result, Err(SegmentError::OtherSizes)), "{other:?}: {result:?}");
    }
    let (_segment, files) = publish(Segment::go_on(&spec(), &copy));
    let gone = attach(&files, 0).map(|_| ());
    assert!(matches!(gone, Err(AttachError::AlreadyAttached(0))), "it had left: {gone:?}");
    let one = attach(&files, 1).expect("attach");
    assert!(one.is_copy());
    let twice = attach(&files, 1).map(|_| ());
    assert!(matches!(twice, Err(AttachError::AlreadyAttached(1))), "{twice:?}");
    let result = Channel::start(one, None, SETTINGS, keeping(false).0);
    assert!(matches!(result, Err(AttachError::IsCopy(1))), "{result:?}");
}

#[test]
fn a_daemon_sees_channels_to_other_nodes() {
    let (segment, files) = publish(Segment::create(&spec()));
    let look = |local| segment.channel(local, &mut ContextReader::default()).expect("read");
    assert_eq!((look(0), look(7)), (ContextReading::Empty, ContextReading::Empty));
    let (attachment, socket, _) = common::attach(&files, (0, RANKS), (0, 2)).expect("attach");
    let channel = Channel::start(attachment, Some(socket), SETTINGS, keeping(false).0);
    let channel = channel.expect("start");
    assert!(channel.lock().expect("lock").send(2, &[b"frame"]).expect("sent"));
    let ContextReading::Seen { report, busy } = look(0) else { panic!("not seen") };
    assert!(!busy);
    let peers: Vec<_> = report.peers.iter().map(|peer| (peer.rank, peer.tail)).collect();
    assert_eq!((report.me, peers), (0, vec![(2, 1)]));
    assert_eq!(look(1), ContextReading::Empty);
}
