//! Ranks of several threads: a thread that acquires sees what was written, also while another one of its rank is still about to
//! drop what it was told of.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use kumi_coherence::{
    Acquired, BarrierKind, Coherence, Config, Event, Events, Home, Message, Migration, Misuse,
    PageSet, Placement, Protocol, Rank, Sharing,
};
use proptest::prelude::*;

use crate::random_programs::{Numbers, cases};

const PAGES: u32 = 2;
const LOCKS: u32 = 3;

/// A word of shared memory. Neighbours lie in one page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Word {
    /// Guarded by the lock of this number.
    Count(u32),
    /// Written by one rank before the barrier.
    Own(u32),
}

impl Word {
    fn page(self) -> u32 {
        let (Word::Count(number) | Word::Own(number)) = self;
        number % PAGES
    }
}

/// What a thread does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Lock(u32),
    /// Reads what the lock guards and adds 1.
    Count(u32),
    /// Reads what all ranks wrote before the barrier, if somebody has said under this lock that it is over.
    Look(u32),
    /// Sends what this rank has written to its home.
    Flush,
    Unlock(u32),
    WriteOwn,
    Barrier,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    Runs,
    Waits,
    /// It has been resumed and has still to drop what is stale.
    Resumed(Acquired),
}

struct Thread {
    ops: Vec<Op>,
    next: usize,
    state: State,
    /// It has passed the barrier.
    passed: bool,
}

struct Process {
    coherence: Coherence,
    threads: Vec<Thread>,
    /// Pages that can be read, as they were when they were fetched.
    view: BTreeMap<u32, BTreeMap<Word, u32>>,
    /// What was written and not sent home yet.
    unsent: BTreeMap<Word, u32>,
}

struct World {
    processes: Vec<Process>,
    home: BTreeMap<Word, u32>,
    wires: BTreeMap<(Rank, Rank), VecDeque<Message>>,
    counted: BTreeMap<u32, u32>,
    /// Locks under which a thread that had passed the barrier has counted.
    told: BTreeSet<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Run(usize, usize),
    Deliver(Rank, Rank),
}

/// Looks and counts under a lock.
fn section(lock: u32) -> [Op; 5] {
    [Op::Lock(lock), Op::Look(lock), Op::Count(lock), Op::Flush, Op::Unlock(lock)]
}

impl World {
    /// The homes of the pages are at rank 0, where nobody runs.
    fn new(protocol: Protocol, sections: &[Vec<Vec<u32>>]) -> World {
        let ranks = sections.len() as u32 + 1;
        let process = |rank: u32| {
            let node_of = (0..ranks).collect();
            let (migration, page_bytes) = (Migration::Never, 64);
            let config = Config { rank, node_of, protocol, migration, pages: PAGES, page_bytes };
            let mut coherence = Coherence::new(config);
            coherence.allocate(64 * 2, Placement::At(0), Sharing::Invalidate).expect("room");
            let main = match rank {
                0 => vec![Op::Barrier],
                _ => vec![Op::WriteOwn, Op::Flush, Op::Barrier],
            };
            let count = |locks: &[u32]| locks.iter().copied().flat_map(section).collect();
            let mut threads: Vec<Vec<Op>> = vec![main];
            if let Some(sections) = rank.checked_sub(1).map(|at| &sections[at as usize]) {
                threads.extend(sections.iter().map(|locks| count(locks)));
                // The first thread counts after the barrier.
                let last = threads.pop().unwrap_or_default();
                threads[0].extend(last);
            }
            let thread = |ops| Thread { ops, next: 0, state: State::Runs, passed: false };
            let threads = threads.into_iter().map(thread).collect();
            Process { coherence, threads, view: BTreeMap::new(), unsent: BTreeMap::new() }
        };
        World {
            processes: (0..ranks).map(process).collect(),
            home: BTreeMap::new(),
            wires: BTreeMap::new(),
            counted: BTreeMap::new(),
            told: BTreeSet::new(),
        }
    }

    fn steps(&self) -> Vec<Step> {
        let full = self.wires.iter().filter(|(_, wire)| !wire.is_empty());
        let mut steps: Vec<_> = full.map(|((from, to), _)| Step::Deliver(*from, *to)).collect();
        for (at, process) in self.processes.iter().enumerate() {
            for (thread, one) in process.threads.iter().enumerate() {
                if one.state != State::Waits && one.next < one.ops.len() {
                    steps.push(Step::Run(at, thread));
                }
            }
        }
        steps
    }

