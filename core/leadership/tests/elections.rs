//! Elections in virtual time: processes whose clocks differ, that stand still and are cut off, and a store that is away.
//!
//! Every run is a function of its seed. `KUMI_SIM_FACTOR=20` makes twenty times as many runs, `KUMI_SIM_SEED=7` those of one
//! seed.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use kumi_leadership::{Claim, LeaderKey, Nanos, Step, Term, next_step};

const MS: Nanos = 1_000_000;
const LEASE: Nanos = 3_000 * MS;
/// Between looks of a follower; also how long an answer is waited for.
const LOOK: Nanos = 500 * MS;
const FAULTY: Nanos = 60_000 * MS;
const CALM: Nanos = 30_000 * MS;
const RUNS: u64 = if cfg!(miri) { 2 } else { 1_000 };

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn within(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.next().is_multiple_of(count)
    }
}

/// A clock that runs wrong by up to a tenth.
#[derive(Clone, Copy)]
struct Clock {
    offset: Nanos,
    percent: u64,
}

impl Clock {
    fn random(random: &mut Random) -> Self {
        Self { offset: random.within(0, 1 << 50), percent: random.within(90, 110) }
    }

    fn local(self, now: Nanos) -> Nanos {
        self.offset + now / 100 * self.percent
    }

    /// How long that is in the world.
    fn length(self, local: Nanos) -> Nanos {
        local / self.percent * 100
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Look,
    Grant,
    Make { lease: i64 },
    KeepAlive { lease: i64, asked: Nanos },
    End { lease: i64 },
    Write { term: i64 },
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    Found(Option<LeaderKey>, i64),
    Granted(i64),
    Made(Option<i64>),
    KeptAlive { asked: Nanos, alive: bool },
    Ended,
    Written(bool),
}

/// The store: one key, and leases.
struct Store {
    clock: Clock,
    key: Option<(LeaderKey, i64)>,
    leases: BTreeMap<i64, Nanos>,
    revision: i64,
    written: i64,
}

impl Store {
    fn forget_leases(&mut self, now: Nanos) {
        let local = self.clock.local(now);
        self.leases.retain(|_, end| *end > local);
        self.key = self.key.filter(|(key, _)| self.leases.contains_key(&key.lease));
    }

    /// Its members choose another leader, which renews all leases.
    fn renew_all(&mut self, now: Nanos) {
        self.forget_leases(now);
        let end = self.clock.local(now) + LEASE;
        self.leases.values_mut().for_each(|lease| *lease = end);
    }

    fn answer(&mut self, now: Nanos, from: usize, ask: Ask) -> Answer {
        self.forget_leases(now);
        self.revision += 1;
        let end = self.clock.local(now) + LEASE;
        match ask {
            Ask::Look => {
                Answer::Found(self.key.map(|(key, _)| key), self.key.map_or(0, |(_, made)| made))
            }
            Ask::Grant => {
                self.leases.insert(self.revision, end);
                Answer::Granted(self.revision)
            }
            Ask::Make { lease } => {
                let free = self.key.is_none() && self.leases.contains_key(&lease);
                if free {
                    self.key = Some((LeaderKey { maker: from as u64, lease }, self.revision));
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
            Ask::Write { term } => {
                let leads = self.key.is_some_and(|(_, made)| made == term);
                if leads {
                    assert!(term >= self.written, "a later leader has written");
                    self.written = term;
                }
                Answer::Written(leads)
            }
        }
    }
}

struct Process {
    clock: Clock,
    claim: Option<Claim>,
    /// Its term, lease and the revision of its key.
    term: Option<(Term, i64, i64)>,
    /// Answers to earlier questions are of no interest.
    question: u64,
    waiting_since: Option<Nanos>,
    frozen_until: Nanos,
    cut_off: bool,
    acts: u64,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Tick(usize),
    Asked(usize, u64, Ask),
    Answered(usize, u64, Answer),
    Fault,
}

struct World {
    random: Random,
    now: Nanos,
    sequence: u64,
    queue: BinaryHeap<Reverse<(Nanos, u64, usize)>>,
    events: Vec<Event>,
    store: Store,
    away_until: Nanos,
    processes: Vec<Process>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let clock = Clock::random(&mut random);
        let store = Store { clock, key: None, leases: BTreeMap::new(), revision: 0, written: 0 };
        let count = random.within(2, 4) as usize;
        let process = |random: &mut Random| Process {
            clock: Clock::random(random),
            claim: None,
            term: None,
            question: 0,
            waiting_since: None,
            frozen_until: 0,
            cut_off: false,
            acts: 0,
        };
        let processes = (0..count).map(|_| process(&mut random)).collect();
        let queue = BinaryHeap::new();
        let (events, away_until) = (Vec::new(), 0);
        Self { random, now: 0, sequence: 0, queue, events, store, away_until, processes }
    }

    fn at(&mut self, delay: Nanos, event: Event) {
        self.sequence += 1;
        self.events.push(event);
        self.queue.push(Reverse((self.now + delay, self.sequence, self.events.len() - 1)));
    }

    fn calm(&self) -> bool {
        self.now > FAULTY
    }

    fn ask(&mut self, who: usize, ask: Ask) {
        let process = &mut self.processes[who];
        process.question += 1;
        process.waiting_since = Some(self.now);
        let question = process.question;
        self.send(Event::Asked(who, question, ask));
    }

    /// A message takes its time, and may be lost.
    fn send(&mut self, event: Event) {
        let faulty = !self.calm();
        if faulty && self.random.one_in(20) {
            return;
        }
        let slow = faulty && self.random.one_in(10);
        let delay = self.random.within(MS, if slow { 2 * LEASE } else { 20 * MS });
        self.at(delay, event);
    }

    fn run(mut self) {
        for who in 0..self.processes.len() {
            self.at(0, Event::Tick(who));
        }
        self.at(0, Event::Fault);
        while let Some(Reverse((time, _, index))) = self.queue.pop() {
            if time > FAULTY + CALM {
                break;
            }
            self.now = time;
            self.handle(self.events[index]);
        }
        let leading = (0..self.processes.len()).filter(|&who| self.leads(who)).count();
        assert_eq!(leading, 1, "without faults one leads");
        assert!(self.processes.iter().any(|process| process.acts > 0));
    }

    fn leads(&self, who: usize) -> bool {
        let process = &self.processes[who];
        let local = process.clock.local(self.now);
        process.term.is_some_and(|(term, ..)| term.leads(local))
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Fault => self.fault(),
            Event::Tick(who) | Event::Answered(who, ..)
                if self.processes[who].frozen_until > self.now =>
            {
                let left = self.processes[who].frozen_until - self.now;
                self.at(left, event);
            }
            Event::Tick(who) => {
                self.tick(who);
                let pause = self.random.within(50 * MS, 150 * MS);
                self.at(pause, Event::Tick(who));
            }
            Event::Asked(who, question, ask) => {
                if self.now < self.away_until || self.processes[who].cut_off {
                    return;
                }
                let answer = self.store.answer(self.now, who, ask);
                self.send(Event::Answered(who, question, answer));
            }
            Event::Answered(who, question, answer) => {
                if self.processes[who].question == question && !self.processes[who].cut_off {
                    self.processes[who].waiting_since = None;
                    self.answered(who, answer);
                }
            }
        }
    }

