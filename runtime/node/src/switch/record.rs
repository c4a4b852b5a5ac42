//! Records of switches, from the switching thread to whoever asks, without locks.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use hdrhistogram::Histogram;
use kumi_control::message::{Nanos, Percentiles, SwitchBegin, SwitchSample};
use kumi_net::tracepoints::switched;
use kumi_sched::ClusterTime;

/// Switches remembered one by one.
pub const RING: usize = 4096;

/// One switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchRecord {
    /// Generation of the timetable.
    pub generation: u64,
    /// Tick.
    pub tick: u64,
    /// Cluster time at which it began.
    pub begin: ClusterTime,
    /// The machine's time at that moment.
    pub machine: Nanos,
    /// Nanoseconds the stopping took.
    pub freeze_ns: u64,
    /// Nanoseconds the continuing took.
    pub thaw_ns: u64,
    /// Nanoseconds by which it began behind the timetable.
    pub late_ns: u64,
}

impl SwitchRecord {
    fn begin(&self) -> SwitchBegin {
        let Self { generation, begin: cluster, machine, late_ns, .. } = *self;
        let due = ClusterTime(cluster.0.saturating_sub(late_ns));
        SwitchBegin { generation, due, cluster, machine }
    }
}

#[derive(Debug, Default)]
struct Slot([AtomicU64; 7]);

/// A ring with one writer, which never waits, and one reader.
#[derive(Debug)]
pub struct RecordRing {
    slots: Vec<Slot>,
    /// Records ever written.
    written: AtomicU64,
    /// Ticks that passed unseen.
    missed: AtomicU64,
    /// Stops and continuations that failed.
    failed: AtomicU64,
}

impl Default for RecordRing {
    fn default() -> Self {
        Self {
            slots: (0..RING).map(|_| Slot::default()).collect(),
            written: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }
}

fn place(position: u64) -> usize {
    usize::try_from(position % RING as u64).unwrap_or(0)
}

impl RecordRing {
    /// Adds a record. Only the switching thread calls this.
    pub fn push(&self, record: &SwitchRecord) {
        let position = self.written.load(Ordering::Relaxed);
        let values = [
            record.generation,
            record.tick,
            record.begin.0,
            record.machine,
            record.freeze_ns,
            record.thaw_ns,
            record.late_ns,
        ];
        for (cell, value) in self.slots[place(position)].0.iter().zip(values) {
            cell.store(value, Ordering::Relaxed);
        }
        self.written.store(position + 1, Ordering::Release);
        switched(record.tick, record.freeze_ns, record.thaw_ns, record.late_ns);
    }

    fn read(&self, position: u64) -> SwitchRecord {
        let [generation, tick, begin, machine, freeze_ns, thaw_ns, late_ns] =
            std::array::from_fn(|i| self.slots[place(position)].0[i].load(Ordering::Relaxed));
        SwitchRecord {
            generation,
            tick,
            begin: ClusterTime(begin),
            machine,
            freeze_ns,
            thaw_ns,
            late_ns,
        }
    }

    /// Counts ticks that were not kept.
    pub fn miss(&self, ticks: u64) {
        self.missed.fetch_add(ticks, Ordering::Relaxed);
    }

    /// Counts a stop or continuation that failed.
    pub fn fail(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// Stops and continuations that failed.
    pub fn failures(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

/// The reader's side: histograms of everything, and the last records.
#[derive(Debug)]
pub struct SwitchStatistics {
    read: u64,
    freeze: Histogram<u64>,
    thaw: Histogram<u64>,
    total: Histogram<u64>,
    lateness: Histogram<u64>,
    /// Nanoseconds of all switches, and by which they were late.
    sums: [u64; 2],
    recent: VecDeque<SwitchRecord>,
}

/// Longest time a histogram distinguishes: 10 s.
const LONGEST: u64 = 10_000_000_000;

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST, 3).expect("bounds that the histogram documents as valid")
}

impl Default for SwitchStatistics {
    fn default() -> Self {
        Self {
            read: 0,
            freeze: histogram(),
            thaw: histogram(),
            total: histogram(),
            lateness: histogram(),
            sums: [0; 2],
            recent: VecDeque::with_capacity(RING),
        }
    }
}

impl SwitchStatistics {
    /// Takes what the ring has since the last time. Call it at least every `RING` switches;
    /// otherwise the oldest are left out of the histograms.
    pub fn drain(&mut self, ring: &RecordRing) {
        let written = ring.written.load(Ordering::Acquire);
        // The writer may be at work in the slot that comes next: leave some room.
        let oldest = written.saturating_sub(RING as u64 - 16);
        for position in self.read.max(oldest)..written {
            let record = ring.read(position);
            if ring.written.load(Ordering::Acquire) - position >= RING as u64 {
                continue;
            }
            self.freeze.saturating_record(record.freeze_ns.max(1));
            self.thaw.saturating_record(record.thaw_ns.max(1));
            self.total.saturating_record((record.freeze_ns + record.thaw_ns).max(1));
            self.lateness.saturating_record(record.late_ns.max(1));
            self.sums[0] += record.freeze_ns + record.thaw_ns;
            self.sums[1] += record.late_ns;
            if self.recent.len() == RING {
                self.recent.pop_front();
            }
            self.recent.push_back(record);
        }
        self.read = written;
    }

