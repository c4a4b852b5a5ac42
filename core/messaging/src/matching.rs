//! Which receive takes which message.
//!
//! A receive names a tag and bits of it that do not count, and one sender or any. Receives are in classes: those that ignore the same
//! bits and name a sender, or none. In each class a hash finds those that a message fits. Programs use few classes, so a message
//! finds the oldest receive by as many lookups. A receive that ignores nothing finds the oldest message by one lookup; others look through
//! the messages in their order.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use core::hash::{BuildHasherDefault, Hash, Hasher};

use hashbrown::HashMap;

use crate::port::Address;

/// Hashes a tag and an address. Neither is chosen by a stranger: both come from ranks of the same job, which can only slow down their own job.
#[derive(Debug, Default, Clone, Copy)]
pub struct TagHasher(u64);

impl Hasher for TagHasher {
    fn finish(&self) -> u64 {
        // The table uses the highest and the lowest bits.
        self.0 ^ (self.0 >> 32)
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }
    fn write_u64(&mut self, word: u64) {
        // Odd, with bits all over it: the golden ratio.
        self.0 = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }
    fn write_u16(&mut self, word: u16) {
        self.write_u64(u64::from(word));
    }
    fn write_u8(&mut self, word: u8) {
        self.write_u64(u64::from(word));
    }
    fn write_usize(&mut self, word: usize) {
        self.write_u64(word as u64);
    }
}

type Table<K, V> = HashMap<K, V, BuildHasherDefault<TagHasher>>;

/// Which messages a receive takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pattern {
    /// Only from there.
    pub source: Option<Address>,
    /// The tag.
    pub tag: u64,
    /// Bits of the tag that do not count.
    pub ignore: u64,
}

impl Pattern {
    /// Whether it takes a message.
    #[must_use]
    pub fn takes(&self, source: Address, tag: u64) -> bool {
        self.source.is_none_or(|wanted| wanted == source) && (self.tag ^ tag) & !self.ignore == 0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key {
    source: Option<Address>,
    tag: u64,
}

/// Receives that name a sender, or do not, and ignore the same bits.
#[derive(Debug)]
struct Class<R> {
    directed: bool,
    ignore: u64,
    receives: Table<Key, VecDeque<(u64, R)>>,
}

impl<R> Class<R> {
    fn key(&self, source: Address, tag: u64) -> Key {
        Key { source: self.directed.then_some(source), tag: tag & !self.ignore }
    }
}

/// Receives that wait for their message.
#[derive(Debug)]
pub struct PostedReceives<R> {
    /// None is empty.
    classes: Vec<Class<R>>,
    next: u64,
    count: usize,
}

impl<R> Default for PostedReceives<R> {
    fn default() -> Self {
        PostedReceives { classes: Vec::new(), next: 0, count: 0 }
    }
}

/// A receive that has been found, and its place in the order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found<R> {
    /// Its place.
    pub number: u64,
    /// What was posted.
    pub receive: R,
}

impl<R> PostedReceives<R> {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Receives posted so far.
    #[must_use]
    pub fn posted(&self) -> u64 {
        self.next
    }

    /// Which messages the first receive takes.
    #[must_use]
    pub fn first(&self) -> Option<Pattern> {
        let first = |queue: &VecDeque<(u64, R)>| queue.front().map(|(number, _)| *number);
        self.queues(first).min_by_key(|(number, _)| *number).map(|(_, pattern)| pattern)
    }

    /// Which messages the receive takes that was posted last.
    #[must_use]
    pub fn last(&self) -> Option<Pattern> {
        let last = |queue: &VecDeque<(u64, R)>| queue.back().map(|(number, _)| *number);
        self.queues(last).max_by_key(|(number, _)| *number).map(|(_, pattern)| pattern)
    }

    /// The number of one receive of each queue, and which messages it takes.
    fn queues(
        &self,
        number: impl Fn(&VecDeque<(u64, R)>) -> Option<u64>,
    ) -> impl Iterator<Item = (u64, Pattern)> {
        let queues = self.classes.iter().flat_map(|class| {
            class.receives.iter().map(move |(key, queue)| (class.ignore, key, queue))
        });
        queues.filter_map(move |(ignore, key, queue)| {
            Some((number(queue)?, Pattern { source: key.source, tag: key.tag, ignore }))
        })
    }

    /// Posts a receive, behind all others.
    pub fn post(&mut self, pattern: Pattern, receive: R) {
        let number = self.next;
        self.next += 1;
        self.queue(pattern).push_back((number, receive));
        self.count += 1;
    }

    /// Puts a receive back that a message has found, at its old place.
    pub fn put_back(&mut self, pattern: Pattern, found: Found<R>) {
        // It was the first of its queue, and nothing has been found since.
        self.queue(pattern).push_front((found.number, found.receive));
        self.count += 1;
    }

    fn queue(&mut self, pattern: Pattern) -> &mut VecDeque<(u64, R)> {
        let (directed, ignore) = (pattern.source.is_some(), pattern.ignore);
        let same = |class: &Class<R>| class.directed == directed && class.ignore == ignore;
        let place = self.classes.iter().position(same).unwrap_or_else(|| {
            self.classes.push(Class { directed, ignore, receives: Table::default() });
            self.classes.len() - 1
        });
        let class = &mut self.classes[place];
        let key = Key { source: pattern.source, tag: pattern.tag & !ignore };
        class.receives.entry(key).or_default()
    }

