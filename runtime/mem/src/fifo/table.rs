//! The FIFOs and signal ports of this rank, as its engine sees them: what others append by frames, and
//! who waits for room. Also what everybody does who appends or takes: wake others.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

use kumi_net::Place;
use kumi_net::layout::{NOTIFIES, ROOM, SIGNALS, WINDOWS};
use kumi_proto::Rank;
use kumi_proto::frame::WindowKey;

use crate::error::Refusal;
use crate::fifo::queue::{OVERHEAD, Push, Queue};
use crate::window::table::counter_index;

/// Where a FIFO is: the window's name and the offset.
pub(crate) type Key = (WindowKey, u64);

/// A request that waits for room.
#[derive(Debug)]
struct Parked {
    from: Rank,
    token: u64,
    length: usize,
}

#[derive(Debug)]
struct Entry {
    queue: Queue,
    capacity: u64,
    signal: bool,
    /// Number of the notification counter.
    notify: u32,
    parked: VecDeque<Parked>,
    /// How many are parked, for the taker, who looks without the channel's lock.
    waiting: Arc<AtomicU32>,
}

/// A record that came as a frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrived<'d> {
    pub(crate) from: Rank,
    pub(crate) token: u64,
    pub(crate) wait: bool,
    pub(crate) signal: bool,
    pub(crate) data: &'d [u8],
}

/// What became of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Taken,
    Parked,
    Refused(Refusal),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Fifos {
    entries: BTreeMap<Key, Entry>,
    parked: usize,
    /// Requests whose FIFO went away while they waited.
    orphans: Vec<(Rank, u64)>,
}

impl Fifos {
    /// Registers a queue; the count of ranks that wait for room in it and append by frames. `None` if its memory is
    /// another's already.
    pub(crate) fn add(
        &mut self,
        key: Key,
        queue: Queue,
        capacity: u64,
        signal: bool,
        notify: u32,
    ) -> Option<Arc<AtomicU32>> {
        let end = |offset: u64, capacity: u64| offset + OVERHEAD as u64 + capacity;
        let (window, offset) = key;
        let before = self.entries.range((window, 0)..(window, end(offset, capacity))).next_back();
        if before.is_some_and(|((_, at), entry)| end(*at, entry.capacity) > offset) {
            return None;
        }
        let waiting = Arc::new(AtomicU32::new(0));
        let parked = VecDeque::new();
        let entry =
            Entry { queue, capacity, signal, notify, parked, waiting: Arc::clone(&waiting) };
        self.entries.insert(key, entry);
        Some(waiting)
    }

    pub(crate) fn remove(&mut self, key: Key) {
        if let Some(entry) = self.entries.remove(&key) {
            self.parked -= entry.parked.len();
            let orphan = |parked: &Parked| (parked.from, parked.token);
            self.orphans.extend(entry.parked.iter().map(orphan));
        }
    }

    /// Removes all of a window.
    pub(crate) fn remove_window(&mut self, window: WindowKey) {
        let all = (window, 0)..=(window, u64::MAX);
        for key in self.entries.range(all).map(|(key, _)| *key).collect::<Vec<_>>() {
            self.remove(key);
        }
    }

    /// Appends what came as a frame.
    pub(crate) fn append(&mut self, place: &Place, key: Key, record: Arrived<'_>) -> Outcome {
        let found = self.entries.get_mut(&key).filter(|entry| entry.signal == record.signal);
        let Some(entry) = found else { return Outcome::Refused(Refusal::Fifo) };
        let length = record.data.len();
        match entry.queue.push(record.from, record.data) {
            Ok(Push::Taken) => {
                let index = counter_index(key.0, entry.notify);
                announce(place, place.local(), &entry.queue, (!entry.signal).then_some(index));
                Outcome::Taken
            }
            Ok(Push::Full) => {
                // A rank has one request under way; what claims otherwise gets no memory.
                let waits = entry.parked.iter().any(|parked| parked.from == record.from);
                if !record.wait || waits {
                    return Outcome::Refused(Refusal::Full);
                }
                let parked = Parked { from: record.from, token: record.token, length };
                entry.parked.push_back(parked);
                entry.waiting.fetch_add(1, SeqCst);
                self.parked += 1;
                Outcome::Parked
            }
            Ok(Push::TooLong) => Outcome::Refused(Refusal::Record),
            Err(_) => Outcome::Refused(Refusal::Damage),
        }
    }