    /// Nanoseconds that all switches took, and by which they were late, together.
    pub fn sums(&self) -> [u64; 2] {
        self.sums
    }

    /// Switches so far.
    pub fn count(&self) -> u64 {
        self.total.len()
    }

    /// The last switches, oldest first.
    pub fn recent(&self) -> impl DoubleEndedIterator<Item = &SwitchRecord> {
        self.recent.iter()
    }

    /// The summary, with at most the last `recent` switches one by one.
    pub fn sample(&self, ring: &RecordRing, recent: usize) -> SwitchSample {
        let skip = self.recent.len().saturating_sub(recent);
        let last = self.recent.iter().skip(skip);
        SwitchSample {
            count: self.total.len(),
            freeze: percentiles(&self.freeze),
            thaw: percentiles(&self.thaw),
            total: percentiles(&self.total),
            lateness: percentiles(&self.lateness),
            recent: last.map(SwitchRecord::begin).collect(),
            missed_ticks: ring.missed.load(Ordering::Relaxed),
        }
    }
}

fn percentiles(histogram: &Histogram<u64>) -> Percentiles {
    if histogram.is_empty() {
        return Percentiles::default();
    }
    // The mean of values up to 10^10 fits, and its fraction of a nanosecond means nothing.
    let mean = histogram.mean().round();
    Percentiles {
        count: histogram.len(),
        p50: histogram.value_at_quantile(0.5),
        p90: histogram.value_at_quantile(0.9),
        p99: histogram.value_at_quantile(0.99),
        max: histogram.max(),
        mean: if mean > 0.0 { mean as u64 } else { 0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(tick: u64) -> SwitchRecord {
        let (begin, machine) = (ClusterTime(tick * 100 + 7), tick * 100);
        SwitchRecord { generation: 1, tick, begin, machine, freeze_ns: 10, thaw_ns: 30, late_ns: 7 }
    }

    #[test]
    fn everything_arrives_once() {
        let (ring, mut digest) = (RecordRing::default(), SwitchStatistics::default());
        for tick in 0..10 {
            ring.push(&record(tick));
        }
        digest.drain(&ring);
        digest.drain(&ring);
        ring.push(&record(10));
        ring.miss(2);
        digest.drain(&ring);
        let sample = digest.sample(&ring, 2);
        assert_eq!((sample.count, sample.missed_ticks), (11, 2));
        assert_eq!((sample.total.p50, sample.total.max, sample.freeze.mean), (40, 40, 10));
        assert_eq!(sample.recent, [record(9).begin(), record(10).begin()]);
        let due = ClusterTime(1_000);
        let last = SwitchBegin { generation: 1, due, cluster: ClusterTime(1_007), machine: 1_000 };
        assert_eq!(sample.recent[1], last);
    }

    #[test]
    fn a_slow_reader_gets_the_latest() {
        let (ring, mut digest) = (RecordRing::default(), SwitchStatistics::default());
        for tick in 0..2 * RING as u64 {
            ring.push(&record(tick));
        }
        digest.drain(&ring);
        let sample = digest.sample(&ring, RING);
        assert_eq!(sample.count, RING as u64 - 16);
        let due = ClusterTime((2 * RING as u64 - 1) * 100);
        assert_eq!(sample.recent.last().unwrap().due, due);
    }
}
