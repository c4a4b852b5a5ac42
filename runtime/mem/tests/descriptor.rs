//! The descriptor of a completion queue, for programs that wait in a loop of their own.
#![cfg(not(miri))] // They wait with poll, which is not there.

mod common;

use std::os::fd::{AsRawFd, BorrowedFd};

use common::run;
use kumi_mem::{Context, Report, SharedBytesMut, Source, Tag};

/// Whether it becomes readable within this time.
fn readable(descriptor: BorrowedFd<'_>, milliseconds: i32) -> bool {
    let (fd, events) = (descriptor.as_raw_fd(), libc::POLLIN);
    let mut one = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: one structure of ours, which outlives the call.
    unsafe { libc::poll(&raw mut one, 1, milliseconds) == 1 }
}

/// The receiver does nothing but wait for the descriptor: the library's own thread has to take the messages, from the same node
/// too.
fn waits_outside(context: &Context) {
    const MINUTE: i32 = 60_000;
    let rounds = 20;
    if context.rank() != 0 {
        for round in 0..rounds {
            context.recv(Source::Rank(0), Tag::Is(1), &mut [0; 1]).expect("go on");
            context.send(0, 2, &[round; 300]).expect("send");
        }
        return;
    }
    let queue = context.completion_queue().expect("queue");
    let descriptor = queue.descriptor().expect("descriptor");
    assert!(!readable(descriptor, 0), "nothing has ended");
    let peers = context.ranks() - 1;
    for round in 0..rounds {
        let mut buffers = vec![[0; 300]; peers as usize];
        for (peer, buffer) in (1..).zip(&mut buffers) {
            let (word, into) = (u64::from(peer), SharedBytesMut::from(&mut buffer[..]));
            let report = Report::Queue(&queue, word);
            // SAFETY: the buffers outlive the round, at whose end all have been told.
            let begun =
                unsafe { context.start_receive(Source::Rank(peer), Tag::Is(2), into, report) };
            begun.expect("receive");
        }
        for peer in 1..=peers {
            context.send(peer, 1, &[0]).expect("go on");
        }
        let mut words = Vec::new();
        while words.len() < peers as usize {
            assert!(readable(descriptor, MINUTE), "an end that nobody shows");
            while let Some(entry) = queue.poll().expect("poll") {
                entry.result.expect("received");
                words.push(entry.word);
            }
            assert!(!readable(descriptor, 0), "all were taken");
        }
        words.sort_unstable();
        assert!(words.iter().copied().eq(1..=u64::from(peers)), "{words:?}");
        assert!(buffers.iter().all(|buffer| *buffer == [round; 300]));
    }
}

#[test]
fn an_end_makes_the_descriptor_readable_though_the_program_does_not_call() {
    run(
        "an_end_makes_the_descriptor_readable_though_the_program_does_not_call",
        &[&[2], &[1, 1], &[2, 1]],
        waits_outside,
    );
}

/// An entry that was there before is shown, too.
#[test]
fn a_descriptor_that_is_asked_for_late_is_readable() {
    run("a_descriptor_that_is_asked_for_late_is_readable", &[&[1]], |context| {
        let queue = context.completion_queue().expect("queue");
        let window = context.window(8).expect("window");
        let report = Report::Queue(&queue, 5);
        window.start_atomic(0, 0, kumi_mem::Atomic::Add64(1), report).expect("atomic");
        assert!(readable(queue.descriptor().expect("descriptor"), 0));
        assert_eq!(queue.wait().expect("entry").word, 5);
        assert!(!readable(queue.descriptor().expect("descriptor"), 0));
    });
}