    /// Requests wait, perhaps long enough.
    pub(crate) fn owes_answers(&self) -> bool {
        self.parked > 0 || !self.orphans.is_empty()
    }

    /// Requests that have waited long enough: rank, token, and the refusal unless there is room.
    /// Those of one FIFO in their order, as far as their records fit together.
    pub(crate) fn grants(&mut self) -> Vec<(Rank, u64, Option<Refusal>)> {
        let orphan = |(rank, token)| (rank, token, Some(Refusal::Fifo));
        let mut granted: Vec<_> = self.orphans.drain(..).map(orphan).collect();
        if self.parked == 0 {
            return granted;
        }
        for entry in self.entries.values_mut() {
            let mut together = 0;
            while let Some(first) = entry.parked.front() {
                let wanted = together + crate::fifo::queue::need(first.length);
                let refusal = match entry.queue.has_free(wanted) {
                    Ok(true) => None,
                    Ok(false) => break,
                    Err(_) => Some(Refusal::Damage),
                };
                together = wanted;
                granted.push((first.from, first.token, refusal));
                entry.parked.pop_front();
                entry.waiting.fetch_sub(1, SeqCst);
                self.parked -= 1;
            }
        }
        granted
    }
}

/// Tells the taker, a rank of this node, of a record: by the notification counter with this index,
/// or, at a signal port, by waking its thread.
pub(crate) fn announce(place: &Place, local: usize, queue: &Queue, counter: Option<usize>) {
    let Some(index) = counter else {
        place.context(local).notifies.0[SIGNALS].count.fetch_add(1, SeqCst);
        queue.wake_taker();
        return;
    };
    debug_assert!(index < NOTIFIES * WINDOWS);
    place.context(local).notifies.0[index].count.fetch_add(1, SeqCst);
    place.wake(local);
}

