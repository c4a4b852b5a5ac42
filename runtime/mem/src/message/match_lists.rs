//! Lists in which messages and receives wait for each other: in their order, and by sender and tag.
//!
//! An entry is found by its key at once, whatever else waits. Entries that are looked for by patterns are in an ordered list,
//! too.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Sender and tag.
pub(crate) type MatchKey = (u32, i32);

/// No entry.
const NONE: u32 = u32::MAX;

/// The list of all, and the one of the entry's key.
const ALL: usize = 0;
const KEY: usize = 1;

/// Hash of a key, for a few instructions. Ranks of a job that choose tags which collide slow down their own job only.
#[derive(Debug, Default)]
pub(crate) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32((*byte).into());
        }
    }

    fn write_u32(&mut self, number: u32) {
        // Knuth's multiplicative hashing; the table looks at the highest and the lowest bits.
        let mixed = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }

    fn write_i32(&mut self, number: i32) {
        self.write_u32(number.cast_unsigned());
    }
}

#[derive(Debug, Clone, Copy)]
struct Ends {
    first: u32,
    last: u32,
}

const EMPTY: Ends = Ends { first: NONE, last: NONE };

/// Neighbours in a list.
#[derive(Debug, Clone, Copy)]
struct Links {
    before: u32,
    behind: u32,
}

#[derive(Debug)]
struct Entry<T> {
    number: u64,
    key: Option<MatchKey>,
    /// In the list of all, and in that of its key, as far as it is in them.
    links: [Option<Links>; 2],
    value: T,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct MatchLists<T> {
    entries: Vec<Option<Entry<T>>>,
    free: Vec<u32>,
    all: Ends,
    by_key: HashMap<MatchKey, Ends, BuildHasherDefault<KeyHasher>>,
}

impl<T> Default for MatchLists<T> {
    fn default() -> MatchLists<T> {
        let (entries, free, by_key) = (Vec::new(), Vec::new(), HashMap::default());
        MatchLists { entries, free, all: EMPTY, by_key }
    }
}

impl<T> MatchLists<T> {
    /// Takes a value in that is in no list; its place.
    pub(crate) fn add(&mut self, number: u64, value: T) -> u32 {
        let entry = Some(Entry { number, key: None, links: [None; 2], value });
        match self.free.pop() {
            Some(place) => {
                self.entries[place as usize] = entry;
                place
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        }
    }

    /// Puts it into the list of all, behind those with lower numbers.
    pub(crate) fn link(&mut self, place: u32) {
        let after = self.last_below(self.all.last, ALL, place);
        self.insert(ALL, None, place, after);
    }

    /// Puts it into the list of a key, behind those with lower numbers.
    pub(crate) fn link_by(&mut self, key: MatchKey, place: u32) {
        let last = self.by_key.get(&key).map_or(NONE, |ends| ends.last);
        let after = self.last_below(last, KEY, place);
        if let Some(entry) = self.entry_mut(place) {
            entry.key = Some(key);
        }
        self.insert(KEY, Some(key), place, after);
    }

    /// Takes it out of the lists it is in.
    pub(crate) fn unlink(&mut self, place: u32) {
        for list in [ALL, KEY] {
            let Some(entry) = self.entry_mut(place) else { return };
            let Some(Links { before, behind }) = entry.links[list].take() else { continue };
            let key = entry.key.filter(|_| list == KEY);
            self.join(list, key, before, behind);
        }
    }

    /// Takes it out altogether.
    pub(crate) fn remove(&mut self, place: u32) -> Option<T> {
        self.unlink(place);
        let entry = self.entries.get_mut(place as usize)?.take()?;
        self.free.push(place);
        Some(entry.value)
    }

    /// The first with this key.
    pub(crate) fn first_by(&self, key: MatchKey) -> Option<u32> {
        if self.by_key.is_empty() {
            return None;
        }
        self.by_key.get(&key).map(|ends| ends.first)
    }

    /// The list of all, in order.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u32, &T)> {
        let mut next = self.all.first;
        std::iter::from_fn(move || {
            let place = next;
            let entry = self.entry(place)?;
            next = entry.links[ALL].map_or(NONE, |links| links.behind);
            Some((place, &entry.value))
        })
    }

    pub(crate) fn get(&self, place: u32) -> Option<&T> {
        self.entry(place).map(|entry| &entry.value)
    }

