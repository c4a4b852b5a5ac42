//! Table of this rank's FIFOs and signal ports: appends that come as frames, and requests that wait for
//! room. It also wakes takers and senders.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::SeqCst;

use kumi_net::layout::{NOTIFIES, ROOM, SIGNALS, WINDOWS};
use kumi_net::{Attachment, CopySource};
use kumi_proto::Rank;
use kumi_proto::frame::WindowKey;

use crate::error::Refusal;
use crate::fifo::queue::{OVERHEAD, PushOutcome, Queue};
use crate::window::table::counter_index;

/// Where a FIFO is: the window's name and the offset.
pub(crate) type FifoKey = (WindowKey, u64);

/// A request that waits for room.
#[derive(Debug)]
struct WaitingAppend {
    from: Rank,
    token: u64,
    length: usize,
}

#[derive(Debug)]
struct FifoEntry {
    queue: Queue,
    capacity: u64,
    signal: bool,
    /// Number of the notification counter.
    notify: u32,
    queued_appends: VecDeque<WaitingAppend>,
    /// How many are queued_appends, for the taker, who looks without the channel's lock.
    waiting: Arc<AtomicU32>,
}

/// A record that came as a frame.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IncomingRecord<S> {
    pub(crate) from: Rank,
    pub(crate) token: u64,
    pub(crate) wait: bool,
    pub(crate) signal: bool,
    pub(crate) data: S,
}

/// Outcome of an append.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AppendOutcome {
    Taken,
    Waiting,
    Refused(Refusal),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct FifoTable {
    entries: BTreeMap<FifoKey, FifoEntry>,
    queued_appends: usize,
    /// Requests whose FIFO went away while they waited.
    orphans: Vec<(Rank, u64)>,
}

impl FifoTable {
    /// Registers a queue; the count of ranks that wait for room in it and append by frames. `None` if its memory is
    /// another's already.
    pub(crate) fn add(
        &mut self,
        key: FifoKey,
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
        let queued_appends = VecDeque::new();
        let entry = FifoEntry {
            queue,
            capacity,
            signal,
            notify,
            queued_appends,
            waiting: Arc::clone(&waiting),
        };
        self.entries.insert(key, entry);
        Some(waiting)
    }