/// After a record was taken: tells the ranks that have the queue mapped and wait for room. True if ranks
/// that append by frames wait too: the channel then has to be served.
pub(crate) fn made_room(place: &Place, queue: &Queue, far: &AtomicU32) -> bool {
    let words = place.local_count().div_ceil(64);
    for index in 0..words {
        let mut bits = queue.take_waiting(index);
        while bits != 0 {
            let local = index * 64 + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            if local < place.local_count() {
                place.context(local).notifies.0[ROOM].count.fetch_add(1, SeqCst);
                place.wake(local);
            }
        }
    }
    far.load(SeqCst) != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fifo::queue::MARK_FIFO;

    const CAPACITY: u64 = 64;

    fn fixture() -> (Place, Fifos, Queue, Arc<AtomicU32>) {
        let place = Place::singleton(1 << 20).expect("place");
        // SAFETY: the start of the own arena, a page's multiple and long enough.
        let queue = unsafe { Queue::at(place.arena(0), CAPACITY) };
        queue.open(MARK_FIFO, 5);
        let mut fifos = Fifos::default();
        let far = fifos.add((3, 0), queue, CAPACITY, false, 5).expect("free");
        (place, fifos, queue, far)
    }

    fn arrived(from: Rank, token: u64, wait: bool, data: &[u8]) -> Arrived<'_> {
        Arrived { from, token, wait, signal: false, data }
    }

    fn pop(queue: &Queue, head: &mut u64) -> Vec<u8> {
        let next = queue.peek(*head, 9).expect("undamaged").expect("a record");
        let mut data = vec![0; next.length];
        *head = queue.take(*head, next, &mut data);
        data
    }

    #[test]
    fn who_waits_is_answered_in_order_as_room_comes() {
        let (place, mut fifos, queue, far) = fixture();
        let key = (3, 0);
        let mut head = 0;
        for from in 1..3 {
            let data = [from as u8; 24];
            let record = arrived(from, 0, true, &data);
            assert_eq!(fifos.append(&place, key, record), Outcome::Taken);
        }
        assert_eq!(place.own().notifies.0[counter_index(3, 5)].count.load(SeqCst), 2);
        let full = Outcome::Refused(Refusal::Full);
        assert_eq!(fifos.append(&place, key, arrived(3, 7, false, b"")), full);
        for (from, token, length) in [(3, 30, 24), (4, 40, 8), (5, 50, 8), (6, 60, 0)] {
            let record = arrived(from, token, true, &[0; 24][..length]);
            assert_eq!(fifos.append(&place, key, record), Outcome::Parked);
            // One request a rank.
            assert_eq!(fifos.append(&place, key, record), full);
        }
        assert_eq!((far.load(SeqCst), fifos.grants()), (4, vec![]));
        assert_eq!(pop(&queue, &mut head), [1; 24]);
        assert_eq!(fifos.grants(), [(3, 30, None)], "the first needs all of it");
        assert_eq!(pop(&queue, &mut head), [2; 24]);
        assert_eq!(fifos.grants(), [(4, 40, None), (5, 50, None), (6, 60, None)]);
        assert_eq!((far.load(SeqCst), fifos.owes_answers()), (0, false));
    }

    #[test]
    fn who_waits_for_what_goes_away_is_told() {
        let (place, mut fifos, _, far) = fixture();
        for _ in 0..2 {
            assert_eq!(fifos.append(&place, (3, 0), arrived(1, 0, true, &[1; 24])), Outcome::Taken);
        }
        assert_eq!(fifos.append(&place, (3, 0), arrived(2, 20, true, b"")), Outcome::Parked);
        fifos.remove_window(2);
        assert_eq!((fifos.grants(), far.load(SeqCst)), (vec![], 1));
        fifos.remove_window(3);
        assert!(fifos.owes_answers());
        assert_eq!(fifos.grants(), [(2, 20, Some(Refusal::Fifo))]);
        assert!(!fifos.owes_answers());
        let gone = Outcome::Refused(Refusal::Fifo);
        assert_eq!(fifos.append(&place, (3, 0), arrived(2, 21, true, b"")), gone);
    }

    #[test]
    fn what_cannot_be_is_refused_and_damage_ends_a_wait() {
        let (place, mut fifos, queue, _) = fixture();
        let key = (3, 0);
        for wrong in [(3, 64), (2, 0), (u64::MAX, u64::MAX)] {
            let found = fifos.append(&place, wrong, arrived(1, 1, true, b"x"));
            assert_eq!(found, Outcome::Refused(Refusal::Fifo));
        }
        let signal = Arrived { signal: true, ..arrived(1, 1, true, b"x") };
        assert_eq!(fifos.append(&place, key, signal), Outcome::Refused(Refusal::Fifo));
        let long = arrived(1, 1, true, &[0; 57]);
        assert_eq!(fifos.append(&place, key, long), Outcome::Refused(Refusal::Record));
        assert_eq!(fifos.append(&place, key, arrived(1, 1, true, &[0; 56])), Outcome::Taken);
        assert_eq!(fifos.append(&place, key, arrived(1, 1, true, b"")), Outcome::Parked);
        queue.open(MARK_FIFO, 5);
        assert_eq!(queue.push(1, &[0; 56]), Ok(Push::Taken));
        // SAFETY: the queue's tail, inside of the own arena.
        unsafe { place.arena(0).cast::<u64>().add(8).write_volatile(3) };
        assert_eq!(fifos.grants(), [(1, 1, Some(Refusal::Damage))]);
        let damaged = Outcome::Refused(Refusal::Damage);
        assert_eq!(fifos.append(&place, key, arrived(1, 2, true, b"")), damaged);
    }

    #[test]
    fn queues_do_not_overlap() {
        let (_place, mut fifos, queue, _) = fixture();
        let end = OVERHEAD as u64 + CAPACITY;
        let mut add = |window, at| fifos.add((window, at), queue, CAPACITY, true, 0).is_some();
        assert!(!add(3, 0) && !add(3, end - 64));
        assert!(add(3, end) && add(4, 0) && add(3, 3 * end));
        assert!(!add(3, 2 * end + 64), "into the one behind");
        assert!(add(3, 2 * end));
    }
}
