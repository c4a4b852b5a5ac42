//! Queueing station: a path of the network, or a computer's processors.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use super::model::Discipline;

/// A job at a station.
#[derive(Clone, Copy, Debug)]
struct Job {
    /// Its end: in virtual work if jobs share the station, otherwise in time.
    end: f64,
    number: u64,
    job: u64,
    /// When its service began.
    begin: f64,
}

impl PartialEq for Job {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Job {}

impl PartialOrd for Job {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Job {
    /// The greatest job ends first.
    fn cmp(&self, other: &Self) -> Ordering {
        other.end.total_cmp(&self.end).then(other.number.cmp(&self.number))
    }
}

/// Integrals over time since the last reset.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Integrals {
    /// Busy processors, times seconds.
    pub busy: f64,
    /// Jobs present, times seconds.
    pub present: f64,
}

#[derive(Debug)]
pub(super) struct Station {
    discipline: Discipline,
    processors: usize,
    /// Work of a processor per second.
    rate: f64,
    serving: BinaryHeap<Job>,
    waiting: VecDeque<(u64, f64)>,
    /// Work that every job has got since the beginning, if jobs share the station.
    virtual_work: f64,
    now: f64,
    numbers: u64,
    /// Changes whenever [`Station::next`] may.
    pub version: u64,
    pub integrals: Integrals,
}

impl Station {
    pub fn new(discipline: Discipline, processors: u32, rate: f64) -> Self {
        Self {
            discipline,
            processors: processors as usize,
            rate,
            serving: BinaryHeap::new(),
            waiting: VecDeque::new(),
            virtual_work: 0.0,
            now: 0.0,
            numbers: 0,
            version: 0,
            integrals: Integrals::default(),
        }
    }

    /// Work that one job gets done per second.
    fn speed(&self) -> f64 {
        #[allow(clippy::cast_precision_loss)]
        let share = self.processors as f64 / self.serving.len().max(self.processors) as f64;
        self.rate * share
    }

    /// Brings the integrals to `now`.
    pub fn pass(&mut self, now: f64) {
        let passed = now - self.now;
        #[allow(clippy::cast_precision_loss)]
        {
            let busy = self.serving.len().min(self.processors) as f64;
            self.integrals.busy += passed * busy;
            self.integrals.present += passed * (self.serving.len() + self.waiting.len()) as f64;
        }
        if self.serving.is_empty() {
            self.virtual_work = 0.0;
        } else {
            self.virtual_work += passed * self.speed();
        }
        self.now = now;
    }

    pub fn add(&mut self, now: f64, job: u64, work: f64) {
        self.pass(now);
        self.version += 1;
        match self.discipline {
            Discipline::Ps => self.serve(job, self.virtual_work + work),
            Discipline::Fcfs if self.serving.len() < self.processors => {
                self.serve(job, now + work / self.rate);
            }
            Discipline::Fcfs => self.waiting.push_back((job, work)),
        }
    }

    fn serve(&mut self, job: u64, end: f64) {
        self.numbers += 1;
        self.serving.push(Job { end, number: self.numbers, job, begin: self.now });
    }

    /// When the next job ends.
    pub fn next(&self) -> Option<f64> {
        let first = self.serving.peek()?;
        Some(match self.discipline {
            Discipline::Ps => self.now + (first.end - self.virtual_work).max(0.0) / self.speed(),
            Discipline::Fcfs => first.end,
        })
    }

    /// The job that ends now, and when its service began.
    pub fn pop(&mut self, now: f64) -> Option<(u64, f64)> {
        self.pass(now);
        self.version += 1;
        let done = self.serving.pop()?;
        if let Some((job, work)) = self.waiting.pop_front() {
            self.serve(job, now + work / self.rate);
        }
        Some((done.job, done.begin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(mut station: Station, jobs: &[(f64, f64)]) -> Vec<(u64, f64)> {
        let mut found = Vec::new();
        let mut jobs = jobs.iter().enumerate().peekable();
        loop {
            let end = station.next().unwrap_or(f64::INFINITY);
            match jobs.peek() {
                Some(&(index, &(at, work))) if at <= end => {
                    station.add(at, index as u64, work);
                    jobs.next();
                }
                _ if end.is_finite() => {
                    found.push((station.pop(end).unwrap().0, end));
                }
                _ => return found,
            }
        }
    }

    #[test]
    fn shared_and_in_turn() {
        let jobs = [(0.0, 4.0), (1.0, 1.0)];
        let shared = Station::new(Discipline::Ps, 1, 1.0);
        assert_eq!(ends(shared, &jobs), [(1, 3.0), (0, 5.0)]);
        let turn = Station::new(Discipline::Fcfs, 1, 1.0);
        assert_eq!(ends(turn, &jobs), [(0, 4.0), (1, 5.0)]);
        let two = Station::new(Discipline::Ps, 2, 2.0);
        assert_eq!(ends(two, &jobs), [(1, 1.5), (0, 2.0)]);
    }

    #[test]
    fn what_was_busy_adds_up() {
        let mut station = Station::new(Discipline::Ps, 2, 1.0);
        (0..3).for_each(|job| station.add(0.0, job, 2.0));
        assert_eq!(station.next(), Some(3.0));
        assert_eq!([0; 3].map(|_| station.pop(3.0).is_some()), [true; 3]);
        station.pass(10.0);
        assert_eq!((station.integrals.busy, station.integrals.present), (6.0, 9.0));
    }
}
