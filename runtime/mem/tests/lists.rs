//! Lists of pieces: guarantees beyond those that `one_sided` compares with a reference memory.

mod common;
mod reference;

use common::{Job, Numbers, closed_gate, counter, run, start};
use kumi_mem::{Context, Error, OnPlacement, Piece, Refusal, Rights, Window};
use kumi_proto::frame::{GET_LIST_BYTES, MOST_GET_PIECES, PIECE_BYTES};
use reference::Reference;

const BOTH: &[&[u32]] = &[&[2], &[1, 1]];

fn piece(offset: usize, length: usize) -> Piece {
    Piece { offset, length }
}

/// Of pieces that overlap the last remains, in whatever frames they go.
#[test]
fn the_last_of_overlapping_pieces_remains() {
    run("the_last_of_overlapping_pieces_remains", BOTH, |context| {
        let (me, other) = (context.rank(), 1 - context.rank());
        let window = context.window(10_000).expect("window");
        let mut numbers = Numbers(5);
        let (mut pieces, mut expected) = (Vec::new(), vec![0; 10_000]);
        let mut data = Vec::new();
        for number in 0..if cfg!(miri) { 60 } else { 3000u32 } {
            let length = numbers.below(40) as usize;
            let offset = numbers.below(200) as usize;
            pieces.push(piece(offset, length));
            data.extend(std::iter::repeat_n(number as u8, length));
            expected[offset..offset + length].fill(number as u8);
        }
        // And one over many frames.
        pieces.push(piece(1000, 9000));
        data.extend(std::iter::repeat_n(me as u8 + 1, 9000));
        expected[1000..].fill(other as u8 + 1);
        window
            .put_list(other, &pieces, &data, OnPlacement { notify: Some(3), completion: None })
            .expect("put");
        window.wait_notify(3, 1).expect("wait");
        let mut memory = vec![0; 10_000];
        window.read(0, &mut memory).expect("read");
        assert!(memory == expected);
        context.barrier().expect("barrier");
        assert_eq!(window.notified(3).expect("notified"), 1, "once");
        context.barrier().expect("barrier");
    });
}

/// Errors are found before anything is done.
fn check_wrong(window: &Window<'_>, other: u32, after: OnPlacement<'_>) {
    let outside = [piece(0, 10), piece(995, 6), piece(20, 0)];
    let result = window.put_list(other, &outside, &[7; 16], after);
    assert!(
        matches!(result, Err(Error::OutOfBounds { offset: 995, length: 6, size: 1000, .. })),
        "{result:?}"
    );
    let result = window.get_list(other, &[piece(0, 1), piece(1001, 0)], &mut [7]);
    assert!(matches!(result, Err(Error::OutOfBounds { offset: 1001, .. })), "{result:?}");
    for given in [15, 17] {
        let result = window.put_list(other, &outside, &vec![7; given], after);
        assert!(matches!(result, Err(Error::BadLength { needed: 16, .. })), "{result:?}");
        let result = window.get_list(other, &outside, &mut vec![7; given]);
        assert!(matches!(result, Err(Error::BadLength { needed: 16, .. })), "{result:?}");
    }
    let endless = [piece(0, usize::MAX), piece(0, 17)];
    let result = window.put_list(other, &endless, &[7; 16], after);
    assert!(matches!(result, Err(Error::BadLength { .. })), "{result:?}");
    let result = window.put_list(2, &outside, &[7; 16], after);
    assert!(matches!(result, Err(Error::BadRank { rank: 2, ranks: 2 })), "{result:?}");
    let notify = OnPlacement { notify: Some(64), completion: None };
    let result = window.put_list(other, &[piece(0, 1)], &[7], notify);
    assert!(matches!(result, Err(Error::BadNotify { notify: 64 })), "{result:?}");
}

#[test]
fn a_refused_list_touches_nothing_and_is_told_once() {
    run("a_refused_list_touches_nothing_and_is_told_once", BOTH, |context| {
        let other = 1 - context.rank();
        let near = context.same_node(other);
        let window = context.window(1000).expect("window");
        let rights = Rights { write: false, read: false, atomic: true };
        let sealed = context.window_with(20_000, rights).expect("window");
        let completion = context.completion().expect("completion");
        let after = OnPlacement { notify: Some(0), completion: Some(&completion) };
        check_wrong(&window, other, after);
        // The right is missing: found by the target, in each of several frames, told once.
        let many: Vec<Piece> =
            (0..if cfg!(miri) { 200 } else { 5000 }).map(|at| piece(at * 4, 3)).collect();
        for pieces in [&many[..], &many[..2], &[]] {
            let data = vec![7; pieces.len() * 3];
            let result = sealed.put_list(other, pieces, &data, after);
            if near {
                assert!(matches!(result, Err(Error::NoRight { .. })), "{result:?}");
            } else {
                result.expect("refused later");
                let told = completion.wait(1);
                assert!(
                    matches!(told, Err(Error::Refused { count: 1, reason: Refusal::Right, .. })),
                    "{told:?}"
                );
            }
            let result = sealed.get_list(other, pieces, &mut data.clone());
            assert!(matches!(result, Err(Error::NoRight { .. })), "{result:?}");
            // Nothing of it comes later.
            window.get_list(other, &many[..300], &mut [0; 900]).expect_err("too long");
            window.get_list(other, &many[..200], &mut [0; 600]).expect("get");
        }
        window.put_list(other, &[], &[], after).expect("nothing, but allowed");
        assert_eq!(completion.wait(1).expect("wait"), 1);
        window.wait_notify(0, 1).expect("wait");
        context.flush(other).expect("told already");
        context.barrier().expect("barrier");
        for (piece, notified) in [(&sealed, 0), (&window, 1)] {
            let mut memory = vec![9; piece.len()];
            piece.read(0, &mut memory).expect("read");
            assert!(memory.iter().all(|byte| *byte == 0), "untouched");
            assert_eq!(piece.notified(0).expect("notified"), notified);
        }
        context.barrier().expect("barrier");
    });
}