    fn is_over(&self) -> bool {
        let mut threads = self.processes.iter().flat_map(|process| &process.threads);
        threads.all(|thread| thread.next == thread.ops.len())
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Deliver(from, to) => {
                let wire = self.wires.get_mut(&(from, to)).expect("a wire");
                let message = wire.pop_front().expect("a message");
                let events = self.processes[to as usize].coherence.receive(from, message);
                self.carry_out(to as usize, events.expect("kept to the protocol"));
            }
            Step::Run(at, thread) => self.run(at, thread),
        }
    }

    fn carry_out(&mut self, at: usize, events: Events) {
        for event in events {
            match event {
                Event::Send { to, message } => {
                    self.wires.entry((at as Rank, to)).or_default().push_back(message);
                }
                Event::Resume { ticket, acquired } => {
                    let thread = &mut self.processes[at].threads[ticket as usize];
                    assert_eq!(thread.state, State::Waits);
                    thread.state = State::Resumed(acquired);
                }
                other => panic!("{other:?}, and nothing is sent home by messages here"),
            }
        }
    }

    fn run(&mut self, at: usize, number: usize) {
        let process = &mut self.processes[at];
        let thread = &mut process.threads[number];
        let op = thread.ops[thread.next];
        let mut events = Events::new();
        match (op, std::mem::replace(&mut thread.state, State::Runs)) {
            (_, State::Waits) => unreachable!("a thread that waits takes no step"),
            (_, State::Resumed(acquired)) => {
                for page in acquired.stale.ranges().iter().cloned().flatten() {
                    process.view.remove(&page);
                }
                process.coherence.forgotten(&acquired);
                thread.passed |= acquired.epoch.is_some();
            }
            (Op::Lock(lock), State::Runs) => {
                thread.state = State::Waits;
                events = process.coherence.lock(lock, number as u64).expect("not held");
                self.carry_out(at, events);
                return;
            }
            (Op::Barrier, State::Runs) => {
                thread.state = State::Waits;
                let barrier = process.coherence.barrier(BarrierKind::Memory, number as u64);
                events = barrier.expect("the same barrier");
                self.carry_out(at, events);
                return;
            }
            (Op::Count(lock), State::Runs) => {
                if thread.passed {
                    self.told.insert(lock);
                }
                self.count(at, lock);
            }
            (Op::Look(lock), State::Runs) => {
                if self.told.contains(&lock) {
                    self.look(at);
                }
            }
            (Op::WriteOwn, State::Runs) => self.write(at, Word::Own(at as u32), 1),
            (Op::Flush, State::Runs) => self.flush(at),
            (Op::Unlock(lock), State::Runs) => {
                events = process.coherence.unlock(lock, number as u64).expect("held");
            }
        }
        self.processes[at].threads[number].next += 1;
        self.carry_out(at, events);
    }

    fn count(&mut self, at: usize, lock: u32) {
        let found = self.read(at, Word::Count(lock));
        let counted = self.counted.entry(lock).or_default();
        assert_eq!(found, *counted, "rank {at} reads the count of lock {lock}");
        *counted += 1;
        self.write(at, Word::Count(lock), found + 1);
    }

    fn look(&mut self, at: usize) {
        for writer in 1..self.processes.len() as u32 {
            let found = self.read(at, Word::Own(writer));
            assert_eq!(found, 1, "rank {at} reads what rank {writer} wrote before the barrier");
        }
    }

    fn read(&mut self, at: usize, word: Word) -> u32 {
        let home = &self.home;
        let process = &mut self.processes[at];
        assert_eq!(process.coherence.home(word.page()), Home::At(0));
        let in_page = |(other, _): &(&Word, &u32)| other.page() == word.page();
        let fetch = || home.iter().filter(in_page).map(|(word, value)| (*word, *value)).collect();
        let page = process.view.entry(word.page()).or_insert_with(fetch);
        let found = process.unsent.get(&word).or(page.get(&word));
        found.copied().unwrap_or(0)
    }

    fn write(&mut self, at: usize, word: Word, value: u32) {
        self.read(at, word);
        self.processes[at].unsent.insert(word, value);
    }

    fn flush(&mut self, at: usize) {
        let process = &mut self.processes[at];
        let mut pages = PageSet::new();
        for (word, value) in std::mem::take(&mut process.unsent) {
            pages.insert(word.page()..word.page() + 1);
            self.home.insert(word, value);
            if let Some(page) = process.view.get_mut(&word.page()) {
                page.insert(word, value);
            }
        }
        process.coherence.close_interval(pages);
    }
}