    fn fault(&mut self) {
        if self.calm() {
            self.away_until = 0;
            for process in &mut self.processes {
                (process.frozen_until, process.cut_off) = (0, false);
            }
            return;
        }
        let who = self.random.next() as usize % self.processes.len();
        match self.random.within(0, 4) {
            0 => self.processes[who].frozen_until = self.now + self.random.within(0, 3 * LEASE),
            1 => self.processes[who].cut_off = true,
            2 => self.processes.iter_mut().for_each(|process| process.cut_off = false),
            3 => self.away_until = self.now + self.random.within(0, 2 * LEASE),
            _ => self.store.renew_all(self.now),
        }
        let pause = self.random.within(100 * MS, 3_000 * MS);
        self.at(pause, Event::Fault);
    }

    fn tick(&mut self, who: usize) {
        let process = &mut self.processes[who];
        let local = process.clock.local(self.now);
        let since = process.waiting_since;
        let waits = since.is_some_and(|since| self.now - since < process.clock.length(LOOK));
        if let Some((term, lease, _)) = process.term {
            if local >= term.given_up() {
                process.term = None;
            } else if local >= term.renewal() && !waits {
                self.ask(who, Ask::KeepAlive { lease, asked: local });
            }
        } else if !waits {
            self.ask(who, Ask::Look);
        }
        self.act(who);
    }

    /// What only a leader may do: it looks at its clock right before.
    fn act(&mut self, who: usize) {
        if !self.leads(who) {
            return;
        }
        for other in (0..self.processes.len()).filter(|&other| other != who) {
            assert!(!self.leads(other), "{who} and {other} lead");
        }
        self.processes[who].acts += 1;
        if let Some((.., term)) = self.processes[who].term
            && self.processes[who].waiting_since.is_none()
        {
            self.ask(who, Ask::Write { term });
        }
    }

    fn answered(&mut self, who: usize, answer: Answer) {
        let process = &mut self.processes[who];
        let local = process.clock.local(self.now);
        match answer {
            Answer::Found(found, made) => match next_step(who as u64, process.claim, found) {
                Step::Follow => {}
                Step::Claim => {
                    process.claim = Some(Claim { lease: 0, asked: local });
                    self.ask(who, Ask::Grant);
                }
                Step::Lead(claim) => self.begin(who, claim, made),
                Step::EndEarlier(lease) => self.ask(who, Ask::End { lease }),
            },
            Answer::Granted(lease) => {
                if let Some(claim) = &mut process.claim {
                    claim.lease = lease;
                    self.ask(who, Ask::Make { lease });
                }
            }
            Answer::Made(made) => match (made, process.claim) {
                (Some(made), Some(claim)) => self.begin(who, claim, made),
                _ => process.claim = None,
            },
            Answer::KeptAlive { asked, alive } => match &mut process.term {
                Some((term, ..)) if alive => term.renewed(asked),
                _ => process.term = None,
            },
            Answer::Written(false) => process.term = None,
            Answer::Ended | Answer::Written(true) => {}
        }
    }

    fn begin(&mut self, who: usize, claim: Claim, made: i64) {
        self.processes[who].claim = None;
        self.processes[who].term = Some((Term::new(LEASE, claim.asked), claim.lease, made));
    }
}

struct SeedGuard(u64);

impl Drop for SeedGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the failing run: KUMI_SIM_SEED={}", self.0);
        }
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn two_never_act_and_in_the_end_one_leads() {
    let seeds = match number("KUMI_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..RUNS * number("KUMI_SIM_FACTOR").unwrap_or(1),
    };
    for seed in seeds {
        let _guard = SeedGuard(seed);
        World::new(seed).run();
    }
}
