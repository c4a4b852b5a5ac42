//! Model of the table of turns: what a rank sees of it while the switching thread changes it.

use loom::sync::Arc;
use loom::thread;

use super::explore;
use crate::sync::{AtomicU32, AtomicU64, begin};
use crate::turn_table::{set, word, words};

#[derive(Default)]
struct Page {
    used: AtomicU32,
    places: [AtomicU64; 3],
}

/// A job that has its turn before and after a change is seen by whoever looks in between, and nobody is seen who never had one.
pub fn a_job_that_keeps_its_turn_is_never_missed() {
    explore(3, || {
        let _run = begin(std::ptr::null(), 0);
        let page = Arc::new(Page::default());
        set(&page.places, &page.used, [1, 2].into_iter());
        let switching = Arc::clone(&page);
        let thread = thread::spawn(move || {
            set(&switching.places, &switching.used, [2, 3, 4].into_iter());
        });
        let seen: Vec<u64> = words(&page.places, &page.used).collect();
        assert!(seen.contains(&word(2)), "{seen:?}");
        assert!(seen.iter().all(|&job| (word(1)..=word(4)).contains(&job)), "{seen:?}");
        thread.join().expect("it ends");
    });
}