/// For two to three ranks of two to four threads: the locks that each of them takes.
fn sections() -> impl Strategy<Value = Vec<Vec<Vec<u32>>>> {
    let locks = prop::collection::vec(0..LOCKS, 1..6);
    let threads = prop::collection::vec(locks, 2..5);
    prop::collection::vec(threads, 2..4)
}

/// Threads and wires have priorities, which change now and then: some of them fall far behind, which steps at random do not let them
/// (Burckhardt et al., A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs).
fn run(protocol: Protocol, sections: &[Vec<Vec<u32>>], seed: u64) {
    let mut world = World::new(protocol, sections);
    let mut numbers = Numbers(seed);
    let mut priorities = BTreeMap::new();
    while !world.is_over() {
        let steps = world.steps();
        assert!(!steps.is_empty(), "nothing can happen any more");
        let mut random = || numbers.below(1 << 20);
        for step in &steps {
            priorities.entry(*step).or_insert_with(&mut random);
        }
        let chosen = *steps.iter().max_by_key(|step| priorities[*step]).expect("some");
        if random() % 8 == 0 {
            priorities.insert(chosen, random());
        }
        world.step(chosen);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn threads_see_what_was_written_before(lazy: bool, sections in sections(), seed: u64) {
        run(if lazy { Protocol::Lazy } else { Protocol::Scope }, &sections, seed);
    }
}

#[test]
fn nothing_is_released_while_a_thread_is_in_a_barrier_at_which_homes_move() {
    for (migration, kind, allowed) in [
        (Migration::SingleWriter, BarrierKind::Memory, false),
        (Migration::SingleWriter, BarrierKind::Plain, true),
        (Migration::Never, BarrierKind::Memory, true),
    ] {
        let (node_of, protocol) = ([0, 1].into(), Protocol::Scope);
        let config = Config { rank: 1, node_of, protocol, migration, pages: PAGES, page_bytes: 64 };
        let mut rank = Coherence::new(config);
        let written = std::iter::once(0..1).collect();
        assert_eq!(rank.check_release(&written), Ok(()));
        rank.barrier(kind, 1).expect("a barrier");
        let released = rank.check_release(&written);
        assert_eq!(released, if allowed { Ok(()) } else { Err(Misuse::InBarrier) });
        assert_eq!(rank.check_release(&PageSet::new()), Ok(()), "nothing was written");
    }
}

/// The only message among these events.
fn message(events: Result<Events, Misuse>) -> Message {
    match events.expect("kept to the protocol").as_slice() {
        [Event::Send { message, .. }] => message.clone(),
        other => panic!("{other:?} is not one message"),
    }
}

#[test]
fn messages_of_a_rank_that_has_left_a_barrier_keep_their_order() {
    let config = |rank| Config {
        rank,
        node_of: [0, 1, 2].into(),
        protocol: Protocol::Lazy,
        migration: Migration::Never,
        pages: PAGES,
        page_bytes: 64,
    };
    let [mut root, mut manager, mut other] = [0, 1, 2].map(|rank| Coherence::new(config(rank)));
    root.barrier(BarrierKind::Memory, 1).expect("a barrier");
    let arrives = message(manager.barrier(BarrierKind::Memory, 1));
    root.receive(1, arrives).expect("an arrival");
    let arrives = message(other.barrier(BarrierKind::Memory, 1));
    let departs = root.receive(2, arrives).expect("an arrival");
    let Some(Event::Send { message: depart, .. }) = departs.first() else { panic!("{departs:?}") };
    other.receive(0, depart.clone()).expect("a departure");
    let (set, reset) = (message(other.set_condition(1)), message(other.reset_condition(1)));
    assert_eq!(manager.receive(2, set), Ok(Events::new()));
    assert_eq!(manager.receive(2, reset), Ok(Events::new()));
    let left = manager.receive(0, depart.clone()).expect("a departure");
    assert!(matches!(left[..], [Event::Resume { .. }]), "{left:?}");
    let asks = message(other.wait_condition(1, 1));
    assert_eq!(manager.receive(2, asks), Ok(Events::new()), "the condition was reset");
}
