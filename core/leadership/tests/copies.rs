//! Copies in virtual time: standbys that are slow, stand still, are away, and lose their disks, a store that answers late, and
//! leaders that follow one another.
//!
//! Every run is a function of its seed. `KUMI_SIM_FACTOR=20` makes twenty times as many runs, `KUMI_SIM_SEED=7` those of one
//! seed.

use std::collections::{BTreeMap, BTreeSet};

use kumi_leadership::{Copies, Nanos};

const MS: Nanos = 1_000_000;
const PATIENCE: Nanos = 3_000 * MS;
const HEADS: usize = 3;
const LOGS: u64 = 3;
const STEPS: u64 = 3_000;
const RUNS: u64 = if cfg!(miri) { 2 } else { 150 };

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

    fn below(&mut self, count: u64) -> u64 {
        self.next() % count
    }
}

/// A head as the world has it: what is on its disk counts, and not what the leader believes.
#[derive(Default)]
struct Head {
    disk: BTreeMap<u64, u64>,
    connected: bool,
    stands_still: bool,
}

impl Head {
    fn end(&self, log: u64) -> u64 {
        self.disk.get(&log).copied().unwrap_or(0)
    }
}

struct World {
    random: Random,
    now: Nanos,
    heads: Vec<Head>,
    leader: usize,
    copies: Copies<usize, u64>,
    /// The list in the store, and one that is on its way there.
    stored: BTreeSet<usize>,
    on_its_way: Option<BTreeSet<usize>>,
    acknowledged: BTreeMap<u64, u64>,
    /// Terms whose leader was in the list, and acknowledgements.
    kept_terms: u64,
    acts: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let copies = Copies::new(0, BTreeSet::new(), PATIENCE, 0);
        Self {
            random: Random(seed),
            now: 0,
            heads: (0..HEADS).map(|_| Head::default()).collect(),
            leader: 0,
            copies,
            stored: BTreeSet::new(),
            on_its_way: None,
            acknowledged: BTreeMap::new(),
            kept_terms: 0,
            acts: 0,
        }
    }

    fn run(&mut self) {
        for _ in 0..STEPS {
            self.now += self.random.below(40) * MS;
            self.step();
            self.copies.advance(self.now);
            if self.on_its_way.is_none() {
                self.on_its_way = self.copies.next_list();
            }
            self.check();
        }
    }

    /// All in the list have all that is acknowledged: whoever of them leads loses nothing.
    fn check(&self) {
        for &member in &self.stored {
            for (&log, &end) in &self.acknowledged {
                let has = self.heads[member].end(log);
                assert!(has >= end, "{member} has {has} of {log}, and {end} is acknowledged");
            }
        }
    }

    fn step(&mut self) {
        let (member, log) = (self.random.below(HEADS as u64) as usize, self.random.below(LOGS));
        match self.random.below(100) {
            0 => self.another_leads(),
            1 => self.heads[member].stands_still ^= true,
            2 if member != self.leader => self.connection_ends(member),
            3..8 if member != self.leader && !self.heads[member].connected => self.connect(member),
            8..12 => self.store_answers(),
            12..40 => self.write(log),
            40..75 => self.take(member, log),
            _ => self.acknowledge(log),
        }
    }

    fn write(&mut self, log: u64) {
        let end = self.heads[self.leader].end(log) + 1 + self.random.below(9);
        self.heads[self.leader].disk.insert(log, end);
        self.copies.extended(log, end, self.now);
    }

    /// A standby copies as it likes, and what it says is true.
    fn take(&mut self, member: usize, log: u64) {
        let whole = self.heads[self.leader].end(log);
        let head = &mut self.heads[member];
        if member == self.leader || !head.connected || head.stands_still {
            return;
        }
        let end = head.end(log);
        let end = if self.random.below(4) > 0 { whole } else { end + (whole - end.min(whole)) / 2 };
        head.disk.insert(log, end);
        self.copies.taken(&member, log, end, self.now);
    }

    fn acknowledge(&mut self, log: u64) {
        let end = self.heads[self.leader].end(log);
        let end = end - self.random.below(end + 1) / 4;
        if self.copies.acknowledge(log, end) {
            let known = self.acknowledged.entry(log).or_default();
            *known = end.max(*known);
            self.acts += 1;
        }
    }

    fn connect(&mut self, member: usize) {
        self.heads[member].connected = true;
        // What the leader does not have it cannot have taken of this leader.
        for log in 0..LOGS {
            let whole = self.heads[self.leader].end(log);
            let end = self.heads[member].end(log).min(whole);
            self.heads[member].disk.insert(log, end);
        }
        self.copies.connected(member, self.now);
        for log in 0..LOGS {
            let end = self.heads[member].end(log);
            self.copies.taken(&member, log, end, self.now);
        }
        self.copies.introduced(&member);
    }

    fn connection_ends(&mut self, member: usize) {
        if std::mem::replace(&mut self.heads[member].connected, false) {
            self.copies.gone(&member, self.now);
            let keeps = self.stored.contains(&member)
                || self.on_its_way.as_ref().is_some_and(|list| list.contains(&member));
            // A machine that is replaced. One in the list would lose what is acknowledged.
            if !keeps && self.random.below(4) == 0 {
                self.heads[member].disk.clear();
            }
        }
    }

    /// It was written some time ago: what the leader learns now the store may have long since.
    fn store_answers(&mut self) {
        let Some(list) = self.on_its_way.clone() else { return };
        if self.stored != list {
            self.stored = list;
            return;
        }
        self.on_its_way = None;
        self.copies.recorded();
    }

    /// The leader dies, whatever is on its way. One in the list leads as long as there is one.
    fn another_leads(&mut self) {
        let last = self.leader;
        let fit: Vec<usize> = self.stored.iter().copied().filter(|&head| head != last).collect();
        self.leader = match fit.as_slice() {
            [] => (last + 1) % HEADS,
            fit => fit[self.random.below(fit.len() as u64) as usize],
        };
        self.kept_terms += u64::from(!fit.is_empty());
        self.on_its_way = None;
        self.heads.iter_mut().for_each(|head| head.connected = false);
        if fit.is_empty() {
            // What it lacks it marks.
            let disk = &self.heads[self.leader].disk;
            let has = |log: &u64| disk.get(log).copied().unwrap_or(0);
            self.acknowledged.iter_mut().for_each(|(log, end)| *end = has(log).min(*end));
        }
        let stored = self.stored.clone();
        self.copies = Copies::new(self.leader, stored, PATIENCE, self.now);
        for (&log, &end) in &self.heads[self.leader].disk {
            self.copies.extended(log, end, self.now);
        }
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
fn whoever_is_in_the_list_has_all_that_is_acknowledged() {
    let seeds = match number("KUMI_SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..RUNS * number("KUMI_SIM_FACTOR").unwrap_or(1),
    };
    let (mut kept, mut acts) = (0, 0);
    for seed in seeds.clone() {
        let _guard = SeedGuard(seed);
        let mut world = World::new(seed);
        world.run();
        kept += world.kept_terms;
        acts += world.acts;
    }
    let runs = seeds.end - seeds.start;
    assert!(kept > runs && acts > 50 * runs, "{kept} takeovers, {acts} acknowledgements");
}

fn set(heads: &[usize]) -> BTreeSet<usize> {
    heads.iter().copied().collect()
}

/// A leader of 0 with this list, which the store has.
fn leader(list: &[usize]) -> Copies<usize, u64> {
    let mut copies = Copies::new(0, set(list), PATIENCE, 0);
    if copies.next_list().is_some() {
        copies.recorded();
    }
    copies
}

fn introduce(copies: &mut Copies<usize, u64>, member: usize, now: Nanos) {
    copies.connected(member, now);
    copies.introduced(&member);
    copies.advance(now);
}

#[test]
fn a_leader_that_is_alone_waits_for_nobody() {
    let mut copies = Copies::new(0, BTreeSet::new(), PATIENCE, 0);
    copies.extended(1, 5, 0);
    assert!(!copies.acknowledge(1, 5), "the store does not have it in the list yet");
    assert_eq!(copies.next_list(), Some(set(&[0])));
    assert_eq!(copies.next_list(), None, "it is being written");
    copies.recorded();
    assert!(copies.acknowledge(1, 5));
    assert_eq!(copies.next_deadline(), None);
}

#[test]
fn a_standby_enters_the_list_when_it_has_what_is_acknowledged_and_is_waited_for() {
    let mut copies = leader(&[0]);
    copies.extended(1, 5, 0);
    assert!(copies.acknowledge(1, 5));
    introduce(&mut copies, 1, 10);
    assert_eq!(copies.next_list(), None, "it has nothing yet");
    copies.extended(1, 9, 11);
    assert!(copies.acknowledge(1, 6), "it is not waited for");
    copies.taken(&1, 1, 5, 12);
    assert_eq!(copies.next_list(), None, "six are acknowledged");
    assert!(!copies.acknowledge(1, 7), "it is nearly there, and waited for");
    copies.taken(&1, 1, 6, 13);
    assert_eq!(copies.next_list(), Some(set(&[0, 1])));
    copies.recorded();
    copies.taken(&1, 1, 8, 14);
    assert!(copies.acknowledge(1, 8) && !copies.acknowledge(1, 9));
}

#[test]
fn a_standby_that_stands_still_is_waited_for_until_the_store_has_that_it_left() {
    let mut copies = leader(&[0]);
    introduce(&mut copies, 1, 0);
    assert_eq!(copies.next_list(), Some(set(&[0, 1])));
    copies.recorded();
    copies.advance(100 * PATIENCE);
    assert_eq!(copies.next_list(), None, "there is nothing to copy");
    copies.extended(1, 5, 100 * PATIENCE);
    let end = copies.next_deadline().expect("it is waited for");
    assert_eq!(end, 101 * PATIENCE);
    copies.advance(end - 1);
    assert_eq!(copies.next_list(), None);
    copies.advance(end);
    assert_eq!(copies.next_list(), Some(set(&[0])));
    assert!(!copies.acknowledge(1, 5), "the store may not have it yet");
    copies.recorded();
    assert!(copies.acknowledge(1, 5));
    // It goes on, and catches up.
    copies.taken(&1, 1, 5, end + 1);
    copies.taken(&1, 1, 5, end + 2);
    assert_eq!(copies.next_list(), Some(set(&[0, 1])));
}

/// One that takes a little each time is not waited for until it has all.
#[test]
fn a_standby_that_falls_ever_further_behind_leaves() {
    let mut copies = leader(&[0]);
    introduce(&mut copies, 1, 0);
    copies.next_list();
    copies.recorded();
    let left = (1..).find(|step| {
        let now = step * PATIENCE / 10;
        copies.extended(1, step * 100, now);
        copies.taken(&1, 1, *step, now);
        copies.advance(now);
        copies.next_list().is_some()
    });
    assert!(left.is_some_and(|step| step <= 11), "{left:?}");
}

#[test]
fn a_new_leader_waits_for_those_in_the_list_and_not_for_others() {
    let mut copies = leader(&[0, 1]);
    copies.extended(1, 5, 0);
    assert!(!copies.acknowledge(1, 5), "1 may connect");
    copies.connected(2, 0);
    copies.introduced(&2);
    copies.connected(1, 0);
    copies.taken(&1, 1, 5, 0);
    copies.introduced(&1);
    assert!(copies.acknowledge(1, 5));
    // One that has led without the list has it alone first.
    let mut copies = Copies::new(2, set(&[0, 1]), PATIENCE, 0);
    copies.extended(1, 5, 0);
    assert!(!copies.acknowledge(1, 5));
    assert_eq!(copies.next_list(), Some(set(&[2])));
    copies.recorded();
    assert!(copies.acknowledge(1, 5));
}

#[test]
fn a_standby_that_comes_back_with_less_leaves() {
    let mut copies = leader(&[0]);
    introduce(&mut copies, 1, 0);
    copies.next_list();
    copies.recorded();
    copies.extended(1, 5, 0);
    copies.taken(&1, 1, 5, 0);
    assert!(copies.acknowledge(1, 5));
    copies.gone(&1, 1);
    assert!(copies.acknowledge(1, 5), "it still has it");
    copies.connected(1, 2);
    copies.taken(&1, 1, 4, 2);
    copies.introduced(&1);
    assert_eq!(copies.next_list(), Some(set(&[0])));
}

/// As one does whose disk is full: each connection ends before it has taken anything.
#[test]
fn a_standby_that_comes_and_goes_is_not_waited_for() {
    let mut copies = leader(&[0]);
    introduce(&mut copies, 1, 0);
    copies.next_list();
    copies.recorded();
    copies.extended(1, 5, 0);
    let mut now = 0;
    while copies.next_list().is_none() {
        assert!(now <= 2 * PATIENCE, "it is waited for");
        copies.gone(&1, now);
        copies.connected(1, now + PATIENCE / 4);
        now += PATIENCE / 3;
        copies.advance(now);
    }
    copies.recorded();
    assert!(copies.acknowledge(1, 5) && *copies.in_sync() == set(&[0]));
}

#[test]
fn a_log_that_is_no_more_holds_up_nothing() {
    let mut copies = leader(&[0]);
    copies.extended(1, 5, 0);
    assert!(copies.acknowledge(1, 5));
    introduce(&mut copies, 1, 0);
    assert_eq!(copies.next_list(), None);
    copies.forget(1, 1);
    assert_eq!(copies.next_list(), Some(set(&[0, 1])));
    copies.recorded();
    // Of what nobody knows of nothing is noted.
    copies.taken(&1, 77, 5, 2);
    copies.taken(&9, 1, 5, 2);
    copies.extended(2, 3, 3);
    copies.forget(2, 4);
    assert_eq!(copies.next_deadline(), None);
}