    pub(crate) fn remove(&mut self, key: FifoKey) {
        if let Some(entry) = self.entries.remove(&key) {
            self.queued_appends -= entry.queued_appends.len();
            let orphan =
                |queued_appends: &WaitingAppend| (queued_appends.from, queued_appends.token);
            self.orphans.extend(entry.queued_appends.iter().map(orphan));
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
    pub(crate) fn append(
        &mut self,
        attachment: &Attachment,
        key: FifoKey,
        record: IncomingRecord<impl CopySource>,
    ) -> AppendOutcome {
        let found = self.entries.get_mut(&key).filter(|entry| entry.signal == record.signal);
        let Some(entry) = found else { return AppendOutcome::Refused(Refusal::Fifo) };
        let length = record.data.len();
        match entry.queue.push(record.from, record.data) {
            Ok(PushOutcome::Taken) => {
                let index = counter_index(key.0, entry.notify);
                announce(
                    attachment,
                    attachment.local(),
                    &entry.queue,
                    (!entry.signal).then_some(index),
                );
                AppendOutcome::Taken
            }
            Ok(PushOutcome::Full) => {
                // A rank has one request in flight; a second one gets no memory.
                let waits = entry
                    .queued_appends
                    .iter()
                    .any(|queued_appends| queued_appends.from == record.from);
                if !record.wait || waits {
                    return AppendOutcome::Refused(Refusal::Full);
                }
                let queued_appends =
                    WaitingAppend { from: record.from, token: record.token, length };
                entry.queued_appends.push_back(queued_appends);
                entry.waiting.fetch_add(1, SeqCst);
                self.queued_appends += 1;
                AppendOutcome::Waiting
            }
            Ok(PushOutcome::TooLong) => AppendOutcome::Refused(Refusal::Record),
            Err(_) => AppendOutcome::Refused(Refusal::Damage),
        }
    }

    /// Requests wait, perhaps long enough.
    pub(crate) fn owes_answers(&self) -> bool {
        self.queued_appends > 0 || !self.orphans.is_empty()
    }

    /// Requests that have waited long enough: rank, token, and the refusal unless there is room.
    /// Those of one FIFO in their order, as far as their records fit together.
    pub(crate) fn grants(&mut self) -> Vec<(Rank, u64, Option<Refusal>)> {
        let orphan = |(rank, token)| (rank, token, Some(Refusal::Fifo));
        let mut granted: Vec<_> = self.orphans.drain(..).map(orphan).collect();
        if self.queued_appends == 0 {
            return granted;
        }
        for entry in self.entries.values_mut() {
            let mut together = 0;
            while let Some(first) = entry.queued_appends.front() {
                let wanted = together + crate::fifo::queue::need(first.length);
                let refusal = match entry.queue.has_free(wanted) {
                    Ok(true) => None,
                    Ok(false) => break,
                    Err(_) => Some(Refusal::Damage),
                };
                together = wanted;
                granted.push((first.from, first.token, refusal));
                entry.queued_appends.pop_front();
                entry.waiting.fetch_sub(1, SeqCst);
                self.queued_appends -= 1;
            }
        }
        granted
    }
}

/// Tells the taker, a rank of this node, of a record: by the notification counter with this index,
/// or, at a signal port, by waking its thread.
pub(crate) fn announce(
    attachment: &Attachment,
    local: usize,
    queue: &Queue,
    counter: Option<usize>,
) {
    let Some(index) = counter else {
        attachment.lines(local).notifies.0[SIGNALS].count.fetch_add(1, SeqCst);
        queue.wake_taker();
        return;
    };
    debug_assert!(index < NOTIFIES * WINDOWS);
    attachment.lines(local).notifies.0[index].count.fetch_add(1, SeqCst);
    attachment.wake(local);
}

/// After a record was taken: tells the ranks that have the queue mapped and wait for room. True if ranks
/// that append by frames wait too: the channel then has to be served.
pub(crate) fn made_room(attachment: &Attachment, queue: &Queue, by_frames: &AtomicU32) -> bool {
    let words = attachment.local_count().div_ceil(64);
    for index in 0..words {
        let mut bits = queue.take_waiting(index);
        while bits != 0 {
            let local = index * 64 + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            if local < attachment.local_count() {
                attachment.lines(local).notifies.0[ROOM].count.fetch_add(1, SeqCst);
                attachment.wake(local);
            }
        }
    }
    by_frames.load(SeqCst) != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fifo::queue::MARK_FIFO;

    const CAPACITY: u64 = 64;

    fn fixture() -> (Attachment, FifoTable, Queue, Arc<AtomicU32>) {
        let attachment = Attachment::singleton(1 << 20).expect("attachment");
        // SAFETY: the start of the own arena, a page's multiple and long enough.
        let queue = unsafe { Queue::at(attachment.open_arena(0), CAPACITY) };
        queue.open(MARK_FIFO, 5);
        let mut fifos = FifoTable::default();
        let by_frames = fifos.add((3, 0), queue, CAPACITY, false, 5).expect("free");
        (attachment, fifos, queue, by_frames)
    }

    fn arrived(from: Rank, token: u64, wait: bool, data: &[u8]) -> IncomingRecord<&[u8]> {
        IncomingRecord { from, token, wait, signal: false, data }
    }

    fn pop(queue: &Queue, head: &mut u64) -> Vec<u8> {
        let next = queue.peek(*head, 9).expect("undamaged").expect("a record");
        let mut data = vec![0; next.length];
        *head = queue.take(*head, next, (&mut data[..]).into());
        data
    }

    #[test]
    fn who_waits_is_answered_in_order_as_room_comes() {
        let (attachment, mut fifos, queue, by_frames) = fixture();
        let key = (3, 0);
        let mut head = 0;
        for from in 1..3 {
            let data = [from as u8; 24];
            let record = arrived(from, 0, true, &data);
            assert_eq!(fifos.append(&attachment, key, record), AppendOutcome::Taken);
        }
        assert_eq!(attachment.own_lines().notifies.0[counter_index(3, 5)].count.load(SeqCst), 2);
        let full = AppendOutcome::Refused(Refusal::Full);
        assert_eq!(fifos.append(&attachment, key, arrived(3, 7, false, b"")), full);
        for (from, token, length) in [(3, 30, 24), (4, 40, 8), (5, 50, 8), (6, 60, 0)] {
            let record = arrived(from, token, true, &[0; 24][..length]);
            assert_eq!(fifos.append(&attachment, key, record), AppendOutcome::Waiting);
            // One request a rank.
            assert_eq!(fifos.append(&attachment, key, record), full);
        }
        assert_eq!((by_frames.load(SeqCst), fifos.grants()), (4, vec![]));
        assert_eq!(pop(&queue, &mut head), [1; 24]);
        assert_eq!(fifos.grants(), [(3, 30, None)], "the first needs all of it");
        assert_eq!(pop(&queue, &mut head), [2; 24]);
        assert_eq!(fifos.grants(), [(4, 40, None), (5, 50, None), (6, 60, None)]);
        assert_eq!((by_frames.load(SeqCst), fifos.owes_answers()), (0, false));
    }

    #[test]
    fn who_waits_for_what_goes_away_is_told() {
        let (attachment, mut fifos, _, by_frames) = fixture();
        for _ in 0..2 {
            assert_eq!(
                fifos.append(&attachment, (3, 0), arrived(1, 0, true, &[1; 24])),
                AppendOutcome::Taken
            );
        }
        assert_eq!(
            fifos.append(&attachment, (3, 0), arrived(2, 20, true, b"")),
            AppendOutcome::Waiting
        );
        fifos.remove_window(2);
        assert_eq!((fifos.grants(), by_frames.load(SeqCst)), (vec![], 1));
        fifos.remove_window(3);
        assert!(fifos.owes_answers());
        assert_eq!(fifos.grants(), [(2, 20, Some(Refusal::Fifo))]);
        assert!(!fifos.owes_answers());
        let gone = AppendOutcome::Refused(Refusal::Fifo);
        assert_eq!(fifos.append(&attachment, (3, 0), arrived(2, 21, true, b"")), gone);
    }

    #[test]
    fn what_cannot_be_is_refused_and_damage_ends_a_wait() {
        let (attachment, mut fifos, queue, _) = fixture();
        let key = (3, 0);
        for wrong in [(3, 64), (2, 0), (u64::MAX, u64::MAX)] {
            let found = fifos.append(&attachment, wrong, arrived(1, 1, true, b"x"));
            assert_eq!(found, AppendOutcome::Refused(Refusal::Fifo));
        }
        let signal = IncomingRecord { signal: true, ..arrived(1, 1, true, b"x") };
        assert_eq!(fifos.append(&attachment, key, signal), AppendOutcome::Refused(Refusal::Fifo));
        let long = arrived(1, 1, true, &[0; 57]);
        assert_eq!(fifos.append(&attachment, key, long), AppendOutcome::Refused(Refusal::Record));
        assert_eq!(
            fifos.append(&attachment, key, arrived(1, 1, true, &[0; 56])),
            AppendOutcome::Taken
        );
        assert_eq!(
            fifos.append(&attachment, key, arrived(1, 1, true, b"")),
            AppendOutcome::Waiting
        );
        queue.open(MARK_FIFO, 5);
        assert_eq!(queue.push(1, &[0; 56][..]), Ok(PushOutcome::Taken));
        // SAFETY: the queue's tail, inside of the own arena.
        unsafe { attachment.open_arena(0).cast::<u64>().add(8).write_volatile(3) };
        assert_eq!(fifos.grants(), [(1, 1, Some(Refusal::Damage))]);
        let damaged = AppendOutcome::Refused(Refusal::Damage);
        assert_eq!(fifos.append(&attachment, key, arrived(1, 2, true, b"")), damaged);
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
