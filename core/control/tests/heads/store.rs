//! The store that all heads reach, as etcd: the leader's key with its lease, and records that only the leader changes.

use std::collections::{BTreeMap, BTreeSet};

use kumi_control::message::{JobRecord, JobState};
use kumi_leadership::{LeaderKey, Nanos};
use kumi_sched::JobId;

use crate::world::{LEADER_LEASE, MachineClock};

/// What a head asks.
#[derive(Clone, Debug)]
pub enum Ask {
    Look,
    Grant,
    Make {
        lease: i64,
    },
    KeepAlive {
        lease: i64,
        asked: Nanos,
    },
    End {
        lease: i64,
    },
    Load,
    /// On the condition that the leader's key is the one of revision `made`, and that the write before this one was the last.
    Write {
        made: i64,
        number: u64,
        records: Vec<JobRecord>,
        output: OutputNote,
    },
}

/// What is written of output: which heads are in sync, and how much jobs have written.
#[derive(Clone, Debug, Default)]
pub struct OutputNote {
    pub in_sync: Option<BTreeSet<usize>>,
    pub written: BTreeMap<JobId, u64>,
}

#[derive(Clone, Debug)]
pub enum Answer {
    /// With whether the one who asks is to lead before others.
    Found(Option<LeaderKey>, i64, bool),
    Granted(i64),
    Made(Option<i64>),
    KeptAlive {
        asked: Nanos,
        alive: bool,
    },
    Ended,
    Loaded(Loaded),
    Written(bool),
}

/// What a head finds when it begins to lead.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub records: Vec<JobRecord>,
    /// The number of its term.
    pub term: u64,
    pub in_sync: BTreeSet<usize>,
    pub written: BTreeMap<JobId, u64>,
}

pub struct Store {
    clock: MachineClock,
    key: Option<(LeaderKey, i64)>,
    leases: BTreeMap<i64, Nanos>,
    revision: i64,
    pub records: BTreeMap<JobId, JobRecord>,
    /// The last write of the head that leads.
    last_write: u64,
    /// How many have led.
    pub terms: u64,
    /// Heads with all output that is acknowledged, and how much jobs have written.
    pub in_sync: BTreeSet<usize>,
    pub written: BTreeMap<JobId, u64>,
}

impl Store {
    pub fn new(clock: MachineClock) -> Self {
        let (leases, records) = Default::default();
        let (in_sync, written) = Default::default();
        Self {
            clock,
            key: None,
            leases,
            revision: 0,
            records,
            last_write: 0,
            terms: 0,
            in_sync,
            written,
        }
    }

    fn forget_leases(&mut self, now: Nanos) {
        let local = self.clock.of_lease(now);
        self.leases.retain(|_, end| *end > local);
        self.key = self.key.filter(|(key, _)| self.leases.contains_key(&key.lease));
    }

    /// Whether the key of this revision is still there.
    pub fn leads(&mut self, now: Nanos, made: i64) -> bool {
        self.forget_leases(now);
        self.key.is_some_and(|(_, key)| key == made)
    }

    pub fn answer(&mut self, now: Nanos, from: usize, ask: Ask) -> Answer {
        self.forget_leases(now);
        self.revision += 1;
        let end = self.clock.of_lease(now) + LEADER_LEASE;
        match ask {
            Ask::Look => {
                let preferred = self.in_sync.is_empty() || self.in_sync.contains(&from);
                let made = self.key.map_or(0, |(_, made)| made);
                Answer::Found(self.key.map(|(key, _)| key), made, preferred)
            }
            Ask::Grant => {
                self.leases.insert(self.revision, end);
                Answer::Granted(self.revision)
            }
            Ask::Make { lease } => {
                let free = self.key.is_none() && self.leases.contains_key(&lease);
                if free {
                    self.key = Some((LeaderKey { maker: from as u64, lease }, self.revision));
                    self.terms += 1;
                    self.last_write = 0;
                }
                Answer::Made(free.then_some(self.revision))
            }
            Ask::KeepAlive { lease, asked } => {
                let alive = self.leases.get_mut(&lease).map(|old| *old = end).is_some();
                Answer::KeptAlive { asked, alive }
            }
            Ask::End { lease } => {
                self.leases.remove(&lease);
                self.forget_leases(now);
                Answer::Ended
            }
            Ask::Load => Answer::Loaded(Loaded {
                records: self.records.values().cloned().collect(),
                term: self.terms,
                in_sync: self.in_sync.clone(),
                written: self.written.clone(),
            }),
            Ask::Write { made, number, records, output } => {
                let leads = self.leads(now, made);
                // A question that was asked again may arrive after later ones.
                if leads && number == self.last_write + 1 {
                    self.last_write = number;
                    records.into_iter().for_each(|record| self.put(record));
                    self.in_sync = output.in_sync.unwrap_or_else(|| self.in_sync.clone());
                    self.written.extend(output.written);
                }
                Answer::Written(leads)
            }
        }
    }

    /// A job only ever goes on in its life.
    fn put(&mut self, record: JobRecord) {
        let place = |state: &JobState| match state {
            JobState::Queued => 0,
            JobState::Preparing => 1,
            JobState::Running => 2,
            JobState::Ending(_) => 3,
            JobState::Ended(_) => 4,
        };
        if let Some(last) = self.records.get(&record.spec.job) {
            assert_eq!(last.spec.request.token, record.spec.request.token, "a number has one job");
            assert!(place(&last.state) <= place(&record.state), "{last:?} then {record:?}");
            if let (
                JobState::Ending(last) | JobState::Ended(last),
                JobState::Ending(next) | JobState::Ended(next),
            ) = (&last.state, &record.state)
            {
                assert_eq!(last, next, "the outcome does not change");
            }
        }
        self.records.insert(record.spec.job, record);
    }
}
