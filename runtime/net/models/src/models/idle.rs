//! Model of the idle flag: conclusions of a daemon from the context of a running rank.

use loom::sync::Arc;
use loom::thread;

use super::explore;
use crate::idle_flag::{sample, set_idle, tell_delivered};
use crate::layout::WaitPlace;
use crate::sync::{AtomicU32, AtomicU64, begin};
use crate::wait_place::{read, write};

#[derive(Default)]
struct Context {
    idle: AtomicU32,
    delivered: AtomicU64,
}

/// A rank clears its idle flag, takes a frame and counts it. A daemon that reads the count first and
/// the flag afterwards never takes it for idle after that frame.
pub fn a_sample_never_shows_idle_from_before_what_it_shows_delivered() {
    explore(3, || {
        let _run = begin(std::ptr::null(), 0);
        let context = Arc::new(Context::default());
        set_idle(&context.idle, true);
        let rank = Arc::clone(&context);
        let thread = thread::spawn(move || {
            set_idle(&rank.idle, false);
            tell_delivered(&rank.delivered, 1);
        });
        let (idle, delivered) = sample(&context.idle, &context.delivered);
        assert!(delivered == 0 || !idle);
        thread.join().expect("the rank ends");
    });
}

/// A rank describes a wait, then leaves it. A daemon never sees words of two waits together.
pub fn words_of_a_wait_are_of_one_moment() {
    explore(3, || {
        let _run = begin(std::ptr::null(), 0);
        let place = Arc::new(WaitPlace::default());
        let rank = Arc::clone(&place);
        let thread = thread::spawn(move || {
            write(&rank, &[1, 1]);
            write(&rank, &[2, 2]);
        });
        if let Some([one, other]) = read(&place) {
            assert_eq!(one, other);
        }
        thread.join().expect("the rank ends");
        assert_eq!(read(&place), Some([2, 2]));
    });
}

/// A rank describes its wait and sets its idle flag. Who sees the flag sees the description.
pub fn whoever_is_idle_has_described_its_wait() {
    explore(3, || {
        let _run = begin(std::ptr::null(), 0);
        let shared = Arc::new((Context::default(), WaitPlace::default()));
        let rank = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            write(&rank.1, &[7, 7]);
            set_idle(&rank.0.idle, true);
        });
        let (idle, _) = sample(&shared.0.idle, &shared.0.delivered);
        if idle {
            assert_eq!(read(&shared.1), Some([7, 7]));
        }
        thread.join().expect("the rank ends");
    });
}
