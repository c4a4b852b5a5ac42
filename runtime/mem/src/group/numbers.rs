//! Numbers of groups. At each of its members, a group has a number that no other group there has.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::group::tag::NO_GROUP;

/// Words in which members tell which numbers are free, once all have been used.
pub(crate) const FREE_WORDS: usize = 64;

/// The numbers that a rank's groups have.
#[derive(Debug, Default)]
pub(crate) struct GroupNumbers(Mutex<Numbers>);

#[derive(Debug, Default)]
struct Numbers {
    /// The highest that was ever taken; 0 is the job's.
    last: u32,
    used: BTreeSet<u32>,
}

impl GroupNumbers {
    fn numbers(&self) -> MutexGuard<'_, Numbers> {
        // Nothing panics while it is locked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The least number above all that this rank has had.
    pub(crate) fn next(&self) -> u32 {
        self.numbers().last + 1
    }

    /// A bit for each of the first numbers that is free here.
    pub(crate) fn free_words(&self) -> [u64; FREE_WORDS] {
        let mut words = [u64::MAX; FREE_WORDS];
        words[0] &= !1;
        for number in self.numbers().used.range(..(FREE_WORDS as u32 * 64)) {
            words[(number / 64) as usize] &= !(1 << (number % 64));
        }
        words
    }

    /// The number is a group's from now on; false if it is another group's already.
    #[must_use]
    pub(crate) fn take(&self, number: u32) -> bool {
        let mut numbers = self.numbers();
        numbers.last = numbers.last.max(number);
        numbers.used.insert(number)
    }

    pub(crate) fn free(&self, number: u32) {
        self.numbers().used.remove(&number);
    }
}

/// What all members make of the numbers that each would take next.
pub(crate) fn agreed(nexts: impl IntoIterator<Item = u32>) -> Option<u32> {
    nexts.into_iter().max().filter(|number| *number < NO_GROUP)
}

/// The least number that is free at all members.
pub(crate) fn least_free<'w>(
    words: impl IntoIterator<Item = &'w [u64; FREE_WORDS]>,
) -> Option<u32> {
    let mut free = [u64::MAX; FREE_WORDS];
    for words in words {
        free.iter_mut().zip(words).for_each(|(free, word)| *free &= word);
    }
    let at = free.iter().position(|word| *word != 0)?;
    Some(at as u32 * 64 + free[at].trailing_zeros())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn numbers_are_used_again_only_when_all_have_been() {
        let (one, other) = (GroupNumbers::default(), GroupNumbers::default());
        assert_eq!((one.next(), agreed([one.next(), 7])), (1, Some(7)));
        assert!(one.take(7));
        one.free(7);
        assert_eq!(one.next(), 8);
        assert!(one.take(NO_GROUP - 1));
        assert_eq!(agreed([one.next(), other.next()]), None);
        assert_eq!(least_free([&one.free_words(), &other.free_words()]), Some(1), "0 is the job's");
        assert!((1..70).all(|number| one.take(number)) && other.take(70));
        assert_eq!(least_free([&one.free_words(), &other.free_words()]), Some(71));
        one.free(3);
        assert_eq!(least_free([&one.free_words(), &other.free_words()]), Some(3));
        let taken = (0..FREE_WORDS as u32 * 64).filter(|number| other.take(*number)).count();
        assert_eq!(taken, FREE_WORDS * 64 - 1, "one was");
        assert_eq!(least_free([&one.free_words(), &other.free_words()]), None);
    }

    #[test]
    fn a_number_is_taken_once() {
        let numbers = GroupNumbers::default();
        assert!(numbers.take(3) && !numbers.take(3));
        assert_eq!(numbers.next(), 4);
        numbers.free(3);
        assert!(numbers.take(3));
        let taken = AtomicUsize::new(0);
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    let mine = (10..60).filter(|number| numbers.take(*number)).count();
                    taken.fetch_add(mine, Relaxed);
                });
            }
        });
        assert_eq!(taken.into_inner(), 50);
    }
}
