//! Frames whose bytes change while the engine takes them, as a hostile rank of the node can have it in a ring.

use super::*;
use kumi_proto::frame::Payload;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// A frame of which every byte is another one after so many reads.
#[derive(Clone, Copy, Default)]
struct ChangingFrame<'f> {
    before: &'f [u8],
    after: &'f [u8],
    reads: &'f [Cell<u32>],
    turn: u32,
}

impl ChangingFrame<'_> {
    fn read(self) -> Vec<u8> {
        let one = |at: usize| {
            let reads = self.reads[at].replace(self.reads[at].get() + 1);
            if reads < self.turn { self.before[at] } else { self.after[at] }
        };
        (0..self.before.len()).map(one).collect()
    }
}

impl Payload for ChangingFrame<'_> {
    fn len(self) -> usize {
        self.before.len()
    }

    fn split_at(self, at: usize) -> (Self, Self) {
        let (before, before_rest) = self.before.split_at(at);
        let (after, after_rest) = self.after.split_at(at);
        let (reads, rest) = self.reads.split_at(at);
        let first = ChangingFrame { before, after, reads, ..self };
        (first, ChangingFrame { before: before_rest, after: after_rest, reads: rest, ..self })
    }

    fn copy_to(self, into: &mut [u8]) {
        into.copy_from_slice(&self.read());
    }

    fn append_to(self, vector: &mut Vec<u8>) {
        vector.extend(self.read());
    }

    fn private<'r>(self, room: &'r mut [u8]) -> &'r [u8]
    where
        Self: 'r,
    {
        self.copy_to(room);
        room
    }
}

impl CopySource for ChangingFrame<'_> {
    fn address(self) -> *const u8 {
        self.before.as_ptr()
    }

    fn copy_to_shared(self, to: SharedBytesMut<'_>) {
        to.copy_from(&self.read()[..]);
    }
}

/// Frames of 80 bytes with these places and bounds: a put, a strided one and a list. All fit if `wild` is 0.
fn frames(window: WindowKey, wild: u32) -> [Vec<u8>; 3] {
    let (token, last, notify, offset) = (9, true, None, u64::from(wild));
    let data = &[0xee; 56][..];
    let put = Frame::Put { window, offset, notify, data };
    let (data, block) = (&data[..36], 4);
    let stride = 4 + u64::from(wild);
    let strided = Frame::PutStrided { token, last, window, offset: 0, stride, block, notify, data };
    let pieces = &list(&[(wild, 8), (8 + wild, 8), (16, 8)])[..];
    let data = &data[..24];
    let listed = Frame::PutList(PutList { token, last, window, offset: 0, notify, pieces, data });
    [put, strided, listed].map(|frame| encode(&frame))
}

/// How far beyond the window of 64 bytes the wild frames reach: into its page, and into the next window's.
const WILD: [u32; 4] = [64, 1000, 3000, 5000];

/// Nothing but the first 64 bytes of the arena, which are the open window, was written.
fn assert_nothing_else(attachment: &Attachment) {
    // SAFETY: the arena is mapped as long as the attachment is.
    let arena = unsafe { SharedBytes::new(attachment.open_arena(0), 16 * 4096) };
    let outside = arena.slice(64, 16 * 4096 - 64).to_vec();
    let wrong = outside.iter().position(|byte| *byte != 0);
    assert_eq!(wrong, None, "written outside of the window");
}

#[test]
fn what_changes_between_two_reads_leads_nowhere_else() {
    let (attachment, mut engine, pieces) = rank();
    assert_eq!(pieces[OPEN].base, attachment.open_arena(0));
    for wild in WILD {
        let window = pieces[OPEN].key;
        for (good, bad) in frames(window, 0).iter().zip(&frames(window, wild)) {
            assert_eq!(good.len(), bad.len());
            for (before, after) in [(good, bad), (bad, good)] {
                for turn in 0..if cfg!(miri) { 1 } else { 5 } {
                    let reads = vec![Cell::new(0); good.len()];
                    let frame = ChangingFrame { before, after, reads: &reads, turn };
                    assert_eq!(engine.frame(&attachment, 0, frame), Delivery::Taken);
                    assert_nothing_else(&attachment);
                    engine.answers.clear();
                    engine.fault = None;
                }
            }
        }
    }
}

/// Two threads: one writes good and wild frames in turn where the other takes them.
#[test]
#[cfg_attr(
    miri,
    ignore = "accesses of different sizes at the same time, as a hostile rank does them"
)]
fn a_frame_that_is_written_while_it_is_taken_leads_nowhere_else() {
    let (attachment, mut engine, pieces) = rank();
    let window = pieces[OPEN].key;
    for kind in 0..3 {
        let mut memory = [0u64; 10];
        // SAFETY: the memory stays until the threads have ended, and is used through this value only.
        let record = unsafe { SharedBytesMut::new(NonNull::from(&mut memory).cast(), 80) };
        let good = &frames(window, 0)[kind];
        let wild = WILD.map(|wild| frames(window, wild)[kind].clone());
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    for bad in &wild {
                        record.slice(0, bad.len()).copy_from(&bad[..]);
                        record.slice(0, good.len()).copy_from(&good[..]);
                    }
                }
            });
            for round in 0..20_000 {
                let frame = record.slice(0, good.len()).shared();
                assert_eq!(engine.frame(&attachment, 0, frame), Delivery::Taken);
                engine.answers.clear();
                engine.fault = None;
                if round % 1000 == 0 {
                    assert_nothing_else(&attachment);
                }
            }
            stop.store(true, Relaxed);
        });
        assert_nothing_else(&attachment);
    }
}
