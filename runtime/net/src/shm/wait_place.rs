//! Place of a context where a thread describes its wait. The rank writes it with the channel's lock held; the daemon copies it
//! out while the rank runs.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::layout::{WAIT_WORDS, WaitPlace};
use crate::sync::fence;

/// Tries of a reader while the rank writes.
const TRIES: u32 = 4;

/// Writes all words of a place.
pub(crate) fn write(place: &WaitPlace, words: &[u64; WAIT_WORDS]) {
    let before = place.changes.load(Relaxed);
    place.changes.store(before.wrapping_add(1), Relaxed);
    // What follows is stored after that.
    fence(Release);
    for (word, value) in place.words.iter().zip(words) {
        word.store(*value, Relaxed);
    }
    place.changes.store(before.wrapping_add(2), Release);
}

/// The words of a place, all of one moment. None while they change.
pub(crate) fn read(place: &WaitPlace) -> Option<[u64; WAIT_WORDS]> {
    (0..TRIES).find_map(|_| {
        let before = place.changes.load(Acquire);
        let mut words = [0; WAIT_WORDS];
        for (word, value) in place.words.iter().zip(&mut words) {
            *value = word.load(Relaxed);
        }
        // What was loaded is loaded before what follows.
        fence(Acquire);
        (before & 1 == 0 && place.changes.load(Relaxed) == before).then_some(words)
    })
}