    pub(crate) fn get_mut(&mut self, place: u32) -> Option<&mut T> {
        self.entry_mut(place).map(|entry| &mut entry.value)
    }

    /// The number of what is at a place.
    pub(crate) fn number(&self, place: u32) -> Option<u64> {
        self.entry(place).map(|entry| entry.number)
    }

    fn entry(&self, place: u32) -> Option<&Entry<T>> {
        self.entries.get(place as usize)?.as_ref()
    }

    fn entry_mut(&mut self, place: u32) -> Option<&mut Entry<T>> {
        self.entries.get_mut(place as usize)?.as_mut()
    }

    /// From `last` backwards, the first with a lower number: at once but for what comes back to its old place.
    fn last_below(&self, mut last: u32, list: usize, place: u32) -> u32 {
        let Some(number) = self.number(place) else { return last };
        while let Some(entry) = self.entry(last)
            && entry.number > number
        {
            last = entry.links[list].map_or(NONE, |links| links.before);
        }
        last
    }

    fn insert(&mut self, list: usize, key: Option<MatchKey>, place: u32, before: u32) {
        let behind = match self.entry(before) {
            Some(entry) => entry.links[list].map_or(NONE, |links| links.behind),
            None => self.ends(key).first,
        };
        if let Some(entry) = self.entry_mut(place) {
            entry.links[list] = Some(Links { before, behind });
        }
        self.join(list, key, before, place);
        self.join(list, key, place, behind);
    }

    /// The ends of a list; of a key's, which is made.
    fn ends(&mut self, key: Option<MatchKey>) -> &mut Ends {
        match key {
            Some(key) => self.by_key.entry(key).or_insert(EMPTY),
            None => &mut self.all,
        }
    }

    /// Makes two places neighbours; none is an end of the list.
    fn join(&mut self, list: usize, key: Option<MatchKey>, before: u32, behind: u32) {
        match self.entry_mut(before).and_then(|entry| entry.links[list].as_mut()) {
            Some(links) => links.behind = behind,
            None => self.ends(key).first = behind,
        }
        match self.entry_mut(behind).and_then(|entry| entry.links[list].as_mut()) {
            Some(links) => links.before = before,
            None => self.ends(key).last = before,
        }
        if before == NONE
            && behind == NONE
            && let Some(key) = key
        {
            self.by_key.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// As a plain list does that is searched from its beginning.
        #[test]
        fn lists_are_as_a_plain_one(steps in prop::collection::vec((0u8..5, 0u32..3, any::<u8>()), 0..200)) {
            let mut lists = MatchLists::default();
            // Number, key, place, in the list of all, in that of its key.
            let mut plain: Vec<(u64, MatchKey, u32, bool, bool)> = Vec::new();
            let mut out: Vec<(u64, MatchKey, u32)> = Vec::new();
            for (number, (step, from, which)) in (0u64..).zip(steps) {
                let (key, which) = ((from, i32::from(which % 2)), usize::from(which));
                match step {
                    0..3 => {
                        let place = lists.add(number, number);
                        let (all, by) = (step < 2, step > 0);
                        if all { lists.link(place); }
                        if by { lists.link_by(key, place); }
                        plain.push((number, key, place, all, by));
                    }
                    3 if !plain.is_empty() => {
                        let gone = plain.remove(which % plain.len());
                        if which % 3 == 0 {
                            lists.unlink(gone.2);
                            out.push((gone.0, gone.1, gone.2));
                        } else {
                            prop_assert_eq!(lists.remove(gone.2), Some(gone.0));
                        }
                    }
                    _ if !out.is_empty() => {
                        // Back to its old place.
                        let (number, key, place) = out.swap_remove(which % out.len());
                        lists.link(place);
                        lists.link_by(key, place);
                        let at = plain.partition_point(|one| one.0 < number);
                        plain.insert(at, (number, key, place, true, true));
                    }
                    _ => {}
                }
                let all: Vec<u64> = lists.all().map(|(_, number)| *number).collect();
                let right: Vec<u64> = plain.iter().filter(|one| one.3).map(|one| one.0).collect();
                prop_assert_eq!(all, right);
                for key in (0..3).flat_map(|from| [(from, 0), (from, 1)]) {
                    let first = plain.iter().find(|one| one.4 && one.1 == key).map(|one| one.2);
                    prop_assert_eq!(lists.first_by(key), first);
                }
            }
            prop_assert!(lists.by_key.values().all(|ends| ends.first != NONE));
        }
    }
}
