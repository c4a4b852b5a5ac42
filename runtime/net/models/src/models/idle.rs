//! Model of the idle flag: conclusions of a daemon from the context of a running rank.

use loom::sync::Arc;
use loom::thread;

use super::explore;
use crate::idle_flag::{sample, set_idle, tell_delivered};
use crate::sync::{AtomicU32, AtomicU64, begin};

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
