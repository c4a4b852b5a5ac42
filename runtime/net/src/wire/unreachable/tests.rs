//! Tests of unreachable peers, with a driver that refuses packets.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::SeqCst;

use super::*;
use crate::CopySource;
use crate::channel::core::AnswerSender;
use crate::segment::attachment::Attachment;
use crate::segment::launch::{LaunchDescriptors, bind_socket, doorbell};
use crate::segment::{Segment, SegmentSpec};
use crate::wire::driver::{Driver, PacketRun, SleepDescriptors};
use crate::{Channel, ChannelSettings, Delivery, SpinMode, Wait};

/// Sends nothing; says that the kernel refuses with this code, or takes all if it is 0.
#[derive(Debug)]
struct RefusingDriver {
    code: Arc<AtomicI32>,
    sleep_on: SleepDescriptors,
}

impl Driver for RefusingDriver {
    fn receive(&mut self) -> io::Result<bool> {
        Ok(false)
    }

    fn received(&self) -> PacketRun<'_> {
        PacketRun::contiguous(&[], 1, false)
    }

    fn send(&mut self, _: &Attachment, _: Rank, _: PacketRun<'_>) -> io::Result<bool> {
        Ok(self.code.load(SeqCst) == 0)
    }

    fn refusal(&self) -> Option<i32> {
        Some(self.code.load(SeqCst)).filter(|code| *code != 0)
    }

    fn too_long(&mut self) -> bool {
        false
    }

    fn longest(&self, _: &Attachment, _: Rank) -> Option<usize> {
        None
    }

    fn sleep_on(&self) -> SleepDescriptors {
        self.sleep_on
    }

    fn watch_for_gone(&self) -> io::Result<()> {
        Ok(())
    }

    fn gone(&self, _: &Attachment) -> Option<Rank> {
        None
    }
}

/// Takes nothing, wants nothing.
struct NoHandler;

impl Handler for NoHandler {
    fn frame<S: CopySource>(&mut self, _: &Attachment, _: Rank, _: S) -> Delivery {
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

/// The channel of rank 0 of two, each on a node of its own, with a wire whose answer can be changed. A peer counts as
/// unreachable after `patience` microseconds.
fn channel(patience: u64) -> (Channel<NoHandler>, Arc<AtomicI32>) {
    let (local_ranks, ring_bytes) = (0..1, 4096);
    let spec = SegmentSpec {
        channel_key: 9,
        seal_key: None,
        ranks: 2,
        local_ranks,
        ring_bytes,
        arena_bytes: 4096,
    };
    let (mut segment, files) = Segment::create(&spec).expect("segment");
    let (socket, port) = bind_socket((Ipv4Addr::LOCALHOST, 0)).expect("socket");
    let address = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    segment.publish_peers(&[address(port), address(9)], 1472).expect("peers");
    let bells = vec![doorbell().expect("doorbell")];
    let own = LaunchDescriptors::of(&files.for_rank(0), socket, bells).expect("dup");
    let launch = own.block(5, 0, 2, 1);
    let (attachment, socket) = Attachment::attach(&launch, own).expect("attach");
    let settings = ChannelSettings { spin: SpinMode::Blind, handler: None };
    let channel = Channel::start(attachment, Some(socket), settings, NoHandler).expect("start");
    let code = Arc::new(AtomicI32::new(0));
    let mut guard = channel.lock().expect("lock");
    let remote = guard.core().remote.as_mut().expect("a peer elsewhere");
    let refusing = RefusingDriver { code: Arc::clone(&code), sleep_on: remote.wire.sleep_on() };
    // Its descriptor stays open.
    std::mem::forget(std::mem::replace(&mut remote.wire, Box::new(refusing)));
    remote.unreachable.patience = patience;
    drop(guard);
    (channel, code)
}

fn send(channel: &Channel<NoHandler>) {
    let mut guard = channel.lock().expect("lock");
    assert!(guard.send(1, &[b"frame"]).expect("sent"));
    guard.transmit().expect("a refusal is a loss");
}

fn is_barred(error: &ChannelError, code: i32) -> bool {
    matches!(error, ChannelError::Unreachable { to: 1, reason } if reason.raw_os_error() == Some(code))
}

/// Waits for what never comes, until that fails.
fn wait_in_vain(channel: &Channel<NoHandler>) -> ChannelError {
    channel.wait(Wait::Frames, |_| Ok::<Option<()>, ChannelError>(None)).expect_err("in vain")
}

#[test]
fn a_wait_ends_when_a_peer_is_barred_for_long() {
    for code in [libc::EPERM, libc::EACCES, libc::EINVAL] {
        let (channel, refuses) = channel(20_000);
        refuses.store(code, SeqCst);
        send(&channel);
        let error = wait_in_vain(&channel);
        assert!(is_barred(&error, code), "{error}");
        let text = error.to_string();
        assert!(text.contains("rank 1 cannot be reached") && text.contains("firewall"), "{text}");
        // While it lasts, finished operations succeed and waits fail.
        assert_eq!(channel.wait(Wait::Frames, |_| Ok::<_, ChannelError>(Some(7))).unwrap(), 7);
        assert!(is_barred(&wait_in_vain(&channel), code));
        // The way is open again: the resends leave.
        refuses.store(0, SeqCst);
        let open = |guard: &mut crate::Guard<'_, NoHandler>| {
            Ok::<_, ChannelError>(guard.core().check_unreachable().is_ok().then_some(()))
        };
        while channel.wait(Wait::Frames, open).is_err() {}
    }
}

#[test]
fn only_what_lasts_is_no_loss() {
    let mut unreachable = UnreachablePeers::new();
    let check = |unreachable: &UnreachablePeers| unreachable.check();
    let second = |seconds: u64| seconds * 1_000_000;
    for time in 1..=5 {
        unreachable.refused(second(time), 1, libc::EPERM);
    }
    assert!(check(&unreachable).is_ok(), "not for long enough");
    // Of another peer that says nothing.
    unreachable.left(2);
    unreachable.refused(second(6), 1, libc::EACCES);
    assert!(is_barred(&check(&unreachable).unwrap_err(), libc::EACCES), "the last reason");
    unreachable.left(1);
    assert!(check(&unreachable).is_ok());
    unreachable.refused(second(7), 1, libc::EPERM);
    assert!(check(&unreachable).is_ok(), "it begins anew");
    // Nobody tried for long, so nothing is known.
    unreachable.refused(second(60), 1, libc::EPERM);
    assert!(check(&unreachable).is_ok());
    for time in 61..=65 {
        unreachable.refused(second(time), 2, libc::EPERM);
        unreachable.refused(second(time), 1, libc::EPERM);
    }
    assert!(is_barred(&check(&unreachable).unwrap_err(), libc::EPERM));
}
