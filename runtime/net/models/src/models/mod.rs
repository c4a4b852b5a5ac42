//! The models. Each runs all its interleavings and panics at the first wrong one.

mod doorbell;
mod handover;
mod idle;
mod lock;
mod queue;
mod ring;
mod turns;

pub use doorbell::{
    a_mark_that_was_left, both_ways_round, room_wakes_the_producer, two_senders_wake_a_sleeper,
};
pub use handover::{
    a_request_is_served, a_request_is_served_while_main_comes_and_goes,
    a_thread_that_does_not_drive_is_told_the_news, rings_are_served_from_now_on,
    the_end_of_a_long_wait_is_noticed, the_end_of_a_long_wait_is_noticed_behind_another_operation,
    threads_of_a_program_pass_the_lock_on,
};
pub use idle::{
    a_sample_never_shows_idle_from_before_what_it_shows_delivered,
    whoever_is_idle_has_described_its_wait, words_of_a_wait_are_of_one_moment,
};
pub use lock::main_and_handler_exclude_each_other;
pub use queue::{a_full_queue_wakes_its_senders, records_of_two_senders, the_ports_thread_wakes};
pub use ring::{records_pass_in_order_through_a_full_ring, the_end_of_a_ring_is_skipped};
pub use turns::a_job_that_keeps_its_turn_is_never_missed;

use loom::model::Builder;
use loom::sync::{Condvar, Mutex};

use crate::sync::{Fences, fences};

/// Runs a model with at most so many preemptions in each of its interleavings.
fn explore(preemptions: usize, model: impl Fn() + Sync + Send + Copy + 'static) {
    for place in [Fences::Before, Fences::AfterWrites] {
        fences(place);
        let mut builder = Builder::new();
        builder.preemption_bound = Some(preemptions);
        builder.max_branches = 20_000;
        builder.check(model);
    }
}

/// A doorbell: the kernel counts the rings until somebody looks.
#[derive(Debug)]
struct ModelDoorbell(Mutex<u64>, Condvar);

impl ModelDoorbell {
    fn new() -> ModelDoorbell {
        ModelDoorbell(Mutex::new(0), Condvar::new())
    }

    fn ring(&self) {
        *self.0.lock().expect("no thread panics with it") += 1;
        self.1.notify_all();
    }

    fn wait(&self) {
        let mut count = self.0.lock().expect("no thread panics with it");
        while *count == 0 {
            count = self.1.wait(count).expect("no thread panics with it");
        }
        *count = 0;
    }
}