/// As many pieces as fit go into one frame: lists are for that.
#[test]
fn a_frame_carries_many_pieces() {
    run("a_frame_carries_many_pieces", &[&[1, 1]], |context| {
        let window = context.window(8000).expect("window");
        let sent = || {
            let counters = context.counters();
            counters.iter().find(|(name, _)| *name == "sent").expect("counter").1
        };
        context.barrier().expect("barrier");
        if context.rank() == 0 {
            let pieces: Vec<Piece> = (0..80).rev().map(|at| piece(at * 100, 8)).collect();
            let before = sent();
            window.put_list(1, &pieces, &[7; 640], OnPlacement::default()).expect("put");
            assert_eq!(sent() - before, 1);
            let mut back = [0; 640];
            window.get_list(1, &pieces, &mut back).expect("get");
            assert_eq!((sent() - before, back), (2, [7; 640]));
        }
        context.barrier().expect("barrier");
    });
}

/// A long get sends as many requests as may be under way before any is answered, and waits once for all.
#[test]
#[cfg_attr(miri, ignore = "the job is over before the test looks at it")]
fn several_requests_of_a_get_are_under_way() {
    let most = ((1472 - 32 - GET_LIST_BYTES) / PIECE_BYTES).min(MOST_GET_PIECES);
    let pieces: Vec<Piece> = (0..40 * most - 5).map(|at| piece(at * 56 % 2040, 8)).collect();
    let body = |context: &Context| {
        let window = context.window(4096).expect("window");
        let memory: Vec<u8> = (0..2048).map(|at| (at % 251) as u8).collect();
        window.write(0, &memory).expect("write");
        context.barrier().expect("barrier");
        // The test sees by this that the barrier is behind.
        window.put(context.rank(), 2048, &[1; 8]).expect("put");
        if context.rank() == 0 {
            while closed_gate(window.base() as usize) {}
            let counts = || {
                ["sent", "waits_spun", "waits_blocked"].map(|name| {
                    let counters = context.counters();
                    counters.iter().find(|(key, _)| *key == name).expect("counter").1
                })
            };
            let (before, mut got) = (counts(), vec![0; 8 * pieces.len()]);
            window.get_list(1, &pieces, &mut got).expect("get");
            let after = counts();
            let part = |piece: &Piece| &memory[piece.offset..piece.offset + piece.length];
            assert!(got == pieces.iter().map(part).collect::<Vec<_>>().concat());
            assert_eq!(after[0] - before[0], 40, "requests");
            assert_eq!(after[1] + after[2] - before[1] - before[2], 1, "waits");
        }
        context.barrier().expect("barrier");
    };
    let job = Job { layout: &[1, 1], ..Job::default() };
    let job = start("several_requests_of_a_get_are_under_way", &job, body);
    job.until("rank 1 waits at the second barrier", |job| {
        let past = [0, 1].iter().all(|rank| counter(&job.sample(*rank), "direct_puts") > 0);
        let all_there = job.total("sent") == job.total("delivered");
        job.sample(1).idle && past && all_there
    });
    job.signal(1, libc::SIGSTOP);
    let sent = || counter(&job.sample(0), "sent");
    let before = sent();
    job.open_gate();
    job.until("all that may be under way is", |_| sent() >= before + 16);
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(sent(), before + 16);
    job.signal(1, libc::SIGCONT);
    job.finish();
}

/// Lists, and all other operations between them, on a wire that loses, doubles and holds back
/// packets.
#[test]
#[cfg_attr(miri, ignore = "ranks have one environment here")]
fn a_bad_wire_does_not_show() {
    let body = |context: &Context| {
        let completion = context.completion().expect("completion");
        let mut reference = Reference::new(context, &completion);
        reference.steps(300, 790);
        reference.finish();
    };
    let env = &[("KUMI_FAULTS", "loss=30,double=20,late=30,seed=6")];
    let job = Job { layout: &[1, 2, 1], env, ..Job::default() };
    start("a_bad_wire_does_not_show", &job, body).finish_on_a_bad_wire();
}