    /// Takes the receive out that was posted first of those that take this message.
    pub fn find(&mut self, source: Address, tag: u64) -> Option<Found<R>> {
        let first = |class: &Class<R>| {
            class
                .receives
                .get(&class.key(source, tag))
                .and_then(VecDeque::front)
                .map(|(number, _)| *number)
        };
        let heads = self.classes.iter().enumerate();
        let (_, place) = heads.filter_map(|(place, class)| Some((first(class)?, place))).min()?;
        let class = &mut self.classes[place];
        let key = class.key(source, tag);
        let queue = class.receives.get_mut(&key)?;
        let (number, receive) = queue.pop_front()?;
        if queue.is_empty() {
            class.receives.remove(&key);
        }
        self.taken(place);
        Some(Found { number, receive })
    }

    /// Takes the oldest receive out for which `is_it` holds.
    pub fn remove(&mut self, mut is_it: impl FnMut(&R) -> bool) -> Option<R> {
        let mut oldest: Option<(u64, usize, Key, usize)> = None;
        for (place, class) in self.classes.iter().enumerate() {
            for (key, queue) in &class.receives {
                let found = queue.iter().position(|(_, receive)| is_it(receive));
                let found = found.map(|at| (queue[at].0, place, *key, at));
                oldest = match (oldest, found) {
                    (Some(old), Some(new)) => Some(if new.0 < old.0 { new } else { old }),
                    (old, new) => old.or(new),
                };
            }
        }
        let (_, place, key, at) = oldest?;
        let queue = self.classes[place].receives.get_mut(&key)?;
        let (_, receive) = queue.remove(at)?;
        if queue.is_empty() {
            self.classes[place].receives.remove(&key);
        }
        self.taken(place);
        Some(receive)
    }

    fn taken(&mut self, place: usize) {
        self.count -= 1;
        // An empty class stays while there is no other: programs use the same ones again and again.
        if self.classes[place].receives.is_empty() && self.classes.len() > 4 {
            self.classes.swap_remove(place);
        }
    }

    /// Takes all out, in their order.
    pub fn drain(&mut self) -> Vec<R> {
        let classes = core::mem::take(&mut self.classes);
        self.count = 0;
        let queues = classes.into_iter().flat_map(|class| class.receives.into_values());
        let mut all: Vec<(u64, R)> = queues.flatten().collect();
        all.sort_by_key(|(number, _)| *number);
        all.into_iter().map(|(_, receive)| receive).collect()
    }
}

/// Messages that wait for their receive.
#[derive(Debug)]
pub struct UnexpectedMessages<M> {
    /// By their order.
    messages: BTreeMap<u64, (Address, u64, M)>,
    /// Numbers of those of a sender with a tag, in their order. None is empty.
    exact: Table<Key, VecDeque<u64>>,
    next: u64,
}

impl<M> Default for UnexpectedMessages<M> {
    fn default() -> Self {
        UnexpectedMessages { messages: BTreeMap::new(), exact: Table::default(), next: 0 }
    }
}

impl<M> UnexpectedMessages<M> {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.messages.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// A message that no receive has taken.
    pub fn push(&mut self, source: Address, tag: u64, message: M) {
        let number = self.next;
        self.next += 1;
        self.messages.insert(number, (source, tag, message));
        self.exact.entry(Key { source: Some(source), tag }).or_default().push_back(number);
    }

    fn find(&self, pattern: Pattern) -> Option<u64> {
        if pattern.source.is_some() && pattern.ignore == 0 {
            let key = Key { source: pattern.source, tag: pattern.tag };
            return self.exact.get(&key)?.front().copied();
        }
        let mut messages = self.messages.iter();
        messages
            .find(|(_, (source, tag, _))| pattern.takes(*source, *tag))
            .map(|(number, _)| *number)
    }

    /// The oldest message that a receive takes: its sender and tag, and itself.
    #[must_use]
    pub fn peek(&self, pattern: Pattern) -> Option<(Address, u64, &M)> {
        let (source, tag, message) = self.messages.get(&self.find(pattern)?)?;
        Some((*source, *tag, message))
    }

    /// Takes it out.
    pub fn take(&mut self, pattern: Pattern) -> Option<(Address, u64, M)> {
        let number = self.find(pattern)?;
        let (source, tag, message) = self.messages.remove(&number)?;
        let key = Key { source: Some(source), tag };
        if let Some(numbers) = self.exact.get_mut(&key) {
            // The first of all that a receive takes is also the first of those with its sender and tag.
            debug_assert_eq!(numbers.front(), Some(&number));
            numbers.pop_front();
            if numbers.is_empty() {
                self.exact.remove(&key);
            }
        }
        Some((source, tag, message))
    }

    /// Takes all out, in their order.
    pub fn drain(&mut self) -> impl Iterator<Item = (Address, u64, M)> + use<M> {
        self.exact.clear();
        core::mem::take(&mut self.messages).into_values()
    }
}

#[cfg(test)]
mod tests;
